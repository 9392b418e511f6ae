//! Groups of files, each under an algorithm of its own, and fair sharing among them.
//!
//! *Problem*: one algorithm for all files of a server is wrong for some of them where patterns are mixed. *Idea*: files
//! (by operation) are put into groups by [`Groups`]; each group has the queues and the algorithm that it would have
//! alone. Groups share the server by bytes, as in fair queueing. Of those with requests, the one that has been given
//! the fewest bytes goes first ([`Turns`]). A group is served until it is [`TURN`] bytes ahead of another, because each
//! change of group costs a seek. A group without requests saves no credit. One that has requests but cannot use its
//! share for a while saves at most [`SAVED`] bytes. That happens where aIOLi serves one request at a time, or others
//! wait for aggregation. So no group waits for more bytes of another one than these and one virtual request. *When it
//! pays*: programs of different patterns on one server. *Source*: TS section 6.4 asks for mixed patterns; virtual time
//! after Goyal, Vin, Cheng (1996), start-time fair queueing.
use crate::{Algorithm, Error, Op};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Bytes that a group may be ahead before another one goes.
const TURN: u64 = 1 << 20;
/// Bytes that a group may save while it has requests and does not serve them.
const SAVED: u64 = 16 << 20;
/// Files and operations with an algorithm of their own.
pub(crate) const MAX_FILES: usize = 1024;

/// Which files run under which algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    /// The algorithm of files that are not listed.
    pub algorithm: Algorithm,
    /// The algorithms of listed files; at most 1024.
    pub files: BTreeMap<(u64, Op), Algorithm>,
}

impl Groups {
    /// One algorithm for all.
    pub fn all(algorithm: Algorithm) -> Groups {
        Groups {
            algorithm,
            files: BTreeMap::new(),
        }
    }

    /// The algorithm of a file.
    pub fn of(&self, file: u64, op: Op) -> Algorithm {
        let own = self.files.get(&(file, op));
        own.copied().unwrap_or(self.algorithm)
    }

    /// The algorithms in use, beginning with that of files not listed.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        let mut all = vec![self.algorithm];
        for algorithm in self.files.values() {
            if !all.contains(algorithm) {
                all.push(*algorithm);
            }
        }
        all
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.files.len() {
            0..=MAX_FILES => Ok(()),
            files => Err(Error::Groups { files }),
        }
    }
}

/// `aioli sjf=7r,7w to=9r`
impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.algorithm)?;
        for algorithm in Algorithm::ALL {
            let mut mark = format!(" {algorithm}=");
            for ((file, op), _) in self.files.iter().filter(|(_, a)| **a == algorithm) {
                let letter = if *op == Op::Read { 'r' } else { 'w' };
                write!(f, "{mark}{file}{letter}")?;
                mark = ",".into();
            }
        }
        Ok(())
    }
}

impl FromStr for Groups {
    type Err = Error;

    fn from_str(text: &str) -> Result<Groups, Error> {
        let wrong = || Error::Value {
            name: "groups".into(),
            value: text.chars().take(80).collect(),
            wanted: "an algorithm, then ALGORITHM=FILE,FILE… with r or w after each file",
        };
        let mut words = text.split(' ');
        let mut groups = Groups::all(words.next().unwrap_or_default().parse()?);
        for word in words {
            let (name, files) = word.split_once('=').ok_or_else(wrong)?;
            let algorithm = name.parse()?;
            for file in files.split(',') {
                let (number, op) = match file.strip_suffix('r') {
                    Some(number) => (number, Op::Read),
                    None => (file.strip_suffix('w').ok_or_else(wrong)?, Op::Write),
                };
                let number = number.parse().map_err(|_| wrong())?;
                groups.files.insert((number, op), algorithm);
            }
        }
        groups.check()?;
        Ok(groups)
    }
}

/// Fair sharing among groups that have requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    /// Bytes given to each, as virtual time.
    given: Vec<u64>,
    /// Virtual time of the group served last, before that service.
    clock: u64,
    last: usize,
}

impl Turns {
    pub(crate) fn new(groups: usize) -> Turns {
        Turns {
            given: vec![0; groups],
            ..Turns::default()
        }
    }

    /// A group without requests gets one.
    pub(crate) fn wakes(&mut self, group: usize) {
        self.given[group] = self.given[group].max(self.clock);
    }

    /// The next group to ask among those that `may`: the current one, then by bytes given.
    pub(crate) fn next(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        let groups = (0..self.given.len()).filter(|g| may(*g));
        let first = groups.min_by_key(|g| (self.given[*g], *g))?;
        let ahead = self.given[self.last].saturating_sub(self.given[first]);
        Some(if may(self.last) && ahead < TURN {
            self.last
        } else {
            first
        })
    }

    /// Charges bytes to a group.
    pub(crate) fn served(&mut self, group: usize, bytes: u64) {
        self.last = group;
        self.clock = self.clock.max(self.given[group]);
        self.given[group] += bytes;
        let least = self.clock.saturating_sub(SAVED);
        self.given.iter_mut().for_each(|g| *g = (*g).max(least));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_written_and_read() {
        let text = "aioli to=9r,12w sjf=7r,7w";
        let groups: Groups = text.parse().unwrap();
        assert_eq!(groups.to_string(), text);
        assert_eq!(groups.of(7, Op::Write), Algorithm::Sjf);
        assert_eq!(groups.of(9, Op::Write), Algorithm::Aioli);
        use Algorithm::{Aioli, Sjf, To};
        assert_eq!(groups.algorithms(), [Aioli, Sjf, To]);
        for wrong in [
            "",
            "oak",
            "to sjf",
            "to sjf=7",
            "to sjf=r",
            "to oak=7r",
            "to  ",
        ] {
            assert!(wrong.parse::<Groups>().is_err(), "{wrong}");
        }
        let many = (0..=MAX_FILES as u64).map(|f| ((f, Op::Read), To));
        let files = many.collect();
        let groups = Groups {
            algorithm: To,
            files,
        };
        assert!(groups.to_string().parse::<Groups>().is_err());
    }

    #[test]
    fn groups_with_requests_get_equal_bytes_whatever_their_requests_are() {
        let mut turns = Turns::new(3);
        let mut sums = [0u64; 3];
        for _ in 0..20_000 {
            let group = turns.next(|_| true).unwrap();
            let bytes = [4096, 300_000, 2 << 20][group];
            sums[group] += bytes;
            turns.served(group, bytes);
        }
        let (low, high) = (sums.iter().min().unwrap(), sums.iter().max().unwrap());
        assert!(high - low <= 2 * TURN + (2 << 20), "{sums:?}");
        // A group that was idle is not ahead of the others; one that could not serve has saved a little.
        (0..100).for_each(|_| turns.served(0, 1 << 20));
        turns.wakes(2);
        assert_eq!(turns.given[2], turns.clock);
        let saved = (0..1000)
            .take_while(|_| {
                let group = turns.next(|g| g != 2).unwrap();
                turns.served(group, 1 << 20);
                group == 1
            })
            .count();
        assert!((15..=19).contains(&saved), "{saved}");
    }
}
