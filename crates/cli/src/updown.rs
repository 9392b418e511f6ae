//! `penstock up` and `penstock down`: a deployment's servers as processes of their own.
use crate::deployment::{self, Located, Plan};
use crate::error::{CliError, Result};
use crate::process::Process;
use crate::replaced::{ReplacedArgs, WhichStore};
use crate::shape::Shape;
use crate::which::Which;
use crate::{out, service, settings, status};
use clap::{Args, ValueEnum};
use penstock_rpc::deployment::Transport;
use penstock_rpc::munge;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Start a deployment that stays: one process per server.
///
/// DIR is made on first use and holds everything: deployment.toml, keys, metadata, bytes, sockets and logs. Where
/// it exists, its servers that don't run are started again.
#[derive(Debug, Args)]
#[command(after_help = up_help())]
pub struct UpArgs {
    /// Directory of the deployment.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub shape: Shape,
    /// Each data server writes a trace of the requests it serves to a file in DIR (docs/traces.md).
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Listen on TCP as well: the first port is the metadata server's, the data servers take the following ones.
    #[arg(long, value_name = "HOST:PORT")]
    pub tcp: Option<String>,
    /// What protects TCP connections. `plain-trusted-network`: nothing, for a network on which nobody listens, changes packets or
    /// takes over addresses.
    #[arg(long, value_name = "HOW", value_enum)]
    pub transport: Option<TransportArg>,
    /// Users over TCP may prove by MUNGE who they are, instead of by a credential of their own; SOCKET: where munged listens on each
    /// host, if not where libmunge expects it (docs/security.md).
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub munge: Option<OsString>,
    /// Let members of this group use it, each with the rights that permission bits give: they may read client.key and
    /// reach the sockets. Others are kept out altogether.
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Root only, for a new deployment: its files belong to this user, and its servers run as this user [default: penstock, if there
    /// is such a user, else root]. Servers of a deployment always run as the owner of its directory, also when root starts them.
    #[arg(long, value_name = "NAME|UID")]
    pub service_user: Option<String>,
    /// Keep bytes in memory: they are gone when the servers end.
    #[arg(long, conflicts_with = "device")]
    pub memory: bool,
    #[command(flatten)]
    pub replaced: ReplacedArgs,
}

/// See [`UpArgs::transport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// TLS 1.3; servers prove the identities in the deployment file.
    Tls,
    /// Nothing.
    PlainTrustedNetwork,
}

impl From<TransportArg> for Transport {
    fn from(arg: TransportArg) -> Transport {
        match arg {
            TransportArg::Tls => Transport::Tls,
            TransportArg::PlainTrustedNetwork => Transport::PlainTrustedNetwork,
        }
    }
}

fn up_help() -> String {
    format!(
        "\
Examples:
  penstock up /data/fs                               4 data servers, Unix sockets
  penstock up /data/fs --servers 8 --stripe-unit 1MiB
  penstock up /data/fs --tcp node1:7400              metadata on port 7400, data servers on 7401 and up
  penstock up /data/fs --tcp node1:7400 --munge      users of hosts with munged need no credential files
  penstock up /tmp/slow --device hdd --time-scale 10  modelled disks, ten times as fast as the real ones

{}",
        penstock_device::Model::help()
    )
}

/// End a deployment's servers on this host. Its files stay.
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Directory of the deployment [default: --deployment].
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// How long a server has to answer.
const START: Duration = Duration::from_secs(30);
/// How long a server that says that it recovers may say nothing more.
const RECOVERY: Duration = Duration::from_secs(600);
/// People are told what a server recovers from then on.
const QUIET: Duration = Duration::from_secs(2);
/// How long a server has to end by itself; it makes its data durable first.
const STOP: Duration = Duration::from_secs(60);
/// Bytes of a log's last line that are looked at.
const LINE: u64 = 4096;
/// Lines of a log that an error quotes.
const QUOTED: usize = 5;

