//! Sessions with the agents of hosts.
use super::message::{Hello, MAX_LINE, Numbered, Reply, Request};
use super::names::some;
use super::{Reach, me};
use crate::error::{CliError, Result};
use crate::out;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Hosts that are contacted at the same time.
const AT_ONCE: usize = 32;
/// How long a host has for its first answer.
const REACH: Duration = Duration::from_secs(30);
/// How long an answer may take: less than agents wait for the next request.
const ANSWER: Duration = Duration::from_secs(75);
/// After this time, and at this interval, people are told which hosts a command waits for.
const QUIET: Duration = Duration::from_secs(2);
const TOLD: Duration = Duration::from_secs(5);
/// How often signals are checked.
const GLANCE: Duration = Duration::from_millis(100);
/// How much of a remote command's output is stored for messages, in lines and bytes.
const LINES: usize = 8;
const LINE: usize = 400;
/// Lines that a host may print before its agent answers, as from a shell profile.
const GREETING: usize = 200;

/// A host, and the connection to its agent.
pub struct Session {
    pub host: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    printed: Arc<Mutex<VecDeque<String>>>,
    stop: Arc<AtomicBool>,
    /// The remote command, for messages.
    command: String,
    /// The number of the last request.
    number: u64,
}

/// Whether this command is to end because somebody pressed Ctrl-C.
#[derive(Debug, Clone)]
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    #[allow(dead_code)] // Signals are caught until the last copy is dropped.
    caught: Arc<Caught>,
}

#[derive(Debug, Default)]
struct Caught(Vec<SigId>);

