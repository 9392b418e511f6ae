//! Clients that read and write through mappings of passed objects, beside others that cut, extend, unlink and die.
use crate::common::{Cluster, Plan, create, options, temporary};
use penstock_client::{Client, File, Form, Identity};
use penstock_datatype::{Loop, Pattern, Source, Target};
use penstock_rpc::deployment::Deployment;
use penstock_wire::Role;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tempfile::TempDir;

/// Names the deployment file and the file to write for the second process of a test.
const DEPLOYMENT: &str = "PENSTOCK_TEST_DEPLOYMENT";
const LEN: u64 = 300_000;

/// Stores in memory and on the disk: their file systems differ in what mappings do.
fn places() -> [TempDir; 2] {
    [
        temporary(),
        TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
    ]
}

fn one_server(dir: TempDir) -> Cluster {
    Cluster::start_in(
        dir,
        Plan {
            servers: 1,
            ..Plan::default()
        },
    )
}

fn byte(at: u64) -> u8 {
    (at / 3) as u8 | 1
}

fn write_all(file: &File) {
    let bytes: Vec<u8> = (0..LEN).map(byte).collect();
    let access = Pattern::contiguous(0, LEN);
    file.write(&access, Form::Shortcut, &mut Source::from_slice(&bytes))
        .unwrap();
}

/// Small pieces all over the file; each byte is what was written there, or a hole's.
fn read_pieces(file: &File) -> u64 {
    let tile = Loop::bytes(60).resized(0, 200).unwrap();
    let access = Pattern::new(0, tile, 0, LEN / 200 * 60).unwrap();
    let mut bytes = vec![0; access.len as usize];
    let n = file
        .read(&access, Form::Shortcut, &mut Target::from_slice(&mut bytes))
        .unwrap();
    for (i, got) in bytes[..n as usize].iter().enumerate() {
        let at = i as u64 / 60 * 200 + i as u64 % 60;
        assert!(*got == byte(at) || *got == 0, "byte {at} is {got}");
    }
    let mut some = [0; 700];
    for at in (0..LEN).step_by(9_973) {
        let access = Pattern::contiguous(at as i64, 700);
        let n = file
            .read(&access, Form::Shortcut, &mut Target::from_slice(&mut some))
            .unwrap();
        for (i, got) in some[..n as usize].iter().enumerate() {
            assert!(*got == byte(at + i as u64) || *got == 0);
        }
    }
    n
}

/// Every third run of 40 bytes, from `first` on: pieces that are stored through a mapping.
fn write_pieces(file: &File, first: u64, value: u8) {
    let tile = Loop::bytes(40).resized(0, 120).unwrap();
    let access = Pattern::new(40 * first as i64, tile, 0, 40 * 600).unwrap();
    let bytes = [value; 40 * 600];
    let n = file
        .write(&access, Form::Shortcut, &mut Source::from_slice(&bytes))
        .unwrap();
    assert_eq!(n, bytes.len() as u64);
}

/// What lies behind the end now is a hole once the file is longer.
fn nothing_comes_back(file: &File, len: u64) {
    let end = file.len().unwrap();
    file.set_len(len.max(end)).unwrap();
    let mut rest = vec![1; (len - end.min(len)) as usize];
    let access = Pattern::contiguous(end as i64, rest.len() as u64);
    let n = file
        .read(
            &access,
            Form::Structured,
            &mut Target::from_slice(&mut rest),
        )
        .unwrap();
    assert_eq!(n, rest.len() as u64);
    let back = rest.iter().filter(|byte| **byte != 0).count();
    assert_eq!(back, 0, "bytes that came back behind {end}");
}

#[test]
fn readers_of_mappings_outlive_cuts() {
    for dir in places() {
        let cluster = one_server(dir);
        let cutter = cluster.client();
        let file = cutter.open("/f", &create(1 << 16, 1)).unwrap();
        write_all(&file);
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    let client = cluster.client();
                    let stop = &stop;
                    s.spawn(move || {
                        let file = client.open("/f", &create(1 << 16, 1)).unwrap();
                        let mut most = 0;
                        while !stop.load(SeqCst) || most == 0 {
                            most = most.max(read_pieces(&file));
                        }
                    })
                })
                .collect();
            for round in 0..60 {
                for _ in 0..3 {
                    read_pieces(&file);
                }
                file.set_len(LEN * (round * 7 % 10) / 10).unwrap();
                if round % 3 == 0 {
                    file.set_len(LEN).unwrap();
                }
                write_all(&file);
            }
            stop.store(true, SeqCst);
            readers.into_iter().for_each(|r| r.join().unwrap());
        });
    }
}

