//! The clients of a run: what they do, and how they check the answers.
pub(crate) mod bytes;
mod history;
mod locks;
mod misuse;
mod names;
pub(crate) mod program;
mod users;

pub(crate) use history::{History, Phase, Shared};

use crate::cluster::RunSize;
use crate::effects::Effect;
use crate::model::{Block, CUT, fill, origin};
use crate::pointer::Pointer;
use crate::world::{Nanos, SECOND, Simulation, lock};
use penstock_base::Random;
use penstock_client::{
    Client, ClientOptions, Counter, CreateOptions, Error, ErrorKind, File, Form, Identity, Loss,
    OpenOptions,
};
use penstock_datatype::{Pattern, Source, Target};
use penstock_layout::FileOffset;
use penstock_rpc::deployment::Deployment;
use penstock_wire::Role;
use penstock_wire::message::ProgramInfo;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest duration of an operation without faults.
const CALM: Nanos = 10 * SECOND;
/// Clients increment this file's number under a lock.
const COUNTS: &str = "/counts";

/// Whether a fault may have caused the error.
fn excusable(e: &Error) -> bool {
    match e {
        Error::Unreachable { .. } | Error::Timeout { .. } => true,
        Error::Refused { .. } | Error::Local { .. } => matches!(
            e.kind(),
            ErrorKind::NoSpace
                | ErrorKind::Io
                | ErrorKind::Busy
                | ErrorKind::ShuttingDown
                | ErrorKind::LockTimeout
                | ErrorKind::LockLost
        ),
        _ => false,
    }
}

/// One simulated client process.
pub(crate) struct Worker {
    pub world: &'static Simulation,
    pub deployment: Deployment,
    pub history: Arc<Mutex<History>>,
    pub shape: RunSize,
    /// Its number.
    pub index: usize,
    /// The phase in which the lock that it holds was requested: effects of later phases may still show.
    pub locked_in: Option<Phase>,
    /// Number of this process among all clients of the run.
    pub life: u64,
    pub random: Random,
}

/// A violation of the checks.
type Fault = String;

impl Worker {
    fn now(&self) -> Nanos {
        self.world.state().now
    }

    fn phase(&self) -> Phase {
        lock(&self.history).phase
    }

    fn losses(&self, machine: usize) -> Vec<Nanos> {
        lock(&self.history).losses[machine].clone()
    }

    /// When unsynced data of a data server may have been lost: its machine lost power, or its next server was told of a
    /// failed sync. Only the writers learn of either.
    fn ends(&self, losses: &[Vec<Nanos>], machine: usize) -> Vec<Nanos> {
        [
            &losses[machine][..],
            &self.world.state().disks[machine].told,
        ]
        .concat()
    }

    fn say(&self, text: &str) {
        let mut state = self.world.state();
        let now = state.now;
        state
            .log
            .say(now, &format!("client {}: {text}", self.index));
    }

    fn connect(&self, role: Role) -> Result<Client, Error> {
        let who = Identity {
            program: 1,
            rank: self.index as u32,
        };
        Client::connect_with(&self.deployment, who, role, self.options())
    }

    /// Connection options of its processes.
    fn options(&self) -> ClientOptions {
        ClientOptions {
            retry_limit: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(15),
            connections: 2,
            shortcuts: true,
            mappings: false,
            program: Some(ProgramInfo {
                host: format!("client {}", self.index),
                command: "workload".into(),
                ..ProgramInfo::default()
            }),
        }
    }

    /// Ends an operation: an error that faults excuse is a violation in the phase without faults.
    fn settle<T>(
        &self,
        what: &str,
        begun: (Nanos, Phase),
        result: Result<T, Error>,
    ) -> Result<Option<T>, Fault> {
        let now = self.now();
        let (began, phase) = begun;
        let mut history = lock(&self.history);
        let took = now - began;
        let calm = phase == Phase::Calm;
        if calm && took > CALM {
            return Err(format!(
                "{what} took {:.1} s although no fault has happened since it began",
                took as f64 / SECOND as f64
            ));
        }
        match result {
            Ok(value) => {
                history.good += 1;
                Ok(Some(value))
            }
            Err(e)
                if !calm && (excusable(&e) || history.hurt && e.kind() == ErrorKind::Damaged) =>
            {
                history.failed += 1;
                drop(history);
                self.say(&format!("{what} failed: {e}"));
                Ok(None)
            }
            Err(e) => Err(format!("{what}: {e}")),
        }
    }

