//! A parallel program beside the clients. Its ranks, each a separate process, open shared files through the MPI-IO
//! library. They access them collectively and independently, by one method after another.
//!
//! What the ranks do is drawn from a random stream that each of them has: they make the same calls in the same order. A
//! collective write is one write of the model: the ranks' pieces cover whole blocks together, though a piece may be a
//! part of one. It begins before the first rank begins, and ends when the last one has finished. Between two calls the
//! ranks exchange the results of the last one. A call in which the ranks meet fails on all ranks or on none. Any other
//! call may fail on some. Unless it failed on all, the next call in which the ranks meet fails on all.
mod atomic;

use super::{CALM, Fault, Phase, Worker};
use crate::effects::Effect;
use crate::model::fill;
use crate::plant::Plant;
use crate::world::{Nanos, SECOND, Simulation, lock};
use penstock_base::Random;
use penstock_datatype::{Loop, Order, Source, Target};
use penstock_mpiio::testing::{ThreadComm, forget_debt};
use penstock_mpiio::{
    Amode, Comm, DataRep, Datatype, Environment, ErrorClass, File, Info, Process, Where,
    method_values,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The program number that servers see; the other clients have another.
const PROGRAM: u64 = 2;
/// How long a rank waits for others: longer than a run lasts.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Sizes of buffers and windows in hints, bytes.
const BUFFERS: [u64; 4] = [4096, 10_000, 65_536, 1 << 20];
/// With [`Plant::DroppedPart`], one message in so many is dropped.
const DROPPED: u64 = 20;

/// The communicators that the ranks of a program share.
pub(crate) struct Program {
    ranks: usize,
    /// Number among all clients of the run, which identifies the writer.
    pub life: u64,
    /// The random stream of all ranks.
    stream: Random,
    /// By number: the first rank that needs the next communicator makes it for all.
    comms: Mutex<BTreeMap<u64, Vec<Option<ThreadComm>>>>,
}

impl Program {
    pub fn new(ranks: usize, life: u64, stream: Random) -> Arc<Program> {
        Arc::new(Program {
            ranks,
            life,
            stream,
            comms: Mutex::default(),
        })
    }

    fn comm(&self, number: u64, rank: usize) -> Result<ThreadComm, Fault> {
        let mut comms = lock(&self.comms);
        let sides = comms.entry(number).or_insert_with(|| {
            let all = ThreadComm::patient(self.ranks, PATIENCE);
            all.into_iter().map(Some).collect()
        });
        let mine = sides[rank].take();
        if sides.iter().all(Option::is_none) {
            comms.remove(&number);
        }
        mine.ok_or_else(|| format!("rank {rank} takes communicator {number} twice"))
    }
}

/// A communicator with a planted bug: it drops a message now and then, or an error that a rank owes.
struct Lossy {
    comm: ThreadComm,
    world: &'static Simulation,
}

impl Lossy {
    fn plants(&self, plant: Plant) -> bool {
        self.world.state().plant == Some(plant)
    }
}

impl Comm for Lossy {
    fn rank(&self) -> usize {
        self.comm.rank()
    }
    fn size(&self) -> usize {
        self.comm.size()
    }
    fn barrier(&self) -> penstock_mpiio::Result<()> {
        self.comm.barrier()
    }
    fn bcast(&self, root: usize, data: &mut Vec<u8>) -> penstock_mpiio::Result<()> {
        self.comm.bcast(root, data)
    }
    fn allgather(&self, mine: &[u8]) -> penstock_mpiio::Result<Vec<Vec<u8>>> {
        let mut mine = mine.to_vec();
        if self.plants(Plant::SwallowedError) {
            forget_debt(&mut mine);
        }
        self.comm.allgather(&mine)
    }
    fn alltoallv(&self, send: Vec<Vec<u8>>) -> penstock_mpiio::Result<Vec<Vec<u8>>> {
        let mut received = self.comm.alltoallv(send)?;
        for message in &mut received {
            if self.plants(Plant::DroppedPart) && self.world.state().random.one_in(DROPPED) {
                message.fill(0);
            }
        }
        Ok(received)
    }
    fn tell(&self, peer: usize, message: &[u8]) -> penstock_mpiio::Result<()> {
        self.comm.tell(peer, message)
    }
    fn hear(&self, peer: usize) -> penstock_mpiio::Result<Vec<u8>> {
        self.comm.hear(peer)
    }
}

/// A view in which the ranks' pieces are interleaved.
struct Turns {
    /// Offset of the first piece, bytes.
    start: u64,
    /// Pieces of each rank.
    count: u64,
    /// Bytes of a piece.
    piece: u64,
    /// Bytes that no rank sees, after the last rank's piece.
    hole: u64,
    ranks: u64,
    block: u64,
    /// Whether the filetype is a subarray instead of a vector.
    array: bool,
}

impl Turns {
    /// Draws a place in a file. `whole`: pieces are whole blocks.
    fn draw(r: &mut Random, blocks: u64, block: u64, ranks: usize, whole: bool) -> Turns {
        let ranks = ranks as u64;
        let parts = if whole { 1 } else { [1, 2, 4, 8][r.index(4)] };
        let hole = if parts == 1 { r.below(3) } else { 0 };
        let most = (blocks / (ranks + hole)).clamp(1, 4);
        let rows = r.from_to(1, most);
        let left = blocks.saturating_sub(rows * (ranks + hole));
        Turns {
            start: r.from_to(0, left) * block,
            count: rows * parts,
            piece: block / parts,
            hole: hole * block,
            ranks,
            block,
            array: r.one_in(2),
        }
    }

    fn row(&self) -> u64 {
        self.ranks * self.piece + self.hole
    }

    /// Offsets of a rank's pieces.
    fn pieces(&self, rank: usize) -> impl Iterator<Item = u64> + '_ {
        let first = self.start + rank as u64 * self.piece;
        (0..self.count).map(move |i| first + i * self.row())
    }

    /// The blocks of some ranks' pieces.
    fn blocks(&self, ranks: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        let pieces = ranks.flat_map(|rank| self.pieces(rank));
        pieces.map(|at| (at / self.block) as usize).collect()
    }

    /// Displacement and filetype of a rank.
    fn view(&self, rank: usize) -> Result<(i64, Datatype), Fault> {
        let text = |e: penstock_datatype::Error| e.to_string();
        let (before, row) = (rank as u64 * self.piece, self.row());
        let byte = Loop::bytes(1);
        let (at, layout) = if self.array {
            let sizes = [self.count, row];
            let order = Order::C;
            let array = Loop::subarray(
                &sizes,
                &[self.count, self.piece],
                &[0, before],
                order,
                &byte,
            );
            (self.start, array)
        } else {
            let piece = Loop::bytes(self.piece).resized(0, row as i64);
            (self.start + before, piece)
        };
        let filetype = Datatype::opaque(layout.map_err(text)?).map_err(|e| e.to_string())?;
        Ok((at as i64, filetype))
    }
}

