//! The model of a directory whose names several clients change.
//!
//! Problem: operations of several clients overlap, some end without an answer, and a power loss takes what was not
//! synced. *Idea*: keep every pair of a state and fates of the pending operations that explains all answers so far.
//! When an answer comes, each pending operation may have been carried out before it, in any order. Pairs that the
//! answer contradicts are dropped; if none is left, the answer was wrong. This is the linearizability test of Wing and
//! Gong (1993) in its just-in-time form (Lowe 2017).
//!
//! Each operation is carried out at most once. One without an answer stays pending until its server has ended or
//! [`FORGOTTEN`] has passed. A power loss makes each state since the last sync possible. With more than [`MOST`] pairs
//! the model accepts everything until a listing that no operation overlaps.
use crate::world::{Nanos, SECOND};
use std::collections::{BTreeMap, BTreeSet};

/// Most pairs that are kept.
const MOST: usize = 1500;
/// Most states since the last sync that are kept.
const MOST_STATES: usize = 4000;
/// An operation that a client has given up on is carried out within this time or never: longer than messages are
/// delayed.
const FORGOTTEN: Nanos = 25 * SECOND;

/// The type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EntryKind {
    File,
    Directory,
    /// A dangling symbolic link.
    Symlink,
}

/// A directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub kind: EntryKind,
    /// Permission bits; 0 for symbolic links.
    pub mode: u32,
    /// A number shared by all names of one node; in a listing it is the first of these names.
    pub node: u64,
}

/// The entries of one directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Listing(BTreeMap<char, Entry>);

/// The number of a node that has just been made: larger than any name.
const NEW: u64 = u64::MAX;

impl Listing {
    /// A listing from names and nodes, however the nodes are numbered.
    pub fn new(entries: impl IntoIterator<Item = (char, Entry)>) -> Listing {
        let mut entries: BTreeMap<char, Entry> = entries.into_iter().collect();
        let mut firsts: BTreeMap<u64, u64> = BTreeMap::new();
        for (name, entry) in &mut entries {
            entry.node = *firsts.entry(entry.node).or_insert(u64::from(*name));
        }
        Listing(entries)
    }

    /// Number of names of the node that `name` refers to.
    #[cfg(test)]
    fn links(&self, name: char) -> usize {
        let node = self.0.get(&name).map(|e| e.node);
        self.0.values().filter(|e| Some(e.node) == node).count()
    }
}

/// A change of names.
#[derive(Debug, Clone)]
pub(crate) enum NameOp {
    Create(char, u32),
    Unlink(char),
    Mkdir(char, u32),
    Rmdir(char),
    Rename(char, char),
    Symlink(char),
    /// Links a file to a second name.
    Link(char, char),
    Chmod(char, u32),
}

impl NameOp {
    /// The state afterwards; `None` if the operation is refused.
    fn apply(&self, before: &Listing) -> Option<Listing> {
        let mut after = before.0.clone();
        let (node, is_directory) = (NEW, |e: &Entry| e.kind == EntryKind::Directory);
        let made = match self {
            NameOp::Create(name, mode) => Some((name, EntryKind::File, *mode)),
            NameOp::Mkdir(name, mode) => Some((name, EntryKind::Directory, *mode)),
            NameOp::Symlink(name) => Some((name, EntryKind::Symlink, 0)),
            _ => None,
        };
        if let Some((name, kind, mode)) = made
            && after.insert(*name, Entry { kind, mode, node }).is_some()
        {
            return None;
        }
        match self {
            NameOp::Create(..) | NameOp::Mkdir(..) | NameOp::Symlink(_) => {}
            NameOp::Unlink(name) => {
                after.remove(name).filter(|e| !is_directory(e))?;
            }
            NameOp::Rmdir(name) => {
                after.remove(name).filter(is_directory)?;
            }
            NameOp::Link(from, to) => {
                let entry = *after.get(from).filter(|e| !is_directory(e))?;
                if after.insert(*to, entry).is_some() {
                    return None;
                }
            }
            NameOp::Chmod(name, mode) => {
                // An open follows a symbolic link and finds nothing.
                let found = *after.get(name).filter(|e| e.kind != EntryKind::Symlink)?;
                let same = after.values_mut().filter(|e| e.node == found.node);
                same.for_each(|e| e.mode = *mode);
            }
            NameOp::Rename(from, to) => {
                let entry = *after.get(from)?;
                match after.get(to) {
                    Some(old) if old.node == entry.node => return Some(before.clone()),
                    Some(old) if is_directory(old) != is_directory(&entry) => return None,
                    _ => {}
                }
                after.remove(from);
                after.insert(*to, entry);
            }
        }
        Some(Listing::new(after))
    }
}

