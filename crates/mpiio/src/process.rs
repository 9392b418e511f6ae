//! Per-process state besides files: environment, connection, learnt costs, summary.
use crate::direct::Direct;
use crate::error::{Error, ErrorClass, Result};
use crate::filesystem::{FileHandle, FileSystem};
use crate::hints::{Hints, Info, Toggle};
use crate::methods::auto::Learnt;
use crate::methods::cost::Costs;
use crate::methods::{self, Method};
use crate::penstock::Penstock;
use crate::probe;
use crate::stats::{FORMAT, FileSummary, Summary};
use crate::task::{TASK_FARM, Task};
use penstock_client::{ClientOptions, Identity};
use penstock_host::sync::Mutex;
use penstock_host::{thread, time};
use penstock_rpc::deployment::Deployment;
use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Time between summaries while a program runs.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// Prefix of names in the deployment's name space.
const PREFIX: &str = "penstock:";
/// Prefixes that ROMIO strips from names of files accessible to any program of the host.
const ROMIO: [&str; 13] = [
    "ufs:", "nfs:", "lustre:", "gpfs:", "panfs:", "xfs:", "pvfs2:", "pvfs:", "pfs:", "piofs:",
    "hfs:", "sfs:", "testfs:",
];
/// Prefixes that lead ROMIO to servers, which are no file system of this host.
const ELSEWHERE: [&str; 7] = [
    "daos:", "ime:", "quobyte:", "gridftp:", "gsiftp:", "ftp:", "zoidfs:",
];
/// Symbolic links followed at the end of a path to a file that does not exist yet.
const MAX_SYMLINKS: usize = 40;

/// A path that belongs to this library, and what it refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A name in the name space of the deployment.
    Penstock(String),
    /// A file of an ordinary mounted file system, in direct mode.
    Direct(String),
}

/// The variables of the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `PENSTOCK_DEPLOYMENT`: the deployment file.
    pub deployment: Option<PathBuf>,
    /// `PENSTOCK_DIRECT=1`: no servers; every path belongs to this library.
    pub direct: bool,
    /// `PENSTOCK_METHOD`: a method for all files, whatever the hints say; `None` is `auto`.
    pub method: Option<Method>,
    /// `PENSTOCK_SHORTCUT`: `enable`, `disable` or `automatic`.
    pub shortcut: Option<String>,
    /// `PENSTOCK_MOUNT`: plain paths under this one are names of the deployment.
    pub mount: Option<PathBuf>,
    /// `PENSTOCK_PROGRAM`, or the launcher's variables: the number of the parallel job.
    pub program: u64,
    /// `PENSTOCK_SUMMARY_DIR`: directory of summaries.
    pub summary_dir: Option<PathBuf>,
    /// `PENSTOCK_PATIENCE`, seconds: how long calls are retried before they fail, if a server is away.
    pub patience: Option<Duration>,
    /// `PENSTOCK_TASK_FARM=1`: tasks that are programs of one rank each may write the same file.
    pub task_farm: bool,
    /// The first variable with an invalid value: then no file can be opened, so that no program runs differently than
    /// intended.
    pub wrong: Option<String>,
}

