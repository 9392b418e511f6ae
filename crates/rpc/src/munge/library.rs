//! libmunge, loaded when it is needed, so that deployments without MUNGE do not depend on it.
//!
//! The whole C interface is in this file. Types and numbers are those of munge.h of MUNGE 0.5.
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

/// Life of a MUNGE credential, seconds; it also bounds the difference between the clocks of two hosts. It is used at
/// once.
pub const TTL_S: i32 = 60;
/// The library's name: its interface has had this version since 2004.
const NAME: &CStr = c"libmunge.so.2";
/// Options of a context.
const OPTION_TTL: c_int = 4;
const OPTION_SOCKET: c_int = 8;
/// The result of a successful call.
const SUCCESS: c_int = 0;
/// Larger payloads are refused.
const MOST: usize = 4096;

/// A `munge_ctx_t`.
type Context = *mut c_void;
type Create = unsafe extern "C" fn() -> Context;
type Destroy = unsafe extern "C" fn(Context);
type Set = unsafe extern "C" fn(Context, c_int, ...) -> c_int;
type ContextError = unsafe extern "C" fn(Context) -> *const c_char;
type Strerror = unsafe extern "C" fn(c_int) -> *const c_char;
type Encode = unsafe extern "C" fn(*mut *mut c_char, Context, *const c_void, c_int) -> c_int;
type Decode = unsafe extern "C" fn(
    *const c_char,
    Context,
    *mut *mut c_void,
    *mut c_int,
    *mut libc::uid_t,
    *mut libc::gid_t,
) -> c_int;

/// libmunge, loaded.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    create: Create,
    destroy: Destroy,
    set: Set,
    context_error: ContextError,
    strerror: Strerror,
    encode: Encode,
    decode: Decode,
}

/// munged's answer about a valid credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// What was put into it.
    pub payload: Vec<u8>,
    /// Effective user of the process that made it.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// Why libmunge refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `munge_err_t`.
    code: c_int,
    text: String,
}

impl Failure {
    /// A failure with this code.
    pub fn new(code: c_int, text: impl Into<String>) -> Failure {
        let text = text.into();
        Failure { code, text }
    }

    /// Whether munged is not running or not working: that says nothing about a credential.
    pub fn is_of_munged(&self) -> bool {
        !matches!(self.code, 8..=18)
    }

