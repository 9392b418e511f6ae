use super::*;
use penstock_wire::message::Bound;

const DAY: u64 = 86_400_000;

fn limited(soft: Option<u64>, hard: Option<u64>, servers: u32) -> Bytes {
    let mut bytes = Bytes::default();
    bytes.begin(1, (0..servers).map(ServerId));
    let change = LimitsChange {
        bytes_soft: soft.map(Bound::At),
        bytes_hard: hard.map(Bound::At),
        ..LimitsChange::default()
    };
    bytes.set(7, &change).unwrap();
    bytes
}

fn tell(bytes: &mut Bytes, server: u32, used: u64, lease: u64, want: u64) -> Lease {
    tell_at(bytes, server, (used, lease, want), true, 0)
}

fn tell_at(
    bytes: &mut Bytes,
    server: u32,
    (used, lease, want): (u64, u64, u64),
    counted: bool,
    now_ms: u64,
) -> Lease {
    let usage = Usage {
        uid: 7,
        used,
        lease,
        want,
        counted,
    };
    let report = UsageReport {
        server,
        incarnation: 1,
        sequence: bytes.reports + 1,
        followed: Followed::default(),
        users: vec![usage],
    };
    bytes.report(&report, |_| DAY, now_ms).unwrap().users[0]
}

#[test]
fn all_leases_together_are_within_the_limit() {
    let mut b = limited(None, Some(100), 2);
    assert_eq!(
        tell(&mut b, 0, 0, 0, 50).lease,
        0,
        "server 1 has not told of its own"
    );
    tell(&mut b, 1, 10, 10, 0);
    let first = tell(&mut b, 0, 0, 0, 50);
    assert!(first.lease >= 50 && !first.full);
    let second = tell(&mut b, 1, 10, 10, 40);
    assert!(second.lease + first.lease <= 100, "{first:?} {second:?}");
    // Repeated, as after a lost answer: nothing is granted twice.
    for _ in 0..5 {
        let again = tell(&mut b, 1, 10, 10, 40);
        assert!(again.lease + first.lease <= 100);
    }
    tell(&mut b, 0, 50, first.lease, 95);
    tell(&mut b, 1, 10, 10, 0);
    tell(&mut b, 1, 10, 10, 0);
    let full = tell(&mut b, 0, 50, first.lease, 95);
    assert!(
        full.full && full.total == 60 && full.limit == 100,
        "{full:?}"
    );
}

#[test]
fn what_a_server_does_not_use_goes_to_the_one_that_wants_it() {
    let mut b = limited(None, Some(100), 2);
    tell(&mut b, 1, 0, 0, 0);
    let held = tell(&mut b, 0, 10, 10, 80).lease;
    let waits = tell(&mut b, 1, 0, 0, 60);
    assert!(!waits.full && waits.lease < 60);
    let shrunk = tell(&mut b, 0, 10, held, 0);
    assert_eq!(shrunk.lease, 10);
    // It counts as used until the server itself reports less.
    assert!(tell(&mut b, 1, 0, 0, 60).lease < 60);
    tell(&mut b, 0, 10, 10, 0);
    assert!(tell(&mut b, 1, 0, 0, 60).lease >= 60);
}

#[test]
fn two_that_want_what_the_other_has_do_not_block_each_other() {
    let mut b = limited(None, Some(100), 2);
    let mut leases = [50, 50];
    tell(&mut b, 0, 40, 50, 0);
    tell(&mut b, 1, 40, 50, 0);
    for _ in 0..4 {
        for server in [0, 1] {
            let lease = tell(&mut b, server, 40, leases[server as usize], 55).lease;
            leases[server as usize] = lease;
            assert!(leases.iter().sum::<u64>() <= 100);
        }
    }
    assert!(
        leases.contains(&55) || leases.iter().any(|l| *l > 55),
        "{leases:?}"
    );
}

#[test]
fn leases_outlive_both_sides_and_are_counted_once() {
    let mut b = limited(None, Some(100), 2);
    tell(&mut b, 1, 0, 0, 0);
    let held = tell(&mut b, 0, 60, 0, 70).lease;
    // Server 0 is killed, counts again and has no lease: its former one is not given to others meanwhile.
    tell_at(&mut b, 0, (0, 0, 0), false, 0);
    let other = tell(&mut b, 1, 0, 0, 90);
    assert!(other.lease + held <= 100 && !other.full);
    assert!(tell(&mut b, 0, 60, 0, 65).lease >= 65);
    // The metadata server is killed: it grants nothing until all servers have reported.
    let mut b = limited(None, Some(100), 2);
    assert_eq!(tell(&mut b, 1, 0, 5, 90).lease, 5);
    // Server 1 wants what server 0 does not use, which must be released.
    assert_eq!(tell(&mut b, 0, 60, 80, 0).lease, 60);
    assert!(tell(&mut b, 1, 0, 5, 20).lease <= 20);
}

