//! What is wrong, in words: each check with its threshold, where the threshold is from, the remedy, and the picture that
//! shows it.
//!
//! Thresholds named Drishti are those of Drishti I/O, `drishti/includes/config.py` (Bez et al., *Drishti: Guiding End-Users
//! in the I/O Optimization Journey*, PDSW 2022). Like there, shares count from a number of accesses on; below it a finding
//! is minor. Thresholds named Penstock are our own choice.
use super::data::short;
use super::pictures::{FileSeen, Pictures, SMALL, is_collective, moves_bytes};
use super::words::{bytes, percent, time};
use crate::figures::Order;
use crate::summary::Summary;
use crate::trace::Trace;
use penstock_trace::Layer;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Drishti `THRESHOLD_SMALL_REQUESTS`, `THRESHOLD_SMALL_REQUESTS_ABSOLUTE`.
const SMALL_SHARE: f64 = 0.10;
const MANY: u64 = 1_000;
/// Drishti `THRESHOLD_MISALIGNED_REQUESTS`.
const UNALIGNED_SHARE: f64 = 0.10;
/// Drishti `THRESHOLD_IMBALANCE`.
const IMBALANCE: f64 = 0.30;
/// Drishti `THRESHOLD_STRAGGLERS`.
const STRAGGLERS: f64 = 0.15;
/// Drishti `THRESHOLD_COLLECTIVE_OPERATIONS`.
const INDEPENDENT_SHARE: f64 = 0.50;
/// Drishti `THRESHOLD_RANDOM_OPERATIONS`.
const RANDOM_SHARE: f64 = 0.20;
/// Penstock: time that a server's store may be idle while requests wait.
const IDLE_SHARE: f64 = 0.10;

/// What a check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Found, and often enough to matter.
    High,
    /// Found, in a few accesses.
    Minor,
    /// Looked for, and not found.
    Fine,
    /// The trace does not tell.
    Unknown,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    /// A word that stays the same, for links and tests.
    pub id: &'static str,
    pub level: Level,
    pub title: String,
    pub text: String,
    /// What to change; empty where nothing was found.
    pub remedy: String,
    /// When it is found, and who says so.
    pub threshold: String,
    /// Which picture shows it: `timeline`, `time`, `heat`, `files`, `slow` or `methods`.
    pub picture: &'static str,
    /// Row of that picture, or file.
    pub focus: Option<usize>,
}

impl Finding {
    fn new(id: &'static str, title: &str, picture: &'static str, threshold: String) -> Finding {
        Finding {
            id,
            level: Level::Fine,
            title: title.into(),
            text: String::new(),
            remedy: String::new(),
            threshold,
            picture,
            focus: None,
        }
    }

    fn found(self, matters: bool, text: String, remedy: &str) -> Finding {
        Finding {
            level: if matters { Level::High } else { Level::Minor },
            text,
            remedy: remedy.into(),
            ..self
        }
    }

    fn fine(self, text: String) -> Finding {
        Finding { text, ..self }
    }

    fn unknown(self, why: &str) -> Finding {
        Finding {
            level: Level::Unknown,
            text: why.into(),
            ..self
        }
    }
}

/// All checks, those that found something first.
pub(super) fn findings(trace: &Trace, summary: &Summary, pictures: &Pictures) -> Vec<Finding> {
    let mut all = vec![
        failed(summary),
        small(pictures),
        unaligned(pictures),
        independent(summary, pictures),
        busy_server(summary, pictures),
        waiting(trace, summary, pictures),
        scheduler(pictures),
        locality(summary, pictures),
    ];
    all.sort_by_key(|f| f.level);
    all
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 {
        0.0
    } else {
        part as f64 / of as f64
    }
}

