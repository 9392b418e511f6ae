//! What is asked of an agent, and its answers: one line of JSON each.
use super::here::Net;
use crate::job::Cleaned;
use crate::replaced::ReplacedArgs;
use crate::which::Which;
use penstock_rpc::deployment::Deployment;
use penstock_wire::PublicKey;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;

/// Bytes of a line: a deployment file has 4 MiB at most, and is longer in JSON.
pub const MAX_LINE: u64 = 16 << 20;
/// How long an agent waits for the next request before it takes back what it did. Whoever asks has shorter limits.
pub const IDLE_S: u64 = 120;

/// What an agent says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its version.
    pub penstock: String,
    /// Of the protocol of servers and clients.
    pub protocol: u16,
}

impl Hello {
    /// Of this program.
    pub fn own() -> Hello {
        Hello {
            penstock: env!("CARGO_PKG_VERSION").into(),
            protocol: penstock_wire::frame::VERSION,
        }
    }
}

/// A request, or the answer to it. Numbers tell the answers of requests apart that nobody waited for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Numbered<T> {
    pub number: u64,
    pub what: T,
}

/// What an agent is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Claim the directory for a new deployment and make this host's keys.
    Begin(Begin),
    /// Write the new deployment's files.
    Install(Install),
    /// Claim the directory of a deployment that is there.
    Open(Open),
    /// Start the servers that don't run.
    Start(Start),
    /// How they do.
    Look,
    /// End these.
    End(Vec<Which>),
    /// What was done stays, and others may change the directory. `wait`: the agent stays until the servers that it started have ended.
    Keep { wait: bool },
    /// Write what a job needs beside its deployment.
    Job(Job),
    /// End what runs of a job's deployment in this directory, and remove it (`penstock clean`).
    Clean { dir: PathBuf, discard: bool },
    /// Take back what was done.
    Undo,
}

/// See [`Request::Begin`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin {
    pub dir: PathBuf,
    pub host: String,
    /// Of this start: two hosts that see it in one file have one directory.
    pub token: String,
    pub servers: Vec<Which>,
    pub net: Option<Net>,
    /// What the host's name stands for where the start was asked for.
    pub hint: Option<IpAddr>,
    pub ports: (u16, u16),
    pub service_user: Option<String>,
    pub group: Option<String>,
}

/// The answer to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begun {
    pub address: IpAddr,
    /// Of each server, in the order of the request.
    pub servers: Vec<(u16, PublicKey)>,
    /// Made where the metadata server is.
    pub authority: Option<PublicKey>,
}

/// See [`Request::Install`].
#[derive(Clone, Serialize, Deserialize)]
pub struct Install {
    /// With paths relative to the directory.
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
    /// Replaces the file there if it differs; with paths relative to the directory.
    pub deployment: Deployment,
}

/// See [`Request::Job`].
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    /// Where output is to be staged out to; until that is done nobody removes it.
    pub unsaved: Option<String>,
    /// The text of the job's credential, for its ranks on hosts other than the first.
    pub credential: Option<String>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({:?})", self.unsaved)
    }
}

/// See [`Request::Start`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    pub trace: Option<PathBuf>,
    pub replaced: ReplacedArgs,
}

/// How the servers of a host do.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Looked {
    /// Started by this agent so far.
    pub started: Vec<Which>,
    /// They do not answer yet; with what their logs say last.
    pub silent: Vec<(Which, String)>,
    /// They were started and have ended; what they said last.
    pub ended: Option<(Which, String)>,
    /// What a server recovers now.
    pub recovering: Option<(Which, String)>,
}

/// What an agent answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Done,
    Begun(Begun),
    Looked(Looked),
    Ended { count: usize, killed: Vec<String> },
    Cleaned(Cleaned),
    Failed { what: String, next: Option<String> },
}
