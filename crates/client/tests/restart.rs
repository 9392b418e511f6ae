//! Servers are processes that are killed (kill -9) and started again under a working client.
use crate::common::{Cluster, Plan, create, deployment, options};
use penstock_client::{
    Client, ClientOptions, Error, ErrorKind, File, Form, Identity, LockMode, OpenOptions,
};
use penstock_datatype::{Loop, Pattern, Source, Target};
use penstock_layout::ServerId;
use penstock_rpc::deployment::Deployment;
use penstock_wire::Role;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tempfile::TempDir;

/// The deployment file, and which of its servers, of a child process.
const SERVE: &str = "PENSTOCK_TEST_SERVE";
const ROLE: &str = "PENSTOCK_TEST_ROLE";

/// Data server 0, which tells the metadata server of its store and often syncs in the background.
const REGISTERED: &str = "registered";

/// The child's part: a server, if the environment says which, until the parent ends.
#[test]
fn server_process() {
    let (Some(file), Ok(role)) = (std::env::var_os(SERVE), std::env::var(ROLE)) else {
        return;
    };
    let deployment = Deployment::load(Path::new(&file)).unwrap();
    let server = match role.parse::<u32>() {
        Ok(i) => crate::common::start_data(&deployment, i),
        Err(_) if role == REGISTERED => {
            let options = penstock_server::Options {
                registration: Some(penstock_server::Registration::default()),
                background_sync: Duration::from_millis(20),
                ..penstock_server::Options::default()
            };
            penstock_server::start(&deployment, ServerId(0), options).unwrap()
        }
        Err(_) => penstock_meta::start(&deployment, penstock_meta::Options::default()).unwrap(),
    };
    println!("ready");
    // The pipe ends with the parent, however it ends.
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).unwrap();
    drop(server);
}

struct Processes {
    deployment: Deployment,
    file: PathBuf,
    running: Vec<(String, Child)>,
    dir: TempDir,
}

impl Processes {
    fn start(plan: Plan) -> Processes {
        let dir = crate::common::temporary();
        let deployment = deployment(dir.path(), plan);
        let file = dir.path().join("deployment.toml");
        deployment.save(&file).unwrap();
        let mut all = Processes {
            deployment,
            file,
            running: Vec::new(),
            dir,
        };
        all.spawn("meta");
        for i in 0..plan.servers {
            all.spawn(&i.to_string());
        }
        all
    }

    /// One data server that registers its store.
    fn registered() -> Processes {
        let mut all = Processes::start(Plan {
            servers: 1,
            ..Plan::default()
        });
        all.kill("0");
        all.spawn(REGISTERED);
        all
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("data0")
    }

    fn spawn(&mut self, role: &str) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "restart::server_process", "--nocapture"])
            .env(SERVE, &self.file)
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let ready = (said.by_ref().lines()).any(|line| line.unwrap().ends_with("ready"));
        assert!(ready, "server {role} did not start");
        // Open until the child has ended, which may say more.
        child.stdout = Some(said.into_inner());
        self.running.push((role.to_owned(), child));
    }

    fn kill(&mut self, role: &str) {
        let at = self.running.iter().position(|r| r.0 == role).unwrap();
        let mut child = self.running.swap_remove(at).1;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn client(&self, options: ClientOptions) -> Client {
        let who = Identity {
            program: 3,
            rank: 1,
        };
        Client::connect_with(&self.deployment, who, Role::Client, options).unwrap()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            drop(child.stdin.take());
        }
        for (_, child) in &mut self.running {
            child.wait().unwrap();
        }
    }
}

fn impatient() -> ClientOptions {
    ClientOptions {
        retry_limit: Duration::from_millis(200),
        ..options()
    }
}

fn read(file: &File, at: u64, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    let access = Pattern::contiguous(at as i64, n as u64);
    let got = file
        .read(
            &access,
            Form::Structured,
            &mut Target::from_slice(&mut bytes),
        )
        .unwrap();
    bytes.truncate(got as usize);
    bytes
}

fn write(file: &File, bytes: &[u8]) -> penstock_client::Result<u64> {
    let access = Pattern::contiguous(0, bytes.len() as u64);
    file.write(&access, Form::Structured, &mut Source::from_slice(bytes))
}

