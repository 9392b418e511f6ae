//! The NAND model: write amplification against the closed form, conservation, times computed by hand, idle-time
//! collection.

use penstock_device::nand::{
    AllocationOrder, Collect, Condition, Ftl, Multiplane, Nand, NandGeometry, NandOptions, Victim,
};
use penstock_device::{
    Device, DeviceKind, Model, Nanos, Op, Request, closed_loop, random_addresses,
    write_amplification,
};

fn options(text: &str) -> NandOptions {
    match Model::parse(text).unwrap().kind {
        DeviceKind::Nand(options) => *options,
        _ => unreachable!("{text}"),
    }
}

/// One plane, so that a short run uses its blocks many times.
fn one_plane(spare: f64, condition: Condition) -> NandOptions {
    let nand = options("nand,buffer=0,read-ahead=0");
    NandOptions {
        geometry: NandGeometry {
            channels: 1,
            ways: 1,
            dies: 1,
            planes: 1,
            blocks: 512,
            pages: 512,
            page: 4096,
        },
        spare,
        condition,
        ..nand
    }
}

fn request(op: Op, address: u64, bytes: u64) -> Request {
    Request {
        id: 0,
        op,
        address,
        bytes,
        process: 0,
    }
}

/// Write amplification of `count` uniform random page writes.
fn amplification(nand: &mut Nand, count: u64, seed: u64) -> f64 {
    let before = nand.counters();
    let mut address = random_addresses(seed, nand.capacity(), 4096);
    let measured = closed_loop(nand, 4, count, 0, |_| request(Op::Write, address(), 4096));
    assert_eq!(measured.requests, count);
    nand.counters().since(&before).write_amplification()
}

/// Greedy collection, 512 blocks of 512 pages: within 2% of a / (a + W₀(−a·e^(−a))) at 7, 15 and 28%.
#[test]
fn write_amplification_meets_the_closed_form_at_once() {
    for spare in [0.07, 0.15, 0.28] {
        let mut nand = Nand::new(one_plane(spare, Condition::Steady)).unwrap();
        let pages = nand.capacity() / 4096;
        let ours = amplification(&mut nand, pages / 2, 3);
        let formula = write_amplification(spare);
        let error = ours / formula - 1.0;
        println!("spare {spare}: {ours:.4} simulated, {formula:.4} by the formula, {error:+.4}");
        assert!(
            error.abs() < 0.02,
            "spare {spare}: {ours} against {formula}"
        );
    }
}

/// The closed form's steady state is the one that a full device reaches by itself.
#[test]
fn preconditioning_is_where_long_writing_leads() {
    let mut full = Nand::new(one_plane(0.15, Condition::Full)).unwrap();
    let pages = full.capacity() / 4096;
    amplification(&mut full, 3 * pages, 5);
    let long = amplification(&mut full, pages / 2, 6);
    let mut steady = Nand::new(one_plane(0.15, Condition::Steady)).unwrap();
    // Measured from the first tenth of the capacity on.
    let first = amplification(&mut steady, pages / 10, 7);
    println!("after 3 capacities {long:.3}, at once {first:.3}");
    assert!((first / long - 1.0).abs() < 0.03, "{first} against {long}");
}

#[test]
fn other_victims_cost_more_than_greedy() {
    let mut found = Vec::new();
    for victim in [
        Victim::Greedy,
        Victim::Choices,
        Victim::Fifo,
        Victim::Random,
    ] {
        let mut nand = Nand::new(NandOptions {
            victim,
            ..one_plane(0.28, Condition::Steady)
        })
        .unwrap();
        let pages = nand.capacity() / 4096;
        amplification(&mut nand, pages, 5);
        found.push(amplification(&mut nand, pages / 4, 6));
    }
    println!("{found:?}");
    assert!(
        found[0] < found[1] && found[1] < found[3] && found[0] <= found[2],
        "{found:?}"
    );
    // A random victim has the mean share of valid pages: a / (a − 1).
    assert!((found[3] / (1.28 / 0.28) - 1.0).abs() < 0.05, "{found:?}");
}

