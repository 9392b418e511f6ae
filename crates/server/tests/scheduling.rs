//! The queue between arrival and store: every algorithm keeps every byte, joins what touches, and is changed in flight.
use crate::common::*;
use penstock_datatype::{Loop, Pattern};
use penstock_layout::{FileId, ObjectOffset, ServerId};
use penstock_server::{Event, EventKind, Observer, Options, check_settings, start_on};
use penstock_store::{Finding, Object, Store, StoreError};
use penstock_wire::Role;
use penstock_wire::message::{DataReply, DataRequest, DataStatus, ErrorKind, Handle};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const ALGORITHMS: [&str; 10] = [
    "noop", "to", "to-agg", "sjf", "mlf", "aioli", "sw", "twins", "wfq", "srtf",
];

/// The memory store behind a gate. Notes each call; panics at `fatal`.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
    calls: Mutex<Vec<(char, u64, u64)>>,
}

const FATAL: u64 = 1 << 40;

impl Gate {
    fn pass(&self, kind: char, at: u64, len: u64) {
        self.calls.lock().unwrap().push((kind, at, len));
        assert!(at < FATAL, "a test of a panic in the store");
        let mut closed = self.closed.lock().unwrap();
        while *closed {
            closed = self.changed.wait(closed).unwrap();
        }
    }

    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }

    fn wait_for_calls(&self, n: usize) {
        wait_until(|| self.calls.lock().unwrap().len() >= n);
    }

    fn take_calls(&self) -> Vec<(char, u64, u64)> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < until, "it does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Gated(Box<dyn Store>, Arc<Gate>);
struct GatedObject(Arc<dyn Object>, Arc<Gate>);

impl Store for Gated {
    fn open(&self, id: FileId, create: bool) -> Result<Arc<dyn Object>, StoreError> {
        let inner = self.0.open(id, create)?;
        Ok(Arc::new(GatedObject(inner, self.1.clone())))
    }
    fn remove(&self, id: FileId) -> Result<(), StoreError> {
        self.0.remove(id)
    }
    fn list_after(
        &self,
        after: Option<FileId>,
        limit: usize,
    ) -> Result<Vec<(FileId, u64)>, StoreError> {
        self.0.list_after(after, limit)
    }
    fn sync(&self) -> Result<(), StoreError> {
        self.0.sync()
    }
    fn incarnation(&self) -> [u8; 16] {
        self.0.incarnation()
    }
    fn space(&self) -> Result<(u64, u64), StoreError> {
        self.0.space()
    }
    fn verify(&self, report: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        self.0.verify(report)
    }
    fn accept(&self, id: FileId) -> Result<(), StoreError> {
        self.0.accept(id)
    }
    fn describe(&self) -> String {
        "gated".into()
    }
}

