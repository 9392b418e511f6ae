//! `penstock run`: starts a program under its launcher, with its I/O through Penstock.
//!
//! The embedded deployment's servers are threads of this process. The launcher is its child. `env` in the launcher's
//! command line preloads the library into the ranks. So neither the launcher nor its helpers load it, and it reaches
//! other hosts. A [`watcher::Watcher`] cleans up if this process is killed outright.
mod job;
mod launcher;
mod oversubscription;
mod preload;
pub mod summary;
mod traced;

use crate::connect;
use crate::deployment::{self, Located, Plan};
use crate::error::{CliError, Result};
use crate::mount::Temporary;
use crate::new_deployment::NewDeployment;
use crate::out;
use crate::process::Process;
use crate::replaced::ReplacedArgs;
use crate::report::{self, Kept};
use crate::serve::{How, Servers, Stores};
use crate::watcher::Watcher;
use crate::which::Which;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use launcher::{Family, Launcher};
use penstock_mpiio::{Environment, TASK_FARM};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant, SystemTime};
use summary::Report;

/// Run an MPI program with its I/O through Penstock.
///
/// Without a deployment, a file system is started inside this process for the time of the run. It is a metadata server
/// and data servers with their files in a temporary directory. The launcher (mpiexec) is the one that belongs to the
/// program's MPI library. At the end a summary of the program's I/O is printed to standard error; `penstock report`
/// shows it again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock run -n 8 -- ./app penstock:/out            files disappear with the run
  penstock run -n 8 --store /scratch/fs --keep -- ./app penstock:/out
                                                      files stay in /scratch/fs
  penstock run -n 4 --method datatype -- ./app penstock:/out
  penstock run -n 4 --direct -- ./app /lustre/me/out  no servers: an ordinary file system
  penstock run -n 4 --trace T --no-penstock -- ./app /lustre/me/out
                                                      only traced: see docs/use/tracing.md
  penstock run -n 4 -- python3 script.py              mpi4py
  penstock run --job -n 64 --stage-in case7 --stage-out results -- ./app penstock:/out/f
                                                      over the disks of the job's nodes (docs/administer/slurm.md)
  penstock run -n 4 --device hdd --time-scale 10 -- ./app penstock:/out
                                                      as on 7200 rpm disks, ten times as fast

The exit code is the program's. `penstock up --help` lists the modelled devices.")]
pub struct RunArgs {
    /// Number of ranks. Without it, with --no-penstock, the program is started as it is, without a launcher.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000),
          required_unless_present = "no_penstock")]
    pub ranks: Option<u32>,
    /// Where the embedded deployment keeps its files: a temporary directory in DIR, or DIR itself with --keep. With --job: a directory
    /// on a disk of each host's own. A DIR
    /// that was kept is used again.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["deployment", "direct"])]
    pub store: Option<PathBuf>,
    /// Trace the run: each process of the program writes its calls, and each data server the requests it serves, to a file in DIR
    /// (docs/use/tracing.md, docs/administer/traces.md).
    #[arg(long, value_name = "DIR", conflicts_with = "deployment")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub choices: traced::Choices,
    /// With --trace: each data server also writes down what its scheduler decides, for `penstock sim --replay`. All requests then go
    /// through the scheduler's queue, and none past the servers.
    #[arg(long, requires = "trace")]
    pub journal: bool,
    /// Only trace: the program's I/O goes where it goes without Penstock, to any file system by any MPI library.
    #[arg(long, requires = "trace", conflicts_with_all = ["deployment", "direct", "store", "keep", "job", "method", "shortcut", "json",
          "servers", "device"])]
    pub no_penstock: bool,
    /// Keep the embedded deployment and its files.
    #[arg(long, conflicts_with_all = ["deployment", "direct"])]
    pub keep: bool,
    #[command(flatten)]
    pub shape: NewDeployment,
    #[command(flatten)]
    pub job: job::JobArgs,
    /// The method of noncontiguous accesses; overrides the program's hints (docs/use/hints.md).
    #[arg(long, value_name = "METHOD", value_parser = methods())]
    pub method: Option<String>,
    /// No servers: use the same library on mounted file systems.
    #[arg(long, conflicts_with = "deployment")]
    pub direct: bool,
    /// Same-host shortcuts: `disable` sends every access through the servers' request path.
    #[arg(long, value_name = "WHEN", value_parser = ["enable", "disable"])]
    pub shortcut: Option<String>,
    /// The launcher to use in place of the one that belongs to the program's MPI library.
    #[arg(long, value_name = "COMMAND")]
    pub launcher: Option<OsString>,
    /// An argument for the launcher; may be repeated.
    #[arg(long = "launcher-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub launcher_args: Vec<OsString>,
    /// Print the summary as one line of JSON on standard output, last, instead of for people.
    #[arg(long)]
    pub json: bool,
    /// Print no summary.
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

