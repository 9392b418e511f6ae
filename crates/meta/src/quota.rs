//! Files of each user, and quotas on them.
//!
//! A node counts for its owner from its creation until it is gone, also while it is open-unlinked. The counts are
//! stored by the commit that stores the nodes. Changes replayed from the journal are counted again from the nodes, so
//! the journal needs no counts.
//!
//! *Counting.* A store of an older release has no counts, and one that an older release has changed has wrong ones.
//! Then a [`Tally`] visits all nodes by id, a few at a time. A change of a node before its position changes the tally
//! too; a change of a later node does not. So at its end the tally is exact, whatever changed meanwhile. Until then no
//! quota is enforced. `penstock check` counts in the same way and compares.
//!
//! Quotas on bytes are in [`crate::bytes`].
//!
//! A plain state machine: times are milliseconds since the epoch.
use crate::bytes::{ByteAccount, Bytes};
use crate::error::{Result, error};
use penstock_layout::FileId;
use penstock_wire::message::{
    ByteLimits, ErrorKind, FileLimits, Leases, LimitsChange, MAX_GRACE_S, MAX_WRONG_COUNTS,
    UsageReport, UserFiles, WireError, WrongCount,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

/// Users with files or with limits of their own; files cannot be given to more users.
const MAX_ACCOUNTS: usize = 1 << 20;

/// The stored account of a user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Nodes owned by the user.
    pub files: u64,
    /// The user's own limits.
    pub limits: Option<FileLimits>,
    /// Since when the soft limit has been exceeded.
    pub over_since_ms: Option<u64>,
}

/// Stored data about all users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The default limits.
    pub default: FileLimits,
    /// When they were last set.
    pub default_set_ms: u64,
    /// Whether the counts are exact.
    pub counted: bool,
}

/// A count in progress.
#[derive(Debug)]
struct Tally {
    number: u64,
    /// All nodes up to this id are counted.
    passed: u64,
    files: HashMap<u32, u64>,
}

/// The result of a count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// The first wrong counts.
    pub wrong: Vec<WrongCount>,
    /// Whether there are more.
    pub more: bool,
}

/// Changes since the last commit began.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    /// `None`: remove the account.
    pub accounts: BTreeMap<u32, Option<Account>>,
    pub rules: Rules,
    /// Accounts of quotas on bytes.
    pub bytes: BTreeMap<u32, Option<ByteAccount>>,
}

#[derive(Debug, Default)]
pub struct Accounts {
    bytes: Bytes,
    users: BTreeMap<u32, Account>,
    rules: Rules,
    changed: BTreeSet<u32>,
    changed_rules: bool,
    tally: Option<Tally>,
    tallies: u64,
}

impl Accounts {
    /// From stored accounts. Counts that the newest commit did not write count as unknown.
    pub fn stored(users: BTreeMap<u32, Account>, rules: Rules, bytes: Bytes) -> Accounts {
        Accounts {
            bytes,
            users,
            rules,
            ..Accounts::default()
        }
    }

    // ---- changes by names ----

    /// Whether the user may own one more file.
    pub fn room(&self, uid: u32, now_ms: u64) -> Result<()> {
        if !self.rules.counted {
            return Ok(());
        }
        self.bytes.room(uid)?;
        let Some(user) = self.users.get(&uid) else {
            if self.users.len() >= MAX_ACCOUNTS {
                return Err(error(
                    ErrorKind::Busy,
                    format!(
                        "{MAX_ACCOUNTS} users have files, and user {uid} would be one more; remove the files of users who have left"
                    ),
                ));
            }
            return self.room_of(uid, &Account::default(), now_ms);
        };
        self.room_of(uid, user, now_ms)
    }

