//! `penstock faults`: simulates clusters under faults; a seed decides each run.
//!
//! A run leaves threads of its killed processes behind. So only a few seeds share a process: this command starts itself
//! for each batch.
use crate::error::{CliError, Result};
use crate::{out, size};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use penstock_faults::{Effects, Options, Plant, Report, quiet_panics, run};
use serde::Serialize;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Test whole clusters under simulated faults, each run decided by a seed.
///
/// Metadata server, data servers and clients are the real ones; time, network and disks are simulated. Connections
/// break, machines are cut off or lose power, disks are full or slow, processes are killed. Then everything that was
/// acknowledged is compared with what clients see (docs/understand/faults.md). A seed gives the same run each time.
///
/// Exit code 0: nothing wrong was found (with --plant: the planted bug was). 1: otherwise.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock faults --seeds 300                        seeds 1 to 300
  penstock faults --seed 17 --trace                  one seed, and all that happens in it
  penstock faults --time 3600 --seed 100000          new seeds for an hour
  penstock faults --plant lost-sync --seeds 1000     how many seeds find a disk that forgets syncs?
  penstock faults --twice --seeds 20                 each seed twice: do both runs agree in every event?")]
pub struct FaultsArgs {
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How many seeds.
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub seeds: u64,
    /// Run further seeds until so many seconds have passed, instead of --seeds.
    #[arg(long, value_name = "SECONDS", conflicts_with = "seeds")]
    pub time: Option<u64>,
    /// Plant a bug in the simulated machines: lost-sync, lost-name, stale-read, lost-wakeup, trusted-clock,
    /// twice-delivered, no-fence, same-bytes, kept-incarnation, any-store, no-lease or dropped-part.
    #[arg(long, value_name = "BUG")]
    pub plant: Option<String>,
    /// Run each seed twice and compare all events.
    #[arg(long)]
    pub twice: bool,
    /// Print each event, on standard error (one seed).
    #[arg(long)]
    pub trace: bool,
    /// Processes at once [default: one per processor].
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
    /// All seeds in this process, a line of JSON for each (used by the command itself).
    #[arg(long, hide = true)]
    pub here: bool,
}

/// Seeds of one process.
const BATCH: u64 = 8;
/// The longest time for one seed, which takes about a second on an idle machine.
const LONGEST: Duration = Duration::from_secs(300);
/// Exit code of a process whose seed took longer.
const STANDS_STILL: i32 = 75;

/// The results of all seeds of a command.
#[derive(Debug, Default, Serialize)]
struct Summary {
    seeds: u64,
    seconds: f64,
    virtual_seconds: f64,
    events: u64,
    faults: u64,
    /// What they did.
    effects: Effects,
    /// The number of seeds in which each effect happened.
    seeds_with: Effects,
    operations: u64,
    operations_failed: u64,
    most_threads: u64,
    /// The seeds that found something, in order.
    failing: Vec<Report>,
}

impl Summary {
    fn add(&mut self, report: Report) {
        self.seeds += 1;
        self.virtual_seconds += report.virtual_ms as f64 / 1e3;
        self.events += report.events;
        self.faults += report.faults;
        self.effects.add(&report.effects);
        self.seeds_with.add(&report.effects.once());
        self.operations += report.good;
        self.operations_failed += report.failed;
        self.most_threads = self.most_threads.max(report.most_threads);
        if !report.failures.is_empty() {
            self.failing.push(report);
            self.failing.sort_by_key(|r| r.seed);
        }
    }
}

/// Runs the seeds. Exit code 1 if one finds something; with a planted bug, if none does.
pub fn faults(args: &FaultsArgs) -> Result<ExitCode> {
    let plant = match &args.plant {
        Some(name) => Some(Plant::from_name(name).ok_or_else(|| {
            CliError::new(format!("no bug is called {name:?}")).next("penstock faults --help")
        })?),
        None => None,
    };
    let began = Instant::now();
    let mut summary = if args.here || (args.seeds == 1 && args.time.is_none()) {
        here(args, plant)
    } else {
        batches(args)?
    };
    summary.seconds = began.elapsed().as_secs_f64();
    let good = summary.failing.is_empty() != plant.is_some();
    if args.here {
        return Ok(ExitCode::SUCCESS);
    }
    if args.json {
        out::print_json(&summary);
    } else {
        out::print(&to_text(&summary, args));
    }
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs all seeds in this process.
fn here(args: &FaultsArgs, plant: Option<Plant>) -> Summary {
    quiet_panics();
    let ended = args.here.then(watch);
    let mut summary = Summary::default();
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let options = Options {
            seed,
            plant,
            print: args.trace,
            meter: None,
        };
        let mut report = run(&options);
        if args.twice {
            let again = run(&options);
            if again != report {
                report.failures.push(format!(
                    "not deterministic: {} events (hash {:016x}) and then {} ({:016x})",
                    report.events, report.hash, again.events, again.hash
                ));
            }
        }
        if args.here {
            out::print_json(&report);
        }
        if let Some(ended) = &ended {
            let _ = ended.send(());
        }
        summary.add(report);
    }
    summary
}

