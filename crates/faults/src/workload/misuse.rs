//! Clients that try what their capabilities do not allow, without the client library.
use super::{Fault, Worker};
use crate::effects::Effect;
use crate::world::{MS, Nanos, SECOND, lock};
use penstock_client::ErrorKind;
use penstock_layout::ServerId;
use penstock_rpc::deployment::Address;
use penstock_rpc::{Connection, Timeouts};
use penstock_wire::message::{
    Capability, DataReply, DataRequest, Handle, MetaReply, MetaRequest, Region, TraceContext,
};
use penstock_wire::{Envelope, Role};
use serde::{Serialize, de::DeserializeOwned};
use std::time::Duration;

/// A capability for reading with a limited life, and a handle that was opened with it.
#[derive(Default)]
pub(super) struct Lent {
    held: Option<StolenCapability>,
    attached: Option<(Connection, Handle, StolenCapability)>,
}

/// A capability, and when it was received.
#[derive(Clone)]
struct StolenCapability {
    capability: Capability,
    since: Nanos,
}

/// Servers may report a capability as expired this much too late.
const LATE_MS: u64 = 5_000;
/// A violation must appear again after this time: a server that has just started may not know the time yet.
const AGAIN: Nanos = 3 * SECOND;
/// Repetitions before an expired capability that is accepted counts as a violation.
const LATE_TIMES: usize = 3;
/// Repetitions before a valid one that is refused counts as a violation.
const REFUSED_TIMES: usize = 6;

impl Worker {
    /// Tries what its capabilities do not allow, without the client library.
    pub(super) fn capabilities(&mut self, lent: &mut Lent) -> Result<(), Fault> {
        match self.misuse(lent) {
            Ok(()) => Ok(()),
            Err(Misuse::Away(e)) => {
                self.say(&format!("capabilities: {e}"));
                Ok(())
            }
            Err(Misuse::Allowed(what)) => Err(format!("capabilities: {what}")),
        }
    }

    fn misuse(&mut self, lent: &mut Lent) -> Result<(), Misuse> {
        self.use_late(lent)?;
        if lent.held.is_none() {
            lent.held = self.lend()?;
        }
        let Some(held) = lent.held.clone() else {
            return Ok(());
        };
        let capability = &held.capability;
        let servers = &capability.layout.servers;
        let server = servers[self.random.index(servers.len())];
        let mut data = self.data(server)?;
        for forged in [
            Capability {
                write: true,
                ..capability.clone()
            },
            Capability {
                issued_ms: capability.issued_ms + 3_600_000,
                ..capability.clone()
            },
            Capability {
                expires_ms: capability.expires_ms + 3_600_000,
                ..capability.clone()
            },
        ] {
            match attach(&mut data, &forged)? {
                DataReply::Error(e) if e.kind == ErrorKind::BadCapability => {}
                other => {
                    return Err(Misuse::Allowed(format!(
                        "a forged one was answered {other:?}"
                    )));
                }
            }
        }
        for _ in 0..LATE_TIMES {
            let ended = self.ended_ms(&held)?;
            match attach(&mut data, capability)? {
                DataReply::Attached { handle, .. } if ended <= LATE_MS => {
                    self.overstep(&mut data, handle, capability)?;
                    lent.attached = Some((data, handle, held));
                    return Ok(());
                }
                DataReply::Attached { .. } => self.rest(),
                DataReply::Error(e) if e.kind == ErrorKind::ExpiredCapability => {
                    self.ended();
                    lent.held = None;
                    return if self.issue_time()? >= capability.expires_ms {
                        Ok(())
                    } else {
                        self.taken_soon(server)
                    };
                }
                other => {
                    return Err(Misuse::Allowed(format!(
                        "a good one was answered {other:?}"
                    )));
                }
            }
        }
        Err(Misuse::Allowed(format!(
            "one that ended at {} is taken by data server {} for more than {LATE_MS} ms",
            capability.expires_ms, server.0
        )))
    }

    /// Counts an expired capability that was refused.
    fn ended(&self) {
        let mut history = lock(&self.history);
        history.effects.count(Effect::EndedCapability);
    }

    /// A capability for reading, issued to this process's user.
    pub(super) fn own_capability(&mut self) -> Result<Option<Capability>, Misuse> {
        Ok(self.lend()?.map(|held| held.capability))
    }

    /// Gets a new capability.
    fn lend(&mut self) -> Result<Option<StolenCapability>, Misuse> {
        let since = self.now();
        let path = lock(&self.history).files[0].path.clone();
        let request = MetaRequest::Open {
            path,
            read: true,
            write: false,
            create: None,
            exclusive: false,
        };
        match ask(&mut self.meta()?, &request)? {
            MetaReply::Opened { capability, .. } => {
                Ok(Some(StolenCapability { capability, since }))
            }
            _ => Ok(None),
        }
    }

    /// The metadata server's time, which must never go back.
    pub(super) fn issue_time(&mut self) -> Result<u64, Misuse> {
        let before = lock(&self.history).issued_ms;
        let MetaReply::Time { issue_ms, .. } = ask(&mut self.meta()?, &MetaRequest::Time)? else {
            return Err(Misuse::Away("no time".into()));
        };
        let mut history = lock(&self.history);
        history.issued_ms = history.issued_ms.max(issue_ms);
        // Where its disk fails, the recorded time may be lost with the power.
        let failed = [
            Effect::FullDisk,
            Effect::FailedSync,
            Effect::FailedRead,
            Effect::FailedWrite,
            Effect::NoDescriptor,
            Effect::NoMemory,
        ];
        let state = self.world.state();
        let sound = failed
            .iter()
            .all(|e| !state.disks[0].effects.0.contains_key(e));
        if issue_ms < before && sound {
            Err(Misuse::Allowed(format!(
                "the metadata server's time went back from {before} to {issue_ms}"
            )))
        } else {
            Ok(issue_ms)
        }
    }

