//! Creates and finds deployments.
//!
//! A deployment is a directory:
//!
//! ```text
//! deployment.toml    who is where; clients need this file and client.key
//! client.key         lets clients in (0600)
//! authority.key      makes credentials of users and administrators (0600); servers do not need it
//! meta.key, data-0.key …  who each server is (0600); its host needs no other's
//! meta/              the metadata database
//! data-0/ …          objects of each data server
//! run/               sockets and process numbers
//! log/               one log per server, and its audit log
//! ```
use crate::error::{CliError, Result};
use crate::fast::FastArg;
use crate::new_deployment::NewDeployment;
use crate::which::Which;
use crate::{service, settings};
use penstock_layout::ServerId;
use penstock_rpc::deployment::{
    Address, DataServer, Deployment, FILE_NAME, MetaServer, Target, Transport,
};
use penstock_rpc::munge;
use penstock_wire::Key;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The environment variable that names a deployment for all commands.
pub const VARIABLE: &str = "PENSTOCK_DEPLOYMENT";
/// Data servers of a new deployment.
const SERVERS: u32 = 4;
/// Stripe unit of a new deployment (DT section V.A).
const STRIPE_UNIT: u64 = 64 << 10;
/// Longest socket path that the system takes.
const SOCKET_PATH: usize = 107;

/// A deployment and the file that describes it.
#[derive(Debug, Clone)]
pub struct Located {
    /// deployment.toml, absolute.
    pub file: PathBuf,
    pub deployment: Deployment,
}

impl Located {
    /// The directory of the deployment file.
    pub fn dir(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }

    /// Writes the deployment file again.
    pub fn save(&self) -> Result<()> {
        service::as_owner(self.dir(), || {
            self.deployment.save(&self.file).map_err(CliError::new)
        })
    }

    /// Directory of the files with process numbers.
    pub fn run_dir(&self) -> PathBuf {
        self.dir().join("run")
    }

    /// Directory of the logs.
    pub fn log_dir(&self) -> PathBuf {
        self.dir().join("log")
    }
}

/// Properties of a new deployment besides its [`NewDeployment`].
#[derive(Debug, Default)]
pub struct Plan {
    /// Directory for the fast tiers of the data servers, and their options.
    pub fast: Option<FastArg>,
    /// Listen on TCP from this port on as well.
    pub tcp: Option<(String, u16)>,
    /// What protects TCP connections.
    pub transport: Transport,
    /// Users over TCP may prove by MUNGE who they are.
    pub munge: Option<munge::Section>,
    /// Keep bytes in memory.
    pub memory: bool,
    /// Directory of the sockets, if the deployment's own directory has too long a name.
    pub sockets: Option<PathBuf>,
}

/// Makes a deployment in `dir`, which is created if need be.
pub fn create(dir: &Path, shape: &NewDeployment, plan: &Plan) -> Result<Located> {
    check_shape(dir, shape)?;
    make_dir(dir)?;
    let dir = dir
        .canonicalize()
        .map_err(|e| CliError::io("find", dir, e))?;
    let file = dir.join(FILE_NAME);
    if file.exists() {
        return Err(CliError::new(format!(
            "{} is a deployment already",
            dir.display()
        )));
    }
    let deployment = describe(&dir, shape, plan)?;
    let mut located = Located { file, deployment };
    make_directories(&located)?;
    make_stores(&located.deployment, &Which::all(&located.deployment))?;
    let deployment = &mut located.deployment;
    Key::generate()
        .and_then(|mut key| key.save(&deployment.client_key))
        .map_err(CliError::new)?;
    deployment.make_keys(&dir).map_err(CliError::new)?;
    // Written last: a directory with a deployment file is a complete deployment.
    deployment.save(&located.file).map_err(CliError::new)?;
    Ok(located)
}

/// Checks that a new deployment is possible, before anything is made.
pub fn check_shape(dir: &Path, shape: &NewDeployment) -> Result<Vec<String>> {
    let place = std::path::absolute(dir).map_err(|e| CliError::io("find", dir, e))?;
    let unit = shape.stripe_unit.map_or(STRIPE_UNIT, |u| u.0);
    let tune = settings::kept(&shape.tune, &place, unit)?;
    penstock_server::check_settings(&tune)
        .map_err(|e| CliError::new(e).next("`penstock tune --help` lists settings"))?;
    Ok(tune)
}

