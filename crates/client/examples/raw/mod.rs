//! The bare protocol, for programs that attack servers: requests that bypass the client library.
use penstock_rpc::Connection;
use penstock_wire::Envelope;
use penstock_wire::message::TraceContext;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::error::Error;

/// Whatever goes wrong ends the attack.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Sends a request without payload; its answer, without the payload that may come with it.
pub fn ask<Q: Serialize, A: DeserializeOwned>(
    connection: &mut Connection,
    request: &Q,
) -> Result<A> {
    connection.queue(&Envelope::request(1, TraceContext::default()), request)?;
    connection.flush()?;
    let got = connection.receive::<A>()?;
    connection.skip_payload()?;
    got.body.ok_or_else(|| "an answer without a body".into())
}
