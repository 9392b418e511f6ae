//! Answers: typed columns, as a table for people, as JSON for programs, as CSV for spreadsheets. What limits an answer stands
//! with it: below the table, in the JSON, beside the CSV.
use crate::error::Result;
use crate::{out, size};
use clap::Args;
use penstock_analysis::Notes;
use serde_json::{Map, Value as Json, json};

/// How an answer is printed.
#[derive(Debug, Clone, Args)]
pub struct Form {
    /// For programs: one object with `rows` and `notes`; times in nanoseconds, sizes in bytes.
    #[arg(long)]
    pub json: bool,
    /// As CSV with a header line; what limits the answer goes to standard error.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Names.
    Text,
    /// A number of things.
    Count,
    /// A number of bytes.
    Bytes,
    /// Nanoseconds.
    Time,
    /// Bytes per second.
    Rate,
    /// A part of a whole, 0 to 1.
    Share,
    /// A figure in the unit that the name says.
    Figure,
}

/// One value.
#[derive(Debug, Clone)]
pub enum Value {
    /// Unknown, or without meaning here.
    None,
    /// A name.
    Text(String),
    /// A count, bytes, or nanoseconds.
    Whole(u64),
    /// Any other figure.
    Real(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::Whole(n)
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Value {
        Value::Real(x)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::None, Into::into)
    }
}

/// A row of values.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$($crate::trace::answer::Value::from($value)),*] };
}

/// An answer.
#[derive(Debug, Default)]
pub struct Answer {
    columns: Vec<(&'static str, Kind)>,
    rows: Vec<Vec<Value>>,
    /// Single figures that stand below the table.
    totals: Vec<(&'static str, Kind, Value)>,
    notes: Notes,
}

impl Answer {
    /// One with these columns.
    pub fn new(columns: &[(&'static str, Kind)]) -> Answer {
        Answer {
            columns: columns.to_vec(),
            ..Answer::default()
        }
    }

    /// One more row.
    pub fn push(&mut self, row: Vec<Value>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// A figure of the whole.
    pub fn total(&mut self, name: &'static str, kind: Kind, value: impl Into<Value>) {
        self.totals.push((name, kind, value.into()));
    }

    /// What limits the answer.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.add(note.into());
    }

    /// The same, of others.
    pub fn notes<'a>(&mut self, notes: impl IntoIterator<Item = &'a str>) {
        notes
            .into_iter()
            .for_each(|note| self.notes.add(note.into()));
    }

    /// Hands out what limits the answer.
    pub fn each_note(&self, take: impl FnMut(&str)) {
        self.notes.iter().for_each(take);
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Prints it.
    pub fn print(&self, form: &Form) -> Result<()> {
        if form.json {
            self.print_json();
        } else if form.csv {
            self.print_csv();
        } else {
            self.print_table();
        }
        Ok(())
    }

    fn print_table(&self) {
        let names: Vec<&str> = self.columns.iter().map(|c| c.0).collect();
        let right = (0..self.columns.len()).filter(|i| self.columns[*i].1 != Kind::Text);
        let rows = self.rows.iter().map(|row| {
            let values = row.iter().zip(&self.columns);
            values
                .map(|(value, (_, kind))| shown(value, *kind))
                .collect()
        });
        out::print(&out::table(
            &names,
            &right.collect::<Vec<_>>(),
            rows.collect(),
        ));
        for (name, kind, value) in &self.totals {
            out::line(format_args!("{name}: {}", shown(value, *kind)));
        }
        self.print_notes();
    }

    /// Prints what limits the answer, for people.
    pub fn print_notes(&self) {
        for note in self.notes.iter() {
            out::line(format_args!("note: {note}"));
        }
    }

    fn print_json(&self) {
        let rows = self.rows.iter().map(|row| {
            let fields = row.iter().zip(&self.columns);
            Json::Object(
                fields
                    .map(|(value, (name, kind))| (key(name, *kind), json_of(value)))
                    .collect(),
            )
        });
        let mut object = Map::new();
        object.insert("rows".into(), rows.collect());
        for (name, kind, value) in &self.totals {
            object.insert(key(name, *kind), json_of(value));
        }
        object.insert("notes".into(), self.notes.iter().collect());
        out::print_json(&object);
    }

    fn print_csv(&self) {
        let names: Vec<String> = self
            .columns
            .iter()
            .map(|(name, kind)| key(name, *kind))
            .collect();
        let mut text = names.join(",") + "\n";
        for row in &self.rows {
            let values: Vec<String> = row.iter().map(csv_of).collect();
            text.push_str(&values.join(","));
            text.push('\n');
            if text.len() > 1 << 16 {
                if !out::show(&text) {
                    return;
                }
                text.clear();
            }
        }
        out::print(&text);
        for note in self.notes.iter() {
            out::note(note);
        }
    }
}

/// The name of a column for programs, with its unit.
fn key(name: &str, kind: Kind) -> String {
    let name = name.replace([' ', '-'], "_");
    match kind {
        Kind::Time => format!("{name}_ns"),
        Kind::Rate => format!("{name}_bytes_per_s"),
        _ => name,
    }
}

fn json_of(value: &Value) -> Json {
    match value {
        Value::None => Json::Null,
        Value::Text(text) => json!(text),
        Value::Whole(n) => json!(n),
        Value::Real(x) => json!(x),
    }
}

fn csv_of(value: &Value) -> String {
    match value {
        Value::None => String::new(),
        Value::Text(text) if text.contains([',', '"', '\n']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::Text(text) => text.clone(),
        Value::Whole(n) => n.to_string(),
        Value::Real(x) => x.to_string(),
    }
}

fn shown(value: &Value, kind: Kind) -> String {
    match (value, kind) {
        (Value::None, _) => "-".into(),
        (Value::Text(text), _) => text.clone(),
        (Value::Whole(n), Kind::Bytes) => size::bytes(*n),
        (Value::Whole(n), Kind::Time) => time(*n),
        (Value::Whole(n), _) => size::count(*n),
        (Value::Real(x), Kind::Rate) => format!("{:.1} MB/s", x / 1e6),
        (Value::Real(x), Kind::Share) => format!("{:.1}%", x * 100.0),
        (Value::Real(x), _) => format!("{x:.1}"),
    }
}

/// Nanoseconds for people, with three or four digits: `840 ns`, `12.3 µs`, `4.567 ms`, `12.3 s`.
pub fn time(ns: u64) -> String {
    let x = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..100_000 => format!("{:.2} µs", x / 1e3),
        100_000..1_000_000 => format!("{:.1} µs", x / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", x / 1e6),
        1_000_000_000..100_000_000_000 => format!("{:.3} s", x / 1e9),
        _ => size::duration(x / 1e9),
    }
}

/// Part of a whole; nothing of nothing.
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Bytes per second.
pub fn rate(bytes: u64, ns: u64) -> Option<f64> {
    (ns > 0 && bytes > 0).then(|| bytes as f64 * 1e9 / ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_in_their_units() {
        assert_eq!(shown(&Value::Whole(12_345), Kind::Time), "12.35 µs");
        assert_eq!(shown(&Value::Whole(4_567_890), Kind::Time), "4.568 ms");
        assert_eq!(shown(&Value::Real(0.25), Kind::Share), "25.0%");
        assert_eq!(shown(&Value::Real(2e6), Kind::Rate), "2.0 MB/s");
        assert_eq!(csv_of(&Value::from("a,\"b\"")), "\"a,\"\"b\"\"\"");
        assert_eq!(key("mean time", Kind::Time), "mean_time_ns");
    }
}
