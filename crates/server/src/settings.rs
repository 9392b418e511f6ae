//! What can be set in a running server: the scheduler's options, `depth`, and who chooses the algorithm.
use crate::choose::{Choosing, Mode};
use crate::error::refuse;
use penstock_sched::{Error, Nanos, Objective, Options, Tree};
use penstock_wire::message::{ErrorKind, MAX_SETTINGS, WireError};
use std::path::{Path, PathBuf};

/// A window or wait that one setting may impose on requests.
const MAX_WAIT: Nanos = 10_000_000_000;
/// Requests served at once, unless set.
const DEPTH: u32 = 4;
const MAX_DEPTH: u32 = 4096;
/// SJF and others: nobody waits longer than this and what is served then.
const STARVATION_BOUND: Nanos = 500_000_000;
/// Sequential-to-random ratios that can be set.
const RATIOS: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) options: Options,
    pub(crate) depth: u32,
    pub(crate) choosing: Choosing,
    /// Directories of the trace that is written, and of the one that predicts.
    pub(crate) trace: Option<PathBuf>,
    pub(crate) predict: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            options: Options {
                starvation_bound: Some(STARVATION_BOUND),
                ..Options::default()
            },
            depth: DEPTH,
            choosing: Choosing::default(),
            trace: None,
            predict: None,
        }
    }
}

impl Settings {
    /// These with changes, each `name=value`.
    pub(crate) fn with(&self, changes: &[String]) -> Result<Settings, WireError> {
        if changes.len() > MAX_SETTINGS {
            return Err(invalid(format!(
                "{} settings at once, at most {MAX_SETTINGS}",
                changes.len()
            )));
        }
        let mut new = self.clone();
        for change in changes {
            let (name, value) = change.split_once('=').ok_or_else(|| {
                invalid(format!(
                    "setting `{change}`: write name=value, such as sched=aioli"
                ))
            })?;
            new.set(name, value)?;
        }
        new.options.check().map_err(|e| invalid(e.to_string()))?;
        let o = &new.options;
        for (name, wait) in [
            ("shift_wait", o.shift_wait),
            ("aggregation_wait", o.aggregation_wait),
            ("twins_window", o.twins_window),
            ("starvation_bound", o.starvation_bound.unwrap_or(0)),
        ] {
            if wait > MAX_WAIT {
                return Err(invalid(format!(
                    "{name} is {wait} ns; in a data server it may be 10 s at most"
                )));
            }
        }
        Ok(new)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), WireError> {
        let wanted = |what: &str| invalid(format!("{name} is `{value}`; it takes {what}"));
        match name {
            "depth" => {
                let depth = value.parse().ok().filter(|d| (1..=MAX_DEPTH).contains(d));
                self.depth = depth.ok_or_else(|| wanted(&format!("1..{MAX_DEPTH} requests")))?;
            }
            "sched" => {
                let mode = Mode::ALL.into_iter().find(|m| m.name() == Some(value));
                self.choosing.mode = mode.unwrap_or_default();
                if mode.is_none() {
                    self.options.set(name, value).map_err(|e| match e {
                        Error::UnknownAlgorithm(_) => {
                            invalid(format!("{e}; tree and online choose among them themselves"))
                        }
                        e => invalid(e.to_string()),
                    })?;
                }
            }
            "tree" => {
                let tree = value.parse::<Tree>();
                self.choosing.tree = tree.map_err(|_| wanted("T1, T2, T3, T4 or own"))?;
            }
            "objective" => {
                let found = Objective::ALL.into_iter().find(|(_, n)| *n == value);
                let (objective, _) = found.ok_or_else(|| wanted("bandwidth, fairness or p99"))?;
                self.choosing.objective = objective;
            }
            "ratio" => {
                let one = |text: &str| text.parse().ok().filter(|r| RATIOS.contains(r));
                let (read, write) = value.split_once(':').unwrap_or((value, value));
                let ratio = one(read).zip(one(write));
                let (read, write) = ratio.ok_or_else(|| {
                    wanted("one number from 0.01 to 10000, or READ:WRITE, such as 38.9:21.3")
                })?;
                self.choosing.ratio = [read, write];
            }
            "trace" | "predict" => {
                let dir = match value {
                    "off" => None,
                    dir if Path::new(dir).is_absolute() => Some(PathBuf::from(dir)),
                    _ => return Err(wanted("the whole path of a directory, from / on, or off")),
                };
                match name {
                    "trace" => self.trace = dir,
                    _ => self.predict = dir,
                }
            }
            _ => self.options.set(name, value).map_err(|e| match e {
                Error::UnknownSetting(_) => invalid(format!(
                    "{e}, depth, tree, objective, ratio, trace, predict"
                )),
                e => invalid(e.to_string()),
            })?,
        }
        Ok(())
    }
}

fn invalid(what: String) -> WireError {
    refuse(ErrorKind::InvalidArgument, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_chooses_is_set_by_name_and_mistakes_are_named() {
        let with = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            Settings::default().with(&words)
        };
        let s = with(&[
            "sched=online",
            "objective=p99",
            "tree=T2",
            "ratio=38.9:21.3",
        ])
        .unwrap();
        let expected = Choosing {
            mode: Mode::Online,
            tree: Tree::T2,
            objective: Objective::P99,
            ratio: [38.9, 21.3],
        };
        assert_eq!(s.choosing, expected);
        assert_eq!(
            with(&["sched=tree", "ratio=5"]).unwrap().choosing.ratio,
            [5.0, 5.0]
        );
        let fixed = with(&["sched=tree", "sched=mlf"]).unwrap();
        assert_eq!(fixed.choosing.mode, Mode::Fixed);
        for (word, named) in [
            ("sched=forest", "online"),
            ("tree=T5", "T4 or own"),
            ("objective=speed", "fairness"),
            ("ratio=0", "0.01"),
            ("ratio=nan", "0.01"),
            ("ratio=1:2:3", "READ:WRITE"),
            ("ratio=-3", "READ:WRITE"),
            ("shape=round", "ratio"),
            ("trace=here", "from / on"),
            ("predict=", "from / on"),
        ] {
            let error = with(&[word]).unwrap_err().message;
            assert!(error.contains(named), "{word}: {error}");
        }
    }
}
