//! `penstock top`: who loads which data server.
//!
//! `rows.rs` has what happened between two looks, `table.rs` how it is shown, `screen.rs` the terminal.
pub mod rows;
mod screen;
mod table;

use crate::asking::{Inquirer, PATIENCE, Round};
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::{out, status};
use clap::{Args, ValueEnum};
use penstock_wire::message::LedgerStatus;
use rows::{Load, Look};
use screen::{Key, Screen};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use table::{Choice, Shown};

/// Rows where no terminal says how many fit.
const ROWS: usize = 20;

/// Show who loads which data server, again and again.
///
/// Users see their own programs, administrators all (docs/administer/security.md). Rates are those between two looks. Bytes by
/// shortcuts are in `read` and `written`; those that a mount leaves to the kernel are not counted.
#[derive(Debug, Args)]
#[command(after_help = "\
Columns:
  read, written, requests   per second, by requests and by shortcuts
  shortcuts  bytes of these per second that went past the server
  queue      how long a second's requests waited for their turn, in all: 2.5 means that 2.5 were waiting on average
  device     the same for the time in which the store worked for them
  io         part of the time with a request under way, at the server with the most
  share      part of all bytes
  gap, /size bytes between one request and the next to the same object, and the same in sizes of the request
  reuse      time from one request of the program to its next, at a server
  servers    which, and what part of the program's bytes each has

Keys on a terminal:
  b r w n s u d i g   sort by bytes, read, written, requests, shortcuts, queue, device, io, gap
  v                   by program, server, job, user
  /                   show what contains a text; Enter ends it
  a                   also what is idle
  q                   quit

Examples:
  penstock top /data/fs
  penstock top --by server --sort queue -d /data/fs
  penstock top --once --filter alice -d /data/fs     a table, for a script or a mail
  penstock top --plain --every 10 -d /data/fs        a table every ten seconds, for a log
  penstock top --json --once -d /data/fs             for programs, with all figures")]
pub struct TopArgs {
    /// Directory of the deployment [default: --deployment].
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Two looks and one table.
    #[arg(long)]
    pub once: bool,
    /// One table after another instead of a screen [default where the output is no terminal].
    #[arg(long)]
    pub plain: bool,
    /// For programs: a line for each look.
    #[arg(long)]
    pub json: bool,
    /// Seconds between looks.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = status::interval)]
    pub every: f64,
    /// What a row is.
    #[arg(long, value_name = "WHAT", value_enum, default_value = "program")]
    pub by: By,
    /// The largest first.
    #[arg(long, value_name = "COLUMN", value_enum, default_value = "bytes")]
    pub sort: Sort,
    /// Rows whose user, job, command or server contains this, in capitals or not.
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Only this data server; may be repeated.
    #[arg(long = "server", value_name = "ID")]
    pub servers: Vec<u32>,
    /// Rows at most; 0: all [default: what fits the terminal, else 20; with --json all].
    #[arg(short = 'n', long, value_name = "N")]
    pub rows: Option<usize>,
    /// Also programs that do nothing now.
    #[arg(short, long)]
    pub all: bool,
}

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A program, over all servers.
    Program,
    /// A program at a server.
    Server,
    /// A job of a user.
    Job,
    /// A user.
    User,
}

/// What rows are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Bytes,
    Read,
    Written,
    Requests,
    Shortcuts,
    Queue,
    Device,
    Io,
    Gap,
    Ratio,
    Reuse,
    User,
    Job,
    Command,
}

impl Sort {
    /// From the beginning of the alphabet.
    fn is_text(self) -> bool {
        matches!(self, Sort::User | Sort::Job | Sort::Command)
    }
}

/// Shows it. Exit code 1 if a server doesn't answer.
pub fn top(args: &TopArgs, named: Option<&Path>) -> Result<ExitCode> {
    let located = deployment::find(args.dir.as_deref().or(named))?;
    for server in &args.servers {
        if located
            .deployment
            .server_ids()
            .iter()
            .all(|id| id.0 != *server)
        {
            return Err(CliError::new(format!(
                "{} has no data server {server}",
                located.file.display()
            )));
        }
    }
    let inquirer = Inquirer::new(&located.deployment)
        .map_err(|why| CliError::new(&why).next(status::next(&why, &located)))?;
    let every = Duration::from_secs_f64(args.every);
    let mut looks = Looks {
        inquirer: inquirer.patient(every.clamp(Duration::from_secs(1), PATIENCE)),
        located,
        before: None,
    };
    let choice = Choice {
        by: args.by,
        sort: args.sort,
        filter: args.filter.clone().unwrap_or_default(),
        servers: args.servers.clone(),
        rows: args.rows,
        all: args.all,
    };
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.once || args.plain || args.json || !terminal {
        lines(args, &mut looks, &choice, every)
    } else {
        live(&mut looks, choice, every)
    }
}

