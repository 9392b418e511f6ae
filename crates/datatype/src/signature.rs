//! The basic elements along a stream, and their external32 form (MPI 4.1, section 14.5.2).
//!
//! A loop describes bytes only. A [`Signature`] says which of them form an element, and how wide that element is in
//! memory and in an external32 file. It is a tree of repeats and sequences over equal elements, in which each node
//! stores its totals. A stream position is therefore found in O(depth · log items), and equal elements are converted in
//! bulk. Like a tile, a signature repeats along the stream.

use crate::error::{Error, Result};
use std::sync::Arc;

/// How a basic element is represented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElemKind {
    /// Copied as it is: bytes, characters, packed data.
    Bytes,
    /// Two's complement; sign-extended where the file is wider, checked where it is narrower.
    Signed,
    /// Unsigned integer, logical, address; zero-extended or checked.
    Unsigned,
    /// IEEE 754 binary floating point.
    Float,
    /// 80-bit extended precision in memory (`long double` of x86), binary128 in the file.
    Extended,
}

/// One basic element: a single value, or the two halves of a complex one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Elem {
    kind: ElemKind,
    /// Width of one value (bytes).
    mem: u32,
    file: u32,
    /// Values that count as one element.
    values: u32,
}

impl Elem {
    /// A value of `mem` bytes in memory and `file` bytes in external32.
    pub fn new(kind: ElemKind, mem: u32, file: u32) -> Result<Elem> {
        let power = |w: u32| matches!(w, 1 | 2 | 4 | 8 | 16);
        let known = match kind {
            ElemKind::Bytes => mem == file && mem > 0,
            ElemKind::Signed | ElemKind::Unsigned => power(mem) && power(file),
            ElemKind::Float => {
                (mem == file && matches!(mem, 2 | 4 | 8 | 16))
                    || matches!((mem, file), (4, 8) | (8, 4))
            }
            ElemKind::Extended => matches!(mem, 12 | 16) && file == 16,
        };
        if !known {
            return Err(Error::Invalid(format!(
                "no conversion between {kind:?} of {mem} bytes in memory and {file} bytes in external32"
            )));
        }
        Ok(Elem {
            kind,
            mem,
            file,
            values: 1,
        })
    }

    /// An uninterpreted element of `width` (> 0) bytes.
    pub fn opaque(width: u32) -> Result<Elem> {
        Elem::new(ElemKind::Bytes, width, width)
    }

    /// The complex element of two such values.
    pub fn complex(self) -> Elem {
        Elem { values: 2, ..self }
    }

    fn mem_width(&self) -> u64 {
        self.mem as u64 * self.values as u64
    }

    fn file_width(&self) -> u64 {
        self.file as u64 * self.values as u64
    }
}

/// The basic elements of one instance of a datatype, in stream order; immutable, cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature(Arc<Node>);

#[derive(Debug, PartialEq, Eq)]
struct Node {
    total: Totals,
    depth: u32,
    /// Whether all elements are the same in memory and in the file.
    plain: bool,
    form: Form,
}

#[derive(Debug, PartialEq, Eq)]
enum Form {
    Elems(Elem),
    Repeat(Signature),
    /// Items, each with what comes before it.
    Seq(Box<[(Totals, Signature)]>),
}

/// Sizes of some elements, or a position along the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Totals {
    mem: u64,
    file: u64,
    elements: u64,
}

impl Totals {
    fn times(self, n: u64) -> Result<Totals> {
        let times = |v: u64| {
            v.checked_mul(n)
                .filter(|&v| v <= i64::MAX as u64)
                .ok_or(SIZE)
        };
        Ok(Totals {
            mem: times(self.mem)?,
            file: times(self.file)?,
            elements: times(self.elements)?,
        })
    }
    fn plus(self, other: Totals) -> Result<Totals> {
        let plus = |a: u64, b: u64| {
            a.checked_add(b)
                .filter(|&v| v <= i64::MAX as u64)
                .ok_or(SIZE)
        };
        Ok(Totals {
            mem: plus(self.mem, other.mem)?,
            file: plus(self.file, other.file)?,
            elements: plus(self.elements, other.elements)?,
        })
    }
    /// For positions, which may exceed 2^63 in the other representation.
    fn along(self, unit: Totals, n: u64) -> Totals {
        Totals {
            mem: self.mem.saturating_add(unit.mem.saturating_mul(n)),
            file: self.file.saturating_add(unit.file.saturating_mul(n)),
            elements: self
                .elements
                .saturating_add(unit.elements.saturating_mul(n)),
        }
    }
}

