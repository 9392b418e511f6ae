//! The methods: ways of turning an access into file system operations (DT section II). There is one file per method,
//! with the name of its hint value `penstock_method`.
//!
//! A method is a file with its [`Row`] and a line in [`TABLE`]. Hints, `--help`, docs/use/hints.md, the candidates of
//! [`auto`], the counts of DT table I and the performing call come from the row.
pub(crate) mod access_sets;
pub(crate) mod auto;
pub(crate) mod cost;
pub(crate) mod datatype;
pub(crate) mod domains;
pub(crate) mod list;
pub(crate) mod manual;
pub(crate) mod node_exchange;
pub(crate) mod plan;
pub(crate) mod posix;
mod published_resonant;
pub(crate) mod resonant;
pub(crate) mod row;
pub(crate) mod sieve;
#[cfg(test)]
mod toy;
pub(crate) mod two_phase;

use domains::Seat;
use plan::{Alone, Plan};
use row::{Row, Work};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// All methods, in the order of listings.
const TABLE: &[&Row] = &[
    &posix::ROW,
    &sieve::ROW,
    &two_phase::ROW,
    &list::ROW,
    &datatype::ROW,
    &node_exchange::ROW,
    &resonant::ROW,
    #[cfg(test)]
    &toy::ALONE,
    #[cfg(test)]
    &toy::EXCHANGE,
    #[cfg(test)]
    &toy::TURNS,
];

/// A method: its index in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Method(u8);

impl Method {
    /// Number of methods.
    pub(crate) const COUNT: usize = TABLE.len();

    /// All methods.
    pub const ALL: [Method; Method::COUNT] = {
        // An announcement encodes a candidate, of which each method has two, as a byte.
        assert!(Method::COUNT < 128, "too many methods");
        let mut all = [Method(0); Method::COUNT];
        let mut i = 0;
        while i < all.len() {
            all[i] = Method(i as u8);
            i += 1;
        }
        all
    };

    const NAMES: [&'static str; Method::COUNT] = {
        let mut names = [""; Method::COUNT];
        let mut i = 0;
        while i < names.len() {
            names[i] = TABLE[i].name;
            i += 1;
        }
        names
    };

    /// The method of this name in the table, for constants; does not compile if there is none.
    const fn named(name: &str) -> Method {
        let mut i = 0;
        while i < TABLE.len() {
            if is_same(TABLE[i].name, name) {
                return Method(i as u8);
            }
            i += 1;
        }
        panic!("the table has no method of this name");
    }

    pub(crate) fn row(self) -> &'static Row {
        TABLE[self.index()]
    }

    /// Index into arrays of one entry for each method.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Its name in hints, environment and statistics.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// From its name.
    pub fn parse(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|m| m.name() == name)
    }

    /// Its plan for an access of one rank; `None` for collective methods.
    pub fn plan_alone(self, access: &Alone) -> Option<Box<dyn Plan>> {
        match self.row().work {
            Work::Alone { plan, .. } => Some(plan(access)),
            Work::Exchange { .. } | Work::SharedMemory { .. } => None,
        }
    }

    /// Its plan for a rank of a collective access; `None` for methods of one rank.
    pub fn plan_together(self, seat: Seat) -> Option<Box<dyn Plan>> {
        match self.row().work {
            Work::Alone { .. } => None,
            Work::Exchange { plan, .. } | Work::SharedMemory { plan, .. } => Some(plan(seat)),
        }
    }

    /// Whether the ranks must share memory.
    pub fn needs_shared_memory(self) -> bool {
        matches!(self.row().work, Work::SharedMemory { .. })
    }

    /// Whether the ranks of a collective call work together.
    pub fn is_collective(self) -> bool {
        !matches!(self.row().work, Work::Alone { .. })
    }
}

/// Parses the hint `penstock_method`: a method, or `None` for [`auto`]; outer `None` if it is neither.
pub(crate) fn parse_choice(value: &str) -> Option<Option<Method>> {
    match value {
        auto::NAME => Some(None),
        name => Method::parse(name).map(Some),
    }
}

/// The values of the hint `penstock_method`, each with a summary in one line.
pub fn method_values() -> impl Iterator<Item = (&'static str, &'static str)> {
    let methods = Method::ALL.into_iter();
    methods
        .map(|method| (method.name(), method.row().summary))
        .chain([(auto::NAME, auto::SUMMARY)])
}

/// The value of the hint `penstock_method` for a choice.
pub(crate) fn choice_name(choice: Option<Method>) -> &'static str {
    choice.map_or(auto::NAME, Method::name)
}

/// The values of the hint `penstock_method`, for messages.
pub(crate) fn choices() -> String {
    format!("{}, {}", auto::NAME, Method::NAMES.join(", "))
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Method {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Method {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
        let name = String::deserialize(deserializer)?;
        Method::parse(&name).ok_or_else(|| D::Error::unknown_variant(&name, &Method::NAMES))
    }
}

/// Whether two names are equal, in constants.
const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut same = a.len() == b.len();
    let mut i = 0;
    while same && i < a.len() {
        same = a[i] == b[i];
        i += 1;
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back_to_their_methods() {
        for method in Method::ALL {
            assert_eq!(Method::parse(method.name()), Some(method));
            assert_eq!(parse_choice(method.name()), Some(Some(method)));
            let json = serde_json::to_string(&method).unwrap();
            assert_eq!(serde_json::from_str::<Method>(&json).unwrap(), method);
        }
        assert_eq!(parse_choice("auto"), Some(None));
        assert_eq!(parse_choice("fast"), None);
        let why = serde_json::from_str::<Method>("\"fast\"")
            .unwrap_err()
            .to_string();
        assert!(
            why.contains("`fast`") && why.contains("`two-phase`"),
            "{why}"
        );
    }
}
