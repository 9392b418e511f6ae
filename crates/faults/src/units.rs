//! Virtual time, and numbers of processes and machines.
pub(crate) use penstock_base::Nanos;
/// One millisecond.
pub(crate) const MS: Nanos = 1_000_000;
/// One second.
pub(crate) const SECOND: Nanos = 1_000 * MS;

/// A process, by number.
pub(crate) type ProcessId = usize;
/// A machine, by number: 0 is the metadata server's; the data servers' and the clients' follow.
pub(crate) type MachineId = usize;
