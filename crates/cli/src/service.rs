//! The user that servers run as, and what they leave when they fall.
use crate::error::{CliError, Result};
use penstock_wire::message::User;
use penstock_wire::users;
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

/// Who runs servers that root starts, if this system has such a user.
const USUAL: &str = "penstock";

/// The user that servers of a new deployment are to run as: the one who is named, for root the usual one if there is one.
/// `None`: who starts them.
pub fn user(named: Option<&str>) -> Result<Option<User>> {
    let root = geteuid().is_root();
    match named {
        Some(_) if !root => Err(CliError::new("only root starts servers as another user")
            .next("leave --service-user out, or run the command as root")),
        Some(name) => crate::users::named(name).map(Some),
        None if root => Ok(users::find(USUAL).ok().flatten()),
        None => Ok(None),
    }
    .map(|user| user.filter(|user| user.uid != 0))
}

/// Gives the directory of a new deployment, with all that is in it, to the user that its servers run as.
pub fn give(directory: &Path, user: &User) -> Result<()> {
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let failed = |e| CliError::io("give to the service user", &path, e);
        if path.symlink_metadata().map_err(failed)?.is_dir() {
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                left.push(entry.map_err(failed)?.path());
            }
        }
        lchown(&path, Some(user.uid), Some(user.gid)).map_err(failed)?;
    }
    Ok(())
}

/// Gives what root has just made for servers to the owner of their directory.
pub fn give_like(path: &Path, directory: &Path) -> std::io::Result<()> {
    let (owner, file) = (directory.metadata()?, path.symlink_metadata()?);
    if geteuid().is_root() && file.uid() != owner.uid() {
        lchown(path, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(())
}

/// For a server: root becomes the owner of the deployment's directory for good, before anything is opened and before there are
/// threads.
pub fn become_owner(directory: &Path) -> Result<()> {
    let owner = directory
        .metadata()
        .map_err(|e| CliError::io("look at", directory, e))?
        .uid();
    if !geteuid().is_root() || owner == 0 {
        return Ok(());
    }
    let fail = |e: std::io::Error| {
        CliError::new(format!(
            "cannot become user {owner}, the owner of {}: {e}",
            directory.display()
        ))
    };
    let user = users::find(&owner.to_string()).map_err(fail)?;
    let user = user.unwrap_or_else(User::nobody);
    let groups: Vec<libc::gid_t> = std::iter::once(user.gid).chain(user.groups).collect();
    let done = |result| match result {
        0 => Ok(()),
        _ => Err(fail(std::io::Error::last_os_error())),
    };
    // SAFETY: the list is as long as said, and is only read.
    done(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: numbers alone; glibc does it for all threads.
    done(unsafe { libc::setresgid(user.gid, user.gid, user.gid) })?;
    // SAFETY: as above.
    done(unsafe { libc::setresuid(owner, owner, owner) })
}

/// No core of this process is written, which holds keys: neither into a file nor into a program that collects cores. Those
/// ignore a limit of 0, but not one of 1 byte (core(5)).
pub fn without_core() -> Result<()> {
    let limit = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    setrlimit(Resource::Core, limit)
        .map_err(|e| CliError::new(format!("cannot forbid cores of this process: {e}")))
}
