//! Range locks over the wire: order, time-outs, leases, disconnects, and what they are for.
use crate::common::*;
use penstock_server::Options;
use penstock_wire::message::{DataReply, DataRequest, ErrorKind, LockMode};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

#[test]
fn waiting_locks_are_granted_in_order() {
    let site = TestDeployment::one();
    let (mut a, ha) = site.open(0, 1);
    let held = a.lock(ha, 0, 100);
    // Each of these waits behind the one before; they are granted one by one in this order.
    let mut waiting: Vec<_> = (0..5)
        .map(|i| {
            let (mut c, h) = site.open(0, 1);
            // Conflicts with the holder and with the one before.
            c.send_lock(h, 90 + i * 10, 101 + i * 10, LockMode::Exclusive, 20_000);
            // It is in the queue once a probe that conflicts with nothing else has to wait.
            let (mut probe, hp) = site.open(0, 1);
            let free = 100 + i * 10;
            loop {
                probe.send_lock(hp, free, free + 1, LockMode::Exclusive, 1);
                match probe.lock_answer() {
                    Ok(lock) => probe.done(DataRequest::Unlock { handle: hp, lock }),
                    Err(e) => break assert_eq!(e.kind, ErrorKind::LockTimeout),
                }
            }
            (c, h)
        })
        .collect();
    a.done(DataRequest::Unlock {
        handle: ha,
        lock: held,
    });
    for (c, h) in &mut waiting {
        let lock = c.lock_answer().unwrap();
        c.done(DataRequest::Unlock { handle: *h, lock });
    }
}

#[test]
fn a_waiting_lock_times_out_and_shared_ones_share() {
    let site = TestDeployment::one();
    let (mut a, ha) = site.open(0, 1);
    let (mut b, hb) = site.open(0, 1);
    let held = a.lock(ha, 0, 10);
    b.send_lock(hb, 5, 6, LockMode::Exclusive, 20);
    let e = b.lock_answer().unwrap_err();
    assert_eq!(e.kind, ErrorKind::LockTimeout);
    assert!(e.message.contains("file 1"), "{e}");
    // Another file, another range, another server object: no conflict.
    b.lock(hb, 10, 11);
    a.done(DataRequest::Unlock {
        handle: ha,
        lock: held,
    });
    a.send_lock(ha, 0, 10, LockMode::Shared, 1000);
    b.send_lock(hb, 0, 10, LockMode::Shared, 1000);
    a.lock_answer().unwrap();
    b.lock_answer().unwrap();
    // Waiting for oneself is refused at once.
    a.send_lock(ha, 0, 10, LockMode::Exclusive, 20_000);
    assert_eq!(
        a.lock_answer().unwrap_err().kind,
        ErrorKind::InvalidArgument
    );
    a.send_lock(ha, 7, 7, LockMode::Exclusive, 20_000);
    assert_eq!(
        a.lock_answer().unwrap_err().kind,
        ErrorKind::InvalidArgument
    );
}

#[test]
fn a_cut_waits_for_locks_on_what_it_cuts_off_and_for_no_others() {
    let options = Options {
        plain_write_wait: Duration::from_millis(100),
        ..Options::default()
    };
    let site = TestDeployment::start(1, "memory", options);
    let (mut a, ha) = site.open(0, 1);
    let (mut b, hb) = site.open(0, 1);
    let reply = a.write_with(ha, contiguous(0, 100), None, &[7; 100], 1);
    assert_eq!(reply, DataReply::Written { bytes: 100 });
    // Signs far behind the end, and what stays.
    a.lock(ha, 100, 200);
    a.lock(ha, u64::MAX - 1, u64::MAX);
    a.lock(ha, 0, 40);
    b.done(DataRequest::SetLen {
        handle: hb,
        len: 60,
    });
    let held = a.lock(ha, 59, 60);
    let cut = DataRequest::SetLen {
        handle: hb,
        len: 40,
    };
    assert_eq!(b.refused(cut.clone()).kind, ErrorKind::LockTimeout);
    assert_eq!(
        b.ask(DataRequest::Len { handle: hb }),
        DataReply::Len { len: 60 }
    );
    a.done(DataRequest::Unlock {
        handle: ha,
        lock: held,
    });
    b.done(cut);
    assert_eq!(
        b.ask(DataRequest::Len { handle: hb }),
        DataReply::Len { len: 40 }
    );
}

