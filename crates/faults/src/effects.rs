//! What the faults of a run did.
//!
//! Problem: a fault may be planned and never bite, as when a disk is full that nobody writes to; a run that finds nothing then
//! shows nothing. Idea: each kind is counted where it takes effect, on the wire, on the disk, at the kill. The counts
//! are part of a run's report, so that two runs of a seed have to agree in them, and a test asks that each kind happens.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One kind of effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// A connection broke, and bytes on their way were lost.
    Drop,
    /// Bytes took longer than on a good day.
    Delay,
    /// Bytes reached a machine after others that had been sent to it later, over another connection.
    Reordering,
    /// What a client had repeated elsewhere, its connection being gone, reached the server all the same.
    Duplicate,
    /// Bytes did not arrive while their machines were cut off from each other.
    Partition,
    /// A server or a client was killed.
    Crash,
    /// The power of a machine failed.
    PowerLoss,
    /// A write that was not synced survived a loss of power in part.
    TornWrite,
    /// Nothing of a write that was not synced survived.
    LostWrite,
    /// A name that was not synced, or its removal, did not survive.
    LostName,
    /// An access failed for want of space.
    FullDisk,
    /// An access took many times as long as usual.
    SlowDisk,
    /// A sync failed.
    FailedSync,
    /// A bit of what is stored flipped.
    BitFlip,
    /// A bit flipped on its way between two machines.
    WireFlip,
    /// A read of a disk failed.
    FailedRead,
    /// A write to a disk failed.
    FailedWrite,
    /// A descriptor was refused.
    NoDescriptor,
    /// The system had no memory for an access or a thread.
    NoMemory,
    /// A time of day was read from a clock that was wrong.
    WrongClock,
    /// A server read one.
    WrongServerClock,
    /// Names of one directory were changed by several clients at once.
    NameRace,
    /// A plain write waited for the holder of a lock.
    LockedWrite,
    /// A request waited in a data server's scheduler.
    Queued,
    /// A data server found something else in the place of its store.
    ReplacedStore,
    /// A new store took the place of one whose bytes are lost.
    LostStore,
    /// A write was refused for a limit on bytes.
    ByteLimit,
    /// A collective call of a parallel program failed, on all its ranks.
    FailedTogether,
    /// A collective call failed on some ranks only, and a later one on all.
    ToldLater,
    /// A connection was a TLS session.
    Session,
    /// A user was refused what is another's.
    Forbidden,
    /// A capability was refused after its end.
    EndedCapability,
    /// A credential was refused after its end.
    EndedCredential,
    /// A credential was refused that had been taken back.
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

/// How often each happened; none is kept that did not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Effects(pub BTreeMap<Effect, u64>);

impl Effects {
    pub(crate) fn count(&mut self, effect: Effect) {
        self.add_to(effect, 1);
    }

    /// It happened so often.
    pub(crate) fn add_to(&mut self, effect: Effect, times: u64) {
        if times > 0 {
            *self.0.entry(effect).or_default() += times;
        }
    }

    /// The same kinds, each once.
    pub fn once(&self) -> Effects {
        Effects(self.0.keys().map(|effect| (*effect, 1)).collect())
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Effects) {
        for (effect, times) in &other.0 {
            *self.0.entry(*effect).or_default() += times;
        }
    }
}
