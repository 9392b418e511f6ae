//! Options of a NAND device: their text form and their checks.

use super::geometry::{AllocationOrder, NandError, NandGeometry};
use super::rram::Slabs;
use crate::Nanos;
use crate::size::bytes;

/// How logical pages are mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ftl {
    /// By pages.
    Page,
    /// By blocks, with log blocks shared by all (L-FTL).
    Log,
    /// By blocks, with log blocks of one logical block each (H-FTL).
    Hybrid,
    /// None: memory that is written in place.
    InPlace,
}

/// Which block is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The one with the fewest valid pages.
    Greedy,
    /// The best of eight at random.
    Choices,
    /// A random one.
    Random,
    /// The one filled longest ago.
    Fifo,
}

/// When collection is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collect {
    /// When a plane opens its last free block; nothing else is served until the victim is erased.
    Demand,
    /// P-FTL: from the soft bound on, page by page whenever nothing waits for the die. At the last free block, before
    /// all else.
    Preempt,
    /// As Preempt, and in advance in long idle periods (AGC).
    Advanced,
    /// Only in idle periods, up to the soft bound; at the last free block before all else (DGC).
    Delayed,
    /// As Delayed, and in advance in long idle periods (AGC + DGC).
    Both,
}

/// What was written before the first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Fresh,
    /// Every page once, in order.
    Full,
    /// As after endless uniform random writes.
    Steady,
}

/// Pages of several planes in one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Multiplane {
    /// Never.
    Off,
    /// Where they are the same page of their blocks, as ONFI asks.
    Aligned,
    /// Always.
    Any,
}

/// Times of the flash array and the channel.
#[derive(Debug, Clone, PartialEq)]
pub struct NandTiming {
    /// Array read, by page of the block modulo the length: the bits of a cell differ.
    pub read: Vec<Nanos>,
    /// Array program, likewise.
    pub program: Vec<Nanos>,
    /// Block erase.
    pub erase: Nanos,
    /// Command and address cycles.
    pub command: Nanos,
    /// Bytes per second of a channel.
    pub channel: u64,
    /// If set, the array's times come from these slabs instead.
    pub slabs: Option<Slabs>,
}

/// A device of NAND flash, or of memory on the same channels.
#[derive(Debug, Clone, PartialEq)]
pub struct NandOptions {
    /// Counts at each level.
    pub geometry: NandGeometry,
    /// Allocation order of consecutive pages.
    pub order: AllocationOrder,
    /// Times.
    pub timing: NandTiming,
    /// Multiplane commands.
    pub multiplane: Multiplane,
    /// Dies of one way work at the same time.
    pub interleave: bool,
    /// Cache commands: bytes move while the array executes the next command of the same kind.
    pub cache: bool,
    /// Spare pages per logical page. One block per plane is reserved for collection and does not count.
    pub spare: f64,
    /// The mapping.
    pub ftl: Ftl,
    /// Log blocks of a plane; 0 for all that are spare.
    pub logs: u32,
    /// Which block is collected.
    pub victim: Victim,
    /// When collection is done.
    pub collect: Collect,
    /// Free room below which collection is due, as a share of the spare room.
    pub soft: f64,
    /// Free room that long idle periods bring about, as a share of the spare room.
    pub ahead: f64,
    /// Length from which an idle period is short.
    pub short_idle: Nanos,
    /// Length from which an idle period is long.
    pub long_idle: Nanos,
    /// Condition before the first request.
    pub condition: Condition,
    /// Seed for the steady state and for the choice of victims.
    pub seed: u64,
    /// Controller time to look a page up.
    pub lookup: Nanos,
    /// Controller time of a request; requests overlap.
    pub overhead: Nanos,
    /// Bytes per second to the host and from it.
    pub link: u64,
    /// Bytes of writes that are acknowledged before they are programmed; 0 for none.
    pub buffer: u64,
    /// Bytes read ahead of a sequential read; 0 for none.
    pub read_ahead: u64,
    /// Reads that may pass a waiting write of their die; 0 for the order of arrival.
    pub reads_first: u32,
    /// Reads of a block since its erase after which it should be written anew: counted, not done.
    pub disturb_limit: u32,
}

