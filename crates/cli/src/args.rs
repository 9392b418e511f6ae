//! The command line: what can be asked for, and help that teaches by example.
use crate::size::Size;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use penstock_wire::deployment::Transport;
use std::ffi::OsString;
use std::path::PathBuf;

/// A parallel I/O stack: MPI programs read and write files that are striped over servers, without being changed.
#[derive(Debug, Parser)]
#[command(
    name = "penstock",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  penstock run -n 8 -- ./app penstock:/out          an MPI program on a file system of its own
  penstock up /data/fs --servers 4                  a file system that stays
  penstock cp big.nc penstock:/in/big.nc -d /data/fs
  penstock run -n 8 -d /data/fs -- ./app penstock:/in/big.nc

Inside programs, Penstock's files are those whose name begins with `penstock:`, and those below
the mount path, if one is set. All other files go to the program's own MPI library.
`penstock COMMAND --help` says more about each command."
)]
pub struct Cli {
    /// The deployment: its directory or its deployment.toml [default: $PENSTOCK_DEPLOYMENT].
    #[arg(short, long, global = true, value_name = "PATH")]
    pub deployment: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    Up(UpArgs),
    Down(DownArgs),
    Status(StatusArgs),
    Tune(TuneArgs),
    Ls(LsArgs),
    Stat(StatArgs),
    Cp(CpArgs),
    /// Bring a job's input in, whole and verified, before it runs.
    ///
    /// Exit code 0 means that every file is in Penstock, synced, and equal to its source by checksum. Files that are
    /// there with the same bytes are left alone, others replaced; so the same command goes on after an interruption.
    #[command(after_help = "\
Examples:
  penstock stage-in --from /home/me/case7 --to penstock:/in mesh.h5 forcing/
  penstock stage-in --from /archive --to penstock:/in --list inputs.txt && srun ./app
  find . -name '*.nc' -print0 | penstock stage-in --to penstock:/in --list - -0")]
    StageIn(StageArgs),
    /// Bring a job's output out, whole and verified, after it ran.
    ///
    /// Exit code 0 means that every file is outside, synced, and equal to its source by checksum. Files that are there
    /// with the same bytes are left alone, others replaced; so the same command goes on after an interruption.
    #[command(after_help = "\
Examples:
  penstock stage-out --from penstock:/out --to /home/me/case7/out .
  penstock stage-out --from penstock:/out --to /archive --list results.txt")]
    StageOut(StageArgs),
    Rm(RmArgs),
    Mkdir(MkdirArgs),
    Credential(CredentialArgs),
    Audit(crate::audit::AuditArgs),
    Quota(crate::quota::QuotaArgs),
    Keys(crate::keys::KeysArgs),
    Check(CheckArgs),
    Trace(crate::trace::TraceArgs),
    Mount(MountArgs),
    Umount(UmountArgs),
    Profile(crate::profile::ProfileArgs),
    Serve(ServeArgs),
    Sim(SimArgs),
    Faults(FaultsArgs),
    /// Clears up behind a `penstock run` that was killed (started by it, not by people).
    #[command(hide = true)]
    Watch,
}

/// Methods by the names they have in hints.
fn methods() -> PossibleValuesParser {
    penstock_mpiio::method_values()
        .map(|(name, summary)| PossibleValue::new(name).help(summary))
        .collect::<Vec<_>>()
        .into()
}

