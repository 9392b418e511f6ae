//! What a data server does with a loop from outside before it moves a byte: in bounded steps, whatever the loop.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_datatype::{Loop, Pattern};
use penstock_layout::{GivenUp, Layout, SearchLimit, ServerId, ServerIndex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Steps of one access.
const STEPS: u64 = 1 << 16;
/// Pieces taken of it.
const PIECES: usize = 1000;

fuzz_target!(|bytes: &[u8]| {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let Ok(tile) = Loop::decode(rest) else {
        return;
    };
    let [servers, unit, start, disp] = *head;
    let servers = u32::from(servers % 7) + 1;
    let unit = 1u64 << (unit % 31);
    let layout = Layout::new(unit, (0..servers).map(ServerId).collect()).expect("a layout");
    let (start, len) = (u64::from(start), tile.size());
    let Ok(access) = Pattern::new(i64::from(disp) * 1000, tile, start, len.saturating_sub(start)) else {
        return;
    };
    if layout.check(&access).is_err() {
        return;
    }
    for server in (0..servers).map(ServerIndex) {
        let share = layout.share_within(&access, server, STEPS);
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        let mut pieces = layout.walk(&access, server).limited(SearchLimit {
            steps: STEPS,
            per_piece: 0,
            wanted: Arc::new(move || {
                count.fetch_add(1, Relaxed);
                true
            }),
        });
        let mut found = 0;
        let mut ended = false;
        for _ in 0..PIECES {
            let Some(piece) = pieces.next_piece(1 << 18) else {
                ended = true;
                break;
            };
            assert!(piece.len > 0 && piece.len <= 1 << 18);
            found += piece.len;
        }
        // A search is asked about every 2^14 steps, and ends in time.
        assert!(asked.load(Relaxed) <= STEPS >> 14);
        if let Some(GivenUp::TooSparse { steps }) = pieces.given_up() {
            assert!(steps <= 2 * STEPS);
        }
        if let Some(share) = share {
            assert!(found <= share);
            assert!(!ended || pieces.given_up().is_some() || found == share);
        }
    }
});
