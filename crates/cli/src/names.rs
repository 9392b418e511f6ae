//! `penstock ls`, `stat`, `rm` and `mkdir`: list, show, remove and make names.
use crate::error::{CliError, Result};
use crate::{connect, deployment, out, size};
use clap::Args;
use penstock_client::{Client, ErrorKind, Stat};
use penstock_wire::message::{Attributes, NodeKind};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// List directories.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// What to list [default: /].
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,
    /// Sizes, owners and times too.
    #[arg(short, long)]
    pub long: bool,
    /// For programs: one object per entry.
    #[arg(long)]
    pub json: bool,
}

/// Show everything known of files: size, striping, owner, times.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Files or directories.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// Remove files and empty directories.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// What to remove.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
    /// Directories with all they hold.
    #[arg(short, long)]
    pub recursive: bool,
    /// Missing files are no error.
    #[arg(short, long)]
    pub force: bool,
}

/// Make directories.
#[derive(Debug, Args)]
pub struct MkdirArgs {
    /// Directories to make.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
    /// Missing parents too; existing directories are no error.
    #[arg(short, long)]
    pub parents: bool,
}

/// The prefix of the names of Penstock's files in programs.
pub const PREFIX: &str = "penstock:";

/// The path in the name space: `penstock:/a`, `/a` and `a` are the same.
pub fn inside(path: &str) -> String {
    let path = path.strip_prefix(PREFIX).unwrap_or(path);
    let names: Vec<&str> = path.split('/').filter(|n| !n.is_empty()).collect();
    format!("/{}", names.join("/"))
}

/// `dir` and a name below it.
pub fn join(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}

/// Adds the path to a client's failure.
pub fn failed(path: &str, e: penstock_client::Error) -> CliError {
    let text = e.to_string();
    if text.contains(path) {
        CliError::new(text)
    } else {
        CliError::new(format!("{path}: {text}"))
    }
}

/// Lists directories, and names files.
pub fn ls(args: &LsArgs, named: Option<&Path>) -> Result<()> {
    let client = connect::client(&deployment::find(named)?)?;
    let root = [String::from("/")];
    let paths = if args.paths.is_empty() {
        &root[..]
    } else {
        &args.paths
    };
    let mut text = String::new();
    for path in paths {
        let path = inside(path);
        let stat = client.stat(&path).map_err(|e| failed(&path, e))?;
        let is_dir = stat.attributes.kind == NodeKind::Directory;
        let mut entries: Vec<(String, String, Attributes)> = Vec::new();
        if is_dir {
            for (name, attributes) in client.readdir(&path).map_err(|e| failed(&path, e))? {
                entries.push((join(&path, &name), name, attributes));
            }
        } else {
            entries.push((path.clone(), path.clone(), stat.attributes));
        }
        if paths.len() > 1 && is_dir && !args.json {
            text += &format!("{path}:\n");
        }
        if args.json {
            for (path, _, attributes) in entries {
                let stat = with_size(&client, &path, attributes)?;
                text += &format!("{}\n", to_json(&path, &stat));
            }
        } else if args.long {
            let mut rows = Vec::new();
            for (path, name, attributes) in entries {
                rows.push(long_row(&name, &with_size(&client, &path, attributes)?));
            }
            let header = ["mode", "uid", "gid", "size", "changed", "name"];
            if !rows.is_empty() {
                text += &out::table(&header, &[1, 2, 3], rows);
            }
        } else {
            for (_, name, attributes) in entries {
                text += &format!("{name}{}\n", mark(attributes.kind));
            }
        }
    }
    out::print(&text);
    Ok(())
}

/// Adds the size, which the data servers know. A file that was removed in the meantime has none.
fn with_size(client: &Client, path: &str, attributes: Attributes) -> Result<Stat> {
    if attributes.layout.is_none() {
        return Ok(Stat {
            attributes,
            size: 0,
        });
    }
    match client.stat(path) {
        Ok(stat) => Ok(stat),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Stat {
            attributes,
            size: 0,
        }),
        Err(e) => Err(failed(path, e)),
    }
}

