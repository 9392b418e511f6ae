//! Pages of traces that nobody would make by accident.
use penstock_analysis::{MOST_PAGE_BYTES, Trace, page};
use penstock_base::Random;
use penstock_trace::{Layer, Operation, Parent, Record, StreamHead, StreamWriter};

/// What no page may hold as it stands.
const NAME: &str = "</script><img src=x onerror=alert(1)>\u{0}&\u{2028}";

fn stream(dir: &std::path::Path, name: &str, head: &StreamHead) -> StreamWriter {
    StreamWriter::create(&dir.join(name), head).unwrap()
}

/// Every number as large as it can be, every name as long, more of everything than a page shows.
#[test]
fn the_worst_trace_gives_a_page_of_bounded_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::new(7);
    for rank in 0..80u32 {
        let head = StreamHead {
            host: NAME.repeat(100),
            command: NAME.repeat(1000),
            job: NAME.repeat(1000),
            user: NAME.repeat(1000),
            program: u64::MAX - u64::from(rank),
            rank: u32::MAX - 1 - rank,
            servers: 3,
            unit: u64::MAX,
            began: 1,
            chosen: format!("{rank}{}", NAME.repeat(100)),
            ..StreamHead::default()
        };
        let mut writer = stream(dir.path(), &format!("host-{rank}-1.trace"), &head);
        for id in 1..=700u64 {
            let file = writer.name_file(&format!(
                "{}{}",
                NAME.repeat(40),
                (u64::from(rank) + id) % 40
            ));
            let own = writer.name_file(&format!("{}{rank}.{id}", "\u{1}".repeat(300)));
            let layer = if id % 2 == 0 {
                Layer::Client
            } else {
                Layer::MpiIo
            };
            let operation = if id % 3 == 0 {
                Operation::READ
            } else {
                Operation::WRITE
            };
            writer
                .push(&Record {
                    id: u64::MAX - id * 2,
                    parent: Parent::None,
                    file: if id % 2 == 0 { file } else { own },
                    offset: u64::MAX - random.below(1 << 50),
                    bytes: u64::MAX - random.below(1 << 50),
                    begin: u64::MAX / 2 - random.below(1 << 62),
                    duration: u64::MAX / 2 - random.below(1 << 50),
                    error: i32::MIN,
                    ..Record::new(layer, operation)
                })
                .unwrap();
        }
        // No end: its writer was killed.
        writer.flush().unwrap();
    }
    for server in 0..100u32 {
        let head = StreamHead {
            server: Some(u32::MAX - 1 - server),
            began: u64::MAX,
            ..StreamHead::default()
        };
        let mut writer = stream(dir.path(), &format!("data-{server}.trace"), &head);
        for id in 1..=100 {
            writer
                .push(&Record {
                    id,
                    bytes: u64::MAX,
                    duration: random.below(u64::MAX),
                    server: u32::MAX - 1 - server,
                    ..Record::new(Layer::Store, Operation::WRITE)
                })
                .unwrap();
        }
        writer.finish(u64::MAX).unwrap();
    }
    let trace = Trace::open(dir.path()).unwrap();
    let page = page(&trace, false, &|_| ()).unwrap();
    assert!(page.len() <= MOST_PAGE_BYTES, "{} bytes", page.len());
    assert!(
        page.len() > 2_000_000,
        "the lists are full: {} bytes",
        page.len()
    );
    assert!(!page.contains("<img src=x"));
    assert_eq!(page.matches("</script>").count(), 2);
}

/// Streams without records, and streams of a single one.
#[test]
fn a_trace_of_nothing_gives_a_page() {
    for records in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = stream(dir.path(), "host-1-1.trace", &StreamHead::default());
        for id in 0..records {
            let record = Record::new(Layer::Posix, Operation::WRITE);
            writer
                .push(&Record {
                    id: id + 1,
                    ..record
                })
                .unwrap();
        }
        writer.finish(0).unwrap();
        let trace = Trace::open(dir.path()).unwrap();
        let page = page(&trace, false, &|_| ()).unwrap();
        assert!(page.contains("\"findings\":["));
    }
}
