//! Quotas of users, and their usage.
use crate::client::Client;
use crate::error::Result;
use penstock_wire::message::{
    ByteLimits, FileLimits, LimitsChange, MAX_USERS, MetaReply, MetaRequest, QuotaReply,
    QuotaRequest, UserFiles, WrongCount,
};

/// Users and what holds for those without limits of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Those asked for.
    pub users: Vec<UserFiles>,
    /// What holds for users without limits of their own.
    pub default: FileLimits,
    /// The same for bytes.
    pub default_bytes: ByteLimits,
    /// Whether all files were counted; until then counts are 0 and no limit is enforced.
    pub counted: bool,
}

impl Client {
    /// The caller's usage and limits.
    pub fn own_quota(&self) -> Result<Quotas> {
        Ok(self.quota(QuotaRequest::Own)?.0)
    }

    /// A user's usage and limits (other users: administrators).
    pub fn quota_of(&self, uid: u32) -> Result<Quotas> {
        Ok(self.quota(QuotaRequest::Of(uid))?.0)
    }

    /// Usage and limits of all users (administrators).
    pub fn all_quotas(&self) -> Result<Quotas> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let limit = MAX_USERS as u32;
            let (page, more) = self.quota(QuotaRequest::All { after, limit })?;
            after = page.users.last().map(|user| user.uid);
            all.extend(page.users);
            if !more || after.is_none() {
                return Ok(Quotas { users: all, ..page });
            }
        }
    }

    /// Sets limits of a user, or of all without their own (administrators). They are durable when this returns.
    pub fn set_quota(&self, user: Option<u32>, change: LimitsChange) -> Result<Quotas> {
        Ok(self.quota(QuotaRequest::Set { user, change })?.0)
    }

    /// Takes limits away (administrators).
    pub fn remove_quota(&self, user: Option<u32>) -> Result<Quotas> {
        Ok(self.quota(QuotaRequest::Remove { user })?.0)
    }

    /// Counts the files of all users. Returns the numbers that were wrong (administrators).
    pub(crate) fn count_files(&self, repair: bool) -> Result<Vec<WrongCount>> {
        let mut count = None;
        loop {
            let request = MetaRequest::Quota(QuotaRequest::Count { count, repair });
            match self.meta("count files", &request)? {
                MetaReply::Quota(QuotaReply::Counted {
                    through: true,
                    wrong,
                    ..
                }) => return Ok(wrong),
                MetaReply::Quota(QuotaReply::Counted { count: next, .. }) => count = next,
                other => return Err(self.meta_protocol("count files", &other)),
            }
        }
    }

    fn quota(&self, request: QuotaRequest) -> Result<(Quotas, bool)> {
        match self.meta("quota", &MetaRequest::Quota(request))? {
            MetaReply::Quota(QuotaReply::Users {
                users,
                more,
                default,
                default_bytes,
                counted,
            }) => {
                let quotas = Quotas {
                    users,
                    default,
                    default_bytes,
                    counted,
                };
                Ok((quotas, more))
            }
            other => Err(self.meta_protocol("quota", &other)),
        }
    }
}
