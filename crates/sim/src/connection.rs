//! Connections of ranks to servers: which of a rank's requests its server has taken up.
//!
//! A data server's thread serves what comes over a connection one request after the other, so that of many operations that a
//! rank has in flight each server works at one. Where the bound is 0, requests are taken up as they come.
use std::collections::{HashMap, VecDeque};

/// What has come, in its order, and is not taken up yet.
#[derive(Default)]
struct Line {
    /// Requests that are being served.
    busy: Vec<u32>,
    /// Requests of which something has come.
    waiting: VecDeque<u32>,
    /// Parts of writes among them.
    parts: VecDeque<(u32, u32)>,
}

/// A rank and a server.
pub(crate) type Ends = (u32, u32);

/// All connections on which something is under way.
pub(crate) struct Connections {
    most: u32,
    lines: HashMap<Ends, Line>,
}

impl Connections {
    /// `most` requests of a connection are served at a time; 0 for any number.
    pub(crate) fn new(most: u32) -> Connections {
        Connections {
            most,
            lines: HashMap::new(),
        }
    }

    /// Something of `request` has come, for writes a part of it. Whether the server takes it up now.
    pub(crate) fn comes(&mut self, ends: Ends, request: u32, part: Option<u32>) -> bool {
        if self.most == 0 {
            return true;
        }
        let line = self.lines.entry(ends).or_default();
        if line.busy.contains(&request) {
            return true;
        }
        if line.busy.len() < self.most as usize {
            line.busy.push(request);
            return true;
        }
        if line.waiting.back() != Some(&request) && !line.waiting.contains(&request) {
            line.waiting.push_back(request);
        }
        line.parts.extend(part.map(|part| (request, part)));
        false
    }

    /// The server is through with `request`; the one that it takes up now, and the parts of that which have come.
    pub(crate) fn ends(&mut self, ends: Ends, request: u32) -> Option<(u32, Vec<u32>)> {
        let line = self.lines.get_mut(&ends)?;
        line.busy.retain(|busy| *busy != request);
        let Some(next) = line.waiting.pop_front() else {
            if line.busy.is_empty() {
                self.lines.remove(&ends);
            }
            return None;
        };
        line.busy.push(next);
        let parts = line.parts.iter().filter(|(of, _)| *of == next);
        let parts = parts.map(|(_, part)| *part).collect();
        line.parts.retain(|(of, _)| *of != next);
        Some((next, parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_connection_are_taken_up_in_turn() {
        let mut all = Connections::new(1);
        let (a, b) = ((0, 0), (1, 0));
        assert!(all.comes(a, 1, None));
        assert!(!all.comes(a, 2, Some(20)) && !all.comes(a, 3, None) && !all.comes(a, 2, Some(21)));
        assert!(all.comes(b, 4, None), "another rank's");
        assert!(all.comes(a, 1, Some(10)), "more of the same");
        assert_eq!(all.ends(a, 1), Some((2, vec![20, 21])));
        assert_eq!(all.ends(a, 2), Some((3, vec![])));
        assert_eq!(all.ends(a, 3), None);
        assert_eq!(all.ends(b, 4), None);
        assert!(all.lines.is_empty());
        let mut free = Connections::new(0);
        assert!(free.comes(a, 1, None) && free.comes(a, 2, None));
        assert_eq!(free.ends(a, 1), None);
    }
}
