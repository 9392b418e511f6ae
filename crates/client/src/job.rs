//! The parallel program of a process, for programs that `penstock run` did not start.
//!
//! *Problem*: servers share resources and report by program, but MPI has no name for one that all ranks know without
//! communication. *Idea*: the launcher has given the ranks something that is the same for all of them and different for
//! other programs. That is a namespace or a job's number in the environment. With Hydra it is the port on which its
//! proxies, ancestors of the ranks, reach `mpiexec`. Its hash is the program's number. Without a launcher a program is
//! a process group, which a shell has started as one command. The workers of a data loader then belong together.
//! *Source*: the PMIx standard (`PMIX_NAMESPACE`), the manuals of PALS, Flux and Slurm; MPICH's Hydra
//! (`--control-port`).
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStringExt;

/// `penstock run` sets it.
const OURS: &str = "PENSTOCK_PROGRAM";
/// Names a parallel program.
const PMIX: &str = "PMIX_NAMESPACE";
/// So do these, unless an `mpiexec` of their own runs several in one job.
const JOBS: [&str; 2] = ["PALS_APID", "FLUX_JOB_ID"];
/// These do together.
const SLURM: [&str; 2] = ["SLURM_JOB_ID", "SLURM_STEP_ID"];
/// One of these says that there is a launcher.
const LAUNCHED: [&str; 5] = [
    "PMI_RANK",
    "PMI_ID",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_PROCID",
];
/// Hydra's proxies are told where `mpiexec` listens.
const PORT: &[u8] = b"--control-port";
/// Shells and debuggers may stand between a proxy and a rank.
const ANCESTORS: usize = 8;

/// The number of this process's program; 0: unknown.
pub fn program() -> u64 {
    let own = std::env::var(OURS).ok().and_then(|v| v.parse().ok());
    let found = || {
        find(
            |name| Some(std::env::var_os(name)?.into_vec()).filter(|v| !v.is_empty()),
            ancestors(std::process::id()),
            group,
        )
    };
    own.or_else(found).unwrap_or(0)
}

/// A number for a program without a launcher: a copy, a mount, or what `penstock run` is about to start.
pub fn fresh() -> std::io::Result<u64> {
    let mut random = [0; 8];
    penstock_host::random(&mut random)?;
    Ok(number(u64::from_le_bytes(random)))
}

/// Readable as a signed number everywhere, and never what stands for no program.
fn number(any: u64) -> u64 {
    (any >> 1).max(1)
}

/// The environment that this process was started with: MPI libraries without a launcher put a name of their own into the
/// present one. Empty without `/proc`.
pub fn first_environment() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let text = std::fs::read("/proc/self/environ").unwrap_or_default();
    let pairs = text.split(|b| *b == 0).filter_map(|pair| {
        let at = pair.iter().position(|b| *b == b'=')?;
        Some((pair[..at].to_owned(), pair[at + 1..].to_owned()))
    });
    pairs.collect()
}

/// The number of the launcher's step of a process with this initial environment. It is the same for all tasks of the
/// step, whatever their MPI libraries say. `None`: unknown.
pub fn step(environment: &BTreeMap<Vec<u8>, Vec<u8>>) -> Option<u64> {
    let get = |name: &str| environment.get(name.as_bytes()).cloned();
    let own = get(OURS).and_then(|v| std::str::from_utf8(&v).ok()?.parse().ok());
    own.filter(|number| *number != 0)
        .or_else(|| {
            let get = |name: &str| get(name).filter(|v| !v.is_empty());
            find(get, ancestors(std::process::id()), group)
        })
        .or_else(siblings)
}

/// A number of this process's parent on this host, the same for all processes that it starts; `None` without `/proc`.
fn siblings() -> Option<u64> {
    let stat = |of: &str| std::fs::read_to_string(format!("/proc/{of}/stat")).ok();
    let host = std::fs::read("/proc/sys/kernel/hostname").ok()?;
    let above = parent(&stat("self")?)?;
    let above_stat = stat(&above.to_string())?;
    // Its start tells it from others that had its number before.
    let started = above_stat.rsplit_once(')')?.1.split_whitespace().nth(19)?;
    let mut hash = DefaultHasher::new();
    (host, above, started).hash(&mut hash);
    Some(number(hash.finish()))
}

/// `None`: there is a launcher, and it says nothing.
fn find(
    get: impl Fn(&str) -> Option<Vec<u8>>,
    ancestors: impl Iterator<Item = Vec<u8>>,
    group: impl Fn() -> Option<Vec<u8>>,
) -> Option<u64> {
    let named = |name: &str| Some([name.as_bytes(), &get(name)?].concat());
    let hydra = || listening(ancestors);
    let job = || JOBS.iter().find_map(|name| named(name));
    let slurm = || Some([named(SLURM[0])?, named(SLURM[1])?].concat());
    let single = || {
        if LAUNCHED.iter().any(|name| get(name).is_some()) {
            None
        } else {
            group()
        }
    };
    let mut hash = DefaultHasher::new();
    let name = named(PMIX).or_else(hydra).or_else(job).or_else(slurm);
    name.or_else(single)?.hash(&mut hash);
    Some(number(hash.finish()))
}

