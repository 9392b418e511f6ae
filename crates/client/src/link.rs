//! A connection to a server, and the handling of broken ones.
//!
//! *Problem*: requests sent on a broken connection may still be carried out, after they were repeated on another.
//! *Idea*: a link dropped with something unanswered leaves its name with the [`Endpoint`]. Before anything else is sent
//! to that server, a connection of the same name and a higher generation is made. When the server accepts it, the old
//! one has ended (`crates/rpc/src/fence.rs`). So no request is repeated, and none begun after a failed one, while an
//! earlier copy can still take effect. *Bounds*: the names left behind are at most as many as there were connections at
//! once. No other connection is made while there are any.
use crate::error::{Error, Peer};
use crate::fault::Fault;
use crate::guard::guard;
use crate::lane::Buffers;
use crate::memory::Stretch;
use crate::unsynced::{Numbers, Taken};
use penstock_host::sync::Mutex;
use penstock_layout::FileId;
use penstock_rpc::deployment::Address;
use penstock_rpc::{Caller, Connection, Received, Timeouts, connect_as};
use penstock_wire::message::{
    DataReply, DataRequest, ErrorKind, Handle, MetaReply, MetaRequest, ProgramInfo, TraceContext,
};
use penstock_wire::{Envelope, LinkName};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long closing waits for a server.
const CLOSE: Duration = Duration::from_secs(2);

/// What a server gives one handle on a connection: a file, opened for (reading, writing).
pub(crate) type OpenAs = (FileId, bool, bool);

/// A file open on a connection.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub handle: Handle,
    /// When its capability ends, by the metadata server's time.
    pub expires_ms: u64,
    /// The same by this machine's steady clock.
    pub ends: Option<Instant>,
    /// The incarnation that takes its writes.
    pub taken: Taken,
    /// Gone when the file has been closed that it was attached for.
    pub open: Weak<()>,
}

impl Attachment {
    pub fn is_closed(&self) -> bool {
        self.open.strong_count() == 0
    }
}

/// Where a server is and how to reach it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub peer: Peer,
    address: Address,
    caller: Arc<Caller>,
    timeouts: Timeouts,
    /// What each connection is listed as, by the metadata server.
    listed: Option<ProgramInfo>,
    /// Connections that were dropped with something unanswered.
    severed: Mutex<Vec<LinkName>>,
    /// Tries to fence them that failed.
    unfenced: AtomicU64,
    /// The incarnations that it has worked in.
    pub incarnations: Numbers,
}

