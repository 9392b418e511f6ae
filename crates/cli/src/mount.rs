//! `penstock mount` and `penstock umount`: show a deployment as a directory.
//!
//! The daemon is this program, started again with `--foreground`, in a session of its own. A watcher process removes
//! the mount point if the daemon is killed outright. If both were killed, the mount point stays and is dead; the next
//! `penstock mount` there clears it.
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::watcher::Watcher;
use crate::{connect, out, service};
use clap::Args;
use penstock_client::{Client, ClientOptions, announce};
use penstock_wire::Role;
use penstock_wire::message::ProgramInfo;
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Mount a deployment as a directory, for programs that use POSIX calls.
///
/// Needs FUSE (/dev/fuse), and root or the deployment's owner. Mounted by root, it serves all users of this host, each
/// with the rights that owners and permission bits give. The command returns when the mount is usable. A daemon serves
/// it and logs to log/mount.log of the deployment. A dead mount point is cleared first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock mount /mnt/fs -d /data/fs
  ls -l /mnt/fs; cp big.nc /mnt/fs/in/
  penstock run -n 8 -d /data/fs -- ./app /mnt/fs/out   MPI-IO goes to the servers, open() through the mount
  setfattr -n user.penstock.layout -v 'unit=1MiB count=2' /mnt/fs/wide    striping of new files there
  penstock umount /mnt/fs

docs/use/mount.md says what programs may rely on.")]
pub struct MountArgs {
    /// An empty directory.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Seconds for which names and attributes of directories may be out of date after others change them. Attributes of
    /// files: 0.1 s at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub staleness: f64,
    /// Only the user who mounts may use it, even if that is root.
    #[arg(long)]
    pub private: bool,
    /// All bytes go through the daemon, also those of files that lie on one server of this host. Then range locks never
    /// wait for a file that is open here (docs/use/mount.md).
    #[arg(long)]
    pub no_passthrough: bool,
    /// Stay in this terminal and log to it; Ctrl-C unmounts.
    #[arg(long)]
    pub foreground: bool,
    /// Leave the terminal's session.
    #[arg(long, hide = true, requires = "foreground")]
    pub detach: bool,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.0..=3600.0).contains(&s) => Ok(s),
        _ => Err("a number of seconds from 0 to 3600".into()),
    }
}

/// Unmount a deployment, also a dead mount.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The directory it is mounted on.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Even if files are open there: the path is free at once, the mount ends when they are closed.
    #[arg(short = 'z', long)]
    pub lazy: bool,
}

/// The device that mounts need.
const DEVICE: &str = "/dev/fuse";
/// How long the daemon has to make the mount usable.
const START: Duration = Duration::from_secs(30);
/// How long an unmounted directory may take to be free.
const STOP: Duration = Duration::from_secs(30);

/// The source that mount tables show for a deployment's mounts.
fn source(located: &Located) -> String {
    located.file.display().to_string()
}

/// The mount point of a deployment, if it is mounted.
pub fn mounted(located: &Located) -> Option<PathBuf> {
    penstock_fuse::mounts_of(&source(located)).pop()
}

/// Mounts a deployment; in the background unless told otherwise.
pub fn mount(args: &MountArgs, named: Option<&Path>) -> Result<()> {
    let located = deployment::find(named)?;
    if args.foreground {
        return serve(args, &located);
    }
    prepare(&args.dir, &located)?;
    let log = log_file(&located);
    let mut child = start(&args.dir, &located, &extra(args), &log)?;
    await_mount(&args.dir, &log, &mut child)
        .map_err(|e| e.next(format!("remove the cause; its log is {}", log.display())))?;
    out::line(format_args!(
        "{} is mounted on {}; `penstock umount {1}` ends that",
        located.dir().display(),
        args.dir.display()
    ));
    Ok(())
}

fn extra(args: &MountArgs) -> Vec<String> {
    let mut extra = vec!["--staleness".to_owned(), args.staleness.to_string()];
    if args.private {
        extra.push("--private".into());
    }
    if args.no_passthrough {
        extra.push("--no-passthrough".into());
    }
    extra
}

/// A mount for the time of a run; it ends when this is dropped.
pub struct Temporary {
    directory: PathBuf,
    child: Child,
}

