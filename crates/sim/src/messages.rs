//! Messages of a few words between two ranks of a program, over the modelled network.
use crate::cluster::{Cluster, Event, Message};
use penstock_mpiio::planning::{Outcome, Words};

impl Cluster<'_> {
    /// Sends a message to another rank of the program; the sender does not wait.
    pub(crate) fn tell(&mut self, rank: u32, peer: usize, words: Words) {
        let to = self.program_of(rank).first_rank + peer as u32;
        let (here, there) = (self.ranks[rank as usize].node, self.ranks[to as usize].node);
        let bytes = size_of::<Words>() as u64 + self.scenario.network.header.0;
        let arrives = self.network.send(self.now, here, there, bytes);
        // Messages from one rank to another arrive in order.
        let last = self.told.entry((rank, to)).or_default();
        *last = arrives.max(*last);
        let message = self.messages.insert(Message {
            from: rank,
            to,
            words,
        });
        self.events.push(*last, Event::Message(message));
    }

    /// The next message from another rank; if none has arrived the rank waits for it.
    pub(crate) fn hear(&mut self, rank: u32, peer: usize) -> Option<Words> {
        let from = self.program_of(rank).first_rank + peer as u32;
        let r = &mut self.ranks[rank as usize];
        let Some(at) = r.heard.iter().position(|(of, _)| *of == from) else {
            r.hears = Some(from);
            return None;
        };
        r.heard.remove(at).map(|(_, words)| words)
    }

    pub(crate) fn message_arrives(&mut self, message: u32) {
        let Message { from, to, words } = self.messages[message];
        self.messages.free(message);
        let r = &mut self.ranks[to as usize];
        if r.hears == Some(from) {
            r.hears = None;
            self.go_on(to, Outcome::Heard(words));
        } else {
            r.heard.push_back((from, words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use penstock_base::{Nanos, Op};
    use penstock_datatype::Pattern;
    use penstock_mpiio::Method;
    use penstock_mpiio::planning::{Plan, Seat, Step};
    use penstock_mpiio::testing::Turns;

    /// Four ranks on nodes of their own; latency in microseconds.
    fn scenario(latency: u64) -> Scenario {
        let text = format!(
            r#"
            name = "messages"
            [cluster]
            servers = 2
            [network]
            latency = "{latency}us"
            [device]
            model = "hdd,queue=noop"
            [[program]]
            benchmark = "demo"
            ranks = 4
            op = "write"
            method = "two-phase"
            collective = true
            parameters = {{ segment = "64KiB", file_size = "1MiB" }}
            "#
        );
        Scenario::parse(&text, "messages.toml").unwrap()
    }

    /// Runs a scenario with the test's plans; returns the events and the end.
    fn ends(
        scenario: &Scenario,
        plan: fn(Method, Seat) -> Option<Box<dyn Plan>>,
    ) -> crate::Result<(u64, Nanos)> {
        let mut cluster = Cluster::new(scenario)?;
        cluster.plan = plan;
        cluster.run(&mut |_, _, _, _| {})?;
        assert!(cluster.ranks.iter().all(|r| r.heard.is_empty()));
        let report = cluster.report();
        assert_eq!(report.bytes, 1 << 20);
        Ok((report.operations, report.makespan))
    }

    #[test]
    fn ranks_that_take_turns_wait_for_each_other() {
        let turns = |_, seat| Some(Turns::plan(seat));
        let side_by_side = |_, seat: Seat| {
            let file = seat.schedule.patterns[seat.rank].clone();
            Method::POSIX.plan_alone(&penstock_mpiio::planning::Alone {
                op: seat.op,
                memory: Pattern::contiguous(0, file.len),
                buffer: file.len,
                file,
            })
        };
        let near = scenario(10);
        let (operations, in_turns) = ends(&near, turns).unwrap();
        let (others, together) = ends(&near, side_by_side).unwrap();
        assert_eq!(operations, others);
        assert!(in_turns > together, "{in_turns} {together}");
        assert_eq!(ends(&near, turns).unwrap(), (operations, in_turns));
    }

    /// Sends three numbers to the next rank and receives three, which must arrive in order.
    struct Three {
        seat: Seat,
        step: u64,
    }

    impl Plan for Three {
        fn next(&mut self, last: Outcome) -> Step {
            let ranks = self.seat.schedule.patterns.len();
            let step = self.step;
            self.step += 1;
            if let Some(words) = last.words() {
                let from = (self.seat.rank + ranks - 1) % ranks;
                assert_eq!(words, [from as u64, step - 4, 0, u64::MAX]);
            }
            match step {
                0..3 => Step::Tell {
                    peer: (self.seat.rank + 1) % ranks,
                    words: [self.seat.rank as u64, step, 0, u64::MAX],
                },
                3..6 => Step::Hear {
                    peer: (self.seat.rank + ranks - 1) % ranks,
                },
                _ => Step::Finish {
                    moved: self.seat.schedule.patterns[self.seat.rank].len,
                },
            }
        }
    }

    #[test]
    fn what_is_told_is_heard_in_its_order() {
        let three = |_, seat| Some(Box::new(Three { seat, step: 0 }) as Box<dyn Plan>);
        let idle = |_, seat| Some(Box::new(Three { seat, step: 6 }) as Box<dyn Plan>);
        for latency in [10, 1000] {
            let scenario = scenario(latency);
            let (operations, talk) = ends(&scenario, three).unwrap();
            let (_, silence) = ends(&scenario, idle).unwrap();
            assert_eq!(operations, 0);
            // In the one call the messages cross at the same time.
            let crossing = latency * 1000;
            let took = talk - silence;
            assert!(took >= crossing && took < crossing + 20_000, "{took}");
        }
    }

    #[test]
    fn waiting_for_what_nobody_tells_is_an_error() {
        let deaf = |_, seat: Seat| {
            assert_eq!(seat.op, Op::Write);
            let step = 3 + 3 * u64::from(seat.rank == 1);
            Some(Box::new(Three { seat, step }) as Box<dyn Plan>)
        };
        let e = ends(&scenario(10), deaf).unwrap_err();
        assert!(matches!(e, crate::Error::Stuck { waiting: 4, .. }), "{e}");
    }
}
