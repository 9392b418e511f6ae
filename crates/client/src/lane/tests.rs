//! A lane against a server made of one vector, over a faulty wire. The wire delivers everything in odd chunks, loses
//! connections, forgets loops and lets capabilities expire.
use super::*;
use crate::memory::Memory;
use crate::operations::Op;
use crate::plan::Cutter;
use crate::stats::Form;
use penstock_datatype::{Loop, Pattern, Source, Target};
use penstock_layout::{Layout, ServerId};
use penstock_wire::message::{Region, TraceContext};
use proptest::prelude::*;
use rand_like::Dice;
use std::collections::HashSet;

mod rand_like {
    /// Small deterministic dice, so that a failing case shrinks to one number.
    pub struct Dice(pub u64);
    impl Dice {
        pub fn below(&mut self, n: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.0 >> 33) % n.max(1)
        }
    }
}

struct Fake {
    layout: Layout,
    server: ServerIndex,
    object: Vec<u8>,
    loops: HashSet<[u8; 16]>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// The write whose frames are coming in.
    current: Option<(Envelope, FileRegions, Vec<u8>, Option<DataReply>)>,
    known: Vec<([u8; 16], Loop)>,
    dice: Dice,
    expired: bool,
}

impl Fake {
    fn shape(&mut self, region: &Region) -> Option<FileRegions> {
        let of = |tile: Loop, disp, start, len| FileRegions::Loop {
            pattern: Pattern::new(disp, tile, start, len).unwrap(),
            dense: false,
        };
        Some(match region {
            Region::Contiguous { offset, len } => FileRegions::contiguous(*offset, *len),
            Region::List(l) => FileRegions::List(l.clone().into()),
            Region::LoopInline {
                encoded,
                disp,
                start,
                len,
            } => {
                let tile = Loop::decode(encoded).unwrap();
                self.loops.insert(tile.hash().0);
                self.known.push((tile.hash().0, tile.clone()));
                of(tile, *disp, *start, *len)
            }
            Region::LoopHash {
                hash,
                disp,
                start,
                len,
            } => {
                if self.dice.below(4) == 0 {
                    self.loops.remove(hash);
                }
                if !self.loops.contains(hash) {
                    return None;
                }
                let tile = self.known.iter().find(|k| k.0 == *hash).unwrap().1.clone();
                of(tile, *disp, *start, *len)
            }
        })
    }

    fn reply(&mut self, envelope: &Envelope, reply: &DataReply, payload: &[u8]) {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut rest = payload;
        while rest.len() > 1 && self.dice.below(2) == 0 {
            let (a, b) = rest.split_at(self.dice.below(rest.len() as u64) as usize);
            parts.push(a);
            rest = b;
        }
        for part in parts {
            let e = envelope.answer().more(true);
            frame::append::<()>(&mut self.outbox, 1, &e, None, part.len(), 0, &Limits::FULL)
                .unwrap();
            self.outbox.extend_from_slice(part);
        }
        let e = envelope.answer();
        frame::append(
            &mut self.outbox,
            1,
            &e,
            Some(reply),
            rest.len(),
            0,
            &Limits::FULL,
        )
        .unwrap();
        self.outbox.extend_from_slice(rest);
    }

    fn serve(&mut self) {
        loop {
            let Some(bytes) = self.inbox.first_chunk::<HEADER_LEN>() else {
                return;
            };
            let header = Header::decode(bytes, 1, &Limits::FULL).unwrap();
            let body_end = HEADER_LEN + header.body_len;
            let end = body_end + header.payload_len;
            if self.inbox.len() < end {
                return;
            }
            let frame: Vec<u8> = self.inbox.drain(..end).collect();
            let (body, payload) = (&frame[HEADER_LEN..body_end], &frame[body_end..]);
            if self.current.is_none() {
                let request: DataRequest = frame::decode_body(body).unwrap();
                if self.dice.below(20) == 0 {
                    self.expired = true;
                }
                let (region, write) = match request {
                    DataRequest::Write { region, .. } => (region, true),
                    DataRequest::Read { region, .. } => (region, false),
                    other => panic!("{other:?}"),
                };
                let shape = self.shape(&region);
                let verdict = if self.expired {
                    Some(DataReply::Error(WireError {
                        kind: ErrorKind::ExpiredCapability,
                        message: "expired".into(),
                    }))
                } else if shape.is_none() {
                    Some(DataReply::UnknownLoop)
                } else {
                    None
                };
                let shape = shape.unwrap_or(FileRegions::contiguous(0, 0));
                if !write {
                    match verdict {
                        Some(v) => self.reply(&header.envelope, &v, &[]),
                        None => self.read(&header.envelope, &shape),
                    }
                    continue;
                }
                self.current = Some((header.envelope, shape, Vec::new(), verdict));
            }
            let done = !header.envelope.more;
            let (envelope, _, bytes, _) = self.current.as_mut().unwrap();
            assert_eq!(envelope.request, header.envelope.request);
            bytes.extend_from_slice(payload);
            if !done {
                // Errors may come before the last frame.
                if let Some((e, _, _, verdict)) = &mut self.current
                    && let Some(v) = verdict
                    && *v != DataReply::Done
                {
                    let (e, v) = (*e, std::mem::replace(v, DataReply::Done));
                    self.reply(&e, &v, &[]);
                }
                continue;
            }
            let Some((envelope, shape, bytes, verdict)) = self.current.take() else {
                return;
            };
            match verdict {
                Some(DataReply::Done) => {}
                Some(v) => self.reply(&envelope, &v, &[]),
                None => {
                    let mut at = 0;
                    let object = &mut self.object;
                    shape.pieces(&self.layout, self.server, 0, |to, _, len| {
                        let (to, len) = (to as usize, len as usize);
                        if object.len() < to + len {
                            object.resize(to + len, 0);
                        }
                        object[to..to + len].copy_from_slice(&bytes[at..at + len]);
                        at += len;
                        true
                    });
                    assert_eq!(at, bytes.len(), "payload and region agree");
                    self.reply(&envelope, &DataReply::Written { bytes: at as u64 }, &[]);
                }
            }
        }
    }

