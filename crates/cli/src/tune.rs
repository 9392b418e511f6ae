//! `penstock tune`: shows and changes settings of running data servers.
use crate::connect;
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::hosts;
use crate::out;
use crate::settings;
use crate::size;
use clap::Args;
use serde_json::json;
use std::path::Path;

/// Show or change settings of running data servers.
///
/// Queued requests are carried over, and programs go on. Without arguments the present settings are shown.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct TuneArgs {
    /// What to set.
    #[arg(value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
    /// Only this data server; may be repeated.
    #[arg(long = "server", value_name = "ID")]
    pub servers: Vec<u32>,
    /// Write it to the deployment file, for servers that are started later.
    #[arg(long)]
    pub save: bool,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

fn help() -> String {
    format!(
        "\
Settings:
  sched=ALGORITHM        {}
                         noop: none, fastest; tree: by the programs' patterns and the device; online: by what
                         each is seen to give
  tree=T1..T4|own        tree, online: the selection tree that is asked [own]
  objective=WHAT         online: bandwidth, fairness (equal slowdown of programs) or p99 [bandwidth]
  ratio=R                tree, online: sequential / random throughput of the device; READ:WRITE if they differ, or
                         FILE.json from `penstock profile --json` [1: no difference, as in memory and flash]
  trace=on               write served requests to DIR/data-N.trace, from now on; on: a new directory in traces/ of
                         the deployment; DIR; off
  predict=DIR            wait for aggregations that DIR/data-N.trace of an earlier run predicts (mlf, aioli), and
                         know how much is still to come (srtf); off
  times=FILE.json        predict: the device's times to process, from `penstock profile --json`; off
                         [off: those of a disk, 4 ms and 120 MB/s]
  depth=N                virtual requests served at once [4]
  quantum=BYTES          mlf, aioli, wfq: bytes per turn [64KiB]
  aggregation=N          requests joined at most [mlf 200; to-agg, sjf, aioli, srtf 16]
  aggregation_bytes=B    bytes joined at most [16MiB]
  shift_wait=TIME        mlf, aioli: wait for a request that fell behind [1350us]; off
  aggregation_wait=TIME  mlf, aioli: wait for a larger aggregation [900us]; off
  starvation_bound=TIME  sjf, srtf, mlf, aioli: no request waits longer [500ms]; off
  sw_window=TIME         sw [1s]          twins_window=TIME   twins [1ms]
  weights=P:W,...        wfq: shares of programs [1 each]
  fast=auto|on|off       the fast tier takes small writes that are far apart or parts of pages; all; none [auto]
  order_conflicts=on     requests for the same bytes in order of arrival, if one writes [off]

Examples:
  penstock tune sched=aioli quantum=128KiB -d /data/fs
  penstock tune sched=to-agg depth=1 --save          servers started later too
  penstock tune sched=tree ratio=38.9:21.3           the server chooses, for a disk
  penstock tune sched=online objective=p99           it tries and measures; `penstock status` gives the reason
  penstock tune trace=on                             trace a program, then trace=off
  penstock tune sched=aioli predict=/data/fs/traces/1
  penstock tune sched=noop                           as fast as without
  penstock tune                                      what is set now; `penstock status` shows what it does

docs/administer/scheduling.md says when each algorithm pays.",
        penstock_sched::Algorithm::names()
    )
}

