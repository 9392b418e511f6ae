//! `penstock up` and `penstock down`: start and end a deployment's servers, each a process of its own.
use crate::deployment::{self, Located, Plan};
use crate::error::{CliError, Result};
use crate::fast::{self, FastArg};
use crate::hosts::{self, HostsArgs, ReachArgs};
use crate::launch::{self, Ended, last_lines, log_file, recovery, running};
use crate::new_deployment::NewDeployment;
use crate::replaced::ReplacedArgs;
use crate::which::Which;
use crate::{out, programs, service, settings, status};
use clap::{Args, ValueEnum};
use penstock_rpc::deployment::Transport;
use penstock_rpc::munge;
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// Start a permanent deployment: one process per server.
///
/// DIR is made on first use and holds everything: deployment.toml, keys, metadata, bytes, sockets and logs. If it
/// exists, those of its servers that don't run are started.
#[derive(Debug, Args)]
#[command(after_help = up_help())]
pub struct UpArgs {
    /// Directory of the deployment.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub hosts: HostsArgs,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub shape: NewDeployment,
    /// Each data server writes a trace of what it does to a file in DIR (docs/administer/traces.md). No request takes another path for it.
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// With --trace: each data server also writes down what its scheduler decides, for `penstock sim --replay`. All requests then go
    /// through the scheduler's queue, and none past the servers.
    #[arg(long, requires = "trace")]
    pub journal: bool,
    /// Listen on TCP as well: the first port is the metadata server's, the data servers take the following ones.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["hosts", "hostfile"])]
    pub tcp: Option<String>,
    /// What protects TCP connections. `plain-trusted-network` means nothing: for networks without attackers who listen,
    /// change packets or take over addresses.
    #[arg(long, value_name = "HOW", value_enum)]
    pub transport: Option<TransportArg>,
    /// Users over TCP may prove by MUNGE who they are, instead of by a credential of their own. SOCKET: where munged
    /// listens on each host, if not where libmunge expects it (docs/administer/security.md).
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub munge: Option<OsString>,
    /// Let members of this group use the deployment, each with the rights that mode bits give. They may read client.key
    /// and reach the sockets; all others are kept out.
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Root only, for a new deployment: the user who owns its files and runs its servers [default: penstock if it
    /// exists, else root]. Servers of a deployment always run as the owner of its directory, also when root starts
    /// them.
    #[arg(long, value_name = "NAME|UID")]
    pub service_user: Option<String>,
    /// Keep bytes in memory: they are gone when the servers end.
    #[arg(long, conflicts_with = "device")]
    pub memory: bool,
    /// A fast tier before each data server's store, in FASTDIR/data-N. Small and partial writes are complete there, and come to
    /// the store in order when it is idle. `,queue=8GiB`: most bytes of each [default: 8GiB]. An existing deployment whose servers
    /// do not run gets one too; `--fast off` takes it away after `penstock drain` and `penstock down`.
    #[arg(long, value_name = "FASTDIR[,queue=SIZE]", conflicts_with = "memory")]
    pub fast: Option<FastArg>,
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
  penstock up /data/fs --hosts a,b,c                 on several hosts, from a: docs/administer/hosts.md
  penstock up /data/fs --hosts job --via srun        on the nodes of this Slurm job
  penstock up /nfs/fs --fast /nvme/fs                small writes at the speed of /nvme: docs/understand/fast-tier.md
  penstock up /tmp/slow --device hdd --time-scale 10  modelled disks, ten times as fast as the real ones

{}",
        penstock_device::Model::help()
    )
}

/// End a deployment's servers. Its files stay.
///
/// With several hosts: on the metadata server's host, the servers of all hosts; elsewhere those of this host.
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Directory of the deployment [default: --deployment].
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Don't ask, even if programs and mounts use the deployment.
    #[arg(short, long)]
    pub force: bool,
    /// Wait until no program and no mount uses it. After so many seconds [default: 3600] fail, and end nothing.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "3600", conflicts_with = "force")]
    pub wait: Option<u64>,
    #[command(flatten)]
    pub reach: ReachArgs,
}

/// How long a server has until it answers.
pub const START: Duration = Duration::from_secs(30);
/// How long a recovering server may report no progress.
pub const RECOVERY: Duration = Duration::from_secs(600);
/// After this time people are told what a server recovers.
const QUIET: Duration = Duration::from_secs(2);

/// How often `down --wait` checks.
const LOOK: Duration = Duration::from_millis(500);

