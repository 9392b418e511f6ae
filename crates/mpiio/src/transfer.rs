//! Performs prepared accesses: chooses the method, runs it, agrees on the result, updates the statistics.
//!
//! A collective access meets the other ranks if its method exchanges, or in atomic mode. Now and then it also meets to
//! find out whether it should exchange ([`auto::MeetingSkips`]). Otherwise each rank performs its own part without waiting,
//! and an error is owed ([`crate::meeting`]).
use crate::access::Buffer;
use crate::announce::{Announced, Experience};
use crate::calls::Prepared;
use crate::comm::agree;
use crate::datarep::DataRep;
use crate::error::Result;
use crate::external32;
use crate::file::{Inner, Turn, lock};
use crate::filesystem::LockMode;
use crate::hints::{Hints, Toggle};
use crate::meeting::Call;
use crate::methods::access_sets::{AccessSets, DELAY, Groups, Tuning};
use crate::methods::auto::{self, Access, Candidate, Choice, Planned};
use crate::methods::cost::{self, Surroundings};
use crate::methods::domains::{self, Rules, Schedule, Seat};
use crate::methods::plan::Alone;
use crate::methods::row::Work;
use crate::methods::{Method, datatype, two_phase};
use crate::model::{AccessSummary, Prediction, predict};
use crate::shell::{Ranks, Shell};
use crate::stats::Record;
use penstock_base::Op;
use penstock_datatype::{Pattern, Signature, Source, Target};
use penstock_host::time;
use penstock_trace::{Layer, Operation, sink};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The method of an access, and the reason.
#[derive(Clone, Copy)]
pub(crate) struct Decision {
    pub candidate: Candidate,
    pub why: Why,
}

/// The reason for a method.
#[derive(Clone, Copy)]
pub(crate) enum Why {
    /// A hint or the environment names the method.
    Named,
    /// The cost model.
    Cheapest(Choice),
    /// Fast path: one file range, one memory range, and a descriptor; nothing can be cheaper.
    Lean,
    /// The planned method cannot be used here.
    Instead(Candidate, &'static str),
}

impl Decision {
    fn cheapest(choice: Choice) -> Decision {
        Decision {
            candidate: choice.candidate,
            why: Why::Cheapest(choice),
        }
    }

    /// Another method than planned.
    fn instead(self, method: Method, because: &'static str) -> Decision {
        Decision {
            candidate: Candidate {
                method,
                ..self.candidate
            },
            why: Why::Instead(self.candidate, because),
        }
    }

    /// A sentence for the hint `penstock_method_reason`.
    pub(crate) fn reason(&self) -> String {
        match &self.why {
            Why::Named => "named by hint or environment".into(),
            Why::Cheapest(choice) => choice.reason(),
            Why::Lean => "contiguous in file and memory: by descriptors".into(),
            Why::Instead(planned, because) => {
                format!("in place of {}: {because}", planned.method.name())
            }
        }
    }
}

/// The participants of an access.
#[derive(Clone, Copy)]
enum Manner<'t> {
    /// An independent call.
    Independent,
    /// A collective call in which each rank performs its own part without waiting, as all have agreed before.
    Apart(Option<Planned>),
    /// A collective call in which the ranks meet.
    Together(&'t Turn<'t>),
}

impl Inner {
    /// Performs an access. With an access guard it is a collective call: an error is then on every rank, or owed to the
    /// others.
    pub(crate) fn perform(
        &self,
        prepared: Result<Prepared>,
        turn: Option<&Turn<'_>>,
        buffer: &mut Buffer<'_, '_>,
    ) -> Result<u64> {
        self.file_system.begin_call();
        let call = self.recorded(turn.is_some(), buffer.direction());
        let begins = prepared.as_ref().map_or(0, |p| p.pattern.bounds().0);
        let outcome = self.perform_it(prepared, turn, buffer);
        if let Some(call) = call {
            call.end(sink::Outcome {
                offset: begins.max(0).cast_unsigned(),
                bytes: *outcome.as_ref().unwrap_or(&0),
                error: outcome.as_ref().err().map_or(0, |e| e.class as i32),
            });
        }
        outcome
    }

