//! The stores of the data servers, as the metadata server knows them.
//!
//! Problem: an empty disk in the place of a full one reads as zeros. Idea: a data server tells of its store before it uses it, and
//! is refused if that is not the one it had: missing, empty, another one, or an older copy (docs/decisions/0015).
//! A store's generation rises on its disk first and is reported then, so here it is at most one behind. One that is
//! lower than here is a copy's; one that is further ahead tells that these names are an older copy themselves.
//!
//! Kept in the file `stores` of the metadata directory, text closed by a checksum, replaced as a whole and durable before the answer:
//! once for each start of a data server, and at most every half minute while it is written to.
use crate::error::{Result, error};
use penstock_host::fs;
use penstock_host::sync::Mutex;
use penstock_wire::message::{ErrorKind, StoreReport, StoreState};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

const NAME: &str = "stores";
const MAGIC: &str = "penstock stores 1";

/// All of a deployment.
#[derive(Debug)]
pub struct Stores {
    directory: PathBuf,
    known: Mutex<BTreeMap<u32, Known>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    store: u128,
    generation: u64,
    mounted: bool,
}

impl Stores {
    /// Those noted in the metadata directory.
    pub fn load(directory: &Path) -> Result<Stores> {
        let path = directory.join(NAME);
        let known = match std::fs::read_to_string(&path) {
            Ok(text) => decode(&text).ok_or_else(|| {
                error(
                    ErrorKind::Damaged,
                    format!(
                        "{} is damaged; restore it from a backup, or remove it and start with `penstock up --adopt-store N` for each data server",
                        path.display()
                    ),
                )
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(error(ErrorKind::Io, format!("read {}: {e}", path.display()))),
        };
        Ok(Stores {
            directory: directory.to_owned(),
            known: Mutex::new(known),
        })
    }

    /// Judges what a data server has and notes it. `next` is above all ids of files so far. Returns whether a new store is to be made,
    /// and below which ids files may have lost bytes.
    pub fn report(
        &self,
        report: &StoreReport,
        next: impl FnOnce() -> Result<u64>,
    ) -> Result<Option<u64>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.get(&report.server).copied();
        let found = match judge(report, before) {
            Ok(Verdict::New) if before.is_none() => return Ok(Some(0)),
            Ok(Verdict::New) => return next().map(Some),
            Ok(Verdict::Known(found)) => found,
            Err(why) => {
                let message = format!("store {} {why}", report.place);
                return Err(error(ErrorKind::Unsupported, message));
            }
        };
        if before != Some(found) {
            let mut after = known.clone();
            after.insert(report.server, found);
            self.save(&after).map_err(|e| {
                let path = self.directory.join(NAME);
                error(ErrorKind::Io, format!("write {}: {e}", path.display()))
            })?;
            *known = after;
        }
        Ok(None)
    }

    fn save(&self, known: &BTreeMap<u32, Known>) -> std::io::Result<()> {
        let (path, new) = (self.directory.join(NAME), self.directory.join("stores.new"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = fs::open(&options, &new, true)?;
        fs::write_all(&mut file, encode(known).as_bytes())?;
        fs::fsync(&file)?;
        fs::rename(&new, &path)?;
        Ok(fs::fsync(&File::open(&self.directory)?)?)
    }
}

enum Verdict {
    /// It is the right one.
    Known(Known),
    /// A new one is to be made.
    New,
}

/// Whether a data server may use what it has, or why not.
fn judge(report: &StoreReport, before: Option<Known>) -> std::result::Result<Verdict, String> {
    let n = report.server;
    let renew = format!("or accept that its bytes are lost with `penstock up --new-store {n}`");
    let (store, generation, registered) = match (report.state, before) {
        (
            StoreState::There {
                store,
                generation,
                registered,
            },
            _,
        ) => (store, generation, registered),
        (_, None) => return Ok(Verdict::New),
        _ if report.renew => return Ok(Verdict::New),
        (StoreState::Missing, Some(_)) => {
            return Err(format!(
                "does not exist, but data server {n} has one: put it back, {renew}"
            ));
        }
        (StoreState::Empty, Some(known)) if known.mounted && !report.mounted => {
            return Err(format!(
                "is an empty mount point: mount the file system of data server {n} there, {renew}"
            ));
        }
        (StoreState::Empty, Some(_)) => {
            return Err(format!(
                "is empty, but data server {n} has a store: is its file system not mounted? Put it back, {renew}"
            ));
        }
    };
    let found = Verdict::Known(Known {
        store,
        generation,
        mounted: report.mounted,
    });
    let behind = format!(
        "the metadata are new or an older copy: put the newest back, or start with `penstock up --adopt-store {n}` and look at `penstock check`"
    );
    match before {
        _ if report.adopt => Ok(found),
        None if registered && report.renew => Ok(Verdict::New),
        None if registered => Err(format!("was used with other metadata than these; {behind}")),
        None => Ok(found),
        Some(known) if known.store != store && report.renew => Ok(Verdict::New),
        Some(known) if known.store != store => Err(format!(
            "is not the one that data server {n} had ({store:032x} instead of {:032x}): put that back, {renew}",
            known.store
        )),
        Some(known) if generation < known.generation && report.renew => Ok(Verdict::New),
        Some(known) if generation < known.generation => Err(format!(
            "is an older copy of what data server {n} had (generation {generation} instead of {}): put the newest back, {renew}",
            known.generation
        )),
        Some(known) if generation > known.generation + 1 => Err(format!(
            "is newer than these metadata know (generation {generation} instead of {}): {behind}",
            known.generation
        )),
        Some(_) => Ok(found),
    }
}

fn encode(known: &BTreeMap<u32, Known>) -> String {
    let mut text = format!("{MAGIC}\n");
    for (server, k) in known {
        let mounted = u8::from(k.mounted);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{server} {:032x} {} {mounted}", k.store, k.generation);
    }
    let crc = crc32fast::hash(text.as_bytes());
    text + &format!("crc {crc:08x}\n")
}

fn decode(text: &str) -> Option<BTreeMap<u32, Known>> {
    let mut known = BTreeMap::new();
    for line in text
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("crc"))
    {
        let fields: Vec<&str> = line.split(' ').collect();
        let [server, store, generation, mounted] = fields[..] else {
            return None;
        };
        let entry = Known {
            store: u128::from_str_radix(store, 16).ok()?,
            generation: generation.parse().ok()?,
            mounted: mounted == "1",
        };
        known.insert(server.parse().ok()?, entry);
    }
    (encode(&known) == text).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: StoreState) -> StoreReport {
        StoreReport {
            server: 2,
            place: "/disk/2".into(),
            state,
            mounted: true,
            renew: false,
            adopt: false,
        }
    }

    fn there(store: u128, generation: u64) -> StoreReport {
        report(StoreState::There {
            store,
            generation,
            registered: generation > 0,
        })
    }

    #[test]
    fn only_the_store_that_was_there_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let stores = Stores::load(dir.path()).unwrap();
        let ask = |report: &StoreReport| stores.report(report, || Ok(77));
        let refusal = |report: &StoreReport| ask(report).unwrap_err().message;
        // The first start.
        assert_eq!(ask(&report(StoreState::Missing)), Ok(Some(0)));
        assert_eq!(ask(&there(5, 0)), Ok(None));
        for generation in 1..4 {
            assert_eq!(ask(&there(5, generation)), Ok(None));
        }
        let told = refusal(&report(StoreState::Missing));
        assert!(
            told.contains("/disk/2 does not exist") && told.contains("--new-store 2"),
            "{told}"
        );
        let unmounted = StoreReport {
            mounted: false,
            ..report(StoreState::Empty)
        };
        assert!(refusal(&unmounted).contains("is an empty mount point"));
        assert!(refusal(&report(StoreState::Empty)).contains("is empty"));
        assert!(refusal(&there(6, 3)).contains("is not the one that data server 2 had"));
        assert!(refusal(&there(5, 2)).contains("older copy"));
        assert!(refusal(&there(5, 5)).contains("newer than these metadata"));
        assert_eq!(ask(&there(5, 4)), Ok(None));
        // It is known after a restart.
        let stores = Stores::load(dir.path()).unwrap();
        let ask = |report: &StoreReport| stores.report(report, || Ok(77));
        assert!(ask(&there(6, 4)).is_err());
        // An administrator replaces it: by nothing, by another, by an older copy.
        for old in [report(StoreState::Empty), there(6, 9), there(5, 1)] {
            let renewed = StoreReport { renew: true, ..old };
            assert_eq!(ask(&renewed), Ok(Some(77)));
        }
        let first = StoreReport {
            adopt: true,
            ..there(8, 0)
        };
        assert_eq!(ask(&first), Ok(None));
        assert_eq!(ask(&there(8, 1)), Ok(None));
        assert!(ask(&there(5, 4)).is_err());
    }

    #[test]
    fn other_metadata_refuse_a_store_until_it_is_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let stores = Stores::load(dir.path()).unwrap();
        let told = stores.report(&there(5, 3), || Ok(1)).unwrap_err().message;
        assert!(told.contains("other metadata"), "{told}");
        let adopted = StoreReport {
            adopt: true,
            ..there(5, 3)
        };
        assert_eq!(stores.report(&adopted, || Ok(1)), Ok(None));
        assert_eq!(stores.report(&there(5, 4), || Ok(1)), Ok(None));
        std::fs::write(dir.path().join(NAME), "rubbish").unwrap();
        assert!(Stores::load(dir.path()).is_err());
    }
}
