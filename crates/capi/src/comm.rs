//! [`Comm`] over the functions of the shim.
//!
//! The library's messages have any length, but MPI needs to know lengths first. Most are short (agreements, offsets).
//! So a broadcast and a gather send frames of fixed size with the length and the first bytes. Only longer messages need
//! a second call. A message to one rank begins with its length.
use penstock_mpiio::{Comm, Error, ErrorClass, MAX_TOLD, Result, check_peer};
use std::ffi::{c_int, c_void};

/// `struct pst_comm`.
#[repr(C)]
pub struct RawComm {
    this: *mut c_void,
    rank: c_int,
    size: c_int,
    barrier: extern "C" fn(*mut c_void) -> c_int,
    bcast: extern "C" fn(*mut c_void, c_int, *mut u8, u64) -> c_int,
    allgather: extern "C" fn(*mut c_void, *const u8, u64, *mut u8) -> c_int,
    allgatherv: extern "C" fn(*mut c_void, *const u8, *mut u8, *const u64) -> c_int,
    alltoall: extern "C" fn(*mut c_void, *const u64, u64, *mut u64) -> c_int,
    alltoallv: extern "C" fn(
        *mut c_void,
        *const *const u8,
        *const u64,
        *const *mut u8,
        *const u64,
    ) -> c_int,
    tell: extern "C" fn(*mut c_void, c_int, *const u8, u64) -> c_int,
    hear: extern "C" fn(*mut c_void, c_int, *mut u8, u64) -> c_int,
    release: extern "C" fn(*mut c_void),
}

/// `PST_MAX_TOLD`: the longest message from rank to rank, and its length field.
const MAX_MESSAGE: usize = LENGTH + MAX_TOLD;
const _: () = assert!(MAX_MESSAGE == 4104);
/// `PST_SILENT`: the other rank neither took nor sent a message for minutes.
const SILENT: c_int = 2;

/// Bytes of a frame, and of its length field.
const FRAME: usize = 64;
const LENGTH: usize = 8;

/// An MPI communicator.
pub(crate) struct MpiComm {
    raw: RawComm,
    rank: usize,
    world_rank: usize,
    size: usize,
}

// SAFETY: `this` is the shim's own object. Its functions may be called from any thread, one at a time, which is what
// `Comm` promises. MPI runs with MPI_THREAD_MULTIPLE wherever another thread than the program's calls.
unsafe impl Send for MpiComm {}
// SAFETY: as above.
unsafe impl Sync for MpiComm {}

impl Drop for MpiComm {
    fn drop(&mut self) {
        (self.raw.release)(self.raw.this);
    }
}

fn check(what: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::new(
        ErrorClass::Comm,
        format!("the MPI library failed in {what} on the file's communicator"),
    ))
}

/// The length and the first bytes of a message.
fn frame(message: &[u8]) -> [u8; FRAME] {
    let mut out = [0; FRAME];
    out[..LENGTH].copy_from_slice(&(message.len() as u64).to_le_bytes());
    let inline = message.len().min(FRAME - LENGTH);
    out[LENGTH..LENGTH + inline].copy_from_slice(&message[..inline]);
    out
}

fn length_in(frame: &[u8]) -> u64 {
    let mut bytes = [0; LENGTH];
    bytes.copy_from_slice(&frame[..LENGTH]);
    u64::from_le_bytes(bytes)
}

/// A buffer for a peer's message; an error instead of an abort if there is no memory.
fn room(length: u64) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    usize::try_from(length)
        .ok()
        .and_then(|length| out.try_reserve_exact(length).ok())
        .map(|()| out)
        .ok_or_else(|| {
            Error::new(
                ErrorClass::NoMem,
                format!("no memory for a message of {length} bytes from another rank"),
            )
        })
}

impl MpiComm {
    pub(crate) fn new(raw: RawComm, world_rank: c_int) -> MpiComm {
        MpiComm {
            rank: usize::try_from(raw.rank).unwrap_or(0),
            world_rank: usize::try_from(world_rank).unwrap_or(0),
            size: usize::try_from(raw.size).unwrap_or(1).max(1),
            raw,
        }
    }
}

impl MpiComm {
    fn check_told(&self, what: &str, peer: usize, code: c_int) -> Result<()> {
        if code != SILENT {
            return check(what, code);
        }
        let says = format!(
            "rank {} waited for rank {peer} for minutes; check whether that rank is still in the call",
            self.rank
        );
        Err(Error::new(ErrorClass::Comm, says))
    }
}

