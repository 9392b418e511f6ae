//! As much of HTTP/1.1 as it takes to answer `GET` and short `POST`s: one request for each connection, which is closed
//! behind the answer.
//!
//! *Bounds*: [`AT_ONCE`] connections, [`MAX_HEAD`] bytes of line and headers, a body as long as the server takes,
//! [`TIME`] for all of it to come. *Source*: RFC 9112.
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Connections that are served at once.
const AT_ONCE: usize = 8;
/// Bytes of a request's line and headers.
const MAX_HEAD: usize = 8 << 10;
/// For a request to come, and for its answer to leave.
const TIME: Duration = Duration::from_secs(5);

/// Headers that may stand once only: two of them would let two readers see two requests.
const ONCE: [&str; 8] = [
    "host",
    "origin",
    "cookie",
    "authorization",
    "content-length",
    "content-type",
    "transfer-encoding",
    "sec-fetch-site",
];

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `HEAD` or `POST`.
    pub method: String,
    /// Without what follows a question mark.
    pub path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    /// Of a `POST`.
    pub body: Vec<u8>,
    /// Both ends of the connection: the asker's, ours.
    pub ends: Option<(SocketAddr, SocketAddr)>,
}

impl Request {
    /// The first header with this name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(n, _)| n == name).map(|(_, value)| &**value)
    }
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// `200`.
    pub status: u16,
    /// The form of the body.
    pub kind: &'static str,
    /// The body.
    pub body: String,
    /// More headers: names and values, without line ends.
    pub headers: Vec<(&'static str, String)>,
}

impl Response {
    /// An answer.
    pub fn new(status: u16, kind: &'static str, body: impl Into<String>) -> Response {
        Response {
            status,
            kind,
            body: body.into(),
            headers: Vec::new(),
        }
    }

    /// Something went another way.
    pub fn failure(status: u16, what: &str) -> Response {
        Response::new(status, "text/plain; charset=utf-8", format!("{what}\n"))
    }

    fn encode(&self, head_only: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            411 => "Length Required",
            413 => "Content Too Large",
            415 => "Unsupported Media Type",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let mut text = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        if !head_only {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

/// A request of these bytes, which end with an empty line, and the length of its body; else the status to answer with.
/// `most`: bytes of a body; 0: only `GET` and `HEAD`.
pub fn parse(head: &[u8], most: usize) -> Result<(Request, usize), u16> {
    let text = std::str::from_utf8(head).map_err(|_| 400u16)?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().ok_or(400u16)?.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(400);
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(400);
    }
    if !matches!(method, "GET" | "HEAD") && (method != "POST" || most == 0) {
        return Err(405);
    }
    let path = target.split('?').next().unwrap_or(target);
    let mut request = Request {
        method: method.into(),
        path: path.into(),
        ..Request::default()
    };
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(400u16)?;
        let name = name.to_ascii_lowercase();
        if name.is_empty() || name.contains(|c: char| c.is_ascii_whitespace() || c.is_control()) {
            return Err(400);
        }
        if ONCE.contains(&&*name) && request.header(&name).is_some() {
            return Err(400);
        }
        request.headers.push((name, value.trim().into()));
    }
    // A page from elsewhere that calls this host by a name of its own is none of ours.
    if request.header("host").is_some_and(|h| !is_this_host(h)) {
        return Err(403);
    }
    let length = body_length(&request)?;
    if length > most {
        return Err(413);
    }
    Ok((request, length))
}

fn body_length(request: &Request) -> Result<usize, u16> {
    if request.header("transfer-encoding").is_some() {
        return Err(411);
    }
    match request.header("content-length") {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty() => {
            // So many digits are no number: too large in any case.
            Ok(digits.parse().unwrap_or(usize::MAX))
        }
        Some(_) => Err(400),
        None if request.method == "POST" => Err(411),
        None => Ok(0),
    }
}

/// `localhost` or an address, with or without a port.
fn is_this_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Answers connections for ever. `name`: of the threads; `most`: bytes of a body, 0: only `GET` and `HEAD`.
pub fn serve(
    listener: &TcpListener,
    name: &str,
    most: usize,
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
) {
    let answer = Arc::new(answer);
    let active = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptor is left, say: others end meanwhile.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let place = Place::take(&active);
        let (answer, full) = (answer.clone(), place.is_none());
        if full {
            let busy = Response::failure(503, "too many connections; try again");
            let _ = reply(&stream, &busy, false);
            continue;
        }
        let work = move || {
            let _place = place;
            one(&stream, most, &*answer);
        };
        if let Err(e) = std::thread::Builder::new().name(name.into()).spawn(work) {
            log::warn!("no thread for a connection: {e}");
        }
    }
}

/// One of [`AT_ONCE`] connections.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(active: &Arc<AtomicUsize>) -> Option<Place> {
        let place = Place(active.clone());
        (active.fetch_add(1, SeqCst) < AT_ONCE).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn one(stream: &TcpStream, most: usize, answer: &(dyn Fn(&Request) -> Response + Send + Sync)) {
    let (response, head_only) = match receive(stream, most) {
        Ok(Some(request)) => (answer(&request), request.method == "HEAD"),
        // Nobody asks anything.
        Ok(None) => return,
        Err(status) => {
            let mut refused = Response::failure(status, refusal(status));
            if status == 405 {
                let methods = if most == 0 {
                    "GET, HEAD"
                } else {
                    "GET, HEAD, POST"
                };
                refused.headers.push(("Allow", methods.into()));
            }
            (refused, false)
        }
    };
    if let Err(e) = reply(stream, &response, head_only) {
        log::debug!("an answer was not taken: {e}");
    }
}