#[test]
fn a_lowered_limit_takes_leases_back() {
    let mut b = limited(None, Some(100), 1);
    let held = tell(&mut b, 0, 40, 40, 80).lease;
    let lower = LimitsChange {
        bytes_hard: Some(Bound::At(50)),
        ..LimitsChange::default()
    };
    b.set(7, &lower).unwrap();
    assert_eq!(tell(&mut b, 0, 40, held, 0).lease, 50);
    assert!(tell(&mut b, 0, 40, 50, 60).full);
    b.remove(7);
    assert_eq!(b.user(7, 0), None);
    assert_eq!(b.take_changed(), BTreeMap::from([(7, None)]));
}

#[test]
fn a_soft_limit_holds_when_its_grace_is_over() {
    let mut b = limited(Some(50), Some(100), 1);
    assert!(tell_at(&mut b, 0, (60, 60, 70), true, 5).lease >= 70);
    assert_eq!(b.user(7, DAY).unwrap().grace_ends_ms, Some(DAY + 5));
    let late = tell_at(&mut b, 0, (60, 70, 70), true, DAY + 5);
    assert!(
        late.full && late.limit == 50 && late.lease == 50,
        "{late:?}"
    );
    assert!(!tell_at(&mut b, 0, (40, 50, 0), true, DAY + 6).full);
    assert_eq!(b.user(7, DAY).unwrap().grace_ends_ms, None);
    let wrong = LimitsChange {
        bytes_soft: Some(Bound::At(200)),
        ..LimitsChange::default()
    };
    assert_eq!(
        b.set(7, &wrong).unwrap_err().kind,
        ErrorKind::InvalidArgument
    );
}

#[test]
fn changes_of_owners_are_told_once_or_all_is_counted_again() {
    let mut b = limited(None, Some(100), 1);
    let ask = |b: &mut Bytes, followed| {
        let report = UsageReport {
            server: 0,
            incarnation: 1,
            sequence: b.reports + 1,
            followed,
            users: Vec::new(),
        };
        b.report(&report, |_| 0, 0).unwrap()
    };
    let first = ask(&mut b, Followed::default());
    assert_eq!(first.given, None, "of another run");
    b.given(FileId(5), 7, 8);
    b.given(FileId(6), 8, 9);
    let second = ask(&mut b, first.followed);
    assert_eq!(second.given, Some(vec![(FileId(5), 8)]));
    assert_eq!(ask(&mut b, second.followed).given, Some(Vec::new()));
    for n in 0..MAX_GIVEN as u64 + 1 {
        b.given(FileId(n), 8, 7);
    }
    assert_eq!(ask(&mut b, second.followed).given, None);
}

#[test]
fn a_write_is_not_refused_by_what_was_told_before_it() {
    let mut b = limited(None, Some(100), 2);
    tell(&mut b, 1, 60, 60, 0);
    tell(&mut b, 0, 0, 0, 0);
    // Server 1 has removed its objects. Its report may have been in flight meanwhile.
    assert!(!tell(&mut b, 0, 0, 0, 50).full);
    assert!(!tell(&mut b, 1, 60, 60, 0).full);
    assert!(!tell(&mut b, 0, 0, 0, 50).full);
    tell(&mut b, 1, 0, 0, 0);
    assert!(tell(&mut b, 0, 0, 0, 50).lease >= 50);
    // It has nothing left: no report of it could change a refusal.
    assert!(tell(&mut b, 0, 50, 50, 101).full);
    // Server 1 has bytes and does not report: the write does not wait for ever.
    tell(&mut b, 1, 20, 20, 0);
    let wants = |b: &mut Bytes, now_ms| tell_at(b, 0, (50, 50, 90), true, now_ms).full;
    assert!(!wants(&mut b, 1_000));
    assert!(!wants(&mut b, 1_000 + STALE_MS - 1));
    assert!(wants(&mut b, 1_000 + STALE_MS));
    assert!(
        !wants(&mut b, 1_000 + STALE_MS),
        "the next write waits anew"
    );
}

fn default_of(hard: u64) -> LimitsChange {
    LimitsChange {
        bytes_hard: Some(Bound::At(hard)),
        ..LimitsChange::default()
    }
}

