//! `penstock trace list`: single calls, the longest or the first.
use super::answer::{Answer, Kind};
use super::question::{Question, asked, process};
use crate::error::{CliError, Result};
use clap::Args;
use penstock_analysis::{Blocks, Layer, Part, Trace, follow};
use penstock_trace::{NO_SERVER, Parent, Record};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// List calls, the longest first, with the key of each for `follow` and `breakdown --call`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace list traces/run                         the longest calls of the program
  penstock trace list traces/run --layer device --first 100
  penstock trace list traces/run --operation MPI_File_sync --call 3")]
pub struct ListArgs {
    #[command(flatten)]
    question: Question,
    /// Calls of this layer [default: that on top of the program].
    #[arg(long, value_name = "LAYER", value_parser = layers())]
    layer: Option<String>,
    /// Calls of this function.
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// How many of the longest.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    longest: u32,
    /// The first ones in time instead.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    first: Option<u32>,
}

/// Names of layers, for options.
pub fn layers() -> clap::builder::PossibleValuesParser {
    Layer::ALL.map(Layer::name).to_vec().into()
}

type Found = (Reverse<(u64, u64)>, usize, Record);

pub fn list(args: &ListArgs) -> Result<()> {
    let trace = args.question.open()?;
    let mut notes = penstock_analysis::Notes::default();
    let operation = match &args.operation {
        Some(name) => Some(penstock_trace::Operation::from_name(name).ok_or_else(|| {
            CliError::new(format!("no operation is called {name}"))
                .next("`penstock trace stats` shows those of a trace")
        })?),
        None => None,
    };
    let layer = args.layer.as_deref().and_then(Layer::from_name);
    let layer = match layer.or_else(|| top(&trace)) {
        _ if operation.is_some() && layer.is_none() => None,
        found => found,
    };
    let most = args.first.unwrap_or(args.longest) as usize;
    let rank = |record: &Record| match args.first {
        // What is to be thrown away first is the greatest.
        Some(_) => (u64::MAX - record.begin, u64::MAX - record.id),
        None => (record.duration, u64::MAX - record.begin),
    };
    let meant = |record: &Record| {
        layer.is_none_or(|l| l == record.layer) && operation.is_none_or(|o| o == record.operation)
    };
    let mut found: Vec<Found> = if args.question.call.names_a_call() {
        let tree = follow(&trace, &args.question.call).map_err(asked)?;
        let nodes = tree
            .nodes
            .iter()
            .filter(|n| args.layer.is_none() && operation.is_none() || meant(&n.record));
        nodes
            .map(|n| (Reverse(rank(&n.record)), n.part, n.record))
            .collect()
    } else {
        let answers = trace.each(
            |part| part.is_server() || args.question.call.has_process(part.program, part.rank),
            |part, blocks| Ok(of_part(part, blocks, args, layer, &meant, &rank, most)),
        );
        answers
            .map_err(asked)?
            .take(&mut notes)
            .into_iter()
            .flatten()
            .collect()
    };
    found.sort();
    found.truncate(most);
    let mut answer = Answer::new(&[
        ("key", Kind::Text),
        ("id", Kind::Count),
        ("layer", Kind::Text),
        ("operation", Kind::Text),
        ("file", Kind::Text),
        ("offset", Kind::Count),
        ("bytes", Kind::Bytes),
        ("begin", Kind::Time),
        ("duration", Kind::Time),
        ("server", Kind::Text),
        ("thread", Kind::Text),
        ("error", Kind::Count),
    ]);
    for (_, part, record) in &found {
        let part = &trace.parts[*part];
        answer.push(row![
            key(&trace, part, record),
            record.id,
            record.layer.name(),
            record.operation.name().to_string(),
            part.file(record.file),
            record.offset,
            record.bytes,
            record.begin,
            record.duration,
            (record.server != NO_SERVER).then(|| record.server.to_string()),
            record.thread.to_string(),
            u64::from(record.error.unsigned_abs()),
        ]);
    }
    answer.notes(notes.iter());
    args.question.print(answer, &trace, &[])
}

/// The topmost layer of clients' parts, or else of any.
fn top(trace: &Trace) -> Option<Layer> {
    let blocks = |servers: bool| {
        let parts = trace.parts.iter().filter(move |p| p.is_server() == servers);
        parts.flat_map(|p| p.stream.blocks())
    };
    let of = |servers| {
        Layer::ALL
            .into_iter()
            .find(|l| blocks(servers).any(|b| b.has(*l)))
    };
    of(false).or_else(|| of(true))
}

fn of_part(
    part: &Part,
    blocks: &mut Blocks<'_>,
    args: &ListArgs,
    layer: Option<Layer>,
    meant: &impl Fn(&Record) -> bool,
    rank: &impl Fn(&Record) -> (u64, u64),
    most: usize,
) -> Vec<Found> {
    let mut found: BinaryHeap<Found> = BinaryHeap::new();
    blocks.some_records(
        |info| layer.is_none_or(|l| info.has(l)),
        |record, _| {
            let server = args.question.call.server;
            if !meant(record) || server.is_some_and(|s| s != record.server) {
                return;
            }
            let one = Reverse(rank(record));
            if found.len() < most {
                found.push((one, part.index, *record));
            } else if found.peek().is_some_and(|worst| one < worst.0) {
                found.pop();
                found.push((one, part.index, *record));
            }
        },
    );
    found.into_vec()
}

/// The key of a record, as far as it is its own.
fn key(trace: &Trace, part: &Part, record: &Record) -> String {
    let mine = process(trace, part.program, part.rank);
    match (record.layer, record.parent) {
        (Layer::Netcdf | Layer::Pnetcdf | Layer::Hdf5 | Layer::MpiIo, _) => {
            format!("{mine}/{}", record.id)
        }
        (_, Parent::None) if !part.is_server() => format!("{mine}/{}", record.id),
        (Layer::Stdio | Layer::Posix | Layer::Client, _) => format!("{mine}/*/{}", record.id),
        (Layer::Request, Parent::Here(call)) => format!("{mine}/*/{call}/{}", record.server),
        (_, Parent::Caller(c)) => {
            format!(
                "{}/*/{}/{}",
                process(trace, c.program, c.rank),
                c.call,
                record.server
            )
        }
        _ => "-".into(),
    }
}
