//! What /proc says of a process.
use penstock_trace::Module;

/// Mappings that are noted at most.
const MODULES: usize = 4096;

/// Whether the process that started at `started` (field 22 of /proc/PID/stat) still runs.
pub fn runs(pid: u32, started: u64) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // Behind the name, which may hold anything: state, …, start.
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return false;
    };
    let mut fields = rest.split_whitespace();
    let state = fields.next().unwrap_or("X");
    let start = fields.nth(18).and_then(|word| word.parse().ok());
    !matches!(state, "Z" | "X") && start == Some(started)
}

/// Code that it has mapped, for source lines.
pub fn modules(pid: u32) -> Vec<Module> {
    let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/maps")) else {
        return Vec::new();
    };
    let mut found: Vec<Module> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(_), Some(_)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let Some(path) = line.find('/').map(|at| &line[at..]) else {
            continue;
        };
        let Some((base, end)) = range.split_once('-') else {
            continue;
        };
        let number = |text| u64::from_str_radix(text, 16);
        let (Ok(base), Ok(end)) = (number(base), number(end)) else {
            continue;
        };
        // All parts of a file together: its base is where its first part lies.
        let room = found.len() < MODULES;
        match found.last_mut() {
            Some(last) if last.path == path => last.end = end,
            _ if room => found.push(Module {
                base,
                end,
                path: path.into(),
                build_id: String::new(),
            }),
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_a_process_from_another_and_has_its_code() {
        let pid = std::process::id();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let rest = stat.rsplit_once(')').unwrap().1;
        let started = rest.split_whitespace().nth(19).unwrap().parse().unwrap();
        assert!(runs(pid, started));
        assert!(!runs(pid, started + 1));
        let here = tells_a_process_from_another_and_has_its_code as *const () as u64;
        assert!(modules(pid).iter().any(|m| m.base <= here && here < m.end));
    }
}
