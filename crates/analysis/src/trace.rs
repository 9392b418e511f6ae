//! A trace as it is asked: its streams on one time line, and what is missing of it.
use crate::{Error, Notes};
use penstock_trace::{BlockInfo, Link, NO_RANK, Record, Stream};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Threads that read.
const THREADS: usize = 2;
/// Blocks that are decoded ahead of the one who takes them.
const AHEAD: usize = 4;

/// One stream.
#[derive(Debug)]
pub struct Part {
    /// Its place among all.
    pub index: usize,
    /// The stream.
    pub stream: Stream,
    /// Of its head: the program; 0: unknown.
    pub program: u64,
    /// The process of the program.
    pub rank: u32,
    /// The server, of a server's stream.
    pub server: Option<u32>,
    /// Nanoseconds to add to its records' times.
    pub shift: i64,
}

impl Part {
    /// Whether a server wrote it.
    pub fn is_server(&self) -> bool {
        self.server.is_some()
    }

    /// As users see it: `rank 3`, `server 0`, or its file's name.
    pub fn name(&self) -> String {
        match (self.server, self.rank) {
            (Some(server), _) => format!("server {server}"),
            (None, NO_RANK) => {
                let head = self.stream.head();
                format!("process {} on {}", head.pid, head.host)
            }
            (None, rank) => format!("rank {rank}"),
        }
    }

    /// Records in it.
    pub fn records(&self) -> u64 {
        self.stream.summary().events
    }

    /// The path of the file with this number; empty: unknown.
    pub fn file(&self, number: u32) -> &str {
        self.stream.file(number).map_or("", |file| &file.path)
    }
}

/// All streams.
#[derive(Debug)]
pub struct Trace {
    /// Where it is.
    pub path: PathBuf,
    /// Those that can be read.
    pub parts: Vec<Part>,
    /// Time 0 of all answers, nanoseconds since 1970.
    pub began: u64,
    /// What is missing of it, and what else limits answers.
    pub notes: Notes,
    /// Records that were dropped when they were written.
    pub dropped: u64,
    /// Files that could not be opened.
    pub unread: usize,
}

impl Trace {
    /// Opens the directory of a trace, or one stream.
    pub fn open(path: &Path) -> Result<Trace, Error> {
        let opened = penstock_trace::Trace::open(path)?;
        let mut notes = Notes::default();
        let mut unread = opened.unread;
        if opened.streams.is_empty()
            && let Some(first) = unread.pop()
        {
            return Err(first.into());
        }
        for error in &unread {
            notes.add(format!("not read: {error}"));
        }
        let unread = unread.len();
        let corrected = |stream: &Stream| {
            let head = stream.head();
            head.began.saturating_add_signed(head.clock.offset)
        };
        let began = opened.streams.iter().map(corrected).min().unwrap_or(0);
        let parts: Vec<Part> = opened
            .streams
            .into_iter()
            .enumerate()
            .map(|(index, stream)| Part {
                index,
                program: stream.head().program,
                rank: stream.head().rank,
                server: stream.head().server,
                shift: corrected(&stream).wrapping_sub(began).cast_signed(),
                stream,
            })
            .collect();
        let dropped = parts.iter().map(|p| p.stream.summary().dropped).sum();
        let mut trace = Trace {
            path: path.to_owned(),
            parts,
            began,
            notes,
            dropped,
            unread,
        };
        trace.look_for_gaps();
        Ok(trace)
    }

    /// Notes what is missing.
    fn look_for_gaps(&mut self) {
        let mut notes = std::mem::take(&mut self.notes);
        let (mut cut, mut chosen) = (Vec::new(), BTreeSet::new());
        let (mut programs, mut unmeasured, mut worst) = (BTreeSet::new(), 0, 0u64);
        let (mut hosts, mut servers, mut of) = (BTreeSet::new(), BTreeSet::new(), 0);
        for part in &self.parts {
            let head = part.stream.head();
            let name = file_name(part.stream.path());
            if part.stream.summary().dropped > 0 {
                notes.add(format!(
                    "{name} ({}) lacks {} records that were dropped",
                    part.name(),
                    part.stream.summary().dropped
                ));
            }
            if let Some(error) = part.stream.damage() {
                cut.push(error.to_string());
            }
            if !head.chosen.is_empty() {
                chosen.insert(head.chosen.clone());
            }
            match part.server {
                Some(server) => {
                    servers.insert(server);
                }
                None => {
                    programs.insert(head.program);
                }
            }
            of = of.max(head.servers);
            hosts.insert(head.host.clone());
            match head.clock.error {
                Some(error) => worst = worst.max(error),
                None => unmeasured += 1,
            }
        }
        for error in cut {
            notes.add(error);
        }
        for words in chosen {
            notes.add(format!("only a part was recorded: {words}"));
        }
        let missing: Vec<String> = (0..of)
            .filter(|server| !servers.contains(server))
            .take(20)
            .map(|server| server.to_string())
            .collect();
        if !missing.is_empty() {
            notes.add(format!(
                "no part of data server{} {}: what happened there is missing, and stands as time of requests",
                if missing.len() > 1 { "s" } else { "" },
                missing.join(", ")
            ));
        }
        if !servers.is_empty() && programs.is_empty() {
            notes.add("no part of a client: calls of programs are missing".into());
        }
        if hosts.len() > 1 && unmeasured > 0 {
            notes.add(format!(
                "clocks of {unmeasured} parts on {} hosts were not measured: times between hosts may be wrong",
                hosts.len()
            ));
        } else if hosts.len() > 1 && worst > 10_000 {
            notes.add(format!(
                "clocks of the hosts are known within {} µs: times between hosts are no better",
                worst / 1000
            ));
        }
        self.notes = notes;
    }

