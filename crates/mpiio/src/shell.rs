//! Drives plans ([`crate::methods::plan`]) in a program: owns the memory, the unsafe code, MPI and the file.
//!
//! A rank's own failure does not end its plan, because others wait for its collective steps. The first error is kept as
//! that of the access. Only an error of the communicator ends the plan at once.
use crate::access::{Buffer, Tally};
use crate::comm::Comm;
use crate::error::{Error, ErrorClass, Result};
use crate::filesystem::{FileHandle, Form, Guard, LockMode};
use crate::message::Message;
use crate::methods::plan::{
    Memory, Operate, Operation, Outcome, Part, Plan, Room, Step, Way, Window, Words,
};
use crate::node_memory::NodeMemory;
use penstock_base::Op;
use penstock_datatype::{Pattern, Source, Target};
use penstock_host::{thread, time};
use std::time::Duration;

/// The ranks of a collective call.
pub(crate) struct Ranks<'s> {
    pub comm: &'s dyn Comm,
    /// Set if the method uses it.
    pub memory: Option<&'s NodeMemory>,
    /// The call's number, equal on all ranks and increasing.
    pub call: u64,
}

/// The driver of one access: its memory and connections.
pub(crate) struct Shell<'s, 'b, 'a> {
    handle: &'s dyn FileHandle,
    buffer: &'s mut Buffer<'b, 'a>,
    ranks: Option<Ranks<'s>>,
    /// Whether to use descriptors instead of requests.
    shortcut: bool,
    /// Whether the whole access is already under a range lock.
    guarded: bool,
    lock: Option<Box<dyn Guard>>,
    scratch: Vec<u8>,
    inbox: Inbox,
    halves: Halves,
    /// Ranks whose plans have ended early, or that are silent.
    gone: Vec<usize>,
    pub tally: Tally,
    /// How often all ranks met in the plan, and how long this one then waited.
    pub met: u64,
    pub waited: Duration,
    failed: Result<()>,
}

