//! The bytes of users with quotas on bytes: lengths of objects, counts of data servers, and what the metadata server
//! has received.
//!
//! *Problem*: programs write during the check, and a count reaches the other server up to a second later. *Idea*: a
//! difference is reported only if two comparisons [`REST`] apart found the same lengths and counts, and the difference
//! in both.
use super::{CheckFinding, Checker, FindingKind, Inventory};
use crate::error::Result;
use penstock_layout::{FileId, ServerId};
use penstock_wire::message::MAX_OWNERS;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Time between two comparisons. Data servers report counts and receive new owners once a second.
const REST: Duration = Duration::from_secs(3);
/// Most comparisons of a data server.
const LOOKS: usize = 4;
/// A count takes so many times [`REST`] at most.
const COUNT: usize = 40;

/// The bytes of one user on one data server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    /// Of the objects.
    there: u64,
    /// Two lists of objects with the same bytes differ in it.
    hash: u64,
    /// As the server counts what a list shows.
    counted: u64,
    /// As it tells the metadata server.
    used: u64,
    /// It has counted all.
    whole: bool,
}

/// The result of one comparison of a data server.
#[derive(Default)]
struct Look {
    users: BTreeMap<u32, Seen>,
    /// Bytes of objects without a file. They may count for whoever had it, until they are freed.
    alone: u64,
}

impl Look {
    fn agrees(&self, seen: &Seen) -> bool {
        let more = seen.counted.checked_sub(seen.there);
        seen.whole && more.is_some_and(|more| more <= self.alone)
    }

    /// Users whose numbers differ, or may yet.
    fn open(&self) -> impl Iterator<Item = (u32, Seen)> + '_ {
        let differs = |(_, seen): &(&u32, &Seen)| !self.agrees(seen);
        self.users
            .iter()
            .filter(differs)
            .map(|(uid, seen)| (*uid, *seen))
    }
}

