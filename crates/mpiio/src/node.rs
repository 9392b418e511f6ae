//! The nodes of the ranks, and the choice of aggregators.
use crate::hints::Hints;
use std::collections::BTreeMap;

/// Identifies a node: processes with equal marks can open each other's descriptors. The host name is for people, the
/// boot id for hosts with equal names. The process id name space distinguishes containers of one host, which do not see
/// each other's processes.
pub(crate) fn mark() -> String {
    if penstock_host::simulated() {
        return format!("{:?}", penstock_host::boot());
    }
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map(|s| s.trim().to_owned())
            .unwrap_or_default()
    };
    let processes = std::fs::read_link("/proc/self/ns/pid")
        .map(|link| link.to_string_lossy().into_owned())
        .unwrap_or_default();
    format!(
        "{}/{}/{processes}",
        read("/proc/sys/kernel/hostname"),
        read("/proc/sys/kernel/random/boot_id"),
    )
}

/// The nodes of a file's ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// Each rank's node.
    of_rank: Vec<usize>,
    count: usize,
}

impl Nodes {
    /// From the marks of all ranks.
    pub(crate) fn new<'a>(marks: impl Iterator<Item = &'a str>) -> Nodes {
        let mut seen = BTreeMap::new();
        let of_rank = marks
            .map(|mark| {
                let next = seen.len();
                *seen.entry(mark).or_insert(next)
            })
            .collect();
        Nodes {
            of_rank,
            count: seen.len(),
        }
    }

    pub(crate) fn is_one(&self) -> bool {
        self.count == 1
    }

    /// The lowest rank of its node.
    pub(crate) fn leads(&self, rank: usize) -> bool {
        self.of_rank.iter().position(|n| *n == self.of_rank[rank]) == Some(rank)
    }

    /// The part of a node-wide task for this rank: its number among the ranks that have written, and their count.
    /// `None` if it has not written; `written` is by rank.
    pub(crate) fn share(&self, rank: usize, written: &[u64]) -> Option<(usize, usize)> {
        let mates = written.iter().enumerate().zip(&self.of_rank);
        let writers = mates
            .filter(|((_, bytes), node)| **bytes > 0 && **node == self.of_rank[rank])
            .map(|((other, _), _)| other);
        let writers: Vec<usize> = writers.collect();
        let part = writers.iter().position(|other| *other == rank)?;
        Some((part, writers.len()))
    }

    /// The aggregators: at most `cb_nodes`, at most as many per node as `cb_config_list` says, distributed evenly.
    pub(crate) fn aggregators(&self, hints: &Hints) -> Vec<usize> {
        let ranks = self.of_rank.len();
        let most = hints.aggregators_per_node().unwrap_or(ranks);
        let mut used = vec![0; self.count];
        let able: Vec<usize> = (0..ranks)
            .filter(|rank| {
                let used = &mut used[self.of_rank[*rank]];
                *used += 1;
                *used <= most
            })
            .collect();
        let count = hints
            .cb_nodes
            .unwrap_or(able.len())
            .clamp(1, able.len().max(1));
        (0..count).map(|i| able[i * able.len() / count]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hints::Info;

    fn nodes() -> Nodes {
        Nodes::new(["a", "a", "a", "b", "b", "b"].into_iter())
    }

    fn aggregators(pairs: &[(&str, &str)]) -> Vec<usize> {
        let mut hints = Hints::default();
        hints.take(&Info::from_iter(pairs.iter().copied()), true);
        nodes().aggregators(&hints)
    }

    #[test]
    fn every_rank_aggregates_unless_told_otherwise() {
        assert_eq!(aggregators(&[]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(aggregators(&[("cb_nodes", "2")]), [0, 3]);
        assert_eq!(aggregators(&[("cb_nodes", "100")]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(aggregators(&[("cb_config_list", "*:1")]), [0, 3]);
        assert_eq!(
            aggregators(&[("cb_config_list", "*:2"), ("cb_nodes", "3")]),
            [0, 1, 3]
        );
    }

    #[test]
    fn leaders_are_the_lowest_ranks_of_their_nodes() {
        let leaders: Vec<_> = (0..6).filter(|r| nodes().leads(*r)).collect();
        assert_eq!(leaders, [0, 3]);
        let written = [5, 0, 7, 0, 0, 1];
        let shares: Vec<_> = (0..6).map(|r| nodes().share(r, &written)).collect();
        assert_eq!(shares[0..3], [Some((0, 2)), None, Some((1, 2))]);
        assert_eq!(shares[3..], [None, None, Some((0, 1))]);
        assert!(!nodes().is_one());
    }
}
