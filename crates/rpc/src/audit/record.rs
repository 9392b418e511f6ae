//! A record of the audit log, and how its texts are made safe to print.
use crate::claim::job_of;
use crate::connection::Connection;
use crate::identity::Peer;
use crate::text::{SHORT, text};
use penstock_wire::credential::Statement;
use penstock_wire::handshake::Role;
use serde::Serialize;

/// Most bytes of an object's name and of a reason. Longer texts are truncated.
const TEXT: usize = 256;

/// The role of a user.
pub(super) const USER: &str = "user";

/// The event that a record is about. The list is closed: programs may rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A client does not hold the key, or left because the server proved another one.
    Key,
    /// A client over TCP showed no credential, or one that is invalid or expired.
    Credential,
    /// A client means another deployment.
    Deployment,
    /// A handshake failed otherwise.
    Handshake,
    /// A connection was ended because of a protocol violation.
    Protocol,
    /// A limit was reached.
    Limit,
    /// Owner and mode bits, or the access mode of an open file, do not allow it.
    Permission,
    /// A capability is forged, belongs to another user, or has expired.
    Capability,
    /// A descriptor of an object was requested by a client that may not have one.
    Descriptor,
    /// Files, their ids, or objects were listed.
    List,
    /// A store was verified.
    Verify,
    /// An object was removed without a capability, as repairs do it.
    Remove,
    /// A damaged or lost object was accepted as it is.
    Accept,
    /// Settings of a server were changed.
    Tune,
    /// A store was initialised or adopted.
    Store,
    /// A credential was issued.
    Issue,
    /// Credentials were revoked.
    Revoke,
    /// A server has read its keys again.
    Keys,
    /// A server began to serve.
    Start,
    /// A server was told to stop, or stops.
    Stop,
    /// Records were lost here.
    Dropped,
}

impl Event {
    /// All of them.
    pub const ALL: [Event; 21] = [
        Event::Key,
        Event::Credential,
        Event::Deployment,
        Event::Handshake,
        Event::Protocol,
        Event::Limit,
        Event::Permission,
        Event::Capability,
        Event::Descriptor,
        Event::List,
        Event::Verify,
        Event::Remove,
        Event::Accept,
        Event::Tune,
        Event::Store,
        Event::Issue,
        Event::Revoke,
        Event::Keys,
        Event::Start,
        Event::Stop,
        Event::Dropped,
    ];

    /// Its name in records.
    pub fn word(self) -> &'static str {
        match self {
            Event::Key => "key",
            Event::Credential => "credential",
            Event::Deployment => "deployment",
            Event::Handshake => "handshake",
            Event::Protocol => "protocol",
            Event::Limit => "limit",
            Event::Permission => "permission",
            Event::Capability => "capability",
            Event::Descriptor => "descriptor",
            Event::List => "list",
            Event::Verify => "verify",
            Event::Remove => "remove",
            Event::Accept => "accept",
            Event::Tune => "tune",
            Event::Store => "store",
            Event::Issue => "issue",
            Event::Revoke => "revoke",
            Event::Keys => "keys",
            Event::Start => "start",
            Event::Stop => "stop",
            Event::Dropped => "dropped",
        }
    }
}

/// Whether it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was not done.
    Refused,
    /// It was done.
    Done,
}

/// Who did it or tried to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub(super) user: Option<u32>,
    pub(super) role: &'static str,
    pub(super) peer: Option<String>,
    /// The origin of similar records: what a peer cannot change at will.
    pub(super) origin: String,
    pub(super) job: Option<String>,
    pub(super) credential: Option<String>,
}

impl Subject {
    /// The server or the command itself.
    pub fn itself(user: Option<u32>, role: &'static str) -> Subject {
        Subject {
            user,
            role,
            peer: None,
            origin: role.to_owned(),
            job: None,
            credential: None,
        }
    }

    /// An authenticated peer.
    pub fn of(peer: &Peer, connection: &Connection) -> Subject {
        let statement = peer.statement.as_ref();
        let job = statement.and_then(|s| s.job.clone());
        let job = job.or_else(|| job_of(peer.program, peer.rank));
        let (from, place) = place_of(connection);
        let user = peer.user.uid;
        Subject {
            user: Some(user),
            role: role_name(peer.role),
            origin: format!("{} {user} {place}", role_name(peer.role)),
            peer: Some(from),
            job: job.map(|job| text(job.as_bytes(), SHORT)),
            credential: statement.map(|s| s.serial()),
        }
    }

