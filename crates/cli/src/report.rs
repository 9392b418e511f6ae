//! `penstock report`: the summaries of former runs, and where `penstock run` keeps them; the page of a trace.
//!
//! Each run is one file, NUMBER.json, in `$PENSTOCK_REPORTS`, else in `penstock/reports` below `$XDG_STATE_HOME` or
//! `~/.local/state`. A run takes a number by creating the file under its final name; only one of several runs can do
//! that.
use crate::error::{CliError, Result};
use crate::names::time_text;
use crate::out;
use crate::run::summary::Report;
use crate::size;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The environment variable with the directory, or [`NO_REPORTS`].
const VARIABLE: &str = "PENSTOCK_REPORTS";
/// The value of [`VARIABLE`] with which nothing is stored.
const NO_REPORTS: &str = "none";
/// Beyond these, the oldest reports are removed. The newest stays whatever its size.
const MOST_REPORTS: usize = 200;
const MOST_BYTES: u64 = 32 << 20;
/// The most files in one report: those with the most bytes.
const MOST_FILES: usize = 1_000;
/// The largest report in bytes; a larger file was not written by this program.
const MOST_REPORT_BYTES: u64 = 64 << 20;
/// The most numbers that are tried: other runs may take some first.
const MOST_ATTEMPTS: usize = 1_000;
/// Prefix of a report that is being written. One that is older than a day was left by a killed run.
const UNFINISHED: &str = ".new-";
const UNFINISHED_AGE: Duration = Duration::from_secs(24 * 3_600);
/// Width of a command in the list, in characters.
const COMMAND_WIDTH: usize = 60;

/// Show former runs: their summaries, or a page of pictures and findings from a trace.
///
/// `penstock run` keeps a summary of each run; without -o, this command lists and shows them. With --trace, a run also writes
/// a trace; with -o, this command makes a page from it.
///
/// Summaries: the command, the directory, the exit code, and bytes, time and method of each file. The last 200 are
/// kept, at most 32 MiB, in ~/.local/state/penstock/reports ($XDG_STATE_HOME/penstock/reports, $PENSTOCK_REPORTS). Only
/// you can read them. PENSTOCK_REPORTS=none keeps nothing.
///
/// Page: one HTML file of at most 10 MB that works offline. It shows where the time went, what to change, and why
/// (docs/use/report.md). `penstock view TRACE` shows the same in a browser, and answers questions.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock report                           the runs, newest first
  penstock report latest                    the summary of the last run
  penstock report 17 --json | jq .summary.files[].path

  penstock run -n 8 --trace TRACE -- ./app penstock:/out
  penstock report TRACE -o report.html      pictures and findings, to look at in a browser
  penstock trace generate --stack -o TRACE  a made-up trace to try it on")]
pub struct ReportArgs {
    /// The run: its number in the list, or `latest`; or a trace.
    #[arg(value_name = "RUN | TRACE")]
    run: Option<OsString>,
    /// Where the page of a trace goes. A file that is there is replaced. Only you can read it, as the trace.
    #[arg(
        short,
        long,
        value_name = "FILE",
        requires = "run",
        conflicts_with = "json"
    )]
    output: Option<PathBuf>,
    /// For programs: one object a run.
    #[arg(long)]
    json: bool,
}

/// One run, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Nanoseconds since 1970-01-01 UTC.
    pub started_ns: i64,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it was started.
    pub directory: String,
    pub host: String,
    pub exit_code: i32,
    pub summary: Report,
}

/// A [`Kept`] with its number, for programs.
#[derive(Serialize)]
struct Numbered<'a> {
    number: u64,
    #[serde(flatten)]
    kept: &'a Kept,
}

/// Stores a run's summary. Does nothing if there is no home directory or the user wants none.
pub fn keep(mut kept: Kept) -> Result<()> {
    let Some(dir) = directory() else {
        return Ok(());
    };
    kept.summary.keep_busiest(MOST_FILES);
    write(&dir, &kept)?;
    prune(&dir)
}

/// Stores a run's summary beside its trace, for the page.
pub fn keep_beside(trace: &Path, kept: &Kept) -> Result<()> {
    let path = trace.join(penstock_analysis::RUN);
    let text = serde_json::to_vec(kept)
        .map_err(|e| CliError::new(format!("cannot write a summary as JSON: {e}")))?;
    put(&path, &text).map_err(|e| CliError::io("write", &path, e))
}

/// Replaces a file in one step. Only its owner can read it.
fn put(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    // Created with mode 0600; nobody sees half of it.
    let mut file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .tempfile_in(dir)?;
    std::io::Write::write_all(&mut file, text)?;
    file.persist(path).map(drop).map_err(|e| e.error)
}