/// Four writers of interleaved records, one per form, while data servers are killed and restarted. No call fails, and
/// what was written last is there.
#[test]
fn writers_outlive_killed_data_servers() {
    let mut servers = Processes::start(Plan {
        servers: 3,
        stripe_unit: 1000,
        ..Plan::default()
    });
    const RECORD: u64 = 200;
    const RECORDS: u64 = 2000;
    let forms = [
        Form::Contiguous,
        Form::List,
        Form::Structured,
        Form::Shortcut,
    ];
    let file = servers
        .client(options())
        .open("/f", &create(1000, 3))
        .unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers: Vec<_> = forms
            .iter()
            .enumerate()
            .map(|(w, form)| {
                let (file, done) = (file.clone(), &done);
                s.spawn(move || {
                    let tile = Loop::bytes(RECORD).resized(0, RECORD as i64 * 4).unwrap();
                    let access =
                        Pattern::new((w as u64 * RECORD) as i64, tile, 0, RECORD * RECORDS)
                            .unwrap();
                    let mut stamp = 0u8;
                    while !done.load(SeqCst) {
                        stamp = stamp.wrapping_add(1);
                        let bytes = vec![stamp; (RECORD * RECORDS) as usize];
                        file.write(&access, *form, &mut Source::from_slice(&bytes))
                            .unwrap();
                        let mut back = vec![0; bytes.len()];
                        let n = file
                            .read(&access, *form, &mut Target::from_slice(&mut back))
                            .unwrap();
                        assert_eq!(n, back.len() as u64);
                        assert!(back == bytes, "{form:?} read something else");
                    }
                    stamp
                })
            })
            .collect();
        for round in 0..6 {
            std::thread::sleep(Duration::from_millis(40));
            let victim = (round % 3).to_string();
            servers.kill(&victim);
            std::thread::sleep(Duration::from_millis(10));
            servers.spawn(&victim);
        }
        done.store(true, SeqCst);
        let stamps: Vec<u8> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        file.sync().unwrap();
        let all = read(&file, 0, (RECORD * RECORDS * 4) as usize);
        assert_eq!(all.len() as u64, RECORD * RECORDS * 4);
        for (i, byte) in all.iter().enumerate() {
            assert_eq!(*byte, stamps[i / RECORD as usize % 4], "byte {i}");
        }
    });
    assert!(file.client().stats().reconnections > 0);
}

#[test]
fn an_unreachable_server_is_named() {
    let mut servers = Processes::start(Plan {
        servers: 2,
        stripe_unit: 10,
        ..Plan::default()
    });
    let client = servers.client(impatient());
    let file = client.open("/f", &create(10, 2)).unwrap();
    write(&file, &[1; 100]).unwrap();
    servers.kill("1");
    let errors = [
        ("write", write(&file, &[2; 100]).unwrap_err()),
        ("length", file.len().unwrap_err()),
        ("sync", file.sync().unwrap_err()),
        ("lock", file.lock(0..50, LockMode::Exclusive).unwrap_err()),
    ];
    for (operation, e) in errors {
        let text = e.to_string();
        assert!(e.is_unreachable(), "{text}");
        for part in [operation, "data server 1", "data1.sock", "penstock status"] {
            assert!(text.contains(part), "no {part:?} in: {text}");
        }
    }
    // The other server alone still works, also after the failed calls.
    assert_eq!(read(&file, 0, 10), [2; 10]);
    servers.spawn("1");
    write(&file, &[3; 100]).unwrap();
    assert_eq!(read(&file, 0, 100), [3; 100]);
}

#[test]
fn a_killed_metadata_server_is_waited_for() {
    let mut servers = Processes::start(Plan {
        servers: 1,
        ..Plan::default()
    });
    let client = servers.client(options());
    client.mkdir("/d", 0o755).unwrap();
    client.sync_metadata().unwrap();
    let counter = client.counter(77);
    counter.create(5).unwrap();
    assert_eq!(counter.add(2).unwrap(), 5);
    assert_eq!(client.counter(77).get().unwrap(), 7);
    servers.kill("meta");
    std::thread::scope(|s| {
        let waiting = s.spawn(|| client.stat("/d").unwrap());
        std::thread::sleep(Duration::from_millis(30));
        servers.spawn("meta");
        assert_eq!(waiting.join().unwrap().size, 0);
    });
    let e = counter.get().unwrap_err();
    assert_eq!(
        e.kind(),
        ErrorKind::NotFound,
        "counters do not outlive the server: {e}"
    );
    drop(counter);
    servers.kill("meta");
    let hasty = servers_gone(&servers);
    assert!(hasty.is_unreachable(), "{hasty}");
    assert!(hasty.to_string().contains("metadata server"), "{hasty}");
}

