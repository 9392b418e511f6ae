//! From a call to file system operations, as the methods of the MPI-IO library cut it (crates/mpiio/src/methods): the
//! same walks over the same loops, without the bytes.
//!
//! | method | one operation |
//! | --- | --- |
//! | posix | a region that is contiguous in file and memory |
//! | sieve | a buffer of the extent; a write with holes locks and reads it first |
//! | list | at most 64 such regions |
//! | datatype | the whole access |
//!
//! Two-phase is a matter of all ranks: see `collective`.
use crate::locks::Span;
use penstock_base::Op;
use penstock_datatype::Pattern;
use penstock_mpiio::Method;
use penstock_mpiio::planning::{Joint, first_offset};
use penstock_wire::message::MAX_LIST;
use std::collections::VecDeque;

/// Bytes of a list entry in a request: offset and length.
const ENTRY: u64 = 16;
/// Bytes of a loop in a request, as the codec makes them for the regular patterns of programs; those of irregular ones
/// grow with their regions.
const LOOP: u64 = 64;

/// The methods that are simulated; others are refused.
pub(crate) const SIMULATED: [Method; 5] = [
    Method::POSIX,
    Method::SIEVE,
    Method::TWO_PHASE,
    Method::LIST,
    Method::DATATYPE,
];

/// One file system operation.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub op: Op,
    /// What it covers of the file.
    pub pattern: Pattern,
    /// Pieces that the client gathers or scatters.
    pub regions: u64,
    /// Bytes that describe it in a request, beside the header.
    pub description: u64,
    /// Every server walks its regions, so each costs time there.
    pub structured: bool,
    /// The range that has to be locked before; the next write gives it up.
    pub lock: Option<Span>,
}

impl Operation {
    pub(crate) fn contiguous(op: Op, offset: i64, len: u64) -> Operation {
        Operation {
            op,
            pattern: Pattern::contiguous(offset, len),
            regions: 1,
            description: 0,
            structured: false,
            lock: None,
        }
    }

    /// All of an access with its loop.
    pub(crate) fn structured(op: Op, pattern: Pattern, memory_regions: u64) -> Operation {
        let regions = pattern.regions().max(memory_regions);
        let description = match pattern.is_contiguous() {
            true => 0,
            false if pattern.tile.kind() == "indexed" => ENTRY * pattern.tile.regions(),
            false => LOOP,
        };
        Operation {
            op,
            pattern,
            regions,
            description,
            structured: true,
            lock: None,
        }
    }
}

/// The operations of one access, one after the other.
pub(crate) enum Plan {
    Pieces {
        op: Op,
        file: Pattern,
        pieces: Box<Joint>,
        /// Regions in one operation.
        at_most: usize,
    },
    Sieve {
        op: Op,
        file: Pattern,
        at: i64,
        end: i64,
        buffer: i64,
        /// The write that follows its read.
        write: Option<Operation>,
    },
    Whole(Option<Operation>),
    /// An aggregator's.
    Several(VecDeque<Operation>),
}

impl Plan {
    /// How `method` performs an access of one rank; collective methods alone are datatype.
    pub(crate) fn new(
        method: Method,
        op: Op,
        file: Pattern,
        memory: Option<&Pattern>,
        sieve_buffer: u64,
    ) -> Plan {
        let contiguous;
        let memory = match memory {
            Some(memory) => memory,
            None => {
                contiguous = Pattern::contiguous(0, file.len);
                &contiguous
            }
        };
        if file.len == 0 {
            return Plan::Whole(None);
        }
        match method {
            Method::POSIX | Method::LIST => Plan::Pieces {
                op,
                pieces: Box::new(Joint::new(&file, memory)),
                at_most: if method == Method::LIST { MAX_LIST } else { 1 },
                file,
            },
            // Without holes there is nothing to sieve.
            Method::SIEVE if !file.is_contiguous() && file.is_monotone() => {
                let (at, end) = file.bounds();
                Plan::Sieve {
                    op,
                    file,
                    at,
                    end,
                    buffer: sieve_buffer.clamp(1, 1 << 40) as i64,
                    write: None,
                }
            }
            _ => {
                let regions = memory.regions();
                Plan::Whole(Some(Operation::structured(op, file, regions)))
            }
        }
    }
}

