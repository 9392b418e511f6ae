//! The calls of an `MPI_File` that move data: blocking, nonblocking and split collective. Each becomes a prepared
//! access, which [`crate::transfer`] performs.
use crate::access::Buffer;
use crate::datarep::DataRep;
use crate::datatype::Datatype;
use crate::error::{Error, ErrorClass, Result};
use crate::external32;
use crate::file::{File, Inner, Split, Turn, lock};
use crate::meeting::Call;
use crate::view::Seen;
use penstock_base::Op;
use penstock_datatype::{Pattern, Signature, Source, Target};
use std::mem::discriminant;
use std::sync::Arc;

/// Where an access begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// Explicit offset, in etypes of the view.
    At(i64),
    /// This rank's own pointer.
    Individual,
    /// The pointer that all ranks share; the order of ranks is undefined.
    Shared,
    /// The pointer that all ranks share, in order of rank. Always collective.
    Ordered,
}

/// The callback of a nonblocking operation, with the bytes moved. It runs on a thread of the file, and must not call
/// back into the file.
pub type Done = Box<dyn FnOnce(Result<u64>) + Send>;

/// An access with its position in the file, ready to be performed later and on another thread.
pub(crate) struct Prepared {
    /// The file side.
    pub pattern: Pattern,
    /// The view it was made with.
    pub seen: Arc<Seen>,
    /// For conversion to external32; `None` where bytes are not converted.
    pub signature: Option<Signature>,
}

impl File {
    /// A blocking read into `into`, whose pattern describes count × `memtype` in memory. Returns the bytes (as in
    /// memory) that were before the end of the file.
    pub fn read(
        &self,
        at: Where,
        collective: bool,
        into: &mut Target<'_>,
        memtype: &Datatype,
    ) -> Result<u64> {
        self.inner
            .blocking(at, collective, Buffer::Into(into), memtype)
    }

    /// A blocking write. Returns the bytes taken from memory.
    pub fn write(
        &self,
        at: Where,
        collective: bool,
        from: &mut Source<'_>,
        memtype: &Datatype,
    ) -> Result<u64> {
        self.inner
            .blocking(at, collective, Buffer::From(from), memtype)
    }

    /// `MPI_File_iread*`. On an error `done` will not be called (argument errors of independent operations, too many
    /// waiting); otherwise `done` gets the result. Pointers advance now.
    ///
    /// `into` is typically made by [`Target::new`] from the user's buffer. Its maker guarantees that the buffer stays
    /// alive and untouched until `done` is called.
    pub fn start_read(
        &self,
        at: Where,
        collective: bool,
        into: Target<'static>,
        memtype: &Datatype,
        done: Done,
    ) -> Result<()> {
        let mut into = into;
        self.start(at, collective, into.len(), Op::Read, memtype, done, {
            move |file, prepared, turn| file.perform(prepared, turn, &mut Buffer::Into(&mut into))
        })
    }

    /// `MPI_File_iwrite*`; see [`File::start_read`].
    pub fn start_write(
        &self,
        at: Where,
        collective: bool,
        from: Source<'static>,
        memtype: &Datatype,
        done: Done,
    ) -> Result<()> {
        let mut from = from;
        self.start(at, collective, from.len(), Op::Write, memtype, done, {
            move |file, prepared, turn| file.perform(prepared, turn, &mut Buffer::From(&mut from))
        })
    }

