//! The `penstock` command.
//!
//! ```text
//! run/          programs under their launcher          serve.rs      servers in this process
//! report.rs     summaries of former runs
//! updown.rs     a deployment's servers start and end    launch.rs     as processes of this host
//! hosts/        the same on several hosts              status.rs     what they say of themselves
//! asking.rs     all servers at once                    top/           who loads them
//! metrics/       the same for Prometheus           view/         a trace in a browser
//! http.rs       requests and answers of both
//! job.rs        the deployment of a job, and what is left of it
//! tune.rs       settings of running servers              fast.rs      fast tiers: made, drained
//! names.rs      ls, stat, rm, mkdir                     copy/         cp, stage-in, stage-out
//! mount.rs      mount, umount
//! credential.rs users over TCP                       users.rs      as the system knows them
//! revocation.rs  credentials taken back
//! audit.rs      what was refused, and who did what
//! quota.rs      limits on the files of users
//! check.rs      consistency                             deployment.rs making and finding deployments
//! trace/        traces                              profile/      storage devices
//! sim.rs        clusters on virtual time           device/       devices: characterised, replayed, figures
//! python.rs     commands written in Python             manual.rs     manual pages, completions
//! args.rs       the command line                        connect.rs, out.rs, size.rs, error.rs, process.rs
//! ```
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod asking;
mod audit;
mod check;
mod collect;
mod connect;
mod copy;
mod credential;
mod deployment;
mod device;
mod error;
mod fast;
mod faults;
mod hosts;
mod http;
mod job;
mod keys;
mod launch;
mod life;
mod manual;
mod metadata;
mod metrics;
mod mount;
mod names;
mod new_deployment;
mod notify;
mod out;
mod process;
mod profile;
mod programs;
mod python;
mod quota;
mod replaced;
mod report;
mod revocation;
mod run;
mod serve;
mod service;
mod settings;
mod sim;
mod size;
mod status;
mod top;
mod trace;
mod tracing;
mod tune;
mod updown;
mod users;
mod view;
mod watcher;
mod which;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use error::Result;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The environment variable with the filter of log messages, such as `debug` or `penstock_meta=trace`.
const LOG_VARIABLE: &str = "PENSTOCK_LOG";
/// Exit code of a failure of the command itself.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.command {
        Command::Serve(_) => "info",
        Command::Mount(ref args) if args.foreground => "info,fuser=warn",
        // Warnings of simulated servers are the effect of the planned faults.
        Command::Faults(_) => "off",
        _ => "warn",
    };
    env_logger::Builder::from_env(env_logger::Env::new().filter_or(LOG_VARIABLE, level)).init();
    outlive_file_limits();
    match dispatch(&cli) {
        Ok(code) => code,
        Err(error) => {
            out::note(error);
            ExitCode::from(FAILED)
        }
    }
}

/// Catches the signal of a file beyond the limit of sizes (`ulimit -f`). Such a file is then an error of one request;
/// the signal would end the server. A handler, unlike an ignored signal, is not inherited by programs that are started.
fn outlive_file_limits() {
    let seen = Arc::new(AtomicBool::new(false));
    if let Err(e) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, seen) {
        log::warn!("a file beyond `ulimit -f` would end this process: {e}");
    }
}

fn dispatch(cli: &Cli) -> Result<ExitCode> {
    let deployment = cli.deployment.as_deref();
    let done = |()| ExitCode::SUCCESS;
    match &cli.command {
        Command::Run(args) => run::run(args, deployment),
        Command::Report(args) => report::report(args).map(done),
        Command::Up(args) => updown::up(args).map(done),
        Command::Down(args) => updown::down(args, deployment).map(done),
        Command::Status(args) => status::status(args, deployment),
        Command::View(args) => view::view(args).map(done),
        Command::Top(args) => top::top(args, deployment),
        Command::Metrics(args) => metrics::metrics(args, deployment).map(done),
        Command::Clean(args) => job::clean(args).map(done),
        Command::Drain(args) => fast::drain(args, deployment).map(done),
        Command::Tune(args) => tune::tune(args, deployment).map(done),
        Command::Ls(args) => names::ls(args, deployment).map(done),
        Command::Stat(args) => names::stat(args, deployment).map(done),
        Command::Cp(args) => copy::cp(args, deployment).map(done),
        Command::StageIn(args) => copy::stage(copy::Way::In, args, deployment).map(done),
        Command::StageOut(args) => copy::stage(copy::Way::Out, args, deployment).map(done),
        Command::Rm(args) => names::rm(args, deployment).map(done),
        Command::Mkdir(args) => names::mkdir(args, deployment).map(done),
        Command::Credential(args) => credential::credential(args, deployment).map(done),
        Command::Audit(args) => audit::audit(args, deployment).map(done),
        Command::Keys(args) => keys::keys(args, deployment).map(done),
        Command::Quota(args) => quota::quota(args, deployment).map(done),
        Command::Check(args) => check::check(args, deployment),
        Command::Trace(args) => trace::trace(args),
        Command::Mount(args) => mount::mount(args, deployment).map(done),
        Command::Umount(args) => mount::umount(args).map(done),
        Command::Profile(args) => profile::profile(args, deployment),
        Command::Device(args) => device::device(args),
        Command::Serve(args) => serve::serve(args, deployment).map(done),
        Command::Sim(args) => sim::sim(args).map(done),
        Command::Faults(args) => faults::faults(args),
        Command::Layout(args) => python::hand_over("layout", args).map(|never| match never {}),
        Command::Generate(args) => python::hand_over("generate", args).map(|never| match never {}),
        Command::Manual(args) => manual::manual(args, &Cli::command()).map(done),
        Command::Agent => hosts::agent::agent().map(done),
        Command::Collect(args) => collect::collect(args).map(done),
        Command::Watch => watcher::watch(std::io::stdin().lock()).map(done),
    }
}
