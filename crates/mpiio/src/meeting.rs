//! Meetings: the first exchange of messages between the ranks in a collective call.
//!
//! Problem: ranks that perform independent operations need not wait for each other, but each must learn of another's
//! error. And a rank whose call has failed may take another path than the others, which must not mix its next call with
//! theirs. Idea: an error in a collective access that ends without a meeting is *owed*. It is reported in the next
//! meeting, and that call fails on all ranks. A call that fails so does nothing, so that all ranks or none have carried
//! it out. If every rank has failed by itself, no rank is left to be told. Each meeting names its call. Different calls
//! fail on all ranks, except a close, which meets again until all ranks close. When it pays: always; a collective
//! access of small pieces takes less time than a meeting (decision 47).
//!
//! | bytes | |
//! | --- | --- |
//! | 1 | the call |
//! | 4 | length of the error that is owed, 0: none |
//! | that many | the error |
//! | rest | what the call itself tells |
use crate::comm::{Comm, MAX_MESSAGE, decode_outcome, encode_outcome, shortened, unreadable};
use crate::error::{Error, ErrorClass, Result};
use penstock_host::sync::Mutex;
use std::sync::PoisonError;

/// The calls that begin with a meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Call {
    /// A collective access by a method that exchanges, or in atomic mode.
    Access = 1,
    Ordered,
    SetView,
    SetInfo,
    SetAtomicity,
    SeekShared,
    SetSize,
    Preallocate,
    Sync,
    Close,
    /// A collective write before which early write-back begins ([`crate::early_writeback`]), by a method that does not meet.
    WriteBehind,
}

impl Call {
    const ALL: [Call; 11] = [
        Call::Access,
        Call::Ordered,
        Call::SetView,
        Call::SetInfo,
        Call::SetAtomicity,
        Call::SeekShared,
        Call::SetSize,
        Call::Preallocate,
        Call::Sync,
        Call::Close,
        Call::WriteBehind,
    ];

    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Call::Access => "a collective access",
            Call::WriteBehind => "a collective write",
            Call::Ordered => "an ordered access",
            Call::SetView => "set_view",
            Call::SetInfo => "set_info",
            Call::SetAtomicity => "set_atomicity",
            Call::SeekShared => "seek_shared",
            Call::SetSize => "set_size",
            Call::Preallocate => "preallocate",
            Call::Sync => "sync",
            Call::Close => "close",
        }
    }
}

/// The error that a rank owes to the others.
#[derive(Default)]
pub(crate) struct DeferredError(Mutex<Option<Error>>);

impl DeferredError {
    /// A collective access has failed on this rank, and the others do not know of it. The first such error is kept.
    pub(crate) fn owe(&self, e: &Error) {
        let mut owed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owed.get_or_insert_with(|| shortened(e, MAX_MESSAGE));
    }

    fn pay(&self) -> Option<Error> {
        let mut owed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owed.take()
    }
}

/// The result of a meeting.
pub(crate) struct Met {
    /// The messages of the call itself, by rank; empty if the ranks were in different calls.
    pub told: Vec<Vec<u8>>,
    /// An owed error, or a mismatch of calls: the same verdict on every rank.
    pub verdict: Result<()>,
}

impl Met {
    /// Whether all ranks were in the same call.
    pub(crate) fn in_step(&self) -> bool {
        !self.told.is_empty()
    }
}

/// Meets the other ranks of a communicator and sends them `mine`. An error is one of the communicator.
pub(crate) fn meet(comm: &dyn Comm, debt: &DeferredError, call: Call, mine: &[u8]) -> Result<Met> {
    let mut before = Ok(());
    loop {
        let all = comm.allgather(&seal(call, debt.pay(), mine))?;
        let mut calls = Vec::with_capacity(all.len());
        let mut told = Vec::with_capacity(all.len());
        let mut owed = Ok(());
        let mut owing = 0;
        for (rank, message) in all.iter().enumerate() {
            let (call, owes, rest) = open(message).ok_or_else(|| unreadable(rank))?;
            calls.push(call);
            told.push(rest.to_vec());
            if !owes.is_empty() {
                owing += 1;
                let place = "in a collective access before this call";
                owed = owed.and(decode_outcome(rank, owes).map_err(|e| e.at(place)));
            }
        }
        if owing == all.len() {
            owed = Ok(());
        }
        before = before.and(owed);
        match calls.iter().position(|other| *other != call) {
            None => {
                return Ok(Met {
                    told,
                    verdict: before,
                });
            }
            // The others' calls have failed; they will close the file in the end.
            Some(_) if call == Call::Close => {}
            Some(other) => {
                let says = format!(
                    "rank {other} is in {}, and rank {} in {}: all ranks must make the same collective calls of a file, in \
                     the same order",
                    calls[other].name(),
                    comm.rank(),
                    call.name()
                );
                return Ok(Met {
                    told: Vec::new(),
                    verdict: before.and(Err(Error::new(ErrorClass::NotSame, says))),
                });
            }
        }
    }
}

