//! This host: its names, its addresses, its free ports.
use super::names::Ports;
use crate::error::{CliError, Result};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, ToSocketAddrs};

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interface {
    name: String,
    address: IpAddr,
}

/// The names and the interfaces of this host.
#[derive(Debug)]
pub struct Here {
    /// Names from the kernel and from Slurm.
    names: Vec<String>,
    interfaces: Vec<Interface>,
}

impl Here {
    pub fn find() -> Result<Here> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let slurm = std::env::var("SLURMD_NODENAME").ok();
        let interfaces = interfaces()
            .map_err(|e| CliError::new(format!("cannot list this host's addresses: {e}")))?;
        Ok(Here {
            names: [Some(kernel.trim().to_owned()), slurm]
                .into_iter()
                .flatten()
                .collect(),
            interfaces,
        })
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Whether this host has the name. Domains are compared if both names have one.
    pub fn is_called(&self, host: &str) -> bool {
        self.names.iter().any(|name| same_name(name, host))
    }

    /// Whether this host has the address, other than loopback.
    pub fn has(&self, address: &str) -> bool {
        let address = address.parse::<IpAddr>().ok();
        address.is_some_and(|a| !a.is_loopback() && self.addresses().any(|own| own == a))
    }

    /// Whether `host` names this host.
    pub fn is(&self, host: &str) -> bool {
        let resolved = || resolve(host);
        self.is_called(host) || resolved().is_some_and(|a| self.addresses().any(|own| own == a))
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.interfaces.iter().map(|i| i.address)
    }

    /// The address that servers listen on. `hint`: what the host's name resolves to elsewhere.
    pub fn choose(&self, net: Option<&Net>, hint: Option<IpAddr>) -> Result<IpAddr> {
        // IPv4 first: fewer networks have IPv6 everywhere.
        let best = |mut found: Vec<IpAddr>| {
            found.sort_by_key(IpAddr::is_ipv6);
            found.first().copied()
        };
        if let Some(net) = net {
            let fits = |i: &&Interface| net.holds(i);
            let found = self.interfaces.iter().filter(fits);
            return best(found.map(|i| i.address).collect()).ok_or_else(|| {
                CliError::new(format!("no address in {net}; there are {}", self.list()))
                    .next("--net takes an interface or a network of these")
            });
        }
        let usable: Vec<IpAddr> = self.addresses().filter(|a| !a.is_loopback()).collect();
        if let Some(hint) = hint.filter(|hint| usable.contains(hint)) {
            return Ok(hint);
        }
        let v4: Vec<IpAddr> = usable.iter().copied().filter(IpAddr::is_ipv4).collect();
        let found = if v4.is_empty() { &usable } else { &v4 };
        match found[..] {
            [only] => Ok(only),
            [] => Err(CliError::new("no address but loopback")
                .next("connect it to a network; `--net lo` is for trying things on one host")),
            _ => Err(CliError::new(format!(
                "several addresses, and its name resolves to none of them: {}",
                self.list()
            ))
            .next("say which with --net: an interface, or a network such as 10.1.0.0/16")),
        }
    }

    fn list(&self) -> String {
        let each = self.interfaces.iter();
        let each = each.map(|i| format!("{} ({})", i.address, i.name));
        super::names::some(&each.collect::<Vec<_>>())
    }
}

fn same_name(one: &str, other: &str) -> bool {
    let short = |name: &str| {
        name.split('.')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let both_long = one.contains('.') && other.contains('.');
    let numeric = other.parse::<IpAddr>().is_ok();
    if both_long || numeric {
        one.eq_ignore_ascii_case(other)
    } else {
        !one.is_empty() && short(one) == short(other)
    }
}

/// What a name resolves to here.
pub fn resolve(host: &str) -> Option<IpAddr> {
    let found: Vec<IpAddr> = (host, 0).to_socket_addrs().ok()?.map(|a| a.ip()).collect();
    let v4 = found.iter().find(|a| a.is_ipv4());
    v4.or(found.first()).copied()
}

/// Takes `n` free ports of the range. Servers inherit the listeners, so that no port is free in between.
pub fn take_ports(address: IpAddr, ports: Ports, n: usize) -> Result<Vec<TcpListener>> {
    let free = |port| TcpListener::bind((address, port)).ok();
    let found: Vec<_> = (ports.first..=ports.last)
        .filter_map(free)
        .take(n)
        .collect();
    if found.len() < n {
        return Err(CliError::new(format!(
            "of the ports {}-{} {} are free at {address}, and {n} servers need one each",
            ports.first,
            ports.last,
            found.len()
        ))
        .next("name others with --ports FIRST-LAST; `ss -ltn` shows who has them"));
    }
    Ok(found)
}

/// Which address of a host to use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Net {
    /// One of this interface.
    Interface(String),
    /// One in this network.
    Network(IpAddr, u8),
}

