//! Datatypes as loops (DT section III).
//!
//! A [`Loop`] describes which bytes one instance of a datatype covers: a tree of five kinds (contig, vector,
//! blockindexed, indexed, struct) over leaf bytes. A [`Pattern`] tiles a loop without end from a displacement and cuts
//! a range out of the resulting *stream*. It is passed from the MPI call to the store, for the file side and the memory
//! side alike. Nothing here ever expands a regular pattern into a list of regions.
//!
//! Words: *stream byte s* is the s-th data byte in typemap order. *Offset* is its position, relative to a buffer's base
//! address or to the file's start. A *run* is a maximal piece that is contiguous in both.
//!
//! | file | idea |
//! | --- | --- |
//! | `loops` | the tree and what every node knows about itself |
//! | `build` | the MPI constructors |
//! | `fuse` | loop fusion: one canonical tree per construction |
//! | `locate` | stream position ↔ offset, counts and bounds, without walking |
//! | `walk` | the runs of a stream range, in bursts |
//! | `stripes`, `residue` | meeting regularly repeated stripes, without visiting what lies between |
//! | `pattern`, `cursor` | tilings, ranges of them, and walking them step by step |
//! | `buffer`, `copy`, `kernel`, `far`, `block` | moving the bytes |
//! | `codec` | the encoded form and its hash |
//! | `signature` | basic elements along the stream; external32 |

mod block;
mod buffer;
mod build;
mod codec;
mod copy;
mod cursor;
mod error;
pub mod far;
mod fuse;
mod kernel;
mod locate;
mod loops;
mod pattern;
mod residue;
mod signature;
mod stripes;
mod walk;

pub use buffer::{Source, Target};
pub use build::{Distribution, Order};
pub use codec::MAX_ENCODED;
pub use copy::copy;
pub use cursor::Cursor;
pub use error::{Error, Result};
pub use loops::{Loop, LoopHash, MAX_DEPTH};
pub use pattern::{Pattern, Run};
pub use signature::{Elem, ElemKind, Signature};
pub use stripes::{MIN_STEPS, Meeting, Stripes};
