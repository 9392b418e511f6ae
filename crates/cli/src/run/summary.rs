//! The summary at the end of `penstock run`: adds up what the ranks recorded.
//!
//! Counts and bytes are sums over the ranks. The time of a file is the time during which any rank was in a call. A
//! rank's own time would be misleading, because ranks that share processors run one after another. Server counts are
//! this program's: from the ranks' own counts, or the servers' total if the servers are the program's own.
use crate::{out, size};
use penstock_mpiio::{Counts, DirectionSummary, Spans, Summary};
use penstock_wire::message::DataStatus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Files that the summary for people shows: those with the most bytes. The others are added up.
const SHOWN: usize = 10;

/// One run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Ranks that were started.
    ranks: u32,
    /// Processes that used Penstock.
    summaries: usize,
    /// Of these, the processes that did not reach `MPI_Finalize`. What they did in their last second may be missing.
    unfinished: usize,
    /// `penstock` or `direct`.
    file_system: String,
    /// The method that was requested.
    method: String,
    wall_seconds: f64,
    /// Time in I/O calls, mean over the ranks.
    io_seconds: f64,
    files: Vec<FileReport>,
    /// Files that are not in `files` because they have fewer bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files_left_out: Option<usize>,
    servers: Vec<ServerShare>,
}

/// A run in a few figures.
pub struct Totals {
    pub ranks: u32,
    pub wall_seconds: f64,
    /// Bytes written by calls of the listed files.
    pub bytes_written: u64,
    pub bytes_read: u64,
}

/// One file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct FileReport {
    path: String,
    /// Ranks that opened it.
    ranks: usize,
    opens: u64,
    syncs: u64,
    open_seconds: f64,
    sync_seconds: f64,
    read: DirectionReport,
    write: DirectionReport,
}

/// One direction of a file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DirectionReport {
    calls: u64,
    collective_calls: u64,
    bytes: u64,
    /// Time in calls, of the slowest rank.
    seconds: f64,
    /// Time during which any rank was in a call.
    waited_seconds: f64,
    #[serde(skip)]
    when: Spans,
    /// Sum of the ranks' times.
    #[serde(skip)]
    all_seconds: f64,
    methods: BTreeMap<String, Counts>,
    reason: String,
}

/// What one data server did during the run.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct ServerShare {
    server: u32,
    requests: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Only if the servers are the program's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    busy_seconds: Option<f64>,
}

impl Report {
    /// Reads the ranks' summaries in `dir`. `servers`: the counters of the program's own data servers before and after.
    pub fn gather(
        dir: &Path,
        ranks: u32,
        wall: Duration,
        servers: Option<(&[DataStatus], &[DataStatus])>,
    ) -> Report {
        let mut report = Report {
            ranks,
            wall_seconds: wall.as_secs_f64(),
            ..Report::default()
        };
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in entries {
            // A summary whose process ended while it wrote it.
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            match read(&entry.path()) {
                Ok(summary) => report.add(summary),
                Err(why) => crate::out::note(format_args!("{}: {why}", entry.path().display())),
            }
        }
        report.servers.sort_by_key(|s| s.server);
        report.io_seconds /= report.summaries.max(1) as f64;
        report.files.sort_by(|a, b| a.path.cmp(&b.path));
        for file in &mut report.files {
            file.read.wait();
            file.write.wait();
        }
        if let Some((before, after)) = servers {
            report.servers = before.iter().zip(after).map(share).collect();
        }
        report
    }

