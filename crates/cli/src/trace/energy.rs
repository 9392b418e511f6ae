//! `penstock trace energy`: what the servers' devices took, from the power they draw.
use super::answer::{Answer, Kind, share};
use super::question::Question;
use crate::error::{CliError, Result};
use clap::Args;

/// Energy of the servers' devices: active power while they work, idle power the rest of the run (IT 1).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace energy traces/run --active 10.5 --idle 6.1")]
pub struct EnergyArgs {
    #[command(flatten)]
    question: Question,
    /// Power of a device that works, watts.
    #[arg(long, value_name = "WATTS")]
    active: f64,
    /// Power of a device that does not, watts.
    #[arg(long, value_name = "WATTS")]
    idle: f64,
}

pub fn energy(args: &EnergyArgs) -> Result<()> {
    args.question.about_groups("penstock trace breakdown")?;
    for (name, watts) in [("--active", args.active), ("--idle", args.idle)] {
        if !watts.is_finite() || watts < 0.0 {
            return Err(CliError::new(format!(
                "{name} {watts} is no power: give watts, 0 or more"
            )));
        }
    }
    let (trace, summary) = args.question.summary()?;
    let span = summary.span();
    let mut answer = Answer::new(&[
        ("server", Kind::Text),
        ("of", Kind::Text),
        ("busy", Kind::Time),
        ("idle", Kind::Time),
        ("busy share", Kind::Share),
        ("joules", Kind::Figure),
    ]);
    let mut sum = 0.0;
    for server in &summary.servers {
        if args
            .question
            .call
            .server
            .is_some_and(|s| s != server.server)
        {
            continue;
        }
        let idle = span.saturating_sub(server.busy);
        let joules = (args.active * server.busy as f64 + args.idle * idle as f64) / 1e9;
        sum += joules;
        answer.push(row![
            server.server.to_string(),
            if server.has_device { "device" } else { "store" },
            server.busy,
            idle,
            share(server.busy, span),
            joules,
        ]);
    }
    answer.total("time of the run", Kind::Time, span);
    answer.total("joules", Kind::Figure, sum);
    if args.question.call.rank.is_some() {
        answer.note("devices work for all processes: --call chooses servers alone here");
    }
    args.question.print(answer, &trace, &summary.problems)
}
