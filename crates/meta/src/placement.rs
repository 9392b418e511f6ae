//! The data servers of a new file, and their round-robin order.
//!
//! Defaults: the deployment's stripe unit, all its servers. The starting server rotates over the deployment, so that
//! many small files are spread evenly.
use crate::error::{Result, error, shown};
use penstock_layout::{Layout, ServerId};
use penstock_wire::message::{CreateOptions, ErrorKind};
use serde::{Deserialize, Serialize};

/// Default striping of new files in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Striping {
    pub unit: Option<u64>,
    pub count: Option<u32>,
    pub start: Option<u32>,
}

impl Striping {
    /// Parses `unit=1MiB count=2 start=0`, separated by spaces or commas. `servers=…`, which is part of the attribute's
    /// value, is ignored.
    pub fn parse(text: &str) -> Result<Striping> {
        let wrong = |what: &str| {
            error(
                ErrorKind::InvalidArgument,
                format!(
                    "striping \"{}\": {what}; write unit=BYTES count=SERVERS start=SERVER",
                    shown(text)
                ),
            )
        };
        let mut striping = Striping::default();
        for part in text.split([' ', ',', '\n']).filter(|p| !p.is_empty()) {
            if part.bytes().all(|b| b.is_ascii_digit()) {
                // The rest of a list of servers.
                continue;
            }
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| wrong(&format!("no \"=\" in \"{}\"", shown(part))))?;
            let number = || {
                value
                    .parse::<u32>()
                    .map_err(|_| wrong(&format!("\"{}\" is no number", shown(value))))
            };
            match key {
                "unit" => {
                    striping.unit = Some(bytes(value).ok_or_else(|| wrong("the unit is no size"))?)
                }
                "count" => striping.count = Some(number()?),
                "start" => striping.start = Some(number()?),
                "servers" => {}
                _ => return Err(wrong(&format!("\"{}\" is unknown", shown(key)))),
            }
        }
        Ok(striping)
    }

    /// The form that is parsed.
    pub fn text(&self) -> String {
        let part = |name: &str, value: Option<u64>| value.map(|v| format!("{name}={v}"));
        [
            part("unit", self.unit),
            part("count", self.count.map(u64::from)),
            part("start", self.start.map(u64::from)),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
    }

    /// The requested options, completed with this striping.
    pub fn fill(&self, wanted: &CreateOptions) -> CreateOptions {
        CreateOptions {
            mode: wanted.mode,
            stripe_unit: wanted.stripe_unit.or(self.unit),
            stripe_count: wanted.stripe_count.or(self.count),
            start_server: wanted.start_server.or(self.start.map(ServerId)),
        }
    }
}