/// Describes a new deployment in `dir`, without its keys; makes nothing.
pub fn describe(dir: &Path, shape: &NewDeployment, plan: &Plan) -> Result<Deployment> {
    let sockets = plan.sockets.clone().unwrap_or_else(|| dir.join("run"));
    let address = |name: &str, port: u16| -> Result<Address> {
        let unix = sockets.join(format!("{name}.sock"));
        if unix.as_os_str().len() > SOCKET_PATH {
            return Err(CliError::new(format!(
                "{} is too long for a socket ({SOCKET_PATH} bytes at most)",
                unix.display()
            ))
            .next("choose a directory with a shorter name"));
        }
        let tcp = match &plan.tcp {
            Some((host, first)) => Some(format!(
                "{host}:{}",
                first
                    .checked_add(port)
                    .ok_or_else(|| CliError::new(format!(
                        "port {first} leaves no room for {port} more; choose a lower one"
                    )))?
            )),
            None => None,
        };
        Ok(Address {
            unix: Some(unix),
            tcp,
            identity: None,
        })
    };
    let mut servers = Vec::new();
    for id in 0..shape.servers.unwrap_or(SERVERS) {
        let name = format!("data-{id}");
        let in_files = || -> Result<String> {
            let path = dir.join(&name);
            let text = path.to_str().ok_or_else(|| {
                CliError::new(format!("{} is not plain UTF-8", path.display()))
                    .next("choose another directory")
            })?;
            Ok(text.to_owned())
        };
        let store = match shape.modelled() {
            Some((model, true)) => format!("model:{model},dir={}", in_files()?),
            Some((model, false)) => format!("model:{model}"),
            None if plan.memory => "memory".to_string(),
            None => format!("dir:{}", in_files()?),
        };
        let store = match &plan.fast {
            Some(fast) => fast.before(ServerId(id), &store),
            None => store,
        };
        let port = u16::try_from(id + 1).map_err(|_| CliError::new("too many servers"))?;
        servers.push(DataServer {
            id: ServerId(id),
            address: address(&name, port)?,
            store,
            identity_key: None,
            host: None,
        });
    }
    let mount = match &shape.mount {
        Some(path) => Some(
            std::path::absolute(path)
                .map_err(|e| CliError::io("understand mount path", path, e))?,
        ),
        None => None,
    };
    Ok(Deployment {
        id: Deployment::new_id().map_err(CliError::new)?,
        name: dir
            .file_name()
            .map_or_else(|| "penstock".into(), |n| n.to_string_lossy().into_owned()),
        stripe_unit: shape.stripe_unit.map_or(STRIPE_UNIT, |s| s.0),
        mount,
        tune: check_shape(dir, shape)?,
        client_key: dir.join("client.key"),
        former_server_key: None,
        generation: 1,
        other_keys: None,
        authority: None,
        authority_key: None,
        munge: plan.munge.clone(),
        meta: MetaServer {
            address: address("meta", 0)?,
            store: dir.join("meta"),
            identity_key: None,
            host: None,
        },
        servers,
        transport: plan.transport,
    })
}

/// Makes the data directories of these servers.
pub fn make_stores(deployment: &Deployment, which: &[Which]) -> Result<()> {
    which.iter().try_for_each(|which| match which {
        Which::Meta => make_dir(&deployment.meta.store),
        Which::Data(id) => {
            let target = deployment.server(*id).map(DataServer::target);
            let target = target.transpose().map_err(CliError::new)?;
            target
                .as_ref()
                .and_then(Target::dir)
                .map_or(Ok(()), make_dir)
        }
    })
}

/// The warning about a deployment that listens on TCP without protection.
pub fn unprotected(deployment: &Deployment) -> Option<&'static str> {
    let servers = deployment.servers.iter().map(|s| &s.address);
    let tcp = servers
        .chain([&deployment.meta.address])
        .any(|a| a.tcp.is_some());
    (tcp && !deployment.transport.is_tls()).then_some(
        "transport is plain-trusted-network: everybody on the network can read and change what TCP connections carry",
    )
}

/// Makes the directories for sockets and logs, which may have been removed.
pub fn make_directories(located: &Located) -> Result<()> {
    make_dir(&located.run_dir())?;
    make_dir(&located.log_dir())?;
    let deployment = &located.deployment;
    let sockets = deployment.servers.iter().map(|s| &s.address);
    sockets
        .chain([&deployment.meta.address])
        .filter_map(|address| address.unix.as_deref()?.parent())
        .try_for_each(make_dir)
}

