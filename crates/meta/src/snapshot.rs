//! The stored names as of one commit: the database's tables, and reading them.
use crate::error::{Result, damaged, error};
use crate::node::Node;
use crate::pending::{EntryRange, Totals};
use crate::slots::Note;
use penstock_layout::FileId;
use penstock_wire::message::{ErrorKind, WireError};
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, StorageError, TableDefinition, TableError,
};
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub const NODES: TableDefinition<u64, &[u8]> = TableDefinition::new("nodes");
pub const ENTRIES: TableDefinition<&[u8], u64> = TableDefinition::new("entries");
/// Owner of each session.
pub const SESSIONS: TableDefinition<u128, &[u8]> = TableDefinition::new("sessions");
/// The newest change of each slot of each session.
pub const SLOTS: TableDefinition<(u128, u16), &[u8]> = TableDefinition::new("slots");
pub const ABOUT: TableDefinition<&str, &[u8]> = TableDefinition::new("about");
/// Key in `ABOUT`.
pub const FACTS: &str = "facts";
/// Key in `ABOUT`: the boot of the system that made the last commit.
pub const BOOT: &str = "boot";

/// Most ranges of used ids; each start adds one.
pub const PAST_IDS: usize = 128;

/// The store's facts about itself; rewritten by each commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub format: u32,
    pub deployment: String,
    pub totals: Totals,
    /// Transactions so far: shows whether a repair lost one.
    pub commits: u64,
    /// Ranges of ids that earlier incarnations may have used, ascending.
    pub past_ids: Vec<(u64, u64)>,
}

impl Facts {
    /// The facts after a commit that leaves these totals.
    pub fn after(&self, totals: Totals) -> Facts {
        let mut past_ids = self.past_ids.clone();
        if totals.ids_from != self.totals.ids_from && self.totals.ids_reserved > 0 {
            past_ids.push((self.totals.ids_from, self.totals.ids_reserved));
            if past_ids.len() > PAST_IDS {
                // The two oldest ranges are merged.
                past_ids[1].0 = past_ids[0].0;
                past_ids.remove(0);
            }
        }
        Facts {
            totals,
            commits: self.commits + 1,
            past_ids,
            ..self.clone()
        }
    }
}

/// The names as of one commit.
pub struct Snapshot {
    nodes: ReadOnlyTable<u64, &'static [u8]>,
    entries: ReadOnlyTable<&'static [u8], u64>,
    pub facts: Facts,
    boot: Option<u128>,
    pub transaction: ReadTransaction,
}

impl Snapshot {
    /// The newest commit of the database.
    pub fn of(database: &Database) -> std::result::Result<Snapshot, redb::Error> {
        let transaction = database.begin_read()?;
        let about = transaction.open_table(ABOUT)?;
        let facts = about
            .get(FACTS)?
            .and_then(|stored| postcard::from_bytes(stored.value()).ok())
            .ok_or_else(|| redb::Error::Corrupted("the store's own description is lost".into()))?;
        let boot = about
            .get(BOOT)?
            .and_then(|stored| stored.value().try_into().ok())
            .map(u128::from_le_bytes);
        Ok(Snapshot {
            boot,
            nodes: transaction.open_table(NODES)?,
            entries: transaction.open_table(ENTRIES)?,
            facts,
            transaction,
        })
    }

    pub fn totals(&self) -> Totals {
        self.facts.totals
    }

    /// Number of commits up to it.
    pub fn commits(&self) -> u64 {
        self.facts.commits
    }

    /// Whether the system has not been restarted since this commit.
    pub fn is_of_this_boot(&self) -> bool {
        self.boot.is_some() && self.boot == penstock_host::boot()
    }