fn refusal(status: u16) -> &'static str {
    match status {
        403 => "ask by this host's address or as localhost",
        405 => "this method is not answered",
        408 => "the request took too long",
        411 => "say how long the body is: Content-Length",
        413 => "the request's body is too long",
        431 => "the request's headers are too long",
        _ => "this is no HTTP request",
    }
}

/// One request; `None`: the other side went away.
fn receive(stream: &TcpStream, most: usize) -> Result<Option<Request>, u16> {
    let end = Instant::now() + TIME;
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if bytes.len() > MAX_HEAD {
            return Err(431);
        }
        if !more(stream, end, &mut bytes)? {
            return Ok(None);
        }
    };
    let body = bytes.split_off(head);
    let (mut request, length) = parse(&bytes, most)?;
    request.body = body;
    while request.body.len() < length {
        if !more(stream, end, &mut request.body)? {
            return Ok(None);
        }
    }
    request.body.truncate(length);
    request.ends = stream.peer_addr().ok().zip(stream.local_addr().ok());
    Ok(Some(request))
}

/// Reads on; false: the other side went away.
fn more(mut stream: &TcpStream, end: Instant, bytes: &mut Vec<u8>) -> Result<bool, u16> {
    let mut piece = [0; 1024];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(408);
        }
        match stream.read(&mut piece) {
            Ok(0) => return Ok(false),
            Ok(n) => {
                bytes.extend_from_slice(&piece[..n]);
                return Ok(true);
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(408),
        }
    }
}

fn reply(mut stream: &TcpStream, response: &Response, head_only: bool) -> std::io::Result<()> {
    stream.set_write_timeout(Some(TIME))?;
    stream.write_all(&response.encode(head_only))?;
    stream.shutdown(std::net::Shutdown::Write)?;
    // What is still under way is taken, so that the answer is not lost to a reset.
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut rest = [0; 1024];
    for _ in 0..64 {
        if !matches!(stream.read(&mut rest), Ok(1..)) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_others() {
        let head = b"GET /metrics?x=1 HTTP/1.1\r\nHost: 127.0.0.1:9797\r\nACCEPT:  text/plain \r\nAuthorization: Bearer x\r\n\r\n";
        let (get, length) = parse(head, 0).unwrap();
        assert_eq!((&*get.method, &*get.path, length), ("GET", "/metrics", 0));
        assert_eq!(get.header("accept"), Some("text/plain"));
        assert_eq!(get.header("authorization"), Some("Bearer x"));
        for (head, status) in [
            (&b"POST /metrics HTTP/1.1\r\n\r\n"[..], 405),
            (b"GET metrics HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/2\r\n\r\n", 400),
            (b"GET /\r\n\r\n", 400),
            (b"GET / HTTP/1.1 x\r\n\r\n", 400),
            (b"\xff\xfe\r\n\r\n", 400),
            (b"", 400),
            (b"GET / HTTP/1.1\r\nno header\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
            (
                b"GET / HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n",
                400,
            ),
            (b"GET / HTTP/1.1\r\nHost: evil.example:9797\r\n\r\n", 403),
            (b"GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\n", 413),
        ] {
            let found = parse(head, 0).map(|_| ());
            assert_eq!(found, Err(status), "{}", String::from_utf8_lossy(head));
        }
        for host in [
            "localhost",
            "LOCALHOST:1",
            "[::1]:9797",
            "127.0.0.1",
            "10.0.0.1:80",
        ] {
            let head = format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n");
            assert!(parse(head.as_bytes(), 0).is_ok(), "{host}");
        }
    }

    #[test]
    fn bodies_are_as_long_as_they_say() {
        let of = |headers: &str| {
            let head = format!("POST /ask HTTP/1.1\r\n{headers}\r\n");
            parse(head.as_bytes(), 100).map(|(_, length)| length)
        };
        assert_eq!(of("Content-Length: 100\r\n"), Ok(100));
        assert_eq!(of("Content-Length: 101\r\n"), Err(413));
        assert_eq!(of("Content-Length: 99999999999999999999999\r\n"), Err(413));
        assert_eq!(of(""), Err(411));
        for wrong in ["-1", "+1", "0x1", "", "1 1", "1,1"] {
            assert_eq!(
                of(&format!("Content-Length: {wrong}\r\n")),
                Err(400),
                "{wrong}"
            );
        }
        assert_eq!(of("Content-Length: 1\r\nContent-Length: 1\r\n"), Err(400));
        assert_eq!(
            of("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
            Err(411)
        );
    }

    #[test]
    fn any_bytes_are_answered_with_a_status() {
        let mut random = 1u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let whole =
            b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\nAccept: */*\r\n\r\n";
        for _ in 0..50_000 {
            let mut bytes = whole.to_vec();
            for _ in 0..next() % 8 {
                let at = next() as usize % bytes.len();
                match next() % 3 {
                    0 => bytes[at] = next() as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, next() as u8),
                }
            }
            match parse(&bytes, 1 << 16) {
                Ok((_, length)) => assert!(length <= 1 << 16),
                Err(status) => assert!(matches!(status, 400 | 403 | 405 | 411 | 413), "{status}"),
            }
        }
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let text = String::from_utf8(Response::failure(401, "no").encode(false)).unwrap();
        assert!(text.starts_with("HTTP/1.1 401 Unauthorized\r\n"));
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\nno\n"));
        let head = Response::failure(404, "no").encode(true);
        assert!(head.ends_with(b"\r\n\r\n"));
    }
}
