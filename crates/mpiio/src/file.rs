//! One rank's `MPI_File`: open, close, and calls that do not move data. Calls that do are in [`crate::calls`].
use crate::amode::Amode;
use crate::announce::Announcements;
use crate::comm::{Comm, agree, confer, decode_values, encode_value};
use crate::datarep::DataRep;
use crate::datatype::Datatype;
use crate::early_writeback::EarlyWriteback;
use crate::error::{Error, ErrorClass, Result};
use crate::filesystem::{Counter, FileHandle, FileSystem, OpenHow};
use crate::hints::{Hints, Info, Toggle};
use crate::meeting::{self, Call, DeferredError};
use crate::methods::Method;
use crate::methods::auto::MeetingSkips;
use crate::methods::cost::Costs;
use crate::node::{Nodes, mark};
use crate::node_memory::{NodeComm, NodeMemory, Offer, UNTOUCHED};
use crate::nonblocking::Worker;
use crate::pointer::{CounterHome, SharedPointer, Whence, Word, moved};
use crate::process::Process;
use crate::stats::FileSummary;
use crate::transfer::Decision;
use crate::view::{Seen, View};
use penstock_base::Op;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_host::time;
use penstock_layout::ServerId;
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError};

/// `MPI_DISPLACEMENT_CURRENT`: begin the new view at the shared pointer (sequential files).
pub const DISPLACEMENT_CURRENT: i64 = i64::MIN;

/// One rank's open file. All methods take `&self`; a file may be shared between threads.
pub struct File {
    pub(crate) inner: Arc<Inner>,
}

/// State that the methods of a file and its background threads share.
pub(crate) struct Inner {
    comm: Box<dyn Comm>,
    /// The access guard of the communicator.
    turn: Mutex<()>,
    pub file_system: Arc<dyn FileSystem>,
    pub handle: Arc<dyn FileHandle>,
    /// As the program named it.
    pub path: String,
    /// As the file system names it.
    name: String,
    pub amode: Amode,
    pub nodes: Nodes,
    pub state: Mutex<State>,
    pub shared: SharedPointer,
    pub announcements: Mutex<Announcements>,
    /// Errors that this rank owes to the others.
    pub debt: DeferredError,
    /// `None` if the ranks cannot share memory, or there is only one.
    node_memory: Option<Arc<NodeMemory>>,
    pub independent: Worker,
    pub collective: Worker,
    pub summary: Arc<Mutex<FileSummary>>,
    pub process: Arc<Process>,
    /// Rank 0's costs, so that all ranks choose the same.
    pub costs: Costs,
    closed: AtomicBool,
}

/// State that changes while a file is open.
pub(crate) struct State {
    pub seen: Arc<Seen>,
    /// The individual pointer, in etypes.
    pub position: i64,
    pub hints: Arc<Hints>,
    pub atomic: bool,
    /// Whether all ranks' views are contiguous, so that no exchange can help a collective call.
    pub all_contiguous: bool,
    /// Whether all ranks' filetypes are in ascending order, so that accesses of most collective calls are.
    pub all_ascend: bool,
    /// What `auto` remembers of the accesses in this view, by direction.
    pub habits: [MeetingSkips; 2],
    /// The split collective call in progress, and its result.
    pub split: Option<Split>,
    /// How the last access was performed, by direction.
    pub chosen: [Option<Decision>; 2],
    /// The direction of the last access.
    pub last: Option<Op>,
    pub behind: EarlyWriteback,
}

impl State {
    /// Whether an exchange may serve collective accesses, by hints and views.
    pub(crate) fn may_exchange(&self, direction: Op) -> bool {
        match self.hints.method {
            Some(method) => method.is_collective(),
            None => match self.hints.cb[direction as usize] {
                Toggle::Enable => true,
                Toggle::Disable => false,
                // A single range of each rank needs no exchange.
                Toggle::Automatic => !self.all_contiguous,
            },
        }
    }
}

/// A split collective call between its begin and its end.
pub(crate) struct Split {
    pub direction: Op,
    pub kind: std::mem::Discriminant<crate::calls::Where>,
    pub outcome: Result<u64>,
}

/// The access guard of the communicator: while held, its owner may use it.
pub(crate) struct Turn<'f> {
    below: &'f dyn Comm,
    node: Option<NodeComm<'f>>,
    _turn: MutexGuard<'f, ()>,
}

