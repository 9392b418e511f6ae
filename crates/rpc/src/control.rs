//! The control channel: data servers' reports to the metadata server, and its decisions for them.
//!
//! *Problem*: decisions across servers (whose slice, which mode) need figures of all servers in one place. They must
//! not outlive the server that makes them, and outdated ones must not take effect. *Idea*: each data server reports
//! once per [`PERIOD`] while it has something to report. The answer is the complete decision for it, with an [`Epoch`]
//! and a lease. A decision that is not newer is ignored. The next report acknowledges it. When the lease expires the
//! default holds: without a metadata server no decision stays in force for ever. *When it pays*: for policies across
//! servers; at present the list of programs uses it. *Parameters*: [`PERIOD`], [`LEASE`]. *Source*: leases after Gray
//! and Cheriton (1989); docs/decisions/0033.
//!
//! Both ends are plain state machines: times are passed in, by any steady clock of that end.
use penstock_wire::message::{Decision, Epoch, Order, ProgramTraffic, Report, Traffic};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time between two reports of a data server that has something to report.
pub const PERIOD: Duration = Duration::from_millis(500);
/// How long a decision holds.
pub const LEASE: Duration = Duration::from_secs(5);

/// What a data server has counted since its last report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// At most [`MAX_REPORT_ROWS`](penstock_wire::message::MAX_REPORT_ROWS).
    pub programs: Vec<ProgramTraffic>,
    /// All others.
    pub others: Traffic,
}

impl Figures {
    /// Whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.others.is_empty()
    }
}

/// A data server's end.
#[derive(Debug)]
pub struct Follower {
    incarnation: u64,
    sequence: u64,
    /// The newest decision, and when its lease expires.
    newest: Epoch,
    window: Vec<Order>,
    until: Duration,
    /// Whether it is not yet acknowledged, or nothing was ever reported.
    owes: bool,
    /// The report without an answer, and when it was first sent.
    pending: Option<(Duration, Report)>,
}

impl Follower {
    /// The end of a server that has just started.
    pub fn new(incarnation: u64) -> Follower {
        Follower {
            incarnation,
            sequence: 0,
            newest: Epoch::default(),
            window: Vec::new(),
            until: Duration::ZERO,
            owes: true,
            pending: None,
        }
    }

    /// Whether there is a decision to acknowledge, or the server is not yet known.
    pub fn owes(&self) -> bool {
        self.owes
    }

    /// The report to send, repeatedly if need be, until it is answered.
    pub fn pending(&self) -> Option<&Report> {
        self.pending.as_ref().map(|(_, report)| report)
    }

    /// Makes a report of these figures of the last `period`. Only when no report is pending.
    pub fn report(&mut self, now: Duration, period: Duration, figures: Figures) {
        debug_assert!(self.pending.is_none());
        self.sequence += 1;
        self.owes = false;
        let report = Report {
            incarnation: self.incarnation,
            sequence: self.sequence,
            applied: self.newest,
            period_ms: u64::try_from(period.as_millis()).unwrap_or(u64::MAX),
            programs: figures.programs,
            others: figures.others,
        };
        self.pending = Some((now, report));
    }

    /// Handles an answer, which may be to an earlier report, or a second copy.
    pub fn told(&mut self, decision: Decision) {
        let answered = |(_, report): &(Duration, Report)| report.sequence == decision.sequence;
        let Some((sent, _)) = self.pending.take_if(|pending| answered(pending)) else {
            return;
        };
        if decision.epoch < self.newest {
            return;
        }
        if decision.epoch > self.newest {
            self.newest = decision.epoch;
            self.window = decision.window;
            self.owes = true;
            self.until = Duration::ZERO;
        }
        // Counted from when the report was sent: the metadata server counts from later.
        let until = sent.saturating_add(Duration::from_millis(decision.lease_ms));
        self.until = self.until.max(until);
    }

    /// The decision in force; `None`: the default.
    pub fn decision(&self, now: Duration) -> Option<(Epoch, &[Order])> {
        (now < self.until).then_some((self.newest, self.window.as_slice()))
    }
}

