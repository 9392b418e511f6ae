//! The slowest calls, each followed to the devices.
use super::data::Names;
use super::pictures::{Pictures, Seen};
use crate::trace::Trace;
use crate::tree::{Tree, follow_call};
use crate::{Error, Key};
use penstock_trace::NO_SERVER;
use serde::Serialize;
use std::collections::HashSet;

/// Slowest calls that are followed.
const TREES: usize = 12;
/// Records of a tree.
const NODES: usize = 250;

/// A slow call with its tree.
#[derive(Debug, Serialize)]
pub(super) struct Slow {
    key: String,
    process: usize,
    /// Depth, name of part, layer, name of operation, begin, duration, exclusive, critical, bytes, offset, error, id.
    nodes: Vec<NodeRow>,
    left_out: usize,
    notes: Vec<String>,
}

/// The longest call of each of some operations, and then the longest of all. Otherwise a slow flush, which causes nothing,
/// could hide all reads and writes. `calls` stand longest first, and so does what is chosen.
fn chosen(calls: &[Seen]) -> Vec<&Seen> {
    let mut operations = HashSet::new();
    let first = (0..calls.len())
        .filter(|&i| operations.insert((calls[i].record.layer, calls[i].record.operation)))
        .take(TREES / 2);
    let mut places: Vec<usize> = first.collect();
    let rest: Vec<usize> = (0..calls.len())
        .filter(|i| !places.contains(i))
        .take(TREES - places.len())
        .collect();
    places.extend(rest);
    places.sort_unstable();
    places.into_iter().map(|i| &calls[i]).collect()
}

/// Follows the slowest calls.
pub(super) fn slow(
    trace: &Trace,
    pictures: &Pictures,
    names: &mut Names,
) -> Result<Vec<Slow>, Error> {
    let mut all = Vec::new();
    for seen in chosen(&pictures.calls) {
        let part = &trace.parts[seen.part];
        let tree = follow_call(trace, part, &seen.record)?;
        let key = Key {
            program: names.several.then_some(part.program),
            rank: Some(part.rank),
            call: Some(seen.record.id),
            ..Key::default()
        };
        let (nodes, left_out) = nodes(trace, &tree, pictures.axis.begin, names);
        all.push(Slow {
            key: key.to_string(),
            process: names.part(part),
            nodes,
            left_out,
            notes: tree.notes.iter().take(5).map(str::to_owned).collect(),
        });
    }
    Ok(all)
}

type NodeRow = (
    u32,
    usize,
    u8,
    usize,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    i32,
    u64,
);

/// The tree in the order in which it is read, cut to [`NODES`]. Those with the most time on the critical path stay, with
/// all above them.
fn nodes(trace: &Trace, tree: &Tree, begin: u64, names: &mut Names) -> (Vec<NodeRow>, usize) {
    let mut parent = vec![None; tree.nodes.len()];
    for (i, node) in tree.nodes.iter().enumerate() {
        node.children.iter().for_each(|&c| parent[c] = Some(i));
    }
    let mut order: Vec<usize> = (0..tree.nodes.len()).collect();
    order.sort_by_key(|&i| {
        (
            std::cmp::Reverse((tree.nodes[i].critical, tree.nodes[i].record.duration)),
            i,
        )
    });
    let mut stays = vec![false; tree.nodes.len()];
    let mut count = 0;
    for i in order {
        let mut way = Vec::new();
        let mut at = Some(i);
        while let Some(node) = at
            && !stays[node]
            && way.len() <= NODES
        {
            way.push(node);
            at = parent[node];
        }
        if count + way.len() > NODES {
            continue;
        }
        count += way.len();
        way.iter().for_each(|&node| stays[node] = true);
    }
    let mut rows = Vec::new();
    let mut stack: Vec<(usize, u32)> = if tree.nodes.is_empty() {
        vec![]
    } else {
        vec![(0, 0)]
    };
    while let Some((i, depth)) = stack.pop() {
        if !stays[i] {
            continue;
        }
        let node = &tree.nodes[i];
        let r = &node.record;
        let part = match r.server {
            NO_SERVER => names.part(&trace.parts[node.part]),
            server => names.place(&format!("server {server}")),
        };
        rows.push((
            depth,
            part,
            r.layer as u8,
            names.place(&r.operation.name().to_string()),
            r.begin.saturating_sub(begin),
            r.duration,
            node.exclusive,
            node.critical,
            r.bytes,
            r.offset,
            r.error,
            r.id,
        ));
        stack.extend(node.children.iter().rev().map(|&c| (c, depth + 1)));
    }
    let left_out = tree.nodes.len() - rows.len();
    (rows, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_trace::{Layer, Operation, Parent, Record};

    #[test]
    fn each_operation_has_its_longest_call() {
        let seen = |id: u64, name: &str, duration: u64| Seen {
            rank: duration,
            part: 0,
            record: Record {
                id,
                parent: Parent::None,
                layer: Layer::MpiIo,
                operation: Operation::from_name(name).unwrap(),
                file: 1,
                offset: 0,
                bytes: 1,
                begin: 0,
                duration,
                error: 0,
                thread: 0,
                server: NO_SERVER,
                code: 0,
            },
        };
        let mut calls: Vec<Seen> = (0..50)
            .map(|i| seen(i, "MPI_File_sync", 1000 - i))
            .collect();
        calls.push(seen(50, "MPI_File_write_at", 10));
        calls.push(seen(51, "MPI_File_write_at", 9));
        let ids: Vec<u64> = chosen(&calls).iter().map(|s| s.record.id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 50]);
        assert!(chosen(&[]).is_empty());
        assert_eq!(chosen(&calls[..3]).len(), 3);
    }
}
