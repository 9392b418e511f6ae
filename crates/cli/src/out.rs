//! Output: tables for people, JSON for programs.
//!
//! All output of the command goes through this module. `println!` and `eprintln!` panic when the reader of a pipe has
//! exited (`penstock up D | head -1`).
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use std::fmt::Display;
use std::io::Write;

/// Writes to standard output. A reader that has exited (`penstock ls | head`) is no error.
pub fn print(text: &str) {
    show(text);
}

/// The same; false if the reader has exited.
pub fn show(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_ok()
}

/// One line of a command's answer.
pub fn line(text: impl Display) {
    print(&format!("{text}\n"));
}

/// Writes to standard error. A reader that has exited is no error here either.
pub fn tell(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes());
}

/// One line on standard error, with the program's name.
pub fn note(text: impl Display) {
    tell(&format!("penstock: {text}\n"));
}

/// One line of JSON.
pub fn print_json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(line) => print(&format!("{line}\n")),
        Err(e) => note(format_args!("cannot write JSON: {e}")),
    }
}

/// A table without lines: columns named in `header`, those in `right` aligned to the right.
pub fn table(header: &[&str], right: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.to_vec())
        .add_rows(rows);
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_bare() {
        let text = table(
            &["name", "size"],
            &[1],
            vec![
                vec!["a".into(), "7".into()],
                vec!["longer".into(), "1234".into()],
            ],
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].ends_with("   7"), "{text}");
        assert!(lines[2].ends_with("1234"), "{text}");
    }
}