impl Endpoint {
    pub fn new(
        peer: Peer,
        address: Address,
        caller: Arc<Caller>,
        timeouts: Timeouts,
        listed: Option<ProgramInfo>,
    ) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            peer,
            address,
            caller,
            timeouts,
            listed,
            severed: Mutex::new(Vec::new()),
            unfenced: AtomicU64::new(0),
            incarnations: Numbers::default(),
        })
    }

    /// It has a Unix socket, though perhaps not on this host.
    pub fn is_local(&self) -> bool {
        self.address.unix.is_some()
    }

    /// A connection of a new link.
    pub fn open(self: &Arc<Self>, operation: &'static str, epoch: u64) -> Result<Link, Fault> {
        let name = LinkName::new().map_err(|e| self.fault(e, operation))?;
        self.connect(name, operation, epoch)
    }

    /// Makes sure that no request of severed connections is carried out any more; returns the connection that was made
    /// for it, if any.
    pub fn fence(
        self: &Arc<Self>,
        operation: &'static str,
        epoch: u64,
    ) -> Result<Option<Link>, Fault> {
        let failed = self.unfenced.load(Relaxed);
        // Held while connecting: no request may pass a fence that is being established.
        let mut severed = guard(&self.severed);
        let mut link = None;
        while let Some(name) = severed.last_mut() {
            if self.unfenced.load(Relaxed) != failed {
                // Those who have waited need not wait as long again.
                return Err(Fault::Away("no answer to another's new connection".into()));
            }
            // The server may have seen this one even if we never hear of it.
            *name = name.successor();
            match self.connect(*name, operation, epoch) {
                Ok(new) => link = Some(new),
                Err(fault) => {
                    self.unfenced.fetch_add(1, Relaxed);
                    return Err(fault);
                }
            }
            severed.pop();
        }
        Ok(link)
    }

    fn connect(
        self: &Arc<Self>,
        name: LinkName,
        operation: &'static str,
        epoch: u64,
    ) -> Result<Link, Fault> {
        match connect_as(&self.address, &self.caller, name, self.timeouts) {
            Ok(connection) => {
                let mut link = Link {
                    connection,
                    epoch,
                    next: 1,
                    attached: HashMap::new(),
                    closes: 0,
                    buffers: Buffers::default(),
                    name,
                    asked: 0,
                    lent: false,
                    server: self.clone(),
                };
                if let Some(program) = &self.listed {
                    link.register(program)?;
                }
                Ok(link)
            }
            Err(penstock_wire::Error::TimedOut { .. }) => {
                Err(Fault::Away("no answer to a new connection".into()))
            }
            Err(e) => Err(self.fault(e, operation)),
        }
    }

    /// What an answer means that is not the one hoped for.
    pub fn unexpected(&self, operation: &'static str, reply: DataReply) -> Fault {
        match reply {
            DataReply::Error(e) => self.fault(penstock_wire::Error::Refused(e), operation),
            other => Fault::Final(Error::Protocol {
                peer: self.peer.clone(),
                operation,
                detail: format!("unexpected answer {other:?}"),
            }),
        }
    }

    fn fault(&self, e: penstock_wire::Error, operation: &'static str) -> Fault {
        use penstock_wire::Error as Wire;
        match e {
            Wire::TimedOut { after, .. } => Fault::Final(Error::Timeout {
                peer: self.peer.clone(),
                operation,
                waited: after,
            }),
            Wire::Closed { .. } | Wire::Io { .. } | Wire::Broken { .. } => {
                Fault::Away(e.to_string())
            }
            Wire::Refused(source)
                if matches!(source.kind, ErrorKind::Busy | ErrorKind::ShuttingDown) =>
            {
                Fault::Away(source.message)
            }
            Wire::Refused(source) => Fault::Final(Error::Refused {
                peer: self.peer.clone(),
                operation,
                source,
            }),
            Wire::BadKey(_) | Wire::Version { .. } | Wire::KeyFile { .. } => {
                Fault::Final(Error::Refused {
                    peer: self.peer.clone(),
                    operation,
                    source: e.into(),
                })
            }
            e => Fault::Final(Error::Protocol {
                peer: self.peer.clone(),
                operation,
                detail: e.to_string(),
            }),
        }
    }
}

/// A connection with what belongs to it.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    pub server: Arc<Endpoint>,
    /// Of its pool, when it was made.
    pub epoch: u64,
    pub attached: HashMap<OpenAs, Attachment>,
    /// Files that its pool had closed when the closed ones were last looked for here.
    pub closes: u64,
    next: u64,
    buffers: Buffers,
    name: LinkName,
    /// Requests that have not been answered.
    asked: usize,
    /// Lent to a lane, which tracks its own requests.
    lent: bool,
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.asked > 0 || self.lent {
            guard(&self.server.severed).push(self.name);
        }
    }
}

impl Link {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    pub fn is_unix(&self) -> bool {
        self.connection.is_unix()
    }

    pub fn version(&self) -> u16 {
        self.connection.version()
    }

    /// Registers the program. Nothing depends on it, so a refusal is ignored.
    fn register(&mut self, program: &ProgramInfo) -> Result<(), Fault> {
        let request = MetaRequest::Register(program.clone());
        let trace = TraceContext::default();
        let reply = self.converse("register", trace, &request, &mut false);
        // Nor does a late execution matter: a connection that breaks here leaves no name behind.
        self.asked = 0;
        if let MetaReply::Error(e) = reply? {
            log::debug!("the metadata server does not list this program: {e}");
        }
        Ok(())
    }

    /// Lends request ids and buffers to a lane.
    pub fn lend(&mut self) -> (u64, Buffers) {
        self.lent = true;
        (self.next, std::mem::take(&mut self.buffers))
    }

    /// Takes them back. `clean`: everything that the lane has sent is answered.
    pub fn restore(&mut self, (next, buffers): (u64, Buffers), clean: bool) {
        self.next = next;
        self.buffers = buffers;
        self.lent = !clean;
    }

    /// Sends what can go now of these stretches; they must stay as they are until they have been sent.
    pub fn send_some(&mut self, stretches: &[Stretch]) -> std::io::Result<usize> {
        let slices: Vec<_> = stretches
            .iter()
            // SAFETY: the stretches lie in the lane's output buffer, which does not change before they are sent, or in
            // the caller's source buffer. The exchange borrows that for its whole life. They are only read, and only
            // during this call.
            .map(|s| IoSlice::new(unsafe { std::slice::from_raw_parts(s.base, s.len) }))
            .collect();
        self.connection.send_some(&slices)
    }

