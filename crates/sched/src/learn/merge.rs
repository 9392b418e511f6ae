//! Merges traces of repetitions of one program into one trace of the requests to expect.
//!
//! Problem: two runs never give the same arrival times. Idea: requests of different traces are one if file, operation,
//! offset and bytes are equal and they arrive at about the same time. Its arrival is the average. When it pays:
//! programs that run daily, or that write one checkpoint after the other.
//!
//! Parameters: arrivals match within [`ARRIVAL_TOLERANCE`] of the average so far. At the beginning of a file, where a
//! tenth of almost nothing would match nothing, they match within [`ARRIVAL_FLOOR`]. Times count from the file's first
//! request (Boito 2015, 4.1.2). Files that are created anew have a new number in each run. A file that only one run
//! knows is matched with one that does as much of the same operations, in order of first arrival.
//!
//! Cost: one sort of all requests. Source: Boito 2015, section 4.2.1.
use penstock_base::{Nanos, Op};
use penstock_trace::{Event, Kind};
use std::collections::BTreeMap;

/// Share of an arrival time by which repetitions may differ.
pub const ARRIVAL_TOLERANCE: f64 = 0.1;
/// Difference of arrival times that is always accepted, nanoseconds.
pub const ARRIVAL_FLOOR: Nanos = 2_000_000;

/// Whether two arrivals, counted from their file's first, may be the same request.
pub(crate) fn same_time(expected: Nanos, seen: Nanos) -> bool {
    expected.abs_diff(seen) <= tolerance(expected)
}

pub(crate) fn tolerance(expected: Nanos) -> Nanos {
    ((expected as f64 * ARRIVAL_TOLERANCE) as Nanos).max(ARRIVAL_FLOOR)
}

/// The result of merging.
#[derive(Debug, Clone, Default)]
pub struct Merged {
    /// The requests, as arrivals, in the order of time. Files and programs have the numbers of the first trace that
    /// has them.
    pub events: Vec<Event>,
    /// Requests of all traces.
    pub requests: u64,
    /// Requests of the result that every trace has.
    pub common: u64,
    /// Requests of the result that only one trace has.
    pub single: u64,
}

/// One request of one trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    // The fields are in sort order: equal requests of all traces become neighbours, by time.
    file: u32,
    op: Op,
    offset: u64,
    bytes: u64,
    at: Nanos,
    trace: u32,
    program: u64,
}

/// A file of the result.
#[derive(Debug, Clone, Copy)]
struct FileState {
    number: u64,
    /// Sum over traces of the time of its first request.
    starts: u128,
    traces: u64,
}

/// Merges the arrivals of several traces; dispatches and completions are left out. Requests that fewer than
/// `min_seen` traces have are dropped.
pub fn merge(traces: Vec<Vec<Event>>, min_seen: u32) -> Merged {
    let repetitions = traces.len();
    let (mut seen, files) = collect(traces);
    seen.sort_unstable();
    let mut merged = Merged {
        requests: seen.len() as u64,
        ..Merged::default()
    };
    let mut clusters = Vec::new();
    let mut next = vec![0; repetitions];
    for same in
        seen.chunk_by(|a, b| (a.file, a.op, a.offset, a.bytes) == (b.file, b.op, b.offset, b.bytes))
    {
        group(same, &mut clusters, &mut next);
        for cluster in clusters.drain(..) {
            if cluster.count < u64::from(min_seen) {
                continue;
            }
            merged.common += u64::from(cluster.count == repetitions as u64);
            merged.single += u64::from(cluster.count == 1);
            let file = &files[same[0].file as usize];
            let start = (file.starts / u128::from(file.traces)) as u64;
            merged.events.push(Event {
                at: start.saturating_add(cluster.average()),
                request: 0,
                kind: Kind::Arrival,
                op: same[0].op,
                file: file.number,
                offset: same[0].offset,
                bytes: same[0].bytes,
                program: cluster.program,
                // Repetitions may differ in rank and call.
                rank: 0,
                mpi_call: 0,
                client_call: 0,
            });
        }
    }
    merged.events.sort_unstable();
    for (i, event) in merged.events.iter_mut().enumerate() {
        event.request = i as u64;
    }
    merged
}

