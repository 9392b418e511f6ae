//! `penstock profile`: measures how much faster sequential access is than random access.
mod plot;
mod priority;
mod served;

use crate::deployment;
use crate::error::{CliError, Result};
use crate::names;
use crate::out;
use crate::settings;
use crate::size::{self, Size};
use crate::tune;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use penstock_device::profile::{
    Curve, FileTarget, Interval, ModelTarget, Options, Profile, ProfileError, Progress, Step,
    Target, Times, profile as measure,
};
use penstock_device::{Model, Op};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Targets with this prefix are models.
const MODEL: &str = "model:";
/// Exit code after an interruption, as shells have it.
const INTERRUPTED: u8 = 130;

/// Profile a storage device: sequential-to-random throughput ratio by operation and request size.
///
/// A few request sizes of each interval are measured with direct I/O, sequentially and at random offsets. A line is
/// fitted per interval, which gives all sizes in a small part of the time. In a directory an unnamed file is used; its
/// space is free again however the command ends. An existing file is only read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock profile /data --low-priority              a disk that is in use
  penstock profile /data --file-size 1200MiB --plot disk.svg --json > disk.json
  penstock profile /data --full                      every size too, and the error of the estimate
  penstock profile /data --interval 4KiB-64KiB/4KiB
  penstock profile model:hdd                         a modelled device, on its own time
  penstock profile model:raid,disks=4,unit=256k
  penstock profile penstock:/probe -d /data/fs       a data server, by requests to a file made for that

  penstock profile /data/fs --save -d /data/fs       `ratio` of this deployment, from its disk
  penstock tune sched=tree ratio=disk.json           the same from a saved profile

`penstock trace predict --profile disk.json` uses a profile, too.")]
pub struct ProfileArgs {
    /// A directory, an existing file, model:NAME[,OPTION=VALUE]..., or penstock:/FILE, which is made and removed again
    #[arg(value_name = "TARGET")]
    target: String,
    /// Bytes of the file.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    file_size: Size,
    /// Request sizes as FROM-TO/STEP; may be repeated [default: 8KiB-64KiB/8KiB and 64KiB-4MiB/32KiB].
    #[arg(long = "interval", value_name = "SIZES")]
    intervals: Vec<Sizes>,
    /// Sizes measured in each interval, its ends included.
    #[arg(long, value_name = "N", default_value_t = Options::default().points)]
    points: usize,
    /// Passes over each size of a full measurement; their median counts.
    #[arg(long, value_name = "N", default_value_t = Options::default().repetitions)]
    repetitions: usize,
    /// The estimate takes at most one N-th of the time of a full measurement. Each of its sizes is measured once. It is
    /// measured again, up to 8 times, while there is time and its ratio is not known to 3%.
    #[arg(long, value_name = "N", default_value_t = Options::default().part)]
    part: u64,
    /// Accesses of a pass at most.
    #[arg(long, value_name = "N", default_value_t = Options::default().accesses)]
    accesses: u64,
    /// Bytes written before a pass of writes is measured: they fill the device's cache.
    #[arg(long, value_name = "SIZE", default_value = "8MiB")]
    warm_up: Size,
    /// Measure all sizes by passes over the whole file too, and report the error of the estimate.
    #[arg(long)]
    full: bool,
    /// Yield to all other users of the disk and the processor.
    #[arg(long)]
    low_priority: bool,
    /// Through the page cache, where there is no direct I/O.
    #[arg(long)]
    buffered: bool,
    /// Choice of sizes and offsets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw times and ratios to this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Set the ratio at the stripe unit's size as `ratio` of the deployment (-d), for servers that choose their
    /// scheduling algorithm. It is set in the deployment file and in running servers.
    #[arg(long)]
    save: bool,
    /// For programs: curves, lines and ratios of all sizes.
    #[arg(long)]
    json: bool,
    /// No progress bar.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy)]
struct Sizes(Interval);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Sizes, String> {
        let wrong =
            || format!("`{text}` is no interval; write FROM-TO/STEP, such as 8KiB-64KiB/8KiB");
        let (ends, step) = text.split_once('/').ok_or_else(wrong)?;
        let (from, to) = ends.split_once('-').ok_or_else(wrong)?;
        let size = |t: &str| t.parse::<Size>().map(|s| s.0);
        Ok(Sizes(Interval {
            from: size(from)?,
            to: size(to)?,
            step: size(step)?,
        }))
    }
}

