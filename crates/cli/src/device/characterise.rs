//! `penstock device characterise`: the suite on a model or a directory.
use super::plot::{self, Drawing};
use super::{SHARES, shares, time};
use crate::error::{CliError, Result};
use crate::out;
use crate::size::{self, Size};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use penstock_device::Model;
use penstock_device::characterise::{
    Bound, Characteristics, FileSubject, ModelSubject, Options, Part, Row, Subject,
    characterise as measure,
};
use penstock_device::profile::{FileTarget, ProfileError, Target};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Exit code after an interruption, as shells have it.
const INTERRUPTED: u8 = 130;
/// Limits on requests and bytes of one load on a model, where time is virtual. Even the smallest requests exceed the
/// write buffers.
const MODEL_BOUND: Bound = Bound {
    requests: 10_000,
    bytes: 256 << 20,
    time: u64::MAX,
};
/// The most requests of one load on a directory.
const MOST_REQUESTS: u64 = 1_000_000;

/// Characterise a modelled or real device: order, size, depth, time, idle periods, TRIM, mixtures.
///
/// Loads: a grid of sequential and random reads and writes; sequential reads before and after random writes; and
/// mixtures of reads and writes. Random writes also over time, before and after an idle period, and with and without
/// TRIM. Directories are measured with direct I/O in a file without a name, which is gone when the command ends,
/// however it ends. It never takes more than nine tenths of the free space.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock device characterise nand                     MLC flash, page by page, in the steady state
  penstock device characterise nand,state=fresh,spare=0.28 --plot plots
  penstock device characterise rram --json
  penstock device characterise hdd --space 1GiB
  penstock device characterise /data --time 60 --space 1GiB

`penstock device models` lists the models. A name that contains a slash is a path, others are models.")]
pub struct CharacteriseArgs {
    /// A model, NAME[,OPTION=VALUE]...; a directory; or an existing file, which is only read
    #[arg(value_name = "MODEL|DIR")]
    target: String,
    /// Bytes that are accessed [default: 256MiB of a directory, all of a model].
    #[arg(long, value_name = "SIZE")]
    space: Option<Size>,
    /// Seconds for all loads together, on a directory.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time: u64,
    /// Bytes of requests.
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        default_value = "4KiB,64KiB,1MiB"
    )]
    sizes: Vec<Size>,
    /// Requests under way together.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,8,32"
    )]
    depths: Vec<u64>,
    /// Windows of random writes over time.
    #[arg(long, value_name = "N", default_value_t = 12)]
    windows: u64,
    /// Seconds of the idle period [default: 10 on a model; on a directory a twentieth of the time].
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
    /// Through the page cache, where there is no direct I/O.
    #[arg(long)]
    buffered: bool,
    /// Choice of offsets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write drawings (SVG) to this directory: latency by size, throughput by depth, over time, mixtures.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// For programs.
    #[arg(long)]
    json: bool,
    /// No progress bar.
    #[arg(short, long)]
    quiet: bool,
}

