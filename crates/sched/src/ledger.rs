//! The ledger of a data server: which program loads it, how much, and in which way.
//!
//! *Problem*: decisions across programs (a gate per server, an execution mode, an administrator's search for the program
//! that fills the disks) need figures per program. A server may see 10⁵ programs. *Idea*: each access is added to the
//! account of its program, to that of its user, and to the server's. Accounts of programs and users are bounded: those
//! with the most weight are kept, all others are one account, the rest. *When it pays*: always. An access costs 0.1 to
//! 0.3 µs, and some 3 µs if its program has no account and there is no space for one.
//!
//! *Which are kept*: Space-Saving. A newcomer takes the place of the account with the least weight and inherits that
//! weight. So of n accounts everyone with more than 1/n of all weight is kept. What an account *shows* is not inherited: its sums count from
//! when it was opened, and what was closed counts in the rest. So rows and rest always add up to the total, and a sum only
//! grows until its account is closed. *Weight* is bytes, and [`REQUEST`] for each request; it is halved each [`HALF_LIFE`],
//! so that the programs of last week leave. *Source*: Metwally, Agrawal and El Abbadi, Efficient computation of frequent
//! and top-k elements in data streams, ICDT 2005; decay: Cormode, Korn and Tirthapura, ICDE 2008.
//!
//! *In which way*: mean gap SL, reuse distance RD (IOrchestrator, RS section 5.2.2), gap / size L (iTransformer, RS
//! chapter 6). Each is smoothed by x ← x/8 + 7/8·new. The gap is the distance, in the object, between the end of a program's former access and the
//! beginning of this one. Where the former was to another object the distance is unknown: that counts as a switch and leaves the means alone.
//! *I/O share* is the time in which a program had an access under way here, in proportion to all time.
//!
//! *Parameters*: the number of accounts, [`REQUEST`], [`HALF_LIFE`]. A plain state machine: times are passed in, in
//! nanoseconds since an origin of the caller's. Accesses may come out of order; a time before an earlier one counts as no
//! time passed.
use crate::{Nanos, Op};
use std::collections::BTreeMap;

/// Weight of a request beside its bytes.
pub const REQUEST: u64 = 4096;
/// After so long a weight is halved.
pub const HALF_LIFE: Nanos = 60_000_000_000;
/// Programs of one ledger, and users.
pub const ACCOUNTS: usize = 1024;

/// A program of a user. Two users' programs of one number are two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Program {
    /// Its number; 0: of no program.
    pub number: u64,
    /// Who runs it.
    pub user: u32,
}

/// An access that has been served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Whose.
    pub program: Program,
    /// Which object.
    pub file: u64,
    /// What it does.
    pub op: Op,
    /// First byte of the object that it can touch.
    pub offset: u64,
    /// One past the last byte.
    pub end: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// When it came.
    pub arrived: Nanos,
    /// When it was answered.
    pub ended: Nanos,
    /// How long its slices waited to be dispatched, summed.
    pub queue: Nanos,
    /// How long the store worked for them, summed.
    pub device: Nanos,
}

/// Accesses and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Accesses.
    pub requests: u64,
    /// Bytes.
    pub read: u64,
    /// Bytes.
    pub written: u64,
}

impl Traffic {
    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        *self == Traffic::default()
    }

    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }

    fn add(&mut self, more: &Traffic) {
        self.requests = self.requests.saturating_add(more.requests);
        self.read = self.read.saturating_add(more.read);
        self.written = self.written.saturating_add(more.written);
    }

    /// What came after `before`.
    #[must_use]
    pub fn since(&self, before: &Traffic) -> Traffic {
        Traffic {
            requests: self.requests.saturating_sub(before.requests),
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
        }
    }
}

/// What an account adds up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Reads by requests.
    pub reads: u64,
    /// Writes by requests.
    pub writes: u64,
    /// Bytes read by requests.
    pub read: u64,
    /// Bytes written by requests.
    pub written: u64,
    /// Past the server, by descriptors of objects, as clients count it.
    pub direct: Traffic,
    /// Waiting to be dispatched.
    pub queue: Nanos,
    /// The store at work.
    pub device: Nanos,
    /// At least one access under way.
    pub busy: Nanos,
    /// Accesses to another object than the one before.
    pub switches: u64,
}

