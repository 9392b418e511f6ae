//! Shared file pointers: numbers at the metadata server, named by a random token.
use crate::client::Client;
use crate::error::{Error, Result};
use crate::guard::guard;
use crate::link::Link;
use crate::retry::Retry;
use penstock_host::sync::Mutex;
use penstock_wire::message::{MetaReply, MetaRequest};

/// A number that several clients share. It lives as long as the connection that created it, so a program that dies
/// leaves none behind. It does not survive a restart of the metadata server.
#[derive(Debug)]
pub struct Counter {
    client: Client,
    token: u128,
    /// Of the creator: ends the counter's life when it closes.
    owner: Mutex<Option<Link>>,
}

impl Client {
    /// The counter named `token`; [`Counter::create`] makes it.
    pub fn counter(&self, token: u128) -> Counter {
        Counter {
            client: self.clone(),
            token,
            owner: Mutex::new(None),
        }
    }
}

impl Counter {
    /// Makes the counter. It ends with [`Counter::free`] or when this value is dropped.
    pub fn create(&self, value: i64) -> Result<()> {
        const CREATE: &str = "create a counter";
        let request = MetaRequest::CounterCreate {
            token: self.token,
            value,
        };
        let site = self.client.meta_site();
        let mut retry = Retry::new(self.client.backoff());
        // A counter ends with its connection, and another connection is only made when that has ended. A second attempt
        // therefore never finds the first one's counter.
        let (link, reply) = loop {
            let once = || {
                let mut link = site.dial(CREATE)?;
                let id = link.ask(CREATE, self.client.trace(), &request)?;
                let reply: MetaReply = link.answer(CREATE, id)?;
                Ok((link, reply))
            };
            match once() {
                Ok(made) => break made,
                Err(fault) => self.client.pause(site, CREATE, fault, &mut retry)?,
            }
        };
        self.take(reply, CREATE)?;
        *guard(&self.owner) = Some(link);
        Ok(())
    }

    /// Adds atomically and exactly once; returns the value before.
    pub fn add(&self, n: i64) -> Result<i64> {
        let request = MetaRequest::CounterAdd {
            token: self.token,
            add: n,
        };
        let reply = self.client.meta("add to a counter", &request)?;
        self.take(reply, "add to a counter")
    }

    /// Sets it.
    pub fn set(&self, value: i64) -> Result<()> {
        let request = MetaRequest::CounterSet {
            token: self.token,
            value,
        };
        let reply = self.client.meta("set a counter", &request)?;
        self.take(reply, "set a counter").map(drop)
    }

    /// The value.
    pub fn get(&self) -> Result<i64> {
        let request = MetaRequest::CounterGet { token: self.token };
        let reply = self.client.meta("read a counter", &request)?;
        self.take(reply, "read a counter")
    }

    /// Ends it. Only its creator can.
    pub fn free(&self) -> Result<()> {
        const FREE: &str = "free a counter";
        let Some(mut link) = guard(&self.owner).take() else {
            return Err(Error::Invalid(
                "a counter is freed by whoever created it".into(),
            ));
        };
        let request = MetaRequest::CounterFree { token: self.token };
        let reply = link
            .ask(FREE, self.client.trace(), &request)
            .and_then(|id| link.answer(FREE, id))
            .map_err(|fault| fault.into_final(&link.server.peer, FREE))?;
        self.take(reply, FREE).map(drop)
    }

    /// The number in an answer (0 where there is none).
    fn take(&self, reply: MetaReply, operation: &'static str) -> Result<i64> {
        match reply {
            MetaReply::Counter { before } => Ok(before),
            MetaReply::Done => Ok(0),
            MetaReply::Error(e) => Err(Error::Refused {
                peer: self.client.meta_site().peer.clone(),
                operation,
                source: e,
            }),
            other => Err(self.client.meta_protocol(operation, &other)),
        }
    }
}
