//! Datatypes as the shim builds them, constructor by constructor.
//!
//! A [`Type`] is what a file access needs of a datatype. It has its bytes as loops, in memory and in an external32
//! file, and its basic elements. The two loops are the same unless an element has another width in external32.
use crate::error::call;
use penstock_datatype::{Distribution, Elem, ElemKind, Loop, Order, Signature};
use penstock_mpiio::{Datatype, Error, ErrorClass, Result};
use std::ffi::c_int;
use std::sync::Arc;

/// `pst_type`, behind counted pointers.
pub struct Type {
    pub(crate) datatype: Datatype,
    /// Whether the external32 loop differs.
    differs: bool,
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorClass::Type, message)
}

impl Type {
    fn new(memory: Loop, external32: Option<Loop>, signature: Signature) -> Type {
        match external32 {
            None => Type {
                datatype: Datatype::new(memory, signature),
                differs: false,
            },
            Some(external32) => Type {
                datatype: Datatype::with_external32(memory, signature, external32),
                differs: true,
            },
        }
    }

    /// Builds the loop of a type from those of its children; twice if they differ.
    fn from(
        children: &[&Type],
        signature: Signature,
        build: impl Fn(&[&Loop]) -> penstock_datatype::Result<Loop>,
    ) -> Result<Type> {
        let memory: Vec<&Loop> = children.iter().map(|t| &t.datatype.layout).collect();
        let external32 = if children.iter().any(|t| t.differs) {
            let loops: Vec<&Loop> = children.iter().map(|t| &t.datatype.external32).collect();
            Some(build(&loops)?)
        } else {
            None
        };
        Ok(Type::new(build(&memory)?, external32, signature))
    }

    /// The elements of `times` instances.
    fn repeated(&self, times: u64) -> Result<Signature> {
        Ok(Signature::repeat(times, &self.datatype.signature)?)
    }
}

/// Counts given as `unit` extents of the child, in bytes.
const IN_EXTENTS: c_int = 1;

fn scale(places: &[i64], unit: c_int, child: &Loop) -> penstock_datatype::Result<Vec<i64>> {
    if unit != IN_EXTENTS {
        return Ok(places.to_vec());
    }
    places
        .iter()
        .map(|&p| p.checked_mul(child.extent()))
        .collect::<Option<_>>()
        .ok_or(penstock_datatype::Error::Overflow(
            "a displacement of more than 2^63 bytes",
        ))
}

fn sum(lengths: &[u64]) -> Result<u64> {
    lengths
        .iter()
        .try_fold(0u64, |sum, &n| sum.checked_add(n))
        .ok_or_else(|| bad("a datatype of more than 2^64 elements"))
}

fn product(a: u64, b: u64) -> Result<u64> {
    a.checked_mul(b)
        .ok_or_else(|| bad("a datatype of more than 2^64 elements"))
}

/// Runs a constructor and stores its result for C.
///
/// # Safety
/// `out` is valid for writing a pointer.
unsafe fn make(out: *mut *const Type, build: impl FnOnce() -> Result<Type>) -> c_int {
    // SAFETY: as the caller says.
    unsafe { out.write(std::ptr::null()) };
    call(|| {
        let made = Arc::new(build()?);
        // SAFETY: as the caller says.
        unsafe { out.write(Arc::into_raw(made)) };
        Ok(())
    })
}

