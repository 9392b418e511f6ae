//! Processes of this host, identified so that a reused number is not taken for the old process.
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A process: its number and its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pid: Pid,
    /// Clock ticks since boot.
    started: u64,
}

impl Process {
    /// The process that has this number now.
    pub fn find(pid: i32) -> Option<Process> {
        let pid = Pid::from_raw(pid)?;
        let (started, dead) = read_stat(pid)?;
        (!dead).then_some(Process { pid, started })
    }

    /// Number and start time as text, for a pid file.
    pub fn to_line(self) -> String {
        format!("{} {}\n", self.pid.as_raw_nonzero(), self.started)
    }

    /// Reads [`Process::to_line`]; `None` if that process has ended.
    pub fn from_line(line: &str) -> Option<Process> {
        let mut words = line.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        let started: u64 = words.next()?.parse().ok()?;
        Process::find(pid).filter(|p| p.started == started)
    }

    /// The process that holds the file `lock` open and has written its number there, as servers do with their store's
    /// lock. A number that another host wrote, or that another process has now, is rejected.
    pub fn holding(lock: &Path) -> Option<Process> {
        let process = Process::find(std::fs::read_to_string(lock).ok()?.trim().parse().ok()?)?;
        let file = lock.metadata().ok()?;
        let open = std::fs::read_dir(format!("/proc/{}/fd", process.number())).ok()?;
        open.flatten()
            .map(|entry| entry.path())
            // Checked by name first: stat of an open file blocks while its mount is dead.
            .filter(|fd| {
                fd.read_link()
                    .is_ok_and(|to| to.file_name() == lock.file_name())
            })
            .filter_map(|fd| fd.metadata().ok())
            .any(|m| (m.dev(), m.ino()) == (file.dev(), file.ino()))
            .then_some(process)
    }

    /// Whether one of its arguments names this file, or the directory of the file.
    pub fn was_given(&self, file: &Path) -> bool {
        let proc = Path::new("/proc").join(self.number().to_string());
        let (Ok(file), Ok(arguments)) = (file.canonicalize(), std::fs::read(proc.join("cmdline")))
        else {
            return false;
        };
        let from = proc.join("cwd").read_link().unwrap_or_default();
        arguments
            .split(|b| *b == 0)
            .filter(|argument| !argument.is_empty())
            .filter_map(|argument| {
                let argument = std::ffi::OsStr::from_bytes(argument);
                from.join(argument).canonicalize().ok()
            })
            .any(|path| path == file || Some(path.as_path()) == file.parent())
    }

    /// The process's number.
    pub fn number(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Whether it still runs (a zombie does not).
    pub fn runs(&self) -> bool {
        Process::find(self.number()) == Some(*self)
    }

    /// Sends a signal; a process that has ended is no error.
    pub fn signal(&self, signal: Signal) {
        if self.runs() {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Waits until it has ended, at most `limit`; true if it has.
    pub fn wait(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.runs() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Asks it to end, and kills it if it hasn't within `grace`. True if it ended by itself.
    pub fn end(&self, grace: Duration) -> bool {
        self.signal(Signal::TERM);
        if self.wait(grace) {
            return true;
        }
        self.signal(Signal::KILL);
        self.wait(grace);
        false
    }
}

/// (start time, is a zombie) from /proc/PID/stat; `None` if there is no such process.
fn read_stat(pid: Pid) -> Option<(u64, bool)> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name in parentheses may hold anything, spaces and parentheses too.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some((started, state == "Z" || state == "X"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_found_ended_and_not_mistaken() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id().try_into().unwrap()).unwrap();
        assert_eq!(Process::from_line(&process.to_line()), Some(process));
        // The same number with another start time is another process.
        assert_eq!(Process::from_line(&format!("{} 1", child.id())), None);
        assert!(process.end(Duration::from_secs(10)));
        assert!(!process.runs());
        child.wait().unwrap();
        assert_eq!(Process::from_line("nonsense"), None);
    }

    #[test]
    fn the_holder_of_a_lock_has_it_open() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        assert_eq!(Process::holding(&lock), None);
        std::fs::write(&lock, format!("{}\n", std::process::id())).unwrap();
        // The number alone may belong to any process now.
        assert_eq!(Process::holding(&lock), None);
        let _open = std::fs::File::open(&lock).unwrap();
        let me = Process::find(std::process::id().try_into().unwrap());
        assert_eq!(Process::holding(&lock), me);
        std::fs::write(&lock, "nonsense").unwrap();
        assert_eq!(Process::holding(&lock), None);
    }
}
