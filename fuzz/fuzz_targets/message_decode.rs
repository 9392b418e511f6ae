//! Whatever bytes a peer sends: no frame and no message, or one that survives its encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::frame::{HEADER_LEN, Header, Limits, VERSION, decode_body};
use penstock_wire::handshake::{Challenge, Hello, Proof, Verdict};
use penstock_wire::message::{DataReply, DataRequest, MetaReply, MetaRequest};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

fn survives<B: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) {
    let Ok(body) = decode_body::<B>(bytes) else {
        return;
    };
    // Numbers have several encodings; the one that we write must mean the same.
    let encoded = postcard::to_stdvec(&body).expect("a message encodes");
    let again = decode_body::<B>(&encoded).expect("an encoding decodes");
    assert_eq!(format!("{body:?}"), format!("{again:?}"));
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 9 {
        0 => survives::<DataRequest>(rest),
        1 => survives::<DataReply>(rest),
        2 => survives::<MetaRequest>(rest),
        3 => survives::<MetaReply>(rest),
        4 => survives::<Hello>(rest),
        5 => survives::<Challenge>(rest),
        6 => survives::<Proof>(rest),
        7 => survives::<Verdict>(rest),
        _ => {
            let Some(bytes) = rest.first_chunk::<HEADER_LEN>() else {
                return;
            };
            for limits in [Limits::FULL, Limits::HANDSHAKE] {
                if let Ok(header) = Header::decode(bytes, VERSION, &limits) {
                    assert!(header.body_len <= limits.body && header.payload_len <= limits.payload);
                    assert_eq!(&header.encode(), bytes);
                }
            }
        }
    }
});
