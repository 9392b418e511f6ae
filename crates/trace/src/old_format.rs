//! The bytes of trace files of versions 1 and 2, which are still read: events of one server's requests.
//!
//! ```text
//! file    = header block* end
//! header  = "PSTTRACE" version:u32 length:u32 body:[u8; length] crc:u32     crc of all before
//! body    = server:u32 servers:u32 unit:u64 began:u64 repetitions:u32       further bytes are reserved
//! block   = "BLCK" count:u32 length:u32 payload:[u8; length] crc:u32        crc of all before, this block's
//! end     = "DONE" events:u64 dropped:u64 crc:u32
//! ```
//!
//! Numbers are little-endian. A block can be read without those before it: the tables of files and programs begin empty
//! in each block. Within a block, an event is a tag byte, the time since the event before, and the request's number. Of
//! its file, only differences from a prediction are stored; the file's last event gives the prediction. A usual arrival
//! takes about nine bytes, whatever the file. Differences are zigzag varints. Calls are counted by rank. So each is
//! stored as the difference to the last event of a rank with the same number modulo [`RANKS`].
//!
//! Version 1 has no rank and no calls: [`SAME_CALL`] is never set there, and nothing stands for them.
#[cfg(test)]
use crate::bits::{put, zigzag};
use crate::bits::{take, unzigzag};
use crate::event::{Event, Kind};
#[cfg(test)]
use penstock_base::Numbered;
use penstock_base::Op;

/// The newest version of this kind.
pub(crate) const VERSION: u32 = 2;
/// Oldest version that is read.
pub(crate) const OLDEST_VERSION: u32 = 1;

pub(crate) const MAGIC: &[u8; 8] = b"PSTTRACE";
pub(crate) const BLOCK: &[u8; 4] = b"BLCK";
pub(crate) const END: &[u8; 4] = b"DONE";
/// Bytes of a header's body as written here; a reader accepts more.
pub(crate) const BODY: usize = 28;
/// Largest body that is read.
pub(crate) const MAX_BODY: u32 = 4096;
/// Events of one block.
pub(crate) const BLOCK_EVENTS: usize = 16 << 10;
/// Most bytes that one event takes: tag and ten varints.
const EVENT_MOST: usize = 1 + 10 * 10;
/// Ranks of a block whose last calls are stored separately.
const RANKS: usize = 256;
/// Largest payload that is read.
pub(crate) const MAX_PAYLOAD: u32 = (BLOCK_EVENTS * EVENT_MOST) as u32;
/// Bytes of a block before its payload.
pub(crate) const BLOCK_HEAD: usize = 12;
/// Bytes of the end after its magic.
pub(crate) const END_TAIL: usize = 20;

/// What a trace records about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The data server that wrote it.
    pub server: u32,
    /// Data servers of its deployment.
    pub servers: u32,
    /// Stripe unit of the deployment, bytes.
    pub unit: u64,
    /// When the trace began, nanoseconds since 1970.
    pub began: u64,
    /// Repetitions that were merged into it; 1: written by a server.
    pub repetitions: u32,
}

impl Header {
    #[cfg(test)]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend((BODY as u32).to_le_bytes());
        out.extend(self.server.to_le_bytes());
        out.extend(self.servers.to_le_bytes());
        out.extend(self.unit.to_le_bytes());
        out.extend(self.began.to_le_bytes());
        out.extend(self.repetitions.to_le_bytes());
        let crc = crc32fast::hash(&out);
        out.extend(crc.to_le_bytes());
        out
    }

    /// `body` has at least [`BODY`] bytes.
    pub(crate) fn decode(body: &[u8]) -> Result<Header, String> {
        let header = Header {
            server: u32_at(body, 0),
            servers: u32_at(body, 4),
            unit: u64_at(body, 8),
            began: u64_at(body, 16),
            repetitions: u32_at(body, 24),
        };
        if header.unit == 0 || header.servers == 0 || header.repetitions == 0 {
            return Err("a stripe unit, number of servers or of repetitions of 0".into());
        }
        Ok(header)
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
pub(crate) fn encode_end(events: u64, dropped: u64) -> Vec<u8> {
    let mut out = END.to_vec();
    out.extend(events.to_le_bytes());
    out.extend(dropped.to_le_bytes());
    let crc = crc32fast::hash(&out);
    out.extend(crc.to_le_bytes());
    out
}

// The tag has the kind in bits 0–1 and write in bit 2. The other bits mark fields that equal their prediction and are
// left out.
const WRITE: u8 = 1 << 2;
const SAME_FILE: u8 = 1 << 3;
const CONTIGUOUS: u8 = 1 << 4;
const SAME_BYTES: u8 = 1 << 5;
const SAME_PROGRAM: u8 = 1 << 6;
/// Rank and calls are those of the file's last event.
const SAME_CALL: u8 = 1 << 7;

/// The number of a call, and its rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Call {
    rank: u32,
    mpi: u64,
    client: u64,
}