fn mark(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Directory => "/",
        NodeKind::Symlink => "@",
        NodeKind::File => "",
    }
}

fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Symlink => "symlink",
    }
}

fn long_row(name: &str, stat: &Stat) -> Vec<String> {
    let a = &stat.attributes;
    vec![
        mode_text(a.kind, a.mode),
        a.uid.to_string(),
        a.gid.to_string(),
        stat.size.to_string(),
        time_text(a.mtime_ns),
        format!("{name}{}", mark(a.kind)),
    ]
}

/// `-rw-r--r--`
fn mode_text(kind: NodeKind, mode: u32) -> String {
    let mut text = String::from(match kind {
        NodeKind::File => "-",
        NodeKind::Directory => "d",
        NodeKind::Symlink => "l",
    });
    for shift in [6, 3, 0] {
        for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'x')] {
            text.push(if mode >> shift & bit != 0 {
                letter
            } else {
                '-'
            });
        }
    }
    text
}

/// Seconds exactly, in UTC: `2026-11-20 23:02:07Z`.
pub fn time_text(ns: i64) -> String {
    let time = u64::try_from(ns)
        .map(|ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns))
        .unwrap_or(SystemTime::UNIX_EPOCH);
    let seconds = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z",
        rest / 3_600,
        rest % 3_600 / 60,
        rest % 60
    )
}

/// Year, month and day of a day counted from 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let mut left = days;
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, left + 1)
}

fn to_json(path: &str, stat: &Stat) -> Value {
    let a = &stat.attributes;
    let mut value = json!({
        "path": path, "kind": kind_name(a.kind), "id": a.id.0, "size": stat.size,
        "mode": format!("{:04o}", a.mode & 0o7777), "uid": a.uid, "gid": a.gid, "nlink": a.nlink,
        "ctime_ns": a.ctime_ns, "mtime_ns": a.mtime_ns, "atime_ns": a.atime_ns,
    });
    if let (Some(layout), Value::Object(fields)) = (&a.layout, &mut value) {
        let servers: Vec<u32> = layout.servers.iter().map(|s| s.0).collect();
        fields.insert("stripe_unit".into(), json!(layout.stripe_unit));
        fields.insert("servers".into(), json!(servers));
    }
    value
}

/// Shows all that is known of each path.
pub fn stat(args: &StatArgs, named: Option<&Path>) -> Result<()> {
    let client = connect::client(&deployment::find(named)?)?;
    let mut text = String::new();
    for path in &args.paths {
        let path = inside(path);
        let stat = client.stat(&path).map_err(|e| failed(&path, e))?;
        if args.json {
            text += &format!("{}\n", to_json(&path, &stat));
            continue;
        }
        let a = &stat.attributes;
        text += &format!("{path}\n");
        let mut line = |name: &str, value: String| text += &format!("  {name:<9}{value}\n");
        line("kind", kind_name(a.kind).into());
        if let Some(layout) = &a.layout {
            let servers: Vec<String> = layout.servers.iter().map(|s| s.0.to_string()).collect();
            line(
                "size",
                format!("{} ({} B)", size::bytes(stat.size), size::count(stat.size)),
            );
            line(
                "stripes",
                format!(
                    "{} on data servers {}",
                    size::bytes(layout.stripe_unit),
                    servers.join(", ")
                ),
            );
        }
        line(
            "mode",
            format!("{} ({:04o})", mode_text(a.kind, a.mode), a.mode & 0o7777),
        );
        line("owner", format!("uid {}, gid {}", a.uid, a.gid));
        line("written", time_text(a.mtime_ns));
        line("read", time_text(a.atime_ns));
        line("changed", time_text(a.ctime_ns));
        line("id", a.id.0.to_string());
    }
    out::print(&text);
    Ok(())
}

