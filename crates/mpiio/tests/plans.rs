//! Plans without a driver: collective steps do not depend on what happens to one rank.
use penstock_base::Op;
use penstock_datatype::{Loop, Pattern};
use penstock_layout::{Layout, ServerId};
use penstock_mpiio::planning::{
    Alone, Groups, Memory, Outcome, Part, Plan, Rules, Schedule, Seat, Step, Tuning, Words,
};
use penstock_mpiio::testing::Turns;
use penstock_mpiio::{AccessSummary, Method, predict};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::rc::Rc;

/// A collective step as other ranks see it.
#[derive(Debug, Clone, PartialEq)]
enum Together {
    /// Bytes to and from each rank, and whether all of them must arrive.
    Exchange(Vec<u64>, Vec<u64>, bool),
    Barrier,
    Confer(u32),
    /// A message between two ranks.
    Tell(usize),
    Hear(usize),
}

impl Together {
    fn is_of_all(&self) -> bool {
        !matches!(self, Together::Tell(_) | Together::Hear(_))
    }
}

/// Ranks take turns, and then do what their method does.
struct TurnsFirst {
    turns: Option<Box<dyn Plan>>,
    then: Box<dyn Plan>,
}

impl Plan for TurnsFirst {
    fn next(&mut self, last: Outcome) -> Step {
        let Some(turns) = &mut self.turns else {
            return self.then.next(last);
        };
        match turns.next(last) {
            Step::Finish { .. } => {
                self.turns = None;
                self.then.next(Outcome::Done(0))
            }
            step => step,
        }
    }
}

/// Drives plans to their end, failing the operations and locks named by `fails`, and receives from failed ranks.
/// Returns each rank's collective steps and messages.
fn steps(plans: &mut [Box<dyn Plan>], mut fails: impl FnMut(usize) -> bool) -> Vec<Vec<Together>> {
    let ranks = plans.len();
    let sums = |parts: &[(usize, Part)]| {
        let mut sums = vec![0; ranks];
        for (rank, part) in parts {
            sums[*rank] += part.pattern.len;
        }
        sums
    };
    let mut seen = vec![Vec::new(); ranks];
    let mut last = vec![Outcome::Done(0); ranks];
    let mut ended = vec![false; ranks];
    let mut failed = vec![false; ranks];
    let mut told = vec![vec![VecDeque::<Option<Words>>::new(); ranks]; ranks];
    let mut hears = vec![None::<usize>; ranks];
    while ended.contains(&false) {
        let mut waits = ended.clone();
        // A receiver continues once the message was sent.
        while waits.contains(&false) {
            let before = (waits.clone(), seen.clone());
            for rank in 0..ranks {
                // Up to its next collective step.
                while !waits[rank] {
                    if let Some(peer) = hears[rank] {
                        let heard = told[peer][rank].pop_front();
                        let Some(heard) = heard else { break };
                        hears[rank] = None;
                        failed[rank] |= heard.is_none();
                        last[rank] = match heard {
                            Some(words) => Outcome::Heard(words),
                            None => Outcome::Failed { lock_lost: false },
                        };
                    }
                    let step = plans[rank].next(last[rank]);
                    last[rank] = Outcome::Done(0);
                    let together = match step {
                        Step::Finish { .. } => {
                            ended[rank] = true;
                            waits[rank] = true;
                            break;
                        }
                        Step::Tell { peer, words } => {
                            told[rank][peer].push_back(Some(words).filter(|_| !failed[rank]));
                            seen[rank].push(Together::Tell(peer));
                            continue;
                        }
                        Step::Hear { peer } => {
                            hears[rank] = Some(peer);
                            seen[rank].push(Together::Hear(peer));
                            continue;
                        }
                        Step::Operate(_) | Step::Lock { .. } | Step::Prefetch { .. }
                            if fails(rank) =>
                        {
                            failed[rank] = true;
                            last[rank] = Outcome::Failed { lock_lost: false };
                            continue;
                        }
                        Step::Operate(operate) => {
                            last[rank] =
                                Outcome::Done(operate.cut.map(|o| o.part.pattern.len).sum());
                            continue;
                        }
                        Step::Unlock { again } => {
                            failed[rank] &= !again;
                            continue;
                        }
                        Step::Share { .. }
                        | Step::Lock { .. }
                        | Step::Prefetch { .. }
                        | Step::Wait { .. } => continue,
                        Step::Exchange {
                            send,
                            receive,
                            into,
                            ..
                        } => Together::Exchange(sums(&send), sums(&receive), into == Memory::Inbox),
                        Step::Barrier { .. } => Together::Barrier,
                        Step::Confer { times } => Together::Confer(times),
                    };
                    seen[rank].push(together);
                    waits[rank] = true;
                }
            }
            assert_ne!(
                (&waits, &seen),
                (&before.0, &before.1),
                "ranks wait for what nobody tells"
            );
        }
        let counts: Vec<_> = (seen.iter())
            .map(|steps| steps.iter().filter(|step| step.is_of_all()).count())
            .collect();
        let all_wait = counts.iter().all(|n| *n == counts[0]);
        assert!(
            all_wait,
            "some ranks wait for others that are through: {counts:?}"
        );
    }
    seen
}