    fn add(&mut self, summary: Summary) {
        self.summaries += 1;
        self.unfinished += usize::from(!summary.ended);
        for traffic in summary.servers {
            let at = self.servers.iter().position(|s| s.server == traffic.server);
            let at = at.unwrap_or_else(|| {
                self.servers.push(ServerShare {
                    server: traffic.server,
                    ..ServerShare::default()
                });
                self.servers.len() - 1
            });
            let share = &mut self.servers[at];
            share.requests += traffic.requests;
            share.bytes_read += traffic.bytes_read;
            share.bytes_written += traffic.bytes_written;
        }
        self.file_system = summary.file_system;
        self.method = summary.method;
        for file in summary.files {
            self.io_seconds +=
                file.open_seconds + file.sync_seconds + file.read.seconds + file.write.seconds;
            let place = match self.files.iter().position(|f| f.path == file.path) {
                Some(place) => place,
                None => {
                    self.files.push(FileReport {
                        path: file.path.clone(),
                        ..FileReport::default()
                    });
                    self.files.len() - 1
                }
            };
            let sum = &mut self.files[place];
            sum.ranks += 1;
            sum.opens += file.opens;
            sum.syncs += file.syncs;
            sum.open_seconds = sum.open_seconds.max(file.open_seconds);
            sum.sync_seconds = sum.sync_seconds.max(file.sync_seconds);
            sum.read.add(file.read);
            sum.write.add(file.write);
        }
    }

    /// Leaves out all but the `most` files with the most bytes.
    pub fn keep_busiest(&mut self, most: usize) {
        if self.files.len() <= most {
            return;
        }
        self.files_left_out = Some(self.files.len() - most);
        self.files
            .sort_by_key(|file| std::cmp::Reverse(file.bytes()));
        self.files.truncate(most);
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// The run in a few figures.
    pub fn totals(&self) -> Totals {
        Totals {
            ranks: self.ranks,
            wall_seconds: self.wall_seconds,
            bytes_written: self.files.iter().map(|f| f.write.bytes).sum(),
            bytes_read: self.files.iter().map(|f| f.read.bytes).sum(),
        }
    }

    /// One line for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"))
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let direct = match self.file_system.as_str() {
            "direct" => ", direct mode (no servers)",
            _ => "",
        };
        let mut text = format!(
            "penstock: {} ranks{direct}, {}",
            self.ranks,
            size::duration(self.wall_seconds)
        );
        if self.files.is_empty() {
            text += "; no file of Penstock was opened (names begin with `penstock:`)\n";
            return text;
        }
        text += &format!(", {} of it in I/O\n", size::duration(self.io_seconds));
        if self.unfinished > 0 {
            text += &format!(
                "  {} of {} ranks did not come to MPI_Finalize: their last second may be missing here\n",
                self.unfinished, self.summaries
            );
        }
        text += &self.totals_text();
        let mut rows = Vec::new();
        let mut reasons: Vec<String> = Vec::new();
        let mut busiest: Vec<&FileReport> = self.files.iter().collect();
        busiest.sort_by_key(|file| std::cmp::Reverse(file.bytes()));
        let others = busiest.split_off(busiest.len().min(SHOWN));
        busiest.sort_by(|a, b| a.path.cmp(&b.path));
        for file in busiest {
            for (name, direction) in [("write", &file.write), ("read", &file.read)] {
                if direction.calls == 0 {
                    continue;
                }
                rows.push(vec![
                    file.path.clone(),
                    name.into(),
                    size::bytes(direction.bytes),
                    size::count(direction.calls),
                    size::duration(direction.waited_seconds),
                    size::rate(direction.bytes, direction.waited_seconds),
                    direction.methods_text(),
                ]);
                let reason = format!("  {name} {}: {}\n", file.path, direction.reason);
                if !direction.reason.is_empty() {
                    reasons.push(reason);
                }
            }
        }
        let header = ["  file", "", "bytes", "calls", "time", "rate", "method"];
        for row in &mut rows {
            row[0].insert_str(0, "  ");
        }
        if !rows.is_empty() {
            text += &out::table(&header, &[2, 3, 4, 5], rows);
        }
        if !others.is_empty() {
            let sum = |of: fn(&FileReport) -> u64| others.iter().map(|file| of(file)).sum();
            text += &format!(
                "  {} other files: {} written, {} read\n",
                size::count(others.len() as u64),
                size::bytes(sum(|file| file.write.bytes)),
                size::bytes(sum(|file| file.read.bytes))
            );
        }
        text += &reasons.concat();
        if let Some(n) = self.files_left_out {
            text += &format!(
                "  {} files with fewer bytes are left out\n",
                size::count(n as u64)
            );
        }
        text += &self.servers_text();
        text
    }