/// Runs `penstock profile`.
pub fn profile(args: &ProfileArgs, named: Option<&Path>) -> Result<ExitCode> {
    let located = if args.save {
        Some(deployment::find(named)?)
    } else {
        None
    };
    let mut options = Options {
        file: args.file_size.0,
        points: args.points,
        repetitions: args.repetitions,
        part: args.part,
        accesses: args.accesses,
        warm_up: args.warm_up.0,
        full: args.full,
        seed: args.seed,
        ..Options::default()
    };
    if !args.intervals.is_empty() {
        options.intervals = args.intervals.iter().map(|s| s.0).collect();
    }
    let mut target = target(args, named)?;
    if args.low_priority {
        priority::lower().map_err(|e| CliError::new(format!("cannot lower the priority: {e}")))?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    }
    let bar = bar(args);
    let result = measure(target.as_mut(), &options, &mut |p| {
        show(&bar, p);
        !stop.load(Relaxed)
    });
    bar.finish_and_clear();
    let done = match result {
        Ok(done) => done,
        Err(e @ ProfileError::Stopped) => {
            out::note(e);
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(e) => return Err(CliError::new(e)),
    };
    if let Some(path) = &args.plot {
        let svg = plot::draw(&done).map_err(|e| CliError::new(format!("cannot draw: {e}")))?;
        std::fs::write(path, svg).map_err(|e| CliError::io("write", path, e))?;
    }
    let value = to_json(&done, &options);
    if args.json {
        out::print_json(&value)
    } else {
        out::print(&to_text(&done))
    }
    if let Some(located) = located {
        let unit = located.deployment.stripe_unit;
        let setting = settings::ratio_of(&value, unit).map_err(CliError::new)?;
        let times = settings::times_of(&value).map_err(CliError::new)?;
        let told = tune::save(named, &[setting.clone(), times])?;
        if !args.json {
            out::line(format_args!(
                "{setting} at {} and times to process, saved in {}; {told} data servers that run have it too",
                size::bytes(unit),
                located.file.display()
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn target(args: &ProfileArgs, named: Option<&Path>) -> Result<Box<dyn Target>> {
    if let Some(text) = args.target.strip_prefix(MODEL) {
        let model = Model::parse(text).map_err(CliError::new)?;
        return Ok(Box::new(ModelTarget::new(text, model.build())));
    }
    if args.target.starts_with(names::PREFIX) {
        let path = names::inside(&args.target);
        let target = served::ServedTarget::make(&deployment::find(named)?, &path)?;
        return Ok(Box::new(target));
    }
    let target = FileTarget::open(Path::new(&args.target), !args.buffered);
    Ok(Box::new(target.map_err(CliError::new)?))
}

fn bar(args: &ProfileArgs) -> ProgressBar {
    if args.quiet {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{msg:12} [{bar:40}] {percent:>3}% {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_message(match progress.step {
        Step::Preparing => "preparing",
        Step::Measuring => "measuring",
        Step::MeasuringAll => "all sizes",
    });
    bar.set_length(progress.total);
    bar.set_position(progress.done);
}

/// If a ratio's relative error is larger, the report says that times vary.
const VARY: f64 = 0.05;

/// Sizes that the table for people shows.
const SHOWN: usize = 12;

fn to_text(p: &Profile) -> String {
    let time = |name: &str, size: u64| {
        let curve = p.curves.iter().find(|c| c.test.name() == name);
        let point = curve.and_then(|c| c.estimated.iter().find(|(s, _)| *s == size));
        point.map_or("-".into(), |(s, t)| size::rate(*s, t / 1e9))
    };
    let sizes: Vec<u64> = p
        .curves
        .first()
        .map(|c| c.estimated.iter().map(|e| e.0).collect())
        .unwrap_or_default();
    let every = sizes.len().div_ceil(SHOWN).max(1);
    let last = sizes.len().saturating_sub(1);
    let rows = sizes
        .iter()
        .enumerate()
        .filter(|(i, _)| i % every == 0 || *i == last)
        .map(|(_, &size)| {
            let mut row = vec![format!("{} KiB", size / 1024)];
            for op in ["read", "write"] {
                row.push(time(&format!("sequential_{op}"), size));
                row.push(time(&format!("random_{op}"), size));
                let summary = p.ratios.iter().find(|r| name(r.op) == op);
                row.push(
                    summary
                        .and_then(|s| s.at(size))
                        .map_or("-".into(), |r| format!("{r:.2}")),
                );
            }
            row
        })
        .collect();
    let header = [
        "size", "read", "random", "ratio", "write", "random", "ratio",
    ];
    let mut text = out::table(&header, &[0, 1, 2, 3, 4, 5, 6], rows);
    for r in &p.ratios {
        text.push_str(&format!(
            "{}: sequential is {:.2} times as fast as random on average ({:.2} to {:.2})\n",
            name(r.op),
            r.mean,
            r.min,
            r.max
        ));
        text.push_str(&match r.interval {
            None => format!(
                "{}: each size was measured once, so the spread of the times is unknown; --part 20 allows more passes\n",
                name(r.op)
            ),
            Some(part) if part > VARY => format!(
                "{}: times vary; the ratio lies between {:.2} and {:.2} (95%); --part 20 allows more passes\n",
                name(r.op),
                r.mean * (1.0 - part).max(0.0),
                r.mean * (1.0 + part)
            ),
            Some(part) => format!("{}: known to {:.1}% (95%)\n", name(r.op), part * 100.0),
        });
    }
    text.push_str(&format!(
        "{}: {} of accesses in a file of {}\n",
        p.target,
        size::duration(p.elapsed as f64 / 1e9),
        size::bytes(p.file)
    ));
    if let Some(d) = p.deviation {
        text.push_str(&format!(
            "all sizes: {}, {:.0} times as long; error of the ratio {:.1}% (median), {:.1}% (largest), of the times {:.1}% (median)\n",
            size::duration(d.elapsed as f64 / 1e9),
            1.0 / d.fraction,
            d.median_ratio * 100.0,
            d.max_ratio * 100.0,
            d.median_time * 100.0
        ));
        if let Some(repeat) = d.repeat {
            text.push_str(&format!(
                "the full measurement's own repetitions differ by {:.1}% (median)\n",
                repeat * 100.0
            ));
        }
    }
    text
}

fn name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
    }
}

fn to_json(p: &Profile, options: &Options) -> serde_json::Value {
    let times = |pick: fn(&Curve) -> Option<&Times>| -> serde_json::Value {
        p.curves
            .iter()
            .filter_map(|c| Some((c.test.name().to_string(), json!(pick(c)?))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let lines: serde_json::Map<String, serde_json::Value> = p
        .curves
        .iter()
        .map(|c| {
            let lines: Vec<_> = c
                .lines
                .iter()
                .map(|l| {
                    json!({"from": l.interval.from, "to": l.interval.to, "step": l.interval.step,
                           "ns_per_byte": l.slope, "ns": l.intercept})
                })
                .collect();
            (c.test.name().to_string(), lines.into())
        })
        .collect();
    let ratios: serde_json::Map<String, serde_json::Value> = p
        .ratios
        .iter()
        .map(|r| {
            let sizes: Vec<_> = r
                .ratios
                .iter()
                .map(|r| json!({"bytes": r.size, "ratio": r.estimated, "measured": r.full}))
                .collect();
            let summary = json!({
                "mean": r.mean, "min": r.min, "max": r.max, "interval": r.interval, "sizes": sizes,
            });
            (name(r.op).to_string(), summary)
        })
        .collect();
    json!({
        "target": p.target, "file_bytes": p.file, "seed": options.seed, "points": options.points,
        "repetitions": options.repetitions, "part": options.part, "elapsed_ns": p.elapsed,
        "ratio": ratios, "times": times(|c| Some(&c.estimated)), "lines": lines,
        "measured": times(|c| Some(&c.measured)), "full": times(|c| c.full.as_ref()),
        "deviation": p.deviation.map(|d| json!({
            "median_ratio": d.median_ratio, "max_ratio": d.max_ratio, "median_time": d.median_time, "repeat": d.repeat,
            "elapsed_ns": d.elapsed, "fraction": d.fraction,
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read() {
        let sizes: Sizes = "8KiB-1MiB/32k".parse().unwrap();
        assert_eq!(
            (sizes.0.from, sizes.0.to, sizes.0.step),
            (8192, 1 << 20, 32768)
        );
        for bad in ["", "8k", "8k-9k", "8k/9k", "a-b/c", "8k-9k/"] {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
    }
}
