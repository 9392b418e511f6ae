//! Issues credentials to users authenticated by MUNGE (docs/decisions/0027-munge.md).
//!
//! munged and the user database may be slow, or hang. They are called on a few separate threads ([`Helpers`]). A
//! request that waits for them holds no lock, and is told to try again after a time limit.
use penstock_host::sync::{Condvar, Mutex, MutexGuard};
use penstock_host::thread;
use penstock_host::time::now;
use penstock_rpc::deployment::Deployment;
use penstock_rpc::munge::{Decoded, Failure, Library, PAYLOAD};
use penstock_rpc::users;
use penstock_wire::credential::{Signed, Statement};
use penstock_wire::message::{ErrorKind, NOBODY, User, WireError};
use penstock_wire::{KeyPair, PublicKey};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Threads that call munged and the user database.
const HELPERS: usize = 4;
/// Time limit of a newcomer's request: less than a handshake may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Issues credentials for MUNGE credentials.
pub(crate) struct Vouching {
    library: Library,
    socket: Option<PathBuf>,
    helpers: Helpers,
    deployment: String,
    lifetime_ms: u64,
}

impl Vouching {
    /// For a deployment that accepts MUNGE. Fails if MUNGE does not work here.
    pub(crate) fn start(deployment: &Deployment) -> penstock_wire::Result<Option<Vouching>> {
        let Some(section) = &deployment.munge else {
            return Ok(None);
        };
        let fail = |what: String| penstock_wire::Error::Deployment {
            path: deployment.name.clone(),
            what: format!("`[munge]`: {what}"),
        };
        let library = Library::open().map_err(|e| {
            fail(format!(
                "libmunge cannot be opened on this host: {e}; install it (Debian: apt-get install munge), or remove the section"
            ))
        })?;
        let vouching = Vouching {
            library,
            socket: section.socket.clone(),
            helpers: Helpers::default(),
            deployment: deployment.id.clone(),
            lifetime_ms: u64::from(section.lifetime_s) * 1000,
        };
        let socket = vouching.socket.clone();
        let works = move || {
            let made = library.encode(socket.as_deref(), &[0; PAYLOAD])?;
            library.decode(socket.as_deref(), &made)
        };
        let tried = vouching.helpers.run(works).map_err(|e| e.message);
        match tried.and_then(|tried| tried.map_err(|e| e.to_string())) {
            Ok(_) => Ok(Some(vouching)),
            Err(e) => Err(fail(format!(
                "munged of this host does not answer: {e}; start it (`systemctl start munge`), name its socket in the section, or remove the section"
            ))),
        }
    }

    /// The statement about the holder of `key`, signed by the metadata server's `pair`, for this MUNGE credential.
    pub(crate) fn vouch(
        &self,
        pair: &KeyPair,
        munge: &str,
        payload: &[u8; PAYLOAD],
        key: PublicKey,
        now_ms: u64,
    ) -> Result<Signed, WireError> {
        let (library, socket) = (self.library, self.socket.clone());
        let (munge, payload) = (munge.to_owned(), *payload);
        let user = self.helpers.run(move || -> Result<User, WireError> {
            let decoded = library.decode(socket.as_deref(), &munge);
            let (uid, gid) = judge(decoded, &payload)?;
            let known = users::find(&uid.to_string()).map_err(|e| {
                let what = format!("the metadata server cannot look user {uid} up: {e}; try again");
                WireError::new(ErrorKind::Busy, what)
            })?;
            Ok(in_group(known.unwrap_or_else(User::nobody), gid))
        });
        let user = user??;
        let life = now_ms..now_ms.saturating_add(self.lifetime_ms);
        let statement = Statement::new(&self.deployment, user, life);
        Ok(Signed::vouch(pair, statement, key)?)
    }
}

/// The user and group that made a MUNGE credential, if it is valid for a connection with this payload.
fn judge(
    decoded: Result<Decoded, Failure>,
    payload: &[u8; PAYLOAD],
) -> Result<(u32, u32), WireError> {
    let refuse = |what: String| {
        let what = format!("the metadata server refuses the MUNGE credential: {what}");
        WireError::new(ErrorKind::Permission, what)
    };
    let decoded = decoded.map_err(|e| match (e.is_of_munged(), e.hint()) {
        (true, _) => WireError::new(
            ErrorKind::Busy,
            format!(
                "munged of the metadata server's host does not answer: {e}; its administrator starts it (`systemctl start munge`)"
            ),
        ),
        (false, Some(hint)) => refuse(format!("{e}; perhaps {hint}")),
        (false, None) => refuse(e.to_string()),
    })?;
    if decoded.payload != payload {
        return Err(refuse(format!(
            "user {} has made it for another connection, deployment or key; somebody may have copied it",
            decoded.uid
        )));
    }
    if decoded.uid == NOBODY || decoded.uid == u32::MAX {
        return Err(refuse(format!("user {} is nobody", decoded.uid)));
    }
    Ok((decoded.uid, decoded.gid))
}

