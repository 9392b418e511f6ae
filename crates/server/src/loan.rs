//! What threads that wait lend to the one that serves: their buffers and what to do with them.
use crate::access::Access;
use penstock_sched::Op;
use penstock_store::{Object, Scratch};
use penstock_wire::message::WireError;
use std::sync::Arc;

/// A slice of a request, with all that serving it takes.
pub(crate) struct Loan {
    pub(crate) object: Arc<dyn Object>,
    pub(crate) access: Access,
    pub(crate) buffer: Vec<u8>,
    pub(crate) len: usize,
}

/// Serves the parts of a virtual request: runs that follow each other in one call, the others one by one.
pub(crate) fn serve(
    op: Op,
    loans: &mut [Loan],
    scratch: &mut Scratch,
) -> Vec<Result<usize, WireError>> {
    let mut results = Vec::with_capacity(loans.len());
    let mut from = 0;
    while from < loans.len() {
        let mut to = from + 1;
        while to < loans.len() && follows(&loans[to - 1], &loans[to]) {
            to += 1;
        }
        match &mut loans[from..to] {
            [one] => results.push(one.serve(op, scratch)),
            several => together(op, several, &mut results),
        }
        from = to;
    }
    results
}

/// One begins where the other ends, and both are one run.
fn follows(one: &Loan, other: &Loan) -> bool {
    let run = |loan: &Loan| Some((loan.access.run()?, loan.len as u64));
    match (run(one), run(other)) {
        (Some((a, len)), Some((b, other))) => {
            a.start + len == b.start && len <= a.end - a.start && other <= b.end - b.start
        }
        _ => false,
    }
}

fn together(op: Op, loans: &mut [Loan], results: &mut Vec<Result<usize, WireError>>) {
    let object = loans[0].object.clone();
    let accesses = loans
        .iter_mut()
        .map(|loan| (&mut loan.access, &mut loan.buffer[..loan.len]));
    match op {
        Op::Read => Access::read_runs(&*object, accesses.collect(), results),
        Op::Write => Access::write_runs(&*object, accesses.collect(), results),
    }
}

impl Loan {
    fn serve(&mut self, op: Op, scratch: &mut Scratch) -> Result<usize, WireError> {
        let bytes = &mut self.buffer[..self.len];
        match op {
            Op::Read => self.access.read(Some(&*self.object), bytes, scratch),
            Op::Write => self.access.write(&*self.object, bytes, scratch),
        }
    }
}