/// The result of an operation on names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Refused for a reason that its state implies.
    Refused,
    Unknown,
}

/// What may have become of a pending operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Refused,
    Done,
}

/// A state, and the fates of those pending operations that have one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    state: Listing,
    fates: BTreeMap<u64, Fate>,
}

/// A pending operation.
#[derive(Debug)]
struct Pending {
    token: u64,
    client: usize,
    op: NameOp,
    /// The power was lost meanwhile: it may have been carried out before, and again afterwards.
    loose: bool,
    /// When its client gave up.
    ended: Option<Nanos>,
}

/// A moment in the history of a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    event: u64,
    ends: u64,
}

/// The model of one directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pairs: BTreeSet<Pair>,
    pending: Vec<Pending>,
    next: u64,
    event: u64,
    /// Count of ended operations, and of listings that showed the current state.
    ends: u64,
    /// When each state was last possible.
    states: BTreeMap<Listing, u64>,
    /// States last possible before this moment are not the durable one.
    floor: u64,
    /// Whether the model accepts everything.
    blind: bool,
    /// Until this moment it did.
    blurred: u64,
}

impl Directory {
    pub fn new() -> Directory {
        let pair = Pair {
            state: Listing::default(),
            fates: BTreeMap::new(),
        };
        Directory {
            pairs: BTreeSet::from([pair]),
            pending: Vec::new(),
            next: 0,
            event: 1,
            ends: 0,
            states: BTreeMap::from([(Listing::default(), 1)]),
            floor: 0,
            blind: false,
            blurred: 0,
        }
    }

    /// The current moment: to be taken before a listing or a sync.
    pub fn moment(&self) -> Moment {
        Moment {
            event: self.event,
            ends: self.ends,
        }
    }

    /// Whether no operation is pending.
    pub fn is_quiet(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether operations of other clients are pending.
    pub fn is_shared(&self, client: usize) -> bool {
        let others = |p: &Pending| p.client != client && p.ended.is_none();
        self.pending.iter().any(others)
    }

    /// An operation begins.
    pub fn begin(&mut self, client: usize, op: NameOp) -> u64 {
        self.next += 1;
        self.pending.push(Pending {
            token: self.next,
            client,
            op,
            loose: false,
            ended: None,
        });
        self.next
    }

    /// A client was killed: its pending operation has no outcome.
    pub fn interrupted(&mut self, client: usize, now: Nanos) {
        for p in &mut self.pending {
            if p.client == client {
                p.ended.get_or_insert(now);
            }
        }
    }

    /// An operation ends.
    pub fn end(&mut self, token: u64, outcome: Outcome, now: Nanos) -> Result<(), String> {
        self.explain();
        self.ends += 1;
        let Some(at) = self.pending.iter().position(|p| p.token == token) else {
            return Ok(());
        };
        let loose = self.pending[at].loose;
        if loose || outcome == Outcome::Unknown {
            self.pending[at].ended = Some(now);
        } else {
            let before = self.pairs.clone();
            self.pairs.retain(|pair| {
                let wanted = match outcome {
                    Outcome::Done => Fate::Done,
                    _ => Fate::Refused,
                };
                pair.fates.get(&token) == Some(&wanted)
            });
            if self.pairs.is_empty() && !self.blind {
                let p = &self.pending[at];
                return Err(format!(
                    "{:?} ended with {outcome:?}, possible were {before:?}, under way {:?}",
                    p.op, self.pending
                ));
            }
            self.settle(|p| p.token == token);
        }
        self.settle(|p| p.ended.is_some_and(|e| e + FORGOTTEN < now));
        Ok(())
    }

    /// The metadata server has ended: operations that clients had given up on will not be carried out.
    pub fn server_ended(&mut self) {
        self.explain();
        self.settle(|p| p.ended.is_some());
    }

    /// Finalises the fates of these operations.
    fn settle(&mut self, which: impl Fn(&Pending) -> bool) {
        let (over, left): (Vec<_>, _) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|p| which(p));
        self.pending = left;
        if over.is_empty() {
            return;
        }
        let pairs = std::mem::take(&mut self.pairs).into_iter();
        self.pairs = pairs
            .map(|mut pair| {
                over.iter().for_each(|p| {
                    pair.fates.remove(&p.token);
                });
                pair
            })
            .collect();
    }

