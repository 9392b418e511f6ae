//! The server is killed with SIGKILL at random moments of a workload and restarted. Everything acknowledged must be
//! there, with or without Sync, and each client must find its changes. A repeated unanswered request takes effect once,
//! and ids are never reused.

use crate::common::{Client, create, deployment, mkdir, rename, stat, unlink};
use penstock_layout::FileId;
use penstock_rpc::deployment::Deployment;
use penstock_wire::Role;
use penstock_wire::message::{
    ErrorKind, Followed, MetaReply, MetaRequest, QuotaReply, QuotaRequest, SlotAt, UsageReport,
    WrongCount,
};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Names the deployment file for a server process.
const SERVE: &str = "PENSTOCK_TEST_SERVE";

/// Set if the store counts as too large to be read completely at a start.
const LARGE: &str = "PENSTOCK_TEST_LARGE";

/// The server process of the tests below, which run this binary again; not a test by itself.
#[test]
fn server_process() {
    let Some(file) = std::env::var_os(SERVE) else {
        return;
    };
    let d = Deployment::load(Path::new(&file)).unwrap();
    let large = std::env::var_os(LARGE).is_some();
    let options = penstock_meta::Options {
        commit_interval: Duration::from_millis(20),
        read_through: if large { 0 } else { 64 << 20 },
        ..penstock_meta::Options::default()
    };
    penstock_meta::start(&d, options).unwrap().wait();
}

/// A server process; killed when dropped.
struct Server(Child);

impl Server {
    /// `limit`: most blocks of 512 bytes of its files.
    fn start(d: &Deployment, file: &Path, limit: Option<u64>) -> Server {
        // Workload and recovery overlap in different ways.
        static STARTS: AtomicU64 = AtomicU64::new(0);
        let large = !STARTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(3);
        Server::start_as(d, file, limit, large)
    }