impl Sums {
    /// By requests and past the server.
    pub fn traffic(&self) -> Traffic {
        let mut all = Traffic {
            requests: self.reads.saturating_add(self.writes),
            read: self.read,
            written: self.written,
        };
        all.add(&self.direct);
        all
    }

    /// Both together.
    pub fn add(&mut self, more: &Sums) {
        let sum = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        sum(&mut self.reads, more.reads);
        sum(&mut self.writes, more.writes);
        sum(&mut self.read, more.read);
        sum(&mut self.written, more.written);
        self.direct.add(&more.direct);
        sum(&mut self.queue, more.queue);
        sum(&mut self.device, more.device);
        sum(&mut self.busy, more.busy);
        sum(&mut self.switches, more.switches);
    }
}

/// Smoothed as the sources do: the newest counts seven eighths.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Smoothed(Option<f64>);

impl Smoothed {
    fn take(&mut self, new: f64) {
        self.0 = Some(self.0.map_or(new, |old| old / 8.0 + new * 7.0 / 8.0));
    }

    /// `None`: nothing was measured.
    pub fn value(&self) -> Option<f64> {
        self.0
    }
}

/// How a program, or everybody, accesses this server.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Locality {
    /// Bytes between accesses (SL).
    pub gap: Smoothed,
    /// The same in sizes of the access (L).
    pub ratio: Smoothed,
    /// Nanoseconds between arrivals (RD).
    pub reuse: Smoothed,
}

/// Sums, and what the next access is compared with.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Account {
    sums: Sums,
    locality: Locality,
    /// The former access: its object, its end, and when it came.
    former: Option<(u64, u64, Nanos)>,
    /// Up to here time is in `busy`, or was found idle.
    until: Nanos,
    opened: Nanos,
    /// What [`Ledger::news`] has told.
    told: Traffic,
}

impl Account {
    fn open(now: Nanos) -> Account {
        Account {
            opened: now,
            ..Account::default()
        }
    }

    fn news(&self) -> Traffic {
        self.sums.traffic().since(&self.told)
    }

    fn serve(&mut self, access: &Access) {
        let Sums {
            reads,
            writes,
            read,
            written,
            queue,
            device,
            busy,
            switches,
            ..
        } = &mut self.sums;
        let (requests, bytes) = match access.op {
            Op::Read => (reads, read),
            Op::Write => (writes, written),
        };
        *requests = requests.saturating_add(1);
        *bytes = bytes.saturating_add(access.bytes);
        *queue = queue.saturating_add(access.queue);
        *device = device.saturating_add(access.device);
        // The union of what is under way: accesses are added as they end.
        *busy = busy.saturating_add(access.ended.saturating_sub(access.arrived.max(self.until)));
        self.until = self.until.max(access.ended);
        let mut arrived = access.arrived;
        if let Some((file, end, before)) = self.former {
            arrived = arrived.max(before);
            self.locality.reuse.take((arrived - before) as f64);
            if file == access.file {
                let gap = access.offset.abs_diff(end) as f64;
                self.locality.gap.take(gap);
                self.locality.ratio.take(gap / access.bytes.max(1) as f64);
            } else {
                *switches = switches.saturating_add(1);
            }
        }
        self.former = Some((access.file, access.end, arrived));
    }
}

/// An account as it is shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row<K> {
    /// Whose.
    pub of: K,
    /// Since it was opened.
    pub sums: Sums,
    /// Of its accesses by requests.
    pub locality: Locality,
    /// When it was opened.
    pub opened: Nanos,
}

/// The accounts with the most weight, and the sums of all that were closed.
#[derive(Debug)]
struct Heaviest<K> {
    capacity: usize,
    keys: Vec<K>,
    accounts: Vec<Account>,
    /// Apart: the least of them is looked for each time that a newcomer finds no room.
    weights: Vec<u64>,
    at: BTreeMap<K, usize>,
    /// Where the last access was added: the next one is likely to be of the same.
    last: Option<(K, usize)>,
    rest: Sums,
}

impl<K: Copy + Ord> Heaviest<K> {
    fn new(capacity: usize) -> Heaviest<K> {
        Heaviest {
            capacity: capacity.max(1),
            keys: Vec::new(),
            accounts: Vec::new(),
            weights: Vec::new(),
            at: BTreeMap::new(),
            last: None,
            rest: Sums::default(),
        }
    }

