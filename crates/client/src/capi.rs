//! The C interface, as `include/penstock.h` declares it. Pointers are what that header says of them:
//! that is the contract all `SAFETY` comments here refer to. No panic crosses into C.
#![allow(non_camel_case_types)]
use crate::error::{Error, Result};
use crate::{Client, ClientOptions, CreateOptions, File, Form, Identity, OpenOptions};
use penstock_datatype::{Loop, Pattern, Source, Target};
use penstock_rpc::deployment::Deployment;
use penstock_wire::Role;
use penstock_wire::message::NodeKind;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::null_mut;

/// Levels of a loop given from C.
const MAX_LEVELS: usize = 16;

const READ: c_int = 1;
const WRITE: c_int = 2;
const CREATE: c_int = 4;
const EXCLUSIVE: c_int = 8;

/// See `penstock_loop` in the header.
#[repr(C)]
#[derive(Debug)]
pub struct penstock_loop {
    offset: i64,
    block: u64,
    levels: usize,
    counts: *const u64,
    strides: *const i64,
}

/// See `penstock_stat` in the header.
#[repr(C)]
#[derive(Debug, Default)]
pub struct penstock_stat {
    size: u64,
    id: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    is_directory: c_int,
    mtime_ns: i64,
    stripe_unit: u64,
    stripe_count: u32,
}

struct Last {
    errno: c_int,
    message: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last {
        errno: 0,
        message: CString::default(),
    });
}

fn remember(errno: c_int, message: &str) {
    let bytes: Vec<u8> = message.bytes().filter(|&b| b != 0).collect();
    LAST.with_borrow_mut(|last| {
        last.errno = errno;
        last.message = CString::new(bytes).unwrap_or_default();
    });
}

/// Runs `f`; a failure is remembered and gives `failed`.
fn run<T>(failed: T, f: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => value,
        Ok(Err(e)) => {
            remember(e.errno(), &e.to_string());
            failed
        }
        Err(_) => {
            remember(
                rustix::io::Errno::IO.raw_os_error(),
                "internal error in Penstock's client library; its message is on standard error",
            );
            failed
        }
    }
}

fn invalid(what: &str) -> Error {
    Error::Invalid(what.to_owned())
}

/// # Safety
/// NULL or a string of C that stays as it is for 'a.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(invalid(&format!("{what} is NULL")));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| invalid(&format!("{what} is not UTF-8")))
}

