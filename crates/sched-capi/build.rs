//! Sets the name by which programs find the library at run time. It changes when programs have to be linked anew.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpenstock_sched_c.so.0");
}
