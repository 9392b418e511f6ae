//! Every constructor, nested at random, against a flattening that lists each byte.
//! (Tests may unwrap.)

use penstock_datatype::{Distribution, Loop, Order, Pattern, Run, Source, Target, copy};
use proptest::prelude::*;

/// How a type was built.
#[derive(Debug, Clone)]
enum Spec {
    Bytes(u64),
    Contig(u64, Box<Spec>),
    Vector(u64, u64, i64, Box<Spec>),
    BlockIndexed(u64, Vec<i64>, Box<Spec>),
    Indexed(Vec<(u64, i64)>, Box<Spec>),
    Struct(Vec<(u64, i64, Spec)>),
    Resized(i64, i64, Box<Spec>),
    /// (size, subsize, start) per dimension.
    Subarray(Vec<(u64, u64, u64)>, bool, Box<Spec>),
    /// (size, processes, coordinate, distribution) per dimension.
    Darray(Vec<(u64, u64, u64, Distribution)>, bool, Box<Spec>),
}

/// The flattened type: the offset of each stream byte, and the bounds.
#[derive(Debug, Clone)]
struct Flat {
    bytes: Vec<i64>,
    lb: i64,
    ub: i64,
}

impl Flat {
    fn extent(&self) -> i64 {
        self.ub - self.lb
    }
    /// Copies at the given places; bounds over all of them.
    fn at(&self, places: &[i64]) -> Flat {
        let bytes = places
            .iter()
            .flat_map(|p| self.bytes.iter().map(move |b| b + p))
            .collect();
        let lb = places.iter().map(|p| p + self.lb).min().unwrap_or(0);
        let ub = places.iter().map(|p| p + self.ub).max().unwrap_or(0);
        Flat { bytes, lb, ub }
    }
    fn join(parts: &[Flat]) -> Flat {
        Flat {
            bytes: parts.iter().flat_map(|p| p.bytes.clone()).collect(),
            lb: parts.iter().map(|p| p.lb).min().unwrap_or(0),
            ub: parts.iter().map(|p| p.ub).max().unwrap_or(0),
        }
    }
    fn repeat(&self, n: u64, at: i64) -> Vec<i64> {
        (0..n as i64).map(|i| at + i * self.extent()).collect()
    }
    fn tile(&self, disp: i64, start: u64, len: u64) -> Vec<i64> {
        let n = self.bytes.len() as u64;
        (start..start + len)
            .map(|s| disp + (s / n) as i64 * self.extent() + self.bytes[(s % n) as usize])
            .collect()
    }
}

/// Indices that a process owns of one dimension.
fn owned(size: u64, procs: u64, coord: u64, how: Distribution) -> Vec<u64> {
    let block = match how {
        Distribution::None => return (0..size).collect(),
        Distribution::Block(b) => {
            let b = b.unwrap_or(size.div_ceil(procs));
            return (0..size).filter(|i| b > 0 && i / b == coord).collect();
        }
        Distribution::Cyclic(b) => b.unwrap_or(1),
    };
    (0..size).filter(|i| i / block % procs == coord).collect()
}

/// All elements of an array whose indices are picked per dimension (slowest first), in C order of the picks.
fn array(dims: &[(u64, Vec<u64>)], child: &Flat) -> Flat {
    let mut places = vec![0i64];
    let mut strides = vec![child.extent(); dims.len()];
    for d in (0..dims.len() - 1).rev() {
        strides[d] = strides[d + 1] * dims[d + 1].0 as i64;
    }
    for ((_, picks), stride) in dims.iter().zip(&strides) {
        places = places
            .iter()
            .flat_map(|p| picks.iter().map(move |i| p + *i as i64 * stride))
            .collect();
    }
    let whole: i64 = dims.iter().map(|d| d.0 as i64).product();
    Flat {
        lb: 0,
        ub: whole * child.extent(),
        ..child.at(&places)
    }
}

