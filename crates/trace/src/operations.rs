//! The table of operations: what a record does. Numbers never change; names are those of the functions, or plain words.
//!
//! `operations.txt` is the table. The C wrappers are made from the same file.
use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

/// What a record does: a number of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operation(pub u16);

/// What an operation does to bytes and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes come from a file.
    Read,
    /// Bytes go to a file.
    Write,
    /// A file is opened or made.
    Open,
    /// A file is closed.
    Close,
    /// Bytes are brought to stable storage.
    Flush,
    /// Everything else.
    Other,
}

impl Kind {
    /// As the table writes it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Open => "open",
            Kind::Close => "close",
            Kind::Flush => "flush",
            Kind::Other => "other",
        }
    }

    fn from_name(name: &str) -> Option<Kind> {
        let all = [
            Kind::Read,
            Kind::Write,
            Kind::Open,
            Kind::Close,
            Kind::Flush,
            Kind::Other,
        ];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

impl Operation {
    /// Unknown.
    pub const NONE: Operation = Operation(0);
    /// Bytes come.
    pub const READ: Operation = Operation(1);
    /// Bytes go.
    pub const WRITE: Operation = Operation(2);
    /// A file is opened.
    pub const OPEN: Operation = Operation(3);
    /// A file is closed.
    pub const CLOSE: Operation = Operation(4);
    /// Bytes are brought to stable storage.
    pub const SYNC: Operation = Operation(5);
    /// A file gets another size.
    pub const RESIZE: Operation = Operation(6);
    /// Attributes or the size are asked for.
    pub const STAT: Operation = Operation(7);
    /// A range is locked.
    pub const LOCK: Operation = Operation(8);
    /// A range is unlocked.
    pub const UNLOCK: Operation = Operation(9);
    /// A name is removed.
    pub const REMOVE: Operation = Operation(10);
    /// A name is changed.
    pub const RENAME: Operation = Operation(11);
    /// A file is made.
    pub const CREATE: Operation = Operation(12);
    /// Space is reserved.
    pub const RESERVE: Operation = Operation(13);
    /// A descriptor is asked for or given back.
    pub const DESCRIPTOR: Operation = Operation(14);
    /// Anything else that a client asks of a server.
    pub const CONTROL: Operation = Operation(15);
    /// Bytes were lent to a mount's kernel: what it does with them is not recorded.
    pub const LENT: Operation = Operation(16);
    /// Decision: the request goes to the store alone.
    pub const ALONE: Operation = Operation(32);
    /// Decision: it goes together with others.
    pub const JOINED: Operation = Operation(33);
    /// Decision: the scheduler waits for more to join.
    pub const WAIT: Operation = Operation(34);

    /// An independent read of the MPI-IO library, however the program named its place.
    pub const MPI_READ: Operation = Operation(1516);
    /// A collective one.
    pub const MPI_READ_ALL: Operation = Operation(1517);
    /// An independent write.
    pub const MPI_WRITE: Operation = Operation(1533);
    /// A collective one.
    pub const MPI_WRITE_ALL: Operation = Operation(1534);

    /// The operation with this name.
    pub fn from_name(name: &str) -> Option<Operation> {
        TABLE.by_name.get(name).copied()
    }

    /// Its name; `operation-N` for a number that this table does not have: a later version wrote it.
    pub fn name(self) -> Name {
        Name(self)
    }

    /// Its name, if the table has it.
    pub fn known_name(self) -> Option<&'static str> {
        TABLE.row(self).map(|row| row.name)
    }

    /// What it does to bytes and names.
    pub fn kind(self) -> Kind {
        TABLE.row(self).map_or(Kind::Other, |row| row.kind)
    }

    /// All of the table, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Operation> {
        let rows = TABLE.rows.iter().enumerate();
        rows.filter(|(_, row)| row.is_some())
            .map(|(number, _)| Operation(number as u16))
    }
}

/// The name of an operation, to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name(Operation);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.known_name() {
            Some(name) => f.pad(name),
            None => f.pad(&format!("operation-{}", (self.0).0)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Row {
    name: &'static str,
    kind: Kind,
}

struct Table {
    rows: Vec<Option<Row>>,
    by_name: HashMap<&'static str, Operation>,
}

impl Table {
    fn row(&self, operation: Operation) -> Option<Row> {
        self.rows.get(operation.0 as usize).copied().flatten()
    }
}

/// The file; a test checks that every line is one that [`parse`] takes.
const TEXT: &str = include_str!("operations.txt");

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table {
        rows: Vec::new(),
        by_name: HashMap::new(),
    };
    for (number, kind, name) in TEXT.lines().filter_map(parse) {
        let at = number as usize;
        if table.rows.len() <= at {
            table.rows.resize(at + 1, None);
        }
        table.rows[at] = Some(Row { name, kind });
        table.by_name.insert(name, Operation(number));
    }
    table
});

/// `NUMBER KIND NAME`.
fn parse(line: &'static str) -> Option<(u16, Kind, &'static str)> {
    let mut words = line.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let kind = Kind::from_name(words.next()?)?;
    let name = words.next()?;
    words.next().is_none().then_some((number, kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_line_is_a_row_and_numbers_and_names_stand_once() {
        let (mut numbers, mut names) = (HashSet::new(), HashSet::new());
        for line in TEXT.lines() {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let row = parse(line).unwrap_or_else(|| panic!("no row: {line:?}"));
            assert!(numbers.insert(row.0), "twice: {line}");
            assert!(names.insert(row.2), "twice: {line}");
        }
        assert!(numbers.len() > 50);
    }

    #[test]
    fn constants_are_rows_of_the_table() {
        let constants = [
            (Operation::READ, "read"),
            (Operation::WRITE, "write"),
            (Operation::OPEN, "open"),
            (Operation::CLOSE, "close"),
            (Operation::SYNC, "sync"),
            (Operation::RESIZE, "resize"),
            (Operation::STAT, "stat"),
            (Operation::LOCK, "lock"),
            (Operation::UNLOCK, "unlock"),
            (Operation::REMOVE, "remove"),
            (Operation::RENAME, "rename"),
            (Operation::CREATE, "create"),
            (Operation::RESERVE, "reserve"),
            (Operation::DESCRIPTOR, "descriptor"),
            (Operation::CONTROL, "control"),
            (Operation::LENT, "lent"),
            (Operation::ALONE, "alone"),
            (Operation::JOINED, "joined"),
            (Operation::WAIT, "wait"),
            (Operation::MPI_READ, "MPI_File_read"),
            (Operation::MPI_READ_ALL, "MPI_File_read_all"),
            (Operation::MPI_WRITE, "MPI_File_write"),
            (Operation::MPI_WRITE_ALL, "MPI_File_write_all"),
        ];
        for (operation, name) in constants {
            assert_eq!(operation.known_name(), Some(name));
            assert_eq!(Operation::from_name(name), Some(operation));
        }
        assert_eq!(Operation(65535).name().to_string(), "operation-65535");
    }
}
