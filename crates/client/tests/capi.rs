//! A C program compiled against `include/penstock.h` does its I/O through the library.
use crate::common::{Cluster, Plan};
use penstock_client::capi;
use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::process::Command;

/// Named here so that the linker keeps them for the C program.
fn keep() {
    let all: &[*const ()] = &[
        capi::penstock_connect as *const (),
        capi::penstock_disconnect as *const (),
        capi::penstock_open as *const (),
        capi::penstock_close as *const (),
        capi::penstock_pread as *const (),
        capi::penstock_pwrite as *const (),
        capi::penstock_read_loop as *const (),
        capi::penstock_write_loop as *const (),
        capi::penstock_length as *const (),
        capi::penstock_set_length as *const (),
        capi::penstock_sync as *const (),
        capi::penstock_stat_path as *const (),
        capi::penstock_unlink as *const (),
        capi::penstock_mkdir as *const (),
        capi::penstock_last_error as *const (),
        capi::penstock_last_errno as *const (),
    ];
    std::hint::black_box(all);
}

#[test]
fn a_c_program_reads_and_writes() {
    keep();
    let cluster = Cluster::start(Plan {
        stripe_unit: 1000,
        ..Plan::default()
    });
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = cluster.dir.path().join("program.so");
    let compiled = Command::new("cc")
        .args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
        ])
        .arg("-I")
        .arg(here.join("include"))
        .arg(here.join("tests/capi.c"))
        .arg("-o")
        .arg(&library)
        .status()
        .unwrap();
    assert!(compiled.success());
    let deployment = cluster.dir.path().join("deployment.toml");
    cluster.deployment.save(&deployment).unwrap();
    let library = CString::new(library.to_str().unwrap()).unwrap();
    let deployment = CString::new(deployment.to_str().unwrap()).unwrap();
    // SAFETY: the library was just compiled from capi.c, whose run() has this type.
    let failed_line = unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        assert!(
            !handle.is_null(),
            "{:?}",
            std::ffi::CStr::from_ptr(libc::dlerror())
        );
        let run = libc::dlsym(handle, c"run".as_ptr());
        assert!(!run.is_null());
        let run: extern "C" fn(*const c_char) -> c_int = std::mem::transmute(run);
        run(deployment.as_ptr())
    };
    assert_eq!(failed_line, 0);
}