    /// `large`: as with a store that is too large to be read completely at a start.
    fn start_as(d: &Deployment, file: &Path, limit: Option<u64>, large: bool) -> Server {
        let this = std::env::current_exe().unwrap();
        let mut command = match limit {
            None => Command::new(this),
            Some(blocks) => {
                let mut shell = Command::new("sh");
                let script = format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$0\" \"$@\"");
                shell.args(["-c", &script]).arg(this);
                shell
            }
        };
        if large {
            command.env(LARGE, "");
        }
        let child = command
            .args(["--exact", "crash::server_process", "--nocapture"])
            .env(SERVE, file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Server(child);
        let deadline = Instant::now() + Duration::from_secs(60);
        while Client::connect(d, Role::Client).is_err() {
            assert!(server.0.try_wait().unwrap().is_none(), "the server ended");
            assert!(Instant::now() < deadline, "the server does not answer");
            std::thread::sleep(Duration::from_millis(2));
        }
        server
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// xorshift64*: reproducible from the seed that a failing run prints.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

type Listing = BTreeMap<String, FileId>;

/// What one client did in its directory, until the server died.
struct History {
    directory: String,
    /// Contents after each operation; the last one may have been carried out without an answer.
    states: Vec<Listing>,
    /// The newest state that was acknowledged.
    durable: usize,
    ids: Vec<FileId>,
    /// The request whose answer was lost with the server.
    unanswered: Option<MetaRequest>,
}

/// Creates, renames (also over files), unlinks and syncs in `directory` until the connection breaks.
fn work(d: &Deployment, directory: String, before: Listing, seed: u64) -> History {
    let mut random = Random(seed | 1);
    let mut history = History {
        directory: directory.clone(),
        states: vec![before],
        durable: 0,
        ids: Vec::new(),
        unanswered: None,
    };
    let Ok(mut c) = Client::connect(d, Role::Client) else {
        return history;
    };
    let session = u128::from(seed);
    let Ok(MetaReply::Done) = c.call(&MetaRequest::OpenSession { session }) else {
        return history;
    };
    for step in 0u64.. {
        let mut next = history.states[history.states.len() - 1].clone();
        let pick = |random: &mut Random, from: &Listing| {
            let n = random.below(from.len().max(1) as u64) as usize;
            from.keys().nth(n).cloned()
        };
        let kind = random.below(10);
        let request = match (kind, pick(&mut random, &next)) {
            (0, _) => MetaRequest::Sync,
            (1, Some(name)) => {
                next.remove(&name);
                unlink(format!("{directory}/{name}"))
            }
            (2 | 3, Some(name)) => {
                let to = if kind == 2 {
                    pick(&mut random, &next).unwrap()
                } else {
                    format!("renamed-{seed:x}-{step}")
                };
                if let Some(id) = next.remove(&name) {
                    next.insert(to.clone(), id);
                }
                rename(format!("{directory}/{name}"), format!("{directory}/{to}"))
            }
            _ => {
                let name = format!("made-{seed:x}-{step}");
                // The id is unknown before the answer; without one only the name is compared.
                next.insert(name.clone(), FileId(0));
                create(format!("{directory}/{name}"))
            }
        };
        let request = if request.changes() {
            MetaRequest::Once {
                at: SlotAt {
                    session,
                    slot: 0,
                    sequence: step + 1,
                },
                request: Box::new(request),
            }
        } else {
            request
        };
        let reply = c.call(&request);
        let known = history.states.len() - 1;
        match reply {
            Ok(MetaReply::Opened { attributes, .. }) => {
                history.ids.push(attributes.id);
                for id in next.values_mut().filter(|id| id.0 == 0) {
                    *id = attributes.id;
                }
                history.states.push(next);
                history.durable = known + 1;
            }
            Ok(MetaReply::Unlinked { .. }) => {
                history.states.push(next);
                history.durable = known + 1;
            }
            Ok(MetaReply::Done) => {}
            Ok(MetaReply::Error(e)) if e.kind == ErrorKind::ShuttingDown => return history,
            Ok(reply) => panic!("{request:?}: {reply:?}"),
            Err(_) => {
                history.states.push(next);
                history.unanswered = Some(request);
                return history;
            }
        }
    }
    history
}

/// The state found must be one of the history's, not older than the acknowledged one.
fn check(c: &mut Client, history: &History) -> Listing {
    let found: Listing = c.list(&history.directory, 1000).into_iter().collect();
    let same = |state: &&Listing| {
        state.len() == found.len()
            && state
                .iter()
                .all(|(name, id)| found.get(name).is_some_and(|f| id.0 == 0 || f == id))
    };
    assert!(
        history.states[history.durable..].iter().any(|s| same(&s)),
        "{} after a crash: {} files, not any state since the last answer (step {} of {})",
        history.directory,
        found.len(),
        history.durable,
        history.states.len() - 1
    );
    for name in found.keys() {
        c.stat(&format!("{}/{name}", history.directory));
    }
    found
}

/// Counts of files that differ from the names.
fn wrong_counts(d: &Deployment) -> Vec<WrongCount> {
    let mut c = Client::admin(d);
    let mut count = None;
    loop {
        let repair = false;
        match c.ok(MetaRequest::Quota(QuotaRequest::Count { count, repair })) {
            MetaReply::Quota(QuotaReply::Counted {
                through: true,
                wrong,
                ..
            }) => return wrong,
            MetaReply::Quota(QuotaReply::Counted { count: next, .. }) => count = next,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn killed_at_random_moments() {
    const ROUNDS: u64 = 8;
    const CLIENTS: usize = 4;
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let file = dir.path().join("deployment.toml");
    d.save(&file).unwrap();
    let seed = u64::from(std::process::id()) << 20;
    println!("seed {seed:#x}");
    let mut random = Random(seed | 1);
    let mut listings = vec![Listing::new(); CLIENTS];
    let mut ids = HashSet::new();
    {
        let _server = Server::start(&d, &file, None);
        let mut c = Client::new(&d);
        for i in 0..CLIENTS {
            c.ok(mkdir(format!("/{i}")));
        }
        c.ok(MetaRequest::Sync);
    }
    let mut steps = 0;
    for round in 0..ROUNDS {
        let server = Server::start(&d, &file, None);
        let histories: Vec<History> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..CLIENTS)
                .map(|i| {
                    let (d, before) = (&d, listings[i].clone());
                    let seed = seed + round * 100 + i as u64;
                    scope.spawn(move || work(d, format!("/{i}"), before, seed))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(20 + random.below(180)));
            server.kill();
            workers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        let server = Server::start(&d, &file, None);
        let mut c = Client::new(&d);
        for (i, mut history) in histories.into_iter().enumerate() {
            if let Some(request) = history.unanswered.take() {
                // Carried out before the server died, or now, and once: names of this test are unique.
                c.ok(request);
                history.durable = history.states.len() - 1;
            }
            let history = &history;
            listings[i] = check(&mut c, history);
            steps += history.states.len();
            for id in &history.ids {
                assert!(ids.insert(*id), "{id:?} was given twice");
            }
        }
        // All nodes are reachable and the totals agree.
        let total: usize = listings.iter().map(BTreeMap::len).sum();
        let status = loop {
            let MetaReply::Status(status) = c.ok(MetaRequest::Status) else {
                panic!()
            };
            if status.looked_through {
                break status;
            }
        };
        assert_eq!(status.files, total as u64);
        assert_eq!(status.damaged, 0, "{:?}", status.damage);
        assert!(status.counted);
        assert_eq!(wrong_counts(&d), []);
        server.kill();
    }
    assert!(steps > 100, "{steps} steps are no workload");
}

/// A store that cannot grow: changes are refused with the reason, reads continue, nothing acknowledged is lost. The
/// server recovers when there is space again.
#[test]
fn a_full_store_refuses_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let file = dir.path().join("deployment.toml");
    d.save(&file).unwrap();
    {
        let _server = Server::start(&d, &file, None);
    }
    let size = std::fs::metadata(dir.path().join("meta/namespace.redb"))
        .unwrap()
        .len();
    let server = Server::start(&d, &file, Some(size / 512 + 64));
    let mut c = Client::new(&d);
    let mut made = Vec::new();
    let mut refusal = None;
    for i in 0..200_000 {
        let path = format!("/{i:0200}");
        match c.call(&create(&path)).unwrap() {
            MetaReply::Opened { .. } => made.push(path),
            MetaReply::Error(e) => {
                refusal = Some(e);
                break;
            }
            reply => panic!("{reply:?}"),
        }
    }
    let refusal = refusal.expect("the store was full at some point");
    assert_eq!(refusal.kind, ErrorKind::NoSpace, "{refusal}");
    assert!(
        refusal.message.contains("full") && refusal.message.contains("free"),
        "{refusal}"
    );
    assert_eq!(c.err(MetaRequest::Sync), ErrorKind::NoSpace);
    // Reports on users' bytes are not stored: they wait for no commit.
    let usage = MetaRequest::Usage(UsageReport {
        server: 0,
        incarnation: 1,
        sequence: 1,
        followed: Followed { run: 0, given: 0 },
        users: Vec::new(),
    });
    let leases = Client::admin(&d).ok(usage);
    assert!(matches!(leases, MetaReply::Leases(_)), "{leases:?}");
    for path in made.iter().step_by(97) {
        c.stat(path);
    }
    let pid = rustix::process::Pid::from_raw(server.0.id() as i32);
    let unlimited = rustix::process::Rlimit {
        current: None,
        maximum: None,
    };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, unlimited).unwrap();
    c.ok(MetaRequest::Sync);
    assert_eq!(c.err(create(&made[0])), ErrorKind::Exists);
    c.open(create("/after"));
    server.kill();
    let _server = Server::start(&d, &file, None);
    let mut c = Client::new(&d);
    let found = c.list("/", 1000);
    let lost = made.iter().filter(|path| {
        let name = &path[1..];
        found
            .binary_search_by(|(n, _)| n.as_str().cmp(name))
            .is_err()
    });
    assert_eq!(lost.count(), 0);
    assert!(found.len() >= made.len());
    let after = c.call(&stat("/after")).unwrap();
    let not_synced = matches!(&after, MetaReply::Error(e) if e.kind == ErrorKind::NotFound);
    assert!(
        not_synced || matches!(after, MetaReply::Attributes(_)),
        "{after:?}"
    );
}

/// A power loss takes the journal, and a bit of the newest commit has flipped: a start detects that, or everything is
/// there. It never takes the commit for an incomplete one.
#[test]
fn a_bad_page_never_takes_back_what_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let d = deployment(dir.path());
    let file = dir.path().join("deployment.toml");
    d.save(&file).unwrap();
    let server = Server::start_as(&d, &file, None, false);
    let mut c = Client::new(&d);
    for path in ["/first", "/second", "/third"] {
        c.open(create(path));
        c.ok(MetaRequest::Sync);
    }
    drop(c);
    server.kill();
    let files = |of: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(of).unwrap().map(|e| e.unwrap().path());
        entries.filter(|path| path.is_file()).collect()
    };
    let store = dir.path().join("meta");
    let gone = |path: &Path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("journal-")
    };
    let kept: Vec<_> = files(&store)
        .into_iter()
        .filter(|path| !gone(path))
        .map(|path| (std::fs::read(&path).unwrap(), path))
        .collect();
    let database = store.join("namespace.redb");
    let bytes = std::fs::read(&database).unwrap();
    let pages: Vec<_> = (0..bytes.len() / 4096)
        .filter(|page| bytes[page * 4096..][..4096].iter().any(|b| *b != 0))
        .collect();
    let mut found = 0;
    for page in &pages {
        for old in files(&store) {
            std::fs::remove_file(old).unwrap();
        }
        for (bytes, path) in &kept {
            std::fs::write(path, bytes).unwrap();
        }
        let mut bad = bytes.clone();
        // In the header of a page, which is in use in every live page.
        bad[page * 4096 + 2] ^= 4;
        std::fs::write(&database, bad).unwrap();
        match penstock_meta::start(&d, penstock_meta::Options::default()) {
            Err(_) => found += 1,
            Ok(_server) => {
                let mut c = Client::new(&d);
                let gone = matches!(c.call(&stat("/third")).unwrap(), MetaReply::Error(e) if e.kind == ErrorKind::NotFound);
                assert!(
                    !gone,
                    "a bit of page {page} has taken a synced name back, in silence"
                );
            }
        }
    }
    assert!(found > 3, "{found} of {} bad pages were found", pages.len());
}
