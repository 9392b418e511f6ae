//! What a data server and the metadata server tell each other about a store.
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};

/// A data server's store, as it tells the metadata server of it: before the store is used, when it is open, and whenever its
/// generation has risen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// The data server.
    pub server: u32,
    /// Where its store is, for people.
    pub place: String,
    /// What is there.
    pub state: StoreState,
    /// The directory is the root of a file system of its own.
    pub mounted: bool,
    /// An administrator says that a new store takes the place of the one that was there.
    pub renew: bool,
    /// An administrator says that the store is right and this metadata older or new.
    pub adopt: bool,
    /// The highest id of a file that the store has had an object of; 0: none.
    pub highest: u64,
}

/// What the metadata server knows of the store of a data server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownStore {
    /// The data server.
    pub server: u32,
    /// The store's id.
    pub store: u128,
    /// The generation that it reported last. It is one further on at most, and then has not heard of an answer to that.
    pub generation: u64,
    /// Files with ids in [first, end) may have been made and lost with newer metadata than these: no object of theirs counts
    /// as an orphan.
    pub unsure: (FileId, FileId),
}

/// What is in the place of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreState {
    /// No directory.
    Missing,
    /// A directory that holds no store.
    Empty,
    /// A store.
    There {
        /// Its id.
        store: u128,
        /// Rises at each start and with each group of objects that it could lose; a copy keeps the one that it was made with.
        generation: u64,
        /// It has been reported before.
        registered: bool,
        /// The answer to a report of this generation was noted in the store.
        heard: bool,
    },
}
