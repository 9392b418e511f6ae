//! The device under each data server, by name.
use crate::scenario::Device as Spec;
use penstock_device::{Device, HardDisk};

/// Names of devices.
const NAMES: [(&str, HardDisk); 2] = [
    ("st9500430ss", HardDisk::St9500430ss),
    ("st9500620ss", HardDisk::St9500620ss),
];

impl Spec {
    /// A device at rest, or what is wrong with its description.
    pub(crate) fn build(&self) -> Result<Box<dyn Device>, String> {
        match NAMES.iter().find(|(name, _)| *name == self.model) {
            Some((_, disk)) => Ok(Box::new(disk.build())),
            None => {
                let known = NAMES.map(|(name, _)| name).join(", ");
                Err(format!(
                    "no device is called \"{}\"; there are {known}",
                    self.model
                ))
            }
        }
    }
}
