//! Sources of a client's credential: a file, the authority's own key, or the metadata server by MUNGE.
use crate::deployment::Deployment;
use crate::users::myself;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_host::time::{now, since_epoch};
use penstock_wire::credential::{Credential, Statement, Uids, unusable};
use penstock_wire::message::{self, WireError};
use penstock_wire::{Error, KeyPair, PublicKey, Result};
use std::ffi::OsStr;
use std::fmt;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Names the file with the credential.
pub const VARIABLE: &str = "PENSTOCK_CREDENTIAL";
/// Root puts credentials of a job on this host into a directory of this one that is named after the job
/// (contrib/slurm).
const JOBS: &str = "/run/penstock";
/// Names the Slurm job that a process belongs to.
const JOB_VARIABLE: &str = "SLURM_JOB_ID";
/// Digits of a job's id.
const MAX_JOB: usize = 10;
/// Time before and after its making for which a self-made credential is valid, milliseconds. It never leaves the
/// process, and clocks that are wrong by hours must not matter.
const OWN_LIFE_MS: u64 = 24 * 3_600_000;
/// Age at which a new one is made.
const OWN_AGE_MS: u64 = 3_600_000;

/// Issues a credential to a client that has none: the metadata server, by MUNGE.
pub trait Giver: fmt::Debug + Send + Sync {
    /// A credential for this process's effective user.
    fn ask(&self) -> Result<Credential>;
}

/// The source of a client's credential. It is asked at each new connection over TCP, so that a renewed file is used.
/// The default has none.
#[derive(Debug, Default)]
pub struct Wallet {
    deployment: String,
    deployment_name: String,
    authority: Option<PublicKey>,
    authority_key: Option<PathBuf>,
    /// The one file to use, if named.
    named: Option<PathBuf>,
    /// The file of this process's job, used if it exists.
    job: Option<PathBuf>,
    /// The file of this process's user, used if it exists.
    usual: Option<PathBuf>,
    giver: Option<Box<dyn Giver>>,
    kept: Mutex<Option<Kept>>,
    /// Locked by the thread that asks by MUNGE: when that last failed, and why.
    asking: Mutex<Option<(Instant, WireError)>>,
}

