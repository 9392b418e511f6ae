//! Clients' changes of names, each in a directory of its own and all in a shared one, with their checks.
use super::{Fault, Worker};
use crate::directory::{Entry, EntryKind, Listing, Moment, NameOp, Outcome};
use crate::effects::Effect;
use crate::world::lock;
use penstock_base::Random;
use penstock_client::{Client, CreateOptions, Error, ErrorKind, Form, OpenOptions, SetAttributes};
use penstock_datatype::{Pattern, Source};
use penstock_wire::message::{NodeKind, NodeReply, NodeRequest, User};

/// The directory that all clients share.
pub(crate) const SHARED: &str = "/shared";
/// Names in a directory.
const OWN_NAMES: usize = 5;
const SHARED_NAMES: usize = 3;
/// Permission bits.
const MODES: [u32; 3] = [0o600, 0o640, 0o755];
/// Most consecutive operations on the shared directory.
const ROW: usize = 4;

impl Worker {
    /// A directory by number: a client's own, or the shared one.
    fn directory(&self, number: usize) -> String {
        if number == self.shape.clients {
            SHARED.to_owned()
        } else {
            format!("/c{number}")
        }
    }

    /// Makes one change in this client's directory.
    pub(super) fn change_names(&mut self, client: &Client) -> Result<(), Fault> {
        let op = self.choose_name_op(OWN_NAMES);
        self.change_name(client, self.index, op)
    }

    /// Makes some changes in the shared directory, and lists it.
    pub(super) fn race_for_names(&mut self, client: &Client) -> Result<(), Fault> {
        for _ in 0..1 + self.random.index(ROW) {
            let op = self.choose_name_op(SHARED_NAMES);
            self.change_name(client, self.shape.clients, op)?;
        }
        if self.random.one_in(2) {
            self.look_at(client, self.shape.clients)
        } else {
            Ok(())
        }
    }

    fn choose_name_op(&mut self, names: usize) -> NameOp {
        let name = |r: &mut Random| char::from(b'a' + r.index(names) as u8);
        let (a, b) = (name(&mut self.random), name(&mut self.random));
        let mode = MODES[self.random.index(MODES.len())];
        match self.random.below(14) {
            0..4 => NameOp::Create(a, mode),
            4..6 => NameOp::Unlink(a),
            6 => NameOp::Mkdir(a, mode),
            7 => NameOp::Rmdir(a),
            8..10 => NameOp::Rename(a, b),
            10 => NameOp::Symlink(a),
            // Lookup by name and link by number are not atomic where others change names.
            11 if names == OWN_NAMES => NameOp::Link(a, b),
            _ => NameOp::Chmod(a, mode),
        }
    }

    fn change_name(&mut self, client: &Client, number: usize, op: NameOp) -> Result<(), Fault> {
        let quiet = lock(&self.history).names[number].is_quiet();
        if matches!(op, NameOp::Link(..)) && !quiet {
            return Ok(());
        }
        let begun = self.begin();
        let losses = self.losses(0).len();
        let token = lock(&self.history).names[number].begin(self.index, op.clone());
        let result = self.carry_out(client, &self.directory(number), &op);
        let refused = |e: &Error| {
            matches!(
                e.kind(),
                ErrorKind::Exists
                    | ErrorKind::NotFound
                    | ErrorKind::NotEmpty
                    | ErrorKind::IsDirectory
                    | ErrorKind::NotDirectory
                    | ErrorKind::InvalidArgument
                    | ErrorKind::NotOwner
            ) && matches!(e, Error::Refused { .. })
        };
        let lost_power = self.losses(0).len() > losses;
        let (outcome, result) = match result {
            // The answer may be from before the power loss, about a lost state.
            Ok(()) if lost_power => (Outcome::Unknown, Ok(())),
            // Whatever became of earlier copies, it was carried out once, and this is its answer.
            Ok(()) => (Outcome::Done, Ok(())),
            // A repeated open finds that its file was removed after the first attempt had made it.
            Err(e)
                if matches!(op, NameOp::Create(..))
                    && e.kind() == ErrorKind::NotFound
                    && refused(&e)
                    && !lost_power =>
            {
                (Outcome::Done, Ok(()))
            }
            Err(e) if refused(&e) && !lost_power => (Outcome::Refused, Ok(())),
            Err(e) if refused(&e) => (Outcome::Unknown, Ok(())),
            Err(e) => (Outcome::Unknown, Err(e)),
        };
        let directory = self.directory(number);
        self.say(&format!("{op:?} in {directory}: {outcome:?}"));
        let now = self.now();
        {
            let mut history = lock(&self.history);
            if outcome != Outcome::Unknown && history.names[number].is_shared(self.index) {
                history.effects.count(Effect::NameRace);
            }
            let ended = history.names[number].end(token, outcome, now);
            ended.map_err(|e| format!("names of {directory}: {e}"))?;
        }
        self.settle(&format!("{op:?} in {directory}"), begun, result)?;
        Ok(())
    }