/// What a new deployment looks like.
#[derive(Debug, Clone, Args)]
pub struct Shape {
    /// Data servers of a new deployment.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub servers: Option<u32>,
    /// Bytes of a file that one server holds before the next one takes over [default: 64KiB].
    #[arg(long, value_name = "SIZE")]
    pub stripe_unit: Option<Size>,
    /// A setting of the data servers of a new deployment, such as sched=aioli; may be repeated (`penstock tune --help`).
    #[arg(long, value_name = "NAME=VALUE")]
    pub tune: Vec<String>,
    /// Plain paths below this prefix belong to Penstock too. `penstock run` also mounts it there if it is an empty
    /// directory and the system can; without this option it uses the mount that there is.
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

impl Shape {
    /// The stores' device as `--device` and `--time-scale` together name it; whether the bytes stay in the deployment's
    /// directory.
    pub fn modelled(&self) -> Option<(String, bool)> {
        let device = self.device.as_ref()?;
        let (model, in_files) = match device.strip_suffix(",dir") {
            Some(model) => (model, true),
            None => (device.as_str(), false),
        };
        let model = match self.time_scale {
            // What comes last counts.
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

/// Run an MPI program with its I/O through Penstock.
///
/// Without a deployment, a file system is started inside this process for the time of the run: a metadata server
/// and data servers that keep their bytes in a temporary directory. The launcher (mpiexec) is the one that belongs
/// to the program's MPI library. At the end a summary of the program's I/O is printed to standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock run -n 8 -- ./app penstock:/out            files disappear with the run
  penstock run -n 8 --store /scratch/fs --keep -- ./app penstock:/out
                                                      files stay in /scratch/fs
  penstock run -n 4 --method datatype -- ./app penstock:/out
  penstock run -n 4 --direct -- ./app /lustre/me/out  no servers: an ordinary file system
  penstock run -n 4 -- python3 script.py              mpi4py
  penstock run -n 4 --device hdd --time-scale 10 -- ./app penstock:/out
                                                      as on 7200 rpm disks, ten times as fast

The exit code is the program's. `penstock up --help` lists the modelled devices.")]
pub struct RunArgs {
    /// Number of ranks.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub ranks: u32,
    /// Where the embedded deployment keeps its files: a temporary directory in DIR, or DIR itself with --keep. A DIR
    /// that was kept is used again.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["deployment", "direct"])]
    pub store: Option<PathBuf>,
    /// Each data server writes a trace of the requests it serves to a file in DIR (docs/traces.md).
    #[arg(long, value_name = "DIR", conflicts_with_all = ["deployment", "direct"])]
    pub trace: Option<PathBuf>,
    /// Keep the embedded deployment and its files.
    #[arg(long, conflicts_with_all = ["deployment", "direct"])]
    pub keep: bool,
    #[command(flatten)]
    pub shape: Shape,
    /// How noncontiguous accesses are carried out, whatever the program's hints say (docs/hints.md).
    #[arg(long, value_name = "METHOD", value_parser = methods())]
    pub method: Option<String>,
    /// No servers: the same library on the file systems that are mounted.
    #[arg(long, conflicts_with = "deployment")]
    pub direct: bool,
    /// Same-host shortcuts: `disable` sends every access through the servers' request path.
    #[arg(long, value_name = "WHEN", value_parser = ["enable", "disable"])]
    pub shortcut: Option<String>,
    /// The launcher, when the one that belongs to the program's MPI is not the right one.
    #[arg(long, value_name = "COMMAND")]
    pub launcher: Option<OsString>,
    /// An argument for the launcher; may be repeated.
    #[arg(long = "launcher-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub launcher_args: Vec<OsString>,
    /// Print the summary as one line of JSON on standard output, last, instead of for people.
    #[arg(long)]
    pub json: bool,
    /// Print no summary.
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// Start a deployment that stays: one process per server.
///
/// DIR is made on first use and holds everything: deployment.toml, keys, metadata, bytes, sockets and logs. Where
/// it exists, its servers that don't run are started again.
#[derive(Debug, Args)]
#[command(after_help = up_help())]
pub struct UpArgs {
    /// Directory of the deployment.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub shape: Shape,
    /// Each data server writes a trace of the requests it serves to a file in DIR (docs/traces.md).
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Listen on TCP as well: the first port is the metadata server's, the data servers take the following ones.
    #[arg(long, value_name = "HOST:PORT")]
    pub tcp: Option<String>,
    /// What protects TCP connections. `plain-trusted-network`: nothing, for a network on which nobody listens, changes packets or
    /// takes over addresses.
    #[arg(long, value_name = "HOW", value_enum)]
    pub transport: Option<TransportArg>,
    /// Users over TCP may prove by MUNGE who they are, instead of by a credential of their own; SOCKET: where munged listens on each
    /// host, if not where libmunge expects it (docs/security.md).
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub munge: Option<OsString>,
    /// Let members of this group use it, each with the rights that permission bits give: they may read client.key and
    /// reach the sockets. Others are kept out altogether.
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Root only, for a new deployment: its files belong to this user, and its servers run as this user [default: penstock, if there
    /// is such a user, else root]. Servers of a deployment always run as the owner of its directory, also when root starts them.
    #[arg(long, value_name = "NAME|UID")]
    pub service_user: Option<String>,
    /// Keep bytes in memory: they are gone when the servers end.
    #[arg(long, conflicts_with = "device")]
    pub memory: bool,
    #[command(flatten)]
    pub replaced: ReplacedArgs,
}

/// See [`UpArgs::transport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// TLS 1.3; servers prove the identities in the deployment file.
    Tls,
    /// Nothing.
    PlainTrustedNetwork,
}

impl From<TransportArg> for Transport {
    fn from(arg: TransportArg) -> Transport {
        match arg {
            TransportArg::Tls => Transport::Tls,
            TransportArg::PlainTrustedNetwork => Transport::PlainTrustedNetwork,
        }
    }
}

/// What an administrator says about stores that are not those that were there.
#[derive(Debug, Clone, Default, Args)]
pub struct ReplacedArgs {
    /// The store of data server N is lost: make a new one where it was, or take what is there (an older copy, another disk)
    /// for new. Files made before stay errors where they may have lost bytes, until they are written anew, cut to
    /// nothing, removed, or taken as they are (`penstock check --accept-lost`). `meta`: the names are lost.
    #[arg(long, value_name = "N|meta", value_parser = which_store)]
    pub new_store: Vec<WhichStore>,
    /// The store of data server N is right: the metadata are an older copy or new. Look at `penstock check` afterwards.
    #[arg(long, value_name = "N")]
    pub adopt_store: Vec<u32>,
}

/// The store of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichStore {
    /// The metadata server's.
    Meta,
    /// A data server's.
    Data(u32),
}

fn which_store(text: &str) -> Result<WhichStore, String> {
    match text {
        "meta" => Ok(WhichStore::Meta),
        number => number
            .parse()
            .map(WhichStore::Data)
            .map_err(|_| "write the number of a data server, or `meta`".into()),
    }
}

fn up_help() -> String {
    format!(
        "\
Examples:
  penstock up /data/fs                               4 data servers, Unix sockets
  penstock up /data/fs --servers 8 --stripe-unit 1MiB
  penstock up /data/fs --tcp node1:7400              metadata on port 7400, data servers on 7401 and up
  penstock up /data/fs --tcp node1:7400 --munge      users of hosts with munged need no credential files
  penstock up /tmp/slow --device hdd --time-scale 10  modelled disks, ten times as fast as the real ones

{}",
        penstock_device::Model::help()
    )
}

/// End a deployment's servers on this host. Its files stay.
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Directory of the deployment [default: --deployment].
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Show which servers answer, what they hold and what they did.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Directory of the deployment [default: --deployment].
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// Show or change settings of running data servers.
///
/// What is queued is carried over, and programs go on. Without settings the present ones are shown.
#[derive(Debug, Args)]
#[command(after_help = "\
Settings:
  sched=ALGORITHM        noop (none: fastest), to, to-agg, sjf, mlf, aioli, sw, twins, wfq, srtf
                         tree: by the programs' patterns and the device; online: by what each is seen to give
  tree=T1..T4|own        tree, online: the selection tree that is asked [own]
  objective=WHAT         online: bandwidth, fairness (equal slowdown of programs) or p99 [bandwidth]
  ratio=R                tree, online: sequential / random throughput of the device; READ:WRITE if they differ, or
                         FILE.json from `penstock profile --json` [1: no difference, as in memory and flash]
  trace=on               write what is served to DIR/data-N.trace, from now on; on: a new directory in traces/ of
                         the deployment; DIR; off
  predict=DIR            wait for aggregations that DIR/data-N.trace of an earlier run foretells (mlf, aioli), and
                         know how much is still to come (srtf); off
  depth=N                virtual requests served at once [4]
  quantum=BYTES          mlf, aioli, wfq: bytes per turn [64KiB]
  aggregation=N          requests joined at most [mlf 200; to-agg, sjf, aioli, srtf 16]
  aggregation_bytes=B    bytes joined at most [16MiB]
  shift_wait=TIME        mlf, aioli: wait for a request that fell behind [1350us]; off
  aggregation_wait=TIME  mlf, aioli: wait for a larger aggregation [900us]; off
  starvation_bound=TIME  sjf, srtf, mlf, aioli: nobody waits longer [500ms]; off
  sw_window=TIME         sw [1s]          twins_window=TIME   twins [1ms]
  weights=P:W,...        wfq: shares of programs [1 each]
  order_conflicts=on     requests for the same bytes in order of arrival, if one writes [off]

Examples:
  penstock tune sched=aioli quantum=128KiB -d /data/fs
  penstock tune sched=to-agg depth=1 --save          servers started later too
  penstock tune sched=tree ratio=38.9:21.3           the server chooses, for a disk
  penstock tune sched=online objective=p99           it tries and measures; `penstock status` gives the reason
  penstock tune trace=on                             trace a program, then trace=off
  penstock tune sched=aioli predict=/data/fs/traces/1
  penstock tune sched=noop                           as fast as without
  penstock tune                                      what is set now; `penstock status` shows what it does

docs/scheduling.md says when each algorithm pays.")]
pub struct TuneArgs {
    /// What to set.
    #[arg(value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
    /// Only this data server; may be repeated.
    #[arg(long = "server", value_name = "ID")]
    pub servers: Vec<u32>,
    /// Write it to the deployment file, for servers that are started later.
    #[arg(long)]
    pub save: bool,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// List directories.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// What to list [default: /].
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,
    /// Sizes, owners and times too.
    #[arg(short, long)]
    pub long: bool,
    /// For programs: one object per entry.
    #[arg(long)]
    pub json: bool,
}

/// Show everything known of files: size, striping, owner, times.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Files or directories.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// Copy files and directories in, out, or inside.
///
/// A copy appears under its name when it is complete, synced, and equal to its source by checksum (BLAKE3, what b3sum
/// prints). Until then it is `.NAME.copying` beside it; the same command, given again after it was interrupted in any
/// way, finds that and goes on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock cp big.nc penstock:/in/big.nc             in
  penstock cp penstock:/out/field.h5 .               out
  penstock cp a.nc b.nc penstock:/in/                several, into a directory
  penstock cp -r case7 penstock:/case7               a directory, as penstock:/case7
  penstock cp -r case7 penstock:/in/                 a directory, into another, as penstock:/in/case7

With -r, files that are there already and have the same bytes are left alone, and files that can't
be copied are named while the others go on; the exit code is then 1, and a directory that was not
there before stays under its temporary name. Mode bits (on this machine under the umask) and times
of the last change are kept; owners, hard links and extended attributes are not. Sparse files stay
sparse, symbolic links stay links with the same path in them.")]
pub struct CpArgs {
    /// Sources, then the target. Names in Penstock begin with `penstock:`.
    #[arg(value_name = "PATH", num_args = 2.., required = true)]
    pub paths: Vec<OsString>,
    /// Directories with all they hold.
    #[arg(short, long)]
    pub recursive: bool,
    /// Replace a target that exists.
    #[arg(short, long)]
    pub force: bool,
    /// Symbolic links below a directory: made anew, copied as what they lead to, left out, or an error.
    #[arg(long, value_enum, default_value_t = OnLink::Copy, value_name = "WHAT")]
    pub links: OnLink,
    /// For programs: one object per file, with its checksum; with -r a last one with totals.
    #[arg(long)]
    pub json: bool,
}

/// What becomes of symbolic links below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnLink {
    /// The copy is a link with the same path in it.
    Copy,
    /// They are errors.
    Fail,
    /// What they lead to is copied.
    Follow,
    /// They are left out.
    Skip,
}

/// What is staged, and between which directories.
#[derive(Debug, Args)]
pub struct StageArgs {
    /// What to stage: files, or directories with all they hold, below --from; `.` is everything.
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Paths are below this directory [default: for stage-in ., for stage-out penstock:/].
    #[arg(long, value_name = "DIR")]
    pub from: Option<OsString>,
    /// They get the same names below this directory, which is made [default: for stage-in penstock:/, for stage-out .].
    #[arg(long, value_name = "DIR")]
    pub to: Option<OsString>,
    /// More paths, one a line, from a file or (`-`) from standard input.
    #[arg(short, long, value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// Paths of the list end with a zero byte, as `find -print0` writes them.
    #[arg(short = '0', long, requires = "list")]
    pub null: bool,
    /// Symbolic links below a directory: made anew, copied as what they lead to, left out, or an error.
    #[arg(long, value_enum, default_value_t = OnLink::Copy, value_name = "WHAT")]
    pub links: OnLink,
    /// For programs: one object per file, with its checksum; a last one with totals.
    #[arg(long)]
    pub json: bool,
}

/// Remove files and empty directories.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// What to remove.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
    /// Directories with all they hold.
    #[arg(short, long)]
    pub recursive: bool,
    /// Missing files are no error.
    #[arg(short, long)]
    pub force: bool,
}

/// Make directories.
#[derive(Debug, Args)]
pub struct MkdirArgs {
    /// Directories to make.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
    /// Missing parents too; existing directories are no error.
    #[arg(short, long)]
    pub parents: bool,
}

/// Compare names with objects: find what a crash left behind, and what is missing.
///
/// Exit code 0: nothing found, or all of it mended. 1: something is wrong.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Free the space of objects whose file is gone.
    #[arg(long)]
    pub repair: bool,
    /// Free objects that the metadata store never knew, too. If it is an older copy or a new one, they may be all
    /// that is left of their files.
    #[arg(long)]
    pub free_unknown: bool,
    /// Free objects without a file also where they are more than 16, and more than one in a hundred objects. So many tell of
    /// lost names rather than of a crash: make sure that the metadata are the newest.
    #[arg(long)]
    pub free_many: bool,
    /// Take damaged objects as they are, so that their files can be used again: those that were cut short, whose record
    /// cannot be read, or that could not be synced. What is missing is lost for good: copy what can be read first.
    #[arg(long)]
    pub accept_damaged: bool,
    /// Take this file as it is; may be repeated. What a data server has lost reads as zeros, or as it was in the older copy that
    /// `--new-store` took for new. Checks nothing else.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["repair", "free_unknown", "free_many", "accept_damaged", "json"])]
    pub accept_lost: Vec<String>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// A time that something lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life(u64);

impl Life {
    /// The longest that a credential may last: ten years.
    const MOST_S: u64 = 3653 * 86_400;

