//! The fast tier of a store, as settings and status name it.
use penstock_store::{FastMode, FastStatus};
use penstock_wire::message;

/// What settings say of it; the last word counts.
pub(crate) fn mode(settings: &[String]) -> Option<FastMode> {
    let words = settings.iter().rev();
    words
        .filter_map(|word| word.strip_prefix("fast="))
        .find_map(FastMode::from_name)
}

/// What it is and did, as a message.
pub(crate) fn status(s: &FastStatus) -> message::FastStatus {
    message::FastStatus {
        path: s.path.clone(),
        mode: s.mode.clone(),
        state: s.state.clone(),
        problem: s.problem.clone(),
        waiting: s.waiting,
        objects: s.objects,
        log: s.log,
        limit: s.limit,
        writes: s.writes,
        bytes: s.bytes,
        refused: s.refused,
        home: s.home,
        damaged: s.damaged,
        h_milli: s.h_milli,
    }
}
