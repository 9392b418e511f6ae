//! # resonant: one rank asks each server, in ascending order
//!
//! **Problem.** Two-phase makes file domains contiguous, so that each server is asked by several ranks, in any order. A
//! disk then seeks between neighbours.
//! **Idea.** Each server gets an agent that asks for all that the call wants of that server, in ascending order. To
//! read, agents only have their servers *fetch* it. When all have asked, every rank reads its own bytes straight from
//! the servers' caches: nothing is exchanged. To write, ranks send their bytes to the agents, which write. Ranks whose
//! offsets ascend with their numbers need no agent: each asks for its own bytes, a moment after the one before it.
//! Large accesses go in rounds, so that no server fetches and no agent holds more than a buffer.
//! **When it pays.** Servers on disks that seek, and pieces near the stripe unit. Not where servers have flash, or hand out
//! descriptors.
//! **Parameters.** Buffer (16 MiB of a server's object for each agent and round); the rest is in
//! [`super::access_sets`]. **Hint.** `penstock_method=resonant`, `penstock_resonant_buffer_size`. Where a file is not
//! striped over data servers two-phase takes its place.
//! **Source.** RS chapter 4. Its agents receive all that they ask for; ours only their own.
//!
//! An error of one rank does not stop the others' rounds. It leaves out its operations, and the caller agrees on the
//! outcome at the end.
use super::Method;
use super::access_sets::{AccessSets, Order, Slot, Stretch, Turn};
use super::cost::{RankAccess, Terms};
use super::domains::{self, Coverage, Rules, Seat};
use super::plan::{Cut, Memory, Operate, Outcome, Part, Plan, Room, Step, Way, Window};
use super::row::{BufferHint, Row, Work};
use super::{published_resonant, two_phase};
use penstock_base::Op;
use penstock_client::Form;
use penstock_datatype::Pattern;
use std::collections::VecDeque;
use std::ops::Range;

pub(super) const ROW: Row = Row {
    name: "resonant",
    summary: "one rank asks each data server for what all ranks want of it",
    toggles: None,
    buffer: Some(BufferHint {
        keys: ["penstock_resonant_buffer_size"; 2],
        default: 16 << 20,
        meaning: "what an agent asks of its data server at a time; in a write it holds so much",
    }),
    offered: |_, _| false,
    offered_when: "only where it is named",
    counts: domains::counts,
    region: |tally, _| tally.largest,
    work: Work::Exchange {
        striped: true,
        cost,
        plan,
    },
};

impl Method {
    /// One rank asks each data server for what all ranks want of it.
    pub const RESONANT: Method = Method::named(ROW.name);
}

/// As two-phase: the costs that [`super::auto`] knows say nothing of disks that seek.
fn cost(terms: &Terms<'_>, shapes: &[RankAccess], aggregate_extent: f64) -> f64 {
    domains::cost(terms, shapes, aggregate_extent, |_, _| 0.0, 1.0)
}

/// This rank's side of a collective access.
fn plan(seat: Seat) -> Box<dyn Plan> {
    let schedule = &seat.schedule;
    let Some(sets) = &schedule.access_sets else {
        return two_phase::plan(seat);
    };
    if schedule.rules == Rules::Romio {
        return published_resonant::plan(seat);
    }
    match &sets.order {
        Order::Ascending(turns) => {
            let (pattern, turn) = (schedule.patterns[seat.rank].clone(), turns[seat.rank]);
            Box::new(InTurn::new(seat.op, pattern, turn, sets.tuning.delay))
        }
        Order::Agents(_) => Box::new(ByAgents::new(seat)),
    }
}

/// Operations on patterns of the caller's own bytes; `None` if there are none.
pub(super) fn operate(op: Op, memory: Memory, parts: Vec<Part>) -> Option<Operate> {
    let bounds = parts.iter().map(|part| part.pattern.bounds());
    let extent = bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let contiguous = parts.iter().all(|part| part.pattern.is_contiguous());
    Some(Operate {
        op,
        form: if contiguous {
            Form::Contiguous
        } else {
            Form::Structured
        },
        memory,
        cut: Cut::Parts(parts.into_iter()),
        extent,
    })
}

/// A rank that asks for its own bytes when it is its turn. It tells the next rank just before it asks: that rank waits, so
/// that this one's requests are there first, but not for their answers.
struct InTurn {
    steps: VecDeque<Step>,
    operate: Option<Operate>,
    turn: Turn,
    moved: u64,
    failed: bool,
}

impl InTurn {
    fn new(op: Op, pattern: Pattern, turn: Turn, delay: u64) -> InTurn {
        let part = Part { at: 0, pattern };
        let parts = Vec::from_iter(Some(part).filter(|part| part.pattern.len > 0));
        InTurn {
            steps: begin(turn, Some(delay)).into(),
            operate: operate(op, Memory::User, parts),
            turn,
            moved: 0,
            failed: false,
        }
    }
}

