//! Exactly once: the outcome of the newest change in each slot of each session.
//!
//! *Problem*: a client whose connection breaks cannot know whether a change took effect. A repeated mkdir, rename or
//! addition to a counter then fails, or affects what somebody else has made meanwhile. *Idea*: a client opens a session
//! and numbers the changes in each of its slots. The server stores the outcome of the newest change of a slot, in the
//! same journal record and the same commit as the change itself. The same number again gets that outcome, and is not
//! carried out. A higher number is carried out. It need not be the next one. Outcomes of requests that changed nothing
//! are kept in memory only, and a power loss takes outcomes with their changes. *Outcomes, not replies*: a repetition
//! gets new capabilities, and the current attributes of the node. *Bounds*: [`SLOTS`] slots of at most [`MAX_OUTCOME`]
//! bytes a session, [`MAX_OF_USER`] sessions a user, [`MAX_SESSIONS`] in all, [`MAX_OF_CONNECTION`] a connection. A
//! session is dropped [`GRACE`] after its last connection; a change in a dropped session is refused, never carried out.
//! *Source*: sessions of NFSv4.1 (RFC 8881, section 2.10.6).
//!
//! A plain state machine: the time is passed in.
use crate::counters::ConnectionId;
use crate::error::{Result, error};
use crate::names::{Names, Namespace};
use crate::nodes::Outcome;
use crate::removal::Gone;
use penstock_layout::FileId;
use penstock_wire::message::{Attributes, ErrorKind, SLOTS, SlotAt, WireError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Sessions of all users together.
pub const MAX_SESSIONS: usize = 2048;
/// Sessions of one user; the one without a connection for longest is dropped.
pub const MAX_OF_USER: usize = 1024;
/// Sessions that one connection may use.
pub const MAX_OF_CONNECTION: usize = 16;
/// How long a session survives its last connection.
pub const GRACE: Duration = Duration::from_secs(600);
/// Most bytes of a stored outcome.
pub const MAX_OUTCOME: usize = 1024;
/// Most bytes of a stored error message.
const MAX_MESSAGE: usize = 512;

/// The owner of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub admin: bool,
}

/// A change with a slot.
#[derive(Debug, Clone, Copy)]
pub struct Once {
    pub connection: ConnectionId,
    pub owner: Owner,
    pub at: SlotAt,
    /// Digest of the request.
    pub digest: [u8; 16],
}

/// The stored outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    Done,
    Node(FileId),
    Look(FileId),
    Opened(FileId, bool),
    Unlinked(Gone),
    Counter(i64),
    Failed(WireError),
}

impl Kept {
    fn of(result: &Result<Outcome>) -> Kept {
        match result {
            Ok(Outcome::Node(a)) => Kept::Node(a.id),
            Ok(Outcome::Look(a)) => Kept::Look(a.id),
            Ok(Outcome::Opened(a, created)) => Kept::Opened(a.id, *created),
            Ok(Outcome::Unlinked(gone)) => Kept::Unlinked(gone.clone()),
            Ok(Outcome::Counter(before)) => Kept::Counter(*before),
            // All others are outcomes of requests that only read.
            Ok(Outcome::Done | Outcome::Entries(_) | Outcome::Xattr(_) | Outcome::Xattrs(_)) => {
                Kept::Done
            }
            Err(e) => {
                let mut e = e.clone();
                while e.message.len() > MAX_MESSAGE {
                    e.message.pop();
                }
                Kept::Failed(e)
            }
        }
    }

    /// The outcome for a repetition: the stored one, with the current attributes of the node.
    pub fn outcome<N: Names>(&self, space: &Namespace<N>) -> Result<Outcome> {
        let attributes = |id: FileId| -> Result<Attributes> { Ok(space.by_id(id)?.attributes(id)) };
        Ok(match self {
            Kept::Done => Outcome::Done,
            Kept::Node(id) => Outcome::Node(attributes(*id)?),
            Kept::Look(id) => Outcome::Look(attributes(*id)?),
            Kept::Opened(id, created) => Outcome::Opened(attributes(*id)?, *created),
            Kept::Unlinked(gone) => Outcome::Unlinked(gone.clone()),
            Kept::Counter(before) => Outcome::Counter(*before),
            Kept::Failed(e) => return Err(e.clone()),
        })
    }
}

/// The newest change of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    sequence: u64,
    digest: [u8; 16],
    kept: Kept,
}

/// A change of sessions, as stored in journal and database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    Opened(u128, Owner),
    Answered(u128, u16, Answered),
    Dropped(u128),
}

#[derive(Debug)]
struct Session {
    owner: Owner,
    slots: BTreeMap<u16, Answered>,
    connections: usize,
    /// When its last connection ended.
    left: Instant,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        self.connections == 0 && now.saturating_duration_since(self.left) >= GRACE
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    sessions: BTreeMap<u128, Session>,
    by: HashMap<ConnectionId, Vec<u128>>,
}

