//! One pass over all records: figures of each group of records that questions tell apart, and all that follows from them.
//!
//! Inclusive time of a layer is the sum of its records' intervals; a call inside a call of its own layer is not counted
//! twice. Exclusive time of a record is its interval less the union of its children's (IT 1). Where children run at the same
//! time, or outside their parent's interval, exclusive times add up to more than the roots' time:
//!
//! ```text
//! sum of exclusive = time of the roots + overlap + after
//! ```
//!
//! A request's child stands in its server's stream. Visits of servers are gathered first; each request of a client then takes
//! those of its call and server. Memory: the visits (32 bytes each), a window for each stream that is read, and the groups.
//!
//! The summary of a large trace is kept beside it, in the file `summary.index`, until a part of the trace changes.
use crate::busy::{Bin, Busy, Timeline};
use crate::cover::Cover;
use crate::figures::{Figures, Order};
use crate::key::Key;
use crate::marks::{Joined, MARK, MarkedPhase, Marks};
use crate::trace::{Part, Trace};
use crate::visits::{Visit, Visits};
use crate::window::Window;
use crate::{Error, Notes};
use penstock_base::Numbered;
use penstock_trace::{
    Caller, Layer, Link, NO_RANK, NO_SERVER, Operation, OperationKind, Owner, Parent, Record,
};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The file that a summary is kept in.
pub const INDEX: &str = "summary.index";
/// Of the file. Others are made anew.
const FORMAT: u32 = 2;
/// Records from which on a summary is kept.
const WORTH_KEEPING: u64 = 1 << 20;
/// Most groups of a part whose files are told apart.
const MOST_CELLS: usize = 1 << 20;
/// File of the groups beyond.
pub const OTHER_FILES: u32 = u32::MAX;

/// Figures of the records that are alike in all that stands here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// What they share.
    pub group: Group,
    /// What they did.
    pub figures: Figures,
}

/// What the records of a [`Cell`] share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Group {
    /// The program; of a server's records, the one that asked.
    pub program: u64,
    /// Its process.
    pub rank: u32,
    /// Number of the layer.
    pub layer: u8,
    /// Number of the operation.
    pub operation: u16,
    /// The server; [`NO_SERVER`]: none.
    pub server: u32,
    /// Place in [`Summary::files`]; 0: none; [`OTHER_FILES`]: not told apart.
    pub file: u32,
    /// Where the call stands: place in [`Summary::modules`] and offset in its file; (0, 0): unknown.
    pub code: (u32, u64),
}

impl Group {
    /// The layer.
    pub fn layer(&self) -> Layer {
        Layer::from_number(self.layer).unwrap_or(Layer::Device)
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        Operation(self.operation)
    }
}

/// How the accesses of a process to a file follow each other, in one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ordered {
    /// The program.
    pub program: u64,
    /// Its process.
    pub rank: u32,
    /// Number of the layer.
    pub layer: u8,
    /// Place in [`Summary::files`].
    pub file: u32,
    /// Whether it writes.
    pub writes: bool,
    /// How they follow each other.
    pub order: Order,
}

/// What a data server did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its number.
    pub server: u32,
    /// Time of its part, nanoseconds: from the first record to the last end.
    pub first: u64,
    /// Last end.
    pub last: u64,
    /// Nanoseconds in which its device (or its store, where no device is modelled) worked.
    pub busy: u64,
    /// Whether `busy` is a device's.
    pub has_device: bool,
    /// Accesses to the device, or calls of the store.
    pub accesses: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// How they follow each other, whoever asked.
    pub order: Order,
    /// Bytes by owner: of calls, flush, read-ahead, migration, of nobody.
    pub owners: [u64; 5],
}

/// What a process did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its program.
    pub program: u64,
    /// Its rank.
    pub rank: u32,
    /// First begin.
    pub first: u64,
    /// Last end.
    pub last: u64,
    /// Nanoseconds in which some thread was in a recorded call.
    pub busy: u64,
}

