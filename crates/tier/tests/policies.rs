//! Which writes go to the log.
use penstock_base::Random;
use penstock_tier::{Mode, Policy, Write};

fn write(address: u64, bytes: u64) -> Write {
    Write {
        address,
        bytes,
        parent: bytes,
        ends_object: false,
    }
}

/// Writes of 4 KiB; how many of the last ones go to the log.
fn taken(policy: &mut Policy, places: impl Iterator<Item = u64>) -> usize {
    let mut taken = 0;
    for (n, place) in places.enumerate() {
        if policy.takes(&write(place * 4096, 4096)) {
            policy.took(place * 4096, 4096);
            taken += usize::from(n >= 900);
        } else {
            policy.dispatched(place * 4096, 4096, false);
        }
    }
    taken
}

#[test]
fn random_writes_are_taken_and_streams_are_not() {
    let mut r = Random::for_purpose(1, 1);
    let mut policy = Policy::new(8 << 20);
    assert_eq!(taken(&mut policy, 0..1000), 0, "one stream");
    assert_eq!(taken(&mut policy, (0..1000).map(|_| r.below(1 << 20))), 100);
    assert!(policy.is_using());
    // It comes home in order; what arrives then is in order too.
    assert_eq!(taken(&mut policy, 0..1000), 100);
    for i in 0..100 {
        policy.came_home(i * 4096, 4096, false);
    }
    assert!(!policy.is_using(), "H {:?}", policy.h());
    assert_eq!(taken(&mut policy, 2000..3000), 0);
}

#[test]
fn fragments_and_parts_of_pages_are_taken_from_the_first_on() {
    let mut policy = Policy::new(8 << 20);
    assert!(!policy.takes(&write(0, 65536)));
    assert!(policy.takes(&Write {
        parent: 66560,
        ..write(65536, 1024)
    }));
    assert!(policy.takes(&write(4096 + 800, 800)));
    // The end of an object has no page behind it that were to be read.
    assert!(!policy.takes(&Write {
        ends_object: true,
        ..write(4096, 800)
    }));
    assert!(!policy.takes(&write(8192, 4096)));
    policy.set_mode(Mode::Off);
    assert!(!policy.takes(&write(4096 + 800, 800)));
    policy.set_mode(Mode::On);
    assert!(policy.takes(&write(0, 1 << 20)));
}

#[test]
fn a_fast_device_that_is_slower_takes_only_probes() {
    let mut policy = Policy::new(8 << 20);
    for _ in 0..40 {
        policy.timed(true, 900);
        policy.timed(false, 100);
    }
    let part = write(4096 + 800, 800);
    let taken = (0..640).filter(|_| policy.takes(&part)).count();
    assert_eq!(taken, 10);
    assert!(policy.state().contains("slower"));
    (0..200).for_each(|_| policy.timed(true, 90));
    assert!(policy.takes(&part));
}
