//! An agent: `penstock agent` does on its host what `penstock up` and `down` ask over its standard input.
//!
//! If the conversation ends before [`Request::Keep`], the agent undoes what it did. It ends at the end of input, after
//! silence, or by a signal.
use super::here::{self, Here};
use super::message::{
    Begin, Begun, Hello, IDLE_S, Install, Job, Looked, MAX_LINE, NextKeys, Numbered, Open, Reply,
    Request, Start,
};
use super::names::Ports;
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::job;
use crate::launch;
use crate::out;
use crate::service;
use crate::which::Which;
use penstock_rpc::deployment::{Deployment, FILE_NAME};
use penstock_rpc::key_pair;
use penstock_wire::{Key, PublicKey};
use rustix::fs::FlockOperation;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// The lock file; one `up` or `down` at a time holds its lock.
const LOCK: &str = "up.lock";
/// The most bytes of it that are read.
const MAX_LOCK: u64 = 4096;
/// How often signals are checked.
const GLANCE: Duration = Duration::from_millis(200);
/// Free bytes that a store needs at least, for keys and logs too.
const LEAST_FREE: u64 = 16 << 20;

/// Serves requests until the input ends.
pub fn agent() -> Result<()> {
    // The end of the remote command's session must not end the servers. Fails if this process leads a session already.
    let _ = rustix::process::setsid();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    }
    service::ignore_user_signals()?;
    let requests = requests()?;
    let mut agent = Agent::default();
    let mut heard = say(&Hello::own());
    while heard && let Some(request) = next(&requests, &stop) {
        heard = say(&Numbered {
            number: request.number,
            what: agent.answer(request.what),
        });
    }
    if !agent.kept {
        agent.undo();
    }
    if agent.waits {
        for (_, child) in &mut agent.started {
            let _ = child.wait();
        }
    }
    Ok(())
}