    #[allow(clippy::too_many_arguments)] // the arguments of an MPI call
    fn start(
        &self,
        at: Where,
        collective: bool,
        bytes: u64,
        direction: Op,
        memtype: &Datatype,
        done: Done,
        perform: impl FnOnce(&Inner, Result<Prepared>, Option<&Turn<'_>>) -> Result<u64>
        + Send
        + 'static,
    ) -> Result<()> {
        let file = Arc::clone(&self.inner);
        if at == Where::Ordered {
            return Err(Error::new(
                ErrorClass::UnsupportedOperation,
                "MPI has no nonblocking access in rank order; use the split collective form",
            ));
        }
        let prepared = file.prepare(at, bytes, direction, memtype);
        if collective {
            // An error of this rank is raised on all ranks when the call is performed.
            let job = move || {
                let turn = file.turn();
                let outcome = perform(&file, prepared, Some(&turn));
                drop(turn);
                done(outcome);
            };
            return self.inner.collective.start(Box::new(job));
        }
        let prepared = prepared?;
        let job = move || done(perform(&file, Ok(prepared), None));
        self.inner.independent.start(Box::new(job))
    }

    /// `MPI_File_read_all_begin` and its variants (`At`, `Individual`, `Ordered`). The access is performed here; its
    /// error is returned by the end call.
    pub fn begin_read(&self, at: Where, into: &mut Target<'_>, memtype: &Datatype) -> Result<()> {
        self.begin(at, Op::Read, |file| {
            file.blocking(at, true, Buffer::Into(into), memtype)
        })
    }

    /// `MPI_File_write_all_begin` and its variants.
    pub fn begin_write(&self, at: Where, from: &mut Source<'_>, memtype: &Datatype) -> Result<()> {
        self.begin(at, Op::Write, |file| {
            file.blocking(at, true, Buffer::From(from), memtype)
        })
    }

    fn begin(
        &self,
        at: Where,
        direction: Op,
        access: impl FnOnce(&Inner) -> Result<u64>,
    ) -> Result<()> {
        if lock(&self.inner.state).split.is_some() {
            return Err(Error::new(
                ErrorClass::Request,
                format!(
                    "{}: a split collective access is under way; end it before beginning another",
                    self.inner.path
                ),
            ));
        }
        let outcome = access(&self.inner);
        lock(&self.inner.state).split = Some(Split {
            direction,
            kind: discriminant(&at),
            outcome,
        });
        Ok(())
    }

    /// `MPI_File_read_all_end` and its variants: bytes of the matching begin; `at` gives the kind (an `At` offset is
    /// ignored).
    pub fn end_read(&self, at: Where) -> Result<u64> {
        self.end(at, Op::Read)
    }

    /// `MPI_File_write_all_end` and its variants.
    pub fn end_write(&self, at: Where) -> Result<u64> {
        self.end(at, Op::Write)
    }

    fn end(&self, at: Where, direction: Op) -> Result<u64> {
        let mut state = lock(&self.inner.state);
        match state.split.take() {
            Some(split) if split.direction == direction && split.kind == discriminant(&at) => {
                split.outcome
            }
            other => {
                state.split = other;
                Err(Error::new(
                    ErrorClass::Request,
                    format!(
                        "{}: this end matches no split collective access under way; call the begin of the same name \
                         first",
                        self.inner.path
                    ),
                ))
            }
        }
    }
}

impl Inner {
    fn blocking(
        &self,
        at: Where,
        collective: bool,
        mut buffer: Buffer<'_, '_>,
        memtype: &Datatype,
    ) -> Result<u64> {
        let direction = buffer.direction();
        let bytes = buffer.pattern().len;
        if at == Where::Ordered {
            let turn = self.collective_turn();
            let checked = self.check(at, bytes, direction, memtype);
            let etypes = checked.as_ref().map(|c| c.etypes).map_err(Error::clone);
            let position = self
                .meet(&turn, Call::Ordered, etypes)
                .and_then(|all| self.shared.advance_ordered(turn.comm(), &all));
            let prepared = checked.and_then(|c| c.place(position?));
            return self.perform(prepared, Some(&turn), &mut buffer);
        }
        if collective {
            let turn = self.collective_turn();
            let prepared = self.prepare(at, bytes, direction, memtype);
            return self.perform(prepared, Some(&turn), &mut buffer);
        }
        let prepared = self.prepare(at, bytes, direction, memtype)?;
        self.perform(Ok(prepared), None, &mut buffer)
    }

    /// Checks the arguments of an access and determines its position in the file; pointers advance.
    fn prepare(
        &self,
        at: Where,
        bytes: u64,
        direction: Op,
        memtype: &Datatype,
    ) -> Result<Prepared> {
        let checked = self.check(at, bytes, direction, memtype)?;
        let position = match at {
            Where::At(offset) => offset,
            Where::Individual => {
                let mut state = lock(&self.state);
                let position = state.position;
                state.position = position.saturating_add_unsigned(checked.etypes);
                position
            }
            Where::Shared | Where::Ordered => self.shared.advance(checked.etypes)?,
        };
        checked.place(position).map_err(|e| e.at(&self.path))
    }

    fn check(&self, at: Where, bytes: u64, direction: Op, memtype: &Datatype) -> Result<Checked> {
        if let Some(why) = &memtype.refused {
            return Err(why.clone().at(&self.path));
        }
        match direction {
            Op::Read => self.check_reads("read")?,
            Op::Write => self.check_writes("write")?,
        }
        if matches!(at, Where::At(_) | Where::Individual) {
            self.not_sequential(direction.name())?;
        }
        let seen = self.seen();
        let signature = (seen.view.datarep == DataRep::External32 && !memtype.signature.is_plain())
            .then(|| memtype.signature.clone());
        let file_bytes = match &signature {
            Some(signature) => external32::file_bytes(signature, bytes)?,
            None => bytes,
        };
        Ok(Checked {
            etypes: seen.etypes(file_bytes).map_err(|e| e.at(&self.path))?,
            file_bytes,
            seen,
            signature,
        })
    }
}

/// An access with valid arguments, before its position is determined.
struct Checked {
    seen: Arc<Seen>,
    signature: Option<Signature>,
    file_bytes: u64,
    etypes: u64,
}

impl Checked {
    fn place(self, position: i64) -> Result<Prepared> {
        Ok(Prepared {
            pattern: self.seen.pattern(position, self.file_bytes)?,
            seen: self.seen,
            signature: self.signature,
        })
    }
}
