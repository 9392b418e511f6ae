//! Who is let in: the rules, in the order in which they are asked.
//!
//! | rule | against |
//! | --- | --- |
//! | the other end of the connection is a process of the same user, or of root | other users of this host |
//! | `Host` is 127.0.0.1 or localhost with our port | pages that give this host a name of their own |
//! | `Origin` and `Sec-Fetch-Site`, if they are there, say: from here; a `POST` has to have an `Origin` | pages of other sites |
//! | the token, sent once in a body; from then on a cookie, `SameSite=Strict`, `HttpOnly` | everybody else |
//!
//! The token stands behind the address's `#`, so it is in no request line and no log. Browsers send cookies to all
//! ports of a host. So the cookie is bound to a path that nobody else knows: another user's server on another port
//! never gets it.
use crate::error::{CliError, Result};
use crate::http::{Request, Response};
use std::io::BufReader;
use std::net::{IpAddr, SocketAddr};

/// The first page.
pub const ENTER: &str = include_str!("enter.html");
const ENTER_SCRIPT: &str = include_str!("enter.js");
const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
/// The cookie's name.
const COOKIE: &str = "penstock-view";

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// The first page and its script, which say nothing of the trace.
    Enter,
    EnterScript,
    /// The token is shown.
    Token,
    Page,
    Ask,
}

/// The secrets of one server.
pub struct Doors {
    port: u16,
    token: String,
    cookie: String,
    /// `/…/`, below which the cookie holds.
    path: String,
}

impl Doors {
    /// With new secrets.
    pub fn new(port: u16) -> Result<Doors> {
        let secret = || -> Result<String> {
            let random: [u8; 32] = penstock_wire::key::random().map_err(CliError::new)?;
            Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
        };
        Ok(Doors {
            port,
            token: secret()?,
            cookie: secret()?,
            path: format!("/{}/", secret()?),
        })
    }

    /// The address with the token.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/#{}", self.port, self.token)
    }

    /// The answer to a request: the page, the answer of `ask` to a question, or a refusal.
    pub fn answer(
        &self,
        request: &Request,
        page: &str,
        ask: impl Fn(&[u8]) -> Response,
    ) -> Response {
        match self.room(request) {
            Err((status, why)) => Response::failure(status, why),
            Ok(Room::Enter) => Response::new(200, HTML, ENTER),
            Ok(Room::EnterScript) => Response::new(200, "text/javascript", ENTER_SCRIPT),
            Ok(Room::Token) => {
                let mut response = Response::new(200, TEXT, self.path.clone());
                let cookie = format!(
                    "{COOKIE}={}; Path={}; HttpOnly; SameSite=Strict",
                    self.cookie, self.path
                );
                response.headers.push(("Set-Cookie", cookie));
                response
            }
            Ok(Room::Page) => Response::new(200, HTML, page),
            Ok(Room::Ask) => ask(&request.body),
        }
    }

    fn room(&self, request: &Request) -> std::result::Result<Room, (u16, &'static str)> {
        if !request.ends.is_none_or(|(from, to)| same_user(from, to)) {
            return Err((403, "this is another user's"));
        }
        let host = request.header("host").unwrap_or_default();
        if !self.is_here(host) {
            return Err((403, "ask by the address that `penstock view` gave"));
        }
        let room = match (&*request.method, &*request.path) {
            ("GET" | "HEAD", "/") => return Ok(Room::Enter),
            ("GET" | "HEAD", "/enter.js") => Room::EnterScript,
            ("POST", "/enter") => Room::Token,
            ("GET" | "HEAD", path) if same(path, &self.path) => Room::Page,
            ("POST", path) if same(path, &format!("{}ask", self.path)) => Room::Ask,
            _ => return Err((404, "there is nothing here")),
        };
        let origin = request.header("origin");
        let is_ours = |o: &str| o.strip_prefix("http://") == Some(host);
        let from_elsewhere = match origin {
            Some(origin) => !is_ours(origin),
            None => request.method == "POST",
        };
        let site = request.header("sec-fetch-site").unwrap_or("none");
        if from_elsewhere || !matches!(site, "none" | "same-origin") {
            return Err((403, "this comes from another page"));
        }
        match room {
            Room::Token if same(&String::from_utf8_lossy(&request.body), &self.token) => {}
            Room::Token => return Err((403, "this is not the token of this `penstock view`")),
            Room::Page | Room::Ask if !self.has_cookie(request) => {
                return Err((401, "begin with the address that `penstock view` gave"));
            }
            _ => {}
        }
        let kind = request.header("content-type").unwrap_or_default();
        if room == Room::Ask && kind != "application/json" {
            return Err((415, "a question is JSON: Content-Type: application/json"));
        }
        Ok(room)
    }

    fn is_here(&self, host: &str) -> bool {
        let port = host
            .strip_prefix("127.0.0.1:")
            .or_else(|| host.strip_prefix("localhost:"));
        port == Some(&self.port.to_string())
    }

    fn has_cookie(&self, request: &Request) -> bool {
        let cookies = request.header("cookie").unwrap_or_default();
        let mut values = cookies
            .split(';')
            .filter_map(|one| one.trim().split_once('='));
        values.any(|(name, value)| name == COOKIE && same(value, &self.cookie))
    }
}

