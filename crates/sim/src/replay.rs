//! Replays the journal of a data server's scheduler, and compares decision by decision.
//!
//! *Problem*: results of the simulator apply to real servers only if both decide alike. *Idea*: a server started with
//! `--trace` records each call of its scheduler. The calls' inputs, with their times, are replayed on virtual time on
//! the same state machines. These are `penstock_sched::Scheduler`, and `penstock_sched::Chooser` if the server chose
//! its algorithm itself. Each answer must be the recorded one: which virtual request, of which requests in which order,
//! how long to wait, which algorithm. The first difference ends the replay.
use penstock_sched::journal::{Call, digest};
use penstock_sched::{Chooser, Groups, Nanos, Next, Request, Scheduler, ServerInfo};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Counts of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Replayed {
    /// Calls that were compared.
    pub calls: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Decisions: how often the scheduler was asked what to do.
    pub decisions: u64,
    /// Virtual requests.
    pub dispatches: u64,
    /// Requests served in one virtual request with others.
    pub joined: u64,
    /// Decisions to wait.
    pub waits: u64,
    /// Algorithm choices of the server itself.
    pub choices: u64,
    /// Dispatches by algorithm.
    pub algorithms: BTreeMap<&'static str, u64>,
    /// Time of the last call.
    pub last: Nanos,
}

/// Where replay and record differ.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Departure {
    /// The decision differs.
    #[error("call {call}: recorded `{recorded}`, replayed `{replayed}`")]
    Differs {
        /// Number of the call, from 1.
        call: u64,
        /// The server's decision.
        recorded: String,
        /// The replayed decision.
        replayed: String,
    },
    /// A call that no server records.
    #[error("call {call}, `{recorded}`: {why}")]
    Impossible {
        /// Number of the call, from 1.
        call: u64,
        /// The call.
        recorded: String,
        /// What is inconsistent.
        why: String,
    },
}

/// Replays recorded calls on a scheduler of its own.
#[derive(Debug, Default)]
pub struct Replay {
    scheduler: Option<Scheduler>,
    chooser: Option<Chooser>,
    /// The server's settings were changed: its next options are accepted as they are.
    tuned: bool,
    /// The chooser's decision; the next call must state it.
    chosen: Option<Groups>,
    /// Arrival times of held requests, for the chooser.
    arrived: HashMap<u64, Nanos>,
    /// Predictions recorded for the next decision, in order.
    told: VecDeque<Nanos>,
    done: Replayed,
}

impl Replay {
    /// A replay that begins with a server's start.
    pub fn new() -> Replay {
        Replay::default()
    }

    /// The counts so far.
    pub fn done(&self) -> &Replayed {
        &self.done
    }

    /// Replays the next call; an error tells where record and replay differ.
    pub fn call(&mut self, call: &Call) -> Result<(), Departure> {
        self.done.calls += 1;
        if let Some(groups) = &self.chosen
            && !matches!(call, Call::Group { .. })
        {
            let groups = groups.to_string();
            return Err(self.differs(call, format!("group {groups}")));
        }
        match call {
            Call::Note(text) => match text.strip_prefix("tuned ") {
                Some(tuned) => self.tune(call, tuned)?,
                None => return Ok(()),
            },
            Call::Set { now, options } => {
                self.done.last = *now;
                let Some(scheduler) = &mut self.scheduler else {
                    let scheduler = Scheduler::new((**options).clone());
                    let made = scheduler.map_err(|e| self.impossible(call, e.to_string()))?;
                    self.scheduler = Some(made);
                    self.tuned = false;
                    return Ok(());
                };
                let mut expected = scheduler.options().clone();
                if std::mem::take(&mut self.tuned) {
                    expected = (**options).clone();
                    if let Some(chooser) = &self.chooser {
                        let groups = chooser.groups();
                        expected.algorithm = groups.algorithm;
                        self.chosen = Some(groups.clone()).filter(|g| !g.files.is_empty());
                    }
                }
                let set = scheduler.reconfigure(*now, expected.clone());
                set.map_err(|e| self.impossible(call, e.to_string()))?;
                if expected != **options {
                    let options = Box::new(expected);
                    return Err(self.differs(call, Call::Set { now: *now, options }));
                }
            }
            Call::Group { now, groups } => self.group(call, *now, groups)?,
            Call::Add {
                now,
                request,
                end,
                taken,
            } => self.add(call, *now, *request, *end, *taken)?,
            Call::Told { wait } => self.told.push_back(*wait),
            Call::Ask { now, .. } => self.ask(call, *now)?,
            Call::End { now, id, .. } => self.end(call, *now, *id)?,
            Call::Guess { file, op, bytes } => {
                self.scheduler(call)?.predict(*file, *op, *bytes);
            }
        }
        Ok(())
    }

