//! What `penstock top` shows: rows that are asked for, in the order that is asked for.
use super::rows::{Line, Load, OTHERS, Rates, Server};
use super::{By, Sort};
use crate::asking::Round;
use crate::programs::{Listed, Names, user};
use crate::{out, size};
use penstock_rpc::deployment::Deployment;
use penstock_wire::message::LedgerStatus;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Servers of the table above the programs.
const BUSIEST: usize = 8;
/// Servers of a program that are named.
const NAMED: usize = 3;

/// What somebody wants to see.
#[derive(Debug, Clone)]
pub struct Choice {
    pub by: By,
    pub sort: Sort,
    /// Empty: everything.
    pub filter: String,
    /// Empty: all.
    pub servers: Vec<u32>,
    /// `Some(0)`: all.
    pub rows: Option<usize>,
    /// Also what is idle.
    pub all: bool,
}

/// A row with its names.
struct Row {
    names: Names,
    line: Line,
}

/// What is known at one moment.
pub struct Shown {
    name: String,
    /// Rows of all users.
    every_user: bool,
    programs: Vec<Row>,
    servers: BTreeMap<u32, Server>,
    /// Servers that say nothing, and why.
    silent: Vec<(String, String)>,
    data_servers: usize,
}

impl Shown {
    /// Names what happened.
    pub fn new(deployment: &Deployment, now: &Round<LedgerStatus>, load: Load) -> Shown {
        let names = now.programs.names();
        let named = |line: Line| {
            let (program, uid) = line.of;
            let names = match names.get(&line.of) {
                _ if line.of == OTHERS => Names {
                    whose: "others".into(),
                    command: "(not told apart)".into(),
                    ..Names::default()
                },
                Some(names) => names.clone(),
                None => Listed::nameless(program, uid),
            };
            Row { names, line }
        };
        let mut silent = Vec::new();
        if let Err(why) = &now.meta {
            silent.push(("meta".to_owned(), why.text.clone()));
        }
        for (server, answer) in deployment.servers.iter().zip(&now.data) {
            if let Err(why) = answer {
                silent.push((format!("data-{}", server.id.0), why.text.clone()));
            }
        }
        Shown {
            name: deployment.name.clone(),
            every_user: now.data.iter().flatten().any(|ledger| ledger.all),
            programs: load.programs.into_iter().map(named).collect(),
            servers: load.servers,
            silent,
            data_servers: deployment.servers.len(),
        }
    }

    /// How many servers don't answer.
    pub fn silent(&self) -> usize {
        self.silent.len()
    }

