//! One connection: requests are answered in order.
//!
//! Requests that the client sent together are processed together. Answers collect in the connection, and are sent when
//! it has nothing more to read, or before the session waits for a lock.
mod lending;

use crate::abuse_limit::AbuseLimit;
use crate::access::Access;
use crate::audited::{Act, Watch};
use crate::error::{Fail, refuse, store_error};
use crate::handles::{Handles, Need, OpenFile};
use crate::load::Cost;
use crate::locks::{Mode, Ticket};
use crate::objects::Want;
use crate::owner::{Acting, Owner};
use crate::passthrough::Lent;
use crate::searches::Searches;
use crate::server::Server;
use crate::tracing::{Trail, operation};
use crate::transfer::{Buffers, Transfer, skip_request};
use penstock_host::thread::sleep;
use penstock_host::time::{now, since};
use penstock_layout::{ObjectOffset, SearchLimit};
use penstock_rpc::{After, Closer, Connection, Peer, Received};
use penstock_sched::Op;
use penstock_sched::ledger::{self, Program};
use penstock_store::Object;
use penstock_wire::credential::Statement;
use penstock_wire::message::{
    Capability, DataReply, DataRequest, ErrorKind, Handle, LockId, LockMode, Region, WireError,
};
use penstock_wire::{Envelope, Role};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a lock that a client may ask for.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(600);
/// More steps of searches for each piece that is found.
const SEARCH_STEPS_PER_PIECE: u64 = 256;

/// The session of one connection.
pub(crate) struct Session<'a> {
    server: &'a Server,
    role: Role,
    acting: Acting,
    /// The version of the revocation list that the credential was last checked against.
    sought: Option<u64>,
    /// Tells when the connection is closed by others.
    line: Closer,
    handles: Handles,
    buffers: Buffers,
    abuse: AbuseLimit,
    watch: Watch<'a>,
    /// Whose account its accesses are on.
    program: Program,
    searching: SearchLimit,
    searches: Arc<Searches>,
    /// What the request that is served leaves in the trace, if one is written.
    trail: Option<RefCell<Trail>>,
}

/// The result of a request, besides its answer.
enum Outcome {
    Reply(DataReply),
    /// The answer has been sent or queued already.
    Answered,
    Stop,
}

/// Moves bytes of a file that is open on the connection of `line`.
fn transfer<'t>(
    server: &'t Server,
    line: &'t Closer,
    (file, program): (&'t OpenFile, Program),
    lock: Option<LockId>,
    trail: Option<&'t RefCell<Trail>>,
) -> Transfer<'t> {
    Transfer {
        objects: &server.objects,
        object: &file.object,
        owner: file.owner,
        line,
        lock: lock.map(|l| Ticket(l.0)),
        queue: &server.queue,
        file: file.file.0,
        grower: file.grower(),
        trail,
        program,
        cost: Cell::default(),
    }
}