impl<'s, 'b, 'a> Shell<'s, 'b, 'a> {
    /// `guarded`: the whole access is already under a range lock.
    pub(crate) fn new(
        handle: &'s dyn FileHandle,
        buffer: &'s mut Buffer<'b, 'a>,
        ranks: Option<Ranks<'s>>,
        shortcut: bool,
        guarded: bool,
    ) -> Shell<'s, 'b, 'a> {
        Shell {
            handle,
            buffer,
            ranks,
            shortcut,
            guarded,
            lock: None,
            scratch: Vec::new(),
            inbox: Inbox::default(),
            halves: Halves::default(),
            gone: Vec::new(),
            tally: Tally::default(),
            met: 0,
            waited: Duration::ZERO,
            failed: Ok(()),
        }
    }

    /// Drives a plan to its end; returns the stream bytes moved by this rank.
    pub(crate) fn drive(&mut self, plan: &mut dyn Plan) -> Result<u64> {
        match self.steps(plan) {
            Ok(moved) => std::mem::replace(&mut self.failed, Ok(())).map(|()| moved),
            Err(e) => {
                if let Some(ranks) = &self.ranks {
                    for peer in plan.hearers() {
                        // If that fails too, the peer's wait has its own limit.
                        let _ = Message::Gone(e.clone()).send(ranks.comm, peer, ranks.call);
                    }
                }
                Err(e)
            }
        }
    }

    /// Carries out a plan's steps up to its end, or to an error of the communicator.
    fn steps(&mut self, plan: &mut dyn Plan) -> Result<u64> {
        let mut last = Outcome::Done(0);
        loop {
            last = match plan.next(last) {
                Step::Finish { moved } => return Ok(moved),
                Step::Operate(operate) => self.attempt(|shell| shell.operate(operate)),
                Step::Exchange {
                    send,
                    from,
                    receive,
                    into,
                } => {
                    let received = self.exchange(&send, from)?;
                    self.attempt(|shell| shell.take(received, &receive, into))
                }
                Step::Share { way, stream, parts } => {
                    self.attempt(|shell| shell.share(way, stream, &parts))
                }
                Step::Barrier { filled } => {
                    self.barrier(filled)?;
                    Outcome::Done(0)
                }
                Step::Confer { times } => {
                    for _ in 0..times {
                        self.meet(|comm| comm.allgather(&[]).map(drop))?;
                    }
                    Outcome::Done(0)
                }
                Step::Tell { peer, words } => {
                    let Ranks { comm, call, .. } = *self.ranks()?;
                    let message = match &self.failed {
                        Ok(()) => Message::Words(words),
                        Err(e) => Message::Failed(e.clone()),
                    };
                    message.send(comm, peer, call)?;
                    Outcome::Done(0)
                }
                Step::Hear { peer } => match self.hear(peer) {
                    Ok(words) => Outcome::Heard(words),
                    Err(e) => self.fail(e),
                },
                Step::Prefetch { patterns } => {
                    self.attempt(|shell| shell.handle.prefetch(&patterns).map(|()| 0))
                }
                Step::Wait { time } => {
                    thread::sleep(Duration::from_nanos(time));
                    Outcome::Done(0)
                }
                Step::Lock { range } => self.attempt(|shell| {
                    let range = range.start as u64..range.end as u64;
                    shell.lock = Some(shell.handle.lock(range, LockMode::Exclusive)?);
                    Ok(0)
                }),
                Step::Unlock { again } => {
                    self.lock = None;
                    if again {
                        self.failed = Ok(());
                    }
                    Outcome::Done(0)
                }
            };
        }
    }

    /// Keeps the first error.
    fn attempt(&mut self, what: impl FnOnce(&mut Self) -> Result<u64>) -> Outcome {
        match what(self) {
            Ok(bytes) => Outcome::Done(bytes),
            Err(e) => self.fail(e),
        }
    }

    fn fail(&mut self, e: Error) -> Outcome {
        if self.failed.is_ok() {
            self.failed = Err(e);
        }
        let lock_lost = self.lock.as_ref().is_some_and(|lock| lock.is_lost());
        Outcome::Failed { lock_lost }
    }

    /// Receives a message of a rank. An error does not end the plan: others wait for messages of this rank. A rank that
    /// is gone is not waited for again.
    fn hear(&mut self, peer: usize) -> Result<Words> {
        let Ranks { comm, call, .. } = *self.ranks()?;
        let silent = || {
            let says = format!("rank {peer} has left this call and sends no more messages");
            Error::new(ErrorClass::Comm, says)
        };
        if self.gone.contains(&peer) {
            return Err(silent());
        }
        match Message::receive(comm, peer, call) {
            Ok(Message::Words(words)) => Ok(words),
            Ok(Message::Failed(e)) => Err(e),
            Ok(Message::Gone(e)) | Err(e) => {
                self.gone.push(peer);
                Err(e)
            }
        }
    }

    fn ranks(&self) -> Result<&Ranks<'s>> {
        let missing = "a plan of one rank has a step of several";
        (self.ranks.as_ref()).ok_or_else(|| Error::new(ErrorClass::Intern, missing))
    }

    fn comm(&self) -> Result<&'s dyn Comm> {
        Ok(self.ranks()?.comm)
    }

    fn node_memory(&self) -> Result<&'s NodeMemory> {
        let missing = "the ranks share no memory";
        (self.ranks()?.memory).ok_or_else(|| Error::new(ErrorClass::Intern, missing))
    }

    /// Carries out operations on the file and counts them.
    fn operate(&mut self, operate: Operate) -> Result<u64> {
        let Operate {
            op,
            form,
            memory,
            mut cut,
            extent: (lo, hi),
        } = operate;
        let form = if self.shortcut { Form::Shortcut } else { form };
        let rewriting = self.lock.is_some();
        let _guard = match op {
            Op::Write if !self.guarded && !rewriting => {
                self.handle.writing(lo as u64..hi as u64)?
            }
            _ => None,
        };
        let (handle, tally) = (self.handle, &mut self.tally);
        let mut operations = cut.by_ref().map(|Operation { part, .. }| {
            // A read for a read-modify-write is no separate operation.
            if op == Op::Write || !rewriting {
                tally.operations += 1;
                tally.accessed += part.pattern.len;
                tally.largest = tally.largest.max(part.pattern.len);
            }
            (part.at, part.pattern)
        });
        let moved = match (memory, op) {
            (Memory::User, Op::Read) => match &mut self.buffer {
                Buffer::Into(target) => handle.read_each(&mut operations, form, target),
                Buffer::From(_) => Err(wrong_way()),
            },
            (Memory::User, Op::Write) => match &mut self.buffer {
                Buffer::From(source) => handle.write_each(&mut operations, form, source),
                Buffer::Into(_) => Err(wrong_way()),
            },
            (Memory::Inbox, Op::Write) => {
                let bytes = self.inbox.bytes();
                handle.write_each(&mut operations, form, &mut Source::from_slice(&bytes))
            }
            (Memory::Packed, Op::Write) => {
                let mut packed = Source::from_slice(&self.scratch);
                handle.write_each(&mut operations, form, &mut packed)
            }
            (Memory::Inbox | Memory::Packed, Op::Read) => Err(wrong_way()),
            (Memory::Window(window), op) => {
                let memory = self.ranks.as_ref().and_then(|ranks| ranks.memory);
                let start = place(&mut self.scratch, memory, window)?;
                if let Room::Half { half, .. } = window.room {
                    match op {
                        Op::Read => self.halves.fill(half),
                        Op::Write => self.halves.use_it(half),
                    }
                }
                let mut moved = 0;
                for (_, pattern) in operations {
                    let one = &mut std::iter::once((0, pattern.clone()));
                    let inside = rebase(&pattern, window);
                    // SAFETY, for both: `rebase` has checked that the pattern stays inside the window, and `place` that
                    // the window is mapped. A scratch window belongs to this rank. Only its owner fills a half, after
                    // every rank has copied what was in it. Only its owner uses it after the barrier behind every
                    // rank's copies into it. `halves` asserts both.
                    moved += if op == Op::Read {
                        // SAFETY: as above.
                        let mut target = unsafe { Target::new(start, inside) };
                        handle.read_each(one, form, &mut target)?
                    } else {
                        // SAFETY: as above.
                        let mut source = unsafe { Source::new(start, inside) };
                        handle.write_each(one, form, &mut source)?
                    };
                }
                Ok(moved)
            }
        };
        let moved = moved?;
        if rewriting && op == Op::Read {
            self.tally.reread += moved;
            if let Memory::Window(window) = memory
                && let Room::Scratch = window.room
            {
                self.scratch[moved.min(window.len) as usize..window.len as usize].fill(0);
            }
        }
        Ok(moved)
    }

    /// Sends parts to their ranks; returns what each rank sent to this one.
    fn exchange(&mut self, send: &[(usize, Part)], from: Memory) -> Result<Vec<Vec<u8>>> {
        let comm = self.comm()?;
        let mut messages = vec![Vec::new(); comm.size()];
        for (rank, Part { at, pattern }) in send {
            let message: &mut Vec<u8> = &mut messages[*rank];
            let begin = message.len();
            message.resize(begin + pattern.len as usize, 0);
            let message = &mut message[begin..];
            match from {
                Memory::Window(window) => {
                    let start = place(&mut self.scratch, None, window)?;
                    let inside = rebase(pattern, window);
                    // SAFETY: `rebase` has checked that the pattern stays inside the window, which is this rank's own.
                    unsafe { Source::new(start, inside) }.gather(0, message);
                }
                Memory::User | Memory::Inbox | Memory::Packed => match &mut self.buffer {
                    Buffer::From(source) => source.gather(*at, message),
                    Buffer::Into(_) => return Err(wrong_way()),
                },
            }
            if *rank != comm.rank() {
                self.tally.resent += pattern.len;
            }
        }
        comm.alltoallv(messages)
    }

    /// Stores what the ranks sent; returns the bytes for the caller's buffer.
    fn take(
        &mut self,
        mut received: Vec<Vec<u8>>,
        receive: &[(usize, Part)],
        into: Memory,
    ) -> Result<u64> {
        let mut moved = 0;
        self.inbox.messages.clear();
        // A rank's parts follow each other in its message.
        let mut taken = vec![0; received.len()];
        for (rank, Part { at, pattern }) in receive {
            let message = &mut received[*rank];
            let begin = taken[*rank];
            let end = message.len().min(begin + pattern.len as usize);
            taken[*rank] = end;
            let bytes = if (begin, end) == (0, message.len()) {
                std::mem::take(message)
            } else {
                message[begin..end].to_vec()
            };
            match (into, &mut self.buffer) {
                (Memory::User, Buffer::Into(target)) => {
                    let got = pattern.len.min(bytes.len() as u64);
                    target.scatter(*at, &bytes[..got as usize]);
                    moved += got;
                }
                (Memory::Inbox, _) if bytes.len() as u64 == pattern.len => {
                    self.inbox.messages.push((*at, bytes));
                }
                (Memory::Inbox, _) => {
                    let (got, len) = (bytes.len(), pattern.len);
                    let says = format!("rank {rank} sent {got} of {len} bytes in an exchange");
                    return Err(Error::new(ErrorClass::Comm, says));
                }
                _ => return Err(wrong_way()),
            }
        }
        Ok(moved)
    }

    /// Copies parts between a stream and windows; returns the bytes.
    fn share(&mut self, way: Way, stream: Memory, parts: &[(Window, Part)]) -> Result<u64> {
        let memory = self.ranks.as_ref().and_then(|ranks| ranks.memory);
        let rank = self.ranks.as_ref().map_or(0, |ranks| ranks.comm.rank());
        let mut moved = 0;
        for (window, Part { at, pattern }) in parts {
            let start = place(&mut self.scratch, memory, *window)?;
            let mut inside = rebase(pattern, *window);
            let mut resent = false;
            if let Room::Half { owner, half } = window.room {
                resent = owner != rank;
                match way {
                    Way::In => self.halves.fill(half),
                    Way::Out => {
                        self.halves.use_it(half);
                        // Short at the end of the file, or if the owner failed.
                        let filled = self.node_memory()?.note(owner, half) as i64;
                        inside = inside.slice(0, inside.stream_at(filled));
                    }
                }
            }
            let len = inside.len;
            match (way, stream, &mut self.buffer) {
                (Way::In, Memory::User, Buffer::From(source)) => {
                    // SAFETY: `rebase` has checked that the pattern stays inside the window, and `place` that the
                    // window is mapped. Other ranks write to a half at the same time, each the bytes of its own
                    // pattern; where patterns overlap MPI leaves the result undefined. The owner uses it after the next
                    // barrier.
                    copy(
                        source,
                        *at,
                        &mut unsafe { Target::new(start, inside) },
                        0,
                        len,
                    );
                }
                (Way::In, Memory::Inbox, _) => {
                    let mut message = Source::from_slice(self.inbox.message(*at)?);
                    // SAFETY: as above.
                    copy(
                        &mut message,
                        0,
                        &mut unsafe { Target::new(start, inside) },
                        0,
                        len,
                    );
                }
                (Way::Out, Memory::User, Buffer::Into(target)) => {
                    // SAFETY: as above for the bounds. A half was filled before the last barrier, and nobody writes to
                    // it before the next.
                    copy(
                        &mut unsafe { Source::new(start, inside) },
                        0,
                        target,
                        *at,
                        len,
                    );
                }
                _ => return Err(wrong_way()),
            }
            moved += len;
            if resent {
                self.tally.resent += len;
            }
        }
        Ok(moved)
    }

    fn meet(&mut self, how: impl FnOnce(&dyn Comm) -> Result<()>) -> Result<()> {
        let began = time::now();
        how(self.comm()?)?;
        self.waited += time::since(began);
        self.met += 1;
        Ok(())
    }

    /// Waits for all ranks, and announces how far a half is filled.
    fn barrier(&mut self, filled: Option<(usize, u64)>) -> Result<()> {
        if let Some((half, bytes)) = filled {
            self.node_memory()?.set_note(half, bytes);
        }
        self.meet(|comm| comm.barrier())?;
        self.halves.barriers += 1;
        Ok(())
    }
}

