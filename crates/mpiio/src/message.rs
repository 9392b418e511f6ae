//! Messages from one rank to another within a collective call, as bytes.
//!
//! Problem: a call may end on one rank before it has received all messages to it. The next call must not take them for
//! its own. Idea: a message contains the number of its call. Messages of earlier calls are dropped.
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | number of the call, the same on all ranks |
//! | 1 | kind: words, failed, gone |
//! | 32, or rest | the words; the error |
use crate::comm::{Comm, decode_outcome, encode_outcome, shortened};
use crate::error::{Error, ErrorClass, Result};
use crate::methods::plan::Words;

const WORDS: u8 = 0;
const FAILED: u8 = 1;
const GONE: u8 = 2;
/// Bytes before the words or the error.
const HEAD: usize = 9;
/// Longest text of an error in a message: however it is escaped, it fits.
const MAX_TEXT: usize = 512;

/// A message to another rank.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    Words(Words),
    /// Instead of words: the sender's own operations have failed. Its plan continues.
    Failed(Error),
    /// The sender's plan has ended early; no more messages follow in this call.
    Gone(Error),
}

impl Message {
    /// Sends the message to a rank.
    pub(crate) fn send(&self, comm: &dyn Comm, peer: usize, call: u64) -> Result<()> {
        let mut out = call.to_le_bytes().to_vec();
        match self {
            Message::Words(words) => {
                out.push(WORDS);
                out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            }
            Message::Failed(e) | Message::Gone(e) => {
                out.push(if matches!(self, Message::Gone(_)) {
                    GONE
                } else {
                    FAILED
                });
                out.extend(encode_outcome::<()>(&Err(shortened(e, MAX_TEXT))));
            }
        }
        comm.tell(peer, &out)
    }

    /// Receives the next message of a rank in this call.
    pub(crate) fn receive(comm: &dyn Comm, peer: usize, call: u64) -> Result<Message> {
        loop {
            let bytes = comm.hear(peer)?;
            match Message::parse(peer, &bytes) {
                Some((of, _)) if of < call => {}
                Some((of, message)) if of == call => return Ok(message),
                Some((of, _)) => {
                    let says =
                        format!("rank {peer} is at call {of} already, and this rank at {call}");
                    return Err(Error::new(ErrorClass::Comm, says));
                }
                None => {
                    let says = format!(
                        "rank {peer} said something unreadable; all ranks must run the same library"
                    );
                    return Err(Error::new(ErrorClass::Intern, says));
                }
            }
        }
    }

    fn parse(peer: usize, bytes: &[u8]) -> Option<(u64, Message)> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let (call, kind) = head.split_first_chunk()?;
        let error = || decode_outcome(peer, rest).err();
        let message = match *kind {
            [WORDS] => {
                let (words, after) = rest.as_chunks();
                let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                Message::Words(words.try_into().ok().filter(|_| after.is_empty())?)
            }
            [FAILED] => Message::Failed(error()?),
            [GONE] => Message::Gone(error()?),
            _ => return None,
        };
        Some((u64::from_le_bytes(*call), message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;

    #[test]
    fn letters_of_earlier_calls_are_thrown_away() {
        let lost = || Error::new(ErrorClass::Io, "x\n".repeat(100_000));
        run(2, |comm| {
            if comm.rank() == 0 {
                Message::Words([1; 4]).send(&comm, 1, 6).unwrap();
                Message::Gone(lost()).send(&comm, 1, 6).unwrap();
                Message::Words([1, 2, 3, u64::MAX])
                    .send(&comm, 1, 7)
                    .unwrap();
                Message::Failed(lost()).send(&comm, 1, 7).unwrap();
                Message::Words([4; 4]).send(&comm, 1, 9).unwrap();
            } else {
                let next = || Message::receive(&comm, 0, 7);
                assert_eq!(next().unwrap(), Message::Words([1, 2, 3, u64::MAX]));
                let Message::Failed(e) = next().unwrap() else {
                    panic!("the failure was not heard");
                };
                assert!(e.class == ErrorClass::Io && e.message.starts_with("rank 0: x\nx"));
                let e = next().unwrap_err();
                assert!(e.message.contains("at call 9"), "{e}");
                // A rank whose plan has ended sends nothing more.
                assert_eq!(next().unwrap_err().class, ErrorClass::Comm);
            }
        });
    }

    #[test]
    fn what_is_no_letter_is_unreadable() {
        for bytes in [&b""[..], &[0; 9], &[0; 40], &[0; 49], &[9; 41], &[1; 9]] {
            assert_eq!(Message::parse(0, bytes), None, "{bytes:?}");
        }
        assert!(Message::parse(0, &[0; 41]).is_some());
    }
}
