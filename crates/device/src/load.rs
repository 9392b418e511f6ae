//! Synthetic load on virtual time: measures a model as a benchmark measures a device.

use crate::{Completion, Device, Nanos, Request};

/// The result of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Requests completed.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From the first submission to the last completion.
    pub elapsed: Nanos,
}

impl Measured {
    /// Requests per second.
    pub fn iops(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed.max(1) as f64
    }

    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.elapsed.max(1) as f64
    }
}

/// A load and the latency of each of its requests.
#[derive(Debug, Clone)]
pub struct Run {
    /// Counts and elapsed time.
    pub measured: Measured,
    /// In the order of completion.
    pub latencies: Vec<Nanos>,
}

/// Keeps `depth` requests under way until `count` are done: `think` after each completion the next request is
/// submitted. `next` makes request number i; its id is replaced.
pub fn closed_loop<D: Device + ?Sized>(
    device: &mut D,
    depth: u64,
    count: u64,
    think: Nanos,
    mut next: impl FnMut(u64) -> Request,
) -> Measured {
    let next = |i| (i < count).then(|| next(i));
    closed_loop_from(device, 0, depth.min(count), think, next).measured
}

/// The same from time `begin` on, until `next` has no more requests.
pub fn closed_loop_from<D: Device + ?Sized>(
    device: &mut D,
    begin: Nanos,
    depth: u64,
    think: Nanos,
    mut next: impl FnMut(u64) -> Option<Request>,
) -> Run {
    let mut run = Run {
        measured: Measured {
            requests: 0,
            bytes: 0,
            elapsed: 0,
        },
        latencies: Vec::new(),
    };
    let mut submitted = 0;
    let mut more = true;
    let mut under_way = std::collections::HashMap::new();
    let mut ready: std::collections::VecDeque<Nanos> = (0..depth).map(|_| begin).collect();
    let mut done: Vec<Completion> = Vec::new();
    while more || !under_way.is_empty() {
        let submit = ready.front().copied().filter(|_| more);
        match (submit, device.wake()) {
            (Some(at), wake) if wake.is_none_or(|w| at <= w) => {
                ready.pop_front();
                let Some(request) = next(submitted) else {
                    more = false;
                    continue;
                };
                let request = Request {
                    id: submitted,
                    ..request
                };
                under_way.insert(submitted, (at, request.bytes));
                submitted += 1;
                device.submit(at, request);
            }
            (_, Some(wake)) => {
                done.clear();
                device.advance(wake, &mut done);
                for completion in &done {
                    // Completions of an earlier load are not counted.
                    let Some((since, bytes)) = under_way.remove(&completion.id) else {
                        continue;
                    };
                    run.measured.requests += 1;
                    run.measured.bytes += bytes;
                    run.measured.elapsed = run.measured.elapsed.max(completion.at - begin);
                    run.latencies.push(completion.at - since);
                    ready.push_back(completion.at + think);
                }
            }
            // A device that loses a request: the caller sees the smaller count.
            (_, None) => break,
        }
    }
    run
}

/// Uniformly random multiples of `grain` below `span`, the same for the same seed.
pub fn random_addresses(seed: u64, span: u64, grain: u64) -> impl FnMut() -> u64 {
    let mut state = (seed ^ 0x2545_f491_4f6c_dd1d) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let cells = (span / grain.max(1)).max(1);
        ((state as u128 * cells as u128) >> 64) as u64 * grain.max(1)
    }
}
