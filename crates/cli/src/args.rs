//! The command line: commands, options, and help with examples.
use crate::audit::AuditArgs;
use crate::check::CheckArgs;
use crate::collect::CollectArgs;
use crate::copy::{CpArgs, StageArgs};
use crate::credential::CredentialArgs;
use crate::device::DeviceArgs;
use crate::fast::DrainArgs;
use crate::faults::FaultsArgs;
use crate::job::CleanArgs;
use crate::keys::KeysArgs;
use crate::manual::ManualArgs;
use crate::metrics::MetricsArgs;
use crate::mount::{MountArgs, UmountArgs};
use crate::names::{LsArgs, MkdirArgs, RmArgs, StatArgs};
use crate::profile::ProfileArgs;
use crate::python::PythonArgs;
use crate::quota::QuotaArgs;
use crate::report::ReportArgs;
use crate::run::RunArgs;
use crate::serve::ServeArgs;
use crate::sim::SimArgs;
use crate::status::StatusArgs;
use crate::top::TopArgs;
use crate::trace::TraceArgs;
use crate::tune::TuneArgs;
use crate::updown::{DownArgs, UpArgs};
use crate::view::ViewArgs;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// A parallel I/O stack: unmodified MPI programs read and write files that are striped over servers.
#[derive(Debug, Parser)]
#[command(
    name = "penstock",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  penstock run -n 8 -- ./app penstock:/out          an MPI program on a file system of its own
  penstock up /data/fs --servers 4                  a file system that stays
  penstock cp big.nc penstock:/in/big.nc -d /data/fs
  penstock run -n 8 -d /data/fs -- ./app penstock:/in/big.nc

Inside programs, Penstock's files are those whose name begins with `penstock:`, and those below
the mount path, if one is set. All other files go to the program's own MPI library.
`penstock COMMAND --help` says more about each command."
)]
pub struct Cli {
    /// The deployment: its directory or its deployment.toml [default: $PENSTOCK_DEPLOYMENT].
    #[arg(short, long, global = true, value_name = "PATH")]
    pub deployment: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    Report(ReportArgs),
    View(ViewArgs),
    Up(UpArgs),
    Down(DownArgs),
    Clean(CleanArgs),
    Status(StatusArgs),
    Top(TopArgs),
    Metrics(MetricsArgs),
    Tune(TuneArgs),
    Drain(DrainArgs),
    Ls(LsArgs),
    Stat(StatArgs),
    Cp(CpArgs),
    /// Copy a job's input into Penstock, verified, before the job runs.
    ///
    /// Exit code 0 means that every file is in Penstock, synced, and equal to its source by checksum. Existing files
    /// with the same bytes are left alone, others replaced. So the same command continues after an interruption.
    #[command(after_help = "\
Examples:
  penstock stage-in --from /home/me/case7 --to penstock:/in mesh.h5 forcing/
  penstock stage-in --from /archive --to penstock:/in --list inputs.txt && srun ./app
  find . -name '*.nc' -print0 | penstock stage-in --to penstock:/in --list - -0")]
    StageIn(StageArgs),
    /// Copy a job's output out of Penstock, verified, after the job ran.
    ///
    /// Exit code 0 means that every file is outside, synced, and equal to its source by checksum. Existing files with
    /// the same bytes are left alone, others replaced. So the same command continues after an interruption.
    #[command(after_help = "\
Examples:
  penstock stage-out --from penstock:/out --to /home/me/case7/out .
  penstock stage-out --from penstock:/out --to /archive --list results.txt")]
    StageOut(StageArgs),
    Rm(RmArgs),
    Mkdir(MkdirArgs),
    Credential(CredentialArgs),
    Audit(AuditArgs),
    Quota(QuotaArgs),
    Keys(KeysArgs),
    Check(CheckArgs),
    Trace(TraceArgs),
    Mount(MountArgs),
    Umount(UmountArgs),
    Profile(ProfileArgs),
    Device(DeviceArgs),
    Serve(ServeArgs),
    Sim(SimArgs),
    Faults(FaultsArgs),
    /// Lay arrays in files so that each thread's elements share few blocks of the storage caches.
    ///
    /// Layouts come from a program's loop nests and the hierarchy of caches (docs/use/layout.md). Files are converted to them
    /// and back. Chunk shapes for HDF5 and Zarr come from a trace. `penstock layout COMMAND --help` says more.
    #[command(after_help = "\
Examples:
  penstock layout plan nest.c --hierarchy caches.toml -o layouts.toml
  penstock layout emit layouts.toml --lang c -o at.h          index functions; --lang fortran
  penstock layout convert layouts.toml A.bin A.laid           and back with --back
  penstock layout advise traces --shape 4096x4096 --item 8    chunk shapes, striping unit")]
    Layout(PythonArgs),
    /// Write a program's parallel I/O from annotations in its source (`penstock generate --help` says more).
    Generate(PythonArgs),
    #[command(hide = true)]
    Manual(ManualArgs),
    /// What `penstock up` and `down` run on each host of several (started by them, not by people).
    #[command(hide = true)]
    Agent,
    /// Collects what traced processes of this host record (started by `penstock run --trace` and by them, not by people).
    #[command(hide = true)]
    Collect(CollectArgs),
    /// Clears up behind a `penstock run` that was killed (started by it, not by people).
    #[command(hide = true)]
    Watch,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_program_keeps_its_arguments() {
        for words in [
            "penstock run -n 8 -- ./app -n 3 --json",
            "penstock run -n 8 ./app -n 3 --json",
        ] {
            let cli = Cli::try_parse_from(words.split(' ')).unwrap();
            let Command::Run(run) = cli.command else {
                panic!("not run")
            };
            assert_eq!(run.ranks, Some(8));
            assert_eq!(run.program, ["./app", "-n", "3", "--json"]);
            assert!(!run.json);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for words in [
            "penstock run ./app",
            "penstock run --no-penstock ./app",
            "penstock run -n 2 --trace t --no-penstock --direct ./app",
            "penstock run -n 0 ./app",
            "penstock run -n 2 --direct --store /x ./app",
            "penstock run -n 2 --method fast ./app",
            "penstock run -n 2 --stripe-unit lots ./app",
            "penstock cp a",
        ] {
            assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{words}");
        }
    }
}
