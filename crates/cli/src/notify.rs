//! Messages to a service manager (sd_notify(3)): a line to the socket that it names.
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The environment variable that names the socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Reports that the servers answer.
pub fn ready() {
    tell("READY=1");
}

/// Reports that the servers end, which may take a while.
pub fn stopping() {
    tell("STOPPING=1");
}

fn tell(line: &str) {
    let Some(name) = std::env::var_os(SOCKET).filter(|name| !name.is_empty()) else {
        return;
    };
    let send = || -> std::io::Result<()> {
        // A name with @ is in the abstract name space.
        let address = match name.as_bytes().split_first() {
            Some((b'@', abstract_name)) => SocketAddr::from_abstract_name(abstract_name)?,
            _ => SocketAddr::from_pathname(&name)?,
        };
        UnixDatagram::unbound()?.send_to_addr(line.as_bytes(), &address)?;
        Ok(())
    };
    if let Err(e) = send() {
        log::warn!("cannot tell the service manager {line}: {e}");
    }
}
