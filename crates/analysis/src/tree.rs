//! One call, followed through every layer to each device access on every server (IOPin, IT 2).
//!
//! The client's stream is read twice: for the call itself, then for what happened in its time. Servers' streams are read
//! once, only blocks of the time of the call.
use crate::cover::Cover;
use crate::figures::Figures;
use crate::key::Key;
use crate::trace::{Part, Trace};
use crate::{Error, Notes};
use penstock_trace::{Caller, Layer, Link, Owner, Parent, Record};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Most records of one call.
const MOST_NODES: usize = 1 << 20;
/// How long after a call its late work is looked for, nanoseconds. Links find later device accesses, too.
const AFTER: u64 = 1_000_000_000;

/// A record in the tree.
#[derive(Debug, Clone)]
pub struct Node {
    /// Place of its part in [`Trace::parts`].
    pub part: usize,
    /// The record; its time is on the trace's line.
    pub record: Record,
    /// Of device accesses: whose bytes they hold.
    pub links: Vec<Link>,
    /// Places of what it caused, in the order of their begins.
    pub children: Vec<usize>,
    /// Nanoseconds in which no child ran.
    pub exclusive: u64,
    /// Nanoseconds on the critical path of the tree: what would be gained if it took none.
    pub critical: u64,
}

/// A call and all that came of it.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// The call is the first.
    pub nodes: Vec<Node>,
    /// What limits the answer.
    pub notes: Notes,
}

impl Tree {
    /// Figures by layer, with the time on the critical path.
    pub fn layers(&self) -> BTreeMap<Layer, (Figures, u64)> {
        let mut layers: BTreeMap<Layer, (Figures, u64)> = BTreeMap::new();
        let mut same = vec![0; self.nodes.len()];
        let mut covers = vec![Cover::default(); self.nodes.len()];
        for (parent, node) in self.nodes.iter().enumerate() {
            for &child in &node.children {
                let record = &self.nodes[child].record;
                covers[parent].add(record.begin, record.end());
                if record.layer == node.record.layer {
                    same[parent] += record.duration;
                }
            }
        }
        for (i, node) in self.nodes.iter().enumerate() {
            let record = &node.record;
            let (length, sum) = (covers[i].length(), covers[i].sum());
            let mut one = Figures {
                calls: 1,
                bytes: record.bytes,
                errors: u64::from(record.error != 0),
                inclusive: record.duration.saturating_sub(same[i]),
                exclusive: node.exclusive,
                overlap: sum - length,
                after: length - (record.duration - node.exclusive),
                least: record.duration,
                most: record.duration,
                first: record.begin,
                last: record.end(),
                ..Figures::default()
            };
            one.durations.add(record.duration);
            let layer = layers.entry(record.layer).or_default();
            layer.0.merge(&one);
            layer.1 += node.critical;
        }
        layers
    }

    /// Exclusive times, and the critical path.
    fn measure(&mut self) {
        for i in 0..self.nodes.len() {
            let mut children = std::mem::take(&mut self.nodes[i].children);
            children.sort_by_key(|&c| (self.nodes[c].record.begin, c));
            let mut cover = Cover::default();
            for &child in &children {
                let record = &self.nodes[child].record;
                cover.add(record.begin, record.end());
            }
            let node = &mut self.nodes[i];
            node.children = children;
            node.exclusive =
                node.record.duration - cover.within(node.record.begin, node.record.end());
        }
        // From the end backwards: what ended last kept the others waiting.
        if self.nodes.is_empty() {
            return;
        }
        let mut stack = vec![(0, self.nodes[0].record.begin, self.nodes[0].record.end())];
        while let Some((i, from, to)) = stack.pop() {
            let mut at = to;
            let mut children = self.nodes[i].children.clone();
            children.sort_by_key(|&c| std::cmp::Reverse(self.nodes[c].record.end()));
            let mut own = 0;
            for child in children {
                let record = self.nodes[child].record;
                let (begin, end) = (record.begin.max(from), record.end().min(at));
                // One that still ran when its successor on the path began was not waited for by that one.
                if record.end() > at && at < to || end <= begin {
                    continue;
                }
                own += at - end;
                stack.push((child, begin, end));
                at = begin;
            }
            self.nodes[i].critical += own + at.saturating_sub(from);
        }
    }
}

