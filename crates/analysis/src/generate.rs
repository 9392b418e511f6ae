//! Whole traces of made-up programs: streams of clients and of servers, with device accesses. Everything follows from a seed.
//!
//! The regular program writes checkpoints: in each step every rank calls MPI_File_write_at_all with as many bytes as a row of
//! stripes has. The irregular one calls HDF5 and MPI-IO with random sizes and places, reads, opens and syncs, from two
//! threads. Its device accesses join the bytes of several calls, and some hold bytes that are written back later.
use penstock_base::Random;
use penstock_trace::{
    Caller, Clock, FileName, Layer, Link, Operation, Owner, Parent, Record, StreamHead,
    StreamWriter,
};
use std::path::Path;

/// Which ranks call at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Irregular {
    /// None.
    None,
    /// Every second one.
    Half,
    /// All.
    All,
}

/// What is made.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Everything random follows from it.
    pub seed: u64,
    /// Processes.
    pub ranks: u32,
    /// Data servers.
    pub servers: u32,
    /// Calls of each rank.
    pub calls: u64,
    /// Which ranks are irregular.
    pub irregular: Irregular,
}

/// Bytes of a stripe unit.
const UNIT: u64 = 64 << 10;
/// When programs began, nanoseconds since 1970.
const BEGAN: u64 = 1_790_000_000_000_000_000;

/// Takes what is made: which stream, a record, and its links.
pub trait Sink {
    /// What can go wrong.
    type Error;
    /// One record. Streams of ranks come first, then those of servers.
    fn put(&mut self, stream: usize, record: &Record, links: &[Link]) -> Result<(), Self::Error>;
}

impl Plan {
    /// Numbers of the program: another for each seed.
    pub fn program(&self) -> u64 {
        penstock_base::finalise(self.seed | 1) | 1
    }

    /// Names of the files, from number 1.
    pub fn files(&self) -> Vec<String> {
        let many = if self.irregular == Irregular::None {
            2
        } else {
            16
        };
        (0..many)
            .map(|n| format!("/scratch/run/field-{n:02}.dat"))
            .collect()
    }

    /// Heads of the streams: ranks, then servers.
    pub fn heads(&self) -> Vec<StreamHead> {
        let shared = StreamHead {
            servers: self.servers,
            unit: UNIT,
            command: "./app --steps 100".into(),
            job: "4711".into(),
            user: "1000".into(),
            ..StreamHead::default()
        };
        let ranks = (0..self.ranks).map(|rank| StreamHead {
            host: format!("node{}", rank / 16),
            pid: 1000 + rank,
            program: self.program(),
            rank,
            began: BEGAN,
            clock: Clock {
                offset: 0,
                error: Some(1_000),
            },
            ..shared.clone()
        });
        let servers = (0..self.servers).map(|server| {
            // Their clocks differ, and that is known.
            let offset = 1_000_000 * (i64::from(server) - 1);
            StreamHead {
                host: format!("io{server}"),
                pid: 77,
                server: Some(server),
                began: BEGAN.saturating_add_signed(-offset),
                clock: Clock {
                    offset,
                    error: Some(2_000),
                },
                device: "disk".into(),
                ..shared.clone()
            }
        });
        ranks.chain(servers).collect()
    }

    /// Makes all records, in the order in which they end within each stream, nearly.
    pub fn make<S: Sink>(&self, sink: &mut S) -> Result<u64, S::Error> {
        let streams = (self.ranks + self.servers) as usize;
        let mut run = Run {
            plan: *self,
            random: Random::new(self.seed),
            ids: vec![0; streams],
            now: vec![1_000_000; self.ranks as usize],
            sink,
            made: 0,
        };
        for call in 0..self.calls {
            for rank in 0..self.ranks {
                let at_random = match self.irregular {
                    Irregular::None => false,
                    Irregular::Half => rank % 2 == 1,
                    Irregular::All => true,
                };
                if at_random {
                    run.irregular(rank, call)?;
                } else {
                    run.regular(rank, call)?;
                }
            }
        }
        Ok(run.made)
    }
}

struct Run<'a, S> {
    plan: Plan,
    random: Random,
    ids: Vec<u64>,
    now: Vec<u64>,
    sink: &'a mut S,
    made: u64,
}

/// What a client call asks for.
#[derive(Clone, Copy)]
struct Access {
    operation: Operation,
    file: u32,
    offset: u64,
    bytes: u64,
    thread: u32,
}

