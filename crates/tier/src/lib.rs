//! A fast tier before slow storage, without I/O (RS chapter 6): its log, the map of what is there, and its policy.
//!
//! Problem: slow storage is bad at small, random and interleaved writes. Idea: a log on a fast device takes them. They
//! are complete there, and come to the slow storage in ascending order when it is idle. Callers bring the time and do the
//! I/O, so a server and a simulator run the same decisions.
//!
//! | module | idea |
//! | --- | --- |
//! | `record` | one record: a header, its bytes, the header again |
//! | `scan` | which records are in the bytes of a segment |
//! | `log` | segments: where the next record goes, which segment can go |
//! | `map` | which bytes of one object are in the log, and where |
//! | `locality` | distances between requests, and what a longer queue would make of them |
//! | `policy` | which writes go to the log, and when they come home |
//!
//! Format and recovery: docs/understand/fast-tier.md.

mod locality;
mod log;
mod map;
mod policy;
mod record;
mod scan;

pub use locality::{Ghost, Locality};
pub use log::{Full, Log, Slot};
pub use map::{Extent, Map};
pub use policy::{Mode, Policy, Write};
pub use record::{End, FRAME, Kind, MAX_PAYLOAD, Place, Record, TierId, checksum};
pub use scan::{
    FOOTER, Found, SEGMENT_HEADER, Segment, Summary, read_summary, scan, segment_header, summary,
};