impl Comm for MpiComm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_rank(&self) -> usize {
        self.world_rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn barrier(&self) -> Result<()> {
        if self.size == 1 {
            return Ok(());
        }
        check("MPI_Barrier", (self.raw.barrier)(self.raw.this))
    }

    fn bcast(&self, root: usize, data: &mut Vec<u8>) -> Result<()> {
        if self.size == 1 {
            return Ok(());
        }
        let bcast = |data: *mut u8, length: usize| {
            let code = (self.raw.bcast)(self.raw.this, root as c_int, data, length as u64);
            check("MPI_Bcast", code)
        };
        let mut first = frame(data);
        bcast(first.as_mut_ptr(), FRAME)?;
        let length = length_in(&first);
        if self.rank != root {
            *data = room(length)?;
            if length <= (FRAME - LENGTH) as u64 {
                data.extend_from_slice(&first[LENGTH..LENGTH + length as usize]);
                return Ok(());
            }
        } else if length <= (FRAME - LENGTH) as u64 {
            return Ok(());
        }
        bcast(data.as_mut_ptr(), length as usize)?;
        // SAFETY: the broadcast has filled that many bytes, for which there is room (at the root they were there).
        unsafe { data.set_len(length as usize) };
        Ok(())
    }

    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        if self.size == 1 {
            return Ok(vec![mine.to_vec()]);
        }
        let first = frame(mine);
        let mut frames = vec![0; FRAME * self.size];
        let code = (self.raw.allgather)(
            self.raw.this,
            first.as_ptr(),
            FRAME as u64,
            frames.as_mut_ptr(),
        );
        check("MPI_Allgather", code)?;
        let lengths: Vec<u64> = frames.chunks_exact(FRAME).map(length_in).collect();
        if lengths.iter().all(|&n| n <= (FRAME - LENGTH) as u64) {
            let message = |f: &[u8]| f[LENGTH..LENGTH + length_in(f) as usize].to_vec();
            return Ok(frames.chunks_exact(FRAME).map(message).collect());
        }
        let total = lengths
            .iter()
            .try_fold(0u64, |sum, &n| sum.checked_add(n))
            .unwrap_or(u64::MAX);
        let mut all = room(total)?;
        let code = (self.raw.allgatherv)(
            self.raw.this,
            mine.as_ptr(),
            all.as_mut_ptr(),
            lengths.as_ptr(),
        );
        check("MPI_Allgatherv", code)?;
        // SAFETY: every rank's bytes have arrived, one after another.
        unsafe { all.set_len(total as usize) };
        let mut rest = all.as_slice();
        Ok(lengths
            .iter()
            .map(|&n| {
                let (message, after) = rest.split_at(n as usize);
                rest = after;
                message.to_vec()
            })
            .collect())
    }

    fn alltoallv(&self, mut send: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        if send.len() != self.size {
            let message = format!(
                "an exchange of {} messages over {} ranks",
                send.len(),
                self.size
            );
            return Err(Error::new(ErrorClass::Intern, message));
        }
        if self.size == 1 {
            return Ok(send);
        }
        // A rank's message to itself is not sent.
        let own = std::mem::take(&mut send[self.rank]);
        let lengths: Vec<u64> = send.iter().map(|m| m.len() as u64).collect();
        let mut incoming = vec![0u64; self.size];
        let code = (self.raw.alltoall)(
            self.raw.this,
            lengths.as_ptr(),
            size_of::<u64>() as u64,
            incoming.as_mut_ptr(),
        );
        check("MPI_Alltoall", code)?;
        // A rank without memory must not leave the others waiting for it. An allocation failure here is an abort, as
        // for any other buffer of the process.
        let mut receive: Vec<Vec<u8>> = incoming
            .iter()
            .map(|&n| Vec::with_capacity(n as usize))
            .collect();
        let from: Vec<*const u8> = send.iter().map(|m| m.as_ptr()).collect();
        let to: Vec<*mut u8> = receive.iter_mut().map(|m| m.as_mut_ptr()).collect();
        let code = (self.raw.alltoallv)(
            self.raw.this,
            from.as_ptr(),
            lengths.as_ptr(),
            to.as_ptr(),
            incoming.as_ptr(),
        );
        check("MPI_Isend or MPI_Irecv", code)?;
        for (message, &length) in receive.iter_mut().zip(&incoming) {
            // SAFETY: that many bytes have been received into its capacity.
            unsafe { message.set_len(length as usize) };
        }
        receive[self.rank] = own;
        Ok(receive)
    }

    fn tell(&self, peer: usize, message: &[u8]) -> Result<()> {
        check_peer(self, peer, message.len())?;
        let mut bytes = (message.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(message);
        let length = bytes.len() as u64;
        let code = (self.raw.tell)(self.raw.this, peer as c_int, bytes.as_ptr(), length);
        self.check_told("MPI_Isend", peer, code)
    }

    fn hear(&self, peer: usize) -> Result<Vec<u8>> {
        check_peer(self, peer, 0)?;
        let mut bytes = vec![0; MAX_MESSAGE];
        let (this, room) = (self.raw.this, bytes.len() as u64);
        let code = (self.raw.hear)(this, peer as c_int, bytes.as_mut_ptr(), room);
        self.check_told("MPI_Irecv", peer, code)?;
        let length = length_in(&bytes);
        if length > MAX_TOLD as u64 {
            let says = format!(
                "rank {peer} sent a message of {length} bytes; all ranks must run the same library"
            );
            return Err(Error::new(ErrorClass::Comm, says));
        }
        bytes.drain(..LENGTH);
        bytes.truncate(length as usize);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_mpiio::testing::ThreadComm;

    // The shim's side, over threads instead of MPI: `this` is a boxed ThreadComm.
    fn of<'a>(this: *mut c_void) -> &'a ThreadComm {
        // SAFETY: made in `ranks`, released last.
        unsafe { &*this.cast::<ThreadComm>() }
    }
    fn code<T>(outcome: Result<T>) -> c_int {
        c_int::from(outcome.is_err())
    }
    extern "C" fn barrier(this: *mut c_void) -> c_int {
        code(of(this).barrier())
    }
    extern "C" fn bcast(this: *mut c_void, root: c_int, data: *mut u8, length: u64) -> c_int {
        let mut bytes = Vec::new();
        if of(this).rank() == root as usize {
            // SAFETY: the root's message.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(data, length as usize) });
        }
        let outcome = of(this).bcast(root as usize, &mut bytes);
        assert_eq!(bytes.len() as u64, length);
        // SAFETY: there is room for that many bytes.
        unsafe { data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        code(outcome)
    }
    fn gather(this: *mut c_void, mine: *const u8, length: u64, all: *mut u8) -> c_int {
        // SAFETY: the caller's buffers, the second as long as all messages.
        unsafe {
            let mine = std::slice::from_raw_parts(mine, length as usize);
            let Ok(messages) = of(this).allgather(mine) else {
                return 1;
            };
            let bytes = messages.concat();
            all.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        0
    }
    extern "C" fn allgather(
        this: *mut c_void,
        mine: *const u8,
        length: u64,
        all: *mut u8,
    ) -> c_int {
        gather(this, mine, length, all)
    }
    extern "C" fn allgatherv(
        this: *mut c_void,
        mine: *const u8,
        all: *mut u8,
        lengths: *const u64,
    ) -> c_int {
        // SAFETY: one length per rank.
        let length = unsafe { *lengths.add(of(this).rank()) };
        gather(this, mine, length, all)
    }
    extern "C" fn alltoall(
        this: *mut c_void,
        send: *const u64,
        length: u64,
        to: *mut u64,
    ) -> c_int {
        assert_eq!(length, 8);
        let size = of(this).size();
        // SAFETY: a number per rank in each buffer.
        unsafe {
            let send = std::slice::from_raw_parts(send, size);
            let messages = send.iter().map(|n| n.to_le_bytes().to_vec()).collect();
            let Ok(got) = of(this).alltoallv(messages) else {
                return 1;
            };
            for (rank, bytes) in got.iter().enumerate() {
                to.add(rank).write(length_in(bytes));
            }
        }
        0
    }
    extern "C" fn alltoallv(
        this: *mut c_void,
        send: *const *const u8,
        lengths: *const u64,
        to: *const *mut u8,
        expected: *const u64,
    ) -> c_int {
        let size = of(this).size();
        // SAFETY: a pointer and a length per rank, each as long as it says.
        unsafe {
            let message =
                |r| std::slice::from_raw_parts(*send.add(r), *lengths.add(r) as usize).to_vec();
            let Ok(got) = of(this).alltoallv((0..size).map(message).collect()) else {
                return 1;
            };
            for (rank, bytes) in got.iter().enumerate() {
                assert_eq!(bytes.len() as u64, *expected.add(rank));
                (*to.add(rank)).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        }
        0
    }
    /// The result for a rank that neither takes nor sends messages.
    const SULLEN: c_int = 2;
    extern "C" fn tell(this: *mut c_void, peer: c_int, message: *const u8, length: u64) -> c_int {
        if peer == SULLEN {
            return SILENT;
        }
        // SAFETY: a message as long as it says.
        let message = unsafe { std::slice::from_raw_parts(message, length as usize) };
        code(of(this).tell(peer as usize, message))
    }
    extern "C" fn hear(this: *mut c_void, peer: c_int, message: *mut u8, room: u64) -> c_int {
        if peer == SULLEN {
            return SILENT;
        }
        let Ok(bytes) = of(this).hear(peer as usize) else {
            return 1;
        };
        assert!(bytes.len() as u64 <= room);
        // SAFETY: there is room for that many bytes.
        unsafe { message.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        0
    }
    extern "C" fn release(this: *mut c_void) {
        // SAFETY: from Box::into_raw, released once.
        drop(unsafe { Box::from_raw(this.cast::<ThreadComm>()) });
    }

    /// Runs `body` on every rank of a communicator.
    fn ranks(size: usize, body: impl Fn(MpiComm) + Sync) {
        std::thread::scope(|scope| {
            for comm in ThreadComm::group(size) {
                let rank = comm.rank() as c_int;
                let raw = RawComm {
                    this: Box::into_raw(Box::new(comm)).cast(),
                    rank,
                    size: size as c_int,
                    barrier,
                    bcast,
                    allgather,
                    allgatherv,
                    alltoall,
                    alltoallv,
                    tell,
                    hear,
                    release,
                };
                let comm = MpiComm::new(raw, rank);
                scope.spawn(|| body(comm));
            }
        });
    }

    /// Lengths around the size of a frame.
    const LENGTHS: [usize; 7] = [0, 1, 55, 56, 57, 64, 5000];

    /// Lengths of messages to one rank; the threads below send the length too.
    const SHORT: [usize; 7] = [0, 1, 55, 56, 57, 64, MAX_TOLD - LENGTH];

    fn message(from: usize, to: usize, length: usize) -> Vec<u8> {
        (0..length)
            .map(|i| (i * 7 + from * 31 + to) as u8)
            .collect()
    }

    #[test]
    fn messages_of_any_length_arrive() {
        ranks(3, |comm| {
            for turn in 0..LENGTHS.len() {
                let length = |r: usize| LENGTHS[(turn + r) % LENGTHS.len()];
                let me = comm.rank();
                comm.barrier().unwrap();
                let all = comm.allgather(&message(me, 0, length(me))).unwrap();
                for (r, got) in all.iter().enumerate() {
                    assert_eq!(*got, message(r, 0, length(r)));
                }
                for root in 0..3 {
                    let mut data = message(me, root, if me == root { length(root) } else { me });
                    comm.bcast(root, &mut data).unwrap();
                    assert_eq!(data, message(root, root, length(root)));
                }
                let send = (0..3).map(|to| message(me, to, length(me + to))).collect();
                let got = comm.alltoallv(send).unwrap();
                for (from, bytes) in got.iter().enumerate() {
                    assert_eq!(*bytes, message(from, me, length(from + me)));
                }
            }
        });
    }

    #[test]
    fn messages_between_two_ranks_keep_their_order() {
        ranks(3, |comm| {
            let me = comm.rank();
            for peer in (0..2).filter(|peer| *peer != me && me < 2) {
                // All ranks send first.
                for length in SHORT {
                    comm.tell(peer, &message(me, peer, length)).unwrap();
                }
            }
            for peer in (0..2).filter(|peer| *peer != me && me < 2) {
                for length in SHORT {
                    assert_eq!(comm.hear(peer).unwrap(), message(peer, me, length));
                }
            }
            if me < 2 {
                let e = comm.hear(SULLEN as usize).unwrap_err();
                assert!(e.message.contains("waited for rank 2 for minutes"), "{e}");
                assert!(comm.tell(SULLEN as usize, &[]).is_err());
                assert!(comm.tell(1 - me, &[0; MAX_TOLD + 1]).is_err());
            }
            assert!(comm.tell(me, &[]).is_err() && comm.hear(me).is_err());
            assert!(comm.tell(3, &[]).is_err() && comm.hear(3).is_err());
        });
    }

    #[test]
    fn a_rank_alone_talks_to_nobody() {
        ranks(1, |comm| {
            comm.barrier().unwrap();
            let mut data = vec![1, 2];
            comm.bcast(0, &mut data).unwrap();
            assert_eq!(comm.allgather(&data).unwrap(), [[1, 2]]);
            assert_eq!(comm.alltoallv(vec![data]).unwrap(), [[1, 2]]);
            assert!(comm.alltoallv(Vec::new()).is_err());
        });
    }
}
