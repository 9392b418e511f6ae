//! Who loads this server: its ledger ([`penstock_sched::ledger`]) with the clock and the lock around it, and what clients move
//! past the server.
//!
//! *Problem*: bytes that go by descriptors are no requests. *Idea*: a client adds them up in the page of its grant
//! ([`penstock_rpc::grant`]). Here is a list of these pages, which are read when somebody wants to know: reports twice a second, and
//! whoever asks. A page leaves the list when it has been read after its grant is over.
//! *Bounds*: as many pages as there are grants, and as many again between two looks. What a client claims beyond [`FASTEST`] is not believed.
use crate::error::Error;
use penstock_base::Nanos;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_host::time::now;
use penstock_rpc::control::Figures;
use penstock_rpc::grant::{GrantPage, Moved};
use penstock_sched::ledger::{Access, Ledger, Locality, Program, Row, Sums, Traffic};
use penstock_wire::message::{
    DirectSums, LedgerLocality, LedgerRow, LedgerStatus, LedgerSums, MAX_LEDGER_ROWS,
    MAX_REPORT_ROWS, ProgramTraffic, SchedulerStatus,
};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Bytes a second that a client can move by one descriptor: more than memory does.
const FASTEST: u128 = 1 << 40;
/// As many accesses.
const MOST_ACCESSES: u128 = 1 << 30;
/// Pages that are read without being asked for.
const FIRST_LOOK: usize = 1024;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Load {
    began: Instant,
    /// Random, for each start of the server.
    incarnation: u64,
    ledger: Mutex<Ledger>,
    /// Locked before the ledger.
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    all: Vec<Page>,
    /// At so many they are read, so that those of former grants leave.
    look_at: usize,
}

#[derive(Debug)]
struct Page {
    program: Program,
    page: Arc<GrantPage>,
    seen: Moved,
    when: Nanos,
}

impl Load {
    /// Of a server that starts now.
    pub(crate) fn begin() -> Result<Load, Error> {
        let mut incarnation = [0; 8];
        penstock_host::random(&mut incarnation).map_err(|source| {
            Error::Wire(penstock_wire::Error::Io {
                what: "draw a random number for",
                peer: "the ledger".into(),
                source,
            })
        })?;
        Ok(Load {
            began: now(),
            incarnation: u64::from_le_bytes(incarnation),
            ledger: Mutex::new(Ledger::default()),
            pages: Mutex::new(Pages {
                all: Vec::new(),
                look_at: FIRST_LOOK,
            }),
        })
    }

    /// Tells this start of the server from others.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Sums: whatever a panic left of them is good enough.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A moment by the ledger's clock.
    pub(crate) fn at(&self, moment: Instant) -> Nanos {
        nanos(moment.saturating_duration_since(self.began))
    }

    /// An access has been served.
    pub(crate) fn serve(&self, access: &Access) {
        self.ledger().serve(access);
    }

    /// A client of this program counts in this page from now on.
    pub(crate) fn granted(&self, program: Program, page: Arc<GrantPage>) {
        let mut pages = self.pages();
        let when = self.at(now());
        if pages.all.len() >= pages.look_at {
            self.look_through(&mut pages, when);
            pages.look_at = (2 * pages.all.len()).max(FIRST_LOOK);
        }
        pages.all.push(Page {
            program,
            page,
            seen: Moved::default(),
            when,
        });
    }

    /// Somebody may move bytes past the server.
    pub(crate) fn is_passed(&self) -> bool {
        !self.pages().all.is_empty()
    }

    /// Adds what clients have counted.
    pub(crate) fn look(&self) {
        self.look_through(&mut self.pages(), self.at(now()));
    }

    fn look_through(&self, pages: &mut Pages, when: Nanos) {
        let mut ledger = self.ledger();
        pages.all.retain_mut(|page| {
            // Looked at first: what is counted before the grant is given up is seen.
            let over = Arc::strong_count(&page.page) == 1;
            let moved = page.page.moved();
            let time = when.saturating_sub(page.when);
            let new = believed(&page.seen, &moved, time);
            (page.seen, page.when) = (moved, when);
            ledger.direct(when, page.program, &new);
            !over
        });
    }

    /// There is something to report.
    pub(crate) fn has_news(&self) -> bool {
        self.ledger().has_news()
    }

