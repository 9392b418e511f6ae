//! What a prefetch promises: an answer before the bytes, none of them sent, and reads that come behind it.
use crate::common::{TestDeployment, contiguous};
use penstock_datatype::Loop;
use penstock_wire::Rights;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, Region};

#[test]
fn a_prefetch_returns_no_bytes_and_changes_none() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    let bytes: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
    c.write(h, contiguous(0, 1 << 20), &bytes);
    let (mut other, o) = site.open(0, 1);
    for (offset, len) in [(0, 1 << 20), (1000, 1), (1 << 19, 1 << 30), (1 << 40, 10)] {
        let region = contiguous(offset, len);
        let id = c.queue(&DataRequest::Prefetch { handle: h, region });
        // The next request of the connection is served behind it.
        let next = c.queue(&DataRequest::Len { handle: h });
        let (answered, reply, payload) = c.answer();
        assert_eq!((answered, reply, payload.len()), (id, DataReply::Done, 0));
        assert_eq!(other.read(o, contiguous(0, 1 << 20)), bytes);
        assert_eq!(c.answer().0, next);
    }
}

#[test]
fn a_prefetch_is_checked_as_a_read_is() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    // Of what nobody has written.
    let region = contiguous(0, 100);
    c.done(DataRequest::Prefetch { handle: h, region });
    let tile = Loop::bytes(10).resized(0, 30).unwrap();
    let hash = Region::LoopHash {
        hash: tile.hash().0,
        disp: 0,
        start: 0,
        len: 100,
    };
    let unknown = c.ask(DataRequest::Prefetch {
        handle: h,
        region: hash.clone(),
    });
    assert_eq!(unknown, DataReply::UnknownLoop);
    let inline = Region::LoopInline {
        encoded: tile.encode().to_vec(),
        disp: 0,
        start: 0,
        len: 100,
    };
    c.done(DataRequest::Prefetch {
        handle: h,
        region: inline,
    });
    c.done(DataRequest::Prefetch {
        handle: h,
        region: hash,
    });
    let only_write = Rights {
        read: false,
        write: true,
        remove: false,
    };
    let w = c.attach(site.capability(2, only_write)).unwrap();
    let region = contiguous(0, 1);
    let e = c.refused(DataRequest::Prefetch { handle: w, region });
    assert_eq!(e.kind, ErrorKind::Permission);
    let region = contiguous(u64::MAX, 2);
    let e = c.refused(DataRequest::Prefetch { handle: h, region });
    assert_eq!(e.kind, ErrorKind::InvalidArgument);
}

/// A client that goes away in the middle keeps nobody waiting.
#[test]
fn a_client_that_leaves_lets_readers_go() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    c.write(h, contiguous(0, 4 << 20), &vec![7; 4 << 20]);
    for _ in 0..20 {
        let (mut other, o) = site.open(0, 1);
        let region = contiguous(0, 4 << 20);
        other.queue(&DataRequest::Prefetch { handle: o, region });
        other.queue(&DataRequest::Len { handle: o });
        other.answer();
        drop(other);
        assert_eq!(c.read(h, contiguous(3 << 20, 1 << 20)), [7; 1 << 20]);
    }
}
