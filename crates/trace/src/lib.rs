//! Traces of the requests that data servers serve, and what is learnt from them.
//!
//! ```text
//! event.rs     what is recorded                      format.rs    its bytes: header, checked blocks, end
//! recorder.rs  writing, with bounded memory          reader.rs    reading, strictly
//! merge.rs     repetitions of a program as one       predict.rs   aggregations that will come, and how long to wait
//! features.rs  figures of a window of requests       pattern.rs   the four patterns, and the tree that tells them apart
//! lines.rs     a record that ends where it would have a hole
//! detect.rs    per file, from traces and online      generate.rs  what data servers see of known programs
//! ```
//!
//! Nothing here but the writers' threads and the readers' files touches the outside: times are passed in.
mod cost;
mod detect;
mod error;
mod event;
mod features;
mod format;
mod generate;
mod lines;
mod merge;
mod pattern;
mod predict;
mod reader;
mod recorder;

pub use cost::Cost;
pub use detect::{Detector, DetectorLimits, FileVerdict, Look, detect, looks};
pub use error::{Error, Result};
pub use event::{Event, Kind};
pub use features::{FEATURES, Features, MIN_WINDOW, WINDOW, Window};
pub use format::{Header, VERSION};
pub use generate::{Example, Labelled, Scenario, generate};
pub use lines::{Lines, LinesEnd, LinesReader};
pub use merge::{ARRIVAL_FLOOR, ARRIVAL_TOLERANCE, Merged, merge};
pub use pattern::{Pattern, Tree};
pub use penstock_base::{Nanos, Op};
pub use predict::{Limits, Predictor, Statistics};
pub use reader::{Reader, read_all};
pub use recorder::{Recorder, RecorderOptions, Summary, Writer};
