//! Requests of a data server as events (arrival, dispatch, completion), whatever version of the format they stand in.
//!
//! What learns from traces ([`Event`]) sees a server's slices of requests. In streams these are Queue and Store records
//! below a Server record, which come in one group. Here they become events, and events become such records.
//! What clients moved by descriptors no server saw: it stands as Store records in the streams of processes. Those that lie
//! beside a server's trace are read as well, and tell the MPI call of each request.
//! A Server record that nothing is below is an arrival alone: merged and generated traces consist of them.
use crate::error::{Error, Result};
use crate::event::{Event, Kind};
use crate::old_format::Header;
use crate::old_reader::OldReader;
use crate::operations::{Kind as Does, Operation};
use crate::record::{Caller, Layer, NO_SERVER, Parent, Record, StreamHead};
use crate::recorder::Summary;
use crate::stream::{Block, FileName, Reading, Stream, StreamWriter, Trace};
use penstock_base::{Numbered, Op};
use std::collections::{HashMap, VecDeque};
use std::path::Path;

/// Requests that wait for their completion while events become records.
const WAITING: usize = 64 << 10;

/// Reads a server's trace of any version as events.
#[derive(Debug)]
pub struct Reader {
    header: Header,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Old(Box<OldReader>),
    New(Box<New>),
}

/// A stream that is read block by block.
#[derive(Debug)]
struct New {
    stream: Stream,
    next: usize,
    over: bool,
    below: Below,
    processes: Processes,
}

impl Reader {
    /// Opens a trace.
    pub fn open(path: &Path) -> Result<Reader> {
        match OldReader::open(path) {
            Ok(old) => Ok(Reader {
                header: *old.header(),
                source: Source::Old(Box::new(old)),
            }),
            Err(Error::Version { .. }) => {
                let stream = Stream::open(path)?;
                let head = stream.head();
                let header = Header {
                    server: head.server.ok_or_else(|| Error::Invalid(format!(
                        "{} is of a process, not of a data server; here a data-N.trace is needed",
                        path.display()
                    )))?,
                    servers: head.servers.max(1),
                    unit: head.unit.max(1),
                    began: head.began,
                    repetitions: head.repetitions.max(1),
                };
                Ok(Reader {
                    header,
                    source: Source::New(Box::new(New {
                        stream,
                        next: 0,
                        over: false,
                        below: Below::default(),
                        processes: Processes::beside(path, &header),
                    })),
                })
            }
            Err(e) => Err(e),
        }
    }

    /// What the trace says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What its end says, once it has been read. It counts records in a stream.
    pub fn summary(&self) -> Option<Summary> {
        match &self.source {
            Source::Old(old) => old.summary(),
            Source::New(new) => {
                (new.over && new.stream.damage().is_none()).then(|| new.stream.summary())
            }
        }
    }

    /// Appends the next block's events to `out`, nearly in the order of time. False: the trace is over. After an error nothing
    /// more can be read.
    pub fn next_block(&mut self, out: &mut Vec<Event>) -> Result<bool> {
        match &mut self.source {
            Source::Old(old) => old.next_block(out),
            Source::New(new) => new.next_block(out),
        }
    }
}

impl New {
    fn next_block(&mut self, out: &mut Vec<Event>) -> Result<bool> {
        if self.over {
            return Ok(false);
        }
        let stream = &self.stream;
        let Some(info) = stream.blocks().get(self.next) else {
            let from = out.len();
            self.below.end(stream, out);
            self.processes.name_calls(&mut out[from..]);
            if out.len() > from {
                return Ok(true);
            }
            if let Some(damage) = stream.damage() {
                self.over = true;
                return Err(damage);
            }
            let more = self.processes.next_block(out)?;
            self.over = !more;
            return Ok(more);
        };
        self.next += 1;
        // What stands behind a hole is not handed out: its parents may be missing.
        let block = stream.read(info).inspect_err(|_| self.over = true)?;
        let from = out.len();
        for record in &block.records {
            self.below.add(stream, record, out);
        }
        self.processes.name_calls(&mut out[from..]);
        out[from..].sort_by_key(|e| (e.at, e.request, e.kind));
        Ok(true)
    }
}