    /// A peer that is not authenticated. Over a Unix socket the kernel says who the user is; otherwise it is the peer's
    /// claim.
    pub(crate) fn stranger(connection: &Connection) -> Subject {
        let (from, place) = place_of(connection);
        let claim = connection.claim();
        let known = connection.credentials().map(|who| who.uid);
        let claimed = claim.and_then(|claim| claim.user);
        Subject {
            user: known.or(claimed),
            role: "stranger",
            origin: match known {
                Some(uid) => format!("stranger {uid} {place}"),
                None => format!("stranger {place}"),
            },
            peer: Some(from),
            job: claim.and_then(|claim| claim.job.clone()),
            credential: claim.and_then(|claim| claim.serial.clone()),
        }
    }

    /// The user of a new credential, on a connection where nothing else is known.
    pub(crate) fn vouched(connection: &Connection, statement: &Statement) -> Subject {
        let (from, place) = place_of(connection);
        Subject {
            user: Some(statement.uid),
            role: USER,
            peer: Some(from),
            origin: format!("{USER} {} {place}", statement.uid),
            job: None,
            credential: Some(statement.serial()),
        }
    }

    /// The same, acting for a user.
    #[must_use]
    pub fn acting_for(&self, user: Option<u32>) -> Subject {
        match user {
            None => self.clone(),
            Some(uid) => Subject {
                user: Some(uid),
                origin: format!("{} for {uid}", self.origin),
                ..self.clone()
            },
        }
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Client => USER,
        Role::Admin => "administrator",
        Role::Server(_) => "server",
        Role::Newcomer => "stranger",
    }
}

/// The address of a connection, and the same without what changes with each connection.
fn place_of(connection: &Connection) -> (String, String) {
    match connection.credentials() {
        Some(who) => (format!("pid {}", who.pid), "here".into()),
        None => {
            let from = connection.from();
            let host = from.rsplit_once(':').map_or(from, |(host, _)| host);
            (text(from.as_bytes(), SHORT), text(host.as_bytes(), SHORT))
        }
    }
}

/// A record as it is written; unknown fields are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Record {
    /// RFC 3339, UTC, milliseconds; set when the record is queued.
    pub(super) time: String,
    pub(super) server: String,
    pub(super) event: Event,
    pub(super) outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<u32>,
    pub(super) role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) job: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) credential: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<String>,
    pub(super) reason: String,
    /// Number of folded records; left out where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<u64>,
}

impl Record {
    pub(super) fn new(
        server: &str,
        event: Event,
        outcome: Outcome,
        subject: &Subject,
        object: Option<&[u8]>,
        reason: &str,
    ) -> Record {
        Record {
            time: String::new(),
            server: server.to_owned(),
            event,
            outcome,
            user: subject.user,
            role: subject.role,
            peer: subject.peer.clone(),
            job: subject.job.clone(),
            credential: subject.credential.clone(),
            object: object.map(|object| text(object, TEXT)),
            reason: text(reason.as_bytes(), TEXT),
            count: None,
        }
    }

    pub(super) fn at(mut self, time: &str) -> Record {
        time.clone_into(&mut self.time);
        self
    }

    /// One line.
    pub(super) fn line(&self) -> String {
        // Only texts and numbers, which JSON can represent.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// A time in milliseconds since 1970 as text; texts sort as times do.
pub fn time_text(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_of_json_with_the_documented_names() {
        let mut subject = Subject::itself(Some(7), "user");
        subject.peer = Some("pid 1".into());
        let name = b"/a\"b\n\xfe";
        let record = Record::new(
            "meta",
            Event::Permission,
            Outcome::Refused,
            &subject,
            Some(name),
            "no",
        );
        let line = record.at(&time_text(1_500)).line();
        assert_eq!(line.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:01.500Z", "server": "meta", "event": "permission", "outcome": "refused",
            "user": 7, "role": "user", "peer": "pid 1", "object": "/a\"b\\u{a}\\xfe", "reason": "no",
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn words_are_those_that_are_written() {
        for event in Event::ALL {
            let written = serde_json::to_string(&event).unwrap();
            assert_eq!(written, format!("\"{}\"", event.word()));
        }
    }
}