impl Turn<'_> {
    /// The communicator, through shared memory where available.
    pub(crate) fn comm(&self) -> &dyn Comm {
        match &self.node {
            Some(node) => node,
            None => self.below,
        }
    }

    /// The memory that the ranks share.
    pub(crate) fn memory(&self) -> Option<&NodeMemory> {
        self.node.as_ref().map(|node| node.memory)
    }
}

/// The first message of a rank at open.
#[derive(Clone, Serialize, Deserialize)]
struct Greeting {
    amode: u32,
    /// Hash of the name as the file system has it.
    name_hash: u64,
    node: String,
    /// Rank 0's are used.
    hints: Option<Hints>,
}

/// Rank 0's information about the file that it opened.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Opened {
    /// Name of the shared pointer.
    token: [u64; 2],
    /// With `MPI_MODE_APPEND`: the initial position of the pointers.
    end: u64,
    costs: Costs,
    /// If all ranks are on one node: memory to share.
    memory: Option<Offer>,
}

/// The message of a rank at `set_view`.
#[derive(Clone, Serialize, Deserialize)]
struct NewView {
    etype_extent: i64,
    datarep: String,
    contiguous: bool,
    ascends: bool,
    pointer_made: bool,
    hints: Option<Hints>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl File {
    /// `MPI_File_open`; collective. The file owns `comm` from now on: pass a duplicate. Errors are equal on all ranks.
    pub fn open(comm: Box<dyn Comm>, path: &str, amode: Amode, info: &Info) -> Result<File> {
        File::open_in(Process::global(), comm, path, amode, info)
    }

    /// The same with a given `Process`, for tests.
    #[expect(
        clippy::too_many_lines,
        reason = "the collective steps of one call, whose order all ranks share"
    )]
    pub fn open_in(
        process: &Arc<Process>,
        comm: Box<dyn Comm>,
        path: &str,
        amode: Amode,
        info: &Info,
    ) -> Result<File> {
        let began = time::now();
        let place = |e: Error| e.at(format_args!("open {path}"));
        let rank = comm.rank();

        // Arguments agree, and every rank reaches the file system.
        let mut hints = process.hints();
        hints.take(info, rank == 0);
        let ready = amode
            .check(path)
            .and_then(|()| process.find(path, comm.world_rank()).map_err(place));
        let greeting = ready
            .as_ref()
            .map_err(Error::clone)
            .map(|(_, name)| Greeting {
                amode: amode.bits(),
                name_hash: hash(name),
                node: mark(),
                hints: (rank == 0).then_some(hints.clone()),
            });
        let greetings = confer(&*comm, greeting)?;
        let (file_system, name) = ready?;
        if let Some(other) = greetings.iter().position(|g| g.amode != amode.bits()) {
            return Err(Error::new(
                ErrorClass::NotSame,
                format!(
                    "open {path}: rank {other} gives another access mode than rank {rank}; all must give the same"
                ),
            ));
        }
        // Rank 0's hints apply to the file, because methods must be chosen alike everywhere.
        let hints = greetings[0].hints.clone().unwrap_or(hints);
        let nodes = Nodes::new(greetings.iter().map(|g| g.node.as_str()));

        // Rank 0 creates or opens, then the others open the existing file.
        let how = |first: bool| OpenHow {
            read: amode.reads(),
            write: amode.writes(),
            create: (first && amode.has(Amode::CREATE)).then_some(hints.file_perm),
            exclusive: amode.has(Amode::EXCL),
            stripe_unit: hints.striping_unit,
            stripe_count: hints.striping_factor,
            start_server: hints.start_iodevice.map(ServerId),
            task: process.task().filter(|_| amode.writes()).cloned(),
        };
        let open = |first| file_system.open(&name, &how(first)).map_err(place);
        let first = (rank == 0).then(|| open(true)).transpose();
        let warn = |e: &Error| log::warn!("{path}: {e}; ranks exchange by messages");
        let offered =
            (rank == 0 && nodes.is_one() && comm.size() > 1 && first.is_ok()).then(|| {
                // A single hint for both directions.
                let bytes = hints.buffer(Method::NODE_EXCHANGE, Op::Read);
                NodeMemory::offer(comm.size(), bytes).inspect_err(warn).ok()
            });
        let offered = offered.flatten();
        let opened = first.as_ref().map_err(Error::clone).and_then(|handle| {
            let mut opened = Opened {
                token: [random()?, random()?],
                memory: offered.as_ref().map(|(_, offer, _)| offer.clone()),
                ..Opened::default()
            };
            if let Some(handle) = handle {
                opened.costs = process.costs(&**handle);
                if amode.has(Amode::APPEND) {
                    opened.end = handle.len().map_err(place)?;
                }
            }
            Ok(opened)
        });
        let opened = confer(&*comm, opened)?.swap_remove(0);
        let handle = match first? {
            Some(handle) => Ok(handle),
            None => open(false),
        };
        if greetings
            .iter()
            .any(|g| g.name_hash != greetings[0].name_hash)
        {
            // Different names may refer to one file.
            let mine = handle.as_ref().ok().map(|h| h.identity(nodes.is_one()));
            let all = confer(&*comm, Ok(mine))?;
            if let Some(other) = all.iter().position(|file| *file != all[0]) {
                return Err(Error::new(
                    ErrorClass::NotSame,
                    format!(
                        "open {path} on rank {rank}: rank {other} names another file than rank 0; all must name the same"
                    ),
                ));
            }
        }
        let node_memory = match (offered, &opened.memory) {
            // The descriptor lives until every rank has opened it.
            (Some((memory, _, file)), _) => Some((memory, Some(file))),
            (None, Some(offer)) => NodeMemory::join(offer, rank, comm.size())
                .inspect_err(warn)
                .ok()
                .map(|memory| (memory, None)),
            (None, None) => None,
        };
        // All ranks use it, or none does.
        let told = handle.as_ref().map(|_| node_memory.is_some());
        let all_have_it = confer(&*comm, told.map_err(Error::clone))?
            .into_iter()
            .all(|has| has);
        let node_memory = node_memory
            .filter(|_| all_have_it)
            .map(|(memory, _)| Arc::new(memory));
        let handle = handle?;

        let token = (u128::from(opened.token[0]) << 64) | u128::from(opened.token[1]);
        let end = i64::try_from(opened.end).unwrap_or(i64::MAX);
        let shared = {
            let (file_system, name) = (Arc::clone(&file_system), name.clone());
            let one_node = nodes.is_one();
            let (memory, alone) = (node_memory.clone(), comm.size() == 1);
            let word = |place, initial| Ok(Box::new(Word::new(place, initial)) as Box<dyn Counter>);
            let make = move |initial| match &memory {
                Some(memory) => word(CounterHome::Node(Arc::clone(memory)), initial),
                None if alone => word(CounterHome::Alone(AtomicI64::new(UNTOUCHED)), initial),
                None => file_system.counter(&name, token, initial, one_node),
            };
            SharedPointer::new(end, Box::new(make))
        };
        let inner = Inner {
            announcements: Mutex::new(Announcements::new(comm.size())),
            debt: DeferredError::default(),
            turn: Mutex::new(()),
            file_system,
            handle,
            path: path.to_owned(),
            name,
            amode,
            nodes,
            state: Mutex::new(State {
                seen: Arc::new(Seen::whole()?),
                position: end,
                hints: Arc::new(hints),
                atomic: false,
                all_contiguous: true,
                all_ascend: true,
                habits: [MeetingSkips::default(); 2],
                split: None,
                chosen: [None, None],
                last: None,
                behind: EarlyWriteback::default(),
            }),
            shared,
            node_memory,
            independent: Worker::new("penstock-io"),
            collective: Worker::new("penstock-all"),
            summary: Arc::new(Mutex::new(FileSummary {
                path: path.to_owned(),
                opens: 1,
                open_seconds: time::since(began).as_secs_f64(),
                ..FileSummary::default()
            })),
            process: Arc::clone(process),
            costs: opened.costs,
            closed: AtomicBool::new(false),
            comm,
        };
        let inner = Arc::new(inner);
        process.opened(&inner.summary, inner.comm.world_rank());
        Ok(File { inner })
    }

    /// `MPI_File_delete`; not collective.
    pub fn delete(path: &str, info: &Info) -> Result<()> {
        File::delete_in(Process::global(), path, info)
    }

    /// The same with a given `Process`.
    pub fn delete_in(process: &Arc<Process>, path: &str, _info: &Info) -> Result<()> {
        let (file_system, name) = process.find(path, 0)?;
        if let Some(task) = process.task() {
            let place = |e: Error| e.at(format_args!("delete {path}"));
            file_system.claim(&name, task).map_err(place)?;
        }
        file_system.unlink(&name)
    }

    /// `MPI_File_close`; collective. Completes nonblocking operations, frees the shared pointer, and deletes the file
    /// if it was opened so. Syncs if the hint `penstock_sync_on_close` asks for it. The file is closed even on an
    /// error; a second call is an error. Dropping an open file releases its resources without communication.
    pub fn close(&self) -> Result<()> {
        let began = time::now();
        let file = &*self.inner;
        if file.closed.swap(true, Ordering::AcqRel) {
            return Err(Error::new(
                ErrorClass::File,
                format!("close {}: it is closed already", file.path),
            ));
        }
        file.independent.close();
        file.collective.close();
        let turn = file.turn();
        let met = file.meet(&turn, Call::Close, Ok(())).map(drop);
        let synced = if file.hints().sync_on_close && file.amode.writes() {
            met.and(file.sync_all(&turn))
        } else {
            met
        };
        // Every rank has finished with the shared pointer and the file.
        let mut last = file.shared.free();
        if file.amode.has(Amode::DELETE_ON_CLOSE) && turn.comm().rank() == 0 {
            last = last.and(file.file_system.unlink(&file.name));
        }
        let last = if file.amode.has(Amode::DELETE_ON_CLOSE) {
            agree(turn.comm(), last)
        } else {
            last
        };
        lock(&file.summary).open_seconds += time::since(began).as_secs_f64();
        synced.and(last)
    }

    /// `MPI_File_set_view`; collective. `disp` in bytes or [`DISPLACEMENT_CURRENT`].
    pub fn set_view(
        &self,
        disp: i64,
        etype: &Datatype,
        filetype: &Datatype,
        datarep: DataRep,
        info: &Info,
    ) -> Result<()> {
        let file = &*self.inner;
        let turn = file.collective_turn();
        let mut hints = (*file.hints()).clone();
        hints.take(info, turn.comm().rank() == 0);
        let seen = file
            .displacement(disp)
            .and_then(|disp| {
                let view = View {
                    disp,
                    etype: etype.clone(),
                    filetype: filetype.clone(),
                    datarep,
                };
                Seen::new(view, file.amode.writes())
            })
            .map_err(|e| e.at(&file.path));
        let told = seen.as_ref().map_err(Error::clone).map(|seen| NewView {
            etype_extent: etype.layout.extent(),
            datarep: datarep.name().into(),
            contiguous: seen.is_contiguous(),
            ascends: seen.ascends(),
            pointer_made: file.shared.is_made(),
            hints: (turn.comm().rank() == 0).then_some(hints.clone()),
        });
        let views = file.meet(&turn, Call::SetView, told)?;
        let mine = &views[turn.comm().rank()];
        let differs = views
            .iter()
            .position(|v| v.etype_extent != mine.etype_extent || v.datarep != mine.datarep);
        if let Some(other) = differs {
            return Err(Error::new(
                ErrorClass::NotSame,
                format!(
                    "set_view of {}: rank {other} gives another etype extent or data representation; all must give the \
                     same",
                    file.path
                ),
            ));
        }
        file.shared.reset(0);
        let made = views.iter().any(|v| v.pointer_made);
        if made {
            let reset = if turn.comm().rank() == 0 {
                file.shared.set(0)
            } else {
                Ok(())
            };
            agree(turn.comm(), reset)?;
        }
        let mut state = lock(&file.state);
        state.seen = Arc::new(seen?);
        state.position = 0;
        state.hints = Arc::new(views[0].hints.clone().unwrap_or(hints));
        state.habits = [MeetingSkips::default(); 2];
        state.all_contiguous = views.iter().all(|v| v.contiguous);
        state.all_ascend = views.iter().all(|v| v.ascends);
        Ok(())
    }

    /// `MPI_File_get_view`.
    pub fn view(&self) -> View {
        self.inner.seen().view.clone()
    }

    /// `MPI_File_seek`.
    pub fn seek(&self, offset: i64, whence: Whence) -> Result<()> {
        let file = &*self.inner;
        file.not_sequential("seek")?;
        let mut state = lock(&file.state);
        let base = match whence {
            Whence::Set => 0,
            Whence::Current => state.position,
            Whence::End => state.seen.end(file.handle.len()?)?,
        };
        state.position = moved(base, offset).map_err(|e| e.at(&file.path))?;
        Ok(())
    }

    /// `MPI_File_seek_shared`; collective.
    pub fn seek_shared(&self, offset: i64, whence: Whence) -> Result<()> {
        let file = &*self.inner;
        let turn = file.collective_turn();
        let arguments = file
            .not_sequential(Call::SeekShared.name())
            .map(|()| (offset, whence as u8));
        file.same(&turn, Call::SeekShared, arguments)?;
        let sought = if turn.comm().rank() == 0 {
            let base = match whence {
                Whence::Set => Ok(0),
                Whence::Current => file.shared.get(),
                Whence::End => file.handle.len().and_then(|len| file.seen().end(len)),
            };
            base.and_then(|base| moved(base, offset).map_err(|e| e.at(&file.path)))
                .and_then(|position| file.shared.set(position))
        } else {
            Ok(())
        };
        agree(turn.comm(), sought)
    }

    /// `MPI_File_get_position`, in etypes.
    pub fn position(&self) -> Result<i64> {
        self.inner.not_sequential("get_position")?;
        Ok(lock(&self.inner.state).position)
    }

    /// `MPI_File_get_position_shared`, in etypes.
    pub fn position_shared(&self) -> Result<i64> {
        self.inner.shared.get()
    }

    /// `MPI_File_get_byte_offset`: absolute byte position of a view offset.
    pub fn byte_offset(&self, offset: i64) -> Result<i64> {
        self.inner.not_sequential("get_byte_offset")?;
        let seen = self.inner.seen();
        seen.byte_offset(offset).map_err(|e| e.at(&self.inner.path))
    }

    /// `MPI_File_get_size`, bytes.
    pub fn size(&self) -> Result<i64> {
        Ok(i64::try_from(self.inner.handle.len()?).unwrap_or(i64::MAX))
    }

    /// `MPI_File_set_size`; collective.
    pub fn set_size(&self, size: i64) -> Result<()> {
        self.resize(Call::SetSize, size, |handle, size| handle.set_len(size))
    }

    /// `MPI_File_preallocate`; collective.
    pub fn preallocate(&self, size: i64) -> Result<()> {
        self.resize(Call::Preallocate, size, |handle, size| {
            handle.allocate(size)
        })
    }

    fn resize(
        &self,
        call: Call,
        size: i64,
        act: impl FnOnce(&dyn FileHandle, u64) -> Result<()>,
    ) -> Result<()> {
        let what = call.name();
        let file = &*self.inner;
        let turn = file.collective_turn();
        let checked = file.check_writes(what).and_then(|()| {
            file.not_sequential(what)?;
            u64::try_from(size).map_err(|_| {
                Error::new(
                    ErrorClass::Arg,
                    format!("{what} of {}: size {size} is negative", file.path),
                )
            })
        });
        let size = file.same(&turn, call, checked)?;
        let done = if turn.comm().rank() == 0 {
            act(&*file.handle, size)
        } else {
            Ok(())
        };
        agree(turn.comm(), done)
    }

    /// `MPI_File_sync`; collective.
    pub fn sync(&self) -> Result<()> {
        let file = &*self.inner;
        let turn = file.collective_turn();
        let (written, independent) = {
            let behind = &lock(&file.state).behind;
            (behind.collective(), behind.is_independent())
        };
        if independent {
            // Others may continue to write for long. After collective calls their bytes will follow soon, and are in
            // between.
            file.handle.start_writeback(0, 1);
        }
        let told = file.meet(&turn, Call::Sync, Ok(written))?;
        let share = file.nodes.share(turn.comm().rank(), &told);
        lock(&file.state).behind.synced(&told, share);
        file.sync_all(&turn)
    }

    /// `MPI_File_set_atomicity`; collective.
    pub fn set_atomicity(&self, on: bool) -> Result<()> {
        let file = &*self.inner;
        let turn = file.collective_turn();
        let on = file.same(&turn, Call::SetAtomicity, Ok(on))?;
        let mut state = lock(&file.state);
        state.atomic = on;
        state.habits = [MeetingSkips::default(); 2];
        Ok(())
    }

    /// `MPI_File_get_atomicity`.
    pub fn atomicity(&self) -> bool {
        lock(&self.inner.state).atomic
    }

    /// `MPI_File_get_amode`.
    pub fn amode(&self) -> Amode {
        self.inner.amode
    }

    /// `MPI_File_get_info`: every hint in force, with the choices made.
    pub fn info(&self) -> Info {
        let file = &*self.inner;
        let state = lock(&file.state);
        let mut info = state.hints.report(file.comm.size());
        info.set("filename", &*file.path);
        info.set("romio_filesystem_type", file.file_system.name());
        info.set("penstock_file_system", file.file_system.name());
        // Acknowledged writes are visible to every process at once.
        info.set("romio_visibility_immediate", "true");
        let yes = |b: bool| if b { "true" } else { "false" };
        info.set("penstock_one_node", yes(file.nodes.is_one()));
        if let Some(layout) = file.handle.layout() {
            info.set("striping_unit", layout.stripe_unit.to_string());
            info.set("striping_factor", layout.servers.len().to_string());
            if let Some(first) = layout.servers.first() {
                info.set("start_iodevice", first.0.to_string());
            }
        }
        let last = state.last.unwrap_or(Op::Read);
        if let Some(plan) = &state.chosen[last as usize] {
            info.set("penstock_method_chosen", plan.candidate.method.name());
            info.set("penstock_method_reason", plan.reason());
            info.set("penstock_shortcut_chosen", yes(plan.candidate.shortcut));
        }
        info
    }

    /// `MPI_File_set_info`; collective.
    pub fn set_info(&self, info: &Info) -> Result<()> {
        let file = &*self.inner;
        let turn = file.collective_turn();
        let mut hints = (*file.hints()).clone();
        hints.take(info, turn.comm().rank() == 0);
        let hints = file.meet(&turn, Call::SetInfo, Ok(hints))?.swap_remove(0);
        let mut state = lock(&file.state);
        state.hints = Arc::new(hints);
        state.habits = [MeetingSkips::default(); 2];
        Ok(())
    }

    /// `MPI_File_get_type_extent`: the extent of a type in this file's data representation.
    pub fn type_extent(&self, datatype: &Datatype) -> Result<i64> {
        Ok(match self.inner.seen().view.datarep {
            DataRep::External32 => datatype.external32.extent(),
            DataRep::Native | DataRep::Internal => datatype.layout.extent(),
        })
    }

    /// The path it was opened with.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// Counts of this open so far.
    pub fn summary(&self) -> FileSummary {
        self.inner.summary()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let file = &*self.inner;
        if !file.closed.swap(true, Ordering::AcqRel) {
            if let Some(memory) = &file.node_memory {
                memory.abandon();
            }
            file.independent.close();
            file.collective.close();
        }
        let summary = file.summary();
        *lock(&file.summary) = FileSummary::default();
        file.process.add(summary);
    }
}

