//! `penstock credential`: makes and shows the credentials of users and administrators over TCP. Taking credentials back
//! is in [`crate::revocation`].
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::life::Life;
use crate::names::time_text;
use crate::revocation::{self, Revoking};
use crate::{audit, out, size, users};
use clap::Args;
use penstock_rpc::wallet::VARIABLE;
use penstock_wire::KeyPair;
use penstock_wire::credential::{Credential, Statement};
use penstock_wire::message::{MAX_GROUPS, NOBODY, User};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Make a credential, which proves to the servers over TCP who a user is; or show one, or revoke some.
///
/// On the servers' hosts the kernel says who a user is, and nobody needs a credential. Over TCP a client proves one, a
/// file of mode 0600. In it the deployment's authority says who its holder is, in which groups, until when. Only users
/// who can read authority.key of the deployment, its owner and root, make credentials; they need none themselves.
/// Groups are those of the system's database now: when they change, make new credentials.
#[derive(Debug, Args)]
#[command(after_help = "\
Clients look for it, at each new connection, in
  1. the file that PENSTOCK_CREDENTIAL names
  2. /run/penstock/JOB/ID.credential, in a Slurm job (docs/administer/slurm.md; JOB: $SLURM_JOB_ID, ID: `id` in deployment.toml)
  3. ~/.config/penstock/ID.credential ($XDG_CONFIG_HOME instead of ~/.config)
Where the deployment takes MUNGE (`penstock up --munge`), munged of the host vouches for users without one.

Examples:
  penstock credential --user alice --for 30d --output alice.credential -d /data/fs
                                       as root: alice's file; move it to where her programs look
  penstock credential --user alice --output - | ssh login1 'umask 077; cat > alice.credential'
  penstock credential --user alice --job 4711 --for 24h --output job.credential
                                       for the time of a job; docs/administer/slurm.md has a prolog that does it
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
    /// How long it is valid: 90m, 24h, 30d. A job that runs longer fails, so leave time.
    #[arg(long = "for", value_name = "TIME", default_value = "24h")]
    pub life: Life,
    /// The job that it is for; shown by --show and in the audit log.
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
    /// Revoke a credential, by its serial number or file. All servers refuse it after ten seconds at most.
    #[arg(long, value_name = "SERIAL|FILE", conflicts_with_all = MAKING)]
    pub revoke: Option<String>,
    /// Revoke all credentials of a user so far, by name or number.
    #[arg(long, value_name = "NAME|UID", conflicts_with_all = MAKING)]
    pub revoke_user: Option<String>,
    /// List revoked credentials that have not ended yet.
    #[arg(long, conflicts_with_all = MAKING)]
    pub revoked: bool,
    /// Show what this credential says, and when it ends; makes nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = MAKING)]
    pub show: Option<PathBuf>,
    /// For programs: with --show and --revoked.
    #[arg(long, conflicts_with_all = MAKING)]
    pub json: bool,
}

/// How long the credential of a job's own deployment is good: longer than jobs run. It ends with the deployment.
const JOB_LIFE_MS: u64 = 60 * 24 * 3600 * 1000;

/// Options that only apply when a credential is made.
const MAKING: [&str; 7] = [
    "user",
    "job",
    "speaks_for",
    "root",
    "administrator",
    "output",
    "force",
];