    /// The MPI call, where calls are recorded. A library that sees the program's call itself knows it by its exact name; then
    /// it is open already.
    #[inline(always)]
    fn recorded(&self, collective: bool, direction: Op) -> Option<sink::Call> {
        let operation = match (direction, collective) {
            (Op::Read, true) => Operation::MPI_READ_ALL,
            (Op::Read, false) => Operation::MPI_READ,
            (Op::Write, true) => Operation::MPI_WRITE_ALL,
            (Op::Write, false) => Operation::MPI_WRITE,
        };
        let mut call = sink::Call::begin(Layer::MpiIo, operation)?;
        call.about(&self.path, self.handle.identity(false).1);
        Some(call)
    }

    fn perform_it(
        &self,
        prepared: Result<Prepared>,
        turn: Option<&Turn<'_>>,
        buffer: &mut Buffer<'_, '_>,
    ) -> Result<u64> {
        let manner = match turn {
            Some(turn) => self.manner(turn, buffer.direction()),
            None => Manner::Independent,
        };
        let converts = match (turn, &prepared) {
            // All ranks take the same path; the representation is the same everywhere.
            (Some(_), _) => self.seen().view.datarep == DataRep::External32,
            (None, Ok(prepared)) => prepared.signature.is_some(),
            (None, Err(_)) => false,
        };
        if let Some(turn) = turn {
            self.begin_behind(turn, manner, buffer.direction())
                .map_err(|e| e.at(format_args!("write {}", self.path)))?;
        }
        let whole = |p: Prepared| {
            let monotone = p.seen.is_monotone(&p.pattern);
            (p.pattern, monotone)
        };
        let outcome = if converts {
            self.convert(prepared, manner, buffer)
        } else {
            self.step(prepared.map(whole), manner, buffer)
        };
        match (manner, &outcome) {
            (Manner::Apart(_), Err(e)) => self.debt.owe(e),
            // It may have happened after the last chunk's meeting; if all know of it, all owe it.
            (Manner::Together(_), Err(e)) if converts => self.debt.owe(e),
            _ => {}
        }
        outcome.map_err(|e| e.at(format_args!("{} {}", buffer.direction().name(), self.path)))
    }

    /// If early write-back is due at a collective write, the ranks meet and write-back of earlier writes begins. An
    /// error is one that others owed: it is on all ranks, and nothing else has been done.
    fn begin_behind(&self, turn: &Turn<'_>, manner: Manner<'_>, direction: Op) -> Result<()> {
        let share = {
            let behind = &mut lock(&self.state).behind;
            if direction != Op::Write || !behind.is_due() {
                return Ok(());
            }
            behind.share()
        };
        if matches!(manner, Manner::Apart(_)) {
            self.meet(turn, Call::WriteBehind, Ok(()))?;
        }
        if let Some((part, parts)) = share {
            self.handle.start_writeback(part, parts);
        }
        Ok(())
    }

    /// Whether the ranks of a collective access meet. All ranks get the same answer.
    fn manner<'t>(&self, turn: &'t Turn<'t>, direction: Op) -> Manner<'t> {
        let mut state = lock(&self.state);
        if turn.comm().size() == 1 {
            return Manner::Apart(None);
        }
        if state.atomic {
            return Manner::Together(turn);
        }
        if !state.all_ascend || !state.may_exchange(direction) {
            return Manner::Apart(None);
        }
        match state.habits[direction as usize].next_quiet() {
            Some(planned) => Manner::Apart(Some(planned)),
            None => Manner::Together(turn),
        }
    }

    /// An access without conversion, with its pattern and whether that is monotone.
    fn step(
        &self,
        access: Result<(Pattern, bool)>,
        manner: Manner<'_>,
        buffer: &mut Buffer<'_, '_>,
    ) -> Result<u64> {
        let (planned, collective) = match manner {
            Manner::Together(turn) => return self.together(turn, access, buffer),
            Manner::Apart(planned) => (planned, true),
            Manner::Independent => (None, false),
        };
        let (pattern, monotone) = access?;
        match planned {
            Some(planned) if monotone && planned.fits(pattern.len, pattern.regions()) => {
                let decision = Decision::cheapest(planned.choice);
                self.run_alone(&pattern, buffer, &decision, collective)
            }
            _ => self.alone(&pattern, monotone, buffer, collective),
        }
    }