    /// The rows that are asked for, and how many more there are.
    fn rows(&self, choice: &Choice) -> (Vec<Row>, usize) {
        let mut rows: BTreeMap<(u32, String, u64, Option<u32>), Row> = BTreeMap::new();
        for row in &self.programs {
            let (program, uid) = row.line.of;
            let on = |server: &u32| choice.servers.is_empty() || choice.servers.contains(server);
            if !row.line.servers.keys().any(on) || (row.line.rates.is_idle() && !choice.all) {
                continue;
            }
            let own = || row.line.servers.keys().next().copied();
            let key = match choice.by {
                By::Program => (uid, String::new(), program, None),
                By::Server => (uid, String::new(), program, own()),
                By::Job => (uid, row.names.job.clone(), 0, None),
                By::User => (uid, String::new(), 0, None),
            };
            match rows.get_mut(&key) {
                Some(known) => known.line.merge(&row.line),
                None => {
                    let (names, line) = (row.names.clone(), row.line.clone());
                    rows.insert(key, Row { names, line });
                }
            }
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        for row in &mut rows {
            row.group(choice.by);
        }
        let wanted = choice.filter.to_lowercase();
        rows.retain(|row| wanted.is_empty() || row.contains(&wanted));
        rows.sort_by(|a, b| a.order(b, choice.sort));
        let most = match choice.rows {
            None | Some(0) => usize::MAX,
            Some(rows) => rows,
        };
        let more = rows.len().saturating_sub(most);
        rows.truncate(most);
        (rows, more)
    }

    /// For people.
    pub fn to_text(&self, choice: &Choice) -> String {
        let mut text = self.head();
        text += &self.servers_text(choice);
        let (rows, more) = self.rows(choice);
        let (header, right) = columns(choice.by);
        if rows.is_empty() {
            let whose = if self.every_user {
                "no"
            } else {
                "none of your"
            };
            text += &format!("\n{whose} program moves bytes now");
            if !choice.filter.is_empty() || !choice.servers.is_empty() {
                text += " among those that were asked for";
            }
            text += "\n";
        } else {
            let lines = rows.iter().map(|row| row.cells(choice.by)).collect();
            text += &format!("\n{}", out::table(&header, &right, lines));
        }
        if more > 0 {
            text += &format!("and {} more rows\n", size::count(more as u64));
        }
        text
    }

    /// The same in so many lines.
    pub fn to_fit(&self, choice: &Choice, lines: usize) -> String {
        let none = Choice {
            rows: Some(1),
            ..choice.clone()
        };
        let above = self.to_text(&none).lines().count();
        let rows = lines.saturating_sub(above + 1).max(1);
        let rows = Some(rows);
        let text = self.to_text(&Choice {
            rows,
            ..choice.clone()
        });
        let filter = match choice.filter.as_str() {
            "" => String::new(),
            text => format!("  with \"{text}\""),
        };
        let mut all: Vec<&str> = text.lines().collect();
        all.truncate(lines.saturating_sub(2));
        format!(
            "{}\nby {:?}, {:?} first{filter}   (keys: b r w n s u d i g sort, v rows, / filter, a all, q quit)\n",
            all.join("\n"),
            choice.by,
            choice.sort
        )
        .to_lowercase_last()
    }

    fn head(&self) -> String {
        let mut all = Rates::default();
        for server in self.servers.values() {
            let io = all.io.max(server.rates.io);
            all = Rates {
                requests: all.requests + server.rates.requests,
                read: all.read + server.rates.read,
                written: all.written + server.rates.written,
                io,
                ..all
            };
        }
        let mut text = format!(
            "{}: {} of {} data servers answer; {} read, {} written, {} requests/s; {}\n",
            self.name,
            self.servers.len(),
            self.data_servers,
            per_second(all.read),
            per_second(all.written),
            number(all.requests),
            if self.every_user {
                "programs of all users"
            } else {
                "your own programs"
            }
        );
        for (name, why) in self.silent.iter().take(BUSIEST) {
            text += &format!("{name}: {why}\n");
        }
        if self.silent.len() > BUSIEST {
            let more = self.silent.len() - BUSIEST;
            text += &format!("and {more} more servers are silent\n");
        }
        text
    }

    fn servers_text(&self, choice: &Choice) -> String {
        let mut servers: Vec<(&u32, &Server)> = self.servers.iter().collect();
        if !choice.servers.is_empty() {
            servers.retain(|(id, _)| choice.servers.contains(id));
        }
        if servers.len() > BUSIEST {
            servers.sort_by(|a, b| b.1.rates.bytes().total_cmp(&a.1.rates.bytes()));
        }
        let more = servers.len().saturating_sub(BUSIEST);
        servers.truncate(BUSIEST);
        let rows = servers.iter().map(|(id, server)| {
            let mut cells = vec![format!("data-{id}")];
            cells.extend(rate_cells(&server.rates));
            let locality = &server.locality;
            cells.push(optional(locality.gap, size::bytes));
            cells.push(optional(locality.ratio_milli, |r| {
                format!("{:.2}", r as f64 / 1e3)
            }));
            cells
        });
        let header = [
            "server",
            "read",
            "written",
            "shortcuts",
            "requests",
            "queue",
            "device",
            "io",
            "gap",
            "/size",
        ];
        let mut text = format!(
            "\n{}",
            out::table(&header, &[1, 2, 3, 4, 5, 6, 7, 8, 9], rows.collect())
        );
        if more > 0 {
            text += &format!("and {more} more servers with less\n");
        }
        text
    }

    /// For programs.
    pub fn to_json(&self, choice: &Choice) -> Value {
        let rates = |rates: &Rates| {
            json!({
                "requests_per_s": rates.requests, "read_per_s": rates.read, "written_per_s": rates.written,
                "shortcuts_per_s": rates.shortcuts, "queue": rates.queue, "device": rates.device, "io": rates.io,
            })
        };
        let with = |mut base: Value, more: Value| {
            if let (Value::Object(base), Value::Object(more)) = (&mut base, more) {
                base.extend(more);
            }
            base
        };
        let (rows, more) = self.rows(choice);
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| {
                let (program, uid) = row.line.of;
                let known = row.line.of != OTHERS;
                let one = matches!(choice.by, By::Program | By::Server);
                let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
                let servers: serde_json::Map<String, Value> = row
                    .line
                    .servers
                    .iter()
                    .map(|(id, bytes)| (id.to_string(), json!(bytes)))
                    .collect();
                let names = json!({
                    "program": (known && one).then_some(program), "uid": known.then_some(uid),
                    "user": if known { user(uid) } else { "others".into() },
                    "name": row.names.whose, "job": text(&row.names.job), "command": text(&row.names.command),
                    "programs": row.line.programs, "share": row.line.share,
                    "gap": row.line.gap.value(), "gap_per_size": row.line.ratio.value(),
                    "reuse_s": row.line.reuse.value(), "servers": servers,
                });
                with(names, rates(&row.line.rates))
            })
            .collect();
        let servers: Vec<Value> = self
            .servers
            .iter()
            .map(|(id, server)| {
                let locality = &server.locality;
                let own = json!({
                    "id": id, "up": true, "gap": locality.gap,
                    "gap_per_size": locality.ratio_milli.map(|r| r as f64 / 1e3),
                });
                with(own, rates(&server.rates))
            })
            .collect();
        let silent: Vec<Value> = self
            .silent
            .iter()
            .map(|(name, why)| json!({"server": name, "reason": why}))
            .collect();
        json!({
            "name": self.name, "all": self.every_user, "by": format!("{:?}", choice.by).to_lowercase(),
            "servers": servers, "silent": silent, "rows": rows, "more": more,
        })
    }
}

