//! Requests to an agent, and its answers: one line of JSON each.
use super::here::Net;
use crate::job::Cleaned;
use crate::launch;
use crate::replaced::ReplacedArgs;
use crate::which::Which;
use penstock_rpc::deployment::Deployment;
use penstock_wire::PublicKey;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;

/// Longest line in bytes. A deployment file has 4 MiB at most, and is longer in JSON.
pub const MAX_LINE: u64 = 16 << 20;
/// Seconds that an agent waits for the next request before it undoes what it did. Whoever sends requests has shorter
/// limits.
pub const IDLE_S: u64 = 120;

/// The first message of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The agent's version.
    pub penstock: String,
    /// Version of the protocol of servers and clients.
    pub protocol: u16,
}

impl Hello {
    /// The message of this program.
    pub fn own() -> Hello {
        Hello {
            penstock: env!("CARGO_PKG_VERSION").into(),
            protocol: penstock_wire::frame::VERSION,
        }
    }
}

/// A request, or the answer to it. Numbers identify answers that arrive after nobody waits for them any more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Numbered<T> {
    pub number: u64,
    pub what: T,
}

/// A request to an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Claim the directory for a new deployment and make this host's keys.
    Begin(Begin),
    /// Write the new deployment's files.
    Install(Install),
    /// Claim the directory of a deployment that is there.
    Open(Open),
    /// Start the servers that do not run.
    Start(Start),
    /// Report the state of the servers.
    Look,
    /// End these servers.
    End(Vec<Which>),
    /// Keep what was done; others may change the directory. `wait`: the agent stays until the servers that it started
    /// have ended.
    Keep { wait: bool },
    /// Make this host's keys of the next generation, beside those of now.
    Keys(NextKeys),
    /// Write what a job needs beside its deployment.
    Job(Job),
    /// End what runs of a job's deployment in this directory, and remove it (`penstock clean`).
    Clean { dir: PathBuf, discard: bool },
    /// Undo what was done.
    Undo,
}

/// See [`Request::Begin`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin {
    pub dir: PathBuf,
    pub host: String,
    /// Identifies this start: two hosts that find the same token in one file share the directory.
    pub token: String,
    pub servers: Vec<Which>,
    pub net: Option<Net>,
    /// What the host's name resolves to where the start was requested.
    pub hint: Option<IpAddr>,
    pub ports: (u16, u16),
    pub service_user: Option<String>,
    pub group: Option<String>,
}

/// The answer to [`Request::Begin`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begun {
    pub address: IpAddr,
    /// Port and key of each server, in the order of the request.
    pub servers: Vec<(u16, PublicKey)>,
    /// The authority's key, from the metadata server's host.
    pub authority: Option<PublicKey>,
}

/// See [`Request::Install`].
#[derive(Clone, Serialize, Deserialize)]
pub struct Install {
    /// Its paths are relative to the directory.
    pub deployment: Deployment,
    /// The bytes of the client key.
    pub client_key: [u8; 32],
}

impl std::fmt::Debug for Install {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Install({})", self.deployment.id)
    }
}

/// See [`Request::Open`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Open {
    pub dir: PathBuf,
    pub host: String,
    pub token: String,
    /// Replaces the file there if it differs; its paths are relative to the directory.
    pub deployment: Deployment,
}

/// See [`Request::Job`].
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    /// Where output is to be staged out to. Until that is done the directory is not removed.
    pub unsaved: Option<String>,
    /// The job's credential as text, for its ranks on hosts other than the first.
    pub credential: Option<String>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({:?})", self.unsaved)
    }
}

/// See [`Request::Keys`].
#[derive(Clone, Serialize, Deserialize)]
pub struct NextKeys {
    /// The generation that they follow: what is asked is about no other.
    pub after: u32,
    /// The text of the client key's file.
    pub client_key: String,
}

impl std::fmt::Debug for NextKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NextKeys(after {})", self.after)
    }
}

/// See [`Request::Start`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    pub trace: Option<PathBuf>,
    pub journal: bool,
    pub replaced: ReplacedArgs,
}

impl Start {
    /// The same for a server's process.
    pub fn options(&self) -> launch::Options<'_> {
        launch::Options {
            trace: self.trace.as_deref(),
            journal: self.journal,
            replaced: &self.replaced,
        }
    }
}

/// The state of the servers of a host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Looked {
    /// Servers that this agent has started so far.
    pub started: Vec<Which>,
    /// Servers that do not answer yet, with the last line of their logs.
    pub silent: Vec<(Which, String)>,
    /// A server that was started and has ended, with its last lines.
    pub ended: Option<(Which, String)>,
    /// A server that recovers, and what it does now.
    pub recovering: Option<(Which, String)>,
}

/// An answer of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Done,
    Begun(Begun),
    /// Identities of the host's servers in the next generation.
    Keys(Vec<(Which, PublicKey)>),
    Looked(Looked),
    Ended {
        count: usize,
        killed: Vec<String>,
    },
    Cleaned(Cleaned),
    Failed {
        what: String,
        next: Option<String>,
    },
}
