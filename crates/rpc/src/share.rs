//! Admission control: how much of a server's bounded resource one user may hold.
//!
//! Problem: of a bounded resource (connections, open files, locks) one user could take all, and leave none for others.
//! Two rules:
//!
//! *Fixed share* ([`Share::of`]), for what no honest user needs many of: one user holds at most a quarter. So three
//! greedy users leave a quarter to all others.
//!
//! *Dynamic threshold* ([`Share::elastic`]), for what one large job may need nearly all of: one user holds at most
//! three times as many as are free. So a single user gets three quarters, and two get three sevenths each. However many
//! users take all they can, the next one gets some. Source: Choudhury and Hahne, Dynamic queue length thresholds for
//! shared-memory packet switches, 1998; docs/decisions/0028.
//!
//! Users who could stop the server anyway have no share, only the total bound: see [`payer`]. Parameters: [`PART`],
//! [`TIMES`].
use crate::connection::Credentials;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_wire::credential::Statement;
use penstock_wire::handshake::Role;
use penstock_wire::message::{ErrorKind, WireError};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

/// A fixed share is one part in so many.
pub const PART: usize = 4;
/// A user may hold so many for each that is free.
pub const TIMES: usize = 3;

/// The user charged for a client's connection. `None`: root of this host, the server's user, administrators and other
/// servers, which have no share.
pub fn payer(
    role: Role,
    credentials: Option<Credentials>,
    statement: Option<&Statement>,
) -> Option<u32> {
    let (uid, stated) = match (role, credentials, statement) {
        (Role::Admin | Role::Server(_) | Role::Newcomer, ..) | (_, None, None) => return None,
        (Role::Client, Some(who), _) => (who.uid, who.uid),
        // Root of another host is root here only if its credential grants that.
        (Role::Client, None, Some(statement)) => (statement.user().uid, statement.uid),
    };
    charged(uid).map(|_| stated)
}

/// The same for work on behalf of a user: `None` for root and the server's user.
pub fn charged(uid: u32) -> Option<u32> {
    let own = rustix::process::geteuid().as_raw();
    (uid != 0 && uid != own).then_some(uid)
}

/// Whether a user may have `of_user` with `free` left.
pub fn is_fair(of_user: usize, free: usize) -> bool {
    of_user <= 1 || of_user <= TIMES.saturating_mul(free)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Part,
    Elastic,
}

/// A bounded resource, and how much of it each user holds.
#[derive(Debug)]
pub struct Share {
    /// For errors: "counters of the metadata server".
    things: Cow<'static, str>,
    /// For errors: how to release some.
    advice: &'static str,
    rule: Rule,
    whole: usize,
    held: usize,
    users: HashMap<u32, usize>,
}

impl Share {
    /// A resource of `whole` units, all free; a user may hold a quarter. The two texts are for errors.
    pub fn of(whole: usize, things: &'static str, advice: &'static str) -> Share {
        Share {
            things: things.into(),
            advice,
            rule: Rule::Part,
            whole,
            held: 0,
            users: HashMap::new(),
        }
    }

    /// The same; a user may hold three times as many as are free.
    pub fn elastic(
        whole: usize,
        things: impl Into<Cow<'static, str>>,
        advice: &'static str,
    ) -> Share {
        Share {
            things: things.into(),
            rule: Rule::Elastic,
            ..Share::of(whole, "", advice)
        }
    }

    /// Most units of one user if nobody else holds any.
    pub fn of_user(&self) -> usize {
        match self.rule {
            Rule::Part => self.whole / PART,
            Rule::Elastic => (self.whole * TIMES / (TIMES + 1)).max(self.whole.min(1)),
        }
    }

    /// Units held by all.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether a user may hold `more` units than now (`None`: no share, only the total); the error says what to do.
    pub fn room(&self, user: impl Into<Option<u32>>, more: usize) -> Result<(), WireError> {
        let (things, advice) = (&self.things, self.advice);
        let busy = |what: String| Err(WireError::new(ErrorKind::Busy, what));
        let Some(free) = self.whole.checked_sub(self.held + more) else {
            return busy(format!("all {} {things} are in use; {advice}", self.whole));
        };
        let Some(uid) = user.into() else {
            return Ok(());
        };
        let of_user = self.users.get(&uid).copied().unwrap_or(0);
        match self.rule {
            Rule::Part if of_user + more > self.of_user() => busy(format!(
                "user {uid} has {of_user} {things} in use, and a user may have {}; {advice}",
                self.of_user()
            )),
            Rule::Elastic if !is_fair(of_user + more, free) => busy(format!(
                "user {uid} has {of_user} {things} in use, and a user may have {TIMES} times as many as remain free, which would be {free} of {}; {advice}",
                self.whole
            )),
            _ => Ok(()),
        }
    }

