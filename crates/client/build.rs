//! The test of the C interface loads a C program into the test binary, which must show it its symbols.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-tests=-rdynamic");
}
