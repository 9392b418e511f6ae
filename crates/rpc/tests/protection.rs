//! TLS under the frames: what an attacker on the network can do, and who is accepted as a server.
use crate::common::{LEN, caller, exchange, identity, only_tcp, start, start_as, timeouts};
use penstock_rpc::deployment::{Address, Transport};
use penstock_rpc::{Connection, Identity, RunningServer, ServeLimits, connect, connect_as};
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, TraceContext};
use penstock_wire::{Envelope, Error, Key, KeyPair, LinkName, Role};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How a proxy changes bytes on their way to the server, or from it. It closes the connection when it removes some.
type Change = Box<dyn FnMut(&mut Vec<u8>) + Send>;

/// A proxy between a client and a server; returns the address for clients.
fn proxy(server: &Address, mut up: Change, mut down: Change) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address {
        unix: None,
        tcp: Some(listener.local_addr().unwrap().to_string()),
        identity: server.identity,
    };
    let to = server.tcp.clone().unwrap();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(to).unwrap();
        let (c, s) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let there = std::thread::spawn(move || pass(client, server, &mut up));
        pass(s, c, &mut down);
        there.join().unwrap();
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: &mut Change) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        let mut bytes = buffer[..n].to_vec();
        change(&mut bytes);
        if to.write_all(&bytes).is_err() || bytes.len() < n {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

/// Others are served as before.
fn goes_on(server: &RunningServer) {
    let address = only_tcp(server.address());
    let mut good = connect(&address, &caller(Role::Client), timeouts()).unwrap();
    exchange(&mut good);
}

fn nothing() -> Change {
    Box::new(|_| {})
}

#[test]
fn bytes_are_hidden_and_whole() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    let (seen, all) = mpsc::channel();
    let back = seen.clone();
    let listen = |to: mpsc::Sender<Vec<u8>>| -> Change {
        Box::new(move |bytes| to.send(bytes.clone()).unwrap())
    };
    let between = proxy(server.address(), listen(seen), listen(back));
    let link = LinkName::new().unwrap();
    let mut connection = connect_as(&between, &caller(Role::Client), link, timeouts()).unwrap();
    exchange(&mut connection);
    let secret = b"nobody on the network may read this".repeat(300);
    let e = Envelope::request(1, TraceContext::default());
    connection
        .queue_payload(&e, &DataRequest::Status, &secret)
        .unwrap();
    let got = connection.receive::<DataReply>().unwrap();
    let mut echoed = vec![0; got.payload_len];
    connection.read_payload(&mut echoed).unwrap();
    assert_eq!(echoed, secret);
    drop(connection);
    let crossed: Vec<u8> = all.try_iter().flatten().collect();
    assert!(crossed.len() > 2 * secret.len());
    let shows = |what: &[u8]| crossed.windows(what.len()).any(|w| w == what);
    assert!(!shows(&secret[..16]));
    // Not even the handshake frames are readable, with the name by which the link could be taken over.
    assert!(!shows(identity().deployment.as_bytes()) && !shows(&link.link[..8]));
}

#[test]
fn calls_that_never_wait_pass_the_buffers_by() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    for address in [server.address().clone(), only_tcp(server.address())] {
        let mut connection = connect(&address, &caller(Role::Client), timeouts()).unwrap();
        // 3 MiB in both directions, more than any buffer in between.
        let payload: Vec<u8> = (0..3u32 << 20).map(|i| ((i * 31) >> 3) as u8).collect();
        let (mut frame, limits) = (Vec::new(), penstock_wire::frame::Limits::FULL);
        for part in payload.chunks(1 << 20) {
            let e = Envelope::request(7, TraceContext::default());
            let version = connection.version();
            let body = Some(&DataRequest::Status);
            penstock_wire::frame::append(&mut frame, version, &e, body, part.len(), 0, &limits)
                .unwrap();
            frame.extend_from_slice(part);
        }
        let (mut sent, mut back) = (0, vec![0; frame.len() + 4096]);
        let mut came = 0;
        let end = Instant::now() + Duration::from_secs(60);
        while came < payload.len() {
            assert!(Instant::now() < end, "{came} of {} came", payload.len());
            let pushed = connection.push_some();
            assert!(pushed.is_ok() || pushed.unwrap_err().kind() == std::io::ErrorKind::WouldBlock);
            if sent < frame.len() && !connection.is_pending() {
                let (a, b) = frame[sent..].split_at((frame.len() - sent) / 2);
                sent += connection
                    .send_some(&[IoSlice::new(a), IoSlice::new(b)])
                    .unwrap_or(0);
            }
            let room = came + (back.len() - came).min(100_000);
            match connection.receive_some(&mut [IoSliceMut::new(&mut back[came..room])]) {
                Ok(n) => came += n,
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock, "{e}"),
            }
        }
        // Replies are headers of their own and the payloads.
        for part in payload.chunks(1 << 20) {
            assert!(back.windows(64).any(|w| w == &part[..64]));
        }
    }
}

