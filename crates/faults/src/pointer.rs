//! The model of a counter to which many clients add one.
//!
//! Each addition is carried out once, or at most once if it is reported as failed. So all answers differ. None is below
//! the number of additions acknowledged before it began, and none reaches the number of attempts.
use std::collections::BTreeSet;

/// A counter at the metadata server, as its clients see it.
#[derive(Debug)]
pub(crate) struct Pointer {
    pub token: u128,
    /// Connections broken when it was made: it ends with its maker's connection.
    pub broken: u64,
    acknowledged: i64,
    tried: i64,
    seen: BTreeSet<i64>,
}

impl Pointer {
    pub fn new(token: u128, broken: u64) -> Pointer {
        Pointer {
            token,
            broken,
            acknowledged: 0,
            tried: 0,
            seen: BTreeSet::new(),
        }
    }

    /// An addition begins: returns the counter's name and the least possible answer.
    pub fn begin(&mut self) -> (u128, i64) {
        self.tried += 1;
        (self.token, self.acknowledged)
    }

    /// It has ended with this answer, the value before the addition.
    pub fn added(&mut self, before: i64, least: i64) -> Result<(), String> {
        self.acknowledged += 1;
        if before < least || before >= self.tried || !self.seen.insert(before) {
            return Err(format!(
                "counters: an addition found {before} after {least} had been acknowledged; {} tried, seen {:?}",
                self.tried, self.seen
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_are_counted_once() {
        let mut p = Pointer::new(1, 0);
        let (_, a) = p.begin();
        let (_, b) = p.begin();
        p.added(1, b).unwrap();
        p.added(0, a).unwrap();
        let (_, lost) = p.begin();
        assert_eq!(lost, 2);
        // Whether the failed one was carried out is unknown.
        let (_, c) = p.begin();
        p.added(3, c).unwrap();
        let (_, d) = p.begin();
        assert!(p.added(3, d).is_err(), "twice the same");
        let (_, e) = p.begin();
        assert!(p.added(2, e).is_err(), "less than acknowledged");
        let (_, f) = p.begin();
        assert!(p.added(7, f).is_err(), "more than tried");
    }
}