    fn begin(&self) -> (Nanos, Phase) {
        (self.now(), self.locked_in.unwrap_or_else(|| self.phase()))
    }

    /// Makes the files that all clients share. No faults happen meanwhile.
    pub fn prepare(mut self) -> Result<(), Fault> {
        let text = |e: Error| format!("while preparing: {e}");
        let client = self.connect(Role::Client).map_err(text)?;
        for f in 0..self.shape.files {
            let path = format!("/data-{f}");
            let unit = self.shape.block * self.random.from_to(1, 4);
            let how = OpenOptions {
                create: Some(CreateOptions {
                    mode: 0o644,
                    stripe_unit: Some(unit),
                    ..CreateOptions::default()
                }),
                ..OpenOptions::read_write_create()
            };
            let file = client.open(&path, &how).map_err(text)?;
            file.sync().map_err(text)?;
            let layout = file.layout();
            let blocks = (0..self.shape.blocks)
                .map(|b| {
                    let (index, _) = layout.locate(FileOffset(b * self.shape.block));
                    Block::new(layout.servers[index.0 as usize].0 as usize + 1)
                })
                .collect();
            let (id, layout) = (file.id(), layout.clone());
            lock(&self.history).files.push(Shared {
                path,
                id,
                layout,
                blocks,
            });
        }
        let file = client
            .open(COUNTS, &OpenOptions::read_write_create())
            .map_err(text)?;
        let zero = [0u8; 8];
        file.write(
            &Pattern::contiguous(0, 8),
            Form::Contiguous,
            &mut Source::from_slice(&zero),
        )
        .map_err(text)?;
        file.sync().map_err(text)?;
        for c in 0..self.shape.clients {
            client.mkdir(&format!("/c{c}"), 0o755).map_err(text)?;
        }
        client.mkdir(names::SHARED, 0o777).map_err(text)?;
        if let Some(limit) = self.shape.limit {
            self.prepare_limits(limit)?;
        }
        if self.shape.users {
            self.prepare_users()?;
        }
        client.sync_metadata().map_err(text)
    }

    /// Works until the phase without faults; then checks that everything is right and works.
    pub fn run(mut self) -> Result<(), Fault> {
        lock(&self.history).interrupted(self.index, self.now());
        let client = loop {
            let begun = self.begin();
            let result = self.connect(Role::Client);
            if let Some(client) = self.settle("connect", begun, result)? {
                break client;
            }
        };
        let mut files: Vec<Option<File>> = (0..=self.shape.files).map(|_| None).collect();
        let mut lent = misuse::Lent::default();
        let mut made: Option<Counter> = None;
        let mut limited = bytes::Limited::default();
        let mut holder = users::Holder::default();
        while self.phase() < Phase::Calm {
            if self.shape.limit.is_some() && self.random.one_in(3) {
                self.spend(&mut limited)?;
            } else if self.shape.users && self.random.one_in(6) {
                self.act_as_user(&mut holder)?;
            } else {
                self.step(&client, &mut files, &mut lent, &mut made)?;
            }
            let mut pause = self.random.below(self.shape.pause);
            if self.phase() == Phase::Settling {
                pause *= 20;
            }
            penstock_host::thread::sleep(Duration::from_nanos(pause));
        }
        // One operation of each kind, and a check of everything.
        self.look_at_names(&client)?;
        for f in 0..self.shape.files {
            self.read_all(&client, &mut files, f)?;
        }
        for _ in 0..3 {
            self.write_some(&client, &mut files)?;
            self.change_names(&client)?;
            self.race_for_names(&client)?;
            self.count(&client, &mut files)?;
            self.hold(&client, &mut files)?;
        }
        self.abandon_lock()?;
        self.note_queues(&client);
        self.cut_some(&client, &mut files)?;
        self.point_alone(&client)?;
        for f in 0..self.shape.files {
            self.sync(&client, &mut files, f)?;
            self.read_all(&client, &mut files, f)?;
        }
        self.sync_names(&client)?;
        self.look_at_names(&client)?;
        if self.shape.users {
            self.users_in_calm(holder)?;
        }
        self.capabilities(&mut lent)
    }

