//! Questions to traces (IOTRACE and IOPin, IT 1 and 2): where the time went, who reached whom, in which order.
//!
//! ```text
//! trace.rs     a trace's streams on one time line, what is missing of it, reading in two threads
//! summary.rs   one pass over all records: figures of each group; kept beside the trace
//! figures.rs   what a group did, in figures that add up     busy.rs      how long, and when
//! cover.rs     union of a call's children                   window.rs    records that wait for their children
//! visits.rs    which calls visited which server
//! key.rs       which calls a question is about              tree.rs      one call, followed to the devices
//! report/      the page of `penstock report TRACE`: pictures and findings
//! generate.rs  traces of made-up programs                   anonymise.rs a copy without names
//! parquet.rs   tables for DuckDB and pandas                 perfetto.rs  for its viewer
//! darshan.rs   a log for PyDarshan and Drishti
//! ```
mod anonymise;
mod busy;
mod cover;
mod darshan;
mod figures;
mod generate;
mod key;
mod marks;
mod parquet;
mod perfetto;
mod report;
mod summary;
mod trace;
mod tree;
mod visits;
mod window;

pub use anonymise::anonymise;
pub use busy::{Bin, Timeline};
pub use cover::Cover;
pub use darshan::darshan;
pub use figures::{Figures, Histogram, Order};
pub use generate::{Irregular, Plan, Sink, write};
pub use key::Key;
pub use marks::MarkedPhase;
pub use parquet::parquet;
pub use penstock_trace::{Layer, OperationKind};
pub use perfetto::{Written, perfetto};
pub use report::{MOST_BYTES as MOST_PAGE_BYTES, RUN, page};
pub use summary::{
    Cell, Group, INDEX, OTHER_FILES, Ordered, Process, Server, Summary, summarise, summary,
};
pub use trace::{Answers, Blocks, Part, Trace};
pub use tree::{Node, Tree, follow};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part of the trace.
    #[error(transparent)]
    Trace(#[from] penstock_trace::Error),
    /// The system said no.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// `read`, `write` …
        doing: &'static str,
        /// Which file.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// What was asked for is not there, or cannot be answered.
    #[error("{0}")]
    Question(String),
}

/// What limits an answer, for people: drops, cuts, missing parts. Each once.
#[derive(Debug, Clone, Default)]
pub struct Notes(Vec<String>);

/// Most notes that are kept.
const MOST_NOTES: usize = 100;

impl Notes {
    /// One more.
    pub fn add(&mut self, note: String) {
        if self.0.len() < MOST_NOTES && !self.0.contains(&note) {
            self.0.push(note);
        } else if self.0.len() == MOST_NOTES {
            self.0.push("more of that kind".into());
        }
    }

    /// All.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Makes a file, mode 0600. One that is there already is an error.
fn make(path: &std::path::Path) -> Result<std::fs::File, Error> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    made.map_err(|source| Error::Io {
        doing: "make",
        path: path.to_owned(),
        source,
    })
}
