//! Who is where: the deployment file (`deployment.toml`) that servers, clients and tools share.
//!
//! Secrets are not in it: `client_key` and `server_key` name files of mode 0600. Clients prove
//! themselves with the client key; capabilities are signed with the server key, which clients never see.
use penstock_layout::ServerId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One way to reach a server. A client on the same host prefers the Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Address {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix: Option<PathBuf>,
    /// host:port
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
}

/// Where a data server keeps bytes: `dir:/path` or `memory`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataServer {
    pub id: ServerId,
    pub address: Address,
    pub store: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetaServer {
    pub address: Address,
    /// Directory of the metadata database.
    pub store: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    /// 32 hex digits, made at creation; every store carries it.
    pub id: String,
    pub name: String,
    /// Default stripe unit for new files, bytes.
    pub stripe_unit: u64,
    /// Plain paths under this prefix belong to Penstock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<PathBuf>,
    pub client_key: PathBuf,
    pub server_key: PathBuf,
    pub meta: MetaServer,
    #[serde(rename = "server")]
    pub servers: Vec<DataServer>,
}
