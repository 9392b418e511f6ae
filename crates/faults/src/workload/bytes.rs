//! What clients do with files of users with quotas on bytes, as an administrator who may act for others.
use super::{Fault, Worker};
use crate::effects::Effect;
use crate::ledger::{Ledger, USERS};
use crate::world::{Nanos, SECOND, lock};
use penstock_base::Random;
use penstock_client::{Client, CreateOptions, Error, ErrorKind, File, Form};
use penstock_datatype::{Pattern, Source};
use penstock_layout::FileId;
use penstock_wire::Role;
use penstock_wire::message::{Bound, Change, LimitsChange, NodeRequest, User};
use std::collections::BTreeMap;
use std::time::Duration;

/// The directory of these files.
pub(crate) const DIRECTORY: &str = "/limited";
/// File names of each user.
const NAMES: usize = 3;
/// Without faults, quotas are exact after this time.
const COUNTED: Nanos = 60 * SECOND;

/// A client's state.
#[derive(Default)]
pub(super) struct Limited {
    admin: Option<(Client, FileId)>,
    /// Open files, by name.
    open: BTreeMap<usize, File>,
}

pub(crate) fn user(uid: u32) -> User {
    User {
        uid,
        gid: uid,
        groups: Vec::new(),
    }
}

/// Options of a file that everybody may write.
pub(crate) fn made() -> CreateOptions {
    CreateOptions {
        mode: 0o666,
        ..CreateOptions::default()
    }
}

/// Path of name `slot`, and the index of its user in [`USERS`].
fn name(slot: usize) -> (String, usize) {
    let user = slot / NAMES;
    (format!("{}-{}", USERS[user], slot % NAMES), user)
}

/// Waits until all bytes of a user are counted. Returns their number.
pub(crate) fn counted(client: &Client, uid: u32) -> Result<u64, Fault> {
    for _ in 0..COUNTED / SECOND {
        let found = client.quota_of(uid).map_err(|e| e.to_string())?;
        match found.users.first().and_then(|user| user.bytes) {
            Some(bytes) if bytes.counted => return Ok(bytes.used),
            _ => penstock_host::thread::sleep(Duration::from_nanos(SECOND)),
        }
    }
    Err(format!(
        "progress: the bytes of user {uid} are not counted after {} s",
        COUNTED / SECOND
    ))
}

impl Worker {
    /// Sets the quotas. No faults happen meanwhile.
    pub(super) fn prepare_limits(&self, limit: u64) -> Result<(), Fault> {
        let text = |e: Error| format!("while setting limits: {e}");
        let client = self.connect(Role::Admin).map_err(text)?;
        client.mkdir(DIRECTORY, 0o777).map_err(text)?;
        let change = LimitsChange {
            bytes_hard: Some(Bound::At(limit)),
            ..LimitsChange::default()
        };
        for uid in USERS {
            client.set_quota(Some(uid), change).map_err(text)?;
        }
        for uid in USERS {
            counted(&client, uid)?;
        }
        lock(&self.history).ledger = Some(Ledger::new(limit));
        Ok(())
    }

    fn ledger<T>(&self, f: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        lock(&self.history).ledger.as_mut().map(f)
    }

    /// Makes one change to a file of a user with a quota.
    pub(super) fn spend(&mut self, limited: &mut Limited) -> Result<(), Fault> {
        let Some((client, directory)) = self.administrator(limited)? else {
            return Ok(());
        };
        let slot = self.random.index(NAMES * USERS.len());
        match self.random.below(16) {
            0..10 => self.grow(&client, directory, limited, slot),
            10..13 => self.cut_limited(&client, directory, limited, slot),
            13 => self.remove_limited(&client, slot),
            14 => self.give(&client, slot),
            _ => {
                limited.open.remove(&slot);
                Ok(())
            }
        }
    }

    fn administrator(&self, limited: &mut Limited) -> Result<Option<(Client, FileId)>, Fault> {
        if limited.admin.is_none() {
            let begun = self.begin();
            let connected = self.connect(Role::Admin).and_then(|client| {
                let directory = client.stat(DIRECTORY)?.attributes.id;
                Ok((client, directory))
            });
            limited.admin = self.settle("connect as an administrator", begun, connected)?;
        }
        Ok(limited.admin.clone())
    }

    /// Opens the file of a name, or makes it.
    fn limited_file(
        &self,
        client: &Client,
        directory: FileId,
        limited: &mut Limited,
        slot: usize,
    ) -> Result<Option<File>, Fault> {
        if let Some(file) = limited.open.get(&slot) {
            return Ok(Some(file.clone()));
        }
        let (name, user_at) = name(slot);
        let owner = user(USERS[user_at]);
        let begun = self.begin();
        let both = (true, true);
        let result = client.create_node(&owner, (directory, &name), made(), both, false);
        let file = self.settle_limited(&format!("open {name}"), begun, None, result)?;
        let Some(file) = file else { return Ok(None) };
        self.ledger(|l| l.opened(file.id(), file.layout(), slot, user_at));
        let (begun, losses) = (self.begin(), self.losses(0).len());
        let synced = client.sync_metadata();
        let synced = self.settle_limited("sync the names", begun, None, synced)?;
        if synced.is_some() && self.losses(0).len() == losses {
            self.ledger(|l| l.firm(file.id(), user_at));
        }
        limited.open.insert(slot, file.clone());
        Ok(Some(file))
    }

