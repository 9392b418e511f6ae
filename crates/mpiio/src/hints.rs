//! Hints: keys that a user may set in an `MPI_Info`, and the library's report.
use crate::methods::row::BufferHint;
use crate::methods::{self, Method};
use penstock_base::Op;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// An `MPI_Info` object: keys and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// An object without keys.
    pub fn new() -> Info {
        Info::default()
    }

    /// Sets a key.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.insert(key.into(), value.into());
    }

    /// A key's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All keys with their values, in order of key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Info {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Info {
        Info(
            pairs
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
        )
    }
}

/// What a hint says about an optimisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Toggle {
    /// The library decides.
    #[default]
    Automatic,
    /// Always.
    Enable,
    /// Never.
    Disable,
}

impl Toggle {
    pub(crate) fn parse(value: &str) -> Option<Toggle> {
        match value {
            "enable" | "true" => Some(Toggle::Enable),
            "disable" | "false" => Some(Toggle::Disable),
            "automatic" | "auto" => Some(Toggle::Automatic),
            _ => None,
        }
    }
    pub(crate) fn name(self) -> &'static str {
        match self {
            Toggle::Automatic => "automatic",
            Toggle::Enable => "enable",
            Toggle::Disable => "disable",
        }
    }
}

/// Hints that do not belong to a method. docs/use/hints.md explains each.
const GENERAL: &[&str] = &[
    "penstock_method",
    "penstock_shortcut",
    "penstock_sync_on_close",
    "cb_nodes",
    "cb_config_list",
    "collective_buffering",
    "romio_cb_read",
    "romio_cb_write",
    "romio_no_indep_rw",
    "striping_unit",
    "striping_factor",
    "start_iodevice",
    "file_perm",
    "filename",
    "romio_filesystem_type",
    "romio_visibility_immediate",
    "penstock_method_chosen",
    "penstock_method_reason",
    "penstock_shortcut_chosen",
    "penstock_one_node",
    "penstock_file_system",
];

/// Every hint this library knows. docs/use/hints.md explains each.
pub fn hint_keys() -> impl Iterator<Item = &'static str> {
    let own = Method::ALL.into_iter().flat_map(|method| {
        let row = method.row();
        let toggles = row.toggles.into_iter().flatten();
        let [reads, writes] = row.buffer.as_ref().map_or([None; 2], |b| b.keys.map(Some));
        let buffers = [reads, writes.filter(|_| writes != reads)];
        toggles.chain(buffers.into_iter().flatten())
    });
    GENERAL.iter().copied().chain(own)
}

/// Most ineffective hints that are reported for one file.
const MAX_REPORTED: usize = 32;

/// Bounds of buffer sizes; values outside are clamped.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = 4096..=(1 << 30);

/// The hints in force for a file, including defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hints {
    /// A method by name; `None` is `auto`.
    pub method: Option<Method>,
    /// Whether the environment fixes the method, which a hint then does not change.
    pub method_fixed: bool,
    pub shortcut: Toggle,
    pub sync_on_close: bool,
    pub cb_nodes: Option<usize>,
    pub cb_config_list: String,
    /// `romio_cb_read`, `romio_cb_write`.
    pub cb: [Toggle; 2],
    /// Each method's own hints, for reads and writes; [`Toggle::Automatic`] where it has none.
    pub toggles: [[Toggle; 2]; Method::COUNT],
    /// Buffer size of each method in bytes, for reads and writes; 0 where it has none.
    pub buffers: [[u64; 2]; Method::COUNT],
    pub no_indep_rw: bool,
    pub striping_unit: Option<u64>,
    pub striping_factor: Option<u32>,
    pub start_iodevice: Option<u32>,
    /// Permission mode of a new file.
    pub file_perm: u32,
    /// Invalid hints that were already reported.
    pub reported: BTreeSet<(String, String)>,
}

