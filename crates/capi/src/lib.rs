//! The C interface of the MPI-IO library: what `mpi/src/penstock.h` declares.
//!
//! The shim in `mpi/` is written in C, because it needs MPI's headers; everything else is here or below. A function
//! returns 0 or an error class, numbered as in the standard MPI ABI. The message of the last error of each class is
//! stored for `MPI_Error_string`. No panic crosses into C.
//!
//! Every pointer that C passes is valid as `penstock.h` says: all `SAFETY` comments in this crate refer to that
//! contract.

mod comm;
mod error;
mod file;
mod info;
mod process;
mod types;
