//! The programs of a deployment in `penstock status`: whose they are, where they run and what they are.
use crate::connect;
use crate::out;
use crate::{size, users};
use penstock_client::Client;
use penstock_wire::audit::printable;
use penstock_wire::deployment::Deployment;
use penstock_wire::message::{ProgramRow, Programs};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Characters of a command in a table.
const SHOWN: usize = 60;
/// The number that servers give all programs beyond those that they tell apart.
const OTHERS: u64 = u64::MAX;

/// What the metadata server lists for this user.
#[derive(Debug, Default)]
pub struct Listed(Programs);

/// Asks with the rights of an administrator where there are such. A server that does not tell has told of its reason before.
pub fn ask(client: &Client, deployment: &Deployment) -> Listed {
    let own = || client.programs().unwrap_or_default();
    let all = connect::program_inspector(deployment);
    let all = all.and_then(|client| client.and_then(|client| client.programs()).ok());
    Listed(all.unwrap_or_else(own))
}

fn user(uid: u32) -> String {
    users::name(uid).unwrap_or_else(|| uid.to_string())
}

/// The beginning of a text from elsewhere.
fn beginning(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// `alice@node1`, or `alice@node1 +3` of a program on four hosts.
fn whose(rows: &[&ProgramRow]) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let name = format!("{}@{}", user(first.uid), printable(&first.info.host));
    match rows.len() {
        1 => name,
        hosts => format!("{name} +{}", hosts - 1),
    }
}

fn dash(text: String) -> String {
    match text.is_empty() {
        true => "-".into(),
        false => text,
    }
}

impl Listed {
    /// The hosts of each program of each user.
    fn programs(&self) -> BTreeMap<(u64, u32), Vec<&ProgramRow>> {
        let mut programs: BTreeMap<(u64, u32), Vec<&ProgramRow>> = BTreeMap::new();
        for row in &self.0.rows {
            programs
                .entry((row.program, row.uid))
                .or_default()
                .push(row);
        }
        programs
    }

    /// A program as tables name it: by its user, host and command, or by its number where those are not known.
    pub fn name(&self, program: u64) -> String {
        if program == OTHERS {
            return "others".into();
        }
        let programs = self.programs();
        let names = programs
            .range((program, 0)..=(program, u32::MAX))
            .map(|(_, rows)| {
                let command = rows.first().map(|row| beginning(&row.info.command));
                format!("{} {}", whose(rows), command.unwrap_or_default())
            });
        let names: Vec<String> = names.collect();
        match names.is_empty() {
            true => program.to_string(),
            false => names.join(", "),
        }
    }

    /// A table, or nothing.
    pub fn to_text(&self) -> String {
        if self.0.rows.is_empty() {
            return String::new();
        }
        let rows = self.programs().into_values().map(|rows| {
            let first = rows[0];
            let age = rows.iter().map(|row| row.age_ms).max().unwrap_or(0);
            vec![
                whose(&rows),
                dash(printable(&first.info.job)),
                first
                    .info
                    .ranks
                    .map_or("-".into(), |n| size::count(n.into())),
                size::duration(age as f64 / 1e3),
                dash(beginning(&first.info.command)),
            ]
        });
        let header = ["user", "job", "ranks", "for", "command"];
        format!("\n{}", out::table(&header, &[2, 3], rows.collect()))
    }

    /// A row for each host of each program.
    pub fn to_json(&self) -> Value {
        let rows = self.0.rows.iter().map(|row| {
            json!({
                "program": row.program, "uid": row.uid, "user": user(row.uid), "host": row.info.host,
                "job": Some(&row.info.job).filter(|job| !job.is_empty()), "command": row.info.command,
                "ranks": row.info.ranks, "age_ms": row.age_ms,
            })
        });
        Value::Array(rows.collect())
    }
}
