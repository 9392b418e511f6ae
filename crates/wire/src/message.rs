//! The messages. One frame = header + postcard body + at most [`MAX_PAYLOAD`] payload bytes. Large transfers are
//! several frames of one request id with the MORE flag. The status comes with the last, so that an error in the middle
//! is a reply and not a broken connection.
//!
//! `data` and `meta` have the requests and replies of each kind of server; the other files have the shared types. The
//! order of variants is part of the protocol: new ones go to the end, with a new version.
mod attributes;
mod capability;
mod context;
mod control;
mod data;
mod ledger;
pub(crate) mod limits;
mod meta;
mod node;
mod program;
mod quota;
pub(crate) mod refusal;
mod status;
mod store;
mod usage;
pub(crate) mod user;

pub use attributes::*;
pub use capability::*;
pub use context::*;
pub use control::*;
pub use data::*;
pub use ledger::*;
pub use limits::*;
pub use meta::*;
pub use node::*;
pub use program::*;
pub use quota::*;
pub use refusal::*;
pub use status::*;
pub use store::*;
pub use usage::*;
pub use user::*;
