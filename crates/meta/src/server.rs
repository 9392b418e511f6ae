//! The running metadata server: store, committing thread, and a session per connection.
use crate::access::{Caller, Delegation};
use crate::audited::Audited;
use crate::change_log::DirectoryLog;
use crate::control::Control;
use crate::counters::ConnectionId;
use crate::engine::{Engine, wall_clock_ns};
use crate::issue::Issue;
use crate::keys::Keys;
use crate::layers::Layers;
use crate::names::Namespace;
use crate::open_unlinked::OpenUnlinked;
use crate::placement::Placement;
use crate::registry::Registry;
use crate::revoked;
use crate::session::{Granting, Program, Session};
use crate::start_error::Error;
use crate::store::{READ_THROUGH, Store};
use crate::stores::Stores;
use crate::vouching::Vouching;
use penstock_host::sync::Mutex;
use penstock_rpc::audit::{Audit, Subject};
use penstock_rpc::deployment::Deployment;
use penstock_rpc::{After, Connection, Peer, RunningServer, ServeLimits, Service, munge, serve};
use penstock_wire::credential::{Signed, Statement};
use penstock_wire::message::{ErrorKind, MetaReply, MetaRequest, WireError};
use penstock_wire::{Envelope, PublicKey, Role};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Options of a metadata server; the defaults suit all deployments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Life of a capability; clients renew it earlier.
    pub capability_lifetime: Duration,
    /// The longest that a change stays in memory only, if nobody waits for it.
    pub commit_interval: Duration,
    /// How long open-unlinked files wait for their holders to reconnect.
    pub keep_grace: Duration,
    /// Stores up to this size in bytes are read completely before they are served, and repaired by a full walk after a
    /// crash. Larger ones are scrubbed in the background, and each commit stores what a start without a walk needs.
    pub read_through: u64,
    /// The deployment file, to rotate keys while the server runs.
    pub deployment_file: Option<PathBuf>,
    /// The directory of the audit log, if it is written.
    pub audit: Option<PathBuf>,
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
            deployment_file: None,
            audit: None,
            limits: ServeLimits::default(),
        }
    }
}

/// Opens the metadata store of the deployment (made if missing) and serves it until stopped; an error says why it does
/// not start.
pub fn start(deployment: &Deployment, options: Options) -> Result<RunningServer, Error> {
    let keys = Keys::load(deployment, options.deployment_file)?;
    let ring = keys.ring.clone();
    let vouching = Vouching::start(deployment)?;
    let placement = Placement::new(deployment.server_ids(), deployment.stripe_unit)?;
    let owner = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let root = Namespace::<Layers>::root(wall_clock_ns(), owner.0, owner.1);
    let log = DirectoryLog::new(&deployment.meta.store);
    let (store, snapshot) = Store::open(
        &deployment.meta.store,
        &deployment.id,
        &root,
        options.read_through,
        &log,
    )?;
    let files = snapshot.totals().files > 0;
    let stores = Stores::load(&deployment.meta.store, store.commits(), files)?;
    let issue = Issue::begin(&deployment.meta.store);
    let revoked = revoked::List::load(&deployment.meta.store)?;
    let control = Control::begin(&deployment.meta.store);
    let engine = Engine::start(
        store,
        snapshot,
        placement,
        options.commit_interval,
        OpenUnlinked::new(options.keep_grace),
        Box::new(log),
    )?;
    let service = Metadata {
        shared: Arc::new(Granting {
            engine,
            stores,
            keys,
            issue,
            revoked,
            audit: Arc::new(Audit::start(options.audit.as_deref(), "meta")),
            registry: Mutex::new(Registry::default()),
            steps: Mutex::default(),
            control,
            lifetime: options.capability_lifetime,
            connections: AtomicU64::new(0),
        }),
        owner,
        vouching,
        next: AtomicU64::new(0),
    };
    Ok(serve(
        &deployment.meta.address,
        Arc::new(service),
        ring,
        options.limits,
    )?)
}

struct Metadata {
    shared: Arc<Granting>,
    /// User and group that the server runs as.
    owner: (u32, u32),
    /// Set if the deployment accepts MUNGE.
    vouching: Option<Vouching>,
    next: AtomicU64,
}

/// The kernel identifies a user of this host, the deployment's authority one of another host. Root and the owner may
/// act for others on this host; over TCP the holders of credentials that say so may. Mode bits restrict everybody
/// except root and administrators.
fn caller(peer: &Peer, owner: (u32, u32)) -> Caller {
    let (admin, server) = match peer.role {
        Role::Client | Role::Newcomer => (false, None),
        Role::Admin => (true, None),
        Role::Server(id) => (false, Some(id)),
    };
    Caller {
        admin,
        server,
        privileged: admin || (server.is_none() && peer.user.uid == 0),
        delegation: match &peer.statement {
            _ if server.is_some() => Delegation::Nobody,
            _ if admin => Delegation::Everybody,
            Some(statement) => Delegation::Stated(Box::new(statement.clone())),
            None if peer.user.uid == 0 || peer.user.uid == owner.0 => Delegation::Everybody,
            None => Delegation::Nobody,
        },
        ..Caller::of(peer.user.clone())
    }
}

impl Service for Metadata {
    fn session(&self, connection: &mut Connection, peer: &Peer) -> penstock_wire::Result<After> {
        let id = ConnectionId(self.next.fetch_add(1, Ordering::Relaxed));
        let shared = &self.shared;
        let caller = caller(peer, self.owner);
        let audited = Audited::new(shared.audit.clone(), Subject::of(peer, connection));
        let mut session = Session::new(
            shared.clone(),
            caller,
            peer.subject(),
            id,
            audited,
            Program::of(peer),
        );
        // The version of the revocation list that the credential was last checked against.
        let sought = Cell::new(None);
        let over = || {
            let Some(statement) = &peer.statement else {
                return false;
            };
            let version = shared.revoked.version();
            if sought.replace(Some(version)) != Some(version)
                && shared.revoked.require(statement).is_err()
            {
                sought.set(None);
                return true;
            }
            shared.issue.now_ms() >= statement.end_ms
        };
        serve_requests(connection, over, |request| session.answer(request))
    }

