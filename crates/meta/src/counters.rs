//! Shared file pointers: counters in memory, named by a random token, which end with the connection that created them.
//! Anybody who knows the token may use one.
use crate::error::{Result, error};
use penstock_rpc::share::Share;
use penstock_wire::message::ErrorKind;
use std::collections::HashMap;

/// Most counters of all connections.
pub const MAX_COUNTERS: usize = 1 << 16;

/// A connection, unique in the life of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u64);

#[derive(Debug)]
pub struct Counters {
    counters: HashMap<u128, Counter>,
    share: Share,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            counters: HashMap::new(),
            share: Share::of(
                MAX_COUNTERS,
                "counters of the metadata server",
                "close files that use shared pointers",
            ),
        }
    }
}

#[derive(Debug)]
struct Counter {
    value: i64,
    owner: ConnectionId,
    uid: u32,
}

impl Counters {
    /// A counter of the user `uid`.
    pub fn create(&mut self, owner: ConnectionId, uid: u32, token: u128, value: i64) -> Result<()> {
        if self.counters.contains_key(&token) {
            return Err(error(
                ErrorKind::Exists,
                format!("counter {token:032x} exists already; choose a random token"),
            ));
        }
        self.share.room(uid, 1)?;
        self.share.take(uid);
        self.counters.insert(token, Counter { value, owner, uid });
        Ok(())
    }

    /// Adds and returns the value before.
    pub fn add(&mut self, token: u128, add: i64) -> Result<i64> {
        let counter = self.find(token)?;
        let before = counter.value;
        counter.value = before.checked_add(add).ok_or_else(|| {
            error(
                ErrorKind::InvalidArgument,
                format!(
                    "counter {token:032x} at {before} cannot take {add} more; it would overflow"
                ),
            )
        })?;
        Ok(before)
    }

    /// Sets and returns the value before.
    pub fn set(&mut self, token: u128, value: i64) -> Result<i64> {
        let counter = self.find(token)?;
        Ok(std::mem::replace(&mut counter.value, value))
    }

    pub fn get(&mut self, token: u128) -> Result<i64> {
        Ok(self.find(token)?.value)
    }

    /// Frees a counter; only the connection that created it may do so.
    pub fn free(&mut self, owner: ConnectionId, token: u128) -> Result<()> {
        if self.find(token)?.owner != owner {
            return Err(error(
                ErrorKind::Permission,
                format!("counter {token:032x} belongs to another connection, which frees it"),
            ));
        }
        if let Some(counter) = self.counters.remove(&token) {
            self.share.give_back(counter.uid);
        }
        Ok(())
    }

    pub fn connection_closed(&mut self, owner: ConnectionId) {
        let share = &mut self.share;
        self.counters.retain(|_, c| {
            let stays = c.owner != owner;
            if !stays {
                share.give_back(c.uid);
            }
            stays
        });
    }

    fn find(&mut self, token: u128) -> Result<&mut Counter> {
        self.counters.get_mut(&token).ok_or_else(|| {
            error(
                ErrorKind::NotFound,
                format!(
                    "no counter {token:032x}: the process that created it closed the file or left; open the file again"
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    #[test]
    fn adds_return_the_value_before() {
        let mut c = Counters::default();
        c.create(A, 1000, 7, 100).unwrap();
        assert_eq!(c.add(7, 5).unwrap(), 100);
        assert_eq!(c.add(7, -10).unwrap(), 105);
        assert_eq!(c.set(7, 1).unwrap(), 95);
        assert_eq!(c.get(7).unwrap(), 1);
        c.set(7, i64::MAX).unwrap();
        assert_eq!(c.add(7, 1).unwrap_err().kind, ErrorKind::InvalidArgument);
        assert_eq!(c.get(7).unwrap(), i64::MAX, "unchanged");
    }

    #[test]
    fn counters_belong_to_their_connection() {
        let mut c = Counters::default();
        c.create(A, 1000, 7, 0).unwrap();
        c.create(B, 1000, 8, 0).unwrap();
        assert_eq!(c.create(B, 1000, 7, 0).unwrap_err().kind, ErrorKind::Exists);
        assert_eq!(c.free(B, 7).unwrap_err().kind, ErrorKind::Permission);
        c.connection_closed(A);
        assert_eq!(c.add(7, 1).unwrap_err().kind, ErrorKind::NotFound);
        c.free(B, 8).unwrap();
        assert_eq!(c.get(8).unwrap_err().kind, ErrorKind::NotFound);
    }

    #[test]
    fn number_is_bounded_for_each_user_and_for_all() {
        let mut c = Counters::default();
        let mut tokens = 0..u128::MAX;
        let mut fill = |c: &mut Counters, uid| {
            while c.create(A, uid, tokens.next().unwrap(), 0).is_ok() {}
        };
        fill(&mut c, 1000);
        assert_eq!(c.counters.len(), MAX_COUNTERS / 4);
        c.create(B, 1001, u128::MAX, 0).unwrap();
        for uid in 1001..1005 {
            fill(&mut c, uid);
        }
        assert_eq!(c.counters.len(), MAX_COUNTERS);
        let e = c.create(A, 7, u128::MAX - 1, 0).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Busy);
        c.free(A, 0).unwrap();
        c.create(A, 1000, 0, 0).unwrap();
        c.connection_closed(A);
        assert_eq!((c.counters.len(), c.share.held()), (1, 1));
    }
}
