//! Properties of range locks.
#![allow(clippy::unwrap_used)]
use super::*;
use penstock_rpc::share::{Pool, Share};
use proptest::prelude::*;
use std::collections::HashMap;

const LEASE: Duration = Duration::from_secs(10);
const STRANGERS: Duration = Duration::from_secs(1);
const A: Owner = owner(1);
const B: Owner = owner(2);
const C: Owner = owner(3);
/// Of two other users.
const MINE: Owner = of_user(4, 1000);
const THEIRS: Owner = of_user(5, 1001);

/// Of one user without a share.
const fn owner(connection: u64) -> Owner {
    Owner {
        payer: None,
        ..of_user(connection, 0)
    }
}

const fn of_user(connection: u64, uid: u32) -> Owner {
    Owner {
        connection,
        user: uid,
        payer: Some(uid),
        process: None,
    }
}

fn locks() -> RangeLocks {
    RangeLocks::new(LockLimits {
        lease: LEASE,
        strangers: STRANGERS,
        waiters: 8,
        per_owner: 3,
    })
}

fn ask(l: &mut RangeLocks, owner: Owner, range: Range<u64>, mode: Mode) -> Ticket {
    let ticket = l.request(owner, range, mode, None).unwrap();
    l.ready(ticket);
    ticket
}

fn granted(l: &mut RangeLocks, now: Instant) -> Vec<Ticket> {
    let mut all = Vec::new();
    l.advance(now, |t| all.push(t));
    all
}

#[test]
fn conflicts_wait_in_order_and_strangers_pass() {
    let mut l = locks();
    let now = Instant::now();
    let a = ask(&mut l, A, 0..100, Mode::Exclusive);
    assert_eq!(granted(&mut l, now), [a]);
    let b = ask(&mut l, B, 50..150, Mode::Shared);
    // C does not touch A's range but B's, which came first.
    let c = ask(&mut l, C, 120..130, Mode::Exclusive);
    let far = ask(&mut l, C, 500..600, Mode::Exclusive);
    assert_eq!(granted(&mut l, now), [far]);
    l.release(A, a).unwrap();
    assert_eq!(granted(&mut l, now), [b]);
    l.release(B, b).unwrap();
    assert_eq!(granted(&mut l, now), [c]);
}

#[test]
fn no_user_waits_long_for_another() {
    let (mut l, now) = (locks(), Instant::now());
    let at = |ms: u64| now + Duration::from_millis(ms);
    let shared = ask(&mut l, THEIRS, 0..100, Mode::Shared);
    let whole = ask(&mut l, THEIRS, 200..300, Mode::Exclusive);
    assert_eq!(granted(&mut l, now), [shared, whole]);
    // Uses make an exclusive lock last, not a shared one.
    for ticket in [shared, whole] {
        l.begin_use(THEIRS, ticket).unwrap();
        l.end_use(at(900), THEIRS, ticket);
    }
    let (a, b) = (
        ask(&mut l, MINE, 0..1, Mode::Write),
        ask(&mut l, MINE, 200..201, Mode::Write),
    );
    assert_eq!(l.in_the_way(a), Some(THEIRS));
    assert_eq!(l.next_expiry(), Some(at(1000)));
    assert_eq!(granted(&mut l, at(999)), []);
    assert_eq!(granted(&mut l, at(1000)), [a]);
    assert_eq!(l.next_expiry(), Some(at(10_900)));
    assert_eq!(l.begin_use(THEIRS, shared), Err(Refusal::Lost));
    // Of one user they last a lease.
    let own = ask(&mut l, MINE, 400..500, Mode::Shared);
    assert_eq!(granted(&mut l, at(2000)), [own]);
    ask(&mut l, of_user(9, 1000), 400..401, Mode::Write);
    assert_eq!(granted(&mut l, at(10_899)), []);
    assert_eq!(granted(&mut l, at(10_900)), [b]);
    assert_eq!(granted(&mut l, at(11_999)), []);
    assert_eq!(granted(&mut l, at(12_000)).len(), 1);
}

