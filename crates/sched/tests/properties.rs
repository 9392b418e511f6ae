//! Properties of every algorithm, whatever arrives.
use penstock_sched::{Algorithm, Error, Groups, Nanos, Next, Op, Options, Request, Scheduler};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
enum Step {
    Add {
        file: u64,
        write: bool,
        offset: u64,
        bytes: u64,
        spread: u64,
        program: u64,
    },
    Next,
    Complete(usize),
    Pass(Nanos),
    Switch(usize),
    /// Algorithms of all files, and of two of them.
    Group(usize, usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    // Offsets on a grid, so that many requests touch or overlap.
    let add = (0u64..4, any::<bool>(), 0u64..40, 1u64..6, 0u64..3, 0u64..3).prop_map(
        |(file, write, at, len, spread, program)| Step::Add {
            file,
            write,
            offset: at * 4096,
            bytes: len * 2048,
            spread: spread * 1024,
            program,
        },
    );
    prop_oneof![
        6 => add,
        4 => Just(Step::Next),
        3 => (0usize..8).prop_map(Step::Complete),
        2 => (1u64..3_000_000).prop_map(Step::Pass),
        1 => (0usize..10).prop_map(Step::Switch),
        1 => (0usize..10, 0usize..10, 0usize..10).prop_map(|(a, b, c)| Step::Group(a, b, c)),
    ]
}

fn options(algorithm: Algorithm, order: bool, quantum: u64) -> Options {
    Options {
        algorithm,
        order_conflicts: order,
        quantum,
        ..Options::default()
    }
}

/// Requests with the end of their range.
type Known = BTreeMap<u64, (Request, u64)>;

struct Run {
    scheduler: Scheduler,
    now: Nanos,
    known: Known,
    serving: Vec<(u64, Vec<u64>)>,
    dispatched: Vec<u64>,
    completed: BTreeSet<u64>,
    log: Vec<Next>,
    order: bool,
}

fn conflict(a: &(Request, u64), b: &(Request, u64)) -> bool {
    a.0.file == b.0.file
        && (a.0.op == Op::Write || b.0.op == Op::Write)
        && a.0.offset < b.1
        && b.0.offset < a.1
}

impl Run {
    fn new(options: Options) -> Run {
        Run {
            order: options.order_conflicts,
            scheduler: Scheduler::new(options).unwrap(),
            now: 0,
            known: BTreeMap::new(),
            serving: Vec::new(),
            dispatched: Vec::new(),
            completed: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step, switches: bool) {
        match *step {
            Step::Add {
                file,
                write,
                offset,
                bytes,
                spread,
                program,
            } => {
                let id = self.known.len() as u64;
                let op = if write { Op::Write } else { Op::Read };
                let request = Request {
                    id,
                    file,
                    op,
                    offset,
                    bytes,
                    program,
                    process: 0,
                };
                let end = offset + bytes + spread;
                self.scheduler.add_spread(self.now, request, end).unwrap();
                self.known.insert(id, (request, end));
            }
            Step::Next => {
                self.next();
            }
            Step::Complete(which) if !self.serving.is_empty() => {
                self.complete(which % self.serving.len());
            }
            Step::Complete(_) => {}
            Step::Pass(time) => self.now += time,
            Step::Switch(which) if switches => {
                let algorithm = Algorithm::ALL[which % Algorithm::ALL.len()];
                self.scheduler.switch(self.now, algorithm).unwrap();
            }
            Step::Group(all, one, other) if switches => {
                let name = |which: usize| Algorithm::ALL[which % Algorithm::ALL.len()];
                let mut groups = Groups::all(name(all));
                groups.files.insert((1, Op::Read), name(one));
                groups.files.insert((1, Op::Write), name(other));
                groups.files.insert((2, Op::Write), name(other));
                self.scheduler.regroup(self.now, groups.clone()).unwrap();
                assert_eq!(self.scheduler.groups(), &groups);
            }
            Step::Switch(_) | Step::Group(..) => {}
        }
        let statistics = self.scheduler.statistics();
        let (known, completed) = (self.known.len() as u64, self.completed.len() as u64);
        assert_eq!(statistics.completed, completed);
        let serving: usize = self.serving.iter().map(|(_, parts)| parts.len()).sum();
        assert_eq!(statistics.serving, serving as u64);
        assert_eq!(statistics.queued + statistics.serving + completed, known);
        assert!(statistics.queued_virtual <= statistics.queued);
        assert_eq!(statistics.queued_virtual == 0, statistics.queued == 0);
    }

    fn next(&mut self) -> Next {
        let next = self.scheduler.next(self.now);
        self.log.push(next);
        match next {
            Next::Dispatch(v) => {
                let parts: Vec<Request> = self.scheduler.parts(v.id).collect();
                assert_eq!(parts.len() as u32, v.parts);
                assert_eq!(parts.iter().map(|p| p.bytes).sum::<u64>(), v.bytes);
                assert!(parts.is_sorted_by_key(|p| p.offset));
                let mut covered = v.offset;
                for part in &parts {
                    let known = self.known[&part.id];
                    assert_eq!(known.0, *part);
                    assert_eq!((part.file, part.op), (v.file, v.op));
                    assert!(part.offset <= covered, "a hole in a virtual request");
                    covered = covered.max(known.1);
                    assert!(!self.dispatched.contains(&part.id), "twice");
                    self.dispatched.push(part.id);
                    if self.order {
                        for (id, earlier) in &self.known {
                            if *id < part.id && conflict(earlier, &known) {
                                assert!(self.completed.contains(id), "{id} before {}", part.id);
                            }
                        }
                    }
                }
                assert_eq!(covered, v.end);
                self.serving
                    .push((v.id, parts.iter().map(|p| p.id).collect()));
            }
            Next::WaitUntil(until) => assert!(until > self.now, "a wait that is over"),
            Next::Idle => {}
        }
        next
    }

    fn complete(&mut self, which: usize) {
        let (id, parts) = self.serving.swap_remove(which);
        self.scheduler.completed(self.now, id).unwrap();
        assert_eq!(
            self.scheduler.completed(self.now, id),
            Err(Error::NotServed(id))
        );
        self.completed.extend(parts);
    }

    /// Serves everything and waits as told. Returns how often it was told to wait.
    fn drain(&mut self) -> usize {
        let mut waits = 0;
        loop {
            match self.next() {
                Next::Dispatch(_) => {}
                _ if !self.serving.is_empty() => self.complete(0),
                Next::WaitUntil(until) => {
                    self.now = until;
                    waits += 1;
                }
                Next::Idle => break,
            }
        }
        assert_eq!(self.completed.len(), self.known.len(), "lost");
        assert!(self.scheduler.is_empty());
        waits
    }
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(Algorithm::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_lost_or_served_twice_and_conflicts_keep_their_order(
        algorithm in algorithm(),
        order in any::<bool>(),
        quantum in prop::sample::select(vec![1u64, 4096, 1 << 16, 1 << 40]),
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let mut run = Run::new(options(algorithm, order, quantum));
        for step in &steps {
            run.step(step, true);
        }
        let requests = run.known.len();
        // Every wait is one of two per decision, or a window of TWINS.
        prop_assert!(run.drain() <= 2 * requests + 2 * Algorithm::ALL.len());
    }

    #[test]
    fn the_same_events_give_the_same_decisions(
        algorithm in algorithm(),
        order in any::<bool>(),
        steps in proptest::collection::vec(step(), 0..150),
    ) {
        let log = || {
            let mut run = Run::new(options(algorithm, order, 1 << 16));
            steps.iter().for_each(|step| run.step(step, true));
            run.drain();
            run.log
        };
        prop_assert_eq!(log(), log());
    }

    #[test]
    fn who_goes_by_arrival_goes_in_its_order(
        by in prop::sample::select(vec![Algorithm::To, Algorithm::Noop]),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut run = Run::new(options(by, false, 4096));
        for step in &steps {
            run.step(step, false);
        }
        run.drain();
        prop_assert!(run.dispatched.into_iter().eq(0..run.known.len() as u64));
    }

    /// With a bound, a request is served at the latest at the first decision after it, after those that waited longer.
    #[test]
    fn waiting_is_bounded(
        algorithm in prop::sample::select(vec![
            Algorithm::Sjf, Algorithm::Mlf, Algorithm::Aioli, Algorithm::Srtf,
        ]),
        steps in proptest::collection::vec(step(), 0..150),
    ) {
        const BOUND: Nanos = 2_000_000;
        let base = options(algorithm, false, 1 << 16);
        let mut run = Run::new(Options { starvation_bound: Some(BOUND), ..base });
        let mut arrived = Vec::new();
        for step in &steps {
            if let Step::Add { .. } = step { arrived.push(run.now); }
            if let Step::Next = step {
                let queued = (0..arrived.len() as u64).filter(|id| !run.dispatched.contains(id));
                let oldest = queued.min();
                let aioli_is_busy = algorithm == Algorithm::Aioli && !run.serving.is_empty();
                run.next();
                if let Some(oldest) = oldest
                    && run.now - arrived[oldest as usize] >= BOUND
                    && !aioli_is_busy
                {
                    prop_assert!(run.dispatched.contains(&oldest));
                }
            } else {
                run.step(step, false);
            }
        }
    }

    /// A queue that waits for aggregation never delays another one.
    #[test]
    fn waits_delay_no_other_queue(
        algorithm in prop::sample::select(vec![Algorithm::Mlf, Algorithm::Aioli]),
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let mut run = Run::new(options(algorithm, false, 1 << 16));
        steps.iter().for_each(|step| run.step(step, false));
        while !run.serving.is_empty() { run.complete(0); }
        // A file without history has no reason to wait.
        let id = run.known.len() as u64;
        let fresh = Request { id, file: 99, op: Op::Read, offset: 0, bytes: 4096, program: 0, process: 0 };
        run.scheduler.add(run.now, fresh).unwrap();
        run.known.insert(id, (fresh, 4096));
        while !run.dispatched.contains(&id) {
            let next = run.next();
            prop_assert!(matches!(next, Next::Dispatch(_)), "{:?}", next);
            run.complete(0);
        }
        run.drain();
    }
}

const WRITE: Request = Request {
    id: 1,
    file: 1,
    op: Op::Write,
    offset: 0,
    bytes: 10,
    program: 0,
    process: 0,
};

fn add(s: &mut Scheduler, now: Nanos, id: u64, file: u64, offset: u64, bytes: u64) {
    let request = Request {
        id,
        file,
        op: Op::Read,
        offset,
        bytes,
        program: file,
        process: 0,
    };
    s.add(now, request).unwrap();
}

fn serve(s: &mut Scheduler, now: Nanos) -> Vec<u64> {
    let Next::Dispatch(v) = s.next(now) else {
        return Vec::new();
    };
    let ids = s.parts(v.id).map(|p| p.id).collect();
    s.completed(now, v.id).unwrap();
    ids
}

fn scheduler(algorithm: Algorithm) -> Scheduler {
    Scheduler::new(Options {
        algorithm,
        ..Options::default()
    })
    .unwrap()
}

#[test]
fn time_order_joins_what_touches() {
    let mut s = scheduler(Algorithm::ToAgg);
    for (id, file, offset) in [(0, 1, 0), (1, 2, 0), (2, 1, 20), (3, 1, 10), (4, 1, 5)] {
        add(&mut s, id, id, file, offset, 10);
    }
    assert_eq!(serve(&mut s, 9), [0, 4, 3, 2]);
    assert_eq!(serve(&mut s, 9), [1]);
    let mut s = scheduler(Algorithm::To);
    for id in 0..3 {
        add(&mut s, id, id, 1, 10 * id, 10);
    }
    assert_eq!(serve(&mut s, 9), [0]);
}

#[test]
fn the_shortest_queue_goes_first_but_nobody_starves() {
    for bound in [None, Some(1000)] {
        let options = Options {
            algorithm: Algorithm::Sjf,
            starvation_bound: bound,
            ..Options::default()
        };
        let mut s = Scheduler::new(options).unwrap();
        add(&mut s, 0, 0, 1, 0, 1 << 20);
        let mut served = Vec::new();
        for round in 1..=10u64 {
            add(&mut s, round * 200, round, 2, round << 20, 4096);
            served.extend(serve(&mut s, round * 200));
        }
        assert_eq!(served.contains(&0), bound.is_some(), "{served:?}");
    }
}

/// A request of four quanta waits for three visits: factors 1, 2, 4.
#[test]
fn quanta_are_bytes() {
    for algorithm in [Algorithm::Mlf, Algorithm::Aioli] {
        let mut s = scheduler(algorithm);
        add(&mut s, 0, 0, 1, 0, 4 * 65_536);
        for id in 1..6 {
            add(&mut s, id, id, 1 + id, 0, 65_536);
        }
        let order: Vec<u64> = (0..6).flat_map(|_| serve(&mut s, 10)).collect();
        let expected = match algorithm {
            // In round two only the large one is left.
            Algorithm::Mlf => [1, 2, 3, 4, 5, 0],
            // The third scan makes it eligible, and it came first.
            _ => [1, 2, 0, 3, 4, 5],
        };
        assert_eq!(order, expected, "{algorithm}");
    }
}

/// aIOLi serves contiguous requests after the head while they fit the quantum; with one request a turn the quantum
/// would count requests.
#[test]
fn a_turn_of_aioli_is_filled_with_contiguous_bytes() {
    let options = Options {
        algorithm: Algorithm::Aioli,
        aggregation: Some(1),
        ..Options::default()
    };
    let mut s = Scheduler::new(options).unwrap();
    for id in 0..8 {
        add(&mut s, id, id, 1, id * 16_384, 16_384);
        add(&mut s, id, 100 + id, 2, id * 16_384, 16_384);
    }
    let order: Vec<u64> = (0..8).flat_map(|_| serve(&mut s, 10)).collect();
    assert_eq!(order, [0, 1, 2, 3, 100, 101, 102, 103]);
}

#[test]
fn a_turn_of_aioli_ends_when_nothing_goes_on_with_it() {
    let mut s = scheduler(Algorithm::Aioli);
    add(&mut s, 0, 0, 1, 0, 16_384);
    assert_eq!(serve(&mut s, 1), [0]);
    assert_eq!(s.next(2), Next::Idle);
    add(&mut s, 3, 1, 2, 0, 16_384);
    add(&mut s, 4, 2, 1, 16_384, 16_384);
    assert_eq!(serve(&mut s, 5), [1]);
    assert_eq!(serve(&mut s, 6), [2]);
}

#[test]
fn aioli_serves_one_at_a_time() {
    let mut s = scheduler(Algorithm::Aioli);
    add(&mut s, 0, 0, 1, 0, 10);
    add(&mut s, 0, 1, 2, 0, 10);
    let Next::Dispatch(v) = s.next(1) else {
        panic!()
    };
    assert_eq!(s.next(1), Next::Idle);
    s.completed(2, v.id).unwrap();
    assert!(matches!(s.next(2), Next::Dispatch(_)));
}

/// After the request at 0, which came after the one at 100, the one at 10 is expected. One further on waits for it.
#[test]
fn a_shift_is_waited_for_once() {
    for algorithm in [Algorithm::Mlf, Algorithm::Aioli] {
        let mut s = scheduler(algorithm);
        for (id, offset) in [(0, 100), (1, 0)] {
            add(&mut s, 0, id, 1, offset, 10);
            assert_eq!(serve(&mut s, 0), [id]);
        }
        add(&mut s, 0, 2, 1, 50, 10);
        assert_eq!(s.next(0), Next::WaitUntil(1_350_000));
        add(&mut s, 5, 3, 2, 0, 10);
        assert_eq!(serve(&mut s, 5), [3], "another queue");
        assert_eq!(s.next(6), Next::WaitUntil(1_350_000));
        add(&mut s, 7, 4, 1, 10, 10);
        assert_eq!(serve(&mut s, 7), [4], "what it waited for");
        let mut late = scheduler(algorithm);
        for (id, offset) in [(0, 100), (1, 0)] {
            add(&mut late, 0, id, 1, offset, 10);
            serve(&mut late, 0);
        }
        add(&mut late, 0, 2, 1, 50, 10);
        assert_eq!(late.next(0), Next::WaitUntil(1_350_000));
        assert_eq!(serve(&mut late, 1_350_000), [2]);
        assert_eq!(late.statistics().shift_waits, 1);
    }
}

#[test]
fn a_better_aggregation_is_waited_for_once() {
    for algorithm in [Algorithm::Mlf, Algorithm::Aioli] {
        let mut s = scheduler(algorithm);
        for id in 0..4 {
            add(&mut s, 0, id, 1, 10 * id, 10);
        }
        assert_eq!(serve(&mut s, 0), [0, 1, 2, 3]);
        add(&mut s, 10, 4, 1, 45, 10);
        assert_eq!(s.next(10), Next::WaitUntil(900_010));
        add(&mut s, 20, 5, 1, 55, 10);
        assert_eq!(s.next(20), Next::WaitUntil(900_010), "two are still fewer");
        assert_eq!(serve(&mut s, 900_010), [4, 5]);
        assert_eq!(s.statistics().aggregation_waits, 1);
    }
}

#[test]
fn company_that_is_foretold_is_waited_for_and_others_go_meanwhile() {
    for algorithm in [Algorithm::Mlf, Algorithm::Aioli] {
        let mut s = scheduler(algorithm);
        add(&mut s, 0, 1, 1, 0, 10);
        add(&mut s, 5, 2, 2, 0, 10);
        // Request 1 has a predicted successor, and waiting for it pays once.
        let mut asked = Vec::new();
        let mut company = |first: Nanos, parts: &mut dyn Iterator<Item = u64>| {
            let parts: Vec<u64> = parts.collect();
            let wait = parts == [1] && !asked.iter().any(|(_, p)| p == &parts);
            asked.push((first, parts));
            if wait { 500 } else { 0 }
        };
        let Next::Dispatch(v) = s.next_expecting(10, &mut company) else {
            panic!("{algorithm}: the other file waits too");
        };
        assert_eq!(v.file, 2);
        s.completed(20, v.id).unwrap();
        assert_eq!(s.next_expecting(20, &mut company), Next::WaitUntil(510));
        // It comes before the time is over.
        add(&mut s, 100, 3, 1, 10, 10);
        let Next::Dispatch(v) = s.next_expecting(100, &mut company) else {
            panic!("{algorithm}: nothing is left to wait for");
        };
        assert_eq!((v.parts, v.bytes), (2, 20));
        assert_eq!(asked[0], (0, vec![1]), "{algorithm}");
        assert_eq!(s.statistics().predicted_waits, 1);
    }
}

#[test]
fn srtf_is_told_what_is_still_to_come() {
    let mut s = scheduler(Algorithm::Srtf);
    for (file, bytes) in [(1, 1000), (2, 15)] {
        s.predict_more(file, Op::Read, bytes);
        add(&mut s, 0, file, file, 0, 10);
    }
    assert_eq!(serve(&mut s, 1), [2]);
    // File 2 begins anew.
    s.predict_more(2, Op::Read, 5000);
    add(&mut s, 2, 3, 2, 0, 10);
    assert_eq!(serve(&mut s, 3), [1]);
}

#[test]
fn windows_go_program_by_program() {
    let options = Options {
        algorithm: Algorithm::Sw,
        sw_window: 100,
        ..Options::default()
    };
    let mut s = Scheduler::new(options).unwrap();
    for (id, at, program) in [(0, 0, 2), (1, 10, 1), (2, 20, 2), (3, 110, 1)] {
        add(&mut s, at, id, program, 0, 10);
    }
    let order: Vec<u64> = (0..4).flat_map(|_| serve(&mut s, 200)).collect();
    assert_eq!(order, [1, 0, 2, 3]);
}

#[test]
fn twins_serves_the_active_queue_alone() {
    let options = Options {
        algorithm: Algorithm::Twins,
        twins_window: 100,
        ..Options::default()
    };
    let mut s = Scheduler::new(options).unwrap();
    add(&mut s, 0, 0, 1, 0, 10);
    add(&mut s, 0, 1, 2, 0, 10);
    assert_eq!(serve(&mut s, 0), [0]);
    assert_eq!(s.next(50), Next::WaitUntil(100));
    assert_eq!(serve(&mut s, 100), [1]);
    // Only queues with requests take turns: no time is spent on empty ones.
    add(&mut s, 150, 2, 2, 0, 10);
    assert_eq!(serve(&mut s, 200), [2]);
}

#[test]
fn shares_follow_the_weights() {
    let options = Options {
        algorithm: Algorithm::Wfq,
        weights: vec![(1, 3)],
        quantum: 4096,
        ..Options::default()
    };
    let mut s = Scheduler::new(options).unwrap();
    for id in 0..400 {
        // Large compared with the quantum, so that rounds are skipped.
        add(
            &mut s,
            0,
            id,
            1 + id % 2,
            id << 20,
            if id % 2 == 0 { 65_536 } else { 16_384 },
        );
    }
    let mut bytes = [0u64; 2];
    for _ in 0..200 {
        for id in serve(&mut s, 1) {
            bytes[(id % 2) as usize] += if id % 2 == 0 { 65_536 } else { 16_384 };
        }
    }
    let ratio = bytes[0] as f64 / bytes[1] as f64;
    assert!((2.7..3.3).contains(&ratio), "{ratio}");
}

#[test]
fn the_least_remaining_goes_first() {
    let mut s = scheduler(Algorithm::Srtf);
    s.predict(1, Op::Read, 1000);
    s.predict(2, Op::Read, 5000);
    add(&mut s, 0, 0, 2, 0, 100);
    add(&mut s, 0, 1, 1, 0, 100);
    add(&mut s, 0, 2, 3, 0, 200);
    // Unknown: as much is left as was seen, 200; then 900, then 4900. A switch of the algorithm keeps predictions.
    s.switch(0, Algorithm::To).unwrap();
    s.switch(0, Algorithm::Srtf).unwrap();
    let order: Vec<u64> = (0..3).flat_map(|_| serve(&mut s, 1)).collect();
    assert_eq!(order, [2, 1, 0]);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_lost() {
    let mut s = Scheduler::new(Options {
        queue_limit: 2,
        ..Options::default()
    })
    .unwrap();
    let good = WRITE;
    for bad in [
        Request { bytes: 0, ..good },
        Request {
            bytes: u64::MAX,
            ..good
        },
        Request {
            offset: u64::MAX,
            ..good
        },
        Request {
            offset: i64::MAX as u64,
            ..good
        },
    ] {
        assert!(s.add(0, bad).is_err(), "{bad:?}");
    }
    assert!(s.add_spread(0, good, 0).is_err());
    s.add(0, good).unwrap();
    s.add(0, good).unwrap();
    assert_eq!(s.add(0, good), Err(Error::Full { limit: 2 }));
    assert_eq!(s.completed(0, 77), Err(Error::NotServed(77)));
    assert_eq!(s.statistics().refused, 6);
    assert_eq!(serve(&mut s, 0), [1]);
    s.add(0, good).unwrap();
    assert_eq!(serve(&mut s, 0).len() + serve(&mut s, 0).len(), 2);
}

#[test]
fn a_clock_that_steps_back_or_far_ahead_loses_nothing() {
    for algorithm in Algorithm::ALL {
        let mut s = scheduler(algorithm);
        add(&mut s, 1_000_000, 0, 1, 0, 10);
        add(&mut s, 5, 1, 1, 100, 10);
        add(&mut s, u64::MAX, 2, 1, 50, 10);
        add(&mut s, 7, 3, 2, 0, 10);
        let mut served = 0;
        for _ in 0..20 {
            served += serve(&mut s, 9).len();
        }
        assert_eq!(served, 4, "{algorithm}");
        assert!(s.statistics().clock_steps > 0);
    }
}

#[test]
fn statistics_begin_anew() {
    let mut s = scheduler(Algorithm::ToAgg);
    for id in 0..5 {
        add(&mut s, id * 10, id, 1, id * 10, 10);
    }
    assert_eq!(serve(&mut s, 1000).len(), 5);
    let all = s.statistics();
    assert_eq!(
        (all.arrived, all.completed, all.decisions, all.bytes),
        (5, 5, 1, 50)
    );
    assert_eq!(
        (
            all.largest_aggregation,
            all.aggregations[3],
            all.peak_queued
        ),
        (5, 1, 5)
    );
    assert_eq!(all.mean_aggregation(), 5.0);
    assert_eq!(
        (
            all.programs.len(),
            all.programs[0].bytes,
            all.programs[0].share
        ),
        (1, 50, 1.0)
    );
    assert!(all.waiting.percentile(99.0) <= 1000 && all.waiting.percentile(99.0) >= 875);
    s.reset_statistics();
    let none = s.statistics();
    assert_eq!((none.arrived, none.bytes, none.programs.len()), (0, 0, 0));
}

/// Files come and go; the history kept of them is bounded.
#[test]
fn more_files_than_are_remembered() {
    let options = Options {
        algorithm: Algorithm::Mlf,
        file_limit: 8,
        ..Options::default()
    };
    let mut s = Scheduler::new(options).unwrap();
    for file in 0..1000 {
        add(&mut s, file, file, file, 0, 10);
        add(&mut s, file, file, file, 50, 10);
        while s.len() > 20 {
            assert!(!serve(&mut s, file).is_empty());
        }
    }
}

#[test]
fn a_request_that_is_all_that_is_queued_is_carried_over_too() {
    let mut s = Scheduler::new(options(Algorithm::To, true, 4096)).unwrap();
    add(&mut s, 0, 0, 1, 0, 10);
    s.switch(1, Algorithm::ToAgg).unwrap();
    add(&mut s, 2, 1, 1, 5, 10);
    assert_eq!(serve(&mut s, 3), [0, 1]);
    // It keeps its place before requests that conflict with it.
    let mut s = Scheduler::new(options(Algorithm::To, true, 4096)).unwrap();
    s.add(0, WRITE).unwrap();
    s.switch(1, Algorithm::To).unwrap();
    s.add(2, Request { id: 2, ..WRITE }).unwrap();
    let Next::Dispatch(v) = s.next(3) else {
        panic!("nothing goes");
    };
    assert_eq!(s.next(3), Next::Idle);
    s.completed(4, v.id).unwrap();
    assert_eq!(serve(&mut s, 5), [2]);
}
