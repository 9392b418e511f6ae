//! Which algorithm for which situation: the source's cross-product on virtual time.
//!
//!     cargo run --release -p penstock-sched --example selection -- [--quick] [--cases] [--seconds N] [--seed N]
//!     cargo run --release -p penstock-sched --example selection -- --case 'pastel read x1 N-1 contig large 8'
//!
//! Prints, for every fixed algorithm, the trees, the online selector and the oracle, how often they choose within 5%
//! of the oracle, what they gain over TO, and where they lose. `own/X` chooses by what algorithms gave in other situations,
//! `online/X` begins with that: those with another number of processes, in the other nine folds, or on the other devices.
//! Three lines bound what can be had: `learnt`, the best
//! that any tree with T3's inputs could choose if it were learnt from these very figures; `elsewhere`, learnt from the
//! other three devices; `repeated`, the best algorithm of a second run with another seed. `--case` shows what
//! the online selector decides in one situation, and why.

mod cluster;

use cluster::{Case, Outcome, Policy, decisions, play};
use penstock_sched::{Algorithm, MEASURED, Row, SelectorOptions, Tree, expect};
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::Noop,
    Algorithm::To,
    Algorithm::ToAgg,
    Algorithm::Sjf,
    Algorithm::Mlf,
    Algorithm::Aioli,
];
/// Requests at the device at once, as threads of a data server.
const WORKERS: usize = 4;

/// What `online` may expect by, beside nothing: situations with another number of processes; those of other folds of ten;
/// those of other devices.
type Held = fn(&Case, usize, &Case, usize) -> bool;
const HELD_OUT: [(&str, Held); 3] = [
    ("processes", |a, _, b, _| a.processes != b.processes),
    ("folds", |_, i, _, j| i * 7 % 10 != j * 7 % 10),
    ("devices", |a, _, b, _| a.device != b.device),
];

struct Result {
    case: Case,
    fixed: Vec<Outcome>,
    /// The same with processes that begin a little later.
    again: Vec<Outcome>,
    online: Outcome,
    /// With what other situations gave, see [`HELD_OUT`].
    expecting: [Outcome; 3],
}

impl Result {
    fn of(&self, algorithm: Algorithm) -> f64 {
        let at = ALGORITHMS.iter().position(|a| *a == algorithm);
        at.map_or(0.0, |i| self.fixed[i].rate)
    }

    fn row(&self) -> Row {
        Row::measured(&self.case.situation(), MEASURED.map(|a| self.of(a)))
    }

    fn oracle(&self) -> f64 {
        self.fixed.iter().map(|o| o.rate).fold(0.0, f64::max)
    }
}

/// On all processors; results in the order of the items.
fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let result = work(at, item);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|r| r.0);
    results.into_iter().map(|r| r.1).collect()
}

fn measure(cases: &[Case], seconds: u64, seed: u64) -> Vec<Result> {
    let mut results = each(cases, |_, case| {
        let run = |policy: &Policy, seed| play(case, policy, WORKERS, seconds, seed);
        let all = |seed| {
            let fixed = ALGORITHMS.iter().map(|a| Policy::Fixed(*a));
            fixed.map(|policy| run(&policy, seed)).collect()
        };
        Result {
            case: *case,
            fixed: all(seed),
            again: all(seed + 1),
            online: run(&Policy::Online(SelectorOptions::default()), seed),
            expecting: Default::default(),
        }
    });
    let expecting = each(&results, |i, r| {
        HELD_OUT.map(|(_, others)| {
            let known = results.iter().enumerate();
            let known = known.filter(|(j, other)| others(&other.case, *j, &r.case, i));
            let options = SelectorOptions {
                tree: Tree::Own,
                experience: known.map(|(_, other)| other.row()).collect(),
                ..SelectorOptions::default()
            };
            play(&r.case, &Policy::Online(options), WORKERS, seconds, seed)
        })
    });
    for (result, expecting) in results.iter_mut().zip(expecting) {
        result.expecting = expecting;
    }
    results
}

fn best(values: impl Iterator<Item = f64>) -> usize {
    let values = values.enumerate();
    values
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
        .map_or(0, |v| v.0)
}

/// The algorithm that is best on average, relative to the oracle, in the situations that count as like this one.
fn learnt(results: &[Result], case: &Case, like: impl Fn(&Case, &Case) -> bool) -> usize {
    best((0..ALGORITHMS.len()).map(|i| {
        let alike = results.iter().filter(|r| like(&r.case, case));
        alike.map(|r| r.fixed[i].rate / r.oracle()).sum()
    }))
}

/// All that T3 sees is equal: no tree with its inputs can tell the two apart.
fn like_t3(a: &Case, b: &Case) -> bool {
    let (a, b) = (a.situation(), b.situation());
    (a.op, a.files, a.large, a.ratio) == (b.op, b.files, b.large, b.ratio)
}

