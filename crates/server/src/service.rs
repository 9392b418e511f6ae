//! A data server for its server loop: a session for each connection, and stopping.
use crate::audited::Watch;
use crate::server::Server;
use crate::session::Session;
use penstock_host::time::now;
use penstock_rpc::audit::{Audit, Subject};
use penstock_rpc::{After, Connection, Peer, Service};
use penstock_wire::credential::Statement;
use penstock_wire::message::WireError;
use std::time::Duration;

/// A stopping server waits so long for operations by shortcuts.
const SHORTCUTS_END: Duration = Duration::from_secs(1);

impl Service for Server {
    fn session(&self, connection: &mut Connection, peer: &Peer) -> penstock_wire::Result<After> {
        let _connected = self.counters.connected();
        self.objects.usage().connected();
        let number = self.next_owner();
        let watch = Watch {
            audit: self.audit(),
            subject: Subject::of(peer, connection),
        };
        Session::new(self, peer, number, connection.closer(), watch).run(connection)
    }

    fn audit(&self) -> Option<&Audit> {
        Some(Server::audit(self))
    }

    fn now_ms(&self) -> u64 {
        Server::now_ms(self)
    }

    fn require(&self, statement: &Statement) -> Result<(), WireError> {
        self.revoked.require(statement)
    }

    fn relieve(&self) {
        self.objects.store().relieve();
    }

    fn stopping(&self) {
        self.channel.stop();
        self.clock.stop();
        self.objects.usage().stop();
        self.revoked.stop();
        self.control.stop();
        self.settling.stop();
        self.objects.stop();
        self.queue.stop();
        if !self.objects.end_shortcuts(now() + SHORTCUTS_END) {
            log::warn!(
                "data server {}: a client does not end its operation by a shortcut",
                self.id.0
            );
            self.objects.store().share();
        }
    }

    fn stopped(&self) {
        if !self.options.read_only {
            self.objects.store().stop();
        }
    }
}