/// How an access is made.
#[derive(Debug, Clone, Copy)]
struct How {
    method: &'static str,
    together: bool,
    atomic: bool,
    writes: bool,
}

impl How {
    /// Whether the ranks meet in the call; `None`: the library decides.
    fn meets(&self) -> Option<bool> {
        match self.method {
            _ if self.atomic => Some(true),
            "auto" => None,
            method => Some(["two-phase", "node-exchange", "resonant"].contains(&method)),
        }
    }
}

/// One rank of a program.
pub(crate) struct Rank {
    worker: Worker,
    rank: usize,
    program: Arc<Program>,
    process: Arc<Process>,
    /// For messages between ranks that do not use the library.
    world: ThreadComm,
    /// Communicators used so far.
    comms: u64,
    common: Random,
    /// Places in the program's own file used so far.
    used: u64,
    /// Ranks whose access failed since all last met, while others succeeded.
    owing: BTreeSet<usize>,
}

impl Rank {
    pub fn run(worker: Worker, rank: usize, program: Arc<Program>) -> Result<(), Fault> {
        let environment = Environment {
            program: PROGRAM,
            ..Environment::default()
        };
        let deployment = worker.deployment.clone();
        let process = Process::of_servers(environment, deployment, worker.options());
        let mut rank = Rank {
            world: program.comm(0, rank)?,
            common: program.stream.clone(),
            comms: 0,
            used: 0,
            owing: BTreeSet::new(),
            process: Arc::new(process),
            worker,
            rank,
            program,
        };
        while rank.meet()? < Phase::Calm {
            let accesses = rank.common.from_to(1, 8);
            let methods: Vec<&str> = method_values().map(|(name, _)| name).collect();
            let draw = |r: &mut Rank| {
                let (together, atomic) = (!r.common.one_in(4), r.common.one_in(4));
                let writes = !r.common.one_in(3);
                let method = methods[r.common.index(methods.len())];
                How {
                    method,
                    together,
                    atomic,
                    writes,
                }
            };
            let hows: Vec<How> = (0..accesses).map(|_| draw(&mut rank)).collect();
            rank.session(&hows)?;
            if rank.common.one_in(3) {
                rank.atomic_session(2)?;
            }
            rank.pause();
        }
        // Each method again, while everything must succeed.
        let mut all = Vec::new();
        for (method, _) in method_values() {
            for (together, writes) in [(true, true), (true, false), (false, true), (false, false)] {
                let atomic = rank.common.one_in(4);
                all.push(How {
                    method,
                    together,
                    atomic,
                    writes,
                });
            }
        }
        rank.session(&all)?;
        rank.atomic_session(4)
    }