impl Object for GatedObject {
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError> {
        self.1.pass('r', at.0, buf.len() as u64);
        self.0.read_at(at, buf)
    }
    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError> {
        self.1.pass('w', at.0, buf.len() as u64);
        self.0.write_at(at, buf)
    }
    fn read_vectored_at(
        &self,
        at: ObjectOffset,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, StoreError> {
        self.1
            .pass('R', at.0, bufs.iter().map(|b| b.len() as u64).sum());
        self.0.read_vectored_at(at, bufs)
    }
    fn write_vectored_at(&self, at: ObjectOffset, bufs: &[IoSlice<'_>]) -> Result<(), StoreError> {
        self.1
            .pass('W', at.0, bufs.iter().map(|b| b.len() as u64).sum());
        self.0.write_vectored_at(at, bufs)
    }
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.0.set_len(len)
    }
    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError> {
        self.0.allocate(at, len)
    }
    fn sync(&self) -> Result<(), StoreError> {
        self.0.sync()
    }
}

fn tuned(settings: &[&str]) -> Options {
    Options {
        tune: settings.iter().map(|s| (*s).to_owned()).collect(),
        ..Options::default()
    }
}

fn gated(options: Options) -> (TestDeployment, Arc<Gate>) {
    let dir = tempfile::tempdir().unwrap();
    let deployment = deployment(dir.path(), 1, "memory");
    let gate = Arc::new(Gate::default());
    let inner = penstock_store::open("memory", &deployment.id, 0).unwrap();
    let store = Box::new(Gated(inner, gate.clone()));
    let servers = vec![start_on(&deployment, ServerId(0), options, store).unwrap()];
    let seals = deployment.meta_identity().unwrap().seals();
    let site = TestDeployment {
        dir,
        deployment,
        servers,
        seals,
    };
    (site, gate)
}

fn tune(site: &TestDeployment, settings: &[&str]) -> DataReply {
    let settings = settings.iter().map(|s| (*s).to_owned()).collect();
    site.client_as(0, Role::Admin, false)
        .ask(DataRequest::Tune { settings })
}

fn status(site: &TestDeployment) -> DataStatus {
    match site.client(0).ask(DataRequest::Status) {
        DataReply::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

/// Writes and reads back, contiguous in one file and interleaved in another, slices larger than one included.
fn work(site: &TestDeployment, rank: u64, ranks: u64, rounds: u64) {
    let value = |i: u64| (i * 31 + rank * 7) as u8;
    let (mut own, h) = site.open(0, 100 + rank);
    let (mut shared, hs) = site.open(0, 1);
    for round in 0..rounds {
        let len = 1 + (round * 7919 + rank * 131) % 5000 + if round == 0 { 600_000 } else { 0 };
        let bytes: Vec<u8> = (0..len).map(value).collect();
        own.write(h, contiguous(round * 4096, len), &bytes);
        assert_eq!(own.read(h, contiguous(round * 4096, len)), bytes);
        // Blocks of 16 bytes, one of each rank in turn.
        let blocks = 200;
        let tile = Loop::vector(blocks, 1, (16 * ranks) as i64, &Loop::bytes(16)).unwrap();
        let base = (round * blocks * 16 * ranks + rank * 16) as i64;
        let pattern = Pattern::new(base, tile, 0, blocks * 16).unwrap();
        let bytes: Vec<u8> = (0..blocks * 16).map(value).collect();
        shared.write(hs, inline(&pattern), &bytes);
        assert_eq!(shared.read(hs, inline(&pattern)), bytes);
    }
}

#[test]
fn every_algorithm_keeps_every_byte() {
    for algorithm in ALGORITHMS {
        let setting = format!("sched={algorithm}");
        let site = TestDeployment::start(1, "memory", tuned(&[&setting, "depth=2"]));
        std::thread::scope(|scope| {
            for rank in 0..4 {
                let site = &site;
                scope.spawn(move || work(site, rank, 4, 12));
            }
        });
        let s = status(&site).sched;
        assert_eq!(s.algorithm, algorithm);
        assert_eq!((s.queued, s.serving), (0, 0), "{algorithm}");
        assert_eq!((s.arrived, s.refused), (s.completed, 0), "{algorithm}");
        if algorithm == "noop" {
            assert_eq!(s.arrived, 0, "requests go straight to the store");
        } else {
            assert!(s.arrived >= 4 * 12 * 4 && s.decisions <= s.dispatched);
            assert_eq!(s.programs.len(), 1);
            assert_eq!(s.programs[0].share_ppm, 1_000_000);
        }
    }
}

#[test]
fn algorithms_change_under_load() {
    let site = TestDeployment::start(1, "memory", tuned(&["sched=to"]));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|rank| {
                let site = &site;
                scope.spawn(move || work(site, rank, 4, 60))
            })
            .collect();
        let tuner = scope.spawn(|| {
            let mut changes = 0;
            while !over.load(SeqCst) || changes < 20 {
                let setting = format!("sched={}", ALGORITHMS[changes % ALGORITHMS.len()]);
                let order = ["order_conflicts=on", "order_conflicts=off"][changes / 3 % 2];
                assert_eq!(tune(&site, &[&setting, "depth=1", order]), DataReply::Done);
                changes += 1;
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        over.store(true, SeqCst);
        tuner.join().unwrap();
    });
    let s = status(&site).sched;
    assert_eq!((s.queued, s.serving, s.arrived), (0, 0, s.completed));
}

/// The server chooses; what is queued is carried over at each change, and every byte is what was written.
#[test]
fn a_server_chooses_its_algorithm_and_says_why() {
    let site = TestDeployment::start(1, "memory", tuned(&["sched=tree", "ratio=20"]));
    let first = status(&site).sched.choice.unwrap();
    assert!(first.mode == "tree" && first.tree == "own" && first.patterns.is_empty());
    for mode in ["tree", "online"] {
        let setting = format!("sched={mode}");
        assert_eq!(tune(&site, &[&setting, "depth=2"]), DataReply::Done);
        let began = Instant::now();
        let mut rounds = 0;
        // Until it has seen enough to choose.
        loop {
            std::thread::scope(|scope| {
                for rank in 0..4 {
                    let site = &site;
                    scope.spawn(move || work(site, rank, 4, 20));
                }
            });
            rounds += 1;
            let choice = status(&site).sched.choice.unwrap();
            if choice.reason.contains("own says so") || choice.changes > 0 {
                break;
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{rounds}: {choice:?}"
            );
        }
        let s = status(&site).sched;
        assert_eq!((s.queued, s.serving, s.arrived), (0, 0, s.completed));
        let choice = s.choice.unwrap();
        assert_eq!(
            (choice.mode.as_str(), choice.ratio_read_milli),
            (mode, 20_000)
        );
        assert!(choice.files >= 2 && !choice.patterns.is_empty());
        let requests: u32 = choice.patterns.iter().map(|p| p.requests).sum();
        assert_eq!(requests, choice.requests);
    }
    assert_eq!(tune(&site, &["sched=noop"]), DataReply::Done);
    assert_eq!(status(&site).sched.choice, None);
    for bad in ["tree=T9", "objective=luck", "ratio=0"] {
        let DataReply::Error(e) = tune(&site, &[bad]) else {
            panic!("{bad} was taken");
        };
        assert_eq!(e.kind, ErrorKind::InvalidArgument);
    }
}

/// While one request is at the store, others queue; contiguous ones then go to the store in one call.
#[test]
fn contiguous_requests_of_several_clients_are_one_call() {
    let (site, gate) = gated(tuned(&["sched=to-agg", "depth=1"]));
    let mut clients: Vec<(Client, Handle)> = (0..4).map(|_| site.open(0, 7)).collect();
    for op in ["write", "read"] {
        gate.set(true);
        gate.take_calls();
        let mut first = site.open(0, 8);
        first
            .0
            .send_write(first.1, contiguous(0, 10), None, &[1; 10], 10);
        first.0.connection.flush().unwrap();
        gate.wait_for_calls(1);
        for (i, (client, handle)) in clients.iter_mut().enumerate() {
            let region = contiguous(1000 * i as u64, 1000);
            if op == "write" {
                let bytes = vec![i as u8 + 1; 1000];
                client.send_write(*handle, region, None, &bytes, 1000);
            } else {
                client.queue(&DataRequest::Read {
                    handle: *handle,
                    region,
                    lock: None,
                });
            }
            client.connection.flush().unwrap();
            wait_until(|| status(&site).sched.queued == i as u64 + 1);
        }
        gate.set(false);
        assert_eq!(first.0.answer().1, DataReply::Written { bytes: 10 });
        for (i, (client, _)) in clients.iter_mut().enumerate() {
            let (_, reply, payload) = client.answer();
            if op == "write" {
                assert_eq!(reply, DataReply::Written { bytes: 1000 });
            } else {
                assert_eq!(payload, vec![i as u8 + 1; 1000]);
            }
        }
        let kind = if op == "write" { 'W' } else { 'R' };
        assert_eq!(gate.take_calls(), [('w', 0, 10), (kind, 0, 4000)]);
    }
    assert_eq!(status(&site).sched.largest_aggregation, 4);
}

/// A large request comes in slices: a small one of another client does not wait for all of it.
#[test]
fn a_large_request_does_not_block_a_small_one() {
    let (site, gate) = gated(tuned(&["sched=to", "depth=1"]));
    let (mut large, hl) = site.open(0, 1);
    large.write(hl, contiguous(0, 4 << 20), &vec![5; 4 << 20]);
    gate.take_calls();
    gate.set(true);
    large.queue(&DataRequest::Read {
        handle: hl,
        region: contiguous(0, 4 << 20),
        lock: None,
    });
    large.connection.flush().unwrap();
    gate.wait_for_calls(1);
    let (mut small, hs) = site.open(0, 2);
    small.send_write(hs, contiguous(0, 10), None, &[1; 10], 10);
    small.connection.flush().unwrap();
    wait_until(|| status(&site).sched.queued == 1);
    gate.set(false);
    assert_eq!(small.answer().1, DataReply::Written { bytes: 10 });
    assert_eq!(large.answer().2.len(), 4 << 20);
    let calls = gate.take_calls();
    let at = calls.iter().position(|c| c.0 == 'w').unwrap();
    assert_eq!(at, 1, "after one slice: {calls:?}");
    assert_eq!(calls.len(), 17);
}

/// The thread that serves for others dies: they get an error, the next ones are served.
#[test]
fn a_failure_at_the_store_reaches_those_it_concerns_and_nobody_else() {
    let (site, gate) = gated(tuned(&["sched=to-agg", "depth=1"]));
    gate.set(true);
    let mut first = site.open(0, 8);
    first
        .0
        .send_write(first.1, contiguous(0, 10), None, &[1; 10], 10);
    first.0.connection.flush().unwrap();
    gate.wait_for_calls(1);
    let mut doomed: Vec<(Client, Handle)> = (0..2).map(|_| site.open(0, 9)).collect();
    for (i, (client, handle)) in doomed.iter_mut().enumerate() {
        let region = contiguous(FATAL + 10 * i as u64, 10);
        client.send_write(*handle, region, None, &[1; 10], 10);
        client.connection.flush().unwrap();
        wait_until(|| status(&site).sched.queued == i as u64 + 1);
    }
    gate.set(false);
    assert_eq!(first.0.answer().1, DataReply::Written { bytes: 10 });
    // The first part's thread served both.
    match doomed[1].0.answer().1 {
        DataReply::Error(e) => assert_eq!(e.kind, ErrorKind::Io),
        other => panic!("{other:?}"),
    }
    let (mut next, h) = site.open(0, 9);
    next.write(h, contiguous(0, 5), b"still");
    assert_eq!(next.read(h, contiguous(0, 5)), b"still");
    let s = status(&site).sched;
    assert_eq!((s.queued, s.serving), (0, 0));
}

#[derive(Debug, Default)]
struct Log(Mutex<Vec<Event>>);

impl Observer for Log {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(*event);
    }
}

#[test]
fn an_observer_hears_of_everything_in_order() {
    for algorithm in ["noop", "mlf"] {
        let log = Arc::new(Log::default());
        let options = Options {
            observer: Some(log.clone()),
            ..tuned(&[&format!("sched={algorithm}")])
        };
        let site = TestDeployment::start(1, "memory", options);
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let site = &site;
                scope.spawn(move || work(site, rank, 3, 5));
            }
        });
        let events = log.0.lock().unwrap().clone();
        assert!(events.is_sorted_by_key(|e| e.time));
        let mut seen: HashMap<u64, Vec<Event>> = HashMap::new();
        for event in events {
            seen.entry(event.id).or_default().push(event);
        }
        assert!(seen.len() as u64 >= 3 * 5 * 4);
        for (id, all) in &seen {
            let kinds: Vec<EventKind> = all.iter().map(|e| e.kind).collect();
            let whole = [
                EventKind::Arrival,
                EventKind::Dispatch,
                EventKind::Completion,
            ];
            assert_eq!(kinds, whole, "{id}");
            assert_eq!(all[1].served_in, all[2].served_in);
            assert!(all[0].end - all[0].offset >= all[0].bytes && all[0].bytes <= 256 << 10);
        }
    }
}

