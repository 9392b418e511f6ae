//! The programs of a deployment in `penstock status`: whose they are, where they run and what they are.
use crate::asking::Inquirer;
use crate::{out, size, users};
use penstock_rpc::deployment::Deployment;
use penstock_rpc::printable;
use penstock_wire::message::{ProgramRow, Programs, Traffic};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The longest command in a table, in characters.
const SHOWN: usize = 60;
/// The most programs that `down` names.
const NAMED: usize = 10;
/// The number that servers give to all programs beyond those that they count separately.
const OTHERS: u64 = u64::MAX;

/// What the metadata server lists for this user.
#[derive(Debug, Clone, Default)]
pub struct Listed(Programs);

/// Whose a program is and what it is, for tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// `alice@node1`, or `alice` where the host is not known.
    pub whose: String,
    /// Empty: none is known.
    pub job: String,
    /// The beginning of its command, or what stands for it.
    pub command: String,
}

/// Programs and mounts that use the servers, for people; empty where the metadata server does not answer.
pub fn users_of(deployment: &Deployment) -> Vec<String> {
    let Ok(inquirer) = Inquirer::new(deployment) else {
        return Vec::new();
    };
    let listed = inquirer.programs();
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

/// As the system calls a user, or a number.
pub fn user(uid: u32) -> String {
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

/// What stands for a program that nobody has named.
fn unnamed(program: u64) -> String {
    match program {
        0 => "(no program)".into(),
        OTHERS => "others".into(),
        // The beginning is enough to tell them apart; `--json` has the whole number.
        _ => format!("(program {:08x})", program >> 31),
    }
}

impl Listed {
    /// What the metadata server has answered.
    pub fn new(programs: Programs) -> Listed {
        Listed(programs)
    }

    /// How tables name programs, by program and user. All at once: there may be many.
    pub fn names(&self) -> BTreeMap<(u64, u32), Names> {
        let mut rows: BTreeMap<(u64, u32), Vec<&ProgramRow>> = BTreeMap::new();
        for row in &self.0.rows {
            rows.entry((row.program, row.uid)).or_default().push(row);
        }
        let running: BTreeSet<(u64, u32)> = rows.keys().copied().collect();
        for row in &self.0.former {
            // One that runs has the name.
            if !running.contains(&(row.program, row.uid)) {
                rows.entry((row.program, row.uid)).or_default().push(row);
            }
        }
        let name = |((program, uid), rows): ((u64, u32), Vec<&ProgramRow>)| {
            let first = rows.first().map(|row| &row.info);
            let names = Names {
                whose: whose(uid, &rows),
                job: first.map_or(String::new(), |info| printable(&info.job)),
                command: first.map_or_else(|| unnamed(program), |info| beginning(&info.command)),
            };
            ((program, uid), names)
        };
        rows.into_iter().map(name).collect()
    }

    /// The same for one that nobody has named.
    pub fn nameless(program: u64, uid: u32) -> Names {
        Names {
            whose: user(uid),
            job: String::new(),
            command: unnamed(program),
        }
    }
    /// The hosts of each program of each user; none of a program that has only traffic.
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

    /// A program as tables name it: by its user, host and command, also when it has ended.
    pub fn name(&self, program: u64) -> String {
        if program == OTHERS {
            return unnamed(program);
        }
        let all = self.names();
        let names = all.range((program, 0)..=(program, u32::MAX));
        let names: Vec<String> = names
            .map(|(_, names)| format!("{} {}", names.whose, names.command))
            .collect();
        if names.is_empty() {
            unnamed(program)
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
        // One that has just ended may still have a rate.
        let mut former = self.0.former.iter();
        let former = former.find(|row| (row.program, row.uid) == (program, uid));
        vec![
            whose(uid, hosts),
            dash(first.map_or(String::new(), |info| printable(&info.job))),
            ranks.map_or("-".into(), |n| size::count(n.into())),
            age.map_or("-".into(), |ms| size::duration(ms as f64 / 1e3)),
            per_second(rate.read),
            per_second(rate.written),
            match first {
                Some(info) => dash(beginning(&info.command)),
                None => former.map_or_else(
                    || unnamed(program),
                    |row| format!("{} (has ended)", beginning(&row.info.command)),
                ),
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
