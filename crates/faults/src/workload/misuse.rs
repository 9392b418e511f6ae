//! Clients that try what their capabilities do not allow, past the client library.
use super::{Fault, Worker};
use crate::world::lock;
use penstock_client::ErrorKind;
use penstock_wire::message::{
    Capability, DataReply, DataRequest, Handle, MetaReply, MetaRequest, Region, TraceContext,
};
use penstock_wire::{Connection, Envelope, Role, Timeouts};
use serde::{Serialize, de::DeserializeOwned};
use std::time::Duration;

/// A capability for reading that was lent for a while, and a handle that it was shown for.
#[derive(Default)]
pub(super) struct Lent {
    capability: Option<Capability>,
    attached: Option<(Connection, Handle, u64)>,
}

/// Servers that tell the time by their clocks alone may be late by so much.
const LATE_MS: u64 = 5_000;

impl Worker {
    /// Tries what its capabilities do not allow, past the client library.
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
        let caller = self.deployment.caller(Role::Client, 2, self.index as u32)?;
        let limit = Some(Duration::from_secs(5));
        let timeouts = Timeouts {
            read: limit,
            write: limit,
        };
        if lent.capability.is_none() {
            let mut meta =
                penstock_wire::connect(&self.deployment.meta.address, &caller, timeouts)?;
            let path = lock(&self.history).files[0].path.clone();
            let request = MetaRequest::Open {
                path,
                read: true,
                write: false,
                create: None,
                exclusive: false,
            };
            if let MetaReply::Opened { capability, .. } = ask(&mut meta, &request)? {
                lent.capability = Some(capability);
            }
        }
        let Some(capability) = lent.capability.clone() else {
            return Ok(());
        };
        let servers = &capability.layout.servers;
        let server = servers[self.random.index(servers.len())];
        let Some(description) = self.deployment.server(server) else {
            return Ok(());
        };
        let mut data = penstock_wire::connect(&description.address, &caller, timeouts)?;
        let mut attach = |capability: &Capability| {
            let capability = capability.clone();
            ask::<_, DataReply>(&mut data, &DataRequest::Attach { capability })
        };
        for forged in [
            Capability {
                write: true,
                ..capability.clone()
            },
            Capability {
                expires_ms: capability.expires_ms + 3_600_000,
                ..capability.clone()
            },
        ] {
            match attach(&forged)? {
                DataReply::Error(e) if e.kind == ErrorKind::BadCapability => {}
                other => {
                    return Err(Misuse::Allowed(format!(
                        "a forged one was answered {other:?}"
                    )));
                }
            }
        }
        let before = self.world.time_of_day().as_millis() as u64;
        let reply = attach(&capability)?;
        let after = self.world.time_of_day().as_millis() as u64;
        match reply {
            DataReply::Attached { .. } if before > capability.expires_ms => {
                Err(Misuse::Allowed(format!(
                    "one that ended at {} was taken at {before}",
                    capability.expires_ms
                )))
            }
            DataReply::Attached { handle, .. } => {
                self.overstep(&mut data, handle, &capability)?;
                lent.attached = Some((data, handle, capability.expires_ms));
                Ok(())
            }
            DataReply::Error(e)
                if e.kind == ErrorKind::ExpiredCapability && after >= capability.expires_ms =>
            {
                lent.capability = None;
                Ok(())
            }
            other => Err(Misuse::Allowed(format!(
                "a good one was answered {other:?}"
            ))),
        }
    }

    /// Reads by a handle long after its capability has ended.
    fn use_late(&mut self, lent: &mut Lent) -> Result<(), Misuse> {
        let now_ms = self.world.time_of_day().as_millis() as u64;
        let late = |(_, _, ends): &mut (Connection, Handle, u64)| now_ms > *ends + LATE_MS;
        let Some((mut data, handle, ends)) = lent.attached.take_if(late) else {
            return Ok(());
        };
        let request = DataRequest::Read {
            handle,
            region: Region::Contiguous { offset: 0, len: 8 },
            lock: None,
        };
        match ask(&mut data, &request)? {
            DataReply::Error(e) if e.kind == ErrorKind::ExpiredCapability => Ok(()),
            other => Err(Misuse::Allowed(format!(
                "a read at {now_ms} with one that ended at {ends} was answered {other:?}"
            ))),
        }
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

pub(super) enum Misuse {
    /// A server could not be asked.
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