impl Net {
    fn holds(&self, interface: &Interface) -> bool {
        match (self, interface.address) {
            (Net::Interface(name), _) => *name == interface.name,
            (Net::Network(IpAddr::V4(net), bits), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0);
                (u32::from(*net) ^ u32::from(address)) & mask == 0
            }
            (Net::Network(IpAddr::V6(net), bits), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(*bits)).unwrap_or(0);
                (u128::from(*net) ^ u128::from(address)) & mask == 0
            }
            (Net::Network(..), _) => false,
        }
    }
}

impl std::str::FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Net, String> {
        let wrong = || "write an interface (ib0) or a network (10.1.0.0/16)".to_owned();
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse().ok().filter(|bits| *bits <= most);
            return Ok(Net::Network(address, bits.ok_or_else(wrong)?));
        }
        // IFNAMSIZ
        let plain = |b: u8| b.is_ascii_graphic() && b != b'/';
        if (1..16).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Net::Interface(text.to_owned()))
        } else {
            Err(wrong())
        }
    }
}

impl std::fmt::Display for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Net::Interface(name) => f.write_str(name),
            Net::Network(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

impl TryFrom<String> for Net {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Net, String> {
        text.parse()
    }
}

impl From<Net> for String {
    fn from(net: Net) -> String {
        net.to_string()
    }
}

/// The addresses of all interfaces that are up. Link-local ones are left out: they mean nothing without an interface.
fn interfaces() -> std::io::Result<Vec<Interface>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is a place for one pointer.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: the C library's list, whose entries live until `freeifaddrs`.
        let entry = unsafe { &*at };
        at = entry.ifa_next;
        let up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        if entry.ifa_addr.is_null() || !up {
            continue;
        }
        // SAFETY: not null; each address begins with its family, and has the size that belongs to it.
        let address = match i32::from(unsafe { (*entry.ifa_addr).sa_family }) {
            libc::AF_INET => {
                // SAFETY: as above. The C library aligns it.
                let v4 =
                    unsafe { std::ptr::read_unaligned(entry.ifa_addr.cast::<libc::sockaddr_in>()) };
                IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe {
                    std::ptr::read_unaligned(entry.ifa_addr.cast::<libc::sockaddr_in6>())
                };
                let v6 = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                if v6.is_unicast_link_local() {
                    continue;
                }
                IpAddr::V6(v6)
            }
            _ => continue,
        };
        // SAFETY: a string that ends with zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        found.push(Interface {
            name: name.to_string_lossy().into_owned(),
            address,
        });
    }
    // SAFETY: from `getifaddrs`, freed once; nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Here {
        let interface = |name: &str, address: &str| Interface {
            name: name.into(),
            address: address.parse().unwrap(),
        };
        Here {
            names: vec!["n1.cluster".into()],
            interfaces: vec![
                interface("lo", "127.0.0.1"),
                interface("eth0", "10.0.0.1"),
                interface("ib0", "10.1.0.1"),
                interface("ib0", "fd00::1"),
            ],
        }
    }

    #[test]
    fn a_host_has_its_name_with_and_without_domain() {
        let here = host();
        for name in ["n1", "N1.cluster", "n1.cluster"] {
            assert!(here.is_called(name), "{name}");
        }
        for name in ["n2", "n1.other", "10.0.0.1", ""] {
            assert!(!here.is_called(name), "{name}");
        }
        assert!(here.has("10.1.0.1") && !here.has("127.0.0.1") && !here.has("n1"));
    }

    #[test]
    fn the_address_is_the_one_that_is_meant() {
        let here = host();
        let net = |text: &str| text.parse::<Net>().unwrap();
        let choose = |text: &str| here.choose(Some(&net(text)), None).unwrap().to_string();
        assert_eq!(choose("ib0"), "10.1.0.1");
        assert_eq!(choose("10.0.0.0/24"), "10.0.0.1");
        assert_eq!(choose("0.0.0.0/0"), "127.0.0.1");
        assert_eq!(choose("fd00::/16"), "fd00::1");
        let missing = here
            .choose(Some(&net("eth9")), None)
            .unwrap_err()
            .to_string();
        assert!(missing.contains("10.1.0.1 (ib0)"), "{missing}");
        let hint = |text: &str| here.choose(None, text.parse().ok());
        assert_eq!(hint("10.1.0.1").unwrap().to_string(), "10.1.0.1");
        // Debian gives a host's own name to 127.0.1.1.
        let several = hint("127.0.1.1").unwrap_err().to_string();
        assert!(several.contains("--net"), "{several}");
        for bad in ["", "10.0.0.0/33", "a/8", "an-interface-too-long"] {
            assert!(bad.parse::<Net>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_that_are_taken_are_not_free() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let only = Ports {
            first: port,
            last: port,
        };
        let error = take_ports(Ipv4Addr::LOCALHOST.into(), only, 1).unwrap_err();
        assert!(error.to_string().contains("--ports"), "{error}");
        assert!(
            interfaces()
                .unwrap()
                .iter()
                .any(|i| i.address.is_loopback())
        );
    }
}
