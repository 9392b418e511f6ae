//! What happened between two looks at the ledgers of all servers: by program, by what people ask for, ordered and cut.
//!
//! *Problem*: each server tells sums of up to 1,024 programs, and a sum starts anew when its row was closed and opened meanwhile. *Idea*: only
//! rows of one opening are compared; what is left of the server's own total is that of others. So no figure is counted twice
//! and none is negative. *Bounds*: 1,024 rows a server. *Cost*: one sort of all rows; nothing is allocated for a program but where it is at several servers.
use penstock_wire::message::{LedgerRow, LedgerStatus, LedgerSums};
use std::collections::BTreeMap;

/// The number of what is not told apart.
pub const OTHERS: (u64, u32) = (u64::MAX, u32::MAX);

/// What was done per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    /// Accesses by requests and by shortcuts.
    pub requests: f64,
    /// Bytes, in both ways.
    pub read: f64,
    /// Bytes, in both ways.
    pub written: f64,
    /// Bytes of these by shortcuts.
    pub shortcuts: f64,
    /// Seconds that slices waited to be dispatched.
    pub queue: f64,
    /// Seconds that stores worked.
    pub device: f64,
    /// Of the time with a request under way, at the server with the most.
    pub io: f64,
}

impl Rates {
    /// Bytes in both directions.
    pub fn bytes(&self) -> f64 {
        self.read + self.written
    }

    /// Nothing was done.
    pub fn is_idle(&self) -> bool {
        self.requests == 0.0 && self.bytes() == 0.0
    }

    fn add(&mut self, more: &Rates) {
        self.requests += more.requests;
        self.read += more.read;
        self.written += more.written;
        self.shortcuts += more.shortcuts;
        self.queue += more.queue;
        self.device += more.device;
        self.io = self.io.max(more.io);
    }

    /// Of these sums, in so many seconds.
    fn of(sums: &LedgerSums, seconds: f64) -> Rates {
        let per = |n: u64| n as f64 / seconds;
        let time = |ns: u64| per(ns) / 1e9;
        Rates {
            requests: per(sums.reads + sums.writes) + per(sums.direct.requests),
            read: per(sums.read) + per(sums.direct.read),
            written: per(sums.written) + per(sums.direct.written),
            shortcuts: per(sums.direct.read) + per(sums.direct.written),
            queue: time(sums.queue_ns),
            device: time(sums.device_ns),
            io: time(sums.busy_ns).min(1.0),
        }
    }

    /// Without what these did.
    fn without(&self, known: &Rates) -> Rates {
        let less = |all: f64, known: f64| {
            // Sums of fractions: what is left of equal ones is no figure.
            let left = all - known;
            if left <= all * 1e-9 { 0.0 } else { left }
        };
        Rates {
            requests: less(self.requests, known.requests),
            read: less(self.read, known.read),
            written: less(self.written, known.written),
            shortcuts: less(self.shortcuts, known.shortcuts),
            queue: less(self.queue, known.queue),
            device: less(self.device, known.device),
            io: 0.0,
        }
    }
}

/// A mean over servers, each with the weight of its requests.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value {
            // A server with no request now has a value of before.
            let weight = weight.max(1e-9);
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    fn merge(&mut self, more: &Mean) {
        self.sum += more.sum;
        self.weight += more.weight;
    }

    /// `None`: no server knows.
    pub fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// Bytes per second at each server, by its number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Servers {
    /// Most programs have one in a table by server, and all in a table of one server.
    first: Option<(u32, f64)>,
    more: Vec<(u32, f64)>,
}