#[test]
fn shortcuts_are_for_servers_that_need_not_see_requests() {
    let site = TestDeployment::one();
    let (mut c, h) = site.open(0, 1);
    c.write(h, contiguous(0, 4), b"data");
    let shortcut = DataRequest::Shortcut { handle: h };
    assert!(matches!(
        c.ask(shortcut.clone()),
        DataReply::Shortcut { .. }
    ));
    let mut fds = c.connection.take_descriptors().into_iter();
    let page = penstock_rpc::grant::GrantPage::open(fds.nth(1).unwrap()).unwrap();
    assert!(!page.is_revoked());
    assert_eq!(tune(&site, &["sched=aioli"]), DataReply::Done);
    assert!(page.is_revoked() && page.enter().is_none());
    match c.ask(shortcut.clone()) {
        DataReply::NoShortcut { reason } => assert!(reason.contains("sees each request")),
        other => panic!("{other:?}"),
    }
    assert_eq!(c.read(h, contiguous(0, 4)), b"data");
    assert_eq!(status(&site).sched.completed, 1);
    assert_eq!(tune(&site, &["sched=noop"]), DataReply::Done);
    assert!(matches!(c.ask(shortcut), DataReply::Shortcut { .. }));
}

#[test]
fn settings_that_cannot_be_are_refused_and_change_nothing() {
    let site = TestDeployment::start(1, "memory", tuned(&["sched=sjf"]));
    for (settings, word) in [
        (&["sched=cfq"][..], "cfq"),
        (&["sched=to", "quantum=0"], "quantum"),
        (&["quantum=99999999T"], "quantum"),
        (&["quantum=2T"], "quantum"),
        (&["depth=0"], "depth"),
        (&["depth=many"], "depth"),
        (&["twins_window=1000s"], "twins_window"),
        (&["color=red"], "color"),
        (&["sched"], "name=value"),
    ] {
        match tune(&site, settings) {
            DataReply::Error(e) => {
                assert_eq!(e.kind, ErrorKind::InvalidArgument);
                assert!(e.message.contains(word), "{}", e.message);
            }
            other => panic!("{settings:?}: {other:?}"),
        }
        let all: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
        assert!(check_settings(&all).is_err());
        assert_eq!(status(&site).sched.algorithm, "sjf");
    }
    let e = site.client(0).refused(DataRequest::Tune {
        settings: vec!["sched=to".into()],
    });
    assert_eq!(e.kind, ErrorKind::Permission);
    let error = penstock_server::start(&site.deployment, ServerId(0), tuned(&["sched=elevator"]));
    assert!(error.err().unwrap().to_string().contains("elevator"));
}
