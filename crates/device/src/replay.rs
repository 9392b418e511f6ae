//! Block traces in MQSim's text form, and their replay on a modelled device.
//!
//! A line is `arrival device address sectors type`. Arrival is nanoseconds since the beginning; the device number is
//! ignored. Address is the first 512-byte sector, and sectors is their count. Type is 0 for a write and 1 for a read.
//! Lines ascend in time. Every line ends with a newline, so that a truncated trace is noticed.

use crate::{Completion, Device, Measured, Nanos, Op, Request, Run};
use std::collections::HashMap;
use std::io::{BufRead, Read};

/// Most requests of a trace.
pub const MOST_REQUESTS: usize = 10_000_000;
/// Most bytes of a line.
const MOST_LINE: u64 = 256;
const SECTOR: u64 = 512;
/// Most sectors of a request: 1 GiB.
const MOST_SECTORS: u64 = 1 << 21;
/// Latest time: a century.
const MOST_TIME: Nanos = 100 * 365 * 86_400 * 1_000_000_000;

/// A trace that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A malformed line.
    #[error("line {line}: {why}; a line is `arrival-ns device first-sector sectors 0|1` (1: read)")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The last line is truncated.
    #[error("line {line} has no end: the trace was cut short; give it whole, or remove that line")]
    CutShort {
        /// Which, from 1.
        line: usize,
    },
    /// The trace has no requests.
    #[error("the trace has no requests")]
    Empty,
    /// More than `MOST_REQUESTS` requests.
    #[error("the trace has more than {MOST_REQUESTS} requests: replay a part of it")]
    Long,
    /// The system returned an error.
    #[error("cannot read the trace: {0}")]
    Io(#[from] std::io::Error),
}

/// Reads a trace: the requests with their arrival times; errors name the line.
pub fn parse(mut text: impl BufRead) -> Result<Vec<(Nanos, Request)>, TraceError> {
    let mut requests: Vec<(Nanos, Request)> = Vec::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        text.by_ref()
            .take(MOST_LINE)
            .read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        let wrong = |why: String| TraceError::Line { line, why };
        if bytes.last() != Some(&b'\n') {
            return Err(if bytes.len() as u64 == MOST_LINE {
                wrong(format!("longer than {MOST_LINE} bytes"))
            } else {
                TraceError::CutShort { line }
            });
        }
        let words = String::from_utf8_lossy(&bytes);
        let words: Vec<&str> = words.split_ascii_whitespace().collect();
        if words.is_empty() || words[0].starts_with('#') {
            continue;
        }
        let [arrival, _, first, sectors, kind] = words[..] else {
            return Err(wrong(format!("{} fields instead of 5", words.len())));
        };
        let number = |what: &str, text: &str, most: u64| {
            let n = text.parse::<u64>().ok().filter(|n| *n <= most);
            n.ok_or_else(|| wrong(format!("{what} is `{text}`, no number from 0 to {most}")))
        };
        let at = number("the arrival", arrival, MOST_TIME)?;
        let first = number("the first sector", first, u64::MAX / SECTOR)?;
        let sectors = number("the count of sectors", sectors, MOST_SECTORS)?;
        let op = match kind {
            "0" => Op::Write,
            "1" => Op::Read,
            _ => return Err(wrong(format!("the type is `{kind}`, neither 0 nor 1"))),
        };
        if requests.last().is_some_and(|r| r.0 > at) {
            return Err(wrong("it arrives before the line above it".into()));
        }
        if requests.len() == MOST_REQUESTS {
            return Err(TraceError::Long);
        }
        let request = Request {
            id: requests.len() as u64,
            op,
            address: first * SECTOR,
            bytes: sectors * SECTOR,
            process: 0,
        };
        requests.push((at, request));
    }
    if requests.is_empty() {
        Err(TraceError::Empty)
    } else {
        Ok(requests)
    }
}

/// Submits each request at its arrival time, however many are under way (open loop); latencies are in order of
/// completion.
pub fn replay<D: Device + ?Sized>(device: &mut D, requests: &[(Nanos, Request)]) -> Run {
    let mut since: HashMap<u64, (Nanos, u64)> = HashMap::new();
    let mut run = Run {
        measured: Measured {
            requests: 0,
            bytes: 0,
            elapsed: 0,
        },
        latencies: Vec::new(),
    };
    let begin = requests.first().map_or(0, |r| r.0);
    let mut note = |done: &mut Vec<Completion>, since: &mut HashMap<u64, (Nanos, u64)>| {
        for completion in done.drain(..) {
            if let Some((at, bytes)) = since.remove(&completion.id) {
                run.measured.requests += 1;
                run.measured.bytes += bytes;
                run.measured.elapsed = run.measured.elapsed.max(completion.at - begin);
                run.latencies.push(completion.at - at);
            }
        }
    };
    let mut done = Vec::new();
    for (at, request) in requests {
        device.advance(*at, &mut done);
        note(&mut done, &mut since);
        since.insert(request.id, (*at, request.bytes));
        device.submit(*at, *request);
    }
    while !since.is_empty()
        && let Some(wake) = device.wake()
    {
        device.advance(wake, &mut done);
        note(&mut done, &mut since);
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn a_trace_is_read_and_replayed() {
        let trace = "# comment\n0 0 0 8 0\n1000 0 8 16 1\n\n90000000 3 0 8 1\n";
        let requests = parse(trace.as_bytes()).unwrap();
        assert_eq!(requests.len(), 3);
        assert_eq!(requests[1].1.op, Op::Read);
        assert_eq!((requests[1].1.address, requests[1].1.bytes), (4096, 8192));
        let run = replay(&mut *Model::parse("nand").unwrap().build(), &requests);
        assert_eq!(run.measured.requests, 3);
        assert!(run.measured.elapsed > 90_000_000);
    }

    #[test]
    fn traces_cut_short_or_damaged_are_refused() {
        let whole = "0 0 0 8 0\n1000 0 8 16 1\n";
        for cut in 1..whole.len() {
            let text = &whole[..cut];
            match parse(text.as_bytes()) {
                Err(TraceError::CutShort { .. }) => assert!(!text.ends_with('\n')),
                Err(e) => panic!("{text:?}: {e}"),
                Ok(requests) => assert!(text.ends_with('\n') && !requests.is_empty()),
            }
        }
        let long = "7".repeat(4000);
        for (text, word) in [
            ("", "no requests"),
            ("# only\n", "no requests"),
            ("0 0 0 8\n", "4 fields"),
            ("0 0 0 8 0 9\n", "6 fields"),
            ("x 0 0 8 0\n", "arrival"),
            ("0 0 -1 8 0\n", "first sector"),
            ("0 0 0 9999999999 0\n", "count of sectors"),
            ("0 0 0 8 2\n", "type"),
            ("5 0 0 8 0\n4 0 0 8 0\n", "line 2"),
            (long.as_str(), "longer"),
            ("\u{0}\u{ff}\n", "fields"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }
}
