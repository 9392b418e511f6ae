//! A second process that cleans up when `penstock run` is killed outright.
//!
//! The servers of an embedded deployment live in the process of `penstock run` and end with it. After kill -9 two
//! things would remain: the launcher with its ranks, and the temporary directory. The watcher holds the reading end of
//! a pipe from its parent. It reads lines that say what to clean up. The line `done` means that the parent has cleaned
//! up itself. End of file without that line means that the parent was killed.
//!
//! It serves the daemon of a mount in the same way: killed, the daemon would leave a dead mount point.
//!
//! The deployment of a job (`penstock run --job`) has servers of its own, on other hosts too, and perhaps output that
//! is not staged out yet. The watcher runs `penstock clean`, which leaves such output.
//!
//! Protocol, one line each: `launcher PID`, `directory PATH`, `mount PATH` (to be taken away), `guard PATH` (only if it is
//! dead), `clean WORDS` (of that command, as JSON), `done`.
use crate::error::{CliError, Result};
use crate::process::Process;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// How long the launcher has to end its ranks before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// The parent's end of the pipe.
pub struct Watcher {
    child: Child,
    pipe: ChildStdin,
}

impl Watcher {
    /// Starts the watcher: this program again, as `penstock watch`.
    pub fn start() -> Result<Watcher> {
        let me = std::env::current_exe()
            .map_err(|e| CliError::new(format!("cannot find this program's own path: {e}")))?;
        let mut child = Command::new(&me)
            .arg("watch")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| CliError::io("start", &me, e))?;
        let Some(pipe) = child.stdin.take() else {
            return Err(CliError::new("the watcher has no pipe"));
        };
        Ok(Watcher { child, pipe })
    }

    /// The launcher and the ranks below it are to be ended.
    pub fn launcher(&mut self, pid: u32) -> Result<()> {
        self.say(&format!("launcher {pid}"))
    }

    /// `path` and all below it are to be removed.
    pub fn directory(&mut self, path: &Path) -> Result<()> {
        let Some(text) = path.to_str().filter(|t| !t.contains('\n')) else {
            return Err(CliError::new(format!(
                "{} is no usable name for a temporary directory",
                path.display()
            ))
            .next("name one in plain UTF-8 with --store"));
        };
        self.say(&format!("directory {text}"))
    }

    /// This command of `penstock` is to be run, after the launcher has ended.
    pub fn clean(&mut self, words: &[String]) -> Result<()> {
        let words = serde_json::to_string(words).map_err(CliError::new)?;
        self.say(&format!("clean {words}"))
    }

    /// The mount on `path` is to be taken away.
    pub fn mount(&mut self, path: &Path) -> Result<()> {
        self.say_path("mount", path)
    }

    /// The same, only if the mount is dead: this process serves it.
    pub fn guard(&mut self, path: &Path) -> Result<()> {
        self.say_path("guard", path)
    }

    fn say_path(&mut self, word: &str, path: &Path) -> Result<()> {
        let absolute = path
            .canonicalize()
            .map_err(|e| CliError::io("find", path, e))?;
        let Some(text) = absolute.to_str().filter(|t| !t.contains('\n')) else {
            return Err(CliError::new(format!(
                "{} is no usable name for a mount point",
                path.display()
            ))
            .next("name one in plain UTF-8"));
        };
        self.say(&format!("{word} {text}"))
    }

    fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.pipe, "{line}")
            .map_err(|e| CliError::new(format!("the watcher process is gone: {e}")))
    }

    /// Everything is cleaned up: the watcher exits.
    pub fn finish(mut self) {
        // A watcher that has exited needs no message.
        let _ = writeln!(self.pipe, "done");
        drop(self.pipe);
        let _ = self.child.wait();
    }
}

/// Runs the watcher process: `penstock watch`.
pub fn watch(input: impl BufRead) -> Result<()> {
    // Ctrl-C at the terminal goes to every process of the foreground group; the watcher must outlive them.
    let _ = rustix::process::setsid();
    let mut launcher = None;
    let mut directories = Vec::new();
    let mut mounts = Vec::new();
    let mut clean: Option<Vec<String>> = None;
    for line in input.lines() {
        let Ok(line) = line else { break };
        match line.split_once(' ') {
            Some(("launcher", pid)) => launcher = pid.parse().ok().and_then(Process::find),
            Some(("directory", path)) => directories.push(PathBuf::from(path)),
            Some(("mount", path)) => mounts.push((PathBuf::from(path), false)),
            Some(("guard", path)) => mounts.push((PathBuf::from(path), true)),
            Some(("clean", words)) => clean = serde_json::from_str(words).ok(),
            _ if line == "done" => return Ok(()),
            _ => {}
        }
    }
    if let Some(launcher) = launcher {
        launcher.end(GRACE);
    }
    for (mount, only_dead) in mounts {
        // A guard removes only a dead mount: somebody may have mounted there again.
        if penstock_fuse::find(&mount).is_some_and(|found| !only_dead || found.is_dead()) {
            let _ = penstock_fuse::unmount(&mount, true);
        }
    }
    if let Some(words) = clean {
        let me = std::env::current_exe().map_err(CliError::new)?;
        let _ = Command::new(me).args(words).stdin(Stdio::null()).status();
    }
    for directory in directories {
        let _ = std::fs::remove_dir_all(directory);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clears_up_when_the_parent_is_gone_and_only_then() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir_all(work.join("deep")).unwrap();
        let line = format!("directory {}\n", work.display());
        watch(format!("{line}done\n").as_bytes()).unwrap();
        assert!(work.exists());
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        watch(format!("{line}launcher {}\n", sleeper.id()).as_bytes()).unwrap();
        assert!(!work.exists());
        assert!(!sleeper.wait().unwrap().success());
    }
}
