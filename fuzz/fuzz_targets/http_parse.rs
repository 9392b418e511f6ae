//! Whatever is sent to a port of `penstock view` or `penstock metrics`: a request with a body of bounded length, or a status.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/cli/src/http.rs"]
mod http;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for most in [0, 1000] {
        match http::parse(bytes, most) {
            Ok((request, length)) => {
                assert!(length <= most && request.path.starts_with('/'));
                assert!(request.method != "POST" || most > 0);
                // Two readers see the same: headers that decide stand once.
                assert!(request.header("transfer-encoding").is_none());
            }
            Err(status) => assert!((400..=431).contains(&status)),
        }
    }
});
