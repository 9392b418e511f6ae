//! The remote command.
use std::path::Path;
use std::process::Command;

/// Options of ssh: no questions, since nobody could answer them on so many hosts. The user's agent, display and ports
/// are not forwarded to the other host. A connection that was cut ends within 15 s.
const SSH: [&str; 13] = [
    "-a",
    "-x",
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
    "-o",
    "ClearAllForwardings=yes",
];
/// Options of srun: a step beside others of the job, with none of its memory.
const SRUN: [&str; 7] = [
    "--nodes=1",
    "--ntasks=1",
    "--overlap",
    "--mem=0",
    "--mpi=none",
    "--quiet",
    "--unbuffered",
];
const HOST: &str = "{host}";
const COMMAND: &str = "{command}";

/// How a command is run on another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    Ssh,
    Srun,
    /// Words, in which `{host}` and `{command}` are replaced.
    Words(Vec<String>),
}

impl std::str::FromStr for Via {
    type Err = String;

    fn from_str(text: &str) -> Result<Via, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        match text {
            "ssh" => Ok(Via::Ssh),
            "srun" => Ok(Via::Srun),
            _ if !words.iter().any(|word| word.contains(HOST)) => Err(format!(
                "write ssh, srun, or a command with {HOST} and {COMMAND}, such as `ssh -p 2222 {HOST} {COMMAND}`"
            )),
            _ if !words.iter().any(|word| word.contains(COMMAND)) => {
                Err(format!("`{text}` says nowhere {COMMAND}"))
            }
            _ => Ok(Via::Words(words)),
        }
    }
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Via::Ssh => f.write_str("ssh"),
            Via::Srun => f.write_str("srun"),
            Via::Words(words) => f.write_str(&words.join(" ")),
        }
    }
}

impl Via {
    /// The command that runs `program agent` on `host`. No shell of this host interprets any of it.
    pub fn command(&self, host: &str, program: &Path) -> Command {
        let program = program.display().to_string();
        // The other host's shell interprets it.
        let line = format!("exec {} agent", quoted(&program));
        match self {
            Via::Ssh => {
                let mut command = Command::new("ssh");
                command.args(SSH).args(["--", host, &line]);
                command
            }
            Via::Srun => {
                let mut command = Command::new("srun");
                command.args(SRUN).arg(format!("--nodelist={host}"));
                command.args([&program, "agent"]);
                command
            }
            Via::Words(words) => {
                let plain = format!("{} agent", quoted(&program));
                let mut all = Vec::new();
                for word in words {
                    if word == COMMAND {
                        all.extend([program.clone(), "agent".into()])
                    } else {
                        all.push(word.replace(HOST, host).replace(COMMAND, &plain))
                    }
                }
                let mut command = Command::new(&all[0]);
                command.args(&all[1..]);
                command
            }
        }
    }

    /// Whether processes started on the host end with the remote command, as those of a Slurm step do.
    pub fn ends_what_it_started(&self) -> bool {
        *self == Via::Srun
    }

    /// The command, for messages.
    pub fn name(&self) -> &str {
        match self {
            Via::Ssh => "ssh",
            Via::Srun => "srun",
            Via::Words(words) => words.first().map_or("", String::as_str),
        }
    }
}

/// A word, quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+".contains(&b);
    if word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(via: &str, program: &str) -> Vec<String> {
        let command = via
            .parse::<Via>()
            .unwrap()
            .command("n1", Path::new(program));
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn templates_are_filled_in() {
        let nsenter = words(
            "nsenter --net=/run/netns/{host} {command}",
            "/opt/p s/penstock",
        );
        assert_eq!(
            nsenter,
            [
                "nsenter",
                "--net=/run/netns/n1",
                "/opt/p s/penstock",
                "agent"
            ]
        );
        let rsh = words("rsh {host} exec={command}", "/opt/it's/penstock");
        assert_eq!(rsh, ["rsh", "n1", r"exec='/opt/it'\''s/penstock' agent"]);
        let ssh = words("ssh", "/opt/penstock");
        assert_eq!(
            ssh[ssh.len() - 3..],
            ["--", "n1", "exec /opt/penstock agent"]
        );
        for bad in ["", "rsh", "rsh {host}", "rsh {command}"] {
            assert!(bad.parse::<Via>().is_err(), "{bad}");
        }
    }
}