const SIZE: Error = Error::Overflow("more than 2^63 - 1 bytes of elements");
const MAX_LEVELS: u32 = 64;

/// The representation in which a position counts bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Mem,
    File,
}
impl Side {
    fn of(self, t: Totals) -> u64 {
        match self {
            Side::Mem => t.mem,
            Side::File => t.file,
        }
    }
}

impl Signature {
    /// `count` equal elements.
    pub fn elems(elem: Elem, count: u64) -> Result<Signature> {
        let one = Totals {
            mem: elem.mem_width(),
            file: elem.file_width(),
            elements: 1,
        };
        let plain = elem.kind == ElemKind::Bytes;
        Ok(Signature(Arc::new(Node {
            total: one.times(count)?,
            depth: 1,
            plain,
            form: Form::Elems(elem),
        })))
    }

    /// `count` uninterpreted bytes.
    pub fn bytes(count: u64) -> Result<Signature> {
        Signature::elems(Elem::opaque(1)?, count)
    }

    /// `n` instances one after the other.
    pub fn repeat(n: u64, of: &Signature) -> Result<Signature> {
        match &of.0.form {
            _ if n == 1 => Ok(of.clone()),
            Form::Elems(elem) => {
                let count = of.0.total.elements.checked_mul(n).ok_or(SIZE)?;
                Signature::elems(*elem, count)
            }
            _ if n == 0 => Signature::bytes(0),
            _ => Ok(Signature(Arc::new(Node {
                total: of.0.total.times(n)?,
                depth: deeper(of.0.depth)?,
                plain: of.0.plain,
                form: Form::Repeat(of.clone()),
            }))),
        }
    }

    /// One after the other. Adjacent equal elements are merged.
    pub fn seq(items: &[Signature]) -> Result<Signature> {
        let mut merged: Vec<Signature> = Vec::new();
        for item in items.iter().filter(|s| s.0.total.elements > 0) {
            if let Some(last) = merged.last_mut()
                && let (Form::Elems(a), Form::Elems(b)) = (&last.0.form, &item.0.form)
                && a == b
            {
                let count = last.0.total.plus(item.0.total)?.elements;
                *last = Signature::elems(*a, count)?;
                continue;
            }
            merged.push(item.clone());
        }
        match merged.as_slice() {
            [] => return Signature::bytes(0),
            [only] => return Ok(only.clone()),
            [first, rest @ ..] if rest.iter().all(|s| s == first) => {
                return Signature::repeat(merged.len() as u64, first);
            }
            _ => {}
        }
        let mut total = Totals::default();
        let mut depth = 0;
        let mut plain = true;
        let mut placed = Vec::with_capacity(merged.len());
        for item in merged {
            let before = total;
            total = total.plus(item.0.total)?;
            depth = depth.max(item.0.depth);
            plain &= item.0.plain;
            placed.push((before, item));
        }
        let node = Node {
            total,
            depth: deeper(depth)?,
            plain,
            form: Form::Seq(placed.into()),
        };
        Ok(Signature(Arc::new(node)))
    }

    /// Bytes of one instance in memory: the loop's size.
    pub fn mem_size(&self) -> u64 {
        self.0.total.mem
    }

    /// Bytes of one instance in external32.
    pub fn file_size(&self) -> u64 {
        self.0.total.file
    }

    /// Basic elements of one instance.
    pub fn elements(&self) -> u64 {
        self.0.total.elements
    }

    /// The element, if all are equal.
    pub fn uniform(&self) -> Option<Elem> {
        match self.0.form {
            Form::Elems(elem) => Some(elem),
            _ => None,
        }
    }

    /// Whether conversion changes nothing: external32 has the same bytes.
    pub fn is_plain(&self) -> bool {
        self.0.plain
    }

