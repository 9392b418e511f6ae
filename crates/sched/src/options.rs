//! All parameters of the algorithms, with the defaults of the sources.
use crate::algorithms::Algorithm;
use crate::{Error, Nanos};

const MICRO: Nanos = 1_000;
const MILLI: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;
/// Largest quantum: with a larger one every request is eligible at once.
const MAX_QUANTUM: u64 = 1 << 40;
/// Longest window or wait.
const MAX_TIME: Nanos = 3600 * SECOND;
/// Most requests that the limit may allow.
const MAX_HELD: usize = 1 << 24;

/// Options of a scheduler. The defaults are the sources'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which algorithm.
    pub algorithm: Algorithm,
    /// Most requests held, queued and being served: 1 to 2^24.
    pub queue_limit: usize,
    /// Most files whose history is kept after their queue has run empty: at least 1.
    pub file_limit: usize,
    /// Most requests in one virtual request; `None`: 200 for MLF, 16 for the others that aggregate.
    pub aggregation: Option<u32>,
    /// Most bytes of one virtual request.
    pub aggregation_bytes: u64,
    /// MLF, aIOLi, WFQ: quantum in bytes, 1 to 2^40.
    pub quantum: u64,
    /// MLF, aIOLi: how long a queue waits for the request that a shift left behind; 0: no wait.
    pub shift_wait: Nanos,
    /// MLF, aIOLi: how long a queue waits for a larger aggregation; 0: no wait.
    pub aggregation_wait: Nanos,
    /// SJF, SRTF, MLF, aIOLi: a request that has waited this long is served next. The source has no such bound.
    pub starvation_bound: Option<Nanos>,
    /// SW: requests that arrived in the same window are served program by program. 1 s for disks, 250 ms for flash.
    pub sw_window: Nanos,
    /// TWINS: how long one queue is served.
    pub twins_window: Nanos,
    /// WFQ: shares of programs; programs not listed have 1.
    pub weights: Vec<(u64, u32)>,
    /// Conflicting requests (same file, common bytes, one of them a write) are served in order of arrival.
    pub order_conflicts: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            algorithm: Algorithm::Noop,
            queue_limit: 1 << 20,
            file_limit: 1 << 16,
            aggregation: None,
            aggregation_bytes: 16 << 20,
            quantum: 64 << 10,
            shift_wait: 1350 * MICRO,
            aggregation_wait: 900 * MICRO,
            starvation_bound: None,
            sw_window: SECOND,
            twins_window: MILLI,
            weights: Vec::new(),
            order_conflicts: false,
        }
    }
}

