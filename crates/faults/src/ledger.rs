//! The model of users with quotas on bytes: what they may have and may be refused.
//!
//! *Upper bound*: at every moment the objects of a user's files are within the quota. Files count that the user has
//! made, and that cannot have been given away or removed since. This is checked on the disks themselves.
//!
//! *No needless refusal*: a write is refused with `Quota` only if the user could exceed the quota. That is judged by
//! all that was ever requested, this write included. Servers may know less than has happened: truncated or removed
//! bytes count until servers have reported it.
use penstock_layout::{FileId, Layout, ServerIndex};
use std::collections::{BTreeMap, BTreeSet};

/// The users with quotas.
pub(crate) const USERS: [u32; 2] = [77_001, 77_002];

/// A file of one of them.
struct Tracked {
    layout: Layout,
    slot: usize,
    /// Who may have owned it, by index in [`USERS`].
    owners: [bool; USERS.len()],
    /// The owner, if no power loss can change it.
    sure: Option<usize>,
    /// The greatest length that it may have had.
    most: u64,
    /// Whether its name may have been removed.
    gone: bool,
}

impl Tracked {
    fn objects(&self, len: u64) -> u64 {
        let servers = 0..self.layout.servers.len();
        servers
            .map(|s| self.layout.object_len(len, ServerIndex(s as u32)))
            .sum()
    }
}

/// The model of all users with quotas.
pub(crate) struct Ledger {
    /// Quota of each user in bytes.
    pub limit: u64,
    files: BTreeMap<FileId, Tracked>,
    /// Names whose removal may still be carried out.
    going: BTreeSet<usize>,
}

impl Ledger {
    pub fn new(limit: u64) -> Ledger {
        Ledger {
            limit,
            files: BTreeMap::new(),
            going: BTreeSet::new(),
        }
    }

    /// A user has made or opened a file whose name only this user creates.
    pub fn opened(&mut self, file: FileId, layout: &Layout, slot: usize, user: usize) {
        let tracked = self.files.entry(file).or_insert_with(|| Tracked {
            layout: layout.clone(),
            slot,
            owners: [false; USERS.len()],
            sure: None,
            most: 0,
            gone: false,
        });
        tracked.owners[user] = true;
    }

    /// The file is durable: it survives every power loss.
    pub fn firm(&mut self, file: FileId, user: usize) {
        if let Some(tracked) = self.files.get_mut(&file) {
            let others = (0..USERS.len()).any(|u| u != user && tracked.owners[u]);
            let going = self.going.contains(&tracked.slot);
            tracked.sure = Some(user).filter(|_| !others && !going);
        }
    }

    /// A client asks for this length.
    pub fn asked(&mut self, file: FileId, len: u64) {
        if let Some(tracked) = self.files.get_mut(&file) {
            tracked.most = tracked.most.max(len);
        }
    }

    /// The file is about to be given to a user. False: the file is not known.
    pub fn given(&mut self, file: FileId, user: usize) -> bool {
        let tracked = self.files.get_mut(&file);
        tracked.is_some_and(|tracked| {
            tracked.sure = None;
            tracked.owners[user] = true;
            true
        })
    }

    /// A name is about to be removed.
    pub fn remove(&mut self, slot: usize) {
        self.going.insert(slot);
        for tracked in self.files.values_mut().filter(|t| t.slot == slot) {
            tracked.sure = None;
            tracked.gone = true;
        }
    }

    /// The name was removed, and no copy of the request is pending.
    pub fn removed(&mut self, slot: usize) {
        self.remove(slot);
        self.going.remove(&slot);
    }

    /// Whether a file may have lost its name. A data server that ends removes the bytes of such a file, even if clients
    /// have it open.
    pub fn may_be_gone(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|tracked| tracked.gone)
    }

    /// Whether growing a file may be refused.
    pub fn may_refuse(&self, file: FileId) -> bool {
        let Some(tracked) = self.files.get(&file) else {
            return false;
        };
        (0..USERS.len()).any(|user| tracked.owners[user] && self.potential(user) > self.limit)
    }

    fn potential(&self, user: usize) -> u64 {
        let own = self.files.values().filter(|file| file.owners[user]);
        own.map(|file| file.objects(file.most)).sum()
    }

    /// Fails if a user exceeds the quota. `size` gives the size of an object on a machine.
    pub fn within(&self, size: impl Fn(FileId, usize) -> u64) -> Result<(), String> {
        for (user, uid) in USERS.into_iter().enumerate() {
            let sure = self.files.iter().filter(|(_, f)| f.sure == Some(user));
            let objects = sure
                .flat_map(|(id, f)| f.layout.servers.iter().map(|s| (id.0, s.0 as usize + 1)))
                .map(|(id, machine)| (id, machine, size(FileId(id), machine)));
            let objects: Vec<_> = objects.filter(|(.., bytes)| *bytes > 0).collect();
            let has: u64 = objects.iter().map(|(.., bytes)| bytes).sum();
            if has > self.limit {
                return Err(format!(
                    "bytes: user {uid} has {has}, and the limit is {}; file, machine and bytes: {objects:?}",
                    self.limit
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_layout::ServerId;

    fn ledger(limit: u64) -> Ledger {
        let mut ledger = Ledger::new(limit);
        let layout = Layout::new(4096, vec![ServerId(0), ServerId(1)]).unwrap();
        ledger.opened(FileId(5), &layout, 0, 0);
        ledger.firm(FileId(5), 0);
        ledger
    }

    #[test]
    fn what_is_surely_the_users_is_within_the_limit() {
        let mut l = ledger(100);
        assert!(l.within(|_, _| 50).is_ok());
        assert!(l.within(|_, machine| 50 + machine as u64).is_err());
        assert!(l.given(FileId(5), 1));
        assert!(l.within(|_, _| 51).is_ok(), "root may exceed limits");
        let mut l = ledger(100);
        assert!(!l.may_be_gone(FileId(5)));
        l.remove(0);
        l.firm(FileId(5), 0);
        assert!(l.may_be_gone(FileId(5)));
        assert!(l.within(|_, _| 51).is_ok(), "it may yet go");
    }

    #[test]
    fn only_what_could_be_too_much_is_refused() {
        let mut l = ledger(100);
        l.asked(FileId(5), 100);
        assert!(!l.may_refuse(FileId(5)));
        l.asked(FileId(5), 101);
        l.asked(FileId(5), 7);
        assert!(l.may_refuse(FileId(5)), "it may still count");
    }
}