/// All events of a trace in the order of time, those before any damage if there is some, and the error then.
pub fn read_all(path: &Path) -> Result<(Header, Vec<Event>, Option<Error>)> {
    let mut reader = Reader::open(path)?;
    let mut events = Vec::new();
    let damage = loop {
        match reader.next_block(&mut events) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(e) if e.leaves_a_part() => break Some(e),
            Err(e) => return Err(e),
        }
    };
    if matches!(reader.source, Source::New(_)) {
        events.sort_by_key(|e| (e.at, e.request, e.kind));
    }
    Ok((reader.header, events, damage))
}

/// Calls of processes that are remembered with their MPI calls.
const CALLS: usize = 8 << 20;

/// Streams of processes beside a server's trace.
#[derive(Debug, Default)]
struct Processes {
    server: u32,
    began: u64,
    streams: Vec<Stream>,
    /// The next block: of which stream, and which of it.
    next: (usize, usize),
    /// By program, rank and client call: the MPI call.
    mpi: HashMap<(u64, u32, u64), u64>,
}

impl Processes {
    fn beside(path: &Path, header: &Header) -> Processes {
        let mut beside = Processes {
            server: header.server,
            began: header.began,
            ..Processes::default()
        };
        // A trace by another name may be of another run: merged, copied, converted.
        let own = format!("data-{}.trace", header.server);
        if path.file_name().is_none_or(|name| name != own.as_str()) || header.repetitions > 1 {
            return beside;
        }
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let Ok(all) = Trace::open(dir.unwrap_or(Path::new("."))) else {
            return beside;
        };
        beside.streams = all.streams;
        beside
            .streams
            .retain(|stream| stream.head().server.is_none());
        let mut reading = Reading::new();
        let mut block = Block::default();
        for stream in &beside.streams {
            let head = stream.head();
            for info in stream.blocks().iter().filter(|b| b.has(Layer::Client)) {
                if reading.read(stream, info, &mut block).is_err() {
                    continue;
                }
                for record in block.records.iter().filter(|r| r.layer == Layer::Client) {
                    if let Parent::Here(mpi) = record.parent
                        && beside.mpi.len() < CALLS
                    {
                        beside.mpi.insert((head.program, head.rank, record.id), mpi);
                    }
                }
            }
        }
        beside
    }

    fn name_calls(&self, events: &mut [Event]) {
        if self.mpi.is_empty() {
            return;
        }
        for e in events {
            let call = (e.program, e.rank, e.client_call);
            e.mpi_call = self.mpi.get(&call).copied().unwrap_or(0);
        }
    }

    /// Appends what another block says of the server's object; false: there is none.
    fn next_block(&mut self, out: &mut Vec<Event>) -> Result<bool> {
        while let Some(stream) = self.streams.get(self.next.0) {
            let Some(info) = stream.blocks().get(self.next.1) else {
                self.next = (self.next.0 + 1, 0);
                continue;
            };
            self.next.1 += 1;
            if !info.has(Layer::Store) {
                continue;
            }
            let block = stream.read(info)?;
            let from = out.len();
            let stores = block.records.iter();
            for r in stores.filter(|r| r.layer == Layer::Store && r.server == self.server) {
                self.moved(stream, r, out);
            }
            self.name_calls(&mut out[from..]);
            out[from..].sort_by_key(|e| (e.at, e.request, e.kind));
            return Ok(true);
        }
        Ok(false)
    }

    /// A store call of a process.
    fn moved(&self, stream: &Stream, record: &Record, out: &mut Vec<Event>) {
        let Some(op) = op_of(record.operation) else {
            return;
        };
        let head = stream.head();
        let shift = i128::from(head.began) + i128::from(head.clock.offset) - i128::from(self.began);
        let at = |time: u64| u64::try_from(i128::from(time) + shift).unwrap_or(0);
        let event = |kind, time| Event {
            at: at(time),
            // Numbers of servers' requests are small: those of processes begin far above, for each stream elsewhere.
            request: (self.next.0 as u64 + 1) << 40 | record.id & ((1 << 40) - 1),
            kind,
            op,
            file: stream.file(record.file).map_or(0, |f| f.id),
            offset: record.offset,
            bytes: record.bytes,
            program: head.program,
            rank: head.rank,
            mpi_call: 0,
            client_call: match record.parent {
                Parent::Here(call) => call,
                _ => 0,
            },
        };
        out.push(event(Kind::Arrival, record.begin));
        out.push(event(Kind::Dispatch, record.begin));
        out.push(event(Kind::Completion, record.end()));
    }
}