impl Call {
    fn of(event: &Event) -> Call {
        Call {
            rank: event.rank,
            mpi: event.mpi_call,
            client: event.client_call,
        }
    }
}

/// Values of a file's last events, from which the next one is predicted.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    file: u64,
    offset: u64,
    end: u64,
    bytes: u64,
    program: u64,
    call: Call,
}

/// The state of a block that encoder and decoder both have.
#[derive(Debug)]
struct Context {
    files: Vec<Known>,
    last_file: usize,
    at: u64,
    request: u64,
    /// By rank, modulo their number.
    calls: [Call; RANKS],
}

impl Context {
    fn new() -> Context {
        Context {
            files: Vec::new(),
            last_file: 0,
            at: 0,
            request: 0,
            calls: [Call::default(); RANKS],
        }
    }

    /// The last call of this rank, or of one that shares its place.
    fn last_call(&self, rank: u32) -> Call {
        self.calls[rank as usize % RANKS]
    }

    /// An arrival is predicted to follow the last arrival. Dispatches and completions mostly repeat an offset of a few
    /// events before.
    fn expected_offset(known: &Known, kind: Kind) -> u64 {
        match kind {
            Kind::Arrival => known.end,
            _ => known.offset,
        }
    }

    fn learn(&mut self, slot: usize, event: &Event) {
        self.at = event.at;
        self.request = event.request;
        self.last_file = slot;
        let known = &mut self.files[slot];
        known.offset = event.offset;
        known.bytes = event.bytes;
        known.program = event.program;
        known.call = Call::of(event);
        self.calls[event.rank as usize % RANKS] = known.call;
        if event.kind == Kind::Arrival {
            known.end = event.offset.wrapping_add(event.bytes);
        }
    }
}

/// Encodes one block.
#[cfg(test)]
pub(crate) fn encode_block(events: &[Event], out: &mut Vec<u8>) {
    debug_assert!(!events.is_empty() && events.len() <= BLOCK_EVENTS);
    let start = out.len();
    out.extend(BLOCK);
    out.extend((events.len() as u32).to_le_bytes());
    out.extend([0; 4]);
    let mut context = Context::new();
    let mut slots = Numbered::<u64, usize>::default();
    for event in events {
        let last = context.files.get(context.last_file);
        let known_slot = match last {
            Some(known) if known.file == event.file => Some(context.last_file),
            _ => slots.get(&event.file).copied(),
        };
        let slot = known_slot.unwrap_or(context.files.len());
        if known_slot.is_none() {
            slots.insert(event.file, slot);
            context.files.push(Known {
                file: event.file,
                ..Known::default()
            });
        }
        let known = context.files[slot];
        let expected = Context::expected_offset(&known, event.kind);
        let same_file = known_slot.is_some() && slot == context.last_file;
        let mut tag = event.kind as u8;
        let flags = [
            (event.op == Op::Write, WRITE),
            (same_file, SAME_FILE),
            (event.offset == expected, CONTIGUOUS),
            (event.bytes == known.bytes, SAME_BYTES),
            (event.program == known.program, SAME_PROGRAM),
            (Call::of(event) == known.call, SAME_CALL),
        ];
        for (set, flag) in flags {
            tag |= if set { flag } else { 0 };
        }
        out.push(tag);
        put(out, zigzag(event.at.wrapping_sub(context.at)));
        put(out, zigzag(event.request.wrapping_sub(context.request)));
        if !same_file {
            put(out, slot as u64);
            if known_slot.is_none() {
                put(out, event.file);
            }
        }
        if tag & CONTIGUOUS == 0 {
            put(out, zigzag(event.offset.wrapping_sub(expected)));
        }
        if tag & SAME_BYTES == 0 {
            put(out, event.bytes);
        }
        if tag & SAME_PROGRAM == 0 {
            put(out, event.program);
        }
        if tag & SAME_CALL == 0 {
            let last = context.last_call(event.rank);
            put(out, event.rank.into());
            put(out, zigzag(event.mpi_call.wrapping_sub(last.mpi)));
            put(out, zigzag(event.client_call.wrapping_sub(last.client)));
        }
        context.learn(slot, event);
    }
    let length = (out.len() - start - BLOCK_HEAD) as u32;
    out[start + 8..start + 12].copy_from_slice(&length.to_le_bytes());
    let crc = crc32fast::hash(&out[start..]);
    out.extend(crc.to_le_bytes());
}

/// Decodes a payload of this version whose checksum is right. Otherwise returns what is wrong with it.
pub(crate) fn decode_payload(
    version: u32,
    count: u32,
    payload: &[u8],
    out: &mut Vec<Event>,
) -> Result<(), String> {
    let mut bytes = payload;
    let mut context = Context::new();
    for _ in 0..count {
        out.push(decode_event(version, &mut bytes, &mut context)?);
    }
    match bytes.len() {
        0 => Ok(()),
        n => Err(format!("{n} bytes after its last event")),
    }
}