fn failed(summary: &Summary) -> Finding {
    let finding = Finding::new(
        "failed",
        "Calls failed",
        "methods",
        "any call of a program that ended with an error (Penstock)".into(),
    );
    let mut by: BTreeMap<(u8, u16), u64> = BTreeMap::new();
    for cell in summary
        .cells
        .iter()
        .filter(|c| c.group.layer() <= Layer::Client)
    {
        if cell.figures.errors > 0 {
            *by.entry((cell.group.layer, cell.group.operation))
                .or_default() += cell.figures.errors;
        }
    }
    let all: u64 = by.values().sum();
    let Some(((layer, operation), most)) = by.into_iter().max_by_key(|(_, n)| *n) else {
        return finding.fine("no call of the program ended with an error".into());
    };
    let layer = Layer::from_number(layer).map_or("", Layer::name);
    let name = penstock_trace::Operation(operation).name();
    finding.found(
        true,
        format!("{all} calls ended with an error; {most} of them are {name} ({layer})."),
        "A missing optional file is harmless. For the rest see the calls with an error in the timeline's list; \
         `penstock trace list` prints them all.",
    )
}

fn small(pictures: &Pictures) -> Finding {
    let finding = Finding::new(
        "small",
        "Small accesses",
        "files",
        format!(
            "more than {} of accesses below 1 MiB, and more than {MANY} of them (Drishti)",
            percent(SMALL_SHARE)
        ),
    );
    let part = share(pictures.small, pictures.accesses);
    if pictures.accesses == 0 {
        return finding.unknown("the trace has no reads or writes");
    }
    let mut text = format!(
        "{} of {} accesses to files move less than {} ({}). They take {} of {} in such calls.",
        pictures.small,
        pictures.accesses,
        bytes(SMALL),
        percent(part),
        time(pictures.small_time),
        time(pictures.access_time)
    );
    if part <= SMALL_SHARE {
        return finding.fine(text);
    }
    let worst = most(&pictures.files, |f| f.small);
    if let Some((place, file)) = worst {
        text.push_str(&format!(
            " Most are to {}: {}.",
            short(&file.path),
            file.small
        ));
        return Finding {
            focus: Some(place),
            ..finding.found(pictures.small > MANY, text, SMALL_REMEDY)
        };
    }
    finding.found(pictures.small > MANY, text, SMALL_REMEDY)
}

const SMALL_REMEDY: &str = "Write larger pieces: gather in memory, or describe them by a datatype and make one collective \
     call (MPI_File_write_at_all), which joins the pieces of all ranks. Where the program cannot change, try \
     `penstock run --method two-phase` or, for many small requests in a row, `penstock tune sched=to-agg`.";

fn unaligned(pictures: &Pictures) -> Finding {
    let finding = Finding::new(
        "unaligned",
        "Unaligned accesses",
        "files",
        format!(
            "more than {} of accesses begin off a multiple of the stripe unit (Drishti)",
            percent(UNALIGNED_SHARE)
        ),
    );
    if pictures.accesses == 0 {
        return finding.unknown("the trace has no reads or writes");
    }
    let part = share(pictures.unaligned, pictures.accesses);
    let mut text = format!(
        "{} of {} accesses begin off a multiple of {} ({}). They take {} of {} in such calls.",
        pictures.unaligned,
        pictures.accesses,
        bytes(pictures.unit),
        percent(part),
        time(pictures.unaligned_time),
        time(pictures.access_time)
    );
    if part <= UNALIGNED_SHARE {
        return finding.fine(text);
    }
    let worst = most(&pictures.files, |f| f.unaligned);
    if let Some((_, file)) = worst {
        text.push_str(&format!(
            " Most are to {}: {}.",
            short(&file.path),
            file.unaligned
        ));
    }
    let remedy = "Begin each rank's part on a multiple of the stripe unit. HDF5: H5Pset_alignment, and chunks of whole units; \
         PnetCDF: hints nc_header_align_size and nc_var_align_size. Or take a stripe unit that divides the offsets.";
    Finding {
        focus: worst.map(|(place, _)| place),
        ..finding.found(pictures.unaligned > MANY, text, remedy)
    }
}