/// The last Server record, and what was seen below it.
#[derive(Debug, Default)]
struct Below {
    server: Option<Record>,
    /// The Queue record that a Store record is still to come of.
    queued: Option<Record>,
    seen: bool,
}

impl Below {
    fn add(&mut self, stream: &Stream, record: &Record, out: &mut Vec<Event>) {
        match record.layer {
            Layer::Server => {
                self.end(stream, out);
                let moves = matches!(record.operation.kind(), Does::Read | Does::Write);
                self.server = moves.then_some(*record);
            }
            Layer::Queue => {
                self.unserved(stream, out);
                self.queued = Some(*record);
            }
            Layer::Store => {
                let Some(op) = op_of(record.operation) else {
                    return;
                };
                self.seen = true;
                let queued = self
                    .queued
                    .take_if(|q| q.parent == record.parent && q.offset == record.offset);
                let arrival = queued.unwrap_or(*record);
                let event = |kind, at| self.event(stream, &arrival, op, kind, at);
                out.push(event(Kind::Arrival, arrival.begin));
                out.push(event(Kind::Dispatch, record.begin));
                out.push(event(Kind::Completion, record.end()));
            }
            _ => {}
        }
    }

    fn event(&self, stream: &Stream, record: &Record, op: Op, kind: Kind, at: u64) -> Event {
        let server = self.server.as_ref();
        let of = server.filter(|s| record.id == s.id || record.parent == Parent::Here(s.id));
        let caller = match of.map(|s| s.parent) {
            Some(Parent::Caller(caller)) => caller,
            _ => Caller::default(),
        };
        Event {
            at,
            request: record.id,
            kind,
            op,
            file: stream
                .file(record.file)
                .map_or(u64::from(record.file), |f| f.id),
            offset: record.offset,
            bytes: record.bytes,
            program: caller.program,
            rank: caller.rank,
            mpi_call: 0,
            client_call: caller.call,
        }
    }

    /// A slice that was queued and is not served.
    fn unserved(&mut self, stream: &Stream, out: &mut Vec<Event>) {
        if let Some(queued) = self.queued.take()
            && let Some(op) = op_of(queued.operation)
        {
            self.seen = true;
            out.push(self.event(stream, &queued, op, Kind::Arrival, queued.begin));
            if queued.duration > 0 {
                out.push(self.event(stream, &queued, op, Kind::Dispatch, queued.end()));
            }
        }
    }

    fn end(&mut self, stream: &Stream, out: &mut Vec<Event>) {
        self.unserved(stream, out);
        if let Some(server) = self.server
            && !self.seen
            && server.duration == 0
            && let Some(op) = op_of(server.operation)
        {
            out.push(self.event(stream, &server, op, Kind::Arrival, server.begin));
        }
        self.server = None;
        self.seen = false;
    }
}

fn op_of(operation: Operation) -> Option<Op> {
    match operation.kind() {
        Does::Read => Some(Op::Read),
        Does::Write => Some(Op::Write),
        _ => None,
    }
}

/// Writes a server's trace from events: what is merged, generated or converted.
#[derive(Debug)]
pub struct Writer {
    stream: StreamWriter,
    server: u32,
    id: u64,
    waiting: Numbered<u64, Request>,
    order: VecDeque<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    arrival: Event,
    dispatch: Option<u64>,
}