/// Follows the call that `key` names.
pub fn follow(trace: &Trace, key: &Key) -> Result<Tree, Error> {
    let mut notes = Notes::default();
    let wanted = key.below.or(key.call).ok_or_else(|| {
        Error::Question(format!(
            "`{key}` names no single call: write PROCESS/MPI-CALL, such as 0/1; `penstock trace list` shows calls"
        ))
    })?;
    let part = process(trace, key)?;
    let found = trace.each(
        |p| p.index == part.index,
        |_, blocks| {
            let mut found = None;
            blocks.records(|record, _| {
                if record.id == wanted {
                    found = Some(*record);
                }
            });
            Ok(found)
        },
    )?;
    let Some(call) = found.take(&mut notes).into_iter().flatten().next() else {
        return Err(Error::Question(format!(
            "{} has no call {wanted}: `penstock trace list` shows its calls",
            part.name()
        )));
    };
    let mut nodes = below(trace, part, &call, &mut notes)?;
    if let Some(server) = key.server {
        nodes.retain(|n| n.record.layer < Layer::Request || n.record.server == server);
    }
    Ok(tree_of(nodes, notes))
}

/// Follows a call of this part that was read already; its time is on the trace's line.
pub(crate) fn follow_call(trace: &Trace, part: &Part, call: &Record) -> Result<Tree, Error> {
    let mut notes = Notes::default();
    let nodes = below(trace, part, call, &mut notes)?;
    Ok(tree_of(nodes, notes))
}

fn tree_of(mut nodes: Vec<Node>, notes: Notes) -> Tree {
    join(&mut nodes);
    let mut tree = Tree { nodes, notes };
    tree.measure();
    tree
}

/// The process that is meant.
fn process<'a>(trace: &'a Trace, key: &Key) -> Result<&'a Part, Error> {
    let is_meant = |part: &&Part| !part.is_server() && key.has_process(part.program, part.rank);
    let mut meant = trace.parts.iter().filter(is_meant);
    let first = meant.next().ok_or_else(|| {
        Error::Question(format!(
            "no part of the process of `{key}` is in {}",
            trace.path.display()
        ))
    })?;
    match meant.next() {
        None => Ok(first),
        Some(other) if other.program != first.program => Err(Error::Question(format!(
            "`{key}` is a call of several programs: write {}.{key} or {}.{key}",
            first.program, other.program
        ))),
        Some(other) if key.rank.is_some() => Err(Error::Question(format!(
            "`{key}` is a call of several processes of one rank, in {} and {}: name one of these files in place of the trace",
            first.stream.path().display(),
            other.stream.path().display()
        ))),
        Some(_) => Err(Error::Question(format!(
            "`{key}` names several processes: write RANK/MPI-CALL, such as 0/1"
        ))),
    }
}