impl Spec {
    fn flat(&self) -> Flat {
        match self {
            Spec::Bytes(n) => Flat {
                bytes: (0..*n as i64).collect(),
                lb: 0,
                ub: *n as i64,
            },
            Spec::Contig(n, c) => {
                let c = c.flat();
                c.at(&c.repeat(*n, 0))
            }
            Spec::Vector(n, b, s, c) => {
                let c = c.flat();
                let places: Vec<i64> = (0..*n as i64).flat_map(|i| c.repeat(*b, i * s)).collect();
                c.at(&places)
            }
            Spec::BlockIndexed(b, displs, c) => {
                let c = c.flat();
                let places: Vec<i64> = displs.iter().flat_map(|d| c.repeat(*b, *d)).collect();
                c.at(&places)
            }
            Spec::Indexed(blocks, c) => {
                let c = c.flat();
                let places: Vec<i64> = blocks.iter().flat_map(|(n, d)| c.repeat(*n, *d)).collect();
                c.at(&places)
            }
            Spec::Struct(fields) => {
                let parts: Vec<Flat> = fields
                    .iter()
                    .filter(|f| f.0 > 0)
                    .map(|(n, d, c)| {
                        let c = c.flat();
                        c.at(&c.repeat(*n, *d))
                    })
                    .collect();
                Flat::join(&parts)
            }
            Spec::Resized(lb, extent, c) => Flat {
                lb: *lb,
                ub: lb + extent,
                ..c.flat()
            },
            Spec::Subarray(dims, fortran, c) => {
                let mut dims: Vec<_> = dims
                    .iter()
                    .map(|(n, sub, at)| (*n, (*at..at + sub).collect()))
                    .collect();
                if *fortran {
                    dims.reverse();
                }
                array(&dims, &c.flat())
            }
            Spec::Darray(dims, fortran, c) => {
                let mut dims: Vec<_> = dims
                    .iter()
                    .map(|(n, p, at, how)| (*n, owned(*n, *p, *at, *how)))
                    .collect();
                if *fortran {
                    dims.reverse();
                }
                array(&dims, &c.flat())
            }
        }
    }

    fn build(&self) -> Loop {
        match self {
            Spec::Bytes(n) => Loop::bytes(*n),
            Spec::Contig(n, c) => Loop::contig(*n, &c.build()).unwrap(),
            Spec::Vector(n, b, s, c) => Loop::vector(*n, *b, *s, &c.build()).unwrap(),
            Spec::BlockIndexed(b, displs, c) => Loop::blockindexed(*b, displs, &c.build()).unwrap(),
            Spec::Indexed(blocks, c) => {
                let (lens, displs): (Vec<u64>, Vec<i64>) = blocks.iter().copied().unzip();
                Loop::indexed(&lens, &displs, &c.build()).unwrap()
            }
            Spec::Struct(fields) => {
                let fields: Vec<_> = fields.iter().map(|(n, d, c)| (*n, *d, c.build())).collect();
                Loop::structure(&fields).unwrap()
            }
            Spec::Resized(lb, extent, c) => c.build().resized(*lb, *extent).unwrap(),
            Spec::Subarray(dims, fortran, c) => {
                let sizes: Vec<u64> = dims.iter().map(|d| d.0).collect();
                let subs: Vec<u64> = dims.iter().map(|d| d.1).collect();
                let starts: Vec<u64> = dims.iter().map(|d| d.2).collect();
                Loop::subarray(&sizes, &subs, &starts, order(*fortran), &c.build()).unwrap()
            }
            Spec::Darray(dims, fortran, c) => {
                let sizes: Vec<u64> = dims.iter().map(|d| d.0).collect();
                let procs: Vec<u64> = dims.iter().map(|d| d.1).collect();
                let how: Vec<Distribution> = dims.iter().map(|d| d.3).collect();
                let ranks = procs.iter().product();
                let rank = dims.iter().fold(0, |r, d| r * d.1 + d.2);
                Loop::darray(
                    ranks,
                    rank,
                    &sizes,
                    &how,
                    &procs,
                    order(*fortran),
                    &c.build(),
                )
                .unwrap()
            }
        }
    }
}

fn order(fortran: bool) -> Order {
    if fortran { Order::Fortran } else { Order::C }
}

fn dim() -> impl Strategy<Value = (u64, u64, u64)> {
    (1u64..6)
        .prop_flat_map(|n| (Just(n), 0..=n))
        .prop_flat_map(|(n, sub)| (Just(n), Just(sub), 0..=n - sub))
}

fn shared_dim() -> impl Strategy<Value = (u64, u64, u64, Distribution)> {
    (0u64..9, 1u64..4).prop_flat_map(|(n, p)| {
        let block = n.div_ceil(p);
        let how = prop_oneof![
            Just(Distribution::Block(None)),
            (block..block + 2).prop_map(|b| Distribution::Block(Some(b))),
            Just(Distribution::Cyclic(None)),
            (1u64..4).prop_map(|b| Distribution::Cyclic(Some(b))),
        ];
        let whole = Just((n, 1, 0, Distribution::None));
        prop_oneof![4 => (Just(n), Just(p), 0..p, how), 1 => whole]
    })
}

