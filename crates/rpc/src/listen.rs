//! Listening sockets: Unix sockets that are never accessible to others, TCP, or a simulated network.
use crate::connect::unix_stream;
use crate::connection::{Connection, Timeouts};
use penstock_host::net;
use penstock_wire::{Error, Result};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connections waiting in the kernel to be accepted.
const BACKLOG: i32 = 1024;

/// A socket file that belongs to this server; removed with it.
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Only its own: another server may have replaced the file.
        if inode(&self.path) == Some(self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let m = std::fs::symlink_metadata(path).ok()?;
    Some((m.dev(), m.ino()))
}

/// A listening socket.
pub(crate) enum Listener {
    Unix(UnixListener, #[allow(dead_code)] Option<SocketFile>),
    Tcp(TcpListener),
    /// In a simulated network.
    World(OwnedFd),
}

/// Gives a socket the group of its directory, if that passes its group on (mode 2750, as `penstock up --group` makes
/// it).
fn share(path: &Path) -> std::io::Result<()> {
    let Some(dir) = path.parent() else {
        return Ok(());
    };
    if std::fs::metadata(dir)?.permissions().mode() & 0o2050 == 0o2050 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    }
    Ok(())
}

impl Listener {
    /// Makes a new socket if somebody has removed the file of this one. Not if its directory is gone too: a deployment
    /// that was removed stays removed.
    pub(crate) fn renew(&mut self) -> Result<()> {
        let Listener::Unix(_, Some(file)) = self else {
            return Ok(());
        };
        let gone = std::fs::symlink_metadata(&file.path)
            .is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
        if gone && file.path.parent().is_some_and(Path::is_dir) {
            log::warn!("{} was removed; making it anew", file.path.display());
            *self = Listener::unix(&file.path.clone())?;
        }
        Ok(())
    }

    pub(crate) fn unix(path: &Path) -> Result<Listener> {
        let fail = |what: String| Error::Listen {
            address: path.display().to_string(),
            what,
        };
        if let Some(dir) = path.parent()
            && !dir.as_os_str().is_empty()
            && !dir.exists()
        {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(|e| fail(format!("cannot create directory {}: {e}", dir.display())))?;
        }
        let address = SocketAddrUnix::new(path).map_err(|e| fail(e.to_string()))?;
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(|e| fail(e.to_string()))?;
        // On Linux the file gets the socket's own mode: it is never accessible to others, not even for a moment.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|e| fail(e.to_string()))?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                clear_stale(path)?;
                rustix::net::bind(&socket, &address)
            }
            bound => bound,
        }
        .map_err(|e| fail(e.to_string()))?;
        share(path).map_err(|e| fail(format!("cannot open it to its group: {e}")))?;
        let file = inode(path).map(|inode| SocketFile {
            path: path.to_owned(),
            inode,
        });
        rustix::net::listen(&socket, BACKLOG).map_err(|e| fail(e.to_string()))?;
        Ok(Listener::Unix(UnixListener::from(socket), file))
    }

    pub(crate) fn tcp(address: &str) -> Result<(Listener, String)> {
        let fail = |what: String| Error::Listen {
            address: address.to_owned(),
            what,
        };
        if let Some(listener) = net::listen(address) {
            let listener = listener.map_err(|e| fail(e.to_string()))?;
            return Ok((Listener::World(listener), address.to_owned()));
        }
        let candidates: Vec<_> = address
            .to_socket_addrs()
            .map_err(|e| fail(format!("cannot resolve: {e}")))?
            .collect();
        let listener = match handed_over(&candidates) {
            Some(listener) => listener,
            None => TcpListener::bind(&candidates[..]).map_err(|e| {
                fail(match e.kind() {
                    std::io::ErrorKind::AddrInUse => {
                        "in use; is this server running already?".into()
                    }
                    _ => e.to_string(),
                })
            })?,
        };
        listener
            .set_nonblocking(true)
            .map_err(|e| fail(e.to_string()))?;
        let actual = listener
            .local_addr()
            .map_err(|e| fail(e.to_string()))?
            .to_string();
        Ok((Listener::Tcp(listener), actual))
    }

    pub(crate) fn accept(&self, timeouts: Timeouts) -> std::io::Result<Result<Connection>> {
        match self {
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Connection::unix(stream, "a local client", timeouts))
            }
            Listener::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Connection::tcp(stream, from.to_string(), timeouts))
            }
            Listener::World(listener) => {
                let (stream, from) = net::accept(listener.as_fd())?;
                Ok(Connection::world(stream, from, timeouts))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::World(listener) => listener.as_fd(),
        }
    }
}

/// The socket that this process got as its standard input, as inetd gives it, if it listens at one of these addresses. Whoever
/// chose a free port and starts the server keeps the port taken until the server has it. It is taken once.
fn handed_over(candidates: &[SocketAddr]) -> Option<TcpListener> {
    let input = rustix::stdio::stdin();
    if !rustix::net::sockopt::socket_acceptconn(input).unwrap_or(false) {
        return None;
    }
    // A Unix socket has no such address.
    let listener = TcpListener::from(input.try_clone_to_owned().ok()?);
    if !candidates.contains(&listener.local_addr().ok()?) {
        return None;
    }
    let nothing = std::fs::File::open("/dev/null").ok()?;
    rustix::stdio::dup2_stdin(&nothing).ok()?;
    Some(listener)
}

/// Removes a socket file that a dead server left; refuses if a server answers there or it is no socket.
fn clear_stale(path: &Path) -> Result<()> {
    let fail = |what: String| Error::Listen {
        address: path.display().to_string(),
        what,
    };
    let metadata = std::fs::symlink_metadata(path).map_err(|e| fail(e.to_string()))?;
    if !metadata.file_type().is_socket() {
        return Err(fail(
            "a file that is not a socket is there; move it away".into(),
        ));
    }
    match unix_stream(path, Duration::from_secs(1)) {
        Err(Errno::CONNREFUSED) => {
            log::info!("replacing the stale socket {}", path.display());
            std::fs::remove_file(path).map_err(|e| fail(e.to_string()))
        }
        Ok(_) | Err(Errno::AGAIN) => Err(fail(
            "another server answers there; stop it first or use another path".into(),
        )),
        Err(e) => Err(fail(format!("in use, and connecting fails: {e}"))),
    }
}
