//! Users and groups from this system's databases (files, LDAP, whatever nsswitch.conf names).
use penstock_wire::message::{MAX_GROUPS, NOBODY, User};
use std::ffi::{CStr, CString};
use std::io::{Error, Result};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Buffer sizes for the texts of one entry: at first, and at most.
const TEXTS: [usize; 2] = [1 << 10, 1 << 20];
/// Most groups that are requested.
const MOST_GROUPS: usize = 65_536;

/// A user in the database.
struct Entry {
    name: CString,
    uid: u32,
    gid: u32,
}

/// The user `name`, which may be a number. A number without an entry is a user without groups. `None`: no such name.
pub fn find(name: &str) -> Result<Option<User>> {
    let number = name.parse::<u32>().ok();
    let entry = match number {
        Some(uid) => entry_of(uid)?,
        None => entry_named(name)?,
    };
    match (entry, number) {
        (Some(entry), _) => Ok(Some(User {
            uid: entry.uid,
            gid: entry.gid,
            groups: groups(&entry)?,
        })),
        (None, Some(uid)) => Ok(Some(User {
            uid,
            gid: NOBODY,
            groups: Vec::new(),
        })),
        (None, None) => Ok(None),
    }
}

/// The name of a user, if the database knows one.
pub fn name(uid: u32) -> Option<String> {
    let entry = entry_of(uid).ok().flatten()?;
    entry.name.into_string().ok()
}

fn entry_named(name: &str) -> Result<Option<Entry>> {
    let name = CString::new(name)?;
    entry(|found, texts, length, result| {
        // SAFETY: the name ends with a zero byte; the rest as `entry` says.
        unsafe { libc::getpwnam_r(name.as_ptr(), found, texts, length, result) }
    })
}

fn entry_of(uid: u32) -> Result<Option<Entry>> {
    entry(|found, texts, length, result| {
        // SAFETY: as `entry` says.
        unsafe { libc::getpwuid_r(uid, found, texts, length, result) }
    })
}

/// Looks up an entry by a function that gets buffers for the entry, its texts with their length, and the result. All of
/// them are valid for writes during the call.
fn entry(
    look: impl Fn(
        *mut libc::passwd,
        *mut libc::c_char,
        libc::size_t,
        *mut *mut libc::passwd,
    ) -> libc::c_int,
) -> Result<Option<Entry>> {
    let mut length = TEXTS[0];
    loop {
        let mut texts = vec![0; length];
        let mut found = MaybeUninit::<libc::passwd>::uninit();
        let mut result = null_mut();
        match look(found.as_mut_ptr(), texts.as_mut_ptr(), length, &mut result) {
            libc::ERANGE if length < TEXTS[1] => length *= 2,
            0 if result.is_null() => return Ok(None),
            0 => {
                // SAFETY: a result that is not null says that the entry was written.
                let found = unsafe { found.assume_init() };
                // SAFETY: the name lies in `texts` and ends with a zero byte.
                let name = unsafe { CStr::from_ptr(found.pw_name) };
                return Ok(Some(Entry {
                    name: name.to_owned(),
                    uid: found.pw_uid,
                    gid: found.pw_gid,
                }));
            }
            libc::ENOENT | libc::ESRCH => return Ok(None),
            code => return Err(Error::from_raw_os_error(code)),
        }
    }
}

/// All groups of a user except the primary one.
fn groups(entry: &Entry) -> Result<Vec<u32>> {
    let mut room = MAX_GROUPS + 1;
    loop {
        let mut groups = vec![0; room];
        let mut count = libc::c_int::try_from(room).map_err(Error::other)?;
        // SAFETY: the name ends with a zero byte, and `groups` has room for `count` numbers.
        let done = unsafe {
            libc::getgrouplist(
                entry.name.as_ptr(),
                entry.gid,
                groups.as_mut_ptr(),
                &mut count,
            )
        };
        let count = usize::try_from(count).map_err(Error::other)?;
        if done >= 0 {
            groups.truncate(count);
            groups.retain(|gid| *gid != entry.gid);
            return Ok(groups);
        }
        if count <= room || count > MOST_GROUPS {
            return Err(Error::other("the system does not say the user's groups"));
        }
        room = count;
    }
}

/// The user of this process.
pub(crate) fn myself() -> User {
    let mut groups: Vec<u32> = rustix::process::getgroups()
        .unwrap_or_default()
        .into_iter()
        .map(rustix::process::Gid::as_raw)
        .collect();
    groups.truncate(MAX_GROUPS);
    User {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_their_groups() {
        let root = find("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(!root.groups.contains(&0));
        assert_eq!(find("0").unwrap(), Some(root));
        assert_eq!(name(0).as_deref(), Some("root"));
        assert_eq!(name(4_000_000_001), None);
        assert_eq!(find("no such user").unwrap(), None);
        let unknown = find("4000000001").unwrap().unwrap();
        assert_eq!((unknown.uid, unknown.gid), (4_000_000_001, NOBODY));
        assert!(find("a\0b").is_err());
    }
}
