use super::*;
use serde_json::Value;
use std::time::Instant;

fn records(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path_of(directory, "meta", 0)).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn user(n: u32) -> Subject {
    let mut subject = Subject::itself(Some(n), "user");
    subject.origin = n.to_string();
    subject
}

#[test]
fn acts_are_written_at_once_and_what_was_folded_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let audit = Audit::start(Some(dir.path()), "meta");
    for n in 0..10_000 {
        let object = format!("/secret/{n}");
        audit.refused(
            None,
            &user(1),
            Some(object.as_bytes()),
            ErrorKind::Permission,
            "no",
        );
    }
    audit.refused(None, &user(1), None, ErrorKind::NotFound, "not noted");
    audit.note(Event::Tune, Outcome::Done, &user(0), Some(b"depth=2"), "");
    wait_until("the first records", || {
        records(dir.path()).iter().any(|r| r["event"] == "tune")
    });
    audit.stop();
    let records = records(dir.path());
    assert!(records.len() < 10, "{records:?}");
    let refused = records.iter().filter(|r| r["event"] == "permission");
    let refused: u64 = refused.map(|r| r["count"].as_u64().unwrap_or(1)).sum();
    assert_eq!(refused, 10_000);
    let status = audit.status();
    assert_eq!(
        (status.refused, status.dropped, status.write_errors),
        (10_000, 0, 0)
    );
}

#[test]
fn what_finds_no_room_is_counted_and_the_count_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("log");
    let audit = Audit::start(Some(&place), "meta");
    // The directory does not exist yet. All are administrators' actions, which are folded late.
    let began = Instant::now();
    while audit.status().dropped == 0 {
        for n in 0..320 {
            audit.note(Event::Tune, Outcome::Done, &user(n % 32), None, "");
        }
        // As if a period had passed.
        audit.shared.state().folding.close();
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    assert!(audit.shared.state().queue.len() <= QUEUE);
    wait_until("an error", || audit.status().write_errors > 0);
    std::fs::create_dir(&place).unwrap();
    let lost = |r: &Value| r["event"] == "dropped" && r["count"].as_u64() > Some(0);
    wait_until("the count", || records(&place).iter().any(lost));
    audit.stop();
}

#[test]
fn without_a_directory_refusals_are_only_counted() {
    let audit = Audit::start(None, "meta");
    audit.refused(None, &user(1), None, ErrorKind::BadCapability, "no");
    audit.stop();
    assert_eq!(audit.status().refused, 1);
}
