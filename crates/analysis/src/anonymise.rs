//! A copy of a trace without names.
use crate::trace::Trace;
use crate::{Error, Notes};
use penstock_trace::{FileName, Link, StreamHead, StreamWriter};
use std::collections::HashMap;
use std::path::Path;

/// Copies a trace to a directory that is there. `word` makes a word of a name; equal names have equal words. Returns how many
/// records were written, and what could not be read.
pub fn anonymise(
    trace: &Trace,
    to: &Path,
    word: &(impl Fn(&str) -> String + Sync),
) -> Result<(u64, Notes), Error> {
    let copied = trace.each(
        |_| true,
        |part, blocks| {
            let head = part.stream.head();
            let hidden = |text: &str| {
                if text.is_empty() {
                    String::new()
                } else {
                    word(text)
                }
            };
            let head = StreamHead {
                host: hidden(&head.host),
                command: hidden(&head.command),
                job: hidden(&head.job),
                user: hidden(&head.user),
                pid: 0,
                modules: head
                    .modules
                    .iter()
                    .map(|module| penstock_trace::Module {
                        path: path_of(&module.path, word),
                        build_id: String::new(),
                        ..module.clone()
                    })
                    .collect(),
                ..head.clone()
            };
            let name = match part.server {
                Some(server) => format!("data-{server}.trace"),
                None => format!("{}-{}-{}.trace", head.host, part.index, head.began),
            };
            let mut writer = StreamWriter::create(&to.join(name), &head)?;
            let mut numbers = HashMap::new();
            for (number, file) in part.stream.files() {
                let path = path_of(&file.path, word);
                numbers.insert(number, writer.name_file_of(&FileName { path, id: file.id }));
            }
            let mut failed = None;
            blocks.records(|record, links| {
                if failed.is_some() {
                    return;
                }
                let mut record = *record;
                record.begin = record
                    .begin
                    .saturating_add_signed(part.shift.wrapping_neg());
                record.file = numbers.get(&record.file).copied().unwrap_or(0);
                let links: Vec<Link> = links.iter().map(|link| link.1).collect();
                failed = writer.push_linked(&record, &links).err();
            });
            if let Some(error) = failed {
                return Err(error.into());
            }
            let lost = part.stream.summary().dropped;
            Ok(writer.finish(lost)?.events)
        },
    )?;
    let mut notes = Notes::default();
    let records = copied.take(&mut notes).into_iter().sum();
    Ok((records, notes))
}

/// Each part of a path becomes a word; the suffix of the last one stays if it is short and plain.
fn path_of(path: &str, word: &impl Fn(&str) -> String) -> String {
    let Some((dirs, last)) = path.rsplit_once('/').or(Some(("", path))) else {
        return String::new();
    };
    let suffix = last.rsplit_once('.').map(|(_, suffix)| suffix);
    let suffix =
        suffix.filter(|s| s.len() <= 6 && s.chars().all(|c| c.is_ascii_alphabetic() || c == '5'));
    let mut parts: Vec<String> = match dirs {
        "" if !path.starts_with('/') => Vec::new(),
        dirs => dirs
            .split('/')
            .map(|d| if d.is_empty() { String::new() } else { word(d) })
            .collect(),
    };
    let last = match last {
        "" => String::new(),
        last => suffix.map_or(word(last), |suffix| format!("{}.{suffix}", word(last))),
    };
    parts.push(last);
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_keep_their_shape_alone() {
        let word = |text: &str| format!("w{}", text.len());
        assert_eq!(path_of("/home/olga/x.h5", &word), "/w4/w4/w4.h5");
        assert_eq!(path_of("x", &word), "w1");
        assert_eq!(path_of("", &word), "");
        assert_eq!(path_of("a/secret.name7", &word), "w1/w12");
    }
}
