//! The list of programs that use the deployment: user, host, job and command of each.
//!
//! *Problem*: requests carry the number of their program, which tells nobody whose it is. *Idea*: the processes of a program
//! tell once on each connection ([`ProgramInfo`]). All of one user, program and host are one row, which ends with the last of
//! these connections. So nothing has to be stored: after a restart rows come back with the connections.
//! *Bounds*: [`MAX_PROGRAMS`] rows, of which a user has a share (docs/decisions/0028). Where there is no room, the user's
//! row that has been idle for longest makes some; where he has none, anybody's. The [`MAX_FORMER`] programs that ended last keep their names,
//! for whoever asks later what loaded the servers. *Source*: docs/decisions/0033.
//!
//! A plain state machine: times are passed in.
use crate::error::{Result, error};
use penstock_rpc::share::Share;
use penstock_wire::message::{
    ErrorKind, MAX_COMMAND, MAX_FORMER, MAX_PROGRAM_NAME, MAX_PROGRAMS, ProgramInfo, ProgramRow,
    ProgramTraffic, Programs, Report, Traffic,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A report is current for this long: two may be lost before its figures are dropped.
const FRESH: Duration = Duration::from_secs(2);
/// Bytes of a program's encoded traffic, with four numbers of ten bytes and a user.
const TRAFFIC: usize = 48;
/// Bytes of the longest encoded row: three texts, and numbers of ten bytes each.
const ROW: usize = 2 * MAX_PROGRAM_NAME + MAX_COMMAND + 128;
/// Upper bound of a list.
pub const MAX_REPLY: usize = (ROW + TRAFFIC) * (MAX_PROGRAMS + 1) + ROW * MAX_FORMER;
const _: () = assert!(MAX_REPLY < penstock_wire::message::MAX_BODY * 3 / 4);

/// A program's processes on a host: user, program, host.
type Key = (u32, u64, String);

#[derive(Debug)]
struct Row {
    info: ProgramInfo,
    /// Number of the registration: distinguishes a row from a later one with the same key.
    serial: u64,
    /// Number of its connections.
    connections: u32,
    /// The user charged for it.
    payer: Option<u32>,
    since: Duration,
    /// When it was last used.
    heard: Duration,
}

/// A connection's reference to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowShare {
    key: Key,
    serial: u64,
}

/// The list of programs.
#[derive(Debug)]
pub struct Registry {
    rows: BTreeMap<Key, Row>,
    /// The newest report of each data server.
    reports: BTreeMap<u32, (Duration, Report)>,
    /// Programs that have ended, the newest first, and when.
    former: VecDeque<(Key, ProgramInfo, Duration)>,
    share: Share,
    next: u64,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry {
            rows: BTreeMap::new(),
            reports: BTreeMap::new(),
            former: VecDeque::new(),
            share: Share::elastic(MAX_PROGRAMS, "programs in the list", "end some"),
            next: 0,
        }
    }
}

impl Registry {
    /// A connection of user `uid` registers as part of this program. `payer` is charged for a new row.
    pub fn register(
        &mut self,
        now: Duration,
        (uid, payer): (u32, Option<u32>),
        program: u64,
        info: ProgramInfo,
    ) -> Result<RowShare> {
        if let Some((what, len, limit)) = info.too_long() {
            return Err(error(
                ErrorKind::TooLarge,
                format!("the {what} of a program has {len} bytes, at most {limit} are taken"),
            ));
        }
        let key = (uid, program, info.host.clone());
        if let Some(row) = self.rows.get_mut(&key) {
            row.connections = row.connections.saturating_add(1);
            row.heard = now;
            let serial = row.serial;
            return Ok(RowShare { key, serial });
        }
        while let Err(e) = self.share.room(payer, 1) {
            let Some(victim) = self.idlest(payer) else {
                return Err(e);
            };
            self.remove(&victim, now);
        }
        self.former.retain(|(former, ..)| *former != key);
        self.share.take(payer);
        let serial = self.next;
        self.next += 1;
        let row = Row {
            info,
            serial,
            connections: 1,
            payer,
            since: now,
            heard: now,
        };
        self.rows.insert(key.clone(), row);
        Ok(RowShare { key, serial })
    }

    /// The least recently used row charged to `payer`, otherwise of all.
    fn idlest(&self, payer: Option<u32>) -> Option<Key> {
        let rows = || self.rows.iter();
        let oldest = |(_, row): &(&Key, &Row)| (row.heard, row.serial);
        let own = rows()
            .filter(|(_, row)| row.payer == payer)
            .min_by_key(oldest);
        own.or_else(|| rows().min_by_key(oldest))
            .map(|(key, _)| key.clone())
    }

    fn remove(&mut self, key: &Key, now: Duration) {
        if let Some(row) = self.rows.remove(key) {
            self.share.give_back(row.payer);
            self.former.truncate(MAX_FORMER - 1);
            self.former.push_front((key.clone(), row.info, now));
        }
    }