struct Cluster {
    sum: u128,
    count: u64,
    program: u64,
}

impl Cluster {
    fn average(&self) -> Nanos {
        (self.sum / u128::from(self.count)) as Nanos
    }
}

/// Puts equal requests, sorted by time, into clusters with at most one of each trace. Each trace fills clusters in the
/// order of time, so that each cluster is considered once per trace.
fn group(same: &[Seen], clusters: &mut Vec<Cluster>, next: &mut [usize]) {
    next.fill(0);
    for request in same {
        let next = &mut next[request.trace as usize];
        let fits = |c: &Cluster| same_time(c.average(), request.at);
        // Times ascend: a cluster that lies too far back stays so.
        while clusters.get(*next).is_some_and(|c| !fits(c)) {
            *next += 1;
        }
        match clusters.get_mut(*next) {
            Some(cluster) => {
                cluster.sum += u128::from(request.at);
                cluster.count += 1;
            }
            None => clusters.push(Cluster {
                sum: u128::from(request.at),
                count: 1,
                program: request.program,
            }),
        }
        *next += 1;
    }
}

/// The arrivals of all traces with the files of the result, times counted from the file's first arrival.
fn collect(traces: Vec<Vec<Event>>) -> (Vec<Seen>, Vec<FileState>) {
    let total = traces
        .iter()
        .flatten()
        .filter(|e| e.kind == Kind::Arrival)
        .count();
    let mut seen = Vec::with_capacity(total);
    let mut files: Vec<FileState> = Vec::new();
    let mut by_number: BTreeMap<u64, u32> = BTreeMap::new();
    let mut by_shape: BTreeMap<FileUse, Vec<u32>> = BTreeMap::new();
    for (trace, events) in traces.into_iter().enumerate() {
        let found = survey(&events);
        // Files with known numbers come first, so that no other file takes them.
        let mut slots: BTreeMap<u64, u32> = BTreeMap::new();
        let mut taken = vec![false; files.len()];
        for file in &found {
            if let Some(&slot) = by_number.get(&file.number) {
                slots.insert(file.number, slot);
                taken[slot as usize] = true;
            }
        }
        for file in &found {
            let slot = *slots.entry(file.number).or_insert_with(|| {
                let like = by_shape.entry(file.shape).or_default();
                let free = like
                    .iter()
                    .copied()
                    .find(|s| taken.get(*s as usize) == Some(&false));
                let slot = free.unwrap_or_else(|| {
                    files.push(FileState {
                        number: file.number,
                        starts: 0,
                        traces: 0,
                    });
                    (files.len() - 1) as u32
                });
                if let Some(taken) = taken.get_mut(slot as usize) {
                    *taken = true;
                } else {
                    like.push(slot);
                    by_number.insert(file.number, slot);
                }
                slot
            });
            let state = &mut files[slot as usize];
            state.starts += u128::from(file.first);
            state.traces += 1;
        }
        let first: BTreeMap<u64, Nanos> = found.iter().map(|f| (f.number, f.first)).collect();
        let mut last = None;
        for event in events.iter().filter(|e| e.kind == Kind::Arrival) {
            let (number, slot, start) = match last {
                Some(known @ (number, _, _)) if number == event.file => known,
                _ => (event.file, slots[&event.file], first[&event.file]),
            };
            last = Some((number, slot, start));
            seen.push(Seen {
                file: slot,
                op: event.op,
                offset: event.offset,
                bytes: event.bytes,
                at: event.at - start,
                trace: trace as u32,
                program: event.program,
            });
        }
    }
    (seen, files)
}

/// How much a file is used: requests and bytes read, written, and its largest offset.
type FileUse = (u64, u64, u64, u64, u64);

struct Found {
    number: u64,
    first: Nanos,
    shape: FileUse,
}