    fn room_of(&self, uid: u32, user: &Account, now_ms: u64) -> Result<()> {
        let limits = self.limits(uid, user);
        if limits.hard.is_some_and(|hard| user.files >= hard) {
            return Err(refusal(uid, user.files, "hard", limits.hard, ""));
        }
        if limits.soft.is_none_or(|soft| user.files < soft) {
            return Ok(());
        }
        let ends_ms = self
            .grace_ends_ms(uid, user)
            .unwrap_or_else(|| now_ms.saturating_add(limits.grace_s.saturating_mul(1000)));
        if now_ms < ends_ms {
            return Ok(());
        }
        let since = ", whose grace period is over";
        Err(refusal(uid, user.files, "soft", limits.soft, since))
    }

    /// A node belongs to the user from `now_ms` on.
    pub fn charge(&mut self, node: FileId, uid: u32, now_ms: u64) {
        if let Some(tally) = self.tally_past(node) {
            *tally.files.entry(uid).or_default() += 1;
        }
        if self.rules.counted {
            let user = self.users.entry(uid).or_default();
            user.files += 1;
            self.bytes.inherit(uid);
            self.settle(uid, Some(now_ms));
        }
    }

    /// A node no longer belongs to the user, or no longer exists.
    pub fn discharge(&mut self, node: FileId, uid: u32) {
        if let Some(tally) = self.tally_past(node)
            && let Some(files) = tally.files.get_mut(&uid)
        {
            *files = files.saturating_sub(1);
        }
        if self.rules.counted
            && let Some(user) = self.users.get_mut(&uid)
        {
            user.files = user.files.saturating_sub(1);
            self.settle(uid, None);
        }
    }

    fn tally_past(&mut self, node: FileId) -> Option<&mut Tally> {
        self.tally.as_mut().filter(|tally| node.0 <= tally.passed)
    }

    /// Records since when the user has exceeded the soft limit, and marks the account as changed. Without a time the
    /// number of files has not increased.
    fn settle(&mut self, uid: u32, now_ms: Option<u64>) {
        let Some(user) = self.users.get(&uid).copied() else {
            return;
        };
        let over = self
            .limits(uid, &user)
            .soft
            .is_some_and(|soft| user.files > soft);
        let since = match (over, user.over_since_ms) {
            (true, None) => now_ms,
            (true, since) => since,
            (false, _) => None,
        };
        let user = Account {
            over_since_ms: since,
            ..user
        };
        if user == Account::default() {
            self.bytes.has_none(uid);
            self.users.remove(&uid)
        } else {
            self.users.insert(uid, user)
        };
        self.changed.insert(uid);
    }

    fn limits(&self, uid: u32, user: &Account) -> FileLimits {
        match uid {
            0 => FileLimits::default(),
            _ => user.limits.unwrap_or(self.rules.default),
        }
    }

    /// When an exceeded soft limit becomes a hard one.
    fn grace_ends_ms(&self, uid: u32, user: &Account) -> Option<u64> {
        let limits = self.limits(uid, user);
        limits.soft.filter(|soft| user.files > *soft)?;
        let begun = match user.limits {
            Some(_) => user.over_since_ms.unwrap_or(0),
            None => user
                .over_since_ms
                .unwrap_or(0)
                .max(self.rules.default_set_ms),
        };
        Some(begun.saturating_add(limits.grace_s.saturating_mul(1000)))
    }

    // ---- queries ----

    /// Usage and limits of a user.
    pub fn user(&self, uid: u32) -> UserFiles {
        let user = self.users.get(&uid).copied().unwrap_or_default();
        UserFiles {
            uid,
            files: user.files,
            limits: self.limits(uid, &user),
            own: user.limits.is_some(),
            grace_ends_ms: self.grace_ends_ms(uid, &user),
            bytes: self.bytes.user(uid, self.grace_ms(uid)),
        }
    }

