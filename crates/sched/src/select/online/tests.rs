//! The selector against known rates.
use super::*;

/// Drives a selector for `windows` × 250 ms; `rate` gives the requests per window of an algorithm.
fn drive(
    selector: &mut Selector,
    from: u64,
    windows: u64,
    rate: impl Fn(Algorithm) -> u64,
) -> Vec<Algorithm> {
    let mut now = from;
    let end = from + windows * 250 * MILLI;
    let mut ran = Vec::new();
    while now < end {
        let gap = 250 * MILLI / rate(selector.algorithm());
        selector.arrived(now);
        now += gap;
        selector.completed(now, 1, 65_536, gap);
        selector.decide(now);
        ran.push(selector.algorithm());
    }
    ran
}

fn t3() -> SelectorOptions {
    SelectorOptions {
        tree: Tree::T3,
        ..SelectorOptions::default()
    }
}

fn situation() -> Situation {
    Situation {
        op: crate::Op::Write,
        files: 1,
        bytes_per_file: 0,
        order: crate::learn::Order::Contiguous,
        large: true,
        ratio: 21.0,
        memory: 0,
        processes: 0,
        request_bytes: 0,
        servers: 0,
    }
}

#[test]
fn finds_the_best_keeps_it_and_follows_a_change() {
    let mut s = Selector::new(0, t3(), Some(situation()));
    assert_eq!(s.algorithm(), Algorithm::Aioli);
    assert!(
        s.last()
            .unwrap()
            .reason
            .contains("t3 says so for write, 1 file")
    );
    let sjf = |a| if a == Algorithm::Sjf { 300 } else { 100 };
    drive(&mut s, 0, 20, sjf);
    assert_eq!(s.algorithm(), Algorithm::Sjf);
    let ran = drive(&mut s, 10_000 * MILLI, 200, sjf);
    let share = ran.iter().filter(|a| **a == Algorithm::Sjf).count() as f64 / ran.len() as f64;
    assert!(share > 0.95, "{share}");
    assert!(share < 1.0, "it looks around");
    let toagg = |a| if a == Algorithm::ToAgg { 300 } else { 80 };
    let ran = drive(&mut s, 70_000 * MILLI, 60, toagg);
    let late = &ran[ran.len() / 2..];
    let share = late.iter().filter(|a| **a == Algorithm::ToAgg).count() as f64 / late.len() as f64;
    assert!(share > 0.9, "{share}");
    let last = s.last().unwrap();
    assert!(
        !last.reason.is_empty() && last.scores.len() >= 2,
        "{last:?}"
    );
}

#[test]
fn falls_that_come_again_and_again_are_trusted_less_and_rises_forget_nothing_of_others() {
    let mut s = Selector::new(0, SelectorOptions::default(), None);
    let even = |_| 200;
    drive(&mut s, 0, 10, even);
    let mut now = 2_500 * MILLI;
    let mut swing = |s: &mut Selector, rate: u64| {
        let before = s.switches();
        drive(s, now, 8, |_| rate);
        now += 2_000 * MILLI;
        s.switches() - before
    };
    let first = swing(&mut s, 80);
    assert!(first >= 4, "a fall: all are tried anew, {first} changes");
    let up = swing(&mut s, 200);
    assert!(up <= 2, "a rise: {up} changes");
    let again = swing(&mut s, 80);
    assert!(
        again < first,
        "the same fall again: {again} changes after {first}"
    );
}

#[test]
fn small_differences_change_nothing_for_long() {
    let mut s = Selector::new(0, SelectorOptions::default(), None);
    drive(
        &mut s,
        0,
        500,
        |a| if a == Algorithm::Mlf { 101 } else { 100 },
    );
    // Five trials at first, then 3% of the windows and the changes back.
    assert!(s.switches() < 45, "{}", s.switches());
}

#[test]
fn an_algorithm_that_needs_a_second_to_get_going_is_not_given_up() {
    let mut s = Selector::new(0, t3(), Some(situation()));
    let (mut now, mut since, mut runs) = (0, 0, s.algorithm());
    let mut late = [0; 2];
    while now < 20_000 * MILLI {
        if s.algorithm() != runs {
            (runs, since) = (s.algorithm(), now);
        }
        // TO begins at a third of its rate and reaches it after 1.2 s.
        let part = ((now - since) as f64 / 1.2e9).min(1.0);
        let rate = match runs {
            Algorithm::To => 100.0 + 200.0 * part,
            _ => 150.0,
        };
        let gap = (250.0 * MILLI as f64 / rate) as Nanos;
        s.arrived(now);
        now += gap;
        s.completed(now, 1, 65_536, gap);
        s.decide(now);
        if now > 5_000 * MILLI {
            late[usize::from(runs == Algorithm::To)] += gap / 1000;
        }
    }
    assert!(late[1] > 4 * late[0], "{late:?}");
}

#[test]
fn idle_time_is_no_sample() {
    let mut s = Selector::new(0, SelectorOptions::default(), None);
    for i in 0..1000 {
        assert!(s.decide(i * 100 * MILLI).is_none());
    }
    assert_eq!(s.switches(), 0);
    s.set_objective(0, Objective::P99);
    assert_eq!(s.objective(), Objective::P99);
}
