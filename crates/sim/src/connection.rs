//! Connections of ranks to servers: which requests of a rank its server is serving.
//!
//! A data server's thread serves the requests of a connection one after the other: of a rank's operations in flight
//! each server serves one. With a bound of 0, requests are served as they arrive.
use std::collections::{HashMap, VecDeque};

/// What has arrived on a connection and is not yet being served, in order.
#[derive(Default)]
struct Line {
    /// Requests that are being served.
    busy: Vec<u32>,
    /// Requests of which a part has arrived.
    waiting: VecDeque<u32>,
    /// Parts of writes among them.
    parts: VecDeque<(u32, u32)>,
}

/// A rank and a server.
pub(crate) type Ends = (u32, u32);

/// All connections with requests.
pub(crate) struct Connections {
    most: u32,
    lines: HashMap<Ends, Line>,
}

impl Connections {
    /// Serves at most `most` requests of a connection at a time; 0: no bound.
    pub(crate) fn new(most: u32) -> Connections {
        Connections {
            most,
            lines: HashMap::new(),
        }
    }

    /// A request has arrived, or for writes a part of it. Returns whether the server serves it now.
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

    /// `request` is done; returns the one to serve next and its parts that have arrived.
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
