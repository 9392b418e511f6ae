//! The registration of a process's program at the metadata server ([`ProgramInfo`]).
//!
//! The environment of a job and `/proc` are read once; nothing is asked of anybody. Without a scheduler of jobs the launcher's name
//! for what it started stands for the job's. *Source*: the manuals of Slurm, PBS, LSF
//! and Flux for a job's name. The PMIx standard, Open MPI 4 and PALS for a launcher's, MPICH's Hydra for its address ([`crate::job`]).
//! The manuals of Hydra (PMI), Open MPI and Slurm for the number of ranks.
use penstock_wire::message::{MAX_COMMAND, MAX_PROGRAM_NAME, ProgramInfo};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Who started the job names it here.
const JOBS: [&str; 4] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];
/// Without such: so does the launcher name what it started.
const LAUNCHES: [&str; 3] = ["PMIX_NAMESPACE", "PALS_APID", "OMPI_MCA_ess_base_jobid"];
/// Ranks of all hosts.
const RANKS: [&str; 4] = [
    "PMI_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PALS_SIZE",
    "SLURM_STEP_NUM_TASKS",
];

/// This process's program, by its command line.
pub fn program() -> ProgramInfo {
    let mut command = Vec::new();
    // Bounded: a command line may have megabytes.
    if let Ok(file) = File::open("/proc/self/cmdline") {
        let most = MAX_COMMAND as u64 + 1;
        let read = file.take(most).read_to_end(&mut command);
        read.map_or_else(|_| command.clear(), drop);
    }
    program_as(&command)
}

/// The same for another command than the one that started it.
pub fn program_as(command: &[u8]) -> ProgramInfo {
    let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let variable = |name: &str| std::env::var_os(name);
    of(variable, crate::job::hydra, host.trim_ascii(), command)
}

/// `hydra`: where MPICH's launcher listens, if it is that.
fn of(
    get: impl Fn(&str) -> Option<OsString>,
    hydra: impl FnOnce() -> Option<Vec<u8>>,
    host: &[u8],
    command: &[u8],
) -> ProgramInfo {
    let set = |names: &[&str]| {
        let mut values = names.iter().filter_map(|name| get(name));
        values.find(|value| !value.is_empty())
    };
    let launch = || {
        let port = hydra().map(|port| [b"hydra ".as_slice(), &port].concat());
        port.map(OsString::from_vec)
    };
    let job = set(&JOBS).or_else(|| set(&LAUNCHES)).or_else(launch);
    // Arguments end with zero bytes.
    let words = command.strip_suffix(b"\0").unwrap_or(command);
    let words: Vec<u8> = words
        .iter()
        .map(|b| if *b == 0 { b' ' } else { *b })
        .collect();
    ProgramInfo {
        job: job.map_or(String::new(), |job| cut(job.as_bytes(), MAX_PROGRAM_NAME)),
        host: cut(host, MAX_PROGRAM_NAME),
        command: cut(&words, MAX_COMMAND),
        ranks: set(&RANKS).and_then(|ranks| ranks.to_str()?.parse().ok()),
    }
}

/// The beginning of a text, at most `limit` bytes of UTF-8.
fn cut(text: &[u8], limit: usize) -> String {
    let mut text = String::from_utf8_lossy(text).into_owned();
    if text.len() > limit {
        let mut ends = (0..=limit - "…".len()).rev();
        let end = ends.find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_what_its_environment_and_its_command_line_say() {
        let get = |name: &str| match name {
            "PBS_JOBID" => Some("4711.head".into()),
            "FLUX_JOB_ID" => Some("f1".into()),
            "SLURM_JOB_ID" => Some("".into()),
            "OMPI_COMM_WORLD_SIZE" => Some("64".into()),
            _ => None,
        };
        let none = || None;
        let said = of(get, none, b"node1", b"./app\0-n\0a b\0");
        let expected = ProgramInfo {
            job: "4711.head".into(),
            host: "node1".into(),
            command: "./app -n a b".into(),
            ranks: Some(64),
        };
        assert_eq!(said, expected);
        let nothing = of(|_| None, none, b"", b"");
        assert_eq!(nothing, ProgramInfo::default());
        // Without a scheduler the launcher's name for it: PMIx, Open MPI 4, MPICH's Hydra.
        let pmix = |name: &str| (name == "PMIX_NAMESPACE").then(|| "prterun-a-7@1".into());
        let port = || Some(b"node1:4001".to_vec());
        assert_eq!(of(pmix, port, b"", b"").job, "prterun-a-7@1");
        let four = |name: &str| (name == "OMPI_MCA_ess_base_jobid").then(|| "2790195201".into());
        assert_eq!(of(four, none, b"", b"").job, "2790195201");
        assert_eq!(of(|_| None, port, b"", b"").job, "hydra node1:4001");
        assert_eq!(of(get, port, b"", b"").job, "4711.head");
        assert!(!program().command.is_empty() && program().too_long().is_none());
        let other = ProgramInfo {
            command: "mount /x".into(),
            ..program()
        };
        assert_eq!(program_as(b"mount /x"), other);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        // Bytes that are no text grow when they become some.
        for command in [
            vec![b'x'; 1000],
            vec![0xff; 1000],
            "ä".repeat(500).into_bytes(),
        ] {
            let said = of(
                |_| Some("9".repeat(999).into()),
                || None,
                &command,
                &command,
            );
            assert!(said.too_long().is_none() && said.command.ends_with('…'));
            assert!(said.command.len() > MAX_COMMAND - 4);
            assert_eq!(said.ranks, None);
        }
        assert_eq!(
            of(|_| None, || None, b"", &[b'x'; MAX_COMMAND])
                .command
                .len(),
            MAX_COMMAND
        );
    }
}
