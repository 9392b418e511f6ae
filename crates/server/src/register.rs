//! A data server reports its store to the metadata server before it uses it.
//!
//! Problem: an empty disk, another server's store or an older copy would be served as if it were right, with zeros.
//! Idea: the metadata server knows the store of each data server and refuses any other (docs/decisions/0015). So a data
//! server that starts waits for the metadata server, like programs that open files. Servers of several hosts may be
//! started in any order. After [`PATIENCE`] it gives up, so that whatever starts servers (systemd, an administrator)
//! notices.
use crate::channel::{Channel, unexpected};
use crate::error::Error;
use penstock_host::thread;
use penstock_host::time::{now, since};
use penstock_layout::ServerId;
use penstock_rpc::deployment::{Address, Deployment};
use penstock_store::{Identity, State, Store, StoreError};
use penstock_wire::message::{ErrorKind, MetaReply, MetaRequest, StoreReport, StoreState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between attempts to reach the metadata server.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the wait is logged.
const TOLD: Duration = Duration::from_secs(10);
/// Longest wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// An administrator's statement about a store, and a way to end the wait for the metadata server.
#[derive(Debug, Clone, Default)]
pub struct Registration {
    /// A new store replaces the former one.
    pub renew: bool,
    /// The store is right, and the metadata are older or new.
    pub adopt: bool,
    /// Ends the wait.
    pub stop: Arc<AtomicBool>,
}

/// The connection to the metadata server.
pub(crate) struct Registrar {
    meta: Address,
    channel: Arc<Channel>,
    server: ServerId,
    place: String,
    mounted: bool,
}

/// Opens the store of a data server after the metadata server has agreed that it is the right one.
pub(crate) fn open(
    deployment: &Deployment,
    id: ServerId,
    spec: &str,
    how: &Registration,
    channel: &Arc<Channel>,
) -> Result<(Box<dyn Store>, Option<Registrar>), Error> {
    let look = penstock_store::inspect(spec)?;
    let open = || penstock_store::open(spec, &deployment.id, id.0);
    let mut registrar = Registrar {
        meta: deployment.meta.address.clone(),
        channel: channel.clone(),
        server: id,
        place: place(spec).to_owned(),
        mounted: look.mounted,
    };
    // An existing store is opened first: it may be in use, or of another deployment.
    let (state, opened) = match look.state {
        State::Volatile => return Ok((open()?, None)),
        State::Missing => (StoreState::Missing, None),
        State::Empty => (StoreState::Empty, None),
        State::Store => match open() {
            Err(StoreError::Damaged { .. }) if how.renew => (StoreState::Empty, None),
            opened => {
                let opened = opened?;
                (there(opened.identity()), Some(opened))
            }
        },
    };
    let report = StoreReport {
        // Objects that an earlier server made and did not record are as new as any.
        highest: match &opened {
            Some(store) => store.highest(how.adopt)?,
            None => 0,
        },
        ..registrar.report(state, how.renew, how.adopt)
    };
    let new = registrar.ask(&report, how)?;
    let store = match (new, opened) {
        (None, Some(opened)) => opened,
        (None, None) => open()?,
        (Some(lost_below), opened) => {
            drop(opened);
            let store = penstock_store::open_new(spec, &deployment.id, id.0, lost_below)?;
            if lost_below > 0 {
                log::warn!(
                    "data server {}: {} is a new store; accesses to older files fail where bytes may be lost",
                    id.0,
                    registrar.place
                );
            }
            // The directory may just have been made.
            registrar.mounted = penstock_store::inspect(spec)?.mounted;
            registrar.ask(&registrar.report(there(store.identity()), false, true), how)?;
            store
        }
    };
    // On the store's disk first: the metadata server never knows more than that.
    let next = store.next_generation()?;
    let report = StoreReport {
        highest: store.highest(false)?,
        ..registrar.report(there(next), false, false)
    };
    registrar.ask(&report, how)?;
    store.note_heard()?;
    Ok((store, Some(registrar)))
}

/// The directory that a store's description names, for people.
fn place(spec: &str) -> &str {
    let spec = penstock_store::tiered(spec).map_or(spec, |(_, behind)| behind);
    let directory = spec.strip_prefix("dir:");
    let modelled = || spec.split_once(",dir=").map(|(_, path)| path);
    directory.or_else(modelled).unwrap_or(spec)
}

pub(crate) fn there(identity: Option<Identity>) -> StoreState {
    match identity {
        None => StoreState::Empty,
        Some(identity) => StoreState::There {
            store: identity.store,
            generation: identity.generation,
            registered: identity.registered,
            heard: identity.heard,
        },
    }
}

impl Registrar {
    fn report(&self, state: StoreState, renew: bool, adopt: bool) -> StoreReport {
        StoreReport {
            server: self.server.0,
            place: self.place.clone(),
            state,
            mounted: self.mounted,
            renew,
            adopt,
            highest: 0,
        }
    }

    /// Reports an increased generation, and the highest file id.
    pub(crate) fn tell(&self, identity: Option<Identity>, highest: u64) -> Result<(), Error> {
        let report = StoreReport {
            highest,
            ..self.report(there(identity), false, false)
        };
        self.once(&report).map(drop)
    }

    fn once(&self, report: &StoreReport) -> Result<Option<u64>, Error> {
        // The answer waits for the metadata server's disk, which would delay all other requests of this server.
        match self.channel.apart(&MetaRequest::Store(report.clone()))? {
            MetaReply::Store { new } => Ok(new),
            other => Err(unexpected(&other).into()),
        }
    }

    /// The same, waiting for a metadata server that does not run yet.
    fn ask(&self, report: &StoreReport, how: &Registration) -> Result<Option<u64>, Error> {
        let began = now();
        let mut told = began;
        loop {
            let why = match self.once(report) {
                Err(Error::Wire(e)) if is_away(&e) => e,
                Err(Error::Wire(penstock_wire::Error::Refused(why))) => {
                    return Err(Error::Store(StoreError::Refused(why.message)));
                }
                other => return other,
            };
            if how.stop.load(Ordering::SeqCst) {
                return Err(why.into());
            }
            let waited = since(began);
            if waited >= PATIENCE {
                return Err(Error::NoMetadata {
                    server: self.server,
                    meta: named(&self.meta),
                    seconds: waited.as_secs(),
                    why: why.to_string(),
                });
            }
            if since(told) >= TOLD {
                told = now();
                log::info!(
                    "data server {} has waited {} s of at most {} s for the metadata server at {}: {why}",
                    self.server.0,
                    waited.as_secs(),
                    PATIENCE.as_secs(),
                    named(&self.meta)
                );
            }
            thread::sleep(PAUSE);
        }
    }
}

fn named(address: &Address) -> String {
    match (&address.unix, &address.tcp) {
        (Some(path), _) => path.display().to_string(),
        (None, tcp) => tcp.clone().unwrap_or_default(),
    }
}

/// It may answer later.
fn is_away(e: &penstock_wire::Error) -> bool {
    use penstock_wire::Error as Wire;
    match e {
        Wire::TimedOut { .. } | Wire::Closed { .. } | Wire::Io { .. } => true,
        Wire::Refused(why) => matches!(
            why.kind,
            ErrorKind::Busy | ErrorKind::ShuttingDown | ErrorKind::Io
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_directory() {
        assert_eq!(place("dir:/disks/dir"), "/disks/dir");
        assert_eq!(place("model:hdd,dir=/x/dir,dir=y"), "/x/dir,dir=y");
        assert_eq!(place("memory"), "memory");
        assert_eq!(place("fast:/nvme,queue=1GiB;dir:/disks/dir"), "/disks/dir");
    }
}
