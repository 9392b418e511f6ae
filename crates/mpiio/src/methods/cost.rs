//! Inputs of the estimates of a method's time: the deployment's costs, statistics of the access, and its environment.
//!
//! Statistics of an access are its bytes, its contiguous regions in the file and in memory, and the extent of each
//! rank. File regions are also counted cut at stripe units, where each piece is a separate operation on a server's
//! object. Work of the ranks of a node is divided by its processors, because ranks may outnumber them.
use penstock_base::Op;
use serde::{Deserialize, Serialize};

/// Statistics of one rank's access.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RankAccess {
    pub bytes: f64,
    /// Regions in the file, cut at stripe units.
    pub file_regions: f64,
    pub memory_regions: f64,
    pub extent: f64,
}

impl RankAccess {
    /// Lower bound of the pieces that are contiguous in file and memory.
    pub(crate) fn regions(&self) -> f64 {
        self.file_regions.max(self.memory_regions)
    }
}

/// The environment of the access.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Surroundings {
    pub ranks: f64,
    /// Processors that the ranks of this node share.
    pub processors: f64,
    pub one_node: bool,
    /// Whether descriptors may be used.
    pub shortcut: bool,
    /// Whether there are servers, so that requests are a candidate; in direct mode every access is a system call.
    pub servers: bool,
}

impl Surroundings {
    /// Seconds until all ranks have finished, given the processor time of all.
    pub(crate) fn shared_out(&self, seconds: f64) -> f64 {
        seconds / self.processors.min(self.ranks).max(1.0)
    }
}

/// Costs of this deployment in seconds, as [`crate::probe`] measures them. The defaults are those of a current server
/// processor, with client and server on one host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Costs {
    /// A request's round trip to a server.
    pub request: f64,
    /// A byte by requests.
    pub request_byte: [f64; 2],
    /// A region at a server.
    pub server_region: f64,
    /// A system call on a descriptor; writers of one file wait for each other.
    pub call: [f64; 2],
    /// A byte by a descriptor.
    pub call_byte: [f64; 2],
    /// A byte copied in memory.
    pub copy_byte: f64,
    /// A piece of memory copied.
    pub piece: f64,
    /// A byte sent to another rank and received.
    pub message_byte: f64,
    /// A barrier or an agreement of all ranks.
    pub barrier: f64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            request: 60e-6,
            request_byte: [0.35e-9, 0.6e-9],
            server_region: 0.5e-6,
            call: [0.6e-6, 3e-6],
            call_byte: [0.12e-9, 0.25e-9],
            copy_byte: 0.06e-9,
            piece: 6e-9,
            message_byte: 0.4e-9,
            barrier: 30e-6,
        }
    }
}

/// What an estimate depends on, besides the access.
pub(crate) struct Terms<'a> {
    pub costs: &'a Costs,
    pub direction: Op,
    pub place: &'a Surroundings,
    /// Whether it uses descriptors instead of requests.
    pub shortcut: bool,
    /// Bytes of the method's buffer.
    pub buffer: f64,
}

impl Terms<'_> {
    /// Whether the file is accessed by system calls instead of requests.
    pub(crate) fn by_call(&self) -> bool {
        self.shortcut || !self.place.servers
    }

    /// Seconds of an operation, without its bytes.
    pub(crate) fn operation(&self) -> f64 {
        if self.by_call() {
            self.costs.call[self.direction as usize]
        } else {
            self.costs.request
        }
    }

    /// Seconds of a byte of the file.
    pub(crate) fn byte(&self) -> f64 {
        if self.by_call() {
            self.costs.call_byte[self.direction as usize]
        } else {
            self.costs.request_byte[self.direction as usize]
        }
    }
}
