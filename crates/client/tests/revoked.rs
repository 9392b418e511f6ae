//! Revoked credentials: what data servers do on open connections.
use crate::common::{Cluster, Plan};
use penstock_client::{Client, Identity};
use penstock_rpc::{Connection, Timeouts, Wallet, connect};
use penstock_wire::credential::{Credential, Statement};
use penstock_wire::message::{DataReply, DataRequest, User};
use penstock_wire::revocation::Revoked;
use penstock_wire::{Envelope, Error, KeyPair, Role};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

const USER: u32 = 61_001;
const OTHER: u32 = 61_002;
/// What is promised.
const LIMIT: Duration = Duration::from_secs(10);

/// A connection to the only data server, with a credential of a user.
fn connected(cluster: &Cluster, uid: u32) -> Result<Connection, Error> {
    let deployment = &cluster.deployment;
    let authority = KeyPair::load(deployment.authority_key.as_ref().unwrap()).unwrap();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // A minute old: made before the revocation, whatever the clocks say.
    let begin = u64::try_from(since.unwrap().as_millis()).unwrap() - 60_000;
    let user = User {
        uid,
        gid: uid,
        groups: Vec::new(),
    };
    let statement = Statement::new(&deployment.id, user, begin..begin + 600_000);
    let mut caller = deployment.caller(Role::Client, 1, 0).unwrap();
    caller.wallet = Arc::new(Wallet::holding(
        Credential::issue(&authority, statement).unwrap(),
    ));
    connect(&deployment.servers[0].address, &caller, Timeouts::default())
}

fn status(connection: &mut Connection) -> Result<(), Error> {
    let answer = connection.call(&Envelope::default(), &DataRequest::Status, &mut false)?;
    match answer.body {
        Some(DataReply::Status(_)) => Ok(()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn open_connections_to_data_servers_end_with_a_credential_that_is_taken_back() {
    let cluster = Cluster::start(Plan {
        servers: 1,
        tcp: true,
        ..Plan::default()
    });
    let (mut mine, mut other) = (
        connected(&cluster, USER).unwrap(),
        connected(&cluster, OTHER).unwrap(),
    );
    status(&mut mine).unwrap();
    let who = Identity {
        program: 7,
        rank: 0,
    };
    let administrator = Client::connect_with(
        &cluster.deployment,
        who,
        Role::Admin,
        crate::common::options(),
    )
    .unwrap();
    let list = administrator.revoke(Revoked::User(USER), u64::MAX);
    assert_eq!(list.unwrap().entries.len(), 1);
    let begun = Instant::now();
    let ended = loop {
        if let Err(e) = status(&mut mine) {
            break e;
        }
        assert!(begun.elapsed() < LIMIT, "still served");
        sleep(Duration::from_millis(100));
    };
    assert!(ended.is_disconnect(), "{ended}");
    let refused = connected(&cluster, USER).unwrap_err().to_string();
    assert!(refused.contains("revoked by an administrator"), "{refused}");
    // Others notice nothing.
    status(&mut other).unwrap();
}
