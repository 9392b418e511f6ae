//! The C interface of the MPI-IO library: what `mpi/src/penstock.h` declares.
//!
//! The shim in `mpi/` is written in C, because MPI's headers are; everything that does not need them is here or
//! below. A function returns 0 or an error class in the numbers of the standard MPI ABI, and the message of the last
//! error of each class is kept for `MPI_Error_string`. No panic crosses into C.
//!
//! Every pointer that C passes is valid for what `penstock.h` says of it: that is the contract all `SAFETY`
//! comments in this crate refer to.

mod comm;
mod error;
mod file;
mod info;
mod process;
mod types;
