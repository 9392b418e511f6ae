//! Questions of the page: each is a `penstock trace` of its own, with limits.
//!
//! *Bounds*: [`AT_ONCE`] questions, [`TIME`] for each, [`MOST`] bytes of an answer. SQL goes to standard input:
//! arguments are seen by all users of the host. It may read the trace's tables and nothing else (`trace sql --locked`).
use crate::http::Response;
use rustix::process::Pid;
use serde::Deserialize;
use serde_json::json;
use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Questions that are answered at once.
const AT_ONCE: usize = 2;
/// For an answer to come.
const TIME: Duration = Duration::from_secs(120);
/// Bytes of an answer.
const MOST: u64 = 4 << 20;
/// Bytes of an error that are shown.
const MOST_ERROR: u64 = 4 << 10;
/// Whole numbers with fewer digits are exact in browsers.
const EXACT_DIGITS: usize = 16;

/// What can be asked by name, and whether it is about one key.
const NAMES: [(&str, bool); 11] = [
    ("overview", false),
    ("breakdown", true),
    ("list", true),
    ("follow", true),
    ("stats", true),
    ("throughput", true),
    ("servers", true),
    ("access-pattern", true),
    ("files", true),
    ("lines", true),
    ("phases", true),
];

/// A question, as the page sends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// One of [`NAMES`], or `sql`.
    name: String,
    /// PROCESS/MPI-CALL/FILE-SYSTEM-CALL/SERVER; empty: all.
    #[serde(default)]
    call: String,
    /// The question in SQL.
    #[serde(default)]
    sql: String,
}

/// Asks about one trace.
pub struct Asked {
    trace: PathBuf,
    active: AtomicUsize,
    /// Processes that answer.
    running: Mutex<Vec<Pid>>,
}

/// One of [`AT_ONCE`] questions.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Asked {
    /// About the trace at an absolute path.
    pub fn new(trace: PathBuf) -> Asked {
        Asked {
            trace,
            active: AtomicUsize::new(0),
            running: Mutex::default(),
        }
    }

    /// Ends all questions: the server ends.
    pub fn end(&self) {
        for child in self.running().drain(..) {
            end_group(child);
        }
    }

    fn running(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer as JSON: `answer`, as the question prints it with `--json`, or `error`.
    pub fn answer(&self, body: &[u8]) -> Response {
        let question: Question = match serde_json::from_slice(body) {
            Ok(question) => question,
            Err(e) => return Response::failure(400, &format!("this is no question: {e}")),
        };
        let place = Place(&self.active);
        if self.active.fetch_add(1, SeqCst) >= AT_ONCE {
            return Response::failure(503, "other questions are being answered; try again");
        }
        let told = match self.run(&question) {
            Ok(answer) => format!("{{\"answer\":{answer}}}"),
            Err(why) => json!({ "error": why }).to_string(),
        };
        drop(place);
        Response::new(200, "application/json", told)
    }

    fn run(&self, question: &Question) -> Result<String, String> {
        let me = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
        let mut command = Command::new(me);
        command
            .arg("trace")
            .args(arguments(question)?)
            .arg(&self.trace);
        match &*question.name {
            "sql" => drop(command.arg("-")),
            "follow" => drop(command.arg(&question.call)),
            _ => {}
        }
        // In a group of its own, which ends as a whole: `sql` starts others.
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot ask: {e}"))?;
        let number = Pid::from_child(&child);
        self.running().push(number);
        let answer = wait(&mut child, &question.sql);
        self.running().retain(|running| *running != number);
        let answer = answer?;
        // Checked and handed on as it is: in a `Value` the columns would lose their order.
        let text = String::from_utf8(answer).map_err(|e| format!("no answer: {e}"))?;
        serde_json::from_str::<serde::de::IgnoredAny>(&text)
            .map_err(|e| format!("no answer: {e}"))?;
        Ok(exact(&text))
    }
}

fn arguments(question: &Question) -> Result<Vec<String>, String> {
    let name = &*question.name;
    if name == "sql" {
        return match question.sql.trim() {
            "" => Err("the question is empty".into()),
            _ => Ok(["sql", "--json", "--locked"].map(str::to_owned).to_vec()),
        };
    }
    let Some((_, about_key)) = NAMES.iter().find(|(known, _)| *known == name) else {
        return Err(format!("there is no question `{name}`"));
    };
    // So a key is no option.
    let is_key = |c: char| c.is_ascii_alphanumeric() || "*/.".contains(c);
    if !question.call.chars().all(is_key) {
        return Err(format!(
            "`{}` is no key: PROCESS/CALL, such as 0/17",
            question.call
        ));
    }
    let mut words = vec![name.to_owned(), "--json".into()];
    match (name, question.call.is_empty()) {
        ("follow", true) => return Err("which call? Its key is PROCESS/CALL, such as 0/17".into()),
        ("follow", false) | (_, true) => {}
        _ if *about_key => words.extend(["--call".into(), question.call.clone()]),
        _ => {
            return Err(format!(
                "`{name}` is about the whole trace: leave the key empty"
            ));
        }
    }
    Ok(words)
}