/// The files of a trace, in the order of first arrival.
fn survey(events: &[Event]) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let mut index: BTreeMap<u64, usize> = BTreeMap::new();
    let mut last: Option<(u64, usize)> = None;
    for event in events.iter().filter(|e| e.kind == Kind::Arrival) {
        let slot = match last {
            Some((number, slot)) if number == event.file => slot,
            _ => *index.entry(event.file).or_insert_with(|| {
                found.push(Found {
                    number: event.file,
                    first: event.at,
                    shape: FileUse::default(),
                });
                found.len() - 1
            }),
        };
        last = Some((event.file, slot));
        let file = &mut found[slot];
        file.first = file.first.min(event.at);
        let shape = &mut file.shape;
        let (count, bytes) = match event.op {
            Op::Read => (&mut shape.0, &mut shape.1),
            Op::Write => (&mut shape.2, &mut shape.3),
        };
        *count += 1;
        *bytes = bytes.wrapping_add(event.bytes);
        shape.4 = shape.4.max(event.offset);
    }
    found.sort_by_key(|f| (f.first, f.number));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arrival(at: Nanos, file: u64, offset: u64) -> Event {
        Event {
            at,
            request: 0,
            kind: Kind::Arrival,
            op: Op::Write,
            file,
            offset,
            bytes: 4096,
            program: 1,
            rank: 0,
            mpi_call: 0,
            client_call: 0,
        }
    }

    const MS: Nanos = 1_000_000;

    #[test]
    fn arrivals_within_a_tenth_are_averaged() {
        let a = vec![arrival(0, 1, 0), arrival(100 * MS, 1, 4096)];
        let b = vec![arrival(50 * MS, 1, 0), arrival(158 * MS, 1, 4096)];
        let merged = merge(vec![a, b], 1);
        assert_eq!(merged.common, 2);
        // The file begins at 25 ms on average, its second request comes 104 ms later.
        let times: Vec<Nanos> = merged.events.iter().map(|e| e.at / MS).collect();
        assert_eq!(times, [25, 129]);
    }

    #[test]
    fn arrivals_farther_apart_stay_two() {
        let a = vec![arrival(0, 1, 0), arrival(100 * MS, 1, 4096)];
        let b = vec![arrival(0, 1, 0), arrival(111 * MS, 1, 4096)];
        let merged = merge(vec![a.clone(), b.clone()], 1);
        assert_eq!((merged.common, merged.single), (1, 2));
        assert_eq!(merge(vec![a, b], 2).events.len(), 1);
    }

    #[test]
    fn checkpoints_over_the_same_bytes_stay_apart() {
        let run = |shift: Nanos| -> Vec<Event> {
            (0..50)
                .flat_map(|step| [0, 4096].map(|o| arrival(step * 300 * MS + shift, 1, o)))
                .collect()
        };
        let merged = merge(vec![run(0), run(MS), run(2 * MS)], 1);
        assert_eq!(merged.requests, 300);
        assert_eq!(merged.events.len(), 100);
        assert_eq!(merged.common, 100);
    }

    #[test]
    fn files_made_anew_are_matched_by_what_they_do() {
        let run = |base: u64| -> Vec<Event> {
            let mut events: Vec<Event> = (0..10)
                .flat_map(|i| {
                    [
                        arrival(i * MS, base, i * 4096),
                        arrival(i * MS, base + 1, i * 8192),
                    ]
                })
                .collect();
            events.push(arrival(20 * MS, 7, 0));
            events
        };
        let merged = merge(vec![run(100), run(200), run(300)], 1);
        assert_eq!(merged.events.len(), 21);
        assert_eq!(merged.common, 21);
        assert!(
            merged
                .events
                .iter()
                .all(|e| [100, 101, 7].contains(&e.file))
        );
    }

    proptest! {
        #[test]
        fn a_trace_merged_with_itself_is_itself(
            mut events in proptest::collection::vec((0..50 * MS, 0u64..3, 0u64..5), 1..80),
            times in 1usize..4,
        ) {
            events.sort_unstable();
            let trace: Vec<Event> = events.iter().map(|&(t, f, o)| arrival(t, f, o * 4096)).collect();
            let merged = merge(vec![trace.clone(); times], 1);
            prop_assert_eq!(merged.requests as usize, trace.len() * times);
            // Requests so close together may be paired with either repetition, but none is lost.
            let mut before: Vec<_> = trace.iter().map(|e| (e.file, e.offset)).collect();
            let mut after: Vec<_> = merged.events.iter().map(|e| (e.file, e.offset)).collect();
            before.sort_unstable();
            after.sort_unstable();
            prop_assert_eq!(before, after);
        }
    }
}
