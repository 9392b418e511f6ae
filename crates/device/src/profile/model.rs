//! A modelled device as a target: one request after the other, on virtual time.
use super::{ProfileError, Target};
use crate::{Device, Nanos, Op, Request};

/// A model that is profiled. The file lies contiguously at the beginning of the device.
pub struct ModelTarget<D> {
    name: String,
    device: D,
    now: Nanos,
    requests: u64,
}

impl<D: Device> ModelTarget<D> {
    /// A device at rest.
    pub fn new(name: impl Into<String>, device: D) -> ModelTarget<D> {
        ModelTarget {
            name: name.into(),
            device,
            now: 0,
            requests: 0,
        }
    }

    fn failed(&self, why: &str) -> ProfileError {
        ProfileError::Options(format!("the model {} {why}", self.name))
    }
}

impl<D: Device> Target for ModelTarget<D> {
    fn describe(&self) -> String {
        format!("model {}", self.name)
    }

    fn writable(&self) -> bool {
        true
    }

    fn alignment(&self) -> u64 {
        1
    }

    fn prepare(
        &mut self,
        bytes: u64,
        done: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), ProfileError> {
        if bytes > self.device.capacity() {
            return Err(self.failed(&format!(
                "holds {} bytes: choose a smaller --file-size",
                self.device.capacity()
            )));
        }
        self.fill(bytes, done)
    }

    fn access(&mut self, op: Op, offset: u64, bytes: u64) -> Result<Nanos, ProfileError> {
        let (began, id) = (self.now, self.requests);
        self.requests += 1;
        let request = Request {
            id,
            op,
            address: offset,
            bytes,
            process: 0,
        };
        self.device.submit(began, request);
        let mut done = Vec::new();
        loop {
            let Some(wake) = self.device.wake() else {
                return Err(self.failed("never answers a request"));
            };
            self.now = self.now.max(wake);
            self.device.advance(self.now, &mut done);
            if let Some(completion) = done.iter().find(|c| c.id == id) {
                self.now = self.now.max(completion.at);
                return Ok(completion.at.saturating_sub(began));
            }
            done.clear();
        }
    }
}