/// The last line of a text in small letters.
trait LastLine {
    fn to_lowercase_last(self) -> String;
}

impl LastLine for String {
    fn to_lowercase_last(self) -> String {
        match self.trim_end().rsplit_once('\n') {
            Some((above, last)) => format!("{above}\n{}\n", last.to_lowercase()),
            None => self,
        }
    }
}

impl Row {
    /// Names of a group in place of those of its first program.
    fn group(&mut self, by: By) {
        if self.line.of == OTHERS {
            return;
        }
        let programs = match self.line.programs {
            1 => self.names.command.clone(),
            n => format!("{n} programs"),
        };
        match by {
            By::Program | By::Server => {}
            By::Job => self.names.command = programs,
            By::User => {
                self.names = Names {
                    whose: user(self.line.of.1),
                    job: String::new(),
                    command: programs,
                }
            }
        }
    }

    fn contains(&self, wanted: &str) -> bool {
        let Names {
            whose,
            job,
            command,
        } = &self.names;
        let texts = [whose, job, command].map(|text| text.to_lowercase());
        let servers = self.line.servers.keys().map(|id| format!("data-{id}"));
        texts
            .into_iter()
            .chain(servers)
            .any(|text| text.contains(wanted))
    }

    /// The largest first, names from the beginning; equal ones by name.
    fn order(&self, other: &Row, sort: Sort) -> std::cmp::Ordering {
        let figure = |row: &Row| {
            let (line, rates) = (&row.line, &row.line.rates);
            match sort {
                Sort::Bytes => rates.bytes(),
                Sort::Read => rates.read,
                Sort::Written => rates.written,
                Sort::Requests => rates.requests,
                Sort::Shortcuts => rates.shortcuts,
                Sort::Queue => rates.queue,
                Sort::Device => rates.device,
                Sort::Io => rates.io,
                Sort::Gap => line.gap.value().unwrap_or(-1.0),
                Sort::Ratio => line.ratio.value().unwrap_or(-1.0),
                Sort::Reuse => line.reuse.value().unwrap_or(-1.0),
                Sort::User | Sort::Job | Sort::Command => 0.0,
            }
        };
        let text = |row: &Row| match sort {
            Sort::Job => row.names.job.clone(),
            Sort::Command => row.names.command.clone(),
            _ => row.names.whose.clone(),
        };
        figure(other)
            .total_cmp(&figure(self))
            .then_with(|| text(self).cmp(&text(other)))
            .then_with(|| self.line.of.cmp(&other.line.of))
    }

