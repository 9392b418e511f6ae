//! Users with credentials of their own, without the client library. They check what users may open, and that a
//! credential ends when it expires or an administrator revokes it.
use super::bytes::{made, user};
use super::misuse::{Misuse, ask, attach};
use super::{Fault, Phase, Worker};
use crate::effects::Effect;
use crate::world::{Nanos, SECOND, lock};
use penstock_client::{Client, CreateOptions, Error, ErrorKind};
use penstock_layout::ServerId;
use penstock_rpc::deployment::Address;
use penstock_rpc::{Connection, Timeouts, Wallet};
use penstock_wire::credential::{Credential, Statement};
use penstock_wire::message::{Change, DataReply, DataRequest, MetaReply, MetaRequest, NodeRequest};
use penstock_wire::revocation::Revoked;
use penstock_wire::{KeyPair, Role};
use std::sync::Arc;
use std::time::Duration;

/// The directory of their files.
const DIRECTORY: &str = "/users";
/// The user of client 0.
const FIRST: u32 = 70_000;
/// Life of a credential, with and without faults.
const LIFE_MS: u64 = 120_000;
const SHORT_MS: (u64, u64) = (2_000, 15_000);
/// A credential's validity begins this long before it is issued.
const BEFORE_MS: u64 = 60_000;
/// Time after which servers must refuse a revoked credential.
const TAKEN_BACK: Nanos = 10 * SECOND;

/// A client's credential, when it acts as a user.
#[derive(Default)]
pub(super) struct Holder(Option<UserSession>);

struct UserSession {
    credential: Credential,
    /// Connection to the metadata server, opened while the credential was valid.
    meta: Connection,
    taken_back: bool,
}

impl Worker {
    /// Makes two files for each user: a private one, and one that others may read. No faults happen meanwhile.
    pub(super) fn prepare_users(&self) -> Result<(), Fault> {
        let text = |e: Error| format!("while making files of users: {e}");
        let client = self.connect(Role::Admin).map_err(text)?;
        client.mkdir(DIRECTORY, 0o755).map_err(text)?;
        let directory = client.stat(DIRECTORY).map_err(text)?.attributes.id;
        for index in 0..self.shape.clients {
            for (kind, mode) in [("private", 0o600), ("public", 0o644)] {
                let root = user(0);
                let name = format!("{kind}-{index}");
                let options = CreateOptions { mode, ..made() };
                let file = client
                    .create_node(&root, (directory, &name), options, (true, true), true)
                    .map_err(text)?;
                let change = Change {
                    uid: Some(uid(index)),
                    ..Change::default()
                };
                let request = NodeRequest::SetAttr {
                    id: file.id(),
                    change,
                };
                client.node(&root, request).map_err(text)?;
            }
        }
        client.sync_metadata().map_err(text)
    }

    /// Makes one attempt as a user.
    pub(super) fn act_as_user(&mut self, holder: &mut Holder) -> Result<(), Fault> {
        let done = self.try_as_user(holder);
        self.excuse(done)
    }

    fn excuse(&self, done: Result<(), Misuse>) -> Result<(), Fault> {
        match done {
            Ok(()) => Ok(()),
            Err(Misuse::Away(e)) if self.phase() < Phase::Calm => {
                self.say(&format!("users: {e}"));
                Ok(())
            }
            Err(Misuse::Away(e)) => Err(format!("users: in calm: {e}")),
            Err(Misuse::Allowed(what)) => Err(format!("users: {what}")),
        }
    }

    fn try_as_user(&mut self, Holder(held): &mut Holder) -> Result<(), Misuse> {
        let mut mine = match held.take() {
            Some(mine) => mine,
            None => {
                let life = self.random.from_to(SHORT_MS.0, SHORT_MS.1);
                self.new_held(life)?
            }
        };
        if mine.taken_back {
            self.refused_by_meta(&mut mine)?;
            // Servers are killed and lose power meanwhile.
            if self.random.one_in(2) {
                *held = Some(mine);
            }
            return Ok(());
        }
        if self.issue_time()? >= mine.credential.statement().end_ms {
            return self.refused_after_its_end(&mut mine);
        }
        match self.random.below(3) {
            0 => self.take_back(&mut mine)?,
            _ => self.rights(&mut mine.meta)?,
        }
        *held = Some(mine);
        Ok(())
    }

