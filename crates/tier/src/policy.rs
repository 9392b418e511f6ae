//! Which writes go to the fast tier.
//!
//! `auto` follows iTransformer (RS section 6.2). H compares the distances between the requests that reach the slow storage
//! with those behind a queue as long as the log. It is how much farther apart they are. Above [`ON`] the log is used. Then H is
//! measured against what comes home; below [`OFF`] the log is no longer used. Two kinds of writes always go there, since the slow
//! storage would have to wait for each. Fragments are small parts of a larger request that is not aligned (RS 7.3.1); the
//! others are parts of pages (RS 7.3.3). Not, however, while the fast device is seen to be the slower one.
use crate::locality::{Ghost, Locality};

/// The log is used from this H on.
const ON: f64 = 4.0;
/// And no longer below this one.
const OFF: f64 = 2.0;
/// Requests nearer than this, in their sizes, count as in order.
const NEAR: f64 = 0.1;
/// A part of a request is a fragment below this size.
const FRAGMENT: u64 = 20 << 10;
/// A write that does not begin and end at multiples of this needs a page to be read.
const PAGE: u64 = 4096;
/// Writes that both devices have taken before their times are compared.
const SAMPLES: u32 = 32;
/// The fast device counts as slower from this ratio of times on.
const SLOWER: f64 = 1.5;
/// While it does, one write in so many finds out whether it still is.
const PROBE: u32 = 64;

/// What a user says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Measured locality decides.
    #[default]
    Auto,
    /// Every write, while there is room.
    On,
    /// No write, but those to bytes that are in the log already.
    Off,
}

impl Mode {
    /// By name.
    pub fn from_name(name: &str) -> Option<Mode> {
        [Mode::Auto, Mode::On, Mode::Off]
            .into_iter()
            .find(|mode| mode.name() == name)
    }

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::On => "on",
            Mode::Off => "off",
        }
    }
}

/// A write that arrives.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    /// Where on the device; objects are far apart.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of the request that it is part of.
    pub parent: u64,
    /// The page at its end need not be read: it ends the object.
    pub ends_object: bool,
}

impl Write {
    fn is_fragment(&self) -> bool {
        self.bytes < FRAGMENT && self.parent > self.bytes
    }

    fn is_part_of_page(&self) -> bool {
        let end = self.address.saturating_add(self.bytes);
        self.bytes < FRAGMENT
            && (!self.address.is_multiple_of(PAGE)
                || !self.ends_object && !end.is_multiple_of(PAGE))
    }
}

/// Mean times of writes, and how many.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    count: u32,
    mean: f64,
}

impl Times {
    fn add(&mut self, nanos: u64) {
        self.count = self.count.saturating_add(1);
        let weight = (1.0 / f64::from(self.count)).max(1.0 / 32.0);
        self.mean += (nanos as f64 - self.mean) * weight;
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Policy {
    mode: Mode,
    /// Of what reaches the slow storage from its callers, what would behind the log, and what comes home from it.
    memory: Locality,
    ghost: Ghost,
    home: Locality,
    using: bool,
    fast: Times,
    slow: Times,
    /// Writes since the fast device counted as slower.
    slower: u32,
}

impl Policy {
    /// With a log of so many bytes.
    pub fn new(queue: u64) -> Policy {
        Policy {
            mode: Mode::Auto,
            memory: Locality::default(),
            ghost: Ghost::new(queue),
            home: Locality::default(),
            using: false,
            fast: Times::default(),
            slow: Times::default(),
            slower: 0,
        }
    }

    /// What the user says from now on.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// What the user said.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether this write goes to the log.
    pub fn takes(&mut self, write: &Write) -> bool {
        match self.mode {
            Mode::On => return true,
            Mode::Off => return false,
            Mode::Auto => {}
        }
        let wanted = self.using || write.is_fragment() || write.is_part_of_page();
        if !wanted || !self.fast_is_slower() {
            return wanted;
        }
        self.slower += 1;
        self.slower.is_multiple_of(PROBE)
    }

    fn fast_is_slower(&self) -> bool {
        self.fast.count >= SAMPLES
            && self.slow.count >= SAMPLES
            && self.fast.mean > SLOWER * self.slow.mean
    }

    /// The slow storage has taken a write from a caller. `idle`: no other was there.
    pub fn dispatched(&mut self, address: u64, bytes: u64, idle: bool) {
        self.memory.dispatched(address, bytes, false);
        if idle {
            self.ghost.rest(address, bytes);
        } else {
            self.ghost.add(address, bytes);
        }
        if self.h().is_some_and(|h| h > ON) {
            self.using = true;
        }
    }

    /// A write has gone to the log: it would have reached the slow storage otherwise.
    pub fn took(&mut self, address: u64, bytes: u64) {
        self.memory.dispatched(address, bytes, false);
        self.ghost.add(address, bytes);
    }

    /// Bytes came home. `alone`: nothing arrived meanwhile.
    pub fn came_home(&mut self, address: u64, bytes: u64, alone: bool) {
        self.home.dispatched(address, bytes, alone);
        if self.using && self.h().is_some_and(|h| h < OFF) {
            self.using = false;
        }
    }

    /// How much farther apart requests are than they would be behind the log; while it is used, than those that come home.
    pub fn h(&self) -> Option<f64> {
        let shorter = match self.home.value().filter(|_| self.using) {
            Some(home) => home,
            None => self.ghost.value()?,
        };
        Some(self.memory.value()? / shorter.max(NEAR))
    }

    /// Whether locality has it used.
    pub fn is_using(&self) -> bool {
        self.using
    }

    /// How long a write took.
    pub fn timed(&mut self, fast: bool, nanos: u64) {
        let times = if fast { &mut self.fast } else { &mut self.slow };
        times.add(nanos);
    }

    /// In words, for people.
    pub fn state(&self) -> &'static str {
        match self.mode {
            Mode::On => "takes every write",
            Mode::Off => "takes no write",
            Mode::Auto if self.fast_is_slower() => "is slower than what is behind it",
            Mode::Auto if self.using => "takes writes: they are far apart",
            Mode::Auto => "takes fragments and parts of pages",
        }
    }
}
