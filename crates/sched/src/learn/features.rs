//! Features of a window of requests to one file, by which a data server tells access patterns apart.
//!
//! The first two are the source's. Distance: D = mean |Of_j - (Of_i + S_i)| / S_i over consecutive requests. Spread: dT
//! = mean (max AT - min AT) of the arrivals at one stripe unit. Here it is divided by the mean time between requests,
//! which makes slow and fast devices alike. The others are Penstock's. They consider the window as a set. Programs
//! whose ranks have a part of the file each leave separate runs that grow at their ends. Strided programs fill one
//! dense region in no strict order. Source of D and dT: Boito 2015, section 4.3.
use penstock_base::Nanos;
use std::collections::BTreeMap;

/// Requests of a full window.
pub const WINDOW: usize = 256;
/// Windows with fewer requests are not classified.
pub const MIN_WINDOW: usize = 16;

/// Names of the features, in the order of [`Features`].
pub const FEATURES: [&str; 14] = [
    "distance",
    "spread",
    "size",
    "contiguous",
    "backward",
    "continued",
    "preceded",
    "lag",
    "density",
    "runs",
    "stride",
    "regular",
    "repeated",
    "reach",
];

/// The features, named by [`FEATURES`]:
///
/// | figure | meaning |
/// | --- | --- |
/// | distance | log2(1 + D) |
/// | spread | log2(1 + dT / mean time between requests) |
/// | size | log2(mean bytes / stripe unit) |
/// | contiguous | share of requests that begin where the one before ended |
/// | backward | share of requests before the one before |
/// | continued | share of requests but the first that begin where any earlier one of the window ended |
/// | preceded | share of requests that end where an earlier one begins: parts come in the wrong order |
/// | lag | log2(1 + mean number of requests since the one that is continued) |
/// | density | bytes of the window / bytes between its lowest and highest |
/// | runs | contiguous runs of the window, of one to one for each request: 0 to 1 |
/// | stride | share of the commonest difference of consecutive offsets, contiguous ones left out |
/// | regular | share of the gaps between neighbouring runs that are within an eighth of the median gap; one run: 1 |
/// | repeated | share of requests that begin where an earlier one began |
/// | reach | mean distance of consecutive requests, of the bytes between the window's lowest and highest: 0 to 1 |
pub type Features = [f64; FEATURES.len()];

/// The last requests of one file and operation, [`WINDOW`] at most.
#[derive(Debug, Clone, Default)]
pub struct Window {
    requests: Vec<Seen>,
    /// The oldest, once the window is full.
    oldest: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    at: Nanos,
    offset: u64,
    bytes: u64,
}

impl Seen {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

impl Window {
    /// Adds a request; in a full window it replaces the oldest.
    pub fn push(&mut self, at: Nanos, offset: u64, bytes: u64) {
        let seen = Seen { at, offset, bytes };
        if self.requests.len() < WINDOW {
            self.requests.push(seen);
            return;
        }
        self.requests[self.oldest] = seen;
        self.oldest = (self.oldest + 1) % WINDOW;
    }

    /// Requests in it.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// No request is in it.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Forgets all requests.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.oldest = 0;
    }

    /// The features; `None` with fewer than [`MIN_WINDOW`] requests.
    pub fn features(&self, unit: u64) -> Option<Features> {
        if self.requests.len() < MIN_WINDOW {
            return None;
        }
        let (new, old) = self.requests.split_at(self.oldest);
        let ordered: Vec<Seen> = old.iter().chain(new).copied().collect();
        Some(features(&ordered, unit.max(1)))
    }
}

fn features(requests: &[Seen], unit: u64) -> Features {
    let n = requests.len() as f64;
    let pairs = n - 1.0;
    let bytes: f64 = requests.iter().map(|r| r.bytes as f64).sum();
    let (mut distance, mut jumped, mut contiguous, mut backward) = (0.0, 0.0, 0.0, 0.0);
    let mut strides: BTreeMap<i64, u32> = BTreeMap::new();
    for pair in requests.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        let jump = b.offset.abs_diff(a.end()) as f64;
        jumped += jump;
        distance += jump / a.bytes.max(1) as f64;
        contiguous += f64::from(u8::from(b.offset == a.end()));
        backward += f64::from(u8::from(b.offset < a.offset));
        if b.offset != a.end() {
            *strides
                .entry(b.offset.wrapping_sub(a.offset).cast_signed())
                .or_default() += 1;
        }
    }
    let commonest = strides.values().copied().max().unwrap_or(0);
    let near = neighbours(requests);
    let Extent {
        span,
        runs,
        regular,
    } = extent(requests);
    let times = requests.iter().map(|r| r.at);
    let first = times.clone().min().unwrap_or(0);
    let between = times.max().unwrap_or(0).saturating_sub(first) as f64 / pairs;
    let spread = if between > 0.0 {
        unit_spread(requests, unit) / between
    } else {
        0.0
    };
    [
        (1.0 + distance / pairs).log2(),
        (1.0 + spread).log2(),
        (bytes.max(1.0) / n / unit as f64).log2(),
        contiguous / pairs,
        backward / pairs,
        near.continued / pairs,
        near.preceded / pairs,
        (1.0 + near.lag).log2(),
        bytes / span,
        (runs - 1.0) / pairs,
        f64::from(commonest) / pairs,
        regular,
        near.repeated / pairs,
        (jumped / pairs / span).min(1.0),
    ]
}

/// Relations of requests to earlier ones: counts, and the mean age of those that are continued.
struct Neighbours {
    continued: f64,
    preceded: f64,
    repeated: f64,
    lag: f64,
}

