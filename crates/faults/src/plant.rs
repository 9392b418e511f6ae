//! Planted bugs: each breaks one property that the servers rely on or promise, to show that the checks find it. They
//! are in the simulated machine, except three: a limit and two questions of the servers that are switched off.

/// The property that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// One sync of a file in four returns without making anything durable.
    LostSync,
    /// Syncs of directories do nothing: new names are lost in a power loss.
    LostName,
    /// One read of a file in forty returns a page as it was before the last write.
    StaleRead,
    /// One wake-up of a parked thread in four is lost: a thread that waits for a lock waits for its time limit.
    LostWakeup,
    /// Data servers do not ask the metadata server for its time: after a start they trust their wall clocks.
    TrustedClock,
    /// The network delivers one segment in three hundred of metadata traffic twice.
    TwiceDelivered,
    /// No fencing: a server accepts a new connection while the one before still delivers requests.
    NoFence,
    /// The metadata server's disk skips writes that change nothing. Data of a failed sync then never reaches the disk,
    /// although it reads as if it had.
    SameBytes,
    /// A power loss does not change the boot identifier: a data server keeps its incarnation although the page cache is
    /// lost.
    KeptIncarnation,
    /// Nobody asks the metadata server whether a store is the right one: an empty one is initialised, an older copy is
    /// accepted.
    AnyStore,
    /// A restarted data server asks for no leases on users' bytes, and lets all objects grow.
    NoLease,
    /// One message in twenty between ranks of a program arrives as zeros, as if its sender had left it out.
    DroppedPart,
    /// A rank whose collective access has failed does not tell the others when they meet.
    SwallowedError,
    /// Syncs of a fast tier's log make nothing durable. All runs have tiers.
    LostLog,
    /// Syncs of objects behind a fast tier make nothing durable: bytes that came home are lost with the power. All runs
    /// have tiers.
    LostHome,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 15] = [
        Plant::LostSync,
        Plant::LostName,
        Plant::StaleRead,
        Plant::LostWakeup,
        Plant::TrustedClock,
        Plant::TwiceDelivered,
        Plant::NoFence,
        Plant::SameBytes,
        Plant::KeptIncarnation,
        Plant::AnyStore,
        Plant::NoLease,
        Plant::DroppedPart,
        Plant::SwallowedError,
        Plant::LostLog,
        Plant::LostHome,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Plant::LostSync => "lost-sync",
            Plant::LostName => "lost-name",
            Plant::StaleRead => "stale-read",
            Plant::LostWakeup => "lost-wakeup",
            Plant::TrustedClock => "trusted-clock",
            Plant::TwiceDelivered => "twice-delivered",
            Plant::NoFence => "no-fence",
            Plant::SameBytes => "same-bytes",
            Plant::KeptIncarnation => "kept-incarnation",
            Plant::AnyStore => "any-store",
            Plant::NoLease => "no-lease",
            Plant::DroppedPart => "dropped-part",
            Plant::SwallowedError => "swallowed-error",
            Plant::LostLog => "lost-log",
            Plant::LostHome => "lost-home",
        }
    }

    /// The bug with that name.
    pub fn from_name(name: &str) -> Option<Plant> {
        Plant::ALL.into_iter().find(|p| p.name() == name)
    }
}