    fn read(&mut self, envelope: &Envelope, shape: &FileRegions) {
        let mut bytes = Vec::new();
        let mut ended = false;
        let object = &self.object;
        shape.pieces(&self.layout, self.server, 0, |from, _, len| {
            let there = (object.len() as u64).saturating_sub(from).min(len);
            if !ended {
                bytes.extend_from_slice(
                    &object[(from as usize).min(object.len())..][..there as usize],
                );
            }
            ended |= there < len;
            true
        });
        let n = bytes.len() as u64;
        self.reply(envelope, &DataReply::Read { bytes: n }, &bytes);
    }
}

/// Drives one lane until it is idle; returns (operation, short) in the order of completion.
fn drive(
    lane: &mut Lane,
    fake: &mut Fake,
    common: &mut Common<'_, '_>,
    ops: impl Iterator<Item = (u64, FileRegions)>,
) -> Vec<(u32, Option<u64>)> {
    let mut ops = ops.peekable();
    let (mut done, mut events, mut stretches) = (Vec::new(), Vec::new(), Vec::new());
    lane.connected(1, 1, Buffers::default());
    for _ in 0..1_000_000 {
        while lane.is_open()
            && let Some((memory, shape)) = ops.next()
        {
            let weight = shape.len();
            let op = common.ops.add(Op {
                shape,
                memory,
                pending: 1,
                short: Vec::new(),
                refill: false,
            });
            lane.push(op, weight);
        }
        if !lane.is_busy() {
            assert!(ops.peek().is_none());
            return done;
        }
        if fake.dice.below(200) == 0 {
            // The connection is lost, and the server has forgotten what it was told.
            lane.lost();
            (fake.inbox, fake.outbox, fake.current) = (Vec::new(), Vec::new(), None);
            fake.loops.clear();
            let buffers = lane.disconnect();
            lane.connected(1, buffers.0, buffers.1);
            lane.attached(Handle(1), None);
        }
        if let Some(redo) = lane.wants_redo() {
            fake.expired = false;
            if redo.attach {
                lane.attached(Handle(1), None);
            } else {
                lane.redo();
            }
        }
        lane.fill(common, &mut events).unwrap();
        lane.outgoing(&mut stretches);
        let mut room = 1 + fake.dice.below(100_000) as usize;
        let mut sent = 0;
        for s in &stretches {
            let n = s.len.min(room);
            // SAFETY: the lane offers initialised bytes of its own or of the source.
            fake.inbox
                .extend_from_slice(unsafe { std::slice::from_raw_parts(s.base, n) });
            room -= n;
            sent += n;
        }
        lane.sent(sent);
        fake.serve();
        if lane.is_outstanding() && !fake.outbox.is_empty() {
            lane.incoming(common, &mut stretches);
            let mut n = 1 + fake.dice.below(fake.outbox.len() as u64) as usize;
            let mut got = 0;
            for s in &stretches {
                let k = s.len.min(n);
                let bytes: Vec<u8> = fake.outbox.drain(..k).collect();
                // SAFETY: the lane offers writable bytes of its own or of the target.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), s.base, k) };
                n -= k;
                got += k;
            }
            lane.received(got, common, &mut events).unwrap();
        }
        for event in events.drain(..) {
            match event {
                Event::Answered { op, short } => {
                    common.ops.remove(op);
                    done.push((op, short));
                }
                Event::Refused(e) => panic!("{e}"),
            }
        }
    }
    panic!("the lane does not come to an end");
}