impl Options {
    /// Checks the ranges; the error names the option, its value and what is allowed.
    pub fn check(&self) -> Result<(), Error> {
        let within = |name, value: u64, low: u64, high: u64, allowed| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Error::Option {
                name,
                value,
                allowed,
            })
        };
        let held = MAX_HELD as u64;
        within("queue_limit", self.queue_limit as u64, 1, held, "1..2^24")?;
        within("file_limit", self.file_limit as u64, 1, held, "1..2^24")?;
        let parts = self.aggregation.unwrap_or(1).into();
        within("aggregation", parts, 1, 65_536, "1..65536")?;
        let bytes = self.aggregation_bytes;
        within("aggregation_bytes", bytes, 1, MAX_QUANTUM, "1..2^40")?;
        within("quantum", self.quantum, 1, MAX_QUANTUM, "1..2^40 bytes")?;
        let wait = "0..3600 s (in ns)";
        within("shift_wait", self.shift_wait, 0, MAX_TIME, wait)?;
        within("aggregation_wait", self.aggregation_wait, 0, MAX_TIME, wait)?;
        let bound = self.starvation_bound.unwrap_or(1);
        let time = "1 ns..3600 s (in ns)";
        within("starvation_bound", bound, 1, MAX_TIME, time)?;
        within("sw_window", self.sw_window, 1, MAX_TIME, time)?;
        within("twins_window", self.twins_window, 1, MAX_TIME, time)?;
        for (_, weight) in &self.weights {
            within("weights", (*weight).into(), 1, 65_536, "1..65536")?;
        }
        within(
            "weights (programs)",
            self.weights.len() as u64,
            0,
            4096,
            "0..4096",
        )
    }

    /// Names of all settings, as [`Options::set`] knows them.
    pub const SETTINGS: [&str; 13] = [
        "sched",
        "quantum",
        "aggregation",
        "aggregation_bytes",
        "shift_wait",
        "aggregation_wait",
        "starvation_bound",
        "sw_window",
        "twins_window",
        "weights",
        "order_conflicts",
        "queue_limit",
        "file_limit",
    ];

    /// Sets one option by name. Bytes may end in K, M, G, T (or KiB, …), times in ns, us, ms, s; without a unit they
    /// are bytes and nanoseconds. `weights` is `PROGRAM:WEIGHT,…`; `off` or `default` unsets an optional one. Errors
    /// name the setting; [`Options::check`] checks the ranges.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let bad = |wanted| Error::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            wanted,
        };
        let bytes = || scaled(value, &BYTES).ok_or(bad("a number of bytes, such as 64KiB"));
        let time = || scaled(value, &TIMES).ok_or(bad("a time, such as 900us or 1s"));
        let count = || value.parse::<u64>().map_err(|_| bad("a whole number"));
        let none = matches!(value, "off" | "none" | "default");
        match name {
            "sched" => self.algorithm = value.parse()?,
            "quantum" => self.quantum = bytes()?,
            "aggregation" if none => self.aggregation = None,
            "aggregation" => {
                let parts = count()?.try_into().map_err(|_| bad("1..65536"))?;
                self.aggregation = Some(parts);
            }
            "aggregation_bytes" => self.aggregation_bytes = bytes()?,
            "shift_wait" => self.shift_wait = if none { 0 } else { time()? },
            "aggregation_wait" => self.aggregation_wait = if none { 0 } else { time()? },
            "starvation_bound" if none => self.starvation_bound = None,
            "starvation_bound" => self.starvation_bound = Some(time()?),
            "sw_window" => self.sw_window = time()?,
            "twins_window" => self.twins_window = time()?,
            "weights" if none => self.weights.clear(),
            "weights" => {
                let pair = |text: &str| {
                    let (program, weight) = text.split_once(':')?;
                    Some((program.parse().ok()?, weight.parse().ok()?))
                };
                let pairs = value.split(',').map(pair).collect::<Option<_>>();
                self.weights = pairs.ok_or(bad("PROGRAM:WEIGHT,…, such as 1:4,2:1"))?;
            }
            "order_conflicts" => {
                self.order_conflicts = match value {
                    "on" | "yes" | "true" | "1" => true,
                    "off" | "no" | "false" | "0" => false,
                    _ => return Err(bad("on or off")),
                }
            }
            "queue_limit" => self.queue_limit = usize::try_from(count()?).unwrap_or(usize::MAX),
            "file_limit" => self.file_limit = usize::try_from(count()?).unwrap_or(usize::MAX),
            _ => return Err(Error::UnknownSetting(name.to_owned())),
        }
        Ok(())
    }

    /// All settings by name, as [`Options::set`] takes them.
    pub fn settings(&self) -> [(&'static str, String); 13] {
        let off = || "off".to_owned();
        let weights: Vec<String> = self
            .weights
            .iter()
            .map(|(program, weight)| format!("{program}:{weight}"))
            .collect();
        Options::SETTINGS.map(|name| {
            let value = match name {
                "sched" => self.algorithm.name().to_owned(),
                "quantum" => self.quantum.to_string(),
                "aggregation" => self.aggregation.map_or_else(off, |n| n.to_string()),
                "aggregation_bytes" => self.aggregation_bytes.to_string(),
                "shift_wait" => self.shift_wait.to_string(),
                "aggregation_wait" => self.aggregation_wait.to_string(),
                "starvation_bound" => self.starvation_bound.map_or_else(off, |t| t.to_string()),
                "sw_window" => self.sw_window.to_string(),
                "twins_window" => self.twins_window.to_string(),
                "weights" if weights.is_empty() => off(),
                "weights" => weights.join(","),
                "order_conflicts" if self.order_conflicts => "on".to_owned(),
                "order_conflicts" => off(),
                "queue_limit" => self.queue_limit.to_string(),
                _ => self.file_limit.to_string(),
            };
            (name, value)
        })
    }

    /// Most requests in one virtual request.
    pub fn parts_limit(&self) -> u32 {
        match self.algorithm.aggregation() {
            1 => 1,
            default => self.aggregation.unwrap_or(default),
        }
    }

    /// WFQ: the share of a program.
    pub(crate) fn weight(&self, program: u64) -> u64 {
        let found = self.weights.iter().find(|(p, _)| *p == program);
        found.map_or(1, |(_, weight)| u64::from(*weight))
    }
}

