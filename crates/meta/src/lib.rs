//! The metadata server: names, permissions, striping, capabilities and shared counters.
//!
//! A request runs on its connection's thread (`session`). The name space is a plain state machine (`namespace`,
//! `nodes`, `removal`) over a narrow trait (`names`). Below are changes in memory on top of a redb snapshot (`layers`,
//! `pending`, `snapshot`, `store`), under one lock (`engine`). A committing thread makes changes durable in groups
//! (`commit`). Reads and changes never wait for a disk flush. `Sync` does, and so does a request that gets the right to
//! remove the objects of a file. Open-unlinked files survive connections and restarts (`open_unlinked`). Repeated
//! changes take effect once (`slots`). Changes that wait for their commit are in a journal (`journal`), written to a
//! log (`change_log`) that survives the process. After a failed sync nothing relies on data that may be in the page
//! cache only (`clean_shutdown`, `dirty_ranges`). Names of large stores are scrubbed for damage in the background
//! (`scrub`). The files of each user are counted with each change, and limited by quotas (`quota`). Programs that use
//! the deployment are listed while they are connected (`registry`). Data servers report their traffic, and receive
//! decisions (`control`). Tasks that should be ranks of one program do not write the same file (`task_writers`).
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

/// Log line: the server is recovering and does not serve yet. `penstock up` waits for it.
pub const RECOVERS: &str = "recovers";

pub use server::{Options, start};
pub use start_error::{Error, StoreError};
pub use store::is_made;
