//! Files and accesses.
use crate::comm::{MpiComm, RawComm};
use crate::error::{call, described, report, text};
use crate::info::{Pairs, info_of};
use crate::process::start_log;
use crate::types::Type;
use penstock_datatype::{Pattern, Source, Target};
use penstock_mpiio::{
    Amode, DISPLACEMENT_CURRENT, DataRep, Datatype, Done, Error, ErrorClass, File, Result, Whence,
    Where,
};
use std::borrow::Cow;
use std::ffi::{c_char, c_int, c_void};

/// `struct pst_open`.
#[repr(C)]
pub struct Open {
    comm: RawComm,
    name: *const c_char,
    amode: c_int,
    info: *const Pairs,
    world_rank: c_int,
}

/// `struct pst_access`.
#[repr(C)]
pub struct Access {
    direction: c_int,
    place: c_int,
    collective: c_int,
    offset: i64,
    buffer: *mut u8,
    count: u64,
    datatype: *const Type,
    error: c_int,
}

/// `PST_WRITE`.
const WRITE: c_int = 1;

/// Access modes, as the standard ABI numbers them.
const AMODES: [(c_int, Amode); 10] = [
    (1, Amode::APPEND),
    (2, Amode::CREATE),
    (4, Amode::DELETE_ON_CLOSE),
    (8, Amode::EXCL),
    (16, Amode::RDONLY),
    (32, Amode::RDWR),
    (64, Amode::SEQUENTIAL),
    (128, Amode::UNIQUE_OPEN),
    (256, Amode::WRONLY),
    (1 << 30, Amode::INVALID),
];

fn amode_of(bits: c_int) -> Amode {
    AMODES
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .fold(Amode::default(), |all, &(_, one)| all | one)
}

fn place_of(place: c_int, offset: i64) -> Where {
    match place {
        0 => Where::At(offset),
        1 => Where::Individual,
        2 => Where::Shared,
        _ => Where::Ordered,
    }
}

fn whence_of(whence: c_int) -> Result<Whence> {
    match whence {
        401 => Ok(Whence::Current),
        402 => Ok(Whence::End),
        403 => Ok(Whence::Set),
        _ => Err(Error::new(
            ErrorClass::Arg,
            "the origin of a seek is none of MPI_SEEK_SET, MPI_SEEK_CUR, MPI_SEEK_END",
        )),
    }
}

/// The memory of an access, and its datatype. Invalid arguments become a type that is refused. The call is made
/// nevertheless, so that a collective call fails on every rank and no rank waits.
fn memory_of<'a>(access: &Access, datatype: &'a Datatype) -> (Pattern, Cow<'a, Datatype>) {
    let refuse = |why| {
        (
            Pattern::contiguous(0, 0),
            Cow::Owned(Datatype::refused(why)),
        )
    };
    if access.error != 0 {
        return refuse(described(access.error));
    }
    let size = datatype.layout.size();
    let bytes = size.checked_mul(access.count);
    let Some(bytes) = bytes.filter(|&n| n <= i64::MAX as u64) else {
        let message = format!(
            "{} elements of a datatype of {size} bytes are more than 2^63 bytes",
            access.count
        );
        return refuse(Error::new(ErrorClass::Count, message));
    };
    match Pattern::new(0, datatype.layout.clone(), 0, bytes) {
        Ok(pattern) => (pattern, Cow::Borrowed(datatype)),
        Err(why) => refuse(why.into()),
    }
}

/// `pst_file_open`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_open(how: *const Open, out: *mut *mut File) -> c_int {
    // SAFETY: valid; the communicator becomes ours, C does not use it afterwards.
    let (how, comm) = unsafe { (&*how, std::ptr::read(&(*how).comm)) };
    let comm = Box::new(MpiComm::new(comm, how.world_rank));
    start_log();
    call(|| {
        // SAFETY: a terminated string and a valid object.
        let (name, info) = unsafe { (text(how.name), info_of(how.info)) };
        let file = File::open(comm, &name, amode_of(how.amode), &info)?;
        // SAFETY: valid for writing.
        unsafe { out.write(Box::into_raw(Box::new(file))) };
        Ok(())
    })
}

/// `pst_file_close`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_close(file: *mut File) -> c_int {
    // SAFETY: from pst_file_open; C forgets it.
    let file = unsafe { Box::from_raw(file) };
    call(move || file.close())
}

/// `pst_file_delete`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_delete(name: *const c_char, info: *const Pairs) -> c_int {
    // SAFETY: a terminated string and a valid object.
    call(|| unsafe { File::delete(&text(name), &info_of(info)) })
}

