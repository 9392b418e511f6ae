//! A trace as Parquet: directories of files with the tables `events`, `calls`, `requests`, `devices`, and the file of `files`.
//! docs/understand/trace-schema.md is the schema, which later versions only add columns to.
//!
//! Each part of a trace becomes a file of each table it has rows of. Two threads write; memory is one group of rows a table.
use crate::cover::Cover;
use crate::summary::summary;
use crate::trace::{Part, Trace};
use crate::window::Window;
use crate::{Error, Notes};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use penstock_trace::{
    Layer, Link, NO_RANK, NO_SERVER, Operation, OperationKind, Owner, Parent, Record,
};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of a group.
const GROUP: usize = 256 << 10;

/// Tables, with their columns: `name` is a number, `name:u` one without sign, `name?` one that may be missing, `name:t` text.
const EVENTS: &[&str] = &[
    "part",
    "program:u",
    "rank?",
    "id",
    "parent?",
    "caller_program:u?",
    "caller_rank?",
    "caller_call?",
    "layer:t",
    "operation:t",
    "kind:t",
    "file:t",
    "offset:u",
    "bytes:u",
    "begin_ns",
    "duration_ns",
    "error",
    "thread",
    "server?",
    "code:u",
];
const CALLS: &[&str] = &[
    "program:u",
    "rank?",
    "id",
    "parent?",
    "layer:t",
    "operation:t",
    "kind:t",
    "file:t",
    "offset:u",
    "bytes:u",
    "begin_ns",
    "duration_ns",
    "exclusive_ns",
    "error",
    "thread",
    "requests",
    "servers",
    "code:u",
];
const REQUESTS: &[&str] = &[
    "program:u?",
    "rank?",
    "call?",
    "server?",
    "operation:t",
    "kind:t",
    "file:t",
    "offset:u",
    "bytes:u",
    "begin_ns",
    "duration_ns",
    "exclusive_ns",
    "error",
    "queue_ns?",
    "store_ns?",
    "device_ns?",
    "device_accesses?",
    "device_bytes?",
    "seen_by:t",
];
const DEVICES: &[&str] = &[
    "server?",
    "id",
    "access",
    "operation:t",
    "kind:t",
    "offset:u",
    "bytes:u",
    "begin_ns",
    "duration_ns",
    "owner:t",
    "program:u?",
    "rank?",
    "call?",
    "owned_bytes:u",
];
const FILES: &[&str] = &[
    "file:t",
    "layer:t",
    "kind:t",
    "processes",
    "calls",
    "errors",
    "bytes:u",
    "inclusive_ns",
    "exclusive_ns",
    "first_ns",
    "last_ns",
];

/// A value of a row.
enum Cell<'a> {
    None,
    Number(u64),
    Text(&'a ByteArray),
}

impl From<u64> for Cell<'_> {
    fn from(n: u64) -> Self {
        Cell::Number(n)
    }
}

impl From<Option<u64>> for Cell<'_> {
    fn from(n: Option<u64>) -> Self {
        n.map_or(Cell::None, Cell::Number)
    }
}

impl<'a> From<&'a ByteArray> for Cell<'a> {
    fn from(text: &'a ByteArray) -> Self {
        Cell::Text(text)
    }
}

macro_rules! cells {
    ($($value:expr),* $(,)?) => { &[$(Cell::from($value)),*] };
}

#[derive(Default)]
struct Column {
    is_text: bool,
    is_optional: bool,
    numbers: Vec<i64>,
    texts: Vec<ByteArray>,
    levels: Vec<i16>,
}

/// One file of a table. It is made with the first group of rows.
struct Table {
    path: PathBuf,
    schema: String,
    columns: Vec<Column>,
    rows: usize,
    writer: Option<SerializedFileWriter<File>>,
    written: u64,
}

impl Table {
    fn new(dir: &Path, name: &str, file: &str, columns: &[&str]) -> Table {
        let mut schema = format!("message {name} {{\n");
        let columns = columns.iter().map(|column| {
            let (word, is_optional) = match column.strip_suffix('?') {
                Some(word) => (word, true),
                None => (*column, false),
            };
            let must = if is_optional { "OPTIONAL" } else { "REQUIRED" };
            let (line, is_text) = match word.split_once(':') {
                Some((name, "t")) => (format!("{must} BYTE_ARRAY {name} (UTF8);\n"), true),
                Some((name, _)) => (format!("{must} INT64 {name} (INTEGER(64,false));\n"), false),
                None => (format!("{must} INT64 {word};\n"), false),
            };
            schema.push_str(&line);
            Column {
                is_text,
                is_optional,
                ..Column::default()
            }
        });
        let columns = columns.collect();
        schema.push('}');
        Table {
            path: dir.join(file),
            schema,
            columns,
            rows: 0,
            writer: None,
            written: 0,
        }
    }