/// The answer to all questions about groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Paths; 0 is none.
    pub files: Vec<String>,
    /// Files of code; 0 is none.
    pub modules: Vec<String>,
    /// By group.
    pub cells: Vec<Cell>,
    /// By process, layer, file, and reading or writing; layers above requests alone.
    pub orders: Vec<Ordered>,
    /// By server.
    pub servers: Vec<Server>,
    /// By process.
    pub processes: Vec<Process>,
    /// Calls of all processes.
    pub timeline: Timeline,
    /// Phases that programs marked.
    pub marked: Vec<MarkedPhase>,
    /// Records.
    pub records: u64,
    /// Nanoseconds of records without a recorded parent.
    pub roots: u64,
    /// Records that are missing though their children were recorded.
    pub orphans: u64,
    /// Visits of servers by processes of which there is no part.
    pub unclaimed: u64,
    /// Visits by the others that no recorded call claims: the client library's own, or calls that were not chosen.
    pub outside: u64,
    /// What could not be read.
    pub problems: Vec<String>,
}

impl Summary {
    /// Cells of the processes and servers that are meant.
    pub fn cells<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Cell> {
        self.cells.iter().filter(|cell| {
            key.has_process(cell.group.program, cell.group.rank)
                && key.server.is_none_or(|server| cell.group.server == server)
        })
    }

    /// Figures of cells by whatever `name` tells apart; `None` leaves a cell out.
    pub fn by<K: Ord>(
        &self,
        key: &Key,
        name: impl Fn(&Group) -> Option<K>,
    ) -> std::collections::BTreeMap<K, Figures> {
        let mut groups: std::collections::BTreeMap<K, Figures> = Default::default();
        for cell in self.cells(key) {
            if let Some(name) = name(&cell.group) {
                groups.entry(name).or_default().merge(&cell.figures);
            }
        }
        groups
    }

    /// Nanoseconds from the first begin to the last end.
    pub fn span(&self) -> u64 {
        let cells = || self.cells.iter().map(|cell| &cell.figures);
        let first = cells().map(|f| f.first).min().unwrap_or(0);
        cells().map(|f| f.last).max().unwrap_or(0) - first
    }

    /// The layer on top: that of the calls a program made.
    pub fn top(&self) -> Option<Layer> {
        let layers = self.cells.iter().map(|cell| cell.group.layer());
        layers.filter(|layer| *layer <= Layer::Client).min()
    }

    /// The path of a file of a group.
    pub fn file(&self, number: u32) -> &str {
        match number {
            OTHER_FILES => "(other files)",
            _ => self.files.get(number as usize).map_or("", String::as_str),
        }
    }
}

/// A record, or what its children say of it before it comes.
#[derive(Debug, Default)]
struct Open {
    fact: Option<Fact>,
    cover: Cover,
    /// Layer of the children, and their time: to find calls inside calls of their own layer.
    child: Option<Layer>,
    child_time: u64,
    /// What is below it, as long as nobody knows whose it is.
    below: Vec<Fact>,
}

#[derive(Debug, Clone, Copy)]
struct Fact {
    id: u64,
    begin: u64,
    end: u64,
    offset: u64,
    bytes: u64,
    parent: Parent,
    layer: Layer,
    operation: Operation,
    failed: bool,
    server: u32,
    file: u32,
    code: u64,
    nested: u64,
    inside: u64,
    overlap: u64,
    after: u64,
}

impl Fact {
    fn of(record: &Record) -> Fact {
        Fact {
            id: record.id,
            begin: record.begin,
            end: record.end(),
            offset: record.offset,
            bytes: record.bytes,
            parent: record.parent,
            layer: record.layer,
            operation: record.operation,
            failed: record.error != 0,
            server: record.server,
            file: record.file,
            code: record.code,
            nested: 0,
            inside: 0,
            overlap: 0,
            after: 0,
        }
    }
}

/// A group within one part: files and code by the part's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Local {
    program: u64,
    code: u64,
    rank: u32,
    server: u32,
    file: u32,
    operation: u16,
    layer: u8,
}

/// Records of a server whose program and rank are kept for children that come late.
const PLACED: usize = 64 << 10;

