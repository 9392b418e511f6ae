//! Phases that a program marks itself, by `MPI_Pcontrol(level)`: from one call of it to the next.
//!
//! Phase k of a program is that between the calls k and k + 1 of each of its processes. Phase 0 lies before the first call. A
//! call counts where it began.
use crate::busy::Bin;
use penstock_base::Numbered;
use penstock_trace::{Operation, Record};
use serde::{Deserialize, Serialize};

/// `MPI_Pcontrol`: the record's offset is the level.
pub const MARK: Operation = Operation(1555);
/// Phases of a process that are told apart; the last one holds all that follows.
const MOST: usize = 1 << 16;

/// A phase of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkedPhase {
    /// The program.
    pub program: u64,
    /// What it called `MPI_Pcontrol` with; `None`: before the first call.
    pub level: Option<u64>,
    /// Whether all its processes said the same level.
    pub agreed: bool,
    /// When the first process began it, nanoseconds.
    pub from: u64,
    /// When the last process ended it.
    pub to: u64,
    /// Processes that came to it.
    pub processes: u64,
    /// Nanoseconds of all processes in it.
    pub time: u64,
    /// What they did.
    pub sums: Bin,
}

/// The phases of one process, while its records pass.
#[derive(Debug)]
pub struct Marks {
    /// Begin, level, what was done.
    phases: Vec<(u64, Option<u64>, Bin)>,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks {
            phases: vec![(0, None, Bin::default())],
        }
    }
}

impl Marks {
    /// Looks for marks among the records.
    pub fn record(&mut self, record: &Record) {
        if record.operation == MARK && self.phases.len() < MOST {
            let next = (record.end(), Some(record.offset), Bin::default());
            let at = self.phases.partition_point(|phase| phase.0 <= next.0);
            self.phases.insert(at, next);
        }
    }

    /// A call of the program.
    pub fn add(&mut self, begin: u64, what: &Bin) {
        let at = self.phases.partition_point(|phase| phase.0 <= begin);
        self.phases[at.max(1) - 1].2.add(what);
    }
}

/// The phases of all programs, process by process.
#[derive(Debug, Default)]
pub struct Joined(Numbered<u64, Vec<MarkedPhase>>);

impl Joined {
    /// Adds a process whose records lie in `first..last`.
    pub fn add(&mut self, program: u64, marks: Marks, first: u64, last: u64) {
        if marks.phases.len() == 1 {
            return;
        }
        let all = self.0.entry(program).or_default();
        for (k, (begin, level, sums)) in marks.phases.iter().enumerate() {
            let from = (*begin).max(first);
            let to = marks
                .phases
                .get(k + 1)
                .map_or(last, |next| next.0)
                .max(from);
            if all.len() == k {
                all.push(MarkedPhase {
                    program,
                    level: *level,
                    agreed: true,
                    from,
                    ..MarkedPhase::default()
                });
            }
            let phase = &mut all[k];
            phase.agreed &= phase.level == *level;
            phase.from = phase.from.min(from);
            phase.to = phase.to.max(to);
            phase.processes += 1;
            phase.time += to - from;
            phase.sums.add(sums);
        }
    }

    /// All, in the order of time.
    pub fn phases(self) -> Vec<MarkedPhase> {
        let mut all: Vec<MarkedPhase> = self.0.into_values().flatten().collect();
        all.sort_by_key(|phase| (phase.from, phase.program, phase.to));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_trace::Layer;

    fn mark(end: u64, level: u64) -> Record {
        Record {
            begin: end - 1,
            duration: 1,
            offset: level,
            ..Record::new(Layer::MpiIo, MARK)
        }
    }

    #[test]
    fn the_mark_has_its_name() {
        assert_eq!(MARK.known_name(), Some("MPI_Pcontrol"));
    }

    #[test]
    fn calls_count_in_the_phase_they_began_in() {
        let call = Bin {
            calls: 1,
            written: 10,
            ..Bin::default()
        };
        let mut joined = Joined::default();
        for late in [0, 50] {
            let mut marks = Marks::default();
            marks.add(20, &call);
            marks.record(&mark(100 + late, 1));
            marks.add(110 + late, &call);
            marks.add(120 + late, &call);
            marks.record(&mark(300, 0));
            joined.add(7, marks, 10, 400);
        }
        // One without marks is no part of them.
        joined.add(7, Marks::default(), 0, 1000);
        let phases = joined.phases();
        let calls: Vec<u64> = phases.iter().map(|p| p.sums.calls).collect();
        assert_eq!(calls, [2, 4, 0]);
        assert_eq!(
            (phases[1].from, phases[1].to, phases[1].time),
            (100, 300, 350)
        );
        assert_eq!(phases[0].level, None);
        assert_eq!(phases[2].level, Some(0));
        assert!(phases.iter().all(|p| p.agreed && p.processes == 2));
    }
}
