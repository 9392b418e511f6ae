//! Whatever bytes a peer sends for a loop: refused, or a loop that encodes to these bytes and can be used.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_datatype::{Loop, Pattern};

fuzz_target!(|bytes: &[u8]| {
    let Ok(tile) = Loop::decode(bytes) else {
        return;
    };
    assert_eq!(&*tile.encode(), bytes);
    let size = tile.size();
    for (start, len) in [
        (0, size.min(5000)),
        (size / 2, 3000),
        (size.saturating_sub(1), 2),
    ] {
        let Ok(p) = Pattern::new(-7, tile.clone(), start, len) else {
            continue;
        };
        let (lo, hi) = p.bounds();
        let (mut total, mut runs, mut low, mut high) = (0, 0, i64::MAX, i64::MIN);
        p.for_each_run(|at, run| {
            assert_eq!(at, total);
            total += run.len;
            runs += 1;
            low = low.min(run.offset);
            high = high.max(run.offset + run.len as i64);
        });
        assert_eq!(total, p.len);
        assert_eq!(runs, p.regions());
        if p.len > 0 {
            assert_eq!((lo, hi), (low, high));
        }
        let mut cursor = p.cursor();
        cursor.seek(p.len / 2);
        let mut left = p.len - p.len / 2;
        while let Some(run) = cursor.next_run(64) {
            left -= run.len;
        }
        assert_eq!(left, 0);
        if p.is_monotone() {
            assert_eq!(p.stream_at(hi), p.len);
            assert_eq!(p.stream_at(lo), 0);
            let middle = lo.midpoint(hi);
            let (below, above) = (p.window(lo, middle), p.window(middle, hi));
            assert_eq!(below.len + above.len, p.len);
            assert!(below.len == 0 || below.bounds().1 <= middle);
            assert!(above.len == 0 || above.bounds().0 >= middle);
        }
    }
});
