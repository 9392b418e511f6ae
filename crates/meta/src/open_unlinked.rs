//! Open-unlinked files: files that lost their last name while clients have them open.
//!
//! Problem: an open file must survive its name, its holder's connection and the metadata server, but not its holder.
//! Idea: such files are in a directory that no path leads to, on stable storage like all names. Their holders are known
//! in memory only, by connection, because connections end with their clients. A file without a holder, or found at the
//! start of the server, is kept for a grace period. A mount that still exists reconnects and says which files it has
//! open. After that the file is removed. When it pays: at each restart of the server, and each lost connection. Each
//! user has a share of them, charged to the first holder. Parameters: [`MAX_KEPT`]; the grace time is an option of the
//! server.
//!
//! A plain state machine: the time is passed in.
use crate::counters::ConnectionId;
use penstock_layout::FileId;
use penstock_rpc::share::Share;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Most files, and connections that hold them, together. Beyond it a removed file is deleted at once.
pub const MAX_KEPT: usize = 1 << 18;

/// Why a file is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// This many connections hold it.
    By(usize),
    /// No connection holds it; until this time one may claim it.
    Until(Instant),
}

#[derive(Debug)]
pub struct OpenUnlinked {
    grace: Duration,
    files: HashMap<FileId, Hold>,
    by: HashMap<ConnectionId, BTreeSet<FileId>>,
    /// Files without a holder, by the end of their grace period.
    left: BTreeSet<(Instant, FileId)>,
    /// Holds of all connections.
    holds: usize,
    share: Share,
    /// The user charged for each file; files found at the start are charged when they are held.
    charged: HashMap<FileId, u32>,
}

impl OpenUnlinked {
    pub fn new(grace: Duration) -> OpenUnlinked {
        OpenUnlinked {
            grace,
            files: HashMap::new(),
            by: HashMap::new(),
            left: BTreeSet::new(),
            holds: 0,
            share: Share::of(MAX_KEPT, "removed files that are open", "close some"),
            charged: HashMap::new(),
        }
    }

    pub fn is_full(&self) -> bool {
        self.holds >= MAX_KEPT || self.files.len() >= MAX_KEPT
    }

    /// Whether a user may hold one more file.
    pub fn has_room(&self, uid: u32) -> bool {
        !self.is_full() && self.share.room(uid, 1).is_ok()
    }

    /// Forgets a file.
    fn forget(&mut self, file: FileId) {
        self.files.remove(&file);
        if let Some(uid) = self.charged.remove(&file) {
            self.share.give_back(uid);
        }
    }

    /// The connection has the file open, for a user. Idempotent.
    pub fn hold(&mut self, connection: ConnectionId, uid: u32, file: FileId) {
        if !self.by.entry(connection).or_default().insert(file) {
            return;
        }
        self.holds += 1;
        if let Entry::Vacant(entry) = self.charged.entry(file) {
            entry.insert(uid);
            self.share.take(uid);
        }
        let hold = self.files.entry(file).or_insert(Hold::By(0));
        match hold {
            Hold::By(count) => *count += 1,
            Hold::Until(end) => {
                self.left.remove(&(*end, file));
                *hold = Hold::By(1);
            }
        }
    }

    /// The connection has closed the file; true if nobody else holds it and it was forgotten.
    pub fn closed(&mut self, connection: ConnectionId, file: FileId) -> bool {
        if let Some(held) = self.by.get_mut(&connection)
            && held.remove(&file)
        {
            self.holds -= 1;
            if held.is_empty() {
                self.by.remove(&connection);
            }
            if let Some(Hold::By(count)) = self.files.get_mut(&file) {
                *count -= 1;
            }
        }
        match self.files.get(&file) {
            Some(Hold::By(count)) if *count > 0 => false,
            Some(Hold::Until(end)) => {
                self.left.remove(&(*end, file));
                self.forget(file);
                true
            }
            _ => {
                self.forget(file);
                true
            }
        }
    }

    /// The file has no known holder, but may have one.
    pub fn leave(&mut self, file: FileId, now: Instant) {
        let end = now + self.grace;
        if self.files.contains_key(&file) {
            return;
        }
        self.files.insert(file, Hold::Until(end));
        self.left.insert((end, file));
    }

    /// A connection has ended; returns whether it held anything.
    pub fn connection_closed(&mut self, connection: ConnectionId, now: Instant) -> bool {
        let Some(held) = self.by.remove(&connection) else {
            return false;
        };
        self.holds -= held.len();
        for file in held {
            if let Some(Hold::By(count)) = self.files.get_mut(&file) {
                *count -= 1;
                if *count == 0 {
                    self.files.remove(&file);
                    self.leave(file, now);
                }
            }
        }
        true
    }

