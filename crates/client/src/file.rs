//! An open file: accesses and length.
use crate::client::Client;
use crate::error::Result;
use crate::exchange::Exchange;
use crate::fast_path;
use crate::guard::guard;
use crate::memory::Memory;
use crate::open_file::{OpenFile, Origin};
use crate::stats::{Form, Stats};
use penstock_datatype::{Pattern, Source, Target};
use penstock_layout::{FileId, Layout, ServerIndex};
use penstock_trace::{Layer, Operation, sink};
use penstock_wire::message::{Attributes, CreateOptions, DataRequest, MetaReply, MetaRequest};
use std::iter;
use std::sync::Arc;

/// How to open a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Reading is wanted.
    pub read: bool,
    /// Writing is wanted.
    pub write: bool,
    /// Create it if it does not exist, like this.
    pub create: Option<CreateOptions>,
    /// With `create`: it must not exist.
    pub exclusive: bool,
}

impl OpenOptions {
    /// For reading only.
    pub fn read() -> OpenOptions {
        OpenOptions {
            read: true,
            ..OpenOptions::default()
        }
    }

    /// For reading and writing; created with the deployment's defaults if it does not exist.
    pub fn read_write_create() -> OpenOptions {
        OpenOptions {
            read: true,
            write: true,
            create: Some(CreateOptions {
                mode: 0o644,
                ..CreateOptions::default()
            }),
            exclusive: false,
        }
    }
}

/// An open file. Cheap to clone; usable by several threads at once.
#[derive(Debug, Clone)]
pub struct File(pub(crate) Arc<OpenFile>);

impl Client {
    /// Opens a file, creating it if `how` says so.
    pub fn open(&self, path: &str, how: &OpenOptions) -> Result<File> {
        File::open(self, path, how)
    }
}

impl File {
    pub(crate) fn open(client: &Client, path: &str, how: &OpenOptions) -> Result<File> {
        let path = crate::path::normalise(path)?;
        let mut call = sink::Call::begin(Layer::Client, Operation::OPEN);
        let opened = File::open_named(client, path, how);
        if let (Some(call), Ok(file)) = (&mut call, &opened) {
            call.about(&file.0.path, file.0.id.0);
        }
        ended(call, 0, &opened);
        opened
    }

    fn open_named(client: &Client, path: String, how: &OpenOptions) -> Result<File> {
        let reply = client.meta(
            "open",
            &MetaRequest::Open {
                path: path.clone(),
                read: how.read,
                write: how.write,
                create: how.create.clone(),
                exclusive: how.exclusive,
            },
        )?;
        let MetaReply::Opened {
            attributes,
            capability,
            created,
        } = reply
        else {
            return Err(client.meta_protocol("open", &reply));
        };
        let rights = (how.read, how.write);
        let file = OpenFile::new(
            client,
            path,
            rights,
            attributes,
            capability,
            created,
            Origin::Path,
        )?;
        Ok(File(Arc::new(file)))
    }

    /// A second open of the same file with the same rights, and locks of its own.
    pub fn beside(&self) -> Result<File> {
        Ok(File(Arc::new(self.0.beside()?)))
    }

    /// How it is striped, and over which servers.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// Its normalised path at open.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Its id, unique in the deployment for ever.
    pub fn id(&self) -> FileId {
        self.0.id
    }

    /// Its attributes at open.
    pub fn attributes(&self) -> &Attributes {
        &self.0.attributes
    }

    /// Whether it is open for reading, and for writing.
    pub fn access(&self) -> (bool, bool) {
        (self.0.read, self.0.write)
    }

    /// Whether the open created it.
    pub fn created(&self) -> bool {
        self.0.created
    }

    /// The client it belongs to.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// What has been done through this file.
    pub fn stats(&self) -> Stats {
        self.0.counters.read()
    }

    /// Whether [`Form::Shortcut`] would use descriptors on every server now.
    pub fn has_shortcut(&self) -> bool {
        let trace = self.0.client.trace();
        guard(&self.0.locks).is_empty()
            && (0..self.0.sites.len()).all(|i| self.0.grant(ServerIndex(i as u32), trace).is_some())
    }

    /// Reads `access` into `into`: one file system operation. Returns the stream bytes before the end of the file
    /// (before the first one beyond it); their holes read as zeros. The memory for other bytes is not changed. (Where
    /// offsets do not ascend along the stream, each request counts separately, and memory for bytes beyond the end may
    /// be changed.)
    pub fn read(&self, access: &Pattern, form: Form, into: &mut Target<'_>) -> Result<u64> {
        if let Some(offset) = fast_path::start_of(access, form, into.pattern()) {
            let mut done = false;
            into.pieces(0, access.len, |memory| {
                done = self.0.read_fast_path(offset, memory);
            });
            if done {
                return Ok(access.len);
            }
        }
        self.read_each(&mut iter::once((0, access.clone())), form, into)
    }

    /// Writes `access` from `from`: one file system operation. Returns the stream bytes written,
    /// which is all of them.
    pub fn write(&self, access: &Pattern, form: Form, from: &mut Source<'_>) -> Result<u64> {
        if let Some(offset) = fast_path::start_of(access, form, from.pattern()) {
            let mut done = false;
            from.pieces(0, access.len, |memory| {
                done = self.0.write_fast_path(offset, memory);
            });
            if done {
                return Ok(access.len);
            }
        }
        self.write_each(&mut iter::once((0, access.clone())), form, from)
    }

