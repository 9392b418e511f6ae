//! `penstock run --trace`: the program's processes record their calls, and a collector writes them down.
//!
//! The ranks preload `libpenstock_trace.so` and find the rest in their environment, which batch jobs can set themselves
//! (docs/use/launchers.md). The collector is a process of its own: it goes on if this one is killed, until the program has ended.
use super::{RunArgs, choose_launcher, exit_code, oversubscription, preload, wait};
use crate::collect::{Collected, LIMIT_VARIABLE};
use crate::error::{CliError, Result};
use crate::size::{self, Size};
use crate::watcher::Watcher;
use crate::{connect, out};
use clap::Args;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long the collector may take to write the rest, once the launcher has ended.
const REST: Duration = Duration::from_secs(10);

/// What of the program's calls is recorded.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is traced")]
pub struct Choices {
    /// Layers, parted by commas: netcdf, pnetcdf, hdf5, mpiio, stdio, posix; !NAME leaves one out [default: all].
    #[arg(long, value_name = "LIST", requires = "trace")]
    pub trace_layers: Option<OsString>,
    /// Kinds of calls: read, write, open, close, flush, other [default: all].
    #[arg(long, value_name = "LIST", requires = "trace")]
    pub trace_kinds: Option<OsString>,
    /// Functions, as patterns: 'MPI_File_write*,pwrite', '!stat' [default: all].
    #[arg(long, value_name = "LIST", requires = "trace")]
    pub trace_functions: Option<OsString>,
    /// Files, as patterns of absolute paths: '/lustre/me/*', '!*.log' [default: all but those of the system,
    /// such as /usr, /etc and /proc].
    #[arg(long, value_name = "LIST", requires = "trace")]
    pub trace_files: Option<OsString>,
    /// Ranks: 0,4-7 [default: all].
    #[arg(long, value_name = "LIST", requires = "trace")]
    pub trace_ranks: Option<OsString>,
    /// Recording ends when the processes of a host have written so much [default: 4GiB].
    #[arg(long, value_name = "SIZE", requires = "trace")]
    pub trace_limit: Option<Size>,
}