/// How a report relates to those received before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearing {
    /// The first of this incarnation.
    Begins,
    /// Newer than all of this incarnation.
    New,
    /// The newest one repeated: its answer was lost.
    Again,
    /// A copy of an older report, from a closed connection.
    Late,
}

/// The newest report received from a data server.
#[derive(Debug, Default)]
pub struct Heard {
    incarnation: Option<u64>,
    /// The incarnation before: its reports still in flight arrive late.
    former: Option<u64>,
    sequence: u64,
}

impl Heard {
    /// Classifies and records a report.
    pub fn hear(&mut self, incarnation: u64, sequence: u64) -> Hearing {
        if self.former == Some(incarnation) {
            return Hearing::Late;
        }
        if self.incarnation != Some(incarnation) {
            self.former = self.incarnation.replace(incarnation);
            self.sequence = sequence;
            return Hearing::Begins;
        }
        match sequence.cmp(&self.sequence) {
            Ordering::Greater => {
                self.sequence = sequence;
                Hearing::New
            }
            Ordering::Equal => Hearing::Again,
            Ordering::Less => Hearing::Late,
        }
    }
}

/// What the metadata server knows of a data server.
#[derive(Debug)]
struct Known {
    heard: Heard,
    epoch: Epoch,
    applied: Epoch,
}

/// The metadata server's end, for all data servers.
#[derive(Debug)]
pub struct Holder {
    term: u64,
    /// Number of decisions in this term.
    count: u64,
    servers: BTreeMap<u32, Known>,
}

impl Holder {
    /// The end of a metadata server that has just started. The term must be greater than any before.
    pub fn new(term: u64) -> Holder {
        Holder {
            term,
            count: 0,
            servers: BTreeMap::new(),
        }
    }

    /// Handles a data server's report; returns the answer, and whether to count its figures.
    pub fn heard(&mut self, server: u32, report: &Report) -> (Decision, bool) {
        let (term, count) = (self.term, &mut self.count);
        let mut decide = || {
            *count += 1;
            Epoch {
                term,
                count: *count,
            }
        };
        let known = self.servers.entry(server).or_insert_with(|| Known {
            heard: Heard::default(),
            epoch: Epoch::default(),
            applied: Epoch::default(),
        });
        let hearing = known.heard.hear(report.incarnation, report.sequence);
        if hearing == Hearing::Begins {
            known.epoch = decide();
            known.applied = Epoch::default();
        }
        let fresh = matches!(hearing, Hearing::Begins | Hearing::New);
        if fresh {
            known.applied = known.applied.max(report.applied);
        }
        let decision = Decision {
            sequence: report.sequence,
            epoch: known.epoch,
            lease_ms: LEASE.as_millis() as u64,
            window: Vec::new(),
        };
        (decision, fresh)
    }