    /// When the next grace period ends.
    pub fn next_end(&self) -> Option<Instant> {
        self.left.first().map(|(end, _)| *end)
    }

    /// Returns and forgets a file whose grace period has ended.
    pub fn pop_ended(&mut self, now: Instant) -> Option<FileId> {
        let &(end, file) = self.left.first()?;
        if end > now {
            return None;
        }
        self.left.pop_first();
        self.forget(file);
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConnectionId = ConnectionId(1);
    const TWO: ConnectionId = ConnectionId(2);
    const GRACE: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);
    const USER: u32 = 1000;

    fn is_empty(kept: &OpenUnlinked) -> bool {
        let nothing = kept.holds == 0 && kept.share.held() == 0;
        nothing && kept.files.is_empty() && kept.by.is_empty() && kept.left.is_empty()
    }

    #[test]
    fn a_file_goes_with_its_last_close() {
        let mut kept = OpenUnlinked::new(GRACE);
        for connection in [ONE, TWO, ONE] {
            kept.hold(connection, USER, FileId(7));
        }
        assert!(!kept.closed(ONE, FileId(7)), "the other has it open");
        assert!(!kept.closed(ONE, FileId(7)), "said twice");
        assert!(kept.closed(TWO, FileId(7)));
        assert!(kept.closed(TWO, FileId(8)), "nobody was known to hold it");
        assert!(is_empty(&kept));
    }

    #[test]
    fn a_lost_connection_leaves_time_to_come_back() {
        let t = Instant::now();
        let mut kept = OpenUnlinked::new(GRACE);
        for file in [7, 8, 9] {
            kept.hold(ONE, USER, FileId(file));
        }
        kept.hold(TWO, USER, FileId(9));
        assert!(kept.connection_closed(ONE, t));
        assert!(!kept.connection_closed(ONE, t));
        assert_eq!(kept.next_end(), Some(t + GRACE));
        kept.hold(TWO, USER, FileId(8));
        assert_eq!(kept.pop_ended(t + GRACE - SECOND), None);
        assert_eq!(kept.pop_ended(t + GRACE), Some(FileId(7)));
        assert_eq!(kept.pop_ended(t + 9 * GRACE), None, "8 and 9 are held");
        assert!(kept.closed(TWO, FileId(8)) && kept.closed(TWO, FileId(9)));
        assert!(is_empty(&kept));
    }

    #[test]
    fn what_was_found_at_the_start_waits_for_its_holder() {
        let t = Instant::now();
        let mut kept = OpenUnlinked::new(GRACE);
        kept.leave(FileId(1), t);
        kept.leave(FileId(2), t + SECOND);
        kept.leave(FileId(1), t + SECOND);
        kept.hold(ONE, USER, FileId(2));
        kept.leave(FileId(2), t + SECOND);
        assert_eq!(kept.pop_ended(t + GRACE), Some(FileId(1)));
        assert_eq!(kept.next_end(), None);
        // The grace period begins again each time.
        kept.connection_closed(ONE, t + GRACE);
        assert_eq!(kept.pop_ended(t + GRACE + SECOND), None);
        kept.hold(TWO, USER, FileId(2));
        assert!(kept.closed(TWO, FileId(2)) && is_empty(&kept));
        // Closed within the grace period by a client that never said it was open.
        kept.leave(FileId(3), t);
        assert!(kept.closed(ONE, FileId(3)) && is_empty(&kept));
    }

    #[test]
    fn their_number_is_bounded() {
        let mut kept = OpenUnlinked::new(GRACE);
        let mut id = 0;
        let mut fill = |kept: &mut OpenUnlinked, uid| {
            while kept.has_room(uid) {
                kept.hold(ConnectionId(id % 3), uid, FileId(id));
                id += 1;
            }
            id as usize
        };
        assert_eq!(fill(&mut kept, USER), MAX_KEPT / 4, "a user's share");
        for uid in 1..=3 {
            fill(&mut kept, uid);
        }
        assert!(kept.is_full());
        // A file that one client has closed others may hold.
        assert!(kept.closed(ConnectionId(0), FileId(0)));
        assert!(kept.has_room(USER) && !kept.has_room(1));
        assert_eq!(fill(&mut kept, 4), MAX_KEPT + 1);
    }
}
