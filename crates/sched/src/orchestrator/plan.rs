//! The orchestrator: which programs are eligible, how long each has the servers, and whose turn it is (RS 5.2.3).
use super::gate::Turn;
use super::locality::Measured;
use super::{MOST_PROGRAMS, Object, Options, Slicing};
use penstock_base::Nanos;
use std::collections::BTreeMap;

/// Why a program has the servers to itself, or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Eligibility {
    /// All three conditions hold.
    Eligible,
    /// The first two hold; its reuse distance is still to be measured.
    OnTrial,
    /// It is not served by all servers.
    NotEverywhere,
    /// Distances differ from server to server: this share of the mean, of all requests or of its own.
    Uneven(f64),
    /// Its own requests are hardly closer together than all: this quotient.
    NoGain(f64),
    /// It comes back later, in nanoseconds, than a seek to others takes.
    SlowReuse {
        /// Mean time between two of its requests.
        reuse: f64,
        /// Mean time of a seek to others.
        seek: f64,
    },
}

impl Eligibility {
    /// In a word or two, for people.
    pub fn name(self) -> &'static str {
        match self {
            Eligibility::Eligible => "eligible",
            Eligibility::OnTrial => "on trial",
            Eligibility::NotEverywhere => "not everywhere",
            Eligibility::Uneven(_) => "uneven",
            Eligibility::NoGain(_) => "no gain",
            Eligibility::SlowReuse { .. } => "slow reuse",
        }
    }

    /// Whether it gets a slice of its own.
    pub fn has_slice(self) -> bool {
        matches!(self, Eligibility::Eligible | Eligibility::OnTrial)
    }
}

/// An object's share of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// Who is served.
    pub object: Object,
    /// For how long.
    pub time: Nanos,
}

/// What is remembered of a program.
#[derive(Debug, Clone, Copy)]
struct Known {
    eligibility: Eligibility,
    /// Mean reuse distance over all servers in its own slices, when it was measured.
    reuse: Option<f64>,
    /// Windows until it is tried again.
    rests: u32,
    /// Windows since it was served last.
    silent: u32,
    /// It has had a slice since it was found to be on trial.
    tried: bool,
}

/// Decides for all servers. The driver brings [`Orchestrator::report`], calls [`Orchestrator::look`] when
/// [`Orchestrator::wake`] says so, and sends each [`Turn`] to all servers.
#[derive(Debug)]
pub struct Orchestrator {
    options: Options,
    /// What each server told last, with the time of a seek over its mean distance; `None` until it reports again.
    reports: Vec<Option<(Measured, Nanos)>>,
    programs: BTreeMap<u64, Known>,
    /// Mean reuse distance of those without a slice of their own.
    others: Option<f64>,
    epoch: u64,
    /// Slices of this window that are still to come, the next one last.
    to_come: Vec<Slice>,
    /// All slices of the window.
    plan: Vec<Slice>,
    wake: Nanos,
    open: bool,
    /// When the current window began.
    began: Nanos,
    /// Bytes per nanosecond while all gates were open last.
    open_rate: Option<f64>,
    /// Windows in turns since then, their bytes and time.
    turns: (u32, u64, Nanos),
    /// Windows for which all gates stay open.
    rests: u32,
}

impl Orchestrator {
    /// Of so many servers. `epoch` must be larger than any that an orchestrator before this one has used.
    pub fn new(now: Nanos, servers: usize, options: Options, epoch: u64) -> Orchestrator {
        Orchestrator {
            options,
            reports: vec![None; servers],
            programs: BTreeMap::new(),
            others: None,
            epoch,
            to_come: Vec::new(),
            plan: Vec::new(),
            wake: now.saturating_add(options.window),
            open: true,
            began: now,
            open_rate: None,
            turns: (0, 0, 0),
            // While programs start, rates say little.
            rests: 2,
        }
    }

    /// A server reports, once a window. `seek`: time that its device takes for a seek over the mean distance.
    pub fn report(&mut self, server: usize, measured: Measured, seek: Nanos) {
        if let Some(report) = self.reports.get_mut(server) {
            *report = Some((measured, seek));
        }
    }

    /// When to call [`Orchestrator::look`].
    pub fn wake(&self) -> Nanos {
        self.wake
    }

