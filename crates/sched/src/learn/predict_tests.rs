use super::*;
use proptest::prelude::*;

const US: Nanos = 1_000;
const MS: Nanos = 1_000_000;

fn arrival(at: Nanos, file: u64, offset: u64, bytes: u64) -> Event {
    Event {
        at,
        request: at,
        kind: Kind::Arrival,
        op: Op::Read,
        file,
        offset,
        bytes,
        program: 5,
        rank: 0,
        mpi_call: 0,
        client_call: 0,
    }
}

/// 1 ms and 100 MB/s: joining two requests saves 1 ms.
fn predictor(trace: &[Event]) -> Predictor {
    Predictor::new(trace, Cost::linear(MS, 100_000_000), Limits::default()).unwrap()
}

fn read(p: &mut Predictor, now: Nanos, id: u64, file: u64, offset: u64) -> bool {
    p.arrived(now, id, Op::Read, file, offset, 4096, 9)
}

#[test]
fn the_rule_weighs_saved_time_against_the_gap() {
    // No other requests: alpha is 0. A gap of 0.9 ms is then worth 1 ms of device time, and one of 1.1 ms is not.
    for (gap, size) in [(900 * US, 2.0), (1100 * US, 1.0)] {
        let p = predictor(&[arrival(0, 1, 0, 4096), arrival(gap, 1, 4096, 4096)]);
        assert_eq!(p.alpha(), 0.0);
        assert_eq!(p.statistics().mean_aggregation, size, "{gap}");
    }
    // The later part may have the lower offset; requests of another file, operation or place do not count.
    let p = predictor(&[arrival(0, 1, 4096, 4096), arrival(900 * US, 1, 0, 4096)]);
    assert_eq!(p.statistics().aggregations, 1);
    let p = predictor(&[
        arrival(0, 1, 0, 4096),
        arrival(0, 2, 4096, 4096),
        arrival(0, 1, 8192, 1),
    ]);
    assert_eq!(p.statistics().aggregations, 0);
}

#[test]
fn a_pass_begins_with_what_will_be_read() {
    let mut p = predictor(&[arrival(0, 1, 0, 4096), arrival(MS, 1, 8192, 4096)]);
    assert_eq!(p.begun(), None);
    assert!(read(&mut p, 0, 1, 77, 0));
    assert_eq!((p.begun(), p.begun()), (Some([8192, 0]), None));
    assert!(read(&mut p, MS, 2, 77, 8192));
    assert_eq!(p.begun(), None, "the same pass");
    assert!(read(&mut p, 5000 * MS, 3, 77, 0));
    assert_eq!(p.begun(), Some([8192, 0]), "after a rest, anew");
}

#[test]
fn a_busy_device_makes_waiting_cheap() {
    let mut trace = vec![arrival(0, 1, 0, 4096), arrival(3 * MS, 1, 4096, 4096)];
    let alone = predictor(&trace);
    assert_eq!(alone.statistics().aggregations, 0);
    // 20 ms of work arrive in the gap.
    trace.extend((1..20).map(|i| arrival(i * 100 * US, 2, i * 1_000_000, 4096)));
    let busy = predictor(&trace);
    assert!(busy.alpha() > 0.9, "{}", busy.alpha());
    assert_eq!(busy.statistics().aggregations, 1);
}

/// One pass through two requests 100 µs apart, of which the first waits for 200 µs; others are served for `busy` of
/// these.
fn pass(p: &mut Predictor, number: u64, busy: Nanos) {
    let now = number * 2000 * MS;
    assert!(read(p, now, 2 * number, 1, 0));
    assert!(p.wait(now, now, &[2 * number]) > 0);
    p.serving(now, true);
    p.serving(now + busy, false);
    p.dispatched(now + 200 * US, 2 * number);
    assert!(read(p, now + 3 * MS, 2 * number + 1, 1, 4096));
    p.dispatched(now + 3 * MS, 2 * number + 1);
}

