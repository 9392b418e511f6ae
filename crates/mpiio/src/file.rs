//! One rank's `MPI_File`: open, close and the calls in between.
#![allow(unused_variables, clippy::todo, dead_code)]
use crate::comm::Comm;
use crate::datarep::DataRep;
use crate::datatype::Datatype;
use crate::error::Result;
use crate::hints::Info;
use penstock_datatype::{Source, Target};
use std::ops::{BitOr, BitOrAssign};

/// Access mode of an open file. The bits are this library's own; the shim maps the ABI's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Amode(u32);

impl Amode {
    /// `MPI_MODE_RDONLY`.
    pub const RDONLY: Amode = Amode(1);
    /// `MPI_MODE_RDWR`.
    pub const RDWR: Amode = Amode(2);
    /// `MPI_MODE_WRONLY`.
    pub const WRONLY: Amode = Amode(4);
    /// `MPI_MODE_CREATE`.
    pub const CREATE: Amode = Amode(8);
    /// `MPI_MODE_EXCL`.
    pub const EXCL: Amode = Amode(16);
    /// `MPI_MODE_DELETE_ON_CLOSE`.
    pub const DELETE_ON_CLOSE: Amode = Amode(32);
    /// `MPI_MODE_UNIQUE_OPEN`.
    pub const UNIQUE_OPEN: Amode = Amode(64);
    /// `MPI_MODE_SEQUENTIAL`.
    pub const SEQUENTIAL: Amode = Amode(128);
    /// `MPI_MODE_APPEND`.
    pub const APPEND: Amode = Amode(256);
    /// Stands for a bit the ABI does not define, so that the check at open reports it on every rank.
    pub const INVALID: Amode = Amode(1 << 31);

    /// All bits of `other` are set.
    pub fn has(self, other: Amode) -> bool {
        self.0 & other.0 == other.0
    }
    /// As a number, for comparing between ranks.
    pub fn bits(self) -> u32 {
        self.0
    }
}
impl BitOr for Amode {
    type Output = Amode;
    fn bitor(self, other: Amode) -> Amode {
        Amode(self.0 | other.0)
    }
}
impl BitOrAssign for Amode {
    fn bitor_assign(&mut self, other: Amode) {
        self.0 |= other.0;
    }
}

/// Where an access begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// Explicit offset, in etypes of the view.
    At(i64),
    /// This rank's own pointer.
    Individual,
    /// The pointer all ranks share; order of ranks undefined.
    Shared,
    /// The pointer all ranks share, in order of rank. Always collective.
    Ordered,
}

/// Origin of a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// `MPI_SEEK_SET`.
    Set,
    /// `MPI_SEEK_CUR`.
    Current,
    /// `MPI_SEEK_END`.
    End,
}

/// `MPI_DISPLACEMENT_CURRENT`: begin the new view at the shared pointer (sequential files).
pub const DISPLACEMENT_CURRENT: i64 = i64::MIN;

/// What a nonblocking operation calls when it is complete, with the bytes moved. It runs on a thread of the
/// file's own and must not call back into the file.
pub type Done = Box<dyn FnOnce(Result<u64>) + Send>;

/// The view in force, as given to `set_view`.
#[derive(Debug, Clone)]
pub struct View {
    /// Byte displacement.
    pub disp: u64,
    /// Unit of positions.
    pub etype: Datatype,
    /// Template of the accessible bytes.
    pub filetype: Datatype,
    /// Data representation.
    pub datarep: DataRep,
}

/// One rank's open file. All methods take `&self`; a file may be shared between threads.
pub struct File {
    _private: (),
}

impl File {
    /// `MPI_File_open`; collective. `comm` belongs to the file from now on: give a duplicate.
    pub fn open(comm: Box<dyn Comm>, path: &str, amode: Amode, info: &Info) -> Result<File> {
        todo!()
    }

    /// `MPI_File_delete`; not collective.
    pub fn delete(path: &str, info: &Info) -> Result<()> {
        todo!()
    }

    /// `MPI_File_close`; collective. Waits for nonblocking operations, syncs as MPI asks, frees the shared pointer,
    /// deletes if so opened. The file is closed whatever it returns; a second call is an error. Dropping an open
    /// file releases its resources without communication.
    pub fn close(&self) -> Result<()> {
        todo!()
    }

    /// `MPI_File_set_view`; collective. `disp` in bytes or [`DISPLACEMENT_CURRENT`].
    pub fn set_view(
        &self,
        disp: i64,
        etype: &Datatype,
        filetype: &Datatype,
        datarep: DataRep,
        info: &Info,
    ) -> Result<()> {
        todo!()
    }