/// What the child prints, or what went wrong.
fn wait(child: &mut Child, input: &str) -> Result<Vec<u8>, String> {
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("no pipes".into());
    };
    let read = |from: Box<dyn Read + Send>, most: u64| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.take(most).read_to_end(&mut bytes);
            bytes
        })
    };
    let printed = read(Box::new(stdout), MOST + 1);
    let told = read(Box::new(stderr), MOST_ERROR);
    // A question is shorter than a pipe holds, so this waits for nobody.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let until = Instant::now() + TIME;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < until && !printed.is_finished() => {
                std::thread::sleep(Duration::from_millis(5));
            }
            // The end of its output comes a moment before its own.
            Ok(None) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(200));
                break child.try_wait().ok().flatten();
            }
            _ => break None,
        }
    };
    if status.is_none() {
        end(child);
    }
    let printed = printed.join().unwrap_or_default();
    let told = String::from_utf8_lossy(&told.join().unwrap_or_default()).into_owned();
    if printed.len() as u64 > MOST {
        return Err(format!(
            "the answer has more than {} MiB: ask for less, or in a terminal",
            MOST >> 20
        ));
    }
    match status {
        Some(status) if status.success() => Ok(printed),
        Some(_) => Err(told.trim().to_owned()),
        None => Err(format!(
            "no answer in {} seconds: ask for less, or in a terminal",
            TIME.as_secs()
        )),
    }
}

/// Ends a child that runs, with all that it started. Its number is its group's until it has been waited for.
fn end(child: &mut Child) {
    end_group(Pid::from_child(child));
    let _ = child.wait();
}

fn end_group(first: Pid) {
    let _ = rustix::process::kill_process_group(first, rustix::process::Signal::KILL);
}

/// JSON with text in place of whole numbers of 16 digits and more, which browsers round. All else stays as it is, and
/// the columns in their order.
fn exact(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_length(rest),
            '-' | '0'..='9' => {
                let ends = |c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c));
                rest.find(ends).unwrap_or(rest.len())
            }
            _ => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        let is_long = length >= EXACT_DIGITS && token.bytes().all(|b| b.is_ascii_digit());
        if is_long {
            text.push_str(&format!("\"{token}\""));
        } else {
            text.push_str(token);
        }
        rest = behind;
    }
    text
}

/// Bytes of the string that a text begins with, quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str, call: &str, sql: &str) -> Result<Vec<String>, String> {
        arguments(&Question {
            name: name.into(),
            call: call.into(),
            sql: sql.into(),
        })
    }

    #[test]
    fn only_known_questions_become_arguments() {
        assert_eq!(words("breakdown", "", "").unwrap(), ["breakdown", "--json"]);
        assert_eq!(
            words("list", "0/*", "").unwrap(),
            ["list", "--json", "--call", "0/*"]
        );
        assert_eq!(
            words("sql", "", "select 1").unwrap(),
            ["sql", "--json", "--locked"]
        );
        for (name, call) in [
            ("generate", ""),
            ("export", ""),
            ("", ""),
            ("--help", ""),
            ("list", "--csv"),
            ("follow", "-h"),
            ("follow", ""),
            ("list", "0 1"),
            ("overview", "0/1"),
        ] {
            assert!(words(name, call, "").is_err(), "{name} {call}");
        }
        assert!(words("sql", "", " ").is_err());
    }

    #[test]
    fn large_numbers_are_text_and_all_else_stays() {
        let given = r#"{"z": [18446744073709551615, 5, -1.5e300], "a\"1234567890123456789": "1234567890123456789\\", "é": 1}"#;
        let told = r#"{"z": ["18446744073709551615", 5, -1.5e300], "a\"1234567890123456789": "1234567890123456789\\", "é": 1}"#;
        assert_eq!(exact(given), told);
        assert_eq!(exact("\"half"), "\"half");
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let asked = Asked::new("/nonexistent".into());
        for body in [
            &b""[..],
            b"{",
            b"[]",
            b"{\"name\": \"list\", \"more\": 1}",
            b"\xff",
        ] {
            assert_eq!(asked.answer(body).status, 400);
        }
        let told = asked.answer(b"{\"name\": \"nothing\"}");
        assert!(
            told.status == 200 && told.body.contains("error"),
            "{told:?}"
        );
    }
}
