//! Names of hosts: lists, files, the nodes of a job.
use super::{HostsArgs, MAX_HOSTS};
use crate::error::{CliError, Result};
use penstock_rpc::deployment::hosts::check_name;
use std::path::Path;

/// The most bytes of a host file that are read.
const MAX_FILE: u64 = 1 << 20;
/// The most names that a message shows.
const SHOWN: usize = 8;

/// A range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    pub first: u16,
    pub last: u16,
}

impl Default for Ports {
    fn default() -> Ports {
        Ports {
            first: 7400,
            last: 7499,
        }
    }
}

impl std::str::FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Ports, String> {
        let wrong = || "write FIRST-LAST, for example 7400-7499".to_owned();
        let (first, last) = text.split_once('-').ok_or_else(wrong)?;
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first > 0 && first <= last => Ok(Ports { first, last }),
            _ => Err(wrong()),
        }
    }
}

/// The hosts that the options name, each once.
pub fn named(args: &HostsArgs) -> Result<Vec<String>> {
    let (hosts, whence) = match (&args.hosts, &args.hostfile) {
        (Some(words), _) if words == "job" => job(|name| std::env::var(name).ok())?,
        (Some(words), _) => (listed(words)?, "--hosts".into()),
        (None, Some(file)) => (in_file(file)?, file.display().to_string()),
        (None, None) => return Ok(Vec::new()),
    };
    let wrong = |what: String| CliError::new(format!("{whence}: {what}"));
    if hosts.is_empty() {
        return Err(wrong("no host is named".into()).next("--hosts a,b,c"));
    }
    let mut seen = std::collections::HashSet::new();
    for host in &hosts {
        check_name(host).map_err(wrong)?;
        if !seen.insert(host) {
            return Err(wrong(format!("{host} is named twice")).next("name each host once"));
        }
    }
    Ok(hosts)
}

/// Whether this runs in a job of Slurm or PBS, whose nodes are known.
pub fn in_job() -> bool {
    job(|name| std::env::var(name).ok()).is_ok()
}

/// The nodes of the job that this runs in.
fn job(get: impl Fn(&str) -> Option<String>) -> Result<(Vec<String>, String)> {
    if let Some(nodes) = get("SLURM_JOB_NODELIST") {
        return Ok((listed(&nodes)?, "SLURM_JOB_NODELIST".into()));
    }
    if let Some(file) = get("PBS_NODEFILE") {
        // A line for each rank.
        let mut hosts = in_file(Path::new(&file))?;
        let mut seen = std::collections::HashSet::new();
        hosts.retain(|host| seen.insert(host.clone()));
        return Ok((hosts, file));
    }
    Err(
        CliError::new("no job of Slurm or PBS: neither SLURM_JOB_NODELIST nor PBS_NODEFILE is set")
            .next(
                "run it in the job's script, or name the hosts: --hosts a,b,c or --hostfile FILE",
            ),
    )
}

fn in_file(path: &Path) -> Result<Vec<String>> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE).read_to_string(&mut text))
        .map_err(|e| CliError::io("read", path, e))?;
    let lines = text.lines();
    let words = lines.map(|line| line.split('#').next().unwrap_or_default().trim());
    let hosts: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    // Kept before duplicates are removed: PBS has a line for each rank.
    Ok(hosts)
}

/// Names as `a,b` or as Slurm writes them, `n[1-3,07],m2`.
fn listed(text: &str) -> Result<Vec<String>> {
    let wrong = || {
        CliError::new(format!(
            "{text:?} is no list of hosts (at most {MAX_HOSTS})"
        ))
        .next("write a,b,c or n[1-8]")
    };
    let mut hosts = Vec::new();
    for word in split(text).ok_or_else(wrong)? {
        expand("", word, &mut hosts).ok_or_else(wrong)?;
    }
    Ok(hosts)
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return None,
            ',' if !inside => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    (!inside && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

/// Adds to `hosts` the names of the pattern `rest`, each after the prefix `before`. `None` if the pattern is not valid
/// or has too many names.
fn expand(before: &str, rest: &str, hosts: &mut Vec<String>) -> Option<()> {
    let Some((plain, behind)) = rest.split_once('[') else {
        hosts.push(format!("{before}{rest}"));
        return (hosts.len() <= MAX_HOSTS).then_some(());
    };
    let (ranges, behind) = behind.split_once(']')?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let digits =
            |s: &str| !s.is_empty() && s.len() <= 9 && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(first) || !digits(last) {
            return None;
        }
        let (from, to): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if from > to || to - from >= MAX_HOSTS {
            return None;
        }
        for number in from..=to {
            let width = first.len();
            expand(&format!("{before}{plain}{number:0width$}"), behind, hosts)?;
        }
    }
    Some(())
}

/// The first few items, for messages.
pub fn some<T: AsRef<str>>(hosts: &[T]) -> String {
    let shown: Vec<&str> = hosts.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match hosts.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_as_slurm_does() {
        let all = |text| listed(text).unwrap().join(" ");
        assert_eq!(all("a,b"), "a b");
        assert_eq!(all("n[1-3,07-08],m2"), "n1 n2 n3 n07 n08 m2");
        assert_eq!(all("r[1-2]n[1-2]"), "r1n1 r1n2 r2n1 r2n2");
        assert_eq!(all("n[098-101]"), "n098 n099 n100 n101");
        for bad in [
            "",
            "a,,b",
            "n[1-",
            "n]",
            "n[]",
            "n[3-1]",
            "n[1-600]",
            "n[a-b]",
            "n[[1]]",
            "r[1-99]n[1-99]",
        ] {
            let error = listed(bad).unwrap_err().to_string();
            assert!(error.contains("no list of hosts"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_jobs_nodes_are_found_and_named_once() {
        let slurm = |name: &str| (name == "SLURM_JOB_NODELIST").then(|| "n[1-2]".to_owned());
        assert_eq!(job(slurm).unwrap().0, ["n1", "n2"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "n1\nn1 # twice\n\nn2\n").unwrap();
        let path = file.path().display().to_string();
        let pbs = |name: &str| (name == "PBS_NODEFILE").then(|| path.clone());
        assert_eq!(job(pbs).unwrap().0, ["n1", "n2"]);
        assert!(
            job(|_| None)
                .unwrap_err()
                .to_string()
                .contains("--hostfile")
        );
    }

    #[test]
    fn ranges_of_ports_are_understood() {
        let ports: Ports = "7400-7402".parse().unwrap();
        assert_eq!((ports.first, ports.last), (7400, 7402));
        for bad in ["7400", "2-1", "0-9", "1-99999", "a-b"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
    }
}
