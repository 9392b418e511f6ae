//! What a client does with names in a directory of its own, and what the directory may hold after that.
use super::{Fault, Worker};
use crate::model::{Kind, Listing, NameOp, Outcome};
use crate::random::Random;
use crate::world::lock;
use penstock_client::{Client, Error, ErrorKind, OpenOptions};

impl Worker {
    pub(super) fn change_names(&mut self, client: &Client) -> Result<(), Fault> {
        let name = |r: &mut Random| char::from(b'a' + r.index(5) as u8).to_string();
        let (a, b) = (name(&mut self.random), name(&mut self.random));
        let op = match self.random.below(10) {
            0..4 => NameOp::Create(a),
            4..6 => NameOp::Unlink(a),
            6 => NameOp::Mkdir(a),
            7 => NameOp::Rmdir(a),
            _ => NameOp::Rename(a, b),
        };
        let path = |name: &str| format!("/c{}/{name}", self.index);
        let begun = self.begin();
        let losses = self.losses(0).len();
        lock(&self.history).names[self.index].begin(op.clone());
        let result = match &op {
            NameOp::Create(name) => {
                let how = OpenOptions {
                    exclusive: true,
                    ..OpenOptions::read_write_create()
                };
                client.open(&path(name), &how).map(|_| ())
            }
            NameOp::Unlink(name) => client.unlink(&path(name)),
            NameOp::Mkdir(name) => client.mkdir(&path(name), 0o755),
            NameOp::Rmdir(name) => client.rmdir(&path(name)),
            NameOp::Rename(from, to) => client.rename(&path(from), &path(to)),
        };
        let refused = |e: &Error| {
            matches!(
                e.kind(),
                ErrorKind::Exists
                    | ErrorKind::NotFound
                    | ErrorKind::NotEmpty
                    | ErrorKind::IsDirectory
                    | ErrorKind::NotDirectory
                    | ErrorKind::InvalidArgument
            ) && matches!(e, Error::Refused { .. })
        };
        let lost_power = self.losses(0).len() > losses;
        let (outcome, result) = match result {
            // The answer may be from before the loss: about a state that is no more.
            Ok(()) if lost_power => (Outcome::Unknown, Ok(())),
            // Whatever became of earlier copies: it was carried out once, and this is its answer.
            Ok(()) => (Outcome::Done, Ok(())),
            Err(e) if refused(&e) && !lost_power => (Outcome::Refused, Ok(())),
            Err(e) if refused(&e) => (Outcome::Unknown, Ok(())),
            Err(e) => (Outcome::Unknown, Err(e)),
        };
        self.say(&format!("{op:?}: {outcome:?}"));
        let ended = lock(&self.history).names[self.index].end(outcome);
        ended.map_err(|e| format!("names: {e}"))?;
        self.settle(&format!("{op:?}"), begun, result)?;
        Ok(())
    }

    pub(super) fn look_at_names(&mut self, client: &Client) -> Result<(), Fault> {
        let begun = self.begin();
        let losses = self.losses(0).len();
        let result = client.readdir(&format!("/c{}", self.index));
        let Some(entries) = self.settle("readdir", begun, result)? else {
            return Ok(());
        };
        let mut found = Listing::new();
        for (name, attributes) in entries {
            let kind = match attributes.layout {
                Some(_) => Kind::File,
                None => Kind::Directory,
            };
            found.insert(name, kind);
        }
        let mut history = lock(&self.history);
        if history.losses[0].len() > losses {
            // It may be from before or after the loss.
            return Ok(());
        }
        let verdict = history.names[self.index].saw(&found);
        verdict.map_err(|e| format!("names of client {}: {e}", self.index))
    }

    pub(super) fn sync_names(&mut self, client: &Client) -> Result<(), Fault> {
        let begun = self.begin();
        let losses = self.losses(0).len();
        let result = client.sync_metadata();
        if self.settle("sync metadata", begun, result)?.is_some() {
            let mut history = lock(&self.history);
            if history.losses[0].len() == losses {
                history.names[self.index].synced();
            }
        }
        Ok(())
    }
}