    /// The totals over all files.
    fn totals_text(&self) -> String {
        let sum = |of: fn(&FileReport) -> u64| self.files.iter().map(of).sum::<u64>();
        let seconds = |of: fn(&FileReport) -> f64| self.files.iter().map(of).sum::<f64>();
        let mut parts = Vec::new();
        let calls = [
            (sum(|f| f.write.bytes), sum(|f| f.write.calls), "written"),
            (sum(|f| f.read.bytes), sum(|f| f.read.calls), "read"),
        ];
        for (bytes, calls, done) in calls {
            if calls > 0 {
                let (bytes, calls) = (size::bytes(bytes), size::count(calls));
                parts.push(format!("{bytes} {done} in {calls} calls"));
            }
        }
        let times = [
            (sum(|f| f.opens), seconds(|f| f.open_seconds), "opens"),
            (sum(|f| f.syncs), seconds(|f| f.sync_seconds), "syncs"),
        ];
        for (n, seconds, what) in times {
            if n > 0 {
                // The time of a file is that of its slowest rank.
                let (n, time) = (size::count(n), size::duration(seconds));
                parts.push(format!("{n} {what} took {time}"));
            }
        }
        format!(
            "  {} files: {}\n",
            size::count(self.files.len() as u64),
            parts.join(", ")
        )
    }

    fn servers_text(&self) -> String {
        let moved = |s: &ServerShare| s.bytes_read + s.bytes_written;
        let total: u64 = self.servers.iter().map(moved).sum();
        if total == 0 {
            return match self.servers.len() {
                0 => String::new(),
                _ => "  servers: no bytes went through them (same-host shortcuts)\n".into(),
            };
        }
        let shares: Vec<String> = self
            .servers
            .iter()
            .map(|s| {
                format!(
                    "{} {:.0}%",
                    s.server,
                    100.0 * moved(s) as f64 / total as f64
                )
            })
            .collect();
        let requests: u64 = self.servers.iter().map(|s| s.requests).sum();
        format!(
            "  servers: {} in {} requests; share of each: {}\n",
            size::bytes(total),
            size::count(requests),
            shares.join(", ")
        )
    }
}

impl FileReport {
    fn bytes(&self) -> u64 {
        self.read.bytes.saturating_add(self.write.bytes)
    }
}

impl DirectionReport {
    fn add(&mut self, other: DirectionSummary) {
        self.calls += other.calls;
        self.collective_calls += other.collective_calls;
        self.bytes += other.bytes;
        self.seconds = self.seconds.max(other.seconds);
        self.all_seconds += other.seconds;
        self.when.merge(&other.when);
        if self.reason.is_empty() {
            self.reason = other.reason;
        }
        for (name, counts) in other.methods {
            self.methods.entry(name).or_default().add(counts);
        }
    }

    /// Corrects the union of the ranks' intervals, which may be too long: ranks record intervals with the shortest gaps
    /// closed. It is at most the sum of the ranks' own times, and at least the slowest rank's.
    fn wait(&mut self) {
        let limit = self.all_seconds.max(self.seconds);
        self.waited_seconds = self.when.seconds().clamp(self.seconds, limit);
    }

    /// `datatype, 8 operations (shortcut)`
    fn methods_text(&self) -> String {
        self.methods
            .iter()
            .map(|(name, counts)| {
                let shortcut = match counts.shortcut_calls {
                    0 => "",
                    n if n == counts.calls => " (shortcut)",
                    _ => " (partly shortcut)",
                };
                format!(
                    "{name}{shortcut}, {} operations",
                    size::count(counts.operations)
                )
            })
            .collect::<Vec<_>>()
            .join("; ")
    }
}

fn read(path: &Path) -> Result<Summary, String> {
    let text = std::fs::read(path).map_err(|e| e.to_string())?;
    serde_json::from_slice(&text).map_err(|e| e.to_string())
}

fn share((before, after): (&DataStatus, &DataStatus)) -> ServerShare {
    ServerShare {
        server: after.server,
        requests: after.requests.saturating_sub(before.requests),
        bytes_read: after.bytes_read.saturating_sub(before.bytes_read),
        bytes_written: after.bytes_written.saturating_sub(before.bytes_written),
        busy_seconds: Some(after.busy_ns.saturating_sub(before.busy_ns) as f64 / 1e9),
    }
}
