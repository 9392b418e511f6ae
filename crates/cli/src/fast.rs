//! Fast tiers: `penstock up --fast`, `penstock drain`, and what `penstock status` says of them.
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::launch::running;
use crate::which::Which;
use crate::{connect, out, size};
use clap::Args;
use indicatif::ProgressBar;
use penstock_layout::ServerId;
use penstock_store::FastSpec;
use penstock_wire::message::{DataStatus, FastStatus};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How often `drain` looks.
const LOOK: Duration = Duration::from_millis(100);
/// `drain` fails when nothing has come home for so long.
const STUCK: Duration = Duration::from_secs(60);
/// Waits shorter than this show no progress.
const SILENT: Duration = Duration::from_secs(2);

/// The value of `--fast`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FastArg {
    /// A directory for the tiers of all servers, as a whole path, and the bytes of each.
    Tier(PathBuf, u64),
    /// None any more.
    Off,
}

impl FromStr for FastArg {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<FastArg, String> {
        if text == "off" {
            return Ok(FastArg::Off);
        }
        let spec = FastSpec::parse(text)?;
        let dir = std::path::absolute(&spec.dir).map_err(|e| e.to_string())?;
        Ok(FastArg::Tier(dir, spec.queue))
    }
}

impl FastArg {
    /// The description of a server's store behind its tier.
    pub fn before(&self, id: ServerId, store: &str) -> String {
        match self {
            FastArg::Tier(dir, queue) => {
                let dir = dir.join(format!("data-{}", id.0));
                format!("fast:{},queue={queue};{store}", dir.display())
            }
            FastArg::Off => store.to_owned(),
        }
    }
}

/// Gives an existing deployment tiers, or takes them away. Servers that run keep what they have, so there must be none.
pub fn change(located: &mut Located, fast: &FastArg) -> Result<()> {
    let stores: Vec<String> = located
        .deployment
        .servers
        .iter()
        .map(|server| fast.before(server.id, server.behind()))
        .collect();
    let servers = &located.deployment.servers;
    if servers.iter().map(|s| &s.store).eq(&stores) {
        return Ok(());
    }
    let dir = located.dir().display();
    let runs =
        |which: &Which| matches!(which, Which::Data(_)) && running(located, *which).is_some();
    if let Some(which) = Which::all(&located.deployment).into_iter().find(runs) {
        return Err(CliError::new(format!(
            "{dir}: {} runs, and --fast would change its store",
            which.name()
        ))
        .next(format!(
            "`penstock drain {dir}` and `penstock down {dir}` first"
        )));
    }
    if *fast != FastArg::Off && servers.iter().any(|server| server.fast().is_some()) {
        return Err(CliError::new(format!("{dir} has fast tiers elsewhere")).next(
            "leave the option out; or drain them, end the servers, and say `--fast off` before another place",
        ));
    }
    for (server, store) in located.deployment.servers.iter_mut().zip(stores) {
        server.store = store;
    }
    located.save()
}

/// Wait until all that is in fast tiers has come to the stores behind them.
///
/// Programs may go on; what they write meanwhile is waited for too. Exit code 0: nothing was waiting when it ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock drain /data/fs                            before the slow store is copied or used without its tier
  penstock drain --timeout 600 && penstock down      at the end of a job")]
pub struct DrainArgs {
    /// Directory of the deployment [default: --deployment].
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Give up after so many seconds [default: as long as bytes come home].
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
}

/// See [`DrainArgs`].
pub fn drain(args: &DrainArgs, named: Option<&Path>) -> Result<()> {
    let located = deployment::find(args.dir.as_deref().or(named))?;
    let client = connect::administrator(&located)?;
    let ids = located.deployment.server_ids();
    let (began, mut moved, mut last) = (Instant::now(), Instant::now(), u64::MAX);
    let bar = ProgressBar::hidden();
    loop {
        let mut waiting = 0;
        let mut problems = Vec::new();
        for id in &ids {
            let failed = |e| CliError::new(format!("data server {}: {e}", id.0));
            let Some(fast) = client.data_status_of(*id).map_err(failed)?.fast else {
                continue;
            };
            if fast.waiting > 0 {
                client.drain(*id).map_err(failed)?;
            }
            waiting += fast.waiting;
            if !fast.problem.is_empty() {
                problems.push(format!("data server {}: {}", id.0, fast.problem));
            }
        }
        if waiting == 0 {
            bar.finish_and_clear();
            out::line(format_args!(
                "{}: nothing waits in a fast tier",
                located.dir().display()
            ));
            return Ok(());
        }
        if waiting < last {
            moved = Instant::now();
        }
        last = waiting;
        let late = args
            .timeout
            .is_some_and(|s| began.elapsed() >= Duration::from_secs(s));
        if late || moved.elapsed() >= STUCK {
            bar.finish_and_clear();
            let why = if problems.is_empty() {
                String::new()
            } else {
                format!(": {}", problems.join("; "))
            };
            return Err(CliError::new(format!(
                "{} still wait in fast tiers{why}",
                size::bytes(waiting)
            ))
            .next("they stay there, safe over crashes; `penstock status` shows what is wrong, then drain again"));
        }
        if bar.is_hidden() && began.elapsed() > SILENT {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        bar.set_message(format!("{} to come home", size::bytes(waiting)));
        bar.tick();
        std::thread::sleep(LOOK);
    }
}

/// A table of the tiers and what is wrong with them, for `penstock status`; empty where there are none.
pub fn to_text(servers: &[(ServerId, &DataStatus)]) -> String {
    let (mut rows, mut problems) = (Vec::new(), String::new());
    for (id, status) in servers {
        let Some(fast) = &status.fast else { continue };
        rows.push(vec![
            format!("data-{}", id.0),
            fast.mode.clone(),
            size::bytes(fast.waiting),
            size::count(fast.objects),
            size::bytes(fast.log),
            size::bytes(fast.limit),
            size::count(fast.writes),
            size::bytes(fast.home),
            format!("{:.1}", fast.h_milli as f64 / 1e3),
            fast.state.clone(),
        ]);
        if !fast.problem.is_empty() {
            problems += &format!("data-{}: fast tier {}: {}\n", id.0, fast.path, fast.problem);
        }
        if fast.damaged > 0 {
            problems += &format!(
                "data-{}: fast tier {}: {} damaged records; `penstock check` names their files\n",
                id.0,
                fast.path,
                size::count(fast.damaged)
            );
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let header = [
        "fast tier",
        "mode",
        "not home",
        "objects",
        "log",
        "of",
        "writes",
        "came home",
        "H",
        "state",
    ];
    format!(
        "\n{}{problems}",
        out::table(&header, &[2, 3, 4, 5, 6, 7, 8], rows)
    )
}

/// The same for programs.
pub fn to_json(fast: Option<&FastStatus>) -> Value {
    let Some(fast) = fast else { return Value::Null };
    json!({
        "path": fast.path, "mode": fast.mode, "state": fast.state, "problem": fast.problem,
        "waiting": fast.waiting, "objects": fast.objects, "log": fast.log, "limit": fast.limit,
        "writes": fast.writes, "bytes": fast.bytes, "refused": fast.refused, "home": fast.home,
        "damaged": fast.damaged, "h": fast.h_milli as f64 / 1e3,
    })
}
