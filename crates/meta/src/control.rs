//! The metadata server's end of the control channel ([`penstock_rpc::control`]): its term, stored in the file `term` of
//! the metadata directory.
//!
//! The term increases with each start and is durable before anything is answered. It is at least the wall clock's
//! seconds, so that a directory restored from a backup is not behind what data servers have received. On a full disk
//! the server starts nevertheless. The clock alone suffices unless it is set back before the next start.
use penstock_host::fs;
use penstock_host::sync::Mutex;
use penstock_host::time::since_epoch;
use penstock_rpc::control::Holder;
use penstock_wire::message::{Decision, Report};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::PoisonError;

const NAME: &str = "term";

/// The terms and decisions of this server.
#[derive(Debug)]
pub struct Control(Mutex<Holder>);

impl Control {
    /// Begins the next term.
    pub fn begin(directory: &Path) -> Control {
        let term = next_term(directory);
        if let Err(e) = keep(directory, term) {
            let path = directory.join(NAME);
            log::warn!(
                "{} cannot be written: {e}; make room on its disk",
                path.display()
            );
        }
        Control(Mutex::new(Holder::new(term)))
    }

    /// Handles a data server's report; returns the answer, and whether to count its figures.
    pub fn heard(&self, server: u32, report: &Report) -> (Decision, bool) {
        // Plain numbers: any state that a panic left is usable.
        let mut holder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        holder.heard(server, report)
    }
}

fn next_term(directory: &Path) -> u64 {
    let kept = std::fs::read_to_string(directory.join(NAME)).ok();
    let former = kept.and_then(|text| text.trim().parse::<u64>().ok());
    since_epoch()
        .as_secs()
        .max(former.unwrap_or(0).saturating_add(1))
}

fn keep(directory: &Path, term: u64) -> std::io::Result<()> {
    let (path, new) = (directory.join(NAME), directory.join("term.new"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = fs::open(&options, &new, true)?;
    fs::write_all(&mut file, format!("{term}\n").as_bytes())?;
    fs::fsync(&file)?;
    fs::rename(&new, &path)?;
    fs::fsync(&File::open(directory)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_rise_whatever_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let begin = || {
            let term = next_term(dir.path());
            keep(dir.path(), term).unwrap();
            term
        };
        let first = begin();
        let second = begin();
        assert!(first > 1_000_000_000 && second > first);
        let ahead = second + 1_000_000;
        std::fs::write(dir.path().join(NAME), format!("{ahead}\n")).unwrap();
        assert_eq!(begin(), ahead + 1);
        // Without the file, or with a damaged one, the clock suffices.
        std::fs::write(dir.path().join(NAME), "rubbish").unwrap();
        assert!(begin() >= first);
        // A directory that cannot take a file, as on a full disk, does not prevent a start.
        let none = dir.path().join("none");
        assert!(keep(&none, 1).is_err());
        Control::begin(&none);
    }
}
