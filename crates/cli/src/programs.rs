//! The programs of a deployment in `penstock status`: their users, hosts and commands.
use crate::{connect, out, size, users};
use penstock_client::Client;
use penstock_rpc::deployment::Deployment;
use penstock_rpc::printable;
use penstock_wire::message::{ProgramRow, Programs, Traffic};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The longest command in a table, in characters.
const SHOWN: usize = 60;
/// The most programs that `down` names.
const NAMED: usize = 10;
/// The number that servers give to all programs beyond those that they count separately.
const OTHERS: u64 = u64::MAX;

/// The metadata server's list of programs for this user.
#[derive(Debug, Default)]
pub struct Listed(Programs);

/// Asks with the rights of an administrator if there is a credential for that. A server that does not answer has been
/// reported before.
pub fn ask(client: &Client, deployment: &Deployment) -> Listed {
    let own = || client.programs().unwrap_or_default();
    let all = connect::program_inspector(deployment);
    let all = all.and_then(|client| client.and_then(|client| client.programs()).ok());
    Listed(all.unwrap_or_else(own))
}

/// Programs and mounts that use the servers, for people; empty where the metadata server does not answer.
pub fn users_of(deployment: &Deployment) -> Vec<String> {
    let Ok(client) = connect::inspector(deployment) else {
        return Vec::new();
    };
    let listed = ask(&client, deployment);
    let programs = listed.programs();
    let lines = programs.iter().filter_map(|((_, uid), rows)| {
        let info = &rows.first()?.info;
        let job = match info.job.as_str() {
            "" => String::new(),
            job => format!("job {}, ", printable(job)),
        };
        Some(format!(
            "{}: {job}{}",
            whose(*uid, rows),
            beginning(&info.command)
        ))
    });
    let mut lines: Vec<String> = lines.collect();
    let more = lines.len().saturating_sub(NAMED);
    lines.truncate(NAMED);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn user(uid: u32) -> String {
    users::name(uid).unwrap_or_else(|| uid.to_string())
}

/// The beginning of a text that was received from others.
fn beginning(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// `alice@node1`, or `alice@node1 +3` of a program on four hosts.
fn whose(uid: u32, rows: &[&ProgramRow]) -> String {
    let Some(first) = rows.first() else {
        return user(uid);
    };
    let name = format!("{}@{}", user(first.uid), printable(&first.info.host));
    match rows.len() {
        1 => name,
        hosts => format!("{name} +{}", hosts - 1),
    }
}

fn dash(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}

fn per_second(bytes: u64) -> String {
    match bytes {
        0 => "-".into(),
        bytes => format!("{}/s", size::bytes(bytes)),
    }
}

impl Listed {
    /// The hosts of each program of each user; none for a program that has only traffic.
    fn programs(&self) -> BTreeMap<(u64, u32), Vec<&ProgramRow>> {
        let mut programs: BTreeMap<(u64, u32), Vec<&ProgramRow>> = BTreeMap::new();
        for row in &self.0.rows {
            programs
                .entry((row.program, row.uid))
                .or_default()
                .push(row);
        }
        for row in &self.0.traffic {
            programs.entry((row.program, row.uid)).or_default();
        }
        programs
    }

    /// Bytes per second through the servers for a program.
    fn rate(&self, program: u64, uid: u32) -> Traffic {
        let mut rows = self.0.traffic.iter();
        let row = rows.find(|row| (row.program, row.uid) == (program, uid));
        row.map_or(Traffic::default(), |row| row.traffic)
    }

    /// A program as tables name it: by its user, host and command, or by its number if those are not known.
    pub fn name(&self, program: u64) -> String {
        if program == OTHERS {
            return "others".into();
        }
        let programs = self.programs();
        let names = programs
            .range((program, 0)..=(program, u32::MAX))
            .filter_map(|((_, uid), rows)| {
                let command = beginning(&rows.first()?.info.command);
                Some(format!("{} {command}", whose(*uid, rows)))
            });
        let names: Vec<String> = names.collect();
        if names.is_empty() {
            program.to_string()
        } else {
            names.join(", ")
        }
    }

    /// A table; empty if there are no programs.
    pub fn to_text(&self) -> String {
        let mut rows: Vec<Vec<String>> = self
            .programs()
            .into_iter()
            .map(|((program, uid), hosts)| self.line(program, uid, &hosts))
            .collect();
        let others = &self.0.others;
        if !others.is_empty() {
            let mut row = vec!["others".to_owned(), "-".into(), "-".into(), "-".into()];
            row.extend([per_second(others.read), per_second(others.written)]);
            row.push("-".into());
            rows.push(row);
        }
        if rows.is_empty() {
            return String::new();
        }
        let header = ["user", "job", "ranks", "for", "reads", "writes", "command"];
        format!("\n{}", out::table(&header, &[2, 3, 4, 5], rows))
    }

    fn line(&self, program: u64, uid: u32, hosts: &[&ProgramRow]) -> Vec<String> {
        let rate = self.rate(program, uid);
        let first = hosts.first().map(|row| &row.info);
        let age = hosts.iter().map(|row| row.age_ms).max();
        let ranks = first.and_then(|info| info.ranks);
        vec![
            whose(uid, hosts),
            dash(first.map_or(String::new(), |info| printable(&info.job))),
            ranks.map_or("-".into(), |n| size::count(n.into())),
            age.map_or("-".into(), |ms| size::duration(ms as f64 / 1e3)),
            per_second(rate.read),
            per_second(rate.written),
            match first {
                Some(info) => dash(beginning(&info.command)),
                None if program == 0 => "(no program)".into(),
                None => format!("(program {program})"),
            },
        ]
    }

    /// A row for each host of each program, and one for a program that is not listed but has traffic. Rates are those
    /// of the program on all hosts.
    pub fn to_json(&self) -> Value {
        let none = ProgramRow::default();
        let mut all = Vec::new();
        for ((program, uid), hosts) in self.programs() {
            let rate = self.rate(program, uid);
            let listed = !hosts.is_empty();
            for row in if listed { hosts } else { vec![&none] } {
                let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
                all.push(json!({
                    "program": program, "uid": uid, "user": user(uid), "host": text(&row.info.host),
                    "job": text(&row.info.job), "command": text(&row.info.command), "ranks": row.info.ranks,
                    "age_ms": listed.then_some(row.age_ms), "requests_per_s": rate.requests,
                    "read_per_s": rate.read, "written_per_s": rate.written,
                }));
            }
        }
        Value::Array(all)
    }
}