    /// An access in external32, chunk by chunk.
    fn convert(
        &self,
        prepared: Result<Prepared>,
        manner: Manner<'_>,
        buffer: &mut Buffer<'_, '_>,
    ) -> Result<u64> {
        let bytes = buffer.pattern().len;
        // A plain type needs no conversion, but uses the same chunks.
        let signature = match &prepared {
            Ok(Prepared {
                signature: Some(signature),
                ..
            }) => signature.clone(),
            _ => Signature::bytes(1)?,
        };
        let rounds = external32::steps(&signature, bytes).count();
        let rounds = match manner {
            Manner::Together(turn) => {
                let mine = prepared.as_ref().map(|_| rounds).map_err(Clone::clone);
                let all = self.meet(turn, Call::Access, mine)?;
                all.into_iter().max().unwrap_or(0)
            }
            Manner::Apart(_) | Manner::Independent => rounds,
        };
        let mut steps = external32::steps(&signature, bytes);
        let prepared = prepared?;
        let (mut moved, mut chunk, mut ended) = (0, Vec::new(), false);
        let mut failed = Ok(());
        for _ in 0..rounds {
            // A rank that has finished takes part with an empty access, and one that has failed with its error: the
            // others meet it.
            let step = steps.next().unwrap_or_default();
            let part = prepared.pattern.slice(step.file.0, step.file.1);
            let monotone = prepared.seen.is_monotone(&part);
            let access = failed.clone().map(|()| (part, monotone));
            let done = match buffer {
                Buffer::From(source) => {
                    let encoded = external32::encode(&signature, &step, source, &mut chunk);
                    let mut source = Source::from_slice(&chunk);
                    let access = access.and_then(|access| encoded.map(|()| access));
                    self.step(access, manner, &mut Buffer::From(&mut source))
                        .map(|_| step.memory.1)
                }
                Buffer::Into(target) => {
                    chunk.resize(step.file.1 as usize, 0);
                    let mut external = Target::from_slice(&mut chunk);
                    let got = self.step(access, manner, &mut Buffer::Into(&mut external));
                    got.and_then(|got| {
                        let through = ended;
                        ended |= got < step.file.1;
                        if through {
                            return Ok(0);
                        }
                        external32::decode(&signature, &step, &chunk[..got as usize], target)
                    })
                }
            };
            match (done, manner) {
                (Ok(bytes), _) => moved += bytes,
                (Err(e), Manner::Together(_)) => failed = failed.and(Err(e)),
                (Err(e), _) => return Err(e),
            }
        }
        failed.map(|()| moved)
    }

    /// A collective access. Every rank gets here, even with invalid arguments.
    fn together(
        &self,
        turn: &Turn<'_>,
        mine: Result<(Pattern, bool)>,
        buffer: &mut Buffer<'_, '_>,
    ) -> Result<u64> {
        let memory = turn.memory();
        let comm = turn.comm();
        let direction = buffer.direction();
        let hints = self.hints();
        if lock(&self.state).atomic {
            let moved =
                mine.and_then(|(pattern, monotone)| self.alone(&pattern, monotone, buffer, true));
            let met = self.meet(turn, Call::Access, moved.clone().map(drop));
            return moved.and_then(|moved| met.map(|_| moved));
        }
        let pattern = mine.map(|(pattern, _)| pattern);
        let memory_regions = buffer.pattern().regions();
        let experience = self.experience(direction);
        let announced = lock(&self.announcements).exchange(
            comm,
            &self.debt,
            &pattern,
            memory_regions,
            &experience,
        )?;
        let began = time::now();
        let patterns = &announced.patterns;
        if !patterns.iter().all(Pattern::is_monotone) {
            // Several interleaving instances: region by region.
            let mine = &patterns[comm.rank()];
            let moved = self.alone(mine, mine.is_monotone(), buffer, true);
            return moved.inspect_err(|e| self.debt.owe(e));
        }
        let decision = match hints.method {
            Some(method) => self.decide_named(&hints, method),
            None => self.decide_exchange(&hints, direction, comm.rank(), &announced),
        };
        if let Why::Cheapest(choice) = decision.why {
            let mine = &patterns[comm.rank()];
            let (mine, quiet) = ((mine.len, mine.regions()), announced.experience.quiet);
            lock(&self.state).habits[direction as usize].chose(choice, mine, quiet);
        }
        if !decision.candidate.method.is_collective() {
            let moved = self.run_alone(&patterns[comm.rank()], buffer, &decision, true);
            return moved.inspect_err(|e| self.debt.owe(e));
        }
        let Announced { patterns, call, .. } = announced;
        let ranks = Ranks { comm, memory, call };
        self.run_exchange(ranks, &hints, patterns, buffer, decision, began)
    }

