//! `penstock quota`: shows and limits how many files and bytes users have.
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::life::Life;
use crate::names::time_text;
use crate::size::{self, Size};
use crate::{connect, out, users};
use clap::{Args, Subcommand};
use penstock_client::{Client, Quotas};
use penstock_wire::message::{Bound, ByteLimits, FileLimits, LimitsChange, UserBytes, UserFiles};
use serde_json::{Value, json};
use std::path::Path;
use std::time::SystemTime;

/// Show how many files and bytes a user has and may have; set limits.
///
/// Files, directories and symbolic links count for their owner, each once. Beyond the hard limit nothing new can be
/// made (EDQUOT, MPI_ERR_QUOTA). Beyond the soft limit it can during a grace period. Root is never limited.
/// Administrators see other users and set limits; on a server's host these are its owner and root. Limits hold at once,
/// and outlive the servers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock quota                                     one's own files and limits
  penstock quota --all                               of all users (administrators)
  penstock quota set alice --files-soft 90000 --files-hard 100000
  penstock quota set --default --files-hard 1000000 --grace 3d
                                                     all users without limits of their own
  penstock quota set alice --bytes-soft 900G --bytes-hard 1T
  penstock quota set --default --bytes-hard 100G
  penstock quota remove alice                        back to the default")]