    fn pause(&mut self) {
        let worker = &mut self.worker;
        let mut pause = worker.random.below(worker.shape.pause);
        if worker.phase() == Phase::Settling {
            pause *= 20;
        }
        penstock_host::thread::sleep(Duration::from_nanos(pause));
    }

    /// Waits for all ranks. Returns the earliest phase that any of them has seen.
    fn meet(&self) -> Result<Phase, Fault> {
        let mine = self.worker.phase();
        let all = self.tell(&[mine as u8])?;
        let least = all.iter().filter_map(|told| told.first()).min();
        let phases = [Phase::Faults, Phase::Settling, Phase::Calm];
        let same = phases.into_iter().find(|p| Some(&(*p as u8)) == least);
        Ok(same.unwrap_or(mine))
    }

    /// Sends each rank's message to all others.
    fn tell(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        self.world
            .allgather(mine)
            .map_err(|e| format!("rank {} lost the others: {e}", self.rank))
    }

    /// Whether some ranks know of an error that others do not.
    fn owes(&self) -> bool {
        !self.owing.is_empty() && self.owing.len() < self.program.ranks
    }

    /// The ranks on which a collective call failed.
    fn failures<T>(&self, result: &penstock_mpiio::Result<T>) -> Result<BTreeSet<usize>, Fault> {
        let all = self.tell(&[u8::from(result.is_err())])?;
        let failed = all.iter().enumerate().filter(|(_, told)| told[..] == [1]);
        Ok(failed.map(|(rank, _)| rank).collect())
    }

    /// Checks a call in which the ranks met: success on all, or an error on all, which is required if a rank owed one.
    fn agreed<T>(&mut self, what: &str, result: &penstock_mpiio::Result<T>) -> Result<bool, Fault> {
        let failed = self.failures(result)?;
        let owed = self.owes();
        let owing = std::mem::take(&mut self.owing);
        if failed.is_empty() && owed {
            return Err(format!(
                "{what}: nobody was told of the errors of ranks {owing:?}"
            ));
        }
        if !failed.is_empty() && failed.len() < self.program.ranks {
            return Err(format!("{what}: it failed on ranks {failed:?} only"));
        }
        if !failed.is_empty() && self.rank == 0 {
            let mut history = lock(&self.worker.history);
            history.effects.count(Effect::FailedTogether);
            if owed {
                history.effects.count(Effect::ToldLater);
            }
        }
        Ok(failed.is_empty())
    }

    /// Ends a collective access; returns whether it succeeded on all ranks.
    fn accessed(
        &mut self,
        what: &str,
        how: How,
        result: &penstock_mpiio::Result<u64>,
    ) -> Result<bool, Fault> {
        if how.meets() == Some(true) {
            return self.agreed(what, result);
        }
        let failed = self.failures(result)?;
        self.owing.extend(&failed);
        if failed.len() == self.program.ranks {
            // All ranks know of the error, whether they met or not.
            self.owing.clear();
        }
        Ok(failed.is_empty())
    }

    /// Ends a call: an error that faults excuse is a violation in the phase without faults.
    fn settle<T>(
        &self,
        what: &str,
        (began, phase): (Nanos, Phase),
        result: penstock_mpiio::Result<T>,
    ) -> Result<Option<T>, Fault> {
        let took = self.worker.now() - began;
        let calm = phase == Phase::Calm;
        if calm && took > CALM {
            return Err(format!(
                "{what} took {:.1} s although no fault has happened since it began",
                took as f64 / SECOND as f64
            ));
        }
        let mut history = lock(&self.worker.history);
        match result {
            Ok(value) => {
                history.good += 1;
                Ok(Some(value))
            }
            Err(e) if !calm && excusable(e.class) => {
                history.failed += 1;
                drop(history);
                self.worker.say(&format!("{what} failed: {e}"));
                Ok(None)
            }
            Err(e) => Err(format!("{what}: {:?}: {e}", e.class)),
        }
    }

