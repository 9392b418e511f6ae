//! Functions that concern the whole process.
use crate::error::{call, text};
use std::ffi::{c_char, c_int};
use std::io::Write;
use std::sync::Once;

/// Warnings go to standard error; `PENSTOCK_LOG` (error, warn, info, debug, trace, off) sets the level.
pub(crate) fn start_log() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let level = env_logger::Env::default().filter_or("PENSTOCK_LOG", "warn");
        // A Rust program may have a logger already, which then gets the messages.
        let _ = env_logger::Builder::from_env(level)
            .format(|out, record| {
                let level = record.level().as_str().to_lowercase();
                writeln!(out, "penstock: {level}: {}", record.args())
            })
            .try_init();
    });
}

/// `pst_configured`.
#[unsafe(no_mangle)]
pub extern "C" fn pst_configured() -> c_int {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    c_int::from(set("PENSTOCK_DEPLOYMENT") || set("PENSTOCK_DIRECT"))
}

/// `pst_owns`.
///
/// # Safety
/// As `penstock.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pst_owns(name: *const c_char) -> c_int {
    // SAFETY: a terminated string.
    let name = unsafe { text(name) };
    let owns = std::panic::catch_unwind(|| penstock_mpiio::belongs(&name).is_some());
    c_int::from(owns.unwrap_or(false))
}

/// `pst_world`.
#[unsafe(no_mangle)]
pub extern "C" fn pst_world(ranks: c_int) {
    start_log();
    call(|| {
        penstock_mpiio::world(usize::try_from(ranks).unwrap_or(0));
        Ok(())
    });
}

/// `pst_finish`.
#[unsafe(no_mangle)]
pub extern "C" fn pst_finish(rank: c_int) {
    call(|| {
        if let Err(error) = penstock_mpiio::write_summary(usize::try_from(rank).unwrap_or(0)) {
            eprintln!("penstock: {error}");
        }
        Ok(())
    });
}
