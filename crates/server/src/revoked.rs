//! The list of revoked credentials ([`penstock_wire::revocation`]) at a data server.
//!
//! A thread asks the metadata server every few seconds. While the metadata server cannot be reached the known list
//! stays in force. A data server that has just started has none until the first answer.
use crate::channel::{Channel, Need, unexpected};
use crate::error::Error;
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_layout::ServerId;
use penstock_rpc::Background;
use penstock_wire::credential::Statement;
use penstock_wire::message::{MetaReply, MetaRequest, WireError};
use penstock_wire::revocation::{ASK, Revocations};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Time until it asks again after a request without an answer.
const ASK_UNANSWERED: Duration = Duration::from_secs(1);

/// The list, updated by a thread.
#[derive(Debug, Default)]
pub(crate) struct Revoked {
    shared: Arc<Shared>,
    thread: Background,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
    /// Increases with each change of the list, readable without its lock.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    list: Option<Arc<Revocations>>,
    stop: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A list is replaced as a whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Revoked {
    /// Asks from now on.
    pub(crate) fn follow(&self, id: ServerId, channel: Arc<Channel>) -> Result<(), Error> {
        let shared = self.shared.clone();
        let run = move || run(&shared, &channel);
        self.thread.start("revocations", run).map_err(|source| {
            Error::Wire(penstock_wire::Error::Io {
                what: "start a thread for the revocations of",
                peer: format!("data server {}", id.0),
                source,
            })
        })
    }

    /// Ends the thread and waits for it. The channel has stopped before.
    pub(crate) fn stop(&self) {
        self.shared.state().stop = true;
        self.shared.stopped.notify_all();
        self.thread.join("asks for revocations");
    }

    /// Rises with each change of the list.
    pub(crate) fn changes(&self) -> u64 {
        self.shared.changes.load(Ordering::Acquire)
    }

    /// Refuses a credential that is in the list.
    pub(crate) fn require(&self, statement: &Statement) -> Result<(), WireError> {
        let list = self.shared.state().list.clone();
        list.map_or(Ok(()), |list| list.require(statement))
    }
}

impl Drop for Revoked {
    /// Of a server that has not been started after all.
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.stopped.notify_all();
    }
}

/// The list, if it differs from the known one.
fn ask(channel: &Channel, known: Option<u64>) -> penstock_wire::Result<Option<Revocations>> {
    match channel.ask(Need::Seldom, &MetaRequest::Revocations { known })? {
        MetaReply::Revoked(list) => Ok(list),
        other => Err(unexpected(&other)),
    }
}

fn run(shared: &Shared, channel: &Channel) {
    let mut state = shared.state();
    while !state.stop {
        let known = state.list.as_ref().map(|list| list.version);
        drop(state);
        let answer = ask(channel, known);
        state = shared.state();
        let pause = if answer.is_ok() { ASK } else { ASK_UNANSWERED };
        match answer {
            Ok(Some(list)) => {
                state.list = Some(Arc::new(list));
                shared.changes.fetch_add(1, Ordering::Release);
            }
            Ok(None) => {}
            Err(e) => log::debug!("the metadata server is not there to tell of revocations: {e}"),
        }
        if !state.stop {
            let waited = shared.stopped.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