impl Servers {
    /// Adds what was moved at a server.
    pub fn add(&mut self, server: u32, bytes: f64) {
        match &mut self.first {
            None => self.first = Some((server, bytes)),
            Some((first, sum)) if *first == server => *sum += bytes,
            Some(_) => match self.more.iter_mut().find(|(id, _)| *id == server) {
                Some((_, sum)) => *sum += bytes,
                None => self.more.push((server, bytes)),
            },
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, f64)> {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// The first of them.
    pub fn first(&self) -> Option<u32> {
        self.first.map(|(id, _)| id)
    }
}

/// A line of the table: a program, or several.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    /// Program and user; [`OTHERS`]. Of several: the first of them.
    pub of: (u64, u32),
    /// What it did.
    pub rates: Rates,
    /// Its part of all bytes, 0 to 1.
    pub share: f64,
    /// Bytes between accesses.
    pub gap: Mean,
    /// The same in sizes of the access.
    pub ratio: Mean,
    /// Seconds between arrivals at a server.
    pub reuse: Mean,
    /// Bytes per second at each server that it uses.
    pub servers: Servers,
    /// How many programs it stands for.
    pub programs: usize,
}

impl Line {
    /// Adds another one, as those of one user.
    pub fn merge(&mut self, more: &Line) {
        self.rates.add(&more.rates);
        self.share += more.share;
        self.gap.merge(&more.gap);
        self.ratio.merge(&more.ratio);
        self.reuse.merge(&more.reuse);
        for (server, bytes) in more.servers.iter() {
            self.servers.add(server, bytes);
        }
        self.programs += more.programs;
    }
}

/// A server's own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Server {
    /// All that it did.
    pub rates: Rates,
    /// How it is accessed.
    pub locality: penstock_wire::message::LedgerLocality,
    /// Between the two looks, by its own clock.
    pub seconds: f64,
}

/// All that happened.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    /// Programs, and [`OTHERS`] where something is not told apart.
    pub programs: Vec<Line>,
    /// By number; those that answered twice.
    pub servers: BTreeMap<u32, Server>,
}

/// A look at a server.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// The server's number.
    pub server: u32,
    /// What it told the last time, if it did.
    pub before: Option<&'a LedgerStatus>,
    /// What it tells now.
    pub now: &'a LedgerStatus,
}