    /// Milliseconds.
    pub fn as_ms(self) -> u64 {
        self.0 * 1000
    }
}

impl std::str::FromStr for Life {
    type Err = String;

    fn from_str(text: &str) -> Result<Life, String> {
        let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
        let seconds = units.iter().find_map(|(unit, seconds)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            number.checked_mul(*seconds)
        });
        match seconds {
            Some(s) if (1..=Life::MOST_S).contains(&s) => Ok(Life(s)),
            _ => Err("write a time from 1s to 3653d, such as 90m, 24h or 30d".into()),
        }
    }
}

/// Make the file with which a user is known to the servers over TCP, or show what one says.
///
/// On the servers' hosts the kernel says who a user is, and nobody needs this. Over TCP a client proves a credential:
/// a file of mode 0600 in which the deployment's authority says that its holder is this user, in these groups, until
/// then. Whoever can read authority.key of the deployment, its owner or root, makes them, and needs none. Groups are
/// taken from the system's database now; whoever changes them makes new credentials.
#[derive(Debug, Args)]
#[command(after_help = "\
Clients look for it, at each new connection, in
  1. the file that PENSTOCK_CREDENTIAL names
  2. /run/penstock/JOB/ID.credential, in a Slurm job (docs/slurm.md; JOB: $SLURM_JOB_ID, ID: `id` in deployment.toml)
  3. ~/.config/penstock/ID.credential ($XDG_CONFIG_HOME instead of ~/.config)
Where the deployment takes MUNGE (`penstock up --munge`), users without one are believed by munged of their host.

Examples:
  penstock credential --user alice --for 30d --output alice.credential -d /data/fs
                                       as root: alice's file; move it to where her programs look
  penstock credential --user alice --output - | ssh login1 'umask 077; cat > alice.credential'
  penstock credential --user alice --job 4711 --for 24h --output job.credential
                                       for the time of a job; docs/slurm.md has a prolog that does it
  penstock credential --user root --speaks-for 1000-60000 --for 90d --output node7.credential
                                       for the mount of a host: it acts for these users; root of that
                                       host is user 65534, and its groups are believed
  penstock credential --user alice --for 30d --output alice.credential --force
                                       a new one takes its place; programs that run notice nothing
  penstock credential --user olga --administrator --for 8h --output olga.credential
                                       olga may run status, tune, check and down from another host
  penstock credential --show alice.credential
  penstock credential --revoke alice.credential        a lost laptop; also by the serial number (--show, audit log)
  penstock credential --revoke-user alice              all that alice has; then make her a new one")]
pub struct CredentialArgs {
    /// The user, by name or number [default: who runs the command].
    #[arg(long, value_name = "NAME|UID")]
    pub user: Option<String>,
    /// How long it is good: 90m, 24h, 30d. A job that outlives it fails, so leave time.
    #[arg(long = "for", value_name = "TIME", default_value = "24h")]
    pub life: Life,
    /// The job that it is made for, to be told apart from others.
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// A mount or an agent with it may act for the users A to B; may be repeated.
    #[arg(long, value_name = "A-B")]
    pub speaks_for: Vec<penstock_wire::credential::Uids>,
    /// User 0 keeps its rights. Without this option its requests have the rights of user 65534.
    #[arg(long)]
    pub root: bool,
    /// The holder may also administer the servers: status of everything, tune, check, stop. Without it only root and the
    /// deployment's owner may, on the servers' hosts.
    #[arg(long)]
    pub administrator: bool,
    /// The file, or - for standard output. Made by root, it belongs to the user.
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["show", "revoke", "revoke_user", "revoked"])]
    pub output: Option<PathBuf>,
    /// Replace a file that is there.
    #[arg(long)]
    pub force: bool,
    /// Take a credential back, by its serial number or file: no server takes it from then on, ten seconds at most.
    #[arg(long, value_name = "SERIAL|FILE", conflicts_with_all = MAKING)]
    pub revoke: Option<String>,
    /// Take back all credentials of a user so far, by name or number.
    #[arg(long, value_name = "NAME|UID", conflicts_with_all = MAKING)]
    pub revoke_user: Option<String>,
    /// List what was taken back and has not ended yet.
    #[arg(long, conflicts_with_all = MAKING)]
    pub revoked: bool,
    /// Show what this file says, and when it ends; makes nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = MAKING)]
    pub show: Option<PathBuf>,
    /// For programs: of what is shown or listed.
    #[arg(long, conflicts_with_all = MAKING)]
    pub json: bool,
}