    /// For how long a capability has been expired. It is the larger of two: by the metadata server's time, and by the
    /// time since it was received. The first is ahead after a restart, the second if the server was down with a wrong
    /// clock.
    fn ended_ms(&mut self, held: &StolenCapability) -> Result<u64, Misuse> {
        let by_meta = self
            .issue_time()?
            .saturating_sub(held.capability.expires_ms);
        Ok(by_meta.min(self.outlived_ms(held)))
    }

    fn outlived_ms(&self, held: &StolenCapability) -> u64 {
        let lifetime = held.capability.lifetime().as_millis() as u64;
        ((self.now() - held.since) / MS).saturating_sub(lifetime)
    }

    /// Checks that a new capability is accepted by a server, at the latest when it knows the time.
    fn taken_soon(&mut self, server: ServerId) -> Result<(), Misuse> {
        for _ in 0..REFUSED_TIMES {
            let Some(StolenCapability { capability, .. }) = self.lend()? else {
                return Ok(());
            };
            match attach(&mut self.data(server)?, &capability)? {
                DataReply::Error(e)
                    if e.kind == ErrorKind::ExpiredCapability
                        && self.issue_time()? < capability.expires_ms =>
                {
                    self.rest();
                }
                _ => return Ok(()),
            }
        }
        Err(Misuse::Allowed(format!(
            "data server {} calls new ones expired for ever",
            server.0
        )))
    }

    fn rest(&self) {
        penstock_host::thread::sleep(Duration::from_nanos(AGAIN));
    }

    fn meta(&self) -> Result<Connection, Misuse> {
        self.reach(&self.deployment.meta.address)
    }

    fn data(&self, server: ServerId) -> Result<Connection, Misuse> {
        let description = self.deployment.server(server);
        let description = description.ok_or_else(|| Misuse::Away("no such server".into()))?;
        self.reach(&description.address)
    }

    fn reach(&self, address: &Address) -> Result<Connection, Misuse> {
        let caller = self.deployment.caller(Role::Client, 2, self.index as u32)?;
        let limit = Some(Duration::from_secs(5));
        let timeouts = Timeouts {
            read: limit,
            write: limit,
        };
        Ok(penstock_rpc::connect(address, &caller, timeouts)?)
    }

    /// Reads through a handle long after its capability has expired.
    fn use_late(&mut self, lent: &mut Lent) -> Result<(), Misuse> {
        let late = |(_, _, held): &mut (Connection, Handle, StolenCapability)| {
            self.outlived_ms(held) > LATE_MS
        };
        let Some((mut data, handle, held)) = lent.attached.take_if(late) else {
            return Ok(());
        };
        for _ in 0..LATE_TIMES {
            if self.ended_ms(&held)? <= LATE_MS {
                return Ok(());
            }
            let request = DataRequest::Read {
                handle,
                region: Region::Contiguous { offset: 0, len: 8 },
                lock: None,
            };
            match ask(&mut data, &request)? {
                DataReply::Error(e) if e.kind == ErrorKind::ExpiredCapability => {
                    self.ended();
                    return Ok(());
                }
                DataReply::Read { .. } => self.rest(),
                other => {
                    return Err(Misuse::Allowed(format!(
                        "a read with one that ended at {} was answered {other:?}",
                        held.capability.expires_ms
                    )));
                }
            }
        }
        Err(Misuse::Allowed(format!(
            "reads with one that ended at {} succeed for more than {LATE_MS} ms",
            held.capability.expires_ms
        )))
    }

    /// Writes where only reading is allowed.
    fn overstep(
        &mut self,
        data: &mut Connection,
        handle: Handle,
        capability: &Capability,
    ) -> Result<(), Misuse> {
        let request = DataRequest::Write {
            handle,
            region: Region::Contiguous { offset: 0, len: 8 },
            lock: None,
        };
        let envelope = Envelope::request(7, TraceContext::default());
        data.queue_payload(&envelope, &request, &[0xee; 8])?;
        data.flush()?;
        match data.receive::<DataReply>()?.body {
            Some(DataReply::Error(e))
                if matches!(
                    e.kind,
                    ErrorKind::Permission | ErrorKind::ExpiredCapability | ErrorKind::BadCapability
                ) =>
            {
                Ok(())
            }
            other => Err(Misuse::Allowed(format!(
                "a write with one for reading file {} was answered {other:?}",
                capability.file.0
            ))),
        }
    }
}

pub(super) fn attach(data: &mut Connection, capability: &Capability) -> Result<DataReply, Misuse> {
    let capability = capability.clone();
    ask(data, &DataRequest::Attach { capability })
}

pub(super) enum Misuse {
    /// The server could not be reached.
    Away(String),
    Allowed(String),
}

impl From<penstock_wire::Error> for Misuse {
    fn from(e: penstock_wire::Error) -> Misuse {
        Misuse::Away(e.to_string())
    }
}

pub(super) fn ask<Q: Serialize, R: DeserializeOwned>(
    connection: &mut Connection,
    request: &Q,
) -> Result<R, Misuse> {
    let envelope = Envelope::request(1, TraceContext::default());
    connection.queue(&envelope, request)?;
    connection.flush()?;
    let body = connection.receive::<R>()?.body;
    body.ok_or_else(|| Misuse::Away("an empty reply".into()))
}
