//! What a counter that many clients add one to may answer.
//!
//! Each addition is carried out once or, if it is reported as failed, at most once. So all answers differ, none is below the
//! number of additions acknowledged before it began, and none reaches the number of those tried.
use std::collections::BTreeSet;

/// A counter at the metadata server, as its clients know it.
#[derive(Debug)]
pub(crate) struct Pointer {
    pub token: u128,
    /// Connections that had broken when it was made: it ends with the one of its maker.
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

    /// An addition begins: the counter's name and the least that it may answer.
    pub fn begin(&mut self) -> (u128, i64) {
        self.tried += 1;
        (self.token, self.acknowledged)
    }

    /// It has ended: the value before it.
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
        // Whether the one that failed was carried out or not.
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
