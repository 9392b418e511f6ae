//! A datatype as this layer sees it: where its bytes lie, and which basic elements they are.
use crate::error::Result;
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
}

impl Datatype {
    /// A type whose external32 form lies as it does in memory.
    pub fn new(layout: Loop, signature: Signature) -> Datatype {
        Datatype {
            external32: layout.clone(),
            layout,
            signature,
        }
    }

    /// A type whose elements have other widths in external32.
    pub fn with_external32(layout: Loop, signature: Signature, external32: Loop) -> Datatype {
        Datatype {
            layout,
            signature,
            external32,
        }
    }

    /// `count` basic elements, the same wherever their bytes lie.
    pub fn elementary(elem: Elem, mem_bytes: u64, file_bytes: u64) -> Result<Datatype> {
        Ok(Datatype {
            layout: Loop::bytes(mem_bytes),
            signature: Signature::elems(elem, 1)?,
            external32: Loop::bytes(file_bytes),
        })
    }

    /// Uninterpreted bytes that lie as `layout` says.
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