impl<S: Sink> Run<'_, S> {
    fn id(&mut self, stream: usize) -> u64 {
        self.ids[stream] += 1;
        self.ids[stream]
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.below(most - least + 1)
    }

    fn put(&mut self, stream: usize, record: Record, links: &[Link]) -> Result<(), S::Error> {
        self.made += 1;
        self.sink.put(stream, &record, links)
    }

    fn regular(&mut self, rank: u32, call: u64) -> Result<(), S::Error> {
        let bytes = UNIT * u64::from(self.plan.servers);
        let access = Access {
            operation: Operation::WRITE,
            file: 1 + (call / 100 % 2) as u32,
            offset: (call * u64::from(self.plan.ranks) + u64::from(rank)) * bytes,
            bytes,
            thread: 0,
        };
        let begin = self.now[rank as usize];
        let id = self.id(rank as usize);
        let end = self.client(rank, Parent::Here(id), begin + 3_000, access)? + 2_000;
        self.now[rank as usize] = end + 50_000;
        let record = Record {
            id,
            begin,
            duration: end - begin,
            code: 0x4011d6,
            ..above(Layer::MpiIo, named("MPI_File_write_at_all"), access)
        };
        self.put(rank as usize, record, &[])
    }

    fn irregular(&mut self, rank: u32, call: u64) -> Result<(), S::Error> {
        let stream = rank as usize;
        let begin = self.now[stream] + self.between(0, 400_000);
        let thread = self.random.below(2) as u32;
        let draw = self.random.below(100);
        let file = 1 + self.random.below(16) as u32;
        let access = Access {
            operation: if draw < 40 {
                Operation::READ
            } else {
                Operation::WRITE
            },
            file,
            offset: self.random.below(1 << 30),
            bytes: 1 << self.between(6, 20),
            thread,
        };
        let code = 0x401000 + self.random.below(12) * 16;
        let end = if call == 0 || draw >= 97 {
            // Calls without bytes, and now and then an error.
            let id = self.id(stream);
            let name = if call == 0 {
                "MPI_File_open"
            } else {
                "MPI_File_sync"
            };
            let duration = self.between(20_000, 900_000);
            let empty = Access {
                offset: 0,
                bytes: 0,
                ..access
            };
            let record = Record {
                id,
                begin,
                duration,
                error: if draw == 99 { 5 } else { 0 },
                code,
                ..above(Layer::MpiIo, named(name), empty)
            };
            self.put(stream, record, &[])?;
            begin + duration
        } else {
            let write = access.operation == Operation::WRITE;
            let on_hdf5 = draw.is_multiple_of(2);
            let (top, mpi) = (self.id(stream), if on_hdf5 { self.id(stream) } else { 0 });
            let inner = if on_hdf5 { mpi } else { top };
            let mut at = begin + 1_500;
            for part in 0..1 + u64::from(draw < 10) {
                let piece = Access {
                    offset: access.offset + part * access.bytes,
                    ..access
                };
                at = self.client(rank, Parent::Here(inner), at + 700, piece)?;
            }
            let end = at + 900;
            let parent = if on_hdf5 {
                Parent::Here(top)
            } else {
                Parent::None
            };
            let name = if write {
                "MPI_File_write_at"
            } else {
                "MPI_File_read_at"
            };
            let record = Record {
                id: inner,
                parent,
                begin: begin + 500,
                duration: end - begin - 500,
                code,
                ..above(Layer::MpiIo, named(name), access)
            };
            self.put(stream, record, &[])?;
            if on_hdf5 {
                let name = if write { "H5Dwrite" } else { "H5Dread" };
                let record = Record {
                    id: top,
                    begin,
                    duration: end - begin + 2_500,
                    code,
                    ..above(Layer::Hdf5, named(name), access)
                };
                self.put(stream, record, &[])?;
            }
            end + 2_500
        };
        self.now[stream] = end + 1_000;
        Ok(())
    }

    /// A call of the client library, with its requests and what servers do. Returns its end.
    fn client(
        &mut self,
        rank: u32,
        parent: Parent,
        begin: u64,
        access: Access,
    ) -> Result<u64, S::Error> {
        let stream = rank as usize;
        let id = self.id(stream);
        let caller = Caller {
            program: self.plan.program(),
            rank,
            call: id,
        };
        let servers = u64::from(self.plan.servers);
        let units = (access.offset / UNIT)..(access.offset + access.bytes).div_ceil(UNIT);
        let mut last = begin + 2_000;
        for k in 0..servers.min(units.end - units.start) {
            let server = ((units.start + k) % servers) as u32;
            let bytes = (access.bytes / servers.min(units.end - units.start)).max(1);
            let request = self.id(stream);
            let sent = begin + 1_000 + k * 200;
            let arrived = sent + self.between(8_000, 12_000);
            let piece = Access { bytes, ..access };
            let replied = self.server(server, caller, arrived, piece)?;
            let end = replied + self.between(7_000, 11_000);
            last = last.max(end);
            let record = Record {
                id: request,
                parent: Parent::Here(id),
                begin: sent,
                duration: end - sent,
                server,
                ..above(Layer::Request, access.operation, piece)
            };
            self.put(stream, record, &[])?;
        }
        let end = last + 1_000;
        let record = Record {
            id,
            parent,
            begin,
            duration: end - begin,
            ..above(Layer::Client, access.operation, access)
        };
        self.put(stream, record, &[])?;
        Ok(end)
    }

    /// A request at its server. Returns its end.
    fn server(
        &mut self,
        server: u32,
        caller: Caller,
        begin: u64,
        access: Access,
    ) -> Result<u64, S::Error> {
        let stream = (self.plan.ranks + server) as usize;
        let [request, queue, store, device] = [(); 4].map(|()| self.id(stream));
        let offset = access.offset / u64::from(self.plan.servers);
        let at_server = |layer, operation| Record {
            server,
            offset,
            thread: 0,
            ..above(layer, operation, access)
        };
        let waited = begin + 1_000 + self.between(500, 60_000);
        let record = Record {
            id: queue,
            parent: Parent::Here(request),
            begin: begin + 1_000,
            duration: waited - begin - 1_000,
            ..at_server(Layer::Queue, access.operation)
        };
        self.put(stream, record, &[])?;
        let accessed = waited + 2_000 + 40_000 + access.bytes / 2;
        let mut links = vec![Link {
            owner: Owner::Call(caller),
            bytes: access.bytes,
        }];
        if self.plan.irregular != Irregular::None && self.random.below(8) == 0 {
            links.push(Link {
                owner: Owner::Flush,
                bytes: 4096,
            });
        }
        let record = Record {
            id: device,
            parent: Parent::Here(store),
            begin: waited + 2_000,
            duration: accessed - waited - 2_000,
            bytes: links.iter().map(|l| l.bytes).sum(),
            ..at_server(Layer::Device, access.operation)
        };
        self.put(stream, record, &links)?;
        let stored = accessed + 1_000;
        let record = Record {
            id: store,
            parent: Parent::Here(request),
            begin: waited,
            duration: stored - waited,
            ..at_server(Layer::Store, access.operation)
        };
        self.put(stream, record, &[])?;
        let end = stored + 1_500;
        let record = Record {
            id: request,
            parent: Parent::Caller(caller),
            begin,
            duration: end - begin,
            ..at_server(Layer::Server, access.operation)
        };
        self.put(stream, record, &[])?;
        Ok(end)
    }
}

