//! Whether limits on the files of a user hold after all that has happened.
use penstock_client::{Client, Error, ErrorKind};
use penstock_layout::FileId;
use penstock_wire::message::{Bound, LimitsChange, NodeRequest, User};

/// A user who has made nothing before.
const USER: u32 = 77_000;
/// The directory at the top.
const TOP: FileId = FileId(1);
/// Directories that the limit leaves room for.
const ROOM: u64 = 2;

/// Sets a limit, as `client`, who is an administrator, and makes directories for the user until it is reached.
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