/// The error of a step against the direction of its access.
fn wrong_way() -> Error {
    Error::new(
        ErrorClass::Intern,
        "a plan moves bytes against the direction of its access",
    )
}

/// The messages of an exchange, by their positions in the inbox's stream.
#[derive(Default)]
struct Inbox {
    messages: Vec<(u64, Vec<u8>)>,
}

impl Inbox {
    /// The message that begins at a position.
    fn message(&self, at: u64) -> Result<&[u8]> {
        let found = self
            .messages
            .binary_search_by_key(&at, |(begins, _)| *begins);
        let missing = |_| Error::new(ErrorClass::Intern, "a plan takes what was not sent");
        found.map(|i| &self.messages[i].1[..]).map_err(missing)
    }

    /// The whole stream.
    fn bytes(&self) -> Vec<u8> {
        let messages = self.messages.iter().map(|(_, bytes)| &bytes[..]);
        messages.collect::<Vec<_>>().concat()
    }
}

/// When the halves of shared windows were filled and used, counted in barriers: the copies without locks rely on it.
#[derive(Default)]
struct Halves {
    barriers: u64,
    filled: [Option<u64>; 2],
    used: [Option<u64>; 2],
}

impl Halves {
    /// This rank fills a half.
    ///
    /// # Panics
    /// If others may still use its contents. There must be a barrier after their use, which follows the barrier after
    /// the last time it was filled.
    fn fill(&mut self, half: usize) {
        let now = self.barriers;
        let (filled, used) = (&mut self.filled[half % 2], self.used[half % 2]);
        let free = filled.is_none_or(|at| at == now || at + 2 <= now);
        assert!(
            free && used.is_none_or(|at| at < now),
            "half {half} of a shared window is filled before it was released"
        );
        *filled = Some(now);
    }