/// A size with or without a binary suffix.
fn bytes(text: &str) -> Option<u64> {
    let (number, factor) = [
        ("KiB", 10),
        ("MiB", 20),
        ("GiB", 30),
        ("K", 10),
        ("M", 20),
        ("G", 30),
    ]
    .iter()
    .find_map(|(suffix, bits)| Some((text.strip_suffix(suffix)?, 1u64 << bits)))
    .unwrap_or((text, 1));
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A layout as the value of `user.penstock.layout`.
pub fn describe(layout: &Layout) -> String {
    let ids: Vec<String> = layout.servers.iter().map(|s| s.0.to_string()).collect();
    format!(
        "unit={} count={} start={} servers={}",
        layout.stripe_unit,
        ids.len(),
        ids.first().map_or("0", String::as_str),
        ids.join(",")
    )
}

#[derive(Debug, Clone)]
pub struct Placement {
    servers: Vec<ServerId>,
    stripe_unit: u64,
    /// Index of the next starting server.
    next: usize,
}

impl Placement {
    /// `servers` in the deployment's order; must not be empty.
    pub fn new(servers: Vec<ServerId>, stripe_unit: u64) -> Result<Placement> {
        if servers.is_empty() {
            return Err(error(
                ErrorKind::InvalidArgument,
                "the deployment has no data server; add a [[server]] section to its file",
            ));
        }
        Layout::new(stripe_unit, servers.clone()).map_err(|e| {
            error(
                ErrorKind::InvalidArgument,
                format!("the deployment's default striping is wrong: {e}; correct its file"),
            )
        })?;
        Ok(Placement {
            servers,
            stripe_unit,
            next: 0,
        })
    }

    /// Number of data servers, which bounds the servers of a layout. All data servers.
    pub fn ids(&self) -> impl Iterator<Item = ServerId> {
        self.servers.iter().copied()
    }

    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// The layout of the next new file.
    pub fn layout(&mut self, wanted: &CreateOptions) -> Result<Layout> {
        let all = self.servers.len();
        let count = match wanted.stripe_count {
            None => all,
            Some(n) if (1..=all).contains(&(n as usize)) => n as usize,
            Some(n) => {
                return Err(error(
                    ErrorKind::InvalidArgument,
                    format!(
                        "stripe count {n} does not fit: the deployment has {all} data servers; ask for 1 to {all}"
                    ),
                ));
            }
        };
        let start = match wanted.start_server {
            None => self.next % all,
            Some(id) => self.servers.iter().position(|s| *s == id).ok_or_else(|| {
                error(
                    ErrorKind::InvalidArgument,
                    format!(
                        "starting server {} is not in the deployment; `penstock status` lists its data servers",
                        id.0
                    ),
                )
            })?,
        };
        let servers = (0..count)
            .map(|i| self.servers[(start + i) % all])
            .collect();
        let unit = wanted.stripe_unit.unwrap_or(self.stripe_unit);
        let layout = Layout::new(unit, servers).map_err(|e| {
            error(
                ErrorKind::InvalidArgument,
                format!("striping of the new file: {e}; choose another value"),
            )
        })?;
        if wanted.start_server.is_none() {
            self.next = (start + 1) % all;
        }
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement() -> Placement {
        Placement::new([5, 2, 9].map(ServerId).to_vec(), 65536).unwrap()
    }

    fn ids(layout: &Layout) -> Vec<u32> {
        layout.servers.iter().map(|s| s.0).collect()
    }

    #[test]
    fn starting_server_goes_round_robin() {
        let mut p = placement();
        let seen: Vec<_> = (0..4)
            .map(|_| ids(&p.layout(&CreateOptions::default()).unwrap()))
            .collect();
        assert_eq!(seen, [[5, 2, 9], [2, 9, 5], [9, 5, 2], [5, 2, 9]]);
    }

    #[test]
    fn options_are_followed_and_leave_the_turn_alone() {
        let mut p = placement();
        let wanted = CreateOptions {
            stripe_unit: Some(4096),
            stripe_count: Some(2),
            start_server: Some(ServerId(9)),
            ..CreateOptions::default()
        };
        let layout = p.layout(&wanted).unwrap();
        assert_eq!((layout.stripe_unit, ids(&layout)), (4096, vec![9, 5]));
        assert_eq!(ids(&p.layout(&CreateOptions::default()).unwrap())[0], 5);
    }

    #[test]
    fn impossible_options_are_refused() {
        let mut p = placement();
        for wanted in [
            CreateOptions {
                stripe_count: Some(0),
                ..CreateOptions::default()
            },
            CreateOptions {
                stripe_count: Some(4),
                ..CreateOptions::default()
            },
            CreateOptions {
                start_server: Some(ServerId(1)),
                ..CreateOptions::default()
            },
            CreateOptions {
                stripe_unit: Some(0),
                ..CreateOptions::default()
            },
            CreateOptions {
                stripe_unit: Some(1 << 40),
                ..CreateOptions::default()
            },
        ] {
            let e = p.layout(&wanted).unwrap_err();
            assert_eq!(e.kind, ErrorKind::InvalidArgument, "{wanted:?}: {e}");
        }
        assert!(Placement::new(Vec::new(), 65536).is_err());
        assert!(Placement::new(vec![ServerId(0)], 0).is_err());
    }
}