pub struct QuotaArgs {
    /// What to change; nothing is changed without it.
    #[command(subcommand)]
    pub change: Option<QuotaChange>,
    /// The user, by name or number [default: who runs the command].
    #[arg(value_name = "USER")]
    pub user: Option<String>,
    /// All users who have files or limits of their own.
    #[arg(long, conflicts_with = "user")]
    pub all: bool,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// A change of limits.
#[derive(Debug, Subcommand)]
pub enum QuotaChange {
    Set(SetArgs),
    Remove(RemoveArgs),
}

/// Whose limits are meant.
#[derive(Debug, Args)]
pub struct Whose {
    /// The user, by name or number.
    #[arg(value_name = "USER", required_unless_present = "default")]
    pub user: Option<String>,
    /// All users without limits of their own.
    #[arg(long, conflicts_with = "user")]
    pub default: bool,
}

/// Set limits, on top of those that hold for the user now.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct SetArgs {
    #[command(flatten)]
    pub whose: Whose,
    /// May be exceeded during the grace period; `none`: no such limit.
    #[arg(long, value_name = "N", value_parser = bound, group = "what")]
    pub files_soft: Option<Bound>,
    /// Is never exceeded; `none`: no such limit.
    #[arg(long, value_name = "N", value_parser = bound, group = "what")]
    pub files_hard: Option<Bound>,
    /// The same for bytes: 900G, 64MiB.
    #[arg(long, value_name = "SIZE", value_parser = bytes_bound, group = "what")]
    pub bytes_soft: Option<Bound>,
    /// The same for bytes; `none`: no such limit.
    #[arg(long, value_name = "SIZE", value_parser = bytes_bound, group = "what")]
    pub bytes_hard: Option<Bound>,
    /// How long soft limits may be exceeded: 12h, 7d [default: 7d].
    #[arg(long, value_name = "TIME", group = "what")]
    pub grace: Option<Life>,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// Remove a user's own limits, or the default ones.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    #[command(flatten)]
    pub whose: Whose,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

fn bound(text: &str) -> std::result::Result<Bound, String> {
    match text {
        "none" => Ok(Bound::Unlimited),
        number => number
            .parse()
            .map(Bound::At)
            .map_err(|_| "write a number of files, or `none`".into()),
    }
}

fn bytes_bound(text: &str) -> std::result::Result<Bound, String> {
    match text {
        "none" => Ok(Bound::Unlimited),
        size => size.parse().map(|Size(bytes)| Bound::At(bytes)),
    }
}

/// Shows or changes limits.
pub fn quota(args: &QuotaArgs, named: Option<&Path>) -> Result<()> {
    let located = deployment::find(named)?;
    let failed = |e: penstock_client::Error| CliError::new(e);
    let (quotas, json) = match (&args.change, &args.user) {
        (Some(_), _) if args.all => {
            return Err(
                CliError::new("--all shows limits, and set or remove change them")
                    .next("for all users without limits of their own, write `set --default`"),
            );
        }
        (Some(QuotaChange::Set(set)), _) => {
            let user = set.whose.uid()?;
            let change = LimitsChange {
                soft: set.files_soft,
                hard: set.files_hard,
                bytes_soft: set.bytes_soft,
                bytes_hard: set.bytes_hard,
                grace_s: set.grace.map(|grace| grace.as_ms() / 1000),
            };
            let client = administrator(&located)?;
            (client.set_quota(user, change).map_err(failed)?, set.json)
        }
        (Some(QuotaChange::Remove(remove)), _) => {
            let user = remove.whose.uid()?;
            let client = administrator(&located)?;
            (client.remove_quota(user).map_err(failed)?, remove.json)
        }
        (None, Some(user)) => {
            let uid = users::named(user)?.uid;
            let client = if uid == rustix::process::geteuid().as_raw() {
                connect::client(&located)?
            } else {
                administrator(&located)?
            };
            (client.quota_of(uid).map_err(failed)?, false)
        }
        (None, None) if args.all => {
            let client = administrator(&located)?;
            (client.all_quotas().map_err(failed)?, false)
        }
        (None, None) => {
            let client = connect::client(&located)?;
            (client.own_quota().map_err(failed)?, false)
        }
    };
    if json || args.json {
        out::print_json(&to_json(&quotas));
    } else {
        out::print(&to_text(&quotas, now_ms()));
    }
    Ok(())
}

fn administrator(located: &Located) -> Result<Client> {
    connect::administrator(located).map_err(|e| {
        CliError::new(e).next(
            "only administrators see other users and set limits; `penstock quota` shows your own",
        )
    })
}

impl Whose {
    /// The user; `None`: all users without limits of their own.
    fn uid(&self) -> Result<Option<u32>> {
        let user = self.user.as_deref().map(users::named).transpose()?;
        Ok(user.map(|user| user.uid))
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn to_json(quotas: &Quotas) -> Value {
    let limits = |limits: &FileLimits| json!({ "soft": limits.soft, "hard": limits.hard, "grace_s": limits.grace_s });
    let users = quotas.users.iter().map(|user| {
        json!({
            "uid": user.uid, "name": users::name(user.uid), "files": user.files, "limits": limits(&user.limits),
            "own": user.own, "over_soft": user.is_over_soft(), "at_hard": user.is_at_hard(),
            "grace_ends_ms": user.grace_ends_ms, "bytes": user.bytes.as_ref().map(bytes_json),
        })
    });
    json!({
        "users": users.collect::<Vec<_>>(), "default": limits(&quotas.default), "counted": quotas.counted,
        "default_bytes": { "soft": quotas.default_bytes.soft, "hard": quotas.default_bytes.hard },
    })
}

fn bytes_json(bytes: &UserBytes) -> Value {
    json!({
        "used": bytes.used, "soft": bytes.limits.soft, "hard": bytes.limits.hard, "counted": bytes.counted, "own": bytes.own,
        "over_soft": bytes.is_over_soft(), "at_hard": bytes.is_at_hard(), "grace_ends_ms": bytes.grace_ends_ms,
    })
}

/// A table of the users whose bytes are limited, if there are any.
fn bytes_text(quotas: &Quotas, now_ms: u64) -> String {
    let limit = |limit: Option<u64>| match limit {
        // A user without limits, although all others have some.
        None | Some(u64::MAX) => "-".to_owned(),
        Some(bytes) => size::bytes(bytes),
    };
    let limited = quotas
        .users
        .iter()
        .filter_map(|user| Some((user.uid, user.bytes?)));
    let mut rows: Vec<Vec<String>> = limited
        .map(|(uid, bytes)| {
            let who = users::name(uid).unwrap_or_else(|| uid.to_string());
            let state = if bytes.counted {
                grace_state(bytes.is_at_hard(), bytes.grace_ends_ms, now_ms)
            } else {
                "being counted, or a data server is away".into()
            };
            let (soft, hard) = (limit(bytes.limits.soft), limit(bytes.limits.hard));
            let of = if bytes.own { "own" } else { "default" };
            let used = size::bytes(bytes.used);
            vec![who, used, soft, hard, of.into(), state]
        })
        .collect();
    let default = quotas.default_bytes;
    if quotas.users.len() != 1 && default != ByteLimits::default() {
        let (soft, hard) = (limit(default.soft), limit(default.hard));
        let row = ["(default)", "-", &soft, &hard, "-", "-"];
        rows.push(row.map(str::to_owned).to_vec());
    }
    if rows.is_empty() {
        String::new()
    } else {
        out::table(
            &["user", "bytes", "soft", "hard", "limits", "state"],
            &[1, 2, 3],
            rows,
        )
    }
}

fn to_text(quotas: &Quotas, now_ms: u64) -> String {
    let limit = |limit: Option<u64>| limit.map_or("-".to_owned(), size::count);
    let row = |who: String, files: String, limits: &FileLimits, of: &str, state: String| {
        let grace = match limits.soft {
            Some(_) => days(limits.grace_s),
            None => "-".into(),
        };
        let (soft, hard) = (limit(limits.soft), limit(limits.hard));
        vec![who, files, soft, hard, grace, of.to_owned(), state]
    };
    let mut rows: Vec<Vec<String>> = quotas
        .users
        .iter()
        .map(|user| {
            let who = users::name(user.uid).unwrap_or_else(|| user.uid.to_string());
            let of = match (user.uid, user.own) {
                (0, _) => "never limited",
                (_, true) => "own",
                (_, false) => "default",
            };
            let files = if quotas.counted {
                size::count(user.files)
            } else {
                "?".into()
            };
            row(who, files, &user.limits, of, state(user, now_ms))
        })
        .collect();
    if quotas.users.len() != 1 {
        let default = "(default)".to_owned();
        rows.push(row(default, "-".into(), &quotas.default, "-", "-".into()));
    }
    let header = ["user", "files", "soft", "hard", "grace", "limits", "state"];
    let mut text = out::table(&header, &[1, 2, 3, 4], rows);
    text += &bytes_text(quotas, now_ms);
    if !quotas.counted {
        text += "The files of users are not counted yet; until then no limits hold.\n";
    }
    text
}

fn state(user: &UserFiles, now_ms: u64) -> String {
    grace_state(user.is_at_hard(), user.grace_ends_ms, now_ms)
}

fn grace_state(at_hard: bool, grace_ends_ms: Option<u64>, now_ms: u64) -> String {
    if at_hard {
        return "at the hard limit: nothing new can be made".into();
    }
    let Some(ends_ms) = grace_ends_ms else {
        return "-".into();
    };
    match ends_ms.checked_sub(now_ms) {
        Some(left) if left > 0 => {
            let at =
                time_text(i64::try_from(ends_ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX));
            format!("over the soft limit until {at}, in {}", days(left / 1000))
        }
        _ => "over the soft limit for too long: nothing new can be made".into(),
    }
}

/// A duration in its largest whole unit.
fn days(seconds: u64) -> String {
    match seconds {
        s if s >= 2 * 86_400 || (s > 0 && s % 86_400 == 0) => format!("{} d", s / 86_400),
        s if s >= 2 * 3600 => format!("{} h", s / 3600),
        s if s >= 120 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_what_holds_and_what_follows() {
        let limits = FileLimits {
            soft: Some(5),
            hard: Some(1000),
            grace_s: 7 * 86_400,
        };
        let user = UserFiles {
            uid: 4_000_000_007,
            files: 6,
            limits,
            own: true,
            grace_ends_ms: Some(10_000_000),
            bytes: None,
        };
        let at_hard = UserFiles {
            files: 1000,
            ..user
        };
        let quotas = Quotas {
            users: vec![user, at_hard],
            default: FileLimits::default(),
            default_bytes: ByteLimits::default(),
            counted: true,
        };
        let text = to_text(&quotas, 1000);
        for words in [
            "4000000007",
            "7 d",
            "in 2 h",
            "at the hard limit",
            "(default)",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(to_text(&quotas, 10_000_000).contains("for too long"));
        let counting = Quotas {
            counted: false,
            ..quotas
        };
        assert!(to_text(&counting, 0).contains("no limits hold"));
        assert_eq!(to_json(&counting)["users"][0]["limits"]["hard"], 1000);
    }

    #[test]
    fn limits_are_numbers_or_none() {
        assert_eq!(bound("none"), Ok(Bound::Unlimited));
        assert_eq!(bound("70"), Ok(Bound::At(70)));
        assert!(bound("-1").is_err() && bound("many").is_err());
    }
}