    fn carry_out(&self, client: &Client, directory: &str, op: &NameOp) -> Result<(), Error> {
        let path = |name: char| format!("{directory}/{name}");
        match *op {
            NameOp::Create(name, mode) => client.open(&path(name), &creating(mode)).map(|_| ()),
            NameOp::Unlink(name) => client.unlink(&path(name)),
            NameOp::Mkdir(name, mode) => client.mkdir(&path(name), mode),
            NameOp::Rmdir(name) => client.rmdir(&path(name)),
            NameOp::Rename(from, to) => client.rename(&path(from), &path(to)),
            NameOp::Symlink(name) => client.symlink(&path(name), "nowhere/at/all"),
            NameOp::Chmod(name, mode) => client.set_attributes(
                &path(name),
                &SetAttributes {
                    mode: Some(mode),
                    ..SetAttributes::default()
                },
            ),
            NameOp::Link(from, to) => {
                let user = User {
                    uid: rustix::process::geteuid().as_raw(),
                    gid: rustix::process::getegid().as_raw(),
                    groups: Vec::new(),
                };
                let parent = client.stat(directory)?.attributes.id;
                let name = from.to_string();
                let found = client.node(&user, NodeRequest::Lookup { parent, name })?;
                let (NodeReply::Node(attributes) | NodeReply::Look { attributes, .. }) = found
                else {
                    return Err(Error::Invalid(format!("a look-up gave {found:?}")));
                };
                let (id, name) = (attributes.id, to.to_string());
                let request = NodeRequest::Link { id, parent, name };
                client.node(&user, request).map(|_| ())
            }
        }
    }

    /// Makes a file in this client's directory, writes and syncs it: its name is durable then.
    pub(super) fn keep_some(&mut self, client: &Client) -> Result<(), Fault> {
        let name = char::from(b'a' + self.random.index(OWN_NAMES) as u8);
        let mode = MODES[self.random.index(MODES.len())];
        let (op, path) = (
            NameOp::Create(name, mode),
            format!("/c{}/{name}", self.index),
        );
        let begun = self.begin();
        let losses = self.losses(0).len();
        let token = lock(&self.history).names[self.index].begin(self.index, op);
        let result = client.open(&path, &creating(mode));
        let lost_power = self.losses(0).len() > losses;
        let outcome = match &result {
            Ok(_) if !lost_power => Outcome::Done,
            Err(e) if e.kind() == ErrorKind::Exists && !lost_power => Outcome::Refused,
            _ => Outcome::Unknown,
        };
        let now = self.now();
        let ended = lock(&self.history).names[self.index].end(token, outcome, now);
        ended.map_err(|e| format!("names of {path}: {e}"))?;
        let result = match result {
            Err(e) if e.kind() == ErrorKind::Exists => return Ok(()),
            result => result,
        };
        let Some(file) = self.settle(&format!("create {path}"), begun, result)? else {
            return Ok(());
        };
        let begun = self.begin();
        let before = self.moments();
        let at = Pattern::contiguous(0, 8);
        let result = file
            .write(&at, Form::Contiguous, &mut Source::from_slice(&[7; 8]))
            .and_then(|_| file.sync());
        let result = match result {
            // A power loss took the name before the sync, or before the write needed a new capability.
            Err(e)
                if self.losses(0).len() > losses
                    && (e.kind() == ErrorKind::NotFound || matches!(e, Error::LostName { .. })) =>
            {
                return Ok(());
            }
            // A power loss took the bytes before the sync.
            Err(Error::LostWrites { lost, .. }) => return self.lost_by_a_fault(&path, &lost),
            result => result,
        };
        let kept = self.settle(&format!("write and sync {path}"), begun, result)?;
        if kept.is_some() && outcome == Outcome::Done && self.losses(0).len() == losses {
            self.say(&format!("{path} is kept"));
            lock(&self.history).names[self.index].kept(name, before[self.index]);
        }
        if kept.is_some() {
            self.names_synced(before, losses);
        }
        Ok(())
    }

