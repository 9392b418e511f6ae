//! The device under each data server: a model as `--store model:` takes it, with its block queue.
use crate::scenario::Device as Spec;
use penstock_device::{AllocationOptions, Device, Model};

impl Spec {
    /// The allocation of files on it.
    pub(crate) fn allocation(&self) -> Result<AllocationOptions, String> {
        let model = Model::parse(&self.model).map_err(|e| e.to_string())?;
        Ok(model.allocation)
    }

    /// An idle device whose disks begin at `angle` (0 to 1) of their turn; an error says what is wrong with its
    /// description.
    pub(crate) fn build(&self, angle: f64) -> Result<Box<dyn Device>, String> {
        let model = Model::parse(&self.model).map_err(|e| e.to_string())?;
        if model.allocation.distance > 0 {
            return Err(
                "files are placed by the scenario, `program.distance` apart; leave distance out"
                    .into(),
            );
        }
        if model.scale != 1.0 {
            return Err("scale is for real time; leave it out".into());
        }
        Ok(model.turned(angle).build())
    }
}
