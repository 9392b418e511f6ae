//! The control channel: its period, epochs of several servers, and leases.
use penstock_rpc::control::{Figures, Follower, Holder, LEASE, PERIOD};
use penstock_wire::message::{Decision, Epoch, Report};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Reports now and receives this decision in answer.
fn tell(follower: &mut Follower, now: Duration, (term, count): (u64, u64), lease_ms: u64) {
    follower.report(now, PERIOD, Figures::default());
    let sequence = follower.pending().unwrap().sequence;
    follower.told(Decision {
        sequence,
        epoch: Epoch { term, count },
        lease_ms,
        window: Vec::new(),
    });
}

fn epoch(follower: &Follower, now: Duration) -> Option<(u64, u64)> {
    let (epoch, _) = follower.decision(now)?;
    Some((epoch.term, epoch.count))
}

#[test]
fn a_report_is_due_each_half_second_and_outlived_by_the_lease() {
    assert!(PERIOD <= Duration::from_millis(500));
    // The answers to several reports may be lost before the default holds.
    assert!(LEASE >= 4 * PERIOD);
    let mut follower = Follower::new(1);
    follower.report(SECOND, 3 * PERIOD, Figures::default());
    assert_eq!(follower.pending().unwrap().period_ms, 1500);
    let endless = Report {
        period_ms: u64::MAX,
        ..Report::default()
    };
    let mut follower = Follower::new(1);
    follower.report(SECOND, Duration::MAX, Figures::default());
    assert_eq!(follower.pending().unwrap().period_ms, endless.period_ms);
}

#[test]
fn a_lease_is_a_duration_by_the_clock_of_the_one_who_reported() {
    // Whatever the clock shows: clocks of two servers are never compared.
    for begin in [Duration::ZERO, SECOND * 1_000_000_000] {
        let mut follower = Follower::new(1);
        assert_eq!(epoch(&follower, begin), None);
        tell(&mut follower, begin, (1, 1), 1000);
        let last = begin + SECOND - Duration::from_nanos(1);
        assert_eq!(epoch(&follower, last), Some((1, 1)));
        assert_eq!(epoch(&follower, begin + SECOND), None);
        // The same decision again extends the lease and never shortens it.
        tell(&mut follower, begin + SECOND, (1, 1), 3000);
        tell(&mut follower, begin + SECOND, (1, 1), 0);
        assert_eq!(epoch(&follower, begin + 3 * SECOND), Some((1, 1)));
        // A newer one ends the former one's lease, however long that was.
        tell(&mut follower, begin + 2 * SECOND, (1, 2), 500);
        assert_eq!(epoch(&follower, begin + 2 * SECOND), Some((1, 2)));
        assert_eq!(epoch(&follower, begin + 3 * SECOND), None);
        // Without a lease no decision is in force, but it must be acknowledged.
        tell(&mut follower, begin + 4 * SECOND, (1, 3), 0);
        assert_eq!(epoch(&follower, begin + 4 * SECOND), None);
        assert!(follower.owes());
    }
    let mut follower = Follower::new(1);
    tell(&mut follower, SECOND, (1, 1), u64::MAX);
    assert_eq!(epoch(&follower, SECOND * 1_000_000), Some((1, 1)));
}

#[test]
fn an_older_decision_neither_holds_nor_renews_the_lease() {
    let mut follower = Follower::new(1);
    tell(&mut follower, SECOND, (5, 2), 1000);
    tell(&mut follower, SECOND, (5, 1), 60_000);
    tell(&mut follower, SECOND, (4, 9), 60_000);
    assert_eq!(epoch(&follower, 2 * SECOND), None);
    // It acknowledges the newest decision it received.
    follower.report(3 * SECOND, PERIOD, Figures::default());
    let applied = follower.pending().unwrap().applied;
    assert_eq!((applied.term, applied.count), (5, 2));
}

#[test]
fn each_server_has_decisions_of_its_own_and_acknowledges_them_itself() {
    let mut holder = Holder::new(3);
    let mut followers: Vec<Follower> = (1..=3).map(Follower::new).collect();
    let mut round = |holder: &mut Holder, now: Duration| {
        let mut epochs = Vec::new();
        for (server, follower) in (0..).zip(&mut followers) {
            follower.report(now, PERIOD, Figures::default());
            let (decision, fresh) = holder.heard(server, follower.pending().unwrap());
            assert!(fresh && decision.lease_ms == LEASE.as_millis() as u64);
            epochs.push((decision.epoch.term, decision.epoch.count));
            follower.told(decision);
        }
        epochs
    };
    let first = round(&mut holder, SECOND);
    assert_eq!(first, [(3, 1), (3, 2), (3, 3)]);
    assert!((0..3).all(|server| !holder.is_acknowledged(server)));
    // Without a new decision the epoch stays.
    assert_eq!(round(&mut holder, 2 * SECOND), first);
    assert!((0..3).all(|server| holder.is_acknowledged(server)));
    // Acknowledgements of another server's decision, or of none, are invalid.
    let claims = |count| Report {
        incarnation: 9,
        sequence: 1,
        applied: Epoch { term: 3, count },
        ..Report::default()
    };
    holder.heard(0, &claims(2));
    assert!(!holder.is_acknowledged(0));
    holder.heard(7, &claims(99));
    assert!(!holder.is_acknowledged(7));
}
