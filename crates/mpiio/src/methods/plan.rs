//! # Plans: what a method does, a step at a time
//!
//! **Problem.** The same method runs in a program, over MPI, memory and servers, and in the simulator, over models and
//! virtual time. Written twice, the two drift apart. **Idea.** A method is a state machine: it is asked for its next
//! [`Step`] and given the result of the one before. A step carries no bytes: it names stream positions, patterns and
//! memory by role. The driver of the plan owns memory, messages and servers: [`crate::shell`] in a program, crates/sim
//! on virtual time.
//!
//! Rules for plans and drivers:
//! - An [`Operate`] holds all operations of a step, enumerated lazily. There is no step for each operation.
//! - *Collective steps* ([`Step::Exchange`], [`Step::Barrier`], [`Step::Confer`]) come in the same order on all ranks.
//!   The order follows from the patterns and hints that all ranks know, never from a rank's own results. A rank whose
//!   operation failed continues with the collective steps and skips its operations.
//! - *[`Step::Tell`] and [`Step::Hear`]* obey the same rule: to whom a rank sends, from whom it receives, and when,
//!   follows from what all ranks know. A rank whose operation failed sends nevertheless; the driver adds the failure,
//!   and the peer's step fails. What fails under a lock may be repeated, so no rank sends anything between
//!   [`Step::Lock`] and [`Step::Unlock`].
//! - What a rank puts into a half of a shared window before a barrier, the window's owner may use after it. The half
//!   may be filled again after one more barrier.
use crate::joint::Joint;
use penstock_base::{Nanos, Op};
use penstock_client::Form;
use penstock_datatype::Pattern;
use std::ops::Range;

/// A part of an access.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its position in the memory's stream.
    pub at: u64,
    /// Its bytes in the file.
    pub pattern: Pattern,
}

/// Memory that holds a range of the file, byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Where the memory is.
    pub room: Room,
    /// File offset of its first byte.
    pub start: i64,
    /// Bytes.
    pub len: u64,
}

impl Window {
    /// A contiguous operation on all of it.
    pub fn operate(self, op: Op) -> Operate {
        Operate {
            op,
            form: Form::Contiguous,
            memory: Memory::Window(self),
            cut: Cut::one(0, Pattern::contiguous(self.start, self.len)),
            extent: self.bounds(),
        }
    }

    /// First and one past the last file byte.
    pub fn bounds(self) -> (i64, i64) {
        (self.start, self.start + self.len as i64)
    }
}

/// The memory of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Private to this rank.
    Scratch,
    /// One of the two halves of a rank's window that all ranks of a node share.
    Half {
        /// The owner.
        owner: usize,
        /// 0 or 1.
        half: usize,
    },
}

/// The memory side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The caller's buffer; stream positions are those of the access.
    User,
    /// The result of the last exchange, with the ranks' bytes one after the other.
    Inbox,
    /// The order of bytes is that of the file.
    Window(Window),
    /// This rank's own, as far as windows of it were filled; stream positions are places in it.
    Packed,
}

/// Direction of a copy between a stream and windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the stream into windows.
    In,
    /// From windows into the stream.
    Out,
}

/// The content of a message: a few numbers, such as positions, lengths, counts and times. Bytes of the file are moved
/// by [`Step::Exchange`] and [`Step::Share`].
pub type Words = [u64; 4];

/// What a plan wants next.
#[derive(Debug)]
pub enum Step {
    /// File system operations.
    Operate(Operate),
    /// Collective. Ranks send parts to each other.
    Exchange {
        /// What this rank sends, and to whom. A part for the receiver's own buffer may be shorter than that rank
        /// expects: at the end of the file, or after a failure.
        send: Vec<(usize, Part)>,
        /// The memory it is sent from.
        from: Memory,
        /// What this rank receives, and from whom, by rank.
        receive: Vec<(usize, Part)>,
        /// The memory it is received into.
        into: Memory,
    },
    /// Copies parts between a stream and windows. From a half at most as much is copied as its owner announced at the
    /// last barrier.
    Share {
        /// The direction.
        way: Way,
        /// The stream: the caller's buffer or the inbox.
        stream: Memory,
        /// The windows with the parts copied into or out of them.
        parts: Vec<(Window, Part)>,
    },
    /// Collective: waits for all ranks.
    Barrier {
        /// The half of this rank's window that it has filled by reading, and the number of bytes: announced to all
        /// ranks.
        filled: Option<(usize, u64)>,
    },
    /// Collective: exchanges of a few words among all ranks, whose contents the driver already knows.
    Confer {
        /// Number of consecutive exchanges.
        times: u32,
    },
    /// Sends a message to one other rank of the program. Does not wait, unless [`AHEAD`](crate::AHEAD) messages of this
    /// rank are not received yet: a plan whose ranks all send first must send fewer.
    Tell {
        /// The receiver.
        peer: usize,
        /// The message.
        words: Words,
    },
    /// Receives the next message of one other rank: [`Outcome::Heard`]. Fails if that rank's own operations have
    /// failed, or its plan has ended.
    Hear {
        /// The sender.
        peer: usize,
    },
    /// Servers fetch what the patterns cover into their caches, and return none of it. Waits until they have taken the
    /// requests, not for the bytes: later requests queue behind them.
    Prefetch {
        /// In the order in which they are asked for.
        patterns: Vec<Pattern>,
    },
    /// Waits for some time.
    Wait {
        /// How long.
        time: Nanos,
    },
    /// Takes an exclusive lock on a range of the file. Until it is released, reads are for writing back.
    Lock {
        /// File bytes.
        range: Range<i64>,
    },
    /// Releases the lock.
    Unlock {
        /// Whether everything under the lock is to be repeated after a failure, whose error then does not count.
        again: bool,
    },
    /// The access is complete. It fails if a step failed whose error counts.
    Finish {
        /// Stream bytes moved by this rank.
        moved: u64,
    },
}