fn servers_gone(servers: &Processes) -> Error {
    Client::connect_with(
        &servers.deployment,
        Identity::default(),
        Role::Client,
        impatient(),
    )
    .unwrap_err()
}

#[test]
fn sync_tells_of_a_lost_memory_store() {
    let mut servers = Processes::start(Plan {
        servers: 2,
        stripe_unit: 10,
        memory: true,
        ..Plan::default()
    });
    let client = servers.client(options());
    for form in [Form::Structured, Form::Shortcut] {
        let file = client.open("/f", &create(10, 2)).unwrap();
        let access = Pattern::contiguous(0, 100);
        file.write(&access, form, &mut Source::from_slice(&[1; 100]))
            .unwrap();
        file.sync().unwrap();
        file.write(&access, form, &mut Source::from_slice(&[2; 100]))
            .unwrap();
        servers.kill("1");
        servers.spawn("1");
        match file.sync() {
            Err(e @ Error::LostWrites { .. }) => {
                let told = e.to_string();
                assert!(told.contains("up to 100 bytes written since"), "{told}");
                assert!(told.contains("the host of data server 1"), "{told}");
                assert!(told.contains("write it to /f again"), "{told}");
            }
            other => panic!("{other:?}"),
        }
        // Reported once; written again it is there.
        file.write(&access, form, &mut Source::from_slice(&[3; 100]))
            .unwrap();
        file.sync().unwrap();
        assert_eq!(read(&file, 0, 100), [3; 100]);
    }
}

impl Processes {
    /// As if the host of a data server had lost its power: unsynced data (none here) is gone, and the system has booted
    /// again.
    fn lose_power(&mut self, server: &str) {
        self.kill(server);
        let path = self
            .file
            .with_file_name(format!("data{server}/incarnation"));
        let text = std::fs::read_to_string(&path).unwrap();
        let body: String = text
            .lines()
            .filter(|line| !line.starts_with("crc "))
            .map(|line| match line.strip_prefix("boot ") {
                Some(_) => format!("boot {:032x}\n", 1),
                None => format!("{line}\n"),
            })
            .collect();
        std::fs::write(
            path,
            format!("{body}crc {:08x}\n", crc32fast::hash(body.as_bytes())),
        )
        .unwrap();
        self.spawn(server);
    }
}

#[test]
fn a_sync_after_a_loss_of_power_fails_once() {
    let mut servers = Processes::start(Plan {
        servers: 2,
        stripe_unit: 10,
        ..Plan::default()
    });
    let client = servers.client(options());
    let write = |file: &File, form| {
        file.write(
            &Pattern::contiguous(0, 100),
            form,
            &mut Source::from_slice(&[1; 100]),
        )
        .unwrap();
    };
    let fails = |file: &File| {
        let e = file.sync().unwrap_err();
        assert!(matches!(e, Error::LostWrites { .. }), "{e}");
        assert_eq!(e.kind(), ErrorKind::Io);
    };
    for form in [Form::Structured, Form::Shortcut] {
        let file = client.open("/f", &create(10, 2)).unwrap();
        // A server that was killed has lost nothing.
        write(&file, form);
        servers.kill("1");
        servers.spawn("1");
        file.sync().unwrap();
        // Nor is what was synced.
        servers.lose_power("1");
        file.sync().unwrap();
        write(&file, form);
        servers.lose_power("1");
        // Who has the file open too is told as well, once.
        let other = client.open("/f", &create(10, 2)).unwrap();
        fails(&file);
        fails(&other);
        file.sync().unwrap();
        other.sync().unwrap();
        // Closing does not make up for it.
        write(&file, form);
        file.set_len(40).unwrap();
        drop((file, other));
        servers.lose_power("0");
        let file = client.open("/f", &create(10, 2)).unwrap();
        fails(&file);
        file.sync().unwrap();
        drop(file);
        client.open("/f", &create(10, 2)).unwrap().sync().unwrap();
        // What was written after the loss is there.
        let file = client.open("/f", &create(10, 2)).unwrap();
        servers.lose_power("1");
        write(&file, form);
        file.sync().unwrap();
        // Another client has nothing to do with it.
        write(&file, form);
        servers.lose_power("1");
        let stranger = servers.client(options());
        stranger.open("/f", &create(10, 2)).unwrap().sync().unwrap();
        fails(&file);
    }
}