fn most(files: &[FileSeen], what: impl Fn(&FileSeen) -> u64) -> Option<(usize, &FileSeen)> {
    let files = files.iter().enumerate().filter(|(_, f)| what(f) > 0);
    files.max_by_key(|(place, f)| (what(f), std::cmp::Reverse(*place)))
}

fn independent(summary: &Summary, pictures: &Pictures) -> Finding {
    let finding = Finding::new(
        "independent",
        "Independent calls where collective ones pay",
        "methods",
        format!(
            "more than {} of MPI-IO accesses are independent, and more than {MANY} of them (Drishti), to files that several \
             ranks access in pieces below 1 MiB (Penstock)",
            percent(INDEPENDENT_SHARE)
        ),
    );
    #[derive(Default)]
    struct Calls {
        independent: u64,
        bytes: u64,
        ranks: BTreeSet<(u64, u32)>,
    }
    let (mut files, mut collective) = (BTreeMap::<u32, Calls>::new(), 0u64);
    for cell in &summary.cells {
        let group = &cell.group;
        if group.layer() != Layer::MpiIo || !moves_bytes(group.operation()) {
            continue;
        }
        if is_collective(group.operation()) {
            collective += cell.figures.calls;
            continue;
        }
        let file = files.entry(group.file).or_default();
        file.independent += cell.figures.calls;
        file.bytes = file.bytes.saturating_add(cell.figures.bytes);
        file.ranks.insert((group.program, group.rank));
    }
    let independent: u64 = files.values().map(|f| f.independent).sum();
    if independent + collective == 0 {
        return finding.unknown("the trace has no reads or writes of MPI-IO");
    }
    let part = share(independent, independent + collective);
    let pays = |f: &&Calls| f.ranks.len() > 1 && f.bytes < SMALL.saturating_mul(f.independent);
    let shared: u64 = files.values().filter(pays).map(|f| f.independent).sum();
    let mut text = format!(
        "{independent} of {} reads and writes of MPI-IO are independent ({}); {shared} of them are to files that several ranks \
         access in small pieces.",
        independent + collective,
        percent(part)
    );
    let worst = files
        .iter()
        .filter(|(_, f)| pays(f))
        .max_by_key(|(_, f)| f.independent);
    let Some((number, file)) = worst.filter(|_| part > INDEPENDENT_SHARE) else {
        return finding.fine(text);
    };
    let path = summary.file(*number);
    text.push_str(&format!(
        " Most are to {}: {} calls of {} ranks, {} each.",
        short(if path.is_empty() {
            "a file without a name"
        } else {
            path
        }),
        file.independent,
        file.ranks.len(),
        bytes(file.bytes / file.independent.max(1))
    ));
    let place = pictures.files.iter().position(|f| f.path == path);
    Finding {
        picture: if place.is_some() { "files" } else { "methods" },
        focus: place,
        ..finding.found(
            shared > MANY,
            text,
            "Call MPI_File_read_at_all or MPI_File_write_at_all where all ranks come by; in HDF5 set \
             H5Pset_dxpl_mpio(H5FD_MPIO_COLLECTIVE), in PnetCDF call the functions ending in _all.",
        )
    }
}

/// Largest value, its place, and how far the mean is below it, 0 to 1.
fn imbalance(values: &[u64]) -> Option<(usize, f64)> {
    let (place, most) = values
        .iter()
        .copied()
        .enumerate()
        .max_by_key(|(i, v)| (*v, std::cmp::Reverse(*i)))?;
    let mean = values.iter().map(|v| *v as f64).sum::<f64>() / values.len() as f64;
    (most > 0).then(|| (place, (most as f64 - mean) / most as f64))
}