#[test]
fn who_is_not_ready_keeps_no_other_user_back() {
    let (mut l, now) = (locks(), Instant::now());
    let theirs = l.request(THEIRS, 0..100, Mode::Shared, None).unwrap();
    assert!(l.try_write(now, of_user(9, 1001), &(0..1)).is_none());
    assert!(l.try_write(now, MINE, &(0..1)).is_some());
    let mine = ask(&mut l, MINE, 10..20, Mode::Exclusive);
    assert_eq!(granted(&mut l, now), [mine]);
    l.ready(theirs);
    assert_eq!(granted(&mut l, now), []);
}

#[test]
fn one_owner_cannot_hoard() {
    let (mut l, now) = (locks(), Instant::now());
    for at in 0..3 {
        ask(&mut l, A, at * 10..at * 10 + 5, Mode::Exclusive);
    }
    let held = granted(&mut l, now);
    assert_eq!(held.len(), 3);
    let more = l.request(A, 30..35, Mode::Shared, None);
    assert_eq!(more, Err(Refusal::TooMany));
    // Its writes are no locks, others have theirs, and a lock given back makes room.
    assert!(l.try_write(now, A, &(40..41)).is_some());
    ask(&mut l, B, 30..35, Mode::Exclusive);
    l.release(A, held[0]).unwrap();
    ask(&mut l, A, 50..51, Mode::Exclusive);
    assert_eq!(granted(&mut l, now).len(), 2);
}

#[test]
fn shared_locks_share_and_keep_plain_writes_out() {
    let mut l = locks();
    let now = Instant::now();
    let a = ask(&mut l, A, 0..10, Mode::Shared);
    let b = ask(&mut l, B, 5..15, Mode::Shared);
    assert_eq!(granted(&mut l, now), [a, b]);
    assert!(l.try_write(now, C, &(9..10)).is_none());
    // Two Shared holders write into each other's range: each waits for the other's lock.
    assert!(l.try_write(now, A, &(9..10)).is_none());
    assert!(l.try_write(now, A, &(0..5)).is_some());
    assert!(l.try_write(now, C, &(15..16)).is_some());
}

#[test]
fn a_lock_waits_for_plain_writes_under_way_and_later_ones_for_it() {
    let mut l = locks();
    let now = Instant::now();
    let w1 = l.try_write(now, A, &(0..10)).unwrap();
    let w2 = l.try_write(now, B, &(0..10)).unwrap();
    let lock = ask(&mut l, C, 0..4, Mode::Exclusive);
    assert!(granted(&mut l, now + 2 * LEASE).is_empty());
    assert!(l.try_write(now, A, &(2..3)).is_none());
    assert!(l.try_write(now, A, &(4..5)).is_some());
    l.release(A, w1).unwrap();
    assert!(granted(&mut l, now).is_empty());
    l.release(B, w2).unwrap();
    assert_eq!(granted(&mut l, now), [lock]);
    // The holder's own writes pass.
    assert!(l.try_write(now, C, &(2..3)).is_some());
    assert!(l.try_write(now, B, &(2..3)).is_none());
    // Also while others wait for the lock.
    ask(&mut l, B, 0..4, Mode::Exclusive);
    assert!(l.try_write(now, C, &(2..3)).is_some());
}

#[test]
fn an_idle_lock_is_lost_only_when_wanted_and_not_in_use() {
    let mut l = locks();
    let now = Instant::now();
    let a = ask(&mut l, A, 0..10, Mode::Exclusive);
    granted(&mut l, now);
    let late = now + 2 * LEASE;
    assert!(granted(&mut l, late).is_empty());
    assert!(l.begin_use(A, a).is_ok());
    let b = ask(&mut l, B, 0..10, Mode::Exclusive);
    assert_eq!(l.next_expiry(), None);
    assert!(granted(&mut l, late).is_empty());
    l.end_use(late, A, a);
    assert!(granted(&mut l, late).is_empty());
    assert_eq!(l.next_expiry(), Some(late + LEASE));
    assert_eq!(granted(&mut l, late + LEASE), [b]);
    assert_eq!(l.begin_use(A, a), Err(Refusal::Lost));
    assert_eq!(l.release(A, a), Err(Refusal::Lost));
    assert_eq!(l.begin_use(A, b), Err(Refusal::Lost));
}

