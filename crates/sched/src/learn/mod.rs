//! Learning from requests: aggregations to expect, and the access pattern of each file.
//!
//! ```text
//! merge.rs     repetitions of a program as one       predict.rs   aggregations that will come, and how long to wait
//! features.rs  figures of a window of requests       pattern.rs   the four patterns, and the tree that tells them apart
//! detect.rs    per file, from traces and online      generate.rs  what data servers see of known programs
//! cost.rs      how long requests take on a device
//! ```
mod cost;
mod detect;
mod features;
mod generate;
mod merge;
mod pattern;
mod predict;

pub use cost::Cost;
pub use detect::{Detector, DetectorLimits, FileVerdict, Look, detect, looks};
pub use features::{FEATURES, Features, MIN_WINDOW, WINDOW, Window};
pub use generate::{Example, Labelled, Scenario, generate};
pub use merge::{ARRIVAL_FLOOR, ARRIVAL_TOLERANCE, Merged, merge};
pub use pattern::{AccessPattern, Order, Tree};
pub use predict::{Limits, Predictor, Statistics};
