//! Data representations (MPI-4.1 section 14.5): how basic elements are stored in the file.
use crate::error::{Error, ErrorClass, Result};

/// A data representation by its MPI name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataRep {
    /// As in memory.
    #[default]
    Native,
    /// This library's own portable form: the same as native, because all supported machines are little-endian with the
    /// same widths.
    Internal,
    /// Big-endian with the widths of MPI-4.1 table 14.2.
    External32,
}

impl DataRep {
    /// From the name passed to `MPI_File_set_view`.
    pub fn parse(name: &str) -> Result<DataRep> {
        match name {
            "native" => Ok(DataRep::Native),
            "internal" => Ok(DataRep::Internal),
            "external32" => Ok(DataRep::External32),
            other => Err(Error::new(
                ErrorClass::UnsupportedDatarep,
                format!(
                    "data representation `{other}` is unknown; use native, internal or external32"
                ),
            )),
        }
    }

    /// The MPI name.
    pub fn name(self) -> &'static str {
        match self {
            DataRep::Native => "native",
            DataRep::Internal => "internal",
            DataRep::External32 => "external32",
        }
    }
}
