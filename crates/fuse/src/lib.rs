//! A deployment as a mounted file system (FUSE).
//!
//! The kernel identifies nodes by id, and so does the metadata server: the mount has no table of names. Bytes are
//! transferred directly between the mount and the data servers, without the kernel's page cache; on the servers' own
//! host through passed descriptors. Permissions are checked twice: by the kernel with its knowledge of nodes, and by
//! the metadata server for the user who made each call.
//!
//! | file | idea |
//! | --- | --- |
//! | `filesystem` | the kernel's calls, one by one |
//! | `operations` | what calls have in common: their user, attributes, space |
//! | `bytes` | bytes between the kernel and the data servers |
//! | `passthrough` | files that the kernel reads and writes by itself |
//! | `replies` | answers of several calls |
//! | `handles` | open files and directories; removed files that are still open |
//! | `listing` | a directory read page by page |
//! | `locks` | advisory locks, shared with other mounts |
//! | `attributes` | nodes as `stat` shows them |
//! | `point` | mount points: finding, making and clearing them |
mod attributes;
mod bytes;
mod errno;
mod filesystem;
mod handles;
mod listing;
mod locks;
mod operations;
mod passthrough;
mod point;
mod replies;

pub use point::{Found, find, is_mounted, mounts_of, unmount};

use fuser::{Config, MountOption, Session, SessionACL};
use operations::Penstock;
use penstock_client::Client;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long names, and attributes of directories, are cached.
    pub names: Duration,
    /// How long attributes of files (size, times, permissions) are cached; an open revalidates them.
    pub attributes: Duration,
    /// Threads that serve calls.
    pub threads: usize,
    /// Whether other users than the one who mounts may use it.
    pub others: bool,
    /// Whether files that are entirely on this host are passed through to the kernel, where possible.
    pub passthrough: bool,
    /// Its source in mount tables, after `penstock:`: the deployment file.
    pub source: String,
}

/// Default number of threads.
pub const THREADS: usize = 8;

impl Options {
    /// 1 s for names, 100 ms for attributes of files, [`THREADS`] threads; accessible to others if root mounts.
    pub fn new(source: impl Into<String>) -> Options {
        Options {
            names: Duration::from_secs(1),
            attributes: Duration::from_millis(100),
            threads: THREADS,
            others: rustix::process::geteuid().is_root(),
            passthrough: true,
            source: source.into(),
        }
    }
}

/// A mounted deployment that is not served yet.
pub struct Mount(Session<Penstock>);

impl Mount {
    /// Mounts on `directory`, which must exist. Calls wait until [`Mount::serve`]; an error is that of mount(2).
    pub fn new(client: Client, directory: &Path, options: &Options) -> io::Result<Mount> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(format!("{}{}", point::PREFIX, options.source)),
            MountOption::Subtype(point::SUBTYPE.into()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        config.acl = if options.others {
            SessionACL::All
        } else {
            SessionACL::Owner
        };
        config.n_threads = Some(options.threads.max(1));
        let filesystem = Penstock::new(client, options);
        Session::new(filesystem, directory, &config).map(Mount)
    }

    /// Serves calls until anybody unmounts it.
    pub fn serve(self) -> io::Result<()> {
        self.0.run()
    }
}