    /// Charges one unit to the user. Call [`Share::room`] first.
    pub fn take(&mut self, user: impl Into<Option<u32>>) {
        self.held += 1;
        if let Some(uid) = user.into() {
            *self.users.entry(uid).or_default() += 1;
        }
    }

    /// Releases one unit of the user.
    pub fn give_back(&mut self, user: impl Into<Option<u32>>) {
        let Some(uid) = user.into() else {
            self.held -= 1;
            return;
        };
        if let Some(held) = self.users.get_mut(&uid) {
            self.held -= 1;
            *held -= 1;
            if *held == 0 {
                self.users.remove(&uid);
            }
        }
    }
}

/// A share used by many threads. No thread holds its lock while it waits.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Mutex<Share>>);

impl Pool {
    /// A pool with all units free.
    pub fn new(share: Share) -> Pool {
        Pool(Arc::new(Mutex::new(share)))
    }

    fn share(&self) -> MutexGuard<'_, Share> {
        // Nothing panics between the two updates of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one unit for this user; `None`: no share, only the total.
    pub fn take(&self, user: Option<u32>) -> Result<Charge, WireError> {
        let mut share = self.share();
        share.room(user, 1)?;
        share.take(user);
        drop(share);
        let pool = self.clone();
        Ok(Charge { pool, user })
    }

    /// Units held by all.
    pub fn held(&self) -> usize {
        self.share().held()
    }
}

/// A unit taken from a [`Pool`]; released on drop.
#[derive(Debug)]
pub struct Charge {
    pool: Pool,
    user: Option<u32>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.pool.share().give_back(self.user);
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
            "user 7 has 25 things of the server in use, and a user may have 25; close some"
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
    #[test]
    fn whoever_comes_last_gets_some_of_what_is_elastic() {
        let mut share = Share::elastic(1024, "places of the server".to_owned(), "close some");
        assert_eq!(fill(&mut share, 1), 768);
        let said = share.room(1, 1).unwrap_err();
        assert_eq!(
            said.message,
            "user 1 has 768 places of the server in use, and a user may have 3 times as many as remain free, which would be 255 of 1024; close some"
        );
        assert_eq!((fill(&mut share, 2), fill(&mut share, 3)), (192, 48));
        // Released units are there for all, and a user without any gets the last one.
        for _ in 0..768 {
            share.give_back(1);
        }
        assert_eq!(fill(&mut share, 3), 576);
        while share.room(None, 2).is_ok() {
            share.take(None);
        }
        assert!(share.room(2, 1).is_err() && share.room(4, 2).is_err());
        assert_eq!((fill(&mut share, 4), share.held()), (1, 1024));
        assert!(
            share
                .room(None, 1)
                .unwrap_err()
                .message
                .contains("all 1024")
        );
        for whole in 0..9 {
            let mut share = Share::elastic(whole, "places", "close some");
            assert_eq!(fill(&mut share, 1), share.of_user(), "{whole}");
        }
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let pool = Pool::new(Share::elastic(4, "places", "close some"));
        let charges: Vec<Charge> = (0..3).map(|_| pool.take(Some(7)).unwrap()).collect();
        assert_eq!(pool.take(Some(7)).unwrap_err().kind, ErrorKind::Busy);
        let root = pool.take(None).unwrap();
        assert!(pool.take(None).is_err() && pool.take(Some(8)).is_err());
        drop(charges);
        assert_eq!(pool.held(), 1);
        drop(root);
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn root_the_owner_and_administrators_pay_nothing() {
        let local = |uid| {
            Some(Credentials {
                pid: 1,
                uid,
                gid: uid,
            })
        };
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(payer(Role::Client, local(me), None), None);
        assert_eq!(payer(Role::Client, local(0), None), None);
        assert_eq!(payer(Role::Client, local(me + 1), None), Some(me + 1));
        assert_eq!(payer(Role::Admin, local(me + 1), None), None);
        let user = |uid| penstock_wire::message::User {
            uid,
            ..Default::default()
        };
        let mut stated = Statement::new("0123456789abcdef0123456789abcdef", user(0), 0..1);
        assert_eq!(payer(Role::Client, None, Some(&stated)), Some(0));
        stated.root = true;
        assert_eq!(payer(Role::Client, None, Some(&stated)), None);
        stated.uid = me + 1;
        assert_eq!(payer(Role::Client, None, Some(&stated)), Some(me + 1));
    }
}
