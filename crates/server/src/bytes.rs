//! Quotas on bytes at one data server: counts of users' bytes, and leases (docs/decisions/0030).
//!
//! *Problem*: a quota must not cost a request to the metadata server for each write. *Idea*: the metadata server leases
//! this server a number of bytes for each such user. An object counts with its length, or with what is preallocated for
//! it if that is more. Before a write its object counts as if the write were done; afterwards with its true length. So
//! a strided write costs as much as the object grows, and overwriting or preallocating again costs nothing.
//!
//! A plain state machine. It has no objects of other users, except those that changed owners since the last count.
use penstock_layout::FileId;
use penstock_wire::message::{CountedBytes, Followed, Lease, Leases, MAX_OWNERS, Usage};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A user with a quota on bytes.
#[derive(Debug, Clone, Copy, Default)]
struct User {
    used: u64,
    lease: u64,
    want: u64,
    /// As last reported by the metadata server.
    total: u64,
    limit: u64,
    full: bool,
    /// Whether all objects of the user are counted.
    counted: bool,
    /// Whether the limit was set while this server ran: it is enforced once everything is counted. Otherwise nothing
    /// grows until then.
    fresh: bool,
}

/// The count of an object.
#[derive(Debug, Clone, Copy)]
struct Entry {
    uid: u32,
    bytes: u64,
    /// Its length when last checked.
    len: u64,
    /// Preallocated, from its start.
    allocated: u64,
    /// Whether it has lost its name and is still open.
    removed: bool,
    /// Requests in progress that extend it.
    growing: u32,
}

/// A request to extend an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) file: FileId,
    /// Its owner according to the capability, if that says so.
    pub(crate) owner: Option<u32>,
    /// Its new length.
    pub(crate) end: u64,
    /// Its present length.
    pub(crate) len: u64,
    /// Root's requests are counted and never refused.
    pub(crate) root: bool,
}

/// Whether an object may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its owner has no limit.
    Free,
    /// It counts with its new length until [`Bytes::settle`].
    Counted,
    /// Not yet: the metadata server must be asked.
    Wait,
    /// The owner's usage and limit.
    Full { uid: u32, total: u64, limit: u64 },
    /// The owner is unknown.
    WhoseIsIt,
}

/// The counts and leases.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    users: BTreeMap<u32, User>,
    objects: HashMap<FileId, Entry>,
    /// Owners reported by the metadata server, of files whose objects are not counted. At most [`MAX_OWNERS`].
    owners: HashMap<FileId, u32>,
    followed: Followed,
    /// Whether unknown users have a limit too.
    everybody: bool,
}

impl Bytes {
    /// Whether any user has a limit.
    pub(crate) fn any(&self) -> bool {
        self.everybody || !self.users.is_empty()
    }

    pub(crate) fn is_limited(&self, uid: u32) -> bool {
        self.users.contains_key(&uid) || self.everybody && uid != 0
    }

    /// The owner of an object, if it is counted or was reported.
    pub(crate) fn owner(&self, file: FileId) -> Option<u32> {
        let counted = self.objects.get(&file).map(|entry| entry.uid);
        counted.or_else(|| self.owners.get(&file).copied())
    }

    /// Whether a user with a limit owns this object.
    pub(crate) fn counts_object(&self, file: FileId) -> bool {
        self.objects.contains_key(&file)
    }

    /// Records the owner of a file, reported by the metadata server. Its object is not here, or does not count. False:
    /// there are too many of them, and it is not stored.
    pub(crate) fn owned(&mut self, file: FileId, uid: u32) -> bool {
        let room = self.owners.len() < MAX_OWNERS || self.owners.contains_key(&file);
        if room {
            self.owners.insert(file, uid);
        }
        room
    }

    /// Owners may have changed since they were reported.
    pub(crate) fn doubt(&mut self) {
        self.owners.clear();
    }