    /// Whether the data server has acknowledged the decision in force for it.
    pub fn is_acknowledged(&self, server: u32) -> bool {
        let known = self.servers.get(&server);
        known.is_some_and(|known| known.applied == known.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_wire::message::MAX_REPORT_ROWS;
    use proptest::prelude::*;

    #[test]
    fn copies_that_come_late_are_told_from_news() {
        use Hearing::{Again, Begins, Late, New};
        let mut heard = Heard::default();
        let mut hear = |incarnation, sequence| heard.hear(incarnation, sequence);
        assert_eq!([hear(7, 5), hear(7, 6), hear(7, 6)], [Begins, New, Again]);
        assert_eq!([hear(7, 5), hear(7, 9)], [Late, New]);
        // The server was restarted.
        assert_eq!([hear(8, 1), hear(7, 10)], [Begins, Late]);
        assert_eq!([hear(8, 1), hear(8, 2)], [Again, New]);
    }

    const SERVER: u32 = 3;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn figures(requests: u64) -> Figures {
        Figures {
            programs: Vec::new(),
            others: Traffic {
                requests,
                ..Traffic::default()
            },
        }
    }

    /// Reports and handles the answer; returns whether the figures were counted.
    fn round(now: Duration, follower: &mut Follower, holder: &mut Holder) -> bool {
        follower.report(now, PERIOD, figures(1));
        let (decision, fresh) = holder.heard(SERVER, follower.pending().unwrap());
        follower.told(decision);
        fresh
    }

    #[test]
    fn a_decision_is_acknowledged_by_the_next_report_and_ends_with_its_lease() {
        let (mut follower, mut holder) = (Follower::new(7), Holder::new(4));
        assert!(follower.owes() && follower.decision(seconds(0)).is_none());
        assert!(round(seconds(1), &mut follower, &mut holder));
        assert!(!holder.is_acknowledged(SERVER) && follower.owes());
        let (epoch, window) = follower.decision(seconds(1)).unwrap();
        assert_eq!((epoch, window.len()), (Epoch { term: 4, count: 1 }, 0));
        assert!(round(seconds(2), &mut follower, &mut holder));
        assert!(holder.is_acknowledged(SERVER) && !follower.owes());
        // Lease of the second report, from when it was sent.
        let end = seconds(2) + LEASE;
        assert!(follower.decision(end - Duration::from_nanos(1)).is_some());
        assert!(follower.decision(end).is_none());
    }

    #[test]
    fn what_is_lost_is_repeated_and_counts_once() {
        let (mut follower, mut holder) = (Follower::new(7), Holder::new(4));
        follower.report(seconds(1), PERIOD, figures(5));
        let report = follower.pending().unwrap().clone();
        let (lost, fresh) = holder.heard(SERVER, &report);
        assert!(fresh);
        // The answer was lost: the same report is sent again and not counted again.
        let (decision, fresh) = holder.heard(SERVER, follower.pending().unwrap());
        assert!(!fresh && decision == lost);
        follower.told(decision.clone());
        assert!(follower.pending().is_none());
        // The lease counts from the first copy.
        assert!(follower.decision(seconds(1) + LEASE).is_none());
        // Copies and late answers change nothing.
        follower.report(seconds(3), PERIOD, figures(1));
        follower.told(decision);
        assert!(follower.pending().is_some());
        assert!(follower.decision(seconds(2) + LEASE).is_none());
    }

    #[test]
    fn a_decision_that_is_not_newer_is_dropped() {
        let mut follower = Follower::new(7);
        let mut tell = |now, term, count| {
            follower.report(now, PERIOD, Figures::default());
            let sequence = follower.pending().unwrap().sequence;
            let epoch = Epoch { term, count };
            follower.told(Decision {
                sequence,
                epoch,
                lease_ms: 1000,
                window: Vec::new(),
            });
            (follower.newest, follower.until)
        };
        let first = tell(seconds(1), 2, 9);
        assert_eq!(first, (Epoch { term: 2, count: 9 }, seconds(2)));
        assert_eq!(tell(seconds(2), 2, 8), first);
        assert_eq!(tell(seconds(3), 1, 99), first);
        assert_eq!(
            tell(seconds(4), 3, 1),
            (Epoch { term: 3, count: 1 }, seconds(5))
        );
    }

    #[test]
    fn restarts_of_both_ends() {
        let (mut follower, mut holder) = (Follower::new(7), Holder::new(4));
        round(seconds(1), &mut follower, &mut holder);
        round(seconds(2), &mut follower, &mut holder);
        follower.report(seconds(3), PERIOD, figures(1));
        let late = follower.pending().unwrap().clone();
        // The data server restarts: it knows no decision, and gets a newer one.
        let mut second = Follower::new(8);
        assert!(round(seconds(4), &mut second, &mut holder));
        assert!(!holder.is_acknowledged(SERVER));
        // Reports of the former incarnation are not counted, and acknowledge nothing.
        assert!(!holder.heard(SERVER, &late).1 && !holder.is_acknowledged(SERVER));
        assert!(round(seconds(5), &mut second, &mut holder) && holder.is_acknowledged(SERVER));
        let before = second.newest;
        // The metadata server restarts: a new term, in which old acknowledgements are invalid.
        let mut holder = Holder::new(5);
        assert!(round(seconds(6), &mut second, &mut holder));
        assert!(second.newest > before && second.newest.term == 5);
        assert!(!holder.is_acknowledged(SERVER) && second.owes());
        assert!(round(seconds(7), &mut second, &mut holder) && holder.is_acknowledged(SERVER));
        // Other servers have decisions of their own.
        assert!(!holder.is_acknowledged(SERVER + 1));
    }

    #[test]
    fn a_report_is_small() {
        let most = Traffic {
            requests: u64::MAX,
            read: u64::MAX,
            written: u64::MAX,
        };
        let row = ProgramTraffic {
            program: u64::MAX,
            uid: u32::MAX,
            traffic: most,
        };
        let report = Report {
            incarnation: u64::MAX,
            sequence: u64::MAX,
            applied: Epoch {
                term: u64::MAX,
                count: u64::MAX,
            },
            period_ms: u64::MAX,
            programs: vec![row; MAX_REPORT_ROWS],
            others: most,
        };
        let encoded = postcard::to_stdvec(&report).unwrap();
        assert!(encoded.len() <= 4096, "{}", encoded.len());
        let longer = Report {
            programs: vec![row; MAX_REPORT_ROWS + 1],
            ..report
        };
        let encoded = postcard::to_stdvec(&longer).unwrap();
        assert!(postcard::from_bytes::<Report>(&encoded).is_err());
    }

    /// An event between the two ends.
    #[derive(Debug, Clone)]
    enum Step {
        Send,
        /// A report, or answer, in flight arrives, and another copy stays in flight.
        Report(usize),
        Answer(usize),
        RestartServer,
        RestartMeta,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Send),
            4 => (0usize..6).prop_map(Step::Report),
            4 => (0usize..6).prop_map(Step::Answer),
            1 => Just(Step::RestartServer),
            1 => Just(Step::RestartMeta),
        ]
    }

