//! `penstock trace convert`: an old trace in today's format.
use super::told;
use crate::error::Result;
use crate::{out, size};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write a trace of format 1 or 2 anew in today's format.
///
/// What is readable of a damaged or unfinished trace is converted; the exit code is then 1.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace convert old/data-0.trace new/data-0.trace")]
pub struct ConvertArgs {
    /// The old trace. It stays.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// Where to write the new one; nothing may be there.
    #[arg(value_name = "NEW")]
    new: PathBuf,
}

pub fn convert(args: &ConvertArgs) -> Result<ExitCode> {
    let (written, damage) = penstock_trace::convert(&args.old, &args.new).map_err(|e| told(&e))?;
    out::print(&format!(
        "{}: {} records, {}\n",
        args.new.display(),
        size::count(written.events),
        size::bytes(written.bytes)
    ));
    Ok(match damage {
        None => ExitCode::SUCCESS,
        Some(e) => {
            out::note(e);
            ExitCode::FAILURE
        }
    })
}
