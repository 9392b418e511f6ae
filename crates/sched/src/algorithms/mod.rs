//! The algorithms, one file each.
mod aioli;
mod mlf;
mod noop;
mod shortest;
mod sjf;
mod srtf;
mod sw;
mod to;
mod to_agg;
mod twins;
mod wfq;

use crate::table::Table;
use crate::waiting::{Company, Waiting};
use crate::{Algorithm, Nanos, Options};

/// What an algorithm decides.
pub(crate) enum Choice {
    /// This virtual request, which has been taken from the table.
    Serve(usize),
    /// Nothing before this time.
    Wait(Nanos),
    /// Nothing is queued, or all of it waits for a completion.
    Nothing,
}

/// An algorithm: places arrivals in the table and in sets of its own, and chooses.
pub(crate) trait Policy: Send {
    /// A request may be chosen from now on.
    fn add(&mut self, table: &mut Table, entry: usize);

    /// Chooses. Who waits for company asks whether more is to be expected.
    fn next(&mut self, table: &mut Table, now: Nanos, company: &mut Company<'_>) -> Choice;

    /// Goes by arrival alone: what is all that is queued is next, and need not be placed.
    fn goes_by_arrival(&self) -> bool {
        false
    }

    /// Wants to be asked although nothing is queued.
    fn is_under_way(&self) -> bool {
        false
    }
}

/// The one that the options name.
pub(crate) fn policy(options: &Options) -> Box<dyn Policy> {
    match options.algorithm {
        Algorithm::Noop => Box::new(noop::Noop),
        Algorithm::To => Box::new(to::To),
        Algorithm::ToAgg => Box::new(to_agg::ToAgg),
        Algorithm::Sjf => Box::new(sjf::new(options)),
        Algorithm::Mlf => Box::new(mlf::Mlf::new(options)),
        Algorithm::Aioli => Box::new(aioli::Aioli::new(options)),
        Algorithm::Sw => Box::new(sw::Sw::new(options)),
        Algorithm::Twins => Box::new(twins::Twins::new(options)),
        Algorithm::Wfq => Box::new(wfq::Wfq::new(options)),
        Algorithm::Srtf => Box::new(srtf::new(options)),
    }
}

impl Choice {
    /// What queues that wait leave to do.
    fn none_but(waiting: &Waiting) -> Choice {
        waiting.first().map_or(Choice::Nothing, Choice::Wait)
    }
}

/// The oldest one: what every first-come-first-served algorithm chooses.
fn serve_oldest(table: &mut Table) -> Choice {
    let Some(at) = table.oldest() else {
        return Choice::Nothing;
    };
    table.take(at);
    Choice::Serve(at)
}
