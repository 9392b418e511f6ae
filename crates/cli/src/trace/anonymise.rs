//! `penstock trace anonymise`: a trace to hand to others.
use super::question::{asked, open};
use super::told;
use crate::error::{CliError, Result};
use crate::{out, size};
use clap::Args;
use penstock_analysis::anonymise as write;
use serde_json::json;
use std::path::PathBuf;

/// Write a copy of a trace without names: of files, hosts, users, jobs, commands and modules.
///
/// Equal names become equal words, which are keyed with a random key that is not kept. Sizes, offsets, times, functions and
/// code addresses stay. Files keep the depth of their path and their suffix.
#[derive(Debug, Args)]
pub struct AnonymiseArgs {
    /// The trace: a directory, or one file of it.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Directory for the copy; it must not exist.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// For programs.
    #[arg(long)]
    json: bool,
}

pub fn anonymise(args: &AnonymiseArgs) -> Result<()> {
    let trace = open(&args.trace)?;
    if args.output.exists() {
        return Err(
            CliError::new(format!("{} exists", args.output.display())).next("name a new directory")
        );
    }
    penstock_trace::make_directory(&args.output).map_err(|e| told(&e))?;
    let mut key = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut key))
        .map_err(|e| CliError::new(format!("no random numbers: {e}")))?;
    let word = |text: &str| {
        let hash = blake3::keyed_hash(&key, text.as_bytes()).to_hex();
        hash[..10].to_string()
    };
    let (records, notes) = write(&trace, &args.output, &word).map_err(asked)?;
    if args.json {
        let notes: Vec<&str> = trace.notes.iter().chain(notes.iter()).collect();
        out::print_json(&json!({"output": args.output, "records": records, "notes": notes}));
        return Ok(());
    }
    out::line(format_args!(
        "{}: {} records",
        args.output.display(),
        size::count(records)
    ));
    for note in trace.notes.iter().chain(notes.iter()) {
        out::line(format_args!("note: {note}"));
    }
    Ok(())
}
