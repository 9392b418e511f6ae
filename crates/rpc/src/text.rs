//! Makes untrusted texts safe to print and to log.
use std::fmt::Write as _;

/// Most bytes of a job's name and of an address. Longer texts are truncated.
pub(crate) const SHORT: usize = 64;

/// Bytes as text of at most `limit` bytes that is safe on any terminal, and reversible: a backslash is doubled, invalid
/// UTF-8 is `\xNN`. Control characters and those that change the direction of writing are `\u{N}`. A truncated text is
/// marked as such.
pub(crate) fn text(bytes: &[u8], limit: usize) -> String {
    let mut out = String::new();
    let mut piece = String::new();
    for chunk in bytes.utf8_chunks() {
        let chars = chunk.valid().chars().map(Piece::Char);
        let wrong = chunk.invalid().iter().copied().map(Piece::Byte);
        for one in chars.chain(wrong) {
            piece.clear();
            // Writing to a string cannot fail.
            let _ = match one {
                Piece::Char('\\') => write!(piece, "\\\\"),
                Piece::Char(c) if hidden(c) => write!(piece, "{}", c.escape_unicode()),
                Piece::Char(c) => write!(piece, "{c}"),
                Piece::Byte(byte) => write!(piece, "\\x{byte:02x}"),
            };
            if out.len() + piece.len() > limit {
                let _ = write!(out, " [cut, {} bytes]", bytes.len());
                return out;
            }
            out.push_str(&piece);
        }
    }
    out
}

enum Piece {
    Char(char),
    Byte(u8),
}

/// An untrusted text on one line of a terminal, in the same form.
pub fn printable(text: &str) -> String {
    self::text(text.as_bytes(), usize::MAX)
}

fn hidden(c: char) -> bool {
    let directs = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    c.is_control() || directs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_unambiguous_bounded_and_say_that_they_were_cut() {
        for (bytes, shown) in [
            (&b"/a b/\xc3\xa4"[..], "/a b/ä"),
            (b"a\xff\xc3", "a\\xff\\xc3"),
            (b"a\\xff", "a\\\\xff"),
            (b"a\n\x1b[2J", "a\\u{a}\\u{1b}[2J"),
            ("\u{202e}x".as_bytes(), "\\u{202e}x"),
            (b"", ""),
        ] {
            assert_eq!(text(bytes, 64), shown);
        }
        let long = "ä".repeat(200);
        let cut = text(long.as_bytes(), 101);
        assert_eq!(cut, format!("{} [cut, 400 bytes]", "ä".repeat(50)));
        assert_eq!(text(&[0xff; 1000], 8), "\\xff\\xff [cut, 1000 bytes]");
    }
}
