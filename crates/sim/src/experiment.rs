//! Experiments: a scenario in several cases, with the published results of a source and how to compare them.
//!
//! An experiment file is a scenario with more tables. `[[case]]` sets keys of the scenario by their path, and
//! `[[vary]]` makes a case of each combination of values. `[[compare]]` relates the throughputs of two cases.
//! `[[best]]` says which value of a key won in each situation of a source.
use crate::cluster::{Progress, run};
use crate::error::{Error, Result};
use crate::report::Report;
use crate::scenario::Scenario;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// A parsed scenario file with its cases; a plain scenario is one case.
#[derive(Debug)]
pub struct Experiment {
    path: String,
    /// Its name.
    pub name: String,
    /// Its description.
    pub about: String,
    /// Where results and published figures differ, and why.
    pub differences: String,
    base: Table,
    /// The cases, in the order of the file.
    pub cases: Vec<Case>,
    compare: Vec<Compare>,
    best: Option<Best>,
}

/// One case: keys that differ from the scenario's.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name, unique in the file.
    pub name: String,
    /// Keys by path, such as `"program.0.parameters.segment"`.
    #[serde(default)]
    pub set: Table,
    /// Throughput that the source published, MB/s.
    pub published: Option<f64>,
}

/// All combinations of some values.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    /// Without a key the values are tables of keys.
    #[serde(default)]
    key: String,
    values: Vec<Value>,
    /// Short names of the values, for those that are tables or long.
    #[serde(default)]
    names: Vec<String>,
}

/// The throughput of one case over that of another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Compare {
    claim: String,
    this: String,
    that: String,
    /// The published quotient; without it only the direction is checked.
    published: Option<f64>,
    /// Without a published quotient: bounds of the quotient.
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// Which value of the last varied key is best, for each combination of the others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Best {
    /// The value that gains are relative to.
    baseline: String,
    /// The names of the other keys' values, joined by `, `, with the published best.
    published: BTreeMap<String, String>,
    /// Values within this share of the best count as equal to it.
    #[serde(default = "tie")]
    tie: f64,
}

fn tie() -> f64 {
    0.1
}

/// The result of an experiment.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The experiment's.
    pub name: String,
    /// The experiment's.
    pub about: String,
    /// The experiment's.
    pub differences: String,
    /// Each case with its report.
    pub cases: Vec<CaseOutcome>,
    /// Each comparison with its verdict.
    pub comparisons: Vec<Comparison>,
    /// Each situation with its best value.
    pub situations: Vec<Situation>,
}

/// A case that was run.
#[derive(Debug, Serialize)]
pub struct CaseOutcome {
    /// Its name; empty for a scenario without cases.
    pub case: String,
    /// MB/s that the source published.
    pub published: Option<f64>,
    /// The report of the run.
    pub report: Report,
}

/// How a result relates to the published one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The same direction, and the quotient within 15% of the published one.
    Agrees,
    /// The same direction, but a quotient further away.
    SameDirection,
    /// The opposite direction.
    Differs,
}

impl Verdict {
    /// The verdict in words, for tables.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::SameDirection => "same direction",
            Verdict::Differs => "differs",
        }
    }
}

/// A comparison and its result.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The claim.
    pub claim: String,
    /// The published quotient or bound.
    pub published: String,
    /// The simulated quotient.
    pub ours: f64,
    /// How the two relate.
    pub verdict: Verdict,
}

/// A situation of a source's table of best choices.
#[derive(Debug, Serialize)]
pub struct Situation {
    /// Its name.
    pub situation: String,
    /// What the source chose.
    pub published: String,
    /// The simulated best values within the tie, best first.
    pub ours: Vec<String>,
    /// Makespan of the baseline divided by that of the best value.
    pub gain: f64,
    /// Makespan of the baseline divided by that of the published choice; 1 for "none".
    pub published_gain: f64,
    /// Whether the published choice is among the simulated best.
    pub agrees: bool,
    /// Probability that a random choice is among the simulated best.
    pub chance: f64,
}

/// Largest relative difference of quotients that agree.
const NEAR: f64 = 0.15;
/// Most cases of an experiment.
const MOST_CASES: usize = 10_000;

fn take<T: serde::de::DeserializeOwned>(
    table: &mut Table,
    key: &str,
    path: &str,
) -> Result<Option<T>> {
    let Some(value) = table.remove(key) else {
        return Ok(None);
    };
    let read: std::result::Result<T, _> = value.try_into();
    read.map(Some)
        .map_err(|e| Error::key(format!("{path}: {key}"), e.message()))
}