    /// Extends the pairs by all operations that may have been carried out by now.
    fn explain(&mut self) {
        self.event += 1;
        let mut todo: Vec<Pair> = self.pairs.iter().cloned().collect();
        while let Some(pair) = todo.pop() {
            for p in &self.pending {
                if pair.fates.contains_key(&p.token) && !p.loose {
                    continue;
                }
                let (state, fate) = match p.op.apply(&pair.state) {
                    Some(next) => (next, Fate::Done),
                    None => (pair.state.clone(), Fate::Refused),
                };
                let mut fates = pair.fates.clone();
                fates.insert(p.token, fate);
                let next = Pair { state, fates };
                if !self.pairs.contains(&next) {
                    self.pairs.insert(next.clone());
                    todo.push(next);
                }
            }
            if self.pairs.len() > MOST {
                self.go_blind();
                return;
            }
        }
        for pair in &self.pairs {
            self.states.insert(pair.state.clone(), self.event);
        }
        if self.states.len() > MOST_STATES {
            self.go_blind();
        }
    }

    fn go_blind(&mut self) {
        self.blind = true;
        self.pairs.clear();
        self.states.clear();
    }

    /// A sync that began at `since` has ended.
    pub fn synced(&mut self, since: Moment) {
        self.floor = self.floor.max(since.event);
    }

    /// The name of a file that existed at `since` is durable.
    pub fn kept(&mut self, name: char, since: Moment) {
        let holds = |state: &Listing| {
            state
                .0
                .get(&name)
                .is_some_and(|e| e.kind == EntryKind::File)
        };
        self.states
            .retain(|state, last| *last > since.event || holds(state));
    }

    /// The metadata server lost its power.
    pub fn power_lost(&mut self) {
        self.pending.iter_mut().for_each(|p| p.loose = true);
        self.explain();
        let (floor, event) = (self.floor, self.event);
        if self.blind || self.blurred > floor {
            self.go_blind();
        } else {
            let states = self.states.iter().filter(|(_, last)| **last > floor);
            self.pairs = states
                .map(|(state, _)| Pair {
                    state: state.clone(),
                    fates: BTreeMap::new(),
                })
                .collect();
            let pairs = self.pairs.iter();
            self.states = pairs.map(|pair| (pair.state.clone(), event)).collect();
            // The remaining states are on the disk.
            self.floor = event - 1;
        }
        self.settle(|p| p.ended.is_some());
    }