/// Writes a credential, or shows one.
pub fn credential(args: &CredentialArgs, named: Option<&Path>) -> Result<()> {
    if args.revoke.is_some() || args.revoke_user.is_some() || args.revoked {
        let asked = Revoking {
            credential: args.revoke.as_deref(),
            user: args.revoke_user.as_deref(),
            list: args.revoked,
            json: args.json,
        };
        return revocation::revoke(&asked, &deployment::find(named)?);
    }
    match (&args.show, &args.output) {
        (Some(file), _) => show(file, args.json, named),
        (None, Some(output)) => make(args, output, &deployment::find(named)?),
        (None, None) => Err(CliError::new("a credential needs a file").next("add --output FILE")),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The private key of the deployment's authority.
fn authority(located: &Located) -> Result<KeyPair> {
    let deployment = &located.deployment;
    let dir = located.dir().display();
    let (Some(public), Some(path)) = (deployment.authority, &deployment.authority_key) else {
        return Err(CliError::new(format!(
            "{dir} has no authority that makes credentials: it comes from an older release"
        ))
        .next(format!(
            "`penstock down {dir}` and `penstock up {dir}` make the authority's key"
        )));
    };
    let pair = KeyPair::load(path).map_err(|e| {
        CliError::new(e)
            .next("credentials are made by the deployment's owner or root, where that key is")
    })?;
    if pair.public() != public {
        return Err(CliError::new(format!(
            "{} is not the key of the deployment's `authority`",
            path.display()
        ))
        .next("take the file that belongs to the deployment"));
    }
    Ok(pair)
}

fn user(name: Option<&str>) -> Result<User> {
    let me = rustix::process::geteuid().as_raw().to_string();
    let name = name.unwrap_or(&me);
    let mut user = users::named(name)?;
    if user.gid == NOBODY && user.groups.is_empty() {
        out::note(format_args!(
            "user {name} is not known here: the credential names group {NOBODY} and no others"
        ));
    }
    if user.groups.len() > MAX_GROUPS {
        out::note(format_args!(
            "user {name} is in {} groups; the credential names the first {MAX_GROUPS}",
            user.groups.len()
        ));
        user.groups.truncate(MAX_GROUPS);
    }
    Ok(user)
}

fn make(args: &CredentialArgs, output: &Path, located: &Located) -> Result<()> {
    let deployment = &located.deployment;
    let authority = authority(located)?;
    let user = user(args.user.as_deref())?;
    let (uid, gid) = (user.uid, user.gid);
    if args.root && uid != 0 && args.speaks_for.is_empty() {
        return Err(CliError::new(format!(
            "--root lets user 0 keep its rights, but this credential is of user {uid} alone"
        ))
        .next("leave it out, or name user 0 or --speaks-for"));
    }
    let now_ms = now_ms();
    let mut statement = Statement::new(&deployment.id, user, now_ms..now_ms + args.life.as_ms());
    statement.job.clone_from(&args.job);
    statement.speaks_for.clone_from(&args.speaks_for);
    statement.root = args.root;
    statement.administrator = args.administrator;
    let credential = Credential::issue(&authority, statement).map_err(CliError::new)?;
    let ends = time_text(nanos(credential.statement().end_ms));
    let noted = || {
        let root = if args.root {
            ", user 0 keeps its rights"
        } else {
            ""
        };
        let ranges = args.speaks_for.iter().map(ToString::to_string);
        let speaks_for = if args.speaks_for.is_empty() {
            String::new()
        } else {
            format!(", speaks for {}", ranges.collect::<Vec<_>>().join(" "))
        };
        let object = format!("credential {}", credential.statement().serial());
        let administrator = if args.administrator {
            ", administrator"
        } else {
            ""
        };
        let reason = format!("user {uid} until {ends}{root}{administrator}{speaks_for}");
        audit::issued(located, &object, &reason);
    };
    if output.as_os_str() == "-" {
        out::print(&credential.text().map_err(CliError::new)?);
        noted();
        return Ok(());
    }
    let path = output.display();
    if !args.force && output.exists() {
        return Err(CliError::new(format!("{path} exists")).next(
            "--force replaces it; programs that run take the new one when they connect again",
        ));
    }
    let root = rustix::process::geteuid().is_root();
    credential
        .save(output, root.then_some((uid, gid)), args.force)
        .map_err(CliError::new)?;
    noted();
    out::line(format_args!(
        "{path}: user {uid} of {} until {ends}",
        deployment.name
    ));
    if uid == 0 && !args.root {
        out::line(format_args!(
            "  user 0 has the rights of user {NOBODY}; with --root it would keep its own"
        ));
    }
    out::line(format_args!(
        "  export {VARIABLE}={path}, or move it to ~/.config/penstock/{}.credential",
        deployment.id
    ));
    Ok(())
}

/// The text of a credential for the ranks of a job of this user, on hosts that have no key of the authority.
pub fn for_job(located: &Located, job: &str) -> Result<String> {
    let authority = authority(located)?;
    let user = user(None)?;
    let (root, now_ms) = (user.uid == 0, now_ms());
    let life = now_ms..now_ms + JOB_LIFE_MS;
    let mut statement = Statement::new(&located.deployment.id, user, life);
    statement.job = Some(job.to_owned());
    statement.root = root;
    let credential = Credential::issue(&authority, statement).map_err(CliError::new)?;
    credential.text().map_err(CliError::new)
}

fn nanos(ms: u64) -> i64 {
    i64::try_from(ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX)
}

/// Whether the credential was made by the authority of the deployment at hand, if there is one.
fn made_by(credential: &Credential, located: Option<&Located>) -> &'static str {
    let Some(Located { deployment, .. }) = located else {
        return "not checked: no deployment is named";
    };
    if deployment.id != credential.statement().deployment {
        return "not checked: it is of another deployment than the one named";
    }
    let by = |authority| credential.signed().is_of(&authority);
    if deployment.authority.is_some_and(by) {
        "good"
    } else {
        "bad: not signed by the deployment's authority, or changed since"
    }
}

fn show(file: &Path, as_json: bool, named: Option<&Path>) -> Result<()> {
    let credential = Credential::load(file).map_err(CliError::new)?;
    let located = match deployment::named_or_environment(named) {
        Some(path) => Some(deployment::load(&path)?),
        None => None,
    };
    let signature = made_by(&credential, located.as_ref());
    let said = credential.statement();
    let (begins, ends) = (nanos(said.not_before_ms), nanos(said.end_ms));
    let ranges = || said.speaks_for.iter().map(ToString::to_string);
    if as_json {
        out::print_json(&json!({
            "deployment": said.deployment, "serial": said.serial(), "uid": said.uid, "gid": said.gid,
            "groups": said.groups, "not_before_ms": said.not_before_ms, "end_ms": said.end_ms,
            "job": said.job, "speaks_for": ranges().collect::<Vec<_>>(), "root": said.root,
            "administrator": said.administrator,
            "signature": signature,
        }));
        return Ok(());
    }
    let now = now_ms();
    let left = match said.end_ms.checked_sub(now) {
        Some(left) if left > 0 => format!("in {}", size::duration(left as f64 / 1e3)),
        _ => "it has ended".into(),
    };
    let list = |items: Vec<String>| {
        if items.is_empty() {
            "-".to_owned()
        } else {
            items.join(" ")
        }
    };
    let groups = said.groups.iter().map(ToString::to_string).collect();
    let root = match (said.root, said.uid == 0 || !said.speaks_for.is_empty()) {
        (true, _) => "user 0 keeps its rights".to_owned(),
        (false, true) => format!("user 0 has the rights of user {NOBODY}"),
        (false, false) => "-".into(),
    };
    let rows = [
        ("user", said.uid.to_string()),
        ("group", said.gid.to_string()),
        ("further groups", list(groups)),
        ("begins", time_text(begins)),
        ("ends", format!("{} ({left})", time_text(ends))),
        ("job", said.job.clone().unwrap_or_else(|| "-".into())),
        ("speaks for", list(ranges().collect())),
        ("root", root),
        (
            "administrator",
            if said.administrator { "yes" } else { "-" }.into(),
        ),
        ("deployment", said.deployment.clone()),
        ("serial number", said.serial()),
        ("signature", signature.into()),
    ];
    for (name, value) in rows {
        out::line(format_args!("{name:<16}{value}"));
    }
    Ok(())
}
