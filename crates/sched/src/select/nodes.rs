//! A selection tree as data: what `learnt` holds and `tree` walks.
use crate::Algorithm;

/// An attribute of a situation (`tree`) as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribute {
    Write,
    Files,
    BytesPerFile,
    Large,
    Ratio,
    Memory,
}

/// A tree as data: at most the threshold goes left.
#[derive(Debug)]
pub(super) enum Node {
    Split(Attribute, f64, &'static Node, &'static Node),
    Leaf(Algorithm),
}