impl Temporary {
    /// Mounts on `directory`, and tells `watcher`.
    pub fn start(directory: &Path, located: &Located, watcher: &mut Watcher) -> Result<Temporary> {
        prepare(directory, located)?;
        watcher.mount(directory)?;
        let log = located.log_dir().join("mount.log");
        let mut child = start(directory, located, &[], &log)?;
        // An error quotes the log and does not name it: the log may be removed with the run.
        await_mount(directory, &log, &mut child)?;
        Ok(Temporary {
            directory: directory.to_owned(),
            child,
        })
    }

    /// The mount point.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(e) = penstock_fuse::unmount(&self.directory, true) {
            log::warn!("{} stays mounted: {e}", self.directory.display());
        }
        let _ = self.child.wait();
    }
}

/// Checks that the directory exists and can be mounted on, and clears a dead mount.
fn prepare(dir: &Path, located: &Located) -> Result<()> {
    if !Path::new(DEVICE).exists() {
        return Err(CliError::new(format!("{DEVICE} is missing: this system has no FUSE"))
            .next("load the kernel module (modprobe fuse), or let the container have the device; `penstock run` needs no mount"));
    }
    if let Some(found) = penstock_fuse::find(dir) {
        if !found.is_dead() {
            return Err(CliError::new(format!(
                "{} has {} mounted on it already",
                dir.display(),
                found.source
            ))
            .next(format!(
                "use it, or `penstock umount {}` first",
                dir.display()
            )));
        }
        log::warn!("{}: clearing a dead mount", dir.display());
        penstock_fuse::unmount(dir, true)
            .map_err(|e| CliError::io("unmount the dead mount on", dir, e))?;
    }
    if !dir.is_dir() {
        return Err(CliError::new(format!("{} is no directory", dir.display()))
            .next(format!("mkdir -p {}", dir.display())));
    }
    if dir
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some())
    {
        return Err(CliError::new(format!("{} is not empty", dir.display()))
            .next("mount on an empty directory: files in it would be hidden"));
    }
    connect::client(located).map(drop)
}

/// Starts the daemon.
fn start(dir: &Path, located: &Located, extra: &[String], log: &Path) -> Result<Child> {
    let me = std::env::current_exe()
        .map_err(|e| CliError::new(format!("cannot find this program's own path: {e}")))?;
    let open = || {
        let mut how = std::fs::OpenOptions::new();
        let mut open = || {
            how.create(true)
                .append(true)
                .open(log)
                .map_err(|e| CliError::io("write", log, e))
        };
        if log.starts_with(located.dir()) {
            service::as_owner(located.dir(), open)
        } else {
            open()
        }
    };
    let dir = dir
        .canonicalize()
        .map_err(|e| CliError::io("find", dir, e))?;
    Command::new(&me)
        .arg("mount")
        .arg(&dir)
        .args(["--foreground", "--detach"])
        .args(extra)
        .arg("--deployment")
        .arg(&located.file)
        .stdin(Stdio::null())
        .stdout(open()?)
        .stderr(open()?)
        .current_dir("/")
        .spawn()
        .map_err(|e| CliError::io("start", &me, e))
}

/// In the deployment's log directory if this user may write there, otherwise among the user's own files.
fn log_file(located: &Located) -> PathBuf {
    let shared = located.log_dir();
    if rustix::fs::access(&shared, rustix::fs::Access::WRITE_OK).is_ok() {
        return shared.join("mount.log");
    }
    let uid = rustix::process::geteuid().as_raw();
    std::env::temp_dir().join(format!("penstock-mount-{uid}.log"))
}

