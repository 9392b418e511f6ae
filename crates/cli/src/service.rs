//! The user that servers run as; their signals and core files.
use crate::error::{CliError, Result};
use penstock_rpc::users;
use penstock_wire::message::User;
use rustix::process::{Gid, Resource, Rlimit, Uid, geteuid, getgroups, setrlimit};
use rustix::thread::{
    CapabilitySet, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;
use std::sync::Arc;

/// The user of servers that root starts, if this system has it.
const USUAL: &str = "penstock";

/// The user of the servers of a new deployment: the one who is named, or for root the usual one if it exists. `None`:
/// the user who starts them.
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

/// Gives the directory of a new deployment, with its content, to the user that its servers run as. It also goes to the
/// user's group, unless another group has it already.
///
/// The content is changed before its directory, so that the new owner cannot change what is still to be visited.
pub fn give(directory: &Path, user: &User, group: bool) -> Result<()> {
    let mut all = vec![directory.to_owned()];
    let mut at = 0;
    while let Some(path) = all.get(at).cloned() {
        at += 1;
        let failed = |e| CliError::io("look at", &path, e);
        if path.symlink_metadata().map_err(failed)?.is_dir() {
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                all.push(entry.map_err(failed)?.path());
            }
        }
    }
    let gid = group.then_some(user.gid);
    all.iter().rev().try_for_each(|path| {
        lchown(path, Some(user.uid), gid)
            .map_err(|e| CliError::io("give to the service user", path, e))
    })
}

/// The owner of a deployment's directory, if root has to act as that user there.
fn owner(directory: &Path) -> Result<Option<User>> {
    let uid = directory
        .metadata()
        .map_err(|e| CliError::io("look at", directory, e))?
        .uid();
    if !geteuid().is_root() || uid == 0 {
        return Ok(None);
    }
    let found = users::find(&uid.to_string()).map_err(|e| failed(directory, uid, &e))?;
    Ok(found)
}

fn failed(directory: &Path, uid: u32, e: &dyn std::fmt::Display) -> CliError {
    CliError::new(format!(
        "cannot become user {uid}, the owner of {}: {e}",
        directory.display()
    ))
}

/// Runs `f`, which accesses files of a deployment. If root calls it, `f` has the rights of the directory's owner. So
/// new files belong to the owner. A link that the owner has made leads root to nothing that the owner may not access.
///
/// Threads that `f` starts keep those rights.
pub fn as_owner<T>(directory: &Path, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(user) = owner(directory)? else {
        return f();
    };
    let before = getgroups().map_err(|e| failed(directory, user.uid, &e))?;
    let _back = Back(before);
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    let become_owner = || {
        set_thread_groups(&groups)?;
        set_thread_res_gid(None, Gid::from_raw(user.gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(user.uid), None)
    };
    become_owner().map_err(|e| failed(directory, user.uid, &e))?;
    f()
}

/// Restores root's rights for this thread.
struct Back(Vec<Gid>);

impl Drop for Back {
    fn drop(&mut self) {
        let back = || {
            set_thread_res_uid(None, Uid::ROOT, None)?;
            set_thread_res_gid(None, Gid::ROOT, None)?;
            set_thread_groups(&self.0)
        };
        if let Err(e) = back() {
            log::error!("cannot become root again: {e}");
        }
    }
}

/// For a server: root becomes the owner of the deployment's directory for good. Called before files are opened and
/// threads started.
pub fn become_owner(directory: &Path) -> Result<()> {
    match owner(directory)? {
        Some(user) => become_user(&user),
        None => Ok(()),
    }
}

/// Root becomes this user for good; called before threads are started.
pub fn become_user(user: &User) -> Result<()> {
    let groups: Vec<libc::gid_t> = std::iter::once(user.gid)
        .chain(user.groups.iter().copied())
        .collect();
    let done = |result| match result {
        0 => Ok(()),
        _ => Err(CliError::new(format!(
            "cannot become user {}: {}",
            user.uid,
            std::io::Error::last_os_error()
        ))),
    };
    // SAFETY: the list is as long as said, and is only read.
    done(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: numbers alone; glibc does it for all threads.
    done(unsafe { libc::setresgid(user.gid, user.gid, user.gid) })?;
    // SAFETY: as above.
    done(unsafe { libc::setresuid(user.uid, user.uid, user.uid) })
}

/// Root's processes pass quotas of file systems (CAP_SYS_RESOURCE), and servers and mounts write for others. Before there are threads.
pub fn obey_quotas() -> Result<()> {
    let failed = |e: rustix::io::Errno| {
        CliError::new(format!("cannot give up the right to pass quotas: {e}"))
    };
    let mut sets = capabilities(None).map_err(failed)?;
    if sets
        .effective
        .union(sets.permitted)
        .contains(CapabilitySet::SYS_RESOURCE)
    {
        for set in [
            &mut sets.effective,
            &mut sets.permitted,
            &mut sets.inheritable,
        ] {
            set.remove(CapabilitySet::SYS_RESOURCE);
        }
        set_capabilities(None, sets).map_err(failed)?;
    }
    Ok(())
}

/// A scheduler may send its warning before a job's time is up to all processes of the job. It is meant for the program alone.
pub fn ignore_user_signals() -> Result<()> {
    for signal in [SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::default())
            .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    }
    Ok(())
}

/// Prevents core files of this process, which holds keys, also through a program that collects them. Such programs
/// ignore a limit of 0, but not one of 1 byte (core(5)).
pub fn without_core() -> Result<()> {
    let limit = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    setrlimit(Resource::Core, limit)
        .map_err(|e| CliError::new(format!("cannot forbid cores of this process: {e}")))
}