    /// Basic elements completed by the first `mem` stream bytes in memory
    /// (`MPI_Get_elements`); the signature repeats.
    pub fn elements_in(&self, mem: u64) -> u64 {
        self.floor(Side::Mem, mem).elements
    }

    /// External32 bytes of the elements completed by the first `mem` stream bytes in memory.
    pub fn file_of(&self, mem: u64) -> u64 {
        self.floor(Side::Mem, mem).file
    }

    /// Bytes in memory of the elements completed by the first `file` bytes in external32.
    pub fn mem_of(&self, file: u64) -> u64 {
        self.floor(Side::File, file).mem
    }

    /// The last element boundary at or before `mem`.
    pub fn floor_mem(&self, mem: u64) -> u64 {
        self.floor(Side::Mem, mem).mem
    }

    /// The last element boundary at or before `file`.
    pub fn floor_file(&self, file: u64) -> u64 {
        self.floor(Side::File, file).file
    }

    /// The last element boundary at or before a position along the endless stream.
    fn floor(&self, side: Side, at: u64) -> Totals {
        let size = side.of(self.0.total);
        if size == 0 {
            return Totals::default();
        }
        let whole = Totals::default().along(self.0.total, at / size);
        let within = self.floor_within(side, at % size);
        whole.along(within, 1)
    }

    /// The same within one instance.
    fn floor_within(&self, side: Side, at: u64) -> Totals {
        match &self.0.form {
            Form::Elems(elem) => {
                let one = Totals {
                    mem: elem.mem_width(),
                    file: elem.file_width(),
                    elements: 1,
                };
                Totals::default().along(one, at / side.of(one))
            }
            Form::Repeat(of) => of.floor(side, at),
            Form::Seq(items) => {
                let (before, item) = &items[items.partition_point(|(b, _)| side.of(*b) <= at) - 1];
                before.along(item.floor_within(side, at - side.of(*before)), 1)
            }
        }
    }

    /// Converts whole elements from the form in memory to external32. `at` is the stream position of `native` in
    /// memory; `out` must have exactly the external32 size of those elements. An error names an element that does not
    /// fit.
    pub fn to_external32(&self, at: u64, native: &[u8], out: &mut [u8]) -> Result<()> {
        self.convert(Side::Mem, at, native, out)
    }

    /// Converts whole elements from external32 to the form in memory. `at` is the stream position of `external` in
    /// external32; `out` must have exactly their size in memory. An error names an element that does not fit.
    pub fn from_external32(&self, at: u64, external: &[u8], out: &mut [u8]) -> Result<()> {
        self.convert(Side::File, at, external, out)
    }

    fn convert(&self, from: Side, at: u64, input: &[u8], out: &mut [u8]) -> Result<()> {
        let to = if from == Side::Mem {
            Side::File
        } else {
            Side::Mem
        };
        let end = at.checked_add(input.len() as u64).ok_or(SIZE)?;
        let (first, last) = (self.floor(from, at), self.floor(from, end));
        if from.of(first) != at || from.of(last) != end {
            return Err(Error::Invalid(format!(
                "bytes {at}..{end} of the stream cut an element"
            )));
        }
        let wanted = to.of(last) - to.of(first);
        if wanted != out.len() as u64 {
            return Err(Error::Invalid(format!(
                "conversion gives {wanted} bytes, the buffer has {}",
                out.len()
            )));
        }
        if self.0.plain {
            out.copy_from_slice(input);
            return Ok(());
        }
        if input.is_empty() {
            return Ok(());
        }
        let mut job = Job {
            from,
            input,
            out,
            element: 0,
        };
        self.endless(at, end, &mut job)
    }

    /// Converts positions [lo, hi), which must not be empty, of endless instances.
    fn endless(&self, lo: u64, hi: u64, job: &mut Job<'_>) -> Result<()> {
        if let Form::Elems(elem) = &self.0.form {
            return job.convert(*elem, hi - lo);
        }
        let size = job.from.of(self.0.total);
        let mut lo = lo;
        while lo < hi {
            let start = lo - lo % size;
            let to = hi.min(start.saturating_add(size));
            self.within(lo - start, to - start, job)?;
            lo = to;
        }
        Ok(())
    }

