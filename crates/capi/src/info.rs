//! Key and value pairs of an `MPI_Info`.
use crate::error::text;
use penstock_mpiio::Info;
use std::ffi::{CString, c_char, c_int};

/// Further keys of one object are ignored.
const MAX_KEYS: usize = 4096;

/// `pst_info`: pairs as C reads them.
#[derive(Default)]
pub struct Pairs(Vec<(CString, CString)>);

impl Pairs {
    pub(crate) fn of(info: &Info) -> Pairs {
        let pair =
            |(key, value): (&str, &str)| Some((CString::new(key).ok()?, CString::new(value).ok()?));
        Pairs(info.iter().filter_map(pair).collect())
    }

    pub(crate) fn info(&self) -> Info {
        self.0
            .iter()
            .map(|(k, v)| (k.to_string_lossy(), v.to_string_lossy()))
            .collect()
    }
}

/// The pairs behind a pointer from C; none for null.
///
/// # Safety
/// Null or valid.
pub(crate) unsafe fn info_of(pairs: *const Pairs) -> Info {
    // SAFETY: as the caller says.
    unsafe { pairs.as_ref() }
        .map(Pairs::info)
        .unwrap_or_default()
}

/// `pst_info_new`.
#[unsafe(no_mangle)]
pub extern "C" fn pst_info_new() -> *mut Pairs {
    Box::into_raw(Box::default())
}

/// `pst_info_add`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_info_add(info: *mut Pairs, key: *const c_char, value: *const c_char) {
    // SAFETY: a valid object and terminated strings.
    let (info, key, value) = unsafe { (&mut *info, text(key), text(value)) };
    if info.0.len() < MAX_KEYS
        && let (Ok(key), Ok(value)) = (CString::new(key), CString::new(value))
    {
        info.0.push((key, value));
    }
}

/// `pst_info_count`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_info_count(info: *const Pairs) -> c_int {
    // SAFETY: a valid object.
    unsafe { &*info }.0.len() as c_int
}

fn at(info: &Pairs, index: c_int) -> Option<&(CString, CString)> {
    info.0.get(usize::try_from(index).ok()?)
}

/// `pst_info_key`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_info_key(info: *const Pairs, index: c_int) -> *const c_char {
    // SAFETY: a valid object.
    at(unsafe { &*info }, index).map_or(std::ptr::null(), |(key, _)| key.as_ptr())
}

/// `pst_info_value`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_info_value(info: *const Pairs, index: c_int) -> *const c_char {
    // SAFETY: a valid object.
    at(unsafe { &*info }, index).map_or(std::ptr::null(), |(_, value)| value.as_ptr())
}

/// `pst_info_free`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_info_free(info: *mut Pairs) {
    if !info.is_null() {
        // SAFETY: from Box::into_raw, freed once.
        drop(unsafe { Box::from_raw(info) });
    }
}
