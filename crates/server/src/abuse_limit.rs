//! Who asks for nothing but what must be refused waits for it.
//!
//! Problem: to refuse a request costs a server as much processor time as to serve a small one, so that a client that
//! sends nonsense as fast as it can takes others' share of the CPUs.
//! Idea: a program that means well stops at its first refusals, or goes on with something else. So the refusals of a
//! connection in a row are counted, and from [`MANY`] on each is answered later than it could be, the later the more
//! there are, up to [`MOST`]. The connection's own thread sleeps; it holds nothing meanwhile.
//! When it pays: on servers that share CPUs with others' work. What a program may meet in numbers (names that are not
//! there, a full store, locks that others hold) is not counted.
//! Parameters: [`MANY`], [`STEP`], [`MOST`].
use penstock_wire::message::ErrorKind;
use std::time::Duration;

/// Refusals in a row that are answered at once.
const MANY: u32 = 64;
/// What the delay grows by with every further one.
const STEP: Duration = Duration::from_micros(100);
const MOST: Duration = Duration::from_millis(10);

/// Of one connection.
#[derive(Debug, Default)]
pub(crate) struct AbuseLimit {
    in_a_row: u32,
}

impl AbuseLimit {
    /// A request has been served.
    pub(crate) fn none(&mut self) {
        self.in_a_row = 0;
    }

    /// A request is being refused: how long its answer waits.
    pub(crate) fn another(&mut self, kind: ErrorKind) -> Duration {
        let counts = matches!(
            kind,
            ErrorKind::InvalidArgument
                | ErrorKind::Malformed
                | ErrorKind::TooLarge
                | ErrorKind::BadCapability
                | ErrorKind::Permission
        );
        if !counts {
            return Duration::ZERO;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let beyond = self.in_a_row.saturating_sub(MANY);
        STEP.saturating_mul(beyond).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_in_a_row_wait() {
        let mut abuse = AbuseLimit::default();
        for _ in 0..3 {
            for _ in 0..MANY {
                let delay = abuse.another(ErrorKind::InvalidArgument);
                assert_eq!(delay, Duration::ZERO);
            }
            assert_eq!(abuse.another(ErrorKind::BadCapability), STEP);
            assert_eq!(abuse.another(ErrorKind::NoSpace), Duration::ZERO);
            assert_eq!(abuse.another(ErrorKind::Permission), STEP * 2);
            abuse.none();
        }
        for _ in 0..1000 {
            abuse.another(ErrorKind::Malformed);
        }
        assert_eq!(abuse.another(ErrorKind::TooLarge), MOST);
        abuse.in_a_row = u32::MAX;
        assert_eq!(abuse.another(ErrorKind::TooLarge), MOST);
    }
}