    fn grow(
        &mut self,
        client: &Client,
        directory: FileId,
        limited: &mut Limited,
        slot: usize,
    ) -> Result<(), Fault> {
        let Some(file) = self.limited_file(client, directory, limited, slot)? else {
            return Ok(());
        };
        let (end, len) = self.some_end();
        self.ledger(|l| l.asked(file.id(), end));
        let bytes = vec![0x5a; len as usize];
        let what = format!("write of file {} up to {end}", file.id().0);
        self.say(&what);
        let begun = self.begin();
        let access = Pattern::contiguous((end - len) as i64, len);
        let result = file.write(&access, Form::Contiguous, &mut Source::from_slice(&bytes));
        if self
            .settle_limited(&what, begun, Some(file.id()), result)?
            .is_none()
        {
            limited.open.remove(&slot);
        }
        Ok(())
    }

    /// End and length of a write.
    fn some_end(&mut self) -> (u64, u64) {
        let limit = self.ledger(|l| l.limit).unwrap_or(0);
        let blocks = limit / self.shape.block;
        let r: &mut Random = &mut self.random;
        let end = r.from_to(1, blocks / 2 + 2);
        let len = r.from_to(1, end.min(3));
        (end * self.shape.block, len * self.shape.block)
    }

    fn cut_limited(
        &mut self,
        client: &Client,
        directory: FileId,
        limited: &mut Limited,
        slot: usize,
    ) -> Result<(), Fault> {
        let Some(file) = self.limited_file(client, directory, limited, slot)? else {
            return Ok(());
        };
        let (end, len) = self.some_end();
        let to = end - len;
        self.ledger(|l| l.asked(file.id(), to));
        let what = format!("cut of file {} to {to}", file.id().0);
        self.say(&what);
        let begun = self.begin();
        let result = file.set_len(to);
        self.settle_limited(&what, begun, Some(file.id()), result)?;
        Ok(())
    }

    fn remove_limited(&mut self, client: &Client, slot: usize) -> Result<(), Fault> {
        let (name, _) = name(slot);
        self.say(&format!("remove {name}"));
        self.ledger(|l| l.remove(slot));
        let begun = self.begin();
        let result = client.unlink(&format!("{DIRECTORY}/{name}"));
        let what = format!("remove {name}");
        if self.settle_limited(&what, begun, None, result)?.is_some() {
            self.ledger(|l| l.removed(slot));
        }
        Ok(())
    }

    /// As root, gives a file of one user to the other.
    fn give(&mut self, client: &Client, slot: usize) -> Result<(), Fault> {
        let (name, from) = name(slot);
        let to = (from + 1) % USERS.len();
        let begun = self.begin();
        let found = client.stat(&format!("{DIRECTORY}/{name}"));
        let Some(stat) = self.settle_limited("stat", begun, None, found)? else {
            return Ok(());
        };
        let id = stat.attributes.id;
        if self.ledger(|l| l.given(id, to)) != Some(true) {
            return Ok(());
        }
        self.say(&format!("gives file {} to user {}", id.0, USERS[to]));
        let change = Change {
            uid: Some(USERS[to]),
            ..Change::default()
        };
        let begun = self.begin();
        let result = client.node(&user(0), NodeRequest::SetAttr { id, change });
        self.settle_limited("give away", begun, None, result)?;
        Ok(())
    }

    /// Ends an operation on a file that others may have removed. It may be refused by a quota if it makes `grown`
    /// longer.
    fn settle_limited<T>(
        &self,
        what: &str,
        begun: (Nanos, super::Phase),
        grown: Option<FileId>,
        result: Result<T, Error>,
    ) -> Result<Option<T>, Fault> {
        match result {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            // The server was killed, and the name is removed: the bytes are gone too, and the error says so.
            Err(e)
                if e.kind() == ErrorKind::Damaged
                    && grown.and_then(|id| self.ledger(|l| l.may_be_gone(id))) == Some(true) =>
            {
                lock(&self.history).failed += 1;
                Ok(None)
            }
            Err(e) if e.kind() == ErrorKind::Quota => {
                let allowed = grown.and_then(|id| self.ledger(|l| l.may_refuse(id)));
                if allowed != Some(true) {
                    return Err(format!("bytes: {what} is refused for nothing: {e}"));
                }
                let mut history = lock(&self.history);
                history.effects.count(Effect::ByteLimit);
                history.failed += 1;
                Ok(None)
            }
            result => self.settle(what, begun, result),
        }
    }
}
