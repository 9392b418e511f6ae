//! Constructors with arbitrary arguments, nested: an error or a loop that survives its encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_datatype::{Distribution, Loop, Order, Result};

/// Arguments out of the input; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self
            .0
            .split_first()
            .map_or((0, self.0), |(b, rest)| (*b, rest));
        self.0 = rest;
        first
    }
    /// Mostly small; sometimes at the edge of the range.
    fn number(&mut self) -> u64 {
        match self.byte() {
            b @ 0..200 => b as u64 % 20,
            200..230 => 1 << (self.byte() % 64),
            230..250 => (1 << (self.byte() % 64)) - 1,
            _ => u64::MAX - self.byte() as u64,
        }
    }
    fn signed(&mut self) -> i64 {
        let v = self.number() as i64;
        if self.byte() & 1 == 0 {
            v
        } else {
            v.wrapping_neg()
        }
    }
    fn order(&mut self) -> Order {
        if self.byte() & 1 == 0 {
            Order::C
        } else {
            Order::Fortran
        }
    }
    fn distribution(&mut self) -> Distribution {
        match self.byte() % 5 {
            0 => Distribution::None,
            1 => Distribution::Block(None),
            2 => Distribution::Block(Some(self.number())),
            3 => Distribution::Cyclic(None),
            _ => Distribution::Cyclic(Some(self.number())),
        }
    }
    fn list<T>(&mut self, mut f: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.byte() % 5).map(|_| f(self)).collect()
    }
    fn build(&mut self, child: &Loop, other: &Loop) -> Result<Loop> {
        match self.byte() % 9 {
            0 => Loop::contig(self.number(), child),
            1 => Loop::vector(self.number(), self.number(), self.signed(), child),
            2 => {
                let displs = self.list(Self::signed);
                Loop::blockindexed(self.number(), &displs, child)
            }
            3 => {
                let (lens, displs) = (self.list(Self::number), self.list(Self::signed));
                Loop::indexed(&lens, &displs, child)
            }
            4 => {
                let fields = self.list(|i| {
                    let of = if i.byte() & 1 == 0 { child } else { other };
                    (i.number(), i.signed(), of.clone())
                });
                Loop::structure(&fields)
            }
            5 => child.resized(self.signed(), self.signed()),
            6 => {
                let (sizes, subs) = (self.list(Self::number), self.list(Self::number));
                let starts = self.list(Self::number);
                Loop::subarray(&sizes, &subs, &starts, self.order(), child)
            }
            7 => {
                let (sizes, how) = (self.list(Self::number), self.list(Self::distribution));
                let procs = self.list(Self::number);
                Loop::darray(
                    self.number(),
                    self.number(),
                    &sizes,
                    &how,
                    &procs,
                    self.order(),
                    child,
                )
            }
            _ => Ok(Loop::bytes(self.number() & i64::MAX as u64)),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let (mut last, mut before) = (Loop::bytes(4), Loop::bytes(1));
    for _ in 0..12 {
        let Ok(built) = input.build(&last, &before) else {
            continue;
        };
        (before, last) = (last, built);
        let encoded = last.encode();
        let decoded = Loop::decode(&encoded).expect("an encoding decodes");
        assert_eq!(decoded, last);
        assert_eq!(decoded.is_monotone(), last.is_monotone());
        assert_eq!(decoded.regions(), last.regions());
    }
});
