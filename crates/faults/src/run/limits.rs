//! Checks quotas on files and bytes at the end of a run.
use crate::cluster::RunSize;
use crate::ledger::USERS;
use crate::workload::bytes::{DIRECTORY, counted, made, user};
use penstock_client::{CheckOptions, Client, Error, ErrorKind, File, FindingKind, Form, check};
use penstock_datatype::{Pattern, Source};
use penstock_layout::FileId;
use penstock_wire::message::{Bound, LimitsChange, NodeRequest, User};
use std::time::Duration;

/// A user without files.
const USER: u32 = 77_000;
/// The root directory.
const TOP: FileId = FileId(1);
/// Directories that the quota allows.
const ROOM: u64 = 2;

/// As administrator `client`, sets a quota and makes directories for the user until it is reached.
pub(super) fn hold(client: &Client) -> Result<(), String> {
    let text = |e: Error| format!("limits of user {USER}: {e}");
    let user = User {
        uid: USER,
        gid: USER,
        groups: Vec::new(),
    };
    let change = LimitsChange {
        hard: Some(Bound::At(ROOM)),
        ..LimitsChange::default()
    };
    client.set_quota(Some(USER), change).map_err(text)?;
    let (parent, mode) = (TOP, 0o700);
    let name = |n: u64| format!("limited-{n}");
    for n in 0..ROOM {
        let name = name(n);
        client
            .node(&user, NodeRequest::Mkdir { parent, name, mode })
            .map_err(text)?;
    }
    let one_more = name(ROOM);
    let request = NodeRequest::Mkdir {
        parent,
        name: one_more,
        mode,
    };
    match client.node(&user, request) {
        Err(e) if e.kind() == ErrorKind::Quota => {}
        other => return Err(format!("user {USER} is beyond the limit: {other:?}")),
    }
    let files = |client: &Client| -> Result<u64, String> {
        let found = client.quota_of(USER).map_err(text)?;
        Ok(found.users.iter().map(|user| user.files).sum())
    };
    let full = files(client)?;
    for n in 0..ROOM {
        let name = name(n);
        client
            .node(&user, NodeRequest::Rmdir { parent, name })
            .map_err(text)?;
    }
    client.remove_quota(Some(USER)).map_err(text)?;
    match (full, files(client)?) {
        (ROOM, 0) => Ok(()),
        (full, left) => Err(format!(
            "user {USER} had {full} files, not {ROOM}, and then {left}, not 0"
        )),
    }
}

/// Checks users with quotas on bytes. Servers count what the objects have, the rest of the quota can be written and no
/// byte more, and removals free space.
pub(super) fn bytes(client: &Client, shape: &RunSize) -> Result<(), String> {
    let Some(limit) = shape.limit else {
        return Ok(());
    };
    let text = |e: Error| format!("limits on bytes: {e}");
    let how = CheckOptions {
        grace: Duration::from_millis(50),
        ..CheckOptions::default()
    };
    let report = check(client, &how, &mut |_| {}).map_err(text)?;
    let mut found = report.findings.iter();
    if let Some(wrong) = found.find(|f| f.kind == FindingKind::WrongBytes) {
        return Err(format!("bytes: {}", wrong.message));
    }
    if report.uncompared > 0 {
        return Err(format!(
            "bytes: nobody writes, and the counts of {} users do not come to rest",
            report.uncompared
        ));
    }
    let directory = client.stat(DIRECTORY).map_err(text)?.attributes.id;
    for uid in USERS {
        let path = format!("{DIRECTORY}/{uid}-last");
        let open = || {
            let name = format!("{uid}-last");
            let both = (true, true);
            client.create_node(&user(uid), (directory, &name), made(), both, true)
        };
        let left = limit.saturating_sub(counted(client, uid)?);
        let file = open().map_err(text)?;
        write(&file, 0, left).map_err(|e| format!("the last {left} bytes: {e}"))?;
        match write(&file, left, 1) {
            Err(e) if e.kind() == ErrorKind::Quota => {}
            other => {
                return Err(format!(
                    "bytes: user {uid} has {limit} and may have no more: {other:?}"
                ));
            }
        }
        client.unlink(&path).map_err(text)?;
        drop(file);
        if left > 0 {
            let file = open().map_err(text)?;
            write(&file, 0, left).map_err(|e| format!("what was made room for: {e}"))?;
            client.unlink(&path).map_err(text)?;
        }
    }
    // The power may fail next, and this is then repeated.
    client.sync_metadata().map_err(text)
}

fn write(file: &File, at: u64, len: u64) -> Result<u64, Error> {
    let bytes = vec![0x33; len as usize];
    let access = Pattern::contiguous(at as i64, len);
    file.write(&access, Form::Contiguous, &mut Source::from_slice(&bytes))
}