    /// Judges a request to extend an object. `answered`: the metadata server was asked after this request was first
    /// judged.
    pub(crate) fn grow(&mut self, growth: &Growth, answered: bool) -> Verdict {
        let Some(uid) = self.owner(growth.file).or(growth.owner) else {
            return Verdict::WhoseIsIt;
        };
        if !self.users.contains_key(&uid) {
            // A user's first file: the metadata server has set the user's limit before it was opened.
            return if self.is_limited(uid) && !growth.root && !answered {
                Verdict::Wait
            } else {
                Verdict::Free
            };
        }
        self.found(growth.file, uid, growth.len);
        let (Some(user), Some(entry)) =
            (self.users.get_mut(&uid), self.objects.get_mut(&growth.file))
        else {
            return Verdict::Free;
        };
        let more = growth.end.saturating_sub(entry.bytes);
        let after = user.used.saturating_add(more);
        let holds = user.counted || !user.fresh;
        if more == 0 || growth.root || !holds || (user.counted && after <= user.lease) {
            entry.bytes += more;
            entry.growing += 1;
            user.used = after;
            return Verdict::Counted;
        }
        if user.counted && user.full && answered {
            return Verdict::Full {
                uid,
                total: user.total.max(user.used),
                limit: user.limit,
            };
        }
        user.want = user.want.max(after);
        Verdict::Wait
    }

    /// An extension has ended with this length.
    pub(crate) fn settle(&mut self, file: FileId, len: u64) {
        self.ended(file);
        self.now(file, len);
    }

    /// A growth is over.
    pub(crate) fn ended(&mut self, file: FileId) {
        if let Some(entry) = self.objects.get_mut(&file) {
            entry.growing = entry.growing.saturating_sub(1);
        }
    }

    /// The first bytes of an object are preallocated.
    pub(crate) fn allocated(&mut self, file: FileId, end: u64) {
        if let Some(entry) = self.objects.get_mut(&file) {
            entry.allocated = entry.allocated.max(end);
        }
    }

    /// An object was truncated to this length. Returns whether its owner may retry what was refused.
    pub(crate) fn cut(&mut self, file: FileId, len: u64) -> bool {
        let Some(entry) = self.objects.get_mut(&file) else {
            return false;
        };
        entry.allocated = entry.allocated.min(len);
        let uid = entry.uid;
        self.now(file, len);
        self.users.get(&uid).is_some_and(|user| user.full)
    }

    /// Records the length of an object.
    fn now(&mut self, file: FileId, len: u64) {
        let Some(entry) = self.objects.get_mut(&file) else {
            return;
        };
        let bytes = match entry.growing {
            0 => len.max(entry.allocated),
            // Other requests have not reached their ends yet.
            _ => entry.bytes.max(len),
        };
        entry.len = len;
        let before = std::mem::replace(&mut entry.bytes, bytes);
        if let Some(user) = self.users.get_mut(&entry.uid) {
            user.used = user.used.saturating_sub(before).saturating_add(bytes);
        }
    }

    /// An object has lost its name, and counts until it is closed ([`Bytes::forget`]).
    pub(crate) fn removed(&mut self, file: FileId) {
        if let Some(entry) = self.objects.get_mut(&file) {
            entry.removed = true;
        }
    }

    /// An object was removed. Returns whether its owner may retry what was refused.
    pub(crate) fn forget(&mut self, file: FileId) -> bool {
        let Some(entry) = self.objects.remove(&file) else {
            return false;
        };
        self.give_back(&entry)
    }

    fn give_back(&mut self, entry: &Entry) -> bool {
        let Some(user) = self.users.get_mut(&entry.uid) else {
            return false;
        };
        user.used = user.used.saturating_sub(entry.bytes);
        user.full
    }

    /// Counts an existing object of this user.
    pub(crate) fn found(&mut self, file: FileId, uid: u32, len: u64) {
        if self.objects.contains_key(&file) || self.users.contains_key(&uid) {
            self.given(file, uid, len);
        }
    }

