//! The name by which programs ask for the library at run time: it changes when they have to be linked anew.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpenstock_sched_c.so.0");
}