#[test]
fn a_cut_that_waits_heeds_locks_on_what_has_come_meanwhile() {
    let site = TestDeployment::one();
    let (mut a, ha) = site.open(0, 1);
    let (mut b, hb) = site.open(0, 1);
    let (mut c, hc) = site.open(0, 1);
    let reply = a.write_with(ha, contiguous(0, 60), None, &[7; 60], 1);
    assert_eq!(reply, DataReply::Written { bytes: 60 });
    let first = a.lock(ha, 50, 60);
    b.queue(&DataRequest::SetLen {
        handle: hb,
        len: 40,
    });
    b.connection.flush().unwrap();
    // Time for it to begin to wait.
    std::thread::sleep(Duration::from_millis(200));
    // Behind the end as it was then.
    let second = c.lock(hc, 80, 90);
    let reply = c.write_with(hc, contiguous(80, 10), Some(second), &[8; 10], 1);
    assert_eq!(reply, DataReply::Written { bytes: 10 });
    a.done(DataRequest::Unlock {
        handle: ha,
        lock: first,
    });
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(
        a.ask(DataRequest::Len { handle: ha }),
        DataReply::Len { len: 90 },
        "what is locked was cut off"
    );
    c.done(DataRequest::Unlock {
        handle: hc,
        lock: second,
    });
    assert_eq!(b.answer().1, DataReply::Done);
    assert_eq!(
        a.ask(DataRequest::Len { handle: ha }),
        DataReply::Len { len: 40 }
    );
}

#[test]
fn a_lock_ends_with_its_connection_and_with_its_handle() {
    let site = TestDeployment::one();
    let (mut a, ha) = site.open(0, 1);
    a.lock(ha, 0, 10);
    let (mut b, hb) = site.open(0, 1);
    b.send_lock(hb, 0, 10, LockMode::Exclusive, 20_000);
    drop(a);
    b.lock_answer().unwrap();
    let (mut c, hc) = site.open(0, 1);
    c.send_lock(hc, 0, 10, LockMode::Exclusive, 20_000);
    b.done(DataRequest::Detach { handle: hb });
    c.lock_answer().unwrap();
    // So does a request that still waits.
    let (mut d, hd) = site.open(0, 1);
    d.send_lock(hd, 0, 10, LockMode::Exclusive, 20_000);
    drop(d);
    let (mut e, he) = site.open(0, 1);
    e.send_lock(he, 0, 10, LockMode::Exclusive, 20_000);
    drop(c);
    e.lock_answer().unwrap();
}

#[test]
fn a_stuck_holder_loses_its_lock_and_learns_of_it() {
    let options = Options {
        lock_lease: Duration::from_millis(30),
        ..Options::default()
    };
    let site = TestDeployment::start(1, "memory", options);
    let (mut stuck, hs) = site.open(0, 1);
    let lock = stuck.lock(hs, 0, 100);
    let (mut b, hb) = site.open(0, 1);
    let mine = b.lock(hb, 0, 100);
    let reply = stuck.write_with(hs, contiguous(0, 4), Some(lock), b"late", 2);
    assert_eq!(kind(&reply), ErrorKind::LockLost);
    let reply = stuck.ask(DataRequest::Read {
        handle: hs,
        region: contiguous(0, 4),
        lock: Some(lock),
    });
    assert_eq!(kind(&reply), ErrorKind::LockLost);
    let e = stuck.refused(DataRequest::Unlock { handle: hs, lock });
    assert_eq!(e.kind, ErrorKind::LockLost);
    let reply = b.write_with(hb, contiguous(0, 4), Some(mine), b"mine", 9);
    assert_eq!(reply, DataReply::Written { bytes: 4 });
    assert_eq!(stuck.read(hs, contiguous(0, 9)), b"mine");
    // Nobody else waits: an old lock stays good.
    std::thread::sleep(Duration::from_millis(60));
    let reply = b.write_with(hb, contiguous(0, 4), Some(mine), b"MINE", 9);
    assert_eq!(reply, DataReply::Written { bytes: 4 });
    // A lock of one connection is nothing on another.
    let reply = stuck.write_with(hs, contiguous(0, 4), Some(mine), b"late", 9);
    assert_eq!(kind(&reply), ErrorKind::LockLost);
}

#[test]
fn a_plain_write_waits_for_the_holder_and_reads_do_not() {
    let site = TestDeployment::one();
    let (mut a, ha) = site.open(0, 1);
    let (mut b, hb) = site.open(0, 1);
    a.write(ha, contiguous(0, 100), &[1; 100]);
    let lock = a.lock(ha, 0, 50);
    // Pipelined before the write that waits: it must be answered before the wait.
    b.send_write(hb, contiguous(60, 1), None, &[2], 9);
    b.send_write(hb, contiguous(40, 1), None, &[3], 9);
    b.send_write(hb, contiguous(41, 1), None, &[4], 9);
    b.connection.flush().unwrap();
    assert_eq!(b.answer().1, DataReply::Written { bytes: 1 });
    let (mut r, hr) = site.open(0, 1);
    let seen = r.read(hr, contiguous(0, 100));
    assert_eq!((seen[40], seen[60]), (1, 2));
    // The holder reads, modifies and writes the whole range back.
    let bytes = a.read(ha, contiguous(0, 50));
    let reply = a.write_with(ha, contiguous(0, 50), Some(lock), &bytes, 7);
    assert_eq!(reply, DataReply::Written { bytes: 50 });
    a.done(DataRequest::Unlock { handle: ha, lock });
    assert_eq!(b.answer().1, DataReply::Written { bytes: 1 });
    assert_eq!(b.answer().1, DataReply::Written { bytes: 1 });
    let seen = r.read(hr, contiguous(0, 100));
    assert_eq!((seen[40], seen[41]), (3, 4));
}