impl Default for Hints {
    fn default() -> Hints {
        Hints {
            method: None,
            method_fixed: false,
            shortcut: Toggle::Automatic,
            sync_on_close: false,
            cb_nodes: None,
            cb_config_list: "*:*".into(),
            cb: Default::default(),
            toggles: Default::default(),
            buffers: Method::ALL.map(|m| [m.row().buffer.as_ref().map_or(0, |b| b.default); 2]),
            no_indep_rw: false,
            striping_unit: None,
            striping_factor: None,
            start_iodevice: None,
            file_perm: 0o666,
            reported: BTreeSet::new(),
        }
    }
}

impl Hints {
    /// Takes the keys of `info`; an invalid value leaves the hint unchanged, as MPI requires. The rank whose hints are
    /// used `reports` it in the log, once per file.
    pub(crate) fn take(&mut self, info: &Info, reports: bool) {
        for (key, value) in info.iter() {
            if self.take_one(key, value.trim()).is_none()
                && reports
                && self.reported.len() < MAX_REPORTED
                && self.reported.insert((key.to_owned(), value.to_owned()))
            {
                log::warn!(
                    "hint {key}={value} is not understood and has no effect; see docs/use/hints.md"
                );
            }
        }
    }

    fn take_one(&mut self, key: &str, value: &str) -> Option<()> {
        let number = || value.parse::<u64>().ok();
        let flag = || match value {
            "true" | "enable" | "1" => Some(true),
            "false" | "disable" | "0" => Some(false),
            _ => None,
        };
        match key {
            "penstock_method" => {
                let method = methods::parse_choice(value)?;
                if !self.method_fixed {
                    self.method = method;
                }
            }
            "penstock_shortcut" => self.shortcut = Toggle::parse(value)?,
            "penstock_sync_on_close" => self.sync_on_close = flag()?,
            "cb_nodes" => self.cb_nodes = Some(number().filter(|n| *n > 0)? as usize),
            "cb_config_list" => self.cb_config_list = value.to_owned(),
            "collective_buffering" => {
                let toggle = if flag()? {
                    Toggle::Enable
                } else {
                    Toggle::Disable
                };
                self.cb = [toggle; 2];
            }
            "romio_cb_read" => self.cb[0] = Toggle::parse(value)?,
            "romio_cb_write" => self.cb[1] = Toggle::parse(value)?,
            "romio_no_indep_rw" => self.no_indep_rw = flag()?,
            "striping_unit" => self.striping_unit = Some(number().filter(|n| *n > 0)?),
            "striping_factor" => {
                self.striping_factor = Some(u32::try_from(number().filter(|n| *n > 0)?).ok()?);
            }
            "start_iodevice" => self.start_iodevice = Some(u32::try_from(number()?).ok()?),
            "file_perm" => {
                self.file_perm = u32::from_str_radix(value, 8)
                    .ok()
                    .filter(|m| *m <= 0o7777)?;
            }
            _ => return self.take_of_method(key, value),
        }
        Some(())
    }