    /// The next communicator for a file.
    fn next_comm(&mut self) -> Result<Box<dyn Comm>, Fault> {
        self.comms += 1;
        let comm = self.program.comm(self.comms, self.rank)?;
        let world = self.worker.world;
        let planted = [Plant::DroppedPart, Plant::SwallowedError];
        let lossy = world
            .state()
            .plant
            .is_some_and(|plant| planted.contains(&plant));
        Ok(if lossy {
            Box::new(Lossy { comm, world })
        } else {
            Box::new(comm)
        })
    }

    /// Opens a file, makes accesses, syncs, closes. All of this is collective.
    fn session(&mut self, hows: &[How]) -> Result<(), Fault> {
        let f = self.common.index(self.worker.shape.files);
        let path = format!("penstock:{}", lock(&self.worker.history).files[f].path);
        let buffer = BUFFERS[self.common.index(BUFFERS.len())].to_string();
        let info = Info::from_iter([("penstock_exchange_buffer_size", buffer)]);
        let begun = self.begin()?;
        let what = format!("open {path} together");
        let comm = self.next_comm()?;
        let opened = File::open_in(&self.process, comm, &path, Amode::RDWR, &info);
        self.owing.clear();
        self.agreed(&what, &opened)?;
        let Some(file) = self.settle(&what, begun, opened)? else {
            return Ok(());
        };
        for how in hows {
            self.access(&file, f, *how)?;
            if self.common.one_in(4) {
                self.sync(&file, f)?;
            }
            self.pause();
        }
        if self.common.one_in(2) {
            self.sync(&file, f)?;
        }
        let begun = self.begin()?;
        let owed = self.owes();
        let closed = file.close();
        let what = format!("close {path} together");
        self.agreed(&what, &closed)?;
        if !owed {
            self.settle(&what, begun, closed)?;
        }
        Ok(())
    }

    /// All ranks begin a call: the time, and the earliest phase of any.
    fn begin(&self) -> Result<(Nanos, Phase), Fault> {
        let phase = self.meet()?;
        Ok((self.worker.now(), phase))
    }

    /// One access of each rank, through a view of its own.
    fn access(&mut self, file: &File, f: usize, how: How) -> Result<(), Fault> {
        let shape = self.worker.shape;
        let whole = !how.together;
        let turns = Turns::draw(
            &mut self.common,
            shape.blocks,
            shape.block,
            self.program.ranks,
            whole,
        );
        let buffer = BUFFERS[self.common.index(BUFFERS.len())].to_string();
        let aggregators = self
            .common
            .from_to(1, self.program.ranks as u64)
            .to_string();
        let info = Info::from_iter([
            ("penstock_method", how.method),
            ("cb_buffer_size", &buffer),
            ("ind_rd_buffer_size", &buffer),
            ("ind_wr_buffer_size", &buffer),
            ("cb_nodes", &aggregators),
        ]);
        let (at, filetype) = turns.view(self.rank)?;
        // Needs no server.
        let view = || file.set_view(at, &Datatype::byte(), &filetype, DataRep::Native, &info);
        let mut viewed = view();
        if self.owes() {
            self.agreed("set_view", &viewed)?;
            viewed = view();
        }
        viewed.map_err(|e| format!("set_view: {e}"))?;
        self.owing.clear();
        let set = file.set_atomicity(how.atomic);
        set.map_err(|e| format!("set_atomicity: {e}"))?;
        if how.writes {
            self.write(file, f, how, &turns)
        } else {
            self.read(file, f, how, &turns)
        }
    }