    /// Whether the next turn begins a window: servers report before.
    pub fn begins_window(&self) -> bool {
        self.to_come.is_empty()
    }

    /// Time has passed: the turn that begins now, for all servers.
    pub fn look(&mut self, now: Nanos) -> Option<Turn> {
        if now < self.wake {
            return None;
        }
        if self.to_come.is_empty() {
            let moved = self.moved();
            self.judge();
            self.plan = if self.pays(now, moved) {
                self.divide()
            } else {
                Vec::new()
            };
            for slice in &self.plan {
                if let Object::Program(program) = slice.object
                    && let Some(known) = self.programs.get_mut(&program)
                {
                    known.tried = true;
                }
            }
            self.to_come = self.plan.iter().rev().cloned().collect();
        }
        let object = match self.to_come.pop() {
            Some(slice) => {
                self.wake = now.saturating_add(slice.time.max(1));
                slice.object
            }
            None => {
                self.wake = now.saturating_add(self.options.window.max(1));
                Object::All
            }
        };
        let open = object == Object::All;
        if open && std::mem::replace(&mut self.open, true) {
            // Nobody waits for it.
            return None;
        }
        self.open = open;
        self.epoch += 1;
        Some(Turn {
            epoch: self.epoch,
            object,
            window: self.options.window,
        })
    }

    /// The slices of the current window; none while all gates are open.
    pub fn slices(&self) -> &[Slice] {
        &self.plan
    }