/// Changes settings, or shows them.
pub fn tune(args: &TuneArgs, named: Option<&Path>) -> Result<()> {
    let mut located = deployment::find(named)?;
    for server in &args.servers {
        if located
            .deployment
            .server_ids()
            .iter()
            .all(|id| id.0 != *server)
        {
            return Err(CliError::new(format!(
                "{} has no data server {server}",
                located.file.display()
            )));
        }
    }
    if args.settings.is_empty() {
        return show(&located, args);
    }
    let meant = if args.save {
        settings::kept
    } else {
        settings::meant
    };
    let unit = located.deployment.stripe_unit;
    let settings = meant(&args.settings, located.dir(), unit)?;
    // If the words are wrong, no server is changed.
    let all = merged(&located.deployment.tune, &settings);
    penstock_server::check_settings(&settings)
        .and_then(|()| penstock_server::check_settings(&all))
        .map_err(|e| CliError::new(e).next("`penstock tune --help` lists settings"))?;
    let client = connect::administrator(&located)?;
    for id in located.deployment.server_ids() {
        if !args.servers.is_empty() && !args.servers.contains(&id.0) {
            continue;
        }
        client
            .tune(id, &settings)
            .map_err(|e| CliError::new(format!("data server {}: {e}", id.0)))?;
    }
    if args.save {
        located.deployment.tune = all;
        located.save()?;
        if !located.deployment.hosts().is_empty() {
            hosts::distribute(&located)?;
        }
    }
    show(&located, args)
}

/// Writes a setting to the deployment file, and sends it to the running servers. Returns how many those are.
pub fn save(named: Option<&Path>, settings: &[String]) -> Result<usize> {
    let mut located = deployment::find(named)?;
    located.deployment.tune = merged(&located.deployment.tune, settings);
    located.save()?;
    let Ok(client) = connect::administrator(&located) else {
        return Ok(0);
    };
    let ids = located.deployment.server_ids();
    let told = ids.iter().filter(|id| client.tune(**id, settings).is_ok());
    Ok(told.count())
}

/// The settings of the file with changes; the last one of each name is used.
fn merged(old: &[String], new: &[String]) -> Vec<String> {
    let name = |setting: &String| setting.split('=').next().map(str::to_owned);
    let mut all: Vec<String> = Vec::new();
    for setting in old.iter().chain(new) {
        all.retain(|s| name(s) != name(setting));
        all.push(setting.clone());
    }
    all
}

fn show(located: &Located, args: &TuneArgs) -> Result<()> {
    let client = connect::client(located)?;
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for (id, status) in client.data_status() {
        let status = status.map_err(|e| CliError::new(format!("data server {}: {e}", id.0)))?;
        let s = *status.sched;
        let order = if s.order_conflicts { "on" } else { "off" };
        // If the server chooses, the setting is its mode; what it chose is in `penstock status`.
        let sched = s.choice.as_ref().map_or(&s.algorithm, |c| &c.mode).clone();
        let ratio = |milli: u64| milli as f64 / 1e3;
        let by = s.choice.as_ref().map(|c| {
            let (read, write) = (ratio(c.ratio_read_milli), ratio(c.ratio_write_milli));
            (c.tree.clone(), c.objective.clone(), read, write)
        });
        values.push(json!({
            "id": id.0, "sched": sched, "choosing": by.as_ref().map(|(tree, objective, read, write)| json!({
                "tree": tree, "objective": objective, "ratio": { "read": read, "write": write },
            })),
            "fast": status.fast.as_ref().map(|f| f.mode.clone()),
            "depth": s.depth, "quantum": s.quantum, "order_conflicts": s.order_conflicts,
        }));
        rows.push(vec![
            format!("data-{}", id.0),
            sched,
            s.depth.to_string(),
            size::bytes(s.quantum),
            order.into(),
            status.fast.as_ref().map_or("-".into(), |f| f.mode.clone()),
            by.map_or("-".into(), |(tree, objective, read, write)| {
                format!("tree={tree} objective={objective} ratio={read}:{write}")
            }),
        ]);
    }
    if args.json {
        out::print_json(&json!({ "servers": values }));
    } else {
        let header = [
            "server",
            "sched",
            "depth",
            "quantum",
            "order_conflicts",
            "fast",
            "chooses by",
        ];
        out::print(&out::table(&header, &[2, 3], rows));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn the_last_setting_of_a_name_counts() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(Into::into).collect() };
        assert_eq!(
            merged(&words("sched=to depth=4"), &words("sched=sjf quantum=1M")),
            words("depth=4 sched=sjf quantum=1M")
        );
    }
}
