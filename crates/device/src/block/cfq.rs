//! CFQ-like: each process has a queue and gets the device for a slice of time; inside, ascending addresses.
//!
//! Anticipation: when a process's queue runs empty within its slice, the device waits for its next request (8 ms by
//! default). It does so only if requests of that process usually come soon after its completions: a synchronous reader
//! keeps the head. Its mean think time is th ← th·7/8 + t/8. Each process may have a bounded number of requests in its
//! queue (128 by default).

use super::{Choice, Order, Unit, sorted::Both};
use crate::{Nanos, Op};
use std::collections::{BTreeMap, VecDeque};

#[derive(Default)]
struct Process {
    waiting: Both,
    position: u64,
    at_device: u64,
    completed: Option<Nanos>,
    think: Nanos,
}

pub(super) struct Cfq {
    processes: BTreeMap<u32, Process>,
    /// Processes with requests, in the order of their turns.
    turns: VecDeque<u32>,
    active: Option<(u32, Nanos)>,
    most: usize,
    slice: Nanos,
    idle: Nanos,
}

/// Processes remembered without requests; older ones are forgotten.
const REMEMBERED: usize = 65_536;

impl Cfq {
    pub(super) fn new(most: usize, slice: Nanos, idle: Nanos) -> Cfq {
        Cfq {
            processes: BTreeMap::new(),
            turns: VecDeque::new(),
            active: None,
            most,
            slice,
            idle,
        }
    }

    fn take(&mut self, id: u32) -> Choice {
        let Some(process) = self.processes.get_mut(&id) else {
            return Choice::Empty;
        };
        let position = process.position;
        let op = if process.waiting.of(Op::Read).len() > 0 {
            Op::Read
        } else {
            Op::Write
        };
        match process.waiting.of(op).take_from(position) {
            Some(unit) => {
                process.position = unit.address + unit.bytes;
                process.at_device += 1;
                Choice::Dispatch(unit)
            }
            None => Choice::Empty,
        }
    }
}

impl Order for Cfq {
    fn room(&self, process: u32) -> bool {
        let process = self.processes.get(&process);
        process.is_none_or(|p| p.waiting.len() < self.most)
    }

    fn waiting(&mut self, process: u32) -> &mut Both {
        &mut self.processes.entry(process).or_default().waiting
    }

    fn add(&mut self, unit: Unit) {
        if self.processes.len() >= REMEMBERED {
            self.processes
                .retain(|_, p| p.waiting.len() > 0 || p.at_device > 0);
        }
        let id = unit.process;
        let idle = self.idle;
        let process = self.processes.entry(id).or_default();
        if let Some(at) = process.completed.take() {
            let think = unit.arrived.saturating_sub(at).min(2 * idle);
            process.think = process.think / 8 * 7 + think / 8;
        }
        let active = self.active.is_some_and(|(a, _)| a == id);
        if process.waiting.len() == 0 && !active && !self.turns.contains(&id) {
            self.turns.push_back(id);
        }
        process.waiting.of(unit.op).add(unit);
    }

    fn next(&mut self, now: Nanos) -> Choice {
        if let Some((id, end)) = self.active {
            let process = self.processes.entry(id).or_default();
            if process.waiting.len() > 0 {
                if now < end || self.turns.is_empty() {
                    return self.take(id);
                }
                self.turns.push_back(id);
            } else if now < end && self.idle > 0 && process.think <= self.idle {
                if process.at_device > 0 {
                    // The process's request is being served: what it asks next decides.
                    return Choice::Wait(end);
                }
                if let Some(at) = process.completed
                    && now < at + self.idle
                {
                    return Choice::Wait((at + self.idle).min(end));
                }
            }
            self.active = None;
        }
        match self.turns.pop_front() {
            Some(id) => {
                self.active = Some((id, now + self.slice));
                self.take(id)
            }
            None => Choice::Empty,
        }
    }

    fn completed(&mut self, now: Nanos, process: u32) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.at_device = process.at_device.saturating_sub(1);
            process.completed = Some(now);
        }
    }
}
