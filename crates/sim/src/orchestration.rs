//! IOrchestrator in the simulator: the state machines of crates/sched, the servers' held requests, and a seek curve that
//! is measured on the modelled device.
//!
//! Each device request counts for the program whose file it belongs to, at the time at which it goes to the block queue. A
//! server's reports arrive when they are needed; turns take one latency to all servers.
use crate::cluster::{Cluster, Event};
use crate::error::{Error, Result};
use crate::report::Orchestrated;
use crate::scenario::Scenario;
use penstock_base::{Nanos, Op};
use penstock_device::{Completion, Device, Request};
use penstock_sched::orchestrator::{Gate, Locality, Object, Orchestrator, Turn};
use std::collections::{BTreeMap, VecDeque};

/// What a server has for it.
#[derive(Default)]
pub(crate) struct Gated {
    pub gate: Gate,
    pub locality: Locality,
    /// Parts that the gate holds back.
    pub held: VecDeque<u32>,
}

/// What a program was and got.
#[derive(Default, Clone)]
pub(crate) struct Judged {
    /// Windows in which it was judged, and had a slice of its own.
    pub windows: u64,
    pub eligible: u64,
    /// Windows of each verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Time of its own slices.
    pub time: Nanos,
}

pub(crate) struct Orchestration {
    machine: Orchestrator,
    seek: SeekTimes,
    /// Turns on their way, in order.
    turns: VecDeque<Turn>,
    /// When the orchestrator dies.
    stops: Option<Nanos>,
    /// By program instance.
    pub judged: Vec<Judged>,
    /// Time of all slices.
    pub time: Nanos,
}

impl Orchestration {
    pub(crate) fn new(scenario: &Scenario, programs: usize) -> Result<Option<Orchestration>> {
        let Some(settings) = &scenario.orchestrator else {
            return Ok(None);
        };
        let servers = scenario.cluster.servers as usize;
        Ok(Some(Orchestration {
            machine: Orchestrator::new(0, servers, settings.options(), 0),
            seek: SeekTimes::measure(scenario)?,
            turns: VecDeque::new(),
            stops: settings.stops.map(|at| at.0),
            judged: vec![Judged::default(); programs],
            time: 0,
        }))
    }

    pub(crate) fn wake(&self) -> Nanos {
        self.machine.wake()
    }

    /// What it did for a program.
    pub(crate) fn of(&self, program: usize) -> Orchestrated {
        let judged = &self.judged[program];
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        Orchestrated {
            eligible: share(judged.eligible, judged.windows),
            time: share(judged.time, self.time),
            verdicts: judged.verdicts.clone(),
        }
    }
}