/// Compares secrets in a time that says nothing of them: hashes are compared so.
fn same(a: &str, b: &str) -> bool {
    blake3::hash(a.as_bytes()) == blake3::hash(b.as_bytes())
}

/// Whether the other end of a connection is a process of this user, or of root, as far as the system tells.
fn same_user(from: SocketAddr, to: SocketAddr) -> bool {
    let me = rustix::process::geteuid().as_raw();
    owner(from, to).is_none_or(|user| user == me || user == 0)
}

/// Whose the socket at `from` is that is connected to `to`: of the table of sockets. `None`: not known.
fn owner(from: SocketAddr, to: SocketAddr) -> Option<u32> {
    let table = std::fs::File::open("/proc/net/tcp").ok()?;
    owner_in(BufReader::new(table), &name(from)?, &name(to)?)
}

fn owner_in(table: impl std::io::BufRead, from: &str, to: &str) -> Option<u32> {
    for line in table.lines() {
        let line = line.ok()?;
        // Place, local, remote, state, queues, timer, retransmissions, user.
        let mut words = line.split_ascii_whitespace().skip(1);
        if words.next() == Some(from) && words.next() == Some(to) {
            return words.nth(4)?.parse().ok();
        }
    }
    None
}

/// `0100007F:1F90`, as the table of sockets has it.
fn name(address: SocketAddr) -> Option<String> {
    match address.ip() {
        IpAddr::V4(ip) => Some(format!(
            "{:08X}:{:04X}",
            u32::from_ne_bytes(ip.octets()),
            address.port()
        )),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse;

    fn doors() -> Doors {
        Doors::new(4242).unwrap()
    }

    fn asked(doors: &Doors, line: &str, headers: &str, body: &str) -> u16 {
        let length = if line.starts_with("POST") {
            format!("Content-Length: {}\r\n", body.len())
        } else {
            String::new()
        };
        let head = format!("{line} HTTP/1.1\r\n{headers}{length}\r\n");
        match parse(head.as_bytes(), 1000) {
            Ok((mut request, _)) => {
                request.body = body.into();
                doors
                    .answer(&request, "page", |_| Response::new(200, TEXT, "answer"))
                    .status
            }
            Err(status) => status,
        }
    }

    const HOST: &str = "Host: 127.0.0.1:4242\r\n";
    const ORIGIN: &str = "Origin: http://127.0.0.1:4242\r\n";

    #[test]
    fn the_token_opens_and_nothing_else_does() {
        let d = doors();
        let enter = |headers: &str, token: &str| asked(&d, "POST /enter", headers, token);
        let ours = format!("{HOST}{ORIGIN}");
        assert_eq!(enter(&ours, &d.token), 200);
        assert_eq!(enter(&ours, ""), 403);
        assert_eq!(enter(&ours, &d.token[1..]), 403);
        assert_eq!(enter(&ours, &doors().token), 403);
        // No origin, another one, another host, another port.
        assert_eq!(enter(HOST, &d.token), 403);
        assert_eq!(
            enter(&format!("{HOST}Origin: http://evil.example\r\n"), &d.token),
            403
        );
        assert_eq!(enter(&format!("{HOST}Origin: null\r\n"), &d.token), 403);
        assert_eq!(
            enter(
                &format!("{HOST}Origin: http://127.0.0.1:4243\r\n"),
                &d.token
            ),
            403
        );
        assert_eq!(
            enter(&format!("Host: evil.example:4242\r\n{ORIGIN}"), &d.token),
            403
        );
        assert_eq!(
            enter(&format!("Host: 127.0.0.1:4243\r\n{ORIGIN}"), &d.token),
            403
        );
        assert_eq!(enter(ORIGIN, &d.token), 403);
        assert_eq!(
            asked(&d, &format!("GET /enter?{}", d.token), &ours, ""),
            404
        );
    }

    #[test]
    fn the_page_and_answers_need_the_cookie() {
        let d = doors();
        let cookie = format!("Cookie: a=b; {COOKIE}={}\r\n", d.cookie);
        let page = format!("GET {}", d.path);
        assert_eq!(asked(&d, &page, HOST, ""), 401);
        assert_eq!(asked(&d, &page, &format!("{HOST}{cookie}"), ""), 200);
        assert_eq!(
            asked(&d, &page, &format!("{HOST}Cookie: {COOKIE}=x\r\n"), ""),
            401
        );
        assert_eq!(
            asked(&d, "GET /other/", &format!("{HOST}{cookie}"), ""),
            404
        );
        let cross = format!("{HOST}{cookie}Sec-Fetch-Site: cross-site\r\n");
        assert_eq!(asked(&d, &page, &cross, ""), 403);
        let same_site = format!("{HOST}{cookie}Sec-Fetch-Site: same-site\r\n");
        assert_eq!(asked(&d, &page, &same_site, ""), 403);
        let ask = format!("POST {}ask", d.path);
        let json = "Content-Type: application/json\r\n";
        assert_eq!(
            asked(&d, &ask, &format!("{HOST}{ORIGIN}{cookie}{json}"), "{}"),
            200
        );
        assert_eq!(
            asked(&d, &ask, &format!("{HOST}{ORIGIN}{cookie}"), "{}"),
            415
        );
        assert_eq!(asked(&d, &ask, &format!("{HOST}{ORIGIN}{json}"), "{}"), 401);
        assert_eq!(asked(&d, &ask, &format!("{HOST}{cookie}{json}"), "{}"), 403);
        // The first page says nothing, so it is for everybody.
        assert_eq!(asked(&d, "GET /", HOST, ""), 200);
        assert_eq!(
            asked(
                &d,
                "GET /",
                &format!("{HOST}Sec-Fetch-Site: cross-site\r\n"),
                ""
            ),
            200
        );
        assert!(!ENTER.contains(&d.token) && !ENTER.contains(&d.path));
    }

    #[test]
    fn the_table_of_sockets_names_the_owner() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n\
            1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n\
            2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 65534        0 3 1\n";
        let at = |port: u16| name(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
        assert_eq!(at(8080), "0100007F:1F90");
        assert_eq!(
            owner_in(table.as_bytes(), &at(50000), &at(8080)),
            Some(65534)
        );
        assert_eq!(
            owner_in(table.as_bytes(), &at(8080), &at(50000)),
            Some(1000)
        );
        assert_eq!(owner_in(table.as_bytes(), &at(50001), &at(8080)), None);
        assert_eq!(owner_in(&b"\xff\xff\n"[..], &at(1), &at(2)), None);
    }
}
