//! # Plans: what a method does, a step at a time
//!
//! **Problem.** The same method runs in a program, over MPI, memory and servers, and in the simulator, over models and
//! virtual time. Written twice, the two drift apart.
//! **Idea.** A method is a state machine that is asked for its next [`Step`] and told what came of the one before. A step
//! carries no bytes: it names stream positions, patterns and memory by role. Who drives the plan owns the memory, the
//! messages and the servers: [`crate::shell`] in a program, crates/sim on virtual time.
//!
//! Rules for plans and drivers:
//! - An [`Operate`] holds all operations of a step, enumerated lazily. There is no step for each operation.
//! - *Collective steps* ([`Step::Exchange`], [`Step::Barrier`], [`Step::Confer`]) come in the same order on all ranks. It
//!   follows from the patterns and hints that all ranks know, and never from a rank's own outcome: a rank whose
//!   operation failed goes on with the collective steps and leaves out its operations.
//! - *[`Step::Tell`] and [`Step::Hear`]* obey the same rule: whom a rank tells and hears, and when, follows from what all
//!   ranks know. A rank whose operation failed tells all the same; the driver says so, and the peer's step fails. What
//!   fails under a lock may be done anew, so nobody is told anything between [`Step::Lock`] and [`Step::Unlock`].
//! - What a rank puts into a half of a shared window before a barrier, the window's owner may use after it. The half may
//!   be filled again after one more barrier.
use crate::joint::Joint;
use penstock_base::{Nanos, Op};
use penstock_client::Form;
use penstock_datatype::Pattern;
use std::ops::Range;

/// A part of an access.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Where its bytes begin in the memory's stream.
    pub at: u64,
    /// Where they lie in the file.
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

/// Where a window's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// This rank's own.
    Scratch,
    /// One of the two halves of a rank's window that all ranks of a node share.
    Half {
        /// Whose window.
        owner: usize,
        /// 0 or 1.
        half: usize,
    },
}

/// The memory side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The caller's buffer; stream positions are the access's.
    User,
    /// What the last exchange brought, the ranks' bytes one after the other.
    Inbox,
    /// Bytes lie in it as they lie in the file.
    Window(Window),
    /// This rank's own, as far as windows of it were filled; stream positions are places in it.
    Packed,
}

/// Which way bytes move between a stream and windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the stream into windows.
    In,
    /// From windows into the stream.
    Out,
}

/// What one rank tells another: a few numbers, such as positions, lengths, counts and times. Bytes of the file go by
/// [`Step::Exchange`] and [`Step::Share`].
pub type Words = [u64; 4];

/// What a plan wants next.
#[derive(Debug)]
pub enum Step {
    /// File system operations.
    Operate(Operate),
    /// Collective. Ranks send each other parts.
    Exchange {
        /// What this rank sends, and to whom. Of a part for the receiver's own buffer it may be less than that rank expects:
        /// where the file ends, or the operation failed.
        send: Vec<(usize, Part)>,
        /// Where that is.
        from: Memory,
        /// What this rank gets, and from whom, by rank.
        receive: Vec<(usize, Part)>,
        /// Where it goes.
        into: Memory,
    },
    /// Copies parts between a stream and windows. Out of a half no more is copied than its owner told at the last barrier.
    Share {
        /// Which way.
        way: Way,
        /// The stream: the caller's buffer or the inbox.
        stream: Memory,
        /// The windows and what goes into or comes out of each.
        parts: Vec<(Window, Part)>,
    },
    /// Collective: goes on when all ranks are here.
    Barrier {
        /// The half of this rank's window that it has filled by reading, and how many bytes from its beginning: all ranks
        /// are told.
        filled: Option<(usize, u64)>,
    },
    /// Collective: exchanges of a few words through all ranks, whose contents the driver knows already.
    Confer {
        /// So many, one after the other.
        times: u32,
    },
    /// Tells one other rank of the program something. Waits for nobody, unless [`AHEAD`](crate::AHEAD) things that this rank
    /// told are not heard yet: a plan whose ranks all tell first tells less.
    Tell {
        /// Whom.
        peer: usize,
        /// What.
        words: Words,
    },
    /// Waits for the next thing that one other rank tells this one: [`Outcome::Heard`]. Fails if that rank's own operations
    /// have failed, or its plan is gone.
    Hear {
        /// Whom.
        peer: usize,
    },
    /// Servers fetch what the patterns cover into their caches, and return none of it. Waits until they have taken the
    /// requests, and not for the bytes: what is asked of them later comes behind.
    Prefetch {
        /// In the order in which they are asked for.
        patterns: Vec<Pattern>,
    },
    /// Waits for some time.
    Wait {
        /// So long.
        time: Nanos,
    },
    /// Takes an exclusive lock on a range of the file. Until it is given up, reads are for writing back.
    Lock {
        /// File bytes.
        range: Range<i64>,
    },
    /// Gives it up.
    Unlock {
        /// What failed under the lock is done anew, and its error does not count.
        again: bool,
    },
    /// The access is over. It fails if a step failed whose error counts.
    Finish {
        /// Stream bytes moved here.
        moved: u64,
    },
}

/// Operations of a step.
#[derive(Debug)]
pub struct Operate {
    /// Reads or writes.
    pub op: Op,
    /// How they reach the bytes.
    pub form: Form,
    /// Where the bytes come from or go to.
    pub memory: Memory,
    /// The operations, in order.
    pub cut: Cut,
    /// First and one past the last file byte of all operations.
    pub extent: (i64, i64),
}

/// One file system operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// What it covers of the file, and where in memory.
    pub part: Part,
    /// Pieces that are contiguous in file and memory, where the cut knows them.
    pub pieces: Option<u64>,
}

/// Operations, enumerated one by one.
pub enum Cut {
    /// Just these.
    Parts(std::vec::IntoIter<Part>),
    /// At most so many pieces that are contiguous in file and memory in each.
    Pieces {
        /// What is cut.
        file: Pattern,
        /// Its pieces that are left.
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

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, with so many stream bytes: of a read, those before the end of the file; of parts that came from windows
    /// or ranks, those that were there.
    Done(u64),
    /// What another rank has told this one.
    Heard(Words),
    /// It failed.
    Failed {
        /// The lock is gone with its server, so others may have changed what it covered.
        lock_lost: bool,
    },
}

impl Outcome {
    /// Its bytes; none of a step that failed.
    pub fn bytes(self) -> u64 {
        match self {
            Outcome::Done(bytes) => bytes,
            Outcome::Heard(_) | Outcome::Failed { .. } => 0,
        }
    }

    /// What was heard, if the step was to hear and has not failed.
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

/// A method's way through one access of one rank.
pub trait Plan {
    /// The next step. `last` is what came of the one before; of none, `Done(0)`. After [`Step::Finish`] it is not asked
    /// again.
    fn next(&mut self, last: Outcome) -> Step;

    /// The ranks that hear this one. They are told if its plan ends before its last step, so that none waits for ever.
    fn hearers(&self) -> Vec<usize> {
        Vec::new()
    }
}

/// An access of one rank by itself.
#[derive(Debug, Clone)]
pub struct Alone {
    /// Reads or writes.
    pub op: Op,
    /// What is wanted of the file; not empty.
    pub file: Pattern,
    /// Where it lies in memory.
    pub memory: Pattern,
    /// Bytes of the method's buffer.
    pub buffer: u64,
}

/// The plan of methods that are done in one step.
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