    /// What a user can do about an invalid credential.
    pub fn hint(&self) -> Option<&'static str> {
        match self.code {
            14 => Some("the hosts have different MUNGE keys"),
            15 | 16 => Some("the clocks of the hosts differ"),
            17 => Some("somebody has used it before"),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Library {
    /// Loads the library; the error says why that failed.
    pub fn open() -> Result<Library, String> {
        static OPEN: OnceLock<Library> = OnceLock::new();
        if let Some(library) = OPEN.get() {
            return Ok(*library);
        }
        // SAFETY: the name ends with a zero byte; opening libmunge runs no code but the loader's.
        let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(loaders_word)?;
        // SAFETY: the functions have these types in munge.h, and the library is never closed.
        let library = unsafe {
            Library {
                create: symbol(handle, c"munge_ctx_create")?,
                destroy: symbol(handle, c"munge_ctx_destroy")?,
                set: symbol(handle, c"munge_ctx_set")?,
                context_error: symbol(handle, c"munge_ctx_strerror")?,
                strerror: symbol(handle, c"munge_strerror")?,
                encode: symbol(handle, c"munge_encode")?,
                decode: symbol(handle, c"munge_decode")?,
            }
        };
        Ok(*OPEN.get_or_init(|| library))
    }

    /// Makes a credential of this process's effective user with this payload, by munged at `socket` or at libmunge's
    /// default.
    pub fn encode(&self, socket: Option<&Path>, payload: &[u8]) -> Result<String, Failure> {
        let context = self.context(socket)?;
        context.set_ttl(TTL_S)?;
        let length = c_int::try_from(payload.len())
            .map_err(|_| Failure::new(3, "the payload is too long"))?;
        let mut text = null_mut();
        // SAFETY: `payload` has `length` bytes; `text` and the context live during the call.
        let code =
            unsafe { (self.encode)(&mut text, context.raw, payload.as_ptr().cast(), length) };
        let text = Allocated(text.cast());
        context.outcome(code)?;
        let Some(text) = NonNull::new(text.0) else {
            return Err(Failure::new(1, "libmunge made no credential"));
        };
        // SAFETY: libmunge says that it worked, so this is a text with a zero byte at its end, which lives until `Allocated` goes.
        let text = unsafe { CStr::from_ptr(text.as_ptr().cast()) };
        Ok(text.to_string_lossy().into_owned())
    }

    /// Asks munged at `socket`, or at libmunge's default, about a credential. A credential is valid once only.
    pub fn decode(&self, socket: Option<&Path>, credential: &str) -> Result<Decoded, Failure> {
        let credential = CString::new(credential)
            .map_err(|_| Failure::new(8, "a zero byte in a MUNGE credential"))?;
        let context = self.context(socket)?;
        let (mut bytes, mut length) = (null_mut(), 0);
        let (mut uid, mut gid) = (0, 0);
        // SAFETY: the credential ends with a zero byte; all that is pointed to lives during the call.
        let code = unsafe {
            (self.decode)(
                credential.as_ptr(),
                context.raw,
                &mut bytes,
                &mut length,
                &mut uid,
                &mut gid,
            )
        };
        let bytes = Allocated(bytes);
        context.outcome(code)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let payload = match NonNull::new(bytes.0) {
            None => Vec::new(),
            Some(_) if length > MOST => return Err(Failure::new(8, "a payload that is too long")),
            // SAFETY: libmunge says that `length` bytes are there, which live until `Allocated` goes.
            Some(start) => unsafe {
                std::slice::from_raw_parts(start.as_ptr().cast::<u8>(), length).to_vec()
            },
        };
        Ok(Decoded { payload, uid, gid })
    }

    fn context(&self, socket: Option<&Path>) -> Result<ContextGuard<'_>, Failure> {
        // SAFETY: takes nothing; what it gives is destroyed by `ContextGuard`.
        let raw = unsafe { (self.create)() };
        if raw.is_null() {
            return Err(Failure::new(5, "libmunge has no memory"));
        }
        let context = ContextGuard { library: self, raw };
        if let Some(path) = socket {
            let path = CString::new(path.as_os_str().as_bytes())
                .map_err(|_| Failure::new(2, "a zero byte in the path of munged's socket"))?;
            // SAFETY: this option takes a text, which libmunge copies.
            let code = unsafe { (self.set)(raw, OPTION_SOCKET, path.as_ptr()) };
            context.outcome(code)?;
        }
        Ok(context)
    }
}

/// A context for one call.
struct ContextGuard<'a> {
    library: &'a Library,
    raw: Context,
}

impl ContextGuard<'_> {
    fn set_ttl(&self, seconds: c_int) -> Result<(), Failure> {
        // SAFETY: this option takes an int.
        let code = unsafe { (self.library.set)(self.raw, OPTION_TTL, seconds) };
        self.outcome(code)
    }

    fn outcome(&self, code: c_int) -> Result<(), Failure> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: the context is alive. The text is its own, and is copied before anything else happens to it.
        let own = unsafe { text((self.library.context_error)(self.raw)) };
        // SAFETY: takes any number; the text is a constant.
        let general = || unsafe { text((self.library.strerror)(code)) };
        let words = own.or_else(general).unwrap_or_default();
        Err(Failure::new(code, words))
    }
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: it came from `create`, and nothing uses it any more.
        unsafe { (self.library.destroy)(self.raw) }
    }
}

/// Memory allocated by libmunge, or null.
struct Allocated(*mut c_void);

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: null, or by munge.h ours to free.
        unsafe { libc::free(self.0) }
    }
}

/// A copy of a C string.
///
/// # Safety
/// `start` is null or the start of a text with a zero byte at its end.
unsafe fn text(start: *const c_char) -> Option<String> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(start) };
    Some(text.to_string_lossy().into_owned())
}

/// The function of this name.
///
/// # Safety
/// `T` is the type of a pointer to that function.
unsafe fn symbol<T: Copy>(library: NonNull<c_void>, name: &CStr) -> Result<T, String> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) }
    // SAFETY: the handle is open, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    if found.is_null() {
        return Err(loaders_word());
    }
    // SAFETY: the caller's word, and both have one size.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, T>(&found) })
}

/// The loader's last error message.
fn loaders_word() -> String {
    // SAFETY: the text is this thread's and is copied at once.
    unsafe { text(libc::dlerror()) }.unwrap_or_else(|| "the loader does not say why".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_munged_are_told_from_bad_credentials() {
        for code in [1, 2, 3, 5, 6, 7] {
            assert!(Failure::new(code, "").is_of_munged(), "{code}");
        }
        for code in 8..=18 {
            assert!(!Failure::new(code, "").is_of_munged(), "{code}");
        }
        assert!(Failure::new(17, "").hint().is_some());
    }
}