    /// Checks everything after a sync and a power loss of all machines.
    pub fn look(mut self) -> Result<(), Fault> {
        let begun = self.begin();
        let result = self.connect(Role::Client);
        let Some(client) = self.settle("connect", begun, result)? else {
            return Ok(());
        };
        let mut files: Vec<Option<File>> = (0..=self.shape.files).map(|_| None).collect();
        for f in 0..self.shape.files {
            self.read_all(&client, &mut files, f)?;
        }
        self.look_at_names(&client)
    }

    fn step(
        &mut self,
        client: &Client,
        files: &mut [Option<File>],
        lent: &mut misuse::Lent,
        made: &mut Option<Counter>,
    ) -> Result<(), Fault> {
        match self.random.below(132) {
            100..103 => self.cut_some(client, files),
            103..108 => self.point(client, made),
            108..116 => self.race_for_names(client),
            116..122 => self.hold(client, files),
            122..125 => self.keep_some(client),
            125..132 => {
                // Other clients do the same: their syncs overlap.
                let f = self.write_some(client, files)?;
                self.sync(client, files, f)
            }
            0..34 => self.write_some(client, files).map(|_| ()),
            34..58 => self.read_some(client, files),
            58..66 => {
                let f = self.random.index(self.shape.files);
                self.sync(client, files, f)
            }
            66..82 => self.change_names(client),
            82..87 => self.look_at_names(client),
            87..89 => self.sync_names(client),
            89..94 => self.count(client, files),
            94..97 => self.capabilities(lent),
            _ => {
                let f = self.random.index(files.len());
                files[f] = None;
                Ok(())
            }
        }
    }

    /// Counts requests that waited in the servers' schedulers.
    fn note_queues(&self, client: &Client) {
        for (_, status) in client.data_status() {
            let waited = status.map_or(0, |s| s.sched.peak_queued);
            lock(&self.history).effects.add_to(Effect::Queued, waited);
        }
    }

    fn open(
        &self,
        client: &Client,
        files: &mut [Option<File>],
        f: usize,
    ) -> Result<Option<File>, Fault> {
        if let Some(file) = &files[f] {
            return Ok(Some(file.clone()));
        }
        let path = match lock(&self.history).files.get(f) {
            Some(shared) => shared.path.clone(),
            None => COUNTS.to_owned(),
        };
        let how = OpenOptions {
            read: true,
            write: true,
            create: None,
            exclusive: false,
        };
        let begun = self.begin();
        let file = self.settle(&format!("open {path}"), begun, client.open(&path, &how))?;
        files[f] = file.clone();
        Ok(file)
    }

    /// Chooses blocks of a file: one run or several.
    fn choose(&mut self) -> (usize, Vec<usize>, Form) {
        let f = self.random.index(self.shape.files);
        let n = self.shape.blocks as usize;
        let first = self.random.index(n);
        let count = 1 + self.random.index(6);
        let stride = 1 + self.random.index(3);
        let blocks = (0..count).map(|i| first + i * stride);
        let blocks = blocks.take_while(|b| *b < n).collect();
        let form = [
            Form::Contiguous,
            Form::List,
            Form::Structured,
            Form::Shortcut,
        ];
        (f, blocks, form[self.random.index(form.len())])
    }

    fn pattern(&self, blocks: &[usize]) -> Result<Pattern, Fault> {
        let size = self.shape.block;
        let regions: Vec<(i64, u64)> = blocks
            .iter()
            .map(|b| ((*b as u64 * size) as i64, size))
            .collect();
        Pattern::list(&regions).map_err(|e| e.to_string())
    }

    /// Writes some blocks of a file and returns which file.
    fn write_some(&mut self, client: &Client, files: &mut [Option<File>]) -> Result<usize, Fault> {
        let (f, blocks, form) = self.choose();
        if let Some(file) = self.open(client, files, f)? {
            let holders = lock(&self.history).holders(f, &blocks);
            let written = self.write_blocks(&file, f, &blocks, form)?;
            let mut history = lock(&self.history);
            let gone = |id: &u64| !history.holds.iter().any(|h| h.id == *id);
            if written.is_some() && holders.iter().any(gone) {
                history.effects.count(Effect::LockedWrite);
            }
        }
        Ok(f)
    }

