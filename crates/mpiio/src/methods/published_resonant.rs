//! Resonant I/O as its source measured it (RS 4.3), for the simulator: what published figures are compared with.
//!
//! ADIO had no I/O that does not block. So agents receive the bytes of all ranks before
//! the others begin, and ranks in turn begin when the one before them is done. Agents ask by lists of 64 regions, each a region of one
//! rank: neighbours of different ranks are not joined. There are no rounds but those of a large buffer.
use super::access_sets::{AccessSets, Order, Slot, Turn};
use super::domains::Seat;
use super::plan::{Cut, Memory, Operate, Outcome, Part, Plan, Step};
use super::resonant::{operate, tell};
use penstock_base::Op;
use penstock_client::Form;
use penstock_datatype::Pattern;
use penstock_wire::message::MAX_LIST;
use std::collections::VecDeque;

/// This rank's side of a collective access.
pub(super) fn plan(seat: Seat) -> Box<dyn Plan> {
    Box::new(Published {
        seat,
        steps: VecDeque::new(),
        number: 0,
        failed: false,
    })
}

struct Published {
    seat: Seat,
    /// Steps to take before the next round.
    steps: VecDeque<Step>,
    number: usize,
    failed: bool,
}

impl Plan for Published {
    fn next(&mut self, last: Outcome) -> Step {
        self.failed |= last.has_failed();
        loop {
            match self.steps.pop_front() {
                Some(Step::Operate(_)) if self.failed => {}
                Some(step) => return step,
                None if self.begin_round() => {}
                None => {
                    let moved = self.seat.schedule.patterns[self.seat.rank].len;
                    return Step::Finish { moved };
                }
            }
        }
    }
}

impl Published {
    /// The steps of the next round; false after the last one.
    fn begin_round(&mut self) -> bool {
        let Seat { op, rank, schedule } = &self.seat;
        let patterns = &schedule.patterns;
        let Some(sets) = &schedule.access_sets else {
            return false;
        };
        self.number += 1;
        if let Order::Ascending(turns) = &sets.order {
            let own = Part {
                at: 0,
                pattern: patterns[*rank].clone(),
            };
            let own = operate(*op, Memory::User, vec![own]).filter(|o| o.extent.0 < o.extent.1);
            self.steps.extend(serial(turns[*rank], own));
            return self.number == 1;
        }
        let Some(round) = sets.round(patterns, self.number - 1) else {
            return false;
        };
        let slots: Vec<Slot> = sets.slots(&round).collect();
        let (mine, others): (Vec<_>, Vec<_>) = slots.iter().partition(|s| s.agent == *rank);
        // The agent of several servers asks them at the same time.
        let turn = mine.first().map_or_else(Turn::default, |slot| slot.turn);
        let wanted = mine
            .iter()
            .flat_map(|slot| patterns.iter().flat_map(|p| pieces(sets, p, slot)));
        let agents = serial(turn, lists(*op, wanted.collect()));
        let agents: Vec<Step> = agents.collect();
        match op {
            Op::Read => {
                self.steps.extend(agents);
                self.steps.push_back(Step::Barrier { filled: None });
                let rest = others
                    .iter()
                    .flat_map(|s| pieces(sets, &patterns[*rank], s));
                let rest = lists(*op, rest.collect());
                self.steps.extend(rest.map(Step::Operate));
            }
            Op::Write => {
                self.steps
                    .push_back(exchange(sets, patterns, *rank, &slots));
                self.steps.extend(agents);
            }
        }
        true
    }
}

/// A rank that waits for the one before it to be done.
fn serial(turn: Turn, operate: Option<Operate>) -> impl Iterator<Item = Step> {
    let hear = turn.hears.map(|peer| Step::Hear { peer });
    let operate = operate.map(Step::Operate);
    hear.into_iter().chain(operate).chain(turn.tells.map(tell))
}

/// The regions that a rank wants of a slot.
fn pieces(sets: &AccessSets, pattern: &Pattern, slot: &Slot) -> Vec<(i64, u64)> {
    let mut regions = Vec::new();
    for (_, part) in sets.parts_of(pattern, slot) {
        part.pattern
            .for_each_run(|_, run| regions.push((run.offset, run.len)));
    }
    regions
}

/// Regions in ascending order, at most 64 in an operation.
fn lists(op: Op, mut regions: Vec<(i64, u64)>) -> Option<Operate> {
    regions.sort_unstable();
    let first = regions.first()?.0;
    let end = regions.iter().map(|(at, len)| at + *len as i64).max()?;
    let lists = regions.chunks(MAX_LIST).filter_map(|list| {
        let pattern = Pattern::list(list).ok()?;
        Some(Part { at: 0, pattern })
    });
    Some(Operate {
        op,
        form: Form::List,
        memory: Memory::Packed,
        cut: Cut::Parts(lists.collect::<Vec<_>>().into_iter()),
        extent: (first, end),
    })
}

/// A write: all bytes go to their agents.
fn exchange(sets: &AccessSets, patterns: &[Pattern], rank: usize, slots: &[Slot]) -> Step {
    let to_agents = |from: usize| {
        let parts = slots.iter().flat_map(move |slot| {
            let parts = sets.parts_of(&patterns[from], slot);
            parts.map(|(_, part)| (slot.agent, part))
        });
        parts.collect::<Vec<_>>()
    };
    let mut receive = Vec::new();
    if slots.iter().any(|slot| slot.agent == rank) {
        for from in 0..patterns.len() {
            let here = to_agents(from).into_iter();
            receive.extend(
                here.filter(|(agent, _)| *agent == rank)
                    .map(|(_, part)| (from, part)),
            );
        }
    }
    Step::Exchange {
        send: to_agents(rank),
        from: Memory::User,
        receive,
        into: Memory::Inbox,
    }
}