    fn row(&mut self, cells: &[Cell<'_>]) -> Result<(), Error> {
        debug_assert_eq!(cells.len(), self.columns.len());
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match cell {
                Cell::None => column.levels.push(0),
                Cell::Number(n) => {
                    column.levels.push(1);
                    column.numbers.push(n.cast_signed());
                }
                Cell::Text(text) => {
                    column.levels.push(1);
                    column.texts.push((*text).clone());
                }
            }
        }
        self.rows += 1;
        if self.rows == GROUP {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let failed =
            |e: ParquetError| Error::Question(format!("cannot write {}: {e}", self.path.display()));
        if self.rows == 0 {
            return Ok(());
        }
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let file = crate::make(&self.path)?;
                let schema = Arc::new(parse_message_type(&self.schema).map_err(failed)?);
                let properties = WriterProperties::builder()
                    .set_compression(Compression::SNAPPY)
                    .build();
                SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(failed)?
            }
        };
        let mut group = writer.next_row_group().map_err(failed)?;
        for column in &mut self.columns {
            let Some(mut out) = group.next_column().map_err(failed)? else {
                break;
            };
            let levels = column.is_optional.then_some(&column.levels[..]);
            if column.is_text {
                out.typed::<ByteArrayType>()
                    .write_batch(&column.texts, levels, None)
                    .map_err(failed)?;
            } else {
                out.typed::<Int64Type>()
                    .write_batch(&column.numbers, levels, None)
                    .map_err(failed)?;
            }
            out.close().map_err(failed)?;
            column.numbers.clear();
            column.texts.clear();
            column.levels.clear();
        }
        group.close().map_err(failed)?;
        self.written += self.rows as u64;
        self.rows = 0;
        self.writer = Some(writer);
        Ok(())
    }

    /// Rows written.
    fn finish(mut self) -> Result<u64, Error> {
        self.flush()?;
        if let Some(writer) = self.writer.take() {
            let closed = writer.close();
            closed.map_err(|e| {
                Error::Question(format!("cannot write {}: {e}", self.path.display()))
            })?;
        }
        Ok(self.written)
    }
}

/// Texts that rows name often.
struct Words {
    layers: Vec<ByteArray>,
    operations: HashMap<u16, [ByteArray; 2]>,
    files: HashMap<u32, ByteArray>,
    empty: ByteArray,
}

impl Words {
    fn new(part: &Part) -> Words {
        let files = part.stream.files();
        Words {
            layers: Layer::ALL
                .iter()
                .map(|l| ByteArray::from(l.name()))
                .collect(),
            operations: HashMap::new(),
            files: files
                .map(|(number, file)| (number, ByteArray::from(file.path.as_str())))
                .collect(),
            empty: ByteArray::from(""),
        }
    }

    /// Knows the operation from now on.
    fn learn(&mut self, operation: Operation) {
        self.operations.entry(operation.0).or_insert_with(|| {
            let name = operation.name().to_string();
            [
                ByteArray::from(name.as_str()),
                ByteArray::from(operation.kind().name()),
            ]
        });
    }

    fn of(&self, record: &Record) -> [&ByteArray; 4] {
        let [name, kind] = &self.operations[&record.operation.0];
        let file = self.files.get(&record.file).unwrap_or(&self.empty);
        [&self.layers[record.layer as usize], name, kind, file]
    }
}

/// A call, or a request at its server, that waits for what is below it.
#[derive(Default)]
struct Open {
    record: Option<Record>,
    cover: Cover,
    requests: u64,
    servers: u64,
    queue: u64,
    store: u64,
    device: u64,
    accesses: u64,
    device_bytes: u64,
}

struct Writing<'a> {
    part: &'a Part,
    words: Words,
    window: Window<Open>,
    events: Table,
    calls: Table,
    requests: Table,
    devices: Table,
    /// Servers that have a part of their own: their requests are written from there.
    seen: &'a [u32],
    failed: Option<Error>,
}

fn rank_of(rank: u32) -> Option<u64> {
    (rank != NO_RANK).then(|| rank.into())
}

fn server_of(server: u32) -> Option<u64> {
    (server != NO_SERVER).then(|| server.into())
}

fn code(error: i32) -> u64 {
    i64::from(error).cast_unsigned()
}

