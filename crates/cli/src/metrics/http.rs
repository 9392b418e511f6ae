//! As much of HTTP/1.1 as it takes to answer `GET`: one request for each connection, which is closed behind the answer.
//!
//! *Bounds*: [`AT_ONCE`] connections, [`MAX_HEAD`] bytes of a request, [`TIME`] for all of it. A body is not read. *Source*: RFC 9112.
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Connections that are served at once.
const AT_ONCE: usize = 8;
/// Bytes of a request's line and headers.
const MAX_HEAD: usize = 8 << 10;
/// For a request to come, and for its answer to leave.
const TIME: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET` or `HEAD`.
    pub method: String,
    /// Without what follows a question mark.
    pub path: String,
    /// Which forms of an answer are taken.
    pub accept: String,
    /// What the asker shows of himself.
    pub authorization: String,
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
}

impl Response {
    /// Something went another way.
    pub fn failure(status: u16, what: &str) -> Response {
        Response {
            status,
            kind: "text/plain; charset=utf-8",
            body: format!("{what}\n"),
        }
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
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let more = match self.status {
            401 => "WWW-Authenticate: Bearer\r\n",
            405 => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let mut text = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{more}Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        if !head_only {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

/// A request of these bytes, which end with an empty line; else the status to answer with.
pub fn parse(head: &[u8]) -> Result<Request, u16> {
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
    if !matches!(method, "GET" | "HEAD") {
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
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "accept" => request.accept = value.into(),
            "authorization" => request.authorization = value.into(),
            // A page from elsewhere that calls this host by a name of its own is none of ours.
            "host" if !is_this_host(value) => return Err(403),
            _ => {}
        }
    }
    Ok(request)
}

/// `localhost` or an address, with or without a port.
fn is_this_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Answers connections for ever.
pub fn serve(
    listener: &TcpListener,
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
            one(&stream, &*answer);
        };
        if let Err(e) = std::thread::Builder::new()
            .name("metrics".into())
            .spawn(work)
        {
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

fn one(stream: &TcpStream, answer: &(dyn Fn(&Request) -> Response + Send + Sync)) {
    let (response, head_only) = match receive(stream) {
        Ok(Some(head)) => match parse(&head) {
            Ok(request) => (answer(&request), request.method == "HEAD"),
            Err(status) => (Response::failure(status, refusal(status)), false),
        },
        // Nobody asks anything.
        Ok(None) => return,
        Err(status) => (Response::failure(status, refusal(status)), false),
    };
    if let Err(e) = reply(stream, &response, head_only) {
        log::debug!("an answer was not taken: {e}");
    }
}

fn refusal(status: u16) -> &'static str {
    match status {
        403 => "ask by this host's address or as localhost",
        405 => "only GET and HEAD are answered",
        408 => "the request took too long",
        431 => "the request's headers are too long",
        _ => "this is no HTTP request",
    }
}

/// Bytes up to an empty line; `None`: the other side went away.
fn receive(mut stream: &TcpStream) -> Result<Option<Vec<u8>>, u16> {
    let end = Instant::now() + TIME;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(408);
        }
        match stream.read(&mut piece) {
            Ok(0) => return Ok(None),
            Ok(n) => head.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(408),
        }
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(at + 4);
            return Ok(Some(head));
        }
        if head.len() > MAX_HEAD {
            return Err(431);
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
        let get = parse(b"GET /metrics?x=1 HTTP/1.1\r\nHost: 127.0.0.1:9797\r\nACCEPT:  text/plain \r\nAuthorization: Bearer x\r\n\r\n");
        let expected = Request {
            method: "GET".into(),
            path: "/metrics".into(),
            accept: "text/plain".into(),
            authorization: "Bearer x".into(),
        };
        assert_eq!(get, Ok(expected));
        for (head, status) in [
            (&b"POST /metrics HTTP/1.1\r\n\r\n"[..], 405),
            (b"GET metrics HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/2\r\n\r\n", 400),
            (b"GET /\r\n\r\n", 400),
            (b"GET / HTTP/1.1 x\r\n\r\n", 400),
            (b"\xff\xfe\r\n\r\n", 400),
            (b"", 400),
            (b"GET / HTTP/1.1\r\nno header\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: evil.example:9797\r\n\r\n", 403),
        ] {
            assert_eq!(
                parse(head),
                Err(status),
                "{}",
                String::from_utf8_lossy(head)
            );
        }
        for host in [
            "localhost",
            "LOCALHOST:1",
            "[::1]:9797",
            "127.0.0.1",
            "10.0.0.1:80",
        ] {
            let head = format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n");
            assert!(parse(head.as_bytes()).is_ok(), "{host}");
        }
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
        let whole = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
        for _ in 0..20_000 {
            let mut bytes = whole.to_vec();
            for _ in 0..next() % 8 {
                let at = next() as usize % bytes.len();
                match next() % 3 {
                    0 => bytes[at] = next() as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, next() as u8),
                }
            }
            if let Err(status) = parse(&bytes) {
                assert!(matches!(status, 400 | 403 | 405));
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
