//! `penstock trace pattern`: how accesses follow each other, in files and on devices.
use super::answer::{Answer, Kind, share};
use super::list::layers;
use super::question::Question;
use crate::error::Result;
use clap::Args;
use penstock_analysis::{Layer, Order};
use std::collections::BTreeMap;

/// How accesses follow each other: in each file, process by process; with --device on each server's device, whoever asked.
///
/// Consecutive: where the one before ended. Strided: as far on as the one before was. Ahead: anywhere further on. Back: before.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace pattern traces/run
  penstock trace pattern traces/run --device")]
pub struct PatternArgs {
    #[command(flatten)]
    question: Question,
    /// Devices of servers (their stores where no device is modelled).
    #[arg(long)]
    device: bool,
    /// Calls of this layer [default: that on top of the program].
    #[arg(long, value_name = "LAYER", conflicts_with = "device", value_parser = layers())]
    layer: Option<String>,
}

const ORDER: [(&str, Kind); 5] = [
    ("pattern", Kind::Text),
    ("consecutive", Kind::Share),
    ("strided", Kind::Share),
    ("ahead", Kind::Share),
    ("back", Kind::Share),
];

fn order(order: &Order) -> Vec<super::answer::Value> {
    let all = order.consecutive + order.strided + order.ahead + order.back;
    let of = |n| share(n, all);
    row![
        order.name(),
        of(order.consecutive),
        of(order.strided),
        of(order.ahead),
        of(order.back)
    ]
}

pub fn pattern(args: &PatternArgs) -> Result<()> {
    args.question.about_groups("penstock trace follow")?;
    let (trace, summary) = args.question.summary()?;
    if args.device {
        let mut columns = vec![
            ("server", Kind::Text),
            ("of", Kind::Text),
            ("accesses", Kind::Count),
            ("bytes", Kind::Bytes),
            ("mean", Kind::Bytes),
        ];
        columns.extend(ORDER);
        let owners = ["calls", "flush", "read-ahead", "migration", "nobody"];
        columns.extend(owners.map(|name| (name, Kind::Bytes)));
        let mut answer = Answer::new(&columns);
        for server in &summary.servers {
            if args
                .question
                .call
                .server
                .is_some_and(|s| s != server.server)
            {
                continue;
            }
            let mut row = row![
                server.server.to_string(),
                if server.has_device { "device" } else { "store" },
                server.accesses,
                server.bytes,
                server.bytes.checked_div(server.accesses),
            ];
            row.extend(order(&server.order));
            row.extend(server.owners.map(super::answer::Value::from));
            answer.push(row);
        }
        if args.question.call.rank.is_some() {
            answer.note(
                "a device's pattern is that of all processes; --call chooses servers alone here",
            );
        }
        return args.question.print(answer, &trace, &summary.problems);
    }
    let layer = args
        .layer
        .as_deref()
        .and_then(Layer::from_name)
        .or_else(|| summary.top());
    let groups = summary.by(&args.question.call, |group| {
        let kind = group.operation().kind();
        let moves = matches!(
            kind,
            penstock_analysis::OperationKind::Read | penstock_analysis::OperationKind::Write
        );
        (moves && Some(group.layer()) == layer).then_some((group.file, kind))
    });
    let mut processes: BTreeMap<u32, std::collections::BTreeSet<(u64, u32)>> = BTreeMap::new();
    for cell in summary.cells(&args.question.call) {
        if Some(cell.group.layer()) == layer {
            processes
                .entry(cell.group.file)
                .or_default()
                .insert((cell.group.program, cell.group.rank));
        }
    }
    let mut columns = vec![
        ("file", Kind::Text),
        ("does", Kind::Text),
        ("processes", Kind::Count),
        ("calls", Kind::Count),
        ("bytes", Kind::Bytes),
        ("mean", Kind::Bytes),
    ];
    columns.extend(ORDER);
    let mut answer = Answer::new(&columns);
    for ((file, kind), figures) in groups {
        let mut row = row![
            if file == 0 { "-" } else { summary.file(file) },
            kind.name(),
            processes.get(&file).map(|p| p.len() as u64),
            figures.calls,
            figures.bytes,
            figures.bytes.checked_div(figures.calls),
        ];
        let mut all = Order::default();
        for one in &summary.orders {
            if Some(one.layer) == layer.map(|l| l as u8)
                && one.file == file
                && one.writes == (kind == penstock_analysis::OperationKind::Write)
                && args.question.call.has_process(one.program, one.rank)
            {
                all.merge(&one.order);
            }
        }
        row.extend(order(&all));
        answer.push(row);
    }
    if let Some(layer) = layer {
        answer.total("layer", Kind::Text, layer.name());
    }
    args.question.print(answer, &trace, &summary.problems)
}
