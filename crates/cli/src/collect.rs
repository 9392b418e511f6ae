//! `penstock collect`: writes down what traced processes of this host record. `penstock run --trace` starts it, and on other hosts
//! the first process that finds none (`interpose/src/process.c`).
//!
//! With `--until-told` it says `ready` on standard output and goes on until standard input ends. Then it says what was collected,
//! as one line of JSON.
use crate::error::{CliError, Result};
use crate::out;
use crate::size::Size;
use clap::Args;
use penstock_collect::{Collector, Error, Options};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The largest size of a trace's parts of one host, where nobody says.
pub const LIMIT: u64 = 4 << 30;
/// The same, in a process's environment.
pub const LIMIT_VARIABLE: &str = "PENSTOCK_TRACE_LIMIT";

#[derive(Debug, Args)]
pub struct CollectArgs {
    /// Where the trace goes.
    pub directory: PathBuf,
    /// Go on until standard input ends.
    #[arg(long)]
    pub until_told: bool,
}

/// What the collector says at the end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Collected {
    pub parts: u64,
    pub records: u64,
    pub dropped: u64,
    pub bytes: u64,
    pub limited: bool,
    pub failed: Option<String>,
}

pub fn collect(args: &CollectArgs) -> Result<()> {
    // Ctrl-C at the terminal is for the program: what it does until it ends is collected.
    let _ = rustix::process::setsid();
    let hurry = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&hurry))
            .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let limit = match std::env::var(LIMIT_VARIABLE) {
        Ok(text) if !text.is_empty() => {
            text.parse::<Size>()
                .map_err(|e| CliError::new(format!("{LIMIT_VARIABLE}: {e}")))?
                .0
        }
        _ => LIMIT,
    };
    let options = Options {
        directory: args.directory.clone(),
        limit,
        host: host.trim().into(),
        user: crate::users::name(rustix::process::geteuid().as_raw()).unwrap_or_default(),
        until_told: args.until_told,
    };
    let collector = match Collector::start(options) {
        // It takes what there is for this one, too.
        Err(Error::Busy(_)) if !args.until_told => return Ok(()),
        started => started.map_err(|e| {
            CliError::new(e).next(
            "name a new directory, or one of your own that nobody else may write to, for the trace",
        )
        })?,
    };
    let told = Arc::new(AtomicBool::new(false));
    if args.until_told {
        out::line("ready");
        let told = Arc::clone(&told);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            told.store(true, Ordering::Relaxed);
        });
    }
    let summary = collector.run(&told, &hurry);
    if args.until_told {
        out::print_json(&Collected {
            parts: summary.parts,
            records: summary.records,
            dropped: summary.dropped,
            bytes: summary.bytes,
            limited: summary.limited,
            failed: summary.failed,
        });
    }
    Ok(())
}