    proptest! {
        /// Property: whatever is lost, repeated or late, no figure counts twice in a term and a server's epochs only
        /// increase. A decision is never in force for longer than its lease after the last report sent.
        #[test]
        fn nothing_counts_twice_and_nothing_goes_back(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut follower, mut holder) = (Follower::new(1), Holder::new(1));
            let (mut reports, mut answers) = (Vec::<Report>::new(), Vec::<(u64, Decision)>::new());
            let (mut counted, mut sent) = (std::collections::BTreeSet::new(), Duration::ZERO);
            let mut now = Duration::ZERO;
            for step in steps {
                now += seconds(1);
                let before = follower.newest;
                match step {
                    Step::Send => {
                        if follower.pending().is_none() {
                            follower.report(now, PERIOD, figures(1));
                            sent = now;
                        }
                        reports.push(follower.pending().unwrap().clone());
                    }
                    Step::Report(at) if at < reports.len() => {
                        let report = &reports[at];
                        // A report two incarnations old does not arrive: its connection is closed.
                        if report.incarnation + 1 < follower.incarnation { continue; }
                        let (decision, fresh) = holder.heard(SERVER, report);
                        if fresh {
                            prop_assert!(counted.insert((holder.term, report.incarnation, report.sequence)));
                        }
                        answers.push((report.incarnation, decision));
                    }
                    // An answer arrives at the incarnation that asked.
                    Step::Answer(at) if at < answers.len() && answers[at].0 == follower.incarnation => {
                        follower.told(answers[at].1.clone());
                        prop_assert!(follower.newest >= before);
                    }
                    Step::RestartServer => follower = Follower::new(follower.incarnation + 1),
                    Step::RestartMeta => holder = Holder::new(holder.term + 1),
                    _ => {}
                }
                prop_assert!(follower.decision(sent + LEASE).is_none());
            }
        }
    }
}