impl NandOptions {
    /// Logical pages of a plane.
    pub fn logical_pages(&self) -> u32 {
        let g = &self.geometry;
        if self.ftl == Ftl::InPlace {
            return g.blocks * g.pages;
        }
        let pages = (f64::from((g.blocks - 1) * g.pages) / (1.0 + self.spare)) as u32;
        match self.ftl {
            Ftl::Log | Ftl::Hybrid => pages / g.pages * g.pages,
            _ => pages,
        }
    }

    /// Spare pages of a plane.
    pub(crate) fn spare_pages(&self) -> u32 {
        let g = &self.geometry;
        ((g.blocks - 1) * g.pages).saturating_sub(self.logical_pages())
    }

    /// Log blocks of a plane.
    pub(crate) fn log_blocks(&self) -> u32 {
        let most = self.spare_pages() / self.geometry.pages;
        if self.logs == 0 { most } else { self.logs }
    }

    /// Bytes that it holds.
    pub fn capacity(&self) -> u64 {
        let g = &self.geometry;
        u64::from(self.logical_pages()) * g.all_planes() * u64::from(g.page)
    }

    /// Checks all options against their bounds; the error names the first that is outside.
    pub fn check(&self) -> Result<(), NandError> {
        self.geometry.check()?;
        let g = &self.geometry;
        let shares = [
            ("spare", self.spare, 0.001, 10.0),
            ("soft", self.soft, 0.0, 0.9),
            ("ahead", self.ahead, 0.0, 0.95),
        ];
        for (what, value, low, high) in shares {
            if !(low..=high).contains(&value) {
                return Err(NandError::Share {
                    what,
                    value,
                    low,
                    high,
                });
            }
        }
        if let Some(slabs) = &self.timing.slabs {
            slabs.check()?;
        }
        if self.ftl == Ftl::InPlace {
            return Ok(());
        }
        let left = self.spare_pages();
        if left < g.pages || self.logical_pages() == 0 {
            return Err(NandError::Spare {
                blocks: g.blocks,
                spare: self.spare,
                left,
                pages: g.pages,
            });
        }
        let most = left / g.pages;
        if matches!(self.ftl, Ftl::Log | Ftl::Hybrid) && self.log_blocks() > most {
            return Err(NandError::Logs {
                logs: self.logs,
                most,
            });
        }
        Ok(())
    }

