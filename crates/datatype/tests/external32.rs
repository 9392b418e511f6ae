//! Element counts and conversion against element-by-element reference code.

use penstock_datatype::{Elem, ElemKind, Error, Signature};
use proptest::prelude::*;

fn elem(kind: ElemKind, mem: u32, file: u32) -> Elem {
    Elem::new(kind, mem, file).unwrap()
}

/// (mem, file) widths of each element of one instance, in order.
type Widths = Vec<(u64, u64)>;

fn signature() -> impl Strategy<Value = (Signature, Widths)> {
    let leaf = (0usize..5, 0u64..4).prop_map(|(which, n)| {
        let (elem, width) = [
            (elem(ElemKind::Bytes, 1, 1), (1, 1)),
            (elem(ElemKind::Signed, 8, 4), (8, 4)),
            (elem(ElemKind::Unsigned, 4, 2), (4, 2)),
            (elem(ElemKind::Float, 8, 8), (8, 8)),
            (elem(ElemKind::Float, 4, 4).complex(), (8, 8)),
        ][which];
        (Signature::elems(elem, n).unwrap(), vec![width; n as usize])
    });
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            (0u64..4, inner.clone())
                .prop_map(|(n, (s, w))| (Signature::repeat(n, &s).unwrap(), w.repeat(n as usize))),
            prop::collection::vec(inner, 0..4).prop_map(|items| {
                let signatures: Vec<_> = items.iter().map(|i| i.0.clone()).collect();
                let widths = items.into_iter().flat_map(|i| i.1).collect();
                (Signature::seq(&signatures).unwrap(), widths)
            }),
        ]
    })
}

proptest! {
    #[test]
    fn positions((s, widths) in signature(), at in 0u64..300) {
        let mem: u64 = widths.iter().map(|w| w.0).sum();
        let file: u64 = widths.iter().map(|w| w.1).sum();
        prop_assert_eq!((s.mem_size(), s.file_size(), s.elements()), (mem, file, widths.len() as u64));
        // Elements completed by `at` bytes of the endless stream, on either side.
        let floor = |of: fn(&(u64, u64)) -> u64| {
            let (mut m, mut f, mut n, mut used) = (0, 0, 0u64, 0);
            for w in widths.iter().cycle() {
                used += of(w);
                if used > at { break }
                (m, f, n) = (m + w.0, f + w.1, n + 1);
            }
            (m, f, n)
        };
        if widths.is_empty() {
            prop_assert_eq!((s.elements_in(at), s.file_of(at), s.mem_of(at)), (0, 0, 0));
        } else {
            let (m, f, n) = floor(|w| w.0);
            prop_assert_eq!((s.floor_mem(at), s.file_of(at), s.elements_in(at)), (m, f, n));
            let (m, f, _) = floor(|w| w.1);
            prop_assert_eq!((s.mem_of(at), s.floor_file(at)), (m, f));
        }
    }

    #[test]
    fn there_and_back((s, widths) in signature(), first in 0u64..40, count in 0usize..60, seed in any::<u8>()) {
        prop_assume!(!widths.is_empty());
        let n = widths.len();
        let sum = |range: std::ops::Range<usize>, of: fn(&(u64, u64)) -> u64|
            range.map(|i| of(&widths[i % n])).sum::<u64>();
        let (from, to) = (first as usize, first as usize + count);
        // Small values, so that narrow representations hold them: each element's low byte.
        let mut native = Vec::new();
        let mut low = Vec::new();
        for i in from..to {
            let value = seed.wrapping_add(i as u8) & 0x7f;
            let mut bytes = vec![0u8; widths[i % n].0 as usize];
            bytes[0] = value;
            native.extend(bytes);
            low.push(value);
        }
        let (mem_at, file_at) = (sum(0..from, |w| w.0), sum(0..from, |w| w.1));
        let mut external = vec![0xaa; sum(from..to, |w| w.1) as usize];
        s.to_external32(mem_at, &native, &mut external).unwrap();
        let mut back = vec![0xbb; native.len()];
        s.from_external32(file_at, &external, &mut back).unwrap();
        prop_assert_eq!(&back, &native);
        if s.is_plain() { prop_assert_eq!(&external, &native) }
        // Half an element is refused on both sides, and so is a buffer of the wrong length.
        if let Some(w) = (from..to).find(|i| widths[i % n].0 > 1).map(|i| sum(from..i, |w| w.0)) {
            let cut = &native[..w as usize + 1];
            prop_assert!(matches!(s.to_external32(mem_at, cut, &mut external), Err(Error::Invalid(_))));
        }
        if count > 0 {
            let mut short = vec![0; external.len() - 1];
            prop_assert!(matches!(s.to_external32(mem_at, &native, &mut short), Err(Error::Invalid(_))));
        }
    }
}

