//! What a process does is recorded where the environment asks for it, whatever way its bytes take, and takes the way it would
//! take without. The process is this test again: a sink is found once in a process.
use crate::common::{Plan, create, deployment, options, temporary};
use penstock_client::{Client, Form, Identity, Stats};
use penstock_datatype::{Pattern, Source, Target};
use penstock_layout::ServerId;
use penstock_trace::{Caller, Layer, Operation, Parent, Record, Stream, Trace};
use penstock_wire::Role;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// Where the process is to write its trace, and where its servers write theirs.
const CLIENT: &str = "PENSTOCK_TRACE";
const SERVERS: &str = "TEST_TRACE_OF_SERVERS";

const BYTES: u64 = 300_000;

/// Accesses by descriptors and by requests; what was counted. Does nothing when it is not asked for.
#[test]
fn a_process() {
    let Some(counts) = std::env::var_os("TEST_COUNTS") else {
        return;
    };
    let plan = Plan {
        servers: 3,
        ..Plan::default()
    };
    let dir = temporary();
    let deployment = deployment(dir.path(), plan);
    let _meta = penstock_meta::start(&deployment, penstock_meta::Options::default()).unwrap();
    let _servers: Vec<_> = (0..plan.servers)
        .map(|i| {
            let mut options = penstock_server::Options::default();
            if let Ok(dir) = std::env::var(SERVERS) {
                options.tune = vec![format!("trace={dir}")];
            }
            penstock_server::start(&deployment, ServerId(i), options).unwrap()
        })
        .collect();
    let who = Identity {
        program: 7,
        rank: 5,
    };
    let client = Client::connect_with(&deployment, who, Role::Client, options()).unwrap();
    let file = client.open("/f", &create(64 << 10, plan.servers)).unwrap();
    let mut bytes = vec![3; BYTES as usize];
    let access = Pattern::contiguous(0, BYTES);
    for form in [Form::Structured, Form::Shortcut, Form::Shortcut] {
        file.write(&access, form, &mut Source::from_slice(&bytes))
            .unwrap();
        file.read(&access, form, &mut Target::from_slice(&mut bytes))
            .unwrap();
    }
    // In memory with a hole: not for the lean path.
    let memory = Pattern::contiguous(0, 1000);
    file.read(&memory, Form::Shortcut, &mut Target::from_slice(&mut bytes))
        .unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), BYTES);
    let Stats {
        contiguous,
        list,
        structured,
        shortcut,
        ..
    } = client.stats();
    let text = format!("{contiguous:?} {list:?} {structured:?} {shortcut:?}");
    std::fs::write(counts, text).unwrap();
    drop(file);
}

/// Runs [`a_process`]; what it counted.
fn process(dir: &Path, variables: &[(&str, &Path)]) -> String {
    let counts = dir.join("counts");
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "traced::a_process", "--nocapture"])
        .env("TEST_COUNTS", &counts)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    std::fs::read_to_string(counts).unwrap()
}

fn all(stream: &Stream) -> Vec<Record> {
    assert!(stream.damage().is_none(), "{:?}", stream.damage());
    assert_eq!(stream.summary().dropped, 0);
    stream.records().map(Result::unwrap).collect()
}

#[test]
fn calls_are_followed_to_the_store_and_take_the_same_way_as_without() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let plain = process(dir.path(), &[]);
    let traced = process(dir.path(), &[(CLIENT, &trace), (SERVERS, &trace)]);
    assert_eq!(plain, traced, "the path has changed");
    assert!(plain.contains("bytes_written: 600000"), "{plain}");

    let trace = Trace::open(&trace).unwrap();
    assert!(trace.unread.is_empty());
    let (servers, processes): (Vec<_>, Vec<_>) = trace
        .streams
        .iter()
        .partition(|s| s.head().server.is_some());
    let [process] = processes[..] else {
        panic!("{} parts of processes", processes.len());
    };
    let head = process.head();
    assert_eq!((head.program, head.rank, servers.len()), (7, 5, 3));
    let records = all(process);
    let calls: HashMap<u64, &Record> = records.iter().map(|r| (r.id, r)).collect();
    assert_eq!(calls.len(), records.len(), "ids are given once");
    let sum = |layer, operation| -> u64 {
        let of = |r: &&Record| r.layer == layer && r.operation == operation;
        records.iter().filter(of).map(|r| r.bytes).sum()
    };
    // Each byte of each call is in one request or one store call below it.
    assert_eq!(sum(Layer::Client, Operation::WRITE), 3 * BYTES);
    assert_eq!(sum(Layer::Client, Operation::READ), 3 * BYTES + 1000);
    assert_eq!(sum(Layer::Request, Operation::WRITE), BYTES);
    assert_eq!(sum(Layer::Request, Operation::READ), BYTES);
    assert_eq!(sum(Layer::Store, Operation::WRITE), 2 * BYTES);
    assert_eq!(sum(Layer::Store, Operation::READ), 2 * BYTES + 1000);
    let mut below: HashMap<u64, u64> = HashMap::new();
    for r in &records {
        if matches!(r.layer, Layer::Request | Layer::Store) {
            let Parent::Here(parent) = r.parent else {
                panic!("{r:?} is below nothing");
            };
            let call = calls[&parent];
            assert!(call.layer == Layer::Client && call.operation == r.operation);
            assert!(call.begin <= r.begin && r.end() <= call.end());
            assert!(r.server < 3 && process.file(r.file).unwrap().path == "/f");
            *below.entry(parent).or_default() += r.bytes;
        }
    }
    for (id, bytes) in below {
        assert_eq!(calls[&id].bytes, bytes);
    }
    for operation in [Operation::OPEN, Operation::SYNC, Operation::STAT] {
        assert!(
            records
                .iter()
                .any(|r| r.operation == operation && r.layer == Layer::Client)
        );
    }
    followed(&servers, &calls);
}

/// What servers did is below the calls of the process; what they stored is what requests brought.
fn followed(servers: &[&Stream], calls: &HashMap<u64, &Record>) {
    let mut stored = 0;
    for stream in servers {
        let records = all(stream);
        let own: HashMap<u64, &Record> = records.iter().map(|r| (r.id, r)).collect();
        for r in &records {
            match (r.layer, r.parent) {
                (
                    Layer::Server,
                    Parent::Caller(Caller {
                        program,
                        rank,
                        call,
                    }),
                ) => {
                    assert_eq!((program, rank), (7, 5));
                    if matches!(r.operation, Operation::READ | Operation::WRITE) {
                        assert_eq!(calls[&call].operation, r.operation);
                        assert_eq!(calls[&call].layer, Layer::Client);
                    }
                }
                (Layer::Store, Parent::Here(parent)) => {
                    assert_eq!(own[&parent].layer, Layer::Server);
                    stored += r.bytes;
                }
                // Of the metadata server.
                (Layer::Server, Parent::None) => {}
                // The queue is off, and stays off.
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(stored, 2 * BYTES);
}