/// Equal in all processes.
fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

/// 64 random bits; tokens only have to differ between opens.
fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    penstock_host::random(&mut bytes).map_err(|e| Error::os("random numbers for a token", &e))?;
    Ok(u64::from_ne_bytes(bytes))
}

impl Inner {
    /// The access guard for a collective call of the caller's thread: waits for started nonblocking collectives.
    pub(crate) fn collective_turn(&self) -> Turn<'_> {
        self.collective.drain();
        self.turn()
    }

    /// The access guard for the thread of nonblocking collectives.
    pub(crate) fn turn(&self) -> Turn<'_> {
        let below = &*self.comm;
        let memory = self.node_memory.as_deref();
        Turn {
            _turn: lock(&self.turn),
            below,
            node: memory.map(|memory| NodeComm { memory, below }),
        }
    }

    pub(crate) fn hints(&self) -> Arc<Hints> {
        Arc::clone(&lock(&self.state).hints)
    }

    pub(crate) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&lock(&self.state).seen)
    }

    /// The meeting of a collective call: the values of all ranks, by rank. An error on every rank if one has an error,
    /// or owes one to others, or is in another call.
    pub(crate) fn meet<T>(&self, turn: &Turn<'_>, call: Call, mine: Result<T>) -> Result<Vec<T>>
    where
        T: Serialize + for<'de> Deserialize<'de>,
    {
        let comm = turn.comm();
        if comm.size() == 1 {
            return mine.map(|value| vec![value]);
        }
        let told = encode_value(comm.rank(), &mine)?;
        let met = meeting::meet(comm, &self.debt, call, &told)?;
        if !met.in_step() {
            lock(&self.announcements).forget();
        }
        mine?;
        met.verdict.map_err(|e| e.at(&self.path))?;
        decode_values(&met.told)
    }

    /// Checks that arguments of a collective call are equal on all ranks.
    fn same<T>(&self, turn: &Turn<'_>, call: Call, mine: Result<T>) -> Result<T>
    where
        T: Clone + PartialEq + Serialize + for<'de> Deserialize<'de>,
    {
        let what = call.name();
        let all = self.meet(turn, call, mine.clone())?;
        let mine = mine?;
        match all.iter().position(|other| *other != mine) {
            None => Ok(mine),
            Some(other) => Err(Error::new(
                ErrorClass::NotSame,
                format!(
                    "{what} of {}: rank {other} gives other arguments; all must give the same",
                    self.path
                ),
            )),
        }
    }

    /// Writes the summary so far, if the last one is old.
    pub(crate) fn checkpoint(&self) {
        self.process.checkpoint(self.comm.world_rank());
    }

    fn summary(&self) -> FileSummary {
        let mut summary = lock(&self.summary).clone();
        let [read, write] = lock(&self.state).chosen;
        let reason = |decision: Option<Decision>| decision.map(|d| d.reason()).unwrap_or_default();
        summary.read.reason = reason(read);
        summary.write.reason = reason(write);
        summary
    }

    /// Syncs after all ranks have met: their writes have ended before the first rank of each node makes them durable.
    fn sync_all(&self, turn: &Turn<'_>) -> Result<()> {
        let began = time::now();
        let synced = self.handle.sync(self.nodes.leads(turn.comm().rank()));
        let synced = agree(turn.comm(), synced);
        let mut summary = lock(&self.summary);
        summary.syncs += 1;
        summary.sync_seconds += time::since(began).as_secs_f64();
        synced
    }

    pub(crate) fn check_writes(&self, what: &str) -> Result<()> {
        if self.amode.writes() {
            return Ok(());
        }
        Err(Error::new(
            ErrorClass::ReadOnly,
            format!(
                "{what} of {}: it was opened MPI_MODE_RDONLY; open it MPI_MODE_RDWR",
                self.path
            ),
        ))
    }

    pub(crate) fn check_reads(&self, what: &str) -> Result<()> {
        if self.amode.reads() {
            return Ok(());
        }
        Err(Error::new(
            ErrorClass::Access,
            format!(
                "{what} of {}: it was opened MPI_MODE_WRONLY; open it MPI_MODE_RDWR",
                self.path
            ),
        ))
    }

    pub(crate) fn not_sequential(&self, what: &str) -> Result<()> {
        if !self.amode.has(Amode::SEQUENTIAL) {
            return Ok(());
        }
        Err(Error::new(
            ErrorClass::UnsupportedOperation,
            format!(
                "{what} of {}: a file opened MPI_MODE_SEQUENTIAL has the shared pointer only",
                self.path
            ),
        ))
    }

    /// A displacement passed to `set_view`, in bytes.
    fn displacement(&self, disp: i64) -> Result<u64> {
        if disp == DISPLACEMENT_CURRENT {
            if !self.amode.has(Amode::SEQUENTIAL) {
                return Err(Error::new(
                    ErrorClass::Arg,
                    "set_view: MPI_DISPLACEMENT_CURRENT is for files opened MPI_MODE_SEQUENTIAL",
                ));
            }
            let current = self.seen().byte_offset(self.shared.get()?)?;
            return Ok(current.unsigned_abs());
        }
        u64::try_from(disp).map_err(|_| {
            Error::new(
                ErrorClass::Arg,
                format!("set_view: displacement {disp} is negative; use 0 or more"),
            )
        })
    }
}