/// Ends this process when no seed ends within [`LONGEST`]. Threads that wait for each other outside of the simulated
/// world never end.
fn watch() -> mpsc::Sender<()> {
    let (ended, seeds) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            match seeds.recv_timeout(LONGEST) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => std::process::exit(STANDS_STILL),
            }
        }
    });
    ended
}

/// Runs batches of seeds in processes of their own, one per processor at a time.
fn batches(args: &FaultsArgs) -> Result<Summary> {
    let program =
        std::env::current_exe().map_err(|e| CliError::new(format!("cannot find myself: {e}")))?;
    let end = args.time.map(|s| Instant::now() + Duration::from_secs(s));
    let last = match end {
        Some(_) => u64::MAX,
        None => args.seed.saturating_add(args.seeds),
    };
    let jobs = args.jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        |jobs| jobs.max(1),
    );
    let next = AtomicU64::new(args.seed);
    let found = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    let bar = match end {
        Some(_) => ProgressBar::new_spinner(),
        None => ProgressBar::new(args.seeds),
    };
    let style = "{pos} seeds {elapsed} {msg} {wide_bar}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    let work = || {
        loop {
            let first = next.fetch_add(BATCH, Relaxed);
            let over = end.is_some_and(|end| Instant::now() >= end);
            // A planted bug has to be found only once.
            if first >= last || over || (args.plant.is_some() && found.load(Relaxed)) {
                return;
            }
            let seeds = BATCH.min(last - first);
            for report in batch(&program, args, first, seeds) {
                found.fetch_or(!report.failures.is_empty(), Relaxed);
                bar.inc(1);
                let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
                summary.add(report);
                if !summary.failing.is_empty() {
                    bar.set_message(format!("{} failed", summary.failing.len()));
                }
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 0..jobs {
            s.spawn(work);
        }
    });
    bar.finish_and_clear();
    Ok(summary.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs one process; a seed that it does not report has ended it.
fn batch(program: &std::path::Path, args: &FaultsArgs, first: u64, seeds: u64) -> Vec<Report> {
    let mut command = Command::new(program);
    command
        .args(["faults", "--here", "--seed", &first.to_string()])
        .args(["--seeds", &seeds.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(plant) = &args.plant {
        command.args(["--plant", plant]);
    }
    if args.twice {
        command.arg("--twice");
    }
    let mut reports: Vec<Report> = Vec::new();
    let mut why = "it ended without a report".to_owned();
    match command.spawn() {
        Ok(mut child) => {
            if let Some(output) = child.stdout.take() {
                let lines = BufReader::new(output).lines().map_while(|line| line.ok());
                reports.extend(lines.filter_map(|line| serde_json::from_str(&line).ok()));
            }
            match child.wait() {
                Ok(status) if status.code() == Some(STANDS_STILL) => {
                    why = format!("it stood still for {} s", LONGEST.as_secs());
                }
                Ok(status) => why = format!("its process ended with {status}"),
                Err(_) => {}
            }
        }
        Err(e) => why = format!("no process could be started: {e}"),
    }
    let seed = first + reports.len() as u64;
    if seed < first + seeds {
        reports.push(Report {
            seed,
            failures: vec![why],
            ..Report::default()
        });
    }
    reports
}

fn to_text(summary: &Summary, args: &FaultsArgs) -> String {
    let mut text = format!(
        "{} seeds in {:.1} s: {:.0} s of virtual time, {} events, {} faults; \
         {} operations succeeded, {} failed as a fault allows; at most {} threads in a server\n",
        size::count(summary.seeds),
        summary.seconds,
        summary.virtual_seconds,
        size::count(summary.events),
        size::count(summary.faults),
        size::count(summary.operations),
        size::count(summary.operations_failed),
        summary.most_threads
    );
    let effects: Vec<String> = summary
        .effects
        .0
        .iter()
        .map(|(effect, times)| {
            let seeds = summary.seeds_with.0.get(effect).copied().unwrap_or(0);
            format!("{} {effect} ({})", size::count(*times), size::count(seeds))
        })
        .collect();
    text += &format!(
        "what happened (in how many seeds): {}\n",
        effects.join(", ")
    );
    for report in &summary.failing {
        for failure in &report.failures {
            text += &format!("seed {}: {failure}\n", report.seed);
        }
    }
    let plant = args.plant.as_ref();
    match (summary.failing.first(), plant) {
        (None, None) => text += "nothing wrong was found\n",
        (None, Some(plant)) => {
            text += &format!("the planted bug {plant} was NOT found\n");
        }
        (Some(first), None) => {
            text += &format!(
                "to see every event: penstock faults --seed {} --trace\n",
                first.seed
            );
        }
        (Some(first), Some(plant)) => {
            let nth = first.seed - args.seed + 1;
            text += &format!("the planted bug {plant} was found by seed {nth} of those run\n");
        }
    }
    text
}
