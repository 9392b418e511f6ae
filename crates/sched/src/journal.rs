//! A journal of all calls of a scheduler with their answers, so that its decisions can be checked elsewhere.
//!
//! A scheduler's decisions depend on its calls only. The journal ([`crate::Scheduler::keep`]) can be replayed on
//! another scheduler and the answers compared. A call is one line of text:
//!
//! ```text
//! set NOW NAME=VALUE...                                  options, at first and after each change
//! add NOW ID FILE r|w OFFSET END BYTES PROGRAM ok|no     END: one past the last byte
//! ask NOW serve ID FILE r|w OFFSET END BYTES ARRIVED PARTS DIGEST
//! ask NOW wait UNTIL                                     or: ask NOW idle
//! end NOW ID ok|no                                       a virtual request has been served
//! group NOW ALGORITHM [ALGORITHM=FILEr|w,...]...         that of all files, and of those that have another one
//! guess FILE r|w BYTES                                   a prediction
//! told WAIT                                              during the next ask: so long would waiting for company pay
//! note TEXT                                              of the shell around it
//! ```
use crate::{Groups, Nanos, Next, Op, Options, Request, VirtualRequest};
use std::fmt;
use std::str::FromStr;

/// One call of a scheduler, with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// New options.
    Set {
        /// Time of the call.
        now: Nanos,
        /// The options.
        options: Box<Options>,
    },
    /// New groups of files.
    Group {
        /// Time of the call.
        now: Nanos,
        /// The groups.
        groups: Box<Groups>,
    },
    /// A request arrived.
    Add {
        /// Time of the call.
        now: Nanos,
        /// The request.
        request: Request,
        /// One past its last byte.
        end: u64,
        /// Whether it was accepted.
        taken: bool,
    },
    /// The scheduler was asked what to do.
    Ask {
        /// Time of the call.
        now: Nanos,
        /// The answer.
        answer: Next,
        /// The parts of the virtual request, in order: [`digest`] of their ids; 0 for other answers.
        parts: u64,
    },
    /// A virtual request has been served.
    End {
        /// Time of the call.
        now: Nanos,
        /// Its id.
        id: u64,
        /// Whether it was being served.
        known: bool,
    },
    /// A prediction: bytes of a file that will have been requested in the end.
    Guess {
        /// The file.
        file: u64,
        /// The operation.
        op: Op,
        /// Bytes.
        bytes: u64,
    },
    /// While computing its next answer it asked whether to wait for aggregation, and got this answer.
    Told {
        /// How long to wait.
        wait: Nanos,
    },
    /// A remark of the scheduler's caller.
    Note(Box<str>),
}

/// Receives each call. It must return quickly: the scheduler's caller waits.
pub trait Journal: Send + Sync + fmt::Debug {
    /// Receives one call with its answer.
    fn call(&self, call: Call);
}

/// A hash of a sequence of ids (FNV-1a over whole numbers).
pub fn digest(ids: impl Iterator<Item = u64>) -> u64 {
    ids.fold(0xcbf2_9ce4_8422_2325, |sum, id| {
        (sum ^ id).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    })
}

fn letter(op: Op) -> char {
    match op {
        Op::Read => 'r',
        Op::Write => 'w',
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |yes: bool| if yes { "ok" } else { "no" };
        match self {
            Call::Set { now, options } => {
                write!(f, "set {now}")?;
                let settings = options.settings();
                settings
                    .iter()
                    .try_for_each(|(name, value)| write!(f, " {name}={value}"))
            }
            Call::Add {
                now,
                request: r,
                end,
                taken,
            } => write!(
                f,
                "add {now} {} {} {} {} {end} {} {} {} {}",
                r.id,
                r.file,
                letter(r.op),
                r.offset,
                r.bytes,
                r.program,
                r.process,
                word(*taken)
            ),
            Call::Ask { now, answer, parts } => match answer {
                Next::Dispatch(v) => write!(
                    f,
                    "ask {now} serve {} {} {} {} {} {} {} {} {parts:x}",
                    v.id,
                    v.file,
                    letter(v.op),
                    v.offset,
                    v.end,
                    v.bytes,
                    v.arrived,
                    v.parts
                ),
                Next::WaitUntil(until) => write!(f, "ask {now} wait {until}"),
                Next::Idle => write!(f, "ask {now} idle"),
            },
            Call::End { now, id, known } => write!(f, "end {now} {id} {}", word(*known)),
            Call::Group { now, groups } => write!(f, "group {now} {groups}"),
            Call::Guess { file, op, bytes } => write!(f, "guess {file} {} {bytes}", letter(*op)),
            Call::Told { wait } => write!(f, "told {wait}"),
            Call::Note(text) => write!(f, "note {text}"),
        }
    }
}

/// A line that cannot be parsed as a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no call of a scheduler")]
pub struct NoCall(String);

impl FromStr for Call {
    type Err = NoCall;

    fn from_str(line: &str) -> Result<Call, NoCall> {
        parse(line).ok_or_else(|| NoCall(line.chars().take(200).collect()))
    }
}