/// Where the `mpiexec` of MPICH listens that has started this process, if it was that: `host:port`.
pub(crate) fn hydra() -> Option<Vec<u8>> {
    listening(ancestors(std::process::id()))
}

fn listening(ancestors: impl Iterator<Item = Vec<u8>>) -> Option<Vec<u8>> {
    ancestors.take(ANCESTORS).find_map(|line| port(&line))
}

/// The port in a command line whose words end with zero bytes, as `/proc` has them.
fn port(command: &[u8]) -> Option<Vec<u8>> {
    let mut words = command.split(|b| *b == 0);
    words.find(|word| *word == PORT)?;
    words.next().filter(|w| !w.is_empty()).map(<[u8]>::to_owned)
}

/// Command lines of a process's ancestors, the nearest first.
fn ancestors(process: u32) -> impl Iterator<Item = Vec<u8>> {
    let above = |of: &u32| parent(&std::fs::read_to_string(format!("/proc/{of}/stat")).ok()?);
    let all = std::iter::successors(above(&process), move |of| above(of));
    all.filter_map(|of| std::fs::read(format!("/proc/{of}/cmdline")).ok())
}

/// The fourth field of `/proc/PID/stat`; the second is the command, which may contain anything.
fn parent(stat: &str) -> Option<u32> {
    let fields = stat.rsplit_once(')')?.1;
    let parent = fields.split_whitespace().nth(1)?.parse().ok()?;
    Some(parent).filter(|p| *p > 0)
}

/// This process's group, on this host.
fn group() -> Option<Vec<u8>> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let group = rustix::process::getpgrp().as_raw_nonzero();
    Some(format!("{} {group}", host.trim()).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variables = &'static [(&'static str, &'static str)];

    fn found(environment: Variables, ancestors: &[&str]) -> Option<u64> {
        let get = |name: &str| {
            let known = environment.iter().find(|(n, _)| *n == name)?;
            Some(known.1.as_bytes().to_owned())
        };
        let lines = ancestors.iter().map(|a| a.replace(' ', "\0").into_bytes());
        find(get, lines, || Some(b"node1 7".to_vec()))
    }

    #[test]
    fn ranks_of_a_program_agree_and_programs_differ() {
        let proxy =
            |port: &str| format!("/usr/bin/hydra_pmi_proxy --control-port {port} --rmk user");
        let rank = |port: &str| found(&[("PMI_RANK", "0")], &["sh -c app", &proxy(port)]);
        let other = |port: &str| found(&[("PMI_RANK", "1")], &[&proxy(port), "mpiexec -n 2 app"]);
        assert!(rank("node1:4001").is_some());
        assert_eq!(rank("node1:4001"), other("node1:4001"));
        assert_ne!(rank("node1:4001"), rank("node1:4002"));
        assert_ne!(rank("node1:4001"), rank("node2:4001"));
        let pmix = found(&[("PMIX_NAMESPACE", "prterun-1@1")], &[]);
        assert_eq!(
            pmix,
            found(
                &[("PMIX_NAMESPACE", "prterun-1@1"), ("PMIX_RANK", "7")],
                &[]
            )
        );
        assert_ne!(pmix, found(&[("PMIX_NAMESPACE", "prterun-1@2")], &[]));
        let step = found(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0")], &[]);
        assert_ne!(
            step,
            found(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "1")], &[])
        );
        // A batch script's own mpiexec is told by its port, not by the batch job.
        let batch: Variables = &[
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("PMI_RANK", "0"),
        ];
        assert_ne!(
            found(batch, &[&proxy("node1:1")]),
            found(batch, &[&proxy("node1:2")])
        );
    }

    #[test]
    fn a_group_of_processes_is_a_program_and_a_silent_launcher_says_nothing() {
        assert!(found(&[], &[]).is_some());
        assert_eq!(found(&[("PMI_RANK", "0")], &["launcher --port 7"]), None);
        assert_eq!(found(&[("PMI_RANK", "0")], &["proxy --control-port"]), None);
        let far = vec!["sh"; ANCESTORS];
        let far = [far, vec!["proxy --control-port a:1"]].concat();
        assert_eq!(found(&[("PMI_RANK", "0")], &far), None, "too far up");
        // This very process: always the same answer.
        assert!(siblings().is_some_and(|number| siblings() == Some(number)));
        assert!(group().is_some());
        assert_eq!(program(), program());
        assert_eq!((number(0), number(u64::MAX)), (1, u64::MAX >> 1));
        assert_ne!(fresh().unwrap(), fresh().unwrap());
        assert_eq!(parent("7 (a) b) S 42 7 7"), Some(42));
        assert_eq!(parent("1 (init) S 0 1"), None);
        assert_eq!(parent("nonsense"), None);
    }
}
