//! Quotas on bytes: usage, limits, and the leases of the data servers (docs/decisions/0030).
//!
//! *Problem*: bytes are written at many servers, and a quota must not cost a metadata request for each write. *Idea*:
//! each data server counts the bytes of users with quotas, and lets them grow up to its lease. The sum of all leases
//! never exceeds what the limit allows. A lease is absolute (all bytes of the user on that server), so an answer that
//! is lost or repeated changes nothing. A server's lease counts as used until the server itself reports less, in a
//! report newer than all before. A late copy would otherwise free what was leased since.
//!
//! After a start the leases in use are unknown: none grows until each data server has reported its own.
//!
//! A plain state machine: times are milliseconds since the epoch.
use crate::error::{Result, error};
use penstock_layout::{FileId, ServerId};
use penstock_rpc::control::{Heard, Hearing};
use penstock_wire::message::{
    Bound, ByteLimits, ErrorKind, Followed, Lease, Leases, LimitsChange, MAX_BYTE_USERS, MAX_GIVEN,
    Usage, UsageReport, UserBytes, WireError,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A lease exceeds what is wanted by at most this: so much may be unused at one server while others want it.
const SPARE: u64 = 256 << 20;

/// A write that has waited this long is refused even by reports older than it, milliseconds: a data server is not
/// reporting.
const STALE_MS: u64 = 5000;

const NONE: ByteLimits = ByteLimits {
    soft: None,
    hard: None,
};

/// The account number that holds the default limits. No user has it: for chown(2) it means "no change".
const EVERYBODY: u32 = u32::MAX;

/// The stored account of a user with a quota on bytes. Without limits of its own the default limits apply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteAccount {
    pub limits: ByteLimits,
    /// Since when the soft limit has been exceeded.
    pub over_since_ms: Option<u64>,
}

/// A data server's report on a user.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    used: u64,
    /// The largest lease that the server may have.
    lease: u64,
    /// A pending write needs more than the lease.
    want: u64,
    counted: bool,
    /// Sequence numbers of the newest report and of the one before.
    reports: [u64; 2],
    /// Since when something is wanted: the number of that report, and its time.
    since: Option<(u64, u64)>,
}

impl Told {
    fn claim(&self) -> u64 {
        self.lease.max(self.used)
    }

    /// Whether its figures are newer than a report of another server. Its last report may have been in flight then, but
    /// the one before was not.
    fn is_newer(&self, than: u64) -> bool {
        self.used == 0 || self.reports[1] > than
    }
}

#[derive(Debug, Default)]
pub struct Bytes {
    /// Users with limits of their own; while there are default limits, also users with files.
    users: BTreeMap<u32, ByteAccount>,
    /// The default limits.
    default: ByteLimits,
    changed: BTreeSet<u32>,
    told: BTreeMap<u32, BTreeMap<u32, Told>>,
    servers: BTreeSet<u32>,
    /// The newest report of each data server.
    heard: BTreeMap<u32, Heard>,
    reports: u64,
    /// Files that changed owners, and how many older changes are forgotten.
    given: VecDeque<(FileId, u32)>,
    forgotten: u64,
    run: u64,
}

impl Bytes {
    /// From the stored accounts.
    pub fn stored(mut users: BTreeMap<u32, ByteAccount>) -> Bytes {
        let default = users.remove(&EVERYBODY).unwrap_or_default().limits;
        Bytes {
            users,
            default,
            ..Bytes::default()
        }
    }

    /// Begins an incarnation of the metadata server with a unique number and these data servers.
    pub fn begin(&mut self, run: u64, servers: impl Iterator<Item = ServerId>) {
        self.run = run;
        self.servers = servers.map(|server| server.0).collect();
    }

    // ---- limits ----