    /// This rank uses the contents of a half.
    ///
    /// # Panics
    /// If there was no barrier since it was filled.
    fn use_it(&mut self, half: usize) {
        let now = self.barriers;
        assert!(
            now > 0 && self.filled[half % 2] != Some(now),
            "half {half} of a shared window is used before all ranks have filled it"
        );
        self.used[half % 2] = Some(now);
    }
}

/// The address of a window's memory, which is at least as long as the window.
fn place(scratch: &mut Vec<u8>, memory: Option<&NodeMemory>, window: Window) -> Result<*mut u8> {
    let len = usize::try_from(window.len).unwrap_or(usize::MAX);
    match (window.room, memory) {
        (Room::Scratch, _) => {
            if scratch.len() < len {
                scratch.resize(len, 0);
            }
            Ok(scratch.as_mut_ptr())
        }
        (Room::Half { owner, half }, Some(memory)) if len <= memory.half_bytes() => {
            Ok(memory.half(owner, half))
        }
        (Room::Half { .. }, _) => Err(Error::new(
            ErrorClass::Intern,
            "a window is larger than the memory that the ranks share",
        )),
    }
}

/// The same bytes, relative to the memory of a window.
///
/// # Panics
/// If the pattern exceeds the window.
fn rebase(pattern: &Pattern, window: Window) -> Pattern {
    let ((first, end), (lo, hi)) = (pattern.bounds(), window.bounds());
    assert!(
        pattern.len == 0 || (first >= lo && end <= hi),
        "a part at {first}..{end} outside its window at {lo}..{hi}"
    );
    Pattern {
        disp: pattern.disp - window.start,
        ..pattern.clone()
    }
}

