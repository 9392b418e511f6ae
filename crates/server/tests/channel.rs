//! All requests of a data server to the metadata server use one connection, and clients do not wait for it.
use crate::common::*;
use penstock_layout::ServerId;
use penstock_rpc::control::Holder;
use penstock_rpc::deployment::Deployment;
use penstock_rpc::{
    After, Connection, Keyring, Peer, RunningServer, ServeLimits, Service, Timeouts, connect, serve,
};
use penstock_server::{Options, start};
use penstock_wire::Role;
use penstock_wire::message::{Followed, Leases, MAX_REPORT_ROWS, MetaReply, MetaRequest};
use penstock_wire::revocation::Revocations;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A replacement for the metadata server.
struct Meta {
    seen: Mutex<Seen>,
    holder: Mutex<Holder>,
}

#[derive(Default)]
struct Seen {
    /// Connections of data servers: now, at once, and in all.
    open: usize,
    most: usize,
    all: usize,
    asked: BTreeSet<&'static str>,
    /// Bytes that programs wrote, and reports that say so.
    written: u64,
    reports: u32,
    /// It takes questions and answers none.
    silent: bool,
}

impl Meta {
    fn start(deployment: &Deployment) -> (Arc<Meta>, RunningServer) {
        let meta = Arc::new(Meta {
            seen: Mutex::default(),
            holder: Mutex::new(Holder::new(1)),
        });
        let ring = Keyring::new(deployment.meta_identities().unwrap()).unwrap();
        let limits = ServeLimits::default();
        let address = &deployment.meta.address;
        let running = serve(address, meta.clone(), Arc::new(ring), limits).unwrap();
        (meta, running)
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().unwrap())
    }

    fn answer(&self, server: ServerId, request: MetaRequest) -> (&'static str, MetaReply) {
        match request {
            MetaRequest::Time => (
                "time",
                MetaReply::Time {
                    issue_ms: now_ms(),
                    wall_ms: now_ms(),
                },
            ),
            MetaRequest::Revocations { known } => {
                let list = known.is_none().then(Revocations::default);
                ("revocations", MetaReply::Revoked(list))
            }
            MetaRequest::Usage(_) => {
                let leases = Leases {
                    followed: Followed { run: 1, given: 0 },
                    given: Some(Vec::new()),
                    users: Vec::new(),
                    everybody: false,
                };
                ("usage", MetaReply::Leases(leases))
            }
            MetaRequest::Report(report) => {
                let (decision, fresh) = self.holder.lock().unwrap().heard(server.0, &report);
                let told = report.programs.iter().map(|row| row.traffic.written);
                let written = told.filter(|_| fresh).sum::<u64>();
                assert!(report.period_ms >= 500 && report.programs.len() <= MAX_REPORT_ROWS);
                self.seen(|seen| {
                    seen.written += written;
                    seen.reports += u32::from(written > 0);
                });
                ("report", MetaReply::Decision(decision))
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Service for Meta {
    fn session(&self, connection: &mut Connection, peer: &Peer) -> penstock_wire::Result<After> {
        let Role::Server(server) = peer.role else {
            panic!("{:?}", peer.role);
        };
        // The former one may have ended without its thread having noticed yet.
        let began = Instant::now();
        while self.seen(|seen| seen.open > 0) && began.elapsed() < Duration::from_secs(1) {
            sleep(Duration::from_millis(1));
        }
        self.seen(|seen| {
            seen.open += 1;
            seen.all += 1;
            seen.most = seen.most.max(seen.open);
        });
        let ended = loop {
            match connection.receive_unless_idle::<MetaRequest>() {
                Ok(None) => {}
                Ok(Some(received)) => {
                    let (what, reply) = self.answer(server, received.body.unwrap());
                    let silent = self.seen(|seen| {
                        seen.asked.insert(what);
                        seen.silent
                    });
                    if !silent {
                        connection.queue(&received.envelope.answer(), &reply)?;
                    }
                }
                Err(_) => break After::Continue,
            }
        };
        self.seen(|seen| seen.open -= 1);
        Ok(ended)
    }
}

fn await_(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        sleep(Duration::from_millis(20));
    }
}

fn site(dir: &tempfile::TempDir) -> (Deployment, Arc<Meta>, RunningServer, RunningServer) {
    let deployment = deployment(dir.path(), 1, "dir");
    let (meta, running) = Meta::start(&deployment);
    let data = start(&deployment, ServerId(0), Options::default()).unwrap();
    (deployment, meta, running, data)
}

fn client(deployment: &Deployment, data: &RunningServer) -> Client {
    let caller = deployment.caller(Role::Client, 1, 0).unwrap();
    let timeouts = Timeouts {
        read: Some(Duration::from_secs(30)),
        write: Some(Duration::from_secs(30)),
    };
    Client {
        connection: connect(data.address(), &caller, timeouts).unwrap(),
        next: 1,
    }
}

fn capability(deployment: &Deployment) -> penstock_wire::message::Capability {
    let me = rustix::process::geteuid().as_raw();
    penstock_wire::message::Capability::grant(
        &deployment.meta_identity().unwrap().seals(),
        me,
        penstock_layout::FileId(1),
        ALL,
        now_ms()..now_ms() + 600_000,
        Some(me),
        penstock_layout::Layout::new(64, deployment.server_ids()).unwrap(),
    )
    .unwrap()
}

#[test]
fn everything_goes_over_one_connection_which_ends_when_nobody_works() {
    let dir = tempfile::tempdir().unwrap();
    let (deployment, meta, running, data) = site(&dir);
    let mut c = client(&deployment, &data);
    let handle = c.attach(capability(&deployment)).unwrap();
    let all = BTreeSet::from(["report", "revocations", "time", "usage"]);
    let began = Instant::now();
    // For longer than revocations are asked for once, and bytes told of several times.
    await_("the questions are not asked", || {
        began.elapsed() > Duration::from_secs(6) && meta.seen(|seen| seen.asked == all)
    });
    let quiet = meta.seen(|seen| seen.all);
    let told = meta.seen(|seen| std::mem::take(&mut seen.written));
    for _ in 0..100 {
        c.write(handle, contiguous(0, 3), b"abc");
        sleep(Duration::from_millis(50));
    }
    assert_eq!(meta.seen(|seen| seen.most), 1);
    // As long as a client works it is the same one.
    assert!(meta.seen(|seen| seen.all) <= quiet + 1);
    // All that was written is told, once, by few reports.
    assert_eq!(told, 0);
    await_("not all is reported", || {
        meta.seen(|seen| seen.written >= 300)
    });
    meta.seen(|seen| {
        assert_eq!(seen.written, 300);
        assert!((3..=15).contains(&seen.reports), "{}", seen.reports);
    });
    drop(c);
    await_("the connection stays", || meta.seen(|seen| seen.open == 0));
    data.stop();
    running.stop();
}

#[test]
fn a_metadata_server_that_answers_nothing_delays_no_access_and_no_stop() {
    let dir = tempfile::tempdir().unwrap();
    let (deployment, meta, running, data) = site(&dir);
    await_("the time is not asked for", || {
        meta.seen(|seen| seen.asked.contains("time"))
    });
    let mut c = client(&deployment, &data);
    let handle = c.attach(capability(&deployment)).unwrap();
    meta.seen(|seen| {
        seen.silent = true;
        seen.asked.clear();
    });
    c.write(handle, contiguous(0, 3), b"abc");
    await_("nothing is reported", || {
        meta.seen(|seen| seen.asked.contains("report"))
    });
    // Each would take two seconds if it waited for an answer.
    let began = Instant::now();
    for i in 0..20 {
        c.write(handle, contiguous(i, 3), b"abc");
        assert_eq!(c.read(handle, contiguous(i, 3)), b"abc");
    }
    let another = client(&deployment, &data).attach(capability(&deployment));
    assert!(another.is_ok() && began.elapsed() < Duration::from_secs(8));
    assert_eq!(meta.seen(|seen| seen.most), 1);
    let began = Instant::now();
    data.stop();
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    running.stop();
}

#[test]
fn reports_go_on_after_the_metadata_server_was_away() {
    let dir = tempfile::tempdir().unwrap();
    let (deployment, meta, running, data) = site(&dir);
    let mut c = client(&deployment, &data);
    let handle = c.attach(capability(&deployment)).unwrap();
    c.write(handle, contiguous(0, 3), b"abc");
    await_("nothing is reported", || {
        meta.seen(|seen| seen.asked.contains("report"))
    });
    running.stop();
    c.write(handle, contiguous(0, 3), b"abc");
    sleep(Duration::from_secs(3));
    let (meta, running) = Meta::start(&deployment);
    await_("nothing is reported any more", || {
        meta.seen(|seen| seen.asked.contains("report") && seen.asked.contains("revocations"))
    });
    assert_eq!(meta.seen(|seen| seen.most), 1);
    data.stop();
    running.stop();
}
