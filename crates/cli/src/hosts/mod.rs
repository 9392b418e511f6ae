//! A deployment whose servers are on several hosts.
//!
//! Problem: keys must not travel, and a start that fails in part must leave nothing behind. The command or its network
//! may end at any time. Idea: on each host runs an agent (`penstock agent`), started by ssh or another remote command.
//! It reads requests from its standard input. If its input ends before the agent was told to keep what it did, the
//! agent undoes it (docs/decisions/0042).
//!
//! | file | idea |
//! | --- | --- |
//! | `names` | which hosts: lists, files, the nodes of a job |
//! | `here` | this host: its names, its addresses, its free ports |
//! | `via` | the remote command |
//! | `message` | what is asked of an agent, and its answers |
//! | `agent` | its side |
//! | `session` | the other side; sessions with all hosts at once |
//! | `up`, `down` | all hosts, or this one's part |
pub mod agent;
mod down;
pub mod here;
mod message;
mod names;
mod session;
mod up;
mod via;

pub use down::{clean, distribute, down, next_keys};
pub use names::{in_job, some};
pub use up::{ForJob, for_job, up};
pub use via::Via;

use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::service;
use crate::which::Which;
use clap::Args;
use here::{Here, Net};
use names::Ports;
use penstock_rpc::deployment::Deployment;
use std::path::{Path, PathBuf};

/// The most hosts of a deployment: each has a session while servers start or end.
pub const MAX_HOSTS: usize = 512;
/// The environment variable that says how other hosts are reached, without `--via`.
pub const VIA: &str = "PENSTOCK_VIA";

/// The hosts of a new deployment.
#[derive(Debug, Clone, Default, Args)]
pub struct HostsArgs {
    /// Servers on these hosts, the metadata server on the first, which is this one. `a,b,c`, `n[1-8]`, or `job`: the nodes of this
    /// Slurm or PBS job. DIR is a directory of each host's own (docs/administer/hosts.md).
    #[arg(long, value_name = "HOSTS")]
    pub hosts: Option<String>,
    /// The hosts, one a line; `#` begins a comment.
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    pub hostfile: Option<PathBuf>,
    /// Which address of each host the servers take: an interface (ib0) or a network (10.1.0.0/16) [default: the one
    /// that the host's name stands for].
    #[arg(long, value_name = "NET")]
    pub net: Option<Net>,
    /// Ports that each host's servers may use; they take free ones [default: 7400-7499].
    #[arg(long, value_name = "FIRST-LAST")]
    pub ports: Option<Ports>,
}

impl HostsArgs {
    /// Whether the options name hosts.
    pub fn are_named(&self) -> bool {
        self.hosts.is_some() || self.hostfile.is_some()
    }
}

/// How other hosts are reached.
#[derive(Debug, Clone, Default, Args)]
pub struct ReachArgs {
    /// How a command is run on another host: ssh, srun, or words with {host} and {command} [default: $PENSTOCK_VIA, else ssh].
    #[arg(long, value_name = "HOW")]
    pub via: Option<Via>,
    /// The path of `penstock` on the other hosts [default: as here].
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// This host's servers only.
    #[arg(long)]
    pub here: bool,
}

/// How other hosts are reached, with defaults filled in.
pub struct Reach {
    via: Via,
    program: PathBuf,
}

impl ReachArgs {
    fn reach(&self) -> Result<Reach> {
        let said = std::env::var(VIA).ok().filter(|said| !said.is_empty());
        let via = match (&self.via, said) {
            (Some(via), _) => via.clone(),
            (None, Some(said)) => said
                .parse()
                .map_err(|e| CliError::new(format!("{VIA}: {e}")))?,
            (None, None) => Via::Ssh,
        };
        let program = match &self.program {
            Some(path) if path.is_absolute() => path.clone(),
            Some(path) => {
                return Err(CliError::new(format!(
                    "--program {} is not an absolute path, and other hosts do not know this directory",
                    path.display()
                )));
            }
            None => me()?,
        };
        Ok(Reach { via, program })
    }
}

fn me() -> Result<PathBuf> {
    std::env::current_exe()
        .map_err(|e| CliError::new(format!("cannot find this program's own path: {e}")))
}

/// This host's name.
pub fn own_name() -> Result<String> {
    Ok(Here::find()?.name().to_owned())
}

/// The deployment's host that is this one; `None` if its file names no hosts.
pub fn here(deployment: &Deployment) -> Result<Option<&str>> {
    let hosts = deployment.hosts();
    if hosts.is_empty() {
        return Ok(None);
    }
    let here = Here::find()?;
    let by_name = hosts.iter().copied().find(|host| here.is_called(host));
    let by_address = || {
        let mut hosts = hosts.iter().copied();
        hosts.find(|host| addresses(deployment, host).any(|address| here.has(&address)))
    };
    match by_name.or_else(by_address) {
        Some(host) => Ok(Some(host)),
        None => Err(CliError::new(format!(
            "this host ({}) is not one of the deployment's: {}",
            here.name(),
            names::some(&hosts)
        ))
        .next("run it on one of them, or name servers with `penstock serve --server N`")),
    }
}

/// The servers of this host; all if the file names no hosts.
pub fn servers_here(deployment: &Deployment) -> Result<Vec<Which>> {
    Ok(Which::on(deployment, here(deployment)?))
}

/// The addresses of a host's servers, without ports.
fn addresses<'a>(deployment: &'a Deployment, host: &'a str) -> impl Iterator<Item = String> + 'a {
    let meta = (&deployment.meta.host, &deployment.meta.address);
    let servers = deployment.servers.iter().map(|s| (&s.host, &s.address));
    servers
        .chain([meta])
        .filter(move |(named, _)| named.as_deref() == Some(host))
        .filter_map(|(_, address)| {
            let (host, _) = address.tcp.as_deref()?.rsplit_once(':')?;
            Some(host.trim_matches(['[', ']']).to_owned())
        })
}

/// The hosts that a command about this deployment reaches, this one first. On the metadata server's host these are all;
/// elsewhere, and with `--here`, only this one. `None` if the deployment's file names no hosts.
fn reached(located: &Located, only_here: bool) -> Result<Option<Vec<String>>> {
    let Some(here) = here(&located.deployment)? else {
        return Ok(None);
    };
    let all = located.deployment.hosts();
    Ok(Some(if !only_here && all.first() == Some(&here) {
        all.into_iter().map(str::to_owned).collect()
    } else {
        vec![here.to_owned()]
    }))
}

/// Whether DIR has a deployment of several hosts.
pub fn is_in(dir: &Path) -> Result<bool> {
    if !deployment::is_in(dir) {
        return Ok(false);
    }
    let located = service::as_owner(dir, || deployment::load(dir))?;
    Ok(!located.deployment.hosts().is_empty())
}