impl Environment {
    /// Reads the process's environment.
    pub fn read() -> Environment {
        Environment::of(|name| std::env::var_os(name))
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Environment {
        let get = |name: &str| variable(name).filter(|v| !v.is_empty());
        let mut wrong = None;
        /// The value of a variable, if `parse` accepts it.
        fn known<T>(
            (name, value): (&str, Option<OsString>),
            values: &str,
            wrong: &mut Option<String>,
            parse: impl Fn(&str) -> Option<T>,
        ) -> Option<T> {
            let value = value?;
            let parsed = value.to_str().and_then(parse);
            if parsed.is_none() {
                wrong.get_or_insert_with(|| {
                    format!(
                        "{name}={} is not a valid value; use {values}, or unset it",
                        value.display()
                    )
                });
            }
            parsed
        }
        let take = |name: &'static str| (name, get(name));
        let method = known(
            take("PENSTOCK_METHOD"),
            &methods::choices(),
            &mut wrong,
            methods::parse_choice,
        );
        let shortcut = known(
            take("PENSTOCK_SHORTCUT"),
            "enable, disable or automatic",
            &mut wrong,
            |value| Toggle::parse(value).map(|_| value.to_owned()),
        );
        let switch = |value: &str| match value {
            "1" | "true" | "yes" | "on" => Some(true),
            "0" | "false" | "no" | "off" => Some(false),
            _ => None,
        };
        let direct = known(take("PENSTOCK_DIRECT"), "1 or 0", &mut wrong, switch);
        let task_farm = known(take(TASK_FARM), "1 or 0", &mut wrong, switch);
        let patience = known(
            take("PENSTOCK_PATIENCE"),
            "a number of seconds",
            &mut wrong,
            |v| Duration::try_from_secs_f64(v.parse().ok()?).ok(),
        );
        known(take("PENSTOCK_PROGRAM"), "a number", &mut wrong, |v| {
            v.parse::<u64>().ok()
        });
        let deployment = get("PENSTOCK_DEPLOYMENT").map(PathBuf::from);
        // The deployment file may name the mount path; an unreadable one is reported at the first open. Without a
        // deployment a mount is an ordinary file system.
        let mount = deployment.as_deref().and_then(|file| {
            let named = get("PENSTOCK_MOUNT").map(PathBuf::from);
            named.or_else(|| Deployment::load(file).ok()?.mount)
        });
        Environment {
            deployment,
            // An invalid value must not bypass this library.
            direct: direct.unwrap_or_else(|| get("PENSTOCK_DIRECT").is_some()),
            method: method.flatten(),
            shortcut,
            mount,
            program: penstock_client::job::program(),
            summary_dir: get("PENSTOCK_SUMMARY_DIR").map(PathBuf::from),
            patience,
            task_farm: task_farm.unwrap_or(false),
            wrong,
        }
    }

    /// Whether `path` belongs to this library: see [`belongs`].
    pub fn claim(&self, path: &str) -> Option<Claim> {
        if let Some(name) = path.strip_prefix(PREFIX) {
            if self.direct {
                return Some(Claim::Direct(name.to_owned()));
            }
            return Some(Claim::Penstock(format!(
                "/{}",
                name.trim_start_matches('/')
            )));
        }
        if self.direct {
            let stripped = ROMIO.iter().find_map(|prefix| path.strip_prefix(prefix));
            return Some(Claim::Direct(stripped.unwrap_or(path).to_owned()));
        }
        let mount = self.mount.as_deref()?;
        let inside = if is_mounted(mount) {
            // Symbolic links on either side of the mount point count; the kernel resolves all of them.
            let mount = mount.canonicalize().ok()?;
            real(path).strip_prefix(mount).ok()?.to_owned()
        } else {
            normal(path).strip_prefix(mount).ok()?.to_owned()
        };
        Some(Claim::Penstock(format!("/{}", inside.to_str()?)))
    }
}

/// The absolute path, with `.` and `..` resolved textually: paths below the mount path need not exist in any other file
/// system.
fn normal(path: &str) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    let mut out = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// Whether a FUSE file system is mounted there, so that the mount path is no mere prefix.
fn is_mounted(directory: &Path) -> bool {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else {
        return false;
    };
    let mut statfs = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a terminated path and room for the answer, which is read only if the call has filled it in.
    let fuse = unsafe {
        libc::statfs(path.as_ptr(), statfs.as_mut_ptr()) == 0
            && statfs.assume_init().f_type == libc::FUSE_SUPER_MAGIC
    };
    fuse && directory
        .parent()
        .and_then(|above| Some((above.metadata().ok()?, directory.metadata().ok()?)))
        .is_some_and(|(above, here)| above.dev() != here.dev())
}

/// The path with symbolic links resolved. A file that is to be created need not exist, nor the target of a symbolic
/// link at the end.
fn real(path: &str) -> PathBuf {
    let mut path = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    for _ in 0..MAX_SYMLINKS {
        if let Ok(real) = path.canonicalize() {
            return real;
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            break;
        };
        let Ok(parent) = parent.canonicalize() else {
            break;
        };
        let there = parent.join(name);
        match there.read_link() {
            Ok(target) => path = parent.join(target),
            Err(_) => return there,
        }
    }
    path
}

/// State that the files of a process share. Programs use the global one; tests make their own.
pub struct Process {
    environment: Environment,
    /// The deployment and options; `None`: from the environment.
    place: Option<(Deployment, ClientOptions)>,
    direct: Arc<dyn FileSystem>,
    servers: OnceLock<Arc<dyn FileSystem>>,
    connecting: Mutex<()>,
    files: Mutex<BTreeMap<String, FileSummary>>,
    /// Files that are or were recently open.
    open: Mutex<Vec<Weak<Mutex<FileSummary>>>>,
    /// When the summary is written next while the program runs; `None` without a directory for it.
    next_checkpoint: Mutex<Option<Instant>>,
    pub(crate) learnt: Mutex<Learnt>,
    /// Costs measured when this process, as rank 0, first opened a file: in direct mode, and on servers.
    costs: [OnceLock<Costs>; 2],
    /// This process, if it is one of several tasks with a world of one rank; unset: the world is unknown.
    task: OnceLock<Option<Task>>,
    /// Processors that this process may use. Queried once, because it takes tens of microseconds.
    pub(crate) processors: u32,
}

impl Process {
    /// A process with this environment. Connects when the first file is opened.
    pub fn new(environment: Environment) -> Process {
        let next_checkpoint = environment.summary_dir.as_ref().map(|_| time::now());
        Process {
            environment,
            place: None,
            direct: Arc::new(Direct),
            servers: OnceLock::new(),
            connecting: Mutex::new(()),
            files: Mutex::default(),
            open: Mutex::default(),
            next_checkpoint: Mutex::new(next_checkpoint),
            learnt: Mutex::new(Learnt::default()),
            costs: Default::default(),
            task: OnceLock::new(),
            processors: u32::try_from(thread::processors()).unwrap_or(u32::MAX),
        }
    }

