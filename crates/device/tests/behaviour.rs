//! Properties of every model: no request is lost or completed twice, runs repeat, and the effects that the sources rely
//! on appear.

use penstock_device::{
    BlockQueue, BlockQueueOptions, Completion, Device, Elevator, HardDisk, Model, Nanos, Op, Raid0,
    RaidOptions, Request, closed_loop, random_addresses,
};
use proptest::prelude::*;

const MODELS: &[&str] = &[
    "hdd",
    "hdd,order=fifo,queue=none,read-ahead=0",
    "hdd,order=clook,queue=deadline,write-cache=1m",
    "pastel,queue=noop,requests=4",
    "suno,disks=3,unit=4k",
    "edel,queue=cfq",
    "hdd,queue=cfq,slots=3",
    "darwin-ssd,queue=none",
    "nand,queue=none,blocks=8,pages=16,spare=0.3,channels=2,ways=2",
    "nand,blocks=8,pages=16,spare=0.3,channels=2,cache=on,buffer=1m,collect=both",
    "rram,blocks=8",
];

/// Feeds arrivals to a device; every event is handled at its time.
fn drive(device: &mut dyn Device, arrivals: &[(Nanos, Request)], flush: bool) -> Vec<Completion> {
    let mut done = Vec::new();
    for (at, request) in arrivals {
        while let Some(wake) = device.wake().filter(|w| w <= at) {
            device.advance(wake, &mut done);
        }
        device.submit(*at, *request);
    }
    if flush {
        device.flush(arrivals.last().map_or(0, |a| a.0), u64::MAX);
    }
    let mut steps = 0;
    while let Some(wake) = device.wake() {
        device.advance(wake, &mut done);
        steps += 1;
        assert!(steps < 100_000, "time does not pass");
    }
    done
}