impl RunArgs {
    /// Ranks; one where nobody said.
    fn ranks(&self) -> u32 {
        self.ranks.unwrap_or(1)
    }
}

/// Methods by the names they have in hints.
fn methods() -> PossibleValuesParser {
    penstock_mpiio::method_values()
        .map(|(name, summary)| PossibleValue::new(name).help(summary))
        .collect::<Vec<_>>()
        .into()
}

/// Where the program's files are.
enum FileLocation {
    Direct,
    /// On servers that run already.
    Running(Located),
    /// On this run's own servers, on the hosts of its job.
    Job(job::Deployed),
    /// On servers in this process.
    Embedded {
        located: Located,
        servers: Servers,
    },
}

/// Runs the program; the exit code is the program's.
pub fn run(args: &RunArgs, named: Option<&Path>) -> Result<ExitCode> {
    let (program, arguments) = args
        .program
        .split_first()
        .ok_or_else(|| CliError::new("no program given"))?;
    let program = launcher::find_program(program)?;
    if args.no_penstock {
        return traced::run_alone(args, &program, arguments);
    }
    let (family, launcher, plugin) = choose_launcher(args, &program)?;
    let library = preload::library()?;
    // From here on the loop below handles signals, so that cleaning up is always completed.
    let mut signals = SignalsInfo::<WithOrigin>::new([
        SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD,
    ])
    .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;

    let mut watcher = Watcher::start()?;
    let summaries = temporary_directory(&std::env::temp_dir(), &mut watcher)?;
    let mut temporary = Vec::new();
    job::refuse_without(&args.job)?;
    let tracing = args
        .trace
        .as_deref()
        .map(|dir| traced::Collecting::start(dir, &args.choices))
        .transpose()?;
    let mut place = place(args, named, &mut watcher, &mut temporary)?;

    let mount = mount_for(args, &place, &mut watcher)?;
    let mut environment =
        rank_environment(args, &place, mount.directory(), &library, summaries.path())?;
    if let Some(tracing) = &tracing {
        tracing.add_to(&mut environment, Some(&library))?;
    }
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let settings =
        oversubscription::Settings::for_ranks(args.ranks(), cores, family, launcher.family);
    if let (Some(line), false) = (settings.describe(args.ranks(), cores), args.quiet) {
        out::note(line);
    }
    environment.extend(
        settings
            .environment
            .iter()
            .map(|(n, v)| ((*n).into(), (*v).into())),
    );

    let mut command = Command::new(&launcher.path);
    command
        .arg("-n")
        .arg(args.ranks().to_string())
        .args(&settings.arguments)
        .args(&plugin)
        .args(&args.launcher_args)
        .envs(oversubscription::allow_root(launcher.family))
        .arg("env");
    for (name, value) in &environment {
        let mut word = name.clone();
        word.push("=");
        word.push(value);
        command.arg(word);
    }
    command.arg(&program).args(arguments);
    log::debug!("running {command:?}");

    if signals
        .pending()
        .any(|o| [SIGINT, SIGTERM, SIGHUP, SIGQUIT].contains(&o.signal))
    {
        return Err(CliError::new("interrupted before the program was started"));
    }
    let before = place.status();
    let start = Instant::now();
    let started = SystemTime::now();
    let mut child = command
        .spawn()
        .map_err(|e| CliError::io("start", &launcher.path, e))?;
    if let FileLocation::Job(deployed) = &mut place {
        deployed.used = true;
    }
    watcher.launcher(child.id())?;
    let of_job = matches!(place, FileLocation::Job(_));
    let status = wait(&mut child, &mut signals, of_job)?;
    let wall = start.elapsed();

    let summary = Report::gather(
        summaries.path(),
        args.ranks(),
        wall,
        before.as_deref().zip(place.status().as_deref()),
    );
    tell(args, started, status, summary);
    drop(mount);
    if let Some(tracing) = tracing {
        tracing.finish(args.quiet);
    }
    let saved = place.end(args);
    drop(temporary);
    drop(summaries);
    watcher.finish();
    Ok(if status.success() && !saved {
        ExitCode::FAILURE
    } else {
        exit_code(status)
    })
}