fn busy_server(summary: &Summary, pictures: &Pictures) -> Finding {
    let finding = Finding::new(
        "server",
        "One server is busier than the others",
        "heat",
        format!(
            "the mean busy time of servers is more than {} below that of the busiest (Drishti's imbalance, over servers)",
            percent(IMBALANCE)
        ),
    );
    let of_servers = summary.servers.len() >= pictures.server_row.len();
    let (numbers, values): (Vec<u32>, Vec<u64>) = if of_servers {
        summary.servers.iter().map(|s| (s.server, s.busy)).unzip()
    } else {
        let mut time: BTreeMap<u32, u64> = pictures.server_row.keys().map(|s| (*s, 0)).collect();
        for cell in summary
            .cells
            .iter()
            .filter(|c| c.group.layer() == Layer::Request)
        {
            if let Some(sum) = time.get_mut(&cell.group.server) {
                *sum = sum.saturating_add(cell.figures.inclusive);
            }
        }
        time.into_iter().unzip()
    };
    let what = if of_servers { "busy" } else { "of requests" };
    if numbers.len() < 2 {
        return finding.unknown("the trace names fewer than two servers");
    }
    let Some((place, ratio)) = imbalance(&values) else {
        return finding.unknown("no server did anything");
    };
    let mean = (values.iter().map(|v| u128::from(*v)).sum::<u128>() / values.len() as u128) as u64;
    let text = format!(
        "Server {} has {} {what}; the mean of {} servers is {}, {} less.",
        numbers[place],
        time(values[place]),
        values.len(),
        time(mean),
        percent(ratio)
    );
    if ratio <= IMBALANCE {
        return finding.fine(text);
    }
    Finding {
        focus: pictures.server_row.get(&numbers[place]).copied(),
        ..finding.found(
            true,
            text,
            "Spread the data: a smaller stripe unit where accesses are smaller than a row of stripes, more servers for the \
             file, or parts of ranks that do not all begin on the same server. One slow device shows the same picture: \
             compare bytes with busy time.",
        )
    }
}

fn waiting(trace: &Trace, summary: &Summary, pictures: &Pictures) -> Finding {
    let finding = Finding::new(
        "waiting",
        "Ranks wait for one",
        "timeline",
        format!(
            "more than {} of the time in collective calls passes before the last rank comes; without collective calls: the \
             mean time of ranks in calls is as much below the longest (Drishti's stragglers)",
            percent(STRAGGLERS)
        ),
    );
    let row_of = |program: u64, rank: u32| {
        let mut parts = trace.parts.iter().filter(|p| !p.is_server());
        let part = parts.find(|p| p.program == program && p.rank == rank)?;
        pictures.row_of.get(&part.index).copied()
    };
    let waiting = &pictures.waiting;
    if waiting.calls > 0 {
        let part = share(waiting.waited, waiting.inside);
        let worst = waiting
            .for_rank
            .iter()
            .max_by_key(|(_, (waited, _))| *waited);
        let Some(((program, rank), (waited, times))) = worst else {
            return finding.unknown("no rank was last");
        };
        let text = format!(
            "Of {} that ranks spent in {} collective calls, {} ({}) passed before the last rank came. Rank {rank} was last in \
             {times} of them; {} were spent waiting for it.",
            time(waiting.inside),
            waiting.calls,
            time(waiting.waited),
            percent(part),
            time(*waited)
        );
        if part <= STRAGGLERS {
            return finding.fine(text);
        }
        return Finding {
            focus: row_of(*program, *rank),
            ..finding.found(
                true,
                text,
                "Look at what the late rank does before the call: more data, more computing, or I/O that others do not do \
                 (rank 0 often writes headers alone). Share that work, or write without waiting (MPI_File_iwrite_at_all).",
            )
        };
    }
    if summary.processes.len() < 2 {
        return finding.unknown("the trace has fewer than two processes");
    }
    let busy: Vec<u64> = summary.processes.iter().map(|p| p.busy).collect();
    let Some((place, ratio)) = imbalance(&busy) else {
        return finding.unknown("no process was in a call");
    };
    let slow = &summary.processes[place];
    let name = match slow.rank {
        penstock_trace::NO_RANK => "One process".to_owned(),
        rank => format!("Rank {rank}"),
    };
    let text = format!(
        "{name} is in calls for {}; the mean of {} processes is {} less. There are no collective calls to wait in.",
        time(slow.busy),
        busy.len(),
        percent(ratio)
    );
    if ratio <= STRAGGLERS {
        return finding.fine(text);
    }
    Finding {
        focus: row_of(slow.program, slow.rank),
        ..finding.found(
            true,
            text,
            "Share the I/O between ranks: each writes its own part of the file, or a collective call chooses aggregators.",
        )
    }
}