fn spec() -> impl Strategy<Value = Spec> {
    let leaf = prop_oneof![9 => (1u64..9).prop_map(Spec::Bytes), 1 => Just(Spec::Bytes(0))];
    leaf.prop_recursive(4, 12, 3, |inner| {
        let child = || inner.clone().prop_map(Box::new);
        // Displacements from a coarse grid make neighbours touch and strides line up often.
        let displ = || prop_oneof![-40i64..80, (-4i64..9).prop_map(|d| d * 8)];
        prop_oneof![
            (0u64..4, child()).prop_map(|(n, c)| Spec::Contig(n, c)),
            (0u64..4, 0u64..4, displ(), child()).prop_map(|(n, b, s, c)| Spec::Vector(n, b, s, c)),
            (2u64..4, 1u64..3, child()).prop_map(|(n, b, c)| {
                let s = c.flat().extent() * b as i64;
                Spec::Vector(n, b, s, c)
            }),
            (0u64..3, prop::collection::vec(displ(), 0..5), child())
                .prop_map(|(b, d, c)| Spec::BlockIndexed(b, d, c)),
            (prop::collection::vec((0u64..4, displ()), 0..5), child())
                .prop_map(|(b, c)| Spec::Indexed(b, c)),
            // Ascending blocks: monotone types.
            (prop::collection::vec((0u64..4, 0i64..3), 1..5), child()).prop_map(|(gaps, c)| {
                let extent = c.flat().extent();
                let mut at = 0;
                let blocks = gaps.iter().map(|&(n, gap)| {
                    let d = at + gap * extent;
                    at = d + n as i64 * extent;
                    (n, d)
                });
                Spec::Indexed(blocks.collect(), c)
            }),
            prop::collection::vec((0u64..3, displ(), inner.clone()), 0..4).prop_map(Spec::Struct),
            (
                -20i64..20,
                prop_oneof![9 => 0i64..60, 1 => -30i64..0],
                child()
            )
                .prop_map(|(lb, e, c)| Spec::Resized(lb, e, c)),
            (prop::collection::vec(dim(), 1..4), any::<bool>(), child())
                .prop_map(|(d, f, c)| Spec::Subarray(d, f, c)),
            (
                prop::collection::vec(shared_dim(), 1..3),
                any::<bool>(),
                child()
            )
                .prop_map(|(d, f, c)| Spec::Darray(d, f, c)),
        ]
    })
    .prop_filter("small", |s| s.flat().bytes.len() <= 4000)
}

/// Coalesced runs of a list of byte offsets.
fn runs(bytes: &[i64]) -> Vec<Run> {
    let mut out: Vec<Run> = Vec::new();
    for &b in bytes {
        match out.last_mut() {
            Some(r) if r.offset + r.len as i64 == b => r.len += 1,
            _ => out.push(Run { offset: b, len: 1 }),
        }
    }
    out
}

fn ascending(bytes: &[i64]) -> bool {
    bytes.windows(2).all(|w| w[0] < w[1])
}

/// A pattern over a type: the type, tile displacement, first byte and length (in stream bytes).
fn pattern() -> impl Strategy<Value = (Spec, i64, u64, u64)> {
    spec().prop_flat_map(|s| {
        let n = s.flat().bytes.len() as u64;
        let most = if n == 0 { 0 } else { 3 * n };
        (Just(s), -50i64..50, 0..=most, 0..=most)
    })
}

fn bytes_of(s: &Spec, disp: i64, start: u64, len: u64) -> (Pattern, Vec<i64>) {
    let flat = s.flat();
    let expected = if len == 0 {
        Vec::new()
    } else {
        flat.tile(disp, start, len)
    };
    (Pattern::new(disp, s.build(), start, len).unwrap(), expected)
}