    fn tune(&mut self, call: &Call, text: &str) -> Result<(), Departure> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let numbers: Vec<u64> = words.iter().map_while(|w| w.parse().ok()).collect();
        let [now, unit, memory, servers] = numbers[..] else {
            let wanted = "no time, stripe unit, memory and number of servers";
            return Err(self.impossible(call, wanted.into()));
        };
        let site = ServerInfo {
            server: 0,
            servers: u32::try_from(servers).unwrap_or(u32::MAX),
            unit,
            memory,
            threads: u32::MAX,
        };
        let settings = &words[4..];
        self.tuned = true;
        if settings == ["fixed"] {
            self.chooser = None;
            return Ok(());
        }
        if self
            .chooser
            .as_ref()
            .is_some_and(|c| c.settings() == settings)
        {
            return Ok(());
        }
        let held = self.scheduler(call)?.len();
        let chooser = Chooser::of(settings, now, site, held);
        self.chooser = chooser.map_err(|e| self.impossible(call, e.to_string()))?;
        Ok(())
    }

    fn group(&mut self, call: &Call, now: Nanos, groups: &Groups) -> Result<(), Departure> {
        self.done.last = now;
        let Some(chosen) = self.chosen.take() else {
            return Err(self.differs(call, "no choice"));
        };
        if chosen != *groups {
            let groups = Box::new(chosen);
            return Err(self.differs(call, Call::Group { now, groups }));
        }
        self.done.choices += 1;
        let done = self.scheduler(call)?.regroup(now, chosen);
        done.map_err(|e| self.impossible(call, e.to_string()))
    }

    fn add(
        &mut self,
        call: &Call,
        now: Nanos,
        request: Request,
        end: u64,
        taken: bool,
    ) -> Result<(), Departure> {
        self.done.last = now;
        let ours = self.scheduler(call)?.add_spread(now, request, end).is_ok();
        if ours != taken {
            let replayed = Call::Add {
                now,
                request,
                end,
                taken: ours,
            };
            return Err(self.differs(call, replayed));
        }
        if taken {
            self.done.requests += 1;
            if let Some(chooser) = &mut self.chooser {
                chooser.arrived(now, &request);
                self.chosen = chooser.decide(now);
            }
            self.arrived.insert(request.id, now);
        }
        Ok(())
    }

    fn ask(&mut self, call: &Call, now: Nanos) -> Result<(), Departure> {
        self.done.last = now;
        let mut told = std::mem::take(&mut self.told);
        let scheduler = self.scheduler(call)?;
        let answer = scheduler.next_expecting(now, &mut |_, _| told.pop_front().unwrap_or(0));
        let parts = match answer {
            Next::Dispatch(v) => digest(scheduler.parts(v.id).map(|part| part.id)),
            _ => 0,
        };
        let algorithm = match answer {
            Next::Dispatch(v) => scheduler.groups().of(v.file, v.op).name(),
            _ => "",
        };
        let replayed = Call::Ask { now, answer, parts };
        if replayed != *call {
            return Err(self.differs(call, replayed));
        }
        self.done.decisions += 1;
        match answer {
            Next::Dispatch(v) => {
                self.done.dispatches += 1;
                self.done.joined += u64::from(v.parts - 1);
                *self.done.algorithms.entry(algorithm).or_default() += 1;
            }
            Next::WaitUntil(_) => self.done.waits += 1,
            Next::Idle => {}
        }
        Ok(())
    }

    fn end(&mut self, call: &Call, now: Nanos, id: u64) -> Result<(), Departure> {
        self.done.last = now;
        let scheduler = self.scheduler(call)?;
        let parts: Vec<Request> = scheduler.parts(id).collect();
        let known = scheduler.completed(now, id).is_ok();
        let replayed = Call::End { now, id, known };
        if replayed != *call {
            return Err(self.differs(call, replayed));
        }
        for part in &parts {
            let arrived = self.arrived.remove(&part.id).unwrap_or(now);
            if let Some(chooser) = &mut self.chooser {
                chooser.completed(now, part, now.saturating_sub(arrived));
            }
        }
        self.chosen = self.chooser.as_mut().and_then(|c| c.decide(now));
        Ok(())
    }

    fn scheduler(&mut self, call: &Call) -> Result<&mut Scheduler, Departure> {
        let at = self.done.calls;
        self.scheduler
            .as_mut()
            .ok_or_else(|| Departure::Impossible {
                call: at,
                recorded: call.to_string(),
                why: "the scheduler's options have to come first".into(),
            })
    }

    fn differs(&self, recorded: &Call, replayed: impl ToString) -> Departure {
        Departure::Differs {
            call: self.done.calls,
            recorded: recorded.to_string(),
            replayed: replayed.to_string(),
        }
    }

    fn impossible(&self, recorded: &Call, why: String) -> Departure {
        Departure::Impossible {
            call: self.done.calls,
            recorded: recorded.to_string(),
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_sched::{Algorithm, Op, Options};
    use std::sync::{Arc, Mutex};

    #[derive(Debug, Default)]
    struct Log(Mutex<Vec<Call>>);

    impl penstock_sched::journal::Journal for Log {
        fn call(&self, call: Call) {
            self.0.lock().unwrap().push(call);
        }
    }

    /// The record of a server with this algorithm: 16 requests, four at a time.
    fn recorded(algorithm: Algorithm) -> Vec<Call> {
        let log = Arc::new(Log::default());
        let options = Options {
            algorithm,
            ..Options::default()
        };
        let mut scheduler = Scheduler::new(options).unwrap();
        scheduler.keep(Some(log.clone()));
        let mut now = 0;
        for round in 0..4 {
            for i in 0..4 {
                let request = Request {
                    id: round * 4 + i,
                    file: i % 2,
                    op: Op::Read,
                    offset: (round * 4 + 3 - i) * 4096,
                    bytes: 4096,
                    program: i,
                    process: 0,
                };
                now += 1000;
                scheduler.add(now, request).unwrap();
            }
            while !scheduler.is_empty() {
                now += 500;
                match scheduler.next(now) {
                    Next::Dispatch(v) => scheduler.completed(now + 300, v.id).unwrap(),
                    Next::WaitUntil(at) => now = at,
                    Next::Idle => break,
                }
            }
        }
        log.0.lock().unwrap().clone()
    }

    fn replay(calls: &[Call]) -> Result<Replayed, Departure> {
        let mut replay = Replay::new();
        calls.iter().try_for_each(|call| replay.call(call))?;
        Ok(replay.done().clone())
    }

    #[test]
    fn every_algorithm_decides_again_as_it_did() {
        for algorithm in Algorithm::ALL {
            let calls = recorded(algorithm);
            let done = replay(&calls).unwrap();
            assert_eq!(done.requests, 16, "{algorithm}");
            assert_eq!(done.dispatches + done.joined, 16);
            assert_eq!(done.calls, calls.len() as u64);
        }
    }

    #[test]
    fn whatever_is_changed_is_noticed() {
        let calls = recorded(Algorithm::Aioli);
        let is_dispatch = |call: &Call| {
            matches!(
                call,
                Call::Ask {
                    answer: Next::Dispatch(_),
                    ..
                }
            )
        };
        let at = calls.iter().position(is_dispatch).unwrap();
        let changed = |at: usize, change: &dyn Fn(&mut Call)| {
            let mut calls = calls.clone();
            change(&mut calls[at]);
            replay(&calls).unwrap_err().to_string()
        };
        let error = changed(at, &|call| {
            if let Call::Ask {
                answer: Next::Dispatch(v),
                ..
            } = call
            {
                v.end += 1;
            }
        });
        assert!(error.starts_with(&format!("call {}:", at + 1)), "{error}");
        assert!(error.contains("recorded") && error.contains("replayed"));
        changed(at, &|call| {
            if let Call::Ask { parts, .. } = call {
                *parts ^= 1;
            }
        });
        // Another input changes some later decision.
        changed(1, &|call| {
            if let Call::Add { request, end, .. } = call {
                (request.offset, *end) = (1 << 30, (1 << 30) + 4096);
            }
        });
        changed(0, &|call| {
            if let Call::Set { options, .. } = call {
                options.algorithm = Algorithm::To;
            }
        });
        // A change of options without a request for it; a chooser without a choice; calls before the options.
        let mut more = calls.clone();
        more.push(Call::Set {
            now: 9,
            options: Box::default(),
        });
        replay(&more).unwrap_err();
        replay(&calls[1..]).unwrap_err();
        for note in [
            "tuned 1 2 3",
            "tuned 1 2 3 4 sched=oak",
            "tuned x 2 3 4 fixed",
        ] {
            replay(&[calls[0].clone(), Call::Note(note.into())]).unwrap_err();
        }
    }
}
