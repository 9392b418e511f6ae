//! What is expected of the next record of a block, given those before it. Writer and reader keep the same model; only what
//! differs from the expectation is written.
//!
//! *Problem*: an I/O program repeats a few sequences of calls thousands of times; offsets advance by strides, times jitter.
//! *Idea*: three things are kept apart.
//! - The *shape* of a record is all that identifies its kind: layer, operation, file, error, thread, server, call site,
//!   origin. Shapes of a block are numbered.
//! - What comes next is looked up by context: the record that followed when the last two records had these shapes and
//!   this size. Without one, it is the record that followed when the last one had this shape. Shape, size, and the steps
//!   of id and parent are expected to be those of that record. The offset goes on from the record before by the same
//!   step, or from the last one of its shape by its stride. Whichever was right the last time for this shape is taken. A closed
//!   sequence with constant strides is then expected whole, and costs a run's length.
//! - Times are expected to follow one of three points by the mean of what was seen for this shape. These are the begin
//!   and the end of the record before, and the begin of the record itself; the one that jittered least is taken. A call
//!   that ends with its last request costs little.
use crate::operations::Operation;
use crate::record::{Caller, Layer, Parent, Record};
use penstock_base::finalise;

/// What identifies the kind of a record. See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) layer: Layer,
    pub(crate) operation: u16,
    pub(crate) file: u32,
    pub(crate) error: i32,
    pub(crate) thread: u32,
    pub(crate) server: u32,
    pub(crate) code: u64,
    pub(crate) origin: Origin,
}

/// Where a parent stands, without which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    None,
    Here,
    Caller { program: u64, rank: u32 },
}

impl Shape {
    pub(crate) fn of(record: &Record) -> Shape {
        Shape {
            layer: record.layer,
            operation: record.operation.0,
            file: record.file,
            error: record.error,
            thread: record.thread,
            server: record.server,
            code: record.code,
            origin: match record.parent {
                Parent::None => Origin::None,
                Parent::Here(_) => Origin::Here,
                Parent::Caller(Caller { program, rank, .. }) => Origin::Caller { program, rank },
            },
        }
    }
}

/// A value that follows another one by about as much as before.
#[derive(Debug, Clone, Copy, Default)]
struct Guess {
    mean: i64,
    /// Mean of the distance between expectation and value, in sixteenths.
    jitter: u64,
}

impl Guess {
    const UNKNOWN: Guess = Guess {
        mean: 0,
        jitter: 1 << 17,
    };

    fn expected(self, base: u64) -> u64 {
        base.wrapping_add(self.mean.cast_unsigned())
    }

    fn learn(&mut self, base: u64, value: u64, first: bool) {
        let step = value.wrapping_sub(base).cast_signed();
        if first {
            *self = Guess {
                mean: step,
                jitter: (step.unsigned_abs().min(1 << 40) / 8).max(16),
            };
            return;
        }
        let off = step.wrapping_sub(self.mean);
        // Rounded away from zero: a constant step is reached.
        let part = (off / 8).wrapping_add(if off % 8 == 0 { 0 } else { off.signum() });
        self.mean = self.mean.wrapping_add(part);
        let distance = off.unsigned_abs().min(1 << 40) << 4;
        self.jitter = self.jitter - self.jitter / 8 + distance / 8;
    }

    /// The parameter of the code of a distance from the expectation.
    fn order(self) -> u32 {
        // The zigzag of a distance is twice as large; an exponential distribution wants about ln 2 of its mean.
        ((self.jitter >> 3) + (self.jitter >> 5))
            .checked_ilog2()
            .unwrap_or(0)
            .saturating_sub(1)
    }
}

/// What was seen of a shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) shape: Shape,
    /// Its last record, by place in the block.
    last: usize,
    offset: u64,
    stride: u64,
    call: u64,
    call_step: u64,
    /// The offset goes on by the stride, not from the record before.
    strided: bool,
    seen: bool,
    begin_after_begin: Guess,
    begin_after_end: Guess,
    end_after_begin: Guess,
    end_after_end: Guess,
}

/// How a record stood to the one before it.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    slot: u32,
    bytes: u64,
    /// From the id before.
    id: u64,
    /// From the parent to the id, where it stands in the same stream.
    up: u64,
    /// From the offset before.
    offset: u64,
}

/// Entries of the tables of contexts.
const CONTEXTS: usize = 4096;
const NOTHING: u32 = u32::MAX;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) slots: Vec<Slot>,
    steps: Vec<Step>,
    last: Record,
    /// By the last two records: the place of the one that followed.
    deep: Vec<u32>,
    /// By the last record's shape.
    shallow: Vec<u32>,
}

/// What is expected of a record whose shape is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) id: u64,
    /// The parent's id here, or the caller's call.
    up: u64,
    from_id: bool,
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
}

impl Expected {
    /// The parent's id, or its call, given the record's id.
    pub(crate) fn parent(&self, id: u64) -> u64 {
        if self.from_id {
            id.wrapping_sub(self.up)
        } else {
            self.up
        }
    }
}

/// An expected time, and the parameter of the code of the distance from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedTime {
    pub(crate) at: u64,
    pub(crate) order: u32,
}