    /// `MPI_File_get_view`.
    pub fn view(&self) -> View {
        todo!()
    }

    /// A blocking read into `into`, whose pattern describes count × `memtype` in memory. Returns the bytes
    /// (as they lie in memory) that were before the end of the file.
    pub fn read(
        &self,
        at: Where,
        collective: bool,
        into: &mut Target<'_>,
        memtype: &Datatype,
    ) -> Result<u64> {
        todo!()
    }

    /// A blocking write. Returns the bytes taken from memory.
    pub fn write(
        &self,
        at: Where,
        collective: bool,
        from: &mut Source<'_>,
        memtype: &Datatype,
    ) -> Result<u64> {
        todo!()
    }

    /// `MPI_File_iread*`: an error here means that `done` will not be called (argument errors of independent
    /// operations); otherwise `done` gets the outcome. The caller keeps the buffer alive and untouched until then.
    pub fn start_read(
        &self,
        at: Where,
        collective: bool,
        into: Target<'static>,
        memtype: &Datatype,
        done: Done,
    ) -> Result<()> {
        todo!()
    }

    /// `MPI_File_iwrite*`.
    pub fn start_write(
        &self,
        at: Where,
        collective: bool,
        from: Source<'static>,
        memtype: &Datatype,
        done: Done,
    ) -> Result<()> {
        todo!()
    }

    /// `MPI_File_read_all_begin` and its siblings (`At`, `Individual`, `Ordered`).
    pub fn begin_read(&self, at: Where, into: &mut Target<'_>, memtype: &Datatype) -> Result<()> {
        todo!()
    }

    /// `MPI_File_write_all_begin` and its siblings.
    pub fn begin_write(&self, at: Where, from: &mut Source<'_>, memtype: &Datatype) -> Result<()> {
        todo!()
    }

    /// `MPI_File_read_all_end` and its siblings: bytes of the matching begin; `at` tells the kind
    /// (an `At` offset is ignored).
    pub fn end_read(&self, at: Where) -> Result<u64> {
        todo!()
    }

    /// `MPI_File_write_all_end` and its siblings.
    pub fn end_write(&self, at: Where) -> Result<u64> {
        todo!()
    }

    /// `MPI_File_seek`.
    pub fn seek(&self, offset: i64, whence: Whence) -> Result<()> {
        todo!()
    }
    /// `MPI_File_seek_shared`; collective.
    pub fn seek_shared(&self, offset: i64, whence: Whence) -> Result<()> {
        todo!()
    }
    /// `MPI_File_get_position`, in etypes.
    pub fn position(&self) -> Result<i64> {
        todo!()
    }
    /// `MPI_File_get_position_shared`, in etypes.
    pub fn position_shared(&self) -> Result<i64> {
        todo!()
    }
    /// `MPI_File_get_byte_offset`: absolute byte position of a view offset.
    pub fn byte_offset(&self, offset: i64) -> Result<i64> {
        todo!()
    }
    /// `MPI_File_get_size`, bytes.
    pub fn size(&self) -> Result<i64> {
        todo!()
    }
    /// `MPI_File_set_size`; collective.
    pub fn set_size(&self, size: i64) -> Result<()> {
        todo!()
    }
    /// `MPI_File_preallocate`; collective.
    pub fn preallocate(&self, size: i64) -> Result<()> {
        todo!()
    }
    /// `MPI_File_sync`; collective.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
    /// `MPI_File_set_atomicity`; collective.
    pub fn set_atomicity(&self, on: bool) -> Result<()> {
        todo!()
    }
    /// `MPI_File_get_atomicity`.
    pub fn atomicity(&self) -> bool {
        todo!()
    }
    /// `MPI_File_get_amode`.
    pub fn amode(&self) -> Amode {
        todo!()
    }
    /// `MPI_File_get_info`: every hint in force, with what was chosen.
    pub fn info(&self) -> Info {
        todo!()
    }
    /// `MPI_File_set_info`; collective.
    pub fn set_info(&self, info: &Info) -> Result<()> {
        todo!()
    }
    /// `MPI_File_get_type_extent`: the extent of a type in this file's data representation.
    pub fn type_extent(&self, datatype: &Datatype) -> Result<i64> {
        todo!()
    }
    /// The path it was opened with.
    pub fn path(&self) -> &str {
        todo!()
    }
}
