//! How far apart requests are, and how far they would be apart behind a longer queue (RS section 6.2).
//!
//! L(0) = 1/S(0); L(n+1) = L(n)/8 + 7/8 · D(n)/S(n+1). S is the size of a request; D the distance from its end to the
//! beginning of the next.
use std::collections::BTreeMap;

/// The moving mean of distance by size.
#[derive(Debug, Clone, Copy, Default)]
pub struct Locality {
    value: Option<f64>,
    /// Where the last request ended.
    end: u64,
}

impl Locality {
    /// A request of `bytes` at `address`. `alone`: nothing else wanted the device, so its distance counts as none.
    pub fn dispatched(&mut self, address: u64, bytes: u64, alone: bool) {
        let size = bytes.max(1) as f64;
        let distance = if alone { 0 } else { address.abs_diff(self.end) };
        self.value = Some(match self.value {
            None => 1.0 / size,
            Some(value) => value / 8.0 + 7.0 / 8.0 * (distance as f64 / size),
        });
        self.end = address.saturating_add(bytes);
    }

    /// L; `None` before the first request.
    pub fn value(&self) -> Option<f64> {
        self.value
    }
}

/// A queue as long as the log would be, of requests that are dispatched already: only their places. What leaves it shows
/// the locality that the log would give.
#[derive(Debug)]
pub struct Ghost {
    requests: BTreeMap<u64, u64>,
    bytes: u64,
    limit: u64,
    head: u64,
    locality: Locality,
    /// Of what is in it in ascending order, looked at from time to time.
    within: Option<f64>,
    added: u64,
}

/// Requests in a ghost queue, at most.
const MOST: usize = 4096;
/// How many requests arrive between two looks at all of them.
const LOOK: u64 = 64;

impl Ghost {
    /// Of so many bytes.
    pub fn new(limit: u64) -> Ghost {
        Ghost {
            requests: BTreeMap::new(),
            bytes: 0,
            limit,
            head: 0,
            locality: Locality::default(),
            within: None,
            added: 0,
        }
    }

    /// A write has been dispatched. When the queue is full, the next one in ascending order leaves it.
    pub fn add(&mut self, address: u64, bytes: u64) {
        self.bytes += bytes;
        self.bytes -= self.requests.insert(address, bytes).unwrap_or(0);
        while self.bytes > self.limit || self.requests.len() > MOST {
            let next = self.requests.range(self.head..).next();
            let Some((address, bytes)) = next
                .or_else(|| self.requests.iter().next())
                .map(|(address, bytes)| (*address, *bytes))
            else {
                return;
            };
            self.requests.remove(&address);
            self.bytes -= bytes;
            self.head = address.saturating_add(bytes);
            self.locality.dispatched(address, bytes, false);
        }
        self.added += 1;
        if self.locality.value().is_none() && self.added.is_multiple_of(LOOK) {
            let mut all = Locality::default();
            for (address, bytes) in &self.requests {
                all.dispatched(*address, *bytes, false);
            }
            self.within = all.value();
        }
    }

    /// The device was idle: the next distance counts as none.
    pub fn rest(&mut self, address: u64, bytes: u64) {
        self.locality.dispatched(address, bytes, true);
    }

    /// L of what has left it; before anything has, of what is in it in ascending order.
    pub fn value(&self) -> Option<f64> {
        self.locality.value().or(self.within)
    }
}
