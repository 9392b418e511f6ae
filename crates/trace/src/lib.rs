//! Traces of the requests that data servers serve. `penstock_sched::learn` learns from them.
//!
//! ```text
//! event.rs     what is recorded                      format.rs    its bytes: header, checked blocks, end
//! recorder.rs  writing, with bounded memory          reader.rs    reading, strictly
//! record.rs    one record for the whole stack        operations.rs  what records do: the table of names
//! stream.rs    its file: format version 3             block.rs, model.rs, bits.rs  how its blocks are coded
//! lines.rs     a record that ends where it would have a hole
//! ```
//!
//! Nothing here but the writers' threads and the readers' files touches the outside: times are passed in.
mod bits;
mod block;
mod error;
mod event;
mod format;
mod lines;
mod model;
mod operations;
mod reader;
mod record;
mod recorder;
mod stream;

pub use error::{Error, Result};
pub use event::{Event, Kind};
pub use format::{Header, OLDEST_VERSION, VERSION};
pub use lines::{Lines, LinesEnd, LinesReader};
pub use operations::{Kind as OperationKind, Operation};
pub use penstock_base::{Nanos, Op};
pub use reader::{Reader, read_all};
pub use record::{
    Caller, Clock, Layer, Link, Module, NO_RANK, NO_SERVER, Owner, Parent, Record, StreamHead,
};
pub use recorder::{Recorder, RecorderOptions, Summary, Writer};
pub use stream::{
    Block, BlockInfo, FileName, MAX_FILES, MAX_NAME, Reading, Stream, StreamWriter, Trace,
    make_directory,
};
