//! `penstock run --job`: a deployment over the local disks of the job's nodes, which lives as long as one program.
//!
//! It is made like that of `penstock up --hosts`, filled by `penstock stage-in`, emptied by `penstock stage-out`, and
//! removed by `penstock clean`. Until it is filled, all hosts undo everything after any failure. From then on the file
//! `unsaved` says that its output is to be staged out. Only staging out, or `clean --discard`, then removes it.
use super::RunArgs;
use crate::copy::{self, OnLink, StageArgs, Way};
use crate::deployment::Located;
use crate::error::{CliError, Result};
use crate::hosts::{self, ForJob, HostsArgs, ReachArgs, Via};
use crate::job::{self, CREDENTIAL, INPUT, Id, OUTPUT};
use crate::names::{self, MkdirArgs};
use crate::out;
use crate::replaced::ReplacedArgs;
use crate::updown::UpArgs;
use crate::watcher::Watcher;
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Options of a run over the disks of a job's nodes.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// Make a file system over the local disks of the job's nodes (--store names the disk), and remove it afterwards. Without
    /// a job of Slurm or PBS: on the hosts of --hosts or --hostfile, or on this one. ID names it where the scheduler doesn't.
    #[arg(long, value_name = "ID", num_args = 0..=1, require_equals = true, default_missing_value = "",
          conflicts_with_all = ["deployment", "direct", "keep", "trace"])]
    pub job: Option<String>,
    /// Before the program starts, copy the contents of DIR to penstock:/in, verified.
    #[arg(long, value_name = "DIR", requires = "job")]
    pub stage_in: Option<PathBuf>,
    /// When the program has ended, in any way, copy the contents of penstock:/out to DIR, verified. SIGUSR1 ends the
    /// program and does the same. If the copy fails, the data stay on the nodes.
    #[arg(long, value_name = "DIR", requires = "job")]
    pub stage_out: Option<PathBuf>,
    #[command(flatten)]
    pub hosts: HostsArgs,
    /// How to run a command on another host: ssh, srun, or words with {host} and {command} [default: $PENSTOCK_VIA; in
    /// a Slurm job srun, else ssh].
    #[arg(long, value_name = "HOW", requires = "job")]
    pub via: Option<Via>,
}

/// The running deployment of a job.
pub struct Deployed {
    pub located: Located,
    id: Id,
    base: PathBuf,
    reach: ReachArgs,
    out: Option<PathBuf>,
    /// The program has started and may have written.
    pub used: bool,
    over: bool,
}

/// Whether `srun` starts programs here.
pub fn in_slurm() -> bool {
    std::env::var_os("SLURM_JOB_ID").is_some()
}

/// Refuses options that are for `--job` alone.
pub fn refuse_without(job: &JobArgs) -> Result<()> {
    let hosts = &job.hosts;
    if job.job.is_none() && (hosts.are_named() || hosts.net.is_some() || hosts.ports.is_some()) {
        return Err(CliError::new(
            "--hosts, --hostfile, --net and --ports say where the deployment of --job is",
        )
        .next("add --job, or see `penstock up --help` for a permanent one"));
    }
    Ok(())
}

/// Makes the deployment, and stages the input in.
pub fn begin(args: &RunArgs, named: &str, watcher: &mut Watcher) -> Result<Deployed> {
    let job = &args.job;
    let id = match named {
        "" => Id::own()?,
        said => said.parse().map_err(CliError::new)?,
    };
    let base = job::base(args.store.as_deref())?;
    let dir = id.directory(&base);
    if dir.symlink_metadata().is_ok() {
        return Err(CliError::new(format!("{} is there already", dir.display())).next(format!(
            "if its run has ended: `penstock clean --job {id} --store {}`; for a second one at the same time: --job={id}.2",
            base.display()
        )));
    }
    let out = job.stage_out.as_deref().map(target).transpose()?;
    if let Some(from) = &job.stage_in
        && !from.is_dir()
    {
        return Err(CliError::new(format!(
            "--stage-in {} is no directory",
            from.display()
        )));
    }
    let mut hosts = job.hosts.clone();
    if !hosts.are_named() {
        if hosts::in_job() {
            hosts.hosts = Some("job".into());
        } else {
            hosts.hosts = Some(hosts::own_name()?);
            // No other host has to reach it.
            hosts.net = hosts.net.or_else(|| "lo".parse().ok());
        }
    }
    let said = std::env::var_os(hosts::VIA).is_some();
    let via = match &job.via {
        None if !said && in_slurm() => Some(Via::Srun),
        via => via.clone(),
    };
    let reach = ReachArgs {
        via,
        ..ReachArgs::default()
    };
    let up = UpArgs {
        fast: None,
        dir,
        hosts,
        reach: reach.clone(),
        shape: args.shape.clone(),
        trace: None,
        journal: false,
        tcp: None,
        transport: None,
        munge: None,
        group: None,
        // The job's user, even if that is root.
        service_user: rustix::process::geteuid().is_root().then(|| "0".into()),
        memory: false,
        replaced: ReplacedArgs::default(),
    };
    let marks = ForJob {
        unsaved: out.as_ref().map(|to| to.display().to_string()),
    };
    let located = hosts::for_job(&up, &marks, |located| {
        fill(located, job.stage_in.as_deref(), args.quiet)?;
        match located.deployment.hosts().len() {
            0 | 1 => Ok(None),
            _ => crate::credential::for_job(located, &id.to_string()).map(Some),
        }
    })?;
    let deployed = Deployed {
        located,
        id,
        base,
        reach,
        out,
        used: false,
        over: false,
    };
    watcher.clean(&deployed.clean_words())?;
    if !args.quiet {
        let all = deployed.located.deployment.hosts();
        out::note(format_args!(
            "job {}: {} data servers on {}, in {}",
            deployed.id,
            deployed.located.deployment.servers.len(),
            hosts::some(&all),
            deployed.located.dir().display()
        ));
    }
    Ok(deployed)
}