    /// An independent access.
    fn alone(
        &self,
        pattern: &Pattern,
        monotone: bool,
        buffer: &mut Buffer<'_, '_>,
        collective: bool,
    ) -> Result<u64> {
        let (hints, atomic) = {
            let state = lock(&self.state);
            (Arc::clone(&state.hints), state.atomic)
        };
        if !atomic && self.fast_path(&hints, pattern, buffer, collective) {
            return Ok(pattern.len);
        }
        let mut decision = match hints.method {
            Some(method) => self.decide_named(&hints, method),
            None => self.decide_alone(&hints, pattern, buffer),
        };
        if !monotone {
            decision = decision.instead(Method::POSIX, "the view is not in ascending order");
        } else {
            match decision.candidate.method.row().work {
                Work::Alone { locks: true, .. } if atomic => {
                    decision =
                        decision.instead(Method::DATATYPE, "atomic mode locks the whole access");
                }
                Work::Alone { .. } => {}
                Work::Exchange { .. } | Work::SharedMemory { .. } => {
                    let because = "it needs a collective call of several ranks, not atomic";
                    decision = decision.instead(Method::DATATYPE, because);
                }
            }
        }
        self.run_alone(pattern, buffer, &decision, collective)
    }

    fn run_alone(
        &self,
        pattern: &Pattern,
        buffer: &mut Buffer<'_, '_>,
        decision: &Decision,
        collective: bool,
    ) -> Result<u64> {
        let began = time::now();
        let hints = self.hints();
        let direction = buffer.direction();
        let atomic = lock(&self.state).atomic;
        let Candidate { method, shortcut } = decision.candidate;
        let row = method.row();
        let buffer_bytes = hints.buffer(method, direction);
        let (lo, hi) = pattern.bounds();
        let guarded = atomic && pattern.len > 0;
        let _lock = if guarded {
            let mode = match direction {
                Op::Read => LockMode::Shared,
                Op::Write => LockMode::Exclusive,
            };
            Some(self.handle.lock(lo as u64..hi as u64, mode)?)
        } else {
            None
        };
        let plan = match row.work {
            Work::Alone { plan, .. } => plan,
            // No decision for one rank names these.
            Work::Exchange { .. } | Work::SharedMemory { .. } => datatype::plan,
        };
        let memory = buffer.pattern().clone();
        let mut shell = Shell::new(&*self.handle, buffer, None, shortcut, guarded);
        let moved = match pattern.len {
            0 => Ok(0),
            _ => shell.drive(&mut *plan(&Alone {
                op: direction,
                file: pattern.clone(),
                memory: memory.clone(),
                buffer: buffer_bytes,
            })),
        };
        let tally = shell.tally;
        let seconds = time::since(began).as_secs_f64();
        if !atomic && moved.is_ok() {
            self.learn(direction, decision, seconds);
        }
        let shape = AccessSummary {
            bytes: pattern.len,
            file_regions: pattern.regions(),
            memory_regions: memory.regions(),
            extent: (hi - lo) as u64,
            aggregate_extent: (hi - lo) as u64,
            aggregators: 1,
        };
        let record = Record {
            direction,
            collective,
            method,
            shortcut,
            bytes: *moved.as_ref().unwrap_or(&0),
            region_bytes: (row.region)(&tally, &shape),
            tally,
            model: predict(method, &shape, buffer_bytes),
            began,
            seconds,
        };
        self.keep(&record, *decision);
        moved
    }

