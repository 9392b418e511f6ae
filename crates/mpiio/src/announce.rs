//! Messages of the ranks in the meeting of a collective access ([`crate::meeting`]). Each rank sends its pattern as an
//! encoded loop and its regions in memory, or its failure. Rank 0 adds what the choice of a method depends on, so that
//! all ranks choose the same.
//!
//! A loop is sent once: every rank caches the last few loops of every other, and later calls send only the hash. Sender
//! and receivers apply the same rule to the same messages, so their caches always agree.
//!
//! | bytes | |
//! | --- | --- |
//! | 1 | kind: contiguous, known loop, loop inline, failed (an outcome follows) |
//! | 8 | regions in memory |
//! | rank 0: 1, 4, 1, 1, 1, 5 each | descriptors may be used; processors; incumbent, or 255; accesses to go without a meeting; number of ratios other than 1; candidate and ratio |
//! | 8, 8, 8 | displacement, start and length of the pattern |
//! | 0, 16, rest | nothing, hash of the loop, the loop |
use crate::comm::{Comm, decode_outcome, encode_outcome};
use crate::error::{Error, ErrorClass, Result};
use crate::meeting::{self, Call, DeferredError};
use crate::methods::auto::{Candidate, Ratios, UNKNOWN, bounded};
use penstock_datatype::{Loop, LoopHash, Pattern};
use std::collections::VecDeque;

/// Loops cached of each rank.
const REMEMBERED: usize = 4;

const CONTIGUOUS: u8 = 0;
const KNOWN: u8 = 1;
const INLINE: u8 = 2;
const FAILED: u8 = 3;

/// Stands for no incumbent.
const NOBODY: u8 = u8::MAX;

/// The loops each rank has announced on this file, oldest first.
pub(crate) struct Announcements {
    /// How many times the ranks have announced accesses of this file.
    count: u64,
    known: Vec<VecDeque<(LoopHash, Loop)>>,
}

/// What rank 0 knows; all ranks use it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Experience {
    /// Whether descriptors may be used.
    pub shortcut: bool,
    /// Processors that the node's ranks share.
    pub processors: u32,
    /// The candidate that performed the last access.
    pub incumbent: Option<Candidate>,
    /// The number of accesses to follow without a meeting, if this one needs no exchange.
    pub quiet: u8,
    pub ratios: Ratios,
}

impl Default for Experience {
    fn default() -> Experience {
        Experience {
            shortcut: false,
            processors: 1,
            incumbent: None,
            quiet: 0,
            ratios: [UNKNOWN; Candidate::COUNT],
        }
    }
}

/// What all ranks announced.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Announced {
    /// The call's number among those of this file, the same on all ranks.
    pub call: u64,
    pub patterns: Vec<Pattern>,
    /// Each rank's regions in memory.
    pub memory_regions: Vec<u64>,
    pub experience: Experience,
}

impl Announcements {
    pub(crate) fn new(ranks: usize) -> Announcements {
        Announcements {
            count: 0,
            known: (0..ranks).map(|_| VecDeque::new()).collect(),
        }
    }

    /// The ranks were in different calls: not all have received the loops that some sent.
    pub(crate) fn forget(&mut self) {
        self.count += 1;
        self.known.iter_mut().for_each(VecDeque::clear);
    }

    /// Sends this rank's access to all and receives theirs. If any rank failed, or owes an error to others, all fail.
    pub(crate) fn exchange(
        &mut self,
        comm: &dyn Comm,
        debt: &DeferredError,
        mine: &Result<Pattern>,
        memory_regions: u64,
        experience: &Experience,
    ) -> Result<Announced> {
        let told = self.encode(comm.rank(), mine, memory_regions, experience);
        let met = meeting::meet(comm, debt, Call::Access, &told)?;
        if met.in_step() {
            self.count += 1;
        } else {
            self.forget();
        }
        let all = met.told;
        let mut announced = Announced {
            call: self.count,
            patterns: Vec::with_capacity(all.len()),
            memory_regions: Vec::with_capacity(all.len()),
            experience: Experience::default(),
        };
        let mut failed = met.verdict;
        for (rank, bytes) in all.iter().enumerate() {
            // Every message is decoded, even after a failure, so that all ranks cache the same loops.
            if let Err(e) = self.decode(rank, bytes, &mut announced)
                && failed.is_ok()
            {
                failed = Err(e);
            }
        }
        match (mine, failed) {
            (Err(e), _) => Err(e.clone()),
            (Ok(_), failed) => failed.map(|()| announced),
        }
    }