#[test]
fn alpha_follows_what_is_seen_and_files_are_grouped_anew() {
    // In the trace 2.9 ms of the gap of 3 ms are overlapped: at first the wait is worth it.
    let mut trace = vec![arrival(0, 1, 0, 4096), arrival(3 * MS, 1, 4096, 4096)];
    trace.extend((1..20).map(|i| arrival(i * 100 * US, 2, i * 1_000_000, 4096)));
    let mut p = predictor(&trace);
    let estimated = p.alpha();
    assert!(estimated > 0.9 && p.statistics().aggregations == 1);
    for number in 1..=12 {
        let waits = p.statistics().aggregations == 1;
        if !waits {
            break;
        }
        pass(&mut p, number, 0);
        assert_eq!(p.statistics().seen, number);
    }
    // No overlap: alpha decreases, and a pass that begins then is grouped accordingly.
    assert!(p.alpha() < estimated, "{}", p.alpha());
    let alpha = p.alpha();
    for _ in 0..200 {
        p.waited(500 * US, 0);
    }
    assert!(p.alpha() < 0.05, "{}", p.alpha());
    assert!(read(&mut p, 100_000 * MS, 900, 1, 0));
    assert_eq!(p.statistics().aggregations, 0, "{alpha}");
    assert!(p.statistics().regrouped > 0);
    // And back again.
    for _ in 0..200 {
        p.waited(500 * US, 500 * US);
    }
    assert!(p.alpha() > 0.95, "{}", p.alpha());
    assert_eq!(p.statistics().aggregations, 0, "not in a pass");
    assert!(read(&mut p, 200_000 * MS, 901, 1, 0));
    assert_eq!(p.statistics().aggregations, 1);
}

#[test]
fn a_wait_counts_as_used_as_far_as_others_are_served() {
    let trace = [arrival(0, 1, 0, 4096), arrival(100 * US, 1, 4096, 4096)];
    let mut p = predictor(&trace);
    let before = p.alpha();
    for number in 1..=100 {
        let now = number * 2000 * MS;
        assert!(read(&mut p, now, number, 1, 0));
        assert_eq!(p.wait(now, now, &[number]), 100 * US);
        // Busy from 20 to 70 of 100 µs.
        p.serving(now + 20 * US, true);
        p.serving(now + 70 * US, false);
        p.dispatched(now + 100 * US, number);
    }
    assert_eq!((before, p.statistics().seen), (0.0, 100));
    assert!((p.alpha() - 0.5).abs() < 0.02, "{}", p.alpha());
}

#[test]
fn steps_over_the_same_bytes_aggregate_within_a_step() {
    let trace: Vec<Event> = (0..10)
        .flat_map(|step| {
            (0..4).map(move |i| arrival(step * 100 * MS + i * 10 * US, 1, i * 4096, 4096))
        })
        .collect();
    let p = predictor(&trace);
    assert_eq!(p.statistics().aggregations, 10);
    assert_eq!(p.statistics().mean_aggregation, 4.0);
}

#[test]
fn aggregations_are_no_larger_than_the_scheduler_joins() {
    let trace: Vec<Event> = (0..40)
        .map(|i| arrival(i * 10 * US, 1, i * 4096, 4096))
        .collect();
    let mut p = predictor(&trace);
    assert_eq!(p.statistics().aggregations, 3, "16, 16 and 8");
    p.joins(4);
    assert_eq!(p.statistics().aggregations, 3, "until a pass begins");
    assert!(read(&mut p, MS, 1, 1, 0));
    assert_eq!(
        (p.statistics().aggregations, p.statistics().regrouped),
        (10, 1)
    );
}

#[test]
fn a_smaller_aggregation_waits_once_for_the_rest() {
    let trace: Vec<Event> = (0..4)
        .map(|i| arrival(i * 100 * US, 1, i * 4096, 4096))
        .collect();
    let mut p = predictor(&trace);
    assert!(read(&mut p, 5 * MS, 70, 1, 0));
    assert!(read(&mut p, 5 * MS + 90 * US, 71, 1, 4096));
    // Predicted span 300 µs, 100 µs of it are over.
    assert_eq!(p.wait(5 * MS + 100 * US, 5 * MS, &[70, 71]), 200 * US);
    assert_eq!(p.wait(5 * MS + 110 * US, 5 * MS, &[70, 71]), 0, "once");
    p.dispatched(5 * MS + 300 * US, 70);
    p.dispatched(5 * MS + 300 * US, 71);
    assert!(read(&mut p, 5 * MS + 400 * US, 72, 1, 8192));
    assert!(read(&mut p, 5 * MS + 400 * US, 73, 1, 12288));
    assert_eq!(
        p.wait(5 * MS + 400 * US, 5 * MS + 400 * US, &[72, 73]),
        0,
        "complete"
    );
    assert_eq!((p.statistics().matched, p.statistics().waits), (4, 1));
}

#[test]
fn waits_are_bounded_and_never_for_what_is_late() {
    let trace = [arrival(0, 1, 0, 4096), arrival(900 * US, 1, 4096, 4096)];
    let mut p = predictor(&trace);
    assert!(read(&mut p, 0, 1, 1, 0));
    assert_eq!(p.wait(0, 0, &[1]), 500 * US);
    let mut late = predictor(&trace);
    assert!(read(&mut late, 0, 1, 1, 0));
    assert_eq!(late.wait(901 * US, 0, &[1]), 0);
    let mut unknown = predictor(&trace);
    assert!(!read(&mut unknown, 0, 1, 1, 64));
    assert_eq!(unknown.wait(0, 0, &[1]), 0);
    // A clock that steps back makes no wait longer.
    assert!(read(&mut p, 0, 2, 1, 4096) && p.wait(0, 10 * MS, &[2]) <= 500 * US);
}