/// Lists reports or shows one.
pub fn report(args: &ReportArgs) -> Result<()> {
    if let (Some(trace), Some(output)) = (&args.run, &args.output) {
        return write_page(Path::new(trace), output);
    }
    let Some(dir) = directory() else {
        return Err(CliError::new("no summaries are kept here").next(format!(
            "name a directory with {VARIABLE}, before `penstock run` too"
        )));
    };
    let mut numbers: Vec<u64> = stored(&dir)?.into_iter().map(|(n, _)| n).collect();
    numbers.sort_unstable_by_key(|n| Reverse(*n));
    let Some(wanted) = &args.run else {
        return list(&dir, &numbers, args.json);
    };
    let number = match wanted.to_str() {
        Some("latest") => numbers.first().copied(),
        word => word
            .and_then(|w| w.parse().ok())
            .filter(|n| numbers.contains(n)),
    };
    let number = number.ok_or_else(|| {
        let word = wanted.display();
        if Path::new(wanted).exists() {
            CliError::new(format!("`{word}` is a file or directory, and no run")).next(format!(
                "if it is a trace: penstock report {word} -o report.html"
            ))
        } else {
            CliError::new(format!("no run `{word}` is kept in {}", dir.display()))
                .next("`penstock report` lists those that are; `latest` is the last one")
        }
    })?;
    let kept = read(&path_of(&dir, number))?;
    if args.json {
        out::print_json(&Numbered {
            number,
            kept: &kept,
        });
    } else {
        out::print(&format!(
            "run {number}: {}\n  started {} on {} in {}; exit code {}\n{}",
            printable(&kept.command.join(" ")),
            time_text(kept.started_ns),
            printable(&kept.host),
            printable(&kept.directory),
            kept.exit_code,
            kept.summary.to_text()
        ));
    }
    Ok(())
}

/// Records from which on a page may take more than two seconds: then it says what it does.
const MANY_RECORDS: u64 = 1_000_000;

/// Makes the page of a trace.
fn write_page(trace: &Path, output: &Path) -> Result<()> {
    let trace = crate::trace::open(trace)?;
    let is_long = trace.records() > MANY_RECORDS;
    let doing = |what: &str| {
        if is_long {
            out::note(what);
        }
    };
    let page = penstock_analysis::page(&trace, false, &doing).map_err(crate::trace::asked)?;
    put(output, page.as_bytes()).map_err(|e| CliError::io("write", output, e))?;
    out::line(format_args!(
        "{}: {} from {} records; open it in a browser",
        output.display(),
        size::bytes(page.len() as u64),
        size::count(trace.records())
    ));
    Ok(())
}

fn list(dir: &Path, numbers: &[u64], json: bool) -> Result<()> {
    let mut rows = Vec::new();
    for &number in numbers {
        let kept = match read(&path_of(dir, number)) {
            Ok(kept) => kept,
            Err(why) => {
                out::note(why);
                continue;
            }
        };
        if json {
            out::print_json(&Numbered {
                number,
                kept: &kept,
            });
            continue;
        }
        let totals = kept.summary.totals();
        rows.push(vec![
            number.to_string(),
            time_text(kept.started_ns),
            size::duration(totals.wall_seconds),
            totals.ranks.to_string(),
            size::bytes(totals.bytes_written),
            size::bytes(totals.bytes_read),
            kept.exit_code.to_string(),
            kept.short_command(),
        ]);
    }
    if !json && rows.is_empty() {
        out::note(format_args!(
            "no runs yet in {}; `penstock run` keeps a summary of each",
            dir.display()
        ));
    } else if !json {
        let header = [
            "run", "started", "time", "ranks", "written", "read", "exit", "command",
        ];
        out::print(&out::table(&header, &[0, 2, 3, 4, 5, 6], rows));
    }
    Ok(())
}

impl Kept {
    /// The command in [`COMMAND_WIDTH`] characters, the program without its directory.
    fn short_command(&self) -> String {
        let mut words = self.command.clone();
        if let Some(program) = words.first_mut()
            && let Some((_, name)) = program.rsplit_once('/')
        {
            *program = name.to_owned();
        }
        let text = printable(&words.join(" "));
        if text.chars().count() <= COMMAND_WIDTH {
            return text;
        }
        let cut: String = text.chars().take(COMMAND_WIDTH - 1).collect();
        format!("{cut}…")
    }
}

/// The text without control characters.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

/// The directory of the reports; `None` if none are stored.
fn directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    if let Some(dir) = set(VARIABLE) {
        return (dir != NO_REPORTS).then(|| PathBuf::from(dir));
    }
    let state = match set("XDG_STATE_HOME") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(set("HOME")?).join(".local/state"),
    };
    Some(state.join("penstock/reports"))
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.json"))
}

/// Numbers and bytes of the reports in `dir`; none if it does not exist.
fn stored(dir: &Path) -> Result<Vec<(u64, u64)>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(CliError::io("read", dir, e)),
    };
    let number = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let number = name.to_str()?.strip_suffix(".json")?.parse().ok()?;
        // Under another name the report would not be found again.
        let bytes = entry.metadata().ok()?.len();
        (path_of(dir, number) == entry.path()).then_some((number, bytes))
    };
    Ok(entries.flatten().filter_map(number).collect())
}