fn pattern(seed: u64, len: u64) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(167) ^ (i >> 8) ^ seed) as u8)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn what_is_written_is_read(
        seed in any::<u64>(), unit in 1u64..5000, servers in 1u32..4, server in 0u32..4,
        count in 1u64..400, block in 1u64..600, gap in 0i64..400, form in 0usize..3,
        memory_gap in prop_oneof![Just(0i64), 1i64..9], times in 1u64..40, coarse in any::<bool>(),
    ) {
        let layout = Layout { stripe_unit: unit, servers: (0..servers).map(ServerId).collect() };
        let server = ServerIndex(server % servers);
        let tile = Loop::vector(count, block, block as i64 + gap, &Loop::bytes(1)).unwrap();
        let times = times.min(1 + 300_000 / tile.size());
        let form = [Form::Contiguous, Form::List, Form::Structured][form];
        let accesses: Vec<_> = (0..times).map(|i| {
            let at = i as i64 * tile.extent();
            (i * tile.size(), Pattern::new(at, tile.clone(), 0, tile.size()).unwrap())
        }).collect();
        let shapes = |layout: &Layout| {
            let mut cutter = Cutter::new(Arc::new(layout.clone()), form);
            let mut all = Vec::new();
            for (memory, access) in &accesses {
                cutter.put(*memory, access.clone());
                while let Some((m, s)) = cutter.next().unwrap() {
                    let mut touched = false;
                    s.touched(layout, |i| touched |= i == server);
                    if touched { all.push((m, s)); }
                }
            }
            all
        };
        let total = tile.size() * times;
        let memory_tile = Loop::bytes(8).resized(0, 8 + memory_gap).unwrap();
        let memory_pattern = Pattern::new(0, memory_tile, 0, total).unwrap();
        let span = memory_pattern.bounds().1 as usize;
        let source_bytes = pattern(seed, span as u64);
        let mut fake = Fake {
            layout: layout.clone(), server, object: Vec::new(), loops: HashSet::new(),
            inbox: Vec::new(), outbox: Vec::new(), current: None, known: Vec::new(),
            dice: Dice(seed), expired: false,
        };
        // SAFETY: the pattern's bounds are those of the vector.
        let mut source = unsafe { Source::new(source_bytes.as_ptr(), memory_pattern.clone()) };
        let known = Arc::new(KnownLoops::default());
        let layout = Arc::new(layout);
        {
            let mut common = Common::new(layout.clone(), Memory::From(&mut source), TraceContext::default());
            common.coarse = coarse;
            let mut lane = Lane::new(server, known.clone());
            drive(&mut lane, &mut fake, &mut common, shapes(&layout).into_iter());
        }
        // What this server holds, the slow way.
        let mut want = Vec::new();
        let mut stream_bytes = Vec::new();
        memory_pattern.for_each_run(|_, r| {
            stream_bytes.extend_from_slice(&source_bytes[r.offset as usize..][..r.len as usize]);
        });
        for (memory, access) in &accesses {
            access.for_each_run(|at, run| for k in 0..run.len {
                let file = run.offset as u64 + k;
                let (on, object) = layout.locate(penstock_layout::FileOffset(file));
                if on == server {
                    if want.len() <= object.0 as usize { want.resize(object.0 as usize + 1, 0); }
                    want[object.0 as usize] = stream_bytes[(memory + at + k) as usize];
                }
            });
        }
        prop_assert_eq!(&fake.object, &want);
        // And back, with a piece of the object cut off.
        let cut = fake.dice.below(want.len() as u64 + 1) as usize;
        if seed % 2 == 0 { fake.object.truncate(cut); }
        let mut target_bytes = vec![0xEE; span];
        // SAFETY: as above.
        let mut target = unsafe { Target::new(target_bytes.as_mut_ptr(), memory_pattern.clone()) };
        {
            let mut common = Common::new(layout.clone(), Memory::Into(&mut target), TraceContext::default());
            common.coarse = coarse;
            let mut lane = Lane::new(server, known);
            drive(&mut lane, &mut fake, &mut common, shapes(&layout).into_iter());
        }
        let mut expect = vec![0xEE; span];
        let mut offsets = Vec::new();
        memory_pattern.for_each_run(|_, r| offsets.extend((0..r.len).map(|k| r.offset as usize + k as usize)));
        for (memory, access) in &accesses {
            access.for_each_run(|at, run| for k in 0..run.len {
                let (on, object) = layout.locate(penstock_layout::FileOffset(run.offset as u64 + k));
                if on == server && (object.0 as usize) < fake.object.len() {
                    expect[offsets[(memory + at + k) as usize]] = fake.object[object.0 as usize];
                }
            });
        }
        prop_assert_eq!(target_bytes, expect);
    }
}