    /// Sets one option from text; `None` if there is no such option, an error with what was expected if the value is
    /// bad.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Option<Result<(), &'static str>> {
        let g = &mut self.geometry;
        Some(match key {
            "channels" => number(value, &mut g.channels),
            "ways" => number(value, &mut g.ways),
            "dies" => number(value, &mut g.dies),
            "planes" => number(value, &mut g.planes),
            "blocks" => number(value, &mut g.blocks),
            "pages" => number(value, &mut g.pages),
            "page" => match bytes(value).and_then(|n| u32::try_from(n).ok()) {
                Some(n) => put(&mut g.page, n),
                None => Err("a size such as 4096 or 8k"),
            },
            "allocate" => match value.parse() {
                Ok(order) => put(&mut self.order, order),
                Err(_) => Err("an order of C, W, D and P, such as CWDP"),
            },
            "multiplane" => choice(
                value,
                &mut self.multiplane,
                MULTIPLANE,
                "aligned, any or off",
            ),
            "interleave" => choice(value, &mut self.interleave, SWITCH, "on or off"),
            "cache" => choice(value, &mut self.cache, SWITCH, "on or off"),
            "spare" => number(value, &mut self.spare),
            "ftl" => choice(value, &mut self.ftl, FTL, "page, log or hybrid"),
            "logs" => number(value, &mut self.logs),
            "victim" => choice(
                value,
                &mut self.victim,
                VICTIM,
                "greedy, choices, random or fifo",
            ),
            "collect" => choice(
                value,
                &mut self.collect,
                COLLECT,
                "demand, preempt, advanced, delayed or both",
            ),
            "soft" => number(value, &mut self.soft),
            "ahead" => number(value, &mut self.ahead),
            "state" => choice(
                value,
                &mut self.condition,
                CONDITION,
                "fresh, full or steady",
            ),
            "seed" => number(value, &mut self.seed),
            "buffer" => match bytes(value) {
                Some(n) => put(&mut self.buffer, n),
                None => Err("a size such as 0 or 8m"),
            },
            "read-ahead" => match bytes(value) {
                Some(n) => put(&mut self.read_ahead, n),
                None => Err("a size such as 0 or 256k"),
            },
            "reads-first" => number(value, &mut self.reads_first),
            "slabs" | "parallel" | "line" => match &mut self.timing.slabs {
                Some(slabs) => number(
                    value,
                    match key {
                        "slabs" => &mut slabs.slabs,
                        "parallel" => &mut slabs.parallel,
                        _ => &mut slabs.line,
                    },
                ),
                None => Err("it for rram"),
            },
            "channel" => match value.parse::<u64>() {
                Ok(n) if (1..=100_000).contains(&n) => put(&mut self.timing.channel, n * 1_000_000),
                _ => Err("the MB/s of a channel, 1 to 100000"),
            },
            _ => return None,
        })
    }

    /// The options above, for help texts.
    pub(crate) const HELP: &str = "\
        \x20 channels=N ways=N dies=N planes=N blocks=N pages=N page=S\n\
        \x20                  nand and rram: how many of what (blocks: of a plane; pages: of a block)\n\
        \x20 allocate=O       order in which pages spread over channels, ways, dies, planes: CWDP and 23 others\n\
        \x20 multiplane=M interleave=B cache=B\n\
        \x20                  commands: aligned, any or off; on or off; on or off\n\
        \x20 channel=N        MB/s of a channel\n\
        \x20 spare=F          spare pages per logical page, 0.001 to 10\n\
        \x20 ftl=F logs=N     mapping: page, log or hybrid; log blocks of a plane (0: all spare ones)\n\
        \x20 victim=V         greedy, choices, random or fifo\n\
        \x20 collect=C        when: demand, preempt, advanced, delayed or both\n\
        \x20 soft=F ahead=F   free room at which collection is due, and that idle periods bring about (shares of the spare)\n\
        \x20 state=S          before the first request: fresh, full or steady\n\
        \x20 buffer=S reads-first=N seed=N\n\
        \x20                  bytes of the write buffer; reads that may pass a write; choice of places\n\
        \x20 slabs=N parallel=N line=N\n\
        \x20                  rram: slabs of a die, slabs that work on one page, bytes of a line\n";

    /// Their names, for error messages.
    pub(crate) const NAMES: &str = "channels, ways, dies, planes, blocks, pages, page, allocate, multiplane, interleave, \
         cache, channel, spare, ftl, logs, victim, collect, soft, ahead, state, buffer, reads-first, seed, slabs, parallel, line";
}

const SWITCH: &[(&str, bool)] = &[("on", true), ("off", false)];
const MULTIPLANE: &[(&str, Multiplane)] = &[
    ("aligned", Multiplane::Aligned),
    ("any", Multiplane::Any),
    ("off", Multiplane::Off),
];
const FTL: &[(&str, Ftl)] = &[
    ("page", Ftl::Page),
    ("log", Ftl::Log),
    ("hybrid", Ftl::Hybrid),
];
const VICTIM: &[(&str, Victim)] = &[
    ("greedy", Victim::Greedy),
    ("choices", Victim::Choices),
    ("random", Victim::Random),
    ("fifo", Victim::Fifo),
];
const COLLECT: &[(&str, Collect)] = &[
    ("demand", Collect::Demand),
    ("preempt", Collect::Preempt),
    ("advanced", Collect::Advanced),
    ("delayed", Collect::Delayed),
    ("both", Collect::Both),
];
const CONDITION: &[(&str, Condition)] = &[
    ("fresh", Condition::Fresh),
    ("full", Condition::Full),
    ("steady", Condition::Steady),
];

fn put<T>(place: &mut T, value: T) -> Result<(), &'static str> {
    *place = value;
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str, place: &mut T) -> Result<(), &'static str> {
    put(place, text.parse().map_err(|_| "a number")?)
}

fn choice<T: Copy>(
    text: &str,
    place: &mut T,
    from: &[(&str, T)],
    expected: &'static str,
) -> Result<(), &'static str> {
    let found = from.iter().find(|c| c.0 == text);
    put(place, found.ok_or(expected)?.1)
}