/// # Safety
/// NULL or a pointer that this library gave out as a `T` and has not taken back.
unsafe fn given<'a, T>(handle: *const c_void, what: &str) -> Result<&'a T> {
    // SAFETY: as the caller vouches.
    unsafe { handle.cast::<T>().as_ref() }.ok_or_else(|| invalid(&format!("{what} is NULL")))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_connect(
    deployment: *const c_char,
    program: u64,
    rank: u32,
) -> *mut c_void {
    run(null_mut(), || {
        // SAFETY: a string, says the header.
        let path = unsafe { text(deployment, "the deployment file's name") }?;
        let deployment = Deployment::load(Path::new(path)).map_err(|e| Error::Local {
            what: "connect".into(),
            kind: e.kind(),
            detail: e.to_string(),
        })?;
        let options = ClientOptions {
            program: Some(crate::announce::program()),
            ..ClientOptions::default()
        };
        let program = match program {
            0 => crate::job::program(),
            given => given,
        };
        let who = Identity { program, rank };
        let client = Client::connect_with(&deployment, who, Role::Client, options)?;
        Ok(Box::into_raw(Box::new(client)).cast())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_disconnect(client: *mut c_void) {
    run((), || {
        if !client.is_null() {
            // SAFETY: a client that `penstock_connect` gave out.
            drop(unsafe { Box::from_raw(client.cast::<Client>()) });
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_open(
    client: *mut c_void,
    path: *const c_char,
    flags: c_int,
) -> *mut c_void {
    run(null_mut(), || {
        // SAFETY: a client and a string, says the header.
        let (client, path) = unsafe {
            (
                given::<Client>(client, "the client")?,
                text(path, "the path")?,
            )
        };
        if flags & !(READ | WRITE | CREATE | EXCLUSIVE) != 0 {
            return Err(invalid(&format!("unknown open flags {flags:#x}")));
        }
        let how = OpenOptions {
            read: flags & READ != 0,
            write: flags & WRITE != 0,
            create: (flags & CREATE != 0).then(|| CreateOptions {
                mode: 0o644,
                ..CreateOptions::default()
            }),
            exclusive: flags & EXCLUSIVE != 0,
        };
        let file = client.open(path, &how)?;
        Ok(Box::into_raw(Box::new(file)).cast())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_close(file: *mut c_void) {
    run((), || {
        if !file.is_null() {
            // SAFETY: a file that `penstock_open` gave out.
            drop(unsafe { Box::from_raw(file.cast::<File>()) });
        }
        Ok(())
    })
}

fn contiguous(offset: u64, n: usize) -> Result<Pattern> {
    let offset = i64::try_from(offset)
        .ok()
        .filter(|o| o.checked_add_unsigned(n as u64).is_some())
        .ok_or_else(|| invalid("an offset beyond 2^63-1"))?;
    Ok(Pattern::contiguous(offset, n as u64))
}

/// # Safety
/// NULL or a loop as the header describes it.
unsafe fn pattern(given: *const penstock_loop) -> Result<Option<Pattern>> {
    // SAFETY: as the caller vouches.
    let Some(given) = (unsafe { given.as_ref() }) else {
        return Ok(None);
    };
    if given.levels > MAX_LEVELS {
        return Err(invalid(&format!(
            "a loop of {} levels, at most {MAX_LEVELS}",
            given.levels
        )));
    }
    let mut tile = Loop::bytes(given.block);
    if given.levels > 0 {
        if given.counts.is_null() || given.strides.is_null() {
            return Err(invalid("a loop without counts or strides"));
        }
        // SAFETY: not null, and as many as levels, says the header.
        let (counts, strides) = unsafe {
            (
                std::slice::from_raw_parts(given.counts, given.levels),
                std::slice::from_raw_parts(given.strides, given.levels),
            )
        };
        for (&count, &stride) in counts.iter().zip(strides) {
            tile = Loop::vector(count, 1, stride, &tile)?;
        }
    }
    let len = tile.size();
    Ok(Some(Pattern::new(given.offset, tile, 0, len)?))
}

/// The two sides of a structured access.
///
/// # Safety
/// As the header says.
unsafe fn sides(
    in_file: *const penstock_loop,
    in_memory: *const penstock_loop,
) -> Result<(Pattern, Pattern)> {
    // SAFETY: loops, says the header.
    let (file, memory) = unsafe { (pattern(in_file)?, pattern(in_memory)?) };
    let file = file.ok_or_else(|| invalid("the file's loop is NULL"))?;
    let memory = memory.unwrap_or_else(|| Pattern::contiguous(0, file.len));
    if file.len != memory.len {
        return Err(invalid(&format!(
            "the file's loop has {} bytes, the memory's {}",
            file.len, memory.len
        )));
    }
    Ok((file, memory))
}

/// A buffer may be missing only where no byte of it is used.
fn there(buffer: *const c_void, n: u64) -> Result<()> {
    if buffer.is_null() && n > 0 {
        return Err(invalid("the buffer is NULL"));
    }
    Ok(())
}

fn bytes(n: u64) -> Result<i64> {
    i64::try_from(n).map_err(|_| invalid("more than 2^63-1 bytes"))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_pread(
    file: *mut c_void,
    buffer: *mut c_void,
    n: usize,
    offset: u64,
) -> i64 {
    run(-1, || {
        // SAFETY: a file, says the header.
        let file = unsafe { given::<File>(file, "the file") }?;
        let access = contiguous(offset, n)?;
        there(buffer, n as u64)?;
        // SAFETY: the buffer has n bytes.
        let mut target = unsafe { Target::new(buffer.cast(), Pattern::contiguous(0, n as u64)) };
        bytes(file.read(&access, Form::Shortcut, &mut target)?)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_pwrite(
    file: *mut c_void,
    buffer: *const c_void,
    n: usize,
    offset: u64,
) -> i64 {
    run(-1, || {
        // SAFETY: a file, says the header.
        let file = unsafe { given::<File>(file, "the file") }?;
        let access = contiguous(offset, n)?;
        there(buffer, n as u64)?;
        // SAFETY: the buffer has n bytes.
        let mut source = unsafe { Source::new(buffer.cast(), Pattern::contiguous(0, n as u64)) };
        bytes(file.write(&access, Form::Shortcut, &mut source)?)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_read_loop(
    file: *mut c_void,
    in_file: *const penstock_loop,
    buffer: *mut c_void,
    in_memory: *const penstock_loop,
) -> i64 {
    run(-1, || {
        // SAFETY: a file and loops, says the header.
        let (file, (access, memory)) =
            unsafe { (given::<File>(file, "the file")?, sides(in_file, in_memory)?) };
        there(buffer, memory.len)?;
        // SAFETY: the buffer holds all bytes of the memory's loop.
        let mut target = unsafe { Target::new(buffer.cast(), memory) };
        bytes(file.read(&access, Form::Shortcut, &mut target)?)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_write_loop(
    file: *mut c_void,
    in_file: *const penstock_loop,
    buffer: *const c_void,
    in_memory: *const penstock_loop,
) -> i64 {
    run(-1, || {
        // SAFETY: a file and loops, says the header.
        let (file, (access, memory)) =
            unsafe { (given::<File>(file, "the file")?, sides(in_file, in_memory)?) };
        there(buffer, memory.len)?;
        // SAFETY: the buffer holds all bytes of the memory's loop.
        let mut source = unsafe { Source::new(buffer.cast(), memory) };
        bytes(file.write(&access, Form::Shortcut, &mut source)?)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_length(file: *mut c_void) -> i64 {
    run(-1, || {
        // SAFETY: a file, says the header.
        let file = unsafe { given::<File>(file, "the file") }?;
        bytes(file.len()?)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_set_length(file: *mut c_void, length: u64) -> c_int {
    run(-1, || {
        // SAFETY: a file, says the header.
        unsafe { given::<File>(file, "the file") }?.set_len(length)?;
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sync(file: *mut c_void) -> c_int {
    run(-1, || {
        // SAFETY: a file, says the header.
        unsafe { given::<File>(file, "the file") }?.sync()?;
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_stat_path(
    client: *mut c_void,
    path: *const c_char,
    out: *mut penstock_stat,
) -> c_int {
    run(-1, || {
        // SAFETY: a client and a string, says the header.
        let (client, path) = unsafe {
            (
                given::<Client>(client, "the client")?,
                text(path, "the path")?,
            )
        };
        let stat = client.stat(path)?;
        let a = &stat.attributes;
        let layout = a.layout.as_ref();
        let filled = penstock_stat {
            size: stat.size,
            id: a.id.0,
            mode: a.mode,
            uid: a.uid,
            gid: a.gid,
            is_directory: c_int::from(a.kind == NodeKind::Directory),
            mtime_ns: a.mtime_ns,
            stripe_unit: layout.map_or(0, |l| l.stripe_unit),
            stripe_count: layout.map_or(0, |l| l.servers.len() as u32),
        };
        // SAFETY: NULL or room for one, says the header.
        match unsafe { out.as_mut() } {
            Some(out) => *out = filled,
            None => return Err(invalid("no room for the answer")),
        }
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_unlink(client: *mut c_void, path: *const c_char) -> c_int {
    run(-1, || {
        // SAFETY: a client and a string, says the header.
        let (client, path) = unsafe {
            (
                given::<Client>(client, "the client")?,
                text(path, "the path")?,
            )
        };
        client.unlink(path)?;
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_mkdir(
    client: *mut c_void,
    path: *const c_char,
    mode: u32,
) -> c_int {
    run(-1, || {
        // SAFETY: a client and a string, says the header.
        let (client, path) = unsafe {
            (
                given::<Client>(client, "the client")?,
                text(path, "the path")?,
            )
        };
        client.mkdir(path, mode)?;
        Ok(0)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_last_error() -> *const c_char {
    LAST.with_borrow(|last| last.message.as_ptr())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn penstock_last_errno() -> c_int {
    LAST.with_borrow(|last| last.errno)
}