/// Requests from standard input, read by a thread of its own.
fn requests() -> Result<Receiver<Numbered<Request>>> {
    let (sender, receiver) = sync_channel(1);
    let read = move || {
        let mut input = BufReader::new(std::io::stdin());
        loop {
            let mut line = Vec::new();
            match input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(n) if n > 0 && line.ends_with(b"\n") => {}
                _ => return,
            }
            let Ok(request) = serde_json::from_slice(&line) else {
                return;
            };
            if sender.send(request).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("requests".into())
        .spawn(read)
        .map_err(|e| CliError::new(format!("cannot start a thread: {e}")))?;
    Ok(receiver)
}

/// The next request; `None` if there are no more.
fn next(requests: &Receiver<Numbered<Request>>, stop: &AtomicBool) -> Option<Numbered<Request>> {
    let end = Instant::now() + Duration::from_secs(IDLE_S);
    while !stop.load(Ordering::Relaxed) && Instant::now() < end {
        match requests.recv_timeout(GLANCE) {
            Ok(request) => return Some(request),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
}

/// Whether it could be written.
fn say(line: &impl serde::Serialize) -> bool {
    let Ok(text) = serde_json::to_string(line) else {
        return false;
    };
    let mut output = std::io::stdout().lock();
    output
        .write_all(format!("{text}\n").as_bytes())
        .and_then(|()| output.flush())
        .is_ok()
}

/// What an agent has done so far, to be undone.
#[derive(Default)]
struct Agent {
    host: String,
    claim: Option<Claim>,
    /// The new deployment's directory, whose content is removed unless it is to stay.
    new: Option<New>,
    located: Option<Located>,
    /// Bound to the new servers' ports, for them to inherit: nobody else gets one in between.
    ports: Vec<(Which, TcpListener)>,
    start: Option<Start>,
    started: Vec<(Which, Child)>,
    kept: bool,
    waits: bool,
}

/// A directory that did not hold a deployment before.
struct New {
    dir: PathBuf,
    /// The directory was made, rather than found empty.
    made: bool,
    user: Option<penstock_wire::message::User>,
    group: Option<String>,
}

impl Agent {
    fn answer(&mut self, request: Request) -> Reply {
        let done = |()| Reply::Done;
        let answer = match request {
            Request::Begin(begin) => self.begin(&begin).map(Reply::Begun),
            Request::Install(install) => self.install(&install).map(done),
            Request::Open(open) => self.open(open).map(done),
            Request::Start(start) => self.start(start).map(done),
            Request::Look => self.look().map(Reply::Looked),
            Request::End(which) => self.located().map(|located| {
                let ended = launch::end(located, &which);
                Reply::Ended {
                    count: ended.count,
                    killed: ended.killed,
                }
            }),
            Request::Keep { wait } => {
                (self.kept, self.waits) = (true, wait);
                self.claim = None;
                Ok(Reply::Done)
            }
            Request::Keys(next) => self.keys(&next).map(Reply::Keys),
            Request::Job(job) => self.job(&job).map(done),
            Request::Clean { dir, discard } => {
                // The claim's lock file is in the directory that is removed.
                self.claim = None;
                job::clean_here(&dir, discard).map(Reply::Cleaned)
            }
            Request::Undo => {
                self.undo();
                Ok(Reply::Done)
            }
        };
        answer.unwrap_or_else(|e| {
            let (what, next) = e.into_parts();
            Reply::Failed { what, next }
        })
    }

    fn located(&self) -> Result<&Located> {
        self.located
            .as_ref()
            .ok_or_else(|| CliError::new("asked before it knew the deployment"))
    }

    fn begin(&mut self, begin: &Begin) -> Result<Begun> {
        let dir = &begin.dir;
        let user = service::user(begin.service_user.as_deref())?;
        self.host.clone_from(&begin.host);
        let made = !dir.exists();
        deployment::make_dir(dir)?;
        // No file is added to a directory that others use.
        if !dir.join(LOCK).exists() {
            refuse_used(dir)?;
        }
        self.claim = Some(Claim::take(dir, &begin.host, &begin.token)?);
        refuse_used(dir)?;
        self.new = Some(New {
            dir: dir.clone(),
            made,
            user,
            group: begin.group.clone(),
        });
        let room = free_bytes(dir)?;
        if room < LEAST_FREE {
            return Err(CliError::new(format!(
                "the file system of {} has {} left",
                dir.display(),
                crate::size::bytes(room)
            ))
            .next("free space there, or name another directory"));
        }
        let address = Here::find()?.choose(begin.net.as_ref(), begin.hint)?;
        let ports = Ports {
            first: begin.ports.0,
            last: begin.ports.1,
        };
        let taken = here::take_ports(address, ports, begin.servers.len())?;
        self.ports = begin.servers.iter().copied().zip(taken).collect();
        let pair = |name: &str| key_pair(dir, name).map_err(CliError::new);
        let mut servers = Vec::new();
        for (which, taken) in &self.ports {
            let port = taken
                .local_addr()
                .map_err(|e| CliError::new(format!("cannot take a port of {address}: {e}")))?
                .port();
            servers.push((port, pair(&which.name())?.0));
        }
        let authority = if begin.servers.contains(&Which::Meta) {
            Some(pair("authority")?.0)
        } else {
            None
        };
        Ok(Begun {
            address,
            servers,
            authority,
        })
    }

    fn install(&mut self, install: &Install) -> Result<()> {
        let Some(new) = &self.new else {
            return Err(CliError::new("asked to install before it began"));
        };
        let client_key = new.dir.join(&install.deployment.client_key);
        Key::from_bytes(install.client_key)
            .save(&client_key)
            .map_err(CliError::new)?;
        let file = new.dir.join(FILE_NAME);
        install.deployment.save(&file).map_err(CliError::new)?;
        let located = deployment::load(&new.dir)?;
        deployment::make_directories(&located)?;
        let own = Which::on(&located.deployment, Some(&self.host));
        deployment::make_stores(&located.deployment, &own)?;
        if let Some(group) = &new.group {
            deployment::share(&located, group)?;
        }
        if let Some(user) = &new.user {
            service::give(&new.dir, user, new.group.is_none())?;
        }
        self.located = Some(located);
        Ok(())
    }

    /// Made before any deployment file names them, so they may be there from a rotation that was interrupted.
    fn keys(&self, next: &NextKeys) -> Result<Vec<(Which, PublicKey)>> {
        let located = self.located()?;
        let (dir, deployment) = (located.dir(), &located.deployment);
        if deployment.generation != next.after {
            return Err(CliError::new(format!(
                "{} is at generation {} of its keys, and not {}",
                located.file.display(),
                deployment.generation,
                next.after
            ))
            .next("run `penstock keys --rotate` again"));
        }
        service::as_owner(dir, || {
            let name = format!("client-{}.key", next.after + 1);
            let there = std::fs::read_to_string(dir.join(&name));
            if !there.is_ok_and(|text| text == next.client_key) {
                job::write(dir, &name, &next.client_key)?;
            }
            deployment.next_client_key(dir).map_err(CliError::new)?;
            let identity = |which| {
                let made = deployment.next_identity(dir, Which::id(which));
                made.map(|key| (which, key)).map_err(CliError::new)
            };
            self.own()?.into_iter().map(identity).collect()
        })
    }

    fn job(&self, job: &Job) -> Result<()> {
        let dir = self.located()?.dir();
        service::as_owner(dir, || {
            if let Some(to) = &job.unsaved {
                job::write(dir, job::UNSAVED, to)?;
            }
            if let Some(credential) = &job.credential {
                job::write(dir, job::CREDENTIAL, credential)?;
            }
            Ok(())
        })
    }

    fn open(&mut self, open: Open) -> Result<()> {
        let dir = &open.dir;
        if !deployment::is_in(dir) {
            return Err(CliError::new(format!("{} holds no deployment", dir.display())).next(format!(
                "is its file system not mounted? What was there is {}'s alone: its keys and stores",
                open.host
            )));
        }
        self.host = open.host;
        let (claim, located) = service::as_owner(dir, || {
            let mut located = deployment::load(dir)?;
            if located.deployment.id != open.deployment.id {
                return Err(CliError::new(format!(
                    "{} holds another deployment, {} ({})",
                    dir.display(),
                    located.deployment.name,
                    located.deployment.id
                )));
            }
            let claim = Claim::take(dir, &self.host, &open.token)?;
            if located.deployment.relative_to(located.dir()) != open.deployment {
                open.deployment.save(&located.file).map_err(CliError::new)?;
                located = deployment::load(dir)?;
            }
            deployment::make_directories(&located)?;
            Ok((claim, located))
        })?;
        (self.claim, self.located) = (Some(claim), Some(located));
        Ok(())
    }

    fn own(&self) -> Result<Vec<Which>> {
        Ok(Which::on(&self.located()?.deployment, Some(&self.host)))
    }

    fn start(&mut self, start: Start) -> Result<()> {
        let located = self.located()?.clone();
        let mut ports = std::mem::take(&mut self.ports);
        for which in self.own()? {
            let runs = launch::running(&located, which).is_some();
            if runs && start.trace.is_some() && which != Which::Meta {
                return Err(CliError::new(format!(
                    "{} runs already, and data servers trace from their start",
                    which.name()
                ))
                .next("`penstock down` first, or leave out --trace"));
            }
            if !runs {
                let port = ports.iter().position(|(of, _)| *of == which);
                let port = port.map(|at| ports.swap_remove(at).1);
                let child = launch::start(&located, which, port, start.options())?;
                self.started.push((which, child));
            }
        }
        self.start = Some(start);
        Ok(())
    }

    fn look(&mut self) -> Result<Looked> {
        let located = self.located()?.clone();
        let mut looked = Looked::default();
        for (which, child) in &mut self.started {
            if looked.ended.is_none() && matches!(child.try_wait(), Ok(Some(_))) {
                looked.ended = Some((*which, last_words(&located, *which)));
            }
        }
        for which in self.own()? {
            if listens(&located.deployment, which) {
                continue;
            }
            let said = launch::last_line(&launch::log_file(&located, which));
            looked.silent.push((which, said));
            let ours = self.started.iter().any(|(ours, _)| *ours == which);
            let runs = launch::running(&located, which).is_some();
            // It ran and has ended since. A process that was killed is still there for a moment.
            if let (false, false, Some(start)) = (ours, runs, &self.start) {
                let child = launch::start(&located, which, None, start.options())?;
                self.started.push((which, child));
            }
            if runs && looked.recovering.is_none() {
                let line = launch::recovery(&launch::log_file(&located, which));
                looked.recovering = line.map(|line| (which, line));
            }
        }
        looked.started = self.started.iter().map(|(which, _)| *which).collect();
        Ok(looked)
    }

    /// Ends the servers that were started, data servers first, and removes what was made.
    fn undo(&mut self) {
        self.kept = false;
        let (meta, data): (Vec<_>, Vec<_>) = std::mem::take(&mut self.started)
            .into_iter()
            .partition(|(which, _)| *which == Which::Meta);
        for some in [data, meta] {
            let processes = some.iter().filter_map(|(_, child)| launch::find(child));
            let processes: Vec<_> = processes.collect();
            for process in &processes {
                process.signal(rustix::process::Signal::TERM);
            }
            for process in &processes {
                if !process.wait(launch::STOP) {
                    process.end(Duration::from_secs(1));
                }
            }
            for (which, mut child) in some {
                let _ = child.wait();
                if let Some(located) = &self.located {
                    launch::forget(located, which);
                }
            }
        }
        self.located = None;
        self.ports.clear();
        if let Some(new) = self.new.take() {
            remove(&new);
        }
        self.claim = None;
    }
}

/// Removes what a failed start has made.
fn remove(new: &New) {
    let failed =
        |e: std::io::Error| out::note(format_args!("cannot remove {}: {e}", new.dir.display()));
    if new.made {
        let _ = std::fs::remove_dir_all(&new.dir).map_err(failed);
        return;
    }
    for entry in std::fs::read_dir(&new.dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let removed = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        let _ = removed.map_err(failed);
    }
}

/// Fails if the directory holds anything besides the lock file.
fn refuse_used(dir: &Path) -> Result<()> {
    let failed = |e| CliError::io("look into", dir, e);
    if deployment::is_in(dir) {
        return Err(CliError::new(format!("{} is a deployment already", dir.display())).next(
            "`penstock up DIR` where its metadata server is starts its servers; for a new one name another directory",
        ));
    }
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name != LOCK {
            return Err(CliError::new(format!(
                "{} is not empty: it has {}",
                dir.display(),
                name.to_string_lossy()
            ))
            .next("name a directory that is empty or not there on any of the hosts"));
        }
    }
    Ok(())
}

fn free_bytes(dir: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(dir).map_err(|e| CliError::io("look at", dir, e.into()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Whether the server's socket accepts connections, which it does from the end of its start on.
fn listens(deployment: &Deployment, which: Which) -> bool {
    let address = match which {
        Which::Meta => Some(&deployment.meta.address),
        Which::Data(id) => deployment.server(id).map(|server| &server.address),
    };
    let socket = address.and_then(|address| address.unix.as_deref());
    socket.is_some_and(|path| UnixStream::connect(path).is_ok())
}

/// The last lines of the log of a server that ended.
fn last_words(located: &Located, which: Which) -> String {
    let log = launch::log_file(located, which);
    let text = launch::last_lines(&log);
    let room = free_bytes(located.dir()).unwrap_or(u64::MAX);
    let full = if room < LEAST_FREE {
        format!(
            "\n    (the file system of {} has {} left)",
            located.dir().display(),
            crate::size::bytes(room)
        )
    } else {
        String::new()
    };
    format!("{text}\n    (its log: {}){full}", log.display())
}

/// The exclusive right of one `up` or `down` to change the directory.
struct Claim {
    #[allow(dead_code)] // Its lock ends with it.
    file: File,
}

impl Claim {
    fn take(dir: &Path, host: &str, token: &str) -> Result<Claim> {
        let path = dir.join(LOCK);
        let failed = |e| CliError::io("lock", &path, e);
        let mut file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut text = String::new();
        let read = Read::by_ref(&mut file)
            .take(MAX_LOCK)
            .read_to_string(&mut text);
        read.map_err(failed)?;
        let mut words = text.split_whitespace();
        let (there, theirs, process) = (words.next(), words.next(), words.next());
        if theirs == Some(token) {
            return Err(CliError::new(format!(
                "{} is the same directory for {host} and {}",
                dir.display(),
                there.unwrap_or("another host")
            ))
            .next("each host needs one of its own, on a local disk, for its keys and stores; and each host must be named once"));
        }
        if locked.is_err() {
            return Err(CliError::new(format!(
                "another `penstock up` or `down` works on {} (process {} of {})",
                dir.display(),
                process.unwrap_or("?"),
                there.unwrap_or("?")
            ))
            .next("wait until it has ended"));
        }
        let line = format!("{host} {token} {}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(line.as_bytes()))
            .map_err(failed)?;
        Ok(Claim { file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn begin(dir: &Path, servers: &[Which], token: &str) -> Begin {
        Begin {
            dir: dir.to_owned(),
            host: "a".into(),
            token: token.into(),
            servers: servers.to_vec(),
            net: Some("lo".parse().unwrap()),
            hint: None,
            ports: (20_000, 60_000),
            service_user: None,
            group: None,
        }
    }

    #[test]
    fn what_was_begun_and_not_kept_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        for found_empty in [false, true] {
            let dir = parent.path().join("fs");
            if found_empty {
                std::fs::create_dir(&dir).unwrap();
            }
            let mut agent = Agent::default();
            let Reply::Begun(begun) =
                agent.answer(Request::Begin(begin(&dir, &[Which::Meta], "1")))
            else {
                panic!("not begun")
            };
            assert!(begun.authority.is_some() && begun.servers.len() == 1);
            for key in ["meta.key", "authority.key"] {
                let mode = dir.join(key).metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
            agent.undo();
            assert_eq!(dir.exists(), found_empty);
            if found_empty {
                assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
            }
        }
    }

    #[test]
    fn one_start_at_a_time_has_the_directory() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("fs");
        let mut first = Agent::default();
        let servers = [Which::Data(penstock_layout::ServerId(0))];
        first.begin(&begin(&dir, &servers, "1")).unwrap();
        let mut second = Agent::default();
        let error = second
            .begin(&begin(&dir, &servers, "1"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("the same directory"), "{error}");
        let error = second
            .begin(&begin(&dir, &servers, "2"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("another `penstock up`"), "{error}");
        second.undo();
        // The second claim must not remove what the first has made.
        assert!(dir.join("data-0.key").exists() && !dir.join("authority.key").exists());
        first.undo();
        assert!(!dir.exists());
    }

    #[test]
    fn what_others_have_put_there_stays() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join("thesis"), "x").unwrap();
        let mut agent = Agent::default();
        let error = agent
            .begin(&begin(parent.path(), &[Which::Meta], "1"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("thesis"), "{error}");
        agent.undo();
        let left = std::fs::read_dir(parent.path()).unwrap().count();
        assert!(parent.path().join("thesis").exists() && left == 1);
    }
}
