//! A connection's entry in the list of programs ([`crate::registry`]).
use super::Session;
use crate::access::Delegation;
use crate::error::{Result, error};
use crate::registry::{Registry, RowShare};
use penstock_host::sync::MutexGuard;
use penstock_host::time::since_boot;
use penstock_rpc::{Peer, share};
use penstock_wire::message::{ErrorKind, MetaReply, ProgramInfo, Report};
use std::sync::PoisonError;

/// The program of a connection.
#[derive(Debug, Default)]
pub struct Program {
    number: u64,
    payer: Option<u32>,
    place: Option<RowShare>,
}

impl Program {
    /// The number that the peer gave when it connected; 0: none.
    pub fn of(peer: &Peer) -> Program {
        Program {
            number: peer.program,
            payer: share::payer(peer.role, peer.credentials, peer.statement.as_ref()),
            place: None,
        }
    }
}

impl Session {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Rows are added and removed completely.
        let registry = self.shared.registry.lock();
        registry.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn register(&mut self, info: ProgramInfo) -> Result<MetaReply> {
        let Program { number, payer, .. } = self.program;
        if number == 0 {
            return Err(error(
                ErrorKind::InvalidArgument,
                "this connection belongs to no program; connect with a program's number",
            ));
        }
        self.unregister();
        let who = (self.subject, payer);
        let place = self.registry().register(since_boot(), who, number, info)?;
        self.program.place = Some(place);
        Ok(MetaReply::Done)
    }

    pub(super) fn unregister(&mut self) {
        if let Some(place) = self.program.place.take() {
            self.registry().leave(since_boot(), &place);
        }
    }

    /// A data server's report on its traffic.
    pub(super) fn reported(&mut self, report: Report) -> Result<MetaReply> {
        let Some(server) = self.caller.server else {
            return Err(error(
                ErrorKind::Permission,
                "only data servers report their work",
            ));
        };
        let (decision, fresh) = self.shared.control.heard(server.0, &report);
        if fresh {
            self.registry().reported(since_boot(), server.0, report);
        }
        Ok(MetaReply::Decision(decision))
    }

    /// A caller who may act for all users sees all programs.
    pub(super) fn programs(&self) -> MetaReply {
        let all = matches!(self.caller.delegation, Delegation::Everybody);
        let of = (!all).then_some(self.subject);
        MetaReply::Programs(self.registry().list(since_boot(), of))
    }
}