    /// Checks a listing that began at `since`.
    pub fn saw(&mut self, client: usize, found: &Listing, since: Moment) -> Result<(), String> {
        self.explain();
        let alone = self.ends == since.ends;
        if self.blind {
            if alone && self.pending.is_empty() {
                let state = found.clone();
                let fates = BTreeMap::new();
                self.pairs = BTreeSet::from([Pair { state, fates }]);
                self.states = BTreeMap::from([(found.clone(), self.event)]);
                self.blind = false;
                self.blurred = self.event;
            }
            return Ok(());
        }
        let then = self.states.get(found);
        if then.is_none_or(|last| *last <= since.event) {
            return Err(format!(
                "client {client} found {found:?}, possible were {:?}, under way {:?}",
                self.pairs, self.pending
            ));
        }
        if alone {
            self.pairs.retain(|pair| pair.state == *found);
            // An earlier listing that is still pending may show another state: it says nothing about the current one.
            self.ends += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(node: u64) -> Entry {
        Entry {
            kind: EntryKind::File,
            mode: 0o600,
            node,
        }
    }

    fn holding(names: &str) -> Listing {
        Listing::new(names.chars().map(|c| (c, file(u64::from(c)))))
    }

    fn see(d: &mut Directory, found: &Listing) -> Result<(), String> {
        let since = d.moment();
        d.saw(0, found, since)
    }

    #[test]
    fn one_of_two_that_create_the_same_name_is_refused() {
        for outcomes in [
            [Outcome::Done, Outcome::Refused],
            [Outcome::Refused, Outcome::Done],
        ] {
            let mut d = Directory::new();
            let a = d.begin(0, NameOp::Create('a', 0o600));
            let b = d.begin(1, NameOp::Create('a', 0o600));
            d.end(a, outcomes[0], 1).unwrap();
            d.end(b, outcomes[1], 2).unwrap();
            see(&mut d, &holding("a")).unwrap();
        }
        for outcome in [Outcome::Done, Outcome::Refused] {
            let mut d = Directory::new();
            let a = d.begin(0, NameOp::Create('a', 0o600));
            let b = d.begin(1, NameOp::Create('a', 0o600));
            let first = d.end(a, outcome, 1);
            assert!(first.and_then(|()| d.end(b, outcome, 2)).is_err());
        }
    }

    #[test]
    fn what_is_under_way_may_have_been_carried_out_or_not_but_not_both() {
        let mut d = Directory::new();
        let a = d.begin(0, NameOp::Create('a', 0o600));
        see(&mut d, &holding("a")).unwrap();
        assert!(see(&mut d, &holding("")).is_err(), "it was there");
        d.end(a, Outcome::Done, 1).unwrap();
        let b = d.begin(0, NameOp::Rename('a', 'b'));
        let c = d.begin(1, NameOp::Unlink('a'));
        d.end(b, Outcome::Refused, 2).unwrap();
        assert!(d.end(c, Outcome::Refused, 2).is_err());
    }

    #[test]
    fn a_listing_that_was_made_earlier_may_come_after_a_later_one() {
        let mut d = Directory::new();
        let (early, late) = (d.moment(), d.moment());
        let a = d.begin(0, NameOp::Create('a', 0o600));
        d.saw(1, &holding("a"), late).unwrap();
        d.saw(2, &holding(""), early).unwrap();
        d.end(a, Outcome::Done, 1).unwrap();
        see(&mut d, &holding("a")).unwrap();
        assert!(see(&mut d, &holding("")).is_err());
    }

    #[test]
    fn an_operation_without_an_answer_may_come_later() {
        let mut d = Directory::new();
        let a = d.begin(0, NameOp::Create('a', 0o600));
        d.end(a, Outcome::Unknown, 1).unwrap();
        see(&mut d, &holding("")).unwrap();
        see(&mut d, &holding("a")).unwrap();
        let mut d = Directory::new();
        let a = d.begin(0, NameOp::Create('a', 0o600));
        d.end(a, Outcome::Unknown, 1).unwrap();
        see(&mut d, &holding("")).unwrap();
        d.server_ended();
        see(&mut d, &holding("")).unwrap_or_default();
        let b = d.begin(0, NameOp::Unlink('b'));
        d.end(b, Outcome::Refused, 2).unwrap();
        assert!(d.is_quiet());
    }

    #[test]
    fn a_loss_of_power_goes_back_to_the_last_sync() {
        let mut d = Directory::new();
        let make = |d: &mut Directory, name| {
            let a = d.begin(0, NameOp::Create(name, 0o600));
            d.end(a, Outcome::Done, 1).unwrap();
        };
        make(&mut d, 'a');
        let sync = d.moment();
        d.synced(sync);
        make(&mut d, 'b');
        make(&mut d, 'c');
        d.power_lost();
        assert!(see(&mut d, &holding("")).is_err());
        assert!(see(&mut d, &holding("ac")).is_err());
        see(&mut d, &holding("ab")).unwrap();
        make(&mut d, 'd');
        let at = d.moment();
        d.kept('d', at);
        d.power_lost();
        assert!(see(&mut d, &holding("ab")).is_err());
        see(&mut d, &holding("abd")).unwrap();
    }

    #[test]
    fn names_of_one_file_share_its_mode() {
        let one = NameOp::Link('a', 'b').apply(&holding("a")).unwrap();
        assert_eq!(one.links('a'), 2);
        let one = NameOp::Chmod('b', 0o640).apply(&one).unwrap();
        assert!(one.0.values().all(|e| e.mode == 0o640));
        let same = NameOp::Rename('a', 'b').apply(&one).unwrap();
        assert_eq!(same, one);
        let left = NameOp::Unlink('a').apply(&one).unwrap();
        assert_eq!((left.links('b'), left.0.len()), (1, 1));
        assert_eq!(
            NameOp::Chmod('a', 0o600).apply(&one).unwrap(),
            NameOp::Link('a', 'b').apply(&holding("a")).unwrap()
        );
    }
}
