//! Executions against whole files kept as vectors of bytes.
use penstock_datatype::{Loop, Pattern, Source, Target};
use penstock_layout::{FileId, FileOffset, Layout, ObjectOffset, ServerId, ServerIndex};
use penstock_store::{
    Descriptor, Execution, Mapped, Maps, Object, Scratch, Store, StoreError, open,
};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// One file striped over objects in memory, and the same file as a vector.
struct Striped {
    layout: Layout,
    _stores: Vec<Box<dyn Store>>,
    objects: Vec<Arc<dyn Object>>,
}

impl Striped {
    fn new(unit: u64, n: u32) -> Striped {
        let stores = (0..n).map(|s| open("memory", "d", s).unwrap()).collect();
        Striped::on(unit, stores)
    }

    fn on(unit: u64, stores: Vec<Box<dyn Store>>) -> Striped {
        let n = stores.len() as u32;
        Striped {
            layout: Layout::new(unit, (0..n).map(ServerId).collect()).unwrap(),
            objects: stores
                .iter()
                .map(|s| s.open(FileId(1), true).unwrap())
                .collect(),
            _stores: stores,
        }
    }

    fn fill(&self, file: &[u8]) {
        let mut parts = vec![Vec::new(); self.objects.len()];
        for (at, byte) in file.iter().enumerate() {
            let (s, _) = self.layout.locate(FileOffset(at as u64));
            parts[s.0 as usize].push(*byte);
        }
        for (object, part) in self.objects.iter().zip(parts) {
            object.write_at(ObjectOffset(0), &part).unwrap();
        }
    }

    fn contents(&self, len: u64) -> Vec<u8> {
        let parts: Vec<Vec<u8>> = self
            .objects
            .iter()
            .map(|object| {
                let mut part = vec![0; len as usize];
                object.read_at(ObjectOffset(0), &mut part).unwrap();
                part
            })
            .collect();
        (0..len)
            .map(|at| {
                let (s, o) = self.layout.locate(FileOffset(at));
                parts[s.0 as usize][o.0 as usize]
            })
            .collect()
    }

    fn servers(&self) -> impl Iterator<Item = (ServerIndex, &dyn Object)> {
        (0..)
            .map(ServerIndex)
            .zip(self.objects.iter().map(|o| &**o))
    }

    fn server_of(&self, at: i64) -> (ServerIndex, ObjectOffset) {
        self.layout.locate(FileOffset(at as u64))
    }
}

fn any_access() -> impl Strategy<Value = Pattern> {
    let run = prop_oneof![3 => 1u64..40, 2 => 500u64..9000, 1 => 16_000u64..70_000];
    let gap = prop_oneof![2 => Just(0i64), 3 => 1i64..100, 2 => 1000i64..9000];
    let vector = (1u64..8, run, gap)
        .prop_filter_map("invalid", |(count, len, gap)| {
            let child = Loop::bytes(len);
            let tile = Loop::vector(count, 1, len as i64 + gap, &child).ok()?;
            tile.resized(0, tile.extent() + gap).ok()
        })
        .boxed();
    let list = prop::collection::vec((0i64..30_000, 1u64..3000), 1..10)
        .prop_filter_map("invalid", |regions| {
            // Shuffled blocks without overlap: the result of two writes to one byte is undefined.
            let mut at = 0;
            let mut placed: Vec<(i64, u64)> = Vec::new();
            for (gap, len) in regions {
                at += gap % 5000;
                placed.push((at, len));
                at += len as i64;
            }
            placed.sort_by_key(|(at, len)| (len % 7, *at));
            let tile = Pattern::list(&placed).ok()?.tile;
            tile.resized(tile.lb(), at).ok()
        })
        .boxed();
    (
        prop_oneof![vector, list],
        0i64..9000,
        0u64..5000,
        0u64..90_000,
    )
        .prop_filter_map("invalid", |(tile, disp, start, len)| {
            let access = Pattern::new(disp, tile, start, len).ok()?;
            let (low, high) = access.bounds();
            (low >= 0 && high < 600_000).then_some(access)
        })
}