#[test]
fn arrivals_match_within_a_tenth() {
    let trace: Vec<Event> = (0..3)
        .map(|i| arrival(i * 100 * MS, 1, i * 4096, 4096))
        .collect();
    let mut p = predictor(&trace);
    assert!(read(&mut p, 1000 * MS, 1, 1, 0));
    assert!(read(&mut p, 1109 * MS, 2, 1, 4096));
    assert!(
        !read(&mut p, 1225 * MS, 3, 1, 8192),
        "200 ms + 10% is 220 ms"
    );
    assert!(!read(&mut p, 1109 * MS, 4, 1, 4096), "linked already");
    assert_eq!(p.statistics().unmatched, 2);
}

#[test]
fn a_file_used_again_runs_through_its_prediction_again() {
    let trace = [arrival(0, 1, 0, 4096), arrival(100 * US, 1, 4096, 4096)];
    let mut p = predictor(&trace);
    for pass in 0..3u64 {
        let now = pass * 2000 * MS;
        assert!(read(&mut p, now, pass * 10, 1, 0), "{pass}");
        assert!(p.wait(now, now, &[pass * 10]) > 0);
        assert!(read(&mut p, now + 100 * US, pass * 10 + 1, 1, 4096));
        p.dispatched(now + 100 * US, pass * 10);
        p.dispatched(now + 100 * US, pass * 10 + 1);
    }
}

#[test]
fn files_made_anew_take_the_place_of_those_traced() {
    let trace = [
        arrival(0, 1, 0, 4096),
        arrival(10 * US, 2, 0, 4096),
        arrival(100 * US, 1, 4096, 4096),
        arrival(110 * US, 2, 4096, 4096),
    ];
    let mut p = predictor(&trace);
    for (id, (file, offset)) in [(801, 0), (802, 0), (801, 4096), (802, 4096)]
        .iter()
        .enumerate()
    {
        assert!(read(&mut p, 50 * id as u64 * US, id as u64, *file, *offset));
    }
    // Both predicted files are bound: a third file gets none. Later it replaces one.
    assert!(!read(&mut p, MS, 5, 803, 0));
    assert!(read(&mut p, 1500 * MS, 6, 803, 0));
    assert_eq!(p.remaining(9), Some(0));
    assert_eq!(p.remaining(1), None);
}

#[test]
fn what_a_program_still_asks_for_shrinks() {
    let trace: Vec<Event> = (0..4)
        .map(|i| arrival(i * 100 * US, 1, i * 4096, 4096))
        .collect();
    let mut p = predictor(&trace);
    assert!(read(&mut p, 0, 1, 1, 0));
    assert_eq!(p.remaining(9), Some(3 * 4096));
    assert!(read(&mut p, 100 * US, 2, 1, 4096));
    assert_eq!(p.remaining(9), Some(2 * 4096));
}

#[test]
fn too_large_a_trace_is_refused() {
    let limits = Limits {
        requests: 1,
        ..Limits::default()
    };
    let trace = [arrival(0, 1, 0, 1), arrival(0, 1, 1, 1)];
    let error = Predictor::new(&trace, Cost::default(), limits).unwrap_err();
    assert!(error.to_string().contains("at most 1"), "{error}");
}

proptest! {
    #[test]
    fn whatever_happens_waits_are_bounded_and_once(
        trace in proptest::collection::vec((0..5 * MS, 0u64..3, 0u64..6), 0..40),
        events in proptest::collection::vec((0..5 * MS, 0u64..4, 0u64..6, 0u8..3), 0..80),
    ) {
        let trace: Vec<Event> = trace.iter().map(|&(t, f, o)| arrival(t, f, o * 4096, 4096)).collect();
        let mut p = predictor(&trace);
        let mut waits = 0u64;
        for (id, &(now, file, offset, what)) in events.iter().enumerate() {
            let id = id as u64;
            match what {
                0 => { read(&mut p, now, id, file, offset * 4096); }
                1 => {
                    let before: Vec<u64> = p.live.keys().copied().collect();
                    let wait = p.wait(now, now / 2, &before);
                    prop_assert!(wait <= Limits::default().wait);
                    waits += u64::from(wait > 0);
                    prop_assert_eq!(p.wait(now, now / 2, &before), 0);
                }
                _ => p.dispatched(now, id / 2),
            }
        }
        prop_assert_eq!(p.statistics().waits, waits);
        prop_assert!(p.live.len() <= events.len());
        prop_assert!((0.0..=1.0).contains(&p.alpha()));
    }
}
