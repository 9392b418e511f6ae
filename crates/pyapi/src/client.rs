//! A deployment: its name space and its statistics.
use crate::error::{deployment_error, forked, os_error};
use crate::file::File;
use crate::stats;
use penstock_client::{
    ClientOptions, CreateOptions, ErrorKind, Identity, OpenOptions, SetAttributes, Stat,
};
use penstock_layout::ServerId;
use penstock_rpc::deployment::Deployment;
use penstock_wire::Role;
use penstock_wire::message::NodeKind;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// ENOENT, EIO.
const NO_ENTRY: i32 = 2;
const IO: i32 = 5;

/// A client of one deployment. Usable by several threads at once.
#[pyclass(frozen, module = "penstock._penstock")]
pub struct Client {
    client: penstock_client::Client,
    /// The process that made the connections.
    process: u32,
}

impl Client {
    fn here(&self, path: &str) -> PyResult<&penstock_client::Client> {
        if std::process::id() != self.process {
            return Err(forked(path));
        }
        Ok(&self.client)
    }

    /// Runs a call about `path` without the interpreter's lock.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        path: &str,
        f: impl FnOnce(&penstock_client::Client) -> penstock_client::Result<T> + Send,
    ) -> PyResult<T> {
        let client = self.here(path)?;
        py.detach(|| f(client)).map_err(|e| os_error(&e, path))
    }
}

fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Symlink => "symlink",
    }
}

