//! Servers as processes of this host: starts, finds and ends them.
use crate::deployment::Located;
use crate::error::{CliError, Result};
use crate::process::Process;
use crate::replaced::{ReplacedArgs, WhichStore};
use crate::service;
use crate::which::Which;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a server has to end by itself; before that it syncs its data.
pub const STOP: Duration = Duration::from_secs(60);
/// Bytes at the end of a log that are read for its last line.
const LINE: u64 = 4096;
/// Lines of a log that an error quotes.
const QUOTED: usize = 5;

fn pid_file(located: &Located, which: Which) -> PathBuf {
    located.run_dir().join(format!("{}.pid", which.name()))
}

/// The process of a server on this host. Its pid file may be removed together with its socket; the lock on its store
/// stays. If the holder of the lock serves another deployment, this one must not wait for it or end it.
pub fn running(located: &Located, which: Which) -> Option<Process> {
    let noted = std::fs::read_to_string(pid_file(located, which)).ok();
    noted
        .and_then(|line| Process::from_line(&line))
        .or_else(|| {
            which
                .holder(&located.deployment)
                .filter(|holder| holder.was_given(&located.file))
        })
}

/// What a server is told beside its deployment.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Directory for its trace.
    pub trace: Option<&'a Path>,
    /// Whether it also writes down what its scheduler decides.
    pub journal: bool,
    pub replaced: &'a ReplacedArgs,
}

/// Starts a server. `listener` is bound to its TCP address; without one the server binds that itself.
pub fn start(
    located: &Located,
    which: Which,
    listener: Option<TcpListener>,
    options: Options<'_>,
) -> Result<Child> {
    let me = std::env::current_exe()
        .map_err(|e| CliError::new(format!("cannot find this program's own path: {e}")))?;
    let log = log_file(located, which);
    let open = || closed(located, &log, std::fs::OpenOptions::new().append(true));
    let mut child = Command::new(&me)
        .args(["serve", "--detach", "--deployment"])
        .arg(&located.file)
        .args(which.arguments())
        .args(about(options.replaced, which))
        .args(
            options
                .trace
                .iter()
                .flat_map(|dir| [std::ffi::OsStr::new("--trace"), dir.as_os_str()]),
        )
        .args(options.journal.then_some("--journal"))
        .stdin(listener.map_or_else(Stdio::null, |l| OwnedFd::from(l).into()))
        .stdout(open()?)
        .stderr(open()?)
        .current_dir("/")
        .spawn()
        .map_err(|e| CliError::io("start", &me, e))?;
    let noted = match find(&child) {
        Some(process) => note(located, which, process),
        None => Ok(()),
    };
    if let Err(error) = noted {
        // Without its number nobody would find the process again.
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    Ok(child)
}

/// Writes the process's number to the file that [`running`] reads.
fn note(located: &Located, which: Which, process: Process) -> Result<()> {
    let pid_file = &pid_file(located, which);
    closed(
        located,
        pid_file,
        std::fs::OpenOptions::new().write(true).truncate(true),
    )?
    .write_all(process.to_line().as_bytes())
    .map_err(|e| CliError::io("write", pid_file, e))
}

/// Arguments about the replaced store of one server.
fn about(replaced: &ReplacedArgs, which: Which) -> Vec<String> {
    let (new, adopted) = match which {
        Which::Meta => (WhichStore::Meta, None),
        Which::Data(id) => (WhichStore::Data(id.0), Some(id.0)),
    };
    let name = match which {
        Which::Meta => "meta".to_owned(),
        Which::Data(id) => id.0.to_string(),
    };
    let new = replaced.new_store.contains(&new).then_some("--new-store");
    let adopted = adopted.filter(|id| replaced.adopt_store.contains(id));
    let adopted = adopted.map(|_| "--adopt-store");
    let options = new.into_iter().chain(adopted);
    options
        .flat_map(|option| [option.to_owned(), name.clone()])
        .collect()
}

/// Opens a file; a new one is accessible to the owner only.
fn closed(located: &Located, path: &Path, how: &mut std::fs::OpenOptions) -> Result<File> {
    service::as_owner(located.dir(), || {
        how.create(true)
            .mode(0o600)
            .open(path)
            .map_err(|e| CliError::io("write", path, e))
    })
}

pub fn find(child: &Child) -> Option<Process> {
    i32::try_from(child.id()).ok().and_then(Process::find)
}

/// The log of a server.
pub fn log_file(located: &Located, which: Which) -> PathBuf {
    located.log_dir().join(format!("{}.log", which.name()))
}

/// What a recovering server does now: the newest line of its log, if it is about recovery.
pub fn recovery(log: &Path) -> Option<String> {
    let line = last_line(log);
    let (_, doing) = line.split_once(penstock_meta::RECOVERS)?;
    Some(doing.trim_start_matches([':', ' ']).to_owned())
}

/// The newest line of a log; empty if there is none.
pub fn last_line(log: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LINE)))?;
        let mut text = Vec::new();
        file.take(LINE).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().next_back().unwrap_or_default().to_owned()
}

/// The last lines of a log, for messages.
pub fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(QUOTED)..]
        .iter()
        .map(|l| format!("    {l}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Removes the files about a process that ends.
pub fn forget(located: &Located, which: Which) {
    let _ = std::fs::remove_file(pid_file(located, which));
}

/// The servers that were ended.
#[derive(Debug, Default)]
pub struct Ended {
    pub count: usize,
    /// Those that had to be killed.
    pub killed: Vec<String>,
}

/// Ends these servers, all at the same time.
pub fn end(located: &Located, which: &[Which]) -> Ended {
    let mut ending = Vec::new();
    let mut ended = Ended::default();
    for which in which {
        if let Some(process) = running(located, *which) {
            process.signal(rustix::process::Signal::TERM);
            ending.push((which.name(), process));
        }
        forget(located, *which);
    }
    ended.count = ending.len();
    for (name, process) in ending {
        if !process.wait(STOP) {
            process.end(Duration::from_secs(1));
            ended.killed.push(name);
        }
    }
    ended
}

/// Orders the servers so that data servers end before the metadata server, which they tell how they end.
pub fn data_first(which: Vec<Which>) -> [Vec<Which>; 2] {
    let (meta, data) = which.into_iter().partition(|which| *which == Which::Meta);
    [data, meta]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_recovers_as_long_as_its_last_line_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(recovery(&log), None);
        let says = penstock_meta::RECOVERS;
        let old = "[x INFO  y] serving meta\n".repeat(1000);
        std::fs::write(&log, format!("{old}[x INFO  y] f: {says}: 5 of 9 MiB\n")).unwrap();
        assert_eq!(recovery(&log).as_deref(), Some("5 of 9 MiB"));
        std::fs::write(&log, format!("f: {says}: 5 of 9 MiB\n{old}")).unwrap();
        assert_eq!(recovery(&log), None);
    }

    #[test]
    fn logs_are_quoted_from_their_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, "1\n2\n3\n4\n5\n6\n7\n").unwrap();
        assert_eq!(last_lines(&log), "    3\n    4\n    5\n    6\n    7");
        assert_eq!(last_lines(&dir.path().join("none")), "");
    }
}
