//! # toy: three methods that show what a method is
//!
//! The methods consist of this file and three lines of [`super::TABLE`]. The tests below use them as users use any
//! method: by hints, under `auto`, in collective calls, in statistics and in the manual.
use super::cost::{RankAccess, Terms};
use super::domains::Seat;
use super::plan::{Alone, Cut, Once, Outcome, Part, Plan, Step};
use super::row::{BufferHint, Row, Work};
use crate::model;
use crate::testing::Turns;
use penstock_client::Form;
use penstock_datatype::Pattern;

/// One operation for each buffer of bytes.
pub(super) const ALONE: Row = Row {
    name: "toy",
    summary: "one structured operation for each buffer",
    toggles: Some(["toy_read", "toy_write"]),
    buffer: Some(BufferHint {
        keys: ["toy_buffer_size"; 2],
        default: 1 << 16,
        meaning: "most bytes of an operation",
    }),
    offered: |_, _| false,
    offered_when: "only where a hint asks for it",
    counts: |shape, buffer| (shape.bytes.div_ceil(buffer), shape.bytes),
    region: |tally, _| tally.largest,
    work: Work::Alone {
        locks: false,
        cost: |terms, shape| shape.bytes * terms.byte(),
        plan,
    },
};

/// Ranks meet, and each performs its own access.
pub(super) const EXCHANGE: Row = Row {
    name: "toy-exchange",
    summary: "ranks meet, and each does what it wants",
    toggles: None,
    buffer: None,
    offered: |_, place| place.ranks > 1.0,
    offered_when: "several ranks",
    counts: |shape: &model::AccessSummary, _| (1, shape.aggregate_extent),
    region: |tally, _| tally.largest,
    work: Work::Exchange {
        striped: false,
        cost: |_: &Terms<'_>, shapes: &[RankAccess], _| 1000.0 * shapes.len() as f64,
        plan: meet,
    },
};

/// Ranks perform their accesses one after another: each receives a message from the one before it.
pub(super) const TURNS: Row = Row {
    name: "toy-turns",
    summary: "ranks take turns, each told by the one before it",
    offered: |_, _| false,
    offered_when: "only where a hint asks for it",
    work: Work::Exchange {
        striped: false,
        cost: |_: &Terms<'_>, shapes: &[RankAccess], _| 2000.0 * shapes.len() as f64,
        plan: Turns::plan,
    },
    ..EXCHANGE
};

fn plan(access: &Alone) -> Box<dyn Plan> {
    let step = access.buffer;
    let parts = (0..access.file.len.div_ceil(step)).map(|i| {
        let at = i * step;
        let pattern = access.file.slice(at, step.min(access.file.len - at));
        Part { at, pattern }
    });
    let cut = Cut::Parts(parts.collect::<Vec<_>>().into_iter());
    Once::plan(access, Form::Structured, cut)
}

/// A barrier before an independent access.
struct Meet {
    met: bool,
    then: Box<dyn Plan>,
}

fn meet(seat: Seat) -> Box<dyn Plan> {
    let file = seat.schedule.patterns[seat.rank].clone();
    let access = Alone {
        op: seat.op,
        memory: Pattern::contiguous(0, file.len),
        buffer: file.len.max(1),
        file,
    };
    Box::new(Meet {
        met: false,
        then: plan(&access),
    })
}

