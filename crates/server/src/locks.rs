//! Range locks of one object.
//!
//! *Problem*: a client that sieves reads a whole extent, changes some bytes and writes all of it
//! back; whoever writes into the extent meanwhile would lose bytes. MPI atomic mode wants whole accesses
//! one after another. And a holder may die or stall.
//! *Idea*: one queue per object in order of arrival. A request is granted when it conflicts neither with
//! what is held nor with anything before it in the queue, so nobody starves and strangers to a range
//! never wait. A plain write takes part for as long as it touches the store: writes are compatible with each
//! other and conflict with locks, so a plain write waits for the holder, and the holder for plain writes
//! under way.
//! *Lease*: a lock that has not been used for a while is taken away, but only when someone waits for it and only
//! between uses. Its holder learns of it at its next use ([`Refusal::Lost`]), before a byte is written.
//! *Strangers*: no user waits for another's good will beyond [`LockLimits::strangers`]. Against a request of another user a
//! shared lock, which takes no right to write, lasts that long since it was granted; and a request that is not ready,
//! because its requester waits for something else first, keeps no other user's back.
//! *Source*: the contract "Visibility" of docs/ARCHITECTURE.md.
//!
//! A plain state machine: requests and times go in, grants come out of [`RangeLocks::advance`].
//! Whoever asked waits outside.
use penstock_wire::Credentials;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A connection, and whose it is, if the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub connection: u64,
    pub who: Option<Credentials>,
}

impl Owner {
    /// Both are known, and they are of two users.
    pub(crate) fn is_stranger_to(self, other: Owner) -> bool {
        matches!((self.who, other.who), (Some(a), Some(b)) if a.uid != b.uid)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.who {
            Some(who) => write!(f, "process {} of user {}", who.pid, who.uid),
            None => write!(f, "a client of another host"),
        }
    }
}

/// A request in the queue, and later the grant that came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(pub u64);

/// What a range is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One plain write, while it touches the store.
    Write,
    /// A lock that keeps writers out.
    Shared,
    /// A lock that keeps everyone out who asks.
    Exclusive,
}

impl Mode {
    fn compatible(self, other: Mode) -> bool {
        self == other && self != Mode::Exclusive
    }
}

/// Why a request or a use is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many wait already.
    Full,
    /// This connection holds too many locks on this object.
    TooMany,
    /// This connection itself holds a conflicting lock: it would wait for itself.
    Own,
    /// No such lock: never granted, released, or its lease ran out while others waited.
    Lost,
}

/// Bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockLimits {
    /// An unused lock lives at least this long.
    pub lease: Duration,
    /// How long a shared lock that is not used keeps another user waiting.
    pub strangers: Duration,
    /// Requests waiting for one object.
    pub waiters: usize,
    /// Locks of one connection on one object: what every access to the object looks through has an end.
    pub per_owner: usize,
}

#[derive(Debug)]
struct Entry {
    ticket: Ticket,
    owner: Owner,
    range: Range<u64>,
    mode: Mode,
}

impl Entry {
    fn conflicts(&self, other: &Entry) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        if !overlap || self.mode.compatible(other.mode) {
            return false;
        }
        // A holder's own plain writes are what its lock is for.
        let own_write = self.mode == Mode::Write || other.mode == Mode::Write;
        !(self.owner == other.owner && own_write)
    }
}

#[derive(Debug)]
struct Held {
    entry: Entry,
    /// Uses under way; a used lock is not taken away.
    uses: u32,
    granted: Instant,
    /// When its last use ended.
    used: Instant,
}

#[derive(Debug)]
struct Waiting {
    entry: Entry,
    /// Shortcuts have been revoked, or there is no need.
    ready: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct RangeLocks {
    limits: LockLimits,
    next: u64,
    held: Vec<Held>,
    queue: VecDeque<Waiting>,
}

impl RangeLocks {
    pub(crate) fn new(limits: LockLimits) -> RangeLocks {
        RangeLocks {
            limits,
            next: 1,
            held: Vec::new(),
            queue: VecDeque::new(),
        }
    }

    fn entry(&mut self, owner: Owner, range: Range<u64>, mode: Mode) -> Entry {
        let ticket = Ticket(self.next);
        self.next += 1;
        Entry {
            ticket,
            owner,
            range,
            mode,
        }
    }