/// All but the device is equal, as far as a server sees it.
fn like_elsewhere(a: &Case, b: &Case) -> bool {
    let (a, b) = (a.situation(), b.situation());
    (a.op, a.files, a.large, a.contiguous) == (b.op, b.files, b.large, b.contiguous)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn table(results: &[Result]) -> String {
    let n = results.len();
    let mut text = format!(
        "{n} situations\n{:<16} {:>16} {:>12} {:>12} {:>14} {:>14}\n",
        "choice", "within 5%", "median gain", "of oracle's", "better > 10%", "worse > 10%"
    );
    let mut line = |name: &str, rate: &dyn Fn(&Result) -> f64| {
        let right = results
            .iter()
            .filter(|r| rate(r) >= 0.95 * r.oracle())
            .count();
        let gains = || results.iter().map(|r| rate(r) / r.of(Algorithm::To) - 1.0);
        let best: f64 = results
            .iter()
            .map(|r| r.oracle() / r.of(Algorithm::To) - 1.0)
            .sum();
        let better = gains().filter(|g| *g > 0.1).count();
        let worse = gains().filter(|g| *g < -0.1).count();
        let _ = writeln!(
            text,
            "{name:<17} {:>8} ({:>3.0}%) {:>11.1}% {:>11.0}% {better:>14} {worse:>14}",
            right,
            right as f64 * 100.0 / n as f64,
            median(gains().collect()) * 100.0,
            gains().sum::<f64>() / best.max(1e-9) * 100.0,
        );
    };
    for algorithm in ALGORITHMS {
        line(algorithm.name(), &|r| r.of(algorithm));
    }
    for tree in Tree::ALL {
        line(tree.name(), &|r| r.of(tree.choose(&r.case.situation())));
    }
    for (name, others) in HELD_OUT {
        line(&format!("own/{name}"), &|r| {
            let at = results.iter().position(|other| other.case == r.case);
            let rows = results.iter().enumerate();
            let rows = rows.filter(|(j, o)| others(&o.case, *j, &r.case, at.unwrap_or(0)));
            let rows: Vec<Row> = rows.map(|(_, o)| o.row()).collect();
            match expect(rows.iter(), &r.case.situation()) {
                Some(all) => r.of(MEASURED[best(all.iter().map(|e| e.1))]),
                None => r.of(Tree::T3.choose(&r.case.situation())),
            }
        });
    }
    line("online", &|r| r.online.rate);
    for (i, (name, _)) in HELD_OUT.iter().enumerate() {
        line(&format!("online/{name}"), &|r| r.expecting[i].rate);
    }
    line("learnt", &|r| {
        r.fixed[learnt(results, &r.case, like_t3)].rate
    });
    line("elsewhere", &|r| {
        let there = |a: &Case, b: &Case| a.device != b.device && like_elsewhere(a, b);
        r.fixed[learnt(results, &r.case, there)].rate
    });
    line("repeated", &|r| {
        let rates = r.again.iter().map(|o| o.rate);
        r.fixed[best(rates)].rate
    });
    line("oracle", &Result::oracle);
    let pairs = results.iter().flat_map(|r| r.fixed.iter().zip(&r.again));
    let apart: Vec<f64> = pairs.map(|(a, b)| (a.rate / b.rate - 1.0).abs()).collect();
    let odd = apart.iter().filter(|d| **d > 0.05).count();
    let (all, middle) = (apart.len(), median(apart.clone()) * 100.0);
    let _ = writeln!(
        text,
        "the same algorithm in the second run: more than 5% off in {odd} of {all} pairs, median {middle:.1}%"
    );
    text
}

fn cases_text(results: &[Result]) -> String {
    let mut text = format!("{:<44}", "MB/s");
    for a in ALGORITHMS {
        let _ = write!(text, "{:>8}", a.name());
    }
    let _ = write!(text, "{:>8}{:>9}  {:<7}", "online", "switches", "t3");
    for (name, _) in HELD_OUT {
        let _ = write!(text, "{:>10}", format!("/{name}"));
    }
    text.push('\n');
    for r in results {
        let _ = write!(text, "{:<44}", r.case.name());
        for o in &r.fixed {
            let _ = write!(text, "{:>8.2}", o.rate / 1e6);
        }
        let t3 = Tree::T3.choose(&r.case.situation());
        let (online, switches) = (r.online.rate / 1e6, r.online.switches);
        let _ = write!(text, "{online:>8.2}{switches:>9}  {t3:<7}");
        for o in &r.expecting {
            let _ = write!(text, "{:>10.2}", o.rate / 1e6);
        }
        text.push('\n');
    }
    text
}

fn main() {
    let quick = std::env::args().any(|a| a == "--quick");
    let all = std::env::args().any(|a| a == "--cases");
    let mut cases = Case::all();
    if quick {
        cases = cases.into_iter().step_by(13).collect();
    }
    let value = |name: &str| std::env::args().skip_while(|a| a != name).nth(1);
    let number = |name, default: u64| value(name).and_then(|v| v.parse().ok()).unwrap_or(default);
    let seconds = number("--seconds", if quick { 4 } else { 8 }).max(2);
    let seed = number("--seed", 1);
    if let Some(name) = value("--case") {
        for case in cases.iter().filter(|c| c.name() == name) {
            for decision in decisions(case, SelectorOptions::default(), WORKERS, seconds, seed) {
                println!("{decision}");
            }
        }
        return;
    }
    let results = measure(&cases, seconds, seed);
    if all {
        println!("{}", cases_text(&results));
    }
    print!("{}", table(&results));
}
