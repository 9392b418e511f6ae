//! The time at which capabilities are issued: the metadata server's time ([`penstock_wire::clock`]), recorded in the
//! file `clock` of its directory.
//!
//! The file is replaced atomically, about every half minute while the time is in use, by one of the requests. If it
//! cannot be written the time continues; it may then go back if the machine is restarted with a clock that is behind.
use penstock_host::fs;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_host::time::{since_boot, since_epoch};
use penstock_wire::clock::{IssueTime, Kept};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

const NAME: &str = "clock";
/// Time between attempts to write the file.
const RETRY: Duration = Duration::from_secs(5);

/// The metadata server's time.
#[derive(Debug)]
pub struct Issue {
    directory: PathBuf,
    time: Mutex<IssueTime>,
    /// Locked by the thread that writes the file: when that was last tried, on the steady clock.
    tried: Mutex<Option<Duration>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Issue {
    /// Continues the time of this directory's last server.
    pub fn begin(directory: &Path) -> Issue {
        let path = directory.join(NAME);
        let kept = std::fs::read_to_string(&path).ok();
        let found = kept.as_deref().and_then(Kept::decode);
        if kept.is_some() && found.is_none() {
            log::warn!(
                "{} is damaged: capabilities are issued by the wall clock from now on",
                path.display()
            );
        }
        let time = IssueTime::begin(found, penstock_host::boot(), wall_ms(), since_boot());
        Issue {
            directory: directory.to_owned(),
            time: Mutex::new(time),
            tried: Mutex::new(None),
        }
    }

    /// The time, milliseconds.
    pub fn now_ms(&self) -> u64 {
        let look = || {
            let (time, steady) = (locked(&self.time), since_boot());
            (time.now(steady), time.due(steady).is_some())
        };
        let ((now, may), due) = look();
        if !due {
            return now;
        }
        let mut tried = if may {
            // Another thread is writing it, and there is time left.
            match self.tried.try_lock() {
                Some(tried) => tried,
                None => return now,
            }
        } else {
            locked(&self.tried)
        };
        let again = |tried: Duration| since_boot().saturating_sub(tried) >= RETRY;
        let due = locked(&self.time).due(since_boot());
        if let Some(kept) = due.filter(|_| tried.is_none_or(again)) {
            *tried = Some(since_boot());
            match self.save(&kept) {
                Ok(()) => locked(&self.time).kept(&kept),
                Err(e) => log::warn!(
                    "{}: {e}; the time of capabilities may go back if this host is started again",
                    self.directory.join(NAME).display()
                ),
            }
        }
        look().0.0
    }

    fn save(&self, kept: &Kept) -> std::io::Result<()> {
        let (path, new) = (self.directory.join(NAME), self.directory.join("clock.new"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = fs::open(&options, &new, true)?;
        fs::write_all(&mut file, kept.encode().as_bytes())?;
        fs::fsync(&file)?;
        fs::rename(&new, &path)?;
        Ok(fs::fsync(&File::open(&self.directory)?)?)
    }
}

/// The wall clock, milliseconds since the epoch.
pub fn wall_ms() -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_goes_on_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let hour = 3_600_000;
        let first = Issue::begin(dir.path()).now_ms();
        assert!(first.abs_diff(wall_ms()) < hour);
        let path = dir.path().join(NAME);
        let mut kept = Kept::decode(&std::fs::read_to_string(&path).unwrap()).unwrap();
        // The machine's clock was ahead, in this boot or an earlier one, and has been set back since.
        kept.time_ms += hour;
        for boot in [kept.boot, kept.boot ^ 1] {
            kept.boot = boot;
            std::fs::write(&path, kept.encode()).unwrap();
            assert!(Issue::begin(dir.path()).now_ms() >= first + hour);
            let now = Kept::decode(&std::fs::read_to_string(&path).unwrap()).unwrap();
            assert!(now.time_ms >= kept.time_ms);
        }
        std::fs::write(&path, "rubbish").unwrap();
        assert!(Issue::begin(dir.path()).now_ms().abs_diff(wall_ms()) < hour);
    }
}