    /// Writes blocks of a file; returns the bytes if that succeeded.
    fn write_blocks(
        &mut self,
        file: &File,
        f: usize,
        blocks: &[usize],
        form: Form,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let size = self.shape.block as usize;
        let mut bytes = vec![0; size * blocks.len()];
        let begun = self.begin();
        let id = {
            let mut history = lock(&self.history);
            let id = history.next_write;
            history.next_write += 1;
            for (b, part) in blocks.iter().zip(bytes.chunks_mut(size)) {
                fill(id, (b * size) as u64, part);
                history.files[f].blocks[*b].begin(id, self.life, begun.0);
            }
            id
        };
        let access = self.pattern(blocks)?;
        self.say(&format!(
            "write {id} of file {f}, blocks {blocks:?} ({form:?})"
        ));
        let result = file.write(&access, form, &mut Source::from_slice(&bytes));
        self.say(&format!("write {id} has ended"));
        let now = self.now();
        {
            let mut history = lock(&self.history);
            for b in blocks {
                history.files[f].blocks[*b].end(id, now, result.is_ok());
            }
        }
        if let Ok(n) = &result
            && *n != bytes.len() as u64
        {
            return Err(format!("write of {} bytes wrote {n}", bytes.len()));
        }
        let written = self.settle(&format!("write {id} of file {f}"), begun, result)?;
        Ok(written.map(|_| bytes))
    }

    /// Truncates a file near its end, or extends it if it is shorter.
    fn cut_some(&mut self, client: &Client, files: &mut [Option<File>]) -> Result<(), Fault> {
        let f = self.random.index(self.shape.files);
        let n = self.shape.blocks;
        let from = n - self.random.below(n.min(6));
        let Some(file) = self.open(client, files, f)? else {
            return Ok(());
        };
        let begun = self.begin();
        let id = {
            let mut history = lock(&self.history);
            let id = history.next_write | CUT;
            history.next_write += 1;
            for block in &mut history.files[f].blocks[from as usize..] {
                block.begin(id, self.life, begun.0);
            }
            id
        };
        self.say(&format!("cut {} of file {f} to {from} blocks", id ^ CUT));
        let result = file.set_len(from * self.shape.block);
        self.say(&format!("cut {} has ended", id ^ CUT));
        let now = self.now();
        for block in &mut lock(&self.history).files[f].blocks[from as usize..] {
            block.end(id, now, result.is_ok());
        }
        let what = format!("cut {} of file {f} to {from} blocks", id ^ CUT);
        self.settle(&what, begun, result)?;
        Ok(())
    }

    fn read_blocks(
        &mut self,
        file: &File,
        f: usize,
        blocks: &[usize],
        form: Form,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let size = self.shape.block as usize;
        let mut bytes = vec![0; size * blocks.len()];
        let begun = self.begin();
        let access = self.pattern(blocks)?;
        self.say(&format!("reads file {f}, blocks {blocks:?} ({form:?})"));
        let result = file.read(&access, form, &mut Target::from_slice(&mut bytes));
        self.say("has read");
        let now = self.now();
        let Some(_) = self.settle(&format!("read of file {f}"), begun, result)? else {
            return Ok(None);
        };
        let mut history = lock(&self.history);
        let history = &mut *history;
        for (b, found) in blocks.iter().zip(bytes.chunks(size)) {
            let block = &history.files[f].blocks[*b];
            let losses = self.ends(&history.losses, block.machine);
            block
                .check((b * size) as u64, found, begun.0, now, &losses)
                .map_err(|e| {
                    let from = origin(found, history.next_write, self.shape.blocks * size as u64);
                    format!("visibility: file {f} block {b} of {blocks:?} ({form:?}): {e}; from {from:?}")
                })?;
        }
        Ok(Some(bytes))
    }

    fn read_some(&mut self, client: &Client, files: &mut [Option<File>]) -> Result<(), Fault> {
        let (f, blocks, form) = self.choose();
        match self.open(client, files, f)? {
            Some(file) => self.read_blocks(&file, f, &blocks, form).map(|_| ()),
            None => Ok(()),
        }
    }

    fn read_all(
        &mut self,
        client: &Client,
        files: &mut [Option<File>],
        f: usize,
    ) -> Result<(), Fault> {
        let Some(file) = self.open(client, files, f)? else {
            return Ok(());
        };
        let all: Vec<usize> = (0..self.shape.blocks as usize).collect();
        for blocks in all.chunks(16) {
            self.read_blocks(&file, f, blocks, Form::Structured)?;
        }
        Ok(())
    }