    /// What has been counted since the last call; those with the most bytes apart.
    pub(crate) fn news(&self) -> Figures {
        self.look();
        let (programs, others) = self.ledger().news(MAX_REPORT_ROWS);
        let apart = |(program, traffic): &(Program, Traffic)| ProgramTraffic {
            program: program.number,
            uid: program.user,
            traffic: told(traffic),
        };
        Figures {
            programs: programs.iter().map(apart).collect(),
            others: told(&others),
        }
    }

    /// Past the server, since the start.
    pub(crate) fn direct(&self) -> DirectSums {
        self.look();
        direct(&self.ledger().total().0.direct)
    }

    /// All of it, or what one user may see.
    pub(crate) fn status(&self, of: Option<u32>) -> LedgerStatus {
        self.look();
        let ledger = self.ledger();
        let (total, locality) = ledger.total();
        let all = of.is_none();
        let rest = |rest: Sums| {
            if all {
                sums(&rest)
            } else {
                LedgerSums::default()
            }
        };
        let programs = ledger.programs(of);
        let users = ledger.users(of);
        LedgerStatus {
            incarnation: self.incarnation,
            at_ns: self.at(now()),
            all,
            total: sums(&total),
            locality: self::locality(&locality),
            programs: programs.iter().take(MAX_LEDGER_ROWS).map(row).collect(),
            others: rest(ledger.other_programs()),
            users: users
                .iter()
                .take(MAX_LEDGER_ROWS)
                .map(|row| (row.of, sums(&row.sums)))
                .collect(),
            other_users: rest(ledger.other_users()),
        }
    }

    /// Leaves a user's own programs in what the scheduler tells; all others are told together.
    pub(crate) fn hide(&self, status: &mut SchedulerStatus, user: u32) {
        use penstock_sched::ProgramStatistics;
        let ledger = self.ledger();
        let mut hidden = None;
        status.programs.retain(|row| {
            let own = ledger.knows(Program {
                number: row.program,
                user,
            });
            if own {
                return true;
            }
            let others: &mut penstock_wire::message::ProgramStatus = hidden.get_or_insert_default();
            others.program = ProgramStatistics::OTHERS;
            others.requests = others.requests.saturating_add(row.requests);
            others.bytes = others.bytes.saturating_add(row.bytes);
            others.share_ppm = others.share_ppm.saturating_add(row.share_ppm);
            others.p50_ns = others.p50_ns.max(row.p50_ns);
            others.p99_ns = others.p99_ns.max(row.p99_ns);
            false
        });
        status.programs.extend(hidden);
    }
}

/// What a request cost, over all its slices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Waiting to be dispatched.
    pub(crate) queue: Nanos,
    /// The store at work.
    pub(crate) device: Nanos,
}

impl Cost {
    /// Of two slices.
    pub(crate) fn plus(self, more: Cost) -> Cost {
        Cost {
            queue: self.queue.saturating_add(more.queue),
            device: self.device.saturating_add(more.device),
        }
    }

    /// Nobody waited, and the store has worked since then.
    pub(crate) fn of_store(began: Instant) -> Cost {
        Cost {
            queue: 0,
            device: nanos(penstock_host::time::since(began)),
        }
    }
}