#[test]
fn sieving_beside_plain_writers_loses_no_byte() {
    let site = TestDeployment::one();
    let len = 4096usize;
    let rounds = 60u8;
    let sieving = AtomicUsize::new(2);
    let bytes = std::thread::scope(|s| {
        for sieve in 0..2 {
            let (site, sieving) = (&site, &sieving);
            s.spawn(move || {
                let (mut c, h) = site.open(0, 1);
                for round in 1..=rounds {
                    let lock = c.lock(h, 0, len as u64);
                    let mut bytes = c.read(h, contiguous(0, len as u64));
                    bytes.resize(len, 0);
                    // Owns bytes 0 and 1 of every 4.
                    bytes
                        .iter_mut()
                        .skip(sieve)
                        .step_by(4)
                        .for_each(|b| *b = round);
                    let region = contiguous(0, len as u64);
                    let reply = c.write_with(h, region, Some(lock), &bytes, 999);
                    assert_eq!(reply, DataReply::Written { bytes: len as u64 });
                    c.done(DataRequest::Unlock { handle: h, lock });
                }
                sieving.fetch_sub(1, SeqCst);
            });
        }
        let writers: Vec<_> = (0..2usize)
            .map(|writer| {
                let (site, sieving) = (&site, &sieving);
                s.spawn(move || {
                    let (mut c, h) = site.open(0, 1);
                    // Owns bytes 2 and 3 of every 4; counts in them in turn, some in flight, for as long as
                    // someone sieves.
                    let mut mine = vec![0u8; len / 4];
                    let mut at = 0;
                    while sieving.load(SeqCst) > 0 {
                        for _ in 0..8 {
                            mine[at] = mine[at].wrapping_add(1);
                            let offset = (at * 4 + 2 + writer) as u64;
                            c.send_write(h, contiguous(offset, 1), None, &[mine[at]], 9);
                            at = (at + 1) % mine.len();
                        }
                        for _ in 0..8 {
                            assert_eq!(c.answer().1, DataReply::Written { bytes: 1 });
                        }
                    }
                    mine
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|w| w.join().unwrap())
            .collect::<Vec<_>>()
    });
    let (mut c, h) = site.open(0, 1);
    let seen = c.read(h, contiguous(0, len as u64));
    for (i, got) in seen.chunks(4).enumerate() {
        assert_eq!(
            got,
            [rounds, rounds, bytes[0][i], bytes[1][i]],
            "at {}",
            i * 4
        );
    }
}

#[test]
fn locks_exclude_under_contention() {
    let site = TestDeployment::one();
    let inside = AtomicUsize::new(0);
    let overlapped = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..6 {
            s.spawn(|| {
                let (mut c, h) = site.open(0, 1);
                for _ in 0..40 {
                    let lock = c.lock(h, 10, 20);
                    if inside.fetch_add(1, SeqCst) != 0 {
                        overlapped.store(true, SeqCst);
                    }
                    inside.fetch_sub(1, SeqCst);
                    c.done(DataRequest::Unlock { handle: h, lock });
                }
            });
        }
    });
    assert!(!overlapped.load(SeqCst));
}

#[test]
fn the_queue_is_bounded_and_a_stop_frees_all() {
    let options = Options {
        lock_waiters: 2,
        ..Options::default()
    };
    let mut site = TestDeployment::start(1, "memory", options);
    let (mut a, ha) = site.open(0, 1);
    a.lock(ha, 0, 10);
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let (mut c, h) = site.open(0, 1);
            std::thread::spawn(move || {
                loop {
                    c.send_lock(h, 0, 10, LockMode::Exclusive, 600_000);
                    match c.connection.receive::<DataReply>() {
                        // The other one or the probe below was quicker.
                        Ok(got) if kind(&got.body.clone().unwrap()) == ErrorKind::Busy => {}
                        end => break end,
                    }
                }
            })
        })
        .collect();
    let (mut d, hd) = site.open(0, 1);
    // Until both wait, this one finds a place and gets a time-out.
    let refused = loop {
        d.send_lock(hd, 0, 10, LockMode::Exclusive, 1);
        match d.lock_answer().unwrap_err().kind {
            ErrorKind::LockTimeout => {}
            kind => break kind,
        }
    };
    assert_eq!(refused, ErrorKind::Busy);
    site.servers.pop().unwrap().stop();
    for waiter in waiting {
        match waiter.join().unwrap() {
            Ok(got) => assert_eq!(kind(&got.body.unwrap()), ErrorKind::ShuttingDown),
            Err(e) => assert!(e.is_disconnect(), "{e}"),
        }
    }
}