const BYTES: [(&str, u64); 5] = [
    ("", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
];
const TIMES: [(&str, u64); 5] = [
    ("", 1),
    ("ns", 1),
    ("us", MICRO),
    ("ms", MILLI),
    ("s", SECOND),
];

/// A whole number with one of these units.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = unit.strip_suffix("iB").unwrap_or(unit);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_by_name() {
        let mut options = Options::default();
        for (name, value) in [
            ("sched", "aioli"),
            ("quantum", "128KiB"),
            ("aggregation", "32"),
            ("shift_wait", "off"),
            ("starvation_bound", "500ms"),
            ("weights", "1:4,2:1"),
            ("order_conflicts", "on"),
        ] {
            assert!(Options::SETTINGS.contains(&name));
            assert_eq!(options.set(name, value), Ok(()), "{name}");
        }
        let expected = Options {
            algorithm: Algorithm::Aioli,
            quantum: 128 << 10,
            aggregation: Some(32),
            shift_wait: 0,
            starvation_bound: Some(500_000_000),
            weights: vec![(1, 4), (2, 1)],
            order_conflicts: true,
            ..Options::default()
        };
        assert_eq!(options, expected);
        let mut again = Options::default();
        for (name, value) in options.settings() {
            assert_eq!(again.set(name, &value), Ok(()), "{name}={value}");
        }
        assert_eq!(again, expected);
        for (name, value) in [
            ("sched", "cfq"),
            ("quantum", "much"),
            ("quantum", "-1"),
            ("quantum", "99999999999T"),
            ("sw_window", "3 weeks"),
            ("weights", "1=4"),
            ("order_conflicts", "maybe"),
            ("color", "red"),
        ] {
            let error = options.set(name, value).unwrap_err().to_string();
            assert!(error.contains(value) || error.contains(name), "{error}");
        }
    }

    #[test]
    fn values_outside_their_range_are_named() {
        let d = Options::default;
        assert_eq!(d().check(), Ok(()));
        for (name, bad) in [
            ("quantum", Options { quantum: 0, ..d() }),
            (
                "quantum",
                Options {
                    quantum: u64::MAX,
                    ..d()
                },
            ),
            (
                "queue_limit",
                Options {
                    queue_limit: 0,
                    ..d()
                },
            ),
            (
                "aggregation",
                Options {
                    aggregation: Some(0),
                    ..d()
                },
            ),
            (
                "starvation_bound",
                Options {
                    starvation_bound: Some(0),
                    ..d()
                },
            ),
            (
                "sw_window",
                Options {
                    sw_window: 0,
                    ..d()
                },
            ),
            (
                "twins_window",
                Options {
                    twins_window: u64::MAX,
                    ..d()
                },
            ),
            (
                "weights",
                Options {
                    weights: vec![(1, 0)],
                    ..d()
                },
            ),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
