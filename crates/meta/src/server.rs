//! The metadata server as a running thing: store, committing thread, and a session per connection.
use crate::access::Caller;
use crate::counters::ConnectionId;
use crate::engine::{Engine, wall_clock_ns};
use crate::issue::Issue;
use crate::kept::Kept;
use crate::layers::Layers;
use crate::namespace::Namespace;
use crate::placement::Placement;
use crate::session::{Granting, Session};
use crate::store::{READ_THROUGH, Store, StoreError};
use crate::stores::Stores;
use penstock_wire::deployment::Deployment;
use penstock_wire::message::{MetaReply, MetaRequest, WireError};
use penstock_wire::{
    After, Connection, Envelope, Peer, Role, RunningServer, ServeLimits, Service, serve,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What can be chosen about a metadata server; the default suits all deployments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Life of a capability; clients renew before.
    pub capability_lifetime: Duration,
    /// The longest that a change nobody waits for is in memory alone.
    pub commit_interval: Duration,
    /// How long removed files that were open wait for whoever has them open to connect again.
    pub keep_grace: Duration,
    /// Stores of up to so many bytes are read through before they are served, and walked through after a crash. Larger ones
    /// are looked through beside the service, and pay at each commit for a start that does not walk.
    pub read_through: u64,
    /// Bounds of connections.
    pub limits: ServeLimits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            capability_lifetime: Duration::from_secs(600),
            commit_interval: Duration::from_millis(200),
            keep_grace: Duration::from_secs(60),
            read_through: READ_THROUGH,
            limits: ServeLimits::default(),
        }
    }
}

/// Why a metadata server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The deployment is wrong, or the store cannot be written.
    #[error(transparent)]
    Refused(#[from] WireError),
    /// Keys cannot be read or sockets not be opened.
    #[error(transparent)]
    Wire(#[from] penstock_wire::Error),
}

/// Opens the metadata store of the deployment (made if missing) and serves it until stopped.
pub fn start(deployment: &Deployment, options: Options) -> Result<RunningServer, Error> {
    let identity = deployment.meta_identity()?;
    let placement = Placement::new(deployment.server_ids(), deployment.stripe_unit)?;
    let owner = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let root = Namespace::<Layers>::root(wall_clock_ns(), owner.0, owner.1);
    let (store, snapshot) = Store::open(
        &deployment.meta.store,
        &deployment.id,
        &root,
        options.read_through,
    )?;
    let files = snapshot.totals().files > 0;
    let stores = Stores::load(&deployment.meta.store, store.commits(), files)?;
    let issue = Issue::begin(&deployment.meta.store);
    let engine = Engine::start(
        store,
        snapshot,
        placement,
        options.commit_interval,
        Kept::new(options.keep_grace),
    )?;
    let service = Metadata {
        shared: Arc::new(Granting {
            engine,
            stores,
            key: identity.server_key.clone(),
            issue,
            lifetime: options.capability_lifetime,
            connections: AtomicU64::new(0),
        }),
        owner,
        next: AtomicU64::new(0),
    };
    Ok(serve(
        &deployment.meta.address,
        Arc::new(service),
        identity,
        options.limits,
    )?)
}

struct Metadata {
    shared: Arc<Granting>,
    /// User and group that the server runs as.
    owner: (u32, u32),
    next: AtomicU64,
}

/// On this host the kernel vouches for the user, over TCP whoever has proven the key. Root and the owner may act for
/// others; mode bits hold everybody but root and administrators.
fn caller(peer: &Peer, owner: (u32, u32)) -> Caller {
    let admin = peer.role == Role::Admin;
    Caller {
        admin,
        privileged: admin || peer.user.uid == 0,
        delegate: admin || peer.user.uid == 0 || peer.user.uid == owner.0,
        ..Caller::of(peer.user.clone())
    }
}

impl Service for Metadata {
    fn session(&self, connection: &mut Connection, peer: &Peer) -> penstock_wire::Result<After> {
        let id = ConnectionId(self.next.fetch_add(1, Ordering::Relaxed));
        let mut session = Session::new(self.shared.clone(), caller(peer, self.owner), id);
        serve_requests(connection, |request| session.answer(request))
    }

    fn stopping(&self) {
        self.shared.engine.stop();
    }
}

fn serve_requests(
    connection: &mut Connection,
    mut answer: impl FnMut(MetaRequest) -> MetaReply,
) -> penstock_wire::Result<After> {
    loop {
        let received = match connection.receive_unless_idle::<MetaRequest>() {
            Ok(Some(received)) => received,
            Ok(None) => {
                connection.shrink();
                continue;
            }
            Err(penstock_wire::Error::Closed { .. }) => return Ok(After::Continue),
            Err(e) => return Err(last_word(connection, e)),
        };
        let Some(request) = received.body else {
            let error = penstock_wire::Error::Malformed {
                peer: connection.peer().to_owned(),
                what: "a metadata request without a body".into(),
            };
            return Err(last_word(connection, error));
        };
        let stop = matches!(request, MetaRequest::Shutdown);
        let reply = answer(request);
        connection.queue(&received.envelope.answer(), &reply)?;
        if stop && reply == MetaReply::Done {
            connection.flush()?;
            return Ok(After::StopServer);
        }
    }
}

/// Tells the peer why its connection ends, when that is its own doing.
fn last_word(connection: &mut Connection, why: penstock_wire::Error) -> penstock_wire::Error {
    use penstock_wire::Error::{Malformed, TooLarge, Version};
    if !matches!(why, Malformed { .. } | TooLarge { .. } | Version { .. }) {
        return why;
    }
    let envelope = Envelope {
        reply: true,
        ..Envelope::default()
    };
    let reply = MetaReply::Error(WireError::new(why.kind(), why.to_string()));
    // The peer may be gone already; `why` is what counts.
    let _ = connection
        .queue(&envelope, &reply)
        .and_then(|()| connection.flush());
    why
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_wire::message::User;

    #[test]
    fn callers_are_who_the_kernel_says() {
        let peer = |role, uid, gid| Peer {
            role,
            program: 1,
            rank: 0,
            credentials: None,
            user: User {
                uid,
                gid,
                groups: vec![9],
            },
        };
        let owner = (100, 200);
        for (role, uid, privileged, delegate, admin) in [
            (Role::Client, 100, false, true, false),
            (Role::Client, 0, true, true, false),
            (Role::Client, 101, false, false, false),
            (Role::Admin, 101, true, true, true),
        ] {
            let caller = caller(&peer(role, uid, 200), owner);
            assert_eq!(
                (caller.uid, caller.privileged, caller.delegate, caller.admin),
                (uid, privileged, delegate, admin),
                "{role:?} {uid}"
            );
            assert!(caller.is_in(200) && caller.is_in(9) && !caller.is_in(1));
        }
    }
}
