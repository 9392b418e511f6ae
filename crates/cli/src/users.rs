//! Users on the command line, by name or number.
use crate::error::{CliError, Result};
use penstock_rpc::users::find;
use penstock_wire::message::User;

pub use penstock_rpc::users::name;

/// The user of this name or number.
pub fn named(name: &str) -> Result<User> {
    let found =
        find(name).map_err(|e| CliError::new(format!("cannot look user {name} up: {e}")))?;
    found.ok_or_else(|| {
        CliError::new(format!("no user {name}"))
            .next("`getent passwd` lists users; a number works too")
    })
}
