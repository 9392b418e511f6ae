//! A modelled device as text: `NAME[,key=value]...`, for command lines, stores and scenarios.

use crate::block::{BlockQueue, BlockQueueOptions, Elevator};
use crate::disk::{Disk, DiskOptions};
use crate::kind::DeviceKind;
use crate::nand::{Nand, NandError, NandOptions};
use crate::preset;
use crate::raid::{Raid0, RaidOptions};
use crate::size::bytes;
use crate::ssd::Ssd;
use crate::{AllocationOptions, Device, Nanos, Queueing};

/// A device, the block queue above it, and the allocation of files on it.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// The device.
    pub kind: DeviceKind,
    /// The block queue; `None` for none.
    pub queue: Option<BlockQueueOptions>,
    /// The local file system.
    pub allocation: AllocationOptions,
    /// Model time per real time: at 10, requests are answered ten times as fast as the device would.
    pub scale: f64,
}

/// A model text that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// No such device.
    #[error("no device model is called {0:?}; there are: {1}")]
    Name(String, String),
    /// No such option.
    #[error("a device model has no option {0:?}; there are: {OPTIONS}, {nand}", nand = NandOptions::NAMES)]
    Option(String),
    /// A value that does not fit.
    #[error("device model option {option}={value}: write {expected}")]
    Value {
        /// The option.
        option: String,
        /// What was given.
        value: String,
        /// What is meant.
        expected: &'static str,
    },
    /// NAND options that contradict each other.
    #[error("device model {0}: {1}")]
    Nand(String, NandError),
}

const OPTIONS: &str = "scale, queue, requests, slots, depth, order, write-cache, read-ahead, disks, unit, extent, \
     fragmentation, distance";

