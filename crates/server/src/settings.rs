//! Settings of a running server: scheduling, the trace that is written, and the trace that predicts.
use crate::error::refuse;
use penstock_sched::{self as sched, Error};
use penstock_store::FastMode;
use penstock_wire::message::{ErrorKind, MAX_SETTINGS, WireError};
use std::path::{Path, PathBuf};

/// The settings of a data server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) sched: sched::Settings,
    /// Directories of the trace that is written, and of the one that predicts.
    pub(crate) trace: Option<PathBuf>,
    pub(crate) predict: Option<PathBuf>,
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
        let refused = |e: Error| invalid(e.to_string());
        let mut new = self.clone();
        for change in changes {
            let (name, value) = sched::Settings::split(change).map_err(refused)?;
            new.set(name, value)?;
        }
        new.sched.check().map_err(refused)?;
        Ok(new)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), WireError> {
        match name {
            "fast" => {
                if FastMode::from_name(value).is_none() {
                    return Err(invalid(format!(
                        "fast is `{value}`; it takes auto, on or off"
                    )));
                }
            }
            "trace" => self.trace = directory(name, value)?,
            "predict" => self.predict = directory(name, value)?,
            _ => self.sched.set(name, value).map_err(|e| match e {
                Error::UnknownAlgorithm(_) => {
                    invalid(format!("{e}; tree and online choose among them themselves"))
                }
                Error::UnknownSetting(_) => {
                    let more = sched::Settings::MORE.join(", ");
                    invalid(format!("{e}, {more}, trace, predict, fast"))
                }
                e => invalid(e.to_string()),
            })?,
        }
        Ok(())
    }
}

/// The directory that a setting names; none for `off`.
fn directory(name: &str, value: &str) -> Result<Option<PathBuf>, WireError> {
    match value {
        "off" => Ok(None),
        dir if Path::new(dir).is_absolute() => Ok(Some(PathBuf::from(dir))),
        _ => Err(invalid(format!(
            "{name} is `{value}`; it takes the whole path of a directory, from / on, or off"
        ))),
    }
}

fn invalid(what: String) -> WireError {
    refuse(ErrorKind::InvalidArgument, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named_with_what_there_is() {
        for (word, named) in [
            ("sched=forest", "online"),
            ("shape=round", "ratio, times, trace, predict, fast"),
            ("fast=maybe", "auto, on or off"),
            ("trace=here", "from / on"),
            ("predict=", "from / on"),
            ("depth=many", "1..4096"),
        ] {
            let error = Settings::default()
                .with(&[word.to_owned()])
                .unwrap_err()
                .message;
            assert!(error.contains(named), "{word}: {error}");
        }
    }
}