    /// Records of all parts.
    pub fn records(&self) -> u64 {
        self.parts.iter().map(Part::records).sum()
    }

    /// The programs, with the ranks of each.
    pub fn programs(&self) -> std::collections::BTreeMap<u64, BTreeSet<u32>> {
        let mut programs: std::collections::BTreeMap<u64, BTreeSet<u32>> = Default::default();
        for part in self.parts.iter().filter(|part| !part.is_server()) {
            programs.entry(part.program).or_default().insert(part.rank);
        }
        programs
    }

    /// Asks each part that `choose` takes, in two threads. Answers stand in the order of the parts, with what could not
    /// be read.
    pub fn each<'t, T: Send>(
        &'t self,
        choose: impl Fn(&Part) -> bool,
        ask: impl Fn(&'t Part, &mut Blocks<'t>) -> Result<T, Error> + Sync,
    ) -> Result<Answers<T>, Error> {
        let mut chosen: Vec<&'t Part> = self.parts.iter().filter(|part| choose(part)).collect();
        chosen.sort_by_key(|part| std::cmp::Reverse(part.records()));
        let next = AtomicUsize::new(0);
        // A single part keeps the second core busy with decoding.
        let ahead = chosen.len() == 1;
        let worker = || {
            let mut mine = Vec::new();
            while let Some(part) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut blocks = Blocks {
                    part,
                    ahead,
                    problems: Vec::new(),
                };
                let answer = ask(part, &mut blocks)?;
                mine.push((part.index, answer, blocks.problems));
            }
            Ok(mine)
        };
        let results: Vec<Result<Vec<_>, Error>> = std::thread::scope(|scope| {
            let count = THREADS.min(chosen.len());
            let threads: Vec<_> = (1..count).map(|_| scope.spawn(worker)).collect();
            let mut results = vec![worker()];
            for thread in threads {
                results.push(
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                );
            }
            results
        });
        let mut all = Vec::with_capacity(chosen.len());
        for result in results {
            all.extend(result?);
        }
        all.sort_by_key(|(index, ..)| *index);
        let mut answers = Answers {
            all: Vec::with_capacity(all.len()),
            problems: Vec::new(),
        };
        for (_, answer, problems) in all {
            answers.all.push(answer);
            answers.problems.extend(problems);
        }
        Ok(answers)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Answers of parts.
#[derive(Debug)]
pub struct Answers<T> {
    all: Vec<T>,
    problems: Vec<String>,
}

impl<T> Answers<T> {
    /// The answers; what could not be read goes to the notes.
    pub fn take(self, notes: &mut Notes) -> Vec<T> {
        for problem in self.problems {
            notes.add(problem);
        }
        self.all
    }
}

/// The blocks of one part.
pub struct Blocks<'a> {
    part: &'a Part,
    ahead: bool,
    problems: Vec<String>,
}

impl Blocks<'_> {
    /// Hands out all records with their links, and their time on the trace's line. A damaged block is noted and left out.
    pub fn records(&mut self, take: impl FnMut(&Record, &[(u32, Link)])) {
        self.some_records(|_| true, take);
    }

    /// The same, of the blocks that `choose` takes.
    pub fn some_records(
        &mut self,
        choose: impl Fn(&BlockInfo) -> bool + Sync,
        mut take: impl FnMut(&Record, &[(u32, Link)]),
    ) {
        let stream = &self.part.stream;
        let shift = self.part.shift;
        let blocks = stream.blocks().iter().filter(|info| choose(info));
        let mut hand_out = |block: &mut penstock_trace::Block| {
            let mut links = &block.links[..];
            for (place, record) in block.records.iter_mut().enumerate() {
                record.begin = record.begin.saturating_add_signed(shift);
                let mine = links
                    .iter()
                    .take_while(|link| link.0 as usize == place)
                    .count();
                let (mine, rest) = links.split_at(mine);
                links = rest;
                take(record, mine);
            }
        };
        if !self.ahead {
            let (mut reading, mut block) = Default::default();
            let reading: &mut penstock_trace::Reading = &mut reading;
            for info in blocks {
                match reading.read(stream, info, &mut block) {
                    Ok(()) => hand_out(&mut block),
                    Err(error) => self.problems.push(format!("left out: {error}")),
                }
            }
            return;
        }
        let problems = &mut self.problems;
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::sync_channel(AHEAD);
            let (give_back, empty) = mpsc::channel::<penstock_trace::Block>();
            let infos: Vec<BlockInfo> = blocks.copied().collect();
            scope.spawn(move || {
                let mut reading = penstock_trace::Reading::new();
                for info in infos {
                    let mut block = empty.try_recv().unwrap_or_default();
                    let result = reading.read(stream, &info, &mut block).map(|()| block);
                    if send.send(result).is_err() {
                        return;
                    }
                }
            });
            for result in receive {
                match result {
                    Ok(mut block) => {
                        hand_out(&mut block);
                        let _ = give_back.send(block);
                    }
                    Err(error) => problems.push(format!("left out: {error}")),
                }
            }
        });
    }
}