fn parse(line: &str) -> Option<Call> {
    let (kind, rest) = line.split_once(' ')?;
    if kind == "note" {
        return Some(Call::Note(rest.into()));
    }
    if kind == "group" {
        let (now, groups) = rest.split_once(' ')?;
        return Some(Call::Group {
            now: now.parse().ok()?,
            groups: Box::new(groups.parse().ok()?),
        });
    }
    let mut words = rest.split(' ');
    let call = match kind {
        "set" => {
            let now = number(&mut words)?;
            let mut options = Box::<Options>::default();
            for word in words.by_ref() {
                let (name, value) = word.split_once('=')?;
                options.set(name, value).ok()?;
            }
            Call::Set { now, options }
        }
        "add" => {
            let now = number(&mut words)?;
            let (id, file) = (number(&mut words)?, number(&mut words)?);
            let op = op(&mut words)?;
            let (offset, end) = (number(&mut words)?, number(&mut words)?);
            let bytes = number(&mut words)?;
            let program = number(&mut words)?;
            let process = number(&mut words)?.try_into().ok()?;
            Call::Add {
                now,
                request: Request {
                    id,
                    file,
                    op,
                    offset,
                    bytes,
                    program,
                    process,
                },
                end,
                taken: yes(&mut words)?,
            }
        }
        "ask" => {
            let now = number(&mut words)?;
            let (answer, parts) = match words.next()? {
                "idle" => (Next::Idle, 0),
                "wait" => (Next::WaitUntil(number(&mut words)?), 0),
                "serve" => {
                    let v = virtual_request(&mut words)?;
                    let parts = u64::from_str_radix(words.next()?, 16).ok()?;
                    (Next::Dispatch(v), parts)
                }
                _ => return None,
            };
            Call::Ask { now, answer, parts }
        }
        "end" => Call::End {
            now: number(&mut words)?,
            id: number(&mut words)?,
            known: yes(&mut words)?,
        },
        "guess" => Call::Guess {
            file: number(&mut words)?,
            op: op(&mut words)?,
            bytes: number(&mut words)?,
        },
        "told" => Call::Told {
            wait: number(&mut words)?,
        },
        _ => return None,
    };
    words.next().is_none().then_some(call)
}

type Words<'a> = std::str::Split<'a, char>;

fn virtual_request(words: &mut Words<'_>) -> Option<VirtualRequest> {
    let (id, file) = (number(words)?, number(words)?);
    let op = op(words)?;
    let (offset, end) = (number(words)?, number(words)?);
    let (bytes, arrived) = (number(words)?, number(words)?);
    Some(VirtualRequest {
        id,
        file,
        op,
        offset,
        end,
        bytes,
        parts: number(words)?.try_into().ok()?,
        arrived,
    })
}

fn number(words: &mut Words<'_>) -> Option<u64> {
    words.next()?.parse().ok()
}

fn op(words: &mut Words<'_>) -> Option<Op> {
    match words.next()? {
        "r" => Some(Op::Read),
        "w" => Some(Op::Write),
        _ => None,
    }
}

fn yes(words: &mut Words<'_>) -> Option<bool> {
    match words.next()? {
        "ok" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Scheduler};
    use std::sync::{Arc, Mutex};

    #[derive(Debug, Default)]
    struct Log(Mutex<Vec<Call>>);

    impl Journal for Log {
        fn call(&self, call: Call) {
            self.0.lock().unwrap().push(call);
        }
    }

    #[test]
    fn each_call_is_written_down_and_read_back() {
        let log = Arc::new(Log::default());
        let mut scheduler = Scheduler::new(Options {
            algorithm: Algorithm::Aioli,
            weights: vec![(1, 4), (2, 1)],
            starvation_bound: Some(7),
            queue_limit: 3,
            ..Options::default()
        })
        .unwrap();
        scheduler.keep(Some(log.clone()));
        let request = |id, offset| Request {
            id,
            file: 9,
            op: Op::Write,
            offset,
            bytes: 10,
            program: 2,
            process: 0,
        };
        for (id, offset) in [(0, 10), (1, 0), (2, 500), (3, 600)] {
            assert_eq!(scheduler.add(5, request(id, offset)).is_ok(), id < 3);
        }
        let Next::Dispatch(v) = scheduler.next(6) else {
            panic!("nothing to serve")
        };
        assert_eq!(v.parts, 2);
        scheduler.next_expecting(6, &mut |_, _| 7);
        scheduler.predict(9, Op::Write, 4096);
        scheduler.completed(8, v.id).unwrap();
        assert!(scheduler.completed(8, v.id).is_err());
        scheduler.next(9);
        scheduler.switch(10, Algorithm::Wfq).unwrap();
        let groups: crate::Groups = "sjf aioli=9w".parse().unwrap();
        scheduler.regroup(11, groups).unwrap();
        scheduler.note("two words");
        let calls = log.0.lock().unwrap().clone();
        let kinds: Vec<String> = calls
            .iter()
            .map(|c| c.to_string().split(' ').next().unwrap().to_owned())
            .collect();
        let expected = "set add add add add ask ask guess end end ask set group note";
        assert_eq!(kinds.join(" "), expected);
        for call in &calls {
            assert_eq!(call.to_string().parse().as_ref(), Ok(call));
        }
        assert_eq!(
            calls[5].to_string(),
            format!(
                "ask 6 serve {} 9 w 0 20 20 5 2 {:x}",
                v.id,
                digest([1, 0].into_iter())
            )
        );
    }

    #[test]
    fn what_is_no_call_is_refused() {
        for line in [
            "",
            "add",
            "add 1 2 3",
            "ask 5 perhaps",
            "end 1 2 ok more",
            "set 3 colour=red",
            "add 1 1 1 x 1 1 1 1 ok",
            "ask 1 serve 1 1 r 0 9 9 0 1 zz",
            "guess 1 r -1",
            "group 1 oak",
            "group 1 sjf to=3",
        ] {
            let error = line.parse::<Call>().unwrap_err().to_string();
            assert!(error.contains("no call"), "{error}");
        }
        assert!("x".repeat(5000).parse::<Call>().unwrap_err().0.len() == 200);
    }
}