impl Iterator for Plan {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        match self {
            Plan::Whole(operation) => operation.take(),
            Plan::Several(operations) => operations.pop_front(),
            Plan::Pieces {
                op,
                file,
                pieces,
                at_most,
            } => {
                let first = pieces.next()?;
                if *at_most == 1 {
                    return Some(Operation::contiguous(*op, first.offset, first.len));
                }
                let mut len = first.len;
                let mut regions = 1;
                for piece in pieces.by_ref().take(*at_most - 1) {
                    len += piece.len;
                    regions += 1;
                }
                Some(Operation {
                    op: *op,
                    pattern: file.slice(first.stream, len),
                    regions,
                    description: regions * ENTRY,
                    structured: true,
                    lock: None,
                })
            }
            Plan::Sieve {
                op,
                file,
                at,
                end,
                buffer,
                write,
            } => {
                if let Some(write) = write.take() {
                    return Some(write);
                }
                while *at < *end {
                    let hi = at.saturating_add(*buffer).min(*end);
                    let (from, to) = (file.stream_at(*at), file.stream_at(hi));
                    if from == to {
                        let next = first_offset(file, from)?;
                        *at += (next - *at) / *buffer * *buffer;
                        continue;
                    }
                    let (lo, len) = (*at, (hi - *at) as u64);
                    *at = hi;
                    if *op == Op::Write && to - from < len {
                        *write = Some(Operation::contiguous(Op::Write, lo, len));
                        return Some(Operation {
                            lock: Some((lo, hi)),
                            ..Operation::contiguous(Op::Read, lo, len)
                        });
                    }
                    return Some(Operation::contiguous(*op, lo, len));
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_datatype::Loop;
    use penstock_mpiio::{Shape, predict};

    const BUFFER: u64 = 1 << 12;

    fn vector(count: u64, len: u64, stride: i64) -> Pattern {
        let tile = Loop::vector(count, 1, stride, &Loop::bytes(len)).unwrap();
        Pattern::new(100, tile, 0, count * len).unwrap()
    }

    #[test]
    fn operations_are_as_many_as_the_analytic_model_says() {
        for (file, memory) in [
            (vector(300, 64, 256), None),
            (vector(10, 512, 2048), Some(vector(640, 8, 24))),
        ] {
            let (lo, hi) = file.bounds();
            let shape = Shape {
                bytes: file.len,
                file_regions: file.regions(),
                memory_regions: memory.as_ref().map_or(1, Pattern::regions),
                extent: (hi - lo) as u64,
                ..Shape::default()
            };
            for method in [Method::POSIX, Method::SIEVE, Method::LIST, Method::DATATYPE] {
                let plan = Plan::new(method, Op::Read, file.clone(), memory.as_ref(), BUFFER);
                let (mut operations, mut bytes) = (0, 0);
                for operation in plan {
                    operations += 1;
                    bytes += operation.pattern.len;
                }
                let model = predict(method, &shape, BUFFER);
                assert_eq!(
                    (operations, bytes),
                    (model.operations, model.accessed_bytes),
                    "{method:?}"
                );
            }
        }
    }

    #[test]
    fn a_sieved_write_with_holes_reads_first() {
        let plan = Plan::new(Method::SIEVE, Op::Write, vector(64, 64, 256), None, BUFFER);
        let ops: Vec<Op> = plan.map(|o| o.op).collect();
        assert_eq!(
            ops,
            [
                Op::Read,
                Op::Write,
                Op::Read,
                Op::Write,
                Op::Read,
                Op::Write,
                Op::Read,
                Op::Write
            ]
        );
    }
}
