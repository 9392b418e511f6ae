//! A datatype in this layer: the positions of its bytes, and its basic elements.
use crate::error::{Error, Result};
use penstock_datatype::{Elem, Loop, Signature};

/// One MPI datatype, decoded.
#[derive(Debug, Clone)]
pub struct Datatype {
    /// The bytes of one instance, in memory (and in a native or internal file).
    pub layout: Loop,
    /// Its basic elements in order, for conversion.
    pub signature: Signature,
    /// The bytes of one instance in an external32 file, where basic elements may have other widths.
    pub external32: Loop,
    /// Why no access can be made with it: an invalid count or type of the caller. The access fails with this error. A
    /// collective access fails on all ranks, so that none waits for a rank that cannot take part.
    pub refused: Option<Error>,
}

impl Datatype {
    /// A type with the same layout in external32 as in memory.
    pub fn new(layout: Loop, signature: Signature) -> Datatype {
        Datatype {
            external32: layout.clone(),
            layout,
            signature,
            refused: None,
        }
    }

    /// A type whose elements have other widths in external32.
    pub fn with_external32(layout: Loop, signature: Signature, external32: Loop) -> Datatype {
        Datatype {
            layout,
            signature,
            external32,
            refused: None,
        }
    }

    /// Represents an unusable type, with the reason.
    pub fn refused(why: Error) -> Datatype {
        Datatype {
            refused: Some(why),
            ..Datatype::byte()
        }
    }

    /// `count` basic elements, wherever their bytes are.
    pub fn elementary(elem: Elem, mem_bytes: u64, file_bytes: u64) -> Result<Datatype> {
        Ok(Datatype {
            layout: Loop::bytes(mem_bytes),
            signature: Signature::elems(elem, 1)?,
            external32: Loop::bytes(file_bytes),
            refused: None,
        })
    }

    /// Uninterpreted bytes with this layout.
    pub fn opaque(layout: Loop) -> Result<Datatype> {
        Ok(Datatype::new(
            layout.clone(),
            Signature::bytes(layout.size())?,
        ))
    }

    /// `MPI_BYTE`.
    pub fn byte() -> Datatype {
        let signature = Signature::bytes(1).expect("one byte is far from any limit of a signature");
        Datatype::new(Loop::bytes(1), signature)
    }
}