    /// At most `limit` users after `after`; also returns whether there are more.
    pub fn page(&self, after: Option<u32>, limit: usize) -> (Vec<UserFiles>, bool) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let with_files = self.users.range((start, Bound::Unbounded));
        let with_files = with_files.take(limit + 1).map(|(uid, _)| *uid);
        let with_limits = self.bytes.users();
        let with_limits = with_limits.filter(|uid| after.is_none_or(|after| *uid > after));
        let uids: BTreeSet<u32> = with_files.chain(with_limits).collect();
        let page = uids.iter().take(limit).map(|uid| self.user(*uid));
        (page.collect(), uids.len() > limit)
    }

    /// Quotas on bytes.
    pub fn bytes_mut(&mut self) -> &mut Bytes {
        &mut self.bytes
    }

    /// Handles a data server's report on users' bytes.
    pub fn report(&mut self, report: &UsageReport, now_ms: u64) -> Result<Leases> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let leases = bytes.report(report, |uid| self.grace_ms(uid), now_ms);
        self.bytes = bytes;
        leases
    }

    fn grace_ms(&self, uid: u32) -> u64 {
        let user = self.users.get(&uid).copied().unwrap_or_default();
        self.limits(uid, &user).grace_s.saturating_mul(1000)
    }

    /// Users above their soft limits on bytes, users at their hard ones, and users whose bytes are not counted yet.
    pub fn at_byte_limits(&self) -> (u64, u64, u64) {
        let users = self.bytes.users().filter_map(|uid| self.bytes.user(uid, 0));
        users.fold((0, 0, 0), |(soft, hard, uncounted), user| {
            (
                soft + u64::from(user.is_over_soft()),
                hard + u64::from(user.is_at_hard()),
                uncounted + u64::from(!user.counted),
            )
        })
    }

    /// Users above their soft limits, and users at their hard ones.
    pub fn at_limits(&self) -> (u64, u64) {
        let users = self.users.iter().filter(|(_, user)| user.files > 0);
        users.fold((0, 0), |(soft, hard), (uid, _)| {
            let user = self.user(*uid);
            (
                soft + u64::from(user.is_over_soft()),
                hard + u64::from(user.is_at_hard()),
            )
        })
    }

    pub fn default_limits(&self) -> (FileLimits, ByteLimits) {
        (self.rules.default, self.bytes.default_limits())
    }

    /// Whether the counts are exact.
    pub fn are_counted(&self) -> bool {
        self.rules.counted
    }

    /// Changes limits of a user, or the default limits.
    pub fn set(&mut self, user: Option<u32>, change: &LimitsChange, now_ms: u64) -> Result<()> {
        let before = match user {
            None => self.rules.default,
            Some(0) => {
                return Err(error(
                    ErrorKind::InvalidArgument,
                    "root has no limits; name another user",
                ));
            }
            Some(uid) => self.user(uid).limits,
        };
        let of_files = LimitsChange {
            bytes_soft: None,
            bytes_hard: None,
            ..*change
        };
        let limits = changed(before, &of_files)?;
        match user {
            None => {
                let with_files = self.users.iter().filter(|(_, user)| user.files > 0);
                let with_files = with_files.map(|(uid, _)| *uid);
                self.bytes.set_default(change, with_files)?;
            }
            Some(uid) => self.bytes.set(uid, change)?,
        }
        if of_files == LimitsChange::default() {
            return Ok(());
        }
        match user {
            None => {
                self.rules.default = limits;
                self.rules.default_set_ms = now_ms;
                self.changed_rules = true;
            }
            Some(uid) => {
                if !self.users.contains_key(&uid) && self.users.len() >= MAX_ACCOUNTS {
                    return Err(error(
                        ErrorKind::Busy,
                        format!("{MAX_ACCOUNTS} users have files or limits; remove some limits"),
                    ));
                }
                let user = self.users.entry(uid).or_default();
                if user.limits.replace(limits).is_none() {
                    // A grace period cannot have begun under another limit.
                    user.over_since_ms = None;
                }
                self.settle(uid, Some(now_ms));
            }
        }
        Ok(())
    }

    /// Removes a user's own limits; `None`: removes the default limits.
    pub fn remove(&mut self, user: Option<u32>, now_ms: u64) {
        match user {
            None => {
                self.rules.default = FileLimits::default();
                self.rules.default_set_ms = now_ms;
                self.changed_rules = true;
                self.bytes.remove_default();
            }
            Some(uid) => {
                self.bytes.remove(uid);
                if let Some(user) = self.users.get_mut(&uid) {
                    if user.files > 0 {
                        self.bytes.inherit(uid);
                    }
                    user.limits = None;
                    self.settle(uid, Some(now_ms));
                }
            }
        }
    }

    // ---- storage ----

    /// Users whose account has changed, and the shared data, since the last [`Accounts::take_changed`].
    pub fn changes(&self) -> usize {
        self.changed.len() + self.bytes.changes() + usize::from(self.changed_rules)
    }

    /// The changes to store with the nodes of the same commit.
    pub fn take_changed(&mut self) -> Changed {
        self.changed_rules = false;
        let changed = std::mem::take(&mut self.changed);
        let accounts = changed.into_iter();
        Changed {
            accounts: accounts
                .map(|uid| (uid, self.users.get(&uid).copied()))
                .collect(),
            rules: self.rules,
            bytes: self.bytes.take_changed(),
        }
    }

    // ---- counting ----

    /// Begins a count, replacing one in progress. Returns its number.
    pub fn begin_count(&mut self) -> u64 {
        self.tallies += 1;
        self.tally = Some(Tally {
            number: self.tallies,
            passed: 0,
            files: HashMap::new(),
        });
        self.tallies
    }

    /// The position of the count with that number.
    pub fn count_passed(&self, number: u64) -> Option<FileId> {
        let tally = self.tally.as_ref().filter(|tally| tally.number == number)?;
        Some(FileId(tally.passed))
    }

    /// Counts the next nodes, given with their owners in the order of ids.
    pub fn count(&mut self, owners: impl Iterator<Item = (FileId, u32)>) {
        let Some(tally) = &mut self.tally else { return };
        for (id, uid) in owners {
            *tally.files.entry(uid).or_default() += 1;
            tally.passed = id.0;
        }
    }

    /// Ends a count after the last node. Unknown counts are stored; wrong ones are corrected if `repair`.
    pub fn end_count(&mut self, repair: bool, now_ms: u64) -> Counted {
        let Some(mut tally) = self.tally.take() else {
            return Counted::default();
        };
        tally.files.retain(|_, files| *files > 0);
        let mut found = Counted::default();
        let known = self.rules.counted;
        let users: BTreeSet<u32> = self
            .users
            .keys()
            .chain(tally.files.keys())
            .copied()
            .collect();
        for uid in users {
            let noted = self.users.get(&uid).map_or(0, |user| user.files);
            let counted = tally.files.get(&uid).copied().unwrap_or(0);
            if noted == counted {
                continue;
            }
            if known && found.wrong.len() == MAX_WRONG_COUNTS {
                found.more = true;
            } else if known {
                found.wrong.push(WrongCount {
                    uid,
                    noted,
                    counted,
                });
            }
            if repair || !known {
                self.users.entry(uid).or_default().files = counted;
                if counted > 0 {
                    self.bytes.inherit(uid);
                }
                self.settle(uid, Some(now_ms));
            }
        }
        if !known {
            self.rules.counted = true;
            self.changed_rules = true;
        }
        found
    }

    /// Abandons a count that cannot continue.
    pub fn give_up_count(&mut self) {
        self.tally = None;
    }
}

