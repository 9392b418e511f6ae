//! What the ranks of a collective access tell each other first: each its pattern, as an encoded loop, or that it failed.
//!
//! A loop travels once: every rank keeps the last few loops of every other, and later calls send the hash alone. Sender
//! and receivers apply the same rule to the same messages, so they always agree on what is known.
use crate::comm::{Comm, decode_outcome, encode_outcome};
use crate::error::{Error, ErrorClass, Result};
use penstock_datatype::{Loop, LoopHash, Pattern};
use std::collections::VecDeque;

/// Loops remembered of each rank.
const REMEMBERED: usize = 4;
/// Numbers a rank tells about its costs and memory.
pub(crate) const NOTES: usize = 16;

const CONTIGUOUS: u8 = 0;
const KNOWN: u8 = 1;
const INLINE: u8 = 2;
const FAILED: u8 = 3;

/// The loops each rank has announced on this file, oldest first.
pub(crate) struct Announcements {
    known: Vec<VecDeque<(LoopHash, Loop)>>,
}

/// What one rank announced.
#[derive(Debug, Clone)]
pub(crate) struct Announced {
    pub pattern: Pattern,
    /// Numbers for the cost model; rank 0's costs count for all.
    pub notes: [f32; NOTES],
}

impl Announcements {
    pub(crate) fn new(ranks: usize) -> Announcements {
        Announcements {
            known: (0..ranks).map(|_| VecDeque::new()).collect(),
        }
    }

    /// Tells everyone this rank's access and learns theirs. If any rank failed, all do.
    pub(crate) fn exchange(
        &mut self,
        comm: &dyn Comm,
        mine: &Result<Pattern>,
        notes: &[f32; NOTES],
    ) -> Result<Vec<Announced>> {
        let all = comm.allgather(&self.encode(comm.rank(), mine, notes))?;
        let mut announced = Vec::with_capacity(all.len());
        let mut failed = Ok(());
        for (rank, bytes) in all.iter().enumerate() {
            // Every message is looked at, also after a failure, so that all ranks remember the same loops.
            match self.decode(rank, bytes) {
                Ok(one) => announced.push(one),
                Err(e) if failed.is_ok() => failed = Err(e),
                Err(_) => {}
            }
        }
        match (mine, failed) {
            (Err(e), _) => Err(e.clone()),
            (Ok(_), failed) => failed.map(|()| announced),
        }
    }

    fn encode(&self, rank: usize, mine: &Result<Pattern>, notes: &[f32; NOTES]) -> Vec<u8> {
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
        for note in notes {
            out.extend(note.to_le_bytes());
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

    fn decode(&mut self, rank: usize, bytes: &[u8]) -> Result<Announced> {
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
        let mut notes = [0.0; NOTES];
        for note in &mut notes {
            *note = f32::from_le_bytes(take(&mut rest).ok_or_else(unreadable)?);
        }
        let disp = i64::from_le_bytes(take(&mut rest).ok_or_else(unreadable)?);
        let start = u64::from_le_bytes(take(&mut rest).ok_or_else(unreadable)?);
        let len = u64::from_le_bytes(take(&mut rest).ok_or_else(unreadable)?);
        let tile = match *kind {
            CONTIGUOUS => {
                return Ok(Announced {
                    pattern: Pattern::contiguous(disp, len),
                    notes,
                });
            }
            KNOWN => {
                let hash = LoopHash(take(&mut rest).ok_or_else(unreadable)?);
                let known = self.known[rank].iter().find(|(h, _)| *h == hash);
                known.ok_or_else(unreadable)?.1.clone()
            }
            INLINE => {
                let tile = Loop::decode(rest)?;
                let known = &mut self.known[rank];
                known.push_back((tile.hash(), tile.clone()));
                if known.len() > REMEMBERED {
                    known.pop_front();
                }
                tile
            }
            _ => return Err(unreadable()),
        };
        Ok(Announced {
            pattern: Pattern::new(disp, tile, start, len)?,
            notes,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}