    /// Converts positions [lo, hi), which must not be empty, of one instance.
    fn within(&self, lo: u64, hi: u64, job: &mut Job<'_>) -> Result<()> {
        match &self.0.form {
            Form::Elems(elem) => job.convert(*elem, hi - lo),
            Form::Repeat(of) => of.endless(lo, hi, job),
            Form::Seq(items) => {
                let first = items.partition_point(|(b, _)| job.from.of(*b) <= lo) - 1;
                for (before, item) in &items[first..] {
                    let start = job.from.of(*before);
                    if start >= hi {
                        break;
                    }
                    let end = job.from.of(item.0.total).min(hi - start);
                    item.within(lo.saturating_sub(start), end, job)?;
                }
                Ok(())
            }
        }
    }
}

fn deeper(depth: u32) -> Result<u32> {
    if depth >= MAX_LEVELS {
        Err(Error::Overflow("more than 64 levels of elements"))
    } else {
        Ok(depth + 1)
    }
}

/// A conversion in progress: the rest of both sides.
struct Job<'a> {
    from: Side,
    input: &'a [u8],
    out: &'a mut [u8],
    /// Elements done.
    element: u64,
}

impl Job<'_> {
    /// Converts the next `bytes` of input, all of this element type.
    fn convert(&mut self, elem: Elem, bytes: u64) -> Result<()> {
        let (from, to) = match self.from {
            Side::Mem => (elem.mem, elem.file),
            Side::File => (elem.file, elem.mem),
        };
        let values = bytes / from as u64;
        let (input, rest) = self.input.split_at(bytes as usize);
        self.input = rest;
        let (out, rest) = std::mem::take(&mut self.out).split_at_mut((values * to as u64) as usize);
        self.out = rest;
        let failed = match (elem.kind, from == to) {
            (ElemKind::Bytes, _) => {
                out.copy_from_slice(input);
                None
            }
            (ElemKind::Extended, _) => {
                extended(self.from, elem.mem as usize, input, out);
                None
            }
            (_, true) => {
                swap(from, input, out);
                None
            }
            (ElemKind::Float, false) => float(self.from, from, input, out),
            (kind, false) => integer(self.from, kind == ElemKind::Signed, from, to, input, out),
        };
        if let Some(value) = failed {
            let element = self.element + value / elem.values as u64;
            return Err(Error::Range { element, width: to });
        }
        self.element += values / elem.values as u64;
        Ok(())
    }
}

/// Same width on both sides: between the host's order and big-endian.
fn swap(width: u32, input: &[u8], out: &mut [u8]) {
    match width {
        2 => swap_each(input, out, |v: [u8; 2]| u16::from_ne_bytes(v).to_be_bytes()),
        4 => swap_each(input, out, |v: [u8; 4]| u32::from_ne_bytes(v).to_be_bytes()),
        8 => swap_each(input, out, |v: [u8; 8]| u64::from_ne_bytes(v).to_be_bytes()),
        16 => swap_each(input, out, |v: [u8; 16]| {
            u128::from_ne_bytes(v).to_be_bytes()
        }),
        _ => out.copy_from_slice(input),
    }
}

fn swap_each<const N: usize>(input: &[u8], out: &mut [u8], f: impl Fn([u8; N]) -> [u8; N]) {
    let (input, _) = input.as_chunks::<N>();
    let (out, _) = out.as_chunks_mut::<N>();
    for (o, i) in out.iter_mut().zip(input) {
        *o = f(*i);
    }
}

/// Integers of different widths; the index of the first that does not fit.
fn integer(
    from: Side,
    signed: bool,
    width: u32,
    to: u32,
    input: &[u8],
    out: &mut [u8],
) -> Option<u64> {
    let (width, to) = (width as usize, to as usize);
    for (n, (i, o)) in input
        .chunks_exact(width)
        .zip(out.chunks_exact_mut(to))
        .enumerate()
    {
        // Big-endian, sign-extended to 16 bytes.
        let mut wide = [0u8; 16];
        wide[16 - width..].copy_from_slice(i);
        if from == Side::Mem && cfg!(target_endian = "little") {
            wide[16 - width..].reverse();
        }
        let fill = if signed && wide[16 - width] & 0x80 != 0 {
            0xff
        } else {
            0
        };
        wide[..16 - width].fill(fill);
        let (cut, kept) = wide.split_at(16 - to);
        let sign_kept = !signed || kept[0] & 0x80 == fill & 0x80;
        if cut.iter().any(|&b| b != fill) || !sign_kept {
            return Some(n as u64);
        }
        o.copy_from_slice(kept);
        if from == Side::File && cfg!(target_endian = "little") {
            o.reverse();
        }
    }
    None
}