fn to_dict<'py>(py: Python<'py>, path: &str, stat: &Stat) -> PyResult<Bound<'py, PyDict>> {
    let a = &stat.attributes;
    let dict = PyDict::new(py);
    dict.set_item("path", path)?;
    dict.set_item("kind", kind_name(a.kind))?;
    dict.set_item("size", stat.size)?;
    dict.set_item("id", a.id.0)?;
    dict.set_item("mode", a.mode)?;
    dict.set_item("uid", a.uid)?;
    dict.set_item("gid", a.gid)?;
    dict.set_item("nlink", a.nlink)?;
    dict.set_item("ctime_ns", a.ctime_ns)?;
    dict.set_item("mtime_ns", a.mtime_ns)?;
    dict.set_item("atime_ns", a.atime_ns)?;
    if let Some(layout) = &a.layout {
        dict.set_item("stripe_unit", layout.stripe_unit)?;
        let servers: Vec<u32> = layout.servers.iter().map(|s| s.0).collect();
        dict.set_item("servers", servers)?;
    }
    Ok(dict)
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (deployment, *, shortcuts, timeout, connections))]
    fn new(
        py: Python<'_>,
        deployment: PathBuf,
        shortcuts: bool,
        timeout: f64,
        connections: usize,
    ) -> PyResult<Client> {
        let shown = deployment.display().to_string();
        let retry_limit = Duration::try_from_secs_f64(timeout).map_err(|_| {
            PyValueError::new_err(format!("timeout is {timeout}; it is seconds, 0 or more"))
        })?;
        if !(1..=256).contains(&connections) {
            return Err(PyValueError::new_err(format!(
                "connections is {connections}; 1 to 256 operations run at once"
            )));
        }
        let client = py
            .detach(|| connect(&deployment, shortcuts, retry_limit, connections))
            .map_err(|(errno, message)| deployment_error(errno, message, &shown))?;
        Ok(Client {
            client,
            process: std::process::id(),
        })
    }

    /// The deployment's name.
    #[getter]
    fn name(&self) -> &str {
        &self.client.deployment().name
    }

    /// Numbers of the data servers.
    #[getter]
    fn servers(&self) -> Vec<u32> {
        let servers = &self.client.deployment().servers;
        servers.iter().map(|s| s.id.0).collect()
    }

    /// Whether this is the process that connected.
    #[getter]
    fn usable(&self) -> bool {
        std::process::id() == self.process
    }

    #[pyo3(signature = (path, *, read, write, create, exclusive, mode, stripe_unit, stripe_count, start_server))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python call")]
    fn open(
        &self,
        py: Python<'_>,
        path: &str,
        read: bool,
        write: bool,
        create: bool,
        exclusive: bool,
        mode: u32,
        stripe_unit: Option<u64>,
        stripe_count: Option<u32>,
        start_server: Option<u32>,
    ) -> PyResult<File> {
        let how = OpenOptions {
            read,
            write,
            create: create.then_some(CreateOptions {
                mode,
                stripe_unit,
                stripe_count,
                start_server: start_server.map(ServerId),
            }),
            exclusive,
        };
        let file = self.call(py, path, |c| c.open(path, &how))?;
        Ok(File::new(file))
    }

    fn stat<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyDict>> {
        let stat = self.call(py, path, |c| c.stat(path))?;
        to_dict(py, path, &stat)
    }

    /// Names of a directory, in order.
    fn names(&self, py: Python<'_>, path: &str) -> PyResult<Vec<String>> {
        self.call(py, path, |c| {
            let mut names = Vec::new();
            c.readdir_each(path, |name, _| names.push(name))?;
            Ok(names)
        })
    }

    /// Attributes and sizes of a directory's entries, in order of names.
    fn entries<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let found = self.call(py, path, |c| {
            let mut found = Vec::new();
            for (name, attributes) in c.readdir(path)? {
                let path = format!("{}/{name}", path.trim_end_matches('/'));
                let stat = if attributes.layout.is_none() {
                    Ok(Stat {
                        attributes,
                        size: 0,
                    })
                } else {
                    c.stat(&path)
                };
                match stat {
                    Ok(stat) => found.push((path, stat)),
                    // The entry was removed meanwhile.
                    Err(e) if e.kind() == ErrorKind::NotFound => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(found)
        })?;
        found
            .iter()
            .map(|(path, stat)| to_dict(py, path, stat))
            .collect()
    }

    fn mkdir(&self, py: Python<'_>, path: &str, mode: u32) -> PyResult<()> {
        self.call(py, path, |c| c.mkdir(path, mode))
    }

    fn rmdir(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        self.call(py, path, |c| c.rmdir(path))
    }

    fn unlink(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        self.call(py, path, |c| c.unlink(path))
    }

    fn rename(&self, py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
        self.call(py, source, |c| c.rename(source, target))
    }

    #[pyo3(signature = (path, *, mode, uid, gid, mtime_ns, atime_ns))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python call")]
    fn set_attributes(
        &self,
        py: Python<'_>,
        path: &str,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        mtime_ns: Option<i64>,
        atime_ns: Option<i64>,
    ) -> PyResult<()> {
        let change = SetAttributes {
            mode,
            uid,
            gid,
            mtime_ns,
            atime_ns,
        };
        self.call(py, path, |c| c.set_attributes(path, &change))
    }

    /// Makes all names acknowledged so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, "/", penstock_client::Client::sync_metadata)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::to_dict(py, &self.client.stats())
    }
}

fn connect(
    deployment: &Path,
    shortcuts: bool,
    retry_limit: Duration,
    connections: usize,
) -> Result<penstock_client::Client, (i32, String)> {
    let shown = deployment.display();
    let deployment = Deployment::load(deployment).map_err(|e| {
        let errno = if deployment.exists() { IO } else { NO_ENTRY };
        (
            errno,
            format!("{e}; `penstock up {shown}` makes a deployment"),
        )
    })?;
    let options = ClientOptions {
        retry_limit,
        connections,
        shortcuts,
        program: Some(penstock_client::announce::program()),
        ..ClientOptions::default()
    };
    let who = Identity {
        program: penstock_client::job::program(),
        rank: std::process::id(),
    };
    penstock_client::Client::connect_with(&deployment, who, Role::Client, options).map_err(|e| {
        (
            e.errno(),
            format!("{e}; `penstock up {shown}` starts its servers"),
        )
    })
}
