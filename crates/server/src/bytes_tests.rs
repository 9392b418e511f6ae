use super::*;

const FILE: FileId = FileId(5);

/// User 7 with this lease and limit, all counted.
fn limited(lease: u64, limit: u64) -> Bytes {
    let mut b = Bytes::default();
    assert!(b.told(&leases(lease, limit, false), true));
    b.counted(&[7]);
    b
}

fn leases(lease: u64, limit: u64, full: bool) -> Leases {
    let lease = Lease {
        uid: 7,
        lease,
        total: 0,
        limit,
        full,
    };
    Leases {
        followed: Followed::default(),
        given: None,
        users: vec![lease],
        everybody: false,
    }
}

fn grow(b: &mut Bytes, file: FileId, len: u64, end: u64) -> Verdict {
    let growth = Growth {
        file,
        owner: Some(7),
        end,
        len,
        root: false,
    };
    b.grow(&growth, true)
}

fn used(b: &Bytes) -> u64 {
    b.report().1[0].used
}

#[test]
fn an_object_counts_what_it_grows_however_it_is_written() {
    let mut b = limited(100, 100);
    // Two strided writes at once, each to the end; then a third over what is there.
    assert_eq!(grow(&mut b, FILE, 0, 80), Verdict::Counted);
    assert_eq!(grow(&mut b, FILE, 10, 80), Verdict::Counted);
    assert_eq!(used(&b), 80);
    b.settle(FILE, 40);
    assert_eq!(used(&b), 80, "the other is not through");
    b.settle(FILE, 60);
    assert_eq!(used(&b), 60);
    assert_eq!(grow(&mut b, FILE, 60, 30), Verdict::Counted);
    b.settle(FILE, 60);
    assert_eq!(used(&b), 60);
}

#[test]
fn what_is_preallocated_again_is_counted_once() {
    let mut b = limited(100, 100);
    for _ in 0..3 {
        assert_eq!(grow(&mut b, FILE, 10, 70), Verdict::Counted);
        b.allocated(FILE, 70);
        b.settle(FILE, 10);
        assert_eq!(used(&b), 70);
    }
    b.cut(FILE, 5);
    assert_eq!(used(&b), 5);
    assert!(!b.forget(FILE));
    assert_eq!(used(&b), 0);
}

#[test]
fn beyond_the_lease_it_waits_until_it_is_full() {
    let mut b = limited(50, 100);
    assert_eq!(grow(&mut b, FILE, 0, 60), Verdict::Wait);
    assert_eq!(b.report().1[0].want, 60);
    b.told(&leases(50, 50, true), false);
    let full = Verdict::Full {
        uid: 7,
        total: 0,
        limit: 50,
    };
    assert_eq!(grow(&mut b, FILE, 0, 60), full);
    assert_eq!(grow(&mut b, FILE, 0, 50), Verdict::Counted);
    let root = Growth {
        file: FILE,
        owner: None,
        end: 500,
        len: 0,
        root: true,
    };
    assert_eq!(b.grow(&root, false), Verdict::Counted);
    assert_eq!(used(&b), 500);
}

#[test]
fn nothing_grows_before_the_count_after_a_start_and_all_under_a_new_limit() {
    let mut b = Bytes::default();
    b.told(&leases(0, 100, false), true);
    assert_eq!(grow(&mut b, FILE, 0, 1), Verdict::Wait);
    let mut b = Bytes::default();
    b.told(&leases(0, 100, false), false);
    assert_eq!(grow(&mut b, FILE, 0, 1), Verdict::Counted);
    assert_eq!(b.uncounted(), [7]);
    b.counted(&[7]);
    assert_eq!(grow(&mut b, FILE, 1, 2), Verdict::Wait);
}

#[test]
fn what_is_given_away_counts_for_its_new_owner() {
    let mut b = limited(100, 100);
    b.found(FILE, 7, 30);
    b.found(FILE, 7, 30);
    b.found(FileId(6), 8, 30);
    assert_eq!(used(&b), 30);
    b.given(FILE, 8, 30);
    assert_eq!(used(&b), 0);
    // A capability that is older still names the first owner.
    assert_eq!(grow(&mut b, FILE, 30, 1000), Verdict::Free);
    b.given(FILE, 7, 40);
    assert_eq!(used(&b), 40);
    let unknown = Growth {
        file: FileId(9),
        owner: None,
        end: 1,
        len: 0,
        root: false,
    };
    assert_eq!(b.grow(&unknown, false), Verdict::WhoseIsIt);
}

