//! A datatype as this layer sees it: where its bytes lie, and which basic elements they are.
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

    /// `MPI_BYTE`.
    pub fn byte() -> Datatype {
        Datatype::elementary(1)
    }

    /// An uninterpreted basic type of `width` (> 0) bytes, the same in memory and in external32.
    pub fn elementary(width: u32) -> Datatype {
        let one = Elem::opaque(width).and_then(|elem| Signature::elems(elem, 1));
        let one = one.expect("a basic type has at least a byte");
        Datatype::new(Loop::bytes(u64::from(width)), one)
    }
}