    /// This user owns an object of this length. Capabilities may be older than that.
    pub(crate) fn given(&mut self, file: FileId, uid: u32, len: u64) {
        let before = self.objects.get(&file).copied();
        if before.is_some_and(|entry| entry.uid == uid) {
            return;
        }
        if let Some(entry) = before {
            self.give_back(&entry);
        }
        let mut entry = before.unwrap_or(Entry {
            uid,
            bytes: 0,
            len,
            allocated: 0,
            removed: false,
            growing: 0,
        });
        entry.uid = uid;
        entry.len = len;
        entry.bytes = match entry.growing {
            0 => len.max(entry.allocated),
            _ => entry.bytes.max(len),
        };
        if let Some(user) = self.users.get_mut(&uid) {
            user.used = user.used.saturating_add(entry.bytes);
        }
        self.owners.remove(&file);
        self.objects.insert(file, entry);
    }

    // ---- reports and answers ----

    /// The figures of a report.
    pub(crate) fn report(&self) -> (Followed, Vec<Usage>) {
        let users = self.users.iter().map(|(uid, user)| Usage {
            uid: *uid,
            used: user.used,
            lease: user.lease,
            want: user.want,
            counted: user.counted,
        });
        (self.followed, users.collect())
    }

    /// Handles the answer, except changes of owners, up to which everything is followed now. `first`: nothing was known
    /// before. Returns whether users got limits.
    pub(crate) fn told(&mut self, leases: &Leases, first: bool) -> bool {
        self.followed = leases.followed;
        // While there is a default, a new user has had the limit since the first file.
        let from_the_first_file = std::mem::replace(&mut self.everybody, leases.everybody);
        let mut new = false;
        let before: BTreeSet<u32> = self.users.keys().copied().collect();
        let mut users = BTreeMap::new();
        for lease in &leases.users {
            let known = self.users.get(&lease.uid).copied();
            new |= known.is_none();
            let user = known.unwrap_or(User {
                fresh: !first && !from_the_first_file,
                ..User::default()
            });
            users.insert(lease.uid, with(user, lease));
        }
        self.users = users;
        if self.users.is_empty() {
            self.objects.clear();
            return false;
        }
        // Objects are tracked only while their owner has a limit.
        let users = &self.users;
        let followed = |uid: &u32| before.contains(uid) == users.contains_key(uid);
        self.objects.retain(|_, entry| followed(&entry.uid));
        new
    }

    /// The counts, for a comparison with the objects. Takes time proportional to their number.
    pub(crate) fn counts(&self) -> Vec<CountedBytes> {
        let mut unlisted: BTreeMap<u32, u64> = BTreeMap::new();
        for entry in self.objects.values() {
            let listed = if entry.removed { 0 } else { entry.len };
            *unlisted.entry(entry.uid).or_default() += entry.bytes.saturating_sub(listed);
        }
        let users = self.users.iter().map(|(uid, user)| CountedBytes {
            uid: *uid,
            used: user.used,
            unlisted: unlisted.get(uid).copied().unwrap_or(0),
            counted: user.counted,
        });
        users.collect()
    }

    /// Resets the counts, as at a start of the server. Objects that are being written, or are removed and still open,
    /// stay: no listing would show them.
    pub(crate) fn begin_again(&mut self) {
        let stays = |entry: &Entry| entry.growing > 0 || entry.removed;
        self.objects.retain(|_, entry| stays(entry));
        for user in self.users.values_mut() {
            user.used = 0;
            user.counted = false;
            user.fresh = false;
        }
        for entry in self.objects.values() {
            if let Some(user) = self.users.get_mut(&entry.uid) {
                user.used = user.used.saturating_add(entry.bytes);
            }
        }
    }

    /// Users whose objects are not all counted.
    pub(crate) fn uncounted(&self) -> Vec<u32> {
        let users = self.users.iter().filter(|(_, user)| !user.counted);
        users.map(|(uid, _)| *uid).collect()
    }

    /// A count of all objects, which began with these users, is complete.
    pub(crate) fn counted(&mut self, users: &[u32]) {
        for uid in users {
            if let Some(user) = self.users.get_mut(uid) {
                user.counted = true;
            }
        }
    }
}

fn with(user: User, lease: &Lease) -> User {
    User {
        lease: lease.lease,
        total: lease.total,
        limit: lease.limit,
        full: lease.full,
        // Writes that still wait will say so again.
        want: 0,
        ..user
    }
}

#[cfg(test)]
#[path = "bytes_tests.rs"]
mod tests;