    /// A plain write that may start at once, or `None`: [`RangeLocks::request`] it then.
    pub(crate) fn try_write(
        &mut self,
        now: Instant,
        owner: Owner,
        range: &Range<u64>,
    ) -> Option<Ticket> {
        let entry = self.entry(owner, range.clone(), Mode::Write);
        let blocked = self.held.iter().any(|h| h.entry.conflicts(&entry));
        // Those in the queue wait for the holder anyway: its writes go first, or both would wait.
        let waits = || self.queue.iter().any(|w| w.keeps_back(&entry));
        if blocked || (waits() && !self.covered(owner, range)) {
            return None;
        }
        let ticket = entry.ticket;
        self.hold(now, entry);
        Some(ticket)
    }

    /// The owner holds an exclusive lock on all of `range`.
    fn covered(&self, owner: Owner, range: &Range<u64>) -> bool {
        self.held.iter().any(|h| {
            h.entry.owner == owner
                && h.entry.mode == Mode::Exclusive
                && h.entry.range.start <= range.start
                && range.end <= h.entry.range.end
        })
    }

    /// Queues a request. It is not granted before [`RangeLocks::ready`].
    pub(crate) fn request(
        &mut self,
        owner: Owner,
        range: Range<u64>,
        mode: Mode,
    ) -> Result<Ticket, Refusal> {
        if self.queue.len() >= self.limits.waiters {
            return Err(Refusal::Full);
        }
        let locks = |h: &&Held| h.entry.owner == owner && h.entry.mode != Mode::Write;
        if mode != Mode::Write && self.held.iter().filter(locks).count() >= self.limits.per_owner {
            return Err(Refusal::TooMany);
        }
        let entry = self.entry(owner, range, mode);
        let own = |h: &Held| h.entry.owner == owner && h.entry.conflicts(&entry);
        if self.held.iter().any(own) {
            return Err(Refusal::Own);
        }
        let ticket = entry.ticket;
        self.queue.push_back(Waiting {
            entry,
            ready: false,
        });
        Ok(ticket)
    }

    /// From now on the request may be granted.
    pub(crate) fn ready(&mut self, ticket: Ticket) {
        if let Some(w) = self.queue.iter_mut().find(|w| w.entry.ticket == ticket) {
            w.ready = true;
        }
    }

    /// Grants what can be granted, taking away expired locks that stand in the way. Call after every change and
    /// at [`RangeLocks::next_expiry`].
    pub(crate) fn advance(&mut self, now: Instant, mut granted: impl FnMut(Ticket)) {
        let mut at = 0;
        while at < self.queue.len() {
            let waiting = &self.queue[at];
            let behind = self
                .queue
                .iter()
                .take(at)
                .any(|before| before.keeps_back(&waiting.entry));
            if behind || !waiting.ready {
                at += 1;
                continue;
            }
            let limits = self.limits;
            self.held.retain(|h| {
                let ends = h.ends_for(&waiting.entry, limits);
                !(h.entry.conflicts(&waiting.entry) && ends.is_some_and(|at| at <= now))
            });
            if self.held.iter().any(|h| h.entry.conflicts(&waiting.entry)) {
                at += 1;
                continue;
            }
            // Later requests were blocked by this one and still are: go on from here.
            if let Some(waiting) = self.queue.remove(at) {
                granted(waiting.entry.ticket);
                self.hold(now, waiting.entry);
            }
        }
    }

    fn hold(&mut self, now: Instant, entry: Entry) {
        self.held.push(Held {
            // A plain write ends when its system call ends; nobody takes it away.
            uses: u32::from(entry.mode == Mode::Write),
            entry,
            granted: now,
            used: now,
        });
    }

