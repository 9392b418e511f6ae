//! Folds similar records into one with a count.
//!
//! Problem: a peer that is refused ten thousand times a second would push the records of all others out of the log.
//! Idea: in each period the first records of an event from one origin are written. Of the others the last one is
//! written with a count at the end of the period. Origins are counted in a table; origins without a place in it are
//! counted by event. So a period adds a bounded number of records, however many requests are refused. Actions of
//! administrators, and credentials issued to users, have tables and bounds of their own.
use super::record::{Event, Outcome, Record, USER};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Length of a period.
pub(super) const PERIOD: Duration = Duration::from_secs(60);

/// Bounds of one period.
#[derive(Debug)]
struct Bounds {
    /// Records of one origin and event.
    own: u64,
    /// Records of all origins.
    all: u64,
    /// Origins with events that are counted separately.
    origins: usize,
}

const REFUSED: Bounds = Bounds {
    own: 4,
    all: 32,
    origins: 32,
};
const DONE: Bounds = Bounds {
    own: 64,
    all: 512,
    origins: 32,
};

/// Credentials issued to users.
const GIVEN: Bounds = Bounds {
    own: 16,
    all: 128,
    origins: 32,
};

#[derive(Debug)]
struct Entry {
    seen: u64,
    /// The last record that was not written, and how many were not.
    left: Option<(Record, u64)>,
}

#[derive(Debug)]
struct Table {
    bounds: Bounds,
    written: u64,
    entries: BTreeMap<(Event, String), Entry>,
    others: BTreeMap<Event, (Record, u64)>,
}

impl Table {
    fn new(bounds: Bounds) -> Table {
        Table {
            bounds,
            written: 0,
            entries: BTreeMap::new(),
            others: BTreeMap::new(),
        }
    }

    /// Returns the record if it is to be written now.
    fn offer(&mut self, record: Record, origin: &str) -> Option<Record> {
        let key = (record.event, origin.to_owned());
        if self.entries.len() == self.bounds.origins && !self.entries.contains_key(&key) {
            let others = self.others.entry(record.event);
            let others = others.or_insert_with(|| (record, 0));
            others.1 += 1;
            return None;
        }
        let entry = self.entries.entry(key).or_insert(Entry {
            seen: 0,
            left: None,
        });
        entry.seen += 1;
        if entry.seen <= self.bounds.own && self.written < self.bounds.all {
            self.written += 1;
            return Some(record);
        }
        let count = entry.left.take().map_or(0, |(_, count)| count);
        entry.left = Some((record, count + 1));
        None
    }

    /// Ends the period: its folded records.
    fn close(&mut self, into: &mut Vec<Record>) {
        self.written = 0;
        let left = std::mem::take(&mut self.entries).into_values();
        let left = left.filter_map(|entry| entry.left);
        into.extend(left.map(|(record, count)| Record {
            count: Some(count),
            ..record
        }));
        let others = std::mem::take(&mut self.others).into_values();
        into.extend(others.map(|(record, count)| Record {
            user: None,
            peer: None,
            job: None,
            credential: None,
            object: None,
            reason: "by more than are told apart in a period".into(),
            count: Some(count),
            ..record
        }));
    }
}

/// The folding state of a log.
#[derive(Debug)]
pub(super) struct Folding {
    began: Option<Instant>,
    refused: Table,
    done: Table,
    given: Table,
}

impl Default for Folding {
    fn default() -> Folding {
        Folding {
            began: None,
            refused: Table::new(REFUSED),
            done: Table::new(DONE),
            given: Table::new(GIVEN),
        }
    }
}

impl Folding {
    /// When [`Folding::close`] is due, if ever.
    pub(super) fn due(&self) -> Option<Instant> {
        self.began.map(|began| began + PERIOD)
    }

    /// Returns the record if it is to be written at `now`.
    pub(super) fn offer(&mut self, now: Instant, record: Record, origin: &str) -> Option<Record> {
        self.began.get_or_insert(now);
        match record.outcome {
            Outcome::Refused => self.refused.offer(record, origin),
            Outcome::Done if record.event == Event::Issue && record.role == USER => {
                self.given.offer(record, origin)
            }
            Outcome::Done => self.done.offer(record, origin),
        }
    }

    /// Ends the period and returns its folded records.
    pub(super) fn close(&mut self) -> Vec<Record> {
        self.began = None;
        let mut left = Vec::new();
        self.refused.close(&mut left);
        self.done.close(&mut left);
        self.given.close(&mut left);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Subject;
    use super::*;

    fn record(event: Event, outcome: Outcome, object: &str) -> Record {
        let subject = Subject::itself(Some(1), "user");
        let object = Some(object.as_bytes());
        Record::new("meta", event, outcome, &subject, object, "no")
    }

    #[test]
    fn many_of_one_origin_become_one_with_a_count() {
        let (mut folding, now) = (Folding::default(), Instant::now());
        let offered = (0..1000).map(|n| record(Event::Key, Outcome::Refused, &n.to_string()));
        let written = offered.filter_map(|r| folding.offer(now, r, "a")).count();
        assert_eq!(written as u64, REFUSED.own);
        let other = record(Event::Permission, Outcome::Refused, "x");
        assert!(folding.offer(now, other.clone(), "a").is_some());
        assert!(folding.offer(now, other, "b").is_some());
        assert_eq!(folding.due(), Some(now + PERIOD));
        let left = folding.close();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].count, Some(1000 - REFUSED.own));
        assert_eq!(left[0].object.as_deref(), Some("999"));
        assert_eq!(folding.due(), None);
        assert!(folding.close().is_empty());
    }

    #[test]
    fn a_period_is_bounded_whoever_is_refused_and_administrators_are_apart() {
        let (mut folding, now) = (Folding::default(), Instant::now());
        let mut written = 0;
        for n in 0..10_000 {
            let origin = n.to_string();
            let event = [Event::Key, Event::Permission][n % 2];
            let refused = record(event, Outcome::Refused, "x");
            written += u64::from(folding.offer(now, refused, &origin).is_some());
        }
        let done = record(Event::Tune, Outcome::Done, "depth=1");
        assert!(folding.offer(now, done, "administrator").is_some());
        let left = folding.close();
        assert!(written <= REFUSED.all && left.len() <= REFUSED.origins + Event::ALL.len());
        // Each record is in the log, or counted there.
        let counted: u64 = left.iter().filter_map(|r| r.count).sum();
        assert_eq!(written + counted, 10_000);
        assert!(
            left.iter()
                .any(|r| r.user.is_none() && r.reason.contains("told apart"))
        );
    }

    #[test]
    fn what_users_are_given_leaves_room_for_administrators() {
        let (mut folding, now) = (Folding::default(), Instant::now());
        for _ in 0..2 {
            let mut written = 0;
            for n in 0..10_000 {
                let given = record(Event::Issue, Outcome::Done, "x");
                let origin = (n % 100).to_string();
                written += u64::from(folding.offer(now, given, &origin).is_some());
            }
            let done = record(Event::Tune, Outcome::Done, "depth=1");
            assert!(folding.offer(now, done, "administrator").is_some());
            let counted: u64 = folding.close().iter().filter_map(|r| r.count).sum();
            assert_eq!((written, written + counted), (GIVEN.all, 10_000));
        }
    }
}