impl<I: Inventory> Checker<'_, I> {
    pub(super) fn compare_bytes(&mut self) -> Result<()> {
        let limited = self.inventory.limited_users()?;
        self.report.limited_users = limited.len() as u64;
        if limited.is_empty() {
            return Ok(());
        }
        let mut all_answer = true;
        for server in self.inventory.servers() {
            let compared = self.compare_server(server, &limited);
            if let Err(e) = compared {
                self.silent(server, &e);
                all_answer = false;
            }
            (self.progress)(&self.report);
        }
        if all_answer {
            self.compare_totals()
        } else {
            Ok(())
        }
    }

    fn compare_server(&mut self, server: ServerId, limited: &BTreeMap<u32, u64>) -> Result<()> {
        let (wrong, uncompared) = self.lasting(server, limited)?;
        self.report.uncompared += uncompared;
        if wrong.is_empty() {
            return Ok(());
        }
        let mut still = wrong.clone();
        if self.options.repair {
            self.inventory.counted_bytes(server, true)?;
            self.await_count(server)?;
            let (wrong, uncompared) = self.lasting(server, limited)?;
            self.report.uncompared += uncompared;
            still = wrong;
        }
        for (uid, seen) in wrong {
            let mended = self.options.repair && !still.contains_key(&uid);
            let advice = match (self.options.repair, mended) {
                (false, _) => "`penstock check --repair` makes it count again",
                (true, true) => "it has counted anew",
                (true, false) => {
                    "it has counted again and is still wrong: start this data server again"
                }
            };
            self.find(wrong_bytes(
                Some(server),
                seen.there,
                mended,
                format!(
                    "user {uid} has {} bytes on data server {}, which counts {}: {advice}",
                    seen.there, server.0, seen.counted
                ),
            ));
        }
        Ok(())
    }

    /// Users whose differences last; how many could not be compared.
    fn lasting(
        &self,
        server: ServerId,
        limited: &BTreeMap<u32, u64>,
    ) -> Result<(BTreeMap<u32, Seen>, u64)> {
        let mut wrong = BTreeMap::new();
        let mut before = self.look_at_bytes(server, limited)?;
        for _ in 1..LOOKS {
            if before.open().next().is_none() {
                break;
            }
            self.inventory.pause(REST);
            let now = self.look_at_bytes(server, limited)?;
            let lasts = |(uid, seen): &(u32, Seen)| {
                seen.whole && before.users.get(uid).is_some_and(|old| old == seen)
            };
            wrong = now.open().filter(lasts).collect();
            before = now;
            if before.open().count() == wrong.len() {
                break;
            }
        }
        let uncompared = before.open().count() - wrong.len();
        Ok((wrong, uncompared as u64))
    }

    fn look_at_bytes(&self, server: ServerId, limited: &BTreeMap<u32, u64>) -> Result<Look> {
        let mut look = Look::default();
        for user in self.inventory.counted_bytes(server, false)? {
            let seen = Seen {
                counted: user.used.saturating_sub(user.unlisted),
                used: user.used,
                whole: user.counted,
                ..Seen::default()
            };
            if limited.contains_key(&user.uid) {
                look.users.insert(user.uid, seen);
            }
        }
        let mut after = None;
        loop {
            let limit = MAX_OWNERS as u32;
            let (objects, more) = self.inventory.objects(server, after, limit)?;
            after = objects.last().map(|(id, _)| *id);
            if after.is_none() {
                return Ok(look);
            }
            let ids: Vec<FileId> = objects.iter().map(|(id, _)| *id).collect();
            for ((id, bytes), owner) in objects.iter().zip(self.inventory.owners(ids)?) {
                match owner.map(|uid| look.users.get_mut(&uid)) {
                    Some(Some(seen)) => {
                        seen.there += bytes;
                        let mut hasher = DefaultHasher::new();
                        (seen.hash, id, bytes).hash(&mut hasher);
                        seen.hash = hasher.finish();
                    }
                    Some(None) => {}
                    None => look.alone += bytes,
                }
            }
            if !more {
                return Ok(look);
            }
        }
    }

    /// Waits until a data server has counted all users' objects.
    fn await_count(&self, server: ServerId) -> Result<()> {
        for _ in 0..COUNT {
            self.inventory.pause(REST);
            let users = self.inventory.counted_bytes(server, false)?;
            if users.iter().all(|user| user.counted) {
                break;
            }
        }
        Ok(())
    }

    /// What the metadata server has heard against what the data servers count together.
    fn compare_totals(&mut self) -> Result<()> {
        let mut before = self.totals()?;
        for _ in 1..LOOKS {
            before.retain(|_, (heard, told)| heard != told);
            if before.is_empty() {
                return Ok(());
            }
            self.inventory.pause(REST);
            let now = self.totals()?;
            let lasts = |uid: &u32, totals: &(u64, u64)| before.get(uid) == Some(totals);
            let lasting: BTreeMap<_, _> = now
                .iter()
                .filter(|(uid, totals)| totals.0 != totals.1 && lasts(uid, totals))
                .map(|(uid, totals)| (*uid, *totals))
                .collect();
            if !lasting.is_empty() {
                for (uid, (heard, told)) in lasting {
                    self.find(wrong_bytes(
                        None,
                        told,
                        false,
                        format!(
                            "the data servers count {told} bytes of user {uid} together, but the metadata server knows of {heard}: start it again, and check that each data server reaches it"
                        ),
                    ));
                }
                return Ok(());
            }
            before = now;
        }
        Ok(())
    }

    /// Of each user: what the metadata server has heard, and what the data servers tell.
    fn totals(&self) -> Result<BTreeMap<u32, (u64, u64)>> {
        let heard = self.inventory.limited_users()?.into_iter();
        let mut totals: BTreeMap<u32, (u64, u64)> =
            heard.map(|(uid, heard)| (uid, (heard, 0))).collect();
        for server in self.inventory.servers() {
            for user in self.inventory.counted_bytes(server, false)? {
                if let Some((_, told)) = totals.get_mut(&user.uid) {
                    *told += user.used;
                }
            }
        }
        Ok(totals)
    }
}

fn wrong_bytes(
    server: Option<ServerId>,
    bytes: u64,
    mended: bool,
    message: String,
) -> CheckFinding {
    CheckFinding {
        kind: FindingKind::WrongBytes,
        server,
        file: None,
        path: None,
        bytes: Some(bytes),
        mended,
        message,
    }
}
