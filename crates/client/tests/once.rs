//! Changes of names take effect once. The answer to each is lost after the server has carried it out, and another
//! client acts meanwhile. The client repeats the change, and gets the result of the first copy.
use crate::common::{Cluster, Plan, create, options};
use penstock_client::{Client, ErrorKind, FileLeases, Identity, Locked, OpenFiles, OpenOptions};
use penstock_layout::FileId;
use penstock_wire::Role;
use penstock_wire::message::{
    Advisory, AdvisoryFamily, AdvisoryHow, AdvisoryMode, CreateOptions, NodeReply, NodeRequest,
    User,
};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Passing,
    /// The next bytes from the server are dropped, with their connection.
    Armed,
    /// It has happened; nobody is connected until the test goes on.
    Cut,
}

/// Stands between a client and the metadata server.
#[derive(Clone)]
struct Proxy(Arc<(Mutex<State>, Condvar)>);

impl Proxy {
    fn before(cluster: &Cluster) -> (Proxy, Client) {
        let proxy = Proxy(Arc::new((Mutex::new(State::Passing), Condvar::new())));
        let path = cluster.dir.path().join("proxy.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = cluster.deployment.meta.address.unix.clone().unwrap();
        std::thread::spawn({
            let proxy = proxy.clone();
            move || proxy.serve(&listener, &server)
        });
        let mut far = cluster.deployment.clone();
        far.meta.address.unix = Some(path);
        let client = Client::connect_with(&far, Identity::default(), Role::Client, options());
        let client = client.unwrap();
        // The session is open before anything is lost.
        client.mkdir("/warm", 0o755).unwrap();
        (proxy, client)
    }

    fn serve(&self, listener: &UnixListener, server: &PathBuf) {
        for near in listener.incoming() {
            let near = near.unwrap();
            self.wait(|state| *state != State::Cut);
            let Ok(far) = UnixStream::connect(server) else {
                continue;
            };
            let (up, down) = ((near.try_clone(), far.try_clone()), (far, near));
            std::thread::spawn(move || forward(&up.0.unwrap(), &up.1.unwrap(), || true));
            std::thread::spawn({
                let proxy = self.clone();
                move || forward(&down.0, &down.1, || proxy.lets_pass())
            });
        }
    }

    fn lets_pass(&self) -> bool {
        let mut state = self.0.0.lock().unwrap();
        if *state == State::Armed {
            *state = State::Cut;
            self.0.1.notify_all();
        }
        *state == State::Passing
    }

    fn set(&self, to: State) {
        *self.0.0.lock().unwrap() = to;
        self.0.1.notify_all();
    }

    fn wait(&self, until: impl Fn(&State) -> bool) {
        let state = self.0.0.lock().unwrap();
        let (_state, waited) = self
            .0
            .1
            .wait_timeout_while(state, LIMIT, |state| !until(state))
            .unwrap();
        assert!(!waited.timed_out());
    }

    /// Loses the answer to what `call` asks for; `meanwhile` happens before the client is back.
    fn lose<T: Send>(&self, call: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> T {
        self.set(State::Armed);
        std::thread::scope(|s| {
            let call = s.spawn(call);
            self.wait(|state| *state == State::Cut);
            meanwhile();
            self.set(State::Passing);
            call.join().unwrap()
        })
    }
}

fn forward(mut from: &UnixStream, mut to: &UnixStream, pass: impl Fn() -> bool) {
    let mut bytes = [0; 65536];
    loop {
        let n = from.read(&mut bytes).unwrap_or(0);
        if n == 0 || !pass() || to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn cluster() -> Cluster {
    Cluster::start(Plan {
        servers: 1,
        ..Plan::default()
    })
}

fn exclusive() -> OpenOptions {
    OpenOptions {
        exclusive: true,
        ..create(4096, 1)
    }
}

fn id(client: &Client, path: &str) -> FileId {
    client.stat(path).unwrap().attributes.id
}

#[test]
fn a_change_whose_answer_is_lost_is_carried_out_once() {
    let cluster = cluster();
    let (proxy, client) = Proxy::before(&cluster);
    let other = cluster.client();
    proxy.lose(|| client.mkdir("/d", 0o755), || ()).unwrap();
    proxy
        .lose(|| client.open("/f", &exclusive()), || ())
        .unwrap();
    proxy.lose(|| client.symlink("/s", "/f"), || ()).unwrap();
    let file = id(&other, "/f");
    proxy.lose(|| client.rename("/f", "/g"), || ()).unwrap();
    assert_eq!(id(&other, "/g"), file);
    // What fails fails once as well: by now it could succeed.
    let taken = proxy.lose(|| client.mkdir("/g", 0o755), || other.unlink("/g").unwrap());
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(other.stat("/g").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn what_somebody_else_made_meanwhile_stays() {
    let cluster = cluster();
    let (proxy, client) = Proxy::before(&cluster);
    let other = cluster.client();
    let made = |path: &str| drop(other.open(path, &exclusive()).unwrap());
    made("/f");
    proxy.lose(|| client.unlink("/f"), || made("/f")).unwrap();
    let theirs = id(&other, "/f");
    proxy
        .lose(|| client.rename("/f", "/g"), || made("/f"))
        .unwrap();
    assert_eq!(id(&other, "/g"), theirs);
    assert_ne!(id(&other, "/f"), theirs);
    client.mkdir("/d", 0o755).unwrap();
    let again = || other.mkdir("/d", 0o755).unwrap();
    proxy.lose(|| client.rmdir("/d"), again).unwrap();
    assert!(other.stat("/d").is_ok(), "their directory");
    // A file of ours that they have replaced is not there any more; theirs is not opened in its place.
    let replace = || {
        other.unlink("/x").unwrap();
        made("/x");
    };
    let opened = proxy.lose(|| client.open("/x", &exclusive()), replace);
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(other.stat("/x").is_ok());
}

#[test]
fn repetitions_are_known_after_a_restart() {
    let mut cluster = cluster();
    let (proxy, client) = Proxy::before(&cluster);
    proxy
        .lose(|| client.mkdir("/d", 0o755), || cluster.start_meta())
        .unwrap();
    drop(client.open("/f", &exclusive()).unwrap());
    let restarted_and_made = || {
        cluster.start_meta();
        drop(cluster.client().open("/f", &exclusive()).unwrap());
    };
    proxy
        .lose(|| client.unlink("/f"), restarted_and_made)
        .unwrap();
    assert!(client.stat("/f").is_ok(), "the new one");
}

#[test]
fn a_counter_is_added_to_once() {
    let cluster = cluster();
    let (proxy, client) = Proxy::before(&cluster);
    let other = cluster.client();
    let theirs = other.counter(9);
    theirs.create(100).unwrap();
    let counter = client.counter(9);
    let before = proxy.lose(
        || counter.add(5),
        || assert_eq!(theirs.add(1).unwrap(), 105),
    );
    assert_eq!(before.unwrap(), 100);
    proxy
        .lose(|| counter.set(7), || assert_eq!(theirs.add(1).unwrap(), 7))
        .unwrap();
    assert_eq!(theirs.get().unwrap(), 8);
    let own = client.counter(10);
    proxy.lose(|| own.create(3), || ()).unwrap();
    assert_eq!(own.add(1).unwrap(), 3);
}

#[derive(Debug)]
struct NoFiles;

impl OpenFiles for NoFiles {
    fn ids(&self) -> Vec<FileId> {
        Vec::new()
    }
    fn is_removed(&self, _: FileId) -> bool {
        false
    }
    fn any_removed(&self) -> bool {
        false
    }
}

#[test]
fn locks_and_kept_files_of_a_mount_are_had_once() {
    let cluster = cluster();
    let (proxy, client) = Proxy::before(&cluster);
    let other = cluster.client();
    let file = other.open("/f", &exclusive()).unwrap();
    let lock = Advisory {
        owner: 1,
        start: 0,
        last: 9,
        mode: AdvisoryMode::Exclusive,
        family: AdvisoryFamily::Fcntl,
        pid: 1,
    };
    let ours = FileLeases::new(&client, Arc::new(NoFiles));
    let theirs = FileLeases::new(&other, Arc::new(NoFiles));
    let wanted = Advisory { owner: 2, ..lock };
    let take = |lock| ours.lock(file.id(), lock, AdvisoryHow::Try);
    assert_eq!(proxy.lose(|| take(lock), || ()).unwrap(), Locked::Done);
    let seen = theirs.lock(file.id(), wanted, AdvisoryHow::Try).unwrap();
    assert!(matches!(seen, Locked::By { .. }), "{seen:?}");
    let free = Advisory {
        mode: AdvisoryMode::Free,
        ..lock
    };
    assert_eq!(proxy.lose(|| take(free), || ()).unwrap(), Locked::Done);
    let got = theirs.lock(file.id(), wanted, AdvisoryHow::Try).unwrap();
    assert_eq!(got, Locked::Done);
    let root = other.stat("/").unwrap().attributes.id;
    let unlink = NodeRequest::Unlink {
        parent: root,
        name: "f".into(),
        keep: true,
    };
    let made = || drop(other.open("/f", &exclusive()).unwrap());
    let gone = proxy.lose(|| ours.request(&User::default(), unlink), made);
    let kept = NodeReply::Unlinked {
        file: Some(file.id()),
        capability: None,
    };
    assert_eq!(gone.unwrap(), kept);
    assert!(other.stat("/f").is_ok(), "the new one");
    let reap = NodeRequest::Reap { id: file.id() };
    let reaped = proxy.lose(|| ours.request(&User::default(), reap), || ());
    let NodeReply::Unlinked { capability, .. } = reaped.unwrap() else {
        panic!("no answer to a close");
    };
    assert_eq!(capability.unwrap().file, file.id(), "the right to free it");
    // By a mount, for a user.
    let user = User::default();
    let make = || {
        let options = CreateOptions::default();
        client.create_node(&user, (root, "n"), options, (true, true), true)
    };
    let made = proxy.lose(make, || ()).unwrap();
    assert_eq!(id(&other, "/n"), made.id());
}

#[test]
fn changes_of_a_batch_are_carried_out_once() {
    use penstock_wire::message::{MetaReply, MetaRequest};
    let cluster = cluster();
    let (proxy, client) = Proxy::before(&cluster);
    let other = cluster.client();
    let mkdir = |name: &str| MetaRequest::Mkdir {
        path: name.into(),
        mode: 0o755,
    };
    let rmdir = |name: &str| MetaRequest::Rmdir { path: name.into() };
    let batch = vec![mkdir("/a"), mkdir("/b"), rmdir("/a"), mkdir("/b")];
    let replies = proxy.lose(|| client.batch(batch), || other.mkdir("/a", 0o755).unwrap());
    let replies = replies.unwrap();
    assert!(
        replies[..3].iter().all(|r| *r == MetaReply::Done),
        "{replies:?}"
    );
    assert!(matches!(&replies[3], MetaReply::Error(e) if e.kind == ErrorKind::Exists));
    assert!(other.stat("/a").is_ok(), "theirs");
}
