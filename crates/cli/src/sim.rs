//! `penstock sim`: clusters on virtual time.
use crate::error::{CliError, Result};
use crate::out;
use crate::size::{bytes, count};
use crate::tracing::DECISIONS;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use penstock_server::Call;
use penstock_sim::replay::{Replay, Replayed as Done};
use penstock_sim::{Experiment, Outcome, Report, figure, plot};
use penstock_trace::{LinesEnd, LinesReader};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Simulate a cluster: programs, MPI-IO methods, network, data servers and devices on virtual time.
///
/// A scenario is a TOML file (docs/understand/simulator.md). It may have cases with published results. These are
/// printed beside the simulated ones, with a verdict on each relation. A scenario and its seed give one result, to the
/// byte.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock sim experiments/resonance.toml             all cases, published beside ours
  penstock sim --list experiments/resonance.toml      their names
  penstock sim --case 'collective, 4 processes, 64 KiB' --plot plots experiments/resonance.toml
  penstock sim --json experiments/scale.toml          one line of JSON for each file
  penstock run --trace T --journal -n 4 -- ./app penstock:/f; penstock sim --replay T/*.decisions")]
pub struct SimArgs {
    /// Scenarios.
    #[arg(required_unless_present = "replay", value_name = "SCENARIO.toml")]
    pub scenarios: Vec<PathBuf>,
    /// Decides again, by the same code on virtual time, what a data server's scheduler decided, and compares each
    /// decision. `penstock up --trace DIR --journal` and `penstock run --trace DIR --journal` write DIR/data-N.decisions.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["scenarios", "case", "list", "plot", "markdown"])]
    pub replay: Vec<PathBuf>,
    /// Only the case of this name; if there is none, those whose names begin with it.
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,
    /// Names the cases and runs none.
    #[arg(long)]
    pub list: bool,
    /// Writes SVG plots there. Of each case: throughput over time, addresses at the first server's device, and 0.2 s of
    /// these. Of several cases (8 at most): their throughputs in one picture.
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Writes the results as tables into a page, below its line for results (docs/understand/reproduction.md).
    #[arg(long, value_name = "PAGE.md", conflicts_with_all = ["case", "list"])]
    pub markdown: Option<PathBuf>,
    /// Print one line of JSON for each scenario.
    #[arg(long)]
    pub json: bool,
}

/// The most redraws per second.
const REDRAWS: u8 = 4;

fn failed(what: impl std::fmt::Display) -> CliError {
    CliError::new(what)
}

pub fn sim(args: &SimArgs) -> Result<()> {
    if !args.replay.is_empty() {
        return replay(args);
    }
    let mut sections = String::new();
    for path in &args.scenarios {
        let shown = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|e| failed(format_args!("{shown}: {e}")))?;
        let experiment = Experiment::parse(&text, &shown).map_err(failed)?;
        if args.list {
            for case in &experiment.cases {
                out::print(&format!("{}\n", case.name));
            }
            continue;
        }
        if let Some(wanted) = &args.case
            && !experiment
                .cases
                .iter()
                .any(|c| c.name.starts_with(wanted.as_str()))
        {
            let says = format!(
                "{shown} has no case \"{wanted}\"; `penstock sim --list {shown}` lists them"
            );
            return Err(failed(says));
        }
        let began = Instant::now();
        let outcome = run(&experiment, args)?;
        if args.json {
            out::print_json(&outcome);
        } else {
            out::print(&people(&outcome, began.elapsed()));
        }
        if let Some(folder) = &args.plot {
            plots(&outcome, folder)?;
        }
        sections.push('\n');
        sections.push_str(&outcome.markdown());
    }
    if let Some(page) = &args.markdown {
        let page_shown = page.display();
        let old = std::fs::read_to_string(page)
            .map_err(|e| failed(format_args!("{page_shown}: {e}; it needs a line `{MARK}`")))?;
        let Some((head, _)) = old.split_once(MARK) else {
            return Err(failed(format_args!(
                "{page_shown} has no line `{MARK}`; the tables go below it"
            )));
        };
        std::fs::write(page, format!("{head}{MARK}\n{sections}"))
            .map_err(|e| failed(format_args!("{page_shown}: {e}")))?;
    }
    Ok(())
}

/// The result of `penstock sim --replay` for one file.
#[derive(serde::Serialize)]
struct Replayed<'a> {
    decisions: &'a Path,
    #[serde(flatten)]
    done: Done,
    /// The server closed the file itself.
    whole: bool,
    /// Calls after the last one in the file.
    lost: u64,
    identical: bool,
    departure: Option<String>,
}

fn replay(args: &SimArgs) -> Result<()> {
    let mut rows = Vec::new();
    let mut departures = Vec::new();
    for path in &args.replay {
        let replayed = replay_one(path)?;
        if args.json {
            out::print_json(&replayed);
        }
        let by: Vec<&str> = replayed.done.algorithms.keys().copied().collect();
        rows.push(vec![
            path.display().to_string(),
            by.join(" "),
            count(replayed.done.requests),
            count(replayed.done.dispatches),
            count(replayed.done.waits),
            count(replayed.done.choices),
            if replayed.identical { "all" } else { "no" }.into(),
        ]);
        if !replayed.whole {
            out::note(format_args!(
                "{} has no end: its server was killed, or still runs; the calls up to there were replayed",
                path.display()
            ));
        } else if replayed.lost > 0 {
            out::note(format_args!(
                "{} ends before its server did: {} later calls are missing",
                path.display(),
                count(replayed.lost)
            ));
        }
        let told = |d: String| format!("{}: {d}", path.display());
        departures.extend(replayed.departure.map(told));
    }
    if !args.json {
        let header = [
            "decisions",
            "algorithms",
            "requests",
            "dispatches",
            "waits",
            "choices",
            "identical",
        ];
        out::print(&out::table(&header, &[2, 3, 4, 5], rows));
    }
    if departures.is_empty() {
        Ok(())
    } else {
        Err(CliError::new(departures.join("\n")).next(
            "was the file written by this same `penstock`? If so, and it was not changed, please report it: a decision depends on something that is not recorded",
        ))
    }
}

fn replay_one(path: &Path) -> Result<Replayed<'_>> {
    let mut lines = LinesReader::open(path, DECISIONS).map_err(failed)?;
    let mut replay = Replay::new();
    let mut departure = None;
    while let Some(line) = lines.next_line().map_err(failed)? {
        // The rest is read anyway, so that a damaged file is reported.
        if departure.is_none() {
            let call: std::result::Result<Call, _> = line.parse();
            departure = match call {
                Ok(call) => replay.call(&call).err().map(|d| d.to_string()),
                Err(e) => Some(format!("line {}: {e}", lines.lines() + 1)),
            };
        }
    }
    let (whole, lost) = match lines.end() {
        Some(LinesEnd::Whole { lost }) => (true, lost),
        _ => (false, 0),
    };
    Ok(Replayed {
        decisions: path,
        done: replay.done().clone(),
        whole,
        lost,
        identical: departure.is_none(),
        departure,
    })
}

/// In a page, everything below this line is written anew.
const MARK: &str = "<!-- results: made by `make reproduce` -->";

fn run(experiment: &Experiment, args: &SimArgs) -> Result<Outcome> {
    let bar = ProgressBar::new(0);
    bar.set_draw_target(indicatif::ProgressDrawTarget::stderr_with_hz(REDRAWS));
    if let Ok(style) = ProgressStyle::with_template("{prefix} {msg}") {
        bar.set_style(style);
    }
    let many = experiment.cases.len() > 1;
    let mut begin = |i: usize, n: usize, name: &str| {
        if many {
            bar.set_prefix(format!("case {} of {n} ({name}):", i + 1));
        }
    };
    let mut progress = |now: u64, events: u64, done: usize, ranks: usize| {
        bar.set_message(format!(
            "{:.3} s of virtual time, {} events, {done} of {ranks} ranks done",
            now as f64 / 1e9,
            count(events)
        ));
    };
    let whole = |case: &str| experiment.cases.iter().any(|c| c.name == case);
    let whole = args.case.as_deref().is_some_and(whole);
    let wanted = |name: &str| match args.case.as_deref() {
        Some(case) if whole => name == case,
        Some(case) => name.starts_with(case),
        None => true,
    };
    let outcome = experiment.run(wanted, &mut begin, &mut progress);
    bar.finish_and_clear();
    outcome.map_err(failed)
}

fn people(outcome: &Outcome, took: Duration) -> String {
    let mut text = String::new();
    if let [only] = outcome.cases.as_slice()
        && outcome.situations.is_empty()
    {
        one(&mut text, &only.report);
    } else {
        let rows = outcome.cases.iter().map(|case| {
            let r = &case.report;
            vec![
                case.case.clone(),
                case.published.map_or(String::new(), figure),
                figure(r.throughput / 1e6),
                format!("{:.3}", r.makespan as f64 / 1e9),
                count(r.operations),
                count(r.device_requests),
            ]
        });
        let header = [
            "case",
            "published MB/s",
            "MB/s",
            "makespan s",
            "operations",
            "device requests",
        ];
        text.push_str(&out::table(&header, &[1, 2, 3, 4, 5], rows.collect()));
    }
    if !outcome.comparisons.is_empty() {
        let rows = outcome.comparisons.iter().map(|c| {
            vec![
                c.claim.clone(),
                c.published.clone(),
                figure(c.ours),
                c.verdict.words().into(),
            ]
        });
        text.push('\n');
        text.push_str(&out::table(
            &["relation", "published", "ours", "verdict"],
            &[1, 2],
            rows.collect(),
        ));
    }
    if !outcome.situations.is_empty() {
        let rows = outcome.situations.iter().map(|s| {
            vec![
                s.situation.clone(),
                s.published.clone(),
                s.ours.join(", "),
                format!("{:+.0}%", (s.gain - 1.0) * 100.0),
                if s.agrees { "yes" } else { "no" }.into(),
            ]
        });
        text.push('\n');
        let header = ["situation", "published best", "best here", "gain", "agrees"];
        text.push_str(&out::table(&header, &[3], rows.collect()));
    }
    let events: u64 = outcome.cases.iter().map(|c| c.report.events).sum();
    let seconds = took.as_secs_f64();
    let memory = peak_memory().map_or(String::new(), |m| format!(", {} of memory", bytes(m)));
    let _ = writeln!(text, "\n{} events in {seconds:.2} s{memory}", count(events));
    text
}

/// The most memory that this process has used, in bytes.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// A single run, in full.
fn one(text: &mut String, r: &Report) {
    let ms = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
    let facts = [
        ("makespan", format!("{:.6} s", r.makespan as f64 / 1e9)),
        ("throughput", format!("{} MB/s", figure(r.throughput / 1e6))),
        ("bytes", bytes(r.bytes)),
        ("accessed", bytes(r.accessed)),
        ("resent", bytes(r.resent)),
        ("operations", count(r.operations)),
        ("requests", count(r.requests)),
        ("decisions", count(r.decisions)),
        (
            "device requests",
            format!("{}, {}", count(r.device_requests), bytes(r.device_bytes)),
        ),
        ("mean seek", bytes(r.seek_distance as u64)),
        (
            "latency p50, p99",
            format!("{}, {}", ms(r.latency_p50), ms(r.latency_p99)),
        ),
        ("balance of servers", format!("{:.3}", r.balance)),
    ];
    let chosen = [
        ("algorithms changed", r.choices),
        ("predicted waits", r.predicted_waits),
    ];
    let chosen = chosen.into_iter().filter(|(_, n)| *n > 0);
    let chosen = chosen.map(|(name, n)| (name, count(n)));
    let _ = writeln!(text, "{}", r.name);
    for (name, value) in facts.into_iter().chain(chosen) {
        let _ = writeln!(text, "  {name:<20} {value}");
    }
    if r.programs.len() > 1 {
        let share = |share: f64| format!("{:.0}%", share * 100.0);
        let mut header = vec!["program", "s", "MB/s", "I/O"];
        if r.programs.iter().any(|p| p.orchestrated.is_some()) {
            header.extend(["eligible", "own slices"]);
        }
        let rows = r.programs.iter().map(|p| {
            let mut row = vec![
                format!("{} {}.{}", p.benchmark, p.program, p.instance),
                format!("{:.3}", (p.end - p.start) as f64 / 1e9),
                figure(p.throughput / 1e6),
                share(p.io_share),
            ];
            row.extend(
                p.orchestrated
                    .iter()
                    .flat_map(|o| [share(o.eligible), share(o.time)]),
            );
            row
        });
        text.push('\n');
        text.push_str(&out::table(&header, &[1, 2, 3, 4, 5], rows.collect()));
    }
}

fn plots(outcome: &Outcome, folder: &Path) -> Result<()> {
    let shown = folder.display();
    std::fs::create_dir_all(folder).map_err(|e| failed(format_args!("{shown}: {e}")))?;
    let write = |name: &str, kind: &str, drawn: plot::Drawn| {
        let path: PathBuf = folder.join(format!("{}-{kind}.svg", stem(name)));
        let svg = drawn.map_err(|e| failed(format_args!("plot of {name}: {e}")))?;
        std::fs::write(&path, svg).map_err(|e| failed(format_args!("{}: {e}", path.display())))
    };
    for case in &outcome.cases {
        let name = if case.case.is_empty() {
            &outcome.name
        } else {
            &case.case
        };
        for (kind, drawn) in [
            ("throughput", plot::throughput(name, &case.report)),
            ("head", plot::head(name, &case.report)),
            ("head-close", plot::head_close(name, &case.report)),
        ] {
            write(name, kind, drawn)?;
        }
    }
    // Cases that were requested together are shown together.
    let together = outcome.cases.iter().take(plot::TOGETHER);
    let together: Vec<_> = together
        .map(|case| (case.case.clone(), &case.report))
        .collect();
    if together.len() > 1 {
        write(
            &outcome.name,
            "throughputs",
            plot::throughputs(&outcome.name, &together),
        )?;
    }
    Ok(())
}

/// A case's name as a part of a file's name.
fn stem(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect()
}