fn await_mount(dir: &Path, log: &Path, child: &mut Child) -> Result<()> {
    let end = Instant::now() + START;
    let mut pause = Duration::from_millis(2);
    while !penstock_fuse::is_mounted(dir) {
        let ended = child.try_wait().ok().flatten();
        if ended.is_some() || Instant::now() >= end {
            let _ = child.kill();
            let _ = child.wait();
            return Err(CliError::new(format!(
                "{} could not be mounted. The daemon said:\n{}",
                dir.display(),
                crate::launch::last_lines(log)
            )));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    Ok(())
}

/// Runs the daemon from the mount to the unmount.
fn serve(args: &MountArgs, located: &Located) -> Result<()> {
    service::without_core()?;
    if args.detach {
        // Fails only if this process leads a group already; then it has no terminal to lose.
        let _ = rustix::process::setsid();
    } else {
        prepare(&args.dir, located)?;
    }
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|e| CliError::new(format!("cannot catch signals: {e}")))?;
    penstock_store::descriptors::raise_limit();
    crate::service::obey_quotas()?;
    let options = ClientOptions {
        connections: penstock_fuse::THREADS,
        // It serves other users, who may truncate their files.
        mappings: false,
        program: Some(listed(&args.dir)),
        ..ClientOptions::default()
    };
    let who = connect::program()?;
    let client = Client::connect_with(&located.deployment, who, Role::Client, options)
        .map_err(CliError::new)?;
    require_delegate(&client)?;
    let mut watcher = Watcher::start()?;
    watcher.guard(&args.dir)?;
    let mut options = penstock_fuse::Options::new(source(located));
    options.names = Duration::from_secs_f64(args.staleness);
    options.attributes = options.attributes.min(options.names);
    options.others &= !args.private;
    options.passthrough = !args.no_passthrough;
    let mount = penstock_fuse::Mount::new(client, &args.dir, &options).map_err(|e| {
        let advice = match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM | Errno::ACCESS) => {
                "mounting takes root; or the right to open /dev/fuse (as root: chmod 666 /dev/fuse) and the program fusermount3 (Debian: apt-get install fuse3)"
            }
            _ => "see what is mounted there: cat /proc/self/mountinfo",
        };
        CliError::io("mount on", &args.dir, e).next(advice)
    })?;
    log::info!(
        "{} is mounted on {}",
        located.dir().display(),
        args.dir.display()
    );
    let dir = args.dir.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.forever().next().is_some()
                && let Err(e) = penstock_fuse::unmount(&dir, true)
            {
                log::error!("cannot unmount {}: {e}", dir.display());
            }
        })
        .map_err(|e| CliError::new(format!("no thread for signals: {e}")))?;
    let served = mount.serve();
    watcher.finish();
    log::info!("{} is unmounted", args.dir.display());
    served.map_err(|e| CliError::io("serve", &args.dir, e))
}

/// How `penstock status` lists a mount; traffic of all its callers is counted for it.
fn listed(dir: &Path) -> ProgramInfo {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let command = [b"penstock mount ", dir.as_os_str().as_bytes()].concat();
    announce::program_as(&command)
}

/// A mount acts for the users of its host; the servers allow that to root and the owner.
fn require_delegate(client: &Client) -> Result<()> {
    let user = penstock_wire::message::User {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Vec::new(),
    };
    let root = penstock_wire::message::NodeRequest::Stat {
        id: penstock_layout::FileId(1),
    };
    client.node(&user, root).map(drop).map_err(|e| {
        CliError::new(e).next("let root or the owner mount, over TCP with a host credential (`penstock credential --speaks-for`; MUNGE speaks for one user alone); `penstock cp` and `penstock run` need no mount")
    })
}

/// Ends a mount, whether its daemon runs or not.
pub fn umount(args: &UmountArgs) -> Result<()> {
    let Some(found) = penstock_fuse::find(&args.dir) else {
        return Err(CliError::new(format!(
            "no deployment is mounted on {}",
            args.dir.display()
        ))
        .next("`penstock mount DIR` mounts one; /proc/self/mountinfo lists what is mounted"));
    };
    // The daemon is asked only if the mount is busy. If its servers do not answer, the waiting request would itself
    // keep the mount busy.
    let busy = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ResourceBusy;
    let unmounted = match penstock_fuse::unmount(&found.directory, args.lazy) {
        Err(e) if busy(&e) && found.is_dead() => penstock_fuse::unmount(&found.directory, true),
        done => done,
    };
    unmounted.map_err(|e| {
        let busy = busy(&e);
        let error = CliError::io("unmount", &args.dir, e);
        if busy {
            error.next(
                "a program has files open or its working directory there: end it, or add --lazy",
            )
        } else {
            error
        }
    })?;
    let end = Instant::now() + STOP;
    while penstock_fuse::find(&found.directory).is_some_and(|f| f.source == found.source) {
        if Instant::now() >= end {
            return Err(CliError::new(format!(
                "{} is still mounted",
                args.dir.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    out::line(format_args!("{} is unmounted", args.dir.display()));
    Ok(())
}