pub fn characterise(args: &CharacteriseArgs) -> Result<ExitCode> {
    let real = args.target.contains('/') || args.target == ".";
    if !(1..=86_400).contains(&args.time) {
        return Err(CliError::new(format!(
            "--time {}: write 1 to 86400 seconds",
            args.time
        )));
    }
    if args.idle.is_some_and(|s| s > 86_400) {
        return Err(CliError::new("--idle: at most 86400 seconds"));
    }
    let mut options = Options {
        sizes: args.sizes.iter().map(|s| s.0).collect(),
        depths: args.depths.clone(),
        bound: MODEL_BOUND,
        windows: args.windows,
        idle: args.idle.unwrap_or(10) * 1_000_000_000,
        seed: args.seed,
    };
    let (mut subject, alignment): (Box<dyn Subject>, u64) = if real {
        let target = FileTarget::open(Path::new(&args.target), !args.buffered);
        let target = target.map_err(CliError::new)?;
        // A tenth of the time is reserved for writing the file, and a twentieth for the idle period.
        let nanos = args.time * 1_000_000_000;
        options.idle = args.idle.map_or(nanos / 20, |s| s * 1_000_000_000);
        options.bound = Bound {
            requests: MOST_REQUESTS,
            bytes: u64::MAX,
            time: nanos * 17 / 20 / options.loads().max(1),
        };
        let alignment = target.alignment();
        let space = args.space.map_or(256 << 20, |s| s.0);
        (Box::new(FileSubject::new(target, space)), alignment)
    } else {
        let model = Model::parse(&args.target)
            .map_err(|e| CliError::new(e).next("a directory is written with a slash: ./data"))?;
        let space = args.space.map(|s| s.0);
        let subject = ModelSubject::new(&args.target, &model, space).map_err(CliError::new)?;
        (Box::new(subject), 1)
    };
    options
        .check(subject.as_ref(), alignment)
        .map_err(CliError::new)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    }
    let bar = bar(args.quiet);
    let result = measure(subject.as_mut(), &options, &mut |done, of| {
        bar.set_length(of);
        bar.set_position(done);
        !stop.load(Relaxed)
    });
    bar.finish_and_clear();
    let found = match result {
        Ok(found) => found,
        Err(ProfileError::Stopped) => {
            out::note("stopped before all loads were measured; all files were removed");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(e) => return Err(CliError::new(e)),
    };
    if let Some(folder) = &args.plot {
        std::fs::create_dir_all(folder).map_err(|e| CliError::io("make", folder, e))?;
        draw(folder, &found)?;
    }
    if args.json {
        out::print_json(&to_json(&found))
    } else {
        out::print(&to_text(&found))
    }
    Ok(ExitCode::SUCCESS)
}

fn bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template("loads [{bar:40}] {pos} of {len} {eta}") {
        bar.set_style(style);
    }
    bar
}

fn name(row: &Row) -> String {
    let order = if row.load.random {
        "random"
    } else {
        "sequential"
    };
    match row.load.reads {
        100 => format!("{order} read"),
        0 => format!("{order} write"),
        _ => format!("{order} mixed"),
    }
}

fn to_text(c: &Characteristics) -> String {
    let rows = c.rows.iter().map(|r| {
        vec![
            r.part.name().to_string(),
            r.what.clone(),
            name(r),
            size::bytes(r.load.bytes),
            r.load.depth.to_string(),
            format!("{:.1}", r.rate / 1e6),
            size::count(r.iops() as u64),
            time(r.mean),
            time(r.p99 as f64),
            time(r.worst as f64),
        ]
    });
    let header = [
        "part", "", "load", "size", "depth", "MB/s", "IOPS", "mean", "p99", "longest",
    ];
    let mut text = format!("{}, {}\n\n", c.subject, size::bytes(c.span));
    text.push_str(&out::table(&header, &[3, 4, 5, 6, 7, 8, 9], rows.collect()));
    text.push('\n');
    let findings = c.findings.iter().filter_map(|f| {
        let ours = format!("{:+.0}%", f.ours? * 100.0);
        Some(vec![f.what.to_string(), ours, f.published.to_string()])
    });
    let header = [
        "finding (throughput, if nothing else is said)",
        "here",
        "published",
    ];
    text.push_str(&out::table(&header, &[1], findings.collect()));
    if let Some(steady) = c.steady {
        let says = if steady { "within" } else { "not within" };
        text.push_str(&format!(
            "the last five windows of random writes are {says} a fifth of their mean\n"
        ));
    }
    if let Some(took) = c.trim_took.filter(|t| *t > 0) {
        text.push_str(&format!(
            "TRIM of half of the space took {}\n",
            time(took as f64)
        ));
    }
    if let Some((counters, wear)) = &c.counters {
        text.push_str("\nwhere the time of pages went:\n");
        text.push_str(&out::table(
            &SHARES,
            &[0, 1, 2, 3, 4],
            vec![shares(&counters.spent)],
        ));
        text.push_str(&format!(
            "{} pages read, {} programmed, {} copied; write amplification {:.2}\n\
             {} blocks erased of {}, at most {} times; at most {} reads of a block since its erase, {} blocks due to be written anew\n",
            size::count(counters.reads),
            size::count(counters.writes),
            size::count(counters.copies),
            counters.write_amplification(),
            size::count(wear.erases),
            size::count(wear.blocks),
            wear.most_erases,
            size::count(wear.most_reads.into()),
            wear.refreshes_due,
        ));
    }
    text
}