/// Whose a record of a server is.
#[derive(Debug, Clone, Copy, Default)]
struct Placed {
    id: u64,
    program: u64,
    rank: u32,
}

/// One part's share.
struct Share<'a> {
    part: &'a Part,
    window: Window<Open>,
    visits: &'a [Visit],
    /// Where the last request's visits were found.
    cursor: usize,
    /// Visits of this process that requests took: which, how many, and their time.
    taken: Vec<u64>,
    claimed: (u64, u64),
    /// Of a server: whose the records are that were placed last, by the lower bits of their ids. Children may come later.
    placed: Vec<Placed>,
    seen: Visits,
    places: Numbered<Local, u32>,
    recent: [(Option<Local>, u32); 16],
    figures: Vec<Figures>,
    orders: HashMap<(u8, u32, bool), Order>,
    folded: bool,
    server: Server,
    device: Busy,
    store: Busy,
    stores: (u64, u64, Order),
    process: Process,
    calls: Busy,
    timeline: Timeline,
    marks: Marks,
    roots: u64,
    orphans: u64,
    /// Records whose children were not kept apart, for want of room.
    lost: u64,
    records: u64,
}

impl<'a> Share<'a> {
    fn new(part: &'a Part, visits: &'a [Visit]) -> Share<'a> {
        Share {
            part,
            window: Window::default(),
            visits,
            cursor: 0,
            taken: vec![0; visits.len().div_ceil(64)],
            claimed: (0, 0),
            placed: if part.is_server() {
                vec![Placed::default(); PLACED]
            } else {
                Vec::new()
            },
            seen: Visits::default(),
            places: Numbered::default(),
            recent: [(None, 0); 16],
            figures: Vec::new(),
            orders: HashMap::new(),
            folded: false,
            server: Server {
                server: part.server.unwrap_or(NO_SERVER),
                first: u64::MAX,
                ..Server::default()
            },
            device: Busy::default(),
            store: Busy::default(),
            stores: (0, 0, Order::default()),
            process: Process {
                program: part.program,
                rank: part.rank,
                first: u64::MAX,
                ..Process::default()
            },
            calls: Busy::default(),
            timeline: Timeline::default(),
            marks: Marks::default(),
            roots: 0,
            orphans: 0,
            lost: 0,
            records: 0,
        }
    }

    fn record(&mut self, record: &Record, links: &[(u32, Link)]) {
        self.records += 1;
        let fact = Fact::of(record);
        if let Parent::Here(parent) = fact.parent {
            let open = self.window.at(parent);
            open.cover.add(fact.begin, fact.end);
            if open.child.is_none_or(|layer| layer == fact.layer) {
                open.child = Some(fact.layer);
                open.child_time += fact.end - fact.begin;
            }
        }
        if self.part.is_server() {
            self.at_server(&fact, links);
        } else {
            self.process.first = self.process.first.min(fact.begin);
            self.process.last = self.process.last.max(fact.end);
            self.marks.record(record);
        }
        // What never has children in its stream need not wait.
        let is_leaf = match fact.layer {
            Layer::Device | Layer::Queue | Layer::Decision => true,
            Layer::Request => !self.part.is_server(),
            _ => false,
        };
        if is_leaf {
            self.finish(Open {
                fact: Some(fact),
                ..Open::default()
            });
            return;
        }
        self.window.at(record.id).fact = Some(fact);
        if let Some((_, open)) = self.window.complete(record.id) {
            self.finish(open);
        }
    }

    fn at_server(&mut self, fact: &Fact, links: &[(u32, Link)]) {
        let server = &mut self.server;
        server.first = server.first.min(fact.begin);
        server.last = server.last.max(fact.end);
        match fact.layer {
            Layer::Device => {
                server.has_device = true;
                server.accesses += 1;
                server.bytes = server.bytes.saturating_add(fact.bytes);
                server.order.add(fact.offset, fact.bytes);
                self.device.add(fact.begin, fact.end);
                let mut owned = 0u64;
                for (_, link) in links {
                    let owner = match link.owner {
                        Owner::Call(_) => 0,
                        Owner::Flush => 1,
                        Owner::ReadAhead => 2,
                        Owner::Migration => 3,
                    };
                    server.owners[owner] = server.owners[owner].saturating_add(link.bytes);
                    owned = owned.saturating_add(link.bytes);
                }
                server.owners[4] += fact.bytes.saturating_sub(owned);
            }
            Layer::Store
                if matches!(
                    fact.operation.kind(),
                    OperationKind::Read | OperationKind::Write
                ) =>
            {
                self.stores.0 += 1;
                self.stores.1 = self.stores.1.saturating_add(fact.bytes);
                self.stores.2.add(fact.offset, fact.bytes);
                self.store.add(fact.begin, fact.end);
            }
            _ => {}
        }
    }

    fn finish(&mut self, mut open: Open) {
        let Some(mut fact) = open.fact else { return };
        if fact.layer == Layer::Request
            && let Parent::Here(call) = fact.parent
            && !self.part.is_server()
        {
            self.claim(call, &fact, &mut open.cover);
        } else if !self.part.is_server() && fact.layer <= Layer::Client {
            self.claim_rest(fact.id, &mut open.cover);
        }
        fact.inside = open.cover.within(fact.begin, fact.end);
        let length = open.cover.length();
        if open.child == Some(fact.layer) {
            fact.nested = open.child_time;
        }
        fact.overlap = open.cover.sum() - length;
        fact.after = length - fact.inside;
        match fact.parent {
            Parent::None => self.root(&fact),
            Parent::Caller(caller) => self.seen.add(
                caller,
                Visit {
                    call: caller.call,
                    server: fact.server,
                    begin: fact.begin,
                    end: fact.end,
                    moves: matches!(
                        fact.operation.kind(),
                        OperationKind::Read | OperationKind::Write
                    ),
                },
            ),
            Parent::Here(_) => {}
        }
        self.place(fact, open.below);
    }

    fn root(&mut self, fact: &Fact) {
        self.roots += fact.end - fact.begin;
        if !self.part.is_server() {
            self.calls.add(fact.begin, fact.end);
            let (read, written) = match fact.operation.kind() {
                OperationKind::Read => (fact.bytes, 0),
                OperationKind::Write => (0, fact.bytes),
                _ => (0, 0),
            };
            self.timeline.add(fact.begin, fact.end, read, written);
            if fact.operation != MARK {
                let what = Bin {
                    calls: 1,
                    read,
                    written,
                    busy: fact.end - fact.begin,
                };
                self.marks.add(fact.begin, &what);
            }
        }
    }

    /// Adds a record, and what waits below it, to their groups, once it is known whose they are.
    fn place(&mut self, fact: Fact, below: Vec<Fact>) {
        let (program, rank) = match fact.parent {
            _ if !self.part.is_server() => (self.part.program, self.part.rank),
            Parent::Caller(Caller { program, rank, .. }) => (program, rank),
            Parent::None => (0, NO_RANK),
            Parent::Here(parent) => match self.placed[parent as usize % PLACED] {
                up if up.id == parent => (up.program, up.rank),
                _ => {
                    let up = &mut self.window.at(parent).below;
                    up.push(fact);
                    up.extend(below);
                    return;
                }
            },
        };
        for fact in std::iter::once(&fact).chain(&below) {
            self.count(program, rank, fact);
            if let Some(placed) = self.placed.get_mut(fact.id as usize % PLACED) {
                *placed = Placed {
                    id: fact.id,
                    program,
                    rank,
                };
            }
        }
    }

    fn count(&mut self, program: u64, rank: u32, fact: &Fact) {
        let local = Local {
            program,
            code: fact.code,
            rank,
            server: fact.server,
            file: fact.file,
            operation: fact.operation.0,
            layer: fact.layer as u8,
        };
        let place = self.cell(local);
        let figures = &mut self.figures[place];
        let time = fact.end - fact.begin;
        if figures.calls == 0 {
            figures.least = time;
            figures.first = fact.begin;
        }
        figures.calls += 1;
        figures.bytes = figures.bytes.saturating_add(fact.bytes);
        figures.errors += u64::from(fact.failed);
        figures.inclusive += time.saturating_sub(fact.nested);
        figures.exclusive += time - fact.inside;
        figures.overlap += fact.overlap;
        figures.after += fact.after;
        figures.least = figures.least.min(time);
        figures.most = figures.most.max(time);
        figures.first = figures.first.min(fact.begin);
        figures.last = figures.last.max(fact.end);
        figures.durations.add(time);
        let kind = fact.operation.kind();
        let place = (local.layer, fact.file, kind == OperationKind::Write);
        if fact.layer <= Layer::Client
            && matches!(kind, OperationKind::Read | OperationKind::Write)
            && (self.orders.len() < MOST_CELLS || self.orders.contains_key(&place))
        {
            let order = self.orders.entry(place).or_default();
            order.add(fact.offset, fact.bytes);
        }
    }

    fn cell(&mut self, mut local: Local) -> usize {
        let recent = usize::from(local.layer) % self.recent.len();
        if self.recent[recent].0 == Some(local) {
            return self.recent[recent].1 as usize;
        }
        if self.places.len() >= MOST_CELLS && !self.places.contains_key(&local) {
            self.folded = true;
            local.file = OTHER_FILES;
            local.code = 0;
        }
        let next = self.figures.len() as u32;
        let place = *self.places.entry(local).or_insert(next);
        if place == next {
            self.figures.push(Figures::default());
        }
        self.recent[recent] = (Some(local), place);
        place as usize
    }

    /// Adds the visits of this request's call at its server.
    fn claim(&mut self, call: u64, request: &Fact, cover: &mut Cover) {
        let visits = self.visits;
        let wanted = (call, request.server);
        let at = |i: usize| visits.get(i).map(|v| (v.call, v.server));
        // Requests come nearly in the order of their calls.
        let near = self.cursor..visits.len().min(self.cursor + 16);
        let found = near.clone().find(|&i| at(i) >= Some(wanted));
        let found = found.filter(|&i| i == 0 || at(i - 1) < Some(wanted));
        let mut i =
            found.unwrap_or_else(|| visits.partition_point(|v| (v.call, v.server) < wanted));
        let one = at(i + 1) != Some(wanted);
        while at(i) == Some(wanted) {
            let visit = &visits[i];
            // Of several requests of a call to a server, each takes what lies in its time.
            let taken = &mut self.taken[i / 64];
            let bit = 1 << (i % 64);
            let meets = visit.begin < request.end && visit.end > request.begin;
            if *taken & bit == 0 && (one || meets) {
                *taken |= bit;
                cover.add(visit.begin, visit.end);
                self.claimed.0 += u64::from(visit.moves);
                self.claimed.1 += visit.end - visit.begin;
            }
            i += 1;
        }
        self.cursor = i.saturating_sub(8);
    }

    /// Adds the visits that a call made without a recorded request: openings, questions, and the like.
    fn claim_rest(&mut self, call: u64, cover: &mut Cover) {
        let visits = self.visits;
        let mut i = visits.partition_point(|v| v.call < call);
        while let Some(visit) = visits.get(i).filter(|v| v.call == call) {
            let (taken, bit) = (&mut self.taken[i / 64], 1 << (i % 64));
            if *taken & bit == 0 {
                *taken |= bit;
                cover.add(visit.begin, visit.end);
                self.claimed.0 += 1;
                self.claimed.1 += visit.end - visit.begin;
            }
            i += 1;
        }
    }

    /// The end of the stream.
    fn end(mut self) -> Share<'a> {
        while let Some((_, open)) = self.window.next_complete() {
            self.finish(open);
        }
        for (_, open) in self.window.incomplete() {
            // Its children are roots, as far as is known.
            self.orphans += 1;
            self.roots += open.cover.sum();
            for fact in &open.below {
                self.count(0, NO_RANK, fact);
            }
        }
        self.lost = self.window.lost();
        self.server.busy = if self.server.has_device {
            std::mem::take(&mut self.device).length()
        } else {
            (self.server.accesses, self.server.bytes, self.server.order) = self.stores;
            std::mem::take(&mut self.store).length()
        };
        self.process.busy = std::mem::take(&mut self.calls).length();
        self.window = Window::default();
        self
    }
}

