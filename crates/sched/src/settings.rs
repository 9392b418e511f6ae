//! Settings that can change while a dispatcher runs: the scheduler's options, `depth`, and who chooses the algorithm.
use crate::learn::Cost;
use crate::select::{Choosing, Mode};
use crate::{Error, Nanos, Objective, Options, Tree};

/// Longest window or wait that a setting may impose on requests.
const MAX_WAIT: Nanos = 10_000_000_000;
/// Default of virtual requests served at once.
const DEPTH: u32 = 4;
const MAX_DEPTH: u32 = 4096;
/// Default of SJF and others: the longest wait of a request, apart from what is being served then.
const STARVATION_BOUND: Nanos = 500_000_000;
/// Allowed sequential-to-random ratios.
const RATIOS: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;

/// The settings of a dispatcher.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The scheduler's options.
    pub options: Options,
    /// Virtual requests served at once.
    pub depth: u32,
    /// Who chooses the algorithm, and how.
    pub choosing: Choosing,
    /// Device times for predictions, as measured.
    pub times: Option<Cost>,
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
            times: None,
        }
    }
}

impl Settings {
    /// Names beside [`Options::SETTINGS`].
    pub const MORE: [&'static str; 5] = ["depth", "tree", "objective", "ratio", "times"];

    /// These settings with changes, each `name=value`; an error names the change that is wrong.
    pub fn with(&self, changes: &[String]) -> Result<Settings, Error> {
        let mut new = self.clone();
        for change in changes {
            let (name, value) = Settings::split(change)?;
            new.set(name, value)?;
        }
        new.check()?;
        Ok(new)
    }

    /// Name and value of a change; an error if there is no `=`.
    pub fn split(change: &str) -> Result<(&str, &str), Error> {
        change.split_once('=').ok_or_else(|| {
            Error::Invalid(format!(
                "setting `{change}`: write name=value, such as sched=aioli"
            ))
        })
    }

    /// Sets one by name. The caller must call [`Settings::check`] once all are set.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let wanted = |wanted| Error::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            wanted,
        };
        match name {
            "depth" => {
                let depth = value.parse().ok().filter(|d| (1..=MAX_DEPTH).contains(d));
                self.depth = depth.ok_or_else(|| wanted("1..4096 requests"))?;
            }
            "sched" => {
                let mode = Mode::ALL.into_iter().find(|m| m.name() == Some(value));
                self.choosing.mode = mode.unwrap_or_default();
                if mode.is_none() {
                    self.options.set(name, value)?;
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
            "times" => {
                self.times = match value {
                    "off" => None,
                    curves => Some(curves.parse().map_err(|_| wanted(Cost::FORM))?),
                };
            }
            _ => self.options.set(name, value)?,
        }
        Ok(())
    }

    /// Checks that the settings are consistent; an error names the first that is not.
    pub fn check(&self) -> Result<(), Error> {
        let o = &self.options;
        o.check()?;
        for (name, wait) in [
            ("shift_wait", o.shift_wait),
            ("aggregation_wait", o.aggregation_wait),
            ("twins_window", o.twins_window),
            ("starvation_bound", o.starvation_bound.unwrap_or(0)),
        ] {
            if wait > MAX_WAIT {
                return Err(Error::Invalid(format!(
                    "{name} is {wait} ns; it may be 10 s at most"
                )));
            }
        }
        Ok(())
    }
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
        let timed = with(&["times=4096/100,8192/150:4096/200,8192/200"]).unwrap();
        let cost = timed.times.unwrap();
        assert_eq!(
            (
                cost.time(crate::Op::Read, 6144),
                cost.time(crate::Op::Write, 1)
            ),
            (125, 200)
        );
        assert_eq!(
            with(&["times=1/1,2/2:1/1,2/2", "times=off"]).unwrap().times,
            None
        );
        let fixed = with(&["sched=tree", "sched=mlf"]).unwrap();
        assert_eq!(fixed.choosing.mode, Mode::Fixed);
        for (word, named) in [
            ("sched=forest", "forest"),
            ("tree=T5", "T4 or own"),
            ("objective=speed", "fairness"),
            ("depth=0", "1..4096"),
            ("ratio=0", "0.01"),
            ("ratio=nan", "0.01"),
            ("ratio=1:2:3", "READ:WRITE"),
            ("ratio=-3", "READ:WRITE"),
            ("times=fast", "BYTES/NANOSECONDS"),
            ("times=1/2:1/2", "BYTES/NANOSECONDS"),
            ("shape=round", "shape"),
            ("round", "name=value"),
            ("shift_wait=10000000001", "10 s at most"),
        ] {
            let error = with(&[word]).unwrap_err().to_string();
            assert!(error.contains(named), "{word}: {error}");
        }
    }
}
