//! `penstock trace sql`: questions in SQL, answered by DuckDB over the trace's Parquet tables.
use super::question::{asked, open};
use crate::error::{CliError, Result};
use crate::{out, python};
use clap::Args;
use penstock_analysis::parquet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Ask a trace in SQL, with the views events, calls, requests, devices and files (docs/understand/trace-schema.md).
///
/// DuckDB answers: its Python package, or the command `duckdb`. The tables are made for the first question and kept in the
/// trace's directory (`tables`) until the trace changes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock trace sql stack \"select layer, count(*), sum(bytes) from events group by layer\"
  penstock trace sql stack --csv \"select server, avg(queue_ns) from requests group by server\"")]
pub struct SqlArgs {
    /// The trace: a directory; or the directory that `penstock trace export --parquet` made.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The question; `-`: from standard input, where other users of the host do not see it.
    #[arg(value_name = "QUERY", allow_hyphen_values = true)]
    query: String,
    /// Only read, and only the trace's tables: no other files, no settings, no extensions.
    #[arg(long)]
    locked: bool,
    /// For programs: one object with `rows` and `notes`.
    #[arg(long)]
    json: bool,
    /// As CSV with a header line.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Where tables are kept in a trace.
const TABLES: &str = "tables";

pub fn sql(args: &SqlArgs) -> Result<()> {
    let (tables, notes, _temporary) = tables(&args.trace)?;
    let form = match (args.json, args.csv) {
        (true, _) => "json",
        (_, true) => "csv",
        _ => "table",
    };
    let mut words: Vec<OsString> = vec![
        "sql".into(),
        tables.into(),
        args.query.clone().into(),
        "--form".into(),
        form.into(),
    ];
    if args.locked {
        words.push("--locked".into());
    }
    for note in notes {
        words.push("--note".into());
        words.push(note.into());
    }
    let status = python::run("trace", &words)?;
    match status.code() {
        Some(0) => Ok(()),
        // What went wrong was told.
        _ => std::process::exit(1),
    }
}

type Kept = (PathBuf, Vec<String>, Option<tempfile::TempDir>);

/// The directory with a trace's tables, made if they are not there or older than the trace.
fn tables(path: &Path) -> Result<Kept> {
    if path.join("events").is_dir() && path.join("requests").is_dir() {
        return Ok((path.to_owned(), Vec::new(), None));
    }
    let trace = open(path)?;
    let notes = || trace.notes.iter().map(str::to_owned).collect();
    if !path.is_dir() {
        let place = tempfile::tempdir()
            .map_err(|e| CliError::new(format!("no temporary directory: {e}")))?;
        parquet(&trace, place.path()).map_err(asked)?;
        return Ok((place.path().to_owned(), notes(), Some(place)));
    }
    let kept = path.join(TABLES);
    let changed = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    let newest = trace
        .parts
        .iter()
        .filter_map(|part| changed(part.stream.path()))
        .max();
    if changed(&kept.join("whole")) > newest {
        return Ok((kept, notes(), None));
    }
    let cannot = |e| {
        CliError::io("write", &kept, e)
            .next("`penstock trace export --parquet DIR` writes tables elsewhere")
    };
    if kept.exists() {
        std::fs::remove_dir_all(&kept).map_err(cannot)?;
    }
    let new = path.join(format!("{TABLES}.new-{}", std::process::id()));
    let made = parquet(&trace, &new);
    if made.is_err() {
        let _ = std::fs::remove_dir_all(&new);
    }
    let (rows, problems) = made.map_err(asked)?;
    std::fs::write(new.join("whole"), format!("{rows}\n")).map_err(cannot)?;
    std::fs::rename(&new, &kept).map_err(cannot)?;
    problems.iter().for_each(out::note);
    Ok((kept, notes(), None))
}
