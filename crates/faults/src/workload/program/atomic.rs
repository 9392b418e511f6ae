//! Atomic mode: ranks write different data to one place at the same time, and read it. A reader must see all of what
//! one rank wrote, or nothing of any.
//!
//! Each attempt uses a new place in a file of the program's, so that no earlier write can arrive late. Only attempts in
//! which all ranks succeed and no power fails are checked: a failed write may have happened in part.
use super::{Fault, Phase, Rank, fill};
use crate::world::lock;
use penstock_datatype::{Loop, Source, Target};
use penstock_mpiio::{Amode, DataRep, Datatype, File, Info, Where, method_values};

/// Bytes from place to place.
const SPAN: u64 = 4096;
/// Pieces of an access, over several stripes.
const PIECES: u64 = 16;
/// Bytes of a piece.
const PIECE: u64 = 64;
/// Bytes from piece to piece.
const STRIDE: u64 = 200;
/// Bytes of a stripe.
const STRIPE: &str = "1000";

impl Rank {
    /// Opens the program's file, makes attempts, closes it.
    pub(super) fn atomic_session(&mut self, attempts: usize) -> Result<(), Fault> {
        let path = format!("penstock:program-{}", self.program.life);
        let comm = self.next_comm()?;
        let (_, phase) = self.begin()?;
        let strict = phase == Phase::Calm;
        let info = Info::from_iter([("striping_unit", STRIPE)]);
        let amode = Amode::RDWR | Amode::CREATE;
        let opened = File::open_in(&self.process, comm, &path, amode, &info);
        self.owing.clear();
        if !self.agreed("open the program's file", &opened)? {
            return self.excused(strict, "open the program's file", opened);
        }
        let file = opened.map_err(|e| e.to_string())?;
        for _ in 0..attempts {
            self.attempt(&file, strict)?;
        }
        let closed = file.close();
        self.agreed("close the program's file", &closed)?;
        self.excused(strict, "close the program's file", closed)
    }

    /// The file may be lost with its name in a power loss: any error is then excused in the phase with faults.
    fn excused<T>(
        &self,
        strict: bool,
        what: &str,
        result: penstock_mpiio::Result<T>,
    ) -> Result<(), Fault> {
        match result {
            Err(e) if strict => Err(format!("{what}: {:?}: {e}", e.class)),
            Err(e) => {
                self.worker.say(&format!("{what} failed: {e}"));
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    fn losses(&self) -> usize {
        let history = lock(&self.worker.history);
        let told = |disk: &crate::disk::Disk| disk.told.len() + disk.failed as usize;
        let told: usize = self.worker.world.state().disks.iter().map(told).sum();
        history.losses.iter().map(Vec::len).sum::<usize>() + told
    }

    fn attempt(&mut self, file: &File, strict: bool) -> Result<(), Fault> {
        let methods: Vec<&str> = method_values().map(|(name, _)| name).collect();
        let method = methods[self.common.index(methods.len())];
        let reader = self.common.index(self.program.ranks + 1);
        let together = reader == self.program.ranks;
        let at = self.used * SPAN;
        self.used += 1;
        let pieces = Loop::vector(PIECES, PIECE, STRIDE as i64, &Loop::bytes(1));
        let filetype = pieces.and_then(|l| l.resized(0, SPAN as i64));
        let filetype = Datatype::opaque(filetype.map_err(|e| e.to_string())?);
        let filetype = filetype.map_err(|e| e.to_string())?;
        let info = Info::from_iter([("penstock_method", method)]);
        let byte = Datatype::byte();
        let viewed = file.set_view(at as i64, &byte, &filetype, DataRep::Native, &info);
        viewed.map_err(|e| format!("set_view: {e}"))?;
        let set = file.set_atomicity(true);
        set.map_err(|e| format!("set_atomicity: {e}"))?;

        let id = {
            let mut history = lock(&self.worker.history);
            history.next_write += 1;
            history.next_write - 1
        };
        let ids: Vec<u64> = self
            .tell(&id.to_le_bytes())?
            .iter()
            .map(|told| told.first_chunk().map_or(0, |id| u64::from_le_bytes(*id)))
            .collect();
        let losses = self.losses();
        let content = |id: u64| {
            let mut bytes = vec![0; (PIECES * PIECE) as usize];
            fill(id, 0, &mut bytes);
            bytes
        };
        let what = format!("atomic access of {at} by rank {} ({method})", self.rank);
        self.worker.say(&what);
        let mut found = Vec::new();
        let done = if self.rank == reader {
            found.push(vec![0; (PIECES * PIECE) as usize]);
            file.read(
                Where::At(0),
                false,
                &mut Target::from_slice(&mut found[0]),
                &byte,
            )
        } else {
            let bytes = content(id);
            file.write(
                Where::At(0),
                together,
                &mut Source::from_slice(&bytes),
                &byte,
            )
        };
        let mut after = vec![0; (PIECES * PIECE) as usize];
        let done = done.and_then(|_| {
            // Other ranks may still be writing.
            file.read(
                Where::At(0),
                false,
                &mut Target::from_slice(&mut after),
                &byte,
            )
        });
        let good = done.is_ok();
        self.excused(strict, &what, done)?;
        let all = self.tell(&[u8::from(good)])?;
        if all.iter().any(|good| good[..] != [1]) || self.losses() != losses {
            return Ok(());
        }
        found.push(after);
        let mut whole: Vec<Vec<u8>> = ids.iter().map(|id| content(*id)).collect();
        whole.push(vec![0; (PIECES * PIECE) as usize]);
        for bytes in found {
            if !whole.contains(&bytes) {
                let parts = bytes.chunks(PIECE as usize).map(|part| {
                    let whose = |w: &Vec<u8>| w.chunks(PIECE as usize).any(|p| p == part);
                    whole.iter().position(whose)
                });
                return Err(format!(
                    "atomicity: {what} saw parts of several writes: ranks {:?}",
                    parts.collect::<Vec<_>>()
                ));
            }
        }
        Ok(())
    }
}