/// Floats of 4 bytes on one side and 8 on the other; the index of the first finite one that overflows.
fn float(from: Side, width: u32, input: &[u8], out: &mut [u8]) -> Option<u64> {
    let native = from == Side::Mem;
    if width == 4 {
        let (input, out) = (input.as_chunks::<4>().0, out.as_chunks_mut::<8>().0);
        for (i, o) in input.iter().zip(out) {
            let v = if native {
                f32::from_ne_bytes(*i)
            } else {
                f32::from_be_bytes(*i)
            } as f64;
            *o = if native {
                v.to_be_bytes()
            } else {
                v.to_ne_bytes()
            };
        }
        return None;
    }
    let (input, out) = (input.as_chunks::<8>().0, out.as_chunks_mut::<4>().0);
    for (n, (i, o)) in input.iter().zip(out).enumerate() {
        let wide = if native {
            f64::from_ne_bytes(*i)
        } else {
            f64::from_be_bytes(*i)
        };
        let v = wide as f32;
        if v.is_infinite() && wide.is_finite() {
            return Some(n as u64);
        }
        *o = if native {
            v.to_be_bytes()
        } else {
            v.to_ne_bytes()
        };
    }
    None
}

/// 80-bit extended precision in memory (little-endian, padded to `mem` bytes) and binary128 in the file.
fn extended(from: Side, mem: usize, input: &[u8], out: &mut [u8]) {
    match from {
        Side::Mem => {
            for (i, o) in input.chunks_exact(mem).zip(out.as_chunks_mut::<16>().0) {
                let mut bytes = [0u8; 16];
                bytes[..10].copy_from_slice(&i[..10]);
                *o = quad_of_extended(u128::from_le_bytes(bytes)).to_be_bytes();
            }
        }
        Side::File => {
            for (i, o) in input
                .as_chunks::<16>()
                .0
                .iter()
                .zip(out.chunks_exact_mut(mem))
            {
                let bytes = extended_of_quad(u128::from_be_bytes(*i)).to_le_bytes();
                o.copy_from_slice(&bytes[..mem]);
            }
        }
    }
}

const QUAD_FRACTION: u32 = 112;
/// The fraction of binary128 has this many bits more than that of extended precision.
const EXTRA: u32 = QUAD_FRACTION - 63;

/// Same exponent range and bias; the explicit leading bit is dropped, the fraction is padded with zeros. Exact.
fn quad_of_extended(x: u128) -> u128 {
    let sign = x >> 79 & 1;
    let exponent = x >> 64 & 0x7fff;
    let leading = x >> 63 & 1;
    let fraction = x & ((1 << 63) - 1);
    // A leading one with exponent 0 means the same as exponent 1.
    let exponent = if exponent == 0 { leading } else { exponent };
    sign << 127 | exponent << QUAD_FRACTION | fraction << EXTRA
}

/// Rounds to nearest, ties to even; a NaN stays a NaN.
fn extended_of_quad(q: u128) -> u128 {
    let sign = q >> 127;
    let exponent = q >> QUAD_FRACTION & 0x7fff;
    let fraction = q & ((1 << QUAD_FRACTION) - 1);
    let leading = u128::from(exponent != 0);
    let mut significand = leading << 63 | fraction >> EXTRA;
    let mut exponent = exponent;
    if exponent == 0x7fff {
        if fraction != 0 {
            significand |= 1 << 62;
        }
    } else {
        let rest = fraction & ((1 << EXTRA) - 1);
        let half = 1 << (EXTRA - 1);
        if rest > half || (rest == half && significand & 1 == 1) {
            significand += 1;
        }
        if significand >> 64 != 0 {
            significand >>= 1;
            exponent += 1;
        }
        if exponent == 0 && significand >> 63 != 0 {
            exponent = 1;
        }
    }
    sign << 79 | exponent << 64 | significand
}