fn layout(servers: u32) -> Layout {
    Layout::new(64, (0..servers).map(ServerId).collect()).unwrap()
}

fn access() -> impl Strategy<Value = Vec<Pattern>> {
    let one = (0i64..5000, 0u64..40, 1u64..200, 0i64..400, 0u64..3).prop_map(
        |(disp, count, len, gap, from)| {
            let tile = Loop::vector(count.max(1), 1, len as i64 + gap, &Loop::bytes(len)).unwrap();
            let bytes = if count == 0 { 0 } else { count * len };
            Pattern::new(disp, tile, from.min(bytes), bytes.saturating_sub(from)).unwrap()
        },
    );
    prop::collection::vec(one, 1..7)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn collective_steps_follow_from_what_all_ranks_know(
        patterns in access(),
        method in prop::sample::select(vec![Method::TWO_PHASE, Method::NODE_EXCHANGE, Method::RESONANT]),
        rules in prop::sample::select(vec![Rules::Ours, Rules::Romio]),
        op in prop::sample::select(vec![Op::Read, Op::Write]),
        aggregators in 1usize..7,
        window in 1u64..3000,
        turns: bool,
        servers in 1u32..5,
        groups in prop::sample::select(vec![Groups::AsManyAsServers, Groups::AsLargeAsServers]),
        failing in prop::collection::vec(any::<u8>(), 1..200),
    ) {
        let ranks = patterns.len();
        let aggregators: Vec<_> = if method == Method::NODE_EXCHANGE {
            (0..ranks).collect()
        } else {
            (0..aggregators.min(ranks)).collect()
        };
        let plans = || -> Vec<_> {
            let schedule = Schedule::new(patterns.clone(), aggregators.clone(), window, 64, rules);
            let tuning = Tuning { buffer: window, delay: 1, groups };
            let schedule = Rc::new(schedule.striped(layout(servers), tuning));
            let seat = |rank| Seat { op, rank, schedule: Rc::clone(&schedule) };
            let plan = |rank| -> Box<dyn Plan> {
                let then = method.plan_together(seat(rank)).unwrap();
                let turns = turns.then(|| Turns::plan(seat(rank)));
                Box::new(TurnsFirst { turns, then })
            };
            (0..ranks).map(plan).collect()
        };
        let well = steps(&mut plans(), |_| false);
        let mut number = 0;
        let ill = steps(&mut plans(), |_| {
            number += 1;
            failing[number % failing.len()] < 64
        });
        for rank in 0..ranks {
            prop_assert_eq!(well[rank].len(), ill[rank].len());
            for (well, ill) in well[rank].iter().zip(&ill[rank]) {
                match (well, ill) {
                    (Together::Exchange(sent, wanted, all), Together::Exchange(sends, wants, _)) => {
                        prop_assert_eq!(wanted, wants);
                        // A failed rank may send less, but nothing unrequested, and no part of a write.
                        prop_assert!(sends.iter().zip(sent).all(|(now, then)| now == then || !all && now < then));
                    }
                    (well, ill) => prop_assert_eq!(well, ill),
                }
            }
        }
        let turn = |rank: usize| {
            let heard = (turns && rank > 0).then(|| Together::Hear(rank - 1));
            let told = (turns && rank + 1 < ranks).then(|| Together::Tell(rank + 1));
            heard.into_iter().chain(told)
        };
        for run in [&well, &ill] {
            // Those of resonant are compared above.
            for (rank, steps) in run.iter().enumerate().filter(|_| method != Method::RESONANT) {
                prop_assert!(turn(rank).eq(steps.iter().filter(|step| !step.is_of_all()).cloned()));
            }
            let run: Vec<Vec<_>> = (run.iter())
                .map(|steps| steps.iter().filter(|step| step.is_of_all()).collect())
                .collect();
            for (a, b) in (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b))) {
                for together in run[a].iter().zip(&run[b]) {
                    match together {
                        (Together::Exchange(sends, ..), Together::Exchange(_, wants, all)) => {
                            prop_assert!(sends[b] == wants[a] || !all && sends[b] < wants[a]);
                        }
                        (one, other) => prop_assert_eq!(one, other),
                    }
                }
            }
        }
    }
}