impl Cluster<'_> {
    /// Whether a part has to wait for its program's turn. It is kept until then.
    pub(crate) fn is_held(&mut self, part: u32) -> bool {
        let r = &self.requests[self.parts[part].request];
        let program = self.ranks[r.rank as usize].program;
        let gated = &mut self.servers[r.server as usize].gated;
        if gated.gate.admits(program.into()) {
            return false;
        }
        gated.held.push_back(part);
        true
    }

    /// The orchestrator goes on.
    pub(crate) fn orchestrate(&mut self) {
        let (now, latency) = (self.now, self.network.latency());
        let Some(o) = &mut self.orchestration else {
            return;
        };
        if o.stops.is_some_and(|at| now >= at) {
            return;
        }
        let begins = o.machine.begins_window();
        if begins {
            for (number, server) in self.servers.iter_mut().enumerate() {
                let measured = server.gated.locality.report();
                let seek = o.seek.at(measured.distance);
                o.machine.report(number, measured, seek);
            }
        }
        if let Some(turn) = o.machine.look(now) {
            o.turns.push_back(turn);
            self.events.push(now + latency, Event::Turn);
        }
        if begins {
            for (program, eligibility) in o.machine.programs() {
                let judged = &mut o.judged[program as usize];
                judged.windows += 1;
                judged.eligible += u64::from(eligibility.has_slice());
                *judged.verdicts.entry(eligibility.name()).or_default() += 1;
            }
            for slice in o.machine.slices() {
                o.time += slice.time;
                if let Object::Program(program) = slice.object {
                    o.judged[program as usize].time += slice.time;
                }
            }
        }
        let at = o.machine.wake();
        if self.done < self.ranks.len() {
            self.events.push(at, Event::Orchestrate);
        }
    }

    /// A turn has arrived at all servers.
    pub(crate) fn turn_arrives(&mut self) {
        let turn = self
            .orchestration
            .as_mut()
            .and_then(|o| o.turns.pop_front());
        let Some(turn) = turn else { return };
        for server in 0..self.servers.len() as u32 {
            let gated = &mut self.servers[server as usize].gated;
            if gated.gate.hear(self.now, turn.clone()) {
                gated.locality.turn(&turn.object);
                let wake = gated.gate.wake();
                if let Some(at) = wake {
                    self.events.push(at, Event::Gate(server));
                }
                self.release(server);
            }
        }
    }

    /// A gate may have to open by itself.
    pub(crate) fn gate_wakes(&mut self, server: u32) {
        let gated = &mut self.servers[server as usize].gated;
        if gated.gate.look(self.now) {
            gated.locality.turn(&Object::All);
            self.release(server);
        }
    }

    /// Lets go on what the gate holds back no longer, in order of arrival.
    fn release(&mut self, server: u32) {
        let held = std::mem::take(&mut self.servers[server as usize].gated.held);
        for part in held {
            self.part_ready(part);
        }
    }
}

/// Time of a small read at a distance from the one before it, rotation included: what serving somebody else takes.
struct SeekTimes {
    /// Distances in bytes, ascending, with their times.
    points: Vec<(f64, f64)>,
}

/// Bytes of a read.
const READ: u64 = 4096;
/// Reads of each distance, at so many positions of the platter.
const TRIES: u32 = 16;
/// The shortest distance.
const NEAREST: u64 = 64 << 10;

impl SeekTimes {
    fn measure(scenario: &Scenario) -> Result<SeekTimes> {
        let device = |says: String| Error::key("device", says);
        let mut points = Vec::new();
        let mut distance = NEAREST;
        let capacity = scenario.device.build(0.0).map_err(device)?.capacity();
        while distance < capacity / 2 {
            let mut sum = 0;
            for turn in 0..TRIES {
                let angle = f64::from(turn) / f64::from(TRIES);
                let mut disk = scenario.device.build(angle).map_err(device)?;
                // Past read-ahead that the first read of a file starts.
                let begin = read(&mut *disk, 0, capacity / 4);
                let end = read(&mut *disk, begin, capacity / 4 + distance);
                sum += end - begin;
            }
            points.push((distance as f64, sum as f64 / f64::from(TRIES)));
            distance *= 2;
        }
        Ok(SeekTimes { points })
    }

    /// Time at a mean distance in bytes.
    fn at(&self, distance: f64) -> Nanos {
        let above = self.points.partition_point(|(d, _)| *d < distance);
        let time = match (
            self.points.get(above.wrapping_sub(1)),
            self.points.get(above),
        ) {
            (Some((d0, t0)), Some((d1, t1))) => t0 + (t1 - t0) * (distance - d0) / (d1 - d0),
            (Some((_, time)), None) | (None, Some((_, time))) => *time,
            (None, None) => 0.0,
        };
        time as Nanos
    }
}

/// When a read of an idle device is done.
fn read(device: &mut dyn Device, now: Nanos, address: u64) -> Nanos {
    device.submit(
        now,
        Request {
            id: address,
            op: Op::Read,
            address,
            bytes: READ,
            process: 0,
        },
    );
    let mut done: Vec<Completion> = Vec::new();
    let mut last = now;
    while done.is_empty() {
        let Some(at) = device.wake() else { break };
        last = last.max(at);
        device.advance(last, &mut done);
    }
    done.first()
        .map_or(last, |completion| completion.at.max(now))
}
