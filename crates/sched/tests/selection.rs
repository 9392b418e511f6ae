//! A part of the selection experiment: what has to hold whatever the device.

#[path = "../examples/selection/cluster.rs"]
#[allow(dead_code)]
mod cluster;

use cluster::{Case, Policy, Setup, play};
use penstock_sched::{Algorithm, SelectorOptions};

#[test]
fn the_online_selector_is_no_worse_than_to_and_near_the_best() {
    let setups = [Setup::SOURCE, Setup::ALONE, Setup::FOUR].into_iter();
    let all = setups.flat_map(Case::all);
    let cases: Vec<Case> = all.step_by(71).collect();
    assert_eq!(cases.len(), 9);
    for case in &cases {
        let rate = |policy| play(case, &policy, 4, 4, 1).rate;
        let to = rate(Policy::Fixed(Algorithm::To));
        let online = rate(Policy::Online(SelectorOptions::default()));
        assert!(
            to > 0.0 && online > 0.85 * to,
            "{}: {to} {online}",
            case.name()
        );
    }
}

#[test]
fn a_run_is_the_same_again() {
    let case = Case::all(Setup::SOURCE)[20];
    let online = Policy::Online(SelectorOptions::default());
    let run = || play(&case, &online, 4, 2, 1);
    let (a, b) = (run(), run());
    assert_eq!((a.rate, a.switches), (b.rate, b.switches));
}