#[test]
fn a_file_without_a_name_stays_whole_for_those_who_read_it() {
    for dir in places() {
        let cluster = one_server(dir);
        let (here, there) = (cluster.client(), cluster.client());
        for _ in 0..20 {
            let mine = here.open("/gone", &create(1 << 16, 1)).unwrap();
            write_all(&mine);
            read_pieces(&mine);
            std::thread::scope(|s| {
                s.spawn(|| {
                    there.unlink("/gone").unwrap();
                    // Another file of the name has nothing to do with it.
                    let other = there.open("/gone", &create(1 << 16, 1)).unwrap();
                    other.set_len(1000).unwrap();
                    there.unlink("/gone").unwrap();
                });
                for _ in 0..5 {
                    assert_eq!(read_pieces(&mine), LEN / 200 * 60);
                }
            });
            write_pieces(&mine, 1, 9);
        }
    }
}

#[test]
fn writers_through_mappings_and_cuts_leave_nothing_behind() {
    for dir in places() {
        let cluster = one_server(dir);
        let cutter = cluster.client();
        let file = cutter.open("/f", &create(1 << 16, 1)).unwrap();
        std::thread::scope(|s| {
            for first in 0..2 {
                let client = cluster.client();
                s.spawn(move || {
                    let file = client.open("/f", &create(1 << 16, 1)).unwrap();
                    for round in 0..150 {
                        write_pieces(&file, first, round | 1);
                    }
                });
            }
            for round in 0..60 {
                file.set_len(round * 13 % 500).unwrap();
                file.extend(5_000 * (round % 4)).unwrap();
            }
        });
        file.set_len(1234).unwrap();
        nothing_comes_back(&file, 200_000);
        // And without cuts all is there.
        write_pieces(&file, 0, 7);
        write_pieces(&file, 1, 8);
        let mut all = vec![0; 120 * 600];
        let access = Pattern::contiguous(0, all.len() as u64);
        let into = &mut Target::from_slice(&mut all);
        file.read(&access, Form::Structured, into).unwrap();
        assert!(
            all.chunks(120)
                .all(|c| c[..40] == [7; 40] && c[40..80] == [8; 40])
        );
    }
}

/// A client dies in the middle of storing into an object, and the server takes the object back. The dead client's
/// mapping changes nothing any more.
#[test]
fn a_client_that_is_killed_stores_nothing_any_more() {
    if let Ok(path) = std::env::var(DEPLOYMENT) {
        let deployment = Deployment::load(path.as_ref()).unwrap();
        let who = Identity {
            program: 8,
            rank: 0,
        };
        let client = Client::connect_with(&deployment, who, Role::Client, options()).unwrap();
        let file = client.open("/f", &create(1 << 16, 1)).unwrap();
        write_pieces(&file, 0, 5);
        std::io::stderr().write_all(b".").unwrap();
        // Until it is killed, or its parent is gone.
        let mut parent = std::io::stdin();
        std::thread::spawn(move || {
            let _ = parent.read(&mut [0]);
            std::process::exit(0);
        });
        loop {
            write_pieces(&file, 0, 5);
        }
    }
    for dir in places() {
        let cluster = one_server(dir);
        let path = cluster.dir.path().join("deployment.toml");
        cluster.deployment.save(&path).unwrap();
        let client = cluster.client();
        let file = client.open("/f", &create(1 << 16, 1)).unwrap();
        for round in 0..6 {
            let mut other = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "mappings::a_client_that_is_killed_stores_nothing_any_more",
                ])
                .arg("--nocapture")
                .env(DEPLOYMENT, &path)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut told = [0];
            other
                .stderr
                .as_mut()
                .unwrap()
                .read_exact(&mut told)
                .unwrap();
            assert_eq!(&told, b".", "the other process has a complaint");
            std::thread::sleep(std::time::Duration::from_micros(300 * round));
            other.kill().unwrap();
            other.wait().unwrap();
            file.set_len(50).unwrap();
            nothing_comes_back(&file, 100_000);
            file.set_len(0).unwrap();
        }
    }
}