/// The output directory. It must exist and be writable before the program starts.
fn target(to: &Path) -> Result<PathBuf> {
    let to = std::path::absolute(to).map_err(|e| CliError::io("find", to, e))?;
    std::fs::create_dir_all(&to).map_err(|e| CliError::io("make", &to, e))?;
    tempfile::Builder::new()
        .prefix(".penstock-")
        .tempfile_in(&to)
        .map_err(|e| {
            CliError::io("write into", &to, e).next("name a directory of your own with --stage-out")
        })?;
    Ok(to)
}

fn fill(located: &Located, from: Option<&Path>, quiet: bool) -> Result<()> {
    let made = MkdirArgs {
        paths: vec![INPUT.into(), OUTPUT.into()],
        parents: true,
    };
    names::mkdir(&made, Some(&located.file))?;
    let Some(from) = from else { return Ok(()) };
    let from = std::path::absolute(from).map_err(|e| CliError::io("find", from, e))?;
    stage(Way::In, from.into(), INPUT.into(), located, quiet)
}

/// Stages everything that is in `from`.
fn stage(way: Way, from: OsString, to: OsString, located: &Located, quiet: bool) -> Result<()> {
    let all = StageArgs {
        paths: vec![".".into()],
        from: Some(from),
        to: Some(to),
        list: None,
        null: false,
        links: OnLink::Copy,
        json: false,
    };
    copy::stage_quietly(way, &all, Some(&located.file), quiet)
}

impl Deployed {
    /// The credential file with which ranks on other hosts prove their user.
    pub fn credential(&self) -> Option<PathBuf> {
        let several = self.located.deployment.hosts().len() > 1;
        several.then(|| self.located.dir().join(CREDENTIAL))
    }

    /// The command that cleans up after a run that was killed.
    fn clean_words(&self) -> Vec<String> {
        let mut words = vec![
            "clean".to_owned(),
            format!("--job={}", self.id),
            format!("--store={}", self.base.display()),
        ];
        if let Some(via) = &self.reach.via {
            words.push(format!("--via={via}"));
        }
        words
    }

    /// Stages the output out, ends the servers and removes everything. If the output cannot be staged out, it stays,
    /// with an error.
    pub fn end(mut self, quiet: bool) -> Result<()> {
        self.over = true;
        if let Some(to) = &self.out {
            let out = stage(
                Way::Out,
                OUTPUT.into(),
                to.clone().into(),
                &self.located,
                quiet,
            );
            if let Err(error) = out {
                let (what, _) = error.into_parts();
                // When its servers have ended, everything is durable.
                if let Err(e) = hosts::clean(&self.located, &self.reach, false) {
                    out::note(e);
                }
                let to = to.display().to_string();
                let (kept, next) = job::kept(self.located.dir(), &to, "").into_parts();
                return Err(CliError::new(format!("stage-out failed: {what}\n  {kept}"))
                    .next(next.unwrap_or_default()));
            }
        }
        if let Err(e) = hosts::clean(&self.located, &self.reach, true) {
            // The program has run, and its output was staged out.
            out::note(format_args!(
                "not all was removed: {e}\n  `penstock clean --job {} --store {} --discard` on each host removes the rest",
                self.id,
                self.base.display()
            ));
        }
        Ok(())
    }
}

impl Drop for Deployed {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // A step between the start of the servers and the end of the program failed.
        if let Err(e) = hosts::clean(&self.located, &self.reach, !self.used) {
            out::note(e);
        }
    }
}