fn decode_event(version: u32, bytes: &mut &[u8], context: &mut Context) -> Result<Event, String> {
    let short = || "an event reaches beyond its block".to_string();
    let (&tag, rest) = bytes.split_first().ok_or_else(short)?;
    *bytes = rest;
    let mut get = || take(bytes).ok_or_else(short);
    let kind = match tag & 3 {
        0 => Kind::Arrival,
        1 => Kind::Dispatch,
        2 => Kind::Completion,
        _ => return Err("an event of an unknown kind".into()),
    };
    if version < 2 && tag & SAME_CALL != 0 {
        return Err("an event with unknown flags".into());
    }
    let at = context.at.wrapping_add(unzigzag(get()?));
    let request = context.request.wrapping_add(unzigzag(get()?));
    let slot = if tag & SAME_FILE != 0 {
        context.last_file
    } else {
        let slot = get()? as usize;
        if slot == context.files.len() {
            let file = get()?;
            context.files.push(Known {
                file,
                ..Known::default()
            });
        }
        slot
    };
    let known = *context
        .files
        .get(slot)
        .ok_or("an event of a file that was not named")?;
    let expected = Context::expected_offset(&known, kind);
    let offset = if tag & CONTIGUOUS != 0 {
        expected
    } else {
        expected.wrapping_add(unzigzag(get()?))
    };
    let bytes = if tag & SAME_BYTES != 0 {
        known.bytes
    } else {
        get()?
    };
    let program = if tag & SAME_PROGRAM != 0 {
        known.program
    } else {
        get()?
    };
    let call = if version < 2 || tag & SAME_CALL != 0 {
        known.call
    } else {
        let rank = get()?;
        let rank = u32::try_from(rank).map_err(|_| format!("an event of rank {rank}"))?;
        let last = context.last_call(rank);
        Call {
            rank,
            mpi: last.mpi.wrapping_add(unzigzag(get()?)),
            client: last.client.wrapping_add(unzigzag(get()?)),
        }
    };
    let event = Event {
        at,
        request,
        kind,
        op: if tag & WRITE != 0 {
            Op::Write
        } else {
            Op::Read
        },
        file: known.file,
        offset,
        bytes,
        program,
        rank: call.rank,
        mpi_call: call.mpi,
        client_call: call.client,
    };
    context.learn(slot, &event);
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_event() -> impl Strategy<Value = Event> {
        let op = prop_oneof![Just(Op::Read), Just(Op::Write)];
        let kind = prop_oneof![
            Just(Kind::Arrival),
            Just(Kind::Dispatch),
            Just(Kind::Completion)
        ];
        let number = || prop_oneof![0u64..8, any::<u64>()];
        (
            number(),
            number(),
            kind,
            op,
            number(),
            number(),
            number(),
            number(),
            (any::<u32>(), number(), number()),
        )
            .prop_map(
                |(at, request, kind, op, file, offset, bytes, program, call)| Event {
                    at,
                    request,
                    kind,
                    op,
                    file,
                    offset,
                    bytes,
                    program,
                    rank: call.0,
                    mpi_call: call.1,
                    client_call: call.2,
                },
            )
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back(events in proptest::collection::vec(any_event(), 1..60)) {
            let mut bytes = Vec::new();
            encode_block(&events, &mut bytes);
            let mut back = Vec::new();
            let payload = &bytes[BLOCK_HEAD..bytes.len() - 4];
            prop_assert!(payload.len() <= MAX_PAYLOAD as usize);
            decode_payload(VERSION, events.len() as u32, payload, &mut back).unwrap();
            prop_assert_eq!(back, events);
        }

        #[test]
        fn garbage_is_an_error_or_events_but_never_more(
            payload in proptest::collection::vec(any::<u8>(), 0..200),
            count in 0u32..100,
            version in OLDEST_VERSION..=VERSION,
        ) {
            let mut out = Vec::new();
            if decode_payload(version, count, &payload, &mut out).is_ok() {
                prop_assert_eq!(out.len(), count as usize);
            }
        }
    }

    #[test]
    fn regular_arrivals_are_small() {
        let events: Vec<Event> = (0..1000u64)
            .map(|i| Event {
                at: i * 20_000,
                request: i,
                kind: Kind::Arrival,
                op: Op::Write,
                file: 1 << 40 | (i % 8),
                offset: i / 8 * 65536,
                bytes: 65536,
                program: 77,
                rank: (i % 8) as u32,
                mpi_call: i / 8,
                client_call: 2 * (i / 8),
            })
            .collect();
        let mut bytes = Vec::new();
        encode_block(&events, &mut bytes);
        assert!(bytes.len() < 11 * 1000, "{}", bytes.len());
    }
}
