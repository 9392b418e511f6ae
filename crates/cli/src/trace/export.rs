//! `penstock trace export`: a trace for other tools.
use super::question::{asked, open};
use super::told;
use crate::error::{CliError, Result};
use crate::{out, size};
use clap::{ArgGroup, Args};
use penstock_analysis::{darshan, parquet, perfetto};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Write a trace in the form of other tools: Parquet tables, Perfetto's viewer, or a Darshan log.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("form").required(true), after_help = "\
Examples:
  penstock trace export stack --parquet tables          for DuckDB, pandas, Spark (docs/understand/trace-schema.md)
  penstock trace export stack --perfetto view           drop the files into ui.perfetto.dev, one at a time
  penstock trace export stack --darshan stack.darshan   for PyDarshan, darshan-parser and Drishti")]
pub struct ExportArgs {
    /// The trace: a directory, or one file of it.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Tables events, calls, requests, devices and files, in a new directory.
    #[arg(long, value_name = "DIR", group = "form")]
    parquet: Option<PathBuf>,
    /// Perfetto's protobuf with flows between clients and servers, in shards below 1 GB, in a new directory.
    #[arg(long, value_name = "DIR", group = "form")]
    perfetto: Option<PathBuf>,
    /// A Darshan log of version 3.41, a new file.
    #[arg(long, value_name = "FILE", group = "form")]
    darshan: Option<PathBuf>,
    /// Records of a Perfetto shard [default: 4,000,000].
    #[arg(long, value_name = "N", requires = "perfetto", value_parser = clap::value_parser!(u64).range(1000..=4_000_000))]
    shard: Option<u64>,
    /// For programs.
    #[arg(long)]
    json: bool,
}

pub fn export(args: &ExportArgs) -> Result<()> {
    let trace = open(&args.trace)?;
    let (output, what, notes) = if let Some(dir) = &args.parquet {
        new(dir)?;
        let (rows, notes) = parquet(&trace, dir).map_err(asked)?;
        (dir, json!({"events": rows}), notes)
    } else if let Some(dir) = &args.perfetto {
        new(dir)?;
        let written = perfetto(&trace, dir, args.shard).map_err(asked)?;
        let facts =
            json!({"files": written.files, "records": written.records, "flows": written.flows});
        (dir, facts, written.notes)
    } else if let Some(file) = &args.darshan {
        let (calls, notes) = darshan(&trace, file).map_err(asked)?;
        (file, json!({"calls": calls}), notes)
    } else {
        return Err(CliError::new("no form is given"));
    };
    let notes: Vec<&str> = trace.notes.iter().chain(notes.iter()).collect();
    if args.json {
        out::print_json(&json!({"output": output, "written": what, "notes": notes}));
        return Ok(());
    }
    let counts: Vec<String> = ["events", "records", "flows", "calls"]
        .iter()
        .filter_map(|name| Some(format!("{} {name}", size::count(what[name].as_u64()?))))
        .collect();
    out::line(format_args!("{}: {}", output.display(), counts.join(", ")));
    for note in notes {
        out::line(format_args!("note: {note}"));
    }
    Ok(())
}

/// Makes a directory that is not there, or takes an empty one.
fn new(dir: &Path) -> Result<()> {
    let is_empty = std::fs::read_dir(dir).map(|mut entries| entries.next().is_none());
    match is_empty {
        Ok(false) => {
            Err(CliError::new(format!("{} is not empty", dir.display()))
                .next("name a new directory"))
        }
        Ok(true) => Ok(()),
        Err(_) => penstock_trace::make_directory(dir).map_err(|e| told(&e)),
    }
}
