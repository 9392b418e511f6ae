//! Connects to a server: by Unix socket if possible, otherwise by TCP with TLS; then the handshake.
use crate::caller::Caller;
use crate::connection::{Connection, Timeouts, io_error};
use crate::deployment::Address;
use crate::handshake;
use penstock_host::time::now;
use penstock_wire::{Error, LinkName, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Time limit of connecting, and of the handshake.
const CONNECT: Duration = Duration::from_secs(10);

/// Opens a connection to the server at `to`, for a link that will have no other connection; replies may carry
/// descriptors.
pub fn connect(to: &Address, caller: &Caller, timeouts: Timeouts) -> Result<Connection> {
    connect_as(to, caller, LinkName::new()?, timeouts)
}

/// The same for a link that may have had others: when this returns, no request sent on those will be carried out any
/// more. Each call for a link needs a generation of its own; errors name the server and what failed.
pub fn connect_as(
    to: &Address,
    caller: &Caller,
    name: LinkName,
    timeouts: Timeouts,
) -> Result<Connection> {
    let mut connection = reach(to, timeouts)?;
    let deadline = now() + CONNECT;
    if !connection.is_unix() && caller.transport.is_tls() {
        let identity = to.identity.ok_or_else(|| Error::Deployment {
            path: caller.deployment_name.clone(),
            what: format!(
                "{} has no identity in the deployment file, so clients could not tell it from another server; run `penstock up` of this release on it, and give clients the new file",
                connection.peer()
            ),
        })?;
        connection.secure_to(identity, deadline)?;
    }
    handshake::introduce(&mut connection, caller, name, deadline)?;
    connection.accept_descriptors();
    Ok(connection)
}

fn reach(to: &Address, timeouts: Timeouts) -> Result<Connection> {
    let local = to.unix.as_deref().map(|path| reach_unix(path, timeouts));
    match (local, &to.tcp) {
        (Some(Ok(connection)), _) => Ok(connection),
        (Some(Err(e)), None) => Err(e),
        (_, Some(tcp)) => reach_tcp(tcp, timeouts),
        (None, None) => Err(Error::Deployment {
            path: "(address)".into(),
            what: "a server has neither a Unix socket nor a TCP address".into(),
        }),
    }
}

/// A connected Unix stream socket. The connect itself is bounded by `within`.
pub(crate) fn unix_stream(path: &Path, within: Duration) -> rustix::io::Result<UnixStream> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(within))?;
    let address = SocketAddrUnix::new(path)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address))?;
    Ok(UnixStream::from(socket))
}

fn reach_unix(path: &Path, timeouts: Timeouts) -> Result<Connection> {
    let name = path.display().to_string();
    let stream = unix_stream(path, CONNECT).map_err(|e| match e {
        Errno::AGAIN => Error::TimedOut {
            peer: name.clone(),
            what: "accept a connection",
            after: CONNECT,
        },
        Errno::NOENT => {
            let why = "no such socket: the server does not run, or its socket was removed";
            Error::Io {
                what: "connect to",
                peer: name.clone(),
                source: std::io::Error::new(std::io::ErrorKind::NotFound, why),
            }
        }
        e => io_error("connect to", &name, e),
    })?;
    Connection::unix(stream, name, timeouts)
}

fn reach_tcp(address: &str, timeouts: Timeouts) -> Result<Connection> {
    let fail = |source| Error::Io {
        what: "connect to",
        peer: address.to_owned(),
        source,
    };
    if let Some(socket) = penstock_host::net::connect(address, CONNECT) {
        return Connection::world(socket.map_err(fail)?, address, timeouts);
    }
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    for socket_address in address.to_socket_addrs().map_err(fail)? {
        match TcpStream::connect_timeout(&socket_address, CONNECT) {
            Ok(stream) => return Connection::tcp(stream, address, timeouts),
            Err(e) => last = e,
        }
    }
    Err(fail(last))
}
