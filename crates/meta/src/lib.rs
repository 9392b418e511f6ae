//! The metadata server: names, permissions, striping, capabilities and shared counters.
//!
//! A request runs on its connection's thread (`session`): the name space is a plain state machine
//! (`namespace`, `nodes`, `removal`) over a narrow trait (`names`): changes in memory on top of a redb snapshot (`layers`,
//! `pending`, `snapshot`, `store`), under one lock (`engine`). A committing thread makes changes durable in groups (`commit`). Reads and changes never
//! wait for a disk flush; `Sync` does, and so does whoever gets the right to free the objects of a removed
//! file. Files without a name that somebody has open outlive connections and restarts (`kept`).
//! Changes that clients repeat take effect once (`slots`).
//! What waits for its commit is in a journal (`journal`), written to a log (`change_log`) that outlives the process. After a failed sync nothing is
//! built on what may be in the page cache alone (`settled`, `noted`). Damage of large stores is looked for while they serve
//! (`look`). How many files each user has, and may have, is counted with each change (`quota`). Who runs the
//! programs that use the deployment is listed while they are connected (`registry`). Data servers report what went through them, and
//! are told what holds for them (`control`). Tasks that ought to be ranks of one program do not write the same file (`steps`).
mod access;
mod advisory;
mod audited;
mod bytes;
mod change_log;
mod clean_shutdown;
mod commit;
mod control;
mod counters;
mod dirty_ranges;
mod engine;
mod error;
mod issue;
mod journal;
mod keys;
mod layers;
mod names;
mod namespace;
mod node;
mod nodes;
mod open_unlinked;
mod path;
mod pending;
mod placement;
mod quota;
mod recent;
mod registry;
mod removal;
mod resolve;
mod revoked;
mod scrub;
mod server;
mod session;
mod slots;
mod snapshot;
mod start_error;
mod store;
mod stores;
mod task_writers;
mod vouching;

/// In the log: what follows is what the server does before it can serve. `penstock up` waits for it.
pub const RECOVERS: &str = "recovers";

pub use server::{Options, start};
pub use start_error::{Error, StoreError};
pub use store::is_made;
