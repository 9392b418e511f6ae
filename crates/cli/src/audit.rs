//! `penstock audit`: what servers of this host refused, and what administrators did.
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::life::Life;
use crate::which::Which;
use crate::{out, service, users};
use clap::Args;
use penstock_rpc::audit::{Audit, Event, OLD_FILES, Outcome, Subject, path_of, time_text};
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The name that records of commands carry; no server wrote them.
const AUTHORITY: &str = "authority";
/// The longest line that is read, in bytes. Servers write less.
const LINE: u64 = 16 << 10;
/// The longest object and the longest reason in the table, in characters.
const OBJECT: usize = 48;
const REASON: usize = 72;

/// Show what servers refused, and what administrators did.
///
/// Each server writes its records to log/audit-NAME.jsonl of the deployment's directory on its host, at most 5 files of
/// 8 MiB. This command merges those of this host by time. The deployment's owner and root can read them. The first four
/// records of a minute, by the same peer and of the same event, are written one by one. Later ones become one record
/// with a count.
#[derive(Debug, Args)]
#[command(after_help = "\
Events that are refused:
  key         wrong key                           credential  none, bad, or ended (TCP)
  deployment  another deployment is meant         handshake   failed otherwise
  protocol    connection broke the protocol       limit       a limit was reached
  permission  owner, mode bits, rights            capability  forged, another user's, or ended
  descriptor  not the owner of the file
Acts of administrators, done, or refused to others:
  tune        settings changed                    list        all files or objects listed
  remove      object removed (check --repair)     accept      taken as it is (check --accept-lost)
  verify      store examined (check)              store       accepted as new, or adopted
  issue       credential made                     start, stop of a server
dropped: so many records were lost here, since they came faster than they could be written.

Examples:
  penstock audit -d /data/fs                      the last 200 records
  penstock audit --since 1h --event permission    who was refused files in the last hour?
  penstock audit --user alice --last 1000
  penstock audit --json --since 7d | jq 'select(.outcome == \"refused\") | .peer' | sort | uniq -c

docs/administer/security.md says what each field means.")]
pub struct AuditArgs {
    /// Records of this event only; may be repeated.
    #[arg(long = "event", value_name = "EVENT", value_parser = words())]
    pub events: Vec<String>,
    /// Records of this user only.
    #[arg(long, value_name = "NAME|UID")]
    pub user: Option<String>,
    /// Records of the last 90m, 24h, 7d only.
    #[arg(long, value_name = "TIME")]
    pub since: Option<Life>,
    /// The newest N records at most [default: 200; with --json all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub last: Option<u32>,
    /// For programs: a record a line, as the servers wrote it.
    #[arg(long)]
    pub json: bool,
}

/// Records that the table shows by default.
const LAST: u32 = 200;

fn words() -> clap::builder::PossibleValuesParser {
    Event::ALL.map(Event::word).to_vec().into()
}

/// The records that are asked for.
struct Filter<'a> {
    events: &'a [String],
    user: Option<u32>,
    since: Option<String>,
}

impl Filter<'_> {
    fn takes(&self, record: &Value) -> bool {
        let event = record["event"].as_str().unwrap_or_default();
        let user = record["user"].as_u64();
        let late = |since: &str| record["time"].as_str().unwrap_or_default() >= since;
        (self.events.is_empty() || self.events.iter().any(|e| e == event))
            && self.user.is_none_or(|uid| user == Some(uid.into()))
            && self.since.as_deref().is_none_or(late)
    }
}

/// Shows records.
pub fn audit(args: &AuditArgs, named: Option<&Path>) -> Result<()> {
    let located = deployment::find(named)?;
    let filter = Filter {
        events: &args.events,
        user: args
            .user
            .as_deref()
            .map(users::named)
            .transpose()?
            .map(|user| user.uid),
        since: args
            .since
            .map(|life| time_text(now_ms().saturating_sub(life.as_ms()))),
    };
    let mut logs = Vec::new();
    for name in names(&located) {
        logs.extend(Log::open(&located.log_dir(), &name)?);
    }
    if logs.is_empty() {
        return Err(CliError::new(format!(
            "there is no audit log in {}",
            located.log_dir().display()
        ))
        .next("servers write it on their own hosts; run this command there, or start them with `penstock up`"));
    }
    let most = match (args.last, args.json) {
        (None, true) => None,
        (last, _) => Some(last.unwrap_or(LAST) as usize),
    };
    let mut newest = VecDeque::new();
    while let Some((record, line)) = next(&mut logs)? {
        if !filter.takes(&record) {
            continue;
        }
        match most {
            None => out::print(&line),
            Some(most) => {
                if newest.len() == most {
                    newest.pop_front();
                }
                newest.push_back((record, line));
            }
        }
    }
    if args.json {
        newest.iter().for_each(|(_, line)| out::print(line));
    } else if newest.is_empty() {
        out::line("no such records");
    } else {
        out::print(&table(&newest));
    }
    let unreadable: u64 = logs.iter().map(|log| log.unreadable).sum();
    if unreadable > 0 {
        out::note(format_args!(
            "{unreadable} lines are not records: a crash may have cut them"
        ));
    }
    Ok(())
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn names(located: &Located) -> Vec<String> {
    let servers = Which::all(&located.deployment).into_iter();
    let names = servers.map(Which::name);
    names.chain([AUTHORITY.to_owned()]).collect()
}

/// The record that comes next in time.
fn next(logs: &mut [Log]) -> Result<Option<(Value, String)>> {
    let time = |log: &Log| Some(log.head.as_ref()?.0["time"].as_str()?.to_owned());
    let first = (0..logs.len())
        .filter_map(|n| Some((time(&logs[n])?, n)))
        .min();
    let Some((_, n)) = first else { return Ok(None) };
    let log = &mut logs[n];
    let record = log.head.take();
    log.advance()?;
    Ok(record)
}

/// The files of one server, oldest first.
struct Log {
    files: VecDeque<(PathBuf, BufReader<File>)>,
    /// The next record, and its line in the file.
    head: Option<(Value, String)>,
    unreadable: u64,
}

impl Log {
    /// The files of server `name`; `None` if there are none.
    fn open(directory: &Path, name: &str) -> Result<Option<Log>> {
        let mut files = VecDeque::new();
        // A rotation may rename files while they are opened. A file that is open stays the same file.
        for n in (0..=OLD_FILES).rev() {
            let path = path_of(directory, name, n);
            match File::open(&path) {
                Ok(file) => files.push_back((path, BufReader::new(file))),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                    return Err(CliError::io("read", &path, e).next(
                        "only the deployment's owner and root may read the audit log; run this command as one of them",
                    ));
                }
                Err(e) => return Err(CliError::io("read", &path, e)),
            }
        }
        if files.is_empty() {
            return Ok(None);
        }
        let mut log = Log {
            files,
            head: None,
            unreadable: 0,
        };
        log.advance()?;
        Ok(Some(log))
    }

    /// Reads on to the next record.
    fn advance(&mut self) -> Result<()> {
        let mut line = Vec::new();
        while let Some((path, file)) = self.files.front_mut() {
            line.clear();
            let read = file.by_ref().take(LINE).read_until(b'\n', &mut line);
            if read.map_err(|e| CliError::io("read", path, e))? == 0 {
                self.files.pop_front();
                continue;
            }
            match serde_json::from_slice::<Value>(&line) {
                Ok(record) if record["time"].is_string() => {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    self.head = Some((record, line));
                    return Ok(());
                }
                _ => self.unreadable += 1,
            }
        }
        Ok(())
    }
}

