//! Bugs planted on purpose: each breaks one promise that the servers rely on or make, so that it can be shown that the
//! checks find it. They live in the simulated machine; three are a limit and questions of the servers that are switched off.

/// Which promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// One sync of a file in four returns without having made anything durable.
    LostSync,
    /// Syncs of directories do nothing: new names are lost with the power.
    LostName,
    /// One read of a file in forty sees a page as it was one write before.
    StaleRead,
    /// One wake-up of a parked thread in four is lost: whoever waits for a lock waits for its limit.
    LostWakeup,
    /// The data servers do not ask the metadata server for its time: after a start they trust their wall clocks.
    TrustedClock,
    /// The network delivers one segment of metadata traffic in three hundred twice.
    TwiceDelivered,
    /// A server welcomes a connection of a link while the one before it still delivers requests.
    NoFence,
    /// The metadata server's disk leaves out writes of the bytes that are there: after a sync that failed, what it was to write
    /// never reaches the disk, although it reads as if it had.
    SameBytes,
    /// The power of a machine comes back in the same boot: a data server keeps its incarnation although the page cache is lost.
    KeptIncarnation,
    /// Nobody asks the metadata server whether a store is the right one: an empty one is made anew, an older copy is taken.
    AnyStore,
    /// A data server that is started again asks for no leases on users' bytes, and lets all objects grow.
    NoLease,
    /// One part in twenty that ranks of a program send each other arrives as zeros: whoever collected it has left it out.
    DroppedPart,
    /// A rank of a program whose collective access has failed tells the others nothing of it when they meet.
    SwallowedError,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 13] = [
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
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Plant> {
        Plant::ALL.into_iter().find(|p| p.name() == name)
    }
}
