//! The right to use an object's descriptor until its server revokes it ([`crate::shortcut`]).
//!
//! Problem: a killed server cannot revoke, and its successor does not know of old grants. Idea: a grant is valid only
//! as long as the connection that it came over, which ends with the server. The client checks that connection before an
//! operation, at most every [`LOOK`], and splits long operations into steps of [`STEP`]. The object's length, which
//! only the server may truncate, is trusted for the same time. Parameters: [`FIRST_DELAY`], [`MOST_DELAY`], [`LOOK`],
//! [`STEP`].
use crate::descriptors::DescriptorSlot;
use crate::grant_link::GrantLink;
use crate::unsynced::Taken;
use penstock_host::time::{now, since};
use penstock_rpc::grant::{GrantPage, Operation};
use penstock_store::{Mapped, Maps};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Delay from a refusal to the next attempt, at first and at most.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const MOST_DELAY: Duration = Duration::from_secs(2);
/// How long a check of the server's connection is trusted. A server that is killed takes longer to start again.
const LOOK: Duration = Duration::from_millis(1);
/// Bytes of one operation under a grant.
pub(crate) const STEP: u64 = 8 << 20;
/// How long closing a file waits for operations of other threads.
const QUIESCE: Duration = Duration::from_secs(5);

/// The right to use an object's descriptor until the server revokes it.
#[derive(Debug)]
pub(crate) struct Grant {
    object: OwnedFd,
    page: GrantPage,
    writable: bool,
    /// The incarnation that takes its writes.
    taken: Taken,
    link: Arc<GrantLink>,
    began: Instant,
    /// When the server was last known to be alive, nanoseconds after `began`.
    looked: AtomicU64,
    /// The mappings of the object, and its known length.
    maps: Maps,
    /// Its place in the client's share of descriptors.
    _place: DescriptorSlot,
}

impl Grant {
    /// What came over `link` for one object: its descriptor and the page of its grants.
    pub fn new(
        object: OwnedFd,
        page: GrantPage,
        writable: bool,
        taken: Taken,
        link: Arc<GrantLink>,
        maps: Maps,
        place: DescriptorSlot,
    ) -> Grant {
        Grant {
            object,
            page,
            writable,
            taken,
            link,
            began: now(),
            looked: AtomicU64::new(0),
            maps,
            _place: place,
        }
    }

    /// The right to do one step of I/O.
    fn enter(&self) -> Option<Operation<'_>> {
        let operation = self.page.enter()?;
        let now = u64::try_from(since(self.began).as_nanos()).unwrap_or(u64::MAX);
        if now.saturating_sub(self.looked.load(Relaxed)) < LOOK.as_nanos() as u64 {
            return (!self.link.dead.load(Relaxed)).then_some(operation);
        }
        if !self.link.is_alive() {
            return None;
        }
        self.maps.forget_len();
        self.looked.store(now, Relaxed);
        Some(operation)
    }

    /// Does one step of I/O; `None` when the grant is over. Nobody truncates the object before `io` has returned.
    pub fn operate<R>(&self, io: impl FnOnce(&Mapped<'_>) -> R) -> Option<R> {
        let operation = self.enter()?;
        let outcome = io(&Mapped::new(&self.object, &self.maps));
        drop(operation);
        Some(outcome)
    }

    /// An access has moved so many bytes: the server looks there.
    pub fn count(&self, write: bool, bytes: u64) {
        self.page.count(write, bytes);
    }

    /// The incarnation that takes its writes.
    pub fn taken(&self) -> Taken {
        self.taken
    }

    /// Whether it is for writing, too.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// As far as is known without a check: [`Grant::enter`] checks.
    pub fn is_good(&self) -> bool {
        !self.page.is_revoked() && !self.link.dead.load(Relaxed)
    }
}

/// What is known about shortcuts to one server for one file.
#[derive(Debug, Default)]
pub(crate) struct Shortcut {
    pub grant: Option<Arc<Grant>>,
    /// Earliest time of the next attempt, and the delay after the next refusal.
    pub again: Option<(Instant, Duration)>,
}

impl Shortcut {
    /// The grant if there is one.
    pub fn at_hand(&self) -> Option<Arc<Grant>> {
        self.grant.as_ref().filter(|g| g.is_good()).cloned()
    }

    /// Waits until nobody uses the grant any more, so that the server may close the object. False if that takes too long.
    pub fn quiesce(&mut self) -> bool {
        self.grant
            .take()
            .is_none_or(|grant| grant.page.quiesce(QUIESCE))
    }

    /// A new grant is asked for after a while, twice as long after each refusal.
    pub fn refused(&mut self) {
        let delay = self.again.map_or(FIRST_DELAY, |(_, delay)| delay);
        self.again = Some((now() + delay, (delay * 2).min(MOST_DELAY)));
    }
}