impl Drop for Caught {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

impl Interrupt {
    /// Catches signals from now on. A second signal ends the process at once; then the agents undo what they did by
    /// themselves.
    pub fn catch() -> Result<Interrupt> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut caught = Caught::default();
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let mut end = || {
                let ends = signal_hook::flag::register_conditional_shutdown;
                caught.0.push(ends(signal, 130, stop.clone())?);
                caught
                    .0
                    .push(signal_hook::flag::register(signal, stop.clone())?);
                Ok(())
            };
            end()
                .map_err(|e: std::io::Error| CliError::new(format!("cannot catch signals: {e}")))?;
        }
        Ok(Interrupt {
            stop,
            caught: Arc::new(caught),
        })
    }

    pub fn came(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// One sentence about what went wrong on a host.
#[derive(Debug)]
pub struct Failure {
    pub host: String,
    pub error: CliError,
}

/// Sessions with all hosts. The first is this host's, which needs no remote command.
pub fn open(
    hosts: &[String],
    reach: &Reach,
    interrupt: &Interrupt,
) -> (Vec<Session>, Vec<Failure>) {
    let mut slots: Vec<(String, Option<Result<Session>>)> =
        hosts.iter().map(|host| (host.clone(), None)).collect();
    let here = hosts.first().cloned().unwrap_or_default();
    each(
        &mut slots,
        "reaching hosts",
        |slot| slot.0.clone(),
        |slot| {
            slot.1 = Some(Session::begin(&slot.0, slot.0 == here, reach, interrupt));
        },
    );
    let (mut sessions, mut failures) = (Vec::new(), Vec::new());
    for (host, session) in slots {
        match session {
            Some(Ok(session)) => sessions.push(session),
            Some(Err(error)) => failures.push(Failure { host, error }),
            None => {}
        }
    }
    (sessions, failures)
}

/// Sends the request to all; fails with the first host that fails.
pub fn ask_all(
    sessions: &mut [Session],
    doing: &str,
    request: impl Fn(&str) -> Request + Sync,
) -> Result<Vec<Reply>> {
    let (good, failures) = ask_each(sessions, doing, request);
    match failed(failures) {
        Some(error) => Err(error),
        None => Ok(good),
    }
}

/// Sends the request to all; returns the answers of those that gave one, in order.
pub fn ask_each(
    sessions: &mut [Session],
    doing: &str,
    request: impl Fn(&str) -> Request + Sync,
) -> (Vec<Reply>, Vec<Failure>) {
    let replies = each(
        sessions,
        doing,
        |s| s.host.clone(),
        |session| {
            let request = request(&session.host);
            session.ask(&request)
        },
    );
    let (mut good, mut failures) = (Vec::new(), Vec::new());
    for (session, reply) in sessions.iter().zip(replies) {
        match reply {
            Ok(reply) => good.push(reply),
            Err(error) => failures.push(Failure {
                host: session.host.clone(),
                error,
            }),
        }
    }
    (good, failures)
}

/// An error with the first failure in full and the names of the other hosts that failed.
pub fn failed(failures: Vec<Failure>) -> Option<CliError> {
    let others: Vec<String> = failures.iter().skip(1).map(|f| f.host.clone()).collect();
    let first = failures.into_iter().next()?;
    let (what, next) = first.error.into_parts();
    let more = if others.is_empty() {
        String::new()
    } else {
        format!("\n  also failed: {}", some(&others))
    };
    let error = CliError::new(format!("{}: {what}{more}", first.host));
    Some(match next {
        Some(next) => error.next(next),
        None => error,
    })
}

/// Runs `f` for each of `items`, [`AT_ONCE`] at a time, and reports which it waits for.
pub fn each<T: Send, R: Send>(
    items: &mut [T],
    doing: &str,
    name: impl Fn(&T) -> String,
    f: impl Fn(&mut T) -> R + Sync,
) -> Vec<R> {
    let total = items.len();
    let waiting: BTreeSet<String> = items.iter().map(&name).collect();
    let state = Mutex::new((waiting, Vec::new()));
    let changed = Condvar::new();
    let work: Mutex<VecDeque<(usize, String, &mut T)>> = Mutex::new(
        items
            .iter_mut()
            .enumerate()
            .map(|(at, item)| (at, name(item), item))
            .collect(),
    );
    std::thread::scope(|scope| {
        for _ in 0..total.min(AT_ONCE) {
            scope.spawn(|| {
                loop {
                    let Some((at, name, item)) = lock(&work).pop_front() else {
                        return;
                    };
                    let result = f(item);
                    let mut state = lock(&state);
                    state.0.remove(&name);
                    state.1.push((at, result));
                    changed.notify_all();
                }
            });
        }
        let mut limit = QUIET;
        let mut state = lock(&state);
        while state.1.len() < total {
            let (now, timeout) = changed
                .wait_timeout(state, limit)
                .unwrap_or_else(PoisonError::into_inner);
            state = now;
            if timeout.timed_out() {
                let hosts: Vec<&String> = state.0.iter().collect();
                out::note(format_args!(
                    "{doing}: waiting for {} of {total} hosts: {}",
                    hosts.len(),
                    some(&hosts)
                ));
                limit = TOLD;
            }
        }
    });
    let (_, mut results) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    fn begin(host: &str, here: bool, reach: &Reach, interrupt: &Interrupt) -> Result<Session> {
        let (mut command, name) = if here {
            let mut command = Command::new(me()?);
            command.arg("agent");
            (command, "penstock agent".to_owned())
        } else {
            let mut command = reach.via.command(host, &reach.program);
            // Ctrl-C is for this process, which then has the work undone.
            command.process_group(0);
            (command, reach.via.name().to_owned())
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| {
                CliError::new(format!("cannot run {name}: {e}"))
                    .next("say with --via how a command is run on another host")
            })?;
        let printed: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let (sender, lines) = sync_channel(4);
        if let Some(output) = child.stdout.take() {
            spawn(move || {
                let mut output = BufReader::new(output);
                while let Some(line) = bounded_line(&mut output, MAX_LINE)
                    && sender.send(line).is_ok()
                {}
            })?;
        }
        if let Some(errors) = child.stderr.take() {
            let printed = printed.clone();
            spawn(move || {
                let mut errors = BufReader::new(errors);
                while let Some(line) = bounded_line(&mut errors, 64 << 10) {
                    note(&printed, &line);
                }
            })?;
        }
        let input = child.stdin.take();
        let mut session = Session {
            host: host.to_owned(),
            child,
            input,
            lines,
            printed,
            stop: interrupt.stop.clone(),
            command: name,
            number: 0,
        };
        session.greet(reach)?;
        Ok(session)
    }

    /// Waits for the agent's first line, and refuses one of another version.
    fn greet(&mut self, reach: &Reach) -> Result<()> {
        let end = Instant::now() + REACH;
        for _ in 0..GREETING {
            let line = self.line(end, REACH, true)?;
            let Ok(hello) = serde_json::from_str::<Hello>(&line) else {
                note(&self.printed, &line);
                continue;
            };
            if hello == Hello::own() {
                return Ok(());
            }
            let own = Hello::own();
            return Err(CliError::new(format!(
                "{} there is version {} (protocol {}), and this one is {} ({})",
                reach.program.display(),
                printable(&hello.penstock),
                hello.protocol,
                own.penstock,
                own.protocol
            ))
            .next("install the same on all hosts, or name its path with --program"));
        }
        Err(self.gone("it printed a lot, but none of it comes from an agent"))
    }

    /// Sends a request and waits for the answer.
    pub fn ask(&mut self, request: &Request) -> Result<Reply> {
        self.number += 1;
        let asked = Numbered {
            number: self.number,
            what: request,
        };
        let text = serde_json::to_string(&asked).map_err(CliError::new)?;
        let Some(input) = &mut self.input else {
            return Err(CliError::new("the conversation with its agent has ended"));
        };
        let sent = input
            .write_all(format!("{text}\n").as_bytes())
            .and_then(|()| input.flush());
        if sent.is_err() {
            return Err(self.gone("it takes no more requests"));
        }
        // An interrupt asks for exactly this: to undo.
        let heeds = !matches!(request, Request::Undo);
        let end = Instant::now() + ANSWER;
        loop {
            let line = self.line(end, ANSWER, heeds)?;
            match serde_json::from_str::<Numbered<Reply>>(&line) {
                // The answer to a request that an interrupt cut short.
                Ok(answer) if answer.number < self.number => {}
                Ok(Numbered {
                    what: Reply::Failed { what, next },
                    ..
                }) => {
                    let error = CliError::new(printable(&what));
                    return Err(match next {
                        Some(next) => error.next(printable(&next)),
                        None => error,
                    });
                }
                Ok(answer) => return Ok(answer.what),
                Err(_) => {
                    note(&self.printed, &line);
                    return Err(self.gone("its answer is none of an agent"));
                }
            }
        }
    }

    /// The next line that the agent prints.
    fn line(&mut self, end: Instant, limit: Duration, heeds: bool) -> Result<String> {
        loop {
            match self.lines.recv_timeout(GLANCE) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.gone("it ended"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if heeds && self.stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            if Instant::now() >= end {
                return Err(self.gone(&format!("no answer within {} s", limit.as_secs())));
            }
        }
    }

    /// The error when there will be no more answers.
    fn gone(&mut self, why: &str) -> CliError {
        // Its last output may still be on its way.
        std::thread::sleep(GLANCE);
        let status = match self.child.try_wait() {
            Ok(Some(status)) => format!(" ({status})"),
            _ => String::new(),
        };
        self.input = None;
        let printed: Vec<String> = lock(&self.printed).iter().cloned().collect();
        let printed = if printed.is_empty() {
            " It printed nothing.".to_owned()
        } else {
            format!(" It printed:\n    {}", printed.join("\n    "))
        };
        CliError::new(format!("{}: {why}{status}.{printed}", self.command)).next(format!(
            "two things have to work without a question: `{} {} true` or what --via says, and `penstock` at the same path as here or at --program",
            self.command, self.host
        ))
    }
}

pub fn interrupted() -> CliError {
    CliError::new("interrupted")
}

fn spawn(f: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name("session".into())
        .spawn(f)
        .map(drop)
        .map_err(|e| CliError::new(format!("cannot start a thread: {e}")))
}

/// A line without its line end; `None` at the end of input, or if it is too long.
fn bounded_line(input: &mut impl BufRead, limit: u64) -> Option<String> {
    let mut line = Vec::new();
    let n = input.take(limit).read_until(b'\n', &mut line).ok()?;
    if n == 0 || n as u64 == limit {
        return None;
    }
    let text = String::from_utf8_lossy(&line);
    Some(text.trim_end_matches(['\n', '\r']).to_owned())
}

fn note(printed: &Mutex<VecDeque<String>>, line: &str) {
    let line: String = printable(line).chars().take(LINE).collect();
    let mut printed = lock(printed);
    printed.push_back(line);
    if printed.len() > LINES {
        printed.pop_front();
    }
}

/// Text of another host, with control characters escaped: nothing in it acts on this terminal.
pub fn printable(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(penstock_rpc::printable).collect();
    lines.join("\n")
}