    fn encode(
        &self,
        rank: usize,
        mine: &Result<Pattern>,
        memory_regions: u64,
        experience: &Experience,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let pattern = match mine {
            Ok(pattern) => pattern,
            Err(_) => {
                out.push(FAILED);
                out.extend(encode_outcome(mine));
                return out;
            }
        };
        let contiguous = pattern.len == 0 || pattern.is_contiguous();
        let hash = (!contiguous).then(|| pattern.tile.hash());
        let known = hash.is_some_and(|hash| self.known[rank].iter().any(|(h, _)| *h == hash));
        out.push(match (contiguous, known) {
            (true, _) => CONTIGUOUS,
            (false, true) => KNOWN,
            (false, false) => INLINE,
        });
        out.extend(memory_regions.to_le_bytes());
        if rank == 0 {
            experience.encode(&mut out);
        }
        let (disp, start) = if contiguous {
            (pattern.bounds().0, 0)
        } else {
            (pattern.disp, pattern.start)
        };
        out.extend(disp.to_le_bytes());
        out.extend(start.to_le_bytes());
        out.extend(pattern.len.to_le_bytes());
        match hash {
            Some(hash) if known => out.extend(hash.0),
            Some(_) => out.extend(&*pattern.tile.encode()),
            None => {}
        }
        out
    }

    /// Adds the message of `rank` to `announced`.
    fn decode(&mut self, rank: usize, bytes: &[u8], announced: &mut Announced) -> Result<()> {
        let unreadable = || {
            Error::new(
                ErrorClass::Intern,
                format!(
                    "rank {rank} announced an unreadable access; all ranks must run the same library"
                ),
            )
        };
        let (kind, mut rest) = bytes.split_first().ok_or_else(unreadable)?;
        if *kind == FAILED {
            decode_outcome(rank, rest)?;
            return Err(unreadable());
        }
        let memory_regions = u64::from_le_bytes(take(&mut rest).ok_or_else(unreadable)?);
        if rank == 0 {
            announced.experience = Experience::decode(&mut rest).ok_or_else(unreadable)?;
        }
        let disp = i64::from_le_bytes(take(&mut rest).ok_or_else(unreadable)?);
        let start = u64::from_le_bytes(take(&mut rest).ok_or_else(unreadable)?);
        let len = u64::from_le_bytes(take(&mut rest).ok_or_else(unreadable)?);
        let tile = match *kind {
            CONTIGUOUS => None,
            KNOWN => {
                let hash = LoopHash(take(&mut rest).ok_or_else(unreadable)?);
                let known = self.known[rank].iter().find(|(h, _)| *h == hash);
                Some(known.ok_or_else(unreadable)?.1.clone())
            }
            INLINE => {
                let tile = Loop::decode(std::mem::take(&mut rest)).map_err(|_| unreadable())?;
                let known = &mut self.known[rank];
                known.push_back((tile.hash(), tile.clone()));
                if known.len() > REMEMBERED {
                    known.pop_front();
                }
                Some(tile)
            }
            _ => return Err(unreadable()),
        };
        if !rest.is_empty() {
            return Err(unreadable());
        }
        let pattern = match tile {
            Some(tile) => Pattern::new(disp, tile, start, len).map_err(|_| unreadable())?,
            None if i128::from(disp) + i128::from(len) <= i128::from(i64::MAX) => {
                Pattern::contiguous(disp, len)
            }
            None => return Err(unreadable()),
        };
        announced.patterns.push(pattern);
        announced.memory_regions.push(memory_regions);
        Ok(())
    }
}