impl Sessions {
    /// Restores a stored change, in order, at the start.
    pub fn restore(&mut self, note: Note, now: Instant) {
        match note {
            Note::Opened(id, owner) => {
                self.sessions.entry(id).or_insert(Session {
                    owner,
                    slots: BTreeMap::new(),
                    connections: 0,
                    left: now,
                });
            }
            Note::Answered(id, slot, answered) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.slots.insert(slot, answered);
                }
            }
            Note::Dropped(id) => {
                self.sessions.remove(&id);
            }
        }
    }

    /// Opens a session over a connection. Returns what must be stored.
    pub fn open(
        &mut self,
        connection: ConnectionId,
        owner: Owner,
        id: u128,
        now: Instant,
    ) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        self.sessions.retain(|id, session| {
            let over = session.is_over(now);
            if over {
                notes.push(Note::Dropped(*id));
            }
            !over
        });
        if !self.sessions.contains_key(&id) {
            let of_user = self.sessions.values().filter(|s| s.owner.uid == owner.uid);
            if of_user.count() >= MAX_OF_USER {
                notes.push(self.make_room(|s| s.owner.uid == owner.uid)?);
            }
            if self.sessions.len() >= MAX_SESSIONS {
                notes.push(self.make_room(|_| true)?);
            }
            let note = Note::Opened(id, owner);
            self.restore(note.clone(), now);
            notes.push(note);
        }
        self.attach(connection, owner, id, now)?;
        Ok(notes)
    }

    /// Drops the session that has been without a connection for longest.
    fn make_room(&mut self, among: impl Fn(&Session) -> bool) -> Result<Note> {
        let oldest = self
            .sessions
            .iter()
            .filter(|(_, s)| s.connections == 0 && among(s))
            .min_by_key(|(id, s)| (s.left, **id))
            .map(|(id, _)| *id);
        let Some(oldest) = oldest else {
            return Err(error(
                ErrorKind::Busy,
                format!(
                    "all sessions of changes are in use ({MAX_OF_USER} of a user, {MAX_SESSIONS} in all); end some clients"
                ),
            ));
        };
        self.sessions.remove(&oldest);
        Ok(Note::Dropped(oldest))
    }

    /// The connection uses the session.
    fn attach(
        &mut self,
        connection: ConnectionId,
        owner: Owner,
        id: u128,
        now: Instant,
    ) -> Result<()> {
        let session = self.sessions.get_mut(&id).filter(|s| !s.is_over(now));
        let Some(session) = session else {
            return Err(error(
                ErrorKind::NoSession,
                format!(
                    "the session of this change is not known: sessions end {} minutes after their last connection",
                    GRACE.as_secs() / 60
                ),
            ));
        };
        if session.owner != owner {
            return Err(error(
                ErrorKind::Permission,
                "the session of this change belongs to another user; each client opens its own",
            ));
        }
        let used = self.by.entry(connection).or_default();
        if used.contains(&id) {
            return Ok(());
        }
        if used.len() >= MAX_OF_CONNECTION {
            return Err(error(
                ErrorKind::TooLarge,
                format!("one connection uses at most {MAX_OF_CONNECTION} sessions of changes"),
            ));
        }
        used.push(id);
        session.connections += 1;
        Ok(())
    }

    pub fn connection_closed(&mut self, connection: ConnectionId, now: Instant) {
        for id in self.by.remove(&connection).unwrap_or_default() {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.connections -= 1;
                session.left = now;
            }
        }
    }

    /// The outcome of this very request; `None`: it is to be carried out.
    pub fn known(&mut self, once: &Once, now: Instant) -> Result<Option<Kept>> {
        let SlotAt {
            session,
            slot,
            sequence,
        } = once.at;
        if slot >= SLOTS {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("slot {slot} of a session; there are {SLOTS}"),
            ));
        }
        self.attach(once.connection, once.owner, session, now)?;
        let answered = self.sessions.get(&session).and_then(|s| s.slots.get(&slot));
        let Some(answered) = answered.filter(|a| a.sequence >= sequence) else {
            return Ok(None);
        };
        if answered.sequence > sequence {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!(
                    "change {sequence} of slot {slot} comes after change {}; nothing was done",
                    answered.sequence
                ),
            ));
        }
        if answered.digest != once.digest {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("change {sequence} of slot {slot} was another request; nothing was done"),
            ));
        }
        Ok(Some(answered.kept.clone()))
    }

    /// Records the outcome of a request. Returns what must be stored with its changes; `None`: it was not carried out
    /// and will be repeated.
    pub fn keep(&mut self, once: &Once, result: &Result<Outcome>) -> Option<Note> {
        let again = |e: &WireError| matches!(e.kind, ErrorKind::Busy | ErrorKind::ShuttingDown);
        if result.as_ref().is_err_and(again) {
            return None;
        }
        let mut kept = Kept::of(result);
        let size = postcard::experimental::serialized_size(&kept).unwrap_or(usize::MAX);
        if size > MAX_OUTCOME {
            // Only a file on many hundred servers is that large: a repetition leaves its objects to `penstock check`.
            kept = Kept::Unlinked(Gone::Nothing);
        }
        let answered = Answered {
            sequence: once.at.sequence,
            digest: once.digest,
            kept,
        };
        let (id, slot) = (once.at.session, once.at.slot);
        let session = self.sessions.get_mut(&id)?;
        session.slots.insert(slot, answered.clone());
        Some(Note::Answered(id, slot, answered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConnectionId = ConnectionId(1);
    const TWO: ConnectionId = ConnectionId(2);
    const ME: Owner = Owner {
        uid: 5,
        admin: false,
    };

    fn once(connection: ConnectionId, session: u128, sequence: u64) -> Once {
        Once {
            connection,
            owner: ME,
            at: SlotAt {
                session,
                slot: 3,
                sequence,
            },
            digest: [1; 16],
        }
    }

    #[test]
    fn a_session_is_dropped_some_time_after_its_last_connection() {
        let t = Instant::now();
        let mut s = Sessions::default();
        assert_eq!(s.open(ONE, ME, 8, t).unwrap(), [Note::Opened(8, ME)]);
        assert!(s.known(&once(ONE, 8, 1), t).unwrap().is_none());
        let note = s.keep(&once(ONE, 8, 1), &Ok(Outcome::Counter(4)));
        assert!(s.known(&once(TWO, 8, 1), t).unwrap().is_some());
        s.connection_closed(ONE, t + GRACE);
        assert!(s.known(&once(TWO, 8, 1), t + 3 * GRACE).is_ok());
        s.connection_closed(TWO, t + 3 * GRACE);
        // As after a restart.
        let mut restored = Sessions::default();
        for note in [Note::Opened(8, ME), note.unwrap()] {
            restored.restore(note, t + 3 * GRACE);
        }
        for s in [&mut s, &mut restored] {
            let last = t + 4 * GRACE - Duration::from_secs(1);
            assert!(s.known(&once(ONE, 8, 1), last).unwrap().is_some());
            s.connection_closed(ONE, last);
            let e = s.known(&once(ONE, 8, 1), last + GRACE).unwrap_err();
            assert_eq!(e.kind, ErrorKind::NoSession);
            let notes = s.open(ONE, ME, 9, last + GRACE).unwrap();
            assert_eq!(notes, [Note::Dropped(8), Note::Opened(9, ME)]);
        }
    }

    #[test]
    fn what_will_be_asked_for_again_is_not_kept() {
        let t = Instant::now();
        let mut s = Sessions::default();
        s.open(ONE, ME, 8, t).unwrap();
        let busy = Err(error(ErrorKind::Busy, "later"));
        assert_eq!(s.keep(&once(ONE, 8, 1), &busy), None);
        assert!(s.known(&once(ONE, 8, 1), t).unwrap().is_none());
        let long = Err(error(ErrorKind::Exists, "ü".repeat(4000)));
        s.keep(&once(ONE, 8, 1), &long);
        let Some(Kept::Failed(e)) = s.known(&once(ONE, 8, 1), t).unwrap() else {
            panic!("not kept");
        };
        assert!(e.message.len() <= MAX_MESSAGE);
    }

    #[test]
    fn their_number_is_bounded() {
        let t = Instant::now();
        let mut s = Sessions::default();
        for id in 0..MAX_OF_USER as u128 {
            s.open(ConnectionId(id as u64), ME, id, t).unwrap();
        }
        let e = s.open(ConnectionId(1 << 40), ME, 1 << 40, t).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Busy);
        let other = Owner { uid: 6, ..ME };
        s.open(ConnectionId(1 << 41), other, 1 << 41, t).unwrap();
        // The session without a connection for longest is dropped.
        s.connection_closed(ConnectionId(7), t + Duration::from_secs(1));
        s.connection_closed(ConnectionId(4), t + Duration::from_secs(2));
        let notes = s.open(
            ConnectionId(1 << 40),
            ME,
            1 << 40,
            t + Duration::from_secs(3),
        );
        assert_eq!(
            notes.unwrap(),
            [Note::Dropped(7), Note::Opened(1 << 40, ME)]
        );
        for id in 100..99 + MAX_OF_CONNECTION as u128 {
            s.attach(ConnectionId(1 << 40), ME, id, t).unwrap();
        }
        let e = s.attach(ConnectionId(1 << 40), ME, 500, t).unwrap_err();
        assert_eq!(e.kind, ErrorKind::TooLarge);
    }
}