/// Memory forms: contiguous, or with holes of some kind.
fn memory_for(len: u64, form: u64) -> (Pattern, usize) {
    let tile = match form {
        0 => Loop::bytes(1),
        1 => Loop::bytes(8).resized(0, 12).unwrap(),
        2 => Loop::bytes(700).resized(0, 1000).unwrap(),
        _ => Loop::bytes(20_000).resized(0, 20_001).unwrap(),
    };
    let pattern = Pattern::new(0, tile, 0, len).unwrap();
    let size = pattern.bounds().1 as usize;
    (pattern, size)
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8 | 1
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn reads_find_every_byte_and_the_end(
        access in any_access(), unit in prop_oneof![1u64..200, Just(65536u64), 1000u64..9000],
        n in 1u32..5, size in 0usize..120_000, chunk in 1usize..70_000, form in 0u64..4,
        base in 0u64..50,
    ) {
        let striped = Striped::new(unit.max(16), n);
        let file = noise(size, 5);
        striped.fill(&file);
        let byte = |at: i64| file.get(at as usize).copied().unwrap_or(0);
        let mut scratch = Scratch::new();

        // As a data server: packed bytes of each server, in chunks.
        for (server, object) in striped.servers() {
            let object_len = object.len().unwrap();
            let ours: Vec<(u64, u64, u8)> = (0..access.len)
                .filter_map(|s| {
                    let at = access.offset_at(s).unwrap();
                    let (on, o) = striped.server_of(at);
                    (on == server).then(|| (s, o.0, byte(at)))
                })
                .collect();
            let mut execution = Execution::new(&striped.layout, server, &access);
            let mut packed = Vec::new();
            loop {
                let mut out = vec![0xee; chunk];
                let got = execution.read(object, &mut out, &mut scratch).unwrap();
                packed.extend_from_slice(&out[..got]);
                prop_assert_eq!(execution.position(), packed.len() as u64);
                if got < chunk {
                    break;
                }
            }
            let expected: Vec<u8> = ours.iter().map(|(_, _, b)| *b).collect();
            prop_assert!(packed == expected, "server {:?}", server);
            let first_missing = ours.iter().position(|(_, o, _)| *o >= object_len);
            let end = execution.end().map(|e| (e.packed as usize, e.stream));
            prop_assert_eq!(end, first_missing.map(|i| (i, ours[i].0)));
            let last_present = ours.iter().rposition(|(_, o, _)| *o < object_len);
            prop_assert_eq!(execution.present() as usize, last_present.map_or(0, |i| i + 1));
        }

        // As a client on the same host: directly into memory, first by calls; repeated reads use mappings.
        let (pattern, bytes) = memory_for(base + access.len, form);
        let mut expected = vec![0xee; bytes];
        for s in 0..access.len {
            let at = pattern.offset_at(base + s).unwrap() as usize;
            expected[at] = byte(access.offset_at(s).unwrap());
        }
        let maps: Vec<Maps> = striped.servers().map(|_| Maps::default()).collect();
        for round in 0..4 {
            let mut memory = vec![0xee; bytes];
            // SAFETY: the pattern stays within `memory`, which nobody else touches meanwhile.
            let mut target = unsafe { Target::new(memory.as_mut_ptr(), pattern.clone()) };
            for ((server, object), maps) in striped.servers().zip(&maps) {
                let fd = object.mappable().unwrap().fd();
                let (by_calls, mapped) = (Descriptor::new(&fd), Mapped::new(&fd, maps));
                let object: &dyn Object = if round == 0 { &by_calls } else { &mapped };
                let mut execution = Execution::new(&striped.layout, server, &access);
                let budget = chunk as u64;
                while execution.read_into(object, &mut target, base, budget, &mut scratch).unwrap() > 0 {}
                prop_assert_eq!(execution.position(), striped.layout.share(&access, server));
            }
            prop_assert!(memory == expected, "round {}", round);
        }
    }

    #[test]
    fn writes_change_their_bytes_and_no_others(
        access in any_access(), unit in prop_oneof![1u64..200, Just(65536u64), 1000u64..9000],
        n in 1u32..5, size in 0usize..120_000, chunk in 1usize..70_000, form in 0u64..5,
        base in 0u64..50,
    ) {
        let striped = Striped::new(unit.max(16), n);
        let mut file = noise(size, 9);
        striped.fill(&file);
        let data = noise(access.len as usize, 77);
        let mut scratch = Scratch::new();
        if form == 4 {
            for (server, object) in striped.servers() {
                let packed: Vec<u8> = (0..access.len)
                    .filter(|s| striped.server_of(access.offset_at(*s).unwrap()).0 == server)
                    .map(|s| data[s as usize])
                    .collect();
                let mut execution = Execution::new(&striped.layout, server, &access);
                for part in packed.chunks(chunk) {
                    let done = execution.write(object, part, &mut scratch).unwrap();
                    prop_assert_eq!(done, part.len());
                }
                // More bytes than the access needs are left.
                prop_assert_eq!(execution.write(object, &[1, 2], &mut scratch).unwrap(), 0);
            }
        } else {
            let (pattern, bytes) = memory_for(base + access.len, form);
            let mut memory = vec![0xee; bytes];
            for s in 0..access.len {
                memory[pattern.offset_at(base + s).unwrap() as usize] = data[s as usize];
            }
            // SAFETY: the pattern stays within `memory`.
            let mut source = unsafe { Source::new(memory.as_ptr(), pattern) };
            for (server, object) in striped.servers() {
                let fd = object.mappable().unwrap().fd();
                let object = Descriptor::new(&fd);
                let mut execution = Execution::new(&striped.layout, server, &access);
                let budget = chunk as u64;
                while execution.write_from(&object, &mut source, base, budget, &mut scratch).unwrap() > 0 {}
            }
        }
        let reach = access.bounds().1.max(size as i64) as usize;
        file.resize(reach, 0);
        for s in 0..access.len {
            file[access.offset_at(s).unwrap() as usize] = data[s as usize];
        }
        prop_assert!(striped.contents(reach as u64) == file);
    }
}