    /// Fast path: reads the file from `offset` until `into` is full, by descriptors only. False where that is
    /// impossible or the file may end before: then the contents of `into` are unspecified, and [`File::read`] must be
    /// used.
    #[inline]
    pub fn read_fast_path(&self, offset: u64, into: &mut [u8]) -> bool {
        self.0.read_fast_path(offset, into)
    }

    /// Fast path: writes all of `from` to the file at `offset`, by descriptors only. False where that is impossible: a
    /// part may have been written, and [`File::write`] must write all of it.
    #[inline]
    pub fn write_fast_path(&self, offset: u64, from: &[u8]) -> bool {
        self.0.write_fast_path(offset, from)
    }

    /// Many reads kept in flight, each (position in the memory side's stream, file pattern). Returns
    /// the sum of what [`File::read`] would return for each.
    pub fn read_each(
        &self,
        accesses: &mut dyn Iterator<Item = (u64, Pattern)>,
        form: Form,
        into: &mut Target<'_>,
    ) -> Result<u64> {
        self.0.may("read", self.0.read)?;
        self.each(accesses, form, Memory::Into(into))
    }

    /// Many writes kept in flight, each (position in the memory side's stream, file pattern). Where
    /// they overlap, each byte ends as one of the written values.
    pub fn write_each(
        &self,
        accesses: &mut dyn Iterator<Item = (u64, Pattern)>,
        form: Form,
        from: &mut Source<'_>,
    ) -> Result<u64> {
        self.0.may("write", self.0.write)?;
        self.each(accesses, form, Memory::From(from))
    }

    fn each(
        &self,
        accesses: &mut dyn Iterator<Item = (u64, Pattern)>,
        form: Form,
        memory: Memory<'_, '_>,
    ) -> Result<u64> {
        let file = &*self.0;
        let mut first = accesses.next();
        let held = first.as_ref().and_then(|(_, access)| file.held(access));
        let operation = match memory {
            Memory::Into(_) => Operation::READ,
            Memory::From(_) => Operation::WRITE,
        };
        let begins = first.as_ref().map_or(0, |(_, access)| access.bounds().0);
        let call = file.begin_call(operation);
        let trace = file.client.trace_of(call.as_ref());
        // Under a lock the connections are the lock's own, so nothing is taken from other calls. A call
        // that waits for the lock cannot keep its holder from going on.
        let (_busy, _permit) = match &held {
            Some(held) => (Some(held.enter()), None),
            None => (None, Some(file.client.permit()?)),
        };
        let mut all = iter::from_fn(|| first.take().or_else(|| accesses.next()));
        let exchange = Exchange::new(file, held.as_deref(), form, memory, trace);
        exchange.of(call, begins).run(&mut all)
    }

    /// Length in bytes: the largest that any server's object implies.
    pub fn len(&self) -> Result<u64> {
        let _permit = self.0.client.permit()?;
        let call = self.0.begin_call(Operation::STAT);
        let lens = self.0.object_lens(self.0.client.trace_of(call.as_ref()));
        ended(call, 0, &lens);
        Ok(self.0.len_of(&lens?))
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Truncates or extends (with a hole) to `len` bytes. A file that is shorter when this begins is not truncated,
    /// even if others write beyond `len` meanwhile.
    pub fn set_len(&self, len: u64) -> Result<()> {
        let file = &*self.0;
        file.may("set the length", file.write)?;
        let call = file.begin_call(Operation::RESIZE);
        let trace = file.client.trace_of(call.as_ref());
        // To nothing is always a cut.
        let longer = len > 0 && {
            let _permit = file.client.permit()?;
            file.len_of(&file.object_lens(trace)?) < len
        };
        if longer {
            return self.extend(len);
        }
        let _permit = file.client.permit()?;
        let replies = file.call_each("set the length", trace, true, |i, handle| {
            DataRequest::SetLen {
                handle,
                len: file.layout.object_len(len, i),
            }
        });
        let done = replies.and_then(|replies| file.all_done("set the length", replies));
        ended(call, len, &done);
        done
    }

    /// Makes the file at least `len` bytes long (with a hole). Never truncates, whatever others write or extend.
    pub fn extend(&self, len: u64) -> Result<()> {
        let file = &*self.0;
        file.may("extend", file.write)?;
        let _permit = file.client.permit()?;
        let call = file.begin_call(Operation::RESIZE);
        let trace = file.client.trace_of(call.as_ref());
        let replies = file.call_each("extend", trace, true, |i, handle| DataRequest::Extend {
            handle,
            len: file.layout.object_len(len, i),
        });
        let done = replies.and_then(|replies| file.all_done("extend", replies));
        ended(call, len, &done);
        done
    }

    /// Gets the attributes of the file's path again.
    pub fn refresh(&self) -> Result<Attributes> {
        self.0.client.attributes(&self.0.path)
    }
}

/// A call that moved no bytes of its own is over.
pub(crate) fn ended<T>(call: Option<sink::Call>, offset: u64, result: &Result<T>) {
    if let Some(call) = call {
        call.end(sink::Outcome {
            offset,
            bytes: 0,
            error: result.as_ref().err().map_or(0, crate::error::Error::errno),
        });
    }
}
