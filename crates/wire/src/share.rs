//! How much of a bounded thing of a server one user may hold.
//!
//! Problem: what a server has a bounded number of (counters, locks, kept files) one user could take all of, and nobody else
//! gets any. Idea: one user holds at most a quarter. So three greedy users leave a quarter to all others.
//! Parameter: [`PART`].
use crate::message::{ErrorKind, WireError};
use std::collections::HashMap;

/// One user may hold one part in so many.
pub const PART: usize = 4;

/// What there is of one thing, and who holds how much of it.
#[derive(Debug)]
pub struct Share {
    /// For errors: "counters of the metadata server".
    things: &'static str,
    /// For errors: how some are given back.
    advice: &'static str,
    whole: usize,
    held: usize,
    users: HashMap<u32, usize>,
}

impl Share {
    /// Of `whole` things, none of which is held. The two texts are for errors.
    pub fn of(whole: usize, things: &'static str, advice: &'static str) -> Share {
        Share {
            things,
            advice,
            whole,
            held: 0,
            users: HashMap::new(),
        }
    }

    /// How many one user may hold.
    pub fn of_user(&self) -> usize {
        self.whole / PART
    }

    /// All that are held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether a user may hold `more` than now.
    pub fn room(&self, uid: u32, more: usize) -> Result<(), WireError> {
        let (things, advice) = (self.things, self.advice);
        let busy = |what: String| Err(WireError::new(ErrorKind::Busy, what));
        if self.held + more > self.whole {
            return busy(format!("all {} {things} are in use; {advice}", self.whole));
        }
        let of_user = self.users.get(&uid).copied().unwrap_or(0);
        if of_user + more > self.of_user() {
            return busy(format!(
                "user {uid} has {of_user} {things} in use, and one may have {}; {advice}",
                self.of_user()
            ));
        }
        Ok(())
    }

    /// The user holds one more. [`Share::room`] says whether it should.
    pub fn take(&mut self, uid: u32) {
        self.held += 1;
        *self.users.entry(uid).or_default() += 1;
    }

    /// The user holds one less.
    pub fn give_back(&mut self, uid: u32) {
        if let Some(held) = self.users.get_mut(&uid) {
            self.held -= 1;
            *held -= 1;
            if *held == 0 {
                self.users.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(share: &mut Share, uid: u32) -> usize {
        let before = share.held();
        while share.room(uid, 1).is_ok() {
            share.take(uid);
        }
        share.held() - before
    }

    #[test]
    fn who_takes_all_he_can_leaves_enough_for_others() {
        let mut share = Share::of(100, "things of the server", "close some");
        assert_eq!((fill(&mut share, 7), fill(&mut share, 8)), (25, 25));
        let said = share.room(7, 1).unwrap_err();
        assert_eq!(said.kind, ErrorKind::Busy);
        assert_eq!(
            said.message,
            "user 7 has 25 things of the server in use, and one may have 25; close some"
        );
        assert!(share.room(9, 25).is_ok() && share.room(9, 26).is_err());
        assert_eq!((fill(&mut share, 9), fill(&mut share, 10)), (25, 25));
        assert!(share.room(11, 1).unwrap_err().message.contains("all 100"));
        share.give_back(7);
        share.give_back(11);
        assert_eq!((fill(&mut share, 11), share.held()), (1, 100));
        for _ in 0..24 {
            share.give_back(7);
        }
        assert_eq!((share.held(), share.users.len()), (76, 4));
    }
}
