//! Error classes as numbers, and the messages for `MPI_Error_string`.
use penstock_mpiio::{Error, ErrorClass, Result};
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// One more than the highest error class of MPI 5.0.
const CLASSES: usize = 64;
/// Longer messages are truncated.
const MAX_MESSAGE: usize = 4096;

/// The last message of each class. One table per process, because an error of a nonblocking access occurs on another
/// thread than the one that asks for its text.
static MESSAGES: Mutex<[Option<String>; CLASSES]> = Mutex::new([const { None }; CLASSES]);

/// Error classes of an invalid buffer, count or datatype.
const CLASSES_OF_ARGUMENTS: [ErrorClass; 8] = [
    ErrorClass::Buffer,
    ErrorClass::Count,
    ErrorClass::Type,
    ErrorClass::Arg,
    ErrorClass::Intern,
    ErrorClass::Conversion,
    ErrorClass::NoMem,
    ErrorClass::UnsupportedDatarep,
];

/// The number of a class in the standard ABI (MPI 5.0, table of section 20.2).
pub(crate) fn number(class: ErrorClass) -> c_int {
    match class {
        ErrorClass::Buffer => 1,
        ErrorClass::Count => 2,
        ErrorClass::Type => 3,
        ErrorClass::Comm => 5,
        ErrorClass::Request => 7,
        ErrorClass::Arg => 13,
        ErrorClass::Other => 16,
        ErrorClass::Intern => 17,
        ErrorClass::Access => 20,
        ErrorClass::Amode => 21,
        ErrorClass::BadFile => 23,
        ErrorClass::Conversion => 25,
        ErrorClass::DupDatarep => 27,
        ErrorClass::FileExists => 28,
        ErrorClass::FileInUse => 29,
        ErrorClass::File => 30,
        ErrorClass::InfoValue => 33,
        ErrorClass::Io => 35,
        ErrorClass::NoMem => 39,
        ErrorClass::NotSame => 40,
        ErrorClass::NoSpace => 41,
        ErrorClass::NoSuchFile => 42,
        ErrorClass::Quota => 44,
        ErrorClass::ReadOnly => 45,
        ErrorClass::UnsupportedDatarep => 54,
        ErrorClass::UnsupportedOperation => 55,
    }
}

/// The error whose message the shim has set for this class.
pub(crate) fn described(class: c_int) -> Error {
    let known = CLASSES_OF_ARGUMENTS.iter().find(|c| number(**c) == class);
    let messages = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let message = usize::try_from(class)
        .ok()
        .and_then(|c| messages.get(c).cloned().flatten());
    Error::new(
        known.copied().unwrap_or(ErrorClass::Other),
        message.unwrap_or_else(|| "an argument could not be used".into()),
    )
}

fn keep(class: c_int, message: &str) {
    let mut messages = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(slot) = usize::try_from(class)
        .ok()
        .and_then(|c| messages.get_mut(c))
    {
        *slot = Some(message.chars().take(MAX_MESSAGE).collect());
    }
}

/// Stores the error's message; returns its class number.
pub(crate) fn report(error: &Error) -> c_int {
    let class = number(error.class);
    keep(class, &error.message);
    class
}

/// Runs the body of a C function: returns 0, or the number of its error; panics become internal errors.
pub(crate) fn call(inside: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(inside)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => report(&error),
        Err(panic) => {
            let what = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            report(&Error::new(
                ErrorClass::Intern,
                format!("a bug in Penstock's MPI-IO library: {what}; please report it"),
            ))
        }
    }
}

/// A C string, with what is not UTF-8 replaced.
///
/// # Safety
/// `text` is null or points to a terminated string.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: terminated, as the caller says.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Copies as much of `message` as fits with its terminator; returns the length copied.
///
/// # Safety
/// `out` has room for `capacity` bytes.
unsafe fn copy_out(message: &str, out: *mut c_char, capacity: usize) -> usize {
    let Some(room) = capacity.checked_sub(1) else {
        return 0;
    };
    let mut length = message.len().min(room);
    while !message.is_char_boundary(length) {
        length -= 1;
    }
    // SAFETY: length < capacity; the buffers are distinct.
    unsafe {
        std::ptr::copy_nonoverlapping(message.as_ptr(), out.cast::<u8>(), length);
        out.add(length).write(0);
    }
    length
}

/// `pst_message`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_message(class: c_int, out: *mut c_char, capacity: usize) -> usize {
    let messages = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let message = usize::try_from(class)
        .ok()
        .and_then(|c| messages.get(c))
        .and_then(|slot| slot.as_deref())
        .unwrap_or("");
    // SAFETY: `out` has room for `capacity` bytes.
    unsafe { copy_out(message, out, capacity) }
}

/// `pst_set_message`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_set_message(class: c_int, message: *const c_char) {
    // SAFETY: a terminated string.
    keep(class, &unsafe { text(message) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_per_class_and_cut_to_the_buffer() {
        let error = Error::new(ErrorClass::Quota, "no quota left for añb");
        assert_eq!(report(&error), 44);
        let mut out = [1 as c_char; 21];
        // SAFETY: the buffer and its length.
        let length = unsafe { pst_message(44, out.as_mut_ptr(), out.len()) };
        // SAFETY: terminated by pst_message.
        let copied = unsafe { CStr::from_ptr(out.as_ptr()) };
        assert_eq!(length, 19);
        assert_eq!(copied.to_str(), Ok("no quota left for a"));
        // SAFETY: as above.
        assert_eq!(unsafe { pst_message(-5, out.as_mut_ptr(), 21) }, 0);
    }

    #[test]
    fn a_panic_becomes_an_internal_error() {
        let class = call(|| panic!("broken {}", 7));
        assert_eq!(class, 17);
        let messages = MESSAGES.lock().unwrap();
        assert!(messages[17].as_deref().unwrap().contains("broken 7"));
    }
}
