//! Data servers that record the decisions of their schedulers. These are separate from the traces of requests, which
//! the setting `trace=DIR` writes.
use crate::error::{CliError, Result};
use crate::which::Which;
use penstock_server::{Call, Journal};
use penstock_trace::Lines;
use std::path::{Path, PathBuf};

/// A new file of this server in `dir`.
fn place(which: Which, dir: &Path, suffix: &str) -> Result<PathBuf> {
    std::fs::create_dir_all(dir).map_err(|e| CliError::io("make", dir, e))?;
    let path = dir.join(format!("{}.{suffix}", which.name()));
    if path.exists() {
        return Err(
            CliError::new(format!("{} is there already", path.display()))
                .next("name another directory with --trace, or remove it"),
        );
    }
    Ok(path)
}

/// The format name in files of decisions.
pub const DECISIONS: &str = "decisions";

/// Records each call of one data server's scheduler, for `penstock sim --replay`.
#[derive(Debug)]
pub struct Decisions(Lines<Call>);

impl Decisions {
    /// Makes the file in `dir`. Fails if the file exists.
    pub fn start(which: Which, dir: &Path) -> Result<Decisions> {
        let path = place(which, dir, DECISIONS)?;
        Lines::start(&path, DECISIONS)
            .map(Decisions)
            .map_err(CliError::new)
    }
}

impl Journal for Decisions {
    fn call(&self, call: Call) {
        self.0.record(call);
    }
}
