//! Refusals of a data server are in its audit log, with who asked and for what; so are actions of administrators.
use crate::common::*;
use penstock_layout::FileId;
use penstock_rpc::audit::path_of;
use penstock_server::Options;
use penstock_wire::Role;
use penstock_wire::message::{DataReply, DataRequest};
use serde_json::Value;

/// What the server has written when it has ended.
fn records(site: &mut TestDeployment, log: &std::path::Path) -> Vec<Value> {
    site.servers.drain(..).for_each(|server| server.stop());
    let text = std::fs::read_to_string(path_of(log, "data-0", 0)).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of<'a>(records: &'a [Value], event: &str) -> Vec<&'a Value> {
    records.iter().filter(|r| r["event"] == event).collect()
}

#[test]
fn refused_and_administrative_acts_name_who_and_what() {
    let log = tempfile::tempdir().unwrap();
    let options = Options {
        audit: Some(log.path().to_owned()),
        ..Options::default()
    };
    let mut site = TestDeployment::start(1, "dir", options);
    let me = rustix::process::geteuid().as_raw();
    let settings = || DataRequest::Tune {
        settings: vec!["depth=2".into()],
    };
    let refused = |reply| assert!(matches!(reply, DataReply::Error(_)), "{reply:?}");

    let mut c = site.client(0);
    let mut forged = site.capability(7, READ);
    forged.write = true;
    c.attach(forged).unwrap_err();
    refused(c.ask(settings()));
    refused(c.ask(DataRequest::RemoveObject { file: FileId(8) }));
    let h = c.attach(site.capability(9, READ)).unwrap();
    refused(c.ask(DataRequest::SetLen { handle: h, len: 1 }));
    let h = c.attach(site.capability_of(me, 10, READ, None)).unwrap();
    let reply = c.ask(DataRequest::Shortcut { handle: h });
    assert!(matches!(reply, DataReply::NoShortcut { .. }), "{reply:?}");

    let mut admin = site.client_as(0, Role::Admin, false);
    assert_eq!(admin.ask(settings()), DataReply::Done);
    let file = FileId(11);
    let removed = DataRequest::RemoveObject { file };
    assert_eq!(admin.ask(removed), DataReply::Done);

    let DataReply::Status(status) = admin.ask(DataRequest::Status) else {
        panic!("no status");
    };
    assert_eq!(status.audit.refused, 5);
    let records = records(&mut site, log.path());
    for (event, outcome, object) in [
        ("capability", "refused", "id 7"),
        ("tune", "refused", "depth=2"),
        ("remove", "refused", "id 8"),
        ("permission", "refused", "id 9"),
        ("descriptor", "refused", "id 10"),
        ("tune", "done", "depth=2"),
        ("remove", "done", "id 11"),
    ] {
        let found = of(&records, event);
        let found: Vec<_> = found.iter().filter(|r| r["outcome"] == outcome).collect();
        assert_eq!(found.len(), 1, "{event} {outcome}: {records:?}");
        let record = found[0];
        let role = match outcome {
            "done" => "administrator",
            _ => "user",
        };
        assert_eq!(record["object"], object, "{record}");
        assert_eq!(
            (&record["role"], &record["user"]),
            (&role.into(), &me.into())
        );
        let pid = format!("pid {}", std::process::id());
        assert_eq!(record["peer"], Value::from(pid), "{record}");
    }
    for event in ["start", "stop"] {
        assert_eq!(of(&records, event).len(), 1, "{records:?}");
    }
}
