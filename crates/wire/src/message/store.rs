//! Messages between data servers and the metadata server about stores.
use penstock_layout::FileId;
use serde::{Deserialize, Serialize};

/// A data server's report on its store. It is sent before the store is used, when it is open, and whenever its
/// generation has increased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// The data server.
    pub server: u32,
    /// Path of its store, for messages.
    pub place: String,
    /// Its state.
    pub state: StoreState,
    /// Whether the directory is the root of a file system of its own.
    pub mounted: bool,
    /// An administrator says that a new store replaces the former one.
    pub renew: bool,
    /// An administrator says that the store is right and this metadata is older or new.
    pub adopt: bool,
    /// The highest id of a file that ever had an object in the store; 0: none.
    pub highest: u64,
}

/// The metadata server's record of a data server's store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownStore {
    /// The data server.
    pub server: u32,
    /// The store's id.
    pub store: u128,
    /// The generation reported last. The store may be one generation further, if it has not received an answer to that
    /// report.
    pub generation: u64,
    /// Files with ids in [first, end) may have been made and lost with newer metadata than this: their objects are no
    /// orphans.
    pub unsure: (FileId, FileId),
}

/// The state of a store.
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
        /// Increases at each start and with each group of objects that a crash could lose; a copy keeps its number.
        generation: u64,
        /// Whether it has been reported before.
        registered: bool,
        /// Whether the store has recorded the answer to a report of this generation.
        heard: bool,
    },
}
