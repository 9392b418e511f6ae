//! The locality of a server's requests, of all and of each program (RS 5.2.2, formulas 5.1 to 5.3).
use super::{MOST_PROGRAMS, Object};
use penstock_base::Nanos;
use std::collections::BTreeMap;

/// Share of the newest distance in a mean.
const NEWEST: f64 = 7.0 / 8.0;

/// A mean in which the newest value counts 7/8, and its own mean since the last report. The last value alone says
/// little more than the last distance.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Mean {
    latest: Option<f64>,
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        let latest = match self.latest {
            Some(before) => before * (1.0 - NEWEST) + value * NEWEST,
            None => value,
        };
        self.latest = Some(latest);
        self.sum += latest;
        self.count += 1;
    }

    /// The mean since this was called last; the latest value if there was none.
    fn take(&mut self) -> Option<f64> {
        let (sum, count) = (
            std::mem::take(&mut self.sum),
            std::mem::take(&mut self.count),
        );
        match count {
            0 => self.latest,
            _ => Some(sum / count as f64),
        }
    }
}

/// Where a stream of requests was last.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    address: Option<u64>,
    distance: Mean,
}

impl Stream {
    fn add(&mut self, address: u64) {
        if let Some(last) = self.address.replace(address) {
            self.distance.add(address.abs_diff(last) as f64);
        }
    }
}

/// What a server measures of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProgramLocality {
    /// The program.
    pub program: u64,
    /// Mean distance of its requests, bytes (SL of the program at this server).
    pub distance: f64,
    /// Bytes since the last report.
    pub bytes: u64,
}

/// What a server tells the orchestrator.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Mean distance of all requests, bytes (SL of the server).
    pub distance: f64,
    /// Bytes moved for programs since the last report.
    pub moved: u64,
    /// Each program that was served since the last report.
    pub programs: Vec<ProgramLocality>,
    /// Reuse distance of each object in its own slices, nanoseconds: the time between two of its requests.
    pub reuse: Vec<(Object, f64)>,
}

#[derive(Debug, Default)]
struct Program {
    stream: Stream,
    bytes: u64,
}

/// The measurements of one server.
#[derive(Debug, Default)]
pub struct Locality {
    all: Stream,
    moved: u64,
    programs: BTreeMap<u64, Program>,
    /// Whose slice it is, when its last request came in it, and the mean of what lay between.
    object: Option<Object>,
    last: Option<Nanos>,
    reuse: BTreeMap<Object, Mean>,
}

impl Locality {
    /// A program's request has gone to this address of the device.
    pub fn served(&mut self, now: Nanos, program: u64, address: u64, bytes: u64) {
        self.all.add(address);
        let known = self.programs.len();
        if known < MOST_PROGRAMS || self.programs.contains_key(&program) {
            let of = self.programs.entry(program).or_default();
            of.stream.add(address);
            of.bytes += bytes;
        }
        let Some(object) = &self.object else {
            return;
        };
        if !object.admits(program) {
            // It was under way when the slice began.
            return;
        }
        if let Some(last) = self.last.replace(now) {
            let between = now.saturating_sub(last) as f64;
            self.reuse.entry(object.clone()).or_default().add(between);
        }
    }

    /// Bytes have been moved for a program.
    pub fn moved(&mut self, bytes: u64) {
        self.moved += bytes;
    }

    /// A slice begins. Gaps between slices are no reuse distances.
    pub fn turn(&mut self, object: &Object) {
        self.last = None;
        self.object = Some(object.clone()).filter(|object| *object != Object::All);
    }

    /// What was measured since the last report. Programs that were not served since then are forgotten, and so are objects
    /// that have no slices any more.
    pub fn report(&mut self) -> Measured {
        self.programs.retain(|_, of| of.bytes > 0);
        let programs = self.programs.iter_mut().filter_map(|(program, of)| {
            Some(ProgramLocality {
                program: *program,
                distance: of.stream.distance.take()?,
                bytes: std::mem::take(&mut of.bytes),
            })
        });
        let programs = programs.collect();
        let reuse = std::mem::take(&mut self.reuse);
        Measured {
            distance: self.all.distance.take().unwrap_or(0.0),
            moved: std::mem::take(&mut self.moved),
            programs,
            reuse: reuse
                .into_iter()
                .filter_map(|(object, mut mean)| Some((object, mean.take()?)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_means_in_which_the_newest_counts_most() {
        let mut locality = Locality::default();
        for (program, address) in [(1, 0), (2, 1000), (1, 100), (2, 1100)] {
            locality.served(0, program, address, 1);
        }
        let measured = locality.report();
        // Distances of 1000, 900 and 1000, smoothed: their mean since the last report.
        let second = 1000.0 / 8.0 + 900.0 * 7.0 / 8.0;
        let third = second / 8.0 + 1000.0 * 7.0 / 8.0;
        let all = (1000.0 + second + third) / 3.0;
        assert!((measured.distance - all).abs() < 1e-9, "{measured:?}");
        let own: Vec<f64> = measured.programs.iter().map(|p| p.distance).collect();
        assert_eq!(own, [100.0, 100.0]);
        // Whoever is silent is forgotten.
        assert!(locality.report().programs.is_empty());
    }

    #[test]
    fn reuse_distances_are_those_within_slices() {
        let mut locality = Locality::default();
        locality.served(0, 1, 0, 1);
        locality.served(5, 1, 0, 1);
        assert!(locality.report().reuse.is_empty());
        locality.turn(&Object::Program(1));
        locality.served(100, 1, 0, 1);
        locality.served(103, 2, 0, 1);
        locality.served(110, 1, 0, 1);
        locality.turn(&Object::Others(vec![1]));
        locality.served(500, 2, 0, 1);
        locality.served(540, 3, 0, 1);
        locality.turn(&Object::Program(1));
        locality.served(1000, 1, 0, 1);
        let reuse = locality.report().reuse;
        assert_eq!(
            reuse,
            [(Object::Program(1), 10.0), (Object::Others(vec![1]), 40.0)]
        );
    }

    #[test]
    fn programs_are_bounded() {
        let mut locality = Locality::default();
        for program in 0..10_000 {
            locality.served(0, program, 0, 1);
            locality.served(0, program, 0, 1);
        }
        assert_eq!(locality.report().programs.len(), MOST_PROGRAMS);
    }
}