impl Plan for Meet {
    fn next(&mut self, last: Outcome) -> Step {
        if std::mem::replace(&mut self.met, true) {
            return self.then.next(last);
        }
        Step::Barrier { filled: None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::auto::{Access, Candidate, Learnt, choose};
    use super::super::cost::{Costs, Surroundings};
    use super::super::{Method, manual};
    use super::*;
    use crate::hints::{Hints, hint_keys};
    use crate::process::{Environment, Process};
    use crate::testing::run;
    use crate::{Amode, Comm, DataRep, Datatype, File, Info, Where};
    use penstock_base::Op;
    use penstock_datatype::{Loop, Source, Target};
    use std::sync::Arc;

    const TOY: Method = Method::named("toy");
    const TOY_EXCHANGE: Method = Method::named("toy-exchange");
    const RANKS: usize = 3;
    const BYTES: usize = 10_000;

    /// Ranks write and read interleaved pieces of a file; returns rank 0's summary, and the results after the write and
    /// the read.
    fn interleaved(hints: &[(&str, &str)], collective: bool) -> (crate::FileSummary, [Info; 2]) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f").display().to_string();
        let mut told = run(RANKS, |comm| {
            let rank = comm.rank();
            let process = Arc::new(Process::new(Environment {
                direct: true,
                ..Environment::default()
            }));
            let hints = hints.iter().copied().collect();
            let amode = Amode::RDWR | Amode::CREATE;
            let file = File::open_in(&process, Box::new(comm), &path, amode, &hints).unwrap();
            let tile = Loop::bytes(50).resized(0, 50 * RANKS as i64).unwrap();
            let disp = 50 * rank as i64;
            file.set_view(
                disp,
                &Datatype::byte(),
                &Datatype::opaque(tile).unwrap(),
                DataRep::Native,
                &Info::new(),
            )
            .unwrap();
            let mine = vec![1 + rank as u8; BYTES];
            let of = Datatype::byte();
            let wrote = file.write(
                Where::At(0),
                collective,
                &mut Source::from_slice(&mine),
                &of,
            );
            assert_eq!(wrote.unwrap(), BYTES as u64);
            let written = file.info();
            file.sync().unwrap();
            let mut back = vec![0; BYTES];
            let into = &mut Target::from_slice(&mut back);
            let got = file.read(Where::At(0), collective, into, &of).unwrap();
            assert_eq!(got, BYTES as u64);
            assert!(back == mine, "rank {rank} reads other bytes");
            let told = (file.summary(), [written, file.info()]);
            file.close().unwrap();
            told
        });
        let contents = std::fs::read(path).unwrap();
        assert_eq!(contents.len(), RANKS * BYTES);
        for (i, byte) in contents.iter().enumerate() {
            assert_eq!(usize::from(*byte), 1 + i / 50 % RANKS, "byte {i}");
        }
        told.swap_remove(0)
    }

    #[test]
    fn a_hint_names_it() {
        for collective in [false, true] {
            let hints = [("penstock_method", "toy"), ("toy_buffer_size", "4096")];
            let (summary, infos) = interleaved(&hints, collective);
            for info in infos {
                assert_eq!(info.get("penstock_method_chosen"), Some("toy"));
                assert_eq!(info.get("toy_buffer_size"), Some("4096"));
                assert_eq!(info.get("toy_read"), Some("automatic"));
            }
            for direction in [summary.read, summary.write] {
                let counts = &direction.methods["toy"];
                assert_eq!((counts.operations, counts.model.operations), (3, 3));
                assert_eq!(counts.accessed_bytes, counts.model.accessed_bytes);
                assert_eq!(counts.region_bytes, 4096);
            }
        }
        let (summary, _) = interleaved(&[("penstock_method", "toy-exchange")], true);
        assert_eq!(summary.write.methods["toy-exchange"].operations, 1);
        let (summary, infos) = interleaved(&[("penstock_method", "toy-exchange")], false);
        assert_eq!(summary.write.methods["datatype"].calls, 1);
        let reason = infos[0].get("penstock_method_reason").unwrap();
        assert!(reason.contains("in place of toy-exchange"), "{reason}");
    }

    /// All ranks write the same bytes: those of the last turn remain.
    #[test]
    fn ranks_take_turns() {
        interleaved(&[("penstock_method", "toy-turns")], true);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f").display().to_string();
        run(RANKS, |comm| {
            let rank = comm.rank();
            let process = Arc::new(Process::new(Environment {
                direct: true,
                ..Environment::default()
            }));
            let hints = Info::from_iter([("penstock_method", "toy-turns")]);
            let amode = Amode::RDWR | Amode::CREATE;
            let file = File::open_in(&process, Box::new(comm), &path, amode, &hints).unwrap();
            for turn in 0..20 {
                let mine = [turn * 10 + rank as u8; 1000];
                let from = &mut Source::from_slice(&mine);
                let wrote = file.write(Where::At(0), true, from, &Datatype::byte());
                assert_eq!(wrote.unwrap(), 1000);
                // No rank begins the next call before all have checked.
                file.sync().unwrap();
                let found = std::fs::read(&path).unwrap();
                assert_eq!(found, [turn * 10 + RANKS as u8 - 1; 1000]);
                file.sync().unwrap();
            }
            file.close().unwrap();
        });
    }

    #[test]
    fn auto_takes_it_where_its_own_hint_asks() {
        let exchange = ["disable", "automatic", "enable"];
        for (collective, cb) in [(false, "automatic")]
            .into_iter()
            .chain(exchange.map(|cb| (true, cb)))
        {
            let hints = [("toy_write", "enable"), ("romio_cb_write", cb)];
            let (_, [written, read]) = interleaved(&hints, collective);
            let chosen = written.get("penstock_method_chosen").unwrap();
            let reason = written.get("penstock_method_reason").unwrap();
            match (collective, cb) {
                // Only methods that exchange are left, and the toy is more expensive.
                (_, "enable") => {
                    assert_eq!(chosen, "node-exchange", "{reason}");
                    assert!(reason.contains("next toy-exchange"), "{reason}");
                }
                (true, "automatic") => assert!(reason.contains("toy"), "{reason}"),
                _ => assert_eq!(chosen, "toy", "{reason}"),
            }
            let untouched = read.get("penstock_method_chosen").unwrap();
            assert_ne!(untouched, "toy");
        }
    }

    #[test]
    fn what_is_learnt_about_it_counts() {
        let mut hints = Hints::default();
        hints.take(&Info::from_iter([("romio_cb_read", "enable")]), false);
        let shape = RankAccess {
            bytes: 1e6,
            file_regions: 100.0,
            memory_regions: 1.0,
            extent: 4e6,
        };
        let access = Access {
            direction: Op::Read,
            shapes: &[shape; 4],
            extent: 4e6,
            collective: true,
            mine: 0,
            incumbent: None,
        };
        let place = Surroundings {
            ranks: 4.0,
            processors: 4.0,
            one_node: false,
            shortcut: false,
            servers: true,
        };
        let mut learnt = Learnt::default();
        let toy = Candidate {
            method: TOY_EXCHANGE,
            shortcut: false,
        };
        for _ in 0..100 {
            learnt.learn(Op::Read, toy, 1000.0, 2.0);
        }
        let choice = choose(
            &Costs::default(),
            learnt.ratios(Op::Read),
            &hints,
            &access,
            &place,
        );
        assert_eq!(choice.candidate.method, Method::TWO_PHASE);
        let (next, seconds) = choice.next.unwrap();
        assert_eq!(next, toy);
        assert!((seconds - 1000.0 / 16.0).abs() < 0.1, "{seconds}");
    }

    #[test]
    fn tables_of_hints_and_the_manual_have_it() {
        assert!(Method::ALL.len() >= 8 && Method::ALL.contains(&TOY));
        for key in ["toy_read", "toy_write", "toy_buffer_size"] {
            assert_eq!(hint_keys().filter(|known| *known == key).count(), 1);
            assert!(manual::hints().contains(&format!("`{key}`")));
        }
        assert!(manual::methods().contains("| `toy` | one structured operation"));
        assert!(manual::methods().contains("| `toy-exchange` | ranks meet"));
    }
}
