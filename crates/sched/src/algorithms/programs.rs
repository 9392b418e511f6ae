//! One queue per program, first come first served: what TWINS and WFQ share.
use crate::slab::{NONE, Slab};
use crate::table::{Map, Table};

/// A program with requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    pub(super) program: u32,
    pub(super) first: u32,
    last: u32,
    /// WFQ: bytes it may still send.
    pub(super) deficit: u64,
    /// WFQ: bytes it gets per round.
    pub(super) share: u64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Programs {
    pub(super) slab: Slab<Program>,
    by_number: Map<u32>,
}

impl Programs {
    /// The number of the program's record; `true` if it had no request before.
    pub(super) fn push(
        &mut self,
        table: &mut Table,
        at: u32,
        share: impl FnOnce(u32) -> u64,
    ) -> (u32, bool) {
        let program = table.virtuals[at].program;
        if let Some(known) = self.by_number.get(&program.into()) {
            let p = &mut self.slab[*known];
            table.virtuals[p.last].chain = at;
            p.last = at;
            return (*known, false);
        }
        let number = self.slab.insert(Program {
            program,
            first: at,
            last: at,
            deficit: 0,
            share: share(program),
        });
        self.by_number.insert(program.into(), number);
        (number, true)
    }

    /// Takes the first request of a program; `true` if it was its last one and the record is gone.
    pub(super) fn pop(&mut self, table: &Table, number: u32) -> (u32, bool) {
        let p = &mut self.slab[number];
        let at = p.first;
        p.first = table.virtuals[at].chain;
        if p.first != NONE {
            return (at, false);
        }
        self.by_number.remove(&p.program.into());
        self.slab.free(number);
        (at, true)
    }
}