#[test]
fn the_default_holds_for_users_with_files_and_without_limits_of_their_own() {
    let mut b = Bytes::default();
    b.begin(1, [ServerId(0)].into_iter());
    b.set_default(&default_of(100), [0, 7].into_iter()).unwrap();
    assert_eq!(b.users().collect::<Vec<_>>(), [7], "root has none");
    let lease = tell(&mut b, 0, 0, 0, 150);
    assert!(lease.full && lease.limit == 100, "{lease:?}");
    b.inherit(8);
    b.inherit(0);
    assert_eq!(b.users().collect::<Vec<_>>(), [7, 8]);
    assert!(!b.user(8, 0).unwrap().own);
    // The default changes for both.
    b.set_default(&default_of(200), [7, 8].into_iter()).unwrap();
    assert_eq!(tell(&mut b, 0, 0, 0, 150).limit, 200);
    // One user becomes unlimited, and then gets the default again.
    let unlimited = LimitsChange {
        bytes_hard: Some(Bound::Unlimited),
        ..LimitsChange::default()
    };
    b.set(7, &unlimited).unwrap();
    assert!(b.user(7, 0).unwrap().own && tell(&mut b, 0, 0, 0, 1 << 50).lease >= 1 << 50);
    b.remove(7);
    b.inherit(7);
    assert_eq!(b.user(7, 0).unwrap().limits.hard, Some(200));
    b.set(7, &default_of(50)).unwrap();
    // As it is stored.
    let stored = b.take_changed();
    let stored = stored.into_iter().filter_map(|(uid, of)| Some((uid, of?)));
    let mut again = Bytes::stored(stored.collect());
    assert_eq!(again.default_limits().hard, Some(200));
    assert_eq!(again.user(7, 0).unwrap().limits.hard, Some(50));
    assert_eq!(again.user(8, 0).unwrap().limits.hard, Some(200));
    // A user without files is forgotten. Without a default all are, except those with limits of their own.
    again.has_none(7);
    again.has_none(8);
    assert_eq!(again.users().collect::<Vec<_>>(), [7]);
    again.inherit(8);
    again.remove_default();
    assert_eq!(again.users().collect::<Vec<_>>(), [7]);
    assert_eq!(again.take_changed()[&EVERYBODY], None);
}

#[test]
fn the_number_of_the_default_is_no_user() {
    let mut b = Bytes::default();
    let e = b.set(EVERYBODY, &default_of(1)).unwrap_err();
    assert_eq!(e.kind, ErrorKind::InvalidArgument);
    assert!(b.users().next().is_none() && b.take_changed().is_empty());
}

#[test]
fn a_default_needs_room_for_all_who_have_files() {
    let mut b = Bytes::default();
    let most = MAX_BYTE_USERS as u32;
    let e = b.set_default(&default_of(1), 1..most + 2).unwrap_err();
    assert!(e.message.contains("no limit for all"), "{e}");
    assert!(!b.limits_everybody() && b.users().next().is_none());
    b.set_default(&default_of(1), 1..most + 1).unwrap();
    b.room(1).unwrap();
    b.room(0).unwrap();
    let e = b.room(most + 1).unwrap_err();
    assert!(e.message.contains("--default"), "{e}");
}

/// Seeds 19347000030, 19347000820 and 19347003962: a connection broke, the report was repeated over another one, and
/// its first copy came after newer ones.
#[test]
fn a_copy_of_a_report_that_comes_late_frees_nothing() {
    let mut b = limited(None, Some(100), 2);
    tell(&mut b, 1, 0, 0, 0);
    tell(&mut b, 0, 0, 0, 0);
    let report = |sequence, (used, lease, want)| UsageReport {
        server: 0,
        incarnation: 1,
        sequence,
        followed: Followed::default(),
        users: vec![Usage {
            uid: 7,
            used,
            lease,
            want,
            counted: true,
        }],
    };
    let copies = report(50, (0, 0, 60));
    let first = b.report(&copies, |_| DAY, 0).unwrap().users[0];
    assert!(first.lease >= 60, "{first:?}");
    // The answer was lost or is in flight: the lease it granted is in use.
    let again = b.report(&copies, |_| DAY, 0).unwrap().users[0];
    assert!(again.lease >= 60 && !tell(&mut b, 1, 0, 0, 50).full);
    assert!(tell(&mut b, 1, 0, 0, 50).lease < 50);
    b.report(&report(51, (60, first.lease, 0)), |_| DAY, 0)
        .unwrap();
    // Neither a late copy, nor a report of an incarnation that has ended.
    let late = b.report(&copies, |_| DAY, 0).unwrap_err();
    assert_eq!(late.kind, ErrorKind::Busy);
    let next = UsageReport {
        incarnation: 2,
        ..report(1, (60, first.lease, 0))
    };
    b.report(&next, |_| DAY, 0).unwrap();
    assert!(b.report(&report(52, (0, 0, 0)), |_| DAY, 0).is_err());
    assert!(tell_at(&mut b, 1, (0, 0, 50), true, 1).lease < 50);
}