/// Copies `len` stream bytes between two memory patterns, walking the one with the larger pieces.
fn copy(from: &mut Source<'_>, at: u64, to: &mut Target<'_>, to_at: u64, len: u64) {
    let mut done = 0;
    if to.pattern().regions() <= from.pattern().regions() {
        to.pieces(to_at, len, |piece| {
            from.gather(at + done, piece);
            done += piece.len() as u64;
        });
    } else {
        from.pieces(at, len, |piece| {
            to.scatter(to_at + done, piece);
            done += piece.len() as u64;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::agree;
    use crate::filesystem::Operations;
    use crate::methods::domains::{Rules, Schedule, Seat};
    use crate::testing::{ThreadComm, Turns, run};
    use penstock_layout::Layout;
    use std::ops::Range;
    use std::rc::Rc;
    use std::sync::Mutex;

    /// Steps on half 0: f fills it, u uses it, | is a barrier.
    fn halves(steps: &str) {
        let mut halves = Halves::default();
        for step in steps.chars() {
            match step {
                'f' => halves.fill(0),
                'u' => halves.use_it(0),
                _ => halves.barriers += 1,
            }
        }
    }

    #[test]
    fn a_half_is_filled_used_and_filled_again() {
        halves("ff|uu||ff|u");
        halves("ff||ff|u");
        halves("|u|ff");
    }

    #[test]
    #[should_panic(expected = "before it was released")]
    fn others_may_still_use_a_half_after_one_barrier() {
        halves("f|f");
    }

    #[test]
    #[should_panic(expected = "before it was released")]
    fn a_half_in_use_is_not_filled() {
        halves("f|uf");
    }

    #[test]
    #[should_panic(expected = "before all ranks have filled it")]
    fn a_half_is_not_used_before_the_barrier() {
        halves("fu");
    }

    /// A file whose writes fail on some ranks; it records who wrote.
    struct Paper<'t> {
        rank: usize,
        fails: bool,
        wrote: &'t Mutex<Vec<usize>>,
    }

    impl FileHandle for Paper<'_> {
        fn write_each(
            &self,
            operations: &mut Operations<'_>,
            _: Form,
            _: &mut Source<'_>,
        ) -> Result<u64> {
            if self.fails {
                return Err(Error::new(ErrorClass::NoSpace, "the paper is full"));
            }
            self.wrote.lock().unwrap().push(self.rank);
            Ok(operations.map(|(_, pattern)| pattern.len).sum())
        }
        fn writing(&self, _: Range<u64>) -> Result<Option<Box<dyn Guard>>> {
            Ok(None)
        }
        fn identity(&self, _: bool) -> (u64, u64) {
            (0, 0)
        }
        fn layout(&self) -> Option<&Layout> {
            None
        }
        fn has_shortcut(&self) -> bool {
            false
        }
        fn read_each(&self, _: &mut Operations<'_>, _: Form, _: &mut Target<'_>) -> Result<u64> {
            Err(wrong_way())
        }
        fn len(&self) -> Result<u64> {
            Ok(0)
        }
        fn set_len(&self, _: u64) -> Result<()> {
            Err(wrong_way())
        }
        fn allocate(&self, _: u64) -> Result<()> {
            Err(wrong_way())
        }
        fn sync(&self, _: bool) -> Result<()> {
            Ok(())
        }
        fn lock(&self, _: Range<u64>, _: LockMode) -> Result<Box<dyn Guard>> {
            Err(wrong_way())
        }
    }

    /// A communicator that fails the first message of one rank, as an MPI library may.
    struct Deaf {
        below: ThreadComm,
        fails: Mutex<bool>,
    }

    impl Comm for Deaf {
        fn rank(&self) -> usize {
            self.below.rank()
        }
        fn size(&self) -> usize {
            self.below.size()
        }
        fn barrier(&self) -> Result<()> {
            self.below.barrier()
        }
        fn bcast(&self, root: usize, data: &mut Vec<u8>) -> Result<()> {
            self.below.bcast(root, data)
        }
        fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
            self.below.allgather(mine)
        }
        fn alltoallv(&self, send: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
            self.below.alltoallv(send)
        }
        fn tell(&self, peer: usize, message: &[u8]) -> Result<()> {
            if std::mem::take(&mut *self.fails.lock().unwrap()) {
                Err(Error::new(ErrorClass::Comm, "no line"))
            } else {
                self.below.tell(peer, message)
            }
        }
        fn hear(&self, peer: usize) -> Result<Vec<u8>> {
            self.below.hear(peer)
        }
    }

    /// The result of a rank's shell: bytes moved, and ranks that are gone.
    type Said = (Result<u64>, Vec<usize>);

    /// Five ranks write in turns; returns the result of each rank's shell, and who wrote.
    fn turns(fails: Option<usize>, deaf: Option<usize>) -> (Vec<Said>, Vec<usize>) {
        let wrote = Mutex::new(Vec::new());
        let told = run(5, |below| {
            let rank = below.rank();
            let comm = Deaf {
                fails: Mutex::new(deaf == Some(rank)),
                below,
            };
            let patterns = vec![Pattern::contiguous(0, 100); comm.size()];
            let schedule = Schedule::new(patterns, vec![0], 64, 64, Rules::Ours);
            let seat = Seat {
                op: Op::Write,
                rank,
                schedule: Rc::new(schedule),
            };
            let handle = Paper {
                rank,
                fails: fails == Some(rank),
                wrote: &wrote,
            };
            let bytes = [0; 100];
            let mut source = Source::from_slice(&bytes);
            let mut buffer = Buffer::From(&mut source);
            let ranks = Ranks {
                comm: &comm,
                memory: None,
                call: 1,
            };
            let mut shell = Shell::new(&handle, &mut buffer, Some(ranks), false, false);
            let moved = shell.drive(&mut *Turns::plan(seat));
            let gone = shell.gone;
            // As at the end of every collective call.
            let agreed = agree(&comm, moved.clone());
            assert_eq!(agreed.is_err(), fails.or(deaf).is_some(), "rank {rank}");
            (moved, gone)
        });
        (told, wrote.into_inner().unwrap())
    }

    #[test]
    fn ranks_that_hear_each_other_take_turns() {
        let (told, wrote) = turns(None, None);
        assert_eq!(wrote, [0, 1, 2, 3, 4]);
        assert_eq!(told, vec![(Ok(100), vec![]); 5]);
    }

    #[test]
    fn a_rank_that_fails_tells_those_who_hear_it() {
        let (told, wrote) = turns(Some(2), None);
        assert_eq!(wrote, [0, 1]);
        for (rank, (moved, gone)) in told.iter().enumerate() {
            assert_eq!(moved.is_err(), rank >= 2, "rank {rank}");
            assert!(gone.is_empty(), "their plans go on");
        }
        let e = told[4].0.clone().unwrap_err();
        assert_eq!(e.class, ErrorClass::NoSpace);
        assert!(e.message.contains("rank 2: the paper is full"), "{e}");
    }

    #[test]
    fn a_rank_whose_plan_ends_early_is_waited_for_by_nobody() {
        let (told, wrote) = turns(None, Some(1));
        assert_eq!(wrote, [0, 1]);
        let e = told[1].0.clone().unwrap_err();
        assert_eq!((e.class, &*e.message), (ErrorClass::Comm, "no line"));
        assert_eq!(told[2].1, [1]);
        let e = told[3].0.clone().unwrap_err();
        assert!(e.message.contains("rank 1: no line"), "{e}");
        assert!(told[3].1.is_empty(), "the plan of rank 2 went on");
    }
}
