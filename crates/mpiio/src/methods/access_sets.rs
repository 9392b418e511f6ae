//! Access sets: what a collective call asks of each data server, and which ranks ask it (RS 4.2).
//!
//! **Problem.** A server's disk is fast where its requests ascend. Ranks that ask one server at the same time come in
//! any order.
//! **Idea.** The *access set* of a server is what all ranks together want of it. Either one rank, its *agent*, asks for
//! all of it in ascending order. Or ranks whose offsets ascend with their numbers ask in turn, each for its own bytes.
//! Every rank computes the same from the patterns, the layout and [`Tuning`]; nothing here does any I/O.
//!
//! Where the source is silent or contradicts itself:
//! - Servers choose agents by their index in the layout. Where ranks are fewer than servers, all ranks become agents once,
//!   then all again, by the same rule.
//! - A server has several agents where there are [`SPREAD`] ranks for each of them and each has a whole buffer to ask for.
//!   Each takes a consecutive part, and they begin in turn.
//! - Groups of ranks in turn: [`Groups`] has both readings.
use super::domains::part;
use super::plan::Part;
use crate::joint::first_offset;
use penstock_base::Nanos;
use penstock_datatype::{Loop, Pattern};
use penstock_layout::{Layout, ObjectOffset, ServerIndex};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;

/// Time that a rank waits after the one before it has begun: within the source's 0.1 to 1 ms.
pub const DELAY: Nanos = 300_000;
/// Ranks for each agent, where a server has several.
const SPREAD: usize = 4;
/// Most agents of a server.
const MOST_AGENTS: usize = 16;
/// Most steps to count a rank's bytes on a server. What takes more is taken to be spread evenly.
const SHARE_STEPS: u64 = 64;
/// Regions in a list of scattered pieces, the limit of a list request.
const LIST: usize = penstock_wire::message::MAX_LIST;
/// A collective step lies between two rounds, so that no rank is further ahead of another.
const KEPT: usize = 2;

/// How ranks that ask in turn form groups: the ranks of a group begin together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Groups {
    /// As many groups as there are servers: "n process groups in each process set".
    #[default]
    AsManyAsServers,
    /// Groups of as many ranks as there are servers: "group k = i/n".
    AsLargeAsServers,
}

/// What all ranks know of how to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Most bytes that an agent asks for in a round, of all its servers.
    pub buffer: u64,
    /// Time between two ranks in turn.
    pub delay: Nanos,
    /// Which ranks begin together.
    pub groups: Groups,
}

/// A rank's place among ranks that begin in turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The rank whose beginning it waits for.
    pub hears: Option<usize>,
    /// The rank that waits for it.
    pub tells: Option<usize>,
}

/// Who asks the servers, and in which order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Each rank asks for its own bytes. By rank.
    Ascending(Vec<Turn>),
    /// Agents ask for all ranks' bytes. By server, in order of their parts; none where nobody wants anything.
    Agents(Vec<Vec<usize>>),
}

/// A part of a server's access set in a round: what one agent asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub server: ServerIndex,
    /// Who asks.
    pub agent: usize,
    /// The agents of the same server that begin before and after it.
    pub turn: Turn,
    /// Bytes of the server's object.
    pub objects: Range<u64>,
}

/// A stretch of a slot within one stripe unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// File bytes.
    pub file: Range<i64>,
    /// Offset of its first byte in the server's object.
    pub object: u64,
}

/// The access sets of a collective call, and its rounds.
pub struct AccessSets {
    layout: Layout,
    pub(crate) tuning: Tuning,
    pub(crate) order: Order,
    /// Most bytes that are asked of a server by an agent in a round.
    buffer: u64,
    /// Agents of each server.
    parts: usize,
    rounds: RefCell<Rounds>,
}

/// The rounds that were asked for last, as ranges of every server's object.
#[derive(Default)]
struct Rounds {
    next: usize,
    /// Object offset from which the next round is looked for.
    from: u64,
    kept: VecDeque<Range<u64>>,
}

