//! Answers to requests about quotas on files and bytes, and to data servers' reports on both.
use super::{Answer, Session};
use crate::error::Result;
use crate::layers::milliseconds;
use crate::names::Names;
use crate::nodes::Outcome;
use penstock_layout::{FileId, ServerId};
use penstock_wire::message::{
    MAX_USERS, MAX_WRONG_COUNTS, MetaReply, QuotaReply, QuotaRequest, UsageReport, UserFiles,
};

/// Bytes of the longest encoded user, with nine numbers of ten bytes each.
const USER: usize = 113;
/// Bytes of an encoded owner.
pub(super) const OWNER: usize = 8;
/// Upper bound of a reply.
pub(super) const MAX_REPLY: usize = USER * (MAX_USERS + 2);
const _: () = assert!(MAX_WRONG_COUNTS < MAX_USERS);

impl Session {
    /// A data server's report on users' bytes.
    pub(super) fn usage(&mut self, report: &UsageReport) -> Result<MetaReply> {
        if self.caller.server != Some(ServerId(report.server)) {
            self.require_admin("tell of users' bytes")?;
        }
        // Without waiting for commits: on the same connection clients' requests wait for owners and the time.
        self.shared.engine.change_in_memory(|space, now_ns| {
            let accounts = space.names_mut().accounts_mut();
            let leases = accounts.report(report, milliseconds(now_ns))?;
            Ok(MetaReply::Leases(leases))
        })
    }

    /// Owners of files, for a data server.
    pub(super) fn owners(&mut self, files: &[FileId]) -> Result<MetaReply> {
        if self.caller.server.is_none() {
            self.require_admin("ask who owns files")?;
        }
        self.shared.engine.read(|space| {
            let owner = |file: &FileId| Ok(space.names().node(*file)?.map(|node| node.uid));
            Ok(MetaReply::Owners(
                files.iter().map(owner).collect::<Result<_>>()?,
            ))
        })
    }

    pub(super) fn quota(&mut self, request: &QuotaRequest) -> Result<Answer> {
        let own = self.caller.uid;
        Ok(match *request {
            QuotaRequest::Own => self.users(&[own])?.into(),
            QuotaRequest::Of(uid) => {
                if uid != own {
                    self.require_admin("see what other users have")?;
                }
                self.users(&[uid])?.into()
            }
            QuotaRequest::All { after, limit } => {
                self.require_admin("see what all users have")?;
                let limit = (limit as usize).clamp(1, MAX_USERS);
                let (users, more) = self
                    .shared
                    .engine
                    .read(|space| Ok(space.names().accounts().page(after, limit)))?;
                self.reply(users, more)?.into()
            }
            QuotaRequest::Set { user, change } => {
                self.require_admin("set limits")?;
                self.shared.engine.change(None, |space, now_ns| {
                    let accounts = space.names_mut().accounts_mut();
                    accounts.set(user, &change, milliseconds(now_ns))?;
                    Ok(Outcome::Done)
                })?;
                self.changed(user)?
            }
            QuotaRequest::Remove { user } => {
                self.require_admin("remove limits")?;
                self.shared.engine.change(None, |space, now_ns| {
                    let accounts = space.names_mut().accounts_mut();
                    accounts.remove(user, milliseconds(now_ns));
                    Ok(Outcome::Done)
                })?;
                self.changed(user)?
            }
            QuotaRequest::Count { count, repair } => {
                self.require_admin("count the files of all users")?;
                let progress = self.shared.engine.count_files(count, repair)?;
                let through = progress.found.is_some();
                let found = progress.found.unwrap_or_default();
                Answer {
                    durable: through,
                    reply: MetaReply::Quota(QuotaReply::Counted {
                        count: progress.count,
                        through,
                        wrong: found.wrong,
                        more: found.more,
                    }),
                }
            }
        })
    }

    /// The limits in force after a change, once that is durable.
    fn changed(&self, user: Option<u32>) -> Result<Answer> {
        Ok(Answer {
            reply: self.users(user.as_slice())?,
            durable: true,
        })
    }

    fn users(&self, uids: &[u32]) -> Result<MetaReply> {
        let users = self.shared.engine.read(|space| {
            let accounts = space.names().accounts();
            Ok(uids.iter().map(|uid| accounts.user(*uid)).collect())
        })?;
        self.reply(users, false)
    }

    fn reply(&self, users: Vec<UserFiles>, more: bool) -> Result<MetaReply> {
        self.shared.engine.read(|space| {
            let accounts = space.names().accounts();
            let (default, default_bytes) = accounts.default_limits();
            Ok(MetaReply::Quota(QuotaReply::Users {
                users,
                more,
                default,
                default_bytes,
                counted: accounts.are_counted(),
            }))
        })
    }
}