/// Prints the summary of a run and keeps it, for `penstock report` and beside the trace.
fn tell(args: &RunArgs, started: SystemTime, status: ExitStatus, summary: Report) {
    if args.json {
        out::line(summary.to_json());
    } else if !args.quiet {
        out::tell(&summary.to_text());
    }
    let kept = kept(args, started, status, summary);
    if let Some(dir) = &args.trace
        && let Err(why) = report::keep_beside(dir, &kept)
    {
        out::note(format_args!("the trace lacks the run's summary: {why}"));
    }
    if let Err(why) = report::keep(kept)
        && !args.quiet
    {
        // A report that cannot be stored does not change the run's result.
        out::note(format_args!(
            "`penstock report` will not have this run: {why}"
        ));
    }
}

/// The stored report of a run for `penstock report`.
fn kept(args: &RunArgs, started: SystemTime, status: ExitStatus, summary: Report) -> Kept {
    let since = started
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Kept {
        started_ns: i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        command: args
            .program
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        directory: std::env::current_dir()
            .map(|dir| dir.display().to_string())
            .unwrap_or_default(),
        host: host.trim().into(),
        exit_code: code_of(status),
        summary,
    }
}

/// The program's MPI family, its launcher, and the launcher's arguments for the program's MPI library.
fn choose_launcher(args: &RunArgs, program: &Path) -> Result<(Family, Launcher, Option<String>)> {
    let library = launcher::library_of(program);
    if library.is_err() {
        launcher::refuse_static(program)?;
    }
    let farm = args.ranks() == 1 || Environment::read().task_farm;
    let srun = || (args.job.job.is_some() && job::in_slurm()).then(|| "srun".into());
    match &args.launcher.clone().or_else(srun) {
        Some(name) => {
            let launcher = launcher::named(name)?;
            let Ok(library) = library else {
                return Ok((launcher.family, launcher, None));
            };
            let mut plugin = None;
            if !farm {
                launcher::require_fit(program, &library, &launcher)?;
                if launcher::is_srun(&launcher) {
                    plugin = launcher::srun_plugin(&library, &launcher.path, &args.launcher_args)?;
                }
            }
            Ok((library.family, launcher, plugin))
        }
        None => {
            let launcher = launcher::beside(&library?)?;
            Ok((launcher.family, launcher, None))
        }
    }
}

/// A directory that is removed with the run, however it ends.
fn temporary_directory(base: &Path, watcher: &mut Watcher) -> Result<tempfile::TempDir> {
    let dir = tempfile::Builder::new()
        .prefix("penstock-run-")
        .tempdir_in(base)
        .map_err(|e| CliError::io("make a temporary directory in", base, e))?;
    watcher.directory(dir.path())?;
    Ok(dir)
}

fn only_for_new(option: &str, path: &Path) -> CliError {
    CliError::new(format!(
        "{option} is for a new deployment, and {} exists already",
        path.display()
    ))
    .next("leave one of the two out")
}

/// An error if an option asks for another shape than that of the existing deployment at `path`.
fn refuse_shape(args: &RunArgs, path: &Path) -> Result<()> {
    let shape = [
        (args.shape.servers.is_some(), "--servers"),
        (args.shape.stripe_unit.is_some(), "--stripe-unit"),
        (!args.shape.tune.is_empty(), "--tune"),
        (args.shape.device.is_some(), "--device"),
    ];
    match shape.iter().find(|(given, _)| *given) {
        Some((_, option)) => Err(only_for_new(option, path)),
        None => Ok(()),
    }
}

