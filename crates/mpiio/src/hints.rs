//! Hints: what a user may ask for in an `MPI_Info`, and what the library answers.
use crate::methods::Method;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// An `MPI_Info` object: keys and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// No keys.
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

/// What a hint asks of an optimisation.
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

/// Every hint this library knows. docs/hints.md explains each.
pub const HINTS: &[&str] = &[
    "penstock_method",
    "penstock_shortcut",
    "penstock_sync_on_close",
    "penstock_exchange_buffer_size",
    "cb_nodes",
    "cb_buffer_size",
    "cb_config_list",
    "collective_buffering",
    "romio_cb_read",
    "romio_cb_write",
    "romio_ds_read",
    "romio_ds_write",
    "ind_rd_buffer_size",
    "ind_wr_buffer_size",
    "romio_no_indep_rw",
    "romio_pvfs2_dtype_read",
    "romio_pvfs2_dtype_write",
    "romio_pvfs2_listio_read",
    "romio_pvfs2_listio_write",
    "romio_pvfs2_posix_read",
    "romio_pvfs2_posix_write",
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

/// Hints without effect that are reported, for one file.
const MAX_REPORTED: usize = 32;

/// Bounds of buffer sizes; what a user asks for is made to fit.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = 4096..=(1 << 30);

/// The hints in force for a file, defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hints {
    /// A method by name; `None` is `auto`.
    pub method: Option<Method>,
    /// The method was fixed by the environment, which a hint does not change.
    pub method_fixed: bool,
    pub shortcut: Toggle,
    pub sync_on_close: bool,
    /// Bytes of one rank's window in the exchange through node-shared memory.
    pub exchange_buffer_size: u64,
    pub cb_nodes: Option<usize>,
    pub cb_buffer_size: u64,
    pub cb_config_list: String,
    /// `romio_cb_read`, `romio_cb_write`.
    pub cb: [Toggle; 2],
    /// `romio_ds_read`, `romio_ds_write`.
    pub ds: [Toggle; 2],
    /// `ind_rd_buffer_size`, `ind_wr_buffer_size`.
    pub sieve_buffer_size: [u64; 2],
    pub no_indep_rw: bool,
    pub dtype: [Toggle; 2],
    pub listio: [Toggle; 2],
    pub posix: [Toggle; 2],
    pub striping_unit: Option<u64>,
    pub striping_factor: Option<u32>,
    pub start_iodevice: Option<u32>,
    /// Permission mode of a new file.
    pub file_perm: u32,
    /// What was not understood and is reported already.
    pub reported: BTreeSet<(String, String)>,
}

impl Default for Hints {
    fn default() -> Hints {
        Hints {
            method: None,
            method_fixed: false,
            shortcut: Toggle::Automatic,
            sync_on_close: false,
            exchange_buffer_size: 1 << 20,
            cb_nodes: None,
            cb_buffer_size: 4 << 20,
            cb_config_list: "*:*".into(),
            cb: Default::default(),
            ds: Default::default(),
            sieve_buffer_size: [4 << 20; 2],
            no_indep_rw: false,
            dtype: Default::default(),
            listio: Default::default(),
            posix: Default::default(),
            striping_unit: None,
            striping_factor: None,
            start_iodevice: None,
            file_perm: 0o666,
            reported: BTreeSet::new(),
        }
    }
}

impl Hints {
    /// Takes the keys of `info`; a value that is not understood leaves the hint as it was, as MPI wants. The rank whose
    /// hints hold `reports` it in the log, once for a file.
    pub(crate) fn take(&mut self, info: &Info, reports: bool) {
        for (key, value) in info.iter() {
            if self.take_one(key, value.trim()).is_none()
                && reports
                && self.reported.len() < MAX_REPORTED
                && self.reported.insert((key.to_owned(), value.to_owned()))
            {
                log::warn!(
                    "hint {key}={value} is not understood and has no effect; see docs/hints.md"
                );
            }
        }
    }

