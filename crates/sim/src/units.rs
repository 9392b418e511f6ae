//! Sizes, times and rates in scenarios: `"64KiB"`, `"60us"`, `"117MB/s"`, or a plain number of bytes, nanoseconds,
//! bytes per second.
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

const SIZES: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];
const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];
/// Longest time and largest size that a scenario may use: arithmetic stays exact beyond a year and 8 EiB.
const LONGEST: u64 = 366 * 86_400 * 1_000_000_000;
const LARGEST: u64 = 1 << 60;

fn parse(text: &str, units: &[(&str, u64)], limit: u64, example: &str) -> Result<u64, String> {
    let bad = || format!("\"{text}\" is none; write {example}");
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim(), *factor)))
        .ok_or_else(bad)?;
    let value: f64 = number.parse().map_err(|_| bad())?;
    let value = value * factor as f64;
    if !(0.0..=limit as f64).contains(&value) {
        return Err(format!("\"{text}\" is outside 0..={limit}"));
    }
    Ok(value.round() as u64)
}

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $what:literal, $example:literal, $parse:expr, $limit:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
        pub struct $name(pub u64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                struct Seen;
                impl Visitor<'_> for Seen {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "{}, such as {}", $what, $example)
                    }
                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        let parse: fn(&str) -> Result<u64, String> = $parse;
                        parse(text)
                            .map($name)
                            .map_err(|e| E::custom(format!("{}: {e}", $what)))
                    }
                    fn visit_i64<E: Error>(self, n: i64) -> Result<$name, E> {
                        match u64::try_from(n) {
                            Ok(n) if n <= $limit => Ok($name(n)),
                            _ => Err(E::custom(format!("{}: {n} is outside 0..={}", $what, $limit))),
                        }
                    }
                }
                deserializer.deserialize_any(Seen)
            }
        }
    };
}

unit!(
    /// Bytes.
    Bytes,
    "a size",
    "\"64KiB\" or \"10GB\"",
    |t| parse(t, SIZES, LARGEST, "\"64KiB\" or \"10GB\""),
    LARGEST
);
unit!(
    /// Virtual nanoseconds.
    Time,
    "a time",
    "\"60us\" or \"1.5ms\"",
    |t| parse(t, TIMES, LONGEST, "\"60us\" or \"1.5ms\""),
    LONGEST
);
unit!(
    /// Bytes per second.
    Rate,
    "a rate",
    "\"117MB/s\"",
    |t| {
        let size = t.strip_suffix("/s").ok_or(format!("\"{t}\" is none; write \"117MB/s\""))?;
        parse(size, SIZES, LARGEST, "\"117MB/s\"")
    },
    LARGEST
);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct All {
        size: Bytes,
        time: Time,
        rate: Rate,
    }

    #[test]
    fn units_are_read_and_mistakes_are_explained() {
        let all: All = toml::from_str("size = '1.5KiB'\ntime = '60us'\nrate = '117MB/s'").unwrap();
        assert_eq!(
            (all.size.0, all.time.0, all.rate.0),
            (1536, 60_000, 117_000_000)
        );
        for (text, says) in [
            ("size = '64 bits'\ntime = 0\nrate = 1", "64KiB"),
            ("size = -1\ntime = 0\nrate = 1", "outside"),
            ("size = 1\ntime = '3 minutes'\nrate = 1", "60us"),
            ("size = 1\ntime = 1\nrate = '3'", "117MB/s"),
            ("size = '99999999TiB'\ntime = 1\nrate = 1", "outside"),
        ] {
            let error = toml::from_str::<All>(text)
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
