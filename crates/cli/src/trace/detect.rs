//! `penstock trace detect`: the access pattern of each file.
use super::{figures, whole};
use crate::error::{CliError, Result};
use crate::out;
use crate::size::{self, Size};
use clap::Args;
use penstock_sched::learn::{self, AccessPattern, FEATURES, FileVerdict, Look, Tree};
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Detect the access pattern of each file: contiguous, strided or random, in small or large requests; or unlike anything known.
#[derive(Debug, Args)]
pub struct DetectArgs {
    /// Traces; each is looked at alone. A FILE.csv has what `penstock trace show --csv` prints, also of other servers.
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Another decision tree than the delivered one (python/learn/patterns.py makes them).
    #[arg(long, value_name = "FILE")]
    tree: Option<PathBuf>,
    /// Stripe unit, if not the one in the trace.
    #[arg(long, value_name = "SIZE")]
    unit: Option<Size>,
    /// Write the figures of every window, and the pattern that each alone seems to have, to a CSV file, to learn a tree from.
    #[arg(long, value_name = "FILE")]
    windows: Option<PathBuf>,
    /// For programs: one object per file and operation.
    #[arg(long)]
    json: bool,
}

pub fn detect(args: &DetectArgs) -> Result<()> {
    let tree = match &args.tree {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| CliError::io("read", path, e))?;
            Tree::from_json(&text).map_err(|e| CliError::new(format!("{}: {e}", path.display())))?
        }
        None => Tree::builtin().map_err(CliError::new)?,
    };
    let mut windows = match &args.windows {
        Some(path) => Some(Windows::create(path)?),
        None => None,
    };
    for path in &args.traces {
        let (header, events) = whole(path)?;
        let unit = args.unit.map_or(header.unit, |u| u.0);
        if let Some(windows) = &mut windows {
            for look in learn::looks(&events, unit) {
                windows.add(header.server, &look, tree.classify(&look.features).0)?;
            }
        }
        let (files, all) = learn::detect(&events, &tree, unit);
        let name = |p: Option<AccessPattern>| p.map(AccessPattern::name);
        if args.json {
            for f in &files {
                out::print_json(&json!({
                    "trace": path, "file": f.file, "op": f.op.name(), "requests": f.requests, "bytes": f.bytes,
                    "pattern": name(f.pattern), "share": f.share,
                }));
            }
            out::print_json(&json!({"trace": path, "majority": name(all)}));
            continue;
        }
        let row = |f: &FileVerdict| {
            vec![
                f.file.to_string(),
                f.op.name().into(),
                size::count(f.requests),
                size::bytes(f.bytes),
                name(f.pattern).unwrap_or("too few requests").into(),
                if f.pattern.is_some() {
                    format!("{:.0}%", f.share * 100.0)
                } else {
                    "-".into()
                },
            ]
        };
        let header = ["file", "op", "requests", "bytes", "pattern", "sure"];
        out::print(&out::table(
            &header,
            &[0, 2, 3, 5],
            files.iter().map(row).collect(),
        ));
        out::print(&format!(
            "{}: most requests are {}\n",
            path.display(),
            name(all).unwrap_or("too few to tell")
        ));
    }
    windows.map_or(Ok(()), Windows::finish)
}

/// A CSV file of windows.
struct Windows<'a> {
    path: &'a Path,
    file: std::io::BufWriter<std::fs::File>,
}

impl<'a> Windows<'a> {
    fn create(path: &'a Path) -> Result<Windows<'a>> {
        let file = std::fs::File::create(path).map_err(|e| CliError::io("write", path, e))?;
        let mut windows = Windows {
            path,
            file: std::io::BufWriter::new(file),
        };
        let head = format!("server,file,op,requests,detected,{}", FEATURES.join(","));
        windows.line(&head)?;
        Ok(windows)
    }

    fn add(&mut self, server: u32, look: &Look, detected: AccessPattern) -> Result<()> {
        let (file, op, requests) = (look.file, look.op.name(), look.requests);
        let (detected, figures) = (detected.name(), figures(look));
        self.line(&format!(
            "{server},{file},{op},{requests},{detected},{figures}"
        ))
    }

    fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.file, "{text}").map_err(|e| CliError::io("write", self.path, e))
    }

    fn finish(mut self) -> Result<()> {
        let flushed = self.file.flush();
        flushed.map_err(|e| CliError::io("write", self.path, e))
    }
}