    fn take_one(&mut self, key: &str, value: &str) -> Option<()> {
        let number = || value.parse::<u64>().ok();
        let size = || {
            let asked = number().filter(|n| *n > 0)?;
            Some(asked.clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end()))
        };
        let flag = || match value {
            "true" | "enable" | "1" => Some(true),
            "false" | "disable" | "0" => Some(false),
            _ => None,
        };
        match key {
            "penstock_method" => {
                let method = if value == "auto" {
                    None
                } else {
                    Some(Method::parse(value)?)
                };
                if !self.method_fixed {
                    self.method = method;
                }
            }
            "penstock_shortcut" => self.shortcut = Toggle::parse(value)?,
            "penstock_sync_on_close" => self.sync_on_close = flag()?,
            "penstock_exchange_buffer_size" => self.exchange_buffer_size = size()?,
            "cb_nodes" => self.cb_nodes = Some(number().filter(|n| *n > 0)? as usize),
            "cb_buffer_size" => self.cb_buffer_size = size()?,
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
            "romio_ds_read" => self.ds[0] = Toggle::parse(value)?,
            "romio_ds_write" => self.ds[1] = Toggle::parse(value)?,
            "ind_rd_buffer_size" => self.sieve_buffer_size[0] = size()?,
            "ind_wr_buffer_size" => self.sieve_buffer_size[1] = size()?,
            "romio_no_indep_rw" => self.no_indep_rw = flag()?,
            "romio_pvfs2_dtype_read" => self.dtype[0] = Toggle::parse(value)?,
            "romio_pvfs2_dtype_write" => self.dtype[1] = Toggle::parse(value)?,
            "romio_pvfs2_listio_read" => self.listio[0] = Toggle::parse(value)?,
            "romio_pvfs2_listio_write" => self.listio[1] = Toggle::parse(value)?,
            "romio_pvfs2_posix_read" => self.posix[0] = Toggle::parse(value)?,
            "romio_pvfs2_posix_write" => self.posix[1] = Toggle::parse(value)?,
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
            _ => {} // MPI: unknown keys are ignored
        }
        Some(())
    }

    /// What `MPI_File_get_info` says of the hints a user can set.
    pub(crate) fn report(&self, ranks: usize) -> Info {
        let mut info = Info::new();
        let yes = |b: bool| if b { "true" } else { "false" };
        info.set("penstock_method", self.method.map_or("auto", Method::name));
        info.set("penstock_shortcut", self.shortcut.name());
        info.set("penstock_sync_on_close", yes(self.sync_on_close));
        info.set(
            "penstock_exchange_buffer_size",
            self.exchange_buffer_size.to_string(),
        );
        let nodes = self.cb_nodes.unwrap_or(ranks).min(ranks);
        info.set("cb_nodes", nodes.to_string());
        info.set("cb_buffer_size", self.cb_buffer_size.to_string());
        info.set("cb_config_list", &*self.cb_config_list);
        info.set("collective_buffering", yes(self.cb != [Toggle::Disable; 2]));
        let pairs = [
            ("romio_cb", self.cb),
            ("romio_ds", self.ds),
            ("romio_pvfs2_dtype", self.dtype),
            ("romio_pvfs2_listio", self.listio),
            ("romio_pvfs2_posix", self.posix),
        ];
        for (stem, [read, write]) in pairs {
            info.set(format!("{stem}_read"), read.name());
            info.set(format!("{stem}_write"), write.name());
        }
        info.set("ind_rd_buffer_size", self.sieve_buffer_size[0].to_string());
        info.set("ind_wr_buffer_size", self.sieve_buffer_size[1].to_string());
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
                ("penstock_method", "two-phase"),
                ("file_perm", "0640"),
                ("nobody_knows_this", "x"),
            ]),
            false,
        );
        let want = Hints {
            cb_nodes: Some(3),
            ds: [Toggle::Automatic, Toggle::Disable],
            method: Some(Method::TwoPhase),
            file_perm: 0o640,
            ..Hints::default()
        };
        assert_eq!(hints, want);
        // What has no effect is reported, once.
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
            assert!(HINTS.contains(&key), "{key}");
        }
    }

    #[test]
    fn the_manual_lists_every_hint() {
        let manual = include_str!("../../../docs/hints.md");
        for key in HINTS {
            assert!(manual.contains(&format!("`{key}`")), "{key}");
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