#[test]
fn a_lock_is_lost_with_its_server() {
    let mut servers = Processes::start(Plan {
        servers: 2,
        stripe_unit: 10,
        ..Plan::default()
    });
    let client = servers.client(options());
    let file = client.open("/f", &create(10, 2)).unwrap();
    let lock = file.lock(0..100, LockMode::Exclusive).unwrap();
    write(&file, &[1; 100]).unwrap();
    servers.kill("0");
    servers.spawn("0");
    // Until it is given up: nothing goes on without it.
    for byte in [2, 4] {
        let e = write(&file, &[byte; 100]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::LockLost, "{e}");
        assert!(e.to_string().contains("bytes 0..100 of /f"), "{e}");
    }
    assert!(lock.is_lost());
    drop(lock);
    let _lock = file.lock(0..100, LockMode::Exclusive).unwrap();
    write(&file, &[3; 100]).unwrap();
    assert_eq!(read(&file, 0, 100), [3; 100]);
}

#[test]
fn a_grant_ends_with_its_server() {
    let mut servers = Processes::start(Plan {
        servers: 1,
        ..Plan::default()
    });
    let client = servers.client(options());
    let file = client.open("/f", &create(1000, 1)).unwrap();
    assert!(file.has_shortcut());
    servers.kill("0");
    std::thread::sleep(Duration::from_millis(5));
    servers.spawn("0");
    let access = Pattern::contiguous(0, 5000);
    file.write(&access, Form::Shortcut, &mut Source::from_slice(&[7; 5000]))
        .unwrap();
    let stats = file.stats();
    assert_eq!(
        stats.shortcut.operations, 0,
        "nobody could take the grant back any more"
    );
    assert_eq!(stats.structured.operations, 1);
    assert_eq!(read(&file, 0, 5000), [7; 5000]);
}

#[test]
fn expired_capabilities_are_renewed() {
    // In one process: the metadata server gives capabilities of a very short life.
    let mut cluster = Cluster::start(Plan::default());
    cluster.meta = None;
    let short = penstock_meta::Options {
        capability_lifetime: Duration::from_millis(60),
        ..penstock_meta::Options::default()
    };
    cluster.meta = Some(penstock_meta::start(&cluster.deployment, short.clone()).unwrap());
    let client = cluster.client();
    let how = OpenOptions { ..create(1000, 4) };
    let file = client.open("/f", &how).unwrap();
    let bytes = vec![5u8; 40_000];
    for form in [Form::Contiguous, Form::Structured, Form::Shortcut] {
        for _ in 0..4 {
            let mut parts = (0..40u64).map(|i| {
                std::thread::sleep(Duration::from_millis(2));
                (i * 1000, Pattern::contiguous(i as i64 * 1000, 1000))
            });
            file.write_each(&mut parts, form, &mut Source::from_slice(&bytes))
                .unwrap();
            file.sync().unwrap();
            drop(file.lock(0..50, LockMode::Exclusive).unwrap());
        }
    }
    assert_eq!(read(&file, 0, 40_000), bytes);
    // Also after the connection over which the file was opened has gone.
    cluster.meta = None;
    cluster.meta = Some(penstock_meta::start(&cluster.deployment, short).unwrap());
    std::thread::sleep(Duration::from_millis(70));
    assert_eq!(read(&file, 0, 40_000), bytes);
}

/// Neither the writer nor the end of the server syncs: only the background sync does.
#[test]
fn what_nobody_synced_is_missed_when_it_is_gone() {
    let mut servers = Processes::registered();
    let client = servers.client(options());
    let manifest = || std::fs::metadata(servers.store().join("manifest")).unwrap();
    let before = manifest().len();
    let file = client.open("/f", &create(1000, 1)).unwrap();
    write(&file, &[7; 5000]).unwrap();
    // Usually a few rounds. If none comes, what follows tells.
    for _ in 0..3000 {
        if manifest().len() > before {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    servers.kill(REGISTERED);
    let id = file.id().0;
    let name = format!("objects/{:02x}/{id:016x}", id % 16);
    std::fs::remove_file(servers.store().join(&name)).unwrap();
    servers.spawn(REGISTERED);
    let again = client.open("/f", &OpenOptions::read());
    for file in [file, again.unwrap()] {
        let mut bytes = [1; 5000];
        let access = Pattern::contiguous(0, 5000);
        let read = file.read(
            &access,
            Form::Structured,
            &mut Target::from_slice(&mut bytes),
        );
        let told = read.unwrap_err().to_string();
        assert!(told.contains(&name), "{told}");
    }
}