#[test]
fn nothing_is_granted_before_it_is_ready() {
    let mut l = locks();
    let now = Instant::now();
    let a = l.request(A, 0..10, Mode::Exclusive, None).unwrap();
    assert!(granted(&mut l, now).is_empty());
    assert!(l.locked());
    // It keeps its place meanwhile.
    let b = ask(&mut l, B, 0..10, Mode::Exclusive);
    assert!(granted(&mut l, now).is_empty());
    l.ready(a);
    assert_eq!(granted(&mut l, now), [a]);
    l.disconnect(A);
    assert_eq!(granted(&mut l, now), [b]);
    l.release(B, b).unwrap();
    assert!(!l.locked());
}

#[test]
fn the_queue_is_bounded_and_nobody_waits_for_itself() {
    let mut l = locks();
    let now = Instant::now();
    let a = ask(&mut l, A, 0..10, Mode::Exclusive);
    granted(&mut l, now);
    assert_eq!(l.request(A, 5..6, Mode::Shared, None), Err(Refusal::Own));
    let waiting: Vec<_> = (0..8)
        .map(|_| ask(&mut l, B, 0..10, Mode::Exclusive))
        .collect();
    assert_eq!(
        l.request(C, 0..10, Mode::Exclusive, None),
        Err(Refusal::Full)
    );
    assert!(l.withdraw(waiting[3]));
    assert!(!l.withdraw(waiting[3]));
    assert!(l.request(C, 0..10, Mode::Exclusive, None).is_ok());
    assert!(!l.withdraw(a));
}

#[test]
fn one_user_leaves_room_in_the_queue() {
    let (mut l, now) = (locks(), Instant::now());
    ask(&mut l, A, 0..10, Mode::Exclusive);
    granted(&mut l, now);
    // Of eight, three quarters.
    let waiting: Vec<Ticket> = (0..6)
        .map(|i| ask(&mut l, of_user(10 + i, 1001), 0..10, Mode::Exclusive))
        .collect();
    let more = l.request(of_user(20, 1001), 0..10, Mode::Write, None);
    assert_eq!(more, Err(Refusal::Crowd(1001)));
    ask(&mut l, of_user(21, 1000), 0..10, Mode::Write);
    // Whom no share bounds has what is left.
    ask(&mut l, B, 0..10, Mode::Shared);
    let full = l.request(C, 0..10, Mode::Shared, None);
    assert_eq!(full, Err(Refusal::Full));
    for ticket in waiting {
        assert!(l.withdraw(ticket));
    }
    ask(&mut l, of_user(20, 1001), 0..10, Mode::Write);
}

#[test]
fn a_charge_ends_with_its_lock_however_that_ends() {
    let (mut l, now) = (locks(), Instant::now());
    let pool = Pool::new(Share::elastic(64, "range locks", "unlock some"));
    let charged = |l: &mut RangeLocks, owner: Owner| {
        let charge = pool.take(owner.payer).unwrap();
        let ticket = l
            .request(owner, 0..10, Mode::Exclusive, Some(charge))
            .unwrap();
        l.ready(ticket);
        ticket
    };
    let released = charged(&mut l, MINE);
    granted(&mut l, now);
    let lost = charged(&mut l, THEIRS);
    let withdrawn = charged(&mut l, of_user(7, 1000));
    let cancelled = charged(&mut l, of_user(6, 1000));
    assert_eq!(pool.held(), 4);
    assert!(l.withdraw(withdrawn));
    l.release(MINE, released).unwrap();
    assert_eq!((granted(&mut l, now), pool.held()), (vec![lost], 2));
    assert_eq!(granted(&mut l, now + LEASE), [cancelled]);
    assert_eq!(pool.held(), 1);
    l.cancel(cancelled);
    charged(&mut l, THEIRS);
    charged(&mut l, MINE);
    granted(&mut l, now);
    assert_eq!(pool.held(), 2);
    l.disconnect(THEIRS);
    l.disconnect(MINE);
    assert_eq!(pool.held(), 0);
    // What is refused is not charged.
    charged(&mut l, MINE);
    granted(&mut l, now);
    let charge = pool.take(MINE.payer).unwrap();
    let own = l.request(MINE, 5..6, Mode::Shared, Some(charge));
    assert_eq!((own, pool.held()), (Err(Refusal::Own), 1));
}