fn table(records: &VecDeque<(Value, String)>) -> String {
    let text = |record: &Value, field: &str| match &record[field] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows = records.iter().map(|(r, _)| {
        let times = match r["count"].as_u64() {
            Some(count) => format!("{count} x "),
            None => String::new(),
        };
        let time = text(r, "time");
        vec![
            time.split('.').next().unwrap_or(&time).replace('T', " "),
            text(r, "server"),
            text(r, "event"),
            text(r, "outcome"),
            text(r, "user"),
            text(r, "role"),
            text(r, "peer"),
            shortened(&text(r, "object"), OBJECT),
            shortened(&format!("{times}{}", text(r, "reason")), REASON),
        ]
    });
    let header = [
        "time (UTC)",
        "server",
        "event",
        "outcome",
        "user",
        "role",
        "peer",
        "object",
        "reason",
    ];
    out::table(&header, &[], rows.collect())
}

/// At most `most` characters, without control characters. Whoever can write the files could otherwise move the
/// terminal's cursor.
fn shortened(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    let mut short: String = text.chars().take(most).map(plain).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

/// Writes an audit record: a credential was made. A record that cannot be written is reported, and is no failure.
pub fn issued(located: &Located, object: &str, reason: &str) {
    let directory = located.log_dir();
    let me = rustix::process::geteuid().as_raw();
    let noted = service::as_owner(located.dir(), || {
        let audit = Audit::start(Some(&directory), AUTHORITY);
        let subject = Subject::itself(Some(me), "authority");
        let object = Some(object.as_bytes());
        audit.note(Event::Issue, Outcome::Done, &subject, object, reason);
        audit.stop();
        Ok(audit.status().dropped == 0)
    });
    if !matches!(noted, Ok(true)) {
        out::note(format_args!(
            "the audit log in {} cannot be written: this credential is not noted there",
            directory.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_merged_by_time_over_rotations_and_cut_lines_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let line =
            |ms: u64, user: u32| format!("{{\"time\":\"{}\",\"user\":{user}}}\n", time_text(ms));
        let write = |name: &str, n: u32, text: String| {
            std::fs::write(path_of(dir.path(), name, n), text).unwrap();
        };
        write("meta", 1, line(1_000, 1) + &line(4_000, 4));
        write("meta", 0, format!("{{\"cut\n{}", line(5_000, 5)));
        write(
            "data-0",
            0,
            line(2_000, 2) + &line(3_000, 3) + &line(6_000, 6),
        );
        let open = |name: &str| Log::open(dir.path(), name).unwrap();
        assert!(open("data-1").is_none());
        let mut logs: Vec<Log> = ["meta", "data-0"].into_iter().filter_map(open).collect();
        let mut users = Vec::new();
        while let Some((record, _)) = next(&mut logs).unwrap() {
            users.push(record["user"].as_u64().unwrap());
        }
        assert_eq!(users, [1, 2, 3, 4, 5, 6]);
        assert_eq!(logs.iter().map(|log| log.unreadable).sum::<u64>(), 1);
    }

    #[test]
    fn what_is_asked_for_is_shown() {
        let record = serde_json::json!({"time": time_text(2_000), "event": "key", "user": 7});
        let events = ["key".to_owned()];
        let filter = |events: &[String], user: Option<u32>, since: Option<u64>| {
            let since = since.map(time_text);
            Filter {
                events,
                user,
                since,
            }
            .takes(&record)
        };
        assert!(filter(&[], None, None) && filter(&events, Some(7), Some(2_000)));
        assert!(!filter(&["tune".to_owned()], None, None));
        assert!(!filter(&[], Some(8), None) && !filter(&[], None, Some(2_001)));
        assert_eq!(shortened("a\x1bb", 9), "a?b");
        assert_eq!(shortened("abcd", 3), "abc…");
    }
}
