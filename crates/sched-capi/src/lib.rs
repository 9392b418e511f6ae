//! The C interface of the scheduling library; `include/penstock_sched.h` describes it.
//!
//! `convert` has the conversions, `machine` the plain state machine, `service` the thread with callbacks.
mod convert;
mod machine;
mod service;

pub use convert::{CRequest, CStatistics, CVirtual};
pub use machine::*;
pub use service::*;