impl Experience {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.shortcut));
        out.extend(self.processors.to_le_bytes());
        out.push(self.incumbent.map_or(NOBODY, |c| c.index() as u8));
        out.push(self.quiet);
        let learnt = || {
            self.ratios
                .iter()
                .enumerate()
                .filter(|(_, r)| **r != UNKNOWN)
        };
        out.push(learnt().count() as u8);
        for (candidate, ratio) in learnt() {
            out.push(candidate as u8);
            out.extend(ratio.to_le_bytes());
        }
    }

    fn decode(rest: &mut &[u8]) -> Option<Experience> {
        let shortcut = match take(rest)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let processors = u32::from_le_bytes(take(rest)?);
        let incumbent = match take(rest)? {
            [NOBODY] => None,
            [index] => Some(Candidate::from_index(usize::from(index))?),
        };
        let [quiet] = take(rest)?;
        let mut ratios = [UNKNOWN; Candidate::COUNT];
        let [count] = take(rest)?;
        for _ in 0..count {
            let [candidate] = take(rest)?;
            let ratio = f32::from_le_bytes(take(rest)?);
            let place = ratios.get_mut(usize::from(candidate))?;
            *place = bounded(Some(ratio).filter(|r| r.is_finite())?);
        }
        Some(Experience {
            shortcut,
            processors,
            incumbent,
            quiet,
            ratios,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;

    fn strided(disp: i64) -> Pattern {
        let tile = Loop::bytes(10).resized(0, 40).unwrap();
        Pattern::new(disp, tile, 3, 1000).unwrap()
    }

    /// With a different ratio for every candidate.
    fn experience() -> Experience {
        let mut experience = Experience {
            shortcut: true,
            processors: 7,
            incumbent: Candidate::from_index(3),
            quiet: 9,
            ..Experience::default()
        };
        for (i, ratio) in experience.ratios.iter_mut().enumerate() {
            *ratio = 1.5 + i as f32 / 64.0;
        }
        experience
    }

    #[test]
    fn all_ranks_learn_the_same_and_rank_0s_experience_counts() {
        let of = |rank: usize| match rank {
            1 => Pattern::contiguous(50, 70),
            _ => strided(10 * rank as i64),
        };
        let told = run(3, |comm| {
            let mut announcements = Announcements::new(3);
            let rank = comm.rank();
            let mine = match rank {
                0 => experience(),
                _ => Experience::default(),
            };
            // The second time the loops are known.
            let twice = [(); 2].map(|()| {
                let regions = 5 + rank as u64;
                announcements
                    .exchange(
                        &comm,
                        &DeferredError::default(),
                        &Ok(of(rank)),
                        regions,
                        &mine,
                    )
                    .unwrap()
            });
            assert_eq!(announcements.known[2].len(), 1);
            let again = Announced {
                call: 2,
                ..twice[0].clone()
            };
            assert_eq!((twice[0].call, &twice[1]), (1, &again));
            twice
        });
        assert!(told.iter().all(|one| *one == told[0]));
        let [announced, _] = &told[0];
        assert_eq!(announced.experience, experience());
        assert_eq!(announced.memory_regions, [5, 6, 7]);
        let patterns: Vec<_> = (0..3).map(of).collect();
        assert_eq!(announced.patterns, patterns);
    }

    #[test]
    fn what_cannot_be_an_announcement_is_an_error_that_names_the_rank() {
        let announcements = Announcements::new(2);
        for rank in 0..2 {
            for mine in [strided(0), Pattern::contiguous(7, 100)] {
                let whole = announcements.encode(rank, &Ok(mine), 3, &experience());
                let decode = |bytes: &[u8]| {
                    let mut announced = Announced {
                        call: 1,
                        patterns: Vec::new(),
                        memory_regions: Vec::new(),
                        experience: Experience::default(),
                    };
                    Announcements::new(2).decode(rank, bytes, &mut announced)
                };
                decode(&whole).unwrap();
                for end in 0..whole.len() {
                    let why = decode(&whole[..end]).unwrap_err().message;
                    assert!(why.contains(&format!("rank {rank} announced")), "{why}");
                }
                decode(&[&whole[..], &[0]].concat()).unwrap_err();
                // No corrupted byte causes a panic.
                for at in 0..whole.len() {
                    for value in 0..=255 {
                        let mut other = whole.clone();
                        other[at] = value;
                        let _ = decode(&other);
                    }
                }
            }
        }
        let mut unknown = vec![0, 1, 0, 0, 0, NOBODY, 0, 1, Candidate::COUNT as u8];
        unknown.extend(1.5_f32.to_le_bytes());
        assert_eq!(Experience::decode(&mut &unknown[..]), None);
        unknown[8] = 0;
        assert!(Experience::decode(&mut &unknown[..]).is_some());
        unknown[9..].copy_from_slice(&f32::NAN.to_le_bytes());
        assert_eq!(Experience::decode(&mut &unknown[..]), None);
    }
}