/// A cached credential with its source.
#[derive(Debug, Clone)]
struct Kept {
    from: From,
    credential: Arc<Credential>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum From {
    /// The state of a file: device, inode, size, and times of change.
    File(PathBuf, [u64; 2], u64, [i64; 4]),
    /// The authority's key, at this time, for this user.
    Authority { made_ms: u64, uid: u32 },
    /// MUNGE, for this user. After some time a new one is requested, and this one is used until it expires by this
    /// host's steady clock.
    Munge {
        uid: u32,
        aged: Instant,
        ends: Instant,
    },
    /// The caller provided it.
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

/// The file of job `job` among those of `jobs`; `None` if that is not a valid job id, which must not lead to another
/// path.
fn job_file(jobs: &Path, job: &OsStr, deployment: &str) -> Option<PathBuf> {
    let id = job.to_str()?;
    let is_id = (1..=MAX_JOB).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_digit());
    is_id.then(|| jobs.join(id).join(format!("{deployment}.credential")))
}

/// The default file of a deployment's credential for this user.
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
    /// Uses the files that the environment names, and `giver` last.
    pub fn new(deployment: &Deployment, giver: Option<Box<dyn Giver>>) -> Wallet {
        Wallet {
            deployment: deployment.id.clone(),
            deployment_name: deployment.name.clone(),
            authority: deployment.authority,
            authority_key: deployment.authority_key.clone(),
            named: std::env::var_os(VARIABLE)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from),
            job: std::env::var_os(JOB_VARIABLE)
                .and_then(|job| job_file(Path::new(JOBS), &job, &deployment.id)),
            usual: usual_file(&deployment.id),
            giver,
            ..Wallet::default()
        }
    }

    /// A wallet with this credential only.
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

    /// The credential of an administrator, which is anybody who can read the authority's key. MUNGE makes nobody an
    /// administrator.
    pub fn administrators(&self) -> Result<Arc<Credential>> {
        match &self.authority_key {
            Some(path) if path.exists() && self.known(&From::Given).is_none() => {
                self.own(path).or_else(|_| self.at_hand(false))
            }
            _ => self.at_hand(false),
        }
    }

    /// The credential to use now; the error says where it was searched for and what to do.
    pub fn credential(&self) -> Result<Arc<Credential>> {
        self.at_hand(true)
    }

    fn at_hand(&self, munge: bool) -> Result<Arc<Credential>> {
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
        for path in self.job.iter().chain(&self.usual) {
            match path.metadata() {
                // For example root, with the variables of a user's job.
                Ok(found) if Some(path) == self.job.as_ref() && !is_own(&found) => sought.push(
                    format!("{} belongs to user {}", path.display(), found.uid()),
                ),
                Ok(found) => return self.load(path, &found),
                Err(e) => sought.push(absent(path, &e)),
            }
        }
        if self.usual.is_none() {
            sought.push("HOME is not set".into());
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
        match self.giver.as_deref().filter(|_| munge) {
            None => {}
            Some(giver) => match self.by_munge(giver) {
                Ok(credential) => return Ok(credential),
                Err(Error::Refused(e)) if e.kind == message::ErrorKind::Permission => {
                    sought.push(e.message);
                }
                // A later attempt may succeed.
                Err(e) => return Err(e),
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

    /// The server refuses this credential: another one must be found.
    pub(crate) fn refused(&self, credential: &Arc<Credential>) {
        let mut kept = self.kept();
        if let Some(Kept {
            from,
            credential: own,
        }) = &*kept
            && matches!(from, From::Munge { .. })
            && Arc::ptr_eq(own, credential)
        {
            *kept = None;
        }
    }

    /// The credential that MUNGE brought for this process's user: not yet aged, or at least not expired.
    fn brought(&self, even_aged: bool) -> Option<Arc<Credential>> {
        let kept = self.kept();
        let Kept { from, credential } = kept.as_ref()?;
        let From::Munge { uid, aged, ends } = from else {
            return None;
        };
        let until = if even_aged { ends } else { aged };
        let own = rustix::process::geteuid().as_raw() == *uid;
        (own && now() < *until).then(|| credential.clone())
    }

    fn had_by_munge(&self) -> bool {
        matches!(&*self.kept(), Some(kept) if matches!(kept.from, From::Munge { .. }))
    }

    /// One request for all threads of the process, which wait for it.
    fn by_munge(&self, giver: &dyn Giver) -> Result<Arc<Credential>> {
        if let Some(known) = self.brought(false) {
            return Ok(known);
        }
        let began = now();
        let mut failed = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.brought(false) {
            return Ok(known);
        }
        if let Some((at, e)) = &*failed
            && *at > began
        {
            return self.brought(true).ok_or_else(|| Error::Refused(e.clone()));
        }
        let asked = now();
        let uid = rustix::process::geteuid().as_raw();
        let credential = match giver.ask() {
            Ok(credential) => credential,
            Err(e) => {
                // A client that had one before may get another later.
                let again = e.is_disconnect() || self.had_by_munge();
                let mut why = WireError::from(e);
                if again {
                    why.kind = message::ErrorKind::Busy;
                }
                *failed = Some((now(), why.clone()));
                return self.brought(true).ok_or(Error::Refused(why));
            }
        };
        let said = credential.statement();
        let life = Duration::from_millis(said.end_ms.saturating_sub(said.not_before_ms));
        let from = From::Munge {
            uid,
            aged: asked + life * 3 / 4,
            ends: asked + life,
        };
        Ok(self.keep(from, credential))
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
        // Servers check the authority's signature: keys may have been rotated since this program began.
        Ok(self.keep(from, credential))
    }

    /// Makes a credential with the authority's key, for any user.
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

fn is_own(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

fn absent(path: &Path, e: &std::io::Error) -> String {
    let why = match e.kind() {
        ErrorKind::NotFound => "is not there".to_owned(),
        _ => format!("cannot be read ({e})"),
    };
    format!("{} {why}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_wire::message::User;
    use std::os::unix::fs::PermissionsExt;

    /// A wallet that searches for the files of job 4711 and of the user in `dir`.
    fn wallet(dir: &Path, deployment: &str) -> Wallet {
        Wallet {
            deployment: deployment.into(),
            job: job_file(&dir.join("jobs"), OsStr::new("4711"), deployment),
            usual: Some(dir.join("usual")),
            ..Wallet::default()
        }
    }

    fn saved(deployment: &str, uid: u32, path: &Path) {
        let user = User {
            uid,
            ..User::default()
        };
        let statement = Statement::new(deployment, user, 0..1000);
        let credential = Credential::issue(&KeyPair::generate().unwrap(), statement).unwrap();
        credential.save(path, None, true).unwrap();
    }

    #[test]
    fn a_jobs_credential_comes_before_the_users() {
        let dir = tempfile::tempdir().unwrap();
        let deployment = "ab".repeat(16);
        let wallet = wallet(dir.path(), &deployment);
        let uid = || wallet.credential().unwrap().statement().uid;
        let e = wallet.credential().unwrap_err().to_string();
        let file = format!("jobs/4711/{deployment}.credential is not there");
        assert!(e.contains(&file) && e.contains("usual is not there"), "{e}");
        saved(&deployment, 1, &dir.path().join("usual"));
        assert_eq!(uid(), 1);
        let job = dir.path().join("jobs/4711");
        std::fs::create_dir_all(&job).unwrap();
        let file = job.join(format!("{deployment}.credential"));
        saved(&deployment, 2, &file);
        assert_eq!(uid(), 2);
        // The next run of the job has another one.
        saved(&deployment, 3, &file);
        assert_eq!(uid(), 3);
        // A file that others may read is refused, although there is another.
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        let e = wallet.credential().unwrap_err().to_string();
        assert!(e.contains("readable by others"), "{e}");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(61_001), None).unwrap();
            assert_eq!(uid(), 1);
        }
        std::fs::remove_dir_all(&job).unwrap();
        assert_eq!(uid(), 1);
    }

    #[test]
    fn a_job_is_a_number() {
        let file = |job: &str| job_file(Path::new("/jobs"), OsStr::new(job), "d");
        assert_eq!(file("4711"), Some("/jobs/4711/d.credential".into()));
        for job in ["", ".", "..", "7/../8", "/tmp", "7 ", "-7", "12345678901"] {
            assert_eq!(file(job), None, "{job}");
        }
    }
}
