//! What a process knows besides its files: environment, connection, summary.
use crate::error::Result;

/// A path that belongs to this library, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A name in the name space of the deployment.
    Penstock(String),
    /// A file of an ordinary mounted file system, in direct mode.
    Direct(String),
}

/// Whether `path`, as given to `MPI_File_open` or `MPI_File_delete`, is ours: prefix `penstock:`, a path under
/// the mount path, or in direct mode every path. `None`: the program's own MPI library gets the call. Cheap, and
/// never connects. Needs no MPI.
pub fn belongs(path: &str) -> Option<Claim> {
    let _ = path;
    todo!()
}

/// Writes this process's summary to `$PENSTOCK_SUMMARY_DIR/rank-<rank>-<pid>.json`, if that is set. Called once, at
/// `MPI_Finalize`.
pub fn write_summary(rank: usize) -> Result<()> {
    let _ = rank;
    todo!()
}