/// Calls on an open file that return nothing.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($file:ident $(, $argument:ident: $kind:ty)*) => $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As `penstock.h` says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($file: *const File $(, $argument: $kind)*) -> c_int {
            // SAFETY: an open file.
            let $file = unsafe { &*$file };
            call(|| $body)
        }
    )*};
}

calls! {
    /// `pst_file_set_size`.
    pst_file_set_size(file, size: i64) => file.set_size(size);
    /// `pst_file_preallocate`.
    pst_file_preallocate(file, size: i64) => file.preallocate(size);
    /// `pst_file_sync`.
    pst_file_sync(file) => file.sync();
    /// `pst_file_set_atomicity`.
    pst_file_set_atomicity(file, atomic: c_int) => file.set_atomicity(atomic != 0);
    /// `pst_file_seek`.
    pst_file_seek(file, offset: i64, whence: c_int) => file.seek(offset, whence_of(whence)?);
}

/// Stores the result of a call for C.
///
/// # Safety
/// `out` is valid for writing.
unsafe fn give<T>(out: *mut T, value: Result<T>) -> Result<()> {
    let value = value?;
    // SAFETY: as the caller says.
    unsafe { out.write(value) };
    Ok(())
}

/// Calls on an open file that return one value.
macro_rules! questions {
    ($($(#[$doc:meta])* $name:ident($file:ident $(, $argument:ident: $kind:ty)*) -> $out:ty => $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As `penstock.h` says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($file: *const File $(, $argument: $kind)*, out: *mut $out) -> c_int {
            // SAFETY: an open file; `out` is valid for writing.
            call(|| unsafe {
                let $file = &*$file;
                give(out, $body)
            })
        }
    )*};
}

questions! {
    /// `pst_file_size`.
    pst_file_size(file) -> i64 => file.size();
    /// `pst_file_info`.
    pst_file_info(file) -> *mut Pairs => Ok(Box::into_raw(Box::new(Pairs::of(&file.info()))));
    /// `pst_file_atomicity`.
    pst_file_atomicity(file) -> c_int => Ok(c_int::from(file.atomicity()));
    /// `pst_file_type_extent`.
    pst_file_type_extent(file, datatype: *const Type) -> i64 => file.type_extent(&(*datatype).datatype);
    /// `pst_file_position`.
    pst_file_position(file) -> i64 => file.position();
    /// `pst_file_position_shared`.
    pst_file_position_shared(file) -> i64 => file.position_shared();
    /// `pst_file_byte_offset`.
    pst_file_byte_offset(file, offset: i64) -> i64 => file.byte_offset(offset);
}

/// `pst_file_set_info`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_set_info(file: *const File, info: *const Pairs) -> c_int {
    // SAFETY: an open file and a valid object.
    call(|| unsafe { (*file).set_info(&info_of(info)) })
}

/// `pst_file_seek_shared`. Collective: an unknown origin becomes an invalid position, so that it fails on every rank.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_seek_shared(
    file: *const File,
    offset: i64,
    whence: c_int,
) -> c_int {
    // SAFETY: an open file.
    let file = unsafe { &*file };
    call(|| match whence_of(whence) {
        Ok(whence) => file.seek_shared(offset, whence),
        Err(error) => {
            let refused = file.seek_shared(-1, Whence::Set);
            refused.and(Err(error))
        }
    })
}

/// `pst_file_displacement`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_displacement(file: *const File) -> i64 {
    // SAFETY: an open file.
    i64::try_from(unsafe { &*file }.view().disp).unwrap_or(i64::MAX)
}

/// `PST_DISPLACEMENT_CURRENT` is the library's own value.
const _: () = assert!(DISPLACEMENT_CURRENT == i64::MIN);

/// `pst_file_set_view`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_set_view(
    file: *const File,
    displacement: i64,
    etype: *const Type,
    filetype: *const Type,
    datarep: c_int,
    info: *const Pairs,
) -> c_int {
    // SAFETY: an open file, types that are valid or null, a valid object.
    let (file, etype, filetype, info) = unsafe {
        let info = info_of(info);
        (&*file, etype.as_ref(), filetype.as_ref(), info)
    };
    call(|| {
        let byte = Datatype::byte();
        let etype = etype.map_or(&byte, |t| &t.datatype);
        let filetype = filetype.map_or(&byte, |t| &t.datatype);
        let datarep = match datarep {
            1 => DataRep::Internal,
            2 => DataRep::External32,
            _ => DataRep::Native,
        };
        file.set_view(displacement, etype, filetype, datarep, &info)
    })
}