/// The steps of a rank before it asks, and with a delay those with which it lets the next one ask.
fn begin(turn: Turn, delay: Option<u64>) -> Vec<Step> {
    let mut steps = Vec::with_capacity(3);
    if let Some(peer) = turn.hears {
        steps.push(Step::Hear { peer });
        steps.extend(delay.map(|time| Step::Wait { time }));
    }
    if delay.is_some() {
        steps.extend(turn.tells.map(tell));
    }
    steps
}

pub(super) fn tell(peer: usize) -> Step {
    let words = [0; 4];
    Step::Tell { peer, words }
}

impl Plan for InTurn {
    fn next(&mut self, last: Outcome) -> Step {
        self.failed |= last.has_failed();
        self.moved += last.bytes();
        if let Some(step) = self.steps.pop_front() {
            return step;
        }
        match self.operate.take().filter(|_| !self.failed) {
            Some(operate) => Step::Operate(operate),
            None => Step::Finish { moved: self.moved },
        }
    }

    fn hearers(&self) -> Vec<usize> {
        Vec::from_iter(self.turn.tells)
    }
}

/// A rank of a call in which agents ask the servers.
struct ByAgents {
    seat: Seat,
    next: Next,
    number: usize,
    round: Range<u64>,
    /// What this rank asks for others in this round.
    slots: Vec<Slot>,
    /// Steps to take before the next state.
    steps: VecDeque<Step>,
    /// What the ranks want of this rank's slots, and where it is in the inbox.
    inbox: Vec<(Stretch, Part)>,
    coverage: Coverage,
    moved: u64,
    failed: bool,
}

enum Next {
    Round,
    /// A read: all agents have asked.
    Fetched,
    /// A read: this rank has its bytes.
    Taken,
    /// A write: the ranks' bytes are here.
    Received,
}

impl ByAgents {
    fn new(seat: Seat) -> ByAgents {
        ByAgents {
            seat,
            next: Next::Round,
            number: 0,
            round: 0..0,
            slots: Vec::new(),
            steps: VecDeque::new(),
            inbox: Vec::new(),
            coverage: Coverage::new(),
            moved: 0,
            failed: false,
        }
    }
}

impl Plan for ByAgents {
    fn next(&mut self, last: Outcome) -> Step {
        self.failed |= last.has_failed();
        // Steps that move no bytes of this rank's are in the queue alone.
        while let Some(step) = self.steps.pop_front() {
            match step {
                Step::Operate(_) | Step::Prefetch { .. } | Step::Share { .. } if self.failed => {}
                step => return step,
            }
        }
        match std::mem::replace(&mut self.next, Next::Round) {
            Next::Round => self.begin_round(),
            Next::Fetched => {
                self.next = Next::Taken;
                let seat = &self.seat;
                let own =
                    sets(seat).map(|s| s.own(&seat.schedule.patterns[seat.rank], &self.round));
                let own = own.and_then(|parts| operate(Op::Read, Memory::User, parts));
                match own.filter(|_| !self.failed) {
                    Some(operate) => Step::Operate(operate),
                    None => self.next(Outcome::Done(0)),
                }
            }
            Next::Taken => {
                self.moved += last.bytes();
                self.next(Outcome::Done(0))
            }
            Next::Received => {
                self.put();
                self.next(Outcome::Done(0))
            }
        }
    }