fn to_file(elem: Elem, native: &[u8], width: usize) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; width];
    Signature::elems(elem, 1)?.to_external32(0, native, &mut out)?;
    Ok(out)
}

fn from_file(elem: Elem, external: &[u8], width: usize) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; width];
    Signature::elems(elem, 1)?.from_external32(0, external, &mut out)?;
    Ok(out)
}

#[test]
fn integers_change_width() {
    let long = elem(ElemKind::Signed, 8, 4);
    for v in [0i64, 1, -1, i32::MAX as i64, i32::MIN as i64] {
        assert_eq!(
            to_file(long, &v.to_ne_bytes(), 4).unwrap(),
            (v as i32).to_be_bytes()
        );
        assert_eq!(
            from_file(long, &(v as i32).to_be_bytes(), 8).unwrap(),
            v.to_ne_bytes()
        );
    }
    for v in [i32::MAX as i64 + 1, i32::MIN as i64 - 1, i64::MAX, i64::MIN] {
        assert_eq!(
            to_file(long, &v.to_ne_bytes(), 4),
            Err(Error::Range {
                element: 0,
                width: 4
            })
        );
    }
    let ulong = elem(ElemKind::Unsigned, 8, 4);
    let v = u32::MAX as u64;
    assert_eq!(
        to_file(ulong, &v.to_ne_bytes(), 4).unwrap(),
        u32::MAX.to_be_bytes()
    );
    assert_eq!(
        from_file(ulong, &u32::MAX.to_be_bytes(), 8).unwrap(),
        v.to_ne_bytes()
    );
    assert!(to_file(ulong, &(v + 1).to_ne_bytes(), 4).is_err());
    let wchar = elem(ElemKind::Unsigned, 4, 2);
    assert_eq!(
        to_file(wchar, &0xffeeu32.to_ne_bytes(), 2).unwrap(),
        [0xff, 0xee]
    );
    let narrow = elem(ElemKind::Signed, 4, 8);
    assert_eq!(
        to_file(narrow, &(-5i32).to_ne_bytes(), 8).unwrap(),
        (-5i64).to_be_bytes()
    );
}

#[test]
fn the_failing_element_is_named() {
    let long = elem(ElemKind::Signed, 8, 4);
    let s = Signature::seq(&[
        Signature::bytes(3).unwrap(),
        Signature::elems(long, 4).unwrap(),
    ])
    .unwrap();
    let mut native = vec![1, 2, 3];
    for v in [1i64, 2, 1 << 40, 3] {
        native.extend(v.to_ne_bytes());
    }
    let failed = s.to_external32(0, &native, &mut [0; 19]);
    assert_eq!(
        failed,
        Err(Error::Range {
            element: 5,
            width: 4
        })
    );
}

