//! The payload of one block of records: what differs from what [`crate::model`] expects, and the times.
//!
//! ```text
//! payload = control:varint links:varint [control bytes] [link bytes] [bits of times]
//! control = (run surprise)* run?      records as expected, then one that is not; a run is left out where nothing follows
//! surprise= tag [slot [shape]] [id] [parent] [bytes] [offset]
//! tag     = bits 0-4: slot, id, parent, bytes, offset are written; bits 5-7: the run before it, 7: run - 7 follows as varint
//! slot    = varint; one past the last: a new shape follows
//! shape   = layer:u8 operation file error:zigzag thread server+1 code origin:u8 [program rank]     varints but for u8
//! id, parent, offset = zigzag of the distance from the expectation      bytes = varint
//! times   = for each record: begin, then end, as zigzag distances from expectations in Exp-Golomb codes
//! link    = record:varint tag:u8 [program rank] [call:zigzag] [bytes]     record: places since the last link's record
//! tag     = bits 0-1: call, flush, read-ahead, migration; 2: other program or rank; 3: other bytes than the last link;
//!           4: the call is not one more than the last one's
//! ```
use crate::bits::{BitReader, BitWriter, put, take, unzigzag, zigzag};
use crate::model::{Model, Origin, Shape, end_of};
use crate::operations::Operation;
use crate::record::{Caller, Layer, Link, Owner, Parent, Record};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// Most records of a block.
pub(crate) const RECORDS: usize = 16 << 10;
/// Most links of a block.
pub(crate) const LINKS: usize = 64 << 10;
/// Largest payload that is read: a record takes 100 bytes and a link 45 at most.
pub(crate) const MAX_PAYLOAD: u32 = (RECORDS * 128 + LINKS * 48) as u32;

const SLOT: u8 = 1;
const ID: u8 = 1 << 1;
const PARENT: u8 = 1 << 2;
const BYTES: u8 = 1 << 3;
const OFFSET: u8 = 1 << 4;
const RUN_SHIFT: u32 = 5;
const LONG_RUN: u64 = 7;

const CALLER: u8 = 1 << 2;
const LINK_BYTES: u8 = 1 << 3;
const LINK_CALL: u8 = 1 << 4;

type Slots = HashMap<Shape, usize, BuildHasherDefault<penstock_base::Product>>;

/// Encodes blocks, one after the other; keeps its memory.
#[derive(Debug)]
pub(crate) struct Encoder {
    model: Model,
    slots: Slots,
    control: Vec<u8>,
    links: Vec<u8>,
    times: BitWriter,
}

impl Encoder {
    pub(crate) fn new() -> Encoder {
        Encoder {
            model: Model::new(),
            slots: Slots::default(),
            control: Vec::new(),
            links: Vec::new(),
            times: BitWriter::default(),
        }
    }

    /// Appends the payload of these records and links. A link names its record by place; they are in the order of records.
    pub(crate) fn payload(&mut self, records: &[Record], links: &[(u32, Link)], out: &mut Vec<u8>) {
        self.model.clear();
        self.slots.clear();
        self.control.clear();
        self.links.clear();
        self.times.clear();
        let mut run = 0;
        for record in records {
            self.record(record, &mut run);
        }
        encode_links(links, &mut self.links);
        put(out, self.control.len() as u64);
        put(out, self.links.len() as u64);
        out.extend_from_slice(&self.control);
        out.extend_from_slice(&self.links);
        out.extend_from_slice(self.times.bytes());
    }

