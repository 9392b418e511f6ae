//! Which algorithm for which situation: the source's cross-product on virtual time.
//!
//!     cargo run --release -p penstock-sched --example selection -- [--cases] [--seconds N] [--seeds N-M]
//!     cargo run --release -p penstock-sched --example selection -- --learn --seeds 1-4 > measured.csv
//!     cargo run --release -p penstock-sched --example selection -- --case 'pastel read x1 N-1 contig large 8'
//!
//! What an algorithm gives in a situation is the mean over the runs with the given seeds. Prints, for every fixed algorithm,
//! the trees, the online selector and the oracle (the largest of these means), how often they choose within 5% of the
//! oracle, what they gain over TO, and where they lose. `own` was made of runs with other seeds
//! (`experiments/scheduling/measured.csv`). `own/X` chooses by what the algorithms gave in other situations of that
//! file, `online/X` begins with that: those with another number of processes, in the other nine folds, or on the other
//! devices. Two lines bound what can be had: `known`, the best of that file in the very situation; `inputs`, the best that any
//! tree with T3's inputs (not the processes) could choose if it were learnt from the very figures by which it is judged. `--case` shows what
//! the online selector decides in one situation, and why; `--learn` prints the file of measurements; `--choices` what each tree
//! says of each situation. `--alone`, `--four`: a server as Penstock's are, alone or of four, instead of the source's; `--queue cfq`
//! or `deadline` above disks. `--device NAME`: that one only.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]
mod cluster;
mod figures;

use cluster::{Case, Policy, Setup, decisions, play};
use figures::{Figures, Rates, rate};
use penstock_sched::{Algorithm, MEASURED, Row, SelectorOptions, Tree, expect};
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Requests at the device at once, as threads of a data server.
const WORKERS: usize = 4;

/// What may be known of other situations: those with another number of processes; those of other folds of ten; those of
/// other devices.
type Held = fn(&Case, &Case) -> bool;
const HELD_OUT: [(&str, Held); 3] = [
    ("processes", |a, b| a.processes != b.processes),
    ("folds", |a, b| fold(a) != fold(b)),
    ("devices", |a, b| a.device != b.device),
];

/// One of ten, as if drawn.
fn fold(case: &Case) -> u64 {
    let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    let hash = case.name().bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    (hash >> 32) % 10
}

/// Runs of one situation.
struct Measured {
    case: Case,
    /// By [`MEASURED`].
    fixed: Vec<Figures>,
    /// By [`starts`].
    online: Vec<Figures>,
    /// Changes of the first of these.
    switches: u64,
}

impl Measured {
    fn rates(&self) -> Rates {
        std::array::from_fn(|i| self.fixed[i].mean())
    }

    fn of(&self, algorithm: Algorithm) -> f64 {
        rate(&self.rates(), algorithm)
    }

    fn oracle(&self) -> f64 {
        self.rates().into_iter().fold(0.0, f64::max)
    }
}

/// On all processors; results in the order of the items.
fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let result = work(item);
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

/// What is known of the situations that may be known for this one.
fn experience(known: &[(Case, Rates)], case: &Case, held: Held) -> Vec<Row> {
    let others = known.iter().filter(|(other, _)| held(other, case));
    others
        .map(|(other, rates)| figures::row(other, rates))
        .collect()
}

/// The ways in which the online selector begins, with their names.
fn starts(known: &[(Case, Rates)], case: &Case) -> Vec<(String, SelectorOptions)> {
    let options = SelectorOptions::default();
    let t3 = SelectorOptions {
        tree: Tree::T3,
        ..options.clone()
    };
    let mut all = vec![
        ("online".to_owned(), options.clone()),
        ("online/t3".to_owned(), t3),
    ];
    all.extend(HELD_OUT.map(|(name, held)| {
        let options = SelectorOptions {
            tree: Tree::Own,
            experience: experience(known, case, held),
            ..options.clone()
        };
        (format!("online/{name}"), options)
    }));
    all
}

struct Plan<'a> {
    seconds: u64,
    seeds: &'a [u64],
    known: &'a [(Case, Rates)],
    /// Algorithms alone, to learn from.
    learn: bool,
}