#[derive(Debug, Clone)]
enum Step {
    Ask(u64, u64, u64, u8),
    Write(u64, u64, u64),
    Release(usize),
    Withdraw(usize),
    Disconnect(u64),
    Time(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u64, 0..20u64, 1..8u64, 0..2u8).prop_map(|(o, s, n, m)| Step::Ask(o, s, n, m)),
        3 => (0..4u64, 0..20u64, 1..8u64).prop_map(|(o, s, n)| Step::Write(o, s, n)),
        3 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Withdraw),
        1 => (0..4u64).prop_map(Step::Disconnect),
        1 => (1..30u64).prop_map(Step::Time),
    ]
}

proptest! {
    /// Property: whatever happens, no two conflicting ranges are held at once. When all are released all waiting
    /// requests are granted: nothing is forgotten.
    #[test]
    fn holders_never_conflict_and_everyone_gets_a_turn(
        steps in proptest::collection::vec(step(), 1..60)
    ) {
        let mut l = RangeLocks::new(LockLimits { lease: LEASE, strangers: STRANGERS, waiters: 1000, per_owner: 1000 });
        let mut now = Instant::now();
        let mut owners: HashMap<Ticket, Owner> = HashMap::new();
        let mut held: Vec<Ticket> = Vec::new();
        let mut waiting: Vec<Ticket> = Vec::new();
        for s in steps {
            match s {
                Step::Ask(o, start, n, m) => {
                    let mode = if m == 0 { Mode::Shared } else { Mode::Exclusive };
                    if let Ok(t) = l.request(of_user(o, 1000 + (o % 2) as u32), start..start + n, mode, None) {
                        l.ready(t);
                        owners.insert(t, of_user(o, 1000 + (o % 2) as u32));
                        waiting.push(t);
                    }
                }
                Step::Write(o, start, n) => {
                    if let Some(t) = l.try_write(now, of_user(o, 1000 + (o % 2) as u32), &(start..start + n)) {
                        owners.insert(t, of_user(o, 1000 + (o % 2) as u32));
                        held.push(t);
                    }
                }
                Step::Release(i) if !held.is_empty() => {
                    let t = held.swap_remove(i % held.len());
                    let _ = l.release(owners[&t], t);
                }
                Step::Withdraw(i) if !waiting.is_empty() => {
                    let t = waiting.swap_remove(i % waiting.len());
                    prop_assert!(l.withdraw(t));
                }
                Step::Disconnect(o) => {
                    l.disconnect(of_user(o, 1000 + (o % 2) as u32));
                    held.retain(|t| owners[t] != of_user(o, 1000 + (o % 2) as u32));
                    waiting.retain(|t| owners[t] != of_user(o, 1000 + (o % 2) as u32));
                }
                Step::Time(s) => now += Duration::from_secs(s),
                _ => {}
            }
            l.advance(now, |t| {
                waiting.retain(|w| *w != t);
                held.push(t);
            });
            for (i, a) in l.held.iter().enumerate() {
                for b in &l.held[i + 1..] {
                    prop_assert!(!a.entry.conflicts(&b.entry), "{a:?} {b:?}");
                }
            }
        }
        let mut rounds = 0;
        while !held.is_empty() {
            for t in std::mem::take(&mut held) {
                let _ = l.release(owners[&t], t);
            }
            l.advance(now, |t| {
                waiting.retain(|w| *w != t);
                held.push(t);
            });
            rounds += 1;
            prop_assert!(rounds < 100);
        }
        prop_assert!(waiting.is_empty());
        prop_assert!(l.quiet());
    }
}