    /// Without faults: checks rights, a renewal, an expiry, and that all servers refuse what was revoked.
    pub(super) fn users_in_calm(&mut self, holder: Holder) -> Result<(), Fault> {
        drop(holder);
        let done = self.all_of_a_user();
        self.excuse(done)
    }

    fn all_of_a_user(&mut self) -> Result<(), Misuse> {
        let mut mine = self.new_held(LIFE_MS)?;
        self.rights(&mut mine.meta)?;
        let mut short = self.new_held(SHORT_MS.0)?;
        while self.issue_time()? < short.credential.statement().end_ms {
            self.sleep(SECOND / 10);
        }
        self.refused_after_its_end(&mut short)?;
        let servers: Vec<ServerId> = self.deployment.server_ids();
        let server = servers[self.random.index(servers.len())];
        let mut data = self.data_as(server, &mine.credential)?;
        let mut renewed = self.new_held(LIFE_MS)?;
        let mut others = self.data_as(server, &renewed.credential)?;
        self.others_capability(&mut others)?;
        self.take_back(&mut mine)?;
        self.refused_by_meta(&mut mine)?;
        self.sleep(TAKEN_BACK);
        if is_served_data(&mut data) || self.data_as(server, &mine.credential).is_ok() {
            return Err(Misuse::Allowed(format!(
                "data server {} serves a credential {} s after it was taken back",
                server.0,
                TAKEN_BACK / SECOND
            )));
        }
        // The same user's other credential stays valid.
        if !is_served(&mut renewed.meta) || !is_served_data(&mut others) {
            return Err(Misuse::Allowed(
                "a good credential is refused after another one was taken back".into(),
            ));
        }
        Ok(())
    }

    /// Gets a credential with this life, and connects with it.
    fn new_held(&mut self, life_ms: u64) -> Result<UserSession, Misuse> {
        let now = self.issue_time()?;
        let path = self.deployment.authority_key.as_ref();
        let path = path.ok_or_else(|| Misuse::Away("there is no authority".into()))?;
        let life = now.saturating_sub(BEFORE_MS)..now + life_ms;
        let who = user(uid(self.index));
        let statement = Statement::new(&self.deployment.id, who, life);
        let credential = Credential::issue(&KeyPair::load(path)?, statement)?;
        let meta = self.reach_as(&self.deployment.meta.address, &credential)?;
        Ok(UserSession {
            credential,
            meta,
            taken_back: false,
        })
    }

    /// Checks what others may not do with a user's files, and the user with theirs.
    fn rights(&mut self, meta: &mut Connection) -> Result<(), Misuse> {
        let other = (self.index + 1) % self.shape.clients;
        for (owner, kind, write, allowed) in [
            (self.index, "private", true, true),
            (other, "private", false, false),
            (other, "public", false, true),
            (other, "public", true, false),
        ] {
            let path = format!("{DIRECTORY}/{kind}-{owner}");
            let request = MetaRequest::Open {
                path: path.clone(),
                read: true,
                write,
                create: None,
                exclusive: false,
            };
            match ask(meta, &request)? {
                MetaReply::Opened { .. } if allowed => {}
                MetaReply::Error(e) if e.kind == ErrorKind::Permission && !allowed => {
                    self.note(Effect::Forbidden);
                }
                MetaReply::Error(e)
                    if !matches!(e.kind, ErrorKind::Permission | ErrorKind::NotFound) =>
                {
                    return Err(Misuse::Away(e.to_string()));
                }
                other => {
                    return Err(Misuse::Allowed(format!(
                        "user {} opens {path}, writing: {write}: {other:?}",
                        uid(self.index)
                    )));
                }
            }
        }
        Ok(())
    }

