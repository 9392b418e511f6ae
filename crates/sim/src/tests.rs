//! Whole runs of small clusters.
use crate::{Error, Experiment, Report, Scenario, run};

const SMALL: &str = r#"
name = "small"
[cluster]
servers = 4
[device]
model = "hdd,queue=noop"
[client]
jitter = "100us"
[[program]]
benchmark = "demo"
ranks = 4
op = "read"
parameters = { segment = "64KiB", file_size = "16MiB" }
"#;

fn go(text: &str) -> Result<Report, Error> {
    let scenario = Scenario::parse(text, "small.toml")?;
    run(&scenario, &mut |_, _, _, _| {})
}

fn edited(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    SMALL.replace(from, to)
}

#[test]
fn one_seed_gives_one_result_to_the_byte() {
    let write = |seed: &str, to: &str| {
        let text = edited(
            "name = \"small\"",
            &format!("name = \"small\"\nseed = {seed}"),
        );
        serde_json::to_string(&go(&text.replace("op = \"read\"", to)).unwrap()).unwrap()
    };
    for to in [
        "op = \"read\"",
        "op = \"write\"",
        "op = \"write\"\ncollective = true\nmethod = \"two-phase\"",
    ] {
        assert_eq!(write("1", to), write("1", to));
    }
    let exchange = "op = \"read\"\ncollective = true\nmethod = \"two-phase\"";
    assert_ne!(write("1", exchange), write("2", exchange));
}

#[test]
fn all_methods_move_all_bytes() {
    for op in ["read", "write"] {
        for (method, collective) in [
            ("posix", false),
            ("sieve", true),
            ("list", true),
            ("datatype", true),
            ("two-phase", true),
            ("resonant", true),
        ] {
            let to = format!(
                "op = \"{op}\"\nmethod = \"{method}\"\ncollective = {collective}\nbarrier = true"
            );
            for cache in ["", "[server]\ncache = \"64MiB\"\n"] {
                let text =
                    edited("op = \"read\"", &to).replace("[client]", &format!("{cache}[client]"));
                let report = go(&text).unwrap();
                assert_eq!(report.bytes, 16 << 20, "{to} {cache}");
                assert!(report.timeline.bytes.iter().sum::<u64>() >= report.bytes);
                assert!(
                    report.makespan > 0 && report.balance > 0.99,
                    "{to}: {}",
                    report.balance
                );
            }
        }
    }
}