impl AccessSets {
    /// The access sets of a file's servers.
    pub fn new(patterns: &[Pattern], layout: Layout, tuning: Tuning) -> AccessSets {
        let (ranks, servers) = (patterns.len(), layout.servers.len());
        let wanted: u64 = patterns.iter().map(|p| p.len).sum();
        // A rank that is the agent of several servers shares its buffer out.
        let buffer = (tuning.buffer / servers.div_ceil(ranks.max(1)) as u64).max(1);
        let buffers = wanted / (servers as u64).max(1) / buffer;
        let parts =
            (ranks / (SPREAD * servers)).min(usize::try_from(buffers).unwrap_or(MOST_AGENTS));
        let parts = parts.clamp(1, MOST_AGENTS);
        let mut chooser = Chooser::new(ranks);
        let mut sets = Sets::new(ranks);
        let mut ascending = true;
        let mut agents = Vec::with_capacity(servers);
        for index in 0..servers as u32 {
            let server = ServerIndex(index);
            let shares: Vec<u64> = (patterns.iter())
                .map(|p| share(&layout, p, server))
                .collect();
            ascending = ascending && ascends(&layout, patterns, &shares, server);
            if ascending {
                sets.join(&shares);
            }
            agents.push(chooser.take(&shares, parts));
        }
        let order = if ascending {
            Order::Ascending(sets.turns(servers, tuning.groups))
        } else {
            Order::Agents(agents)
        };
        AccessSets {
            layout,
            tuning,
            order,
            buffer,
            parts,
            rounds: RefCell::default(),
        }
    }

    /// Bytes of each server's object that a round works on; `None` after the last one.
    ///
    /// # Panics
    /// If the round is more than one behind the furthest that was asked for.
    pub(crate) fn round(&self, patterns: &[Pattern], number: usize) -> Option<Range<u64>> {
        let mut rounds = self.rounds.borrow_mut();
        while rounds.next <= number {
            let objects = self.objects_from(patterns, rounds.from)?;
            rounds.from = objects.end;
            rounds.next += 1;
            rounds.kept.push_back(objects);
            if rounds.kept.len() > KEPT {
                rounds.kept.pop_front();
            }
        }
        let behind = rounds.next - number;
        assert!(behind <= KEPT, "round {number} is over on all ranks");
        Some(rounds.kept[rounds.kept.len() - behind].clone())
    }

    /// Bytes of an object that an agent asks for in a round: whole stripe units, where the buffer holds one.
    fn step(&self) -> u64 {
        let (unit, buffer) = (self.layout.stripe_unit, self.buffer);
        if buffer < unit {
            buffer
        } else {
            buffer / unit * unit
        }
    }

    /// The next round at or after this offset of every object.
    fn objects_from(&self, patterns: &[Pattern], from: u64) -> Option<Range<u64>> {
        let (unit, width) = (self.layout.stripe_unit, self.layout.width());
        let (turn, within) = (from / unit, from % unit);
        // Bytes at or after `from` in any object lie at or after this file offset.
        let earliest = turn.saturating_mul(width).saturating_add(within);
        let earliest = i64::try_from(earliest).unwrap_or(i64::MAX);
        let first = patterns
            .iter()
            .filter_map(|p| first_offset(p, p.stream_at(earliest)))
            .min()?;
        let bytes = self.step().saturating_mul(self.parts as u64);
        if within > 0 {
            return Some(from..from.saturating_add(bytes).min((turn + 1) * unit));
        }
        let start = first.max(0).unsigned_abs() / width * unit;
        let most = if self.step() < unit { unit } else { bytes };
        Some(start..start.saturating_add(bytes.min(most)))
    }