/// An array from C, which may be empty.
///
/// # Safety
/// `count` elements are at `first` while the result lives.
unsafe fn array<'a, T>(first: *const T, count: u64) -> Result<&'a [T]> {
    let count = usize::try_from(count)
        .ok()
        .filter(|&n| n <= isize::MAX as usize / size_of::<T>().max(1))
        .ok_or_else(|| bad("a datatype of more than 2^63 blocks"))?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: not empty, so not null, and as long as the caller says.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// `pst_type_element`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_element(
    kind: c_int,
    memory: u32,
    file: u32,
    numbers: u32,
    out: *mut *const Type,
) -> c_int {
    let build = || {
        let size = u64::from(memory) * u64::from(numbers);
        let kind = match kind {
            1 => ElemKind::Signed,
            2 => ElemKind::Unsigned,
            3 => ElemKind::Float,
            4 => ElemKind::Extended,
            _ => ElemKind::Bytes,
        };
        if size == 0 {
            return Ok(Type::new(Loop::bytes(0), None, Signature::bytes(0)?));
        }
        // An element unknown to external32 is not converted.
        let elem = match Elem::new(kind, memory, file) {
            Ok(elem) if numbers == 2 => elem.complex(),
            Ok(elem) if numbers == 1 => elem,
            _ => {
                let elem = Elem::opaque(memory)?;
                let signature = Signature::elems(elem, u64::from(numbers))?;
                return Ok(Type::new(Loop::bytes(size), None, signature));
            }
        };
        let stored = u64::from(file) * u64::from(numbers);
        let external32 = (stored != size).then(|| Loop::bytes(stored));
        let signature = Signature::elems(elem, 1)?;
        Ok(Type::new(Loop::bytes(size), external32, signature))
    };
    // SAFETY: `out` as penstock.h says.
    unsafe { make(out, build) }
}

/// `pst_type_contiguous`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_contiguous(
    count: u64,
    child: *const Type,
    out: *mut *const Type,
) -> c_int {
    // SAFETY: a valid type.
    let child = unsafe { &*child };
    let build = || {
        Type::from(&[child], child.repeated(count)?, |c| {
            Loop::contig(count, c[0])
        })
    };
    // SAFETY: `out` as penstock.h says.
    unsafe { make(out, build) }
}

/// `pst_type_vector`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_vector(
    count: u64,
    length: u64,
    stride: i64,
    unit: c_int,
    child: *const Type,
    out: *mut *const Type,
) -> c_int {
    // SAFETY: a valid type.
    let child = unsafe { &*child };
    let build = || {
        let signature = child.repeated(product(count, length)?)?;
        Type::from(&[child], signature, |c| {
            Loop::vector(count, length, scale(&[stride], unit, c[0])?[0], c[0])
        })
    };
    // SAFETY: `out` as penstock.h says.
    unsafe { make(out, build) }
}

/// `pst_type_blocks`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_blocks(
    count: u64,
    length: u64,
    displacements: *const i64,
    unit: c_int,
    child: *const Type,
    out: *mut *const Type,
) -> c_int {
    // SAFETY: a valid type.
    let child = unsafe { &*child };
    let build = || {
        // SAFETY: `count` displacements.
        let places = unsafe { array(displacements, count) }?;
        let signature = child.repeated(product(count, length)?)?;
        Type::from(&[child], signature, |c| {
            Loop::blockindexed(length, &scale(places, unit, c[0])?, c[0])
        })
    };
    // SAFETY: `out` as penstock.h says.
    unsafe { make(out, build) }
}

/// `pst_type_indexed`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_indexed(
    count: u64,
    lengths: *const u64,
    displacements: *const i64,
    unit: c_int,
    child: *const Type,
    out: *mut *const Type,
) -> c_int {
    // SAFETY: a valid type.
    let child = unsafe { &*child };
    let build = || {
        // SAFETY: `count` lengths and displacements.
        let (lengths, places) = unsafe { (array(lengths, count)?, array(displacements, count)?) };
        let signature = child.repeated(sum(lengths)?)?;
        Type::from(&[child], signature, |c| {
            Loop::indexed(lengths, &scale(places, unit, c[0])?, c[0])
        })
    };
    // SAFETY: `out` as penstock.h says.
    unsafe { make(out, build) }
}

