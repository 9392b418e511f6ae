//! Profiles of models and of a file: the estimate against full measurement, and refused options.
use penstock_device::profile::{
    FileTarget, Interval, ModelTarget, Options, Profile, ProfileError, Step, Target, profile,
};
use penstock_device::{Model, Nanos, Op};

fn model(text: &str, options: &Options) -> Profile {
    let device = Model::parse(text).unwrap().build();
    profile(&mut ModelTarget::new(text, device), options, &mut |_| true).unwrap()
}

/// Coarser steps than the source's, so that full measurement stays short.
fn coarse() -> Options {
    let interval = |from: u64, to: u64, step: u64| Interval {
        from: from << 10,
        to: to << 10,
        step: step << 10,
    };
    Options {
        file: 64 << 20,
        intervals: vec![interval(8, 64, 8), interval(64, 4096, 576)],
        full: true,
        repetitions: 1,
        ..Options::default()
    }
}

#[test]
fn disks_care_for_order_and_flash_does_not() {
    let ratio = |name: &str| {
        let p = model(
            name,
            &Options {
                full: false,
                ..coarse()
            },
        );
        p.ratios
            .iter()
            .map(|r| r.at(8 << 10).unwrap())
            .fold(0.0, f64::max)
    };
    let (disk, flash) = (ratio("hdd"), ratio("ssd"));
    assert!(disk > 5.0, "{disk}");
    assert!(flash < disk / 2.0, "{flash} {disk}");
}