/// An access as the ledger has to know it.
struct Served {
    op: Op,
    file: u64,
    /// What of the object it can touch.
    span: Range<u64>,
    bytes: u64,
    began: Instant,
    cost: Cost,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        server: &'a Server,
        peer: &Peer,
        number: u64,
        line: Closer,
        watch: Watch<'a>,
    ) -> Session<'a> {
        let searches = Arc::new(Searches::new(server.long_searches.clone()));
        let (client, slices) = (line.clone(), searches.clone());
        let searching = SearchLimit {
            steps: server.options.search_steps,
            per_piece: SEARCH_STEPS_PER_PIECE,
            wanted: Arc::new(move || {
                slices.slice_ended();
                !client.is_deserted()
            }),
        };
        Session {
            server,
            role: peer.role,
            acting: Acting::new(peer, number),
            sought: None,
            line,
            handles: Handles::default(),
            buffers: Buffers::default(),
            abuse: AbuseLimit::default(),
            watch,
            program: Program {
                number: peer.program,
                user: peer.subject(),
            },
            searching,
            searches,
            trail: None,
        }
    }

    /// Puts an access on the account of the connection's program.
    fn account(&self, served: Served) {
        let server = self.server;
        server.load.serve(&ledger::Access {
            program: self.program,
            file: served.file,
            op: served.op,
            offset: served.span.start,
            end: served.span.end,
            bytes: served.bytes,
            arrived: server.load.at(served.began),
            ended: server.load.at(now()),
            queue: served.cost.queue,
            device: served.cost.device,
        });
        server.control.wake();
    }

    /// Whose rows of the ledger the peer sees; `None`: those of all.
    fn sees(&self) -> Option<u32> {
        // As the metadata server judges who sees the list of programs.
        let all = match self.role {
            Role::Client => self.acting.acts_for_all(),
            _ => self.admin("see the programs of all users").is_ok(),
        };
        (!all).then_some(self.program.user)
    }

    /// Whether the peer's credential is no longer valid.
    fn is_taken_back(&mut self) -> bool {
        let revoked = &self.server.revoked;
        let changes = revoked.changes();
        let sought = self.sought.replace(changes);
        match &self.acting.statement {
            Some(statement) if sought != Some(changes) => revoked.require(statement).is_err(),
            _ => false,
        }
    }

    /// Serves the connection until it ends.
    pub(crate) fn run(&mut self, connection: &mut Connection) -> penstock_wire::Result<After> {
        loop {
            let received = match connection.receive_unless_idle::<DataRequest>() {
                Ok(Some(received)) => received,
                Ok(None) => {
                    connection.shrink();
                    self.buffers = Buffers::default();
                    continue;
                }
                Err(e) if e.is_disconnect() => return Err(e),
                Err(e) => {
                    // Not the protocol, or beyond its limits: answer and close, because frame borders are unknown now.
                    let error = DataReply::Error(WireError::new(e.kind(), e.to_string()));
                    let told = connection
                        .queue(&Envelope::default().answer(), &error)
                        .and_then(|()| connection.flush());
                    if let Err(gone) = told {
                        log::debug!("could not tell: {gone}");
                    }
                    return Err(e);
                }
            };
            if self.is_taken_back() {
                // The client reconnects, and is told why it is refused.
                return Ok(After::Continue);
            }
            let began = now();
            let envelope = received.envelope;
            let act = Act::of(received.body.as_ref());
            if let Some(tracing) = self.server.queue.tracing() {
                let (operation, handle) = operation(received.body.as_ref());
                let mut trail = tracing.begin(began, envelope.trace, operation);
                if let Some(file) = handle.and_then(|handle| self.handles.named(handle)) {
                    trail.about(file.0);
                }
                self.trail = Some(RefCell::new(trail));
            }
            let outcome = match self.handle(connection, received, began) {
                Ok(outcome) => outcome,
                Err(Fail::Reply(e)) => Outcome::Reply(DataReply::Error(e)),
                Err(Fail::Connection(e)) => return Err(e),
            };
            self.searches.ended();
            self.server.counters.request(since(began));
            let reply = match &outcome {
                Outcome::Reply(reply) => Some(reply),
                _ => None,
            };
            if let Some(trail) = self.trail.take() {
                trail.into_inner().end(match reply {
                    Some(DataReply::Error(e)) => Some(e),
                    _ => None,
                });
            }
            act.ended(&self.watch, |handle| self.handles.named(handle), reply);
            let delay = match &outcome {
                Outcome::Reply(DataReply::Error(e)) => self.abuse.another(e.kind),
                _ => {
                    self.abuse.none();
                    Duration::ZERO
                }
            };
            if !delay.is_zero() {
                sleep(delay);
            }
            match outcome {
                Outcome::Reply(reply) => connection.queue(&envelope.answer(), &reply)?,
                Outcome::Answered => {}
                Outcome::Stop => {
                    connection.queue(&envelope.answer(), &DataReply::Done)?;
                    connection.flush()?;
                    return Ok(After::StopServer);
                }
            }
        }
    }

    fn handle(
        &mut self,
        connection: &mut Connection,
        received: Received<DataRequest>,
        began: Instant,
    ) -> Result<Outcome, Fail> {
        let envelope = received.envelope;
        let Some(request) = received.body else {
            return Err(Fail::Connection(penstock_wire::Error::Malformed {
                peer: connection.peer().to_owned(),
                what: format!("payload without a request, id {}", envelope.request),
            }));
        };
        match request {
            DataRequest::Write {
                handle,
                region,
                lock,
            } => return self.write(connection, &envelope, handle, (region, lock), began),
            // Nothing else has payload.
            _ if envelope.more || received.payload_len > 0 => {
                skip_request(connection, &envelope, envelope.more)?;
                return Err(invalid("this request has no payload").into());
            }
            DataRequest::Read {
                handle,
                region,
                lock,
            } => return self.read(connection, &envelope, handle, (region, lock), began),
            DataRequest::Prefetch { handle, region } => {
                return self.prefetch(connection, &envelope, handle, region);
            }
            DataRequest::Shortcut { handle } => {
                return self.shortcut(connection, &envelope, handle);
            }
            DataRequest::Lend { handle, write } => {
                return self.lend(connection, &envelope, handle, write);
            }
            DataRequest::Lock {
                handle,
                start,
                end,
                mode,
                timeout_ms,
            } => {
                // Earlier answers must not wait with this one.
                connection.flush()?;
                return Ok(Outcome::Reply(self.lock(
                    handle,
                    start..end,
                    mode,
                    timeout_ms,
                )?));
            }
            DataRequest::Sync { .. } | DataRequest::SetLen { .. } => connection.flush()?,
            DataRequest::Shutdown => {
                self.admin("stop the server")?;
                log::info!("{} asks for shutdown", connection.peer());
                return Ok(Outcome::Stop);
            }
            _ => {}
        }
        Ok(Outcome::Reply(self.simple(request)?))
    }

    /// Requests with one answer and no payload.
    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
    fn simple(&mut self, request: DataRequest) -> Result<DataReply, WireError> {
        let server = self.server;
        let objects = &server.objects;
        match request {
            DataRequest::Attach { capability } => self.attach(capability),
            DataRequest::Detach { handle } => {
                if let Some(object) = self.handles.detach(handle)? {
                    object.disconnect(self.acting.own());
                }
                Ok(DataReply::Done)
            }
            DataRequest::Len { handle } => {
                let file = self.file(handle, Need::Ask)?;
                let len = match objects.existing(&file.object)? {
                    Some(object) => object.len().map_err(store_error)?,
                    None => 0,
                };
                Ok(DataReply::Len { len })
            }
            DataRequest::SetLen { handle, len } => {
                let file = self.writable(handle)?;
                let object = match len {
                    0 => objects.renewed(&file.object, file.owner)?,
                    _ => objects.created(&file.object, file.owner)?,
                };
                self.cut(file, &*object, len)
            }
            DataRequest::Extend { handle, len } => self.extend(self.writable(handle)?, len),
            DataRequest::Hold { handle, len } => {
                let file = self.writable(handle)?;
                file.reservation.take();
                if len > 0 {
                    let object = objects.created(&file.object, file.owner)?;
                    let _room = objects.usage().grow(file.grower(), &object, len)?;
                    file.reservation.set(object.hold(len).map_err(store_error)?);
                }
                Ok(DataReply::Done)
            }
            DataRequest::Allocate { handle, len } => {
                let file = self.writable(handle)?;
                file.reservation.take();
                let object = objects.created(&file.object, file.owner)?;
                let _growing = objects.usage().grow(file.grower(), &object, len)?;
                let allocated = object.allocate(ObjectOffset(0), len);
                allocated.map_err(store_error)?;
                objects.usage().allocated(file.file, len);
                Ok(DataReply::Done)
            }
            DataRequest::Sync { handle } => {
                let file = self.file(handle, Need::Any)?;
                if !server.options.read_only
                    && let Some(object) = objects.existing(&file.object)?
                {
                    file.object.syncs.run(|| objects.sync(&*object))?;
                }
                let incarnation = server.incarnation();
                Ok(DataReply::Synced { incarnation })
            }
            DataRequest::Unlock { handle, lock } => {
                let file = self.file(handle, Need::Any)?;
                file.object.unlock(file.owner, Ticket(lock.0))?;
                Ok(DataReply::Done)
            }
            DataRequest::Remove { capability } => {
                let owner = self.verify(&capability)?;
                if !capability.remove {
                    return Err(refuse(
                        ErrorKind::Permission,
                        format!(
                            "the capability does not allow removing file {}",
                            capability.file.0
                        ),
                    ));
                }
                server.writable()?;
                objects.remove(capability.file, owner)?;
                Ok(DataReply::Done)
            }
            DataRequest::Look { capability } => {
                self.verify(&capability)?;
                match objects.look(capability.file)? {
                    Some(object) => Ok(DataReply::Looked {
                        len: object.len().map_err(store_error)?,
                        modified_ns: Some(object.modified_ns().map_err(store_error)?),
                    }),
                    None => Ok(DataReply::Looked {
                        len: 0,
                        modified_ns: None,
                    }),
                }
            }
            DataRequest::Drain => {
                self.admin("drain the fast tier")?;
                server.tier("drain")?.drain();
                Ok(DataReply::Done)
            }
            DataRequest::Status => {
                let mut status = server.status()?;
                if let Some(user) = self.sees() {
                    server.load.hide(&mut status.sched, user);
                }
                Ok(DataReply::Status(Box::new(status)))
            }
            DataRequest::Ledger => {
                let status = server.load.status(self.sees());
                Ok(DataReply::Ledger(Box::new(status)))
            }
            DataRequest::ListObjects { after, limit } => {
                self.admin("list all objects")?;
                server.list(after, limit)
            }
            DataRequest::RemoveObject { file } => {
                self.admin("remove objects without a capability")?;
                server.writable()?;
                objects.remove(file, self.acting.own())?;
                Ok(DataReply::Done)
            }
            DataRequest::Verify => {
                self.admin("verify the store")?;
                server.verify()
            }
            DataRequest::CountBytes { anew } => {
                self.admin("see what users' bytes are counted")?;
                Ok(DataReply::Counted(objects.usage().counts(anew)))
            }
            DataRequest::Accept { file } => {
                self.admin("accept damaged objects")?;
                server.writable()?;
                // Nobody may be writing it, not by a shortcut either.
                let open = objects.open(file);
                let deadline = now() + server.options.plain_write_wait;
                let _object = match objects.existing(&open) {
                    // What is lost is not there to be held.
                    Err(e) if e.kind == ErrorKind::Damaged => None,
                    found => found?,
                };
                let all = Want {
                    range: 0..u64::MAX,
                    mode: Mode::Exclusive,
                    lent: Lent::Awaited,
                    lend_to: None,
                };
                let ticket = open.lock(self.acting.own(), &self.line, all, deadline)?;
                let done = objects.store().accept(file).map_err(store_error);
                open.unlock(self.acting.own(), ticket)?;
                done?;
                Ok(DataReply::Done)
            }
            DataRequest::Tune { settings } => {
                self.admin("change settings")?;
                server.tune(&settings)?;
                Ok(DataReply::Done)
            }
            DataRequest::LoadKeys => {
                self.admin("have keys read again")?;
                server.keys.load_again().map(DataReply::Keys)
            }
            DataRequest::Read { .. }
            | DataRequest::Prefetch { .. }
            | DataRequest::Write { .. }
            | DataRequest::Lock { .. }
            | DataRequest::Shortcut { .. }
            | DataRequest::Lend { .. }
            | DataRequest::Shutdown => Err(invalid("not a simple request")),
        }
    }

    // ---- lengths ----

    /// Runs `f` while nobody else reads or writes `range`.
    fn alone(
        &self,
        file: &OpenFile,
        range: std::ops::Range<u64>,
        lent: Lent,
        f: impl FnOnce() -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let deadline = now() + self.server.options.plain_write_wait;
        let want = Want {
            range,
            mode: Mode::Exclusive,
            lent,
            lend_to: file.lend_to,
        };
        let ticket = file.object.lock(file.owner, &self.line, want, deadline)?;
        let done = f();
        file.object.unlock(file.owner, ticket)?;
        done
    }

    /// Truncates or extends the object to `len` bytes.
    fn cut(&self, file: &OpenFile, object: &dyn Object, len: u64) -> Result<DataReply, WireError> {
        let deadline = now() + self.server.options.plain_write_wait;
        while now() < deadline {
            let end = object.len().map_err(store_error)?;
            if len >= end {
                return self.extend(file, len);
            }
            // Nobody may be reading or writing what is removed. Locks beyond the end, which programs use as signals, do
            // not delay this. A writer that extends the object meanwhile may hold a lock on its range: then that must
            // end first.
            let mut done = false;
            self.alone(file, len..end, Lent::Ignored, || {
                done = object.cut(len, end).map_err(store_error)?;
                Ok(())
            })?;
            if done {
                let objects = &self.server.objects;
                // The space will be used by others: a power loss must not restore the bytes.
                if objects.usage().limits(file.file)
                    && let Err(e) = objects.sync(object)
                {
                    log::warn!("file {}: cut, and not synced: {}", file.file.0, e.message);
                }
                objects.usage().cut(file.file, object);
                return Ok(DataReply::Done);
            }
        }
        Err(refuse(
            ErrorKind::Busy,
            format!(
                "the object is made longer by others as often as it is to be cut to {len} bytes; try again"
            ),
        ))
    }

    /// Makes the object at least `len` bytes long. Concurrent writes beyond that are preserved.
    fn extend(&self, file: &OpenFile, len: u64) -> Result<DataReply, WireError> {
        if len == 0 {
            return Ok(DataReply::Done);
        }
        let object = self.server.objects.created(&file.object, file.owner)?;
        let usage = self.server.objects.usage();
        let _growing = usage.grow(file.grower(), &object, len)?;
        if object.extend(len).map_err(store_error)? {
            return Ok(DataReply::Done);
        }
        // Between looking and extending nobody may make it longer; whoever does, writes the bytes from here to there or some
        // behind them. Locks behind all objects are signs that programs give each other.
        let end = object.len().map_err(store_error)?;
        if end < len {
            self.alone(file, end..u64::MAX, Lent::Awaited, || {
                if object.len().map_err(store_error)? < len {
                    object.set_len(len).map_err(store_error)?;
                }
                Ok(())
            })?;
        }
        Ok(DataReply::Done)
    }

    // ---- rights ----

    fn admin(&self, what: &str) -> Result<(), WireError> {
        let ended = |credential: &Statement| self.server.now_ms() >= credential.end_ms;
        if self.role == Role::Admin && !self.acting.statement.as_ref().is_some_and(ended) {
            return Ok(());
        }
        Err(refuse(
            ErrorKind::Permission,
            format!(
                "only an administrator may {what}; connect as one, with a credential that has not ended"
            ),
        ))
    }

    fn file(&self, handle: Handle, need: Need) -> Result<&OpenFile, WireError> {
        let judge = |now_ms| self.handles.get(handle, need, now_ms);
        self.server.clock.judged(judge)
    }

    fn writable(&self, handle: Handle) -> Result<&OpenFile, WireError> {
        let file = self.file(handle, Need::Write)?;
        self.server.writable()?;
        Ok(file)
    }

    /// The owner that uses a valid capability.
    fn verify(&self, capability: &Capability) -> Result<Owner, WireError> {
        self.server.keys.verify_seal(capability)?;
        let clock = &self.server.clock;
        clock.saw(capability.issued_ms);
        let user = self.acting.with_capability_of(capability.subject);
        let owner = user.map_err(|peer| {
            refuse(
                ErrorKind::BadCapability,
                format!(
                    "the capability for file {} was given to user {}, and this is user {peer}; open the file as that user",
                    capability.file.0, capability.subject
                ),
            )
        })?;
        clock.judged(|now_ms| capability.verify_time(now_ms))?;
        Ok(owner)
    }

    fn attach(&mut self, capability: Capability) -> Result<DataReply, WireError> {
        let owner = self.verify(&capability)?;
        let id = self.server.id;
        let index = capability.layout.index_of(id).ok_or_else(|| {
            invalid(format!(
                "file {} has no part on data server {}; its layout names other servers",
                capability.file.0, id.0
            ))
        })?;
        let server = self.server;
        let charge = || server.open_files.take(owner.payer);
        let open = |file| server.objects.open(file);
        let handle = self
            .handles
            .attach(capability, index, owner, charge, open)?;
        let incarnation = server.incarnation();
        Ok(DataReply::Attached {
            handle,
            incarnation,
        })
    }

    // ---- bytes ----

    /// `None`: the client has to send the loop.
    fn access(&self, file: &OpenFile, region: Region) -> Result<Option<Access>, WireError> {
        let (layout, index) = (&file.layout, file.index);
        let limited = |access: Access| Some(access.limited(&self.searching));
        let structured = |tile, disp, start, len| {
            Access::structured(layout, index, tile, disp, start, len).map(limited)
        };
        match region {
            Region::Contiguous { offset, len } => {
                Access::contiguous(layout, index, offset, len).map(Some)
            }
            Region::List(regions) => Access::list(layout, index, &regions).map(limited),
            Region::LoopHash {
                hash,
                disp,
                start,
                len,
            } => match self.server.known_loop(&hash) {
                Some(tile) => structured(tile, disp, start, len),
                None => Ok(None),
            },
            Region::LoopInline {
                encoded,
                disp,
                start,
                len,
            } => structured(self.server.learn_loop(&encoded)?, disp, start, len),
        }
    }

    fn read(
        &mut self,
        connection: &mut Connection,
        envelope: &Envelope,
        handle: Handle,
        (region, lock): (Region, Option<LockId>),
        began: Instant,
    ) -> Result<Outcome, Fail> {
        let handles = &self.handles;
        let judge = |now_ms| handles.get(handle, Need::Read, now_ms);
        let file = self.server.clock.judged(judge)?;
        let Some(access) = self.access(file, region)? else {
            return Ok(Outcome::Reply(DataReply::UnknownLoop));
        };
        let (file_id, span) = (file.file.0, access.bounds());
        let transfer = transfer(
            self.server,
            &self.line,
            (file, self.program),
            lock,
            self.trail.as_ref(),
        );
        let sent = transfer.read(connection, &mut self.buffers, envelope, access)?;
        let cost = transfer.cost.get();
        self.server.counters.read(sent);
        self.account(Served {
            op: Op::Read,
            file: file_id,
            span,
            bytes: sent,
            began,
            cost,
        });
        Ok(Outcome::Answered)
    }

    /// Answers, and then fetches: what is sent after the answer comes behind.
    fn prefetch(
        &mut self,
        connection: &mut Connection,
        envelope: &Envelope,
        handle: Handle,
        region: Region,
    ) -> Result<Outcome, Fail> {
        let handles = &self.handles;
        let judge = |now_ms| handles.get(handle, Need::Read, now_ms);
        let file = self.server.clock.judged(judge)?;
        let Some(mut access) = self.access(file, region)? else {
            return Ok(Outcome::Reply(DataReply::UnknownLoop));
        };
        let began = now();
        let (file_id, span) = (file.file.0, access.bounds());
        let transfer = transfer(
            self.server,
            &self.line,
            (file, self.program),
            None,
            self.trail.as_ref(),
        );
        let fetch = transfer
            .object
            .fetches
            .begin(self.program, access.span(u64::MAX));
        connection.queue(&envelope.answer(), &DataReply::Done)?;
        connection.flush()?;
        if let Err(e) = transfer.prefetch(&mut self.buffers, envelope, access, &fetch) {
            log::debug!("prefetch for {}: {}", connection.peer(), e.message);
        }
        drop(fetch);
        let cost = transfer.cost.get();
        // Its time counts. Its bytes do when they are read.
        self.account(Served {
            op: Op::Read,
            file: file_id,
            span,
            bytes: 0,
            began,
            cost,
        });
        Ok(Outcome::Answered)
    }

    fn write(
        &mut self,
        connection: &mut Connection,
        envelope: &Envelope,
        handle: Handle,
        (region, lock): (Region, Option<LockId>),
        began: Instant,
    ) -> Result<Outcome, Fail> {
        let handles = &self.handles;
        let prepared = self
            .server
            .clock
            .judged(|now_ms| handles.get(handle, Need::Write, now_ms))
            .and_then(|file| self.server.writable().map(|()| file))
            .and_then(|file| Ok((file, self.access(file, region)?)));
        let (file, access) = match prepared {
            Ok((file, Some(access))) => (file, access),
            refused => {
                // The payload is on its way all the same.
                skip_request(connection, envelope, envelope.more)?;
                return match refused {
                    Err(e) => Err(e.into()),
                    Ok(_) => Ok(Outcome::Reply(DataReply::UnknownLoop)),
                };
            }
        };
        let (file_id, span) = (file.file.0, access.bounds());
        let transfer = transfer(
            self.server,
            &self.line,
            (file, self.program),
            lock,
            self.trail.as_ref(),
        );
        let bytes = transfer.write(connection, &mut self.buffers, envelope, access)?;
        let cost = transfer.cost.get();
        self.server.counters.written(bytes);
        self.account(Served {
            op: Op::Write,
            file: file_id,
            span,
            bytes,
            began,
            cost,
        });
        Ok(Outcome::Reply(DataReply::Written { bytes }))
    }

    fn lock(
        &mut self,
        handle: Handle,
        range: std::ops::Range<u64>,
        mode: LockMode,
        timeout_ms: u64,
    ) -> Result<DataReply, WireError> {
        let (mode, need) = match mode {
            LockMode::Shared => (Mode::Shared, Need::Any),
            LockMode::Exclusive => (Mode::Exclusive, Need::Write),
        };
        if range.is_empty() {
            return Err(invalid(format!(
                "a lock on the empty range {}..{}",
                range.start, range.end
            )));
        }
        let file = self.file(handle, need)?;
        let wait = Duration::from_millis(timeout_ms).min(MAX_LOCK_WAIT);
        // An earlier server may have lent the object: it stays open during this check.
        let _object = self.server.objects.existing(&file.object)?;
        let want = Want {
            range,
            mode,
            lent: Lent::Awaited,
            lend_to: file.lend_to,
        };
        let ticket = file
            .object
            .lock(file.owner, &self.line, want, now() + wait)?;
        Ok(DataReply::Locked {
            lock: LockId(ticket.0),
        })
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        for object in self.handles.objects() {
            object.disconnect(self.acting.own());
        }
    }
}

fn invalid(message: impl Into<String>) -> WireError {
    refuse(ErrorKind::InvalidArgument, message)
}