/// Makes the deployment if it does not exist, and starts the servers that do not run.
pub fn up(args: &UpArgs) -> Result<()> {
    if args.hosts.are_named() || hosts::is_in(&args.dir)? {
        return hosts::up(args);
    }
    if args.hosts.net.is_some() || args.hosts.ports.is_some() {
        return Err(
            CliError::new("--net and --ports are for deployments on several hosts")
                .next("add --hosts, or say --tcp HOST:PORT"),
        );
    }
    let located = if deployment::is_in(&args.dir) {
        service::as_owner(&args.dir, || {
            let located = existing(args)?;
            share(args, &located)?;
            Ok(located)
        })?
    } else {
        let plan = plan(args)?;
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
    let options = launch::Options {
        trace: trace.as_deref(),
        journal: args.journal,
        replaced: &args.replaced,
    };
    let launch = |which| launch::start(&located, which, None, options);
    for which in Which::all(&located.deployment) {
        if running(&located, which).is_none() {
            started.push((which, launch(which)?));
        }
    }
    if let Err(error) = wait_for_answers(&located, &mut started, launch) {
        // All or nothing: after a failure, the servers that were started now are ended.
        for (_, child) in &started {
            if let Some(process) = launch::find(child) {
                process.end(launch::STOP);
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

/// Properties of a new deployment besides its shape.
pub fn plan(args: &UpArgs) -> Result<Plan> {
    Ok(Plan {
        fast: args.fast.clone(),
        tcp: args.tcp.as_deref().map(host_and_port).transpose()?,
        transport: args.transport.map_or_else(Transport::default, Into::into),
        munge: munge(args)?,
        memory: args.memory,
        sockets: None,
    })
}

fn share(args: &UpArgs, located: &Located) -> Result<()> {
    match &args.group {
        Some(group) => deployment::share(located, group),
        None => Ok(()),
    }
}

/// Refuses if a data server runs: it traces from its start on, so its trace would be missing.
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

/// Loads an existing deployment, which keeps its shape: options that would change it are refused.
pub fn existing(args: &UpArgs) -> Result<Located> {
    let mut located = deployment::load(&args.dir)?;
    let dir = located.dir().to_owned();
    // The deployment was made by a release without these keys.
    if located.deployment.make_keys(&dir).map_err(CliError::new)? {
        located.save()?;
    }
    let d = &located.deployment;
    deployment::make_directories(&located)?;
    penstock_server::check_settings(&d.tune).map_err(|e| {
        CliError::new(format!("`tune` in {}: {e}", located.file.display()))
            .next("correct it there; `penstock tune --help` lists settings")
    })?;
    if let Some(fast) = &args.fast {
        fast::change(&mut located, fast)?;
    }
    let d = &located.deployment;
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
        _ if args.memory && d.servers.iter().any(|s| s.behind() != "memory") => {
            differs("--memory", "its bytes in files".into())
        }
        _ => Ok(located),
    }
}

/// The MUNGE section of a new deployment.
fn munge(args: &UpArgs) -> Result<Option<munge::Section>> {
    let Some(socket) = &args.munge else {
        return Ok(None);
    };
    if args.tcp.is_none() && !args.hosts.are_named() {
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

/// Waits until every server answers, or a server that was started has ended. Servers that ran and have ended since are
/// started. A process that was killed is still there for a moment.
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
            return Err(CliError::new(what).next(status::next(why, located)));
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
                    "remove the cause and run `penstock up` again; its log is {}",
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

/// Ends the servers of this host, or of all hosts.
pub fn down(args: &DownArgs, named: Option<&Path>) -> Result<()> {
    let located = deployment::find(args.dir.as_deref().or(named))?;
    leave_alone(args, &located)?;
    if !located.deployment.hosts().is_empty() {
        return hosts::down(&located, &args.reach);
    }
    let mut ended = Ended::default();
    for some in launch::data_first(Which::all(&located.deployment)) {
        let more = launch::end(&located, &some);
        ended.count += more.count;
        ended.killed.extend(more.killed);
    }
    if !ended.killed.is_empty() {
        return Err(killed(&located, &ended.killed));
    }
    let dir = located.dir().display();
    match ended.count {
        0 => out::line(format_args!("{dir}: no servers ran")),
        n => out::line(format_args!("{dir}: {n} servers ended")),
    }
    Ok(())
}

/// Names the programs and mounts that use the servers. Then, depending on the options, asks, waits, or goes on.
fn leave_alone(args: &DownArgs, located: &Located) -> Result<()> {
    if args.force {
        return Ok(());
    }
    let used = || programs::users_of(&located.deployment);
    let mut users = used();
    if users.is_empty() {
        return Ok(());
    }
    let dir = located.dir().display();
    let waiting = if args.wait.is_some() {
        "; waiting for their end"
    } else {
        ""
    };
    out::note(format_args!(
        "{dir} is used by{waiting}:\n  {}",
        users.join("\n  ")
    ));
    if let Some(seconds) = args.wait {
        let end = Instant::now() + Duration::from_secs(seconds);
        while !users.is_empty() {
            if Instant::now() >= end {
                return Err(CliError::new(format!(
                    "{dir} is still used after {seconds} s, and nothing was ended:\n  {}",
                    users.join("\n  ")
                ))
                .next("end them, or `penstock down --force`"));
            }
            std::thread::sleep(LOOK);
            users = used();
        }
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        // Without a terminal there is nobody to ask, so `down` in a script goes on.
        return Ok(());
    }
    out::tell("Their accesses will wait and then fail. End the servers? [y/N] ");
    let mut answer = String::new();
    let _ = std::io::stdin().lock().take(64).read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::new("nothing was ended")
            .next("`penstock down --wait` waits for them, --force does not ask")),
    }
}

/// The message about servers that had to be killed.
pub fn killed(located: &Located, names: &[String]) -> CliError {
    CliError::new(format!(
        "{} did not end within {} s and had to be killed",
        names.join(", "),
        launch::STOP.as_secs()
    ))
    .next(format!(
        "synced data is safe; run `penstock up {0}` and `penstock check -d {0}` for the rest",
        located.dir().display()
    ))
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
}