impl Writing<'_> {
    fn take(&mut self, record: &Record, links: &[(u32, Link)]) {
        if self.failed.is_none() {
            self.failed = self.record(record, links).err();
        }
    }

    fn record(&mut self, r: &Record, links: &[(u32, Link)]) -> Result<(), Error> {
        self.words.learn(r.operation);
        let (here, caller) = match r.parent {
            Parent::None => (None, None),
            Parent::Here(id) => (Some(id), None),
            Parent::Caller(caller) => (None, Some(caller)),
        };
        let [layer, operation, kind, file] = self.words.of(r);
        self.events.row(cells![
            self.part.index as u64,
            self.part.program,
            rank_of(self.part.rank),
            r.id,
            here,
            caller.map(|c| c.program),
            caller.map(|c| u64::from(c.rank)),
            caller.map(|c| c.call),
            layer,
            operation,
            kind,
            file,
            r.offset,
            r.bytes,
            r.begin,
            r.duration,
            code(r.error),
            u64::from(r.thread),
            server_of(r.server),
            r.code,
        ])?;
        if r.layer == Layer::Device {
            self.device(r, links)?;
        }
        if let Some(parent) = here {
            let open = self.window.at(parent);
            open.cover.add(r.begin, r.end());
            match r.layer {
                Layer::Request => {
                    open.requests += 1;
                    open.servers |= 1 << (r.server % 64);
                }
                Layer::Queue => open.queue += r.duration,
                Layer::Store => open.store += r.duration,
                Layer::Device => {
                    open.device += r.duration;
                    open.accesses += 1;
                    open.device_bytes += r.bytes;
                }
                _ => {}
            }
        }
        if matches!(r.layer, Layer::Queue | Layer::Decision | Layer::Device) {
            return Ok(());
        }
        self.window.at(r.id).record = Some(*r);
        match self.window.complete(r.id) {
            Some((_, open)) => self.finish(open),
            None => Ok(()),
        }
    }

    fn device(&mut self, r: &Record, links: &[(u32, Link)]) -> Result<(), Error> {
        let [_, operation, kind, _] = self.words.of(r);
        let nobody = [(
            0,
            Link {
                owner: Owner::Flush,
                bytes: 0,
            },
        )];
        let (links, is_owned) = if links.is_empty() {
            (&nobody[..], false)
        } else {
            (links, true)
        };
        for (number, (_, link)) in links.iter().enumerate() {
            let caller = match link.owner {
                Owner::Call(caller) => Some(caller),
                _ => None,
            };
            let owner = ByteArray::from(if is_owned {
                link.owner.name()
            } else {
                "nobody"
            });
            self.devices.row(cells![
                server_of(r.server),
                r.id,
                // Sums over accesses count rows with 0 here; sums over owners count all.
                number as u64,
                operation,
                kind,
                r.offset,
                r.bytes,
                r.begin,
                r.duration,
                &owner,
                caller.map(|c| c.program),
                caller.map(|c| u64::from(c.rank)),
                caller.map(|c| c.call),
                if is_owned { link.bytes } else { r.bytes },
            ])?;
        }
        Ok(())
    }

    fn finish(&mut self, mut open: Open) -> Result<(), Error> {
        let Some(r) = open.record else { return Ok(()) };
        let exclusive = r.duration - open.cover.within(r.begin, r.end());
        let [layer, operation, kind, file] = self.words.of(&r);
        let here = match r.parent {
            Parent::Here(id) => Some(id),
            _ => None,
        };
        if r.layer <= Layer::Client {
            return self.calls.row(cells![
                self.part.program,
                rank_of(self.part.rank),
                r.id,
                here,
                layer,
                operation,
                kind,
                file,
                r.offset,
                r.bytes,
                r.begin,
                r.duration,
                exclusive,
                code(r.error),
                u64::from(r.thread),
                open.requests,
                u64::from(open.servers.count_ones()),
                r.code,
            ]);
        }
        if r.layer == Layer::Store {
            // What the device did belongs to the request.
            if let Some(parent) = here {
                let up = self.window.at(parent);
                up.device += open.device;
                up.accesses += open.accesses;
                up.device_bytes += open.device_bytes;
            }
            return Ok(());
        }
        let at_server = r.layer == Layer::Server;
        if !at_server && (r.layer != Layer::Request || self.seen.contains(&r.server)) {
            return Ok(());
        }
        let caller = match r.parent {
            Parent::Caller(c) => Some((c.program, rank_of(c.rank), Some(c.call))),
            Parent::Here(call) if !at_server => {
                Some((self.part.program, rank_of(self.part.rank), Some(call)))
            }
            _ => None,
        };
        let server_saw = |n: u64| at_server.then_some(n);
        let seen_by = ByteArray::from(if at_server { "server" } else { "client" });
        self.requests.row(cells![
            caller.map(|c| c.0),
            caller.and_then(|c| c.1),
            caller.and_then(|c| c.2),
            server_of(r.server),
            operation,
            kind,
            file,
            r.offset,
            r.bytes,
            r.begin,
            r.duration,
            exclusive,
            code(r.error),
            server_saw(open.queue),
            server_saw(open.store),
            server_saw(open.device),
            server_saw(open.accesses),
            server_saw(open.device_bytes),
            &seen_by,
        ])
    }

    fn end(mut self) -> Result<u64, Error> {
        while let Some((_, open)) = self.window.next_complete() {
            self.finish(open)?;
        }
        if let Some(error) = self.failed {
            return Err(error);
        }
        let rows = self.events.finish()?;
        for table in [self.calls, self.requests, self.devices] {
            table.finish()?;
        }
        Ok(rows)
    }
}