/// Lets a group use a deployment. Its members can read the deployment file and the client key, and reach the sockets
/// that are made from now on. Everything else stays accessible to the owner only.
pub fn share(located: &Located, group: &str) -> Result<()> {
    let gid = group_id(group).ok_or_else(|| {
        CliError::new(format!("no group {group}")).next("`getent group` lists them")
    })?;
    let deployment = &located.deployment;
    let mut paths = vec![
        (located.dir().to_owned(), 0o750),
        (located.file.clone(), 0o640),
        (deployment.client_key.clone(), 0o640),
    ];
    let sockets = deployment.servers.iter().map(|s| &s.address);
    for address in sockets.chain([&deployment.meta.address]) {
        if let Some(dir) = address.unix.as_deref().and_then(Path::parent) {
            // New sockets take the group of this directory.
            paths.push((dir.to_owned(), 0o2750));
        }
    }
    for (path, mode) in paths {
        std::os::unix::fs::chown(&path, None, Some(gid))
            .and_then(|()| {
                let mode = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(&path, mode)
            })
            .map_err(|e| {
                CliError::io("give to the group", &path, e).next(
                    "who does this, or the owner of the directory if root does, must be in the group",
                )
            })?;
    }
    Ok(())
}

/// The number of a group, given by name or number.
fn group_id(group: &str) -> Option<u32> {
    if let Ok(gid) = group.parse() {
        return Some(gid);
    }
    let table = std::fs::read_to_string("/etc/group").ok()?;
    let line = table.lines().find(|l| l.split(':').next() == Some(group))?;
    line.split(':').nth(2)?.parse().ok()
}

/// Whether `dir` holds a deployment.
pub fn is_in(dir: &Path) -> bool {
    dir.join(FILE_NAME).is_file()
}

/// Reads the deployment at `path`, a directory or a file.
pub fn load(path: &Path) -> Result<Located> {
    let file = if path.is_dir() {
        path.join(FILE_NAME)
    } else {
        path.to_path_buf()
    };
    let file = file.canonicalize().map_err(|e| {
        let closed = e.kind() == std::io::ErrorKind::PermissionDenied;
        let error = CliError::io("find deployment", &file, e);
        if closed { error.next(format!(
            "it is closed to you; its owner opens it to a group with `penstock up {} --group GROUP`",
            path.display()
        )) } else { error.next(format!("`penstock up {}` makes one", path.display())) }
    })?;
    let deployment = Deployment::load(&file).map_err(CliError::new)?;
    Ok(Located { file, deployment })
}

/// The deployment of a command: the one named, or that of the environment.
pub fn find(named: Option<&Path>) -> Result<Located> {
    match named_or_environment(named) {
        Some(path) => load(&path),
        None => Err(CliError::new("no deployment named").next(format!(
            "add --deployment DIR, or set {VARIABLE}=DIR; `penstock up DIR` makes one"
        ))),
    }
}

/// The path on the command line or in the environment.
pub fn named_or_environment(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_path_buf).or_else(|| {
        std::env::var_os(VARIABLE)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    })
}

/// Whether socket paths below `dir` are short enough for the system.
pub fn fits_sockets(dir: &Path) -> bool {
    // run/data-1023.sock
    dir.as_os_str().len() + 20 <= SOCKET_PATH
}

/// Makes `dir` and its parents; only the owner can access `dir` itself.
pub fn make_dir(dir: &Path) -> Result<()> {
    if let Some(parent) = dir.parent() {
        std::fs::create_dir_all(parent).map_err(|e| CliError::io("make", parent, e))?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(e) => Err(CliError::io("make", dir, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(servers: u32) -> NewDeployment {
        NewDeployment {
            servers: Some(servers),
            stripe_unit: None,
            tune: Vec::new(),
            mount: None,
            device: None,
            time_scale: None,
        }
    }

    #[test]
    fn what_is_made_is_found_again_and_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("fs");
        let plan = Plan {
            fast: None,
            tcp: Some(("localhost".into(), 7400)),
            ..Plan::default()
        };
        let made = create(&dir, &shape(3), &plan).unwrap();
        for path in [dir.clone(), dir.join(FILE_NAME)] {
            assert_eq!(load(&path).unwrap().deployment, made.deployment);
        }
        assert_eq!(made.deployment.servers.len(), 3);
        assert_eq!(made.deployment.stripe_unit, 65536);
        assert_eq!(
            made.deployment.servers[2].address.tcp.as_deref(),
            Some("localhost:7403")
        );
        for (name, mode) in [
            ("client.key", 0o600),
            ("authority.key", 0o600),
            ("meta.key", 0o600),
            ("data-2.key", 0o600),
            ("data-0", 0o700),
        ] {
            let found = dir.join(name).metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode, "{name}");
        }
        assert!(create(&dir, &shape(1), &Plan::default()).is_err());
    }

    #[test]
    fn errors_say_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let error = load(&dir.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("penstock up"), "{error}");
        let long = dir.path().join("x".repeat(120));
        let error = create(&long, &shape(1), &Plan::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("shorter"), "{error}");
        let plan = Plan {
            fast: None,
            tcp: Some(("h".into(), 65535)),
            ..Plan::default()
        };
        assert!(create(&dir.path().join("p"), &shape(1), &plan).is_err());
    }
}
