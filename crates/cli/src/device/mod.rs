//! `penstock device`: storage devices, modelled and real.
//!
//! ```text
//! characterise.rs  the suite on a model or a directory      figure.rs  the figures of docs/understand/flash.md
//! replay.rs        block traces on a model                  plot.rs    drawings
//! ```
mod characterise;
mod figure;
mod plot;
mod replay;

use crate::error::Result;
use crate::out;
use clap::{Args, Subcommand};
use penstock_device::Model;
use penstock_device::nand::Spent;
use std::process::ExitCode;

/// Storage devices: characterise a model or a directory, replay block traces, reproduce the figures on flash.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    #[command(subcommand)]
    command: DeviceCommand,
}

#[derive(Debug, Subcommand)]
enum DeviceCommand {
    Characterise(characterise::CharacteriseArgs),
    Replay(replay::ReplayArgs),
    Figure(figure::FigureArgs),
    /// List the models and their options.
    Models,
}

/// Runs `penstock device`.
pub fn device(args: &DeviceArgs) -> Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match &args.command {
        DeviceCommand::Characterise(args) => characterise::characterise(args),
        DeviceCommand::Replay(args) => replay::replay(args).map(done),
        DeviceCommand::Figure(args) => figure::figure(args).map(done),
        DeviceCommand::Models => {
            out::print(&Model::help());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Nanoseconds as microseconds or milliseconds.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

/// Shares of the time of pages, as text: array, bus, queue, collection, map.
fn shares(spent: &Spent) -> Vec<String> {
    let total = spent.total().max(1) as f64;
    let share = |(_, t): (&str, u64)| format!("{:.1}%", t as f64 * 100.0 / total);
    spent.parts().into_iter().map(share).collect()
}

/// Names of the columns of `shares`.
const SHARES: [&str; 5] = ["array", "bus", "queue", "collection", "map"];