/// The same user with this primary group, if it is one of the user's groups.
fn in_group(mut user: User, gid: u32) -> User {
    if let Some(place) = user.groups.iter().position(|group| *group == gid) {
        std::mem::swap(&mut user.gid, &mut user.groups[place]);
    }
    user
}

/// Runs calls that may hang, on at most [`HELPERS`] threads.
#[derive(Default)]
struct Helpers {
    busy: Arc<Watched<usize>>,
}

#[derive(Default)]
struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what `take` finds, or nothing by `until`.
    fn wait<A>(&self, until: Instant, mut take: impl FnMut(&mut T) -> Option<A>) -> Option<A> {
        let mut value = self.lock();
        loop {
            if let Some(taken) = take(&mut value) {
                return Some(taken);
            }
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                return None;
            }
            let waited = self.changed.wait_timeout(value, left);
            value = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A thread's slot.
struct ThreadSlot(Arc<Watched<usize>>);

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.changed.notify_one();
    }
}

impl Helpers {
    fn run<A: Send + 'static>(
        &self,
        work: impl FnOnce() -> A + Send + 'static,
    ) -> Result<A, WireError> {
        let busy = |what: &str| {
            let what =
                format!("munged of the metadata server's host is slow: {what}; try again later");
            WireError::new(ErrorKind::Busy, what)
        };
        let until = now() + PATIENCE;
        let place = self.busy.wait(until, |busy| {
            (*busy < HELPERS).then(|| {
                *busy += 1;
                ThreadSlot(self.busy.clone())
            })
        });
        let place = place.ok_or_else(|| busy("too many credentials wait for munged"))?;
        let done = Arc::new(Watched::default());
        let started = thread::spawn("munge", None, {
            let done = done.clone();
            move || {
                let _place = place;
                let answer = work();
                *done.lock() = Some(answer);
                done.changed.notify_one();
            }
        });
        started.map_err(|e| busy(&format!("no thread to ask it: {e}")))?;
        let answer = done.wait(until, Option::take);
        answer.ok_or_else(|| busy(&format!("no answer within {PATIENCE:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    const PAID: [u8; PAYLOAD] = [7; PAYLOAD];

    fn decoded(uid: u32, payload: &[u8]) -> Result<Decoded, Failure> {
        Ok(Decoded {
            payload: payload.to_vec(),
            uid,
            gid: 5,
        })
    }

    #[test]
    fn credentials_are_judged() {
        assert_eq!(judge(decoded(1000, &PAID), &PAID), Ok((1000, 5)));
        let refused = |decoded, words: &str| {
            let e = judge(decoded, &PAID).unwrap_err();
            assert_eq!(e.kind, ErrorKind::Permission, "{e}");
            assert!(e.message.contains(words), "{e}");
        };
        for payload in [&[][..], &PAID[1..], &[7; PAYLOAD + 1], &[8; PAYLOAD]] {
            refused(decoded(1000, payload), "user 1000 has made it for another");
        }
        refused(decoded(NOBODY, &PAID), "nobody");
        refused(decoded(u32::MAX, &PAID), "nobody");
        for (code, words) in [(14, "keys"), (15, "clocks"), (16, "clocks"), (17, "before")] {
            refused(Err(Failure::new(code, "bad")), words);
        }
        let e = judge(Err(Failure::new(6, "no socket")), &PAID).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Busy);
        assert!(e.message.contains("no socket"), "{e}");
    }

    #[test]
    fn the_first_group_is_one_of_the_users() {
        let user = || User {
            uid: 1,
            gid: 10,
            groups: vec![11, 12],
        };
        let other = in_group(user(), 12);
        assert_eq!((other.gid, other.groups), (12, vec![11, 10]));
        assert_eq!(in_group(user(), 10), user());
        // The user's own claim does not count.
        assert_eq!(in_group(user(), 13), user());
    }

    #[test]
    fn what_hangs_keeps_a_bounded_number_of_threads() {
        let helpers = Helpers::default();
        let gate = Arc::new(Barrier::new(HELPERS + 1));
        std::thread::scope(|scope| {
            for _ in 0..HELPERS {
                let gate = gate.clone();
                scope.spawn(|| {
                    let e = helpers.run(move || gate.wait().is_leader()).unwrap_err();
                    assert!(e.message.contains("no answer"), "{e}");
                });
            }
            while *helpers.busy.lock() < HELPERS {
                std::thread::yield_now();
            }
            let e = helpers.run(|| ()).unwrap_err();
            assert_eq!(e.kind, ErrorKind::Busy);
            assert!(e.message.contains("too many"), "{e}");
        });
        gate.wait();
        // A late call frees its slot.
        assert_eq!(helpers.run(|| 5), Ok(5));
    }
}
