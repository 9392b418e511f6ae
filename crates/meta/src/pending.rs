//! Visible changes that are not yet on stable storage, and their merge with what is stored.
use crate::node::Node;
use crate::quota::Changed;
use crate::slots::{Answered, Note, Owner};
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

/// Longest key of an entry: the directory's id and a name.
const ENTRY_KEY: usize = 8 + crate::path::MAX_NAME;

/// Key of a directory entry: the directory's id (big endian), then the name. The entries of one directory are then
/// neighbours in name order.
#[derive(Clone, Copy)]
pub struct EntryKey {
    bytes: [u8; ENTRY_KEY],
    len: usize,
}

impl EntryKey {
    /// `name` has at most [`crate::path::MAX_NAME`] bytes; longer names are truncated.
    pub fn new(parent: FileId, name: &str) -> EntryKey {
        let mut bytes = [0; ENTRY_KEY];
        bytes[..8].copy_from_slice(&parent.0.to_be_bytes());
        let name = &name.as_bytes()[..name.len().min(ENTRY_KEY - 8)];
        let len = 8 + name.len();
        bytes[8..len].copy_from_slice(name);
        EntryKey { bytes, len }
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Bounds of the entries of `parent` after `after`.
pub fn entries_of(parent: FileId, after: Option<&str>) -> (Bound<EntryKey>, Bound<EntryKey>) {
    let start = match after {
        None => Bound::Included(EntryKey::new(parent, "")),
        Some(name) => Bound::Excluded(EntryKey::new(parent, name)),
    };
    let end = EntryKey::new(FileId(parent.0.saturating_add(1)), "");
    (start, Bound::Excluded(end))
}

/// A range of entry keys.
pub type EntryRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// New values of the store's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub files: u64,
    pub directories: u64,
    /// First id that this incarnation may use.
    pub ids_from: u64,
    /// End of the reserved ids.
    pub ids_reserved: u64,
}

/// Changes, newest value per key; `None` = removed.
#[derive(Debug, Default)]
pub struct Pending {
    pub nodes: BTreeMap<u64, Option<Arc<Node>>>,
    pub entries: BTreeMap<Box<[u8]>, Option<u64>>,
    pub sessions: BTreeMap<u128, Option<Owner>>,
    /// Slots of existing sessions.
    pub slots: BTreeMap<(u128, u16), Answered>,
    /// Counters after these changes.
    pub totals: Totals,
    /// Accounts after these changes; set when they are frozen.
    pub users: Changed,
}

impl Pending {
    /// No changes yet, on top of `totals`.
    pub fn after(totals: Totals) -> Pending {
        Pending {
            totals,
            ..Pending::default()
        }
    }

    pub fn len(&self) -> usize {
        self.nodes.len() + self.entries.len() + self.sessions.len() + self.slots.len()
    }

    /// Applies a change of sessions on top of earlier ones.
    pub fn note(&mut self, note: Note) {
        match note {
            Note::Opened(id, owner) => {
                self.sessions.insert(id, Some(owner));
            }
            Note::Answered(id, slot, answered) => {
                self.slots.insert((id, slot), answered);
            }
            Note::Dropped(id) => {
                let slots: Vec<_> = self
                    .slots
                    .range((id, 0)..=(id, u16::MAX))
                    .map(|(key, _)| *key)
                    .collect();
                for key in slots {
                    self.slots.remove(&key);
                }
                self.sessions.insert(id, None);
            }
        }
    }

    pub fn nodes(&self, start: Bound<u64>) -> impl Layer<u64, Arc<Node>> {
        self.nodes
            .range((start, Bound::Unbounded))
            .map(|(id, node)| (*id, node.clone()))
    }

    pub fn entries(&self, range: EntryRange) -> impl Layer<Vec<u8>, u64> {
        self.entries
            .range::<[u8], _>(range)
            .map(|(key, id)| (key.to_vec(), *id))
    }
}

/// A sorted sequence of keys and values in which `None` hides the key below.
pub trait Layer<K, V>: Iterator<Item = (K, Option<V>)> {}
impl<K, V, I: Iterator<Item = (K, Option<V>)>> Layer<K, V> for I {}

/// Merges two ordered layers; on equal keys `upper` wins.
pub fn over<K: Ord, V>(upper: impl Layer<K, V>, lower: impl Layer<K, V>) -> impl Layer<K, V> {
    let mut upper: Peekable<_> = upper.peekable();
    let mut lower: Peekable<_> = lower.peekable();
    std::iter::from_fn(move || {
        let order = match (upper.peek(), lower.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((u, _)), Some((l, _))) => u.cmp(l),
        };
        match order {
            Ordering::Less => upper.next(),
            Ordering::Greater => lower.next(),
            Ordering::Equal => {
                lower.next();
                upper.next()
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_of_a_directory_are_a_range() {
        let (start, end) = entries_of(FileId(7), None);
        let range = (
            start.map(|k| k.as_slice().to_vec()),
            end.map(|k| k.as_slice().to_vec()),
        );
        let inside = |parent: u64, name: &str| {
            let key = EntryKey::new(FileId(parent), name).as_slice().to_vec();
            std::ops::RangeBounds::contains(&range, &key)
        };
        assert!(inside(7, "") && inside(7, "a") && inside(7, &"\u{10ffff}".repeat(63)));
        assert!(!inside(6, "z") && !inside(8, ""));
    }

    proptest! {
        #[test]
        fn merged_layers_equal_one_map(
            upper: BTreeMap<u8, Option<u8>>,
            lower: BTreeMap<u8, Option<u8>>,
        ) {
            let mut expected = lower.clone();
            expected.extend(upper.clone());
            let merged: Vec<_> = over(upper.into_iter(), lower.into_iter()).collect();
            prop_assert_eq!(merged, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
