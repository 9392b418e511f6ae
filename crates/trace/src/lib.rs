//! Traces: what the calls of programs, clients and servers did, and when. What is learnt from them stands in `penstock_sched::learn`.
//!
//! ```text
//! record.rs    one record for the whole stack        operations.rs  what records do: the table of names
//! stream.rs    its file: format version 3            block.rs, model.rs, bits.rs  how its blocks are coded
//! recorder.rs  writing from many threads, with bounded memory
//! sink.rs      where the records of a process go     file_sink.rs   to a file of its own
//! event.rs     a moment of a server's request        requests.rs  such moments from traces of all versions, and back
//! old_*.rs     reading versions 1 and 2              lines.rs     a record that ends where it would have a hole
//! ```
//!
//! Nothing here but the writers' threads and the readers' files touches the outside: times are passed in.
mod bits;
mod block;
mod error;
mod event;
mod file_sink;
mod lines;
mod model;
mod old_format;
mod old_reader;
mod operations;
mod record;
mod recorder;
mod requests;
pub mod sink;
mod stream;

pub use error::{Error, Result};
pub use event::{Event, Kind};
pub use lines::{Lines, LinesEnd, LinesReader};
pub use old_format::Header;
pub use operations::{Kind as OperationKind, Operation};
pub use penstock_base::{Nanos, Op};
pub use record::{
    Caller, Clock, Layer, Link, Module, NO_RANK, NO_SERVER, Owner, Parent, Record, StreamHead,
    host_name, time_zero,
};
pub use recorder::{Recorder, RecorderOptions, Summary};
pub use requests::{Reader, Writer, convert, read_all};
pub use stream::{
    Block, BlockInfo, FileName, MAX_FILES, MAX_NAME, Reading, Stream, StreamWriter, Trace, VERSION,
    make_directory,
};
