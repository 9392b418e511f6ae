//! What the methods need below them.
