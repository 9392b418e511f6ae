//! Bad input and bad behaviour: each affects its own connection only.
use crate::common::*;
use penstock_datatype::{Loop, Pattern};
use penstock_rpc::{ServeLimits, Timeouts};
use penstock_server::Options;
use penstock_wire::Envelope;
use penstock_wire::frame::{HEADER_LEN, Header, VERSION};
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, TraceContext};
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Raw bytes on a client's connection, behind everything that was sent.
fn raw(c: &mut Client, bytes: &[u8]) {
    c.connection.flush().unwrap();
    let fd = c.connection.as_fd().try_clone_to_owned().unwrap();
    // The server may have ended the connection already.
    let _ = UnixStream::from(fd).write_all(bytes);
}

fn header(body_len: usize, payload_len: usize) -> Header {
    Header {
        version: VERSION,
        envelope: Envelope::request(9, TraceContext::default()),
        body_len,
        payload_len,
        descriptors: 0,
    }
}

/// The server says why, then ends the connection.
fn parting_word(c: &mut Client) -> ErrorKind {
    let word = c.answer().1;
    let end = c.connection.receive::<DataReply>().unwrap_err();
    assert!(end.is_disconnect(), "{end}");
    kind(&word)
}

#[test]
fn malformed_and_oversized_frames_end_their_connection_alone() {
    let site = TestDeployment::one();
    let (mut good, h) = site.open(0, 1);
    good.write(h, contiguous(0, 4), b"good");
    let mut wrong_version = header(0, 0);
    wrong_version.version = 77;
    let mut bad_flags = header(1, 0).encode();
    bad_flags[6] = 0x40;
    let mut unknown_request = header(1, 0).encode().to_vec();
    unknown_request.push(0xff);
    let mut trailing = header(30, 0).encode().to_vec();
    trailing.extend([16; 30]);
    let cases: [(Vec<u8>, ErrorKind); 7] = [
        (vec![0xa5; 200], ErrorKind::Malformed),
        (wrong_version.encode().to_vec(), ErrorKind::Version),
        (
            header((1 << 20) + 1, 0).encode().to_vec(),
            ErrorKind::TooLarge,
        ),
        (
            header(4, usize::MAX >> 32).encode().to_vec(),
            ErrorKind::TooLarge,
        ),
        (bad_flags.to_vec(), ErrorKind::Malformed),
        (unknown_request, ErrorKind::Malformed),
        (trailing, ErrorKind::Malformed),
    ];
    for (bytes, expected) in cases {
        let mut bad = site.client(0);
        raw(&mut bad, &bytes);
        assert_eq!(parting_word(&mut bad), expected, "{bytes:?}");
        assert_eq!(good.read(h, contiguous(0, 9)), b"good");
    }
    // Payload without a request, and a request amid the payload of another.
    let mut bad = site.client(0);
    let e = bad.envelope();
    bad.connection.queue_continuation(&e, &[1; 9]).unwrap();
    bad.connection.flush().unwrap();
    assert!(
        bad.connection
            .receive::<DataReply>()
            .unwrap_err()
            .is_disconnect()
    );
    let (mut bad, hb) = site.open(0, 2);
    let e = bad.envelope();
    let request = DataRequest::Write {
        handle: hb,
        region: contiguous(0, 100),
        lock: None,
    };
    bad.connection
        .queue_payload(&e.more(true), &request, &[1; 9])
        .unwrap();
    bad.queue(&DataRequest::Status);
    assert!(
        bad.connection
            .receive::<DataReply>()
            .unwrap_err()
            .is_disconnect()
    );
    assert_eq!(good.read(h, contiguous(0, 9)), b"good");
}