/// Joins shares: files and code by numbers of the whole trace.
#[derive(Default)]
struct Join {
    summary: Summary,
    files: HashMap<String, u32>,
    modules: HashMap<String, u32>,
    cells: HashMap<Group, usize>,
    marked: Joined,
    folded: bool,
    lost: u64,
}

impl Join {
    fn new() -> Join {
        let mut join = Join::default();
        join.summary.files.push(String::new());
        join.summary.modules.push(String::new());
        join
    }

    fn number(list: &mut Vec<String>, numbers: &mut HashMap<String, u32>, name: &str) -> u32 {
        if let Some(number) = numbers.get(name) {
            return *number;
        }
        let number = list.len() as u32;
        list.push(name.to_owned());
        numbers.insert(name.to_owned(), number);
        number
    }

    /// The number of a part's file in the whole trace.
    fn file(&mut self, part: &Part, number: u32) -> u32 {
        let unnamed;
        let path = match (number, part.file(number)) {
            (0 | OTHER_FILES, _) => return number,
            (_, "") => {
                unnamed = format!("file {number} of {}", part.name());
                &unnamed
            }
            (_, path) => path,
        };
        Join::number(&mut self.summary.files, &mut self.files, path)
    }

    fn add(&mut self, share: Share<'_>) {
        let Share {
            part,
            places,
            mut figures,
            orders,
            ..
        } = share;
        let modules = &part.stream.head().modules;
        for (local, place) in places {
            let file = self.file(part, local.file);
            let module = modules
                .iter()
                .find(|m| (m.base..m.end).contains(&local.code));
            let code = match (local.code, module) {
                (0, _) => (0, 0),
                (code, Some(module)) => (
                    Join::number(&mut self.summary.modules, &mut self.modules, &module.path),
                    code - module.base,
                ),
                (code, None) => (0, code),
            };
            let group = Group {
                program: local.program,
                rank: local.rank,
                layer: local.layer,
                operation: local.operation,
                server: local.server,
                file,
                code,
            };
            let next = self.summary.cells.len();
            let place = place as usize;
            match *self.cells.entry(group).or_insert(next) {
                at if at == next => self.summary.cells.push(Cell {
                    group,
                    figures: std::mem::take(&mut figures[place]),
                }),
                at => self.summary.cells[at].figures.merge(&figures[place]),
            }
        }
        for ((layer, file, writes), order) in orders {
            let file = self.file(part, file);
            self.summary.orders.push(Ordered {
                program: part.program,
                rank: part.rank,
                layer,
                file,
                writes,
                order,
            });
        }
        if part.is_server() {
            self.summary.servers.push(Server {
                first: share.server.first.min(share.server.last),
                ..share.server
            });
        } else {
            let process = &share.process;
            self.marked
                .add(part.program, share.marks, process.first, process.last);
            self.summary.processes.push(Process {
                first: share.process.first.min(share.process.last),
                ..share.process
            });
        }
        self.summary.timeline.merge(&share.timeline);
        self.summary.records += share.records;
        self.summary.roots += share.roots;
        self.summary.orphans += share.orphans;
        self.lost += share.lost;
        self.folded |= share.folded;
    }
}