fn scheduler(pictures: &Pictures) -> Finding {
    let finding = Finding::new(
        "scheduler",
        "A scheduler that hurts",
        "heat",
        format!(
            "for more than {} of a server's active time requests wait while its store is idle (Penstock)",
            percent(IDLE_SHARE)
        ),
    );
    let worst = pictures
        .queues
        .iter()
        .max_by(|a, b| share(a.idle, a.active).total_cmp(&share(b.idle, b.active)));
    let Some(queue) = worst else {
        return finding.unknown(
            "the trace has no queues of servers: no scheduler ran, or servers were not traced",
        );
    };
    let part = share(queue.idle, queue.active);
    let text = format!(
        "On server {}, requests waited for {} of {} ({}) although its store had nothing to do; {} requests were queued.",
        queue.server,
        time(queue.idle),
        time(queue.active),
        percent(part),
        queue.queued
    );
    if part <= IDLE_SHARE {
        return finding.fine(text);
    }
    Finding {
        focus: pictures.server_row.get(&queue.server).copied(),
        ..finding.found(
            queue.queued > MANY,
            text,
            "The scheduler waits for requests to join that do not come, or admits too few at once. Try `penstock tune \
             sched=noop`, a larger `depth`, or a shorter window, and compare with `penstock trace diff`.",
        )
    }
}

fn locality(summary: &Summary, pictures: &Pictures) -> Finding {
    let finding = Finding::new(
        "locality",
        "Lost locality",
        "files",
        format!(
            "the share of accesses out of order at servers is more than {} higher than in the program (Drishti's random \
             accesses, as a difference)",
            percent(RANDOM_SHARE)
        ),
    );
    let mut asked = Order::default();
    for one in &summary.orders {
        if one.layer == pictures.access as u8 {
            asked.merge(&one.order);
        }
    }
    let mut served = Order::default();
    summary.servers.iter().for_each(|s| served.merge(&s.order));
    let all = |o: &Order| o.consecutive + o.strided + o.ahead + o.back;
    // One reads on, in whatever steps; the other turns back.
    let back = |o: &Order| share(o.back, all(o));
    if summary.servers.is_empty() || pictures.access == Layer::Server {
        return finding.unknown("needs the parts of clients and of servers");
    }
    if all(&asked) == 0 || all(&served) == 0 {
        return finding.unknown("too few accesses follow each other");
    }
    let text = format!(
        "Each process turns back in its files in {} of its accesses; at the servers it is {} of {} accesses.",
        percent(back(&asked)),
        percent(back(&served)),
        all(&served)
    );
    if back(&served) - back(&asked) <= RANDOM_SHARE {
        return finding.fine(text);
    }
    Finding {
        focus: (!pictures.files.is_empty()).then_some(0),
        ..finding.found(
            served.back > MANY,
            text,
            "Many processes that each read or write in order meet at a server out of order. A collective call with few \
             aggregators keeps the order; so does a scheduler that sorts (`penstock tune sched=aioli`). On flash it may not \
             matter: look at the time of devices first.",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_is_compared_with_the_mean() {
        assert_eq!(imbalance(&[]), None);
        assert_eq!(imbalance(&[0, 0]), None);
        assert_eq!(imbalance(&[5, 10, 0]), Some((1, 0.5)));
        assert_eq!(imbalance(&[7, 7]), Some((0, 0.0)));
    }
}
