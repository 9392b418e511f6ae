//! Checks that the metadata directory still holds the names.
//!
//! Problem: if a metadata directory is empty (its disk is lost or not mounted), a start would make it anew, with no
//! names. Idea: a file in the deployment's own directory records that names exist, and whether they are on a file
//! system of their own.
use crate::deployment::Located;
use crate::error::{CliError, Result};
use crate::replaced::{ReplacedArgs, WhichStore};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file's name, beside the deployment file.
const NAME: &str = "metadata.made";
const MOUNTED: &str = "mounted\n";

fn marker(located: &Located) -> PathBuf {
    located.dir().join(NAME)
}

/// Refuses to make a new name space where one existed.
pub fn refuse_lost(located: &Located, replaced: &ReplacedArgs) -> Result<()> {
    let store = &located.deployment.meta.store;
    let before = std::fs::read_to_string(marker(located));
    let Ok(before) = before else { return Ok(()) };
    if penstock_meta::is_made(store) || replaced.new_store.contains(&WhichStore::Meta) {
        return Ok(());
    }
    let what = match (store.is_dir(), before == MOUNTED && !is_mounted(store)) {
        (false, _) => "does not exist",
        (true, true) => "is an empty mount point",
        (true, false) => "is empty",
    };
    Err(CliError::new(format!(
        "metadata store {} {what}, but this deployment has names",
        store.display()
    ))
    .next("put the store back (is its file system not mounted?), or accept that all names are lost with `penstock up --new-store meta`"))
}

/// Records that names exist from now on. If the deployment file's directory cannot be written, nothing is recorded.
pub fn note(located: &Located) {
    let path = marker(located);
    if path.exists() {
        return;
    }
    let mounted = is_mounted(&located.deployment.meta.store);
    let write = || -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).mode(0o600).open(&path)?;
        if mounted {
            file.write_all(MOUNTED.as_bytes())?;
        }
        file.sync_all()?;
        std::fs::File::open(located.dir())?.sync_all()
    };
    if let Err(e) = write() {
        log::warn!(
            "{}: {e}; that names are lost would not be noticed",
            path.display()
        );
    }
}

/// Whether the directory lies on another device than its parent.
fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|found| found.dev());
    match (device(path), device(&path.join(".."))) {
        (Ok(own), Ok(parent)) => own != parent,
        _ => false,
    }
}