/// Removes files and directories.
pub fn rm(args: &RmArgs, named: Option<&Path>) -> Result<()> {
    let client = connect::client(&deployment::find(named)?)?;
    for path in &args.paths {
        let path = inside(path);
        if path == "/" {
            return Err(CliError::new("the root stays").next("name what is below it"));
        }
        let kind = match client.stat(&path) {
            Ok(stat) => stat.attributes.kind,
            Err(e) if args.force && e.kind() == ErrorKind::NotFound => continue,
            // A data server has lost bytes of it, or they are damaged. So it is a file, and can be removed.
            Err(e) if e.kind() == ErrorKind::Damaged => NodeKind::File,
            Err(e) => return Err(failed(&path, e)),
        };
        remove(&client, &path, kind, args.recursive)?;
    }
    client.sync_metadata().map_err(CliError::new)
}

fn remove(client: &Client, path: &str, kind: NodeKind, recursive: bool) -> Result<()> {
    if kind != NodeKind::Directory {
        return client.unlink(path).map_err(|e| failed(path, e));
    }
    if recursive {
        // An explicit stack: the user decides the depth of directories.
        let mut stack = vec![(path.to_string(), false)];
        while let Some((dir, emptied)) = stack.pop() {
            if emptied {
                client.rmdir(&dir).map_err(|e| failed(&dir, e))?;
                continue;
            }
            stack.push((dir.clone(), true));
            for (name, attributes) in client.readdir(&dir).map_err(|e| failed(&dir, e))? {
                let path = join(&dir, &name);
                if attributes.kind == NodeKind::Directory {
                    stack.push((path, false));
                } else {
                    client.unlink(&path).map_err(|e| failed(&path, e))?;
                }
            }
        }
        return Ok(());
    }
    client.rmdir(path).map_err(|e| {
        let not_empty = e.kind() == ErrorKind::NotEmpty;
        let error = failed(path, e);
        if not_empty {
            error.next(format!(
                "`penstock rm -r {path}` removes it with all it holds"
            ))
        } else {
            error
        }
    })
}

/// Makes directories.
pub fn mkdir(args: &MkdirArgs, named: Option<&Path>) -> Result<()> {
    const MODE: u32 = 0o755;
    let client = connect::client(&deployment::find(named)?)?;
    for path in &args.paths {
        let path = inside(path);
        if !args.parents {
            client.mkdir(&path, MODE).map_err(|e| {
                let missing = e.kind() == ErrorKind::NotFound;
                let error = failed(&path, e);
                if missing {
                    error.next(format!("`penstock mkdir -p {path}` makes its parents too"))
                } else {
                    error
                }
            })?;
            continue;
        }
        let mut at = String::new();
        for name in path.split('/').filter(|n| !n.is_empty()) {
            at = join(&at, name);
            match client.mkdir(&at, MODE) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::Exists => {
                    let found = client.stat(&at).map_err(|e| failed(&at, e))?;
                    if found.attributes.kind == NodeKind::File {
                        return Err(CliError::new(format!("{at} exists and is a file")));
                    }
                }
                Err(e) => return Err(failed(&at, e)),
            }
        }
    }
    client.sync_metadata().map_err(CliError::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_what_the_user_means() {
        for path in ["penstock:/a/b", "penstock:a/b", "/a/b", "a//b/"] {
            assert_eq!(inside(path), "/a/b", "{path}");
        }
        assert_eq!(inside("penstock:"), "/");
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
    }

    #[test]
    fn modes_and_times_are_readable() {
        assert_eq!(mode_text(NodeKind::File, 0o644), "-rw-r--r--");
        assert_eq!(mode_text(NodeKind::Directory, 0o750), "drwxr-x---");
        assert_eq!(time_text(0), "1970-01-01 00:00:00Z");
        assert_eq!(time_text(951_782_400_000_000_000), "2000-02-29 00:00:00Z");
        assert_eq!(time_text(1_795_215_727_000_000_000), "2026-11-20 23:02:07Z");
    }
}