    /// Each program that the servers have reported in the last window, and why it has a slice of its own or not.
    pub fn programs(&self) -> impl Iterator<Item = (u64, Eligibility)> + '_ {
        self.programs
            .iter()
            .filter(|(_, known)| known.silent == 0)
            .map(|(program, known)| (*program, known.eligibility))
    }

    /// Bytes of all programs since the last reports; `None` without a report of every server.
    fn moved(&self) -> Option<u64> {
        let bytes = |report: &Option<(Measured, Nanos)>| Some(report.as_ref()?.0.moved);
        self.reports.iter().map(bytes).sum()
    }

    /// Whether turns pay, as far as it is known. A few windows in turns must move as many bytes in their time as the last
    /// window with open gates.
    fn pays(&mut self, now: Nanos, moved: Option<u64>) -> bool {
        let time = now.saturating_sub(std::mem::replace(&mut self.began, now));
        let Some(bytes) = moved else {
            self.turns = (0, 0, 0);
            return false;
        };
        if self.plan.is_empty() {
            self.open_rate = Some(bytes as f64 / time.max(1) as f64);
            self.turns = (0, 0, 0);
            self.rests = self.rests.saturating_sub(1);
            return self.rests == 0;
        }
        let (windows, before, spent) = self.turns;
        let (windows, bytes, time) = (windows + 1, before + bytes, spent + time);
        self.turns = (windows, bytes, time);
        if windows < self.options.proof {
            return true;
        }
        self.turns = (0, 0, 0);
        let slower = self
            .open_rate
            .is_some_and(|open| (bytes as f64) < open * time as f64);
        if slower {
            self.rests = self.options.again;
        }
        !slower
    }

    /// Judges all programs by the reports of the last window. Without a report of every server nobody is eligible.
    fn judge(&mut self) {
        let servers = self.reports.len();
        let reports: Vec<_> = self.reports.iter_mut().filter_map(Option::take).collect();
        if reports.len() < servers || servers == 0 {
            self.programs.clear();
            self.others = None;
            return;
        }
        let all: Vec<f64> = reports.iter().map(|(m, _)| m.distance).collect();
        let seek = mean(reports.iter().map(|(_, seek)| *seek as f64));
        let mut distances: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        let mut reuses: BTreeMap<Option<u64>, Vec<f64>> = BTreeMap::new();
        for (measured, _) in &reports {
            for of in &measured.programs {
                distances.entry(of.program).or_default().push(of.distance);
            }
            for (object, reuse) in &measured.reuse {
                let of = match object {
                    Object::Program(program) => Some(*program),
                    Object::Others(_) | Object::All => None,
                };
                reuses.entry(of).or_default().push(*reuse);
            }
        }
        if let Some(others) = reuses.get(&None) {
            self.others = Some(mean(others.iter().copied()));
        }
        self.programs
            .values_mut()
            .for_each(|known| known.silent += 1);
        self.programs
            .retain(|_, known| known.silent <= self.options.again);
        for (program, own) in distances {
            let before = self.programs.get(&program).copied();
            if before.is_none() && self.programs.len() >= MOST_PROGRAMS {
                continue;
            }
            let measured = reuses.get(&Some(program));
            let measured = measured.map(|all| mean(all.iter().copied()));
            let known = self.judge_one(&all, &own, seek, measured, before);
            self.programs.insert(program, known);
        }
    }

    /// The three conditions. The last is looked at once the program has had a slice.
    fn judge_one(
        &self,
        all: &[f64],
        own: &[f64],
        seek: f64,
        measured: Option<f64>,
        before: Option<Known>,
    ) -> Known {
        let reuse = measured.or(before.and_then(|known| known.reuse));
        let rests = before.map_or(0, |known| known.rests.saturating_sub(1));
        let known = |eligibility| Known {
            eligibility,
            reuse,
            rests,
            silent: 0,
            tried: before.is_some_and(|known| known.tried),
        };
        if own.len() < all.len() {
            return known(Eligibility::NotEverywhere);
        }
        let uneven = spread(all).max(spread(own));
        if uneven >= self.options.spread {
            return known(Eligibility::Uneven(uneven));
        }
        let gain = all.iter().sum::<f64>() / own.iter().sum::<f64>().max(1.0);
        if gain < self.options.gain {
            return known(Eligibility::NoGain(gain));
        }
        match (reuse, before) {
            // It has rested: what was measured then no longer counts.
            (Some(_), Some(Known { rests: 1, .. })) => Known {
                eligibility: Eligibility::OnTrial,
                reuse: None,
                rests: 0,
                silent: 0,
                tried: false,
            },
            (Some(reuse), _) if reuse > seek => Known {
                eligibility: Eligibility::SlowReuse { reuse, seek },
                reuse: Some(reuse),
                rests: if rests == 0 {
                    self.options.again
                } else {
                    rests
                },
                silent: 0,
                tried: false,
            },
            (Some(_), _) => known(Eligibility::Eligible),
            // It had a slice, and its requests did not come back in it.
            (None, Some(before)) if before.tried => Known {
                eligibility: Eligibility::SlowReuse {
                    reuse: f64::INFINITY,
                    seek,
                },
                reuse: Some(f64::INFINITY),
                rests: self.options.again,
                silent: 0,
                tried: false,
            },
            (None, _) => known(Eligibility::OnTrial),
        }
    }

    /// The slices of a window; none if nobody is eligible, or one program is alone.
    fn divide(&self) -> Vec<Slice> {
        let present = || self.programs.iter().filter(|(_, known)| known.silent == 0);
        let mut eligible = Vec::new();
        let mut objects = Vec::new();
        for (program, known) in present().filter(|(_, known)| known.eligibility.has_slice()) {
            eligible.push(*program);
            objects.push((Object::Program(*program), known.reuse));
        }
        let all = present().count();
        if eligible.is_empty() || all < 2 {
            return Vec::new();
        }
        if eligible.len() < all {
            objects.push((Object::Others(eligible), self.others));
        }
        let known: Vec<f64> = objects.iter().filter_map(|(_, reuse)| *reuse).collect();
        let usual = if known.is_empty() {
            1.0
        } else {
            mean(known.iter().copied())
        };
        let weight = |reuse: Option<f64>| match self.options.slicing {
            Slicing::Even => 1.0,
            Slicing::ReuseDistance => 1.0 / reuse.unwrap_or(usual).max(1.0),
        };
        let sum: f64 = objects.iter().map(|(_, reuse)| weight(*reuse)).sum();
        let window = self.options.window as f64;
        let slices = objects.into_iter().map(|(object, reuse)| {
            let time = (window * weight(reuse) / sum) as Nanos;
            let time = time.max(self.options.least);
            Slice { object, time }
        });
        slices.collect()
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// Standard deviation as a share of the mean; 0 if all are 0.
fn spread(values: &[f64]) -> f64 {
    let mean = mean(values.iter().copied());
    if mean <= 0.0 {
        return 0.0;
    }
    let squares = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>();
    (squares / values.len() as f64).sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::super::locality::ProgramLocality;
    use super::*;

    const WINDOW: Nanos = 500_000_000;
    const MS: f64 = 1e6;
    const SEEK: Nanos = 8_000_000;

    /// A server's report: all requests' distance, each program with its own, and the objects' reuse distances.
    fn measured(all: f64, programs: &[(u64, f64)], reuse: &[(Object, f64)]) -> Measured {
        let of = |(program, distance): &(u64, f64)| ProgramLocality {
            program: *program,
            distance: *distance,
            bytes: 1,
        };
        Measured {
            distance: all,
            moved: 1000,
            programs: programs.iter().map(of).collect(),
            reuse: reuse.to_vec(),
        }
    }

    /// Past the start of programs.
    fn orchestrator(servers: usize) -> Orchestrator {
        let mut o = Orchestrator::new(0, servers, Options::default(), 0);
        o.report(0, measured(1.0, &[], &[]), SEEK);
        (1..servers).for_each(|server| o.report(server, measured(1.0, &[], &[]), SEEK));
        assert!(window(&mut o).is_empty());
        o
    }

    fn verdicts(orchestrator: &Orchestrator) -> Vec<(u64, Eligibility)> {
        orchestrator.programs().collect()
    }

    /// The turns of one window, with their times.
    fn window(orchestrator: &mut Orchestrator) -> Vec<(Nanos, Turn)> {
        let begin = orchestrator.wake();
        let mut turns = Vec::new();
        loop {
            let at = orchestrator.wake();
            turns.extend(orchestrator.look(at).map(|turn| (at - begin, turn)));
            if orchestrator.to_come.is_empty() {
                return turns;
            }
        }
    }

    #[test]
    fn the_conditions_are_the_sources() {
        for (programs, wanted) in [
            ([[100.0, 100.0], [100.0, 100.0]], Eligibility::OnTrial),
            ([[100.0, 150.0], [100.0, 100.0]], Eligibility::Uneven(0.2)),
            (
                [[700.0, 700.0], [100.0, 100.0]],
                Eligibility::NoGain(1000.0 / 700.0),
            ),
        ] {
            let mut o = orchestrator(2);
            let own = programs[0].iter().zip(programs[1]).enumerate();
            for (server, (first, second)) in own {
                let of = [(1, *first), (2, second)];
                o.report(server, measured(1000.0, &of, &[]), SEEK);
            }
            window(&mut o);
            assert_eq!(verdicts(&o), [(1, wanted), (2, Eligibility::OnTrial)]);
        }
        // The distances of all must be even too, and every server must serve the program.
        let mut o = orchestrator(2);
        o.report(0, measured(1000.0, &[(1, 10.0)], &[]), SEEK);
        o.report(1, measured(3000.0, &[(1, 10.0), (2, 10.0)], &[]), SEEK);
        assert!(window(&mut o).is_empty());
        assert_eq!(
            verdicts(&o),
            [
                (1, Eligibility::Uneven(0.5)),
                (2, Eligibility::NotEverywhere)
            ]
        );
    }

    #[test]
    fn a_slice_on_trial_shows_the_reuse_distance() {
        let mut o = orchestrator(1);
        let programs = [(1, 10.0), (2, 10.0)];
        o.report(0, measured(1000.0, &programs, &[]), SEEK);
        let turns = window(&mut o);
        let objects: Vec<_> = turns
            .iter()
            .map(|(at, t)| (*at, t.object.clone(), t.epoch))
            .collect();
        assert_eq!(
            objects,
            [
                (0, Object::Program(1), 1),
                (WINDOW / 2, Object::Program(2), 2)
            ]
        );
        // Program 2 comes back too late: it has no slice of its own, until it is tried again.
        let reuse = [
            (Object::Program(1), 2.0 * MS),
            (Object::Program(2), 9.0 * MS),
        ];
        o.report(0, measured(1000.0, &programs, &reuse), SEEK);
        window(&mut o);
        let slow = Eligibility::SlowReuse {
            reuse: 9.0 * MS,
            seek: SEEK as f64,
        };
        assert_eq!(verdicts(&o), [(1, Eligibility::Eligible), (2, slow)]);
        let mut tried = 0;
        for n in 0..100 {
            let objects: Vec<_> = o.slices().iter().map(|s| s.object.clone()).collect();
            if objects.contains(&Object::Program(2)) {
                tried += 1;
            }
            let reuse: Vec<_> = (objects.into_iter())
                .map(|object| match object {
                    Object::Program(2) => (object, 9.0 * MS),
                    _ => (object, 2.0 * MS),
                })
                .collect();
            o.report(0, measured(1000.0, &programs, &reuse), SEEK);
            window(&mut o);
            assert!(n > 0 || tried == 0);
        }
        assert!((3..=6).contains(&tried), "{tried}");
    }

    #[test]
    fn slices_are_inverse_to_reuse_distances() {
        let mut o = orchestrator(1);
        let programs = [(1, 10.0), (2, 900.0), (3, 10.0)];
        let reuse = [
            (Object::Program(1), 2.0 * MS),
            (Object::Program(3), 4.0 * MS),
            (Object::Others(vec![1, 3]), 4.0 * MS),
        ];
        o.report(0, measured(1000.0, &programs, &reuse), SEEK);
        let turns = window(&mut o);
        let at: Vec<_> = turns.iter().map(|(at, _)| *at).collect();
        assert_eq!(at, [0, WINDOW / 2, WINDOW * 3 / 4]);
        assert_eq!(turns[2].1.object, Object::Others(vec![1, 3]));
    }

    #[test]
    fn turns_that_move_less_than_open_gates_end() {
        let mut o = orchestrator(1);
        let report = |o: &mut Orchestrator, bytes: u64| {
            let reuse: Vec<_> = (o.slices().iter())
                .map(|slice| (slice.object.clone(), 2.0 * MS))
                .collect();
            let mut measured = measured(1000.0, &[(1, 10.0), (2, 10.0)], &reuse);
            measured.moved = bytes;
            o.report(0, measured, SEEK);
            window(o).len()
        };
        assert_eq!(report(&mut o, 1000), 2);
        // More than before: they go on.
        for _ in 0..10 {
            assert_eq!(report(&mut o, 1100), 2);
        }
        let mut windows = 0;
        while report(&mut o, 500) == 2 {
            windows += 1;
            assert!(windows < 20);
        }
        let rest = (0..100).position(|_| report(&mut o, 1000) == 2);
        assert_eq!(rest, Some(19));
        // Three windows on probation, and no more.
        let on = (0..100).position(|_| report(&mut o, 500) != 2);
        assert_eq!(on, Some(3));
    }

    #[test]
    fn a_slice_in_which_nothing_comes_back_was_the_last_for_long() {
        let mut o = orchestrator(1);
        let programs = [(1, 10.0), (2, 10.0)];
        o.report(0, measured(1000.0, &programs, &[]), SEEK);
        assert_eq!(window(&mut o).len(), 2);
        o.report(0, measured(1000.0, &programs, &[]), SEEK);
        let turns = window(&mut o);
        assert_eq!((turns.len(), &turns[0].1.object), (1, &Object::All));
        assert!(
            o.programs()
                .all(|(_, e)| matches!(e, Eligibility::SlowReuse { .. }))
        );
    }

    #[test]
    fn gates_open_where_nobody_is_eligible_or_a_server_is_silent() {
        let mut o = orchestrator(2);
        let both = |o: &mut Orchestrator, programs: &[(u64, f64)]| {
            for server in 0..2 {
                o.report(server, measured(1000.0, programs, &[]), SEEK);
            }
        };
        both(&mut o, &[(1, 10.0), (2, 10.0)]);
        assert_eq!(window(&mut o).len(), 2);
        o.report(0, measured(1000.0, &[(1, 10.0), (2, 10.0)], &[]), SEEK);
        let turns = window(&mut o);
        assert_eq!((turns.len(), &turns[0].1.object), (1, &Object::All));
        // Said once.
        assert!(window(&mut o).is_empty());
        // A program alone has nobody to be protected from.
        both(&mut o, &[(1, 10.0)]);
        assert!(window(&mut o).is_empty());
    }
}