/// Makes the deployment if need be and starts the servers that don't run.
pub fn up(args: &UpArgs) -> Result<()> {
    let located = if deployment::is_in(&args.dir) {
        service::as_owner(&args.dir, || {
            let located = existing(args)?;
            share(args, &located)?;
            Ok(located)
        })?
    } else {
        let plan = Plan {
            tcp: args.tcp.as_deref().map(host_and_port).transpose()?,
            transport: args.transport.map_or_else(Transport::default, Into::into),
            munge: munge(args)?,
            memory: args.memory,
            sockets: None,
        };
        let user = service::user(args.service_user.as_deref())?;
        let located = deployment::create(&args.dir, &args.shape, &plan)?;
        share(args, &located)?;
        if let Some(user) = &user {
            service::give(located.dir(), user, args.group.is_none())?;
        }
        located
    };
    let trace = match &args.trace {
        Some(dir) => {
            refuse_running(&located)?;
            Some(std::path::absolute(dir).map_err(|e| CliError::io("find", dir, e))?)
        }
        None => None,
    };
    let mut started = Vec::new();
    let launch = |which| start(&located, which, trace.as_deref(), &args.replaced);
    for which in Which::all(&located.deployment) {
        if running(&located, which).is_none() {
            started.push((which, launch(which)?));
        }
    }
    if let Err(error) = wait_for_answers(&located, &mut started, launch) {
        // All or nothing: what was started now is ended again.
        for (_, child) in &started {
            if let Some(process) = find(child) {
                process.end(STOP);
            }
        }
        return Err(error);
    }
    let dir = located.dir().display();
    match started.len() {
        0 => out::line(format_args!("{dir}: all servers run already")),
        n => out::line(format_args!(
            "{dir}: {n} servers started, stripe unit {}",
            crate::size::bytes(located.deployment.stripe_unit)
        )),
    }
    if let Some(warning) = deployment::unprotected(&located.deployment) {
        out::line(warning);
    }
    out::line(format_args!("  export {}={dir}", deployment::VARIABLE));
    out::line("  penstock run -n 4 -- ./app penstock:/file");
    Ok(())
}

fn share(args: &UpArgs, located: &Located) -> Result<()> {
    match &args.group {
        Some(group) => deployment::share(located, group),
        None => Ok(()),
    }
}

/// Data servers trace from their start: one that runs would be missing.
fn refuse_running(located: &Located) -> Result<()> {
    let runs =
        |which: &Which| matches!(which, Which::Data(_)) && running(located, *which).is_some();
    let Some(which) = Which::all(&located.deployment).into_iter().find(runs) else {
        return Ok(());
    };
    let dir = located.dir().display();
    Err(CliError::new(format!(
        "{dir}: {} runs already, and data servers trace from their start",
        which.name()
    ))
    .next(format!("`penstock down {dir}` first, or leave out --trace")))
}

/// An existing deployment keeps its shape: options that would change it are refused.
fn existing(args: &UpArgs) -> Result<Located> {
    let mut located = deployment::load(&args.dir)?;
    let dir = located.dir().to_owned();
    // Of a release without them.
    if located.deployment.make_keys(&dir).map_err(CliError::new)? {
        located.save()?;
    }
    let d = &located.deployment;
    deployment::make_directories(&located)?;
    penstock_server::check_settings(&d.tune).map_err(|e| {
        CliError::new(format!("`tune` in {}: {e}", located.file.display()))
            .next("mend it there; `penstock tune --help` lists settings")
    })?;
    let tune = settings::kept(&args.shape.tune, located.dir(), d.stripe_unit)?;
    let differs = |option: &str, has: String| {
        Err(CliError::new(format!(
            "{} exists and has {has}; {option} can't change that",
            located.dir().display()
        ))
        .next("leave the option out, or name another directory"))
    };
    match (args.shape.servers, args.shape.stripe_unit) {
        (Some(n), _) if n as usize != d.servers.len() => {
            differs("--servers", format!("{} data servers", d.servers.len()))
        }
        (_, Some(unit)) if unit.0 != d.stripe_unit => differs(
            "--stripe-unit",
            format!("a stripe unit of {} B", d.stripe_unit),
        ),
        _ if !tune.is_empty() && tune != d.tune => {
            differs("--tune", "settings of its own (see `penstock tune`)".into())
        }
        _ if args.tcp.is_some() && d.meta.address.tcp.is_none() => {
            differs("--tcp", "Unix sockets only".into())
        }
        _ if args
            .transport
            .is_some_and(|t| Transport::from(t) != d.transport) =>
        {
            differs(
                "--transport",
                format!(
                    "{} TCP connections; `transport` in deployment.toml says which, for all servers and clients",
                    if d.transport.is_tls() {
                        "protected"
                    } else {
                        "unprotected"
                    }
                ),
            )
        }
        _ if args.munge.is_some() && d.munge.is_none() => differs(
            "--munge",
            "no `[munge]` in deployment.toml; to have it, `penstock down`, write that section there and into the clients' copies, `penstock up`".into(),
        ),
        _ if args.service_user.is_some() => differs(
            "--service-user",
            "an owner: servers run as the owner of its directory; `penstock down`, `chown -R` and `penstock up` change it".into(),
        ),
        _ if args.shape.device.is_some() => differs("--device", "its stores".into()),
        _ if args.memory && d.servers.iter().any(|s| s.store != "memory") => {
            differs("--memory", "its bytes in files".into())
        }
        _ => Ok(located),
    }
}