    fn record(&mut self, record: &Record, run: &mut u64) {
        let shape = Shape::of(record);
        let model = &mut self.model;
        let follower = model.follower();
        let expected_slot = follower.map(|place| model.slot_at(place));
        let same = expected_slot.is_some_and(|slot| model.slots[slot].shape == shape);
        let (slot, new) = match expected_slot {
            Some(slot) if same => (slot, false),
            _ => match self.slots.get(&shape) {
                Some(slot) => (*slot, false),
                None => (model.add(shape), true),
            },
        };
        if new {
            self.slots.insert(shape, slot);
        }
        let follower = follower.filter(|_| same);
        let expected = model.expect(slot, follower);
        let parent = match record.parent {
            Parent::None => 0,
            Parent::Here(id) => id,
            Parent::Caller(caller) => caller.call,
        };
        let expected_parent = match record.parent {
            Parent::None => 0,
            _ => expected.parent(record.id),
        };
        let mut tag = 0;
        for (differs, flag) in [
            (!same, SLOT),
            (record.id != expected.id, ID),
            (parent != expected_parent, PARENT),
            (record.bytes != expected.bytes, BYTES),
            (record.offset != expected.offset, OFFSET),
        ] {
            tag |= if differs { flag } else { 0 };
        }
        if tag == 0 {
            *run += 1;
        } else {
            let out = &mut self.control;
            out.push(tag | ((*run).min(LONG_RUN) as u8) << RUN_SHIFT);
            if *run >= LONG_RUN {
                put(out, *run - LONG_RUN);
            }
            *run = 0;
            if tag & SLOT != 0 {
                put(out, slot as u64);
                if new {
                    encode_shape(&shape, out);
                }
            }
            if tag & ID != 0 {
                put(out, zigzag(record.id.wrapping_sub(expected.id)));
            }
            if tag & PARENT != 0 {
                put(out, zigzag(parent.wrapping_sub(expected_parent)));
            }
            if tag & BYTES != 0 {
                put(out, record.bytes);
            }
            if tag & OFFSET != 0 {
                put(out, zigzag(record.offset.wrapping_sub(expected.offset)));
            }
        }
        let begin = model.expect_begin(slot);
        let distance = zigzag(record.begin.wrapping_sub(begin.at));
        self.times.golomb(distance, begin.order);
        let end = model.expect_end(slot, record.begin);
        let distance = zigzag(end_of(record).wrapping_sub(end.at));
        self.times.golomb(distance, end.order);
        model.learn(slot, follower, record);
    }
}

fn encode_shape(shape: &Shape, out: &mut Vec<u8>) {
    out.push(shape.layer as u8);
    put(out, shape.operation.into());
    put(out, shape.file.into());
    put(out, zigzag(i64::from(shape.error).cast_unsigned()));
    put(out, shape.thread.into());
    put(out, shape.server.wrapping_add(1).into());
    put(out, shape.code);
    match shape.origin {
        Origin::None => out.push(0),
        Origin::Here => out.push(1),
        Origin::Caller { program, rank } => {
            out.push(2);
            put(out, program);
            put(out, rank.into());
        }
    }
}

fn encode_links(links: &[(u32, Link)], out: &mut Vec<u8>) {
    let mut place = 0;
    let mut last = Caller::default();
    let mut bytes = 0;
    for (record, link) in links {
        put(out, (record - place).into());
        place = *record;
        let mut tag = match link.owner {
            Owner::Call(_) => 0,
            Owner::Flush => 1,
            Owner::ReadAhead => 2,
            Owner::Migration => 3,
        };
        let caller = match link.owner {
            Owner::Call(caller) => caller,
            _ => Caller {
                call: last.call.wrapping_add(1),
                ..last
            },
        };
        let next = last.call.wrapping_add(1);
        for (differs, flag) in [
            (
                (caller.program, caller.rank) != (last.program, last.rank),
                CALLER,
            ),
            (link.bytes != bytes, LINK_BYTES),
            (caller.call != next, LINK_CALL),
        ] {
            tag |= if differs { flag } else { 0 };
        }
        out.push(tag);
        if tag & CALLER != 0 {
            put(out, caller.program);
            put(out, caller.rank.into());
        }
        if tag & LINK_CALL != 0 {
            put(out, zigzag(caller.call.wrapping_sub(next)));
        }
        if tag & LINK_BYTES != 0 {
            put(out, link.bytes);
        }
        if let Owner::Call(caller) = link.owner {
            last = caller;
        }
        bytes = link.bytes;
    }
}

/// Decodes blocks, one after the other; keeps its memory.
#[derive(Debug)]
pub(crate) struct Decoder(Model);

