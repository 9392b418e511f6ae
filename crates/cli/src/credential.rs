//! `penstock credential`: who a user is for servers that are reached over TCP, and who administers them.
//! Taking credentials back is in [`crate::revocation`].
use crate::args::CredentialArgs;
use crate::audit;
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::names::time_text;
use crate::out;
use crate::revocation;
use crate::size;
use crate::users;
use penstock_wire::KeyPair;
use penstock_wire::credential::{Credential, NOBODY, Statement};
use penstock_wire::message::{MAX_GROUPS, User};
use penstock_wire::wallet::VARIABLE;
use serde_json::json;
use std::path::Path;
use std::time::SystemTime;

/// Writes a credential, or shows one.
pub fn credential(args: &CredentialArgs, named: Option<&Path>) -> Result<()> {
    if args.revoke.is_some() || args.revoke_user.is_some() || args.revoked {
        return revocation::revoke(args, &deployment::find(named)?);
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

/// The private half of the deployment's authority.
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
            "--root says that user 0 keeps its rights, and this credential is of user {uid} alone"
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
        let speaks_for = match args.speaks_for.is_empty() {
            true => String::new(),
            false => format!(", speaks for {}", ranges.collect::<Vec<_>>().join(" ")),
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

fn nanos(ms: u64) -> i64 {
    i64::try_from(ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX)
}

/// Whether the deployment at hand, if any, has made it.
fn made_by(credential: &Credential, located: Option<&Located>) -> &'static str {
    let Some(Located { deployment, .. }) = located else {
        return "not checked: no deployment is named";
    };
    if deployment.id != credential.statement().deployment {
        return "not checked: it is of another deployment than the one named";
    }
    let by = |authority| credential.signed().is_of(&authority);
    match deployment.authority.is_some_and(by) {
        true => "good",
        false => "bad: not by the deployment's authority, or changed since",
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
    let list = |items: Vec<String>| match items.is_empty() {
        true => "-".to_owned(),
        false => items.join(" "),
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