    /// The connection has ended.
    pub fn leave(&mut self, now: Duration, place: &RowShare) {
        let row = self.rows.get_mut(&place.key);
        let Some(row) = row.filter(|row| row.serial == place.serial) else {
            return;
        };
        row.connections -= 1;
        if row.connections == 0 {
            self.remove(&place.key, now);
        }
    }

    /// All rows, or those of one user.
    pub fn list(&self, now: Duration, of: Option<u32>) -> Programs {
        let seen = |uid: u32| of.is_none_or(|of| of == uid);
        let mut rows: Vec<(&Key, &Row)> = self.rows.iter().filter(|(key, _)| seen(key.0)).collect();
        rows.sort_by_key(|(_, row)| row.serial);
        let rows = rows.into_iter().map(|(key, row)| ProgramRow {
            program: key.1,
            uid: key.0,
            info: row.info.clone(),
            age_ms: milliseconds(now.saturating_sub(row.since)),
        });
        let former = self.former.iter().filter(|(key, ..)| seen(key.0));
        let former = former.map(|(key, info, ended)| ProgramRow {
            program: key.1,
            uid: key.0,
            info: info.clone(),
            age_ms: milliseconds(now.saturating_sub(*ended)),
        });
        let (mut traffic, others) = self.traffic(now);
        traffic.retain(|row| seen(row.uid));
        traffic.sort_by_key(|row| Reverse(row.traffic.bytes()));
        traffic.truncate(MAX_PROGRAMS);
        Programs {
            rows: rows.collect(),
            former: former.collect(),
            traffic,
            others: match of {
                None => others,
                Some(_) => Traffic::default(),
            },
            all: of.is_none(),
        }
    }

    /// A data server's report on programs, not counted before.
    pub fn reported(&mut self, now: Duration, server: u32, report: Report) {
        for told in &report.programs {
            let from = (told.uid, told.program, String::new());
            let hosts = self.rows.range_mut(from..);
            hosts
                .take_while(|(key, _)| (key.0, key.1) == (told.uid, told.program))
                .for_each(|(_, row)| row.heard = now);
        }
        self.reports.insert(server, (now, report));
    }

    /// Current traffic of all data servers per second, by program and user, and the rest.
    fn traffic(&self, now: Duration) -> (Vec<ProgramTraffic>, Traffic) {
        let (mut programs, mut others) = (BTreeMap::<_, Traffic>::new(), Traffic::default());
        for (at, report) in self.reports.values() {
            if now.saturating_sub(*at) >= FRESH {
                continue;
            }
            let rate = |traffic: &Traffic| per_second(traffic, report.period_ms);
            for row in &report.programs {
                let sum = programs.entry((row.program, row.uid)).or_default();
                *sum = sum.plus(&rate(&row.traffic));
            }
            others = others.plus(&rate(&report.others));
        }
        let programs = programs
            .into_iter()
            .map(|((program, uid), traffic)| ProgramTraffic {
                program,
                uid,
                traffic,
            });
        (programs.collect(), others)
    }
}