/// The call, and all records that it caused, with their parts.
fn below(trace: &Trace, part: &Part, call: &Record, notes: &mut Notes) -> Result<Vec<Node>, Error> {
    let local = |at: u64| at.saturating_add_signed(part.shift.wrapping_neg());
    let mine = trace.each(
        |p| p.index == part.index,
        |_, blocks| {
            let mut found: Vec<Record> = Vec::new();
            let last = local(call.end()).saturating_add(AFTER);
            blocks.some_records(
                |info| info.end >= local(call.begin) && info.begin <= last,
                |record, _| {
                    let is_later = record.id > call.id && record.parent != Parent::None;
                    if is_later
                        && found.len() < MOST_NODES
                        && record.begin <= call.end().saturating_add(AFTER)
                    {
                        found.push(*record);
                    }
                },
            );
            Ok(found)
        },
    )?;
    let mut later: Vec<Record> = mine.take(notes).into_iter().flatten().collect();
    later.sort_by_key(|r| r.id);
    let mut ids = HashSet::from([call.id]);
    let node = |record: Record, links: Vec<Link>, part: usize| Node {
        part,
        record,
        links,
        children: Vec::new(),
        exclusive: 0,
        critical: 0,
    };
    let mut nodes = vec![node(*call, Vec::new(), part.index)];
    for record in later {
        if let Parent::Here(parent) = record.parent
            && ids.contains(&parent)
        {
            ids.insert(record.id);
            nodes.push(node(record, Vec::new(), part.index));
        }
    }
    let is_mine = |caller: &Caller| {
        caller.program == part.program && caller.rank == part.rank && ids.contains(&caller.call)
    };
    let margin = |p: &Part| p.stream.head().clock.error.unwrap_or(AFTER).max(1_000_000);
    let theirs = trace.each(Part::is_server, |server, blocks| {
        let margin = margin(server);
        let (first, last) = (
            call.begin.saturating_sub(margin),
            call.end().saturating_add(margin + AFTER),
        );
        let local = |at: u64| at.saturating_add_signed(server.shift.wrapping_neg());
        let mut found: Vec<(Record, Vec<Link>)> = Vec::new();
        blocks.some_records(
            |info| info.end >= local(first) && info.begin <= local(last),
            |record, links| {
                let near = record.end() >= first && record.begin <= last;
                if near && found.len() < MOST_NODES {
                    found.push((*record, links.iter().map(|l| l.1).collect()));
                }
            },
        );
        found.sort_by_key(|f| f.0.id);
        let mut ids = HashSet::new();
        found.retain(|(record, links)| {
            let is_ours = match &record.parent {
                Parent::Caller(caller) => is_mine(caller),
                Parent::Here(parent) => ids.contains(parent),
                Parent::None => false,
            };
            let is_linked = links
                .iter()
                .any(|l| matches!(&l.owner, Owner::Call(c) if is_mine(c)));
            if is_ours || is_linked {
                ids.insert(record.id);
            }
            is_ours || is_linked
        });
        Ok((server.index, found))
    })?;
    for (index, found) in theirs.take(notes) {
        nodes.extend(
            found
                .into_iter()
                .map(|(record, links)| node(record, links, index)),
        );
    }
    if nodes.len() >= MOST_NODES {
        notes.add(format!(
            "the call caused more than {MOST_NODES} records: the rest is left out"
        ));
    }
    Ok(nodes)
}

/// Gives each node its parent.
fn join(nodes: &mut [Node]) {
    let by_id: HashMap<(usize, u64), usize> = nodes
        .iter()
        .enumerate()
        .map(|(i, n)| ((n.part, n.record.id), i))
        .collect();
    let client = nodes.first().map_or(0, |n| n.part);
    let mut requests: HashMap<(u64, u32), Vec<usize>> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        if let (Layer::Request, Parent::Here(call)) = (node.record.layer, node.record.parent) {
            requests
                .entry((call, node.record.server))
                .or_default()
                .push(i);
        }
    }
    let middle = |r: &Record| r.begin + r.duration / 2;
    let mut taken = HashSet::new();
    for i in 1..nodes.len() {
        let record = nodes[i].record;
        let linked = || {
            nodes[i].links.iter().find_map(|l| match l.owner {
                Owner::Call(caller) => by_id.get(&(client, caller.call)).copied(),
                _ => None,
            })
        };
        let parent = match record.parent {
            Parent::Here(id) => by_id.get(&(nodes[i].part, id)).copied(),
            Parent::Caller(caller) => {
                let mine = requests.get(&(caller.call, record.server));
                // The request whose middle is nearest, of those that have no visit yet.
                let nearest = mine.and_then(|mine| {
                    let free = mine.iter().copied().filter(|r| !taken.contains(r));
                    free.min_by_key(|&r| middle(&nodes[r].record).abs_diff(middle(&record)))
                });
                taken.extend(nearest);
                nearest.or_else(|| by_id.get(&(client, caller.call)).copied())
            }
            Parent::None => None,
        };
        let parent = parent.or_else(linked).unwrap_or(0);
        nodes[parent].children.push(i);
    }
}