impl Plan<'_> {
    fn measure(&self, cases: &[Case]) -> Vec<Measured> {
        each(cases, |case| {
            let mut switches = 0;
            let mut run = |policy: &Policy| {
                let mut rates = Vec::new();
                for seed in self.seeds {
                    let outcome = play(case, policy, WORKERS, self.seconds, *seed);
                    rates.push(outcome.rate);
                    switches = outcome.switches;
                }
                Figures(rates)
            };
            let fixed = MEASURED.map(|a| run(&Policy::Fixed(a))).to_vec();
            let mut online = Vec::new();
            if !self.learn {
                for (_, options) in starts(self.known, case).into_iter().rev() {
                    online.insert(0, run(&Policy::Online(options)));
                }
            }
            Measured {
                case: *case,
                fixed,
                online,
                switches,
            }
        })
    }
}

fn best(rates: &Rates) -> Algorithm {
    let all = MEASURED.iter().zip(rates).rev();
    all.max_by(|a, b| a.1.total_cmp(b.1))
        .map_or(Algorithm::To, |b| *b.0)
}

/// The algorithm that is best on average, relative to the oracle, in the situations that T3 cannot tell from this one.
fn inputs(all: &[Measured], case: &Case) -> Algorithm {
    let seen = |c: &Case| {
        let s = c.situation();
        (s.op, s.files, s.contiguous, s.large, s.ratio.to_bits())
    };
    let mut sums = [0.0; 5];
    for other in all.iter().filter(|o| seen(&o.case) == seen(case)) {
        let oracle = other.oracle();
        for (sum, rate) in sums.iter_mut().zip(other.rates()) {
            *sum += rate / oracle;
        }
    }
    best(&sums)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// One line: what a choice gives in each situation, as the mean and by run.
fn line(text: &mut String, name: &str, all: &[Measured], of: &dyn Fn(&Measured) -> Figures) {
    let n = all.len();
    let rates: Vec<Figures> = all.iter().map(of).collect();
    let pairs = || all.iter().zip(&rates);
    let right = pairs()
        .filter(|(m, r)| r.mean() >= 0.95 * m.oracle())
        .count();
    let gains: Vec<f64> = pairs()
        .map(|(m, r)| r.mean() / m.of(Algorithm::To) - 1.0)
        .collect();
    let possible = all.iter().map(|m| m.oracle() / m.of(Algorithm::To) - 1.0);
    let share = gains.iter().sum::<f64>() / possible.sum::<f64>().max(1e-9);
    let better = gains.iter().filter(|g| **g > 0.1).count();
    let worse = gains.iter().filter(|g| **g < -0.1).count();
    let runs = pairs().map(|(m, r)| {
        let least = 0.9 * m.of(Algorithm::To);
        r.0.iter().filter(|rate| **rate < least).count()
    });
    let _ = writeln!(
        text,
        "{name:<17} {right:>5} ({:>3.0}%) {:>11.1}% {:>10.0}% {better:>13} {worse:>13} {:>12}",
        right as f64 * 100.0 / n as f64,
        median(gains) * 100.0,
        share * 100.0,
        runs.sum::<usize>(),
    );
}

fn table(all: &[Measured], known: &[(Case, Rates)]) -> String {
    let mut text = format!(
        "{} situations\n{:<17} {:>12} {:>12} {:>11} {:>13} {:>13} {:>12}\n",
        all.len(),
        "choice",
        "within 5%",
        "median gain",
        "of oracle's",
        "better > 10%",
        "worse > 10%",
        "single runs"
    );
    let fixed = |m: &Measured, algorithm: Algorithm| {
        let wanted = match algorithm {
            Algorithm::Noop => Algorithm::To,
            other => other,
        };
        let at = MEASURED.iter().position(|a| *a == wanted);
        m.fixed[at.unwrap_or(0)].clone()
    };
    for algorithm in MEASURED {
        line(&mut text, algorithm.name(), all, &|m| fixed(m, algorithm));
    }
    for tree in Tree::ALL {
        line(&mut text, tree.name(), all, &|m| {
            fixed(m, tree.choose(&m.case.situation()))
        });
    }
    for (name, held) in HELD_OUT {
        line(&mut text, &format!("own/{name}"), all, &|m| {
            let rows = experience(known, &m.case, held);
            let expected = expect(rows.iter(), &m.case.situation());
            fixed(m, expected.map_or(Algorithm::To, |e| e.best()))
        });
    }
    if let Some(first) = all.first() {
        for (i, (name, _)) in starts(known, &first.case).iter().enumerate() {
            line(&mut text, name, all, &|m| m.online[i].clone());
        }
    }
    line(&mut text, "inputs", all, &|m| {
        fixed(m, inputs(all, &m.case))
    });
    line(&mut text, "known", all, &|m| {
        let found = known.iter().find(|k| k.0 == m.case);
        fixed(m, found.map_or(Algorithm::To, |k| best(&k.1)))
    });
    line(&mut text, "oracle", all, &|m| fixed(m, best(&m.rates())));
    let errors = all.iter().flat_map(|m| &m.fixed);
    let errors: Vec<f64> = errors.map(|f| f.error() / f.mean()).collect();
    let large = errors.iter().filter(|e| **e > 0.025).count();
    let _ = writeln!(
        text,
        "standard error of a mean: median {:.1}%, above 2.5% in {large} of {}",
        median(errors.clone()) * 100.0,
        errors.len()
    );
    text
}

fn cases_text(all: &[Measured], known: &[(Case, Rates)]) -> String {
    let mut text = format!("{:<44}", "MB/s");
    for a in MEASURED {
        let _ = write!(text, "{:>8}", a.name());
    }
    let names = all.first().map_or(Vec::new(), |m| starts(known, &m.case));
    for (name, _) in names {
        let _ = write!(text, "{name:>18}");
    }
    text.push_str("  changes  t3      own\n");
    for m in all {
        let _ = write!(text, "{:<44}", m.case.name());
        for f in &m.fixed {
            let _ = write!(text, "{:>8.2}", f.mean() / 1e6);
        }
        for f in &m.online {
            let _ = write!(text, "{:>18.2}", f.mean() / 1e6);
        }
        let choice = |tree: Tree| tree.choose(&m.case.situation()).name();
        let (t3, own) = (choice(Tree::T3), choice(Tree::Own));
        let _ = writeln!(text, "{:>9}  {t3:<7} {own}", m.switches);
    }
    text
}

/// What each tree says of each situation, as CSV.
fn choices_text(cases: &[Case]) -> String {
    let names: Vec<&str> = Tree::ALL.iter().map(|t| t.name()).collect();
    let mut text = format!("case,{}\n", names.join(","));
    for case in cases {
        let choices = Tree::ALL.map(|t| t.choose(&case.situation()).name());
        let _ = writeln!(text, "{},{}", case.name(), choices.join(","));
    }
    text
}

/// `3-5` or `3`.
fn seeds(text: &str) -> Option<Vec<u64>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.parse().ok()?, to.parse::<u64>().ok()?);
    (from <= to && to - from < 1000).then(|| (from..=to).collect())
}