fn named(name: &str) -> Operation {
    Operation::from_name(name).unwrap_or(Operation::NONE)
}

fn above(layer: Layer, operation: Operation, access: Access) -> Record {
    Record {
        file: access.file,
        offset: access.offset,
        bytes: access.bytes,
        thread: access.thread,
        ..Record::new(layer, operation)
    }
}

/// Writes the trace of a plan to a directory: a part for each rank and server. Returns its records.
pub fn write(plan: &Plan, dir: &Path) -> Result<u64, penstock_trace::Error> {
    struct Files {
        writers: Vec<StreamWriter>,
        numbers: Vec<Vec<u32>>,
    }
    impl Sink for Files {
        type Error = penstock_trace::Error;
        fn put(
            &mut self,
            stream: usize,
            record: &Record,
            links: &[Link],
        ) -> Result<(), Self::Error> {
            let mut record = *record;
            if record.file > 0 {
                record.file = self.numbers[stream][record.file as usize - 1];
            }
            self.writers[stream].push_linked(&record, links)
        }
    }
    penstock_trace::make_directory(dir)?;
    let mut files = Files {
        writers: Vec::new(),
        numbers: Vec::new(),
    };
    for head in plan.heads() {
        let name = match head.server {
            Some(server) => format!("data-{server}.trace"),
            None => format!("{}-{}-{}.trace", head.host, head.pid, head.began),
        };
        let mut writer = StreamWriter::create(&dir.join(name), &head)?;
        let names = plan.files();
        let numbers = names.iter().enumerate().map(|(number, path)| {
            writer.name_file_of(&FileName {
                path: path.clone(),
                id: number as u64 + 1,
            })
        });
        files.numbers.push(numbers.collect());
        files.writers.push(writer);
    }
    let made = plan.make(&mut files)?;
    for writer in files.writers {
        writer.finish(0)?;
    }
    Ok(made)
}
