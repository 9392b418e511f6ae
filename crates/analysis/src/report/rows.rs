//! Rows of the pictures: processes in the timeline, servers in the heat map.
use super::bins::{BINS, Bins};
use crate::summary::Summary;
use crate::trace::{Part, Trace};
use penstock_trace::NO_SERVER;
use std::collections::{BTreeMap, HashMap};

/// Rows of processes, and of servers: more share a row.
pub(super) const ROWS: usize = 64;

/// A row of the timeline: processes.
#[derive(Debug, Clone, Default)]
pub(super) struct ProcessRow {
    pub name: String,
    pub processes: u64,
    /// By kind of call.
    pub kinds: [Bins; 4],
}

/// A row of the heat map: servers.
#[derive(Debug, Clone)]
pub(super) struct ServerRow {
    pub name: String,
    pub servers: u64,
    /// What `busy` is of: `device`, `store` or `requests`.
    pub from: &'static str,
    pub busy: Bins,
    pub queue: Bins,
    /// Bytes of accesses that began in a bin.
    pub bytes: Vec<u64>,
}

/// `rank 3` to `ranks 0 to 15`.
pub(super) fn of_processes(trace: &Trace) -> (Vec<ProcessRow>, HashMap<usize, usize>) {
    let mut parts: Vec<&Part> = trace.parts.iter().filter(|p| !p.is_server()).collect();
    parts.sort_by_key(|p| (p.program, p.rank, p.index));
    let each = parts.len().div_ceil(ROWS).max(1);
    let several = parts.first().map(|p| p.program) != parts.last().map(|p| p.program);
    let (mut rows, mut row_of) = (Vec::new(), HashMap::new());
    for group in parts.chunks(each) {
        let (first, last) = (group[0], group[group.len() - 1]);
        let mut name = match group.len() {
            1 => first.name(),
            _ => format!("{} to {}", first.name(), last.name()),
        };
        if several {
            name = format!("{:x}: {name}", first.program);
        }
        row_of.extend(group.iter().map(|p| (p.index, rows.len())));
        rows.push(ProcessRow {
            name,
            processes: group.len() as u64,
            ..ProcessRow::default()
        });
    }
    (rows, row_of)
}

/// All servers that the trace knows of.
pub(super) fn of_servers(
    trace: &Trace,
    summary: &Summary,
) -> (Vec<ServerRow>, BTreeMap<u32, usize>) {
    let mut servers: Vec<u32> = trace.parts.iter().filter_map(|p| p.server).collect();
    servers.extend(summary.cells.iter().map(|c| c.group.server));
    servers.retain(|s| *s != NO_SERVER);
    servers.sort_unstable();
    servers.dedup();
    let each = servers.len().div_ceil(ROWS).max(1);
    let (mut rows, mut row) = (Vec::new(), BTreeMap::new());
    for group in servers.chunks(each) {
        let (first, last) = (group[0], group[group.len() - 1]);
        let has_part = |s: u32| trace.parts.iter().any(|p| p.server == Some(s));
        let has_device = |s: u32| {
            summary
                .servers
                .iter()
                .any(|x| x.server == s && x.has_device)
        };
        let from = match () {
            () if !group.iter().copied().all(has_part) => "requests",
            () if group.iter().copied().all(has_device) => "device",
            () => "store",
        };
        row.extend(group.iter().map(|s| (*s, rows.len())));
        rows.push(ServerRow {
            name: match group.len() {
                1 => format!("server {first}"),
                _ => format!("servers {first} to {last}"),
            },
            servers: group.len() as u64,
            from,
            busy: Bins::default(),
            queue: Bins::default(),
            bytes: vec![0; BINS],
        });
    }
    (rows, row)
}
