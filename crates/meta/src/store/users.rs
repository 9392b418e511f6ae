//! Accounts of users in the database: files and quotas.
use crate::bytes::{ByteAccount, Bytes};
use crate::error::{Result, damaged};
use crate::quota::{Account, Accounts, Changed, Rules};
use crate::snapshot::{ABOUT, Snapshot, read_error, there};
use redb::{ReadableTable, TableDefinition, WriteTransaction};
use std::collections::BTreeMap;

const USERS: TableDefinition<u32, &[u8]> = TableDefinition::new("users");
/// Quotas on bytes.
const BYTES: TableDefinition<u32, &[u8]> = TableDefinition::new("bytes of users");
/// Key in [`ABOUT`]: the data about all users, and the commit that has written it. A release that does not count leaves
/// that of an earlier commit.
const RULES: &str = "rules";

impl Snapshot {
    /// The accounts of all users. The counts are exact only if this commit has written them.
    pub fn accounts(&self) -> Result<Accounts> {
        let mut users = BTreeMap::new();
        if let Some(stored) = there(self.transaction.open_table(USERS))? {
            for item in stored.iter().map_err(read_error)? {
                let (uid, account) = item.map_err(read_error)?;
                let account: Account = postcard::from_bytes(account.value()).map_err(damaged)?;
                users.insert(uid.value(), account);
            }
        }
        let about = there(self.transaction.open_table(ABOUT))?;
        let stored = match &about {
            Some(about) => about.get(RULES).map_err(read_error)?,
            None => None,
        };
        let (mut rules, commits): (Rules, u64) = match stored {
            Some(stored) => postcard::from_bytes(stored.value()).map_err(damaged)?,
            None => (Rules::default(), 0),
        };
        rules.counted &= commits == self.facts.commits;
        Ok(Accounts::stored(users, rules, self.bytes()?))
    }

    fn bytes(&self) -> Result<Bytes> {
        let mut users = BTreeMap::new();
        if let Some(stored) = there(self.transaction.open_table(BYTES))? {
            for item in stored.iter().map_err(read_error)? {
                let (uid, account) = item.map_err(read_error)?;
                let account: ByteAccount =
                    postcard::from_bytes(account.value()).map_err(damaged)?;
                users.insert(uid.value(), account);
            }
        }
        Ok(Bytes::stored(users))
    }
}

/// Writes the changes, for commit number `commits`.
pub(super) fn write(
    transaction: &WriteTransaction,
    changed: &Changed,
    commits: u64,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut users = transaction.open_table(USERS)?;
    for (uid, account) in &changed.accounts {
        match account {
            Some(account) => {
                users.insert(uid, postcard::to_stdvec(account)?.as_slice())?;
            }
            None => {
                users.remove(uid)?;
            }
        }
    }
    if !changed.bytes.is_empty() {
        let mut bytes = transaction.open_table(BYTES)?;
        for (uid, account) in &changed.bytes {
            match account {
                Some(account) => {
                    bytes.insert(uid, postcard::to_stdvec(account)?.as_slice())?;
                }
                None => {
                    bytes.remove(uid)?;
                }
            }
        }
    }
    let rules = postcard::to_stdvec(&(changed.rules, commits))?;
    let mut about = transaction.open_table(ABOUT)?;
    about.insert(RULES, rules.as_slice())?;
    Ok(())
}