#[test]
fn only_the_holder_of_the_identity_is_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    let mut other = only_tcp(server.address());
    other.identity = Some(KeyPair::generate().unwrap().public());
    let e = connect(&other, &caller(Role::Client), timeouts()).unwrap_err();
    assert!(matches!(e, Error::BadKey(_)), "{e}");
    assert!(e.to_string().contains("did not prove the identity"), "{e}");
    // Without an identity nobody could tell.
    other.identity = None;
    let e = connect(&other, &caller(Role::Client), timeouts()).unwrap_err();
    assert!(e.to_string().contains("penstock up"), "{e}");
}

#[test]
fn nobody_is_talked_out_of_it() {
    let plain = |mut identity: Identity| {
        identity.transport = Transport::PlainTrustedNetwork;
        identity
    };
    let mut trusting = caller(Role::Client);
    trusting.transport = Transport::PlainTrustedNetwork;
    // A client without TLS is told by a server with it.
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    let e = connect(&only_tcp(server.address()), &trusting, timeouts()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Version, "{e}");
    assert!(e.to_string().contains("deployment file"), "{e}");
    // A client with TLS refuses a server without.
    let dir = tempfile::tempdir().unwrap();
    let open = start_as(dir.path(), plain(identity()), ServeLimits::default());
    let mut address = only_tcp(open.address());
    assert_eq!(address.identity, None);
    address.identity = only_tcp(server.address()).identity;
    let e = connect(&address, &caller(Role::Client), timeouts()).unwrap_err();
    assert!(
        e.is_disconnect() && e.to_string().contains("`transport`"),
        "{e}"
    );
    // Both without TLS, as the deployment says.
    let mut connection = connect(&only_tcp(open.address()), &trusting, timeouts()).unwrap();
    exchange(&mut connection);
}

/// A busy or stopping server may do this: the client tries again.
#[test]
fn a_connection_that_ends_in_the_handshake_is_no_wrong_key() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address {
        unix: None,
        tcp: Some(listener.local_addr().unwrap().to_string()),
        identity: Some(KeyPair::generate().unwrap().public()),
    };
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    });
    let e = connect(&address, &caller(Role::Client), timeouts()).unwrap_err();
    assert!(e.is_disconnect(), "{e:?}");
    server.join().unwrap();
}

#[test]
fn a_bit_that_flips_on_the_way_ends_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    // In the handshake, after it, in the middle of a payload; in both directions.
    for at in [3usize, 40, 150, 700, 5_000, 60_000] {
        for upward in [true, false] {
            let mut passed = 0;
            let flip: Change = Box::new(move |bytes| {
                if (passed..passed + bytes.len()).contains(&at) {
                    bytes[at - passed] ^= 0x10;
                }
                passed += bytes.len();
            });
            let between = if upward {
                proxy(server.address(), flip, nothing())
            } else {
                proxy(server.address(), nothing(), flip)
            };
            let end = (|| {
                let mut connection = connect(&between, &caller(Role::Client), timeouts())?;
                let e = Envelope::request(1, TraceContext::default());
                for _ in 0..4 {
                    let payload = vec![9; 50_000];
                    connection.queue_payload(&e, &DataRequest::Status, &payload)?;
                    let got = connection.receive::<DataReply>()?;
                    let mut back = vec![0; got.payload_len];
                    connection.read_payload(&mut back)?;
                    assert_eq!(back, payload, "wrong bytes, byte {at}, upward {upward}");
                }
                Ok::<(), Error>(())
            })();
            let e = end.expect_err("nothing noticed");
            assert!(e.is_disconnect(), "byte {at}, upward {upward}: {e:?}");
        }
    }
    goes_on(&server);
}

