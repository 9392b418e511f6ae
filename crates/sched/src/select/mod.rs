//! Which algorithm (TS chapter 6): `tree` by rules learnt beforehand from the access pattern and the
//! device, `online` by what each algorithm is seen to give, re-decided over a sliding window.
mod learnt;
mod online;
mod tree;

pub use online::{Decision, Objective, Selector, SelectorOptions};
pub use tree::{Situation, Tree};