    /// Takes a hint of a method's own.
    fn take_of_method(&mut self, key: &str, value: &str) -> Option<()> {
        for method in Method::ALL {
            let row = method.row();
            if let Some(keys) = &row.toggles {
                let of = keys.iter().zip(&mut self.toggles[method.index()]);
                for (_, toggle) in of.filter(|(own, _)| **own == key) {
                    *toggle = Toggle::parse(value)?;
                }
            }
            if let Some(BufferHint { keys, .. }) = &row.buffer {
                let of = keys.iter().zip(&mut self.buffers[method.index()]);
                for (_, buffer) in of.filter(|(own, _)| **own == key) {
                    let asked = value.parse::<u64>().ok().filter(|n| *n > 0)?;
                    *buffer = asked.clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end());
                }
            }
        }
        Some(()) // MPI: unknown keys are ignored
    }

    /// A method's own hint for accesses without exchange.
    pub(crate) fn toggle(&self, method: Method, direction: Op) -> Toggle {
        self.toggles[method.index()][direction as usize]
    }

    /// Whether the methods' own hints allow `method`: they neither exclude it nor ask for another.
    pub(crate) fn leave(&self, method: Method, direction: Op) -> bool {
        let others = Method::ALL.into_iter().filter(|other| *other != method);
        self.toggle(method, direction) != Toggle::Disable
            && others.fold(true, |left, other| {
                left & (self.toggle(other, direction) != Toggle::Enable)
            })
    }

    /// Bytes of a method's buffer.
    pub(crate) fn buffer(&self, method: Method, direction: Op) -> u64 {
        self.buffers[method.index()][direction as usize]
    }

    /// The values for `MPI_File_get_info` of the hints that a user can set.
    pub(crate) fn report(&self, ranks: usize) -> Info {
        let mut info = Info::new();
        let yes = |b: bool| if b { "true" } else { "false" };
        info.set("penstock_method", methods::choice_name(self.method));
        info.set("penstock_shortcut", self.shortcut.name());
        info.set("penstock_sync_on_close", yes(self.sync_on_close));
        let nodes = self.cb_nodes.unwrap_or(ranks).min(ranks);
        info.set("cb_nodes", nodes.to_string());
        info.set("cb_config_list", &*self.cb_config_list);
        info.set("collective_buffering", yes(self.cb != [Toggle::Disable; 2]));
        info.set("romio_cb_read", self.cb[0].name());
        info.set("romio_cb_write", self.cb[1].name());
        for method in Method::ALL {
            let row = method.row();
            if let Some(keys) = &row.toggles {
                for (key, toggle) in keys.iter().zip(self.toggles[method.index()]) {
                    info.set(*key, toggle.name());
                }
            }
            if let Some(BufferHint { keys, .. }) = &row.buffer {
                for (key, bytes) in keys.iter().zip(self.buffers[method.index()]) {
                    info.set(*key, bytes.to_string());
                }
            }
        }
        info.set("romio_no_indep_rw", yes(self.no_indep_rw));
        info.set("file_perm", format!("{:o}", self.file_perm));
        info
    }

    /// Most aggregators on one node that `cb_config_list` allows: `*:k`, or one per node for `*`.
    pub(crate) fn aggregators_per_node(&self) -> Option<usize> {
        let (host, count) = self.cb_config_list.split_once(':')?;
        if host != "*" {
            return None;
        }
        count.parse().ok().filter(|k| *k > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_and_nonsense_is_left_out() {
        let mut hints = Hints::default();
        hints.take(
            &Info::from_iter([
                ("cb_nodes", "3"),
                ("cb_buffer_size", "zero"),
                ("romio_ds_write", "disable"),
                ("ind_rd_buffer_size", "8192"),
                ("penstock_exchange_buffer_size", "1"),
                ("penstock_method", "two-phase"),
                ("file_perm", "0640"),
                ("nobody_knows_this", "x"),
            ]),
            false,
        );
        let mut want = Hints {
            cb_nodes: Some(3),
            method: Some(Method::TWO_PHASE),
            file_perm: 0o640,
            ..Hints::default()
        };
        want.toggles[Method::SIEVE.index()][1] = Toggle::Disable;
        want.buffers[Method::SIEVE.index()][0] = 8192;
        want.buffers[Method::NODE_EXCHANGE.index()] = [4096; 2];
        assert_eq!(hints, want);
        // An ineffective hint is reported once.
        for _ in 0..2 {
            hints.take(
                &Info::from_iter([("cb_nodes", "none"), ("cb_buffer_size", "8192")]),
                true,
            );
            assert_eq!(hints.reported.len(), 1);
        }
    }

    #[test]
    fn every_reported_key_is_in_the_table() {
        for (key, _) in Hints::default().report(4).iter() {
            assert!(hint_keys().any(|known| known == key), "{key}");
        }
    }

    #[test]
    fn an_aggregator_list_limits_each_node() {
        let mut hints = Hints::default();
        assert_eq!(hints.aggregators_per_node(), None);
        hints.take(&Info::from_iter([("cb_config_list", "*:2")]), true);
        assert_eq!(hints.aggregators_per_node(), Some(2));
    }
}