/// `pst_type_struct`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_struct(
    count: u64,
    lengths: *const u64,
    displacements: *const i64,
    children: *const *const Type,
    out: *mut *const Type,
) -> c_int {
    let build = || {
        // SAFETY: `count` of each.
        let (lengths, places, children) = unsafe {
            (
                array(lengths, count)?,
                array(displacements, count)?,
                array(children, count)?,
            )
        };
        // SAFETY: valid types.
        let children: Vec<&Type> = children.iter().map(|&c| unsafe { &*c }).collect();
        let signatures = children.iter().zip(lengths);
        let signatures: Vec<Signature> = signatures
            .map(|(child, &length)| child.repeated(length))
            .collect::<Result<_>>()?;
        Type::from(&children, Signature::seq(&signatures)?, |loops| {
            let fields: Vec<(u64, i64, Loop)> = loops
                .iter()
                .zip(lengths.iter().zip(places))
                .map(|(&l, (&length, &place))| (length, place, l.clone()))
                .collect();
            Loop::structure(&fields)
        })
    };
    // SAFETY: `out` as penstock.h says.
    unsafe { make(out, build) }
}

fn order_of(order: c_int) -> Order {
    if order == 15 {
        Order::Fortran
    } else {
        Order::C
    }
}

/// `pst_type_subarray`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_subarray(
    dimensions: c_int,
    sizes: *const u64,
    subsizes: *const u64,
    starts: *const u64,
    order: c_int,
    child: *const Type,
    out: *mut *const Type,
) -> c_int {
    // SAFETY: a valid type.
    let child = unsafe { &*child };
    let build = || {
        let n = u64::try_from(dimensions).unwrap_or(0);
        // SAFETY: `dimensions` of each.
        let (sizes, subsizes, starts) =
            unsafe { (array(sizes, n)?, array(subsizes, n)?, array(starts, n)?) };
        let elements = subsizes.iter().try_fold(1, |p, &n| product(p, n))?;
        Type::from(&[child], child.repeated(elements)?, |c| {
            Loop::subarray(sizes, subsizes, starts, order_of(order), c[0])
        })
    };
    // SAFETY: `out` as penstock.h says.
    unsafe { make(out, build) }
}

/// `pst_type_darray`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)] // those of MPI_Type_create_darray
pub unsafe extern "C" fn pst_type_darray(
    ranks: u64,
    rank: u64,
    dimensions: c_int,
    sizes: *const u64,
    distributions: *const c_int,
    arguments: *const i64,
    process_sizes: *const u64,
    order: c_int,
    child: *const Type,
    out: *mut *const Type,
) -> c_int {
    // SAFETY: a valid type.
    let child = unsafe { &*child };
    let build = || {
        let n = u64::try_from(dimensions).unwrap_or(0);
        // SAFETY: `dimensions` of each.
        let (sizes, kinds, arguments, processes) = unsafe {
            (
                array(sizes, n)?,
                array(distributions, n)?,
                array(arguments, n)?,
                array(process_sizes, n)?,
            )
        };
        let distributions: Vec<Distribution> = kinds
            .iter()
            .zip(arguments)
            .map(|(&kind, &argument)| {
                // A negative argument means the default.
                let argument = u64::try_from(argument).ok();
                match kind {
                    17 => Distribution::Block(argument),
                    18 => Distribution::Cyclic(argument),
                    _ => Distribution::None,
                }
            })
            .collect();
        let build = |c: &Loop| {
            let order = order_of(order);
            Loop::darray(ranks, rank, sizes, &distributions, processes, order, c)
        };
        // The loop knows the number of this rank's elements.
        let one = child.datatype.layout.size();
        let elements = match one {
            0 => 0,
            _ => build(&child.datatype.layout)?.size() / one,
        };
        Type::from(&[child], child.repeated(elements)?, |c| build(c[0]))
    };
    // SAFETY: `out` as penstock.h says.
    unsafe { make(out, build) }
}

/// `pst_type_resized`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_resized(
    lower_bound: i64,
    extent: i64,
    child: *const Type,
    out: *mut *const Type,
) -> c_int {
    // SAFETY: a valid type.
    let child = unsafe { &*child };
    let build = || {
        Type::from(&[child], child.repeated(1)?, |c| {
            c[0].resized(lower_bound, extent)
        })
    };
    // SAFETY: `out` as penstock.h says.
    unsafe { make(out, build) }
}