fn main() {
    let has = |name: &str| std::env::args().any(|a| a == name);
    let value = |name: &str| std::env::args().skip_while(|a| a != name).nth(1);
    let setup = match (has("--alone"), has("--four")) {
        (true, _) => Setup::ALONE,
        (_, true) => Setup::FOUR,
        _ => Setup::SOURCE,
    };
    let setup = match value("--queue").as_deref() {
        Some("cfq") => setup.with("cfq"),
        Some("deadline") => setup.with("deadline"),
        _ => setup,
    };
    let mut cases = Case::all(setup);
    if has("--quick") {
        cases = cases.into_iter().step_by(13).collect();
    }
    let number = |name, default: u64| value(name).and_then(|v| v.parse().ok()).unwrap_or(default);
    let seconds = number("--seconds", 16).max(2);
    if let Some(device) = value("--device") {
        cases.retain(|c| c.name().split(' ').next() == Some(device.as_str()));
    }
    let Some(seeds) = seeds(&value("--seeds").unwrap_or_else(|| "104-106".to_owned())) else {
        eprintln!("selection: --seeds N or N-M");
        std::process::exit(2);
    };
    let known = figures::known(&Case::all(setup));
    if has("--choices") {
        print!("{}", choices_text(&cases));
        return;
    }
    if let Some(name) = value("--case") {
        for case in cases.iter().filter(|c| c.name() == name) {
            let start = value("--start").unwrap_or_else(|| "online".to_owned());
            let all = starts(&known, case).into_iter();
            for (_, options) in all.filter(|s| s.0 == start) {
                for decision in decisions(case, options, WORKERS, seconds, seeds[0]) {
                    println!("{decision}");
                }
            }
        }
        return;
    }
    let plan = Plan {
        seconds,
        seeds: &seeds,
        known: &known,
        learn: has("--learn"),
    };
    let all = plan.measure(&cases);
    if plan.learn {
        println!("{}", figures::head(seconds, &seeds));
        for m in &all {
            println!("{}", figures::line(&m.case, &m.fixed));
        }
        return;
    }
    if has("--cases") {
        println!("{}", cases_text(&all, &known));
    }
    print!("{}", table(&all, &known));
}