    /// A collective access by exchange; ends with the agreement.
    fn run_exchange(
        &self,
        ranks: Ranks<'_>,
        hints: &Hints,
        patterns: Vec<Pattern>,
        buffer: &mut Buffer<'_, '_>,
        mut decision: Decision,
        began: Instant,
    ) -> Result<u64> {
        let Ranks { comm, memory, call } = ranks;
        let direction = buffer.direction();
        let needs_memory = |decision: &Decision| {
            let row = decision.candidate.method.row();
            matches!(row.work, Work::SharedMemory { .. })
        };
        if needs_memory(&decision) && memory.is_none() {
            decision = decision.instead(Method::TWO_PHASE, "the ranks share no memory");
        }
        let tuning = Tuning {
            buffer: hints.buffer(Method::RESONANT, direction),
            delay: DELAY,
            groups: Groups::default(),
        };
        let needs_servers = |decision: &Decision| {
            let row = decision.candidate.method.row();
            matches!(row.work, Work::Exchange { striped: true, .. })
        };
        let layout = self.handle.layout();
        if needs_servers(&decision) && layout.is_none() {
            let because = "the file is not striped over data servers";
            decision = decision.instead(Method::TWO_PHASE, because);
        }
        let memory = memory.filter(|_| needs_memory(&decision));
        let Candidate { method, shortcut } = decision.candidate;
        let row = method.row();
        let aggregators = match memory {
            Some(_) => (0..comm.size()).collect(),
            None => self.nodes.aggregators(hints),
        };
        let window = match memory {
            Some(memory) => memory.half_bytes() as u64,
            None => hints.buffer(method, direction),
        };
        let unit = layout.map_or(0, |layout| layout.stripe_unit);
        let schedule = Schedule::new(patterns, aggregators, window, unit, Rules::Ours);
        let schedule = Rc::new(match layout.filter(|_| needs_servers(&decision)) {
            Some(layout) => schedule.striped(layout.clone(), tuning),
            None => schedule,
        });
        let plan = match row.work {
            Work::SharedMemory { plan, .. } | Work::Exchange { plan, .. } => plan,
            // No decision for an exchange names these.
            Work::Alone { .. } => two_phase::plan,
        };
        let seat = Seat {
            op: direction,
            rank: comm.rank(),
            schedule: Rc::clone(&schedule),
        };
        let ranks = Some(Ranks { comm, memory, call });
        let mut shell = Shell::new(&*self.handle, buffer, ranks, shortcut, false);
        let moved = shell.drive(&mut *plan(seat));
        let tally = shell.tally;
        // This rank's own work; waiting for late ranks says nothing about the method.
        let own = time::since(began)
            .saturating_sub(shell.waited)
            .as_secs_f64();
        if moved.is_ok() {
            let waits = shell.met as f64 * self.costs.barrier;
            self.learn(direction, &decision, own + waits);
        }
        let moved = agree(comm, moved);
        let seconds = time::since(began).as_secs_f64();
        let (model, shape) =
            predict_exchange(method, direction, comm.rank(), &schedule, (window, unit));
        let record = Record {
            direction,
            collective: true,
            method,
            shortcut,
            bytes: *moved.as_ref().unwrap_or(&0),
            region_bytes: (row.region)(&tally, &shape),
            tally,
            model,
            began,
            seconds,
        };
        self.keep(&record, decision);
        moved
    }

    /// Methods chosen by name use requests, so that their counts are comparable with the sources', unless descriptors
    /// are asked for.
    fn decide_named(&self, hints: &Hints, method: Method) -> Decision {
        let shortcut = hints.shortcut == Toggle::Enable && self.handle.has_shortcut();
        Decision {
            candidate: Candidate { method, shortcut },
            why: Why::Named,
        }
    }

    fn decide_alone(&self, hints: &Hints, pattern: &Pattern, buffer: &Buffer<'_, '_>) -> Decision {
        let direction = buffer.direction();
        let experience = self.experience(direction);
        let place = self.place(1, &experience);
        let shape = self.shape(pattern, buffer.pattern().regions());
        let access = Access {
            direction,
            shapes: &[shape],
            extent: shape.extent,
            collective: false,
            mine: 0,
            incumbent: lock(&self.state).habits[direction as usize].incumbents[0],
        };
        let choice = auto::choose(&self.costs, &experience.ratios, hints, &access, &place);
        lock(&self.state).habits[direction as usize].incumbents[0] = Some(choice.candidate);
        Decision::cheapest(choice)
    }

    fn decide_exchange(
        &self,
        hints: &Hints,
        direction: Op,
        mine: usize,
        announced: &Announced,
    ) -> Decision {
        let Announced {
            patterns,
            memory_regions,
            experience,
            ..
        } = announced;
        let shapes: Vec<_> = patterns
            .iter()
            .zip(memory_regions)
            .map(|(pattern, regions)| self.shape(pattern, *regions))
            .collect();
        let (lo, hi) = domains::extent(patterns).unwrap_or((0, 0));
        let place = self.place(patterns.len(), experience);
        let access = Access {
            direction,
            shapes: &shapes,
            extent: (hi - lo) as f64,
            collective: true,
            mine,
            incumbent: experience.incumbent,
        };
        let choice = auto::choose(&self.costs, &experience.ratios, hints, &access, &place);
        Decision::cheapest(choice)
    }

