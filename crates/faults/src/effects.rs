//! Counts of what the faults of a run caused.
//!
//! Problem: a planned fault may have no effect, for example a full disk that nobody writes to. A run without findings
//! then shows nothing. Idea: each kind of effect is counted where it happens: on the wire, on the disk, at the kill.
//! The counts are part of a run's report: two runs of a seed must agree in them, and a test checks that each kind
//! happens.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One kind of effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// A connection broke, and bytes in flight were lost.
    Drop,
    /// Bytes were delayed.
    Delay,
    /// Bytes reached a machine after bytes that were sent to it later over another connection.
    Reordering,
    /// A request that a client had repeated on a new connection arrived over the broken one too.
    Duplicate,
    /// Bytes did not arrive because their machines were partitioned.
    Partition,
    /// A server or a client was killed.
    Crash,
    /// The power of a machine failed.
    PowerLoss,
    /// A part of an unsynced write survived a power loss.
    TornWrite,
    /// Nothing of an unsynced write survived a power loss.
    LostWrite,
    /// A name, or its removal, was not synced and was lost.
    LostName,
    /// An access failed because the disk was full.
    FullDisk,
    /// An access was slowed down.
    SlowDisk,
    /// A sync failed.
    FailedSync,
    /// A stored bit flipped (bit rot).
    BitFlip,
    /// A bit flipped between two machines.
    WireFlip,
    /// A read of a disk failed.
    FailedRead,
    /// A write to a disk failed.
    FailedWrite,
    /// A descriptor was refused (EMFILE).
    NoDescriptor,
    /// The system had no memory for an access or a thread (ENOMEM).
    NoMemory,
    /// A client read a wrong time of day.
    WrongClock,
    /// A server read a wrong time of day.
    WrongServerClock,
    /// Several clients changed names of one directory at the same time.
    NameRace,
    /// A plain write waited for a lock.
    LockedWrite,
    /// A request waited in a data server's scheduler.
    Queued,
    /// A data server found something else in place of its store.
    ReplacedStore,
    /// A new store replaced one whose bytes are lost.
    LostStore,
    /// A write was refused by a quota on bytes.
    ByteLimit,
    /// A collective call of a parallel program failed on all its ranks.
    FailedTogether,
    /// A collective call failed on some ranks only, and a later one on all.
    ToldLater,
    /// A connection was a TLS session.
    Session,
    /// A user was refused access to another user's file.
    Forbidden,
    /// An expired capability was refused.
    EndedCapability,
    /// An expired credential was refused.
    EndedCredential,
    /// A revoked credential was refused.
    TakenBack,
}

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Effect::Drop => "drops",
            Effect::Delay => "delays",
            Effect::Reordering => "reorderings",
            Effect::Duplicate => "duplicates",
            Effect::Partition => "arrivals held up by partitions",
            Effect::Crash => "crashes",
            Effect::PowerLoss => "losses of power",
            Effect::TornWrite => "torn writes",
            Effect::LostWrite => "lost writes",
            Effect::LostName => "lost names",
            Effect::FullDisk => "accesses to full disks",
            Effect::SlowDisk => "accesses to slow disks",
            Effect::FailedSync => "failed syncs",
            Effect::BitFlip => "bit flips",
            Effect::WireFlip => "bits flipped on the network",
            Effect::FailedRead => "failed reads",
            Effect::FailedWrite => "failed writes",
            Effect::NoDescriptor => "refused descriptors",
            Effect::NoMemory => "refusals for want of memory",
            Effect::WrongClock => "looks at wrong clocks",
            Effect::WrongServerClock => "looks of servers at wrong clocks",
            Effect::NameRace => "races for names",
            Effect::LockedWrite => "writes kept out by locks",
            Effect::Queued => "requests that waited in schedulers",
            Effect::ReplacedStore => "stores that were others",
            Effect::LostStore => "stores lost for good",
            Effect::ByteLimit => "writes refused for limits on bytes",
            Effect::FailedTogether => "collective calls that failed",
            Effect::ToldLater => "errors that other ranks were told later",
            Effect::Session => "TLS sessions",
            Effect::Forbidden => "accesses refused to users",
            Effect::EndedCapability => "capabilities refused after their end",
            Effect::EndedCredential => "credentials refused after their end",
            Effect::TakenBack => "credentials refused that were taken back",
        })
    }
}

/// Count of each kind; kinds that did not happen are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Effects(pub BTreeMap<Effect, u64>);

impl Effects {
    pub(crate) fn count(&mut self, effect: Effect) {
        self.add_to(effect, 1);
    }

    /// Adds a number of occurrences.
    pub(crate) fn add_to(&mut self, effect: Effect, times: u64) {
        if times > 0 {
            *self.0.entry(effect).or_default() += times;
        }
    }

    /// The same kinds, each counted once.
    pub fn once(&self) -> Effects {
        Effects(self.0.keys().map(|effect| (*effect, 1)).collect())
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Effects) {
        for (effect, times) in &other.0 {
            *self.0.entry(*effect).or_default() += times;
        }
    }
}