    fn sync(&mut self, client: &Client, files: &mut [Option<File>], f: usize) -> Result<(), Fault> {
        let Some(file) = self.open(client, files, f)? else {
            return Ok(());
        };
        let (before, losses) = (self.moments(), self.losses(0).len());
        let mut begun = self.begin();
        let mut result = file.sync();
        if let Err(Error::LostWrites { lost, .. }) = &result {
            let e = result.as_ref().err();
            self.say(&format!("sync of file {f} failed: {e:?}"));
            self.told_of_loss(f, lost)?;
            // The loss is reported once. A second sync covers the rest.
            begun = self.begin();
            result = file.sync();
        }
        let now = self.now();
        let settled = self.settle(&format!("sync of file {f}"), begun, result)?;
        if settled.is_none() {
            return Ok(());
        }
        self.names_synced(before, losses);
        let mut history = lock(&self.history);
        let history = &mut *history;
        for block in &mut history.files[f].blocks {
            block.synced(self.life, begun.0, now);
            // No operation lasts longer than the sum of its time-outs.
            let horizon = now.saturating_sub(120 * SECOND);
            block.forget(horizon, &self.ends(&history.losses, block.machine));
        }
        Ok(())
    }

    /// A sync reports that writes of this client are lost.
    fn told_of_loss(&self, f: usize, lost: &[Loss]) -> Result<(), Fault> {
        self.lost_by_a_fault(&format!("file {f}"), lost)?;
        let now = self.now();
        let mut history = lock(&self.history);
        for loss in lost {
            let machine = machine_of(loss);
            for block in &mut history.files[f].blocks {
                if block.machine == machine {
                    block.told_lost(self.life, now);
                }
            }
        }
        Ok(())
    }

    /// Checks that only a power loss or a failed sync took acknowledged writes.
    fn lost_by_a_fault(&self, file: &str, lost: &[Loss]) -> Result<(), Fault> {
        let mut history = lock(&self.history);
        for loss in lost {
            let machine = machine_of(loss);
            if history.losses[machine].is_empty() && self.world.state().disks[machine].failed == 0 {
                return Err(format!(
                    "durability: a sync of {file} reports a loss that machine {machine} never had: {loss}"
                ));
            }
        }
        history.failed += 1;
        Ok(())
    }

    // ---- shared counters ----

    /// Adds to the shared counter, or makes one if there is none.
    fn point(&mut self, client: &Client, made: &mut Option<Counter>) -> Result<(), Fault> {
        let shared = lock(&self.history).pointer.as_mut().map(Pointer::begin);
        let Some((token, least)) = shared else {
            let token = u128::from(self.random.bits()) << 64 | u128::from(self.random.bits());
            let counter = client.counter(token);
            let begun = self.begin();
            let broken = self.world.state().net.broken;
            let result = counter.create(0);
            if self.settle("create a counter", begun, result)?.is_some() {
                lock(&self.history).pointer = Some(Pointer::new(token, broken));
                // Nobody uses the previous counter any more.
                *made = Some(counter);
            }
            return Ok(());
        };
        let begun = self.begin();
        let result = client.counter(token).add(1);
        let broken = self.world.state().net.broken;
        let gone = matches!(&result, Err(e) if e.kind() == ErrorKind::NotFound);
        {
            let mut history = lock(&self.history);
            let pointer = &mut history.pointer;
            if let Some(current) = pointer.as_mut().filter(|p| p.token == token) {
                match &result {
                    Ok(before) => current.added(*before, least)?,
                    // A counter ends with the connection that made it.
                    Err(_) if gone && current.broken != broken => *pointer = None,
                    Err(_) => {}
                }
            } else if gone {
                return Ok(());
            }
            if gone && pointer.is_none() {
                return Ok(());
            }
        }
        self.settle("add to a counter", begun, result)?;
        Ok(())
    }

    /// Tests a counter of its own, which no other client uses.
    fn point_alone(&mut self, client: &Client) -> Result<(), Fault> {
        let token = u128::from(self.random.bits()) << 64 | u128::from(self.random.bits());
        let counter = client.counter(token);
        let begun = self.begin();
        let all = || {
            counter.create(7)?;
            let found = (counter.add(3)?, counter.add(1)?, counter.get()?);
            counter.free()?;
            Ok(found)
        };
        match self.settle("use a counter", begun, all())? {
            Some((7, 10, 11)) | None => Ok(()),
            Some(found) => Err(format!("counters: 7 + 3 + 1 gave {found:?}")),
        }
    }
}

/// The machine of the data server that has lost writes; the metadata server is on machine 0.
fn machine_of(loss: &Loss) -> usize {
    loss.peer.data.map_or(0, |id| id.0 as usize + 1)
}