fn nanos(time: std::time::Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What was added within this time, as far as that can be. Counts that went back are a client's own doing.
fn believed(before: &Moved, now: &Moved, time: Nanos) -> Traffic {
    // A second at least: what is counted in one moment may have been moved in a longer one.
    let seconds = u128::from(time.max(1_000_000_000));
    let most =
        |per_second: u128| u64::try_from(per_second * seconds / 1_000_000_000).unwrap_or(u64::MAX);
    let (bytes, accesses) = (most(FASTEST), most(MOST_ACCESSES));
    let added = |before: u64, now: u64, most: u64| now.saturating_sub(before).min(most);
    Traffic {
        requests: added(before.requests, now.requests, accesses),
        read: added(before.read, now.read, bytes),
        written: added(before.written, now.written, bytes),
    }
}

fn told(traffic: &Traffic) -> penstock_wire::message::Traffic {
    penstock_wire::message::Traffic {
        requests: traffic.requests,
        read: traffic.read,
        written: traffic.written,
    }
}

fn direct(traffic: &Traffic) -> DirectSums {
    DirectSums {
        requests: traffic.requests,
        read: traffic.read,
        written: traffic.written,
    }
}

fn sums(sums: &Sums) -> LedgerSums {
    LedgerSums {
        reads: sums.reads,
        writes: sums.writes,
        read: sums.read,
        written: sums.written,
        direct: direct(&sums.direct),
        queue_ns: sums.queue,
        device_ns: sums.device,
        busy_ns: sums.busy,
        switches: sums.switches,
    }
}

fn locality(locality: &Locality) -> LedgerLocality {
    let whole = |value: Option<f64>| value.map(|value| value.round() as u64);
    LedgerLocality {
        gap: whole(locality.gap.value()),
        ratio_milli: whole(locality.ratio.value().map(|ratio| ratio * 1e3)),
        reuse_ns: whole(locality.reuse.value()),
    }
}

fn row(row: &Row<Program>) -> LedgerRow {
    LedgerRow {
        program: row.of.number,
        uid: row.of.user,
        opened_ns: row.opened,
        sums: sums(&row.sums),
        locality: locality(&row.locality),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program { number: 9, user: 7 };

    #[test]
    fn what_goes_past_the_server_is_counted_once_and_pages_leave() {
        let load = Load::begin().unwrap();
        let (page, fd) = GrantPage::create().unwrap();
        let (page, client) = (Arc::new(page), GrantPage::open(fd).unwrap());
        load.granted(PROGRAM, page.clone());
        assert!(load.is_passed() && !load.has_news());
        client.count(true, 100);
        client.count(false, 10);
        let first = load.news();
        let traffic = first.programs[0].traffic;
        assert_eq!(
            (traffic.requests, traffic.read, traffic.written),
            (2, 10, 100)
        );
        assert!(load.news().is_empty());
        // What was counted before the end is seen after it.
        client.count(true, 1);
        drop((page, client));
        assert_eq!(load.direct().written, 101);
        assert!(!load.is_passed());
        let status = load.status(Some(7));
        assert_eq!(
            (
                status.programs.len(),
                status.programs[0].sums.direct.written
            ),
            (1, 101)
        );
        // Others see the total, and neither the program nor its user.
        let others = load.status(Some(8));
        assert!(others.programs.is_empty() && others.users.is_empty() && !others.all);
        assert_eq!(
            (others.total.direct.written, others.others),
            (101, LedgerSums::default())
        );
    }

    #[test]
    fn pages_of_former_grants_do_not_pile_up() {
        let load = Load::begin().unwrap();
        for _ in 0..3 * FIRST_LOOK {
            let (page, fd) = GrantPage::create().unwrap();
            let page = Arc::new(page);
            load.granted(PROGRAM, page.clone());
            GrantPage::open(fd).unwrap().count(true, 1);
        }
        assert!(load.pages().all.len() <= FIRST_LOOK + 1);
        assert_eq!(load.direct().written, 3 * FIRST_LOOK as u64);
    }

    #[test]
    fn a_client_that_lies_is_not_believed_beyond_reason() {
        let moved = |written| Moved {
            requests: written,
            read: 0,
            written,
        };
        let second = 1_000_000_000;
        let wild = believed(&moved(0), &moved(u64::MAX), second);
        assert_eq!((wild.requests, wild.written), (1 << 30, 1 << 40));
        assert!(believed(&moved(5), &moved(3), second).is_empty());
        assert_eq!(believed(&moved(5), &moved(9), 1).written, 4);
        assert_eq!(
            believed(&moved(0), &moved(u64::MAX), u64::MAX).written,
            u64::MAX
        );
    }

    #[test]
    fn a_user_sees_the_schedulers_figures_of_own_programs() {
        let load = Load::begin().unwrap();
        let access = Access {
            program: PROGRAM,
            file: 1,
            op: penstock_sched::Op::Read,
            offset: 0,
            end: 1,
            bytes: 1,
            arrived: 0,
            ended: 1,
            queue: 0,
            device: 0,
        };
        load.serve(&access);
        let row = |program, bytes| penstock_wire::message::ProgramStatus {
            program,
            bytes,
            ..Default::default()
        };
        let mut status = SchedulerStatus {
            programs: vec![row(9, 1), row(10, 20), row(11, 300)],
            ..SchedulerStatus::default()
        };
        load.hide(&mut status, 7);
        let seen: Vec<_> = status
            .programs
            .iter()
            .map(|p| (p.program, p.bytes))
            .collect();
        assert_eq!(seen, [(9, 1), (u64::MAX, 320)]);
        load.hide(&mut status, 8);
        assert_eq!(status.programs.len(), 1);
    }
}
