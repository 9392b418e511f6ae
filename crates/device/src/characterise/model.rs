//! A modelled device as a subject, on virtual time.

use super::{Bound, Load, Sample, Subject};
use crate::nand::{Counters, Nand, Wear};
use crate::profile::ProfileError;
use crate::{Device, DeviceKind, Model, Nanos, Op, Request, closed_loop_from, random_addresses};

enum Modelled {
    Nand(Box<Nand>),
    Other(Box<dyn Device>),
}

/// A model to characterise. NAND models are used without a block queue, so that each request reaches the device.
pub struct ModelSubject {
    name: String,
    device: Modelled,
    span: u64,
    now: Nanos,
    /// Where the next sequential access begins.
    place: u64,
}

impl ModelSubject {
    /// The first `space` bytes of a model; all of it if that is less.
    pub fn new(
        text: &str,
        model: &Model,
        space: Option<u64>,
    ) -> Result<ModelSubject, ProfileError> {
        let device = match &model.kind {
            DeviceKind::Nand(options) => Modelled::Nand(Box::new(
                Nand::new((**options).clone()).map_err(|e| ProfileError::Options(e.to_string()))?,
            )),
            _ => Modelled::Other(model.build()),
        };
        let capacity = match &device {
            Modelled::Nand(nand) => nand.capacity(),
            Modelled::Other(device) => device.capacity(),
        };
        Ok(ModelSubject {
            name: format!("model {text}"),
            device,
            span: space.unwrap_or(u64::MAX).min(capacity),
            now: 0,
            place: 0,
        })
    }

    fn device(&mut self) -> &mut dyn Device {
        match &mut self.device {
            Modelled::Nand(nand) => nand.as_mut(),
            Modelled::Other(device) => device.as_mut(),
        }
    }
}

impl Subject for ModelSubject {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn writable(&self) -> bool {
        true
    }

    fn span(&self) -> u64 {
        self.span
    }

    /// Nothing to do: a model starts in the condition that its options name.
    fn prepare(&mut self, _go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), ProfileError> {
        Ok(())
    }

    fn run(&mut self, load: &Load, bound: &Bound, seed: u64) -> Result<Sample, ProfileError> {
        let span = (self.span / 100 * load.part).max(load.bytes) / load.bytes * load.bytes;
        let mut address = random_addresses(seed, span, load.bytes);
        let mut choice = random_addresses(seed ^ 0x55, 100, 1);
        let (begin, mut place) = (self.now, self.place);
        let load = *load;
        // The time bound is checked when the load is done: virtual time costs nothing.
        let count = bound.requests.min((bound.bytes / load.bytes).max(64));
        let run = closed_loop_from(self.device(), begin, load.depth, 0, |i| {
            let op = if choice() < load.reads {
                Op::Read
            } else {
                Op::Write
            };
            place = (place + load.bytes) % span;
            (i < count).then(|| Request {
                id: 0,
                op,
                address: if load.random { address() } else { place },
                bytes: load.bytes,
                process: 0,
            })
        });
        if run.measured.requests < count {
            return Err(ProfileError::Options(format!(
                "{} did not answer all requests",
                self.name
            )));
        }
        self.place = place;
        self.now = begin + run.measured.elapsed;
        Ok(Sample {
            bytes: run.measured.bytes,
            elapsed: run.measured.elapsed,
            latencies: run.latencies,
        })
    }

    fn rest(&mut self, time: Nanos) {
        let until = self.now + time;
        self.now = until;
        self.device().advance(until, &mut Vec::new());
    }

    fn trim(&mut self, at: u64, bytes: u64) -> Result<Option<Nanos>, ProfileError> {
        let now = self.now;
        match &mut self.device {
            Modelled::Nand(nand) => {
                nand.trim(now, at, bytes);
                Ok(Some(0))
            }
            Modelled::Other(_) => Ok(None),
        }
    }

    fn counters(&self) -> Option<(Counters, Wear)> {
        match &self.device {
            Modelled::Nand(nand) => Some((nand.counters(), nand.wear())),
            Modelled::Other(_) => None,
        }
    }
}
