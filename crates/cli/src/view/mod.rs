//! `penstock view`: the page of a trace from a server on this host, which answers questions, too.
//!
//! *Problem*: any user of this host can reach a port of it, and any page in the user's browser can send requests there.
//! *Idea*: a token that nobody else sees; then a cookie. `doors.rs` has the rules. The server changes nothing:
//! questions run as `penstock trace` of the same user, one process each, with limits (`ask.rs`).
//!
//! ```text
//! doors.rs    who is let in          ask.rs    questions          enter.html, enter.js    the first page, which shows
//! the token
//! ```
mod ask;
mod doors;

use crate::error::{CliError, Result};
use crate::http::{self, Response};
use crate::{out, size};
use clap::Args;
use doors::Doors;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::IsTerminal as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a question.
const MOST_QUESTION: usize = 64 << 10;
/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Show the page of a trace in a browser of this host, and answer questions there.
///
/// The page is that of `penstock report TRACE -o`, with a form for questions: those of `penstock trace`, and SQL (DuckDB).
/// Nothing is changed. The server listens on 127.0.0.1 until it is stopped.
///
/// The address has a token, and only who knows it is let in. In a terminal the address is printed. Elsewhere, as in a
/// batch job's log, it stands in a file that only you can read, and the name of that file is printed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock view TRACE
  penstock view TRACE --port 8080       on a login node; at home: ssh -L 8080:127.0.0.1:8080 NODE
  penstock trace generate --stack -o TRACE && penstock view TRACE")]
pub struct ViewArgs {
    /// The trace: a directory, or one file of it.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The port on 127.0.0.1; 0: any that is free.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

/// Answers until a signal comes.
pub fn view(args: &ViewArgs) -> Result<()> {
    // A question runs elsewhere: a relative name would mean the same there, and a name with a dash would be an option.
    let path =
        std::path::absolute(&args.trace).map_err(|e| CliError::io("find", &args.trace, e))?;
    let trace = crate::trace::open(&path)?;
    let page = penstock_analysis::page(&trace, true, &|what| log::info!("{what}"))
        .map_err(crate::trace::asked)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).map_err(|e| {
        CliError::new(format!("cannot listen on 127.0.0.1:{}: {e}", args.port))
            .next("leave --port out, and a free one is taken")
    })?;
    let port = listener
        .local_addr()
        .map_err(|e| CliError::new(format!("a socket without an address: {e}")))?
        .port();
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    let doors = Doors::new(port)?;
    let address = doors.address();
    let written = if std::io::stdout().is_terminal() {
        out::line(&address);
        None
    } else {
        Some(write_down(&address)?)
    };
    if let Some((file, _)) = &written {
        out::line(format_args!("open in a browser: {}", file.display()));
    }
    out::note(format_args!(
        "{} records; Ctrl-C ends it",
        size::count(trace.records())
    ));
    let asked = Arc::new(ask::Asked::new(path));
    let questions = asked.clone();
    let server = move || {
        http::serve(&listener, "view", MOST_QUESTION, move |request| {
            let mut response = doors.answer(request, &page, |question| asked.answer(question));
            protect(&mut response);
            response
        });
    };
    std::thread::Builder::new()
        .name("view".into())
        .spawn(server)
        .map_err(|e| CliError::new(format!("no thread: {e}")))?;
    while signals.pending().next().is_none() {
        std::thread::sleep(LOOK);
    }
    questions.end();
    drop(written);
    Ok(())
}

/// What browsers are told of each answer.
fn protect(response: &mut Response) {
    let policy = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                  frame-ancestors 'none'";
    for (name, value) in [
        ("X-Content-Type-Options", "nosniff"),
        ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
    ] {
        response.headers.push((name, value.into()));
    }
    // The page of a trace has a stricter one of its own, which would not go together with this one.
    let policy = match response.status {
        200 if response.body.len() > doors::ENTER.len() => "frame-ancestors 'none'",
        _ => policy,
    };
    response
        .headers
        .push(("Content-Security-Policy", policy.into()));
}

/// The address in a file of a directory that only its owner can look into; both go with the second value. A program's
/// arguments are seen by all users (`/proc/PID/cmdline`), so browsers are given the file and not the address.
fn write_down(address: &str) -> Result<(PathBuf, tempfile::TempDir)> {
    let failed = |e| CliError::new(format!("cannot write the address down: {e}"));
    let dir = tempfile::Builder::new()
        .prefix("penstock-view-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .tempdir()
        .map_err(failed)?;
    let file = dir.path().join("open.html");
    let text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>penstock view</title>\n\
         <meta http-equiv=\"refresh\" content=\"0; url={address}\">\n<a href=\"{address}\">The trace</a></html>\n"
    );
    write_private(&file, &text).map_err(failed)?;
    Ok((file, dir))
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    std::io::Write::write_all(&mut file, text.as_bytes())
}
