//! The shape of a new deployment, as given to `up` and `run`.
use crate::size::Size;
use clap::Args;
use std::path::PathBuf;

/// Options for a new deployment.
#[derive(Debug, Clone, Args)]
pub struct NewDeployment {
    /// Data servers of a new deployment.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub servers: Option<u32>,
    /// Bytes of a file that one server holds before the next one takes over [default: 64KiB].
    #[arg(long, value_name = "SIZE")]
    pub stripe_unit: Option<Size>,
    /// A setting of the data servers of a new deployment, such as sched=aioli; may be repeated (`penstock tune --help`).
    #[arg(long, value_name = "NAME=VALUE")]
    pub tune: Vec<String>,
    /// Plain paths below this directory belong to Penstock too. `penstock run` also mounts the deployment there, if the
    /// directory is empty and the system has FUSE. Without this option it uses an existing mount.
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Keep each data server's bytes on a modelled device, in memory; see the list below. With `,dir` at the end
    /// they stay in the deployment's directory.
    #[arg(long, value_name = "MODEL", value_parser = device)]
    pub device: Option<String>,
    /// Modelled devices answer X times as fast as the real ones would (0.001 to 100000; the same as `scale=X` of the model).
    #[arg(long, value_name = "X", requires = "device", value_parser = time_scale)]
    pub time_scale: Option<f64>,
}

impl NewDeployment {
    /// The device model of the stores, from `--device` and `--time-scale` together; and whether the bytes stay in the
    /// deployment's directory.
    pub fn modelled(&self) -> Option<(String, bool)> {
        let device = self.device.as_ref()?;
        let (model, in_files) = match device.strip_suffix(",dir") {
            Some(model) => (model, true),
            None => (device.as_str(), false),
        };
        let model = match self.time_scale {
            // The last value is used.
            Some(scale) => format!("{model},scale={scale}"),
            None => model.to_owned(),
        };
        Some((model, in_files))
    }
}

/// A time scale, checked as the model's own option is.
fn time_scale(text: &str) -> Result<f64, String> {
    penstock_device::Model::parse(&format!("hdd,scale={text}"))
        .map(|model| model.scale)
        .map_err(|_| "write a number from 0.001 to 100000".into())
}

/// The text of a device model, checked here so that a mistake shows before anything is started.
fn device(text: &str) -> Result<String, String> {
    let model = text.strip_suffix(",dir").unwrap_or(text);
    match penstock_device::Model::parse(model) {
        Ok(_) if text.contains(",dir=") => Err("write `,dir`; the deployment says where".into()),
        Ok(_) => Ok(text.to_owned()),
        Err(e) => Err(e.to_string()),
    }
}
