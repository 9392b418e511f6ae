//! `penstock trace lines`: a line for each place in the program's source.
use super::answer::{Answer, Kind, share};
use super::question::Question;
use crate::error::Result;
use clap::Args;
use penstock_analysis::{Figures, Layer};
use std::collections::{BTreeMap, HashMap};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Which lines of the source the calls come from, and how long they took. Those with most time first.
///
/// Lines come from the debug information of the program, by the command `addr2line` (Debian: binutils). Without it, or for
/// programs compiled without -g, places stand as FILE+OFFSET.
#[derive(Debug, Args)]
pub struct LinesArgs {
    #[command(flatten)]
    question: Question,
    /// Lines that are shown at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    most: usize,
}

type Code = (u32, u64);

pub fn lines(args: &LinesArgs) -> Result<()> {
    args.question.about_groups("penstock trace follow")?;
    let (trace, summary) = args.question.summary()?;
    let cells = || {
        summary
            .cells(&args.question.call)
            .filter(|c| c.group.layer() <= Layer::Client)
    };
    let mut names: HashMap<Code, String> = HashMap::new();
    let mut notes = Vec::new();
    let mut by_module: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for cell in cells() {
        by_module
            .entry(cell.group.code.0)
            .or_default()
            .push(cell.group.code.1);
    }
    for (module, mut offsets) in by_module {
        offsets.sort_unstable();
        offsets.dedup();
        let path = &summary.modules[module as usize];
        let known = if module == 0 {
            Err(None)
        } else {
            resolve(Path::new(path), &offsets).map_err(Some)
        };
        let known = known.unwrap_or_else(|why| {
            notes.extend(why.map(|why| format!("no lines of {path}: {why}")));
            Vec::new()
        });
        for (i, offset) in offsets.iter().enumerate() {
            let short = path.rsplit('/').next().unwrap_or(path);
            let name = match known.get(i).cloned().flatten() {
                Some(line) => line,
                None if module == 0 && *offset == 0 => "(unknown)".into(),
                None if module == 0 => format!("{offset:#x}"),
                None => format!("{short}+{offset:#x}"),
            };
            names.insert((module, *offset), name);
        }
    }
    let mut lines: BTreeMap<(&str, Layer, String), Figures> = BTreeMap::new();
    for cell in cells() {
        let group = &cell.group;
        let line = names.get(&group.code).map_or("", String::as_str);
        let operation = group.operation().name().to_string();
        lines
            .entry((line, group.layer(), operation))
            .or_default()
            .merge(&cell.figures);
    }
    let all: u64 = lines.values().map(|f| f.exclusive).sum();
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(_, f)| std::cmp::Reverse(f.inclusive));
    let mut answer = Answer::new(&[
        ("line", Kind::Text),
        ("layer", Kind::Text),
        ("operation", Kind::Text),
        ("calls", Kind::Count),
        ("bytes", Kind::Bytes),
        ("inclusive", Kind::Time),
        ("exclusive", Kind::Time),
        ("share", Kind::Share),
    ]);
    for ((line, layer, operation), f) in lines.iter().take(args.most) {
        answer.push(row![
            *line,
            layer.name(),
            operation.as_str(),
            f.calls,
            f.bytes,
            f.inclusive,
            f.exclusive,
            share(f.exclusive, all),
        ]);
    }
    notes.into_iter().for_each(|note| answer.note(note));
    if lines.len() > args.most {
        answer.note(format!(
            "{} further lines are not shown: --most",
            lines.len() - args.most
        ));
    }
    args.question.print(answer, &trace, &summary.problems)
}

/// Lines of return addresses, given as offsets from where the file was loaded.
fn resolve(path: &Path, offsets: &[u64]) -> std::result::Result<Vec<Option<String>>, String> {
    let base = first_address(path).map_err(|e| format!("cannot read it: {e}"))?;
    let mut child = Command::new("addr2line")
        .args(["-C", "-e"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot run addr2line (Debian: apt-get install binutils): {e}"))?;
    let mut text = String::new();
    for offset in offsets {
        // The return address is that of the instruction behind the call.
        text += &format!("{:#x}\n", base.wrapping_add(*offset).wrapping_sub(1));
    }
    let input = child.stdin.take();
    let writer =
        std::thread::spawn(move || input.map(|mut input| input.write_all(text.as_bytes())));
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let _ = writer.join();
    let text = String::from_utf8_lossy(&output.stdout);
    let known: Vec<Option<String>> = text
        .lines()
        .map(|line| {
            let line = line.split(" (discriminator").next().unwrap_or(line);
            (!line.starts_with("??") && !line.ends_with(":0") && !line.ends_with(":?"))
                .then(|| line.to_owned())
        })
        .collect();
    if known.iter().any(Option::is_some) {
        Ok(known)
    } else {
        Err("it has no debug information: compile with -g".into())
    }
}

/// The address that an ELF file's first segment wants: 0 where it can lie anywhere.
fn first_address(path: &Path) -> std::io::Result<u64> {
    let bad = || std::io::Error::other("it is no 64-bit little-endian ELF file");
    let mut file = std::fs::File::open(path)?;
    let mut head = [0u8; 64];
    file.read_exact(&mut head)?;
    if &head[..6] != b"\x7fELF\x02\x01" {
        return Err(bad());
    }
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let (table, size, count) = (
        number(&head[32..40]),
        number(&head[54..56]),
        number(&head[56..58]),
    );
    for i in 0..count {
        let mut segment = [0u8; 56];
        file.seek(SeekFrom::Start(table.saturating_add(i * size)))?;
        file.read_exact(&mut segment)?;
        if number(&segment[..4]) == 1 {
            return Ok(number(&segment[16..24]).saturating_sub(number(&segment[8..16])));
        }
    }
    Err(bad())
}
