//! `penstock serve`: runs servers of a deployment in this process. Also used by `penstock run`.
use crate::error::{CliError, Result};
use crate::replaced::{ReplacedArgs, WhichStore};
use crate::tracing::Decisions;
use crate::which::Which;
use crate::{deployment, hosts, metadata, notify, service};
use clap::Args;
use penstock_layout::ServerId;
use penstock_rpc::RunningServer;
use penstock_rpc::deployment::Deployment;
use penstock_server::Registration;
use penstock_store::descriptors;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Run servers of a deployment in this process, until SIGTERM.
///
/// `penstock up` starts this for each server; a service manager can run it too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock serve -d /data/fs                         all servers of the deployment that are on this host
  penstock serve -d /data/fs --meta
  penstock serve -d /data/fs --server 0 --server 1
  penstock serve /data/fs/data-0                     one server, as its unit of systemd names it: DIR/meta, DIR/data-N")]
pub struct ServeArgs {
    /// One server of the deployment in DIR: DIR/meta or DIR/data-N.
    #[arg(value_name = "DIR/SERVER", conflicts_with_all = ["meta", "servers", "deployment"])]
    pub path: Option<PathBuf>,
    /// The metadata server.
    #[arg(long)]
    pub meta: bool,
    /// A data server, by number; may be repeated.
    #[arg(long = "server", value_name = "ID")]
    pub servers: Vec<u32>,
    /// Each data server writes a trace of what it does to a file in DIR (docs/administer/traces.md). No request takes another path for it.
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// With --trace: each data server also writes down what its scheduler decides, for `penstock sim --replay`. All requests then go
    /// through the scheduler's queue, and none past the servers.
    #[arg(long, requires = "trace")]
    pub journal: bool,
    #[command(flatten)]
    pub replaced: ReplacedArgs,
    /// Leave the terminal's session, so that closing it does not end the servers.
    #[arg(long, hide = true)]
    pub detach: bool,
}

/// Options for starting servers.
#[derive(Default)]
pub struct How<'a> {
    /// Data servers write what they serve to files in this directory.
    pub trace: Option<&'a Path>,
    /// And what their schedulers decide.
    pub journal: bool,
    /// The deployment file, which servers read again for new keys.
    pub file: Option<&'a Path>,
    /// Servers write their audit logs to this directory.
    pub audit: Option<&'a Path>,
    /// For stores that outlive the servers: they are registered and maintained.
    pub stores: Option<Stores<'a>>,
}

/// The stores of servers that stay.
pub struct Stores<'a> {
    pub replaced: &'a ReplacedArgs,
    /// Ends the wait for the metadata server.
    pub stop: Arc<AtomicBool>,
}

impl Which {
    /// `share`: file descriptors that this server may use.
    fn start(self, deployment: &Deployment, how: &How<'_>, share: usize) -> Result<RunningServer> {
        let failed = |e: &dyn std::fmt::Display| CliError::new(format!("{}: {e}", self.name()));
        match self {
            Which::Meta => {
                let mut options = penstock_meta::Options::default();
                options.limits = options.limits.within(share / 2);
                options.audit = how.audit.map(Path::to_owned);
                options.deployment_file = how.file.map(Path::to_owned);
                penstock_meta::start(deployment, options).map_err(|e| failed(&e))
            }
            Which::Data(id) => {
                let mut options = penstock_server::Options::default();
                options.limits = options.limits.within(share / 4);
                options.audit = how.audit.map(Path::to_owned);
                options.deployment_file = how.file.map(Path::to_owned);
                options.registration = how.stores.as_ref().map(|stores| Registration {
                    renew: stores.replaced.new_store.contains(&WhichStore::Data(id.0)),
                    adopt: stores.replaced.adopt_store.contains(&id.0),
                    stop: stores.stop.clone(),
                });
                if let Some(dir) = how.trace {
                    options.tune = vec![format!("trace={}", dir.display())];
                    if how.journal {
                        options.journal = Some(Arc::new(Decisions::start(self, dir)?));
                    }
                }
                penstock_server::start(deployment, id, options).map_err(|e| failed(&e))
            }
        }
    }
}

