//! `penstock credential --revoke`: takes credentials back.
use crate::deployment::Located;
use crate::error::{CliError, Result};
use crate::names::time_text;
use crate::{connect, out, users};
use penstock_wire::Credential;
use penstock_wire::revocation::{Revocation, Revocations, Revoked};
use serde_json::{Value, json};
use std::path::Path;

/// The options about revocation.
pub struct Revoking<'a> {
    /// The serial number or the file of a credential to take back.
    pub credential: Option<&'a str>,
    /// The user whose credentials are all to be taken back.
    pub user: Option<&'a str>,
    /// List those that were taken back.
    pub list: bool,
    pub json: bool,
}

/// Takes credentials back, or lists those that were.
pub fn revoke(asked: &Revoking<'_>, located: &Located) -> Result<()> {
    let client = connect::administrator(located)?;
    let failed = |e: penstock_client::Error| CliError::new(e);
    let mut list = client.revocations().map_err(failed)?;
    let mut told = Vec::new();
    if let Some(named) = asked.credential {
        let (what, until_ms) = credential(named)?;
        list = client.revoke(what, until_ms).map_err(failed)?;
        told.push(what);
    }
    if let Some(name) = asked.user {
        let what = Revoked::User(users::named(name)?.uid);
        list = client.revoke(what, u64::MAX).map_err(failed)?;
        told.push(what);
    }
    if asked.json {
        for entry in &list.entries {
            out::print_json(&to_json(entry));
        }
    } else if asked.list {
        out::print(&to_text(&list));
    } else {
        for what in told {
            out::line(format_args!(
                "{what}: revoked; the metadata server refuses it now, data servers within 10 s"
            ));
        }
    }
    Ok(())
}

/// A serial number, or the credential in a file and when it ends.
fn credential(named: &str) -> Result<(Revoked, u64)> {
    if !Path::new(named).exists() {
        let serial = serial(named).ok_or_else(|| {
            CliError::new(format!("{named} is neither a file nor 32 hex digits")).next(
                "the serial number of a credential is in its file (`penstock credential --show FILE`) and in `penstock audit`",
            )
        })?;
        return Ok((Revoked::Serial(serial), u64::MAX));
    }
    let credential = Credential::load(Path::new(named)).map_err(CliError::new)?;
    let statement = credential.statement();
    Ok((Revoked::Serial(*statement.serial_bytes()), statement.end_ms))
}

fn serial(text: &str) -> Option<[u8; 16]> {
    let plain = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| plain)?;
    Some(number.to_be_bytes())
}

fn at(ms: u64) -> String {
    time_text(i64::try_from(ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX))
}

fn to_json(entry: &Revocation) -> Value {
    let (serial, uid) = match entry.what {
        Revoked::Serial(serial) => (Some(format!("{:032x}", u128::from_be_bytes(serial))), None),
        Revoked::User(uid) => (None, Some(uid)),
    };
    json!({ "serial": serial, "uid": uid, "at_ms": entry.at_ms, "until_ms": entry.until_ms })
}

fn to_text(list: &Revocations) -> String {
    if list.entries.is_empty() {
        return "no credential is revoked\n".into();
    }
    let row =
        |entry: &Revocation| vec![entry.what.to_string(), at(entry.at_ms), at(entry.until_ms)];
    let rows = list.entries.iter().map(row).collect();
    out::table(&["what", "revoked", "kept until"], &[], rows)
}