    /// A process that uses this deployment, whatever the environment says.
    pub fn of_servers(
        environment: Environment,
        deployment: Deployment,
        options: ClientOptions,
    ) -> Process {
        Process {
            place: Some((deployment, options)),
            ..Process::new(environment)
        }
    }

    /// The process with this process's environment, read at the first use.
    pub fn global() -> &'static Arc<Process> {
        static PROCESS: OnceLock<Arc<Process>> = OnceLock::new();
        PROCESS.get_or_init(|| Arc::new(Process::new(Environment::read())))
    }

    /// Its environment.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The costs of operations at `handle`; see [`probe`].
    pub(crate) fn costs(&self, handle: &dyn FileHandle) -> Costs {
        let kind = usize::from(handle.layout().is_some());
        *self.costs[kind].get_or_init(|| probe::costs(handle))
    }

    /// The hints that apply before a file's own.
    pub(crate) fn hints(&self) -> Hints {
        let mut hints = Hints {
            method: self.environment.method,
            method_fixed: self.environment.method.is_some(),
            ..Hints::default()
        };
        if let Some(shortcut) = &self.environment.shortcut {
            hints.take(
                &Info::from_iter([("penstock_shortcut", shortcut.as_str())]),
                true,
            );
        }
        hints
    }

    /// Sets the number of ranks of the program. Only the first call counts.
    fn world(&self, ranks: usize) {
        self.task.get_or_init(|| {
            if ranks != 1 || self.environment.task_farm {
                return None;
            }
            let task = Task::alone(self.environment.direct)?;
            if task.number == 0 {
                log::warn!("tasks may not write the same file. {}", task.explain());
            }
            Some(task)
        });
    }

    /// This process, if other tasks of its step may be about to write the same files and it cannot see them.
    pub(crate) fn task(&self) -> Option<&Task> {
        self.task.get()?.as_ref()
    }