    fn write(&mut self, file: &File, f: usize, how: How, turns: &Turns) -> Result<(), Fault> {
        let begun = self.begin()?;
        let blocks = if how.together {
            turns.blocks(0..self.program.ranks)
        } else {
            turns.blocks(std::iter::once(self.rank))
        };
        let mut id = 0;
        if !how.together || self.rank == 0 {
            let mut history = lock(&self.worker.history);
            id = history.next_write;
            history.next_write += 1;
            for b in &blocks {
                history.files[f].blocks[*b].begin(id, self.program.life, begun.0);
            }
        }
        if how.together {
            let told = self.tell(&id.to_le_bytes())?;
            let first = told[0].first_chunk().copied().unwrap_or_default();
            id = u64::from_le_bytes(first);
        }
        let mut bytes = vec![0; (turns.count * turns.piece) as usize];
        let parts = bytes.chunks_mut(turns.piece as usize);
        for (at, part) in turns.pieces(self.rank).zip(parts) {
            fill(id, at, part);
        }
        let what = format!(
            "write {id} of file {f}, blocks {blocks:?}, by rank {} ({how:?})",
            self.rank
        );
        self.worker.say(&what);
        let source = &mut Source::from_slice(&bytes);
        let result = file.write(Where::At(0), how.together, source, &Datatype::byte());
        let good = if how.together {
            self.accessed(&what, how, &result)?
        } else {
            result.is_ok()
        };
        self.worker.say(&format!("write {id} has ended"));
        if !how.together || self.rank == 0 {
            let now = self.worker.now();
            for b in &blocks {
                lock(&self.worker.history).files[f].blocks[*b].end(id, now, good);
            }
        }
        if result.is_ok() {
            self.performed(file, how)?;
        }
        match self.settle(&what, begun, result)? {
            Some(n) if n != bytes.len() as u64 => Err(format!("{what}: {n} bytes are written")),
            _ => Ok(()),
        }
    }

    /// Checks that the requested method was used: a collective method that all ranks can use must not be replaced.
    fn performed(&self, file: &File, how: How) -> Result<(), Fault> {
        let chosen = file.info();
        let chosen = chosen.get("penstock_method_chosen").unwrap_or_default();
        let named = how.together && !how.atomic && how.method != "auto";
        // It requires ranks that share memory.
        let apart = how.method == "node-exchange" && !self.worker.shape.one_node;
        if named && !apart && chosen != how.method {
            return Err(format!("{how:?} was performed by {chosen}"));
        }
        Ok(())
    }

    fn read(&mut self, file: &File, f: usize, how: How, turns: &Turns) -> Result<(), Fault> {
        let mut bytes = vec![0; (turns.count * turns.piece) as usize];
        let begun = self.begin()?;
        let what = format!(
            "read of file {f} from {} by rank {} ({how:?})",
            turns.start, self.rank
        );
        self.worker.say(&what);
        let target = &mut Target::from_slice(&mut bytes);
        let result = file.read(Where::At(0), how.together, target, &Datatype::byte());
        let now = self.worker.now();
        self.worker.say("has read");
        if how.together {
            self.accessed(&what, how, &result)?;
        }
        if self.settle(&what, begun, result)?.is_none() {
            return Ok(());
        }
        let mut history = lock(&self.worker.history);
        let history = &mut *history;
        let parts = bytes.chunks(turns.piece as usize);
        for (at, found) in turns.pieces(self.rank).zip(parts) {
            let block = &history.files[f].blocks[(at / turns.block) as usize];
            let losses = self.worker.ends(&history.losses, block.machine);
            let seen = block.check(at, found, begun.0, now, &losses);
            seen.map_err(|e| format!("visibility: {what}: block {}: {e}", at / turns.block))?;
        }
        Ok(())
    }

    fn sync(&mut self, file: &File, f: usize) -> Result<(), Fault> {
        let begun = self.begin()?;
        let owed = self.owes();
        let result = file.sync();
        let now = self.worker.now();
        let what = format!("sync of file {f} together");
        if owed {
            // The sync failed for that reason, and has synced nothing.
            self.agreed(&what, &result)?;
            return Ok(());
        }
        if let Err(e) = &result
            && e.message.contains(LOST)
        {
            self.worker.say(&format!("{what} failed: {e}"));
            for block in &mut lock(&self.worker.history).files[f].blocks {
                block.told_lost(self.program.life, now);
            }
            // A loss is reported once, possibly in the phase without faults: the write may be much older.
            self.agreed(&what, &result)?;
            return Ok(());
        }
        self.agreed(&what, &result)?;
        if self.settle(&what, begun, result)?.is_none() {
            return Ok(());
        }
        let mut history = lock(&self.worker.history);
        for block in &mut history.files[f].blocks {
            block.synced(self.program.life, begun.0, now);
        }
        Ok(())
    }
}

/// Text in the message of a sync that reports a loss.
const LOST: &str = "write it to";

/// Whether a fault may have caused the error.
fn excusable(class: ErrorClass) -> bool {
    matches!(
        class,
        ErrorClass::Io | ErrorClass::NoSpace | ErrorClass::FileInUse
    )
}