/// The collector of this host, which runs.
pub struct Collecting {
    child: Child,
    answers: BufReader<ChildStdout>,
    directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl Collecting {
    /// Makes the trace's directory, and starts the collector.
    pub fn start(directory: &Path, choices: &Choices) -> Result<Collecting> {
        if let Some(parent) = directory.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(|e| CliError::io("make", parent, e))?;
        }
        penstock_collect::own_directory(directory).map_err(|e| {
            CliError::new(e).next("name a new directory, or one of your own, with --trace")
        })?;
        let directory = directory
            .canonicalize()
            .map_err(|e| CliError::io("find", directory, e))?;
        let me = std::env::current_exe()
            .map_err(|e| CliError::new(format!("cannot find this program's own path: {e}")))?;
        let mut environment: Vec<(OsString, OsString)> = vec![
            ("PENSTOCK_TRACE".into(), directory.clone().into()),
            ("PENSTOCK_TRACE_COLLECTOR".into(), me.clone().into()),
        ];
        for (name, value) in [
            ("PENSTOCK_TRACE_LAYERS", &choices.trace_layers),
            ("PENSTOCK_TRACE_KINDS", &choices.trace_kinds),
            ("PENSTOCK_TRACE_FUNCTIONS", &choices.trace_functions),
            ("PENSTOCK_TRACE_FILES", &choices.trace_files),
            ("PENSTOCK_TRACE_RANKS", &choices.trace_ranks),
            ("PENSTOCK_TRACE_BUFFER", &None),
        ] {
            // Launchers do not pass everything on to other hosts.
            if let Some(value) = value.clone().or_else(|| std::env::var_os(name)) {
                environment.push((name.into(), value));
            }
        }
        let limit = choices.trace_limit.map(|s| s.0.to_string().into());
        if let Some(limit) = limit.or_else(|| std::env::var_os(LIMIT_VARIABLE)) {
            environment.push((LIMIT_VARIABLE.into(), limit));
        }
        let mut child = Command::new(&me)
            .arg("collect")
            .arg(&directory)
            .arg("--until-told")
            .envs(environment.iter().map(|(n, v)| (n, v)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| CliError::io("start", &me, e))?;
        let Some(answers) = child.stdout.take() else {
            return Err(CliError::new("the collector has no pipe"));
        };
        let mut answers = BufReader::new(answers);
        let mut ready = String::new();
        let read = answers.read_line(&mut ready);
        if read.is_err() || ready.trim() != "ready" {
            let _ = child.wait();
            return Err(CliError::new("the collector of the trace did not start"));
        }
        Ok(Collecting {
            child,
            answers,
            directory,
            environment,
        })
    }

    /// Adds what processes need to be traced; `library` is preloaded, too.
    pub fn add_to(
        &self,
        environment: &mut Vec<(OsString, OsString)>,
        library: Option<&Path>,
    ) -> Result<()> {
        let own = preload::trace_library()?;
        let libraries: Vec<&Path> = library.into_iter().chain([own.as_path()]).collect();
        let preloaded = preload::environment(
            &libraries,
            std::env::var_os("LD_PRELOAD").as_deref(),
            std::env::var_os("LD_LIBRARY_PATH").as_deref(),
        )?;
        environment.retain(|(name, _)| name != "LD_PRELOAD" && name != "LD_LIBRARY_PATH");
        environment.extend(preloaded);
        environment.extend(self.environment.iter().cloned());
        Ok(())
    }

    /// The program has ended: waits for the rest of the trace, and says what it holds.
    pub fn finish(mut self, quiet: bool) {
        drop(self.child.stdin.take());
        let end = Instant::now() + REST;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                out::note(format_args!(
                    "processes of the program still run: their parts of {} end with them",
                    self.directory.display()
                ));
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        let collected: Option<Collected> = serde_json::from_str(&line).ok();
        let (Ok(_), Some(collected)) = (read, collected) else {
            out::note(format_args!(
                "the collector was killed: parts of {} may be cut short",
                self.directory.display()
            ));
            return;
        };
        if let Some(why) = &collected.failed {
            out::note(format_args!("the trace is not whole: {why}"));
        }
        if collected.limited {
            out::note("the trace is not whole: it reached its size limit (--trace-limit)");
        }
        if collected.dropped > 0 {
            out::note(format_args!(
                "{} records are missing in the trace: the program made them faster than they could be written; a larger \
                 PENSTOCK_TRACE_BUFFER or fewer --trace-functions help",
                size::count(collected.dropped)
            ));
        }
        if !quiet {
            out::note(format_args!(
                "trace of this host in {}: {} processes, {} records, {}",
                self.directory.display(),
                collected.parts,
                size::count(collected.records),
                size::bytes(collected.bytes)
            ));
        }
    }
}

/// The program with nothing of Penstock's in it but the records of its calls.
pub fn run_alone(args: &RunArgs, program: &Path, arguments: &[OsString]) -> Result<ExitCode> {
    let Some(directory) = &args.trace else {
        return Err(CliError::new("--no-penstock is for --trace DIR"));
    };
    let launcher = match args.ranks {
        Some(ranks) => Some((ranks, choose_launcher(args, program)?)),
        None => None,
    };
    preload::trace_library()?;
    let mut signals = SignalsInfo::<WithOrigin>::new([
        SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD,
    ])
    .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    let mut watcher = Watcher::start()?;
    let tracing = Collecting::start(directory, &args.choices)?;
    let id = connect::program()?.program;
    let mut environment = vec![("PENSTOCK_PROGRAM".into(), id.to_string().into())];
    tracing.add_to(&mut environment, None)?;
    let mut command = match launcher {
        Some((ranks, (family, launcher, plugin))) => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
            let settings =
                oversubscription::Settings::for_ranks(ranks, cores, family, launcher.family);
            let own = settings.environment.iter();
            environment.extend(own.map(|(n, v)| ((*n).into(), (*v).into())));
            let mut command = Command::new(&launcher.path);
            command
                .arg("-n")
                .arg(ranks.to_string())
                .args(&settings.arguments)
                .args(&plugin)
                .args(&args.launcher_args)
                .envs(oversubscription::allow_root(launcher.family))
                .arg("env");
            for (name, value) in environment {
                let mut word = name;
                word.push("=");
                word.push(value);
                command.arg(word);
            }
            command.arg(program);
            command
        }
        None => {
            let mut command = Command::new(program);
            command.envs(environment);
            command
        }
    };
    command.args(arguments);
    let mut child = command
        .spawn()
        .map_err(|e| CliError::io("start", program, e))?;
    watcher.launcher(child.id())?;
    let status = wait(&mut child, &mut signals, false)?;
    tracing.finish(args.quiet);
    watcher.finish();
    Ok(exit_code(status))
}