    /// Sessions and their slots, as they were recorded.
    pub fn sessions(&self) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        if let Some(sessions) = there(self.transaction.open_table(SESSIONS))? {
            for item in sessions.iter().map_err(read_error)? {
                let (id, owner) = item.map_err(read_error)?;
                let owner = postcard::from_bytes(owner.value()).map_err(damaged)?;
                notes.push(Note::Opened(id.value(), owner));
            }
        }
        if let Some(slots) = there(self.transaction.open_table(SLOTS))? {
            for item in slots.iter().map_err(read_error)? {
                let (key, answered) = item.map_err(read_error)?;
                let (id, slot) = key.value();
                let answered = postcard::from_bytes(answered.value()).map_err(damaged)?;
                notes.push(Note::Answered(id, slot, answered));
            }
        }
        Ok(notes)
    }

    pub fn past_ids(&self) -> &[(u64, u64)] {
        &self.facts.past_ids
    }

    pub fn node(&self, id: FileId) -> Result<Option<Node>> {
        match self.nodes.get(id.0).map_err(read_error)? {
            Some(stored) => Node::decode(id, stored.value()).map(Some),
            None => Ok(None),
        }
    }

    pub fn entry(&self, key: &[u8]) -> Result<Option<u64>> {
        let id = self.entries.get(key).map_err(read_error)?;
        Ok(id.map(|id| id.value()))
    }

    pub fn nodes(
        &self,
        start: Bound<u64>,
    ) -> Result<impl Iterator<Item = Result<(u64, std::sync::Arc<Node>)>> + '_> {
        let records = self.records(start)?;
        Ok(records.map(|item| item.and_then(|(id, node)| Ok((id, node?.into())))))
    }

    /// All records, each with its id, including unreadable ones.
    pub fn records(
        &self,
        start: Bound<u64>,
    ) -> Result<impl Iterator<Item = Result<(u64, Result<Node>)>> + '_> {
        let range = self
            .nodes
            .range((start, Bound::Unbounded))
            .map_err(read_error)?;
        Ok(range.map(|item| {
            let (id, stored) = item.map_err(read_error)?;
            let node = Node::decode(FileId(id.value()), stored.value());
            Ok((id.value(), node))
        }))
    }

    pub fn entries(
        &self,
        range: EntryRange,
    ) -> Result<impl Iterator<Item = Result<(Vec<u8>, u64)>> + '_> {
        let range = self.entries.range::<&[u8]>(range).map_err(read_error)?;
        Ok(range.map(|item| {
            let (key, id) = item.map_err(read_error)?;
            Ok((key.value().to_vec(), id.value()))
        }))
    }

    /// Number of entries by the table's own count.
    pub fn entries_stored(&self) -> Result<u64> {
        self.entries.len().map_err(read_error)
    }
}

/// Whether an error that redb reports as I/O is caused by the file's contents.
pub fn looks_damaged(e: &std::io::Error) -> bool {
    matches!(
        e.kind(),
        std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
    )
}

/// A table, or `None` in a store of an older release without it.
pub fn there<T>(table: std::result::Result<T, TableError>) -> Result<Option<T>> {
    match table {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(TableError::Storage(e)) => Err(read_error(e)),
        Err(e) => Err(damaged(e)),
    }
}

pub fn read_error(e: StorageError) -> WireError {
    match e {
        StorageError::Io(e) if looks_damaged(&e) => damaged(e),
        StorageError::Io(_) | StorageError::PreviousIo => error(
            ErrorKind::Io,
            format!(
                "the metadata store cannot be read ({e}); look at its disk, the server opens it again"
            ),
        ),
        e => damaged(e),
    }
}

/// Runs the database's code on data that may be damaged, and catches its panics.
pub fn unpanicked<T>(f: impl FnOnce() -> T) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        format!("the database failed: {}", text.unwrap_or("no reason given"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_given_ids_are_kept_and_bounded() {
        let mut facts = Facts {
            format: 1,
            deployment: "d".into(),
            totals: Totals::default(),
            commits: 1,
            past_ids: Vec::new(),
        };
        let runs = 2 * PAST_IDS as u64;
        for run in 1..=runs {
            for end in 1..3 {
                facts = facts.after(Totals {
                    ids_from: 100 * run,
                    ids_reserved: 100 * run + 10 * end,
                    ..Totals::default()
                });
            }
        }
        assert_eq!(facts.commits, 1 + 2 * runs);
        assert_eq!(facts.past_ids.len(), PAST_IDS);
        let newest = 100 * (runs - 1);
        assert_eq!(facts.past_ids.last(), Some(&(newest, newest + 20)));
        assert_eq!(facts.past_ids[0].0, 100, "the oldest cover all before");
        assert!(facts.past_ids.is_sorted_by(|a, b| a.1 <= b.0));
    }
}