    /// When [`RangeLocks::advance`] can next do something by time alone.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let ends = |h: &Held| {
            let conflicting = self.queue.iter().filter(|w| w.entry.conflicts(&h.entry));
            conflicting
                .filter_map(|w| h.ends_for(&w.entry, self.limits))
                .min()
        };
        self.held.iter().filter_map(ends).min()
    }

    /// Who holds, or asked before for, what a waiting request wants.
    pub(crate) fn in_the_way(&self, ticket: Ticket) -> Option<Owner> {
        let at = self.queue.iter().position(|w| w.entry.ticket == ticket)?;
        let wanted = &self.queue[at].entry;
        let holder = self.held.iter().find(|h| h.entry.conflicts(wanted));
        let before = || self.queue.iter().take(at).find(|w| w.keeps_back(wanted));
        holder
            .map(|h| h.entry.owner)
            .or_else(|| before().map(|w| w.entry.owner))
    }

    /// The requester waits no longer. True if it was still in the queue.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> bool {
        let before = self.queue.len();
        self.queue.retain(|w| w.entry.ticket != ticket);
        self.queue.len() < before
    }

    /// Whether a range held by `owner` under `ticket` still is.
    fn find(&mut self, owner: Owner, ticket: Ticket) -> Option<usize> {
        self.held
            .iter()
            .position(|h| h.entry.ticket == ticket && h.entry.owner == owner)
    }

    /// Begins a use of a lock: until [`RangeLocks::end_use`] it stays. Says which range it covers and how.
    pub(crate) fn begin_use(
        &mut self,
        owner: Owner,
        ticket: Ticket,
    ) -> Result<(Range<u64>, Mode), Refusal> {
        let at = self.find(owner, ticket).ok_or(Refusal::Lost)?;
        let held = &mut self.held[at];
        held.uses += 1;
        Ok((held.entry.range.clone(), held.entry.mode))
    }

    /// Ends a use; the lease begins anew.
    pub(crate) fn end_use(&mut self, now: Instant, owner: Owner, ticket: Ticket) {
        if let Some(at) = self.find(owner, ticket) {
            let held = &mut self.held[at];
            held.uses -= 1;
            held.used = now;
        }
    }

    /// Ends a lock or a plain write.
    pub(crate) fn release(&mut self, owner: Owner, ticket: Ticket) -> Result<(), Refusal> {
        let at = self.find(owner, ticket).ok_or(Refusal::Lost)?;
        self.held.swap_remove(at);
        Ok(())
    }

    /// Ends a lock whoever holds it: its requester gave up in the moment of the grant.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.held.retain(|h| h.entry.ticket != ticket);
    }

    /// The connection has ended: nothing of it remains.
    pub(crate) fn disconnect(&mut self, owner: Owner) {
        self.held.retain(|h| h.entry.owner != owner);
        self.queue.retain(|w| w.entry.owner != owner);
    }

    /// A lock is held or wanted: shortcuts must not be granted. Plain writes do not count.
    pub(crate) fn locked(&self) -> bool {
        let lock = |e: &Entry| e.mode != Mode::Write;
        self.held.iter().any(|h| lock(&h.entry)) || self.queue.iter().any(|w| lock(&w.entry))
    }

    /// Nobody waits.
    pub(crate) fn quiet(&self) -> bool {
        self.queue.is_empty()
    }
}

impl Waiting {
    /// Whether `later` has to wait for it.
    fn keeps_back(&self, later: &Entry) -> bool {
        self.entry.conflicts(later) && (self.ready || !self.entry.owner.is_stranger_to(later.owner))
    }
}