/// Makes the summary of a trace.
pub fn summarise(trace: &Trace) -> Result<Summary, Error> {
    let mut notes = Notes::default();
    let mut join = Join::new();
    let mut visits = Visits::default();
    let servers = trace.each(Part::is_server, |part, blocks| {
        let mut share = Share::new(part, &[]);
        blocks.records(|record, links| share.record(record, links));
        Ok(share.end())
    })?;
    for mut share in servers.take(&mut notes) {
        visits.merge(std::mem::take(&mut share.seen));
        join.add(share);
    }
    let by_process = visits.sorted();
    let all = by_process.values().flatten();
    let (mut count, mut time) = all.fold((0u64, 0u64), |(n, t), v| {
        (n + u64::from(v.moves), t + v.end - v.begin)
    });
    let clients = trace.each(
        |part| !part.is_server(),
        |part, blocks| {
            let mine = by_process.get(&(part.program, part.rank));
            let mut share = Share::new(part, mine.map_or(&[], Vec::as_slice));
            blocks.records(|record, links| share.record(record, links));
            Ok(share.end())
        },
    )?;
    for share in clients.take(&mut notes) {
        count = count.saturating_sub(share.claimed.0);
        time = time.saturating_sub(share.claimed.1);
        join.add(share);
    }
    let mut summary = join.summary;
    summary.marked = join.marked.phases();
    let processes = summary.processes.iter().map(|p| (p.program, p.rank));
    let recorded: HashSet<(u64, u32)> = processes.collect();
    let missing = by_process.iter().filter(|of| !recorded.contains(of.0));
    let missing: u64 = missing.map(|(_, visits)| visits.len() as u64).sum();
    summary.unclaimed = missing;
    summary.outside = count.saturating_sub(missing);
    summary.roots += time;
    summary.cells.sort_by_key(|cell| cell.group);
    summary
        .orders
        .sort_by_key(|o| (o.program, o.rank, o.layer, o.file, o.writes));
    if missing > 0 {
        notes.add(format!(
            "{missing} requests at servers belong to no process of the trace: parts of clients are missing"
        ));
    }
    if summary.orphans > 0 {
        notes.add(format!(
            "{} records are missing whose children were recorded: dropped, not chosen, or not ended",
            summary.orphans
        ));
    }
    if join.lost > 0 {
        notes.add(format!(
            "{} calls were open for too long to keep their children apart: exclusive times are too long",
            join.lost
        ));
    }
    if join.folded {
        notes.add(format!(
            "more than {MOST_CELLS} groups in a part: the files and lines of the rest are not told apart"
        ));
    }
    summary.problems = notes.iter().map(str::to_owned).collect();
    Ok(summary)
}

