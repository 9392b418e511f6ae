//! Striping arithmetic: which server holds which byte of a file, and where in its object.
//!
//! A file is cut into stripe units distributed round robin over `servers`, the first unit on `servers[0]`. Byte `f` is
//! in stripe `f / (unit * n)`, on server index `(f / unit) % n`, at object offset `stripe * unit + f % unit`. Offsets
//! are typed: a file offset does not compile as an object offset.
//!
//! `layout` has the arithmetic of single bytes and lengths. `pieces` intersects a structured access with the stripes of
//! one server, and `search_limit` bounds the cost of that.

mod layout;
mod pieces;
mod search_limit;

pub use layout::{FileId, FileOffset, Layout, LayoutError, ObjectOffset, ServerId, ServerIndex};
pub use pieces::{Piece, Pieces};
pub use search_limit::{GivenUp, SearchLimit};