fn seal(call: Call, owes: Option<Error>, mine: &[u8]) -> Vec<u8> {
    let owes = owes.map_or_else(Vec::new, |e| encode_outcome::<()>(&Err(e)));
    let mut out = vec![call as u8];
    out.extend((owes.len() as u32).to_le_bytes());
    out.extend(owes);
    out.extend(mine);
    out
}

/// The call, the owed error, and the rest.
fn open(message: &[u8]) -> Option<(Call, &[u8], &[u8])> {
    let (call, rest) = message.split_first()?;
    let call = Call::ALL.into_iter().find(|known| *known as u8 == *call)?;
    let (length, rest) = rest.split_first_chunk()?;
    let (owes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((call, owes, rest))
}

/// Removes the owed error from a message of a meeting, like a library that forgets it; false if there is none. For
/// tests.
pub(crate) fn forget_debt(message: &mut Vec<u8>) -> bool {
    let forgotten = match open(message) {
        Some((call, owes, rest)) if !owes.is_empty() => seal(call, None, rest),
        _ => return false,
    };
    *message = forgotten;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;

    fn failure(says: &str) -> Error {
        Error::new(ErrorClass::NoSpace, says)
    }

    #[test]
    fn what_some_ranks_owe_fails_the_next_meeting_of_all_once() {
        run(3, |comm| {
            let debt = DeferredError::default();
            let meet = |call| meet(&comm, &debt, call, &[comm.rank() as u8]).unwrap();
            if comm.rank() == 1 {
                debt.owe(&failure("first"));
                debt.owe(&failure("second"));
            }
            let met = meet(Call::SetView);
            assert_eq!(met.told, [[0], [1], [2]]);
            let e = met.verdict.unwrap_err();
            assert_eq!(e.class, ErrorClass::NoSpace);
            assert!(e.message.contains("rank 1: first"), "{e}");
            meet(Call::SetView).verdict.unwrap();
            // All have failed: all know.
            debt.owe(&failure("everywhere"));
            meet(Call::Sync).verdict.unwrap();
            meet(Call::Sync).verdict.unwrap();
        });
    }

    #[test]
    fn ranks_in_different_calls_fail_and_a_close_waits_for_the_others() {
        run(3, |comm| {
            let debt = DeferredError::default();
            let meet = |call| meet(&comm, &debt, call, &[]).unwrap();
            if comm.rank() == 2 {
                debt.owe(&failure("lost"));
                // It was reported before the others reach their close.
                assert!(meet(Call::Close).verdict.is_err());
            } else {
                let met = meet(Call::Access);
                assert!(
                    !met.in_step() && met.verdict.unwrap_err().message.contains("rank 2: lost")
                );
                let met = meet([Call::Sync, Call::SetView][comm.rank()]);
                let e = met.verdict.unwrap_err();
                assert!(
                    e.class == ErrorClass::NotSame && e.message.contains("is in"),
                    "{e}"
                );
                let met = meet(Call::Close);
                assert!(met.in_step() && met.verdict.is_ok());
            }
        });
    }

    #[test]
    fn what_cannot_be_a_message_of_a_meeting_is_unreadable() {
        let whole = seal(Call::Close, Some(failure("x")), b"rest");
        let (call, owes, rest) = open(&whole).unwrap();
        assert_eq!((call, rest), (Call::Close, &b"rest"[..]));
        assert!(decode_outcome(0, owes).is_err());
        for end in 0..whole.len() - b"rest".len() {
            assert!(open(&whole[..end]).is_none(), "{end}");
        }
        for other in [0, Call::ALL.len() as u8 + 1, b'{', 255] {
            assert!(open(&[&[other], &whole[1..]].concat()).is_none());
        }
        let mut message = whole.clone();
        assert!(forget_debt(&mut message) && !forget_debt(&mut message));
        assert_eq!(message, seal(Call::Close, None, b"rest"));
        assert!(!forget_debt(&mut b"{}".to_vec()));
    }
}