/// What belongs to making a credential alone.
const MAKING: [&str; 7] = [
    "user",
    "job",
    "speaks_for",
    "root",
    "administrator",
    "output",
    "force",
];

/// Show a deployment as a directory, for programs that know files only.
///
/// Needs FUSE (/dev/fuse), and root or the deployment's owner. Mounted by root, it serves all users of this host, each
/// with the rights that owners and permission bits give. Returns when the mount is usable; a daemon serves it, and logs
/// to log/mount.log of the deployment. A dead mount point is cleared first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock mount /mnt/fs -d /data/fs
  ls -l /mnt/fs; cp big.nc /mnt/fs/in/
  penstock run -n 8 -d /data/fs -- ./app /mnt/fs/out   MPI-IO goes to the servers, open() through the mount
  setfattr -n user.penstock.layout -v 'unit=1MiB count=2' /mnt/fs/wide    striping of new files there
  penstock umount /mnt/fs

docs/mount.md says what programs may rely on.")]
pub struct MountArgs {
    /// An empty directory.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Seconds for which names, and attributes of directories, may be out of date when others change them. Attributes
    /// of files: at most 0.1 s of that.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub staleness: f64,
    /// Only the user who mounts may use it, even if that is root.
    #[arg(long)]
    pub private: bool,
    /// All bytes go through the daemon, also those of files whole on one server of this host. Then range locks never wait
    /// for a file that is open here (docs/mount.md).
    #[arg(long)]
    pub no_passthrough: bool,
    /// Stay in this terminal and log to it; Ctrl-C unmounts.
    #[arg(long)]
    pub foreground: bool,
    /// Leave the terminal's session.
    #[arg(long, hide = true, requires = "foreground")]
    pub detach: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.0..=3600.0).contains(&s) => Ok(s),
        _ => Err("a number of seconds from 0 to 3600".into()),
    }
}