/// Each small program, from its ranks to the devices and back, with each of its methods.
#[test]
fn every_program_moves_all_bytes() {
    let programs = [
        ("demo", "file_size = '1MiB'", 1 << 20),
        ("mpi-io-test", "file_size = '1MiB'", 1 << 20),
        ("ior-mpi-io", "file_size = '1MiB'", 1 << 20),
        (
            "noncontig",
            "file_size = '1MiB', per_call = '512KiB'",
            1 << 20,
        ),
        ("hpio", "region_count = 16", (4 * 16) << 15),
        (
            "mpi-tile-io",
            "columns = 2, rows = 2, width = 64, height = 64, overlap_x = 0, overlap_y = 0, frames = 2",
            4 * 2 * 64 * 64 * 3,
        ),
        ("coll_perf", "size = 24", 24 * 24 * 24 * 4),
        ("btio", "grid = 12, dumps = 2", 12 * 12 * 12 * 40 * 2),
        ("s3asim", "queries = 2, results = 3", 0),
        (
            "flash",
            "blocks = 2, variables = 3, cells = 4",
            4 * 2 * 3 * 64 * 8,
        ),
        ("iozone", "total = '1MiB', record = '16KiB'", 1 << 20),
    ];
    assert_eq!(programs.map(|p| p.0), crate::BENCHMARKS);
    for (name, parameters, bytes) in programs {
        for method in ["posix", "sieve", "list", "datatype", "two-phase"] {
            if name == "iozone" && method == "two-phase" {
                continue; // A file for each rank: refused below.
            }
            for op in ["read", "write"] {
                let text = edited(
                    "benchmark = \"demo\"\nranks = 4\nop = \"read\"",
                    &format!(
                        "benchmark = \"{name}\"\nranks = 4\nop = \"{op}\"\nmethod = \"{method}\"\ncollective = true\ncompute = \"1ms\""
                    ),
                )
                .replace("segment = \"64KiB\", file_size = \"16MiB\"", parameters);
                let report = go(&text).unwrap_or_else(|e| panic!("{name} {method} {op}: {e}"));
                let what = format!("{name} {method} {op}");
                assert!(
                    report.bytes > 0 && (bytes == 0 || report.bytes == bytes),
                    "{what}: {}",
                    report.bytes
                );
                assert!(
                    report.timeline.bytes.iter().sum::<u64>() >= report.bytes,
                    "{what}"
                );
                assert!(
                    report.device_bytes > 0 && report.makespan > 1_000_000,
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn runs_in_turn_wait_for_each_other() {
    // 32 columns of 2 KiB: every run of 2 KiB is a separate access of the disk.
    let columns = SMALL.replace(
        "benchmark = \"demo\"",
        "benchmark = \"noncontig\"\nmethod = \"datatype\"",
    );
    let columns = columns.replace("segment = \"64KiB\"", "per_call = \"1MiB\"");
    let with = |server: &str| {
        let text = columns.replace("[client]", &format!("[server]\n{server}\n[client]"));
        go(&text).unwrap()
    };
    let (together, in_turn) = (with("runs = 'together'"), with("runs = 'in-turn'"));
    assert_eq!(together.bytes, in_turn.bytes);
    assert_eq!(together.device_requests, in_turn.device_requests);
    assert!(in_turn.makespan > together.makespan);
    // With reads through the gaps of three other ranks' columns a part is one access, and moves four times the bytes.
    let through = with("runs = 'in-turn'\ngap = '6KiB'");
    assert!(through.device_requests * 16 < in_turn.device_requests);
    assert!(through.device_bytes > 3 * in_turn.device_bytes);
}

/// One decision per slice of 256 KiB, however many runs it has; slices whose ranges overlap are joined.
#[test]
fn what_is_scheduled_is_a_slice() {
    let columns = SMALL.replace(
        "benchmark = \"demo\"",
        "benchmark = \"noncontig\"\nmethod = \"datatype\"",
    );
    let columns = columns.replace("segment = \"64KiB\"", "per_call = \"4MiB\"");
    let with = |server: &str| {
        let text = columns.replace("[client]", &format!("[server]\n{server}\n[client]"));
        go(&text).unwrap()
    };
    for runs in ["together", "in-turn"] {
        let alone = with(&format!("runs = '{runs}'"));
        assert_eq!(alone.bytes, 16 << 20);
        assert_eq!(alone.decisions, alone.bytes / penstock_sched::SLICE);
        // 2 KiB runs.
        assert_eq!(alone.device_requests, alone.bytes / (2 << 10));
        let few = with(&format!("runs = '{runs}'\nmost_runs = 32"));
        assert_eq!(few.decisions, few.bytes / (64 << 10));
        let joined = with(&format!("runs = '{runs}'\nscheduler = 'to-agg'\ndepth = 1"));
        assert!(joined.decisions < alone.decisions, "{}", joined.decisions);
        assert_eq!(joined.bytes, alone.bytes);
        assert_eq!(joined.device_requests, alone.device_requests);
    }
}

/// What moves outside the measured part does not count, and programs end with it.
#[test]
fn a_part_of_a_run_is_measured() {
    let whole = go(SMALL).unwrap();
    let half = whole.makespan / 2;
    let with = |measured: String| go(&edited("[client]", &format!("{measured}\n[client]")));
    let first = with(format!("[measured]\nuntil = \"{half}ns\"")).unwrap();
    let second = with(format!(
        "[measured]\nfrom = \"{half}ns\"\nuntil = \"1000s\""
    ));
    let second = second.unwrap();
    assert_eq!((first.makespan, second.makespan), (half, whole.makespan));
    assert!(first.programs.iter().all(|p| p.end == half) && first.events < whole.events);
    let bytes = |r: &Report, time: u64| (r.throughput * time as f64 / 1e9).round() as u64;
    let (before, after) = (bytes(&first, half), bytes(&second, whole.makespan - half));
    assert_eq!(before + after, whole.bytes);
    assert!(before > whole.bytes / 4 && after > whole.bytes / 4);
    let error = with("[measured]\nfrom = \"2s\"\nuntil = \"1s\"".into()).unwrap_err();
    assert!(error.to_string().contains("measured.until"), "{error}");
}

const SITUATIONS: &str = include_str!("../../../experiments/scheduling/situations.toml");

/// A part of the scheduling experiment, for 4 s: properties that hold on every device.
#[test]
fn the_online_selector_is_nowhere_much_worse_than_to() {
    let short = SITUATIONS.replace("until = \"16s\"", "until = \"4s\"");
    assert_ne!(short, SITUATIONS);
    let experiment = Experiment::parse(&short, "situations.toml").unwrap();
    let names: Vec<_> = experiment.cases.iter().map(|c| c.name.as_str()).collect();
    let to = names.iter().filter(|name| name.ends_with(", to"));
    let to: Vec<_> = to.step_by(71).copied().collect();
    assert_eq!(to.len(), 9);
    for name in to {
        let rate = |case: &str| {
            let mut progress = |_, _, _, _| {};
            let outcome = experiment.run(|c| c == case, &mut |_, _, _| {}, &mut progress);
            outcome.unwrap().cases[0].report.throughput
        };
        let (baseline, online) = (rate(name), rate(&name.replace(", to", ", online")));
        assert!(
            baseline > 0.0 && online > 0.85 * baseline,
            "{name}: {baseline} {online}"
        );
    }
}

/// Delays of a server make operations longer, and the result still depends on the seed only.
#[test]
fn servers_may_be_late_by_themselves() {
    for op in ["read", "write"] {
        let late = |jitter: &str| {
            let text = edited("op = \"read\"", &format!("op = \"{op}\""));
            let text = text.replace(
                "[client]",
                &format!("[server]\njitter = \"{jitter}\"\n[client]"),
            );
            let report = go(&text).unwrap();
            assert_eq!(report.bytes, 16 << 20);
            report.makespan
        };
        assert!(late("5ms") > late("0ms"), "{op}");
        assert_eq!(late("1ms"), late("1ms"));
    }
}

/// Many operations of a rank are under way. Serving one request of a connection at a time is then better than waiting
/// for each, by the network time. When all are served at once, the disk has a choice.
#[test]
fn a_connection_serves_its_requests_in_turn() {
    let list = |pipeline: u32, connection: u32| {
        let text = edited(
            "benchmark = \"demo\"",
            &format!("benchmark = \"hpio\"\nmethod = \"list\"\npipeline = {pipeline}"),
        )
        .replace(
            "segment = \"64KiB\", file_size = \"16MiB\"",
            "region_count = 1024, region_size = \"4KiB\", region_spacing = \"1KiB\"",
        )
        .replace(
            "[client]",
            &format!("[server]\nconnection = {connection}\ndepth = 64\n[client]"),
        );
        let report = go(&text).unwrap();
        assert_eq!(report.bytes, 4 * 1024 * 4096);
        report.makespan
    };
    let (one, in_turn, all) = (list(1, 0), list(64, 1), list(64, 0));
    assert!(in_turn < one, "{in_turn} {one}");
    assert_ne!(in_turn, all);
    // Writes move in parts, some of which arrive before their request's turn.
    for op in ["read", "write"] {
        let text = edited("op = \"read\"", &format!("op = \"{op}\"\nin_flight = 16")).replace(
            "[client]",
            "[server]\nconnection = 1\nbuffer = \"16KiB\"\n[client]",
        );
        assert_eq!(go(&text).unwrap().bytes, 16 << 20, "{op}");
    }
}

/// Sieved writes of interleaved regions lock their buffers one after the other.
#[test]
fn sieved_writes_wait_for_each_others_ranges() {
    let text = edited(
        "benchmark = \"demo\"\nranks = 4\nop = \"read\"",
        "benchmark = \"hpio\"\nmethod = \"sieve\"\nranks = 4\nop = \"write\"",
    )
    .replace(
        "segment = \"64KiB\", file_size = \"16MiB\"",
        "region_count = 512, region_size = \"4KiB\", region_spacing = \"1KiB\"",
    )
    .replace(
        "jitter = \"100us\"",
        "jitter = \"100us\"\nsieve_buffer = \"64MiB\"",
    )
    .replace("hdd,queue=noop", "ssd");
    let report = go(&text).unwrap();
    assert_eq!(report.bytes, 4 * 512 * 4096);
    // The whole extent in one buffer, read and written by one rank after the other.
    let (makespan, operation) = (report.makespan, report.latency_p50);
    assert!(makespan > 7 * operation, "{makespan} {operation}");
}

/// In atomic mode overlapping calls are serialised if one writes; readers share, and a rank with a range of its own
/// does not wait.
#[test]
fn atomic_calls_take_turns_where_their_ranges_meet() {
    let makespan = |benchmark: &str, op: &str, atomic: bool, method: &str| {
        let text = edited(
            "benchmark = \"demo\"\nranks = 4\nop = \"read\"",
            &format!(
                "benchmark = \"{benchmark}\"\nranks = 4\nop = \"{op}\"\natomic = {atomic}\nmethod = \"{method}\"\ncollective = true"
            ),
        );
        let parameters = match benchmark {
            "hpio" => "region_count = 512, region_size = \"4KiB\", region_spacing = \"1KiB\"",
            _ => "transfer = \"1MiB\", file_size = \"16MiB\"",
        };
        let text = text.replace("segment = \"64KiB\", file_size = \"16MiB\"", parameters);
        let report = go(&text.replace("hdd,queue=noop", "ssd")).unwrap();
        assert_eq!(report.resent, 0, "{method} does not exchange here");
        report.makespan
    };
    // Interleaved: one after the other, with any method.
    for method in ["datatype", "sieve", "list", "two-phase"] {
        let atomic = makespan("hpio", "write", true, method);
        let plain = makespan(
            "hpio",
            "write",
            false,
            if method == "list" { "list" } else { "datatype" },
        );
        assert!(atomic > 2 * plain, "{method}: {atomic} {plain}");
    }
    let near = |a: u64, b: u64| a > b && a < b + b / 4;
    for (benchmark, op) in [
        ("hpio", "read"),
        ("ior-mpi-io", "write"),
        ("ior-mpi-io", "read"),
    ] {
        let (atomic, plain) = (
            makespan(benchmark, op, true, "datatype"),
            makespan(benchmark, op, false, "datatype"),
        );
        assert!(near(atomic, plain), "{benchmark} {op}: {atomic} {plain}");
    }
}

/// A share of the files' extents is elsewhere: a sequential reader has to seek.
#[test]
fn fragmented_files_cost_seeks() {
    let with = |device: &str, server: &str| {
        let text = edited("hdd,queue=noop", device)
            .replace("op = \"read\"", "op = \"write\"\nsync = true");
        let text = text.replace("[client]", &format!("[server]\n{server}\n[client]"));
        let report = go(&text).unwrap();
        assert_eq!(
            (report.bytes, report.device_bytes),
            (16 << 20, 16 << 20),
            "{device}"
        );
        report
    };
    for server in ["cache = '64MiB'", "cache = 0"] {
        let whole = with("hdd,queue=noop", server);
        let pieces = with("hdd,queue=noop,fragmentation=0.5,extent=64k", server);
        assert!(
            pieces.seek_distance > 1e9 && whole.seek_distance < 1e7,
            "{server}"
        );
        assert!(pieces.makespan > whole.makespan, "{server}");
        // The array numbers its requests itself, whatever their identifiers.
        with("raid,queue=none,fragmentation=0.5,extent=48k", server);
    }
    let full = edited("hdd,queue=noop", "hdd,fragmentation=0.5,extent=400g");
    let full = full.replace("op = \"read\"", "op = \"read\"\ninstances = 8");
    assert!(
        go(&full)
            .unwrap_err()
            .to_string()
            .contains("on each device")
    );
}

#[test]
fn two_phase_resends_what_is_not_the_aggregators_own() {
    let to = "collective = true\nmethod = \"two-phase\"\nop = \"read\"";
    let report = go(&edited("op = \"read\"", to)).unwrap();
    // Each aggregator's domain of a call holds one segment of each rank, 3 of 4 of them from other ranks.
    assert_eq!(report.resent, (16 << 20) / 4 * 3);
    assert_eq!(report.operations, 16 << 20 >> 18);
}

#[test]
fn node_exchange_shares_what_two_phase_sends() {
    let with = |method: &str, per_node: u32| {
        let to = format!("collective = true\nmethod = \"{method}\"\nop = \"read\"");
        let text = edited("op = \"read\"", &to);
        go(&text.replace(
            "servers = 4",
            &format!("servers = 4\nranks_per_node = {per_node}"),
        ))
    };
    let (sent, shared) = (
        with("two-phase", 4).unwrap(),
        with("node-exchange", 4).unwrap(),
    );
    assert_eq!(
        (shared.bytes, shared.operations),
        (sent.bytes, sent.operations)
    );
    assert_eq!(shared.resent, sent.resent);
    assert!(shared.makespan > sent.makespan / 2 && shared.makespan < sent.makespan * 2);
    let refused = with("node-exchange", 2).unwrap_err().to_string();
    assert!(refused.contains("ranks_per_node"), "{refused}");
}

/// Segments of half a stripe unit, so that each server is wanted by two ranks.
fn resonant(rules: &str, op: &str) -> Report {
    let to = format!("collective = true\nmethod = \"resonant\"\nop = \"{op}\"");
    let text = edited("op = \"read\"", &to).replace("64KiB", "32KiB");
    let text = text.replace(
        "[client]",
        &format!("[server]\ncache = \"64MiB\"\n[client]\nresonant = {{ rules = \"{rules}\" }}"),
    );
    go(&text).unwrap()
}

#[test]
fn resonant_fetches_each_byte_once_and_resends_only_what_is_written() {
    let read = resonant("ours", "read");
    assert_eq!((read.bytes, read.resent), (16 << 20, 0));
    assert_eq!(read.accessed, read.bytes);
    // No more than read-ahead behind the end.
    assert!(
        read.device_bytes <= read.bytes + (4 << 18),
        "{}",
        read.device_bytes
    );
    assert!(read.seek_distance < 70e3, "{}", read.seek_distance);
    // Agents receive everything, and the others read their own once more.
    let published = resonant("romio", "read");
    assert!(published.accessed > read.accessed);
    assert!(published.device_bytes <= read.bytes + (4 << 18));
    for rules in ["ours", "romio"] {
        let write = resonant(rules, "write");
        // An agent owns half of its server's bytes.
        assert_eq!((write.bytes, write.resent), (16 << 20, 8 << 20), "{rules}");
    }
}

/// Two programs, each sequential, whose files are far apart on the disks.
const TWO: &str = r#"
name = "two"
[cluster]
servers = 2
[server]
cache = "64MiB"
[device]
model = "barracuda,queue=noop"
[[program]]
benchmark = "mpi-io-test"
ranks = 2
instances = 2
barrier = true
distance = "20GB"
parameters = { segment = "64KiB", file_size = "64MiB" }
"#;

#[test]
fn programs_that_take_turns_are_faster_than_ones_that_disturb_each_other() {
    let with = |more: &str| {
        go(&format!(
            "{TWO}\n[orchestrator]\nwindow = \"200ms\"\n{more}"
        ))
        .unwrap()
    };
    let (stock, turns) = (go(TWO).unwrap(), with(""));
    assert!(stock.programs.iter().all(|p| p.orchestrated.is_none()));
    assert!(
        turns.throughput > 1.2 * stock.throughput,
        "{} {}",
        turns.throughput,
        stock.throughput
    );
    for program in &turns.programs {
        let did = program.orchestrated.as_ref().unwrap();
        assert!(did.eligible > 0.5, "{did:?}");
        assert!((0.3..0.7).contains(&did.time), "{did:?}");
    }
    // One seed, one result.
    let again = serde_json::to_string(&with("")).unwrap();
    assert_eq!(serde_json::to_string(&turns).unwrap(), again);
    // A dead orchestrator keeps nobody out: the gates open after two windows.
    let dead = with("stops = \"500ms\"");
    assert_eq!(dead.bytes, stock.bytes);
    let late = dead.makespan as f64 / stock.makespan as f64;
    assert!(late < 1.3, "{late}");
    let wrong = go(&format!("{TWO}\n[orchestrator]\nwindow = \"1ms\"")).unwrap_err();
    assert!(wrong.to_string().contains("orchestrator.window"), "{wrong}");
}

/// ROMIO's ranks exchange more messages, and its aggregators read windows that they write with holes.
#[test]
fn two_phase_by_romios_rules_reads_windows_with_holes() {
    let with = |rules: &str, method: &str| {
        let to = format!("{method}\nop = \"write\"");
        let text = edited("op = \"read\"", &to).replace("\"demo\"", "\"hpio\"");
        let text = text.replace(
            "{ segment = \"64KiB\", file_size = \"16MiB\" }",
            "{ region_size = 64, region_spacing = 64 }",
        );
        go(&text.replace("[client]", &format!("[client]\ntwo_phase = \"{rules}\""))).unwrap()
    };
    let collective = "collective = true\nmethod = \"two-phase\"";
    let (ours, romio) = (with("ours", collective), with("romio", collective));
    assert_eq!(ours.bytes, romio.bytes);
    assert_eq!(ours.accessed, ours.bytes);
    assert!(
        romio.accessed > 2 * romio.bytes,
        "{} {}",
        romio.accessed,
        romio.bytes
    );
    let alone = "method = \"datatype\"";
    assert_eq!(with("ours", alone).makespan, with("romio", alone).makespan);
}

#[test]
fn synced_writes_end_on_the_device() {
    let cached = edited("[client]", "[server]\ncache = \"64MiB\"\n[client]");
    let written = |sync: bool| {
        let to = format!("op = \"write\"\nsync = {sync}");
        go(&cached.replace("op = \"read\"", &to)).unwrap()
    };
    let (buffered, synced) = (written(false), written(true));
    assert!(synced.makespan > buffered.makespan);
    assert_eq!(synced.device_bytes, 16 << 20);
    // A device with a cache of its own has the bytes early; they are on its medium only at the end of a synced run.
    let own = |sync: bool| {
        let to = format!("op = \"write\"\nsync = {sync}");
        let cached = SMALL.replace("queue=noop", "queue=noop,write-cache=32MiB");
        go(&cached.replace("op = \"read\"", &to)).unwrap().makespan
    };
    // 16 MiB over four disks of 130 MB/s.
    assert!(own(true) > own(false));
    assert!(own(true) > (16 << 20) * 1_000 / (4 * 140), "{}", own(true));
}

/// Writers wait for memory later if dirty pages are written back in the background.
#[test]
fn dirty_pages_are_written_back_from_an_amount_on() {
    let makespan = |background: &str| {
        let server = format!(
            "[server]\ncache = '64MiB'\ndirty = '2MiB'\nflush = '100s'\n{background}\n[client]"
        );
        let text = edited("op = \"read\"", "op = \"write\"\ncompute = \"2ms\"");
        let report = go(&text.replace("[client]", &server)).unwrap();
        assert_eq!(report.device_bytes, 16 << 20);
        report.makespan
    };
    let (late, early) = (makespan(""), makespan("background = '256KiB'"));
    assert!(early < late * 95 / 100, "{early} {late}");
}

#[test]
fn cohorts_move_the_same_bytes() {
    let many = edited("ranks = 4", "ranks = 64\ncohort = 16");
    let report = go(&many.replace("16MiB", "64MiB")).unwrap();
    assert_eq!(report.bytes, 64 << 20);
    assert_eq!(report.operations, 64 << 20 >> 16);
    // A rank's segment is one stripe unit, so each operation of a rank is one request.
    assert_eq!(report.requests, report.operations);
}

#[test]
fn a_shared_switch_bounds_the_throughput() {
    let text = edited("[client]", "[network]\nswitch = \"20MB/s\"\n[client]");
    let report = go(&text).unwrap();
    assert!(report.throughput < 20e6, "{}", report.throughput);
    assert!(report.throughput > 15e6, "{}", report.throughput);
}

#[test]
fn every_algorithm_serves_every_byte() {
    for algorithm in penstock_sched::Algorithm::ALL {
        let server =
            format!("[server]\nscheduler = \"{algorithm}\"\ndecision = \"20us\"\n[client]");
        let report = go(&edited("[client]", &server)).unwrap();
        assert_eq!(report.bytes, 16 << 20, "{algorithm}");
    }
}

#[test]
fn decisions_cost_time() {
    let with = |cost: &str| {
        let server = format!("[server]\ndecision = \"{cost}\"\n[client]");
        go(&edited("[client]", &server)).unwrap().makespan
    };
    // 64 decisions on each server, one after the other.
    assert!(with("10ms") > with("0us") + 64 * 5_000_000);
}

#[test]
fn bad_scenarios_name_file_key_and_what_is_allowed() {
    for (from, to, says) in [
        (
            "servers = 4",
            "servers = 0",
            "small.toml: cluster.servers: 0 is outside 1..=65536",
        ),
        ("servers = 4", "servres = 4", "unknown field `servres`"),
        (
            "servers = 4",
            "servers = 4\nstripe_unit = '2TiB'",
            "cluster.stripe_unit",
        ),
        ("hdd,queue=noop", "floppy", "there are"),
        (
            "\"demo\"",
            "\"dmeo\"",
            "program.0.benchmark: no benchmark is called \"dmeo\"; there are demo",
        ),
        ("segment = \"64KiB\"", "segmnt = 1", "program.0.parameters"),
        ("ranks = 4", "ranks = 4\ncohort = 3", "program.0.cohort"),
        ("op = \"read\"", "op = \"append\"", "append"),
        (
            "op = \"read\"",
            "op = \"read\"\nmethod = \"two-phase\"",
            "collective = true",
        ),
        ("16MiB", "900TiB", "on each device"),
        (
            "[client]",
            "[server]\nscheduler = \"cfq\"\n[client]",
            "to-agg",
        ),
        ("[client]", "[network]\nrate = 0\n[client]", "network.rate"),
        (
            "\"demo\"\nranks = 4\nop = \"read\"\nparameters = { segment = \"64KiB\", file_size = \"16MiB\" }",
            "\"iozone\"\nranks = 4\ncollective = true\nmethod = \"two-phase\"",
            "file of its own",
        ),
        (
            "op = \"read\"",
            "op = \"read\"\natomic = true\nin_flight = 4",
            "program.0.atomic",
        ),
    ] {
        let error = go(&edited(from, to)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(says), "{to}: {error}");
        assert!(
            error.contains("small.toml") || error.contains("device"),
            "{error}"
        );
    }
}
