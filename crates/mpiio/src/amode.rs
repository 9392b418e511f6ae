//! Access modes (MPI-4.1 section 14.2.1).
use crate::error::{Error, ErrorClass, Result};
use std::ops::{BitOr, BitOrAssign};

/// Access mode of an open file. The bits are this library's own; the shim translates those of the ABI.
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
    /// Represents a bit that the ABI does not define, so that the check at open reports it on every rank.
    pub const INVALID: Amode = Amode(1 << 31);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Amode) -> bool {
        self.0 & other.0 == other.0
    }

    /// As a number, for comparing between ranks.
    pub fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn reads(self) -> bool {
        !self.has(Amode::WRONLY)
    }

    pub(crate) fn writes(self) -> bool {
        !self.has(Amode::RDONLY)
    }

    /// Checks that the mode is valid; the error says what contradicts what.
    pub(crate) fn check(self, path: &str) -> Result<()> {
        let wrong = |what: &str| {
            Err(Error::new(
                ErrorClass::Amode,
                format!("open {path}: {what}"),
            ))
        };
        let kinds = [Amode::RDONLY, Amode::RDWR, Amode::WRONLY];
        if self.has(Amode::INVALID) {
            return wrong("the access mode has bits that MPI does not define");
        }
        if kinds.into_iter().filter(|kind| self.has(*kind)).count() != 1 {
            return wrong("give exactly one of MPI_MODE_RDONLY, MPI_MODE_RDWR, MPI_MODE_WRONLY");
        }
        if self.has(Amode::RDONLY) && (self.has(Amode::CREATE) || self.has(Amode::EXCL)) {
            return wrong(
                "MPI_MODE_RDONLY excludes MPI_MODE_CREATE and MPI_MODE_EXCL; open MPI_MODE_RDWR",
            );
        }
        if self.has(Amode::RDWR) && self.has(Amode::SEQUENTIAL) {
            return wrong(
                "MPI_MODE_RDWR excludes MPI_MODE_SEQUENTIAL; use MPI_MODE_RDONLY or MPI_MODE_WRONLY",
            );
        }
        Ok(())
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