/// What happened between, per second. `apart`: programs at different servers are different lines.
pub fn between(looks: &[Look<'_>], apart: bool) -> Load {
    let mut load = Load::default();
    let rows = looks.iter().map(|look| look.now.programs.len() + 1).sum();
    let mut lines = Vec::with_capacity(rows);
    for look in looks {
        let server = at_server(look, &mut lines);
        load.servers.insert(look.server, server);
    }
    if !apart {
        lines = merged(lines);
    }
    let all: f64 = load.servers.values().map(|s| s.rates.bytes()).sum();
    for line in &mut lines {
        let share = line.rates.bytes() / all;
        line.share = if all > 0.0 { share } else { 0.0 };
    }
    load.programs = lines;
    load
}

/// One line for each program.
fn merged(mut lines: Vec<Line>) -> Vec<Line> {
    // Lines are long: keys are sorted in their place.
    let mut order: Vec<_> = lines.iter().map(|line| line.of).zip(0usize..).collect();
    order.sort_unstable();
    let mut merged: Vec<Line> = Vec::with_capacity(lines.len());
    for (of, at) in order {
        match merged.last_mut().filter(|last| last.of == of) {
            Some(last) => {
                let programs = last.programs;
                last.merge(&lines[at]);
                last.programs = programs;
            }
            None => merged.push(std::mem::take(&mut lines[at])),
        }
    }
    merged
}

/// Adds a line for each program at a server, and one for what is not told apart there.
fn at_server(look: &Look<'_>, lines: &mut Vec<Line>) -> Server {
    let (now, server) = (look.now, look.server);
    // A server that was started again has nothing of before.
    let before = look
        .before
        .filter(|b| b.incarnation == now.incarnation && b.at_ns < now.at_ns);
    let from = before.map_or(0, |b| b.at_ns);
    let seconds = (now.at_ns.saturating_sub(from).max(1)) as f64 / 1e9;
    let nothing = LedgerSums::default();
    let total = since(&now.total, before.map_or(&nothing, |b| &b.total));
    let total = Rates::of(&total, seconds);
    let of = |row: &LedgerRow| (row.program, row.uid);
    let mut known: Vec<&LedgerRow> = before.iter().flat_map(|b| &b.programs).collect();
    known.sort_by_key(|row| of(row));
    let mut told = Rates::default();
    for row in &now.programs {
        let former = known.binary_search_by_key(&of(row), |row| of(row));
        let former = former.ok().and_then(|at| known.get(at));
        let sums = match former.filter(|f| f.opened_ns == row.opened_ns) {
            Some(former) => since(&row.sums, &former.sums),
            None if row.opened_ns >= from => row.sums,
            // It was there and was not told of: nobody knows since when it did this.
            None => nothing,
        };
        let rates = Rates::of(&sums, seconds);
        told.add(&rates);
        let mut line = Line {
            of: of(row),
            rates,
            programs: 1,
            ..Line::default()
        };
        line.servers.add(server, rates.bytes());
        let (locality, weight) = (&row.locality, rates.requests);
        line.gap.add(locality.gap.map(|gap| gap as f64), weight);
        line.ratio
            .add(locality.ratio_milli.map(|r| r as f64 / 1e3), weight);
        line.reuse
            .add(locality.reuse_ns.map(|ns| ns as f64 / 1e9), weight);
        lines.push(line);
    }
    let others = total.without(&told);
    if now.all && !others.is_idle() {
        let mut line = Line {
            of: OTHERS,
            rates: others,
            ..Line::default()
        };
        line.servers.add(server, others.bytes());
        lines.push(line);
    }
    Server {
        rates: total,
        locality: now.locality,
        seconds,
    }
}

/// What came after `before`; sums that went back are a new count.
fn since(now: &LedgerSums, before: &LedgerSums) -> LedgerSums {
    let less = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
    let direct = penstock_wire::message::DirectSums {
        requests: less(now.direct.requests, before.direct.requests),
        read: less(now.direct.read, before.direct.read),
        written: less(now.direct.written, before.direct.written),
    };
    LedgerSums {
        reads: less(now.reads, before.reads),
        writes: less(now.writes, before.writes),
        read: less(now.read, before.read),
        written: less(now.written, before.written),
        direct,
        queue_ns: less(now.queue_ns, before.queue_ns),
        device_ns: less(now.device_ns, before.device_ns),
        busy_ns: less(now.busy_ns, before.busy_ns),
        switches: less(now.switches, before.switches),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_wire::message::{DirectSums, LedgerLocality};

    fn sums(reads: u64, read: u64) -> LedgerSums {
        LedgerSums {
            reads,
            read,
            ..LedgerSums::default()
        }
    }

    fn row(program: u64, opened_ns: u64, sums: LedgerSums) -> LedgerRow {
        LedgerRow {
            program,
            uid: 7,
            opened_ns,
            sums,
            locality: LedgerLocality::default(),
        }
    }

    fn ledger(seconds: u64, total: LedgerSums, programs: Vec<LedgerRow>) -> LedgerStatus {
        LedgerStatus {
            incarnation: 1,
            at_ns: seconds * 1_000_000_000,
            all: true,
            total,
            programs,
            ..LedgerStatus::default()
        }
    }

    fn look<'a>(server: u32, before: &'a LedgerStatus, now: &'a LedgerStatus) -> Look<'a> {
        Look {
            server,
            before: Some(before),
            now,
        }
    }

    #[test]
    fn rates_are_those_between_two_looks_and_the_rest_is_that_of_others() {
        let before = ledger(
            10,
            sums(10, 1000),
            vec![row(1, 0, sums(5, 500)), row(2, 0, sums(1, 9))],
        );
        let mut direct = sums(7, 900);
        direct.direct = DirectSums {
            requests: 2,
            read: 0,
            written: 60,
        };
        let mut total = sums(20, 2000);
        total.direct = direct.direct;
        // Program 2 was closed and opened anew; 3 is new; 4 was there, and nobody was told.
        let opened = 11_000_000_000;
        let now = ledger(
            12,
            total,
            vec![
                row(1, 0, direct),
                row(2, opened, sums(3, 30)),
                row(3, opened, sums(1, 70)),
                row(4, 0, sums(1_000_000, 1 << 50)),
            ],
        );
        let load = between(&[look(5, &before, &now)], false);
        let of = |program| load.programs.iter().find(|l| l.of.0 == program).unwrap();
        assert_eq!((of(1).rates.requests, of(1).rates.read), (2.0, 200.0));
        assert_eq!((of(1).rates.written, of(1).rates.shortcuts), (30.0, 30.0));
        assert_eq!((of(2).rates.read, of(3).rates.read), (15.0, 35.0));
        assert!(of(4).rates.is_idle());
        let others = of(OTHERS.0);
        assert_eq!((others.rates.read, others.rates.requests), (250.0, 2.0));
        assert_eq!(load.servers[&5].rates.read, 500.0);
        let shares: f64 = load.programs.iter().map(|line| line.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
        // To somebody who sees own programs alone nothing is told of others.
        let own = LedgerStatus { all: false, ..now };
        let load = between(&[look(5, &before, &own)], false);
        assert!(load.programs.iter().all(|line| line.of != OTHERS));
    }

    #[test]
    fn a_program_at_several_servers_is_one_line_unless_they_are_kept_apart() {
        let before = ledger(10, sums(0, 0), vec![row(1, 0, sums(0, 0))]);
        let one = ledger(11, sums(1, 100), vec![row(1, 0, sums(1, 100))]);
        let two = ledger(12, sums(1, 400), vec![row(1, 0, sums(1, 400))]);
        let looks = [look(0, &before, &one), look(1, &before, &two)];
        let load = between(&looks, false);
        assert_eq!(load.programs.len(), 1);
        assert_eq!(load.programs[0].rates.read, 300.0);
        let servers: Vec<_> = load.programs[0].servers.iter().collect();
        assert_eq!(servers, [(0, 100.0), (1, 200.0)]);
        assert_eq!(load.programs[0].programs, 1);
        let load = between(&looks, true);
        let reads: Vec<f64> = load.programs.iter().map(|line| line.rates.read).collect();
        assert_eq!(reads, [100.0, 200.0]);
    }

    #[test]
    fn a_server_that_was_started_again_counts_from_its_start() {
        let before = ledger(100, sums(50, 5000), vec![row(1, 0, sums(50, 5000))]);
        let again = LedgerStatus {
            incarnation: 2,
            ..ledger(2, sums(4, 40), vec![row(1, 0, sums(4, 40))])
        };
        let load = between(&[look(0, &before, &again)], false);
        assert_eq!(load.programs[0].rates.read, 20.0);
        // Two answers of one moment.
        let load = between(&[look(0, &before, &before)], false);
        assert!(load.servers[&0].rates.read.is_finite());
    }

    #[test]
    fn means_are_weighted_by_requests() {
        let with = |gap| LedgerLocality {
            gap: Some(gap),
            ..LedgerLocality::default()
        };
        let before = ledger(10, sums(0, 0), vec![row(1, 0, sums(0, 0))]);
        let at = |reads, gap| {
            let mut row = row(1, 0, sums(reads, 1));
            row.locality = with(gap);
            ledger(11, sums(reads, 1), vec![row])
        };
        let (one, two) = (at(3, 100), at(1, 500));
        let load = between(&[look(0, &before, &one), look(1, &before, &two)], false);
        assert_eq!(load.programs[0].gap.value(), Some(200.0));
        assert_eq!(load.programs[0].reuse.value(), None);
    }
}