impl Writer {
    /// Makes the file. One that is there already is an error.
    pub fn create(path: &Path, header: &Header) -> Result<Writer> {
        let head = StreamHead {
            server: Some(header.server),
            servers: header.servers,
            unit: header.unit,
            began: header.began,
            repetitions: header.repetitions,
            ..StreamHead::default()
        };
        Ok(Writer {
            stream: StreamWriter::create(path, &head)?,
            server: header.server,
            id: 0,
            waiting: Numbered::default(),
            order: VecDeque::new(),
        })
    }

    /// Adds an event. A request is written when it is complete, or as far as it came at the end.
    pub fn push(&mut self, event: Event) -> Result<()> {
        match event.kind {
            Kind::Arrival => {
                let request = Request {
                    arrival: event,
                    dispatch: None,
                };
                if self.waiting.insert(event.request, request).is_none() {
                    self.order.push_back(event.request);
                }
                while self.order.len() > WAITING {
                    self.write_oldest()?;
                }
                Ok(())
            }
            Kind::Dispatch => {
                if let Some(request) = self.waiting.get_mut(&event.request) {
                    request.dispatch = Some(event.at);
                }
                Ok(())
            }
            Kind::Completion => match self.waiting.remove(&event.request) {
                Some(request) => self.write(&request, Some(event.at)),
                None => Ok(()),
            },
        }
    }

    fn write_oldest(&mut self) -> Result<()> {
        match self
            .order
            .pop_front()
            .and_then(|request| self.waiting.remove(&request))
        {
            Some(request) => self.write(&request, None),
            None => Ok(()),
        }
    }

    fn write(&mut self, request: &Request, completion: Option<u64>) -> Result<()> {
        let Event {
            at,
            op,
            file,
            offset,
            bytes,
            ..
        } = request.arrival;
        let number = self.stream.name_file_of(&FileName {
            path: String::new(),
            id: file,
        });
        let operation = match op {
            Op::Read => Operation::READ,
            Op::Write => Operation::WRITE,
        };
        let id = self.id + 1;
        self.id += 3;
        let server = Record {
            id,
            parent: Parent::Caller(Caller {
                program: request.arrival.program,
                rank: request.arrival.rank,
                call: request.arrival.client_call,
            }),
            file: number,
            offset,
            bytes,
            begin: at,
            duration: completion.map_or(0, |end| end.saturating_sub(at)),
            server: self.server,
            ..Record::new(Layer::Server, operation)
        };
        debug_assert_ne!(self.server, NO_SERVER);
        self.stream.push(&server)?;
        if let Some(dispatch) = request.dispatch {
            let below = |layer, id, begin, end: u64| Record {
                id,
                parent: Parent::Here(server.id),
                layer,
                begin,
                duration: end.saturating_sub(begin),
                ..server
            };
            self.stream
                .push(&below(Layer::Queue, id + 1, at, dispatch))?;
            if let Some(end) = completion {
                self.stream
                    .push(&below(Layer::Store, id + 2, dispatch, end))?;
            }
        }
        Ok(())
    }

    /// Writes what is complete.
    pub fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }

    /// Ends the trace; `dropped` events are missing in it.
    pub fn finish(mut self, dropped: u64) -> Result<Summary> {
        while !self.order.is_empty() {
            self.write_oldest()?;
        }
        self.stream.finish(dropped)
    }
}

/// Writes the trace `old`, of version 1 or 2, anew in the version of today. Events before any damage are converted; the
/// damage is returned. What is in `old` and not here: MPI calls of requests, which stand in the streams of processes.
pub fn convert(old: &Path, new: &Path) -> Result<(Summary, Option<Error>)> {
    let mut reader = OldReader::open(old).map_err(|e| match e {
        Error::Version { found, .. } if found == crate::VERSION => {
            Error::Invalid(format!("{} has the format of today already", old.display()))
        }
        e => e,
    })?;
    let mut writer = Writer::create(new, reader.header())?;
    let mut events = Vec::new();
    let damage = loop {
        events.clear();
        match reader.next_block(&mut events) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(e) if e.leaves_a_part() => break Some(e),
            Err(e) => return Err(e),
        }
        for event in &events {
            writer.push(*event)?;
        }
    };
    let dropped = reader.summary().map_or(0, |s| s.dropped);
    Ok((writer.finish(dropped)?, damage))
}