/// Take a mount away, also a dead one.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The directory it is mounted on.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Though files are open there: it is gone at once, and ends when they are closed.
    #[arg(short = 'z', long)]
    pub lazy: bool,
}

/// Run servers of a deployment in this process, until it is told to end (SIGTERM).
///
/// This is what `penstock up` starts for each server, and what a service manager or a node of a cluster runs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock serve -d /data/fs                         all servers of the deployment
  penstock serve -d /data/fs --meta
  penstock serve -d /data/fs --server 0 --server 1")]
pub struct ServeArgs {
    /// The metadata server.
    #[arg(long)]
    pub meta: bool,
    /// A data server, by number; may be repeated.
    #[arg(long = "server", value_name = "ID")]
    pub servers: Vec<u32>,
    /// Each data server writes a trace of the requests it serves to a file in DIR (docs/traces.md).
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub replaced: ReplacedArgs,
    /// Leave the terminal's session, so that closing it does not end the servers.
    #[arg(long, hide = true)]
    pub detach: bool,
}

/// Simulate a cluster: programs, MPI-IO methods, network, data servers and devices on virtual time.
///
/// A scenario is a TOML file (docs/simulator.md). It may have cases, and what a source published for them: then the
/// published stands beside ours, with a verdict on each relation. A scenario and its seed give one result, to the byte.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock sim experiments/resonance.toml             all cases, published beside ours
  penstock sim --list experiments/resonance.toml      their names
  penstock sim --case 'collective, 4 processes, 64KiB' --plot plots experiments/resonance.toml
  penstock sim --json experiments/scale.toml          one line of JSON for each file
  penstock run --trace T -n 4 -- ./app penstock:/f; penstock sim --replay T/data-0.decisions")]