/// The section of a new deployment.
fn munge(args: &UpArgs) -> Result<Option<munge::Section>> {
    let Some(socket) = &args.munge else {
        return Ok(None);
    };
    if args.tcp.is_none() {
        return Err(CliError::new(
            "--munge is for users over TCP, and the servers would listen on Unix sockets only",
        )
        .next("add --tcp HOST:PORT"));
    }
    let socket = Some(socket.clone())
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    Ok(Some(munge::Section {
        socket,
        ..munge::Section::default()
    }))
}

fn host_and_port(text: &str) -> Result<(String, u16)> {
    let wrong = || {
        CliError::new(format!("`{text}` is no address"))
            .next("write --tcp HOST:PORT, for example --tcp localhost:7400")
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|p| *p > 0).ok_or_else(wrong)?;
    if host.is_empty() {
        return Err(wrong());
    }
    Ok((host.into(), port))
}

fn pid_file(located: &Located, which: Which) -> PathBuf {
    located.run_dir().join(format!("{}.pid", which.name()))
}

/// The process of a server on this host. Its pid file may be gone with its socket; the lock on its store stays. A holder of
/// the lock that serves another deployment is not ours to wait for or to end.
fn running(located: &Located, which: Which) -> Option<Process> {
    let noted = std::fs::read_to_string(pid_file(located, which)).ok();
    noted
        .and_then(|line| Process::from_line(&line))
        .or_else(|| {
            which
                .holder(&located.deployment)
                .filter(|holder| holder.was_given(&located.file))
        })
}

fn start(
    located: &Located,
    which: Which,
    trace: Option<&Path>,
    replaced: &ReplacedArgs,
) -> Result<Child> {
    let me = std::env::current_exe()
        .map_err(|e| CliError::new(format!("cannot find this program's own path: {e}")))?;
    let log = log_file(located, which);
    let open = || closed(located, &log, std::fs::OpenOptions::new().append(true));
    let child = Command::new(&me)
        .args(["serve", "--detach", "--deployment"])
        .arg(&located.file)
        .args(which.arguments())
        .args(about(replaced, which))
        .args(
            trace
                .iter()
                .flat_map(|dir| [std::ffi::OsStr::new("--trace"), dir.as_os_str()]),
        )
        .stdin(Stdio::null())
        .stdout(open()?)
        .stderr(open()?)
        .current_dir("/")
        .spawn()
        .map_err(|e| CliError::io("start", &me, e))?;
    if let Some(process) = find(&child) {
        let pid_file = &pid_file(located, which);
        closed(
            located,
            pid_file,
            std::fs::OpenOptions::new().write(true).truncate(true),
        )?
        .write_all(process.to_line().as_bytes())
        .map_err(|e| CliError::io("write", pid_file, e))?;
    }
    Ok(child)
}

/// What is said about the store of one server.
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

/// A file, made closed to others if it is not there.
fn closed(located: &Located, path: &Path, how: &mut std::fs::OpenOptions) -> Result<File> {
    service::as_owner(located.dir(), || {
        how.create(true)
            .mode(0o600)
            .open(path)
            .map_err(|e| CliError::io("write", path, e))
    })
}

fn find(child: &Child) -> Option<Process> {
    i32::try_from(child.id()).ok().and_then(Process::find)
}

/// Where a server writes what happens to it.
fn log_file(located: &Located, which: Which) -> PathBuf {
    located.log_dir().join(format!("{}.log", which.name()))
}