    /// What agents ask for in a round; nothing where ranks ask for themselves.
    pub(crate) fn slots<'s>(&'s self, round: &Range<u64>) -> impl Iterator<Item = Slot> + 's {
        let agents: &[Vec<usize>] = match &self.order {
            Order::Agents(agents) => agents,
            Order::Ascending(_) => &[],
        };
        let (round, step) = (round.clone(), self.step());
        agents.iter().enumerate().flat_map(move |(server, agents)| {
            let round = round.clone();
            agents.iter().enumerate().map(move |(i, agent)| {
                let start = (round.start + step * i as u64).min(round.end);
                Slot {
                    server: ServerIndex(server as u32),
                    agent: *agent,
                    turn: Turn {
                        hears: i.checked_sub(1).map(|before| agents[before]),
                        tells: agents.get(i + 1).copied(),
                    },
                    objects: start..(start + step).min(round.end),
                }
            })
        })
    }

    /// The stripe units, or parts of them, that a range of a server's object consists of.
    pub(crate) fn stretches(
        &self,
        server: ServerIndex,
        objects: &Range<u64>,
    ) -> impl Iterator<Item = Stretch> + use<> {
        let (unit, width) = (self.layout.stripe_unit, self.layout.width());
        let first = u64::from(server.0) * unit;
        let objects = objects.clone();
        let turns = objects.start / unit..objects.end.div_ceil(unit);
        turns.filter_map(move |turn| {
            let from = objects.start.max(turn * unit);
            let len = objects.end.min((turn + 1) * unit).saturating_sub(from);
            let start = turn.checked_mul(width)?.checked_add(first + from % unit)?;
            let start = i64::try_from(start).ok().filter(|_| len > 0)?;
            Some(Stretch {
                file: start..start.saturating_add(len as i64),
                object: from,
            })
        })
    }

    /// What a pattern wants of a slot, by stripe unit.
    pub(crate) fn parts_of<'s>(
        &'s self,
        pattern: &'s Pattern,
        slot: &Slot,
    ) -> impl Iterator<Item = (Stretch, Part)> + 's {
        let bounds = self.layout.object_bounds(pattern, slot.server);
        let objects = slot.objects.start.max(bounds.start)..slot.objects.end.min(bounds.end);
        self.stretches(slot.server, &objects)
            .map(|stretch| (part(pattern, &stretch.file), stretch))
            .filter(|(part, _)| part.pattern.len > 0)
            .map(|(part, stretch)| (stretch, part))
    }

    /// What a rank wants of a round, of all servers, in ascending order.
    pub(crate) fn own(&self, pattern: &Pattern, round: &Range<u64>) -> Vec<Part> {
        let (unit, width) = (self.layout.stripe_unit, self.layout.width());
        if round.start.is_multiple_of(unit) && round.end.is_multiple_of(unit) {
            let at = |object: u64| {
                i64::try_from((object / unit).saturating_mul(width)).unwrap_or(i64::MAX)
            };
            let own = part(pattern, &(at(round.start)..at(round.end)));
            return Vec::from_iter(Some(own).filter(|part| part.pattern.len > 0));
        }
        let servers = (0..self.layout.servers.len() as u32).map(ServerIndex);
        let stretches = servers.flat_map(|server| self.stretches(server, round));
        let parts = stretches.map(|stretch| part(pattern, &stretch.file));
        parts.filter(|part| part.pattern.len > 0).collect()
    }

    /// A range of a server's object, as a pattern of the file: all its bytes are on that server.
    pub(crate) fn stripes(&self, server: ServerIndex, objects: &Range<u64>) -> Option<Pattern> {
        let (unit, width) = (self.layout.stripe_unit, self.layout.width());
        let len = objects.end.saturating_sub(objects.start);
        if len == 0 {
            return None;
        }
        let start = objects.start;
        if start / unit == (objects.end - 1) / unit || width == unit {
            let at = self.layout.file_offset(server, ObjectOffset(start)).0;
            return Some(Pattern::contiguous(i64::try_from(at).ok()?, len));
        }
        let tile = Loop::bytes(unit)
            .resized(0, i64::try_from(width).ok()?)
            .ok()?;
        let first = i64::try_from(u64::from(server.0) * unit).ok()?;
        Pattern::new(first, tile, start, len).ok()
    }

    /// Patterns that cover all that the ranks want of a slot, in ascending order. Gaps within a stripe unit are covered too:
    /// a disk reads them in no more time than it takes to skip them.
    pub(crate) fn access_set(&self, patterns: &[Pattern], slot: &Slot) -> Vec<Pattern> {
        let mut spans = self.spans(patterns, slot);
        if let [span] = &spans[..] {
            return Vec::from_iter(self.stripes(slot.server, span));
        }
        let mut regions = Vec::new();
        for span in spans.drain(..) {
            let stretches = self.stretches(slot.server, &span);
            regions.extend(stretches.map(|s| (s.file.start, (s.file.end - s.file.start) as u64)));
        }
        let lists = regions.chunks(LIST);
        lists.filter_map(|list| Pattern::list(list).ok()).collect()
    }

    /// Ranges of the object from the first to the last byte that is wanted of each stripe unit, neighbours joined.
    fn spans(&self, patterns: &[Pattern], slot: &Slot) -> Vec<Range<u64>> {
        let mut ends = self.stretches(slot.server, &slot.objects);
        let Some(first) = ends.next() else {
            return Vec::new();
        };
        let last = ends.last().unwrap_or_else(|| first.clone());
        let whole = first.file.start..last.file.end;
        let (mut wanted, mut lo, mut hi) = (0, whole.end, whole.start);
        for own in patterns.iter().map(|p| part(p, &whole).pattern) {
            if own.len > 0 {
                let (from, to) = own.bounds();
                wanted += own.len;
                (lo, hi) = (lo.min(from), hi.max(to));
            }
        }
        if wanted > 0 && wanted >= (hi - lo) as u64 {
            let objects = Pattern::contiguous(lo, (hi - lo) as u64);
            let bounds = self.layout.object_bounds(&objects, slot.server);
            let span = slot.objects.start.max(bounds.start)..slot.objects.end.min(bounds.end);
            return Vec::from_iter(Some(span).filter(|span| !span.is_empty()));
        }
        let mut spans: Vec<Range<u64>> = Vec::new();
        for stretch in self.stretches(slot.server, &slot.objects) {
            let parts = patterns.iter().map(|p| part(p, &stretch.file).pattern);
            let bounds = parts.filter(|p| p.len > 0).map(|p| p.bounds());
            let Some((lo, hi)) = bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
                continue;
            };
            let at = |file: i64| stretch.object + (file - stretch.file.start) as u64;
            match spans.last_mut() {
                Some(before) if before.end == at(lo) => before.end = at(hi),
                _ => spans.push(at(lo)..at(hi)),
            }
        }
        spans
    }

    /// Bytes that a writing rank sends to other ranks.
    pub(crate) fn resent(&self, rank: usize, pattern: &Pattern) -> u64 {
        let Order::Agents(agents) = &self.order else {
            return 0;
        };
        let own = agents.iter().enumerate().filter(|(_, a)| a.contains(&rank));
        let kept = own.map(|(server, _)| share(&self.layout, pattern, ServerIndex(server as u32)));
        pattern.len.saturating_sub(kept.sum())
    }

    /// Ranks that ask for others.
    pub(crate) fn agents(&self) -> usize {
        match &self.order {
            Order::Ascending(turns) => turns.len(),
            Order::Agents(agents) => agents.iter().map(Vec::len).sum(),
        }
    }
}

