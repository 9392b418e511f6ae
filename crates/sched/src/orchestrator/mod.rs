//! IOrchestrator: all data servers serve one program at a time, where that pays (RS chapter 5).
//!
//! **Problem.** A program whose requests are close together on each disk loses that when another program runs beside it:
//! heads go to and fro. A server alone cannot help, because a program's next request waits for the other servers.
//! **Idea.** Each server measures how far apart requests are, of all and of each program ([`Locality`]). The
//! [`Orchestrator`] finds the programs that should have the servers to themselves. It tells all servers at the same
//! time whose turn it is. A [`Gate`] at each server holds back the requests of all others meanwhile.
//! **When it pays.** Several programs, each sequential, on disks; never on flash.
//! **Parameters.** [`Options`]. **Source.** RS 5.2.
//!
//! All three are plain state machines without a clock, and know nothing of who carries their messages. Programs may share
//! files, because each request names its program. What the source does not say, and how it is here:
//!
//! - Slices follow each other by program number, the others' slice is the last.
//! - Reports come once a window. A window without reports, or without an eligible program, leaves all gates open.
//! - A program that meets the first two conditions gets a slice on trial, to measure its reuse distance. It is as large
//!   as the mean of the others. One that fails the third is tried again after [`Options::again`] windows.
//! - Turns that do not pay end. Four windows in turns must move as many bytes in their time as the last window with open
//!   gates. Otherwise gates stay open for [`Options::again`] windows.
//! - What a report tells is the mean over the window, because the printed weights leave the last distance 7/8 of the value.
//! - A gate opens by itself when it has heard nothing for two windows.
mod gate;
mod locality;
mod plan;

pub use gate::{Gate, Turn};
pub use locality::{Locality, Measured, ProgramLocality};
pub use plan::{Eligibility, Orchestrator, Slice};

use penstock_base::Nanos;

/// Whom servers serve.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// Everybody.
    All,
    /// One program.
    Program(u64),
    /// Everybody but these programs.
    Others(Vec<u64>),
}

impl Object {
    /// Whether requests of a program may be served.
    pub fn admits(&self, program: u64) -> bool {
        match self {
            Object::All => true,
            Object::Program(only) => *only == program,
            Object::Others(eligible) => !eligible.contains(&program),
        }
    }
}

/// How windows are divided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Slicing {
    /// Inversely to the objects' reuse distances.
    #[default]
    ReuseDistance,
    /// Evenly.
    Even,
}

/// Settings of the orchestrator. The defaults are the source's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Time in which each object has its slice once.
    pub window: Nanos,
    /// How it is divided.
    pub slicing: Slicing,
    /// Largest standard deviation over the servers, as a share of the mean.
    pub spread: f64,
    /// Least quotient of all requests' distance and the program's own.
    pub gain: f64,
    /// Shortest slice: what is shorter is lost in switching.
    pub least: Nanos,
    /// Windows after which a program is tried again that had been too slow to come back, and turns that did not pay.
    pub again: u32,
    /// Windows in turns after which they have to have paid.
    pub proof: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            window: 500_000_000,
            slicing: Slicing::ReuseDistance,
            spread: 0.2,
            gain: 1.5,
            least: 10_000_000,
            again: 20,
            proof: 4,
        }
    }
}

/// Programs that an orchestrator and a server keep apart; the requests of further ones count as one program's.
pub const MOST_PROGRAMS: usize = 256;
