//! `penstock device figure`: the figures of docs/understand/flash.md, with fixed parameters.
use super::{SHARES, shares, time};
use crate::error::{CliError, Result};
use crate::out;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use penstock_device::nand::figure::{
    BURSTS, Burdened, COLLECTORS, LOADS, Outcome, amplification, burst, collection_device,
    memories, order_device, run,
};
use penstock_device::nand::{AllocationOrder, Nand, NandOptions, Spent};
use penstock_device::{Device, DeviceKind, Model, Op, Request, closed_loop, random_addresses};
use serde_json::json;

/// Reproduce a figure on flash or resistive memory with its fixed devices and loads (docs/understand/flash.md).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock device figure amplification     write amplification beside the closed form
  penstock device figure orders            24 allocation orders under six loads
  penstock device figure collection        advanced and delayed collection beside P-, L- and H-FTL
  penstock device figure rram              resistive memory beside flash
  penstock device figure time              where the time of pages goes, by load
  penstock device figure speed             page operations the model does in a second of processor time")]
pub struct FigureArgs {
    figure: Figure,
    /// For programs.
    #[arg(long)]
    json: bool,
    /// No progress bar.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    Amplification,
    Orders,
    Collection,
    Rram,
    Time,
    Speed,
}

pub fn figure(args: &FigureArgs) -> Result<()> {
    match args.figure {
        Figure::Amplification => amplified(args),
        Figure::Orders => orders(args),
        Figure::Collection => collection(args),
        Figure::Rram => rram(args),
        Figure::Time => times(args),
        Figure::Speed => speed(args),
    }
}

fn options(name: &str) -> Result<NandOptions> {
    match Model::parse(name).map_err(CliError::new)?.kind {
        DeviceKind::Nand(options) => Ok(*options),
        _ => Err(CliError::new(format!("{name} is no NAND model"))),
    }
}