const SHORT: &str = "a record reaches beyond its block";

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder(Model::new())
    }

    /// Appends the records and links of a payload; what is wrong with it otherwise.
    pub(crate) fn payload(
        &mut self,
        payload: &[u8],
        records: u32,
        links: u32,
        out: &mut Vec<Record>,
        linked: &mut Vec<(u32, Link)>,
    ) -> Result<(), String> {
        self.0.clear();
        let mut bytes = payload;
        let control = take(&mut bytes).ok_or(SHORT)?;
        let link_bytes = take(&mut bytes).ok_or(SHORT)?;
        let (mut control, rest) = split(bytes, control)?;
        let (link_bytes, times) = split(rest, link_bytes)?;
        let mut times = BitReader::new(times);
        let (mut run, mut tag) = next_surprise(&mut control)?;
        for _ in 0..records {
            if run > 0 {
                run -= 1;
                out.push(self.record(0, &mut control, &mut times)?);
            } else {
                out.push(self.record(tag, &mut control, &mut times)?);
                (run, tag) = next_surprise(&mut control)?;
            }
        }
        if !control.is_empty() || !(run == u64::MAX || run > u64::MAX - u64::from(records) - 1) {
            return Err("more records than it counts".into());
        }
        if !times.is_over() {
            return Err("bytes behind its last time".into());
        }
        decode_links(link_bytes, records, links, linked)
    }

    fn record(
        &mut self,
        tag: u8,
        control: &mut &[u8],
        times: &mut BitReader<'_>,
    ) -> Result<Record, String> {
        let model = &mut self.0;
        let mut get = || take(control).ok_or(SHORT);
        let mut follower = model.follower();
        let slot = match follower {
            Some(place) if tag & SLOT == 0 => model.slot_at(place),
            None if tag & SLOT == 0 => return Err("a record of no kind".into()),
            _ => {
                follower = None;
                let slot = usize::try_from(get()?).map_err(|_| SHORT)?;
                match slot.cmp(&model.slots.len()) {
                    std::cmp::Ordering::Less => slot,
                    std::cmp::Ordering::Equal => model.add(decode_shape(control)?),
                    std::cmp::Ordering::Greater => {
                        return Err("a record of a kind that was not named".into());
                    }
                }
            }
        };
        let mut get = || take(control).ok_or(SHORT);
        let expected = model.expect(slot, follower);
        let mut differ = |flag, expected: u64| -> Result<u64, String> {
            Ok(match tag & flag {
                0 => expected,
                _ => expected.wrapping_add(unzigzag(get()?)),
            })
        };
        let shape = model.slots[slot].shape;
        let id = differ(ID, expected.id)?;
        let parent = match shape.origin {
            Origin::None => Parent::None,
            Origin::Here => Parent::Here(differ(PARENT, expected.parent(id))?),
            Origin::Caller { program, rank } => Parent::Caller(Caller {
                program,
                rank,
                call: differ(PARENT, expected.parent(id))?,
            }),
        };
        let bytes = match tag & BYTES {
            0 => expected.bytes,
            _ => take(control).ok_or(SHORT)?,
        };
        let offset = match tag & OFFSET {
            0 => expected.offset,
            _ => expected
                .offset
                .wrapping_add(unzigzag(take(control).ok_or(SHORT)?)),
        };
        let time = model.expect_begin(slot);
        let begin = times.golomb(time.order).ok_or(SHORT)?;
        let begin = time.at.wrapping_add(unzigzag(begin));
        let time = model.expect_end(slot, begin);
        let end = times.golomb(time.order).ok_or(SHORT)?;
        let end = time.at.wrapping_add(unzigzag(end));
        let record = Record {
            id,
            parent,
            layer: shape.layer,
            operation: Operation(shape.operation),
            file: shape.file,
            offset,
            bytes,
            begin,
            duration: end.wrapping_sub(begin),
            error: shape.error,
            thread: shape.thread,
            server: shape.server,
            code: shape.code,
        };
        model.learn(slot, follower, &record);
        Ok(record)
    }
}

fn split(bytes: &[u8], at: u64) -> Result<(&[u8], &[u8]), String> {
    let at = usize::try_from(at).map_err(|_| SHORT)?;
    bytes.split_at_checked(at).ok_or_else(|| SHORT.into())
}