/// Servers that run in this process.
pub struct Servers(Vec<RunningServer>);

impl Servers {
    /// Starts them; if one can't start, those before it are ended.
    pub fn start(deployment: &Deployment, which: &[Which], how: &How<'_>) -> Result<Servers> {
        let share = descriptors::limit() / which.len().max(1);
        which
            .iter()
            .map(|w| w.start(deployment, how, share))
            .collect::<Result<_>>()
            .map(Servers)
    }

    /// Ends them all, data servers first. Returns when their data are durable.
    pub fn stop(self) {
        for server in self.0.into_iter().rev() {
            server.stop();
        }
    }
}

/// The deployment's directory and the server that DIR/SERVER stands for. The path need not be there.
fn one(path: &Path) -> Result<(&Path, Which)> {
    let which = path
        .file_name()
        .and_then(|name| Which::named(name.to_str()?));
    match (path.parent(), which) {
        (Some(dir), Some(which)) => Ok((dir, which)),
        _ => Err(CliError::new(format!("{} names no server", path.display()))
            .next("write DIR/meta, or DIR/data-0 and so on, where DIR is the deployment's")),
    }
}

/// Runs servers until a signal says to end.
pub fn serve(args: &ServeArgs, named: Option<&Path>) -> Result<()> {
    let of_path = args.path.as_deref().map(one).transpose()?;
    let mut located = match &of_path {
        Some((dir, _)) => deployment::load(dir)?,
        None => deployment::find(named)?,
    };
    located.deployment.take_credentials();
    service::become_owner(located.dir())?;
    service::without_core()?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    if args.detach {
        // Fails only if this process leads a group already; then it has no terminal to lose.
        let _ = rustix::process::setsid();
    }
    let mut which = Vec::new();
    if args.meta {
        which.push(Which::Meta);
    }
    let mut ids: Vec<ServerId> = args.servers.iter().copied().map(ServerId).collect();
    match of_path {
        Some((_, Which::Data(id))) => ids.push(id),
        Some((_, Which::Meta)) => which.push(Which::Meta),
        None => {}
    }
    for id in ids {
        if located.deployment.server(id).is_none() {
            return Err(CliError::new(format!(
                "{} has no data server {}",
                located.file.display(),
                id.0
            ))
            .next(format!(
                "its data servers are {}",
                located
                    .deployment
                    .server_ids()
                    .iter()
                    .map(|s| s.0.to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            )));
        }
        which.push(Which::Data(id));
    }
    if which.is_empty() {
        which = hosts::servers_here(&located.deployment)?;
    }
    descriptors::raise_limit();
    service::obey_quotas()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    }
    crate::service::ignore_user_signals()?;
    if which.contains(&Which::Meta) {
        metadata::refuse_lost(&located, &args.replaced)?;
    }
    let logs = located.log_dir();
    if let Err(e) = deployment::make_dir(&logs) {
        log::warn!("{e}; nothing is written to the audit log");
    }
    let how = How {
        trace: args.trace.as_deref(),
        journal: args.journal,
        file: Some(&located.file),
        audit: Some(&logs),
        stores: Some(Stores {
            replaced: &args.replaced,
            stop,
        }),
    };
    let servers = Servers::start(&located.deployment, &which, &how)?;
    if which.contains(&Which::Meta) {
        metadata::note(&located);
    }
    let names: Vec<String> = which.iter().map(|w| w.name()).collect();
    log::info!("{}: serving {}", located.dir().display(), names.join(", "));
    notify::ready();
    let signal = signals.forever().next();
    log::info!("signal {}: ending", signal.unwrap_or_default());
    notify::stopping();
    servers.stop();
    log::info!("ended");
    Ok(())
}