/// Many cases, since each is quick; `PROPTEST_CASES` decides if it is set. No files are written.
fn config() -> ProptestConfig {
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() {
        ProptestConfig::default().cases
    } else {
        1500
    };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn one_instance(s in spec()) {
        let (l, flat) = (s.build(), s.flat());
        prop_assert_eq!(l.size(), flat.bytes.len() as u64);
        prop_assert_eq!(l.lb(), flat.lb);
        prop_assert_eq!(l.extent(), flat.extent());
        if let (Some(lo), Some(hi)) = (flat.bytes.iter().min(), flat.bytes.iter().max()) {
            prop_assert_eq!(l.true_lb(), *lo);
            prop_assert_eq!(l.true_extent(), (hi - lo + 1) as u64);
            let tiled = flat.tile(0, 0, 3 * l.size());
            prop_assert_eq!(l.is_monotone(), ascending(&tiled));
            let whole = runs(&tiled).len() == 1 && flat.lb == *lo;
            prop_assert_eq!(l.is_contiguous(), whole);
        }
        prop_assert_eq!(l.regions(), runs(&flat.bytes).len() as u64);
    }

    #[test]
    fn coded((s, disp, start, len) in pattern()) {
        let l = s.build();
        let encoded = l.encode();
        let decoded = Loop::decode(&encoded).unwrap();
        prop_assert_eq!(&decoded, &l);
        prop_assert_eq!(decoded.hash(), l.hash());
        prop_assert_eq!((decoded.lb(), decoded.extent(), decoded.true_lb(), decoded.regions()),
            (l.lb(), l.extent(), l.true_lb(), l.regions()));
        let (_, expected) = bytes_of(&s, disp, start, len);
        let mut seen = Vec::new();
        Pattern::new(disp, decoded, start, len).unwrap().for_each_run(|_, r| seen.push(r));
        prop_assert_eq!(seen, runs(&expected));
    }

    #[test]
    fn ranges((s, disp, start, len) in pattern(), cuts in prop::collection::vec((0u64..200, 0u64..60), 1..6)) {
        let (p, expected) = bytes_of(&s, disp, start, len);
        let all = runs(&expected);
        let mut seen = Vec::new();
        let mut at = 0;
        p.for_each_run(|pos, r| { assert_eq!(pos, at); at += r.len; seen.push(r) });
        prop_assert_eq!(&seen, &all);
        prop_assert_eq!(p.regions(), all.len() as u64);
        prop_assert_eq!(p.is_contiguous(), all.len() <= 1);
        prop_assert!(!p.is_monotone() || ascending(&expected));
        prop_assert!(p.is_monotone() || !p.tile.is_monotone() && all.len() > 1);
        let bounds = expected.iter().min().zip(expected.iter().max()).map_or((0, 0), |(a, b)| (*a, b + 1));
        prop_assert_eq!(p.bounds(), bounds);
        let mut cursor = p.cursor();
        for (from, n) in cuts {
            let from = from.min(len);
            let n = n.min(len - from);
            let part = &expected[from as usize..(from + n) as usize];
            let slice = p.slice(from, n);
            let mut seen = Vec::new();
            slice.for_each_run(|_, r| seen.push(r));
            prop_assert_eq!(&seen, &runs(part));
            prop_assert_eq!(slice.regions(), seen.len() as u64);
            let bounds = part.iter().min().zip(part.iter().max()).map_or((0, 0), |(a, b)| (*a, b + 1));
            prop_assert_eq!(slice.bounds(), bounds);
            prop_assert_eq!(p.offset_at(from), expected.get(from as usize).copied());
            cursor.seek(from);
            prop_assert_eq!(cursor.position(), from);
            let mut left = n;
            let mut seen = Vec::new();
            while left > 0 {
                let r = cursor.next_run(left).unwrap();
                left -= r.len;
                seen.push(r);
            }
            prop_assert_eq!(&seen, &runs(part));
            prop_assert_eq!(cursor.position(), from + n);
        }
        cursor.seek(0);
        let mut seen = Vec::new();
        while let Some(r) = cursor.next_run(u64::MAX) { seen.push(r) }
        prop_assert_eq!(&seen, &all);
    }

    #[test]
    fn windows((s, disp, start, len) in pattern(), at in prop::collection::vec((-100i64..400, 0i64..100), 1..6)) {
        let (p, expected) = bytes_of(&s, disp, start, len);
        for (lo, width) in at {
            let below = p.stream_at(lo);
            prop_assert!(below <= len);
            if p.is_monotone() {
                prop_assert_eq!(below, expected.iter().filter(|&&b| b < lo).count() as u64);
                let w = p.window(lo, lo + width);
                let inside: Vec<i64> = expected.iter().copied().filter(|&b| lo <= b && b < lo + width).collect();
                let mut seen = Vec::new();
                w.for_each_run(|_, r| seen.push(r));
                prop_assert_eq!(seen, runs(&inside));
            }
        }
    }

    #[test]
    fn moved((s, disp, start, len) in pattern(), (t, disp2, start2, len2) in pattern(), cut in 0u64..100) {
        let (p, from) = bytes_of(&s, disp, start, len);
        let memory = Memory::over(&from);
        let base = memory.bytes.as_ptr().wrapping_offset(-memory.lo as isize);
        let wanted: Vec<u8> = from.iter().map(|b| memory.bytes[(b - memory.lo) as usize]).collect();
        // SAFETY: the memory covers all bytes of the pattern.
        let mut source = unsafe { Source::new(base, p.clone()) };
        let cut = cut.min(len);
        let mut packed = vec![0; len as usize];
        let (a, b) = packed.split_at_mut(cut as usize);
        source.gather(0, a);
        source.gather(cut, b);
        prop_assert_eq!(&packed, &wanted);
        let mut pieced = Vec::new();
        source.pieces(cut, len - cut, |b| pieced.extend_from_slice(b));
        prop_assert_eq!(&pieced, &wanted[cut as usize..]);

        let (q, to) = bytes_of(&t, disp2, start2, len2);
        let n = from.len().min(to.len());
        let mut image = Memory::over(&to);
        image.bytes.fill(0xee);
        let mut copied = image.clone();
        let mut expected = image.bytes.clone();
        for i in 0..n {
            expected[(to[i] - image.lo) as usize] = wanted[i];
        }
        let base2 = image.bytes.as_mut_ptr().wrapping_offset(-image.lo as isize);
        {
            // SAFETY: the image covers all bytes of the pattern; nothing else touches it here.
            let mut target = unsafe { Target::new(base2, q.clone()) };
            let cut = (cut as usize).min(n);
            target.scatter(0, &wanted[..cut]);
            target.scatter(cut as u64, &wanted[cut..n]);
        }
        prop_assert_eq!(&image.bytes, &expected);
        let base3 = copied.bytes.as_mut_ptr().wrapping_offset(-copied.lo as isize);
        // SAFETY: both memories cover their patterns and are different allocations.
        unsafe { copy(base, &p, base3, &q) };
        prop_assert_eq!(&copied.bytes, &expected);
        {
            // SAFETY: as above.
            let mut target = unsafe { Target::new(base2, q) };
            target.zero(0, n as u64);
        }
        for &b in &to[..n] {
            expected[(b - image.lo) as usize] = 0;
        }
        prop_assert_eq!(&image.bytes, &expected);
    }

    #[test]
    fn lists(regions in prop::collection::vec((-100i64..300, 0u64..20), 0..12)) {
        let expected: Vec<i64> = regions.iter().flat_map(|&(at, n)| at..at + n as i64).collect();
        let p = Pattern::list(&regions).unwrap();
        prop_assert_eq!(p.len, expected.len() as u64);
        let mut seen = Vec::new();
        p.for_each_run(|_, r| seen.push(r));
        prop_assert_eq!(seen, runs(&expected));
    }

    #[test]
    fn mutated(s in spec(), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(), truncate in any::<bool>()) {
        let mut bytes = s.build().encode().to_vec();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if truncate {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        if let Ok(l) = Loop::decode(&bytes) {
            prop_assert_eq!(&*l.encode(), &bytes[..]);
            survives(&l);
        }
    }

    #[test]
    fn garbage(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut bytes = bytes;
        if let Some(version) = bytes.first_mut() { *version = 1 }
        if let Ok(l) = Loop::decode(&bytes) {
            prop_assert_eq!(&*l.encode(), &bytes[..]);
            survives(&l);
        }
    }
}

/// Uses a decoded loop: hostile input must not overflow or loop for ever.
fn survives(l: &Loop) {
    let len = l.size().min(1000);
    for start in [0, l.size() / 2, l.size().saturating_sub(1), 7] {
        let Ok(p) = Pattern::new(-9, l.clone(), start, len) else {
            continue;
        };
        let (lo, hi) = p.bounds();
        assert!(len == 0 || lo < hi);
        let mut total = 0;
        p.for_each_run(|_, r| total += r.len);
        assert_eq!(total, len);
        let _ = (
            p.regions(),
            p.stream_at(lo),
            p.stream_at(hi),
            p.stream_at(i64::MAX),
        );
    }
}

#[derive(Debug, Clone)]
struct Memory {
    bytes: Vec<u8>,
    lo: i64,
}
impl Memory {
    /// Memory that spans the given offsets, each byte different from its neighbours.
    fn over(offsets: &[i64]) -> Memory {
        let lo = offsets.iter().min().copied().unwrap_or(0);
        let hi = offsets.iter().max().map_or(0, |b| b + 1);
        Memory {
            bytes: (lo..hi).map(|b| (b * 31 + b / 251) as u8).collect(),
            lo,
        }
    }
}
