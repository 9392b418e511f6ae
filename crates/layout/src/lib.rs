//! Striping arithmetic: which server holds which byte of a file, and where in its object.
//!
//! A file is cut into stripe units dealt round robin to `servers`, the first unit to `servers[0]`.
//! Byte `f` lies on turn `f / (unit * n)`, server index `(f / unit) % n`, object offset
//! `turn * unit + f % unit`. Offsets are typed: a file offset never compiles as an object offset.
//!
//! `layout` holds the arithmetic of single bytes and lengths, `pieces` meets a structured access with
//! the stripes of one server, `search_limit` bounds what that may cost.

mod layout;
mod pieces;
mod search_limit;

pub use layout::{FileId, FileOffset, Layout, LayoutError, ObjectOffset, ServerId, ServerIndex};
pub use pieces::{Piece, Pieces};
pub use search_limit::{GivenUp, SearchLimit};