/// A device whose times can be computed by hand.
fn small(text: &str) -> NandOptions {
    options(&format!(
        "nand,channels=2,ways=1,dies=1,planes=2,blocks=16,pages=16,state=fresh,buffer=0,read-ahead=0,spare=0.5{text}"
    ))
}

/// Completion times of requests made at time 0.
fn times(nand: &mut Nand, requests: &[Request]) -> Vec<Nanos> {
    let begin = nand.wake().unwrap_or(0);
    let mut at = vec![0; requests.len()];
    for (id, request) in requests.iter().enumerate() {
        let id = id as u64;
        nand.submit(begin, Request { id, ..*request });
    }
    let mut done = Vec::new();
    while let Some(wake) = nand.wake() {
        nand.advance(wake, &mut done);
    }
    for completion in done {
        at[completion.id as usize] = completion.at - begin;
    }
    at
}

const PAGE: u64 = 8192;
const CARRY: Nanos = 24_600;
const FIXED: Nanos = 5_000 + 100;

#[test]
fn a_page_takes_command_channel_and_array() {
    let mut nand = Nand::new(small("")).unwrap();
    let write = times(&mut nand, &[request(Op::Write, 0, PAGE)])[0];
    assert_eq!(write, CARRY + 300 + 750_000 + FIXED);
    let mut nand = Nand::new(small(",state=full")).unwrap();
    let read = times(&mut nand, &[request(Op::Read, 0, PAGE)])[0];
    // The last page crosses the link to the host.
    assert_eq!(read, 300 + 75_000 + CARRY + PAGE * 1_000 / 3_500 + FIXED);
}

#[test]
fn channels_dies_and_planes_work_side_by_side() {
    // CWDP: pages 0 and 1 on two channels, 0 and 2 on two planes of one die.
    let run = |text: &str, pages: [u64; 2]| {
        let mut nand = Nand::new(small(text)).unwrap();
        let requests = pages.map(|p| request(Op::Write, p * PAGE, PAGE));
        // One request of two pages reaches the queue at once.
        let together = if pages == [0, 1] {
            vec![request(Op::Write, 0, 2 * PAGE)]
        } else {
            requests.to_vec()
        };
        times(&mut nand, &together).into_iter().max().unwrap()
    };
    let one = CARRY + 300 + 750_000 + FIXED;
    assert_eq!(run("", [0, 1]), one, "two channels");
    // Requests arrive one by one: that of the second plane misses the first command and follows it.
    assert_eq!(run("", [0, 2]), 2 * one - FIXED, "one die, two commands");
    let planes = |multiplane: &str| {
        let text = format!(",channels=1,allocate=PCWD,multiplane={multiplane}");
        let mut nand = Nand::new(small(&text)).unwrap();
        // Behind a first write, so that both wait at the same time.
        let r = [0, 2, 3].map(|p| request(Op::Write, p * PAGE, PAGE));
        let done = times(&mut nand, &r);
        (done.into_iter().max().unwrap(), nand.counters().multiplane)
    };
    assert_eq!(planes("off"), (3 * (one - FIXED) + FIXED, 0));
    // Two pages cross the channel together; a nanosecond is not rounded away twice.
    assert_eq!(planes("any"), (2 * (one - FIXED) + CARRY + 1 + FIXED, 1));
    // The planes are at different pages of their blocks: aligned commands don't take both.
    assert_eq!(planes("aligned").1, 0);
}

#[test]
fn cache_commands_and_die_interleaving_overlap() {
    let writes: Vec<Request> = (0..8).map(|i| request(Op::Write, i * PAGE, PAGE)).collect();
    let last = |text: &str| {
        let mut nand = Nand::new(small(text)).unwrap();
        let done = times(&mut nand, &writes);
        done.into_iter().max().unwrap()
    };
    let one_die = ",channels=1,planes=1,cache=";
    let program = 300 + 750_000;
    assert_eq!(
        last(&format!("{one_die}off")),
        8 * (CARRY + program) + FIXED
    );
    assert_eq!(last(&format!("{one_die}on")), CARRY + 8 * program + FIXED);
    let four = ",channels=1,planes=1,dies=4,interleave=";
    assert_eq!(last(&format!("{four}off")), 8 * (CARRY + program) + FIXED);
    assert!(last(&format!("{four}on")) < 3 * (CARRY + program) + FIXED);
}