fn place(
    args: &RunArgs,
    named: Option<&Path>,
    watcher: &mut Watcher,
    temporary: &mut Vec<tempfile::TempDir>,
) -> Result<FileLocation> {
    if args.direct {
        return Ok(FileLocation::Direct);
    }
    if let Some(id) = &args.job.job {
        return job::begin(args, id, watcher).map(FileLocation::Job);
    }
    let embedded = args.store.is_some() || args.keep;
    if let (false, Some(path)) = (embedded, deployment::named_or_environment(named)) {
        refuse_shape(args, &path)?;
        if args.trace.is_some() {
            return Err(only_for_new("--trace", &path));
        }
        let located = deployment::load(&path)?;
        crate::status::require_all(&located)?;
        return Ok(FileLocation::Running(located));
    }
    let kept = args
        .store
        .as_ref()
        .filter(|d| args.keep || deployment::is_in(d));
    let located = match kept {
        Some(dir) if deployment::is_in(dir) => {
            refuse_shape(args, dir)?;
            deployment::load(dir)?
        }
        _ => {
            let mut plan = Plan::default();
            let dir = match (kept, args.keep) {
                (Some(dir), _) => dir.clone(),
                (None, true) => tempfile::Builder::new()
                    .prefix("penstock-")
                    .tempdir()
                    .map_err(|e| CliError::new(format!("cannot make a directory: {e}")))?
                    .keep(),
                (None, false) => {
                    let base = args.store.clone().unwrap_or_else(std::env::temp_dir);
                    std::fs::create_dir_all(&base).map_err(|e| CliError::io("make", &base, e))?;
                    let base = base
                        .canonicalize()
                        .map_err(|e| CliError::io("find", &base, e))?;
                    let dir = temporary_directory(&base, watcher)?;
                    let path = dir.path().to_path_buf();
                    temporary.push(dir);
                    path
                }
            };
            if !args.keep && !deployment::fits_sockets(&dir) {
                let sockets = temporary_directory(Path::new("/tmp"), watcher)?;
                plan.sockets = Some(sockets.path().to_path_buf());
                temporary.push(sockets);
            }
            deployment::create(&dir, &args.shape, &plan)?
        }
    };
    let none = ReplacedArgs::default();
    let trace = args.trace.as_ref();
    let trace = trace.map(|dir| std::path::absolute(dir).map_err(|e| CliError::io("find", dir, e)));
    let trace = trace.transpose()?;
    let logs = located.log_dir();
    let how = How {
        file: None,
        trace: trace.as_deref(),
        journal: args.journal,
        audit: args.keep.then_some(logs.as_path()),
        // Stores that are removed at the end need no maintenance.
        stores: args.keep.then(|| Stores {
            replaced: &none,
            stop: std::sync::Arc::default(),
        }),
    };
    let servers = Servers::start(&located.deployment, &Which::all(&located.deployment), &how)?;
    Ok(FileLocation::Embedded { located, servers })
}

impl FileLocation {
    /// Ends the servers and mounts of this run. False if output could not be staged out.
    fn end(self, args: &RunArgs) -> bool {
        match self {
            FileLocation::Embedded { located, servers } => {
                servers.stop();
                if args.keep && !args.quiet {
                    out::note(format_args!(
                        "files kept in {0}; `penstock run --store {0} …` or `penstock up {0}` uses them again",
                        located.dir().display()
                    ));
                }
            }
            FileLocation::Job(deployed) => {
                if let Err(error) = deployed.end(args.quiet) {
                    out::note(error);
                    return false;
                }
            }
            FileLocation::Direct | FileLocation::Running(_) => {}
        }
        true
    }

    fn located(&self) -> Option<&Located> {
        match self {
            FileLocation::Direct => None,
            FileLocation::Job(deployed) => Some(&deployed.located),
            FileLocation::Running(located) | FileLocation::Embedded { located, .. } => {
                Some(located)
            }
        }
    }

    /// The counters of this run's own data servers so far; `None` if there are none or they do not answer.
    fn status(&self) -> Option<Vec<penstock_wire::message::DataStatus>> {
        match self {
            FileLocation::Embedded { located, .. } => {
                crate::status::data_servers(&located.deployment)
            }
            FileLocation::Direct | FileLocation::Running(_) | FileLocation::Job(_) => None,
        }
    }
}

/// Where plain paths lead to Penstock.
enum Mount {
    None,
    /// An existing mount, or a prefix without one.
    There(PathBuf),
    /// This run's own mount.
    Own(Temporary),
}

impl Mount {
    fn directory(&self) -> Option<&Path> {
        match self {
            Mount::None => None,
            Mount::There(directory) => Some(directory),
            Mount::Own(own) => Some(own.directory()),
        }
    }
}

/// The mount that the program sees: the one that is named, or an existing one. If the named directory is empty and
/// nothing is mounted there, it is mounted.
fn mount_for(args: &RunArgs, place: &FileLocation, watcher: &mut Watcher) -> Result<Mount> {
    let Some(located) = place.located() else {
        return Ok(Mount::None);
    };
    let Some(named) = &args.shape.mount else {
        let there = crate::mount::mounted(located);
        return Ok(there.map_or(Mount::None, Mount::There));
    };
    let directory =
        std::path::absolute(named).map_err(|e| CliError::io("understand mount path", named, e))?;
    let source = located.file.display().to_string();
    match penstock_fuse::find(&directory) {
        Some(found) if !found.is_dead() && found.source == source => {
            return Ok(Mount::There(directory));
        }
        Some(found) if !found.is_dead() => {
            return Err(CliError::new(format!(
                "{} has another deployment mounted on it, {}",
                directory.display(),
                found.source
            ))
            .next("name that one with --deployment, or another directory with --mount"));
        }
        Some(_) => {}
        // A prefix only: it works for MPI-IO alone.
        None if !directory.is_dir() => return Ok(Mount::There(directory)),
        None => {}
    }
    match Temporary::start(&directory, located, watcher) {
        Ok(own) => Ok(Mount::Own(own)),
        Err(e) => {
            out::note(format_args!(
                "{} is a prefix for MPI-IO only: {e}",
                directory.display()
            ));
            Ok(Mount::There(directory))
        }
    }
}

