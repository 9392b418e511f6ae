//! `penstock trace follow`: one call, with all its requests and device accesses, as a tree.
use super::answer::{Answer, Form, Kind, time};
use super::question::{asked, limits, open};
use crate::error::{CliError, Result};
use crate::{out, size};
use clap::Args;
use penstock_analysis::{Key, Layer, Part, Trace, Tree, follow as follow_call};
use penstock_trace::{NO_SERVER, Owner};
use std::path::PathBuf;

/// Follow one call through every layer to each device access on every server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace follow traces/run 0/1              the first call of rank 0
  penstock trace follow traces/run 0/1/*/2          what it did on server 2")]
pub struct FollowArgs {
    /// The trace: a directory, or one file of it.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The call: PROCESS/MPI-CALL/FILE-SYSTEM-CALL/SERVER, as `penstock trace list` shows it.
    #[arg(value_name = "KEY")]
    call: String,
    /// Lines that are shown at most.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    most: usize,
    #[command(flatten)]
    form: Form,
}

pub fn follow(args: &FollowArgs) -> Result<()> {
    let key: Key = args.call.parse().map_err(CliError::new)?;
    let trace = open(&args.trace)?;
    let tree = follow_call(&trace, &key).map_err(asked)?;
    let lines = lines(&tree, args.most);
    let mut answer = Answer::new(&[
        ("depth", Kind::Count),
        ("part", Kind::Text),
        ("id", Kind::Count),
        ("layer", Kind::Text),
        ("operation", Kind::Text),
        ("server", Kind::Text),
        ("file", Kind::Text),
        ("offset", Kind::Count),
        ("bytes", Kind::Bytes),
        ("begin", Kind::Time),
        ("duration", Kind::Time),
        ("exclusive", Kind::Time),
        ("critical", Kind::Time),
        ("error", Kind::Count),
    ]);
    let began = tree.nodes[0].record.begin;
    for &(i, depth, _) in &lines {
        let node = &tree.nodes[i];
        let (record, part) = (&node.record, &trace.parts[node.part]);
        answer.push(row![
            depth as u64,
            part.name(),
            record.id,
            record.layer.name(),
            record.operation.name().to_string(),
            (record.server != NO_SERVER).then(|| record.server.to_string()),
            part.file(record.file),
            record.offset,
            record.bytes,
            record.begin.saturating_sub(began),
            record.duration,
            node.exclusive,
            node.critical,
            u64::from(record.error.unsigned_abs()),
        ]);
    }
    if lines.len() < tree.nodes.len() {
        answer.note(format!(
            "{} further records are not shown: --most",
            tree.nodes.len() - lines.len()
        ));
    }
    answer.notes(tree.notes.iter());
    limits(&mut answer, &trace, &[]);
    if args.form.json || args.form.csv {
        return answer.print(&args.form);
    }
    for (i, _, branch) in lines {
        let node = &tree.nodes[i];
        out::line(format_args!(
            "{branch}{}",
            shown(&trace, &tree, i, &trace.parts[node.part])
        ));
    }
    let text = tree.layers();
    let path: Vec<String> = text
        .iter()
        .filter(|(_, (_, critical))| *critical > 0)
        .map(|(layer, (_, critical))| format!("{} {}", layer.name(), time(*critical)))
        .collect();
    out::line(format_args!("critical path: {}", path.join(", ")));
    answer.print_notes();
    Ok(())
}

/// Places of the tree's nodes, their depths, and the branches before them.
fn lines(tree: &Tree, most: usize) -> Vec<(usize, usize, String)> {
    let mut lines = Vec::new();
    let mut stack = vec![(0, 0, String::new(), String::new())];
    while let Some((i, depth, branch, below)) = stack.pop() {
        if lines.len() == most {
            break;
        }
        lines.push((i, depth, branch));
        let children = &tree.nodes[i].children;
        for (k, &child) in children.iter().enumerate().rev() {
            let last = k + 1 == children.len();
            let (branch, more) = if last {
                ("└ ", "  ")
            } else {
                ("├ ", "│ ")
            };
            stack.push((
                child,
                depth + 1,
                format!("{below}{branch}"),
                format!("{below}{more}"),
            ));
        }
    }
    lines
}

fn shown(trace: &Trace, tree: &Tree, i: usize, part: &Part) -> String {
    let node = &tree.nodes[i];
    let record = &node.record;
    let mut text = format!("{} {}", record.layer.name(), record.operation.name());
    match record.layer {
        Layer::Request => text += &format!(" to server {}", record.server),
        Layer::Server => text += &format!(" at {}", part.name()),
        _ => {}
    }
    if record.layer <= Layer::Client {
        let file = part.file(record.file);
        if !file.is_empty() {
            text += &format!(" {file}");
        }
    }
    if record.bytes > 0 {
        text += &format!(" {} at {}", size::bytes(record.bytes), record.offset);
    }
    let began = record.begin as i128 - tree.nodes[0].record.begin as i128;
    let sign = if began < 0 { "-" } else { "+" };
    let began = time(began.unsigned_abs() as u64);
    text += &format!(": {} from {sign}{began}", time(record.duration));
    if !node.children.is_empty() {
        text += &format!(", own {}", time(node.exclusive));
    }
    if record.error != 0 {
        text += &format!(", error {}", record.error);
    }
    let others: Vec<String> = node
        .links
        .iter()
        .filter_map(|link| match link.owner {
            Owner::Call(c) if node.links.len() == 1 && c.call != 0 => None,
            Owner::Call(c) => Some(format!(
                "{} of call {}/{}",
                size::bytes(link.bytes),
                super::question::process(trace, c.program, c.rank),
                c.call
            )),
            other => Some(format!("{} of {}", size::bytes(link.bytes), other.name())),
        })
        .collect();
    if !others.is_empty() {
        text += &format!(" [holds {}]", others.join(", "));
    }
    text
}