/// Waits until every server answers, or one that was started has ended. Those that ran and have ended since are started: a
/// process that was killed is there for a moment longer.
fn wait_for_answers(
    located: &Located,
    started: &mut Vec<(Which, Child)>,
    launch: impl Fn(Which) -> Result<Child>,
) -> Result<()> {
    let began = Instant::now();
    let mut end = began + START;
    let mut told = String::new();
    let mut pause = Duration::from_millis(5);
    loop {
        let missing = status::silent(&located.deployment);
        if missing.is_empty() {
            return Ok(());
        }
        if let Some((which, why)) = missing.iter().find(|(_, why)| why.refuses) {
            let what = format!("{} refuses this client: {why}", which.title());
            return Err(CliError::new(what).next(why.next(located)));
        }
        for (which, child) in started.iter_mut() {
            if matches!(child.try_wait(), Ok(Some(_))) {
                let log = log_file(located, *which);
                return Err(CliError::new(format!(
                    "{} ended at once. It said:\n{}",
                    which.title(),
                    last_lines(&log)
                ))
                .next(format!(
                    "mend the cause and run `penstock up` again; its log is {}",
                    log.display()
                )));
            }
        }
        for (which, _) in &missing {
            let is_ours = started.iter().any(|(ours, _)| ours == which);
            if !is_ours && running(located, *which).is_none() {
                started.push((*which, launch(*which)?));
            }
        }
        let recovering = missing.iter().find_map(|(which, _)| {
            running(located, *which)?;
            Some((*which, recovery(&log_file(located, *which))?))
        });
        if let Some((which, line)) = recovering
            && line != told
        {
            end = Instant::now() + RECOVERY;
            if began.elapsed() >= QUIET {
                out::note(format_args!("{} recovers: {line}", which.title()));
                told = line;
            }
        }
        if Instant::now() >= end {
            let (which, why) = &missing[0];
            return Err(CliError::new(format!(
                "{} does not answer after {} s: {why}",
                which.title(),
                began.elapsed().as_secs()
            ))
            .next(format!("see {}", log_file(located, *which).display())));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// What a server that recovers does now: the newest line of its log, if it is about that.
fn recovery(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LINE)))
        .ok()?;
    let mut text = Vec::new();
    file.take(LINE).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next_back()?;
    let (_, doing) = line.split_once(penstock_meta::RECOVERS)?;
    Some(doing.trim_start_matches([':', ' ']).to_owned())
}

pub fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(QUOTED)..]
        .iter()
        .map(|l| format!("    {l}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Ends the servers of this host.
pub fn down(args: &DownArgs, named: Option<&Path>) -> Result<()> {
    let located = deployment::find(args.dir.as_deref().or(named))?;
    let (mut count, mut killed) = (0, Vec::new());
    // Data servers tell the metadata server how they end.
    let (meta, data): (Vec<_>, Vec<_>) = Which::all(&located.deployment)
        .into_iter()
        .partition(|which| *which == Which::Meta);
    for some in [data, meta] {
        let mut ending = Vec::new();
        for which in some {
            if let Some(process) = running(&located, which) {
                process.signal(rustix::process::Signal::TERM);
                ending.push((which.name(), process));
            }
            let _ = std::fs::remove_file(pid_file(&located, which));
        }
        count += ending.len();
        for (name, process) in ending {
            if !process.wait(STOP) {
                process.end(Duration::from_secs(1));
                killed.push(name);
            }
        }
    }
    if !killed.is_empty() {
        return Err(CliError::new(format!(
            "{} did not end within {} s and had to be killed",
            killed.join(", "),
            STOP.as_secs()
        ))
        .next(format!(
            "synced data is safe; `penstock up {0}` and `penstock check -d {0}` look after the rest",
            located.dir().display()
        )));
    }
    let dir = located.dir().display();
    match count {
        0 => out::line(format_args!("{dir}: no servers ran")),
        n => out::line(format_args!("{dir}: {n} servers ended")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood() {
        assert_eq!(host_and_port("node1:7400").unwrap(), ("node1".into(), 7400));
        assert_eq!(host_and_port("[::1]:1").unwrap(), ("[::1]".into(), 1));
        for bad in ["node1", ":7400", "node1:0", "node1:99999"] {
            let error = host_and_port(bad).unwrap_err().to_string();
            assert!(error.contains("HOST:PORT"), "{error}");
        }
    }

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
