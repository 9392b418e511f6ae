//! Request scheduling at file level (TS chapter 3): which request is served next, alone or merged.
//!
//! A [`Scheduler`] is a plain state machine. Requests come in with [`Scheduler::add`], decisions come out of
//! [`Scheduler::next`], and [`Scheduler::completed`] says that a dispatched virtual request has been served. Time is an
//! argument; there is no clock, thread or randomness inside, so the same events give the same decisions.
//!
//! ```
//! use penstock_sched::{Algorithm, Next, Op, Options, Request, Scheduler};
//!
//! let options = Options { algorithm: Algorithm::ToAgg, ..Options::default() };
//! let mut scheduler = Scheduler::new(options)?;
//! for (id, offset) in [(1, 0), (2, 4096)] {
//!     let request = Request { id, file: 7, op: Op::Read, offset, bytes: 4096, program: 1, process: 0 };
//!     scheduler.add(1000, request)?;
//! }
//! let Next::Dispatch(both) = scheduler.next(2000) else { panic!("nothing to do") };
//! assert_eq!((both.offset, both.end, both.parts), (0, 8192, 2));
//! let ids: Vec<u64> = scheduler.parts(both.id).map(|part| part.id).collect();
//! assert_eq!(ids, [1, 2]);
//! scheduler.completed(3000, both.id)?;
//! # Ok::<(), penstock_sched::Error>(())
//! ```
//!
//! One algorithm per file in `algorithms/`. What they share: `table` (requests, virtual requests, queues, aggregation),
//! `ranks` (choices by size, age or time), `waiting` (when a queue waits for more). Also `order` (conflicting requests) and
//! `statistics`. `groups`: files under different algorithms at once. `journal`: each call with its answer, to be checked
//! elsewhere. [`learn`]: predictions and patterns, from traces and online. [`ledger`]: who loads the server. A
//! [`Dispatcher`] is all of it for one data server.
mod algorithms;
mod dispatcher;
mod error;
mod groups;
mod history;
pub mod journal;
pub mod learn;
pub mod ledger;
mod options;
mod order;
mod ranks;
mod request;
mod ring;
mod scheduler;
mod select;
mod settings;
mod statistics;
mod table;
mod waiting;

pub use algorithms::Algorithm;
pub use dispatcher::{Arrival, Dispatcher, SLICE, ServerInfo, Verdict};
pub use error::Error;
pub use groups::Groups;
pub use options::Options;
pub use penstock_base::{Nanos, Op};
pub use request::{Next, Request, VirtualRequest};
pub use scheduler::Scheduler;
pub use select::{
    Chooser, Choosing, Class, Decision, Expectation, FileView, Mode, Objective, Selector,
    SelectorOptions, Situation, Tree, View,
};
pub use settings::Settings;
pub use statistics::{Histogram, ProgramStatistics, Statistics};
pub use waiting::Company;