/// Bytes of a pattern on a server, counted in few steps or else taken to be spread evenly. All ranks find the same.
fn share(layout: &Layout, pattern: &Pattern, server: ServerIndex) -> u64 {
    let even = || pattern.len.div_ceil(layout.servers.len() as u64);
    layout
        .share_within(pattern, server, SHARE_STEPS)
        .unwrap_or_else(even)
}

/// Whether the offsets of each rank on a server lie behind those of all ranks before it.
fn ascends(layout: &Layout, patterns: &[Pattern], shares: &[u64], server: ServerIndex) -> bool {
    let there = patterns.iter().zip(shares).filter(|(_, share)| **share > 0);
    if there.clone().count() < 2 {
        return true;
    }
    let mut end = 0;
    for (pattern, _) in there {
        let bounds = layout.object_bounds(pattern, server);
        if bounds.start < end {
            return false;
        }
        end = bounds.end;
    }
    true
}

/// Chooses agents: for each server the rank that asks most of it and is no agent yet.
struct Chooser {
    used: Vec<bool>,
    left: usize,
}

impl Chooser {
    fn new(ranks: usize) -> Chooser {
        Chooser {
            used: vec![false; ranks],
            left: ranks,
        }
    }

    /// The agents of the next server, of which the ranks want so many bytes.
    fn take(&mut self, shares: &[u64], parts: usize) -> Vec<usize> {
        let mut agents = Vec::with_capacity(parts);
        if shares.iter().all(|share| *share == 0) {
            return agents;
        }
        for _ in 0..parts {
            if self.left == 0 {
                // All are agents once more than before.
                self.used.fill(false);
                self.left = self.used.len();
            }
            let free = (0..shares.len()).filter(|rank| !self.used[*rank]);
            let most = free.max_by_key(|rank| (shares[*rank], std::cmp::Reverse(*rank)));
            if let Some(rank) = most {
                self.used[rank] = true;
                self.left -= 1;
                agents.push(rank);
            }
        }
        agents.sort_unstable();
        agents
    }
}

/// Ranks in sets that share no server.
struct Sets {
    /// Another rank of the same set, or itself.
    parent: Vec<usize>,
    /// It wants something.
    wants: Vec<bool>,
}