    /// Lists this client's directory and the shared one.
    pub(super) fn look_at_names(&mut self, client: &Client) -> Result<(), Fault> {
        self.look_at(client, self.index)?;
        self.look_at(client, self.shape.clients)
    }

    fn look_at(&mut self, client: &Client, number: usize) -> Result<(), Fault> {
        let directory = self.directory(number);
        let begun = self.begin();
        let losses = self.losses(0).len();
        let since = lock(&self.history).names[number].moment();
        let result = client.readdir(&directory);
        let Some(entries) = self.settle("readdir", begun, result)? else {
            return Ok(());
        };
        let mut found = Vec::new();
        for (name, attributes) in &entries {
            let kind = match attributes.kind {
                NodeKind::File => EntryKind::File,
                NodeKind::Directory => EntryKind::Directory,
                NodeKind::Symlink => EntryKind::Symlink,
            };
            let same = entries.iter().filter(|(_, a)| a.id == attributes.id);
            if kind == EntryKind::File && same.count() != attributes.nlink as usize {
                return Err(format!("names of {directory}: wrong links in {entries:?}"));
            }
            let mode = match kind {
                EntryKind::Symlink => 0,
                _ => attributes.mode & 0o777,
            };
            let node = attributes.id.0;
            let name = name.chars().next().unwrap_or(' ');
            found.push((name, Entry { kind, mode, node }));
        }
        let found = Listing::new(found);
        let mut history = lock(&self.history);
        if history.losses[0].len() > losses {
            // The listing may be from before or after the loss.
            return Ok(());
        }
        let verdict = history.names[number].saw(self.index, &found, since);
        verdict.map_err(|e| format!("names of {directory}: {e}"))
    }

    pub(super) fn sync_names(&mut self, client: &Client) -> Result<(), Fault> {
        let begun = self.begin();
        let losses = self.losses(0).len();
        let before = self.moments();
        let result = client.sync_metadata();
        if self.settle("sync metadata", begun, result)?.is_some() {
            self.names_synced(before, losses);
        }
        Ok(())
    }

    /// The moments of all directories, to be taken before a sync.
    pub(super) fn moments(&self) -> Vec<Moment> {
        let history = lock(&self.history);
        history.names.iter().map(|n| n.moment()).collect()
    }

    /// A sync of the metadata or of any file has succeeded: all earlier changes of names are durable. Not so if the
    /// metadata server has lost power since the given number of losses.
    pub(super) fn names_synced(&self, before: Vec<Moment>, losses: usize) {
        let mut history = lock(&self.history);
        if history.losses[0].len() == losses {
            for (names, since) in history.names.iter_mut().zip(before) {
                names.synced(since);
            }
        }
    }
}

/// Options for a file that must be new.
fn creating(mode: u32) -> OpenOptions {
    OpenOptions {
        read: true,
        write: true,
        create: Some(CreateOptions {
            mode,
            ..CreateOptions::default()
        }),
        exclusive: true,
    }
}