/// `pst_file_access`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_access(
    file: *const File,
    access: *const Access,
    bytes: *mut u64,
) -> c_int {
    // SAFETY: an open file, a valid access with a valid type, `bytes` valid for writing.
    let (file, access, datatype) = unsafe {
        bytes.write(0);
        (&*file, &*access, &(*(*access).datatype).datatype)
    };
    let place = place_of(access.place, access.offset);
    let collective = access.collective != 0;
    call(|| {
        let (memory, datatype) = memory_of(access, datatype);
        let moved = if access.direction == WRITE {
            // SAFETY: the user's buffer holds `count` instances of the type, which the call may read.
            let mut from = unsafe { Source::new(access.buffer, memory) };
            file.write(place, collective, &mut from, &datatype)
        } else {
            // SAFETY: the same for writing; the user touches it only after the call.
            let mut into = unsafe { Target::new(access.buffer, memory) };
            file.read(place, collective, &mut into, &datatype)
        };
        // SAFETY: valid for writing.
        unsafe { give(bytes, moved) }
    })
}

/// `pst_done`.
type RawDone = extern "C" fn(*mut c_void, c_int, u64);

/// The shim's completion function with its argument.
struct Completion {
    done: RawDone,
    context: *mut c_void,
    called: bool,
}
// SAFETY: penstock.h says that `done` may be called from another thread.
unsafe impl Send for Completion {}

impl Completion {
    fn call(mut self, outcome: Result<u64>) {
        self.called = true;
        match outcome {
            Ok(bytes) => (self.done)(self.context, 0, bytes),
            Err(error) => (self.done)(self.context, report(&error), 0),
        }
    }
}

impl Drop for Completion {
    /// If the thread that should complete it panics, the program must not wait for ever. (If it is dropped without a
    /// panic, the access has not started, and `pst_file_start` reports that.)
    fn drop(&mut self) {
        if !self.called && std::thread::panicking() {
            let message = "a bug in Penstock's MPI-IO library ended a nonblocking access; see standard error, and please report it";
            let class = report(&Error::new(ErrorClass::Intern, message));
            (self.done)(self.context, class, 0);
        }
    }
}

/// `pst_file_start`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_start(
    file: *const File,
    access: *const Access,
    done: RawDone,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open file, a valid access with a valid type.
    let (file, access, datatype) = unsafe { (&*file, &*access, &(*(*access).datatype).datatype) };
    let place = place_of(access.place, access.offset);
    let collective = access.collective != 0;
    let completion = Completion {
        done,
        context,
        called: false,
    };
    let done: Done = Box::new(move |outcome| completion.call(outcome));
    call(|| {
        let (memory, datatype) = memory_of(access, datatype);
        if access.direction == WRITE {
            // SAFETY: MPI demands that the buffer stays valid and unchanged until the request is complete.
            let from = unsafe { Source::new(access.buffer, memory) };
            file.start_write(place, collective, from, &datatype, done)
        } else {
            // SAFETY: the same; nobody else touches it until then.
            let into = unsafe { Target::new(access.buffer, memory) };
            file.start_read(place, collective, into, &datatype, done)
        }
    })
}

/// `pst_file_begin`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_begin(file: *const File, access: *const Access) -> c_int {
    // SAFETY: an open file, a valid access with a valid type.
    let (file, access, datatype) = unsafe { (&*file, &*access, &(*(*access).datatype).datatype) };
    let place = place_of(access.place, access.offset);
    call(|| {
        let (memory, datatype) = memory_of(access, datatype);
        if access.direction == WRITE {
            // SAFETY: MPI demands that the buffer stays valid and unchanged until the matching end.
            let mut from = unsafe { Source::new(access.buffer, memory) };
            file.begin_write(place, &mut from, &datatype)
        } else {
            // SAFETY: the same; nobody else touches it until then.
            let mut into = unsafe { Target::new(access.buffer, memory) };
            file.begin_read(place, &mut into, &datatype)
        }
    })
}

/// `pst_file_end`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_file_end(
    file: *const File,
    direction: c_int,
    place: c_int,
    bytes: *mut u64,
) -> c_int {
    // SAFETY: an open file, `bytes` valid for writing.
    let file = unsafe {
        bytes.write(0);
        &*file
    };
    let place = place_of(place, 0);
    call(|| {
        let moved = if direction == WRITE {
            file.end_write(place)
        } else {
            file.end_read(place)
        };
        // SAFETY: valid for writing.
        unsafe { give(bytes, moved) }
    })
}