    /// The file system of a path, and the path there. `rank` identifies this process to servers.
    pub(crate) fn find(&self, path: &str, rank: usize) -> Result<(Arc<dyn FileSystem>, String)> {
        if let Some(wrong) = &self.environment.wrong {
            return Err(Error::new(ErrorClass::Arg, wrong.clone()));
        }
        penstock_trace::sink::attach(
            self.environment.program,
            u32::try_from(rank).unwrap_or(u32::MAX),
        );
        match self.environment.claim(path) {
            Some(Claim::Direct(path))
                if ELSEWHERE.iter().any(|prefix| path.starts_with(prefix)) =>
            {
                Err(Error::new(
                    ErrorClass::BadFile,
                    format!("{path}: direct mode opens files of this host's file systems only"),
                ))
            }
            Some(Claim::Direct(path)) => Ok((Arc::clone(&self.direct), path)),
            Some(Claim::Penstock(path)) => Ok((self.servers(rank)?, path)),
            None => Err(Error::new(
                ErrorClass::BadFile,
                format!(
                    "{path} is not a name of Penstock's; use the prefix {PREFIX}, or the mount path{}",
                    match &self.environment.mount {
                        Some(mount) => format!(" {}", mount.display()),
                        None => " (none is configured)".into(),
                    }
                ),
            )),
        }
    }

    fn servers(&self, rank: usize) -> Result<Arc<dyn FileSystem>> {
        let _one_at_a_time = self
            .connecting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(servers) = self.servers.get() {
            return Ok(Arc::clone(servers));
        }
        let (deployment, options) = match &self.place {
            Some(place) => place.clone(),
            None => place(&self.environment)?,
        };
        let who = Identity {
            program: self.environment.program,
            rank: u32::try_from(rank).unwrap_or(u32::MAX),
        };
        let servers = Arc::new(Penstock::connect(&deployment, who, options)?);
        Ok(Arc::clone(self.servers.get_or_init(|| servers)))
    }

    /// Records an opened file.
    pub(crate) fn opened(&self, file: &Arc<Mutex<FileSummary>>, rank: usize) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|file| file.strong_count() > 0);
        open.push(Arc::downgrade(file));
        drop(open);
        self.checkpoint(rank);
    }

    /// Writes the summary if the last one is a second old: a program may end before MPI does.
    pub(crate) fn checkpoint(&self, rank: usize) {
        let Some(dir) = &self.environment.summary_dir else {
            return;
        };
        {
            let mut next = self
                .next_checkpoint
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let now = time::now();
            match *next {
                Some(at) if at <= now => *next = Some(now + CHECKPOINT),
                _ => return,
            }
        }
        if let Err(why) = self.summary(rank, false).write(dir) {
            log::debug!("{why}");
        }
    }

    /// Adds the counts of an open of a file.
    pub(crate) fn add(&self, summary: FileSummary) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        add_to(&mut files, summary);
    }

    /// Counts so far; `ended`: MPI has ended.
    pub fn summary(&self, rank: usize, ended: bool) -> Summary {
        let open: Vec<Arc<Mutex<FileSummary>>> = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.iter().filter_map(Weak::upgrade).collect()
        };
        let mut files = self
            .files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for file in open {
            let summary = file.lock().unwrap_or_else(PoisonError::into_inner).clone();
            // Files that are just being closed are already counted.
            if summary.opens > 0 {
                add_to(&mut files, summary);
            }
        }
        let servers = self.servers.get().map(|s| s.traffic());
        Summary {
            servers: servers.unwrap_or_default(),
            ended,
            format: FORMAT,
            rank,
            pid: std::process::id(),
            program: self.environment.program,
            file_system: if self.environment.direct {
                "direct".into()
            } else {
                "penstock".into()
            },
            method: methods::choice_name(self.environment.method).to_owned(),
            files: files.values().cloned().collect(),
        }
    }
}

fn add_to(files: &mut BTreeMap<String, FileSummary>, summary: FileSummary) {
    files
        .entry(summary.path.clone())
        .or_insert_with(|| FileSummary {
            path: summary.path.clone(),
            ..FileSummary::default()
        })
        .merge(summary);
}

