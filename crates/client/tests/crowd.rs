//! The ranks of a large program, which all start at once, over TLS.
use crate::common::{Cluster, Plan, create, options};
use penstock_client::{Client, ClientOptions, Form, Identity};
use penstock_datatype::{Pattern, Source, Target};
use penstock_wire::Role;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Barrier;
use std::time::Duration;

const RANKS: u32 = 256;
const UNIT: u64 = 4096;
const SERVERS: u32 = 4;

/// Every rank reaches the metadata server and all data servers: 1,280 sessions, each with its two ends in this process.
#[test]
fn ranks_that_start_at_once_all_get_in() {
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let cluster = Cluster::start(Plan {
        servers: SERVERS,
        stripe_unit: UNIT,
        tcp: true,
        memory: true,
        plain: false,
    });
    let how = create(UNIT, SERVERS);
    cluster.client().open("/all", &how).unwrap();
    // As programs have it.
    let options = ClientOptions {
        retry_limit: Duration::from_secs(30),
        ..options()
    };
    let (start, done) = (Barrier::new(RANKS as usize), Barrier::new(RANKS as usize));
    let len = UNIT * u64::from(SERVERS);
    let rank_of = |rank: u32| {
        let who = Identity { program: 7, rank };
        start.wait();
        let client = Client::connect_with(&cluster.deployment, who, Role::Client, options.clone());
        let result = client.and_then(|client| {
            let file = client.open("/all", &how)?;
            let access = Pattern::contiguous((u64::from(rank) * len) as i64, len);
            let bytes = vec![rank as u8; len as usize];
            file.write(&access, Form::Structured, &mut Source::from_slice(&bytes))?;
            Ok((client, file, access, bytes))
        });
        // Everybody is connected at once.
        done.wait();
        let (_client, file, access, bytes) = result.unwrap();
        let mut back = vec![0; bytes.len()];
        file.read(
            &access,
            Form::Structured,
            &mut Target::from_slice(&mut back),
        )
        .unwrap();
        assert!(back == bytes, "rank {rank}");
    };
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let (rank_of, builder) = (&rank_of, std::thread::Builder::new());
            let small = builder.stack_size(512 << 10);
            small.spawn_scoped(scope, move || rank_of(rank)).unwrap();
        }
    });
}
