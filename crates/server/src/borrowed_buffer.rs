//! Borrowed buffers: the serving thread uses the buffers of waiting threads.
use crate::access::Access;
use penstock_sched::Op;
use penstock_store::{Object, Scratch};
use penstock_wire::message::WireError;
use std::sync::Arc;

/// A slice of a request, with everything needed to serve it.
pub(crate) struct BorrowedBuffer {
    pub(crate) object: Arc<dyn Object>,
    pub(crate) access: Access,
    pub(crate) buffer: Vec<u8>,
    pub(crate) len: usize,
}

/// Serves the parts of a virtual request: adjacent runs in one call, the others one by one.
pub(crate) fn serve(
    op: Op,
    borrowed: &mut [BorrowedBuffer],
    scratch: &mut Scratch,
) -> Vec<Result<usize, WireError>> {
    let mut results = Vec::with_capacity(borrowed.len());
    let mut from = 0;
    while from < borrowed.len() {
        let mut to = from + 1;
        while to < borrowed.len() && follows(&borrowed[to - 1], &borrowed[to]) {
            to += 1;
        }
        match &mut borrowed[from..to] {
            [one] => results.push(one.serve(op, scratch)),
            several => together(op, several, &mut results),
        }
        from = to;
    }
    results
}

/// Whether one begins where the other ends, and both are single runs.
fn follows(one: &BorrowedBuffer, other: &BorrowedBuffer) -> bool {
    let run = |borrowed: &BorrowedBuffer| Some((borrowed.access.run()?, borrowed.len as u64));
    match (run(one), run(other)) {
        (Some((a, len)), Some((b, other))) => {
            a.start + len == b.start && len <= a.end - a.start && other <= b.end - b.start
        }
        _ => false,
    }
}

fn together(op: Op, borrowed: &mut [BorrowedBuffer], results: &mut Vec<Result<usize, WireError>>) {
    let object = borrowed[0].object.clone();
    let accesses = borrowed
        .iter_mut()
        .map(|borrowed| (&mut borrowed.access, &mut borrowed.buffer[..borrowed.len]));
    match op {
        Op::Read => Access::read_runs(&*object, accesses.collect(), results),
        Op::Write => Access::write_runs(&*object, accesses.collect(), results),
    }
}

impl BorrowedBuffer {
    fn serve(&mut self, op: Op, scratch: &mut Scratch) -> Result<usize, WireError> {
        let bytes = &mut self.buffer[..self.len];
        match op {
            Op::Read => self.access.read(Some(&*self.object), bytes, scratch),
            Op::Write => self.access.write(&*self.object, bytes, scratch),
        }
    }
}