/// The run of expected records before the next surprise, and its tag. Behind the last one everything is as expected.
fn next_surprise(control: &mut &[u8]) -> Result<(u64, u8), String> {
    let Some((&byte, rest)) = control.split_first() else {
        return Ok((u64::MAX, 0));
    };
    *control = rest;
    let tag = byte & ((1 << RUN_SHIFT) - 1);
    if tag == 0 {
        return Err("a surprise that is none".into());
    }
    let mut run = u64::from(byte >> RUN_SHIFT);
    if run == LONG_RUN {
        run += take(control).ok_or(SHORT)?.min(RECORDS as u64);
    }
    Ok((run, tag))
}

fn decode_shape(bytes: &mut &[u8]) -> Result<Shape, String> {
    fn byte(bytes: &mut &[u8]) -> Result<u8, String> {
        let (&first, rest) = bytes.split_first().ok_or(SHORT)?;
        *bytes = rest;
        Ok(first)
    }
    fn small(bytes: &mut &[u8]) -> Result<u32, String> {
        let value = take(bytes).ok_or(SHORT)?;
        u32::try_from(value).map_err(|_| format!("{value} where 32 bits are possible"))
    }
    let layer = byte(bytes)?;
    let layer = Layer::from_number(layer).ok_or(format!("a record of unknown layer {layer}"))?;
    let operation = take(bytes).ok_or(SHORT)?;
    let operation =
        u16::try_from(operation).map_err(|_| format!("an operation of number {operation}"))?;
    let file = small(bytes)?;
    let error = unzigzag(take(bytes).ok_or(SHORT)?).cast_signed();
    let error = i32::try_from(error).map_err(|_| format!("an error of number {error}"))?;
    let thread = small(bytes)?;
    let server = small(bytes)?.wrapping_sub(1);
    let code = take(bytes).ok_or(SHORT)?;
    let origin = match byte(bytes)? {
        0 => Origin::None,
        1 => Origin::Here,
        2 => Origin::Caller {
            program: take(bytes).ok_or(SHORT)?,
            rank: small(bytes)?,
        },
        other => return Err(format!("a parent of unknown kind {other}")),
    };
    Ok(Shape {
        layer,
        operation,
        file,
        error,
        thread,
        server,
        code,
        origin,
    })
}

fn decode_links(
    mut bytes: &[u8],
    records: u32,
    links: u32,
    out: &mut Vec<(u32, Link)>,
) -> Result<(), String> {
    const SHORT: &str = "a link reaches beyond its block";
    let mut place = 0u64;
    let mut last = Caller::default();
    let mut last_bytes = 0;
    for _ in 0..links {
        place = place.saturating_add(take(&mut bytes).ok_or(SHORT)?);
        if place >= u64::from(records) {
            return Err("a link of a record that is not there".into());
        }
        let (&tag, rest) = bytes.split_first().ok_or(SHORT)?;
        bytes = rest;
        let mut caller = last;
        if tag & CALLER != 0 {
            caller.program = take(&mut bytes).ok_or(SHORT)?;
            let rank = take(&mut bytes).ok_or(SHORT)?;
            caller.rank = u32::try_from(rank).map_err(|_| format!("a link of rank {rank}"))?;
        }
        caller.call = last.call.wrapping_add(1);
        if tag & LINK_CALL != 0 {
            let distance = unzigzag(take(&mut bytes).ok_or(SHORT)?);
            caller.call = caller.call.wrapping_add(distance);
        }
        if tag & LINK_BYTES != 0 {
            last_bytes = take(&mut bytes).ok_or(SHORT)?;
        }
        let owner = match tag & 3 {
            0 => Owner::Call(caller),
            1 => Owner::Flush,
            2 => Owner::ReadAhead,
            _ => Owner::Migration,
        };
        if let Owner::Call(caller) = owner {
            last = caller;
        }
        let link = Link {
            owner,
            bytes: last_bytes,
        };
        out.push((place as u32, link));
    }
    match bytes.len() {
        0 => Ok(()),
        n => Err(format!("{n} bytes behind its last link")),
    }
}