/// Per second; a report about no time counts as one about a millisecond.
fn per_second(traffic: &Traffic, period_ms: u64) -> Traffic {
    let rate = |n: u64| {
        let rate = u128::from(n) * 1000 / u128::from(period_ms.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    };
    Traffic {
        requests: rate(traffic.requests),
        read: rate(traffic.read),
        written: rate(traffic.written),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn on(host: &str) -> ProgramInfo {
        ProgramInfo {
            host: host.into(),
            command: "./app".into(),
            ..ProgramInfo::default()
        }
    }

    fn after(seconds: u64) -> Duration {
        NOW + Duration::from_secs(seconds)
    }

    #[test]
    fn a_row_ends_with_its_last_connection() {
        let mut registry = Registry::default();
        let alice = (7, Some(7));
        let one = registry.register(NOW, alice, 1, on("a")).unwrap();
        let two = registry.register(NOW, alice, 1, on("a")).unwrap();
        let other = registry.register(after(1), alice, 1, on("b")).unwrap();
        let bob = registry
            .register(after(2), (8, Some(8)), 1, on("a"))
            .unwrap();
        assert_eq!((registry.rows.len(), registry.share.held()), (3, 3));
        let seen = registry.list(after(3), Some(7));
        let ages: Vec<u64> = seen.rows.iter().map(|row| row.age_ms).collect();
        assert_eq!((ages, seen.all), (vec![3000, 2000], false));
        assert!(registry.list(NOW, None).all);
        registry.leave(NOW, &one);
        assert_eq!(registry.rows.len(), 3);
        registry.leave(NOW, &two);
        // A connection leaves once; a later row of the same program is not its own.
        let again = registry.register(NOW, alice, 1, on("a")).unwrap();
        registry.leave(NOW, &two);
        assert_eq!(registry.rows.len(), 3);
        [other, bob, again]
            .iter()
            .for_each(|place| registry.leave(NOW, place));
        assert_eq!((registry.rows.len(), registry.share.held()), (0, 0));
    }

    #[test]
    fn the_idlest_row_of_a_user_makes_room() {
        let mut registry = Registry::default();
        let bob = registry.register(NOW, (8, Some(8)), 1, on("a")).unwrap();
        for program in 0..2 * MAX_PROGRAMS as u64 {
            registry
                .register(after(program), (7, Some(7)), program, on("a"))
                .unwrap();
        }
        let held = registry.rows.len();
        assert!(held < MAX_PROGRAMS && held > MAX_PROGRAMS / 2, "{held}");
        assert_eq!(registry.list(NOW, Some(8)).rows.len(), 1);
        let first = registry.list(NOW, Some(7)).rows[0].program;
        assert_eq!(
            first,
            (2 * MAX_PROGRAMS - (held - 1)) as u64,
            "the newest stay"
        );
        registry.leave(NOW, &bob);
        // Whom no share bounds takes the whole, and then the idlest of all.
        for program in 0..MAX_PROGRAMS as u64 {
            registry
                .register(after(10_000), (0, None), program, on("a"))
                .unwrap();
        }
        assert_eq!(
            (registry.rows.len(), registry.share.held()),
            (MAX_PROGRAMS, MAX_PROGRAMS)
        );
        registry
            .register(after(20_000), (9, Some(9)), 1, on("a"))
            .unwrap();
        assert_eq!(registry.list(NOW, Some(9)).rows.len(), 1);
        let encoded = postcard::to_stdvec(&registry.list(NOW, None)).unwrap();
        assert!(encoded.len() <= MAX_REPLY);
    }

    #[test]
    fn rates_are_those_of_all_servers_as_long_as_they_report() {
        let mut registry = Registry::default();
        registry.register(NOW, (7, Some(7)), 1, on("a")).unwrap();
        registry.register(NOW, (8, Some(8)), 1, on("a")).unwrap();
        let report = |uid, program, written| Report {
            period_ms: 500,
            programs: vec![ProgramTraffic {
                program,
                uid,
                traffic: Traffic {
                    requests: 1,
                    read: 0,
                    written,
                },
            }],
            others: Traffic {
                read: 5,
                ..Traffic::default()
            },
            ..Report::default()
        };
        registry.reported(after(1), 0, report(7, 1, 100));
        registry.reported(after(2), 0, report(7, 1, 10));
        registry.reported(after(2), 1, report(7, 1, 20));
        // Of a program that is not listed, such as commands that only look at files.
        registry.reported(after(2), 2, report(9, 0, 4));
        let all = registry.list(after(3), None);
        let told = |p: &Programs| -> Vec<_> {
            let rows = p.traffic.iter();
            rows.map(|t| (t.uid, t.program, t.traffic.written, t.traffic.requests))
                .collect()
        };
        assert_eq!(told(&all), [(7, 1, 60, 4), (9, 0, 8, 2)]);
        assert_eq!((all.others.read, all.rows.len()), (30, 2));
        // A user sees only own programs.
        let own = registry.list(after(3), Some(9));
        assert_eq!((told(&own), own.others.read), (vec![(9, 0, 8, 2)], 0));
        assert!(registry.list(after(4), None).traffic.is_empty());
        // A report with a zero period, or with unbounded numbers.
        let wild = Report {
            period_ms: 0,
            ..report(7, 1, u64::MAX)
        };
        registry.reported(after(5), 0, wild);
        assert_eq!(
            told(&registry.list(after(5), None)),
            [(7, 1, u64::MAX, 1000)]
        );
        let rows = registry.rows.values().map(|row| (row.payer, row.heard));
        assert_eq!(
            rows.collect::<Vec<_>>(),
            [(Some(7), after(5)), (Some(8), NOW)]
        );
    }

    #[test]
    fn programs_that_ended_keep_their_names_for_their_users() {
        let mut registry = Registry::default();
        let alice = (7, Some(7));
        for program in 0..=MAX_FORMER as u64 {
            let place = registry.register(NOW, alice, program, on("a")).unwrap();
            registry.leave(after(program), &place);
        }
        let seen = registry.list(after(300), Some(7)).former;
        assert_eq!(seen.len(), MAX_FORMER);
        let ends = [&seen[0], &seen[MAX_FORMER - 1]].map(|row| (row.program, row.age_ms));
        assert_eq!(ends, [(256, 44_000), (1, 299_000)]);
        assert!(registry.list(NOW, Some(8)).former.is_empty());
        // One that comes back is no former one.
        registry.register(NOW, alice, 9, on("a")).unwrap();
        let seen = registry.list(NOW, None);
        assert!(seen.former.iter().all(|row| row.program != 9) && seen.rows.len() == 1);
    }

    #[test]
    fn texts_are_bounded() {
        let mut registry = Registry::default();
        let long = ProgramInfo {
            command: "x".repeat(MAX_COMMAND + 1),
            ..on("a")
        };
        let refused = registry.register(NOW, (7, None), 1, long).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::TooLarge);
        assert!(
            refused
                .message
                .contains("command of a program has 257 bytes")
        );
        assert!(registry.rows.is_empty());
    }
}