pub struct SimArgs {
    /// Scenarios.
    #[arg(required_unless_present = "replay", value_name = "SCENARIO.toml")]
    pub scenarios: Vec<PathBuf>,
    /// Decides again, by the same code on virtual time, what a data server's scheduler decided, and compares each
    /// decision. `penstock up --trace DIR` and `penstock run --trace DIR` write DIR/data-N.decisions.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["scenarios", "case", "list", "plot", "markdown"])]
    pub replay: Vec<PathBuf>,
    /// Only the case of this name.
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,
    /// Names the cases and runs none.
    #[arg(long)]
    pub list: bool,
    /// Writes plots there (SVG): throughput over time, where the first server's device stood, and that for 0.2 s.
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Writes the results as tables into a page, below its line for results (docs/reproduction.md).
    #[arg(long, value_name = "PAGE.md", conflicts_with_all = ["case", "list"])]
    pub markdown: Option<PathBuf>,
    /// Print one line of JSON for each scenario.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_program_keeps_its_arguments() {
        for words in [
            "penstock run -n 8 -- ./app -n 3 --json",
            "penstock run -n 8 ./app -n 3 --json",
        ] {
            let cli = Cli::try_parse_from(words.split(' ')).unwrap();
            let Command::Run(run) = cli.command else {
                panic!("not run")
            };
            assert_eq!(run.ranks, 8);
            assert_eq!(run.program, ["./app", "-n", "3", "--json"]);
            assert!(!run.json);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for words in [
            "penstock run ./app",
            "penstock run -n 0 ./app",
            "penstock run -n 2 --direct --store /x ./app",
            "penstock run -n 2 --method fast ./app",
            "penstock run -n 2 --stripe-unit lots ./app",
            "penstock cp a",
        ] {
            assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{words}");
        }
    }
}