fn neighbours(requests: &[Seen]) -> Neighbours {
    let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
    let mut starts: BTreeMap<u64, usize> = BTreeMap::new();
    let (mut continued, mut preceded, mut repeated, mut lag) = (0.0, 0.0, 0.0, 0.0);
    for (i, r) in requests.iter().enumerate() {
        if let Some(before) = ends.get(&r.offset) {
            continued += 1.0;
            lag += (i - before) as f64;
        }
        if starts.contains_key(&r.end()) {
            preceded += 1.0;
        }
        ends.insert(r.end(), i);
        if starts.insert(r.offset, i).is_some() {
            repeated += 1.0;
        }
    }
    Neighbours {
        continued,
        preceded,
        repeated,
        lag: if continued > 0.0 {
            lag / continued
        } else {
            0.0
        },
    }
}

/// The region that the window touches.
struct Extent {
    /// Its bytes.
    span: f64,
    /// Contiguous runs in it.
    runs: f64,
    /// How regularly the runs begin.
    regular: f64,
}

fn extent(requests: &[Seen]) -> Extent {
    let mut sorted: Vec<(u64, u64)> = requests.iter().map(|r| (r.offset, r.end())).collect();
    sorted.sort_unstable();
    let low = sorted[0].0;
    let (mut high, mut begun) = (sorted[0].1, low);
    let mut gaps: Vec<u64> = Vec::new();
    for &(start, end) in &sorted[1..] {
        if start > high {
            gaps.push(start - begun);
            begun = start;
        }
        high = high.max(end);
    }
    gaps.sort_unstable();
    let regular = gaps.get(gaps.len() / 2).map_or(1.0, |&median| {
        let alike = gaps.iter().filter(|g| g.abs_diff(median) <= median / 8);
        alike.count() as f64 / gaps.len() as f64
    });
    Extent {
        span: (high - low).max(1) as f64,
        runs: 1.0 + gaps.len() as f64,
        regular,
    }
}

/// Mean over stripe units of the time between the first and the last request that begins in it.
fn unit_spread(requests: &[Seen], unit: u64) -> f64 {
    let mut units: BTreeMap<u64, (Nanos, Nanos)> = BTreeMap::new();
    for r in requests {
        let (low, high) = units.entry(r.offset / unit).or_insert((r.at, r.at));
        *low = (*low).min(r.at);
        *high = (*high).max(r.at);
    }
    let sum: f64 = units.values().map(|(low, high)| (high - low) as f64).sum();
    sum / units.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(requests: &[(u64, u64, u64)]) -> BTreeMap<&'static str, f64> {
        let mut window = Window::default();
        for &(at, offset, bytes) in requests {
            window.push(at, offset, bytes);
        }
        FEATURES
            .into_iter()
            .zip(window.features(100).unwrap())
            .collect()
    }

    #[test]
    fn one_sequential_reader() {
        let f = of(&(0..20).map(|i| (i * 10, i * 50, 50)).collect::<Vec<_>>());
        assert_eq!(
            (f["distance"], f["contiguous"], f["backward"]),
            (0.0, 1.0, 0.0)
        );
        assert_eq!((f["size"], f["density"], f["runs"]), (-1.0, 1.0, 0.0));
        assert_eq!((f["continued"], f["preceded"], f["lag"]), (1.0, 0.0, 1.0));
        // Two requests to each unit, one request time apart.
        assert_eq!(f["spread"], 1.0);
    }

    #[test]
    fn two_readers_of_a_half_each() {
        let f = of(&(0..20)
            .map(|i| (i * 10, i % 2 * 10_000 + i / 2 * 50, 50))
            .collect::<Vec<_>>());
        assert_eq!((f["contiguous"], f["runs"]), (0.0, 1.0 / 19.0));
        assert_eq!((f["continued"], f["lag"]), (18.0 / 19.0, 3f64.log2()));
        assert!(f["distance"] > 7.0 && f["density"] < 0.15);
    }

    #[test]
    fn a_strided_reader_alone() {
        let f = of(&(0..20).map(|i| (i * 10, i * 200, 50)).collect::<Vec<_>>());
        assert_eq!((f["runs"], f["stride"], f["continued"]), (1.0, 1.0, 0.0));
        assert_eq!(f["distance"], 2.0);
        assert_eq!((f["regular"], f["repeated"]), (1.0, 0.0));
    }

    #[test]
    fn places_in_no_order() {
        let places = [3, 19, 4, 11, 30, 7, 22, 3, 14, 0, 26, 9, 17, 30, 5, 12];
        let f = of(&places
            .iter()
            .enumerate()
            .map(|(i, place)| (i as u64 * 10, place * 1000, 50))
            .collect::<Vec<_>>());
        assert_eq!((f["repeated"], f["continued"]), (2.0 / 15.0, 0.0));
        assert!(f["regular"] < 0.6 && f["reach"] > 0.25, "{f:?}");
    }

    #[test]
    fn the_window_slides() {
        let mut window = Window::default();
        for i in 0..15 {
            window.push(i, i, 1);
            assert!(window.features(100).is_none());
        }
        for i in 15..10_000 {
            window.push(i, i, 1);
        }
        assert_eq!(window.len(), WINDOW);
        let f = window.features(100).unwrap();
        assert_eq!(f[3], 1.0, "in order across the seam");
    }

    proptest! {
        #[test]
        fn figures_are_finite(requests in proptest::collection::vec(
            (any::<u64>(), any::<u64>(), any::<u64>()), 16..40), unit in any::<u64>()) {
            let mut window = Window::default();
            for (at, offset, bytes) in requests {
                window.push(at, offset, bytes);
            }
            let f = window.features(unit).unwrap();
            prop_assert!(f.iter().all(|x| x.is_finite()), "{f:?}");
        }
    }
}