#[test]
fn the_estimate_is_near_full_measurement() {
    for name in ["hdd", "raid", "ssd"] {
        let p = model(name, &coarse());
        let d = p.deviation.unwrap();
        assert!(d.median_ratio < 0.15, "{name}: {d:?}");
        assert!(d.fraction < 0.5, "{name}: {d:?}");
        for curve in &p.curves {
            assert!(
                curve.estimated.windows(2).all(|w| w[0].1 <= w[1].1),
                "{name}"
            );
            assert!(
                curve
                    .lines
                    .iter()
                    .all(|l| l.slope >= 0.0 && l.intercept >= 0.0)
            );
            assert_eq!(curve.estimated.len(), curve.full.as_ref().unwrap().len());
        }
        for r in &p.ratios {
            assert!(r.min <= r.mean && r.mean <= r.max && r.min > 0.0);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_profile_of_a_model() {
    let options = Options {
        full: false,
        ..coarse()
    };
    assert_eq!(model("hdd", &options), model("hdd", &options));
}

/// A device whose times lie exactly on a line: 100 µs + 1 ns/B, ten times that for random reads. Counts what happens.
#[derive(Default)]
struct Exact {
    end: u64,
    writes: u64,
    most: u64,
}

impl Target for Exact {
    fn describe(&self) -> String {
        "exact".into()
    }
    fn writable(&self) -> bool {
        false
    }
    fn alignment(&self) -> u64 {
        512
    }
    fn prepare(&mut self, _: u64, _: &mut dyn FnMut(u64) -> bool) -> Result<(), ProfileError> {
        Ok(())
    }
    fn access(&mut self, op: Op, offset: u64, bytes: u64) -> Result<Nanos, ProfileError> {
        assert_eq!(offset % bytes, 0);
        self.writes += u64::from(op == Op::Write);
        self.most = self.most.max(offset + bytes);
        let sequential = offset == self.end;
        self.end = offset + bytes;
        let wraps = offset == 0;
        Ok((100_000 + bytes) * if sequential || wraps { 1 } else { 10 })
    }
}

#[test]
fn lines_are_found_and_only_reads_where_nothing_may_be_written() {
    let mut exact = Exact::default();
    let options = Options {
        file: 1 << 30,
        full: false,
        ..coarse()
    };
    let p = profile(&mut exact, &options, &mut |_| true).unwrap();
    assert_eq!(exact.writes, 0);
    assert!(exact.most <= 1 << 30);
    assert_eq!((p.curves.len(), p.ratios.len()), (2, 1));
    for line in &p.curves[0].lines {
        assert!(
            (line.slope - 1.0).abs() < 1e-3 && (line.intercept - 1e5).abs() < 1e2,
            "{line:?}"
        );
    }
    assert!(
        (p.ratios[0].mean - 10.0).abs() < 1.0,
        "{}",
        p.ratios[0].mean
    );
}

/// A disk with other users: for a while all accesses take up to twice as long. Random accesses always take three times
/// as long as sequential ones.
struct Busy {
    end: u64,
    random: u64,
    left: u64,
    others: u64,
}

impl Target for Busy {
    fn describe(&self) -> String {
        "busy".into()
    }
    fn writable(&self) -> bool {
        true
    }
    fn alignment(&self) -> u64 {
        512
    }
    fn prepare(&mut self, _: u64, _: &mut dyn FnMut(u64) -> bool) -> Result<(), ProfileError> {
        Ok(())
    }
    fn access(&mut self, _: Op, offset: u64, bytes: u64) -> Result<Nanos, ProfileError> {
        if self.left == 0 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            (self.left, self.others) = (100 + self.random % 900, self.random >> 20 & 1023);
        }
        self.left -= 1;
        let sequential = offset == self.end || offset == 0;
        self.end = offset + bytes;
        let alone = (100_000 + bytes) * if sequential { 1 } else { 3 };
        Ok(alone + alone * self.others / 1023)
    }
}

#[test]
fn what_others_do_meanwhile_is_not_in_the_ratio() {
    let run = |part| {
        let mut busy = Busy {
            end: 0,
            random: 88_172_645_463_325_252,
            left: 0,
            others: 0,
        };
        let options = Options {
            repetitions: 3,
            part,
            ..coarse()
        };
        profile(&mut busy, &options, &mut |_| true).unwrap()
    };
    let (little, much) = (run(1000), run(4));
    let fraction = |p: &Profile| p.deviation.unwrap().fraction;
    assert!(fraction(&much) <= 0.25, "{:?}", much.deviation);
    assert!(
        fraction(&little) < fraction(&much) / 1.5,
        "{:?}",
        little.deviation
    );
    for summary in &much.ratios {
        let near = summary
            .ratios
            .iter()
            .filter(|r| (r.estimated / 3.0 - 1.0).abs() < 0.1);
        assert!(
            near.count() * 10 >= summary.ratios.len() * 9,
            "{:?}",
            summary.ratios
        );
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let bad = [
        (
            Options {
                intervals: vec![],
                ..coarse()
            },
            "no interval",
        ),
        (
            Options {
                file: 1 << 20,
                ..coarse()
            },
            "larger --file-size",
        ),
        (
            Options {
                points: 1,
                ..coarse()
            },
            "1 points",
        ),
        (
            Options {
                repetitions: 0,
                ..coarse()
            },
            "0 repetitions",
        ),
        (
            Options {
                part: 0,
                ..coarse()
            },
            "--part 0",
        ),
        (
            Options {
                accesses: 0,
                ..coarse()
            },
            "at least one",
        ),
        (
            Options {
                intervals: vec![Interval {
                    from: 8,
                    to: 8,
                    step: 8,
                }],
                ..coarse()
            },
            "FROM below TO",
        ),
        (
            Options {
                intervals: vec![Interval {
                    from: 1000,
                    to: 2000,
                    step: 1000,
                }],
                ..coarse()
            },
            "multiples of 512",
        ),
        (
            Options {
                intervals: vec![Interval {
                    from: 512,
                    to: 16 << 20,
                    step: 512,
                }],
                ..coarse()
            },
            "larger steps",
        ),
    ];
    for (options, why) in bad {
        let error = profile(&mut Exact::default(), &options, &mut |_| true).unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
}

#[test]
fn a_file_is_profiled_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        file: 4 << 20,
        intervals: vec![Interval {
            from: 8 << 10,
            to: 64 << 10,
            step: 8 << 10,
        }],
        accesses: 16,
        warm_up: 0,
        repetitions: 1,
        full: false,
        ..coarse()
    };
    let mut target = FileTarget::open(dir.path(), false).unwrap();
    let p = profile(&mut target, &options, &mut |_| {
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            0,
            "the file has no name"
        );
        true
    })
    .unwrap();
    assert_eq!(p.curves.len(), 4);
    // Whenever it is stopped, it returns `Stopped`.
    for stop in [0, 1, 5] {
        let mut calls = 0;
        let mut target = FileTarget::open(dir.path(), false).unwrap();
        let stopped = profile(&mut target, &options, &mut |p| {
            calls += u32::from(p.step != Step::Preparing || stop == 0);
            calls <= stop
        });
        assert!(matches!(stopped, Err(ProfileError::Stopped)), "{stopped:?}");
    }
    // An existing file is read and not changed.
    let path = dir.path().join("data");
    std::fs::write(&path, vec![7; 4 << 20]).unwrap();
    let mut target = FileTarget::open(&path, false).unwrap();
    let p = profile(&mut target, &options, &mut |_| true).unwrap();
    assert_eq!(p.curves.len(), 2);
    assert!(std::fs::read(&path).unwrap().iter().all(|b| *b == 7));
    let larger = Options {
        file: 8 << 20,
        ..options
    };
    let error = profile(&mut target, &larger, &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("--file-size"), "{error}");
    let error = FileTarget::open(&dir.path().join("none"), true)
        .err()
        .unwrap();
    assert!(error.to_string().contains("none"), "{error}");
    let huge = Options {
        file: u64::MAX / 2,
        ..larger
    };
    let mut target = FileTarget::open(dir.path(), false).unwrap();
    let error = profile(&mut target, &huge, &mut |_| true).unwrap_err();
    assert!(matches!(error, ProfileError::Space { .. }), "{error}");
}