fn changed(before: FileLimits, change: &LimitsChange) -> Result<FileLimits> {
    let new = FileLimits {
        soft: change.soft.map_or(before.soft, |bound| bound.limit()),
        hard: change.hard.map_or(before.hard, |bound| bound.limit()),
        grace_s: change.grace_s.unwrap_or(before.grace_s),
    };
    if let (Some(soft), Some(hard)) = (new.soft, new.hard)
        && soft > hard
    {
        return Err(error(
            ErrorKind::InvalidArgument,
            format!("a soft limit of {soft} files is above the hard one of {hard}; set both"),
        ));
    }
    if new.grace_s > MAX_GRACE_S {
        return Err(error(
            ErrorKind::InvalidArgument,
            format!(
                "a grace period of {} s; at most {MAX_GRACE_S} s are allowed",
                new.grace_s
            ),
        ));
    }
    Ok(new)
}

fn refusal(uid: u32, files: u64, which: &str, limit: Option<u64>, since: &str) -> WireError {
    error(
        ErrorKind::Quota,
        format!(
            "user {uid} has {files} files, directories and links, and the {which} limit is {}{since}; remove some, or ask an administrator for more (`penstock quota` shows limits)",
            limit.unwrap_or(0)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_wire::message::Bound as Limit;

    const DAY: u64 = 86_400_000;

    fn counted() -> Accounts {
        let rules = Rules {
            counted: true,
            ..Rules::default()
        };
        Accounts::stored(BTreeMap::new(), rules, Bytes::default())
    }

    fn limits(soft: u64, hard: u64) -> LimitsChange {
        LimitsChange {
            soft: Some(Limit::At(soft)),
            hard: Some(Limit::At(hard)),
            ..LimitsChange::default()
        }
    }

    /// Makes at most 100 files until one is refused; returns their number.
    fn fill(accounts: &mut Accounts, uid: u32, now_ms: u64) -> u64 {
        let before = accounts.user(uid).files;
        for _ in 0..100 {
            if accounts.room(uid, now_ms).is_err() {
                break;
            }
            accounts.charge(FileId(9), uid, now_ms);
        }
        accounts.user(uid).files - before
    }

    #[test]
    fn a_hard_limit_is_never_exceeded_and_says_so() {
        let mut a = counted();
        a.set(Some(7), &limits(5, 10), 0).unwrap();
        assert_eq!(fill(&mut a, 7, 1), 10);
        assert_eq!(fill(&mut a, 8, 1), 100, "others are not limited");
        let e = a.room(7, 1).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Quota);
        for word in ["user 7 ", " 10 files", "limit is 10", "`penstock quota`"] {
            assert!(e.message.contains(word), "{e}");
        }
        a.discharge(FileId(9), 7);
        assert_eq!(fill(&mut a, 7, 2), 1);
        assert_eq!(a.at_limits(), (1, 1));
    }

    #[test]
    fn a_soft_limit_holds_when_its_grace_is_over() {
        let mut a = counted();
        a.set(Some(7), &limits(5, 10), 0).unwrap();
        for _ in 0..6 {
            a.room(7, DAY).unwrap();
            a.charge(FileId(9), 7, DAY);
        }
        assert_eq!(a.user(7).grace_ends_ms, Some(8 * DAY));
        assert!(a.room(7, 8 * DAY - 1).is_ok());
        assert_eq!(a.room(7, 8 * DAY).unwrap_err().kind, ErrorKind::Quota);
        // Down to the limit: the grace period begins again.
        a.discharge(FileId(9), 7);
        assert_eq!(a.user(7).grace_ends_ms, None);
        a.room(7, 8 * DAY).unwrap();
        a.charge(FileId(9), 7, 8 * DAY);
        assert_eq!(a.user(7).grace_ends_ms, Some(15 * DAY));
        let none = LimitsChange {
            grace_s: Some(0),
            ..LimitsChange::default()
        };
        a.set(Some(7), &none, 9 * DAY).unwrap();
        a.discharge(FileId(9), 7);
        assert!(a.room(7, 9 * DAY).is_err(), "no grace at all");
        a.discharge(FileId(9), 7);
        assert!(a.room(7, 9 * DAY).is_ok());
    }

    #[test]
    fn the_default_holds_who_has_no_limits_and_never_root() {
        let mut a = counted();
        assert_eq!(fill(&mut a, 6, 1), 100);
        a.set(None, &limits(2, 3), DAY).unwrap();
        a.set(Some(7), &limits(20, 30), DAY).unwrap();
        assert_eq!(fill(&mut a, 0, DAY), 100);
        assert_eq!(fill(&mut a, 7, DAY), 30);
        assert_eq!(fill(&mut a, 8, DAY), 3);
        assert_eq!(fill(&mut a, 6, DAY), 0);
        // The grace period of a user above the limit begins with the limit.
        assert_eq!(a.user(6).grace_ends_ms, Some(8 * DAY));
        assert!(a.set(Some(0), &limits(1, 2), DAY).is_err());
        a.remove(Some(7), 2 * DAY);
        assert_eq!(a.user(7).limits.hard, Some(3));
        assert_eq!(a.user(7).grace_ends_ms, Some(8 * DAY));
        a.remove(None, DAY);
        assert_eq!(fill(&mut a, 7, DAY), 100);
        assert_eq!(a.at_limits(), (0, 0));
    }

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        let mut a = counted();
        assert!(a.set(Some(7), &limits(5, 4), 0).is_err());
        a.set(None, &limits(5, 5), 0).unwrap();
        let hard = LimitsChange {
            hard: Some(Limit::At(4)),
            ..LimitsChange::default()
        };
        let e = a.set(Some(7), &hard, 0).unwrap_err();
        assert_eq!(e.kind, ErrorKind::InvalidArgument, "the soft one stays");
        let grace = LimitsChange {
            grace_s: Some(MAX_GRACE_S + 1),
            ..LimitsChange::default()
        };
        assert!(a.set(None, &grace, 0).is_err());
        assert!(!a.user(7).own);
    }

    #[test]
    fn changes_beside_a_count_are_counted_once() {
        let mut a = Accounts::default();
        a.set(Some(7), &limits(0, 0), 0).unwrap();
        a.charge(FileId(1), 7, 0);
        assert!(a.room(7, 0).is_ok(), "not counted yet");
        let number = a.begin_count();
        a.count([(FileId(1), 7), (FileId(3), 8), (FileId(4), 8)].into_iter());
        assert_eq!(a.count_passed(number), Some(FileId(4)));
        assert_eq!(a.count_passed(number + 1), None);
        // Before the position: 3 is removed, 4 changes owners. After the position: 5 is made.
        a.discharge(FileId(3), 8);
        a.discharge(FileId(4), 8);
        a.charge(FileId(4), 9, 0);
        a.charge(FileId(5), 9, 0);
        a.count([(FileId(5), 9)].into_iter());
        assert_eq!(a.end_count(false, 5), Counted::default());
        let files = |a: &Accounts| [7, 8, 9].map(|uid| a.user(uid).files);
        assert_eq!(files(&a), [1, 0, 2]);
        assert!(a.room(7, 6).is_err());
        assert!(a.are_counted());
        // A wrong count is found, and corrected on request.
        a.users.get_mut(&9).unwrap().files = 5;
        for repair in [false, true] {
            a.begin_count();
            a.count([(FileId(1), 7), (FileId(4), 9), (FileId(5), 9)].into_iter());
            let wrong = WrongCount {
                uid: 9,
                noted: 5,
                counted: 2,
            };
            assert_eq!(a.end_count(repair, 7).wrong, [wrong]);
        }
        assert_eq!(files(&a), [1, 0, 2]);
    }

    #[test]
    fn what_changed_is_stored_once() {
        let mut a = counted();
        a.charge(FileId(9), 7, 0);
        a.charge(FileId(9), 8, 0);
        a.discharge(FileId(9), 8);
        a.set(None, &limits(1, 2), 3).unwrap();
        assert_eq!(a.changes(), 3);
        let changed = a.take_changed();
        let user = Account {
            files: 1,
            ..Account::default()
        };
        let expected = BTreeMap::from([(7, Some(user)), (8, None)]);
        assert_eq!(changed.accounts, expected);
        assert_eq!(changed.rules.default.hard, Some(2));
        assert_eq!(a.changes(), 0);
    }
}
