//! Which calls of which processes visited which server, when: what joins clients' streams and servers'.
use penstock_base::Numbered;
use penstock_trace::Caller;

/// A request at its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Visit {
    /// The client's call.
    pub call: u64,
    /// The server.
    pub server: u32,
    /// From when, nanoseconds since the trace began.
    pub begin: u64,
    /// To when.
    pub end: u64,
    /// It moves data: then the client recorded the request too.
    pub moves: bool,
}

/// Visits by program and rank.
#[derive(Debug, Default)]
pub struct Visits {
    by_process: Numbered<(u64, u32), Vec<Visit>>,
}

impl Visits {
    /// One more.
    pub fn add(&mut self, caller: Caller, visit: Visit) {
        let process = (caller.program, caller.rank);
        self.by_process.entry(process).or_default().push(visit);
    }

    /// Those of another stream.
    pub fn merge(&mut self, other: Visits) {
        for (process, mut visits) in other.by_process {
            let mine = self.by_process.entry(process).or_default();
            if mine.is_empty() {
                *mine = visits;
            } else {
                mine.append(&mut visits);
            }
        }
    }

    /// Each process's, by call, server and time.
    pub fn sorted(mut self) -> Numbered<(u64, u32), Vec<Visit>> {
        let mut lists: Vec<&mut Vec<Visit>> = self.by_process.values_mut().collect();
        let half = lists.len() / 2;
        let (one, two) = lists.split_at_mut(half);
        std::thread::scope(|scope| {
            scope.spawn(|| one.iter_mut().for_each(|v| v.sort_unstable()));
            two.iter_mut().for_each(|v| v.sort_unstable());
        });
        self.by_process
    }
}
