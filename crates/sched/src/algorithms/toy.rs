//! toy: last come first served, as the smallest example of an algorithm.
//!
//! It consists of this file and one line of the table in `mod.rs`. The tests below use it as users do: by name in a
//! setting, in the dispatcher, in groups, in a journal that is replayed.
use super::{Choice, Company, Policy, Row};
use crate::Nanos;
use crate::table::Table;

/// The table's row.
pub(super) const ROW: Row = Row {
    name: "toy",
    next: "the newest",
    aggregation: 1,
    pays: "never",
    policy: |_| Box::<Toy>::default(),
};

#[derive(Default)]
struct Toy {
    queued: Vec<usize>,
}

impl Policy for Toy {
    fn add(&mut self, table: &mut Table, entry: usize) {
        self.queued.push(table.append(entry));
    }

    fn next(&mut self, table: &mut Table, _: Nanos, _: &mut Company<'_>) -> Choice {
        self.queued.pop().map_or(Choice::Nothing, |at| {
            table.take(at);
            Choice::Serve(at)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::journal::{Call, Journal};
    use crate::{Algorithm, Arrival, Dispatcher, Groups, Op, Request, Settings, ServerInfo, Verdict};
    use std::sync::{Arc, Mutex};

    const SITE: ServerInfo = ServerInfo {
        server: 0,
        servers: 1,
        unit: 64 << 10,
        memory: 0,
        threads: 4,
    };

    #[derive(Debug, Default)]
    struct Log(Mutex<Vec<Call>>);

    impl Journal for Log {
        fn call(&self, call: Call) {
            self.0.lock().unwrap().push(call);
        }
    }

    fn request(id: u64) -> Request {
        Request {
            id,
            file: 1,
            op: Op::Write,
            offset: 1000 * id,
            bytes: 10,
            program: 1,
            process: 0,
        }
    }

    fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.set("sched", "TOY").unwrap();
        settings.set("depth", "1").unwrap();
        settings
    }

    #[test]
    fn a_server_that_is_told_its_name_serves_the_newest_first() {
        let log = Arc::new(Log::default());
        let mut dispatcher = Dispatcher::new(0, &settings(), SITE, Some(log.clone())).unwrap();
        let mut served = Vec::new();
        for id in 0..4 {
            let arrival = Arrival {
                request: request(id),
                end: 1000 * id + 10,
            };
            let mut started = Vec::new();
            match dispatcher.arrive(id, &arrival, &mut started).unwrap() {
                Verdict::Go(virtual_request) => served.push(virtual_request),
                Verdict::Wait => served.extend(started.iter().map(|v| v.id)),
            }
        }
        assert_eq!(served.len(), 1, "one at a time");
        let mut order = vec![0];
        let mut now = 10;
        while let Some(at) = served.pop() {
            let mut started = Vec::new();
            dispatcher.done(now, at, &mut started).unwrap();
            for v in started {
                order.push(v.offset / 1000);
                served.push(v.id);
            }
            now += 1;
        }
        assert_eq!(order, [0, 3, 2, 1]);
        // Its decisions can be written to a journal and read back.
        let calls = log.0.lock().unwrap();
        assert!(!calls.is_empty());
        for call in calls.iter() {
            assert_eq!(call.to_string().parse().as_ref(), Ok(call));
        }
    }

    #[test]
    fn messages_and_groups_know_it() {
        assert!(Algorithm::names().ends_with(", toy"));
        let groups: Groups = "toy aioli=9w".parse().unwrap();
        assert_eq!(groups.to_string(), "toy aioli=9w");
        assert_eq!(groups.algorithm.name(), "toy");
    }
}
