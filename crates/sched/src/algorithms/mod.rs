//! The algorithms: one file each, and one line of the table below.
//!
//! A file holds the algorithm and its [`Row`]. Names, `--help`, the table of docs/administer/scheduling.md and the
//! default of `aggregation` come from the row. `toy` is the smallest example.
mod shortest;

use crate::table::Table;
use crate::waiting::{Company, Waiting};
use crate::{Error, Nanos, Options};
use std::fmt;
use std::str::FromStr;

/// What the rest of the crate knows of an algorithm.
pub(crate) struct Row {
    /// The name that users write.
    pub name: &'static str,
    /// Which request is next, for docs/administer/scheduling.md.
    pub next: &'static str,
    /// Most requests in one virtual request, unless the options say otherwise (v1 of AGIOS). 1: no aggregation.
    pub aggregation: u32,
    /// When it pays, for docs/administer/scheduling.md.
    pub pays: &'static str,
    /// Makes an instance.
    pub policy: fn(&Options) -> Box<dyn Policy>,
}

/// Declares the algorithms: the modules, the type that names them, and their rows.
macro_rules! table {
    ($($(#[$when:meta])? $name:ident = $file:ident;)*) => {
        $($(#[$when])? mod $file;)*

        /// An algorithm; each has a file of its name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Algorithm {
            $($(#[$when])? #[doc = concat!("algorithms/", stringify!($file), ".rs")] $name,)*
        }

        const ROWS: &[(Algorithm, &Row)] = &[$($(#[$when])? (Algorithm::$name, &$file::ROW)),*];
    };
}

// Simplest first.
table! {
    Noop = noop;
    To = to;
    ToAgg = to_agg;
    Sjf = sjf;
    Mlf = mlf;
    Aioli = aioli;
    Sw = sw;
    Twins = twins;
    Wfq = wfq;
    Srtf = srtf;
    #[cfg(test)] Toy = toy;
}

impl Algorithm {
    /// All, simplest first.
    pub const ALL: [Algorithm; ROWS.len()] = {
        let mut all = [Algorithm::Noop; ROWS.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = ROWS[i].0;
            i += 1;
        }
        all
    };

    fn row(self) -> &'static Row {
        ROWS[self as usize].1
    }

    /// The name that users write.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// All names, for messages.
    pub fn names() -> String {
        Algorithm::ALL.map(Algorithm::name).join(", ")
    }

    /// Most requests in one virtual request by default, see [`Row::aggregation`].
    pub(crate) fn aggregation(self) -> u32 {
        self.row().aggregation
    }

    /// The table of docs/administer/scheduling.md.
    pub fn manual() -> String {
        let mut out = String::from(
            "| name | the next request is | joins | when it pays |\n| --- | --- | --- | --- |\n",
        );
        for algorithm in Algorithm::ALL {
            let row = algorithm.row();
            let joins = if row.aggregation == 1 {
                "–".to_owned()
            } else {
                row.aggregation.to_string()
            };
            out += &format!("| {} | {} | {joins} | {} |\n", row.name, row.next, row.pays);
        }
        out
    }
}

impl Default for Algorithm {
    /// No scheduling.
    fn default() -> Algorithm {
        Algorithm::Noop
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = Error;

    /// Names in any case; `_` and `-` are the same.
    fn from_str(text: &str) -> Result<Algorithm, Error> {
        let wanted = text.to_ascii_lowercase().replace('_', "-");
        Algorithm::ALL
            .into_iter()
            .find(|a| a.name() == wanted)
            .ok_or_else(|| Error::UnknownAlgorithm(text.to_owned()))
    }
}

/// What an algorithm decides.
pub(crate) enum Choice {
    /// This virtual request, which has been taken from the table.
    Serve(usize),
    /// Nothing before this time.
    Wait(Nanos),
    /// Nothing is queued, or all of it waits for a completion.
    Nothing,
}

/// An algorithm: files arrivals in the table and in sets of its own, and chooses.
pub(crate) trait Policy: Send {
    /// Adds a request that may be chosen from now on.
    fn add(&mut self, table: &mut Table, entry: usize);

    /// Chooses what to do now. An algorithm that waits for aggregation asks `company` how long to wait.
    fn next(&mut self, table: &mut Table, now: Nanos, company: &mut Company<'_>) -> Choice;

    /// Whether order of arrival alone decides: a request that is alone in the queue is then next, and need not be
    /// filed.
    fn goes_by_arrival(&self) -> bool {
        false
    }

    /// Whether it must be asked although nothing is queued.
    fn is_under_way(&self) -> bool {
        false
    }
}

/// An instance of the algorithm that the options name.
pub(crate) fn policy(options: &Options) -> Box<dyn Policy> {
    (options.algorithm.row().policy)(options)
}

impl Choice {
    /// The choice when all queues wait: until the first wait ends.
    fn none_but(waiting: &Waiting) -> Choice {
        waiting.first().map_or(Choice::Nothing, Choice::Wait)
    }
}

/// Serves the oldest request, as every first-come-first-served algorithm does.
fn serve_oldest(table: &mut Table) -> Choice {
    let Some(at) = table.oldest() else {
        return Choice::Nothing;
    };
    table.take(at);
    Choice::Serve(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back_to_their_algorithms() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            assert_eq!(algorithm.name().to_uppercase().parse(), Ok(algorithm));
        }
        assert_eq!("to_agg".parse(), Ok(Algorithm::ToAgg));
        let error = "cfq".parse::<Algorithm>().unwrap_err().to_string();
        assert!(error.contains("cfq") && error.contains("to-agg"), "{error}");
    }

    #[test]
    fn the_manual_has_the_table() {
        let manual = include_str!("../../../../docs/administer/scheduling.md");
        let table = Algorithm::manual();
        for line in table.lines().filter(|line| !line.starts_with("| toy ")) {
            assert!(
                manual.contains(line),
                "docs/administer/scheduling.md has to say {line}"
            );
        }
    }
}
