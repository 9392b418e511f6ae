//! The sampler: what the recent requests of a data server look like, and the pattern of each file and operation.
//!
//! It keeps the last [`RECENT`] requests. The [`Detector`] classifies each file and operation: contiguous, strided,
//! random or unknown, and small or large. Those with the same operation and pattern are a [`Class`]: a selection tree
//! has one answer for each class, or none.
use super::{Situation, Tree};
use crate::learn::{self, AccessPattern, Detector, DetectorLimits, MIN_WINDOW, Order};
use crate::{Algorithm, Error, Nanos, Op, Request, ServerInfo};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most requests that a sample considers.
pub(crate) const RECENT: usize = 512;
/// Older requests do not count.
pub(crate) const HORIZON: Nanos = 5_000_000_000;
/// Most files tracked; each takes up to 6 KiB.
const FILES: usize = 256;

/// Samples the requests of a server.
#[derive(Debug)]
pub(crate) struct Sampler {
    detector: Detector,
    recent: VecDeque<Seen>,
    site: ServerInfo,
    /// Sequential / random throughput of the device, for reads and writes.
    ratio: [f64; 2],
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Nanos,
    file: u64,
    op: Op,
    bytes: u64,
    /// Program and process.
    who: (u64, u32),
}

/// A sample.
#[derive(Debug, Default)]
pub struct View {
    /// Distinct files.
    pub files: u32,
    /// Recent requests considered.
    pub requests: u32,
    /// Classes of files.
    pub classes: Vec<Class>,
    /// Files, by number and operation.
    pub seen: Vec<FileView>,
}

/// One file and operation.
#[derive(Debug)]
pub struct FileView {
    /// Its number.
    pub file: u64,
    /// Reads or writes.
    pub op: Op,
    /// Its recent requests.
    pub requests: u32,
    /// Their bytes.
    pub bytes: u64,
    /// The detector's answer; `None` for a file with too few requests.
    pub pattern: Option<AccessPattern>,
    /// Index of its class.
    pub class: usize,
}

/// Files with the same operation and pattern.
#[derive(Debug)]
pub struct Class {
    /// The input of the selection tree.
    pub situation: Situation,
    /// Number of its files.
    pub files: u32,
    /// Their recent requests.
    pub requests: u32,
    /// Their bytes.
    pub bytes: u64,
    /// The tree's answer; `None` for a pattern that it does not know: the algorithm in force stays.
    pub choice: Option<Algorithm>,
}

/// What distinguishes classes: operation, order, large.
pub(crate) type ClassKey = (Op, Order, bool);

impl Class {
    pub(crate) fn kind(&self) -> ClassKey {
        let s = &self.situation;
        (s.op, s.order, s.large)
    }
}

impl Sampler {
    pub(crate) fn new(site: ServerInfo, ratio: [f64; 2]) -> Result<Sampler, Error> {
        let limits = DetectorLimits {
            files: FILES,
            ..DetectorLimits::default()
        };
        Ok(Sampler {
            detector: Detector::new(learn::Tree::builtin()?, site.large(), limits),
            recent: VecDeque::with_capacity(RECENT),
            site,
            ratio,
        })
    }

    pub(crate) fn arrived(&mut self, now: Nanos, request: &Request) {
        let Request {
            file,
            op,
            offset,
            bytes,
            program,
            process,
            ..
        } = *request;
        self.detector.arrived(now, file, op, offset, bytes);
        if self.recent.len() >= RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Seen {
            at: now,
            file,
            op,
            bytes,
            who: (program, process),
        });
    }

    /// Takes a sample of the recent requests, if there are enough.
    pub(crate) fn sample(&mut self, now: Nanos, tree: Tree) -> Option<View> {
        while self.recent.front().is_some_and(|s| s.at + HORIZON < now) {
            self.recent.pop_front();
        }
        (self.recent.len() >= MIN_WINDOW).then(|| self.see(tree))
    }

    fn see(&self, tree: Tree) -> View {
        // (requests, bytes) by file and operation
        let mut files: BTreeMap<(u64, bool), (u32, u64)> = BTreeMap::new();
        for seen in &self.recent {
            let sums = files.entry((seen.file, seen.op == Op::Write)).or_default();
            sums.0 += 1;
            sums.1 += seen.bytes;
        }
        let verdicts: BTreeMap<(u64, Op), (Option<AccessPattern>, u64)> = self
            .detector
            .verdicts()
            .map(|v| ((v.file, v.op), (v.pattern, v.bytes)))
            .collect();
        let mut distinct: Vec<u64> = files.keys().map(|k| k.0).collect();
        distinct.dedup();
        let processes: BTreeSet<(u64, u32)> = self.recent.iter().map(|s| s.who).collect();
        let mut view = View {
            files: distinct.len() as u32,
            requests: self.recent.len() as u32,
            classes: Vec::new(),
            seen: Vec::new(),
        };
        for ((file, write), (requests, bytes)) in files {
            let op = if write { Op::Write } else { Op::Read };
            let verdict = verdicts.get(&(file, op)).copied();
            let (pattern, all_bytes) = verdict.unwrap_or((None, bytes));
            // Too few requests show no order: contiguous is assumed.
            let order = pattern.map_or(Order::Contiguous, AccessPattern::order);
            let small = pattern.and_then(AccessPattern::is_small);
            let large = small.map_or(bytes / u64::from(requests) >= self.site.large(), |small| {
                !small
            });
            let kind = (op, order, large);
            let known = view.classes.iter().position(|c| c.kind() == kind);
            view.seen.push(FileView {
                file,
                op,
                requests,
                bytes,
                pattern,
                class: known.unwrap_or(view.classes.len()),
            });
            match known.map(|at| &mut view.classes[at]) {
                Some(class) => {
                    class.files += 1;
                    class.requests += requests;
                    class.bytes += bytes;
                    class.situation.bytes_per_file += all_bytes;
                }
                None => view.classes.push(Class {
                    situation: Situation {
                        op,
                        files: view.files,
                        bytes_per_file: all_bytes,
                        order,
                        large,
                        ratio: self.ratio[usize::from(write)],
                        memory: self.site.memory,
                        processes: processes.len() as u32,
                        request_bytes: 0,
                        servers: self.site.servers,
                    },
                    files: 1,
                    requests,
                    bytes,
                    choice: None,
                }),
            }
        }
        for class in &mut view.classes {
            class.situation.bytes_per_file /= u64::from(class.files);
            class.situation.request_bytes = class.bytes / u64::from(class.requests);
            class.choice = tree.choose(&class.situation);
        }
        view
    }
}