/// Writes the tables to a new directory. Returns the rows of `events`, and what could not be read.
pub fn parquet(trace: &Trace, dir: &Path) -> Result<(u64, Notes), Error> {
    for table in ["events", "calls", "requests", "devices", "files"] {
        penstock_trace::make_directory(&dir.join(table))?;
    }
    let seen: Vec<u32> = trace.parts.iter().filter_map(|part| part.server).collect();
    let written = trace.each(
        |_| true,
        |part, blocks| {
            let file = format!("part-{:06}.parquet", part.index);
            let table = |name: &str, columns| Table::new(&dir.join(name), name, &file, columns);
            let mut writing = Writing {
                part,
                words: Words::new(part),
                window: Window::default(),
                events: table("events", EVENTS),
                calls: table("calls", CALLS),
                requests: table("requests", REQUESTS),
                devices: table("devices", DEVICES),
                seen: &seen,
                failed: None,
            };
            blocks.records(|record, links| writing.take(record, links));
            writing.end()
        },
    )?;
    let mut notes = Notes::default();
    let rows = written.take(&mut notes).into_iter().sum();
    files(trace, dir)?;
    // A table without rows still has its columns.
    for (name, columns) in [
        ("events", EVENTS),
        ("calls", CALLS),
        ("requests", REQUESTS),
        ("devices", DEVICES),
    ] {
        empty(dir, name, columns)?;
    }
    Ok((rows, notes))
}

/// A file without rows, where a table has no file.
fn empty(dir: &Path, name: &str, columns: &[&str]) -> Result<(), Error> {
    let dir = dir.join(name);
    let mut entries = std::fs::read_dir(&dir).map_err(|source| Error::Io {
        doing: "read",
        path: dir.clone(),
        source,
    })?;
    if entries.next().is_some() {
        return Ok(());
    }
    let table = Table::new(&dir, name, "part-000000.parquet", columns);
    let failed =
        |e: ParquetError| Error::Question(format!("cannot write {}: {e}", table.path.display()));
    let schema = Arc::new(parse_message_type(&table.schema).map_err(failed)?);
    let writer = SerializedFileWriter::new(crate::make(&table.path)?, schema, Arc::default())
        .map_err(failed)?;
    writer.close().map_err(failed)?;
    Ok(())
}

/// The table of files, from the summary.
fn files(trace: &Trace, dir: &Path) -> Result<(), Error> {
    let summary = summary(trace)?;
    let mut table = Table::new(&dir.join("files"), "files", "part-000000.parquet", FILES);
    let mut processes: HashMap<(u32, Layer, OperationKind), std::collections::HashSet<(u64, u32)>> =
        HashMap::new();
    let of = |group: &crate::Group| (group.file, group.layer(), group.operation().kind());
    for cell in &summary.cells {
        let who = (cell.group.program, cell.group.rank);
        processes.entry(of(&cell.group)).or_default().insert(who);
    }
    let groups = summary.by(&crate::Key::default(), |group| {
        (group.file != 0).then(|| of(group))
    });
    for (group, f) in &groups {
        let (file, layer, kind) = *group;
        table.row(cells![
            &ByteArray::from(summary.file(file)),
            &ByteArray::from(layer.name()),
            &ByteArray::from(kind.name()),
            processes[group].len() as u64,
            f.calls,
            f.errors,
            f.bytes,
            f.inclusive,
            f.exclusive,
            f.first,
            f.last,
        ])?;
    }
    table.finish()?;
    empty(dir, "files", FILES)
}