#[test]
fn every_cut_of_a_good_request_is_survived() {
    let site = TestDeployment::one();
    let (mut good, h) = site.open(0, 1);
    let mut bytes = Vec::new();
    penstock_wire::frame::append(
        &mut bytes,
        VERSION,
        &Envelope::request(1, TraceContext::default()),
        Some(&DataRequest::Status),
        0,
        0,
        &penstock_wire::frame::Limits::FULL,
    )
    .unwrap();
    assert!(bytes.len() > HEADER_LEN);
    for cut in 1..bytes.len() {
        let mut c = site.client(0);
        raw(&mut c, &bytes[..cut]);
        drop(c);
    }
    good.write(h, contiguous(0, 4), b"good");
    assert_eq!(good.read(h, contiguous(0, 9)), b"good");
}

#[test]
fn a_client_that_dies_in_a_write_leaves_what_it_sent_and_no_lock() {
    let site = TestDeployment::one();
    let (mut good, h) = site.open(0, 1);
    good.write(h, contiguous(0, 1000), &[1; 1000]);
    let (mut dying, hd) = site.open(0, 1);
    let lock = dying.lock(hd, 0, 1000);
    let e = dying.envelope();
    let request = DataRequest::Write {
        handle: hd,
        region: contiguous(100, 800),
        lock: Some(lock),
    };
    dying
        .connection
        .queue_payload(&e.more(true), &request, &[2; 50])
        .unwrap();
    // Half a frame: what it announces never comes.
    let mut half = header(0, 700);
    half.envelope = e;
    raw(&mut dying, &half.encode());
    raw(&mut dying, &[2; 10]);
    UnixStream::from(dying.connection.as_fd().try_clone_to_owned().unwrap())
        .shutdown(Shutdown::Both)
        .unwrap();
    // The lock is free, and every byte is old or the dead client's.
    let lock = good.lock(h, 0, 1000);
    let bytes = good.read(h, contiguous(0, 1000));
    assert!(bytes[..100].iter().chain(&bytes[900..]).all(|b| *b == 1));
    assert_eq!(bytes[100..150], [2; 50]);
    assert!(bytes[160..].iter().all(|b| *b == 1));
    good.done(DataRequest::Unlock { handle: h, lock });
}

