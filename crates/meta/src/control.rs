//! The metadata server's end of the control channel ([`penstock_wire::control`]): its term, kept in the file `term` of the
//! metadata directory.
//!
//! The term rises with each start and is durable before anything is answered. It is never behind the wall clock's seconds, so that
//! a directory that was restored from a backup does not fall behind what data servers have heard.
use crate::error::{Result, error};
use penstock_host::fs;
use penstock_host::sync::Mutex;
use penstock_host::time::since_epoch;
use penstock_wire::control::Holder;
use penstock_wire::message::{Decision, ErrorKind, Report};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::PoisonError;

const NAME: &str = "term";

/// See the module's text.
#[derive(Debug)]
pub struct Control(Mutex<Holder>);

impl Control {
    /// Begins the next term.
    pub fn begin(directory: &Path) -> Result<Control> {
        let term = next_term(directory).map_err(|e| {
            let path = directory.join(NAME);
            error(ErrorKind::Io, format!("write {}: {e}", path.display()))
        })?;
        Ok(Control(Mutex::new(Holder::new(term))))
    }

    /// A data server reports: the answer, and whether its figures are to be counted.
    pub fn heard(&self, server: u32, report: &Report) -> (Decision, bool) {
        // Plain numbers: whatever a panic left of them is good enough.
        let mut holder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        holder.heard(server, report)
    }
}

fn next_term(directory: &Path) -> std::io::Result<u64> {
    let (path, new) = (directory.join(NAME), directory.join("term.new"));
    let kept = std::fs::read_to_string(&path).ok();
    let former = kept.and_then(|text| text.trim().parse::<u64>().ok());
    let term = since_epoch().as_secs().max(former.unwrap_or(0) + 1);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = fs::open(&options, &new, true)?;
    fs::write_all(&mut file, format!("{term}\n").as_bytes())?;
    fs::fsync(&file)?;
    fs::rename(&new, &path)?;
    fs::fsync(&File::open(directory)?)?;
    Ok(term)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_rise_whatever_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let first = next_term(dir.path()).unwrap();
        let second = next_term(dir.path()).unwrap();
        assert!(first > 1_000_000_000 && second > first);
        let ahead = second + 1_000_000;
        std::fs::write(dir.path().join(NAME), format!("{ahead}\n")).unwrap();
        assert_eq!(next_term(dir.path()).unwrap(), ahead + 1);
        // Without the file, or with a damaged one, the clock says enough.
        std::fs::write(dir.path().join(NAME), "rubbish").unwrap();
        assert!(next_term(dir.path()).unwrap() >= first);
    }
}
