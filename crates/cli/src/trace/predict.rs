//! `penstock trace predict`: aggregations that will come.
use super::whole;
use crate::error::{CliError, Result};
use crate::{out, settings, size};
use clap::Args;
use penstock_sched::learn::{Cost, Limits, Predictor};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Predict which requests can be aggregated when the traced program runs again.
///
/// Two contiguous requests aggregate if serving them together saves more time than the second one comes later. The
/// part of that wait that other requests fill does not count. Device times come from a profile, or are those of
/// a disk.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// A trace, best a merged one.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Device times: what `penstock profile --json` printed [default: 4 ms and 120 MB/s].
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// For programs.
    #[arg(long)]
    json: bool,
}

pub fn predict(args: &PredictArgs) -> Result<()> {
    let (_, events) = whole(&args.trace)?;
    let cost = match &args.profile {
        Some(path) => cost_of(path)?,
        None => Cost::default(),
    };
    let predictor = Predictor::new(&events, cost, Limits::default()).map_err(CliError::new)?;
    let s = predictor.statistics();
    if args.json {
        out::print_json(&json!({
            "requests": s.predicted, "aggregations": s.aggregations, "mean_aggregation": s.mean_aggregation,
            "alpha": s.alpha,
        }));
    } else {
        out::print(&format!(
            "{} requests, {} predicted aggregations, {:.2} requests on average; {:.0}% of waiting time is of use\n",
            size::count(s.predicted),
            size::count(s.aggregations),
            s.mean_aggregation,
            s.alpha * 100.0
        ));
    }
    Ok(())
}

/// Of a profile.
fn cost_of(path: &Path) -> Result<Cost> {
    let profile = settings::profile_in(path)?;
    let wrong = |why: String| settings::no_profile(path, &why);
    let times = settings::times_of(&profile).map_err(wrong)?;
    let curves = times.trim_start_matches("times=");
    curves
        .parse()
        .map_err(|e: penstock_sched::Error| wrong(e.to_string()))
}
