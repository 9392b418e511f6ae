//! `penstock trace servers`: which servers a process reached, and which processes a server served.
use super::answer::{Answer, Kind};
use super::question::{Question, asked, process};
use crate::error::Result;
use clap::Args;
use penstock_analysis::{Figures, Layer, follow};
use std::collections::BTreeMap;

/// Calls and bytes between each process and each server, as the clients and as the servers recorded them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace servers traces/run --call 3             servers that rank 3 reached
  penstock trace servers traces/run --call '*/*/*/2'     processes that server 2 served
  penstock trace servers traces/run --call 3/17          one call
  penstock trace servers traces/run --total              each server, all processes together")]
pub struct ServersArgs {
    #[command(flatten)]
    question: Question,
    /// All processes together.
    #[arg(long)]
    total: bool,
}

type Pair = (Option<(u64, u32)>, u32);

pub fn servers(args: &ServersArgs) -> Result<()> {
    let mut pairs: BTreeMap<Pair, [Figures; 4]> = BTreeMap::new();
    let places = [Layer::Request, Layer::Server, Layer::Store, Layer::Device];
    let place = |layer: Layer| places.iter().position(|l| *l == layer);
    let one = args.question.call.names_a_call();
    let (trace, problems) = if one {
        let trace = args.question.open()?;
        let tree = follow(&trace, &args.question.call).map_err(asked)?;
        let part = &trace.parts[tree.nodes[0].part];
        for node in &tree.nodes {
            let record = &node.record;
            if let Some(place) = place(record.layer) {
                let figures = Figures {
                    calls: 1,
                    bytes: record.bytes,
                    inclusive: record.duration,
                    ..Figures::default()
                };
                let who = (!args.total).then_some((part.program, part.rank));
                pairs.entry((who, record.server)).or_default()[place].merge(&figures);
            }
        }
        (trace, tree.notes.iter().map(str::to_owned).collect())
    } else {
        let (trace, summary) = args.question.summary()?;
        for cell in summary.cells(&args.question.call) {
            let group = &cell.group;
            if let Some(place) = place(group.layer()) {
                let who = (!args.total).then_some((group.program, group.rank));
                pairs.entry((who, group.server)).or_default()[place].merge(&cell.figures);
            }
        }
        (trace, summary.problems)
    };
    let mut answer = Answer::new(&[
        ("process", Kind::Text),
        ("server", Kind::Text),
        ("requests", Kind::Count),
        ("bytes", Kind::Bytes),
        ("request time", Kind::Time),
        ("served", Kind::Count),
        ("served bytes", Kind::Bytes),
        ("served time", Kind::Time),
        ("store calls", Kind::Count),
        ("device accesses", Kind::Count),
        ("device bytes", Kind::Bytes),
    ]);
    for ((who, server), [request, served, store, device]) in pairs {
        if server == penstock_trace::NO_SERVER {
            continue;
        }
        answer.push(row![
            who.map(|(program, rank)| process(&trace, program, rank)),
            server.to_string(),
            request.calls,
            request.bytes,
            request.inclusive,
            served.calls,
            served.bytes,
            served.inclusive,
            store.calls,
            device.calls,
            device.bytes,
        ]);
    }
    if answer.len() == 0 {
        answer.note("no requests to servers are in this part of the trace: files of other file systems, or descriptors");
    }
    args.question.print(answer, &trace, &problems)
}