/// The summary that is kept beside the trace, or a new one. That is kept if the trace is large and its directory can be
/// written.
pub fn summary(trace: &Trace) -> Result<Summary, Error> {
    let path = trace.path.join(INDEX);
    let stamp = stamp(trace);
    if let Some(kept) = kept(&path, &stamp) {
        return Ok(kept);
    }
    let summary = summarise(trace)?;
    if trace.records() >= WORTH_KEEPING && trace.path.is_dir() {
        // Nobody asked for the file: without it the next question takes longer.
        let _ = keep(&path, &stamp, &summary);
    }
    Ok(summary)
}

/// What a kept summary was made from: name, bytes and time of change of each part.
fn stamp(trace: &Trace) -> Vec<(String, u64, i64, i64)> {
    let parts = trace.parts.iter().map(|part| part.stream.path());
    parts
        .map(|path| {
            let meta = std::fs::metadata(path).ok();
            let meta = meta.map(|m| (m.size(), m.mtime(), m.mtime_nsec()));
            let (size, seconds, nanos) = meta.unwrap_or_default();
            (path.display().to_string(), size, seconds, nanos)
        })
        .collect()
}

type Stamp = [(String, u64, i64, i64)];

fn kept(path: &Path, stamp: &Stamp) -> Option<Summary> {
    let bytes = std::fs::read(path).ok()?;
    let (crc, body) = bytes.split_first_chunk::<4>()?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    type Kept = (u32, Vec<(String, u64, i64, i64)>, Summary);
    let (format, of, summary): Kept = postcard::from_bytes(body).ok()?;
    (format == FORMAT && of == stamp).then_some(summary)
}

fn keep(path: &Path, stamp: &Stamp, summary: &Summary) -> std::io::Result<()> {
    let body = postcard::to_stdvec(&(FORMAT, stamp, summary)).map_err(std::io::Error::other)?;
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut file| {
            file.write_all(&crc32fast::hash(&body).to_le_bytes())?;
            file.write_all(&body)
        })
        .and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}