fn vector(count: u64, len: u64, stride: i64) -> Pattern {
    let tile = Loop::vector(count, 1, stride, &Loop::bytes(len)).unwrap();
    Pattern::new(100, tile, 0, count * len).unwrap()
}

/// What a plan of one rank requests of the file: reads or writes, and bytes.
fn operations(method: Method, access: &Alone) -> Vec<(Op, u64)> {
    let mut plan = method.plan_alone(access).unwrap();
    let mut operations = Vec::new();
    let mut last = Outcome::Done(0);
    loop {
        last = match plan.next(last) {
            Step::Finish { .. } => return operations,
            Step::Operate(operate) => {
                let op = operate.op;
                let bytes: Vec<_> = operate.cut.map(|o| o.part.pattern.len).collect();
                operations.extend(bytes.iter().map(|len| (op, *len)));
                Outcome::Done(bytes.iter().sum())
            }
            _ => Outcome::Done(0),
        };
    }
}

const BUFFER: u64 = 1 << 12;

#[test]
fn operations_are_as_many_as_the_analytic_model_says() {
    for (file, memory) in [
        (vector(300, 64, 256), Pattern::contiguous(0, 300 * 64)),
        (vector(10, 512, 2048), vector(640, 8, 24)),
    ] {
        let (lo, hi) = file.bounds();
        let shape = AccessSummary {
            bytes: file.len,
            file_regions: file.regions(),
            memory_regions: memory.regions(),
            extent: (hi - lo) as u64,
            ..AccessSummary::default()
        };
        let access = Alone {
            op: Op::Read,
            file,
            memory,
            buffer: BUFFER,
        };
        for method in [Method::POSIX, Method::SIEVE, Method::LIST, Method::DATATYPE] {
            let operations = operations(method, &access);
            let bytes = operations.iter().map(|(_, bytes)| bytes).sum();
            let model = predict(method, &shape, BUFFER);
            let counts = (operations.len() as u64, bytes);
            assert_eq!(
                counts,
                (model.operations, model.accessed_bytes),
                "{method:?}"
            );
        }
    }
}

#[test]
fn a_sieved_write_with_holes_reads_first() {
    let file = vector(64, 64, 256);
    let access = Alone {
        op: Op::Write,
        memory: Pattern::contiguous(0, file.len),
        file,
        buffer: BUFFER,
    };
    let ops: Vec<Op> = (operations(Method::SIEVE, &access).iter())
        .map(|(op, _)| *op)
        .collect();
    assert_eq!(ops, [Op::Read, Op::Write].repeat(4));
}

/// A lock that is lost with its server is taken again, a bounded number of times, and what failed under it is repeated.
#[test]
fn a_rewrite_begins_again_when_its_lock_is_lost() {
    let file = vector(4, 64, 256);
    let access = Alone {
        op: Op::Write,
        memory: Pattern::contiguous(0, file.len),
        file,
        buffer: BUFFER,
    };
    let run = |losses: u32| {
        let mut plan = Method::SIEVE.plan_alone(&access).unwrap();
        let (mut locks, mut again, mut left) = (0, 0, losses);
        let mut last = Outcome::Done(0);
        loop {
            last = match plan.next(last) {
                Step::Finish { .. } => return (locks, again),
                Step::Operate(operate) if operate.op == Op::Write && left > 0 => {
                    left -= 1;
                    Outcome::Failed { lock_lost: true }
                }
                step => {
                    locks += u32::from(matches!(step, Step::Lock { .. }));
                    again += u32::from(matches!(step, Step::Unlock { again: true }));
                    Outcome::Done(0)
                }
            };
        }
    };
    assert_eq!(run(0), (1, 0));
    assert_eq!(run(3), (4, 3));
    assert_eq!(run(100), (11, 10));
}