/// Every model and policy: requests complete, valid pages are as many as were written, all time is accounted for.
#[test]
fn pages_are_conserved_under_every_policy() {
    let ftls = [
        ("page", Ftl::Page),
        ("log", Ftl::Log),
        ("hybrid", Ftl::Hybrid),
    ];
    for (name, ftl) in ftls {
        for collect in ["demand", "preempt", "advanced", "delayed", "both"] {
            for extra in [
                ",cache=on",
                ",interleave=off,buffer=64k",
                ",multiplane=any,reads-first=0",
            ] {
                let text = format!(",dies=2,ftl={name},collect={collect},state=steady{extra}");
                let options = small(&text);
                assert_eq!(options.ftl, ftl);
                let mut nand = Nand::new(options).unwrap();
                let mut address = random_addresses(9, nand.capacity(), 4096);
                let measured = closed_loop(&mut nand, 8, 4_000, 10_000, |i| {
                    let op = if i % 3 == 0 { Op::Read } else { Op::Write };
                    request(op, address(), 4096 << (i % 4))
                });
                assert_eq!(measured.requests, 4_000, "{text}");
                let counters = nand.counters();
                assert!(
                    counters.erases > 0 && counters.copies > 0,
                    "{text}: {counters:?}"
                );
                assert!(counters.spent.total() > 0);
                assert_eq!(nand.wear().erases, counters.erases, "{text}");
            }
        }
    }
}

/// Policies with idle-time collection use idle periods, and later writes wait less.
#[test]
fn idle_time_collection_keeps_collection_out_of_the_way() {
    let waited = |collect: Collect| {
        let mut nand = Nand::new(NandOptions {
            collect,
            ..small(",dies=2,blocks=64,state=steady")
        })
        .unwrap();
        let mut address = random_addresses(3, nand.capacity(), PAGE);
        let mut now = 0;
        for burst in 0..40 {
            for i in 0..32 {
                let id = burst * 32 + i;
                nand.submit(
                    now,
                    Request {
                        id,
                        ..request(Op::Write, address(), PAGE)
                    },
                );
            }
            let mut done = Vec::new();
            now += 400_000_000;
            nand.advance(now, &mut done);
            assert_eq!(done.len(), 32);
        }
        let counters = nand.counters();
        assert!(counters.erases > 0);
        counters.spent.collection as f64 / counters.spent.pages as f64
    };
    let [demand, preempt, advanced, delayed, both] = [
        Collect::Demand,
        Collect::Preempt,
        Collect::Advanced,
        Collect::Delayed,
        Collect::Both,
    ]
    .map(waited);
    println!("{demand:.0} {preempt:.0} {advanced:.0} {delayed:.0} {both:.0} ns a page");
    // Collecting in advance costs a little where the soft bound suffices: the copy under way when a burst comes.
    for other in [preempt, advanced, delayed, both] {
        assert!(other < demand / 10.0);
    }
}

#[test]
fn trim_makes_collection_cheaper() {
    let copies = |trimmed: bool| {
        let mut nand = Nand::new(one_plane(0.07, Condition::Steady)).unwrap();
        let half = nand.capacity() / 2 / 4096 * 4096;
        if trimmed {
            nand.trim(0, half, half);
            assert_eq!(nand.counters().trimmed, half / 4096);
        }
        let mut address = random_addresses(3, half, 4096);
        closed_loop(&mut nand, 4, 40_000, 0, |_| {
            request(Op::Write, address(), 4096)
        });
        nand.counters().write_amplification()
    };
    let (kept, trimmed) = (copies(false), copies(true));
    assert!(trimmed < kept / 2.0, "{trimmed} {kept}");
    // Reads of trimmed pages need no array access.
    let mut nand = Nand::new(small(",state=full")).unwrap();
    nand.trim(0, 0, PAGE);
    assert!(times(&mut nand, &[request(Op::Read, 0, PAGE)])[0] < 10_000);
}