fn to_json(c: &Characteristics) -> serde_json::Value {
    let rows: Vec<_> = c
        .rows
        .iter()
        .map(|r| {
            json!({"part": r.part.name(), "what": r.what, "load": name(r), "read_percent": r.load.reads, "random": r.load.random,
                   "bytes": r.load.bytes, "depth": r.load.depth, "requests": r.requests, "bytes_per_s": r.rate, "iops": r.iops(),
                   "mean_ns": r.mean, "p50_ns": r.p50, "p99_ns": r.p99, "max_ns": r.worst})
        })
        .collect();
    let findings: Vec<_> = c
        .findings
        .iter()
        .map(|f| json!({"what": f.what, "change": f.ours, "published": f.published}))
        .collect();
    json!({
        "subject": c.subject, "span_bytes": c.span, "rows": rows, "findings": findings, "steady": c.steady,
        "trim_ns": c.trim_took,
        "nand": c.counters.map(|(n, w)| json!({
            "page_time_ns": n.spent.parts().into_iter().map(|(k, t)| (k.to_string(), json!(t))).collect::<serde_json::Map<_, _>>(),
            "reads": n.reads, "writes": n.writes, "copies": n.copies, "erases": n.erases, "trimmed": n.trimmed,
            "write_amplification": n.write_amplification(), "most_erases": w.most_erases, "most_reads": w.most_reads,
            "refreshes_due": w.refreshes_due,
        })),
    })
}

fn draw(folder: &Path, c: &Characteristics) -> Result<()> {
    let grid = || c.rows.iter().filter(|r| r.part == Part::Grid);
    let lines = |x: fn(&Row) -> f64, y: fn(&Row) -> f64, only: &dyn Fn(&Row) -> bool| {
        let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for row in grid().filter(|r| only(r)) {
            let name = name(row);
            let point = (x(row), y(row));
            match lines.iter_mut().find(|l| l.0 == name) {
                Some(line) => line.1.push(point),
                None => lines.push((name, vec![point])),
            }
        }
        lines
    };
    let low = grid().map(|r| r.load.depth).min().unwrap_or(1);
    let small = grid().map(|r| r.load.bytes).min().unwrap_or(1);
    let part = |part: Part| c.rows.iter().filter(move |r| r.part == part);
    let window = |y: fn(&Row) -> f64| {
        let points = part(Part::OverTime).enumerate();
        points
            .map(|(i, r)| (i as f64 + 1.0, y(r)))
            .collect::<Vec<_>>()
    };
    let mixed = part(Part::Mixed)
        .map(|r| (r.load.reads as f64, r.rate / 1e6))
        .collect();
    let kib = |r: &Row| r.load.bytes as f64 / 1024.0;
    let drawings = [
        (
            "latency.svg",
            "KiB of a request",
            "mean time, ms",
            lines(kib, |r| r.mean / 1e6, &|r| r.load.depth == low),
            true,
        ),
        (
            "throughput.svg",
            "requests under way",
            "MB/s",
            lines(|r| r.load.depth as f64, |r| r.rate / 1e6, &|r| {
                r.load.bytes == small
            }),
            false,
        ),
        (
            "over-time.svg",
            "window of random writes",
            "MB/s",
            vec![("random write".into(), window(|r| r.rate / 1e6))],
            false,
        ),
        (
            "over-time-p99.svg",
            "window of random writes",
            "99th percentile, ms",
            vec![("random write".into(), window(|r| r.p99 as f64 / 1e6))],
            false,
        ),
        (
            "mixed.svg",
            "percent of reads",
            "MB/s",
            vec![("random".into(), mixed)],
            false,
        ),
    ];
    for (file, x, y, lines, logarithmic) in drawings {
        // A single size, depth or window gives no line.
        let points = lines.iter().map(|l| l.1.len()).max().unwrap_or(0);
        if points < 2 {
            continue;
        }
        let drawing = Drawing {
            title: &c.subject,
            x,
            y,
            lines,
            logarithmic,
        };
        plot::write(&folder.join(file), &drawing)?;
    }
    Ok(())
}
