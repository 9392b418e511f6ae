//! Prints what each selection tree chooses in each situation of experiments/scheduling/situations.toml, as CSV.
//!
//!     cargo run --release -p penstock-sched --example choices -- alone
//!
//! The set-up is `source`, `alone` or `four`.
use penstock_sched::learn::Order;
use penstock_sched::{Op, Situation, Tree};

/// Devices with their sequential / random ratios at 8 KiB for write and read (TS table 3.4), and gigabytes of memory.
const DEVICES: [(&str, f64, f64, u64); 4] = [
    ("pastel", 21.29, 38.91, 8),
    ("graphene", 15.12, 40.68, 16),
    ("suno", 8.17, 25.46, 32),
    ("edel", 0.66, 2.37, 24),
];

/// Set-ups with their servers, and the largest request to one of them in bytes.
const SETUPS: [(&str, u32, u64); 3] = [
    ("source", 4, 8 << 10),
    ("alone", 1, 256 << 10),
    ("four", 4, 64 << 10),
];

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let Some((_, servers, most)) = SETUPS.into_iter().find(|setup| setup.0 == wanted) else {
        eprintln!("choices: name a set-up: source, alone or four");
        std::process::exit(2);
    };
    let names = Tree::ALL.map(|tree| tree.name());
    println!("case,{}", names.join(","));
    for (device, write, read, memory) in DEVICES {
        for (op, op_name) in [(Op::Write, "write"), (Op::Read, "read")] {
            for programs in [1, 4] {
                for (own, order, order_name) in [
                    (false, Order::Contiguous, "N-1 contig"),
                    (false, Order::Strided, "N-1 strided"),
                    (true, Order::Contiguous, "N-N contig"),
                ] {
                    for (size, size_name) in [(16 << 10, "small"), (256 << 10, "large")] {
                        for processes in [8, 16] {
                            let megabytes = match (own, programs) {
                                (true, 1) => 1024,
                                (true, _) => 512,
                                _ => 64 * u64::from(processes),
                            };
                            let situation = Situation {
                                op,
                                files: if own { programs * processes } else { programs },
                                bytes_per_file: megabytes << 20,
                                order,
                                large: size > 64 << 10,
                                ratio: if op == Op::Write { write } else { read },
                                memory: memory << 30,
                                processes: programs * processes,
                                request_bytes: most.min(size),
                                servers,
                            };
                            let choices = Tree::ALL.map(|tree| {
                                let choice = tree.choose(&situation);
                                choice.map_or("none", |algorithm| algorithm.name())
                            });
                            println!(
                                "{device} {op_name} x{programs} {order_name} {size_name} {processes},{}",
                                choices.join(",")
                            );
                        }
                    }
                }
            }
        }
    }
}