    /// Sends what a call before has taken and not sent.
    pub fn push_some(&mut self) -> std::io::Result<()> {
        self.connection.push_some()
    }

    /// There is such.
    pub fn is_pending(&self) -> bool {
        self.connection.is_pending()
    }

    /// Receives what is there now; 0 = the peer has closed.
    pub fn receive_some(&mut self, stretches: &[Stretch]) -> std::io::Result<usize> {
        let mut slices: Vec<_> = stretches
            .iter()
            // SAFETY: the stretches lie in the lane's input buffer behind its valid part, or in the caller's target
            // buffer. The exchange borrows that exclusively for its whole life. They don't overlap. Nothing else looks
            // at them during this call.
            .map(|s| IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(s.base, s.len) }))
            .collect();
        self.connection.receive_some(&mut slices)
    }

    /// The server has not closed it, and nothing has come that nobody asked for. To be called between calls.
    pub fn is_open(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        matches!(
            rustix::net::recv(self.fd(), &mut byte, flags),
            Err(rustix::io::Errno::AGAIN)
        )
    }

    /// Closes at the server what is still attached here for files that have been closed.
    pub fn close_left(&mut self) -> Result<(), Fault> {
        let left = self.attached.extract_if(|_, at| at.is_closed());
        let left: Vec<Handle> = left.map(|(_, at)| at.handle).collect();
        if left.is_empty() {
            return Ok(());
        }
        self.set_patience(Some(CLOSE))?;
        for handle in left {
            let request = DataRequest::Detach { handle };
            // A handle that the server does not know counts as closed.
            let _: DataReply = self.call("close", TraceContext::default(), &request)?;
        }
        self.set_patience(None)
    }

    /// Waits at most this long for an answer from now on.
    pub fn set_patience(&mut self, answer: Option<Duration>) -> Result<(), Fault> {
        let mut timeouts = self.server.timeouts;
        if answer.is_some() {
            timeouts.read = answer;
        }
        self.connection
            .set_timeouts(timeouts)
            .map_err(|e| self.server.fault(e, "set a time-out"))
    }

    /// Sends a request without payload; the answer is taken by [`Link::answer`].
    pub fn ask<R: serde::Serialize>(
        &mut self,
        operation: &'static str,
        trace: TraceContext,
        request: &R,
    ) -> Result<u64, Fault> {
        let id = self.next;
        self.next += 1;
        self.asked += 1;
        self.connection
            .queue(&Envelope::request(id, trace), request)
            .and_then(|()| self.connection.flush())
            .map_err(|e| self.server.fault(e, operation))?;
        Ok(id)
    }

    /// The answer to request `id`.
    pub fn answer<R: serde::de::DeserializeOwned>(
        &mut self,
        operation: &'static str,
        id: u64,
    ) -> Result<R, Fault> {
        let received = self.connection.receive::<R>();
        self.take(operation, id, received)
    }

    /// Both at once. `sent` becomes true when the request may arrive.
    pub fn converse<Q: serde::Serialize, R: serde::de::DeserializeOwned>(
        &mut self,
        operation: &'static str,
        trace: TraceContext,
        request: &Q,
        sent: &mut bool,
    ) -> Result<R, Fault> {
        let id = self.next;
        self.next += 1;
        self.asked += 1;
        let envelope = Envelope::request(id, trace);
        let received = self.connection.call(&envelope, request, sent);
        self.take(operation, id, received)
    }

    fn take<R>(
        &mut self,
        operation: &'static str,
        id: u64,
        received: penstock_wire::Result<Received<R>>,
    ) -> Result<R, Fault> {
        let received = received.map_err(|e| self.server.fault(e, operation))?;
        let protocol = |detail: String| {
            Fault::Final(Error::Protocol {
                peer: self.server.peer.clone(),
                operation,
                detail,
            })
        };
        if received.envelope.request != id || !received.envelope.reply || received.payload_len > 0 {
            return Err(protocol(format!(
                "a reply that request {id} did not ask for"
            )));
        }
        let body = received
            .body
            .ok_or_else(|| protocol("an empty reply".into()))?;
        self.asked -= 1;
        Ok(body)
    }

    /// Descriptors that came beside the last answer.
    pub fn descriptors(&mut self) -> Vec<OwnedFd> {
        self.connection.take_descriptors()
    }

    /// One request to a data server and its answer; errors of the server are in the reply.
    pub fn call(
        &mut self,
        operation: &'static str,
        trace: TraceContext,
        request: &DataRequest,
    ) -> Result<DataReply, Fault> {
        self.converse(operation, trace, request, &mut false)
    }
}