#[test]
fn a_buffered_write_is_done_soon_and_the_flush_waits() {
    let mut nand = Nand::new(small(",buffer=64k")).unwrap();
    nand.submit(0, request(Op::Write, 0, PAGE));
    nand.flush(0, 9);
    let mut done = Vec::new();
    while let Some(wake) = nand.wake() {
        nand.advance(wake, &mut done);
    }
    let at = |id| done.iter().find(|c| c.id == id).unwrap().at;
    assert!(at(0) < 10_000 && at(9) > 750_000, "{done:?}");
}

#[test]
fn part_of_a_page_is_read_changed_and_programmed() {
    let mut nand = Nand::new(small(",state=full")).unwrap();
    let part = times(&mut nand, &[request(Op::Write, 512, 512)])[0];
    assert_eq!(part, 300 + 75_000 + 2 * CARRY + 1 + 300 + 750_000 + FIXED);
    assert_eq!(nand.counters().modified, 1);
}

#[test]
fn requests_beyond_all_bounds_are_served() {
    let mut nand = Nand::new(small("")).unwrap();
    for (address, bytes) in [(u64::MAX, u64::MAX), (0, 1 << 61), (5, 0)] {
        for op in [Op::Write, Op::Read] {
            let at = times(&mut nand, &[request(op, address, bytes.min(1 << 40))]);
            assert_eq!(at.len(), 1);
        }
    }
    nand.trim(nand.wake().unwrap_or(u64::MAX / 2), u64::MAX - 5, u64::MAX);
}

#[test]
fn reads_disturb_and_erases_wear() {
    let mut nand = Nand::new(NandOptions {
        disturb_limit: 100,
        ..small(",state=full")
    })
    .unwrap();
    closed_loop(&mut nand, 1, 250, 0, |_| request(Op::Read, 0, PAGE));
    let wear = nand.wear();
    assert_eq!((wear.most_reads, wear.refreshes_due), (250, 2));
}

#[test]
fn memory_in_slabs_is_written_in_place() {
    let mut rram = Nand::new(options("rram,buffer=0")).unwrap();
    let mut address = random_addresses(3, rram.capacity(), 4096);
    closed_loop(&mut rram, 8, 5_000, 0, |_| {
        request(Op::Write, address(), 4096)
    });
    let counters = rram.counters();
    assert_eq!((counters.erases, counters.copies), (0, 0));
    let serial = |text: &str| {
        let mut rram = Nand::new(options(text)).unwrap();
        closed_loop(&mut rram, 1, 100, 0, |i| {
            request(Op::Read, i * 40_960, 4096)
        })
        .elapsed
    };
    assert!(serial("rram,read-ahead=0,parallel=1") > serial("rram,read-ahead=0"));
}

#[test]
fn what_cannot_be_is_refused() {
    for (text, word) in [
        ("nand,channels=0", "channels=0"),
        ("nand,channels=x", "a number"),
        ("nand,blocks=9999999", "blocks"),
        ("nand,blocks=65536,pages=4096", "pages"),
        ("nand,page=3000", "3000"),
        ("nand,allocate=CWDX", "CWDP"),
        ("nand,spare=0.001,blocks=8", "spare"),
        ("nand,spare=nan", "spare"),
        ("nand,ftl=log,logs=500", "log blocks"),
        ("nand,collect=never", "demand"),
        ("nand,slabs=4", "rram"),
        ("rram,parallel=65", "parallel"),
        ("hdd,allocate=CWDP", "a device that has it"),
        ("nand,disks=2", "a device that has it"),
    ] {
        let error = Model::parse(text).unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
    for order in AllocationOrder::all() {
        let options = options(&format!("nand,allocate={order},multiplane=any"));
        assert_eq!(
            (options.order, options.multiplane),
            (order, Multiplane::Any)
        );
    }
}