#[test]
fn memory_shorter_than_the_access_is_refused() {
    let striped = Striped::new(64, 2);
    let access = Pattern::contiguous(0, 100);
    let mut scratch = Scratch::new();
    let mut memory = [0; 99];
    for base in [0, u64::MAX] {
        let mut execution = Execution::new(&striped.layout, ServerIndex(0), &access);
        let mut target = Target::from_slice(&mut memory);
        let object = &*striped.objects[0];
        assert!(
            execution
                .read_into(object, &mut target, base, 10, &mut scratch)
                .is_err()
        );
        let mut source = Source::from_slice(&[0; 99]);
        assert!(
            execution
                .write_from(object, &mut source, base, 10, &mut scratch)
                .is_err()
        );
        assert_eq!(execution.position(), 0);
    }
}

/// An object that counts calls.
struct Counted {
    object: Arc<dyn Object>,
    writes: AtomicUsize,
    reads: AtomicUsize,
}

impl Counted {
    fn new(object: Arc<dyn Object>) -> Counted {
        Counted {
            object,
            writes: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
        }
    }
    fn counts(&self) -> (usize, usize) {
        (self.reads.swap(0, Relaxed), self.writes.swap(0, Relaxed))
    }
}

impl Object for Counted {
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError> {
        self.reads.fetch_add(1, Relaxed);
        self.object.read_at(at, buf)
    }
    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError> {
        self.writes.fetch_add(1, Relaxed);
        self.object.write_at(at, buf)
    }
    fn read_vectored_at(
        &self,
        at: ObjectOffset,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, StoreError> {
        self.reads.fetch_add(1, Relaxed);
        self.object.read_vectored_at(at, bufs)
    }
    fn write_vectored_at(&self, at: ObjectOffset, bufs: &[IoSlice<'_>]) -> Result<(), StoreError> {
        self.writes.fetch_add(1, Relaxed);
        self.object.write_vectored_at(at, bufs)
    }
    fn len(&self) -> Result<u64, StoreError> {
        self.object.len()
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.object.set_len(len)
    }
    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError> {
        self.object.allocate(at, len)
    }
    fn sync(&self) -> Result<(), StoreError> {
        self.object.sync()
    }
    fn mappable(&self) -> Option<&dyn penstock_store::Mappable> {
        self.object.mappable()
    }
}

/// Reads and writes all of `access` on server 0 from contiguous memory; (reads, writes) made.
fn calls(striped: &Striped, access: &Pattern) -> ((usize, usize), (usize, usize)) {
    let object = Counted::new(striped.objects[0].clone());
    let mut scratch = Scratch::new();
    let mut memory = vec![5; access.len as usize];
    let mut execution = Execution::new(&striped.layout, ServerIndex(0), access);
    let mut source = Source::from_slice(&memory);
    let all = u64::MAX;
    execution
        .write_from(&object, &mut source, 0, all, &mut scratch)
        .unwrap();
    let writing = object.counts();
    let mut execution = Execution::new(&striped.layout, ServerIndex(0), access);
    let mut target = Target::from_slice(&mut memory);
    execution
        .read_into(&object, &mut target, 0, all, &mut scratch)
        .unwrap();
    (writing, object.counts())
}

#[test]
fn calls_are_few() {
    let striped = Striped::new(1 << 16, 4);
    // Contiguous: the units of the server are adjacent in its object.
    let access = Pattern::contiguous(0, 16 << 20);
    assert_eq!(calls(&striped, &access), ((0, 1), (1, 0)));
    // 40,000 small pieces close together: one call per window of 1024, and one that extends the object. Reading takes
    // one per 256 KiB.
    let tile = Loop::bytes(64).resized(0, 256).unwrap();
    let access = Pattern::new(0, tile, 0, 64 * 160_000).unwrap();
    let (writing, reading) = calls(&striped, &access);
    assert!(writing.1 <= 41, "{writing:?}");
    assert!(reading.0 <= 42, "{reading:?}");
    // Large pieces far apart: one call each.
    let tile = Loop::bytes(1 << 16).resized(0, 1 << 20).unwrap();
    let access = Pattern::new(0, tile, 0, 40 << 16).unwrap();
    assert_eq!(calls(&striped, &access), ((0, 40), (40, 0)));
}

/// A read larger than the caches uses non-temporal stores.
#[test]
fn a_large_strided_read_out_of_a_mapping_is_exact() {
    let striped = Striped::new(65_536, 2);
    let file = noise(24 << 20, 3);
    striped.fill(&file);
    for piece in [1200, 333, 70_000] {
        let tile = Loop::bytes(piece).resized(0, 2 * piece as i64 + 1).unwrap();
        let access = Pattern::new(77, tile, 0, 9 << 20).unwrap();
        let mut expected = Vec::new();
        access.for_each_run(|_, run| {
            let from = run.offset as usize;
            expected.extend_from_slice(&file[from..from + run.len as usize]);
        });
        let maps: Vec<Maps> = striped.servers().map(|_| Maps::default()).collect();
        let mut scratch = Scratch::new();
        for round in 0..5 {
            // From an odd address on; the bytes around must not change.
            let mut memory = vec![0xee; (9 << 20) + 40];
            let mut target = Target::from_slice(&mut memory[13..(9 << 20) + 13]);
            for ((server, object), maps) in striped.servers().zip(&maps) {
                let fd = object.mappable().unwrap().fd();
                let object = Mapped::new(&fd, maps);
                let mut execution = Execution::new(&striped.layout, server, &access);
                while execution
                    .read_into(&object, &mut target, 0, 8 << 20, &mut scratch)
                    .unwrap()
                    > 0
                {}
            }
            let (before, rest) = memory.split_at(13);
            let (bytes, after) = rest.split_at(9 << 20);
            assert!(bytes == expected, "{piece} round {round}");
            assert!(before.iter().chain(after).all(|b| *b == 0xee));
        }
    }
}

#[test]
fn a_mapping_shows_what_others_write() {
    let dir = tempfile::tempdir().unwrap();
    let on_disk = open(&format!("dir:{}", dir.path().display()), "d", 0).unwrap();
    for store in [on_disk, open("memory", "d", 0).unwrap()] {
        let object = store.open(FileId(1), true).unwrap();
        let fd = object.mappable().unwrap().fd();
        let maps = Maps::default();
        let read = |at: u64, len: usize| {
            let mut out = vec![0xee; len];
            let got = Mapped::new(&fd, &maps)
                .read_at(ObjectOffset(at), &mut out)
                .unwrap();
            out.truncate(got);
            out
        };
        object
            .write_at(ObjectOffset(0), &noise(100_000, 1))
            .unwrap();
        let mut file = noise(100_000, 1);
        for round in 0..5u8 {
            for at in [0, 5, 4090, 65_530, 99_900] {
                let end = file.len().min(at as usize + 300);
                assert_eq!(read(at, 300), &file[at as usize..end]);
            }
            // Over what was read, and beyond the end, at once and later.
            for (at, len) in [(3, 10), (65_000, 1000), (file.len(), 5000)] {
                let bytes = vec![round; len];
                object.write_at(ObjectOffset(at as u64), &bytes).unwrap();
                file.resize(file.len().max(at + len), 0);
                file[at..at + len].copy_from_slice(&bytes);
            }
        }
        // Another window, and back; one read across the border of two.
        let far = (256 << 20) - 100;
        object.write_at(ObjectOffset(far), &noise(300, 2)).unwrap();
        for _ in 0..3 {
            assert_eq!(read(far, 300), noise(300, 2));
            assert_eq!(read(far + 100, 200), &noise(300, 2)[100..]);
            assert_eq!(read(3, 10), [4; 10]);
        }
        // Truncated between operations, and announced: removed bytes are not read, and do no harm.
        object.set_len(50).unwrap();
        maps.forget_len();
        assert_eq!(read(0, 300), &file[..50]);
        assert!(read(4096, 10).is_empty());
    }
}

#[test]
fn an_object_cut_meanwhile_ends_no_writer() {
    let dir = tempfile::tempdir().unwrap();
    let on_disk = open(&format!("dir:{}", dir.path().display()), "d", 0).unwrap();
    for store in [on_disk, open("memory", "d", 0).unwrap()] {
        cut_meanwhile(&Striped::on(1 << 16, vec![store]));
    }
}

fn cut_meanwhile(striped: &Striped) {
    let tile = Loop::bytes(50).resized(0, 150).unwrap();
    let access = Pattern::new(0, tile, 0, 50 * 20_000).unwrap();
    let data = noise(access.len as usize, 3);
    let object = &striped.objects[0];
    std::thread::scope(|scope| {
        let cutter = scope.spawn(|| {
            for _ in 0..100 {
                object.set_len(1000).unwrap();
            }
        });
        while !cutter.is_finished() {
            let mut scratch = Scratch::new();
            let mut execution = Execution::new(&striped.layout, ServerIndex(0), &access);
            let done = execution.write(&**object, &data, &mut scratch).unwrap();
            assert_eq!(done, data.len());
        }
    });
    let mut scratch = Scratch::new();
    let mut execution = Execution::new(&striped.layout, ServerIndex(0), &access);
    execution.write(&**object, &data, &mut scratch).unwrap();
    let mut found = vec![0; data.len()];
    let mut execution = Execution::new(&striped.layout, ServerIndex(0), &access);
    execution.read(&**object, &mut found, &mut scratch).unwrap();
    assert!(found == data);
}

#[test]
fn writers_of_interleaved_pieces_do_not_disturb_each_other() {
    let striped = Striped::new(1 << 16, 2);
    let writers = 4u64;
    let piece = 100;
    let count = 3000;
    std::thread::scope(|scope| {
        for w in 0..writers {
            let striped = &striped;
            scope.spawn(move || {
                let tile = Loop::bytes(piece)
                    .resized(0, (piece * writers) as i64)
                    .unwrap();
                let access = Pattern::new((w * piece) as i64, tile, 0, piece * count).unwrap();
                let data = vec![w as u8 + 1; (piece * count) as usize];
                let mut scratch = Scratch::new();
                for (server, object) in striped.servers() {
                    let mut execution = Execution::new(&striped.layout, server, &access);
                    let mut source = Source::from_slice(&data);
                    while execution
                        .write_from(object, &mut source, 0, 10_000, &mut scratch)
                        .unwrap()
                        > 0
                    {}
                }
            });
        }
    });
    let mut counts = HashMap::new();
    for (at, byte) in striped
        .contents(piece * writers * count)
        .into_iter()
        .enumerate()
    {
        assert_eq!(
            u64::from(byte),
            at as u64 / piece % writers + 1,
            "byte {at}"
        );
        *counts.entry(byte).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), writers as usize);
}

/// Writers with interleaved pieces extend one object at the same time. A file system that zeroes the gap of one writer
/// must not destroy what another has just written there.
#[test]
fn writers_that_grow_an_object_together_lose_nothing() {
    const PIECES: u64 = 50;
    const LEN: u64 = 12;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = open(&format!("dir:{}", dir.path().display()), "d", 0).unwrap();
    let layout = Layout::new(1 << 16, vec![ServerId(0)]).unwrap();
    let start = std::sync::Barrier::new(3);
    for file in 1..1500 {
        let object = store.open(FileId(file), true).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let (object, layout, start) = (&object, &layout, &start);
                scope.spawn(move || {
                    let tile = Loop::bytes(LEN).resized(0, 3 * LEN as i64).unwrap();
                    let pattern =
                        Pattern::new(16 + writer * LEN as i64, tile, 0, PIECES * LEN).unwrap();
                    let bytes = [writer as u8 + 1; (PIECES * LEN) as usize];
                    let mut work = Execution::new(layout, ServerIndex(0), &pattern);
                    start.wait();
                    let n = work
                        .write(&**object, &bytes, &mut Scratch::default())
                        .unwrap();
                    assert_eq!(n, bytes.len());
                });
            }
        });
        let mut all = vec![0; (3 * PIECES * LEN) as usize];
        object.read_at(ObjectOffset(16), &mut all).unwrap();
        for (at, byte) in all.iter().enumerate() {
            let writer = at as u64 / LEN % 3;
            assert_eq!(u64::from(*byte), writer + 1, "file {file}, byte {at}");
        }
    }
}