/// Operations of a step.
#[derive(Debug)]
pub struct Operate {
    /// Reads or writes.
    pub op: Op,
    /// Their form.
    pub form: Form,
    /// The memory that the bytes come from or go to.
    pub memory: Memory,
    /// The operations, in order.
    pub cut: Cut,
    /// First and one past the last file byte of all operations.
    pub extent: (i64, i64),
}

/// One file system operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Its range of the file, with its position in memory.
    pub part: Part,
    /// Number of pieces that are contiguous in file and memory, where known.
    pub pieces: Option<u64>,
}

/// Operations, enumerated one by one.
pub enum Cut {
    /// Exactly these.
    Parts(std::vec::IntoIter<Part>),
    /// Operations of at most this many pieces that are contiguous in file and memory.
    Pieces {
        /// The pattern that is cut.
        file: Pattern,
        /// The remaining pieces.
        pieces: Box<Joint>,
        /// Pieces in an operation.
        at_most: usize,
    },
}

impl Cut {
    /// One operation.
    pub fn one(at: u64, pattern: Pattern) -> Cut {
        Cut::Parts(vec![Part { at, pattern }].into_iter())
    }

    /// An access cut into pieces that are contiguous in file and memory, at most so many in an operation.
    pub fn pieces(file: &Pattern, memory: &Pattern, at_most: usize) -> Cut {
        Cut::Pieces {
            file: file.clone(),
            pieces: Box::new(Joint::new(file, memory)),
            at_most,
        }
    }
}

impl std::fmt::Debug for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cut::Parts(parts) => f.debug_list().entries(parts.as_slice()).finish(),
            Cut::Pieces { at_most, .. } => write!(f, "pieces, {at_most} in an operation"),
        }
    }
}

impl Iterator for Cut {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        match self {
            Cut::Parts(parts) => parts.next().map(|part| Operation { part, pieces: None }),
            Cut::Pieces {
                file,
                pieces,
                at_most,
            } => {
                let first = pieces.next()?;
                let (mut len, mut count) = (first.len, 1);
                for piece in pieces.by_ref().take(*at_most - 1) {
                    len += piece.len;
                    count += 1;
                }
                let pattern = match count {
                    1 => Pattern::contiguous(first.offset, len),
                    _ => file.slice(first.stream, len),
                };
                let part = Part {
                    at: first.stream,
                    pattern,
                };
                Some(Operation {
                    part,
                    pieces: Some(count),
                })
            }
        }
    }
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Success, with stream bytes: of a read, those before the end of the file; of parts from windows or ranks, those
    /// that existed.
    Done(u64),
    /// The message of another rank.
    Heard(Words),
    /// It failed.
    Failed {
        /// Whether the lock was lost with its server, so that others may have changed what it covered.
        lock_lost: bool,
    },
}

impl Outcome {
    /// The bytes; 0 for a failed step.
    pub fn bytes(self) -> u64 {
        match self {
            Outcome::Done(bytes) => bytes,
            Outcome::Heard(_) | Outcome::Failed { .. } => 0,
        }
    }

    /// The message, if the step was to receive one and succeeded.
    pub fn words(self) -> Option<Words> {
        match self {
            Outcome::Heard(words) => Some(words),
            Outcome::Done(_) | Outcome::Failed { .. } => None,
        }
    }

    /// Whether the step failed.
    pub fn has_failed(self) -> bool {
        matches!(self, Outcome::Failed { .. })
    }
}

/// The state machine of a method for one access of one rank.
pub trait Plan {
    /// The next step. `last` is the result of the step before; `Done(0)` at first. After [`Step::Finish`] it is not
    /// called again.
    fn next(&mut self, last: Outcome) -> Step;

    /// The ranks that receive from this one. They are told if its plan ends before its last step, so that none waits
    /// for ever.
    fn hearers(&self) -> Vec<usize> {
        Vec::new()
    }
}

/// An independent access of one rank.
#[derive(Debug, Clone)]
pub struct Alone {
    /// Reads or writes.
    pub op: Op,
    /// The file side; not empty.
    pub file: Pattern,
    /// The memory side.
    pub memory: Pattern,
    /// Bytes of the method's buffer.
    pub buffer: u64,
}

/// The plan of methods with a single step.
pub struct Once(Option<Operate>);

impl Once {
    /// All operations of an access, from or to the caller's buffer.
    pub fn plan(access: &Alone, form: Form, cut: Cut) -> Box<dyn Plan> {
        Box::new(Once(Some(Operate {
            op: access.op,
            form,
            memory: Memory::User,
            cut,
            extent: access.file.bounds(),
        })))
    }
}

impl Plan for Once {
    fn next(&mut self, last: Outcome) -> Step {
        match self.0.take() {
            Some(operate) => Step::Operate(operate),
            None => Step::Finish {
                moved: last.bytes(),
            },
        }
    }
}
