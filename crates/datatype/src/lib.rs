//! Datatypes as loops (SYSTEMS 1; DT section III).
//!
//! A [`Loop`] describes which bytes one instance of a datatype covers: a tree of five kinds
//! (contig, vector, blockindexed, indexed, struct) over leaf bytes. A [`Pattern`] tiles a loop
//! without end from a displacement and cuts a range out of the resulting *stream*; it is what
//! travels from the MPI call to the store, for the file side and the memory side alike. Nothing
//! here ever expands a regular pattern into a list of regions.
//!
//! Words: *stream byte s* is the s-th data byte in typemap order; *offset* is where it lies
//! (relative to a buffer's base address, or a file offset); a *run* is a maximal contiguous
//! piece of both.

mod skeleton;
pub use skeleton::*;
