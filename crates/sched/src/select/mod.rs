//! Which algorithm (TS chapter 6): `tree` by rules learnt beforehand from the access pattern and the
//! device, `online` by what each algorithm is seen to give, re-decided over a sliding window.
mod belief;
mod learnt;
mod objective;
mod online;
mod own;
mod tree;

pub use objective::Objective;
pub use online::{Decision, Selector, SelectorOptions};
pub use own::{ALGORITHMS as MEASURED, Expectation, Row, expect};
pub use tree::{Situation, Tree};