impl Sets {
    fn new(ranks: usize) -> Sets {
        Sets {
            parent: (0..ranks).collect(),
            wants: vec![false; ranks],
        }
    }

    fn root(&mut self, mut rank: usize) -> usize {
        while self.parent[rank] != rank {
            self.parent[rank] = self.parent[self.parent[rank]];
            rank = self.parent[rank];
        }
        rank
    }

    /// Ranks that want bytes of one server are in one set.
    fn join(&mut self, shares: &[u64]) {
        let mut first = None;
        for rank in (0..shares.len()).filter(|rank| shares[*rank] > 0) {
            self.wants[rank] = true;
            let root = self.root(rank);
            let with = *first.get_or_insert(root);
            // The smaller one stays, so that a set is named by its lowest rank.
            let (low, high) = (with.min(root), with.max(root));
            self.parent[high] = low;
            first = Some(low);
        }
    }

    fn turns(mut self, servers: usize, groups: Groups) -> Vec<Turn> {
        let ranks = self.parent.len();
        let mut sets: Vec<Vec<usize>> = vec![Vec::new(); ranks];
        for rank in (0..ranks)
            .filter(|rank| self.wants[*rank])
            .collect::<Vec<_>>()
        {
            let root = self.root(rank);
            sets[root].push(rank);
        }
        let mut turns = vec![Turn::default(); ranks];
        for set in sets {
            let group = match groups {
                Groups::AsManyAsServers => set.len().div_ceil(servers).max(1),
                Groups::AsLargeAsServers => servers,
            };
            for (i, rank) in set.iter().enumerate() {
                turns[*rank] = Turn {
                    hears: i.checked_sub(group).map(|before| set[before]),
                    tells: set.get(i + group).copied(),
                };
            }
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_layout::ServerId;
    use proptest::prelude::*;

    const UNIT: u64 = 64;

    fn layout(servers: u32) -> Layout {
        Layout::new(UNIT, (0..servers).map(ServerId).collect()).unwrap()
    }

    fn tuning(buffer: u64) -> Tuning {
        Tuning {
            buffer,
            delay: DELAY,
            groups: Groups::default(),
        }
    }

    fn sets(patterns: &[Pattern], servers: u32) -> AccessSets {
        AccessSets::new(patterns, layout(servers), tuning(1 << 20))
    }

    fn strided(disp: u64, count: u64, len: u64, stride: u64) -> Pattern {
        let tile = Loop::bytes(len).resized(0, stride as i64).unwrap();
        Pattern::new(disp as i64, tile, 0, count * len).unwrap()
    }

    /// The demo of RS 4.1.2: rank i of n reads segments k·n + i, k below 4.
    fn demo(ranks: u64, segment: u64) -> Vec<Pattern> {
        let of = |i| strided(i * segment, 4, segment, ranks * segment);
        (0..ranks).map(of).collect()
    }

    fn agents(sets: &AccessSets) -> Vec<Vec<usize>> {
        match &sets.order {
            Order::Agents(agents) => agents.clone(),
            Order::Ascending(_) => panic!("the ranks ask in turn"),
        }
    }

    fn turns(sets: &AccessSets) -> Vec<(Option<usize>, Option<usize>)> {
        match &sets.order {
            Order::Ascending(turns) => turns.iter().map(|t| (t.hears, t.tells)).collect(),
            Order::Agents(agents) => panic!("agents ask: {agents:?}"),
        }
    }

    #[test]
    fn a_server_of_one_rank_needs_no_turn() {
        assert_eq!(turns(&sets(&demo(4, UNIT), 4)), [(None, None); 4]);
        assert_eq!(turns(&sets(&demo(2, 2 * UNIT), 4)), [(None, None); 2]);
    }

    #[test]
    fn who_asks_most_and_is_no_agent_yet_is_the_agent() {
        // Half a unit each: all ranks want the same of every server.
        assert_eq!(agents(&sets(&demo(4, UNIT / 2), 4)), [[0], [2], [1], [3]]);
        // More servers than ranks: all ranks are agents twice.
        assert_eq!(agents(&sets(&demo(2, UNIT / 2), 4)), [[0], [1], [0], [1]]);
    }

    #[test]
    fn several_agents_where_ranks_are_many_and_bytes_too() {
        let patterns: Vec<_> = (0..64).map(|i| strided(i * 8, 1000, 8, 512)).collect();
        let of = |buffer| AccessSets::new(&patterns, layout(2), tuning(buffer));
        assert!(agents(&of(1 << 20)).iter().all(|agents| agents.len() == 1));
        let several = of(1 << 15);
        assert!(agents(&several).iter().all(|agents| agents.len() == 7));
        let all: Vec<_> = agents(&several).concat();
        let mut once = all.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), all.len());
    }