/// The end of a TCP stream is not the end of data: TLS has a message for that, which only the peer can send.
#[test]
fn an_end_without_a_word_is_a_lost_connection() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    // In the handshake, in the answers behind it, in a payload, and between two answers.
    for at in [3, 150, 700, 5_000, 60_000, usize::MAX] {
        let most = Arc::new(AtomicUsize::new(at));
        let left = most.clone();
        let cut: Change = Box::new(move |bytes| {
            bytes.truncate(left.load(SeqCst));
            left.fetch_sub(bytes.len(), SeqCst);
        });
        let between = proxy(server.address(), nothing(), cut);
        let mut answers = 0;
        let end = (|| {
            let mut connection = connect(&between, &caller(Role::Client), timeouts())?;
            let e = Envelope::request(1, TraceContext::default());
            for _ in 0..4 {
                let payload = vec![9; 50_000];
                connection.queue_payload(&e, &DataRequest::Status, &payload)?;
                let got = connection.receive::<DataReply>()?;
                let mut back = vec![0; got.payload_len];
                connection.read_payload(&mut back)?;
                assert_eq!(back, payload, "ended after {at} bytes");
                answers += 1;
                if at == usize::MAX {
                    most.store(0, SeqCst);
                }
            }
            Ok::<(), Error>(())
        })();
        let e = end.expect_err("nothing noticed");
        assert!(e.is_disconnect(), "after {at} bytes: {e:?}");
        assert!(answers < 2, "after {at} bytes: {answers} answers");
    }
    goes_on(&server);
}

#[test]
fn bytes_put_in_between_end_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    // What a client for this server would send without TLS.
    let mut forged = Vec::new();
    let e = Envelope::request(99, TraceContext::default());
    let limits = penstock_wire::frame::Limits::FULL;
    penstock_wire::frame::append(
        &mut forged,
        6,
        &e,
        Some(&DataRequest::Shutdown),
        0,
        0,
        &limits,
    )
    .unwrap();
    let mut quiet = 3;
    let inject: Change = Box::new(move |bytes| {
        quiet -= 1;
        if quiet == 0 {
            bytes.extend_from_slice(&forged);
        }
    });
    let between = proxy(server.address(), inject, nothing());
    let ended = connect(&between, &caller(Role::Client), timeouts()).and_then(|mut connection| {
        let e = Envelope::request(1, TraceContext::default());
        (0..10).try_for_each(|_| {
            connection.queue(&e, &LEN)?;
            connection.receive::<DataReply>().map(drop)
        })
    });
    assert!(ended.unwrap_err().is_disconnect());
    goes_on(&server);
}

#[test]
fn a_replayed_session_is_no_session() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    let (seen, said) = mpsc::channel();
    let record: Change = Box::new(move |bytes| seen.send(bytes.clone()).unwrap());
    let between = proxy(server.address(), record, nothing());
    let mut admin = connect(&between, &caller(Role::Admin), timeouts()).unwrap();
    exchange(&mut admin);
    drop(admin);
    let mut again = TcpStream::connect(server.address().tcp.as_ref().unwrap()).unwrap();
    // An end or a reset, in the middle or after the server's part of another handshake.
    let _ = again.write_all(&said.iter().flatten().collect::<Vec<u8>>());
    let mut heard = Vec::new();
    let _ = again.read_to_end(&mut heard);
    assert!(heard.len() < 1500, "{} bytes", heard.len());
}

#[test]
fn a_slow_stranger_does_not_outstay_the_handshake() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ServeLimits {
        handshake: Duration::from_millis(300),
        ..ServeLimits::default()
    };
    let server = start(dir.path(), limits);
    let mut slow = TcpStream::connect(server.address().tcp.as_ref().unwrap()).unwrap();
    let began = Instant::now();
    // The head of a handshake record, whose body is sent one byte at a time.
    let _ = slow.write_all(&[22, 3, 1, 0x10, 0]);
    while slow.write_all(&[1]).is_ok() && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn many_who_come_at_once_get_in() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ServeLimits {
        connections: 400,
        ..ServeLimits::default()
    };
    let server = start(dir.path(), limits);
    let address = only_tcp(server.address());
    let threads: Vec<_> = (0..256)
        .map(|_| {
            let address = address.clone();
            let body = move || -> penstock_wire::Result<Connection> {
                let mut connection = connect(&address, &caller(Role::Client), timeouts())?;
                connection.queue(&Envelope::default(), &LEN)?;
                connection.receive::<DataReply>()?;
                Ok(connection)
            };
            std::thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(body)
                .unwrap()
        })
        .collect();
    let connections: Vec<_> = threads
        .into_iter()
        .map(|t| t.join().unwrap().unwrap())
        .collect();
    assert_eq!(connections.len(), 256);
}

#[test]
fn the_keys_of_the_deployment_are_asked_inside_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), ServeLimits::default());
    let mut stranger = caller(Role::Client);
    stranger.key = Key::from_bytes([77; 32]);
    let e = connect(&only_tcp(server.address()), &stranger, timeouts()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::BadKey, "{e}");
}