/// The environment of the ranks.
fn rank_environment(
    args: &RunArgs,
    place: &FileLocation,
    mount: Option<&Path>,
    library: &Path,
    summaries: &Path,
) -> Result<Vec<(OsString, OsString)>> {
    let id = connect::program()?.program;
    let mut environment = preload::environment(
        &[library],
        std::env::var_os("LD_PRELOAD").as_deref(),
        std::env::var_os("LD_LIBRARY_PATH").as_deref(),
    )?;
    let mut set = |name: &str, value: OsString| environment.push((name.into(), value));
    set("PENSTOCK_SUMMARY_DIR", summaries.into());
    if let Some(dir) = &args.trace {
        let dir = std::path::absolute(dir).map_err(|e| CliError::io("find", dir, e))?;
        set("PENSTOCK_TRACE", dir.into());
    }
    set("PENSTOCK_PROGRAM", id.to_string().into());
    if let Some(method) = &args.method {
        set("PENSTOCK_METHOD", method.into());
    }
    // Launchers do not pass all variables on to other hosts.
    if let Some(farm) = std::env::var_os(TASK_FARM) {
        set(TASK_FARM, farm);
    }
    if let Some(shortcut) = &args.shortcut {
        set("PENSTOCK_SHORTCUT", shortcut.into());
    }
    if let FileLocation::Job(deployed) = place
        && let Some(credential) = deployed.credential()
    {
        set(penstock_rpc::wallet::VARIABLE, credential.into());
    }
    match place.located() {
        None => set("PENSTOCK_DIRECT", "1".into()),
        Some(located) => {
            set(deployment::VARIABLE, located.file.clone().into());
            let prefix = located.deployment.mount.as_deref();
            if let Some(mount) = mount.or(prefix) {
                let mount = std::path::absolute(mount)
                    .map_err(|e| CliError::io("understand mount path", mount, e))?;
                set("PENSTOCK_MOUNT", mount.into());
            }
        }
    }
    Ok(environment)
}

/// How long the launcher has to end after the second request to end.
const GRACE: Duration = Duration::from_secs(10);
/// How long a job's program has to end when the job's time is nearly up.
const LAST: Duration = Duration::from_secs(60);

/// Waits for the launcher and passes signals on to it. SIGUSR1 ends it if that signal means that a job's time is nearly
/// up.
fn wait(
    child: &mut Child,
    signals: &mut SignalsInfo<WithOrigin>,
    of_job: bool,
) -> Result<ExitStatus> {
    let failed = |e| CliError::new(format!("cannot wait for the launcher: {e}"));
    let mut asked = 0;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        for origin in signals.wait() {
            if origin.signal == SIGCHLD {
                continue;
            }
            if origin.signal == SIGUSR1 && of_job {
                out::note("SIGUSR1: the program is ended, so that its output can be staged out");
                if let Some(process) = child.id().try_into().ok().and_then(Process::find) {
                    process.end(LAST);
                }
                continue;
            }
            // A Ctrl-C at the terminal has reached the launcher already: it is in the same process group.
            if origin.cause != Cause::Kernel {
                let signal = rustix::process::Signal::from_named_raw(origin.signal);
                let process = child.id().try_into().ok().and_then(Process::find);
                if let (Some(signal), Some(process)) = (signal, process) {
                    process.signal(signal);
                }
            }
            if [SIGINT, SIGTERM, SIGQUIT].contains(&origin.signal) {
                asked += 1;
            }
            if asked > 2 {
                out::note("ending the launcher");
                if let Some(process) = child.id().try_into().ok().and_then(Process::find) {
                    process.end(GRACE);
                }
            }
        }
    }
}

/// The exit code as shells report it: that of the process, or 128 and the signal.
fn code_of(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(u8::try_from(code_of(status)).unwrap_or(1))
}
