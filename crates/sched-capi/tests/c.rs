//! Compiles a C program with the header and the shared object, and runs it.
#![allow(clippy::unwrap_used)]
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn a_c_program_schedules() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    // target/PROFILE/deps/c-HASH: the shared object lies there or above.
    let deps: PathBuf = std::env::current_exe().unwrap().parent().unwrap().into();
    let libraries = [deps.clone(), deps.parent().unwrap().into()];
    let library = libraries
        .iter()
        .find(|dir| dir.join("libpenstock_sched_c.so").exists())
        .expect("libpenstock_sched_c.so is built with the tests");
    // As installed: the file has the SONAME, and compilers look for the link.
    let dir = deps.join(format!("sched-c-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    for name in ["libpenstock_sched_c.so.0", "libpenstock_sched_c.so"] {
        symlink(library.join("libpenstock_sched_c.so"), dir.join(name)).unwrap();
    }
    let program = dir.join("sched");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(crate_dir.join("tests/sched.c"))
        .arg("-I")
        .arg(crate_dir.join("include"))
        .arg("-L")
        .arg(&dir)
        .arg(format!("-Wl,-rpath,{}", dir.display()))
        .args(["-lpenstock_sched_c", "-lpthread"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{text}");
    let ran = Command::new(&program).output().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{text}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "ok\n");
}
