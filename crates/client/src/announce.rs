//! The registration of a process's program at the metadata server ([`ProgramInfo`]).
//!
//! The environment of a job and `/proc` are read once; nothing is asked of anybody. *Source*: the manuals of Slurm,
//! PBS, LSF and Flux for a job's name. Those of Hydra (PMI), Open MPI and Slurm for the number of ranks.
use penstock_wire::message::{MAX_COMMAND, MAX_PROGRAM_NAME, ProgramInfo};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

/// Who started the job names it here.
const JOBS: [&str; 4] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];
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
    of(|name| std::env::var_os(name), host.trim_ascii(), command)
}

fn of(get: impl Fn(&str) -> Option<OsString>, host: &[u8], command: &[u8]) -> ProgramInfo {
    let set = |names: &[&str]| {
        let mut values = names.iter().filter_map(|name| get(name));
        values.find(|value| !value.is_empty())
    };
    // Arguments end with zero bytes.
    let words = command.strip_suffix(b"\0").unwrap_or(command);
    let words: Vec<u8> = words
        .iter()
        .map(|b| if *b == 0 { b' ' } else { *b })
        .collect();
    ProgramInfo {
        job: set(&JOBS).map_or(String::new(), |job| cut(job.as_bytes(), MAX_PROGRAM_NAME)),
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
        let said = of(get, b"node1", b"./app\0-n\0a b\0");
        let expected = ProgramInfo {
            job: "4711.head".into(),
            host: "node1".into(),
            command: "./app -n a b".into(),
            ranks: Some(64),
        };
        assert_eq!(said, expected);
        let nothing = of(|_| None, b"", b"");
        assert_eq!(nothing, ProgramInfo::default());
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
            let said = of(|_| Some("9".repeat(999).into()), &command, &command);
            assert!(said.too_long().is_none() && said.command.ends_with('…'));
            assert!(said.command.len() > MAX_COMMAND - 4);
            assert_eq!(said.ranks, None);
        }
        assert_eq!(
            of(|_| None, b"", &[b'x'; MAX_COMMAND]).command.len(),
            MAX_COMMAND
        );
    }
}
