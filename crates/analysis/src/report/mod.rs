//! The page of `penstock report TRACE`: pictures of a run, and what to change, in one HTML file that works offline.
//!
//! ```text
//! data.rs      what the page shows, as it stands in it     pictures.rs  one pass over the records: bins, calls, accesses
//! findings.rs  what is wrong, in words, with the remedy    bins.rs      time cut into bins
//! slow.rs      the slowest calls with their trees          rows.rs      rows of processes and servers
//! methods.rs   what MPI-IO chose, and why                  words.rs     figures with units
//! ```
//! The page itself is web/ in the source tree.
//!
//! Whatever the trace's size, the page has at most [`MOST_BYTES`]: every list here has a limit, and the page says what it
//! leaves out.
mod bins;
mod data;
mod findings;
mod methods;
mod pictures;
mod rows;
mod slow;
mod words;

pub use methods::RUN;

use crate::Error;
use crate::summary::summary;
use crate::trace::Trace;

/// Most bytes of a page.
pub const MOST_BYTES: usize = 10_000_000;

/// The page without its data: built from `web/`, see the README there.
const PAGE: &str = include_str!("../../../../web/dist/page.html");
/// Where the data goes.
const PLACE: &str = "@PENSTOCK-DATA@";

/// What the page's policy lets it connect to: nothing, and the server that it comes from.
const ALONE: &str = "connect-src 'none'";
const SERVED: &str = "connect-src 'self'";

/// Makes the page of a trace. `asks`: it comes from a server that answers questions (`penstock view`). `doing` hears
/// what is done next.
pub fn page(trace: &Trace, asks: bool, doing: &dyn Fn(&str)) -> Result<String, Error> {
    doing("reading all records for the figures of each layer");
    let summary = summary(trace)?;
    doing("reading all records for the pictures");
    let pictures = pictures::draw(trace, &summary)?;
    doing("following the slowest calls");
    let data = data::data(trace, &summary, pictures, asks)?;
    let page = fill(&data)?;
    Ok(if asks {
        page.replacen(ALONE, SERVED, 1)
    } else {
        page
    })
}

/// Puts data into the page.
fn fill(data: &data::Data) -> Result<String, Error> {
    let json = serde_json::to_string(data)
        .map_err(|e| Error::Question(format!("the page's data is no JSON: {e}")))?;
    let Some((before, after)) = PAGE.split_once(PLACE) else {
        return Err(Error::Question(
            "this program was built with a page that has no place for data: build web/ anew".into(),
        ));
    };
    let page = format!("{before}{}{after}", harmless(&json));
    if page.len() > MOST_BYTES {
        return Err(Error::Question(format!(
            "the page would have {} bytes, more than {MOST_BYTES}: please report this",
            page.len()
        )));
    }
    Ok(page)
}

/// JSON that ends no HTML element: what could stands only in strings, where it may be escaped.
fn harmless(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + json.len() / 16);
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_end_its_element() {
        let name = "</script><b>&\u{2028}\u{85}\n\"";
        let json = serde_json::to_string(name).unwrap();
        let text = harmless(&json);
        assert!(
            !text.contains(['<', '>', '&', '\u{2028}', '\u{85}']),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), name);
    }

    #[test]
    fn the_page_has_one_place_for_data() {
        assert_eq!(PAGE.matches(PLACE).count(), 1);
        // The policy stands before all else that could be so called.
        assert_eq!(PAGE.matches(ALONE).count(), 1);
        assert!(PAGE.find(ALONE) < PAGE.find(PLACE));
    }
}