fn bar(args: &FigureArgs, length: usize) -> ProgressBar {
    if args.quiet {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new(length as u64);
    if let Ok(style) = ProgressStyle::with_template("runs [{bar:40}] {pos} of {len} {eta}") {
        bar.set_style(style);
    }
    bar
}

fn percent(ratio: f64) -> String {
    if !ratio.is_finite() {
        // There is no value to compare with.
        return "-".into();
    }
    format!("{:+.1}%", (ratio - 1.0) * 100.0)
}

/// Pages of a block; the closed form is the limit of large blocks.
const BLOCKS: [u32; 4] = [64, 256, 512, 1024];

fn amplified(args: &FigureArgs) -> Result<()> {
    let nand = options("nand")?;
    let spares = [0.07, 0.15, 0.28];
    let bar = bar(args, spares.len() * BLOCKS.len());
    let mut rows = Vec::new();
    for spare in spares {
        for pages in BLOCKS {
            let (ours, formula) = amplification(&nand, spare, pages).map_err(CliError::new)?;
            bar.inc(1);
            if args.json {
                out::print_json(
                    &json!({"spare": spare, "pages_per_block": pages, "simulated": ours, "formula": formula}),
                );
            }
            rows.push(vec![
                format!("{:.0}%", spare * 100.0),
                pages.to_string(),
                format!("{ours:.3}"),
                format!("{formula:.3}"),
                percent(ours / formula),
            ]);
        }
    }
    bar.finish_and_clear();
    if !args.json {
        let header = [
            "spare share",
            "pages of a block",
            "simulated",
            "formula",
            "difference",
        ];
        out::print(&out::table(&header, &[0, 1, 2, 3, 4], rows));
    }
    Ok(())
}

/// Ranks of the values; 1 for the largest.
fn ranks(values: &[f64]) -> Vec<usize> {
    values
        .iter()
        .map(|v| values.iter().filter(|o| *o > v).count() + 1)
        .collect()
}

fn orders(args: &FigureArgs) -> Result<()> {
    let nand = order_device(&options("nand")?);
    let all = AllocationOrder::all();
    let bar = bar(args, all.len() * LOADS.len());
    let mut found: Vec<Vec<Outcome>> = Vec::new();
    for order in &all {
        let device = NandOptions {
            order: *order,
            ..nand.clone()
        };
        let mut outcomes = Vec::new();
        for load in &LOADS {
            outcomes.push(run(&device, load).map_err(CliError::new)?);
            bar.inc(1);
        }
        found.push(outcomes);
    }
    bar.finish_and_clear();
    let rate = |order: usize, load: usize| found[order][load].rate / 1e6;
    // The mean over the loads of the share of the best order's throughput.
    let best: Vec<f64> = (0..LOADS.len())
        .map(|l| (0..all.len()).map(|o| rate(o, l)).fold(0.0, f64::max))
        .collect();
    let means: Vec<f64> = (0..all.len())
        .map(|o| (0..LOADS.len()).map(|l| rate(o, l) / best[l]).sum::<f64>() / LOADS.len() as f64)
        .collect();
    let rank = ranks(&means);
    // Array and channels at work, and the share of commands with several planes, over all loads.
    let busy = |o: usize| {
        let of = |f: fn(&Outcome) -> f64| found[o].iter().map(f).sum::<f64>() / LOADS.len() as f64;
        (
            of(|r| r.counters.array_busy as f64 / (r.elapsed * r.counters.dies) as f64),
            of(|r| r.counters.channel_busy as f64 / (r.elapsed * r.counters.channels) as f64),
            of(|r| {
                let pages = (r.counters.reads + r.counters.writes).max(1);
                2.0 * r.counters.multiplane as f64 / pages as f64
            }),
        )
    };
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|o| rank[*o]);
    if args.json {
        for o in order {
            let (array, channel, multiplane) = busy(o);
            let rates: Vec<f64> = found[o].iter().map(|r| r.rate).collect();
            out::print_json(
                &json!({"order": all[o].to_string(), "rank": rank[o], "share_of_best": means[o], "bytes_per_s": rates,
                "array_busy": array, "channel_busy": channel, "multiplane": multiplane,
                "loads": LOADS.iter().map(|l| l.name).collect::<Vec<_>>()}),
            );
        }
        return Ok(());
    }
    let rows = order.iter().map(|o| {
        let (array, channel, multiplane) = busy(*o);
        let mut row = vec![
            rank[*o].to_string(),
            all[*o].to_string(),
            format!("{:.3}", means[*o]),
        ];
        row.extend((0..LOADS.len()).map(|l| format!("{:.0}", rate(*o, l))));
        row.extend([array, channel, multiplane].map(|s| format!("{:.0}%", s * 100.0)));
        row
    });
    let header = [
        "rank",
        "order",
        "of best",
        "A",
        "B",
        "C",
        "D",
        "E",
        "F",
        "arrays",
        "channels",
        "multiplane",
    ];
    out::print(&out::table(
        &header,
        &[0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        rows.collect(),
    ));
    for (letter, load) in ["A", "B", "C", "D", "E", "F"].iter().zip(&LOADS) {
        out::line(format_args!("{letter}: {}, MB/s", load.name));
    }
    Ok(())
}

fn collection(args: &FigureArgs) -> Result<()> {
    let nand = options("nand")?;
    let bar = bar(args, COLLECTORS.len() * BURSTS.len());
    let mut found: Vec<Vec<Burdened>> = Vec::new();
    for load in &BURSTS {
        let mut row = Vec::new();
        for collector in &COLLECTORS {
            let device = collection_device(&nand, collector);
            row.push(burst(&device, load).map_err(CliError::new)?);
            bar.inc(1);
        }
        found.push(row);
    }
    bar.finish_and_clear();
    let ours = COLLECTORS.len() - 1;
    if args.json {
        for (load, row) in BURSTS.iter().zip(&found) {
            for (collector, b) in COLLECTORS.iter().zip(row) {
                out::print_json(
                    &json!({"load": load.name, "collector": collector.name, "waited_ns_per_page": b.waited,
                    "mean_ns": b.mean, "p99_ns": b.p99, "write_amplification": b.amplification,
                    "ours_against_it": row[ours].waited / b.waited - 1.0}),
                );
            }
        }
        return Ok(());
    }
    for (load, row) in BURSTS.iter().zip(&found) {
        out::line(load.name);
        let rows = COLLECTORS.iter().zip(row).map(|(collector, b)| {
            vec![
                collector.name.to_string(),
                time(b.waited),
                percent(row[ours].waited / b.waited),
                time(b.mean),
                time(b.p99 as f64),
                format!("{:.2}", b.amplification),
            ]
        });
        let header = [
            "collector",
            "waited a page",
            "ours against it",
            "mean",
            "p99",
            "amplification",
        ];
        out::print(&out::table(&header, &[1, 2, 3, 4, 5], rows.collect()));
        out::line("");
    }
    let rows = COLLECTORS[..3].iter().enumerate().map(|(i, collector)| {
        let ratios = found.iter().map(|row| row[ours].waited / row[i].waited);
        let mean = ratios.sum::<f64>() / found.len() as f64;
        let published = ["-66.7%", "-96.7%", "-98.2%"][i];
        vec![collector.name.to_string(), percent(mean), published.into()]
    });
    let header = [
        "advanced and delayed against",
        "mean of the loads",
        "published",
    ];
    out::print(&out::table(&header, &[1, 2], rows.collect()));
    Ok(())
}

fn rram(args: &FigureArgs) -> Result<()> {
    let steps = memories(&options("nand")?, &options("rram")?);
    let bar = bar(args, steps.len() * LOADS.len());
    let mut flash: Vec<Outcome> = Vec::new();
    let mut rows = Vec::new();
    for (name, device) in &steps {
        for (i, load) in LOADS.iter().enumerate() {
            let outcome = run(device, load).map_err(CliError::new)?;
            bar.inc(1);
            if flash.len() == i {
                flash.push(outcome.clone());
            }
            let bandwidth = outcome.rate / flash[i].rate;
            let latency = outcome.mean / flash[i].mean;
            if args.json {
                out::print_json(
                    &json!({"memory": name, "load": load.name, "bytes_per_s": outcome.rate, "mean_ns": outcome.mean,
                    "bandwidth_ratio": bandwidth, "latency_change": latency - 1.0}),
                );
            }
            rows.push(vec![
                name.to_string(),
                load.name.to_string(),
                format!("{:.0}", outcome.rate / 1e6),
                time(outcome.mean),
                format!("{bandwidth:.2}"),
                percent(latency),
            ]);
        }
    }
    bar.finish_and_clear();
    if !args.json {
        let header = ["memory", "load", "MB/s", "mean", "times NAND", "latency"];
        out::print(&out::table(&header, &[2, 3, 4, 5], rows));
        out::line("published for the last: 2.95 to 8.28 times the bandwidth, -66 to -88% latency");
    }
    Ok(())
}

fn times(args: &FigureArgs) -> Result<()> {
    let nand = options("nand,buffer=0,read-ahead=0")?;
    let mut rows = Vec::new();
    let bar = bar(args, LOADS.len());
    for load in &LOADS {
        let outcome = run(&nand, load).map_err(CliError::new)?;
        bar.inc(1);
        let spent: &Spent = &outcome.counters.spent;
        if args.json {
            let parts = spent
                .parts()
                .into_iter()
                .map(|(n, t)| (n.to_string(), json!(t)));
            out::print_json(
                &json!({"load": load.name, "page_time_ns": parts.collect::<serde_json::Map<_, _>>(),
                "bytes_per_s": outcome.rate, "mean_ns": outcome.mean, "p99_ns": outcome.p99}),
            );
        }
        let mut row = vec![load.name.to_string()];
        row.extend(shares(spent));
        row.extend([
            format!("{:.0}", outcome.rate / 1e6),
            time(outcome.mean),
            time(outcome.p99 as f64),
        ]);
        rows.push(row);
    }
    bar.finish_and_clear();
    if !args.json {
        let mut header = vec!["load"];
        header.extend(SHARES);
        header.extend(["MB/s", "mean", "p99"]);
        out::print(&out::table(&header, &[1, 2, 3, 4, 5, 6, 7, 8], rows));
    }
    Ok(())
}

/// Requests of one run of the speed figure.
const SPEED_REQUESTS: u64 = 50_000;
/// Runs of the speed figure; their median is used.
const SPEED_RUNS: usize = 5;

/// Processor time of this thread in seconds: other programs on the machine do not affect it.
fn processor_time() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn speed(args: &FigureArgs) -> Result<()> {
    let mut rows = Vec::new();
    for (name, reads, random) in [
        ("random writes of a page, steady state", 0, true),
        ("random reads of a page", 100, true),
        ("sequential writes of 64 KiB", 0, false),
    ] {
        let mut rates: Vec<f64> = Vec::new();
        for seed in 0..SPEED_RUNS as u64 {
            let mut nand =
                Nand::new(options("nand,buffer=0,read-ahead=0")?).map_err(CliError::new)?;
            let bytes = if random { 8 << 10 } else { 64 << 10 };
            let mut address = random_addresses(seed + 1, nand.capacity(), bytes);
            let span = nand.capacity() / bytes;
            let began = processor_time();
            closed_loop(&mut nand, 64, SPEED_REQUESTS, 0, |i| Request {
                id: 0,
                op: if reads == 100 { Op::Read } else { Op::Write },
                address: if random { address() } else { i % span * bytes },
                bytes,
                process: 0,
            });
            let took = (processor_time() - began).max(1e-9);
            rates.push(nand.counters().operations() as f64 / took);
        }
        rates.sort_by(f64::total_cmp);
        let (low, median, high) = (rates[0], rates[SPEED_RUNS / 2], rates[SPEED_RUNS - 1]);
        if args.json {
            out::print_json(
                &json!({"load": name, "operations_per_s": median, "min": low, "max": high}),
            );
        }
        let million = |n: f64| format!("{:.2}", n / 1e6);
        rows.push(vec![
            name.to_string(),
            million(median),
            million(low),
            million(high),
        ]);
    }
    if !args.json {
        let header = ["load", "10^6 page operations/s, median", "least", "most"];
        out::print(&out::table(&header, &[1, 2, 3], rows));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_device::nand::figure::quantile;

    #[test]
    fn ranks_share_places() {
        assert_eq!(ranks(&[1.0, 3.0, 2.0, 3.0]), [4, 1, 3, 1]);
        assert_eq!(percent(0.333), "-66.7%");
        assert_eq!(percent(1.0 / 0.0), "-");
        assert_eq!(quantile(&[1, 2, 3, 4], 0.5), 2);
    }
}
