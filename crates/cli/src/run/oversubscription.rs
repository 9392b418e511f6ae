//! Settings for oversubscription: more ranks than cores.
//!
//! MPI libraries wait by polling. With oversubscription a polling rank keeps the rank it waits for from running. A
//! barrier of MPICH with 4 ranks on 2 cores takes 6 ms, and 20 µs with the settings below.
use super::launcher::Family;
use std::ffi::OsString;

/// MPICH: yield while polling, and leave out collectives that poll shared memory.
const MPICH: [(&str, &str); 3] = [
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "16"),
    ("MPIR_CVAR_DEVICE_COLLECTIVES", "none"),
];

/// Settings with which waiting ranks let others run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Environment of the ranks; variables that the user has set are left alone.
    pub environment: Vec<(&'static str, &'static str)>,
    /// Arguments of the launcher.
    pub arguments: Vec<&'static str>,
}

impl Settings {
    /// Settings for `ranks` on `cores`, for the MPI families of the program and the launcher.
    pub fn for_ranks(ranks: u32, cores: u32, program: Family, launcher: Family) -> Settings {
        let mut settings = Settings::default();
        if ranks <= cores {
            return settings;
        }
        if program == Family::Mpich {
            settings.environment.extend(
                MPICH
                    .iter()
                    .filter(|(name, _)| std::env::var_os(name).is_none()),
            );
        }
        if launcher == Family::OpenMpi {
            settings.arguments.push("--oversubscribe");
        }
        settings
    }

    /// One line for the user; `None` if no setting was needed.
    pub fn describe(&self, ranks: u32, cores: u32) -> Option<String> {
        let mut what: Vec<String> = self.arguments.iter().map(|a| (*a).into()).collect();
        what.extend(self.environment.iter().map(|(n, v)| format!("{n}={v}")));
        if what.is_empty() {
            return None;
        }
        Some(format!(
            "{ranks} ranks on {cores} cores: set {} so that waiting ranks let others run",
            what.join(" ")
        ))
    }
}

/// Environment that Open MPI's launcher requires to start anything as root.
pub fn allow_root(launcher: Family) -> Vec<(OsString, OsString)> {
    if launcher != Family::OpenMpi || !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    ["OMPI", "PRTE"]
        .iter()
        .flat_map(|who| {
            [
                format!("{who}_ALLOW_RUN_AS_ROOT"),
                format!("{who}_ALLOW_RUN_AS_ROOT_CONFIRM"),
            ]
        })
        .map(|name| (name.into(), "1".into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_set_while_cores_suffice() {
        let none = Settings::for_ranks(2, 2, Family::Mpich, Family::Mpich);
        assert_eq!(none, Settings::default());
        assert_eq!(none.describe(2, 2), None);
    }

    #[test]
    fn each_family_gets_its_own() {
        let open = Settings::for_ranks(8, 2, Family::OpenMpi, Family::OpenMpi);
        assert_eq!(open.arguments, ["--oversubscribe"]);
        assert!(open.environment.is_empty());
        let mpich = Settings::for_ranks(8, 2, Family::Mpich, Family::Other);
        assert_eq!(mpich.environment.len(), MPICH.len());
        assert!(mpich.arguments.is_empty());
        assert!(
            mpich
                .describe(8, 2)
                .is_some_and(|s| s.contains("8 ranks on 2 cores"))
        );
    }
}