    /// Another user's capability is refused.
    fn others_capability(&mut self, data: &mut Connection) -> Result<(), Misuse> {
        let Some(capability) = self.own_capability()? else {
            return Ok(());
        };
        match attach(data, &capability)? {
            DataReply::Error(e) => {
                if e.kind == ErrorKind::BadCapability {
                    self.note(Effect::Forbidden);
                }
                Ok(())
            }
            other => Err(Misuse::Allowed(format!(
                "another user's capability was answered {other:?}"
            ))),
        }
    }

    /// An administrator revokes a credential.
    fn take_back(&mut self, mine: &mut UserSession) -> Result<(), Misuse> {
        let statement = mine.credential.statement();
        let what = Revoked::Serial(*statement.serial_bytes());
        let away = |e: Error| Misuse::Away(e.to_string());
        let admin: Client = self.connect(Role::Admin).map_err(away)?;
        match admin.revoke(what, statement.end_ms) {
            Ok(_) => {
                mine.taken_back = true;
                Ok(())
            }
            // It has expired meanwhile.
            Err(e) if e.kind() == ErrorKind::InvalidArgument => Ok(()),
            Err(e) => Err(away(e)),
        }
    }

    /// The metadata server refuses a revoked credential at once, on open connections as on new ones.
    fn refused_by_meta(&mut self, mine: &mut UserSession) -> Result<(), Misuse> {
        self.refused(mine, "was taken back")?;
        self.note(Effect::TakenBack);
        Ok(())
    }

    fn refused_after_its_end(&mut self, mine: &mut UserSession) -> Result<(), Misuse> {
        let end = mine.credential.statement().end_ms;
        match self.refused(mine, "has ended") {
            // Where its disk failed, the server's time may have gone back.
            Err(Misuse::Allowed(_)) if self.issue_time()? < end => Ok(()),
            Err(e) => Err(e),
            Ok(()) => {
                self.note(Effect::EndedCredential);
                Ok(())
            }
        }
    }

    fn refused(&mut self, mine: &mut UserSession, why: &str) -> Result<(), Misuse> {
        let new = self.reach_as(&self.deployment.meta.address, &mine.credential);
        if !is_served(&mut mine.meta) && !new.is_ok_and(|mut new| is_served(&mut new)) {
            return Ok(());
        }
        Err(Misuse::Allowed(format!(
            "a credential that {why} is served by the metadata server: {:?}",
            mine.credential.statement()
        )))
    }

    fn data_as(&self, server: ServerId, credential: &Credential) -> Result<Connection, Misuse> {
        let description = self.deployment.server(server);
        let description = description.ok_or_else(|| Misuse::Away("no such server".into()))?;
        self.reach_as(&description.address, credential)
    }

    fn reach_as(&self, address: &Address, credential: &Credential) -> Result<Connection, Misuse> {
        let mut caller = self.deployment.caller(Role::Client, 4, self.index as u32)?;
        caller.wallet = Arc::new(Wallet::holding(credential.clone()));
        let limit = Some(Duration::from_secs(5));
        let timeouts = Timeouts {
            read: limit,
            write: limit,
        };
        Ok(penstock_rpc::connect(address, &caller, timeouts)?)
    }

    fn note(&self, effect: Effect) {
        lock(&self.history).effects.count(effect);
    }

    fn sleep(&self, time: Nanos) {
        penstock_host::thread::sleep(Duration::from_nanos(time));
    }
}

fn uid(index: usize) -> u32 {
    FIRST + index as u32
}

fn is_served(meta: &mut Connection) -> bool {
    matches!(ask(meta, &MetaRequest::Time), Ok(MetaReply::Time { .. }))
}

fn is_served_data(data: &mut Connection) -> bool {
    let answer = ask(data, &DataRequest::Status);
    matches!(answer, Ok(DataReply::Status(_)))
}