    /// The account of `key`, which `weight` is added to.
    fn account(&mut self, key: K, weight: u64, now: Nanos) -> &mut Account {
        let at = match self.last {
            Some((last, at)) if last == key => at,
            _ => match self.at.get(&key) {
                Some(at) => *at,
                None => self.open(key, now),
            },
        };
        self.last = Some((key, at));
        self.weights[at] = self.weights[at].saturating_add(weight);
        &mut self.accounts[at]
    }

    fn open(&mut self, key: K, now: Nanos) -> usize {
        let at = self.keys.len();
        if at < self.capacity {
            self.keys.push(key);
            self.accounts.push(Account::open(now));
            self.weights.push(0);
            self.at.insert(key, at);
            return at;
        }
        let least = self.weights.iter().enumerate().min_by_key(|(_, w)| **w);
        let at = least.map_or(0, |(at, _)| at);
        self.at.remove(&self.keys[at]);
        self.at.insert(key, at);
        self.keys[at] = key;
        self.rest.add(&self.accounts[at].sums);
        // The weight stays: the newcomer inherits it.
        self.accounts[at] = Account::open(now);
        at
    }

    /// Upwards: of what an account has of the least weight nothing is lost.
    fn age(&mut self, halvings: u64) {
        for weight in &mut self.weights {
            for _ in 0..halvings {
                *weight = weight.div_ceil(2);
            }
        }
    }

    /// The heaviest first.
    fn rows(&self, of: impl Fn(&K) -> bool) -> Vec<Row<K>> {
        let mut order: Vec<usize> = (0..self.keys.len())
            .filter(|at| of(&self.keys[*at]))
            .collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.weights[*at]));
        let row = |at: usize| Row {
            of: self.keys[at],
            sums: self.accounts[at].sums,
            locality: self.accounts[at].locality,
            opened: self.accounts[at].opened,
        };
        order.into_iter().map(row).collect()
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Ledger {
    programs: Heaviest<Program>,
    users: Heaviest<u32>,
    total: Account,
    /// Weights are as of this time.
    aged: Nanos,
}

impl Ledger {
    /// Of a server that starts at time 0, with so many accounts of programs, and of users.
    pub fn new(accounts: usize) -> Ledger {
        Ledger {
            programs: Heaviest::new(accounts),
            users: Heaviest::new(accounts),
            total: Account::default(),
            aged: 0,
        }
    }

    /// An access has been served.
    pub fn serve(&mut self, access: &Access) {
        self.age(access.ended);
        let weight = access.bytes.saturating_add(REQUEST);
        // Opened when it can be seen first: whoever looked before has not seen it.
        let (program, now) = (access.program, access.ended);
        self.programs.account(program, weight, now).serve(access);
        self.users.account(program.user, weight, now).serve(access);
        self.total.serve(access);
    }

    /// A client has moved bytes past the server.
    pub fn direct(&mut self, now: Nanos, program: Program, moved: &Traffic) {
        if moved.is_empty() {
            return;
        }
        self.age(now);
        let weight = moved
            .bytes()
            .saturating_add(moved.requests.saturating_mul(REQUEST));
        let programs = self.programs.account(program, weight, now);
        programs.sums.direct.add(moved);
        let users = self.users.account(program.user, weight, now);
        users.sums.direct.add(moved);
        self.total.sums.direct.add(moved);
    }

    fn age(&mut self, now: Nanos) {
        let halvings = now.saturating_sub(self.aged) / HALF_LIFE;
        if halvings > 0 {
            self.aged += halvings * HALF_LIFE;
            // After 64 nothing but 1 is left of any weight.
            self.programs.age(halvings.min(64));
            self.users.age(halvings.min(64));
        }
    }

    /// All programs that are told apart, or those of one user; the heaviest first.
    pub fn programs(&self, of: Option<u32>) -> Vec<Row<Program>> {
        self.programs
            .rows(|program| of.is_none_or(|user| program.user == user))
    }

    /// All programs that are not.
    pub fn other_programs(&self) -> Sums {
        self.programs.rest
    }

    /// All users that are told apart, or one; the heaviest first.
    pub fn users(&self, of: Option<u32>) -> Vec<Row<u32>> {
        self.users.rows(|user| of.is_none_or(|of| *user == of))
    }

