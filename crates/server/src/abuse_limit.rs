//! A rate limit against abuse: clients that send only invalid requests are answered late.
//!
//! Problem: refusing a request costs a server as much processor time as serving a small one. A client that sends
//! invalid requests as fast as it can takes other clients' share of the CPUs. Idea: a well-behaved program stops at its
//! first refusals, or continues with something else. So consecutive refusals of a connection are counted. From [`MANY`]
//! on each is answered with a delay, which grows with their number up to [`MOST`]. The connection's own thread sleeps;
//! it holds no resources meanwhile. When it pays: on servers that share CPUs with others' work. Refusals that valid
//! programs may get in large numbers are not counted (missing names, a full store, locks held by others). Parameters:
//! [`MANY`], [`STEP`], [`MOST`].
use penstock_wire::message::ErrorKind;
use std::time::Duration;

/// Consecutive refusals that are answered at once.
const MANY: u32 = 64;
/// Increase of the delay with every further one.
const STEP: Duration = Duration::from_micros(100);
const MOST: Duration = Duration::from_millis(10);

/// The count of one connection.
#[derive(Debug, Default)]
pub(crate) struct AbuseLimit {
    in_a_row: u32,
}

impl AbuseLimit {
    /// A request has been served.
    pub(crate) fn none(&mut self) {
        self.in_a_row = 0;
    }

    /// A request is being refused: returns the delay of its answer.
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