    fn cells(&self, by: By) -> Vec<String> {
        let line = &self.line;
        let dash = |text: &String| {
            if text.is_empty() {
                "-".into()
            } else {
                text.clone()
            }
        };
        let mut cells = Vec::new();
        if by == By::Server {
            let id = line.servers.keys().next();
            cells.push(id.map_or("-".into(), |id| format!("data-{id}")));
        }
        cells.push(dash(&self.names.whose));
        if by != By::User {
            cells.push(dash(&self.names.job));
        }
        cells.extend(rate_cells(&line.rates));
        cells.push(format!("{:.0} %", 100.0 * line.share));
        cells.push(
            line.gap
                .value()
                .map_or("-".into(), |gap| size::bytes(gap as u64)),
        );
        cells.push(
            line.ratio
                .value()
                .map_or("-".into(), |ratio| format!("{ratio:.2}")),
        );
        cells.push(line.reuse.value().map_or("-".into(), size::duration));
        if by != By::Server {
            cells.push(servers(&line.servers));
        }
        cells.push(dash(&self.names.command));
        cells
    }
}

/// Names of columns, and which are figures.
fn columns(by: By) -> (Vec<&'static str>, Vec<usize>) {
    let mut header = match by {
        By::Server => vec!["server", "user", "job"],
        By::User => vec!["user"],
        By::Program | By::Job => vec!["user", "job"],
    };
    let first = header.len();
    header.extend([
        "read",
        "written",
        "shortcuts",
        "requests",
        "queue",
        "device",
        "io",
        "share",
        "gap",
        "/size",
        "reuse",
    ]);
    let right = (first..header.len()).collect();
    if by != By::Server {
        header.push("servers");
    }
    header.push("command");
    (header, right)
}

/// `0:62% 1:38% +2`: the busiest first.
fn servers(at: &BTreeMap<u32, f64>) -> String {
    let all: f64 = at.values().sum();
    let mut order: Vec<(&u32, &f64)> = at.iter().collect();
    order.sort_by(|a, b| b.1.total_cmp(a.1));
    let mut words: Vec<String> = order
        .iter()
        .take(NAMED)
        .map(|(id, bytes)| {
            if all > 0.0 {
                format!("{id}:{:.0}%", 100.0 * **bytes / all)
            } else {
                id.to_string()
            }
        })
        .collect();
    if order.len() > NAMED {
        words.push(format!("+{}", order.len() - NAMED));
    }
    words.join(" ")
}

fn rate_cells(rates: &Rates) -> [String; 7] {
    [
        per_second(rates.read),
        per_second(rates.written),
        per_second(rates.shortcuts),
        number(rates.requests),
        amount(rates.queue),
        amount(rates.device),
        format!("{:.0} %", 100.0 * rates.io),
    ]
}

fn per_second(bytes: f64) -> String {
    match bytes.round() as u64 {
        0 => "-".into(),
        bytes => format!("{}/s", size::bytes(bytes)),
    }
}

/// Small ones with a digit behind the point.
fn number(value: f64) -> String {
    if value == 0.0 {
        "-".into()
    } else if value < 10.0 {
        format!("{value:.1}")
    } else {
        size::count(value.round() as u64)
    }
}

fn amount(value: f64) -> String {
    if value == 0.0 {
        "-".into()
    } else {
        format!("{value:.2}")
    }
}

fn optional(value: Option<u64>, show: impl Fn(u64) -> String) -> String {
    value.map_or("-".into(), show)
}