impl Model {
    /// Reads `NAME[,key=value]...`. Errors name the unknown device or option, or the value and what was expected;
    /// [`Model::help`] lists all options.
    pub fn parse(text: &str) -> Result<Model, ModelError> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default().trim();
        let kind = preset::by_name(name).ok_or_else(|| {
            let names: Vec<&str> = preset::NAMES.iter().map(|n| n.0).collect();
            ModelError::Name(name.to_owned(), names.join(", "))
        })?;
        let mut model = Model {
            name: name.to_owned(),
            // Flash gets the simplest elevator, as in the sources.
            queue: Some(BlockQueueOptions {
                elevator: match kind {
                    DeviceKind::Ssd(_) | DeviceKind::Nand(_) => Elevator::Noop,
                    _ => Elevator::Cfq,
                },
                ..BlockQueueOptions::default()
            }),
            kind,
            allocation: AllocationOptions::default(),
            scale: 1.0,
        };
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            model.set(key.trim(), value.trim())?;
        }
        if let DeviceKind::Nand(options) = &model.kind {
            options
                .check()
                .map_err(|e| ModelError::Nand(text.to_owned(), e))?;
        }
        Ok(model)
    }

    /// The names and options, for help texts.
    pub fn help() -> String {
        let mut text = String::from("Devices:\n");
        for (name, what) in preset::NAMES {
            text.push_str(&format!("  {name:<12} {what}\n"));
        }
        text.push_str(
            "Options:\n\
             \x20 scale=N          answer N times as fast as the device would (0.001 to 100000; default 1)\n\
             \x20 queue=Q          block queue: cfq, deadline, noop, or none (cfq for disks, noop for flash)\n\
             \x20 requests=N       requests that the block queue sorts, 1 to 65536 (128; per process under cfq)\n\
             \x20 slots=N          requests of all processes that the block queue and the device hold, 1 to 65536 (no bound)\n\
             \x20 depth=N          requests at the device at once, 1 to 1024 (32)\n\
             \x20 order=O          a disk's own queue: sptf, clook or fifo (sptf)\n\
             \x20 write-cache=S    bytes of a disk's write cache; 0 for none\n\
             \x20 read-ahead=S     bytes that a disk reads ahead; 0 for none\n\
             \x20 disks=N unit=S   RAID 0: number of disks (1 to 64), bytes per turn\n\
             \x20 extent=S fragmentation=F distance=S\n\
             \x20                  how files lie: contiguous bytes (16m), share of extents elsewhere (0 to 1),\n\
             \x20                  bytes from one file's start to the next (0: close)\n\
",
        );
        text.push_str(NandOptions::HELP);
        text.push_str("Sizes: 4096, 64k, 16m, 30g.\n");
        text
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each option")]
    fn set(&mut self, key: &str, value: &str) -> Result<(), ModelError> {
        let wrong = |expected| ModelError::Value {
            option: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let not_here = || wrong("it for a device that has it");
        let count = |low: u64, high: u64, expected| {
            let n: u64 = value.parse().map_err(|_| wrong(expected))?;
            (low..=high)
                .contains(&n)
                .then_some(n)
                .ok_or_else(|| wrong(expected))
        };
        let size = || bytes(value).ok_or_else(|| wrong("a size such as 4096, 64k, 16m or 30g"));
        if let DeviceKind::Nand(options) = &mut self.kind
            && let Some(set) = options.set(key, value)
        {
            return set.map_err(wrong);
        }
        if NandOptions::NAMES.split(", ").any(|n| n == key) && key != "read-ahead" {
            return Err(not_here());
        }
        match key {
            "scale" => {
                const EXPECTED: &str = "a number from 0.001 to 100000";
                let scale: f64 = value.parse().map_err(|_| wrong(EXPECTED))?;
                if !(0.001..=100_000.0).contains(&scale) {
                    return Err(wrong(EXPECTED));
                }
                self.scale = scale;
            }
            "queue" => {
                let elevator = match value {
                    "none" => None,
                    "noop" => Some(Elevator::Noop),
                    "deadline" => Some(Elevator::Deadline),
                    "cfq" => Some(Elevator::Cfq),
                    _ => return Err(wrong("cfq, deadline, noop or none")),
                };
                let options = self.queue.unwrap_or_default();
                self.queue = elevator.map(|elevator| BlockQueueOptions {
                    elevator,
                    ..options
                });
            }
            "requests" => {
                let n = count(1, 65_536, "a number from 1 to 65536")?;
                self.queue.as_mut().ok_or_else(not_here)?.queue = n as usize;
            }
            "slots" => {
                let n = count(1, 65_536, "a number from 1 to 65536")?;
                self.queue.as_mut().ok_or_else(not_here)?.slots = Some(n as usize);
            }
            "depth" => {
                let n = count(1, 1024, "a number from 1 to 1024")? as usize;
                self.queue.as_mut().ok_or_else(not_here)?.depth = n;
                if let DeviceKind::Disk(disk) | DeviceKind::Raid { member: disk, .. } =
                    &mut self.kind
                {
                    disk.depth = n;
                }
            }
            "order" => {
                self.disk().ok_or_else(not_here)?.queueing = match value {
                    "sptf" => Queueing::Sptf,
                    "clook" => Queueing::CLook,
                    "fifo" => Queueing::Fifo,
                    _ => return Err(wrong("sptf, clook or fifo")),
                };
            }
            "write-cache" => {
                let size = size()?;
                let disk = self.disk().ok_or_else(not_here)?;
                disk.write_cache = size;
                disk.write_runs = disk.write_runs.max(32);
            }
            "read-ahead" => {
                let size = size()?;
                self.disk().ok_or_else(not_here)?.read_ahead = size;
            }
            "disks" | "unit" => {
                let n = if key == "disks" {
                    count(1, 64, "a number from 1 to 64")?
                } else {
                    size()?.clamp(512, 1 << 30)
                };
                let DeviceKind::Raid { disks, array, .. } = &mut self.kind else {
                    return Err(not_here());
                };
                match key {
                    "disks" => *disks = n as usize,
                    _ => array.unit = n,
                }
            }
            "extent" => self.allocation.extent = size()?.clamp(4096, 1 << 40),
            "distance" => self.allocation.distance = size()?,
            "fragmentation" => {
                const EXPECTED: &str = "a share from 0 to 1";
                let share: f64 = value.parse().map_err(|_| wrong(EXPECTED))?;
                if !(0.0..=1.0).contains(&share) {
                    return Err(wrong(EXPECTED));
                }
                self.allocation.fragmentation = share;
            }
            _ => return Err(ModelError::Option(key.to_owned())),
        }
        Ok(())
    }

    fn disk(&mut self) -> Option<&mut DiskOptions> {
        match &mut self.kind {
            DeviceKind::Disk(disk) | DeviceKind::Raid { member: disk, .. } => Some(disk),
            DeviceKind::Ssd(_) | DeviceKind::Nand(_) => None,
        }
    }

    /// Disks begin at `share` (0 to 1) of a turn at time 0, so that those of several servers are out of step.
    pub fn turned(mut self, share: f64) -> Model {
        if let Some(disk) = self.disk() {
            disk.phase = (disk.geometry.turn() as f64 * share) as Nanos;
        }
        self
    }

    /// The device alone, at rest.
    pub fn device(&self) -> Box<dyn Device> {
        match &self.kind {
            DeviceKind::Disk(options) => Box::new(Disk::new(options.clone())),
            DeviceKind::Ssd(options) => Box::new(Ssd::new(options.clone())),
            DeviceKind::Nand(options) => match Nand::new((**options).clone()) {
                Ok(nand) => Box::new(nand),
                // `parse` checked the options; if they were changed since and cannot be built, the device has no
                // capacity.
                Err(_) => Box::new(Raid0::new(Vec::new(), nothing())),
            },
            DeviceKind::Raid {
                disks,
                member,
                array,
            } => {
                let turn = member.geometry.turn();
                let members = (0..*disks as u64).map(|i| {
                    let options = DiskOptions {
                        phase: (member.phase + i * turn * 618 / 1000) % turn,
                        ..member.clone()
                    };
                    Box::new(Disk::new(options)) as Box<dyn Device>
                });
                Box::new(Raid0::new(members.collect(), *array))
            }
        }
    }

    /// The device with its block queue.
    pub fn build(&self) -> Box<dyn Device> {
        match self.queue {
            Some(options) => Box::new(BlockQueue::new(options, self.device())),
            None => self.device(),
        }
    }
}

/// An array of no members: it holds nothing.
fn nothing() -> RaidOptions {
    RaidOptions {
        unit: 512,
        read_bus: 1,
        write_bus: 1,
        overhead: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_options() {
        for (name, _) in preset::NAMES {
            assert!(Model::parse(name).unwrap().build().capacity() > 9_000_000_000);
        }
        let m =
            Model::parse("raid,scale=10,queue=deadline,requests=8192,disks=4,unit=256k").unwrap();
        assert_eq!(m.scale, 10.0);
        assert_eq!(m.queue.unwrap().queue, 8192);
        for wrong in [
            "floppy",
            "hdd,colour=red",
            "hdd,scale=0",
            "hdd,disks=2",
            "ssd,order=fifo",
            "hdd,read-ahead=99999999999999999999g",
            "hdd,fragmentation=2",
            "",
        ] {
            assert!(Model::parse(wrong).is_err(), "{wrong}");
        }
    }
}