    fn shape(&self, pattern: &Pattern, memory_regions: u64) -> cost::RankAccess {
        let (lo, hi) = pattern.bounds();
        let regions = pattern.regions() as f64;
        let cut = self.handle.layout().map_or(0.0, |layout| {
            let units = pattern.len as f64 / layout.stripe_unit as f64;
            if regions > 1.0 {
                units
            } else {
                units.min(layout.servers.len() as f64)
            }
        });
        cost::RankAccess {
            bytes: pattern.len as f64,
            file_regions: regions + cut,
            memory_regions: memory_regions as f64,
            extent: (hi - lo) as f64,
        }
    }

    /// What this rank knows; in a collective call all ranks use rank 0's.
    fn experience(&self, direction: Op) -> Experience {
        let habit = lock(&self.state).habits[direction as usize];
        Experience {
            incumbent: habit.incumbents[1],
            quiet: habit.proposal(),
            shortcut: self.handle.has_shortcut(),
            processors: self.process.processors,
            ratios: *lock(&self.process.learnt).ratios(direction),
        }
    }

    fn place(&self, ranks: usize, experience: &Experience) -> Surroundings {
        Surroundings {
            ranks: ranks as f64,
            processors: experience.processors.into(),
            one_node: self.nodes.is_one(),
            shortcut: experience.shortcut,
            servers: self.handle.layout().is_some(),
        }
    }

    fn learn(&self, direction: Op, decision: &Decision, seconds: f64) {
        if let Why::Cheapest(choice) = &decision.why {
            lock(&self.process.learnt).learn(direction, choice.candidate, choice.own, seconds);
        }
    }

    pub(crate) fn keep(&self, record: &Record, decision: Decision) {
        let mut state = lock(&self.state);
        state.chosen[record.direction as usize] = Some(decision);
        state.last = Some(record.direction);
        // Requests go to another page cache, whose host writes it back.
        let cached_here = record.shortcut || self.handle.layout().is_none();
        let begins = record.direction == Op::Write
            && cached_here
            && state.behind.wrote(record.collective, record.bytes);
        drop(state);
        if begins {
            self.handle.start_writeback(0, 1);
        }
        lock(&self.summary).add(record);
        self.checkpoint();
    }
}

/// DT table I for an exchange, with the bytes that this rank sends to others computed from the patterns. Also returns
/// the statistics it is based on.
fn predict_exchange(
    method: Method,
    direction: Op,
    rank: usize,
    schedule: &Schedule,
    (window, unit): (u64, u64),
) -> (Prediction, AccessSummary) {
    let Schedule {
        patterns,
        aggregators,
        access_sets,
        ..
    } = schedule;
    let (lo, hi) = domains::extent(patterns).unwrap_or((0, 0));
    let owners = access_sets
        .as_ref()
        .map_or(aggregators.len(), AccessSets::agents);
    let shape = AccessSummary {
        aggregate_extent: (hi - lo) as u64,
        aggregators: owners as u64,
        ..AccessSummary::default()
    };
    let mut prediction = predict(method, &shape, window);
    if let Some(sets) = access_sets {
        if direction == Op::Write {
            prediction.resent_bytes = sets.resent(rank, &patterns[rank]);
        }
        return (prediction, shape);
    }
    let parts = domains::parts(patterns, aggregators.len(), unit);
    let wanted = |who: usize, part: &std::ops::Range<i64>| {
        let pattern = &patterns[who];
        pattern.stream_at(part.end) - pattern.stream_at(part.start)
    };
    prediction.resent_bytes = match direction {
        Op::Write => parts
            .iter()
            .zip(aggregators)
            .filter(|(_, owner)| **owner != rank)
            .map(|(part, _)| wanted(rank, part))
            .sum(),
        Op::Read => parts
            .iter()
            .zip(aggregators)
            .filter(|(_, owner)| **owner == rank)
            .flat_map(|(part, _)| {
                (0..patterns.len())
                    .filter(|who| *who != rank)
                    .map(|who| wanted(who, part))
            })
            .sum(),
    };
    (prediction, shape)
}
