//! Revoking credentials, for administrators.
use crate::client::Client;
use crate::error::Result;
use penstock_wire::message::{MetaReply, MetaRequest};
use penstock_wire::revocation::{Revocations, Revoked};

impl Client {
    /// Revokes credentials that end by `until_ms` (milliseconds since 1970). The metadata server refuses them from now
    /// on, data servers within ten seconds. Returns the whole list.
    pub fn revoke(&self, what: Revoked, until_ms: u64) -> Result<Revocations> {
        self.revoked(&MetaRequest::Revoke { what, until_ms })
    }

    /// The revocations that have not ended yet.
    pub fn revocations(&self) -> Result<Revocations> {
        self.revoked(&MetaRequest::Revocations { known: None })
    }

    fn revoked(&self, request: &MetaRequest) -> Result<Revocations> {
        match self.meta("credential", request)? {
            MetaReply::Revoked(list) => Ok(list.unwrap_or_default()),
            other => Err(self.meta_protocol("credential", &other)),
        }
    }
}