    fn now_ms(&self) -> u64 {
        self.shared.issue.now_ms()
    }

    fn require(&self, statement: &Statement) -> Result<(), WireError> {
        self.shared.revoked.require(statement)
    }

    fn vouch(
        &self,
        munge: &str,
        payload: &[u8; munge::PAYLOAD],
        key: PublicKey,
    ) -> Result<Signed, WireError> {
        let Some(vouching) = &self.vouching else {
            return Err(WireError::new(
                ErrorKind::Permission,
                "the deployment does not take MUNGE; its owner makes credentials (`penstock credential`), or writes `[munge]` into the deployment file",
            ));
        };
        let pair = self.shared.keys.pair();
        vouching.vouch(&pair, munge, payload, key, self.now_ms())
    }

    fn audit(&self) -> Option<&Audit> {
        Some(&self.shared.audit)
    }

    fn stopping(&self) {
        self.shared.engine.stop();
    }
}

/// Serves until the connection ends, or its credential has expired or was revoked. Then the connection is `over`, and
/// its client reconnects, with a newer credential if there is one.
fn serve_requests(
    connection: &mut Connection,
    over: impl Fn() -> bool,
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
        // Requests that only release what belongs to this connection would achieve nothing elsewhere.
        if over() && !matches!(request, MetaRequest::CounterFree { .. }) {
            // Earlier answers are sent; this request is not begun.
            connection.flush()?;
            return Ok(After::Continue);
        }
        let stop = matches!(request, MetaRequest::Shutdown);
        let reply = answer(request);
        connection.queue(&received.envelope.answer(), &reply)?;
        if stop && reply == MetaReply::Done {
            connection.flush()?;
            return Ok(After::StopServer);
        }
    }
}

/// Tells the peer why its connection ends, if the peer caused it.
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
    // The peer may be gone already; only `why` matters.
    let _ = connection
        .queue(&envelope, &reply)
        .and_then(|()| connection.flush());
    why
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_layout::ServerId;
    use penstock_wire::credential::Uids;
    use penstock_wire::message::{NOBODY, User};

    fn peer(role: Role, uid: u32, gid: u32, statement: Option<Statement>) -> Peer {
        let groups = vec![9];
        Peer {
            role,
            program: 1,
            rank: 0,
            credentials: None,
            user: match &statement {
                Some(statement) => statement.user(),
                None => User { uid, gid, groups },
            },
            statement,
        }
    }

    const OWNER: (u32, u32) = (100, 200);

    #[test]
    fn callers_are_who_the_kernel_says() {
        for (role, uid, privileged, delegate, admin) in [
            (Role::Client, 100, false, true, false),
            (Role::Client, 0, true, true, false),
            (Role::Client, 101, false, false, false),
            (Role::Admin, 101, true, true, true),
            (Role::Server(ServerId(0)), 0, false, false, false),
            (Role::Server(ServerId(0)), 100, false, false, false),
        ] {
            let caller = caller(&peer(role, uid, 200, None), OWNER);
            let acts = caller.delegation.acts_for(User::default()).is_some();
            assert_eq!(
                (caller.uid, caller.privileged, acts, caller.admin),
                (uid, privileged, delegate, admin),
                "{role:?} {uid}"
            );
            assert!(caller.is_in(200) && caller.is_in(9) && !caller.is_in(1));
        }
    }

    #[test]
    fn callers_over_tcp_are_what_their_credential_says() {
        let user = |uid| User {
            uid,
            gid: 7,
            groups: vec![0, 9],
        };
        let stated = |uid, root, speaks_for: &[(u32, u32)]| {
            let mut statement = Statement::new(&"0".repeat(32), user(uid), 0..9);
            statement.root = root;
            let ranges = speaks_for.iter();
            statement.speaks_for = ranges.map(|&(first, last)| Uids { first, last }).collect();
            caller(&peer(Role::Client, 0, 0, Some(statement)), OWNER)
        };
        // The numbers of root and the owner alone give no rights.
        let root = stated(0, false, &[]);
        assert_eq!((root.uid, root.privileged), (NOBODY, false));
        for uid in [0, OWNER.0, 5] {
            let caller = stated(uid, true, &[]);
            assert_eq!((caller.uid, caller.privileged), (uid, uid == 0));
            assert_eq!(caller.delegation.acts_for(user(uid)), None);
        }
        let mount = stated(0, false, &[(1000, 1999), (3000, 3000)]);
        let acts_for = |uid| mount.delegation.acts_for(user(uid)).map(|u| u.uid);
        for (uid, acted) in [
            (999, None),
            (1000, Some(1000)),
            (1999, Some(1999)),
            (2000, None),
            (3000, Some(3000)),
            (0, Some(NOBODY)),
        ] {
            assert_eq!(acts_for(uid), acted, "{uid}");
        }
        // Root's group ends with root's rights.
        let groups = |mount: &Caller| mount.delegation.acts_for(user(1000)).map(|u| u.groups);
        assert_eq!(groups(&mount), Some(vec![9]));
        let granted = stated(0, true, &[(1000, 1999)]);
        assert_eq!(groups(&granted), Some(vec![0, 9]));
        assert_eq!(granted.delegation.acts_for(user(0)), Some(user(0)));
    }
}