    /// Changes the limits of a user.
    pub fn set(&mut self, uid: u32, change: &LimitsChange) -> Result<()> {
        if change.bytes_soft.is_none() && change.bytes_hard.is_none() {
            return Ok(());
        }
        if uid == EVERYBODY {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!(
                    "{uid} is no user; `penstock quota set --default` is for all users without limits of their own"
                ),
            ));
        }
        let before = self.users.get(&uid).copied().unwrap_or_default();
        let mut limits = changed(self.limits(&before), change)?;
        if limits == NONE && self.default == NONE {
            self.remove(uid);
            return Ok(());
        }
        if limits == NONE {
            // Unlimited, but the user's own limit nevertheless.
            limits.hard = Some(u64::MAX);
        }
        if !self.users.contains_key(&uid) && self.users.len() >= MAX_BYTE_USERS {
            return Err(too_many("remove some of them"));
        }
        let account = ByteAccount { limits, ..before };
        self.users.insert(uid, account);
        self.changed.insert(uid);
        Ok(())
    }

    fn limits(&self, account: &ByteAccount) -> ByteLimits {
        match account.limits {
            NONE => self.default,
            own => own,
        }
    }

    // ---- default limits ----

    /// The default limits.
    pub fn default_limits(&self) -> ByteLimits {
        self.default
    }

    /// Whether there are default limits.
    pub fn limits_everybody(&self) -> bool {
        self.default != NONE
    }

    /// Changes the default limits; `of` are the users with files.
    pub fn set_default(
        &mut self,
        change: &LimitsChange,
        with_files: impl Iterator<Item = u32>,
    ) -> Result<()> {
        let limits = changed(self.default, change)?;
        if limits == self.default {
            return Ok(());
        }
        if limits == NONE {
            self.remove_default();
            return Ok(());
        }
        let is_new = |uid: &u32| *uid != 0 && !self.users.contains_key(uid);
        let new: Vec<u32> = with_files.filter(is_new).collect();
        if self.users.len() + new.len() > MAX_BYTE_USERS {
            return Err(too_many(&format!(
                "{} more have files, so there can be no limit for all",
                new.len()
            )));
        }
        self.default = limits;
        self.changed.insert(EVERYBODY);
        for uid in new {
            self.inherit(uid);
        }
        Ok(())
    }

    /// Removes the default limits.
    pub fn remove_default(&mut self) {
        if !self.limits_everybody() {
            return;
        }
        self.default = NONE;
        self.changed.insert(EVERYBODY);
        let inherited = self.users.iter().filter(|(_, of)| of.limits == NONE);
        let inherited: Vec<u32> = inherited.map(|(uid, _)| *uid).collect();
        for uid in inherited {
            self.remove(uid);
        }
    }

    /// Whether there is space for one more account.
    pub fn room(&self, uid: u32) -> Result<()> {
        let has_room = !self.limits_everybody()
            || uid == 0
            || self.users.len() < MAX_BYTE_USERS
            || self.users.contains_key(&uid);
        if has_room {
            Ok(())
        } else {
            Err(too_many(&format!(
                "user {uid} would be one more: an administrator has to remove the limits for all (`penstock quota set --default --bytes-soft none --bytes-hard none`)"
            )))
        }
    }

    /// A user has files: the default limits apply, unless the user has limits of its own.
    pub fn inherit(&mut self, uid: u32) {
        if self.limits_everybody()
            && uid != 0
            && self.users.len() < MAX_BYTE_USERS
            && !self.users.contains_key(&uid)
        {
            self.users.insert(uid, ByteAccount::default());
            self.changed.insert(uid);
        }
    }

    /// A user has no more files.
    pub fn has_none(&mut self, uid: u32) {
        if self.users.get(&uid).is_some_and(|of| of.limits == NONE) {
            self.remove(uid);
        }
    }

    /// Removes a user's quota on bytes.
    pub fn remove(&mut self, uid: u32) {
        if self.users.remove(&uid).is_some() {
            self.changed.insert(uid);
        }
        self.told.remove(&uid);
    }

    /// A file has changed its owner.
    pub fn given(&mut self, file: FileId, from: u32, to: u32) {
        if !self.users.contains_key(&from) && !self.users.contains_key(&to) {
            return;
        }
        if self.given.len() == MAX_GIVEN {
            self.given.pop_front();
            self.forgotten += 1;
        }
        self.given.push_back((file, to));
    }

    // ---- leases ----

    /// Handles a data server's report; `grace_ms` gives each user's grace period.
    pub fn report(
        &mut self,
        report: &UsageReport,
        grace_ms: impl Fn(u32) -> u64,
        now_ms: u64,
    ) -> Result<Leases> {
        let heard = self.heard.entry(report.server).or_default();
        let hearing = heard.hear(report.incarnation, report.sequence);
        if hearing == Hearing::Late {
            return Err(error(
                ErrorKind::Busy,
                format!(
                    "data server {} has reported users' bytes since",
                    report.server
                ),
            ));
        }
        let again = hearing == Hearing::Again;
        let uids: Vec<u32> = self.users.keys().copied().collect();
        let users = uids.into_iter().map(|uid| {
            let usage = report.users.iter().find(|usage| usage.uid == uid);
            let unknown = Usage {
                uid,
                used: 0,
                lease: 0,
                want: 0,
                counted: false,
            };
            self.lease(
                (report.server, again),
                usage.unwrap_or(&unknown),
                grace_ms(uid),
                now_ms,
            )
        });
        let users = users.collect();
        let known = report.followed;
        let newest = self.forgotten + self.given.len() as u64;
        let first = known.given.checked_sub(self.forgotten);
        let given = match first {
            Some(first) if known.run == self.run && known.given <= newest => {
                let first = usize::try_from(first).unwrap_or(usize::MAX);
                Some(self.given.iter().skip(first).copied().collect())
            }
            _ => None,
        };
        Ok(Leases {
            followed: Followed {
                run: self.run,
                given: newest,
            },
            given,
            users,
            everybody: self.limits_everybody(),
        })
    }

    /// The new lease of a server; `again`: the report is repeated, with the figures of its first copy.
    fn lease(
        &mut self,
        (server, again): (u32, bool),
        usage: &Usage,
        grace_ms: u64,
        now_ms: u64,
    ) -> Lease {
        self.reports += 1;
        let servers = self.told.entry(usage.uid).or_default();
        let before = servers.get(&server).copied().unwrap_or_default();
        let since = before.since.unwrap_or((self.reports, now_ms));
        let told = Told {
            used: usage.used,
            // A server that counts again after a start may have its last lease, and so may one that has not received
            // the answer yet.
            lease: if usage.counted && !again {
                usage.lease
            } else {
                usage.lease.max(before.claim())
            },
            want: usage.want,
            counted: usage.counted,
            reports: if again {
                before.reports
            } else {
                [self.reports, before.reports[0]]
            },
            since: (usage.want > 0).then_some(since),
        };
        servers.insert(server, told);
        let total = sum(servers.values().map(|told| told.used));
        let claimed = |(of, told): (&u32, &Told)| if *of == server { 0 } else { told.claim() };
        let others = sum(servers.iter().map(claimed));
        let wanted_elsewhere = servers
            .iter()
            .any(|(of, told)| *of != server && told.want > 0);
        // Truncations and removals before the write must be reported first, or it would be refused without need.
        let late = now_ms.saturating_sub(since.1) >= STALE_MS;
        let newer = |(of, told): (&u32, &Told)| *of == server || told.is_newer(since.0);
        let known = late || servers.iter().all(newer);
        let all = self.are_all_counted(usage.uid);
        let limit = self.settle(usage.uid, total, grace_ms, now_ms);
        let room = limit.saturating_sub(others);
        let full = usage.want > usage.used
            && total.saturating_add(usage.want - usage.used) > limit
            && all
            && known;
        let spare =
            (limit.saturating_sub(total) / (4 * self.servers.len().max(1) as u64)).min(SPARE);
        let lease = match (usage.counted, usage.want > 0) {
            (false, _) => told.lease,
            (true, true) if all && (full || room >= usage.want) => room
                .min(usage.want.saturating_add(spare))
                .max(usage.lease.min(room)),
            // Of two servers that want more, each releases what it does not use.
            (true, _) if wanted_elsewhere => usage.lease.min(usage.used),
            _ => usage.lease.min(room),
        };
        if let Some(told) = self
            .told
            .get_mut(&usage.uid)
            .and_then(|s| s.get_mut(&server))
        {
            told.lease = told.lease.max(lease);
            if lease >= told.want || full {
                // It has what it wants, or is told that it cannot have it.
                told.want = 0;
                told.since = None;
            }
        }
        Lease {
            uid: usage.uid,
            lease,
            total,
            limit,
            full,
        }
    }

    /// Records since when the soft limit is exceeded. Returns the limit in force.
    fn settle(&mut self, uid: u32, total: u64, grace_ms: u64, now_ms: u64) -> u64 {
        let Some(limits) = self.users.get(&uid).map(|user| self.limits(user)) else {
            return u64::MAX;
        };
        let hard = limits.hard.unwrap_or(u64::MAX);
        let (Some(soft), Some(user)) = (limits.soft, self.users.get_mut(&uid)) else {
            return hard;
        };
        let since = match (total > soft, user.over_since_ms) {
            (true, None) => Some(now_ms),
            (true, since) => since,
            (false, _) => None,
        };
        if since != user.over_since_ms {
            user.over_since_ms = since;
            self.changed.insert(uid);
        }
        match since {
            Some(since) if now_ms >= since.saturating_add(grace_ms) => soft,
            _ => hard,
        }
    }

    fn are_all_counted(&self, uid: u32) -> bool {
        let told = self.told.get(&uid);
        let counted = |server| {
            told.and_then(|told| told.get(server))
                .is_some_and(|told| told.counted)
        };
        self.servers.iter().all(counted)
    }

    // ---- queries ----

    /// Usage and limits of a user with a quota on bytes.
    pub fn user(&self, uid: u32, grace_ms: u64) -> Option<UserBytes> {
        let user = self.users.get(&uid)?;
        let told = self.told.get(&uid).into_iter().flat_map(BTreeMap::values);
        let used = sum(told.map(|told| told.used));
        let limits = self.limits(user);
        let over = limits.soft.is_some_and(|soft| used > soft);
        let since = user.over_since_ms.filter(|_| over);
        Some(UserBytes {
            used,
            limits,
            own: user.limits != NONE,
            counted: self.are_all_counted(uid),
            grace_ends_ms: since.map(|since| since.saturating_add(grace_ms)),
        })
    }

    /// Users with quotas on bytes.
    pub fn users(&self) -> impl Iterator<Item = u32> {
        self.users.keys().copied()
    }

    // ---- storage ----

    /// Users whose limits have changed since the last [`Bytes::take_changed`].
    pub fn changes(&self) -> usize {
        self.changed.len()
    }

    /// The accounts to store; `None`: remove the user's account.
    pub fn take_changed(&mut self) -> BTreeMap<u32, Option<ByteAccount>> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .map(|uid| match uid {
                EVERYBODY => {
                    let limits = self.default;
                    let account = ByteAccount {
                        limits,
                        ..ByteAccount::default()
                    };
                    (uid, (limits != NONE).then_some(account))
                }
                uid => (uid, self.users.get(&uid).copied()),
            })
            .collect()
    }
}

fn changed(before: ByteLimits, change: &LimitsChange) -> Result<ByteLimits> {
    let bound = |new: Option<Bound>, old| new.map_or(old, Bound::limit);
    let limits = ByteLimits {
        soft: bound(change.bytes_soft, before.soft),
        hard: bound(change.bytes_hard, before.hard),
    };
    if let (Some(soft), Some(hard)) = (limits.soft, limits.hard)
        && soft > hard
    {
        return Err(error(
            ErrorKind::InvalidArgument,
            format!("a soft limit of {soft} bytes is above the hard one of {hard}; set both"),
        ));
    }
    Ok(limits)
}

fn too_many(what: &str) -> WireError {
    error(
        ErrorKind::Busy,
        format!("{MAX_BYTE_USERS} users can have limits on bytes; {what}"),
    )
}

fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

#[cfg(test)]
#[path = "bytes_tests.rs"]
mod tests;