    /// All users that are not.
    pub fn other_users(&self) -> Sums {
        self.users.rest
    }

    /// There is something that [`Ledger::news`] has not told.
    pub fn has_news(&self) -> bool {
        !self.total.news().is_empty()
    }

    /// What came since the last call: of the programs with the most bytes, at most so many, and of all others together.
    pub fn news(&mut self, most: usize) -> (Vec<(Program, Traffic)>, Traffic) {
        let all = self.total.news();
        self.total.told = self.total.sums.traffic();
        let mut news = Vec::new();
        for (program, account) in self.programs.keys.iter().zip(&mut self.programs.accounts) {
            let new = account.news();
            if !new.is_empty() {
                account.told = account.sums.traffic();
                news.push((*program, new));
            }
        }
        news.sort_by_key(|(_, new)| std::cmp::Reverse(new.bytes()));
        news.truncate(most);
        let mut apart = Traffic::default();
        news.iter().for_each(|(_, new)| apart.add(new));
        (news, all.since(&apart))
    }

    /// Whether the program has an account.
    pub fn knows(&self, program: Program) -> bool {
        self.programs.at.contains_key(&program)
    }

    /// Everybody.
    pub fn total(&self) -> (Sums, Locality) {
        (self.total.sums, self.total.locality)
    }
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::new(ACCOUNTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALICE: u32 = 7;

    fn access(number: u64, offset: u64, bytes: u64, arrived: Nanos, ended: Nanos) -> Access {
        Access {
            program: Program {
                number,
                user: ALICE,
            },
            file: 1,
            op: Op::Read,
            offset,
            end: offset + bytes,
            bytes,
            arrived,
            ended,
            queue: 1,
            device: 2,
        }
    }

    #[test]
    fn an_account_adds_up_what_its_program_does() {
        let mut ledger = Ledger::default();
        ledger.serve(&access(1, 0, 100, 10, 20));
        ledger.serve(&Access {
            op: Op::Write,
            ..access(1, 100, 50, 15, 40)
        });
        ledger.serve(&access(2, 5000, 10, 20, 30));
        let moved = Traffic {
            requests: 3,
            read: 1 << 20,
            written: 7,
        };
        let program = Program {
            number: 2,
            user: ALICE,
        };
        ledger.direct(50, program, &moved);
        let rows = ledger.programs(None);
        let order: Vec<u64> = rows.iter().map(|row| row.of.number).collect();
        assert_eq!(order, [2, 1], "the heaviest first");
        let sums = rows[1].sums;
        assert_eq!(
            (sums.reads, sums.writes, sums.read, sums.written),
            (1, 1, 100, 50)
        );
        // From 10 to 40, although 15 to 20 was under way twice.
        assert_eq!((sums.queue, sums.device, sums.busy), (2, 4, 30));
        assert_eq!((sums.traffic().requests, sums.traffic().bytes()), (2, 150));
        assert_eq!(
            (rows[0].sums.direct, rows[0].sums.traffic().requests),
            (moved, 4)
        );
        assert_eq!(ledger.total().0.traffic().bytes(), 160 + moved.bytes());
        assert_eq!(
            ledger.users(None)[0].sums.traffic().bytes(),
            ledger.total().0.traffic().bytes()
        );
        assert!(ledger.programs(Some(ALICE + 1)).is_empty());
        assert_eq!(ledger.programs(Some(ALICE)).len(), 2);
    }

    #[test]
    fn locality_follows_the_sources_formulas() {
        let mut ledger = Ledger::default();
        let serve = |ledger: &mut Ledger, file, offset, arrived| {
            let one = access(1, offset, 100, arrived, arrived + 1);
            ledger.serve(&Access { file, ..one });
        };
        serve(&mut ledger, 1, 0, 0);
        let first = ledger.programs(None)[0].locality;
        assert_eq!((first.gap.value(), first.reuse.value()), (None, None));
        // Gaps of 900 and 0, forwards and back; 80 and 800 ns between arrivals.
        serve(&mut ledger, 1, 1000, 80);
        serve(&mut ledger, 1, 1100, 880);
        let row = ledger.programs(None)[0];
        assert_eq!(row.locality.gap.value(), Some(900.0 / 8.0));
        assert_eq!(row.locality.ratio.value(), Some(9.0 / 8.0));
        assert_eq!(row.locality.reuse.value(), Some(10.0 + 700.0));
        // To another object nobody knows how far it is.
        serve(&mut ledger, 2, 0, 880);
        let row = ledger.programs(None)[0];
        assert_eq!(row.locality.gap.value(), Some(900.0 / 8.0));
        assert_eq!((row.sums.switches, ledger.total().0.switches), (1, 1));
        // Backwards counts as well.
        serve(&mut ledger, 2, 50, 880);
        let gap = ledger.programs(None)[0].locality.gap.value();
        assert_eq!(gap, Some(900.0 / 64.0 + 50.0 * 7.0 / 8.0));
    }

    #[test]
    fn two_programs_that_take_turns_have_their_own_gaps() {
        let mut ledger = Ledger::default();
        for step in 0..100 {
            ledger.serve(&access(1, step * 100, 100, step, step));
            ledger.serve(&access(2, (1 << 40) + step * 100, 100, step, step));
        }
        for row in ledger.programs(None) {
            assert_eq!(row.locality.gap.value(), Some(0.0));
        }
        let all = ledger.total().1.gap.value().unwrap();
        assert!(all > f64::from(1 << 30), "SL of the server: {all}");
    }

    #[test]
    fn programs_of_former_days_leave_and_sums_stay() {
        let mut ledger = Ledger::new(2);
        ledger.serve(&access(1, 0, 1 << 40, 0, 0));
        ledger.serve(&access(2, 0, 1 << 40, 0, 0));
        let later = 40 * HALF_LIFE;
        ledger.serve(&access(3, 0, 1 << 10, later, later));
        ledger.serve(&access(4, 0, 1 << 20, later, later));
        let kept: Vec<u64> = ledger
            .programs(None)
            .iter()
            .map(|row| row.of.number)
            .collect();
        assert_eq!(kept.len(), 2);
        assert!(kept.contains(&4), "{kept:?}");
        let shown: u64 = ledger
            .programs(None)
            .iter()
            .map(|row| row.sums.traffic().bytes())
            .sum();
        let all = shown + ledger.other_programs().traffic().bytes();
        assert_eq!(all, ledger.total().0.traffic().bytes());
        // Centuries later, and a clock that goes back.
        ledger.serve(&access(4, 0, 1, u64::MAX - 1, u64::MAX));
        ledger.serve(&access(4, 0, 1, 5, 3));
        assert!(ledger.knows(Program {
            number: 4,
            user: ALICE
        }));
    }

    #[test]
    fn news_are_told_once_and_those_of_closed_accounts_too() {
        let mut ledger = Ledger::new(4);
        assert!(!ledger.has_news());
        for number in 0..20 {
            ledger.serve(&access(number, 0, 1 + number, 1, 2));
        }
        assert!(ledger.has_news());
        let (apart, others) = ledger.news(3);
        let numbers: Vec<u64> = apart.iter().map(|(program, _)| program.number).collect();
        assert_eq!(numbers, [19, 18, 17], "those with the most bytes");
        assert_eq!((others.requests, others.read), (17, (1..=17).sum()));
        assert!(!ledger.has_news() && ledger.news(3).0.is_empty());
        ledger.serve(&access(19, 0, 5, 1, 2));
        let (apart, others) = ledger.news(3);
        assert_eq!((apart[0].1.read, apart.len()), (5, 1));
        assert!(others.is_empty());
    }

    /// 10⁵ programs at one server: all accesses added, and the answer made, in far less than 50 ms.
    #[test]
    fn a_hundred_thousand_programs_are_bounded() {
        let mut ledger = Ledger::default();
        for number in 0..100_000 {
            ledger.serve(&access(number, 0, 4096, number, number + 1));
        }
        for _ in 0..1000 {
            ledger.serve(&access(7, 0, 1 << 20, 200_000, 200_001));
        }
        let rows = ledger.programs(None);
        assert_eq!((rows.len(), rows[0].of.number), (ACCOUNTS, 7));
        let shown: u64 = rows.iter().map(|row| row.sums.traffic().requests).sum();
        assert_eq!(shown + ledger.other_programs().traffic().requests, 101_000);
        assert_eq!(ledger.users(None).len(), 1);
        assert_eq!(ledger.other_users(), Sums::default());
    }

    #[derive(Debug, Clone, Copy)]
    struct Step {
        number: u64,
        user: u32,
        offset: u64,
        bytes: u64,
        later: Nanos,
        took: Nanos,
        direct: bool,
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few programs have most of the weight.
        let number = prop_oneof![0..3u64, 0..60u64];
        let bytes = prop_oneof![0..100u64, 0..1_000_000u64, Just(1 << 50)];
        let later = prop_oneof![4 => 0..1000u64, 1 => Just(HALF_LIFE / 2)];
        (
            (number, 0..2u32, any::<u64>(), bytes),
            (later, 0..500u64, any::<bool>()),
        )
            .prop_map(|((number, user, offset, bytes), (later, took, direct))| {
                let offset = offset % (u64::MAX - bytes);
                Step {
                    number,
                    user,
                    offset,
                    bytes,
                    later,
                    took,
                    direct,
                }
            })
    }

    /// What is true of all steps so far, counted without bounds. Weights are halved as the ledger halves them, exactly.
    #[derive(Default)]
    struct Truth {
        sums: BTreeMap<Program, Sums>,
        weights: BTreeMap<Program, f64>,
        aged: Nanos,
    }

    impl Truth {
        fn add(&mut self, now: Nanos, program: Program, weight: f64, sums: Sums) {
            while now - self.aged >= HALF_LIFE {
                self.aged += HALF_LIFE;
                self.weights.values_mut().for_each(|weight| *weight /= 2.0);
            }
            *self.weights.entry(program).or_default() += weight;
            self.sums.entry(program).or_default().add(&sums);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn nothing_is_lost_the_heavy_are_kept_and_no_row_says_too_much(
            steps in proptest::collection::vec(step(), 0..300),
            capacity in 1..12usize,
        ) {
            let (mut ledger, mut truth, mut now) = (Ledger::new(capacity), Truth::default(), 0);
            for s in steps {
                now += s.later;
                let program = Program { number: s.number, user: s.user };
                let ended = now + s.took;
                let mut sums = Sums::default();
                if s.direct {
                    sums.direct = Traffic { requests: 1, read: s.bytes, written: 0 };
                    ledger.direct(ended, program, &sums.direct);
                } else {
                    (sums.reads, sums.read, sums.device) = (1, s.bytes, s.took);
                    let (file, end) = (s.offset % 3, s.offset + s.bytes);
                    ledger.serve(&Access {
                        program, file, op: Op::Read, offset: s.offset, end, bytes: s.bytes,
                        arrived: now, ended, queue: 0, device: s.took,
                    });
                }
                truth.add(ended.max(truth.aged), program, (s.bytes + REQUEST) as f64, sums);
                now = ended;
            }
            let rows = ledger.programs(None);
            prop_assert!(rows.len() <= capacity);
            // Rows and rest are all there is.
            let mut all = ledger.other_programs();
            rows.iter().for_each(|row| all.add(&row.sums));
            let total = ledger.total().0;
            prop_assert_eq!(all.traffic().requests, total.traffic().requests);
            prop_assert_eq!((all.read, all.device, all.direct), (total.read, total.device, total.direct));
            let mut true_total = Sums::default();
            truth.sums.values().for_each(|sums| true_total.add(sums));
            prop_assert_eq!((total.reads, total.read, total.direct), (true_total.reads, true_total.read, true_total.direct));
            // No row says more than is true, and nobody was at work for longer than time passed.
            for row in &rows {
                let known = truth.sums[&row.of];
                prop_assert!(row.sums.traffic().bytes() <= known.traffic().bytes() && row.sums.traffic().requests <= known.traffic().requests);
                prop_assert!(row.sums.busy <= now && row.opened <= now);
            }
            prop_assert!(total.busy <= now);
            // Whoever has more than his part of the weight is there. The ledger rounds up, by one for each of its accounts.
            let weight: f64 = truth.weights.values().sum();
            for (program, own) in &truth.weights {
                let part = (weight + 64.0 * capacity as f64) / capacity as f64;
                prop_assert!(*own <= part * (1.0 + 1e-9) || ledger.knows(*program), "{:?}: {own} of {weight}", program);
            }
            let users = ledger.users(None);
            let of_users: u64 = users.iter().map(|row| row.sums.traffic().requests).sum();
            prop_assert_eq!(of_users + ledger.other_users().traffic().requests, total.traffic().requests);
        }
    }
}
