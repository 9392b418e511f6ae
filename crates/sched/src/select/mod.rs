//! Algorithm selection (TS chapter 6). `tree`: by rules learnt beforehand from the access pattern and the device.
//! `online`: by the measured score of each algorithm, decided anew over a sliding window. `chooser` does either for
//! each class of files, as the sampler (`sampler`) classifies them.
mod belief;
mod chooser;
mod learnt;
mod nodes;
mod objective;
mod online;
mod own;
mod sampler;
mod tree;

pub use chooser::{Chooser, Choosing, Mode};
pub use objective::Objective;
pub use online::{Decision, Selector, SelectorOptions};
pub use own::Expectation;
pub use sampler::{Class, FileView, View};
pub use tree::{Situation, Tree};