#[test]
fn the_first_bytes_of_a_file_that_was_given_away_are_its_new_owners() {
    let mut b = limited(100, 100);
    // Its object is not here yet, and capabilities that are older name the first owner.
    assert!(b.owned(FILE, 8));
    assert_eq!(grow(&mut b, FILE, 0, 1000), Verdict::Free);
    assert_eq!(used(&b), 0);
    b.given(FILE, 7, 0);
    assert_eq!(grow(&mut b, FILE, 0, 60), Verdict::Counted);
    assert_eq!(used(&b), 60);
    // Bounded: the caller forgets all and doubts older capabilities.
    for n in 0..MAX_OWNERS as u64 {
        assert!(b.owned(FileId(1000 + n), 8));
    }
    assert!(!b.owned(FileId(3), 8));
    b.doubt();
    assert_eq!(grow(&mut b, FileId(1000), 0, 10), Verdict::Counted);
}

#[test]
fn what_no_listing_shows_is_told_apart() {
    let shown = |b: &Bytes| {
        let user = b.counts()[0];
        (user.used, user.used - user.unlisted)
    };
    let mut b = limited(1000, 1000);
    b.found(FILE, 7, 30);
    b.found(FileId(6), 7, 100);
    assert_eq!(shown(&b), (130, 130));
    // Preallocated beyond its end, and written beyond that at this moment.
    b.allocated(FILE, 50);
    b.cut(FileId(6), 90);
    assert_eq!(grow(&mut b, FILE, 30, 70), Verdict::Counted);
    assert_eq!(shown(&b), (160, 120));
    b.settle(FILE, 40);
    assert_eq!(shown(&b), (140, 130));
    b.removed(FileId(6));
    assert_eq!(shown(&b), (140, 40));
    b.forget(FileId(6));
    assert_eq!(shown(&b), (50, 40));
}

#[test]
fn a_count_that_begins_again_keeps_only_what_no_listing_shows() {
    let mut b = limited(1000, 1000);
    for (file, len) in [(1, 10), (2, 20), (3, 40)] {
        b.found(FileId(file), 7, len);
    }
    b.allocated(FileId(1), 500);
    b.removed(FileId(2));
    assert_eq!(grow(&mut b, FileId(3), 40, 80), Verdict::Counted);
    b.begin_again();
    assert_eq!((used(&b), b.uncounted()), (20 + 80, vec![7]));
    assert_eq!(grow(&mut b, FILE, 0, 1), Verdict::Wait);
    b.settle(FileId(3), 80);
    // The count finds the objects that a listing shows.
    for (file, len) in [(1, 10), (3, 80)] {
        b.found(FileId(file), 7, len);
    }
    b.counted(&[7]);
    assert_eq!(used(&b), 10 + 20 + 80);
}

#[test]
fn with_a_default_nobody_grows_before_the_metadata_server_was_asked() {
    let mut b = Bytes::default();
    let none = Leases {
        users: Vec::new(),
        everybody: true,
        ..leases(0, 0, false)
    };
    b.told(&none, false);
    assert!(b.any() && b.is_limited(8) && !b.is_limited(0));
    let growth = Growth {
        file: FileId(1),
        owner: Some(8),
        end: 10,
        len: 0,
        root: false,
    };
    assert_eq!(b.grow(&growth, false), Verdict::Wait);
    // It has been asked since, and does not know the user.
    assert_eq!(b.grow(&growth, true), Verdict::Free);
    let root = Growth {
        root: true,
        ..growth
    };
    assert_eq!(b.grow(&root, false), Verdict::Free);
    // Then the user is named, and nothing grows until all objects are counted.
    let named = Leases {
        everybody: true,
        ..leases(0, 100, false)
    };
    assert!(b.told(&named, false));
    let file = FileId(2);
    assert_eq!(grow(&mut b, file, 0, 10), Verdict::Wait);
    b.counted(&[7]);
    assert_eq!(grow(&mut b, file, 0, 10), Verdict::Wait, "no lease yet");
    b.told(
        &Leases {
            everybody: true,
            ..leases(10, 100, false)
        },
        false,
    );
    assert_eq!(grow(&mut b, file, 0, 10), Verdict::Counted);
    let none = Leases {
        everybody: false,
        ..none
    };
    b.told(&none, false);
    assert!(!b.any() && !b.is_limited(8));
}