impl Held {
    /// When it may be taken away for this request; not while it is used, and a plain write never.
    fn ends_for(&self, request: &Entry, limits: LockLimits) -> Option<Instant> {
        if self.uses > 0 {
            return None;
        }
        let lease = self.used + limits.lease;
        // Who may write holds an exclusive lock as long as a lease: an access of several servers waits at one for another.
        if self.entry.mode != Mode::Shared || !self.entry.owner.is_stranger_to(request.owner) {
            return Some(lease);
        }
        Some(lease.min(self.granted + limits.strangers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const LEASE: Duration = Duration::from_secs(10);
    const STRANGERS: Duration = Duration::from_secs(1);
    const A: Owner = owner(1);
    const B: Owner = owner(2);
    const C: Owner = owner(3);
    /// Like A, of two users.
    const MINE: Owner = of_user(4, 1000);
    const THEIRS: Owner = of_user(5, 1001);

    const fn owner(connection: u64) -> Owner {
        Owner {
            connection,
            who: None,
        }
    }

    const fn of_user(connection: u64, uid: u32) -> Owner {
        let who = Some(Credentials {
            pid: 7,
            uid,
            gid: 0,
        });
        Owner { connection, who }
    }

    fn locks() -> RangeLocks {
        RangeLocks::new(LockLimits {
            lease: LEASE,
            strangers: STRANGERS,
            waiters: 8,
            per_owner: 3,
        })
    }

    fn ask(l: &mut RangeLocks, owner: Owner, range: Range<u64>, mode: Mode) -> Ticket {
        let ticket = l.request(owner, range, mode).unwrap();
        l.ready(ticket);
        ticket
    }

    fn granted(l: &mut RangeLocks, now: Instant) -> Vec<Ticket> {
        let mut all = Vec::new();
        l.advance(now, |t| all.push(t));
        all
    }

    #[test]
    fn conflicts_wait_in_order_and_strangers_pass() {
        let mut l = locks();
        let now = Instant::now();
        let a = ask(&mut l, A, 0..100, Mode::Exclusive);
        assert_eq!(granted(&mut l, now), [a]);
        let b = ask(&mut l, B, 50..150, Mode::Shared);
        // C does not touch A's range but B's, which came first.
        let c = ask(&mut l, C, 120..130, Mode::Exclusive);
        let far = ask(&mut l, C, 500..600, Mode::Exclusive);
        assert_eq!(granted(&mut l, now), [far]);
        l.release(A, a).unwrap();
        assert_eq!(granted(&mut l, now), [b]);
        l.release(B, b).unwrap();
        assert_eq!(granted(&mut l, now), [c]);
    }

    #[test]
    fn no_user_waits_long_for_another() {
        let (mut l, now) = (locks(), Instant::now());
        let at = |ms: u64| now + Duration::from_millis(ms);
        let shared = ask(&mut l, THEIRS, 0..100, Mode::Shared);
        let whole = ask(&mut l, THEIRS, 200..300, Mode::Exclusive);
        assert_eq!(granted(&mut l, now), [shared, whole]);
        // Uses make an exclusive lock last, not a shared one.
        for ticket in [shared, whole] {
            l.begin_use(THEIRS, ticket).unwrap();
            l.end_use(at(900), THEIRS, ticket);
        }
        let (a, b) = (
            ask(&mut l, MINE, 0..1, Mode::Write),
            ask(&mut l, MINE, 200..201, Mode::Write),
        );
        assert_eq!(l.in_the_way(a), Some(THEIRS));
        assert_eq!(l.next_expiry(), Some(at(1000)));
        assert_eq!(granted(&mut l, at(999)), []);
        assert_eq!(granted(&mut l, at(1000)), [a]);
        assert_eq!(l.next_expiry(), Some(at(10_900)));
        assert_eq!(l.begin_use(THEIRS, shared), Err(Refusal::Lost));
        // Of one user, or of users that nobody knows, they last a lease.
        let own = ask(&mut l, MINE, 400..500, Mode::Shared);
        assert_eq!(granted(&mut l, at(2000)), [own]);
        ask(&mut l, of_user(9, 1000), 400..401, Mode::Write);
        ask(&mut l, A, 450..451, Mode::Write);
        assert_eq!(granted(&mut l, at(10_899)), []);
        assert_eq!(granted(&mut l, at(10_900)), [b]);
        assert_eq!(granted(&mut l, at(11_999)), []);
        assert_eq!(granted(&mut l, at(12_000)).len(), 2);
    }

    #[test]
    fn who_is_not_ready_keeps_no_other_user_back() {
        let (mut l, now) = (locks(), Instant::now());
        let theirs = l.request(THEIRS, 0..100, Mode::Shared).unwrap();
        assert!(l.try_write(now, of_user(9, 1001), &(0..1)).is_none());
        assert!(l.try_write(now, MINE, &(0..1)).is_some());
        let mine = ask(&mut l, MINE, 10..20, Mode::Exclusive);
        assert_eq!(granted(&mut l, now), [mine]);
        l.ready(theirs);
        assert_eq!(granted(&mut l, now), []);
    }

    #[test]
    fn one_owner_cannot_hoard() {
        let (mut l, now) = (locks(), Instant::now());
        for at in 0..3 {
            ask(&mut l, A, at * 10..at * 10 + 5, Mode::Exclusive);
        }
        let held = granted(&mut l, now);
        assert_eq!(held.len(), 3);
        let more = l.request(A, 30..35, Mode::Shared);
        assert_eq!(more, Err(Refusal::TooMany));
        // Its writes are no locks, others have theirs, and a lock given back makes room.
        assert!(l.try_write(now, A, &(40..41)).is_some());
        ask(&mut l, B, 30..35, Mode::Exclusive);
        l.release(A, held[0]).unwrap();
        ask(&mut l, A, 50..51, Mode::Exclusive);
        assert_eq!(granted(&mut l, now).len(), 2);
    }

    #[test]
    fn shared_locks_share_and_keep_plain_writes_out() {
        let mut l = locks();
        let now = Instant::now();
        let a = ask(&mut l, A, 0..10, Mode::Shared);
        let b = ask(&mut l, B, 5..15, Mode::Shared);
        assert_eq!(granted(&mut l, now), [a, b]);
        assert!(l.try_write(now, C, &(9..10)).is_none());
        // Two Shared holders write into each other's range: each waits for the other's lock.
        assert!(l.try_write(now, A, &(9..10)).is_none());
        assert!(l.try_write(now, A, &(0..5)).is_some());
        assert!(l.try_write(now, C, &(15..16)).is_some());
    }

    #[test]
    fn a_lock_waits_for_plain_writes_under_way_and_later_ones_for_it() {
        let mut l = locks();
        let now = Instant::now();
        let w1 = l.try_write(now, A, &(0..10)).unwrap();
        let w2 = l.try_write(now, B, &(0..10)).unwrap();
        let lock = ask(&mut l, C, 0..4, Mode::Exclusive);
        assert!(granted(&mut l, now + 2 * LEASE).is_empty());
        assert!(l.try_write(now, A, &(2..3)).is_none());
        assert!(l.try_write(now, A, &(4..5)).is_some());
        l.release(A, w1).unwrap();
        assert!(granted(&mut l, now).is_empty());
        l.release(B, w2).unwrap();
        assert_eq!(granted(&mut l, now), [lock]);
        // The holder's own writes pass.
        assert!(l.try_write(now, C, &(2..3)).is_some());
        assert!(l.try_write(now, B, &(2..3)).is_none());
        // Also while others wait for the lock.
        ask(&mut l, B, 0..4, Mode::Exclusive);
        assert!(l.try_write(now, C, &(2..3)).is_some());
    }

    #[test]
    fn an_idle_lock_is_lost_only_when_wanted_and_not_in_use() {
        let mut l = locks();
        let now = Instant::now();
        let a = ask(&mut l, A, 0..10, Mode::Exclusive);
        granted(&mut l, now);
        let late = now + 2 * LEASE;
        assert!(granted(&mut l, late).is_empty());
        assert!(l.begin_use(A, a).is_ok());
        let b = ask(&mut l, B, 0..10, Mode::Exclusive);
        assert_eq!(l.next_expiry(), None);
        assert!(granted(&mut l, late).is_empty());
        l.end_use(late, A, a);
        assert!(granted(&mut l, late).is_empty());
        assert_eq!(l.next_expiry(), Some(late + LEASE));
        assert_eq!(granted(&mut l, late + LEASE), [b]);
        assert_eq!(l.begin_use(A, a), Err(Refusal::Lost));
        assert_eq!(l.release(A, a), Err(Refusal::Lost));
        assert_eq!(l.begin_use(A, b), Err(Refusal::Lost));
    }

    #[test]
    fn nothing_is_granted_before_it_is_ready() {
        let mut l = locks();
        let now = Instant::now();
        let a = l.request(A, 0..10, Mode::Exclusive).unwrap();
        assert!(granted(&mut l, now).is_empty());
        assert!(l.locked());
        // It keeps its place meanwhile.
        let b = ask(&mut l, B, 0..10, Mode::Exclusive);
        assert!(granted(&mut l, now).is_empty());
        l.ready(a);
        assert_eq!(granted(&mut l, now), [a]);
        l.disconnect(A);
        assert_eq!(granted(&mut l, now), [b]);
        l.release(B, b).unwrap();
        assert!(!l.locked());
    }

    #[test]
    fn the_queue_is_bounded_and_nobody_waits_for_itself() {
        let mut l = locks();
        let now = Instant::now();
        let a = ask(&mut l, A, 0..10, Mode::Exclusive);
        granted(&mut l, now);
        assert_eq!(l.request(A, 5..6, Mode::Shared), Err(Refusal::Own));
        let waiting: Vec<_> = (0..8)
            .map(|_| ask(&mut l, B, 0..10, Mode::Exclusive))
            .collect();
        assert_eq!(l.request(C, 0..10, Mode::Exclusive), Err(Refusal::Full));
        assert!(l.withdraw(waiting[3]));
        assert!(!l.withdraw(waiting[3]));
        assert!(l.request(C, 0..10, Mode::Exclusive).is_ok());
        assert!(!l.withdraw(a));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Ask(u64, u64, u64, u8),
        Write(u64, u64, u64),
        Release(usize),
        Withdraw(usize),
        Disconnect(u64),
        Time(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..4u64, 0..20u64, 1..8u64, 0..2u8).prop_map(|(o, s, n, m)| Step::Ask(o, s, n, m)),
            3 => (0..4u64, 0..20u64, 1..8u64).prop_map(|(o, s, n)| Step::Write(o, s, n)),
            3 => any::<usize>().prop_map(Step::Release),
            1 => any::<usize>().prop_map(Step::Withdraw),
            1 => (0..4u64).prop_map(Step::Disconnect),
            1 => (1..30u64).prop_map(Step::Time),
        ]
    }

    proptest! {
        /// Whatever happens, no two conflicting ranges are held at once, and when all is released all
        /// waiting requests are granted: nothing is forgotten.
        #[test]
        fn holders_never_conflict_and_everyone_gets_a_turn(
            steps in proptest::collection::vec(step(), 1..60)
        ) {
            let mut l = RangeLocks::new(LockLimits { lease: LEASE, strangers: STRANGERS, waiters: 1000, per_owner: 1000 });
            let mut now = Instant::now();
            let mut owners: HashMap<Ticket, Owner> = HashMap::new();
            let mut held: Vec<Ticket> = Vec::new();
            let mut waiting: Vec<Ticket> = Vec::new();
            for s in steps {
                match s {
                    Step::Ask(o, start, n, m) => {
                        let mode = if m == 0 { Mode::Shared } else { Mode::Exclusive };
                        if let Ok(t) = l.request(of_user(o, 1000 + (o % 2) as u32), start..start + n, mode) {
                            l.ready(t);
                            owners.insert(t, of_user(o, 1000 + (o % 2) as u32));
                            waiting.push(t);
                        }
                    }
                    Step::Write(o, start, n) => {
                        if let Some(t) = l.try_write(now, of_user(o, 1000 + (o % 2) as u32), &(start..start + n)) {
                            owners.insert(t, of_user(o, 1000 + (o % 2) as u32));
                            held.push(t);
                        }
                    }
                    Step::Release(i) if !held.is_empty() => {
                        let t = held.swap_remove(i % held.len());
                        let _ = l.release(owners[&t], t);
                    }
                    Step::Withdraw(i) if !waiting.is_empty() => {
                        let t = waiting.swap_remove(i % waiting.len());
                        prop_assert!(l.withdraw(t));
                    }
                    Step::Disconnect(o) => {
                        l.disconnect(of_user(o, 1000 + (o % 2) as u32));
                        held.retain(|t| owners[t] != of_user(o, 1000 + (o % 2) as u32));
                        waiting.retain(|t| owners[t] != of_user(o, 1000 + (o % 2) as u32));
                    }
                    Step::Time(s) => now += Duration::from_secs(s),
                    _ => {}
                }
                l.advance(now, |t| {
                    waiting.retain(|w| *w != t);
                    held.push(t);
                });
                for (i, a) in l.held.iter().enumerate() {
                    for b in &l.held[i + 1..] {
                        prop_assert!(!a.entry.conflicts(&b.entry), "{a:?} {b:?}");
                    }
                }
            }
            let mut rounds = 0;
            while !held.is_empty() {
                for t in std::mem::take(&mut held) {
                    let _ = l.release(owners[&t], t);
                }
                l.advance(now, |t| {
                    waiting.retain(|w| *w != t);
                    held.push(t);
                });
                rounds += 1;
                prop_assert!(rounds < 100);
            }
            prop_assert!(waiting.is_empty());
            prop_assert!(l.quiet());
        }
    }
}