fn arrivals() -> impl Strategy<Value = Vec<(Nanos, Request)>> {
    let one = (
        0u64..3_000_000,
        any::<bool>(),
        0u64..400,
        1u64..200,
        0u32..4,
    );
    proptest::collection::vec(one, 1..120).prop_map(|all| {
        let mut now = 0;
        all.into_iter()
            .enumerate()
            .map(|(id, (gap, read, place, kib, process))| {
                now += gap * u64::from(gap % 3 == 0);
                let op = if read { Op::Read } else { Op::Write };
                let request = Request {
                    id: id as u64,
                    op,
                    address: place * 37 * 4096,
                    bytes: kib * 1024,
                    process,
                };
                (now, request)
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn everything_completes_once_and_the_same_again(arrivals in arrivals(), which in 0..MODELS.len()) {
        let model = Model::parse(MODELS[which]).unwrap();
        let done = drive(&mut *model.build(), &arrivals, true);
        let mut ids: Vec<u64> = done.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        let mut all: Vec<u64> = (0..arrivals.len() as u64).collect();
        all.push(u64::MAX);
        prop_assert_eq!(ids, all);
        for c in done.iter().filter(|c| c.id != u64::MAX) {
            prop_assert!(c.at > arrivals[c.id as usize].0, "done before it came");
        }
        prop_assert!(done.is_sorted_by_key(|c| c.at));
        prop_assert_eq!(done, drive(&mut *model.build(), &arrivals, true));
    }
}

fn read(address: u64, bytes: u64, process: u32) -> Request {
    Request {
        id: 0,
        op: Op::Read,
        address,
        bytes,
        process,
    }
}

#[test]
fn a_cached_write_is_done_soon_and_the_flush_waits_for_the_media() {
    let mut disk = Model::parse("hdd,write-cache=4m,queue=none")
        .unwrap()
        .build();
    let writes: Vec<_> = (0..4u64)
        .map(|i| {
            let address = i * 100_000_000_000;
            (
                i,
                Request {
                    id: i,
                    op: Op::Write,
                    address,
                    bytes: 4096,
                    process: 0,
                },
            )
        })
        .collect();
    let done = drive(&mut *disk, &writes, true);
    let at = |id| done.iter().find(|c| c.id == id).unwrap().at;
    assert!((0..4).all(|i| at(i) < 2_000_000), "{done:?}");
    assert!(at(u64::MAX) > 10_000_000, "{done:?}");
}

/// 32 queued random reads on one disk: the better the order fits the head's movement, the higher the rate.
#[test]
fn a_disks_own_queue_orders_by_arrival_by_address_or_by_what_the_head_reaches_first() {
    let iops = |order: &str| {
        let model = Model::parse(&format!("hdd,queue=none,order={order}")).unwrap();
        let mut address = random_addresses(3, 500_000_000_000, 4096);
        closed_loop(&mut *model.build(), 32, 2000, 0, |_| {
            read(address(), 4096, 0)
        })
        .iops()
    };
    let (fifo, clook, sptf) = (iops("fifo"), iops("clook"), iops("sptf"));
    // In order of arrival, a queue gains at most the controller's overlap.
    assert!((70.0..95.0).contains(&fifo), "{fifo}");
    assert!(clook > 1.5 * fifo && sptf > 1.2 * clook, "{clook} {sptf}");
}

/// Sequential reads with a pause between them: without read-ahead each waits for most of a turn.
#[test]
fn a_disk_that_reads_ahead_answers_sequential_reads_from_its_buffer() {
    let rate = |options: &str| {
        let model = Model::parse(&format!("hdd,queue=none{options}")).unwrap();
        let think = 200_000;
        closed_loop(&mut *model.build(), 1, 2000, think, |i| {
            read(i * 16_384, 16_384, 0)
        })
        .rate()
    };
    let (ahead, without) = (rate(""), rate(",read-ahead=0"));
    assert!(without < 3e6, "{without}");
    assert!(ahead > 10.0 * without, "{without} {ahead}");
}

#[test]
fn an_array_waits_for_its_slowest_spindle_and_adds_rates_up_to_the_bus() {
    let array = |n: usize, bus| {
        let members = (0..n).map(|_| Box::new(HardDisk::St9500430ss.build()) as Box<dyn Device>);
        let options = RaidOptions {
            unit: 65_536,
            read_bus: bus,
            write_bus: bus,
            overhead: 0,
        };
        Raid0::new(members.collect(), options)
    };
    let rate = |mut d: Raid0| closed_loop(&mut d, 2, 400, 0, |i| read(i << 20, 1 << 20, 0)).rate();
    let (one, four) = (rate(array(1, u64::MAX)), rate(array(4, u64::MAX)));
    assert!(four > 3.0 * one, "{one} {four}");
    let bound = rate(array(4, 200_000_000));
    assert!((0.9..=1.01).contains(&(bound / 2e8)), "{bound}");
    let capacity = array(3, 1).capacity();
    assert_eq!(capacity % (3 * 65_536), 0);
}

#[test]
fn merging_and_elevators_serve_a_deep_queue_faster_than_order_of_arrival() {
    let iops = |elevator, queue| {
        let options = BlockQueueOptions {
            elevator,
            queue,
            depth: 1,
            idle: 0,
            ..BlockQueueOptions::default()
        };
        let mut disk = BlockQueue::new(options, HardDisk::St9500430ss.build());
        let mut address = random_addresses(3, 500_000_000_000, 4096);
        let measured = closed_loop(&mut disk, 512, 3000, 0, |_| read(address(), 4096, 0));
        measured.iops()
    };
    let noop = iops(Elevator::Noop, 128);
    let (shallow, deep) = (iops(Elevator::Cfq, 128), iops(Elevator::Cfq, 8192));
    assert!(iops(Elevator::Deadline, 128) > 1.3 * noop);
    assert!(shallow > 1.3 * noop, "{noop} {shallow}");
    assert!(deep > 1.05 * shallow, "{shallow} {deep}");
    let options = BlockQueueOptions {
        elevator: Elevator::Noop,
        depth: 1,
        ..BlockQueueOptions::default()
    };
    let mut disk = BlockQueue::new(options, HardDisk::St9500430ss.build());
    closed_loop(&mut disk, 64, 640, 0, |i| read(i * 4096, 4096, 0));
    assert!(disk.merged() > 300, "{}", disk.merged());
}

#[test]
fn few_slots_for_all_processes_keep_cfq_from_sorting() {
    // 16 processes with 32 sequential requests each, far apart.
    let iops = |slots| {
        let options = BlockQueueOptions {
            slots,
            ..BlockQueueOptions::default()
        };
        let mut disk = BlockQueue::new(options, HardDisk::St9500430ss.build());
        let measured = closed_loop(&mut disk, 512, 4096, 0, |i| {
            let (process, record) = (i % 16, i / 16);
            // Every other record, so that requests do not merge.
            read(
                process * 20_000_000_000 + record * 131_072,
                65_536,
                process as u32,
            )
        });
        measured.iops()
    };
    let (few, many, all) = (iops(Some(8)), iops(Some(512)), iops(None));
    assert!(many > 1.5 * few, "{few} {many}");
    assert_eq!(many, all);
}

#[test]
fn a_turned_disk_answers_at_another_time() {
    let first = |share| {
        let mut disk = Model::parse("hdd").unwrap().turned(share).build();
        closed_loop(&mut *disk, 1, 1, 0, |_| read(1 << 30, 4096, 0)).elapsed
    };
    // Half a turn of 8.3 ms.
    let (one, other) = (first(0.0), first(0.5));
    assert!(
        one.abs_diff(other).abs_diff(4_166_666) < 10_000,
        "{one} {other}"
    );
}

#[test]
fn anticipation_keeps_the_head_with_a_synchronous_reader() {
    // Two processes read sequentially, far apart, one request at a time each.
    let rate = |elevator, idle| {
        let options = BlockQueueOptions {
            elevator,
            idle,
            depth: 1,
            ..BlockQueueOptions::default()
        };
        let mut disk = BlockQueue::new(options, HardDisk::St9500430ss.build());
        let mut done = Vec::new();
        let mut next = [0u64, 300_000_000_000];
        let mut bytes = 0;
        let mut now = 0;
        for p in 0..2u64 {
            disk.submit(
                0,
                Request {
                    id: p,
                    ..read(next[p as usize], 65_536, p as u32)
                },
            );
        }
        while now < 3_000_000_000 {
            now = disk.wake().unwrap();
            done.clear();
            disk.advance(now, &mut done);
            for c in &done {
                bytes += 65_536;
                next[c.id as usize] += 65_536;
                let request = Request {
                    id: c.id,
                    ..read(next[c.id as usize], 65_536, c.id as u32)
                };
                disk.submit(now, request);
            }
        }
        bytes as f64 / now as f64
    };
    let (noop, plain, waiting) = (
        rate(Elevator::Noop, 0),
        rate(Elevator::Cfq, 0),
        rate(Elevator::Cfq, 8_000_000),
    );
    assert!(waiting > 4.0 * noop, "{noop} {waiting}");
    assert!(waiting > 2.0 * plain, "{plain} {waiting}");
}

#[test]
fn flash_stalls_to_collect_only_once_its_spare_area_is_used_up() {
    let slowest = |fresh: u64| {
        let mut model = Model::parse("darwin-ssd,queue=none").unwrap();
        if let penstock_device::DeviceKind::Ssd(options) = &mut model.kind {
            options.fresh = fresh;
        }
        let mut ssd = model.build();
        let mut address = random_addresses(5, 8 << 30, 4096);
        let (mut slowest, mut now) = (0, 0);
        let mut done = Vec::new();
        for id in 0..30_000 {
            ssd.submit(
                now,
                Request {
                    id,
                    op: Op::Write,
                    ..read(address(), 4096, 0)
                },
            );
            let at = ssd.wake().unwrap();
            ssd.advance(at, &mut done);
            slowest = slowest.max(at - now);
            now = at;
        }
        slowest
    };
    let (fresh, used) = (slowest(u64::MAX), slowest(0));
    assert!(used > 5 * fresh, "{fresh} {used}");
}
