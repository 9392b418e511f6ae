//! What clients do under range locks, and checks that nobody else interferes.
use super::{COUNTS, Fault, Worker};
use crate::workload::history::{Hold, Phase};
use crate::workload::misuse::{Misuse, ask};
use crate::world::{MS, lock};
use penstock_client::{Client, ErrorKind, File, Form, LockMode};
use penstock_datatype::{Pattern, Source, Target};
use penstock_rpc::Timeouts;
use penstock_wire::Role;
use penstock_wire::message::{DataReply, DataRequest, MetaReply, MetaRequest};
use std::time::Duration;

/// Longest time that a lock is held, without faults.
const HELD: u64 = 300 * MS;
/// Beyond everything that any client writes.
const FAR: u64 = 1 << 40;

impl Worker {
    /// Increments the number in a file, under a lock.
    pub(super) fn count(
        &mut self,
        client: &Client,
        files: &mut [Option<File>],
    ) -> Result<(), Fault> {
        let phase = self.begin().1;
        let done = self.count_under(client, files, phase);
        self.locked_in = None;
        done
    }

    fn count_under(
        &mut self,
        client: &Client,
        files: &mut [Option<File>],
        phase: Phase,
    ) -> Result<(), Fault> {
        let Some(file) = self.open(client, files, self.shape.files)? else {
            return Ok(());
        };
        let at = Pattern::contiguous(0, 8);
        let begun = self.begin();
        let result = file.lock(0..8, LockMode::Exclusive);
        let Some(held) = self.settle("lock", begun, result)? else {
            return Ok(());
        };
        self.locked_in = Some(phase);
        let least = lock(&self.history).counted;
        let mut bytes = [0u8; 8];
        let begun = self.begin();
        let result = file.read(&at, Form::Contiguous, &mut Target::from_slice(&mut bytes));
        if self.settle("read under a lock", begun, result)?.is_none() {
            return Ok(());
        }
        let value = u64::from_le_bytes(bytes);
        {
            let mut history = lock(&self.history);
            let lost = history.losses.iter().skip(1).any(|l| !l.is_empty());
            if (value < least && !lost) || value > history.tried {
                return Err(format!(
                    "locks: the count is {value}; {least} increments were acknowledged, {} tried",
                    history.tried
                ));
            }
            history.tried += 1;
        }
        let bytes = (value + 1).to_le_bytes();
        let begun = self.begin();
        let result = file.write(&at, Form::Contiguous, &mut Source::from_slice(&bytes));
        if self.settle("write under a lock", begun, result)?.is_some() {
            lock(&self.history).counted += 1;
        }
        drop(held);
        Ok(())
    }

    /// Holds a lock on some blocks and checks at its end that they are unchanged, or as this client wrote them.
    pub(super) fn hold(
        &mut self,
        client: &Client,
        files: &mut [Option<File>],
    ) -> Result<(), Fault> {
        let phase = self.begin().1;
        let done = self.hold_under(client, files, phase);
        self.locked_in = None;
        done
    }

    fn hold_under(
        &mut self,
        client: &Client,
        files: &mut [Option<File>],
        phase: Phase,
    ) -> Result<(), Fault> {
        let (f, blocks, form) = self.choose();
        let Some(file) = self.open(client, files, f)? else {
            return Ok(());
        };
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return Ok(());
        };
        let (size, blocks) = (self.shape.block, *first..*last + 1);
        let mode = if self.random.one_in(3) {
            LockMode::Shared
        } else {
            LockMode::Exclusive
        };
        let begun = self.begin();
        let result = file.lock(blocks.start as u64 * size..blocks.end as u64 * size, mode);
        let Some(held) = self.settle("lock some blocks", begun, result)? else {
            return Ok(());
        };
        self.locked_in = Some(phase);
        self.say(&format!("holds blocks {blocks:?} of file {f} ({mode:?})"));
        let id = lock(&self.history).hold(self.index, f, blocks.clone());
        let blocks: Vec<usize> = blocks.collect();
        let writes = mode == LockMode::Exclusive && self.random.one_in(2);
        let before = if writes {
            self.write_blocks(&file, f, &blocks, form)?
        } else {
            self.read_blocks(&file, f, &blocks, form)?
        };
        let pause = self.random.below(HELD);
        penstock_host::thread::sleep(Duration::from_nanos(pause));
        let after = self.read_blocks(&file, f, &blocks, form)?;
        lock(&self.history)
            .holds
            .retain(|hold: &Hold| hold.id != id);
        drop(held);
        self.say(&format!("held blocks {blocks:?} of file {f}"));
        let (Some(before), Some(after)) = (before, after) else {
            return Ok(());
        };
        match before.iter().zip(&after).position(|(b, a)| a != b) {
            None => Ok(()),
            Some(at) => Err(format!(
                "locks: byte {at} of blocks {blocks:?} of file {f} changed under a lock ({mode:?}, wrote: {writes})"
            )),
        }
    }

    /// Takes a lock without the client library and closes the connection: the lock must be free long before its lease
    /// ends.
    pub(super) fn abandon_lock(&mut self) -> Result<(), Fault> {
        match self.abandon() {
            Ok(()) => Ok(()),
            Err(Misuse::Away(e)) => Err(format!("a lock in calm: {e}")),
            Err(Misuse::Allowed(what)) => Err(format!("locks: {what}")),
        }
    }

    fn abandon(&mut self) -> Result<(), Misuse> {
        let caller = self.deployment.caller(Role::Client, 3, self.index as u32)?;
        let limit = Some(Duration::from_secs(10));
        let timeouts = Timeouts {
            read: limit,
            write: limit,
        };
        let mut meta = penstock_rpc::connect(&self.deployment.meta.address, &caller, timeouts)?;
        let open = MetaRequest::Open {
            path: COUNTS.to_owned(),
            read: true,
            write: true,
            create: None,
            exclusive: false,
        };
        let MetaReply::Opened { capability, .. } = ask(&mut meta, &open)? else {
            return Err(Misuse::Away("the counts cannot be opened".into()));
        };
        let servers = &capability.layout.servers;
        let server = servers[self.random.index(servers.len())];
        let Some(description) = self.deployment.server(server) else {
            return Ok(());
        };
        let start = FAR * (1 + self.index as u64);
        for turn in ["taken", "free again"] {
            let mut data = penstock_rpc::connect(&description.address, &caller, timeouts)?;
            let capability = capability.clone();
            let handle = match ask(&mut data, &DataRequest::Attach { capability })? {
                DataReply::Attached { handle, .. } => handle,
                other => return Err(Misuse::Away(format!("{other:?}"))),
            };
            let request = DataRequest::Lock {
                handle,
                start,
                end: start + 1,
                mode: LockMode::Exclusive,
                timeout_ms: 1500,
            };
            match ask(&mut data, &request)? {
                DataReply::Locked { .. } => {}
                DataReply::Error(e) if e.kind == ErrorKind::LockTimeout => {
                    return Err(Misuse::Allowed(format!(
                        "one whose connection is closed was not {turn} after 1.5 s"
                    )));
                }
                other => return Err(Misuse::Away(format!("{other:?}"))),
            }
        }
        Ok(())
    }
}