/// One look after another.
struct Looks {
    inquirer: Inquirer,
    located: Located,
    before: Option<Round<LedgerStatus>>,
}

impl Looks {
    /// What happened since the last look.
    fn next(&mut self, choice: &Choice) -> Shown {
        let deployment = &self.located.deployment;
        let mut now = self.inquirer.ledgers();
        now.explain(deployment);
        let load = self.between(&now, choice.by == By::Server);
        let shown = Shown::new(deployment, &now, load);
        if let Some(before) = &self.before {
            now.remember(before);
        }
        self.before = Some(now);
        shown
    }

    fn between(&self, now: &Round<LedgerStatus>, apart: bool) -> Load {
        let servers = self.located.deployment.server_ids();
        let looks: Vec<Look<'_>> = servers
            .iter()
            .zip(&now.data)
            .enumerate()
            .filter_map(|(k, (id, answer))| {
                let before = self.before.as_ref().and_then(|b| b.data.get(k));
                Some(Look {
                    server: id.0,
                    before: before.and_then(|answer| answer.as_ref().ok()),
                    now: answer.as_ref().ok()?,
                })
            })
            .collect();
        rows::between(&looks, apart)
    }
}

/// Tables or JSON, one after another.
fn lines(args: &TopArgs, looks: &mut Looks, choice: &Choice, every: Duration) -> Result<ExitCode> {
    let mut choice = choice.clone();
    if !args.json {
        choice.rows = choice.rows.or(Some(ROWS));
    }
    // What rates are compared with.
    looks.next(&choice);
    loop {
        std::thread::sleep(every);
        let shown = looks.next(&choice);
        let text = if args.json {
            format!("{}\n", shown.to_json(&choice))
        } else if args.once {
            shown.to_text(&choice)
        } else {
            format!("{}\n", shown.to_text(&choice))
        };
        if !out::show(&text) {
            return Ok(ExitCode::SUCCESS);
        }
        if args.once {
            return match shown.silent() {
                0 => Ok(ExitCode::SUCCESS),
                _ if args.json => Ok(ExitCode::FAILURE),
                n => Err(CliError::new(match n {
                    1 => "1 server does not answer".to_string(),
                    n => format!("{n} servers do not answer"),
                })
                .next(format!(
                    "`penstock status {}` says more",
                    looks.located.dir().display()
                ))),
            };
        }
    }
}

/// A screen that is refreshed in place, until somebody quits.
fn live(looks: &mut Looks, mut choice: Choice, every: Duration) -> Result<ExitCode> {
    let screen = Screen::open().map_err(|e| {
        CliError::new(format!("cannot use this terminal: {e}")).next("`--plain` needs none")
    })?;
    let mut shown = looks.next(&choice);
    let mut first = true;
    loop {
        let wait = if first {
            every.min(Duration::from_secs(1))
        } else {
            every
        };
        first = false;
        let until = Instant::now() + wait;
        loop {
            let text = if choice.rows.is_some() {
                shown.to_text(&choice)
            } else {
                shown.to_fit(&choice, screen.lines())
            };
            if !screen.show(&text) {
                return Ok(ExitCode::SUCCESS);
            }
            match screen.key(until) {
                Key::Nothing => break,
                Key::Quit => return Ok(ExitCode::SUCCESS),
                Key::Filter => {
                    if let Some(text) = screen.ask("show what contains: ") {
                        choice.filter = text;
                    }
                }
                Key::Other('a') => choice.all = !choice.all,
                Key::Other('v') => {
                    choice.by = match choice.by {
                        By::Program => By::Server,
                        By::Server => By::Job,
                        By::Job => By::User,
                        By::User => By::Program,
                    };
                    // Servers are kept apart from the next look on.
                    break;
                }
                Key::Other(key) => {
                    choice.sort = match key {
                        'b' => Sort::Bytes,
                        'r' => Sort::Read,
                        'w' => Sort::Written,
                        'n' => Sort::Requests,
                        's' => Sort::Shortcuts,
                        'u' => Sort::Queue,
                        'd' => Sort::Device,
                        'i' => Sort::Io,
                        'g' => Sort::Gap,
                        _ => choice.sort,
                    }
                }
            }
        }
        shown = looks.next(&choice);
    }
}
