//! Which methods MPI-IO chose for each file, and why: from the run's summary, which `penstock run --trace` writes
//! beside the trace.
use super::data::short;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

/// The run's summary in a trace's directory, as `penstock report RUN --json` prints it.
pub const RUN: &str = "run.json";
/// A longer file is not read.
const MOST_BYTES: u64 = 16 << 20;
/// Rows of the table: those with the most bytes.
const ROWS: usize = 100;

/// Of the summary, what the page shows. What is missing in it is left out of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Run {
    pub exit_code: i32,
    summary: Summary,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Summary {
    files: Vec<File>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    path: String,
    read: Direction,
    write: Direction,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Direction {
    methods: BTreeMap<String, Counts>,
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Counts {
    calls: u64,
    bytes: u64,
    operations: u64,
    accessed_bytes: u64,
    resent_bytes: u64,
}

/// What a method did with a file.
#[derive(Debug, Serialize)]
pub(super) struct MethodRow {
    file: String,
    direction: &'static str,
    method: String,
    calls: u64,
    bytes: u64,
    operations: u64,
    /// File bytes that the operations covered: more than `bytes` with data sieving.
    accessed: u64,
    /// Bytes handed to other ranks.
    resent: u64,
    reason: String,
}

impl Run {
    /// The summary in a trace's directory; `None` if there is none that can be read.
    pub fn beside(trace: &Path) -> Option<Run> {
        let file = std::fs::File::open(trace.join(RUN)).ok()?;
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// A row for each file, direction and method; most bytes first.
    pub fn methods(self) -> Vec<MethodRow> {
        let mut rows = Vec::new();
        for file in self.summary.files {
            for (direction, name) in [(file.write, "write"), (file.read, "read")] {
                for (method, counts) in direction.methods {
                    rows.push(MethodRow {
                        file: short(&file.path),
                        direction: name,
                        method: short(&method),
                        calls: counts.calls,
                        bytes: counts.bytes,
                        operations: counts.operations,
                        accessed: counts.accessed_bytes,
                        resent: counts.resent_bytes,
                        reason: direction.reason.chars().take(400).collect(),
                    });
                }
            }
        }
        rows.sort_by_key(|row| Reverse(row.bytes));
        rows.truncate(ROWS);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_gives_a_row_for_each_method() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Run::beside(dir.path()).is_none());
        let text = r#"{"exit_code": 3, "other": [], "summary": {"files": [
            {"path": "/a", "write": {"reason": "cheapest", "methods": {"list": {"calls": 2, "bytes": 10}, "two-phase": {"bytes": 20}}}},
            {"path": "/b", "read": {"methods": {"list": {"bytes": 15}}}}]}}"#;
        std::fs::write(dir.path().join(RUN), text).unwrap();
        let run = Run::beside(dir.path()).unwrap();
        assert_eq!(run.exit_code, 3);
        let rows = run.methods();
        let told: Vec<_> = rows
            .iter()
            .map(|r| (r.file.as_str(), r.direction, r.method.as_str(), r.bytes))
            .collect();
        assert_eq!(
            told,
            [
                ("/a", "write", "two-phase", 20),
                ("/b", "read", "list", 15),
                ("/a", "write", "list", 10)
            ]
        );
        assert_eq!(rows[0].reason, "cheapest");
        std::fs::write(dir.path().join(RUN), "half of {").unwrap();
        assert!(Run::beside(dir.path()).is_none());
    }
}