/// The deployment of the environment, and the options to connect.
fn place(environment: &Environment) -> Result<(Deployment, ClientOptions)> {
    let Some(deployment) = &environment.deployment else {
        return Err(Error::new(
            ErrorClass::NoSuchFile,
            "no deployment is named; set PENSTOCK_DEPLOYMENT to a deployment file or run under `penstock run`",
        ));
    };
    let deployment = load(deployment)?;
    let options = ClientOptions {
        retry_limit: environment
            .patience
            .unwrap_or(ClientOptions::default().retry_limit),
        program: Some(penstock_client::announce::program()),
        ..ClientOptions::default()
    };
    Ok((deployment, options))
}

fn load(path: &Path) -> Result<Deployment> {
    Deployment::load(path).map_err(|e| {
        Error::new(
            Error::class_of(e.kind()),
            format!("deployment {}: {e}", path.display()),
        )
    })
}

/// Whether `path`, as passed to `MPI_File_open` or `MPI_File_delete`, belongs to this library. That is so with the
/// prefix `penstock:`, under the mount path, and in direct mode always. `None`: the program's own MPI library gets the
/// call. Fast; never connects. Needs no MPI.
pub fn belongs(path: &str) -> Option<Claim> {
    Process::global().environment.claim(path)
}

/// Sets the size of `MPI_COMM_WORLD` before the first file is opened, in processes that have that communicator.
pub fn world(ranks: usize) {
    Process::global().world(ranks);
}

/// Writes this process's summary to `$PENSTOCK_SUMMARY_DIR/rank-<rank>-<pid>.json`, if that is set. Called when MPI
/// ends, which may be more than once in the sessions model.
pub fn write_summary(rank: usize) -> Result<()> {
    let process = Process::global();
    match &process.environment.summary_dir {
        Some(dir) => process.summary(rank, true).write(Path::new(dir)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_claimed_by_prefix_mount_or_mode() {
        let mut environment = Environment {
            mount: Some("/p".into()),
            ..Environment::default()
        };
        let penstock = |name: &str| Some(Claim::Penstock(name.into()));
        assert_eq!(environment.claim("penstock:a/b"), penstock("/a/b"));
        assert_eq!(environment.claim("penstock:/a"), penstock("/a"));
        assert_eq!(environment.claim("/p/x/../y"), penstock("/y"));
        assert_eq!(environment.claim("/p/../q"), None);
        assert_eq!(environment.claim("/pq/x"), None);
        environment.direct = true;
        let direct = |name: &str| Some(Claim::Direct(name.into()));
        assert_eq!(environment.claim("/q"), direct("/q"));
        assert_eq!(environment.claim("ufs:/q"), direct("/q"));
        assert_eq!(environment.claim("lustre:q/ufs:r"), direct("q/ufs:r"));
        assert_eq!(environment.claim("C:/q"), direct("C:/q"));
        environment = Environment::default();
        assert_eq!(environment.claim("/p/x"), None);
    }

    #[test]
    fn values_that_mean_nothing_are_named() {
        let of = |name: &'static str, value: &'static str| {
            Environment::of(move |asked| (asked == name).then(|| value.into()))
        };
        for (name, value) in [
            ("PENSTOCK_METHOD", "fast"),
            ("PENSTOCK_SHORTCUT", "maybe"),
            ("PENSTOCK_DIRECT", "2"),
            ("PENSTOCK_TASK_FARM", "maybe"),
            ("PENSTOCK_PATIENCE", "-1"),
            ("PENSTOCK_PROGRAM", "mine"),
        ] {
            let wrong = of(name, value).wrong.unwrap();
            assert!(wrong.contains(&format!("{name}={value}")), "{wrong}");
            assert_eq!(of(name, "").wrong, None);
        }
        assert_eq!(of("PENSTOCK_METHOD", "auto").wrong, None);
        let list = of("PENSTOCK_METHOD", "list");
        assert_eq!(
            (list.method.map(Method::name), list.wrong),
            (Some("list"), None)
        );
        assert!(!of("PENSTOCK_DIRECT", "no").direct && of("PENSTOCK_DIRECT", "1").direct);
        // Without a deployment a mount does not belong to this library.
        assert_eq!(of("PENSTOCK_MOUNT", "/p").mount, None);
    }
}