/// `pst_type_padded`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_padded(
    lower_bound: i64,
    extent: i64,
    child: *const Type,
    out: *mut *const Type,
) -> c_int {
    // SAFETY: a valid type.
    let child = unsafe { &*child };
    let build = || {
        let memory = child.datatype.layout.resized(lower_bound, extent)?;
        let external32 = child.differs.then(|| child.datatype.external32.clone());
        Ok(Type::new(memory, external32, child.repeated(1)?))
    };
    // SAFETY: `out` as penstock.h says.
    unsafe { make(out, build) }
}

/// `pst_type_size`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_size(this: *const Type) -> u64 {
    // SAFETY: a valid type.
    unsafe { &*this }.datatype.layout.size()
}

/// `pst_type_lower_bound`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_lower_bound(this: *const Type) -> i64 {
    // SAFETY: a valid type.
    unsafe { &*this }.datatype.layout.lb()
}

/// `pst_type_extent`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_extent(this: *const Type) -> i64 {
    // SAFETY: a valid type.
    unsafe { &*this }.datatype.layout.extent()
}

/// `pst_type_share`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_share(this: *const Type) -> *const Type {
    // SAFETY: from Arc::into_raw and not freed.
    unsafe { Arc::increment_strong_count(this) };
    this
}

/// `pst_type_free`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_type_free(this: *const Type) {
    if !this.is_null() {
        // SAFETY: from Arc::into_raw; this reference is given up.
        unsafe { Arc::decrement_strong_count(this) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: c_int = 1;

    /// Runs a constructor; the raw pointer is freed by `done`.
    fn made(build: impl FnOnce(*mut *const Type) -> c_int) -> *const Type {
        let mut out = std::ptr::null();
        assert_eq!(build(&mut out), 0);
        out
    }

    fn done(types: &[*const Type]) {
        for &t in types {
            // SAFETY: each made once.
            unsafe { pst_type_free(t) };
        }
    }

    #[test]
    fn external32_has_loops_of_its_own_widths() {
        // SAFETY: pointers made here.
        unsafe {
            let long = made(|out| pst_type_element(SIGNED, 8, 4, 1, out));
            let every = made(|out| pst_type_vector(3, 1, 2, IN_EXTENTS, long, out));
            let datatype = &(*every).datatype;
            assert_eq!((datatype.layout.size(), datatype.layout.extent()), (24, 40));
            assert_eq!(
                (datatype.external32.size(), datatype.external32.extent()),
                (12, 20)
            );
            assert_eq!(datatype.signature.elements(), 3);
            // Byte strides are the same in both.
            let bytes = made(|out| pst_type_vector(3, 1, 16, 0, long, out));
            assert_eq!((*bytes).datatype.external32.extent(), 36);
            done(&[long, every, bytes]);
        }
    }

    #[test]
    fn elements_that_external32_does_not_know_stay_as_they_are() {
        // SAFETY: pointers made here.
        unsafe {
            let odd = made(|out| pst_type_element(SIGNED, 3, 4, 1, out));
            let empty = made(|out| pst_type_element(SIGNED, 0, 4, 1, out));
            assert_eq!((*odd).datatype.external32.size(), 3);
            assert_eq!(pst_type_size(empty), 0);
            done(&[odd, empty]);
        }
    }

    #[test]
    fn sizes_beyond_64_bits_are_errors() {
        // SAFETY: pointers made here.
        unsafe {
            let byte = made(|out| pst_type_element(0, 1, 1, 1, out));
            let mut out = byte;
            assert_eq!(pst_type_vector(1 << 40, 1 << 40, 1, 0, byte, &mut out), 3);
            assert!(out.is_null());
            let lengths = [u64::MAX, 2];
            let places = [0, 8];
            let both = lengths.as_ptr();
            assert_eq!(
                pst_type_indexed(2, both, places.as_ptr(), 0, byte, &mut out),
                3
            );
            done(&[byte]);
        }
    }
}