fn read(path: &Path) -> Result<Kept> {
    let failed = |e| CliError::io("read", path, e);
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > MOST_REPORT_BYTES {
        return Err(CliError::new(format!(
            "{} has {} and is no summary of a run",
            path.display(),
            size::bytes(length)
        ))
        .next("remove the file"));
    }
    let text = std::fs::read(path).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|e| {
        CliError::new(format!("{} is no summary of a run: {e}", path.display())).next(
            "remove the file, if it is damaged; one of another version can be read by that version",
        )
    })
}

/// Writes a report under the next free number.
fn write(dir: &Path, kept: &Kept) -> Result<u64> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| CliError::io("make", dir, e))?;
    let text = serde_json::to_vec(kept)
        .map_err(|e| CliError::new(format!("cannot write a summary as JSON: {e}")))?;
    // Created with mode 0600.
    let mut file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .tempfile_in(dir)
        .map_err(|e| CliError::io("write in", dir, e))?;
    std::io::Write::write_all(&mut file, &text).map_err(|e| CliError::io("write in", dir, e))?;
    let mut number = stored(dir)?.iter().map(|(n, _)| *n).max().unwrap_or(0);
    for _ in 0..MOST_ATTEMPTS {
        number = number.saturating_add(1);
        match file.persist_noclobber(path_of(dir, number)) {
            Ok(_) => return Ok(number),
            Err(e) if e.error.kind() == std::io::ErrorKind::AlreadyExists => file = e.file,
            Err(e) => return Err(CliError::io("write in", dir, e.error)),
        }
    }
    Err(CliError::new(format!(
        "other runs took {MOST_ATTEMPTS} numbers first in {}",
        dir.display()
    )))
}

/// Removes the oldest reports beyond the limits, and the files of killed runs.
fn prune(dir: &Path) -> Result<()> {
    let mut reports = stored(dir)?;
    reports.sort_unstable_by_key(|r| Reverse(*r));
    let mut bytes = 0;
    for (place, (number, length)) in reports.into_iter().enumerate() {
        bytes += length;
        if place > 0 && (place >= MOST_REPORTS || bytes > MOST_BYTES) {
            remove(&path_of(dir, number))?;
        }
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let unfinished = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(UNFINISHED.as_bytes());
        let age = entry
            .metadata()
            .and_then(|m| m.modified())
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        if unfinished && age.is_some_and(|age| age > UNFINISHED_AGE) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file that another run may have removed.
fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(CliError::io("remove", path, e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn kept(command: &str) -> Kept {
        Kept {
            started_ns: 1_800_000_000_000_000_000,
            command: vec![command.into()],
            directory: "/home/me".into(),
            host: "here".into(),
            exit_code: 0,
            summary: Report::default(),
        }
    }

    #[test]
    fn runs_that_end_together_get_numbers_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let numbers: BTreeSet<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..20)
                            .map(|_| write(dir.path(), &kept("x")).unwrap())
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|t| t.join().unwrap())
                .collect()
        });
        assert_eq!(numbers, (1..=160).collect());
    }

    #[test]
    fn the_oldest_are_removed_by_number_and_by_bytes() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..MOST_REPORTS + 5 {
            write(dir.path(), &kept("x")).unwrap();
        }
        let old = dir.path().join(".new-old");
        std::fs::write(&old, "half").unwrap();
        let day_before = SystemTime::now() - UNFINISHED_AGE - Duration::from_secs(1);
        let file = std::fs::File::options().write(true).open(&old).unwrap();
        file.set_modified(day_before).unwrap();
        std::fs::write(dir.path().join(".new-now"), "half").unwrap();
        std::fs::write(dir.path().join("7.json"), "not ours").unwrap();
        prune(dir.path()).unwrap();
        let mut left: Vec<u64> = stored(dir.path())
            .unwrap()
            .iter()
            .map(|(n, _)| *n)
            .collect();
        left.sort_unstable();
        assert_eq!(left, (6..=205).collect::<Vec<_>>());
        assert!(!old.exists() && dir.path().join(".new-now").exists());
        assert!(dir.path().join("7.json").exists());

        // A report that is larger than the limit for all leaves only itself.
        let large = std::fs::File::create(path_of(dir.path(), 206)).unwrap();
        large.set_len(MOST_BYTES + 1).unwrap();
        prune(dir.path()).unwrap();
        assert_eq!(stored(dir.path()).unwrap(), [(206, MOST_BYTES + 1)]);
    }

    #[test]
    fn commands_cannot_steer_a_terminal() {
        let short = kept("/home/me/ec\u{1b}[2J\nho").short_command();
        assert_eq!(short, "ec\\u{1b}[2J\\nho");
        let long = kept(&"ä".repeat(COMMAND_WIDTH + 1)).short_command();
        assert_eq!(long.chars().count(), COMMAND_WIDTH);
        assert!(long.ends_with("ä…"), "{long}");
    }
}
