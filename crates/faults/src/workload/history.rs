//! The history of a run: the files, names and counters that answers are checked against.
use crate::directory::Directory;
use crate::effects::Effects;
use crate::ledger::Ledger;
use crate::model::{Block, CUT};
use crate::pointer::Pointer;
use crate::world::Nanos;
use penstock_layout::{FileId, Layout, ObjectOffset, ServerIndex};
use std::ops::Range;

/// The phase of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Faults happen.
    Faults,
    /// Faults have ended, and their effects are wearing off.
    Settling,
    /// No faults: each client ends its current operation, and then every operation must succeed.
    Calm,
}

/// A shared file.
pub(crate) struct Shared {
    pub(super) path: String,
    pub id: FileId,
    pub(super) layout: Layout,
    pub(super) blocks: Vec<Block>,
}

/// A lock on blocks of a file.
pub(crate) struct Hold {
    pub(super) id: u64,
    client: usize,
    file: usize,
    blocks: Range<usize>,
}

/// The history that all clients of a run share.
pub(crate) struct History {
    pub phase: Phase,
    /// Whether objects may be damaged until somebody accepts them.
    pub hurt: bool,
    /// Objects that a check has reported as damaged.
    pub damaged: Vec<FileId>,
    pub files: Vec<Shared>,
    /// Each client's directory, and the shared one.
    pub names: Vec<Directory>,
    /// Locks that clients hold now.
    pub(super) holds: Vec<Hold>,
    next_hold: u64,
    /// Effects of clients on each other.
    pub effects: Effects,
    /// Power losses by machine.
    pub losses: Vec<Vec<Nanos>>,
    /// Increments acknowledged, and increments tried.
    pub(super) counted: u64,
    pub(super) tried: u64,
    pub(super) next_write: u64,
    /// The latest time that the metadata server has reported.
    pub(super) issued_ms: u64,
    /// The counter that clients share at the moment.
    pub(super) pointer: Option<Pointer>,
    /// Users with quotas on bytes, in runs that have some.
    pub ledger: Option<Ledger>,
    /// Operations that succeeded, and operations that failed because of a fault.
    pub good: u64,
    pub failed: u64,
}

impl History {
    pub fn new(machines: usize, clients: usize) -> History {
        History {
            phase: Phase::Faults,
            hurt: false,
            damaged: Vec::new(),
            files: Vec::new(),
            names: (0..=clients).map(|_| Directory::new()).collect(),
            holds: Vec::new(),
            next_hold: 0,
            effects: Effects::default(),
            losses: vec![Vec::new(); machines],
            counted: 0,
            tried: 0,
            next_write: 1,
            issued_ms: 0,
            pointer: None,
            ledger: None,
            good: 0,
            failed: 0,
        }
    }

    /// Unsynced changes of names may be lost.
    fn names_lost(&mut self) {
        for names in &mut self.names {
            names.power_lost();
        }
    }

    /// A client was killed, and another replaces it.
    pub fn interrupted(&mut self, client: usize, now: Nanos) {
        for names in &mut self.names {
            names.interrupted(client, now);
        }
        self.holds.retain(|hold| hold.client != client);
    }

    /// A client has locked blocks of a file.
    pub(super) fn hold(&mut self, client: usize, file: usize, blocks: Range<usize>) -> u64 {
        self.next_hold += 1;
        self.holds.push(Hold {
            id: self.next_hold,
            client,
            file,
            blocks,
        });
        self.next_hold
    }

    /// Locks that keep writers of these blocks out.
    pub(super) fn holders(&self, file: usize, blocks: &[usize]) -> Vec<u64> {
        let covers = |h: &&Hold| h.file == file && blocks.iter().any(|b| h.blocks.contains(b));
        self.holds.iter().filter(covers).map(|h| h.id).collect()
    }

    /// A bit has flipped in an object of a data server.
    pub fn flipped(&mut self, machine: usize, object: FileId, at: u64, mask: u8, block: u64) {
        let Some(file) = self.files.iter_mut().find(|f| f.id == object) else {
            return;
        };
        let here = |s: &penstock_layout::ServerId| s.0 as usize + 1 == machine;
        if let Some(index) = file.layout.servers.iter().position(here) {
            let server = ServerIndex(index as u32);
            let offset = file.layout.file_offset(server, ObjectOffset(at)).0;
            if let Some(block) = file.blocks.get_mut((offset / block) as usize) {
                block.flip(offset, mask);
            }
        }
    }

    /// The part of a file on a machine that lost its store is about to read as zeros. Returns the number of that
    /// change.
    pub fn begin_loss(&mut self, path: &str, machine: usize, now: Nanos) -> u64 {
        let id = self.next_write | CUT;
        self.next_write += 1;
        for block in self.blocks_on(path, machine) {
            block.begin(id, 0, now);
        }
        id
    }

    /// It does now.
    pub fn end_loss(&mut self, path: &str, machine: usize, id: u64, now: Nanos) {
        for block in self.blocks_on(path, machine) {
            block.end(id, now, true);
        }
    }

    fn blocks_on(&mut self, path: &str, machine: usize) -> impl Iterator<Item = &mut Block> {
        let files = self.files.iter_mut().filter(move |f| f.path == path);
        let blocks = files.flat_map(|f| &mut f.blocks);
        blocks.filter(move |block| block.machine == machine)
    }

    /// A server's machine or process has ended.
    pub fn server_ended(&mut self, machine: usize, now: Nanos, power: bool) {
        if power {
            self.losses[machine].push(now);
        }
        match (machine, power) {
            (0, true) => self.names_lost(),
            (0, false) => {
                for names in &mut self.names {
                    names.server_ended();
                }
            }
            _ => {}
        }
        for block in self.files.iter_mut().flat_map(|f| &mut f.blocks) {
            if block.machine == machine {
                block.server_ended(now);
            }
        }
    }
}