#[test]
fn floats() {
    let double = elem(ElemKind::Float, 8, 8);
    assert_eq!(
        to_file(double, &1.5f64.to_ne_bytes(), 8).unwrap(),
        1.5f64.to_be_bytes()
    );
    let complex = elem(ElemKind::Float, 4, 4).complex();
    let native = [1.0f32.to_ne_bytes(), (-2.0f32).to_ne_bytes()].concat();
    let external = [1.0f32.to_be_bytes(), (-2.0f32).to_be_bytes()].concat();
    assert_eq!(to_file(complex, &native, 8).unwrap(), external);
    assert_eq!(Signature::elems(complex, 3).unwrap().elements_in(23), 2);
    let narrow = elem(ElemKind::Float, 8, 4);
    assert_eq!(
        to_file(narrow, &0.1f64.to_ne_bytes(), 4).unwrap(),
        0.1f32.to_be_bytes()
    );
    assert!(to_file(narrow, &1e300f64.to_ne_bytes(), 4).is_err());
    assert_eq!(
        to_file(narrow, &f64::INFINITY.to_ne_bytes(), 4).unwrap(),
        f32::INFINITY.to_be_bytes()
    );
    assert!(Elem::new(ElemKind::Float, 16, 8).is_err());
    assert!(Elem::new(ElemKind::Bytes, 0, 0).is_err());
}

/// Sign, exponent and significand (with its leading bit) of 80-bit extended precision.
fn extended(sign: u16, exponent: u16, significand: u64) -> Vec<u8> {
    let mut bytes = significand.to_le_bytes().to_vec();
    bytes.extend((sign << 15 | exponent).to_le_bytes());
    bytes.extend([0; 6]);
    bytes
}

#[test]
fn long_double() {
    let long_double = elem(ElemKind::Extended, 16, 16);
    let lead = 1u64 << 63;
    let quad = |sign: u128, exponent: u128, fraction: u128| {
        (sign << 127 | exponent << 112 | fraction)
            .to_be_bytes()
            .to_vec()
    };
    let pairs = [
        (extended(0, 0x3fff, lead), quad(0, 0x3fff, 0)), // 1
        (
            extended(1, 0x4000, lead | lead >> 1),
            quad(1, 0x4000, 1 << 111),
        ), // -3
        (extended(0, 0, 0), quad(0, 0, 0)),              // 0
        (extended(1, 0, 0), quad(1, 0, 0)),              // -0
        (extended(0, 0x7fff, lead), quad(0, 0x7fff, 0)), // infinity
        (extended(0, 0, 1), quad(0, 0, 1 << 49)),        // denormal
        (
            extended(0, 0x3fff, u64::MAX),
            quad(0, 0x3fff, ((1 << 63) - 1) << 49),
        ), // all bits
    ];
    for (native, external) in pairs {
        assert_eq!(to_file(long_double, &native, 16).unwrap(), external);
        assert_eq!(from_file(long_double, &external, 16).unwrap(), native);
    }
    // Values that 64 bits of significand cannot hold are rounded to nearest, ties to even, into the exponent if needed.
    let round = |fraction: u128| from_file(long_double, &quad(0, 0x3fff, fraction), 16).unwrap();
    assert_eq!(round(1), extended(0, 0x3fff, lead));
    assert_eq!(round(1 << 48), extended(0, 0x3fff, lead));
    assert_eq!(round(3 << 48), extended(0, 0x3fff, lead + 2));
    assert_eq!(round((1 << 48) + 1), extended(0, 0x3fff, lead + 1));
    assert_eq!(round((1 << 112) - 1), extended(0, 0x4000, lead));
    let nan = from_file(long_double, &quad(0, 0x7fff, 1), 16).unwrap();
    assert_eq!(nan, extended(0, 0x7fff, lead | 1 << 62));
}

#[test]
fn too_many_elements() {
    let double = elem(ElemKind::Float, 8, 8);
    assert!(matches!(
        Signature::elems(double, 1 << 60),
        Err(Error::Overflow(_))
    ));
    let many = Signature::elems(double, 1 << 59).unwrap();
    assert!(matches!(
        Signature::repeat(2, &many),
        Err(Error::Overflow(_))
    ));
    assert!(matches!(
        Signature::seq(&[many.clone(), many]),
        Err(Error::Overflow(_))
    ));
}