/// Run whole clusters under faults in a simulated world, each decided by a seed.
///
/// Metadata server, data servers and clients are the real ones; time, network and disks are simulated. Connections break,
/// machines are cut off or lose their power, disks are full or slow, processes are killed. Then everything that was
/// acknowledged is held against what clients see (docs/faults.md). A seed does the same each time.
///
/// Exit code 0: nothing wrong was found (with --plant: the planted bug was). 1: otherwise.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock faults --seeds 300                        seeds 1 to 300
  penstock faults --seed 17 --trace                  one seed, and all that happens in it
  penstock faults --time 3600 --seed 100000          new seeds for an hour
  penstock faults --plant lost-sync --seeds 1000     how many seeds find a disk that forgets syncs?
  penstock faults --twice --seeds 20                 each seed twice: do both runs agree in every event?")]
pub struct FaultsArgs {
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How many seeds.
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub seeds: u64,
    /// As many seeds as take so many seconds, instead.
    #[arg(long, value_name = "SECONDS", conflicts_with = "seeds")]
    pub time: Option<u64>,
    /// Plant a bug in the simulated machines: lost-sync, lost-name, stale-read, lost-wakeup, trusted-clock,
    /// twice-delivered, no-fence, same-bytes, kept-incarnation or any-store.
    #[arg(long, value_name = "BUG")]
    pub plant: Option<String>,
    /// Run each seed twice and compare all events.
    #[arg(long)]
    pub twice: bool,
    /// Print what happens, on standard error (one seed).
    #[arg(long)]
    pub trace: bool,
    /// Processes at once [default: one per processor].
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
    /// All seeds in this process, a line of JSON for each (used by the command itself).
    #[arg(long, hide = true)]
    pub here: bool,
}