    #[test]
    fn ranks_whose_offsets_ascend_take_turns_in_groups() {
        let one_each: Vec<_> = (0..8).map(|i| Pattern::contiguous(i * 100, 100)).collect();
        let of = |groups, servers| {
            let tuning = Tuning {
                groups,
                ..tuning(1 << 20)
            };
            turns(&AccessSets::new(&one_each, layout(servers), tuning))
        };
        // Two servers, eight ranks: two groups of four, or four groups of two.
        let many = of(Groups::AsManyAsServers, 2);
        assert_eq!((many[0], many[3]), ((None, Some(4)), (None, Some(7))));
        assert_eq!(many[4], (Some(0), None));
        let large = of(Groups::AsLargeAsServers, 2);
        assert_eq!((large[1], large[3]), ((None, Some(3)), (Some(1), Some(5))));
        // Ranks as many as servers: one after the other, or none waits.
        let four = &one_each[..4];
        let of = |groups| {
            let tuning = Tuning {
                groups,
                ..tuning(1 << 20)
            };
            turns(&AccessSets::new(four, layout(4), tuning))
        };
        assert_eq!(of(Groups::AsManyAsServers)[1], (Some(0), Some(2)));
        assert_eq!(of(Groups::AsLargeAsServers), [(None, None); 4]);
    }

    #[test]
    fn sets_that_share_no_server_do_not_wait_for_each_other() {
        // Ranks 0 and 2 want server 0, ranks 1 and 3 server 1.
        let at = [0, 64, 128, 192].map(|at| Pattern::contiguous(at, 64));
        let turns = turns(&sets(&at, 2));
        assert_eq!(turns[2].0, Some(0));
        assert_eq!(turns[3].0, Some(1));
    }

    proptest! {
        /// In all rounds, slots together hold each wanted byte once, on the server where it is.
        #[test]
        fn slots_hold_every_wanted_byte_once(
            servers in 1u32..5,
            buffer in 1u64..400,
            ranks in prop::collection::vec((0u64..3000, 0u64..30, 1u64..90, 0u64..200), 1..20),
        ) {
            let pattern = |(disp, count, len, gap): &(u64, u64, u64, u64)| {
                strided(*disp, *count, *len, len + gap)
            };
            let patterns: Vec<_> = ranks.iter().map(pattern).collect();
            let mut sets = AccessSets::new(&patterns, layout(servers), tuning(buffer));
            if let Order::Ascending(_) = sets.order {
                sets.order = Order::Agents(vec![vec![0]; servers as usize]);
            }
            let (mut seen, mut own) = (vec![0; patterns.len()], vec![0; patterns.len()]);
            let mut number = 0;
            while let Some(round) = sets.round(&patterns, number) {
                number += 1;
                prop_assert!(number < 5000);
                for slot in sets.slots(&round) {
                    prop_assert!(slot.objects.end - slot.objects.start <= buffer);
                    let cover = sets.access_set(&patterns, &slot);
                    for p in &cover {
                        prop_assert_eq!(sets.layout.share(p, slot.server), p.len);
                    }
                    for (rank, pattern) in patterns.iter().enumerate() {
                        for (_, part) in sets.parts_of(pattern, &slot) {
                            prop_assert_eq!(sets.layout.share(&part.pattern, slot.server), part.pattern.len);
                            seen[rank] += part.pattern.len;
                            let (lo, hi) = part.pattern.bounds();
                            let covered: u64 = cover.iter().map(|p| p.stream_at(hi) - p.stream_at(lo)).sum();
                            prop_assert_eq!(covered, (hi - lo) as u64);
                        }
                    }
                }
                for (rank, pattern) in patterns.iter().enumerate() {
                    own[rank] += sets.own(pattern, &round).iter().map(|p| p.pattern.len).sum::<u64>();
                }
            }
            let wanted: Vec<u64> = patterns.iter().map(|p| p.len).collect();
            prop_assert_eq!(&seen, &wanted);
            prop_assert_eq!(&own, &wanted);
        }
    }
}