    fn hearers(&self) -> Vec<usize> {
        let steps = self.steps.iter();
        let told = steps.filter_map(|step| match step {
            Step::Tell { peer, .. } => Some(*peer),
            _ => None,
        });
        let slots = self.slots.iter().filter_map(|slot| slot.turn.tells);
        let mut all: Vec<usize> = told.chain(slots).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn sets(seat: &Seat) -> Option<&AccessSets> {
    seat.schedule.access_sets.as_ref()
}

impl ByAgents {
    fn begin_round(&mut self) -> Step {
        let seat = &self.seat;
        let patterns = &seat.schedule.patterns;
        let found = sets(seat).and_then(|s| Some((s, s.round(patterns, self.number)?)));
        let Some((sets, round)) = found else {
            return Step::Finish { moved: self.moved };
        };
        self.number += 1;
        let slots = sets.slots(&round);
        self.slots = slots.filter(|slot| slot.agent == seat.rank).collect();
        self.round = round;
        match seat.op {
            Op::Read => self.fetch(),
            Op::Write => self.send(),
        }
    }

    /// A read: this rank's servers fetch what all ranks want of them. They have the requests when it goes on, so the next
    /// agent need not wait any longer.
    fn fetch(&mut self) -> Step {
        let seat = &self.seat;
        let Some(sets) = sets(seat) else {
            return Step::Finish { moved: self.moved };
        };
        let patterns = &seat.schedule.patterns;
        let wanted = self
            .slots
            .iter()
            .flat_map(|slot| sets.access_set(patterns, slot));
        let wanted: Vec<Pattern> = wanted.collect();
        let turns = || self.slots.iter().map(|slot| slot.turn);
        self.steps
            .extend(turns().flat_map(|turn| begin(turn, None)));
        if !wanted.is_empty() {
            self.steps.push_back(Step::Prefetch { patterns: wanted });
        }
        self.steps
            .extend(turns().filter_map(|turn| turn.tells).map(tell));
        self.steps.push_back(Step::Barrier { filled: None });
        self.next = Next::Fetched;
        self.next(Outcome::Done(0))
    }

    /// A write: this rank's bytes go to the agents.
    fn send(&mut self) -> Step {
        let seat = &self.seat;
        let Some(sets) = sets(seat) else {
            return Step::Finish { moved: self.moved };
        };
        let patterns = &seat.schedule.patterns;
        let own = &patterns[seat.rank];
        let mut send = Vec::new();
        for slot in sets.slots(&self.round) {
            send.extend(
                sets.parts_of(own, &slot)
                    .map(|(_, part)| (slot.agent, part)),
            );
        }
        self.moved += send.iter().map(|(_, part)| part.pattern.len).sum::<u64>();
        let mut receive = Vec::new();
        self.inbox.clear();
        let mut at = 0;
        for slot in &self.slots {
            for (rank, pattern) in patterns.iter().enumerate() {
                for (stretch, mut part) in sets.parts_of(pattern, slot) {
                    part.at = at;
                    at += part.pattern.len;
                    receive.push((rank, part.clone()));
                    self.inbox.push((stretch, part));
                }
            }
        }
        self.next = Next::Received;
        Step::Exchange {
            send,
            from: Memory::User,
            receive,
            into: Memory::Inbox,
        }
    }

    /// A write: what the ranks sent goes to this rank's servers. Full stripe units are packed, so that
    /// neighbours are one operation. Of others each rank's bytes are one. No byte that nobody wrote is written.
    fn put(&mut self) {
        let Some(sets) = sets(&self.seat) else {
            return;
        };
        let delay = Some(sets.tuning.delay);
        let turns = self.slots.iter().map(|slot| slot.turn);
        self.steps.extend(turns.flat_map(|turn| begin(turn, delay)));
        // By server and offset, so that what a server is asked ascends.
        let mut inbox = std::mem::take(&mut self.inbox);
        inbox.sort_by_key(|(stretch, part)| (stretch.file.start, part.at));
        let mut scratch = Packed::default();
        let mut pieces = Vec::new();
        for slot in &self.slots {
            let on_it = |stretch: &Stretch| slot.objects.contains(&stretch.object);
            for stretch in sets.stretches(slot.server, &slot.objects) {
                let first = inbox.partition_point(|(s, _)| s.file.start < stretch.file.start);
                let rest = &inbox[first..];
                let count = rest.partition_point(|(s, _)| s.file.start < stretch.file.end);
                let here = &rest[..count];
                if here.is_empty() || !on_it(&stretch) {
                    continue;
                }
                let patterns = here.iter().map(|(_, part)| &part.pattern);
                if self.coverage.is_full(patterns, &stretch.file) {
                    scratch.add(slot, &stretch, here.iter().map(|(_, part)| part));
                } else {
                    pieces.extend(here.iter().map(|(_, part)| part.clone()));
                }
            }
        }
        let (shared, full) = scratch.close(sets);
        if let Some(full) = operate(Op::Write, Memory::Packed, full) {
            self.steps.push_back(Step::Share {
                way: Way::In,
                stream: Memory::Inbox,
                parts: shared,
            });
            self.steps.push_back(Step::Operate(full));
        }
        if let Some(pieces) = operate(Op::Write, Memory::Inbox, pieces) {
            self.steps.push_back(Step::Operate(pieces));
        }
        self.inbox = inbox;
    }
}

/// Full stripe units one after the other in this rank's own memory.
#[derive(Default)]
struct Packed {
    len: u64,
    /// What goes where; windows as long as all of the memory are set when that is known.
    parts: Vec<(i64, Part)>,
    /// Where each run of a server's object begins in the memory.
    runs: Vec<(Slot, u64)>,
}

impl Packed {
    fn add<'p>(&mut self, slot: &Slot, stretch: &Stretch, parts: impl Iterator<Item = &'p Part>) {
        let bytes = (stretch.file.end - stretch.file.start) as u64;
        // The file offset that the memory's first byte would have.
        let start = stretch.file.start - self.len as i64;
        self.parts.extend(parts.map(|part| (start, part.clone())));
        let objects = stretch.object..stretch.object + bytes;
        match self.runs.last_mut() {
            Some((run, _)) if run.server == slot.server && run.objects.end == objects.start => {
                run.objects.end = objects.end;
            }
            _ => {
                let run = Slot {
                    objects,
                    ..slot.clone()
                };
                self.runs.push((run, self.len));
            }
        }
        self.len += bytes;
    }

    /// What is copied into the memory, and what of it goes where in the file.
    fn close(self, sets: &AccessSets) -> (Vec<(Window, Part)>, Vec<Part>) {
        let window = |start| Window {
            room: Room::Scratch,
            start,
            len: self.len,
        };
        let shared = self.parts.into_iter();
        let shared = shared.map(|(start, part)| (window(start), part)).collect();
        let runs = self.runs.iter().filter_map(|(run, at)| {
            let pattern = sets.stripes(run.server, &run.objects)?;
            Some(Part { at: *at, pattern })
        });
        (shared, runs.collect())
    }
}