/// Sets a key by its path; numbers are indices of arrays.
fn set(table: &mut Table, key: &str, value: &Value, path: &str) -> Result<()> {
    let missing = |part: &str| {
        Error::key(
            format!("{path}: {key}"),
            format!("there is no `{part}` on the way; write it as `program.0.parameters.segment`"),
        )
    };
    let mut parts = key.split('.').peekable();
    let first = parts.next().unwrap_or_default();
    if parts.peek().is_none() {
        table.insert(first.into(), value.clone());
        return Ok(());
    }
    let mut at = table
        .entry(first)
        .or_insert_with(|| Value::Table(Table::new()));
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        at = match at {
            Value::Table(inner) if last => {
                inner.insert(part.into(), value.clone());
                return Ok(());
            }
            Value::Table(inner) => inner
                .entry(part)
                .or_insert_with(|| Value::Table(Table::new())),
            Value::Array(items) => {
                let place: Option<usize> = part.parse().ok();
                place
                    .and_then(|place| items.get_mut(place))
                    .ok_or_else(|| missing(part))?
            }
            _ => return Err(missing(part)),
        };
        if last {
            *at = value.clone();
        }
    }
    Ok(())
}

/// A value as text.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Experiment {
    /// Parses TOML; errors name `path` and the key. Every case is checked before the first runs.
    pub fn parse(text: &str, path: &str) -> Result<Experiment> {
        let mut base: Table = text.parse().map_err(|e: toml::de::Error| Error::Syntax {
            path: path.into(),
            reason: e.to_string().trim_end().replace('\n', "\n  "),
        })?;
        let mut cases: Vec<Case> = take(&mut base, "case", path)?.unwrap_or_default();
        let vary: Vec<Vary> = take(&mut base, "vary", path)?.unwrap_or_default();
        let compare: Vec<Compare> = take(&mut base, "compare", path)?.unwrap_or_default();
        let best: Option<Best> = take(&mut base, "best", path)?;
        let differences: Option<String> = take(&mut base, "differences", path)?;
        if cases.is_empty() && vary.is_empty() {
            // A plain scenario: errors name the line.
            let scenario = Scenario::parse(text, path)?;
            cases.push(Case {
                name: String::new(),
                set: Table::new(),
                published: None,
            });
            return Ok(Experiment {
                path: path.into(),
                name: scenario.name,
                about: scenario.about,
                differences: String::new(),
                base,
                cases,
                compare,
                best,
            });
        }
        if let Some(varied) = combinations(&vary, path)? {
            cases.extend(varied);
        }
        let mut experiment = Experiment {
            path: path.into(),
            name: String::new(),
            about: String::new(),
            differences: differences.unwrap_or_default(),
            base,
            cases,
            compare,
            best,
        };
        for i in 0..experiment.cases.len() {
            let scenario = experiment.scenario(i)?;
            (experiment.name, experiment.about) = (scenario.name, scenario.about);
        }
        for compare in &experiment.compare {
            for case in [&compare.this, &compare.that] {
                experiment.place(case)?;
            }
        }
        Ok(experiment)
    }

    fn place(&self, case: &str) -> Result<usize> {
        self.cases
            .iter()
            .position(|c| c.name == case)
            .ok_or_else(|| {
                Error::key(
                    format!("{}: compare", self.path),
                    format!("no case is called \"{case}\""),
                )
            })
    }

    /// The scenario of case `i`.
    pub fn scenario(&self, i: usize) -> Result<Scenario> {
        let case = &self.cases[i];
        let mut table = self.base.clone();
        for (key, value) in &case.set {
            set(&mut table, key, value, &self.path)?;
        }
        let at = match case.name.as_str() {
            "" => self.path.clone(),
            name => format!("{}: case \"{name}\"", self.path),
        };
        let read: std::result::Result<Scenario, _> = table.try_into();
        let scenario = read.map_err(|e| Error::Syntax {
            path: at.clone(),
            reason: e.to_string().trim_end().into(),
        })?;
        scenario.check().map_err(|e| e.within(&at))?;
        Ok(scenario)
    }

    /// Runs the cases whose names `wanted` accepts; `progress` is called with each case and its progress.
    pub fn run(
        &self,
        wanted: impl Fn(&str) -> bool,
        begin: &mut dyn FnMut(usize, usize, &str),
        progress: Progress<'_>,
    ) -> Result<Outcome> {
        let mut cases = Vec::new();
        for (i, case) in self.cases.iter().enumerate() {
            if !wanted(&case.name) {
                continue;
            }
            begin(i, self.cases.len(), &case.name);
            cases.push(CaseOutcome {
                case: case.name.clone(),
                published: case.published,
                report: run(&self.scenario(i)?, progress)?,
            });
        }
        Ok(Outcome {
            name: self.name.clone(),
            about: self.about.clone(),
            differences: self.differences.clone(),
            comparisons: self.comparisons(&cases),
            situations: self.situations(&cases),
            cases,
        })
    }

    fn comparisons(&self, cases: &[CaseOutcome]) -> Vec<Comparison> {
        let throughput = |name: &str| {
            let found = cases.iter().find(|c| c.case == name)?;
            Some(found.report.throughput)
        };
        let mut made = Vec::new();
        for compare in &self.compare {
            let (Some(this), Some(that)) = (throughput(&compare.this), throughput(&compare.that))
            else {
                continue;
            };
            let ours = this / that;
            let (published, verdict) = match compare.published {
                Some(published) => {
                    let verdict = if (ours / published).ln().abs() <= (1.0 + NEAR).ln() {
                        Verdict::Agrees
                    } else if (ours > 1.0) == (published > 1.0) {
                        Verdict::SameDirection
                    } else {
                        Verdict::Differs
                    };
                    (format!("{published:.2}"), verdict)
                }
                None => {
                    let low = compare.at_least.unwrap_or(0.0);
                    let high = compare.at_most.unwrap_or(f64::INFINITY);
                    let verdict = if (low..=high).contains(&ours) {
                        Verdict::Agrees
                    } else {
                        Verdict::Differs
                    };
                    let says = match (compare.at_least, compare.at_most) {
                        (Some(low), Some(high)) => format!("{low} to {high}"),
                        (Some(low), None) => format!("≥ {low}"),
                        (None, Some(high)) => format!("≤ {high}"),
                        (None, None) => "–".into(),
                    };
                    (says, verdict)
                }
            };
            made.push(Comparison {
                claim: compare.claim.clone(),
                published,
                ours,
                verdict,
            });
        }
        made
    }

    fn situations(&self, cases: &[CaseOutcome]) -> Vec<Situation> {
        let Some(best) = &self.best else {
            return Vec::new();
        };
        let mut groups: Vec<(String, Vec<(String, f64)>)> = Vec::new();
        for outcome in cases {
            let Some((situation, value)) = outcome.case.rsplit_once(", ") else {
                continue;
            };
            let entry = (value.to_owned(), outcome.report.makespan as f64);
            match groups.iter_mut().find(|(name, _)| name == situation) {
                Some((_, values)) => values.push(entry),
                None => groups.push((situation.to_owned(), vec![entry])),
            }
        }
        let mut made = Vec::new();
        for (situation, mut values) in groups {
            let Some(published) = best.published.get(&situation) else {
                continue;
            };
            let of = |values: &[(String, f64)], name: &str| {
                values
                    .iter()
                    .find(|(value, _)| value == name)
                    .map(|(_, time)| *time)
            };
            let Some(baseline) = of(&values, &best.baseline) else {
                continue;
            };
            values.sort_by(|a, b| a.1.total_cmp(&b.1));
            let least = values[0].1;
            let chosen = of(&values, published).unwrap_or(baseline);
            let ours: Vec<String> = values
                .iter()
                .filter(|(_, time)| *time <= least * (1.0 + best.tie))
                .map(|(value, _)| value.clone())
                .collect();
            made.push(Situation {
                agrees: ours.contains(published),
                situation,
                published: published.clone(),
                gain: baseline / least,
                published_gain: baseline / chosen,
                chance: ours.len() as f64 / values.len() as f64,
                ours,
            });
        }
        made
    }
}

/// A case of each combination; the key named last varies fastest.
fn combinations(vary: &[Vary], path: &str) -> Result<Option<Vec<Case>>> {
    if vary.is_empty() {
        return Ok(None);
    }
    let count: usize = vary.iter().map(|v| v.values.len()).product();
    if count == 0 || count > MOST_CASES {
        return Err(Error::key(
            format!("{path}: vary"),
            format!("{count} combinations; there may be 1..={MOST_CASES}"),
        ));
    }
    let mut cases = Vec::with_capacity(count);
    for mut index in 0..count {
        let mut set = Table::new();
        let mut names = Vec::new();
        for v in vary.iter().rev() {
            let place = index % v.values.len();
            index /= v.values.len();
            let value = &v.values[place];
            names.push(v.names.get(place).cloned().unwrap_or_else(|| plain(value)));
            match value {
                // Several keys at once.
                Value::Table(keys) if v.key.is_empty() => {
                    for (key, value) in keys {
                        set.insert(key.clone(), value.clone());
                    }
                }
                value => {
                    set.insert(v.key.clone(), value.clone());
                }
            }
        }
        names.reverse();
        cases.push(Case {
            name: names.join(", "),
            set,
            published: None,
        });
    }
    Ok(Some(cases))
}
