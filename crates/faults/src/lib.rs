//! Whole clusters in one deterministic process, under faults.
//!
//! Metadata server, data servers and clients are the programs that users run, unchanged. Time, threads, network and
//! disks are simulated ([`penstock_host`]). A seed decides the cluster's size, what its clients do, which faults happen
//! and how threads interleave. A failure can therefore be reproduced. docs/understand/faults.md says what is checked.
//!
//! | file | idea |
//! | --- | --- |
//! | `world` | one thread runs at a time, on virtual time |
//! | `charge` | whose memory it is |
//! | `network` | bytes late, in pieces, not at all; connections that break at one end first |
//! | `disk` | a page cache, and what outlives a power loss |
//! | `bit_rot` | a bit that flips |
//! | `plan`, `effects` | the faults of a seed; what they did |
//! | `workload` and its parts | what clients do, and what they must not be able to do |
//! | `model`, `directory` | what they may see of bytes, and of names |
//! | `pointer` | what a shared counter may answer |
//! | `ledger` | what users with limits on bytes may have and may be refused |
//! | `run`, `run/calm` | a run from start to end; what follows its faults |
//! | `plant` | bugs planted to show that the checks find them |

mod bit_rot;
mod charge;
mod cluster;
mod connections;
mod directory;
mod disk;
mod effects;
mod ledger;
mod model;
mod network;
mod plan;
mod plant;
mod pointer;
mod run;
mod state;
mod units;
mod workload;
mod world;

pub use charge::charged_to;
pub use effects::{Effect, Effects};
pub use plant::Plant;
pub use run::{Options, Report, run};

use std::sync::{Mutex, Once, PoisonError};

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// The message of the last panic. Empty until the first call of [`quiet_panics`].
fn last_panic() -> String {
    LAST_PANIC
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Panics are reported with their run, not on standard error. A database that reads a flipped bit panics, and its user
/// catches that.
pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
        }));
    });
}