impl Model {
    pub(crate) fn new() -> Model {
        Model {
            slots: Vec::new(),
            steps: Vec::new(),
            last: Record::new(Layer::Posix, Operation::NONE),
            deep: vec![NOTHING; CONTEXTS],
            shallow: vec![NOTHING; CONTEXTS],
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.steps.clear();
        self.last = Record::new(Layer::Posix, Operation::NONE);
        self.deep.fill(NOTHING);
        self.shallow.fill(NOTHING);
    }

    /// Places of the tables for what was seen last.
    fn contexts(&self) -> Option<(usize, usize)> {
        let last = self.steps.last()?;
        let before = match self.steps.len() {
            1 => 0,
            n => self.steps[n - 2].slot,
        };
        let shapes = u64::from(last.slot) << 32 | u64::from(before);
        let deep = finalise(shapes ^ last.bytes.rotate_left(17)) as usize % CONTEXTS;
        Some((deep, last.slot as usize % CONTEXTS))
    }

    /// The place of the record that followed when it was as it is now.
    pub(crate) fn follower(&self) -> Option<usize> {
        let (deep, shallow) = self.contexts()?;
        [self.deep[deep], self.shallow[shallow]]
            .into_iter()
            .find(|place| *place != NOTHING)
            .map(|place| place as usize)
    }

    /// The slot of the record at a place.
    pub(crate) fn slot_at(&self, place: usize) -> usize {
        self.steps[place].slot as usize
    }

    /// Makes a slot of a new shape.
    pub(crate) fn add(&mut self, shape: Shape) -> usize {
        self.slots.push(Slot {
            shape,
            last: usize::MAX,
            offset: 0,
            stride: 0,
            call: 0,
            call_step: 0,
            strided: false,
            seen: false,
            begin_after_begin: Guess::UNKNOWN,
            begin_after_end: Guess::UNKNOWN,
            end_after_begin: Guess::UNKNOWN,
            end_after_end: Guess::UNKNOWN,
        });
        self.slots.len() - 1
    }

    /// What is expected of a record in this slot; `follower` is the one that followed before, if it is of this slot.
    pub(crate) fn expect(&self, slot: usize, follower: Option<usize>) -> Expected {
        let slot = &self.slots[slot];
        let basis = follower.unwrap_or(slot.last);
        let step = self.steps.get(basis).copied().unwrap_or(Step {
            id: 1,
            ..Step::default()
        });
        let from_id = slot.shape.origin == Origin::Here;
        Expected {
            id: self.last.id.wrapping_add(step.id),
            from_id,
            up: if from_id {
                step.up
            } else {
                slot.call.wrapping_add(slot.call_step)
            },
            bytes: step.bytes,
            offset: if slot.strided {
                slot.offset.wrapping_add(slot.stride)
            } else {
                self.last.offset.wrapping_add(step.offset)
            },
        }
    }

    pub(crate) fn expect_begin(&self, slot: usize) -> ExpectedTime {
        let slot = &self.slots[slot];
        let (base, guess) = if slot.begin_after_begin.jitter <= slot.begin_after_end.jitter {
            (self.last.begin, slot.begin_after_begin)
        } else {
            (end_of(&self.last), slot.begin_after_end)
        };
        ExpectedTime {
            at: guess.expected(base),
            order: guess.order(),
        }
    }

    pub(crate) fn expect_end(&self, slot: usize, begin: u64) -> ExpectedTime {
        let slot = &self.slots[slot];
        let (base, guess) = if slot.end_after_begin.jitter <= slot.end_after_end.jitter {
            (begin, slot.end_after_begin)
        } else {
            (end_of(&self.last), slot.end_after_end)
        };
        ExpectedTime {
            at: guess.expected(base),
            order: guess.order(),
        }
    }

    /// Takes note of a record in its slot, which was expected with this follower.
    pub(crate) fn learn(&mut self, at: usize, follower: Option<usize>, record: &Record) {
        let place = self.steps.len();
        if let Some((deep, shallow)) = self.contexts() {
            self.deep[deep] = place as u32;
            self.shallow[shallow] = place as u32;
        }
        let last = self.last;
        let slot = &mut self.slots[at];
        let (basis, first) = (follower.unwrap_or(slot.last), !slot.seen);
        let step = Step {
            slot: at as u32,
            bytes: record.bytes,
            id: record.id.wrapping_sub(last.id),
            up: match record.parent {
                Parent::Here(parent) => record.id.wrapping_sub(parent),
                _ => 0,
            },
            offset: record.offset.wrapping_sub(last.offset),
        };
        // What would have been right decides how the next one is expected.
        if let Some(before) = self.steps.get(basis) {
            let stride = record.offset.wrapping_sub(slot.offset);
            match (stride == slot.stride, step.offset == before.offset) {
                (true, false) => slot.strided = true,
                (false, true) => slot.strided = false,
                _ => {}
            }
            slot.stride = stride;
        }
        slot.offset = record.offset;
        if let Parent::Caller(caller) = record.parent {
            slot.call_step = if first {
                1
            } else {
                caller.call.wrapping_sub(slot.call)
            };
            slot.call = caller.call;
        }
        let end = end_of(record);
        let last_end = end_of(&last);
        slot.begin_after_begin
            .learn(last.begin, record.begin, first);
        slot.begin_after_end.learn(last_end, record.begin, first);
        slot.end_after_begin.learn(record.begin, end, first);
        slot.end_after_end.learn(last_end, end, first);
        slot.seen = true;
        slot.last = place;
        self.steps.push(step);
        self.last = *record;
    }
}

/// The end as it is coded: it wraps where a duration is nonsense, and comes back all the same.
pub(crate) fn end_of(record: &Record) -> u64 {
    record.begin.wrapping_add(record.duration)
}