#[test]
fn slow_and_silent_connections_do_not_disturb_a_good_one() {
    let limits = ServeLimits {
        half_open: 4,
        grace: Duration::from_millis(20),
        timeouts: Timeouts {
            read: Some(Duration::from_millis(300)),
            write: Some(Duration::from_millis(300)),
        },
        ..ServeLimits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    let site = TestDeployment::start(1, "dir", options);
    let socket = site.deployment.servers[0].address.unix.clone().unwrap();
    // Strangers that say nothing, and more of them than there are places.
    let silent: Vec<_> = (0..8)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    // One that stops in the middle of a frame, one that never takes its answers, one that is idle.
    let (mut stuck, _) = site.open(0, 2);
    raw(&mut stuck, &header(40, 0).encode()[..20]);
    let (mut deaf, hd) = site.open(0, 3);
    deaf.write(hd, contiguous(0, 1 << 20), &vec![3; 1 << 20]);
    for _ in 0..64 {
        deaf.queue(&DataRequest::Read {
            handle: hd,
            region: contiguous(0, 1 << 20),
            lock: None,
        });
    }
    deaf.connection.flush().unwrap();
    let (mut idle, hi) = site.open(0, 4);
    let (mut good, h) = site.open(0, 1);
    for i in 0..200u64 {
        good.write(h, contiguous(i * 8, 8), &i.to_le_bytes());
        assert_eq!(good.read(h, contiguous(i * 8, 8)), i.to_le_bytes());
    }
    // The stuck one is dropped in time; the idle one stays.
    assert!(
        stuck
            .connection
            .receive::<DataReply>()
            .unwrap_err()
            .is_disconnect()
    );
    std::thread::sleep(Duration::from_millis(700));
    idle.write(hi, contiguous(0, 4), b"here");
    assert_eq!(idle.read(hi, contiguous(0, 4)), b"here");
    drop((silent, deaf));
}

#[test]
fn handles_are_bounded() {
    let site = TestDeployment::start(1, "memory", Options::default());
    let mut c = site.client(0);
    let mut handles = Vec::new();
    let refused = loop {
        match c.attach(site.capability(handles.len() as u64, READ)) {
            Ok(h) => handles.push(h),
            Err(e) => break e,
        }
    };
    assert_eq!(refused.kind, ErrorKind::Busy);
    c.done(DataRequest::Detach { handle: handles[7] });
    let e = c.refused(DataRequest::Len { handle: handles[7] });
    assert_eq!(e.kind, ErrorKind::InvalidArgument);
    assert_eq!(
        c.attach(site.capability(1 << 40, READ)).unwrap(),
        handles[7]
    );
}

/// Requests of about 100 bytes that describe 2^60 pieces, or need 2^40 searches for one.
#[test]
fn endless_patterns_end() {
    let options = Options {
        search_steps: 1 << 16,
        ..Options::default()
    };
    let site = TestDeployment::start(2, "memory", options);
    let (mut c, h) = site.open(1, 1);
    c.write(h, contiguous(64, 8), &[7; 8]);
    let whole = |tile: Loop| {
        let len = tile.size();
        Pattern::new(64, tile, 0, len).unwrap()
    };
    let vector = |count, stride, child: &Loop| Loop::vector(count, 1, stride, child).unwrap();
    let pair = vector(2, 1 << 10, &Loop::bytes(2));
    let many = whole(vector(1 << 60, 2, &Loop::bytes(1)));
    let elsewhere = Pattern {
        disp: 0,
        ..whole(vector(1 << 40, 1 << 12, &pair))
    };
    // The object ends: nothing of 2^60 pieces is looked for behind it.
    assert_eq!(c.read(h, inline(&many)), [7; 4]);
    for refused in [
        c.refused(DataRequest::Read {
            handle: h,
            region: inline(&elsewhere),
            lock: None,
        }),
        match c.write_with(h, inline(&elsewhere), None, &[1; 2], 8) {
            DataReply::Error(e) => e,
            other => panic!("{other:?}"),
        },
    ] {
        assert_eq!(refused.kind, ErrorKind::InvalidArgument);
        assert!(
            refused.message.contains("too few bytes on this server"),
            "{refused:?}"
        );
    }
    // What a frame announces is what its region describes, or nothing is written.
    let one = |bytes: &[u8]| (contiguous(64, 8), bytes.to_vec());
    for (region, bytes) in [
        one(&[1; 7]),
        one(&[1; 9]),
        (inline(&elsewhere), vec![1; 1 << 20]),
    ] {
        let reply = c.write_with(h, region, None, &bytes, 1 << 20);
        assert_eq!(kind(&reply), ErrorKind::InvalidArgument);
    }
    assert_eq!(c.read(h, contiguous(64, 8)), [7; 8]);
}

#[test]
fn nobody_searches_for_a_client_that_has_gone() {
    let options = Options {
        search_steps: u64::MAX,
        ..Options::default()
    };
    let site = TestDeployment::start(2, "memory", options);
    let (mut c, h) = site.open(1, 1);
    c.write(h, contiguous(64, 8), &[7; 8]);
    let pair = Loop::vector(2, 1, 1 << 10, &Loop::bytes(2)).unwrap();
    let tile = Loop::vector(1 << 40, 1, 1 << 12, &pair).unwrap();
    let len = tile.size();
    let elsewhere = Pattern::new(0, tile, 0, len).unwrap();
    c.queue(&DataRequest::Read {
        handle: h,
        region: inline(&elsewhere),
        lock: None,
    });
    c.connection.flush().unwrap();
    drop(c);
    let patience = std::time::Instant::now();
    while site.servers[1].connections() > 0 {
        assert!(
            patience.elapsed() < Duration::from_secs(20),
            "still searching"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
