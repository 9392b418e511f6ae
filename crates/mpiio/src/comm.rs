//! The communicator of one open file.
//!
//! The methods need seven operations: five collective ones, and messages from one rank to another. The C shim
//! implements them over MPI; [`crate::testing::ThreadComm`] over threads.
use crate::error::{Error, ErrorClass, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message from one rank to another, bytes.
pub const MAX_TOLD: usize = 4096;
/// Messages of a rank that others have not received yet: with this many in flight the next one waits.
pub const AHEAD: usize = 64;

/// What a file needs of its communicator. Operations are collective over its ranks, and every rank calls them in the
/// same order. Not collective are the ranks, `size`, `tell` and `hear`. A file never calls two at once, but may call
/// from different threads one after another (nonblocking collectives run on a thread of the file).
pub trait Comm: Send + Sync {
    /// This process's rank, `0..size`.
    fn rank(&self) -> usize;
    /// This process's rank in the program, by which servers distinguish its processes.
    fn world_rank(&self) -> usize {
        self.rank()
    }
    /// Number of ranks.
    fn size(&self) -> usize;
    /// Returns when every rank has called it. Memory written before it is visible to all ranks after it.
    fn barrier(&self) -> Result<()>;
    /// `data` of `root` replaces everyone's.
    fn bcast(&self, root: usize, data: &mut Vec<u8>) -> Result<()>;
    /// Everyone's bytes, by rank; lengths may differ.
    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;
    /// `send[r]` goes to rank r; the result has what each rank sent to this one. Lengths may differ, 0 included.
    fn alltoallv(&self, send: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>>;
    /// Sends at most [`MAX_TOLD`] bytes to another rank, which receives the messages of one rank in order. It waits
    /// only while [`AHEAD`] messages of this rank are in flight. An error if none of them is received.
    fn tell(&self, peer: usize, message: &[u8]) -> Result<()>;
    /// Receives the next message of another rank. An error if none comes: that rank has ended, or was silent for
    /// minutes.
    fn hear(&self, peer: usize) -> Result<Vec<u8>>;
}

/// Checks the arguments of [`Comm::tell`] and [`Comm::hear`] for a message of so many bytes.
pub fn check_peer(comm: &dyn Comm, peer: usize, bytes: usize) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    if peer >= size || peer == rank {
        let says = format!("rank {rank} of {size} has no other rank {peer} to talk to");
        return Err(Error::new(ErrorClass::Intern, says));
    }
    if bytes > MAX_TOLD {
        let says = format!("a message of {bytes} bytes to a rank; at most {MAX_TOLD} fit");
        return Err(Error::new(ErrorClass::Intern, says));
    }
    Ok(())
}

/// Longest error text in an agreement.
pub(crate) const MAX_MESSAGE: usize = 2048;

/// Ends a collective call: if any rank failed, every rank fails. A failed rank keeps its own error; the others get that
/// of the lowest failing rank, with its number.
pub(crate) fn agree<T>(comm: &dyn Comm, mine: Result<T>) -> Result<T> {
    if comm.size() == 1 {
        return mine;
    }
    let outcomes = comm.allgather(&encode_outcome(&mine))?;
    let value = mine?;
    for (rank, outcome) in outcomes.iter().enumerate() {
        decode_outcome(rank, outcome)?;
    }
    Ok(value)
}

/// The values of all ranks, by rank; or an error on every rank if any rank has one.
pub(crate) fn confer<T: Serialize + DeserializeOwned + Clone>(
    comm: &dyn Comm,
    mine: Result<T>,
) -> Result<Vec<T>> {
    if comm.size() == 1 {
        return mine.map(|value| vec![value]);
    }
    let all = comm.allgather(&encode_value(comm.rank(), &mine)?)?;
    mine?;
    decode_values(&all)
}

/// A rank's value or error, for [`decode_values`].
pub(crate) fn encode_value<T: Serialize>(rank: usize, mine: &Result<T>) -> Result<Vec<u8>> {
    serde_json::to_vec(mine).map_err(|_| unreadable(rank))
}

/// The values of all ranks, by rank; an error if any rank has one.
pub(crate) fn decode_values<T: DeserializeOwned>(all: &[Vec<u8>]) -> Result<Vec<T>> {
    all.iter()
        .enumerate()
        .map(|(rank, told)| {
            serde_json::from_slice::<Result<T>>(told)
                .map_err(|_| unreadable(rank))?
                .map_err(|e| e.at(format_args!("rank {rank}")))
        })
        .collect()
}

pub(crate) fn unreadable(rank: usize) -> Error {
    Error::new(
        ErrorClass::Intern,
        format!("rank {rank} sent an unreadable message; all ranks must run the same library"),
    )
}

/// A result in a few bytes: empty if successful.
pub(crate) fn encode_outcome<T>(mine: &Result<T>) -> Vec<u8> {
    match mine {
        Ok(_) => Vec::new(),
        Err(e) => serde_json::to_vec(&shortened(e, MAX_MESSAGE)).unwrap_or_else(|_| b"?".to_vec()),
    }
}

/// The error with at most this many bytes of its message.
pub(crate) fn shortened(e: &Error, most: usize) -> Error {
    let mut cut = most.min(e.message.len());
    while !e.message.is_char_boundary(cut) {
        cut -= 1;
    }
    Error::new(e.class, &e.message[..cut])
}

/// The result that `rank` reported.
pub(crate) fn decode_outcome(rank: usize, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    match serde_json::from_slice::<Error>(bytes) {
        Ok(e) => Err(e.at(format_args!("rank {rank}"))),
        Err(_) => Err(unreadable(rank)),
    }
}
