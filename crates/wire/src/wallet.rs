//! Where a client's credential comes from: a file, or the authority's own key.
use crate::credential::{Credential, Statement, Uids, unusable};
use crate::deployment::Deployment;
use crate::error::Result;
use crate::handshake::myself;
use crate::signing::{KeyPair, PublicKey};
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_host::time::since_epoch;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

/// Names the file of the credential.
pub const VARIABLE: &str = "PENSTOCK_CREDENTIAL";
/// A credential of one's own making is good for so long before and after it was made, milliseconds: it never leaves the
/// process, and clocks that are wrong by hours must not matter.
const OWN_LIFE_MS: u64 = 24 * 3_600_000;
/// After so long another one is made.
const OWN_AGE_MS: u64 = 3_600_000;

/// See the module's text. Asked at each new connection over TCP, so that a renewed file is used. The default has none.
#[derive(Debug, Default)]
pub struct Wallet {
    deployment: String,
    deployment_name: String,
    authority: Option<PublicKey>,
    authority_key: Option<PathBuf>,
    /// The one file to use.
    named: Option<PathBuf>,
    /// The file to use if it is there.
    usual: Option<PathBuf>,
    kept: Mutex<Option<Kept>>,
}

/// A credential, and what it was made of.
#[derive(Debug, Clone)]
struct Kept {
    from: From,
    credential: Arc<Credential>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum From {
    /// A file as it was found: device, inode, size, and times of change.
    File(PathBuf, [u64; 2], u64, [i64; 4]),
    /// The authority's key, at this time, for this user.
    Authority { made_ms: u64, uid: u32 },
    /// The caller.
    Given,
}

impl From {
    fn file(path: &Path, found: &Metadata) -> From {
        From::File(
            path.to_owned(),
            [found.dev(), found.ino()],
            found.size(),
            [
                found.mtime(),
                found.mtime_nsec(),
                found.ctime(),
                found.ctime_nsec(),
            ],
        )
    }
}

/// The file in which this user's programs look for a credential of a deployment.
fn usual_file(deployment: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    let config = match set("XDG_CONFIG_HOME") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(set("HOME")?).join(".config"),
    };
    let name = format!("{deployment}.credential");
    Some(config.join("penstock").join(name))
}

impl Wallet {
    /// Looks where the environment says.
    pub fn new(deployment: &Deployment) -> Wallet {
        Wallet {
            deployment: deployment.id.clone(),
            deployment_name: deployment.name.clone(),
            authority: deployment.authority,
            authority_key: deployment.authority_key.clone(),
            named: std::env::var_os(VARIABLE)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from),
            usual: usual_file(&deployment.id),
            kept: Mutex::new(None),
        }
    }

    /// Has this one alone.
    pub fn holding(credential: Credential) -> Wallet {
        let kept = Kept {
            from: From::Given,
            credential: Arc::new(credential),
        };
        Wallet {
            kept: Mutex::new(Some(kept)),
            ..Wallet::default()
        }
    }

    /// The same for an administrator: whoever can read the authority's key is one, whatever else is at hand.
    pub fn administrators(&self) -> Result<Arc<Credential>> {
        match &self.authority_key {
            Some(path) if path.exists() && self.known(&From::Given).is_none() => {
                self.own(path).or_else(|_| self.credential())
            }
            _ => self.credential(),
        }
    }

    /// The credential to use now, or where it was sought and what to do.
    pub fn credential(&self) -> Result<Arc<Credential>> {
        if let Some(given) = self.known(&From::Given) {
            return Ok(given);
        }
        if let Some(path) = &self.named {
            let found = path
                .metadata()
                .map_err(|e| unusable(&format!("{VARIABLE}={}", path.display()), e.to_string()))?;
            return self.load(path, &found);
        }
        let mut sought = vec![format!("{VARIABLE} is not set")];
        match &self.usual {
            None => sought.push("HOME is not set".into()),
            Some(path) => match path.metadata() {
                Ok(found) => return self.load(path, &found),
                Err(e) => sought.push(absent(path, &e)),
            },
        }
        match &self.authority_key {
            None => sought.push("the deployment file names no authority_key".into()),
            Some(path) => match path.metadata() {
                Ok(_) => match self.own(path) {
                    Ok(credential) => return Ok(credential),
                    Err(e) => sought.push(e.to_string()),
                },
                Err(e) => sought.push(absent(path, &e)),
            },
        }
        let usual = self.usual.as_ref().map_or_else(
            || "a file that PENSTOCK_CREDENTIAL names".into(),
            |path| path.display().to_string(),
        );
        Err(unusable(
            &format!(
                "no credential for deployment {}, which its servers ask for over TCP",
                self.deployment_name
            ),
            format!(
                "{}; ask the deployment's owner for one (`penstock credential --user {} --output FILE`) and put it into {usual}, mode 600",
                sought.join(", "),
                rustix::process::geteuid().as_raw()
            ),
        ))
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, from: &From) -> Option<Arc<Credential>> {
        let kept = self.kept();
        let same = kept.as_ref().filter(|kept| kept.from == *from)?;
        Some(same.credential.clone())
    }

    fn keep(&self, from: From, credential: Credential) -> Arc<Credential> {
        let credential = Arc::new(credential);
        *self.kept() = Some(Kept {
            from,
            credential: credential.clone(),
        });
        credential
    }

    fn load(&self, path: &Path, found: &Metadata) -> Result<Arc<Credential>> {
        let from = From::file(path, found);
        if let Some(known) = self.known(&from) {
            return Ok(known);
        }
        let credential = Credential::load(path)?;
        let fail = |what: &str| unusable(&format!("credential {}", path.display()), what.into());
        if credential.statement().deployment != self.deployment {
            return Err(fail(&format!(
                "it is of another deployment than {} ({})",
                self.deployment_name, self.deployment
            )));
        }
        // Whether its authority has signed it is the servers' to say: keys may have been rotated since this program began.
        Ok(self.keep(from, credential))
    }

    /// For the holder of the authority's key, who may be anybody.
    fn own(&self, path: &Path) -> Result<Arc<Credential>> {
        let now_ms = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        let user = myself();
        if let Some(kept) = &*self.kept()
            && let From::Authority { made_ms, uid } = kept.from
            && uid == user.uid
            && now_ms.abs_diff(made_ms) < OWN_AGE_MS
        {
            return Ok(kept.credential.clone());
        }
        let authority = KeyPair::load(path)?;
        if self
            .authority
            .is_some_and(|public| public != authority.public())
        {
            let what = "it is not the key of the deployment's `authority`".into();
            return Err(unusable(&path.display().to_string(), what));
        }
        let life = now_ms.saturating_sub(OWN_LIFE_MS)..now_ms.saturating_add(OWN_LIFE_MS);
        let mut statement = Statement::new(&self.deployment, user, life);
        statement.root = true;
        statement.administrator = true;
        statement.speaks_for = vec![Uids::ALL];
        let credential = Credential::issue(&authority, statement)?;
        let from = From::Authority {
            made_ms: now_ms,
            uid: credential.statement().uid,
        };
        Ok(self.keep(from, credential))
    }
}

fn absent(path: &Path, e: &std::io::Error) -> String {
    let why = match e.kind() {
        ErrorKind::NotFound => "is not there".to_owned(),
        _ => format!("cannot be read ({e})"),
    };
    format!("{} {why}", path.display())
}
