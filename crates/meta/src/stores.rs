//! The stores of the data servers, as recorded by the metadata server.
//!
//! Problem: an empty disk in place of a full one reads as zeros. Idea: a data server reports its store before it uses
//! it. It is refused if that is not the expected one, but missing, empty, another one, or an older copy
//! (docs/decisions/0015). A store's generation is increased on its disk first and then reported, so the record here is
//! at most one behind. It is not even one behind if the store has recorded an answer. A lower generation than recorded
//! is that of a copy. One that is further ahead shows that these names are an older copy themselves.
//!
//! The state of the names at the time of a report is recorded too: commits so far, and the next file id. So it is
//! detected if the names and this file are of different ages. After a newer store was adopted, files that only newer
//! names knew may still exist: `penstock check` does not report their objects as orphans.
//!
//! Stored in the file `stores` of the metadata directory, as text with a checksum. It is replaced atomically and
//! durable before the answer. That happens once for each start of a data server, and at most every half minute while it
//! is written to.
use crate::engine::Engine;
use crate::error::{Result, error};
use penstock_host::fs;
use penstock_host::sync::{Mutex, MutexGuard};
use penstock_layout::FileId;
use penstock_wire::message::{ErrorKind, KnownStore, StoreReport, StoreState};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

const NAME: &str = "stores";
const MAGIC: &str = "penstock stores 2";
/// The format before the state of the names was recorded.
const OLD_MAGIC: &str = "penstock stores 1";
/// Upper bound of file ids, which are nanoseconds since the epoch, or slightly more.
const HIGHEST: u64 = i64::MAX as u64;

/// The stores of a deployment.
#[derive(Debug)]
pub struct Stores {
    directory: PathBuf,
    /// Whether there were files when this server started.
    files: bool,
    known: Mutex<BTreeMap<u32, Known>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Known {
    store: u128,
    generation: u64,
    mounted: bool,
    /// The state of the names at its last report.
    names: Mark,
    /// See `KnownStore`.
    unsure: (u64, u64),
    /// Whether the names are older than at its last report. Not stored.
    ahead: bool,
}

/// The state of the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Greater than all file ids so far.
    pub next: u64,
    /// This many commits contain all files with lower ids.
    pub commits: u64,
}

/// The names, as far as stores are compared with them.
pub trait Names {
    /// Whether a file may have had this id.
    fn gave(&self, id: u64) -> Result<bool>;
    /// Greater than all file ids so far.
    fn next(&self) -> Result<u64>;
    /// Commits all names. Makes all future file ids greater than `highest`.
    fn mark(&self, highest: u64) -> Result<Mark>;
}

impl Names for Engine {
    fn gave(&self, id: u64) -> Result<bool> {
        let ranges = self.read(|space| space.names().given_ids())?;
        let id = FileId(id);
        Ok(ranges
            .iter()
            .any(|(first, end)| (*first..*end).contains(&id)))
    }

    fn next(&self) -> Result<u64> {
        self.read(|space| Ok(space.names().next_id()))
    }

    fn mark(&self, highest: u64) -> Result<Mark> {
        let next = self.skip_ids(highest)?;
        self.sync()?;
        let commits = self.read(|space| space.names().commits())?;
        Ok(Mark { next, commits })
    }
}

impl Stores {
    /// Loads the records of the metadata directory; `commits` and `files` describe its names.
    pub fn load(directory: &Path, commits: u64, files: bool) -> Result<Stores> {
        let path = directory.join(NAME);
        let mut known = match std::fs::read_to_string(&path) {
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
        for known in known.values_mut() {
            known.ahead = known.names.commits > commits;
        }
        Ok(Stores {
            directory: directory.to_owned(),
            files,
            known: Mutex::new(known),
        })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<u32, Known>> {
        // Replaced as a whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All records, for a check.
    pub fn list(&self) -> Vec<KnownStore> {
        let known = self.known();
        let store = |(server, known): (&u32, &Known)| KnownStore {
            server: *server,
            store: known.store,
            generation: known.generation,
            unsure: (FileId(known.unsure.0), FileId(known.unsure.1)),
        };
        known.iter().map(store).collect()
    }

    /// Judges a data server's report and records it. Returns whether a new store is to be made, and below which ids
    /// files may have lost bytes.
    pub fn report(&self, report: &StoreReport, names: &dyn Names) -> Result<Option<u64>> {
        let refuse = |why: &str| {
            let message = format!("store {} {why}", report.place);
            error(ErrorKind::Unsupported, message)
        };
        if report.highest > HIGHEST {
            let why = format!(
                "has an object of file {}, an id that no file has",
                report.highest
            );
            return Err(refuse(&why));
        }
        let mut known = self.known();
        let before = known.get(&report.server).copied();
        let verdict = match judge(report, before, self.files) {
            Ok(verdict) => verdict,
            Err(why) if !report.adopt => return Err(refuse(&why)),
            Err(_) => Verdict::Adopted,
        };
        let (store, generation) = match (verdict, report.state) {
            (Verdict::First, _) => return Ok(Some(0)),
            (Verdict::New, _) => return names.next().map(Some),
            (
                _,
                StoreState::There {
                    store, generation, ..
                },
            ) => (store, generation),
            _ => return Err(refuse("is not there")),
        };
        let newer = before.is_none_or(|known| report.highest >= known.names.next)
            && report.highest > 0
            && !names.gave(report.highest)?;
        if newer && !report.adopt {
            let behind = behind(report.server);
            return Err(refuse(&format!(
                "has an object of file {}, which these metadata never made; {behind}",
                report.highest
            )));
        }
        let same = before.filter(|known| known.store == store);
        if same.is_some_and(|k| (k.generation, k.mounted) == (generation, report.mounted))
            && matches!(verdict, Verdict::Known)
        {
            return Ok(None);
        }
        let names = names.mark(report.highest)?;
        let mut unsure = before.map_or((0, 0), |known| known.unsure);
        if newer || matches!(verdict, Verdict::Adopted) {
            // Up to the last report the names were complete, unless they are older than that themselves.
            let whole = same.filter(|known| !known.ahead);
            let first = whole.map_or(0, |known| match known.unsure {
                (0, 0) => known.names.next,
                (first, _) => first,
            });
            unsure = (first, names.next);
        }
        let found = Known {
            store,
            generation,
            mounted: report.mounted,
            names,
            unsure,
            ahead: false,
        };
        let mut after = known.clone();
        after.insert(report.server, found);
        self.save(&after).map_err(|e| {
            let path = self.directory.join(NAME);
            error(ErrorKind::Io, format!("write {}: {e}", path.display()))
        })?;
        *known = after;
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

#[derive(Debug, Clone, Copy)]
enum Verdict {
    /// It is the expected one.
    Known,
    /// It is newer than the names, or another one, and an administrator accepts it.
    Adopted,
    /// The first one must be made.
    First,
    /// A new one must replace another.
    New,
}

fn behind(server: u32) -> String {
    format!(
        "the metadata are new or an older copy: put the newest back, or start with `penstock up --adopt-store {server}` and look at `penstock check`"
    )
}

/// Whether a data server may use its store; the error says why not. `files`: there were files when the metadata server
/// started.
fn judge(
    report: &StoreReport,
    before: Option<Known>,
    files: bool,
) -> std::result::Result<Verdict, String> {
    let n = report.server;
    let renew = format!("or accept that its bytes are lost with `penstock up --new-store {n}`");
    let (store, generation, registered, heard) = match (report.state, before) {
        (
            StoreState::There {
                store,
                generation,
                registered,
                heard,
            },
            _,
        ) => (store, generation, registered, heard),
        _ if report.renew => return Ok(Verdict::New),
        (_, None) if files => {
            return Err(format!(
                "does not exist or is empty, and the metadata have files but know of no store of data server {n}: put it back, or, if it never had one, or its bytes are lost, start with `penstock up --new-store {n}`"
            ));
        }
        (_, None) => return Ok(Verdict::First),
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
    let behind = behind(n);
    match before {
        None if !registered => Ok(Verdict::Known),
        // Just made on request.
        Some(known) if known.store != store && report.adopt && !registered => Ok(Verdict::Known),
        None if report.renew => Ok(Verdict::New),
        None => Err(format!("was used with other metadata than these; {behind}")),
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
        Some(known) if generation > known.generation + u64::from(!heard) => Err(format!(
            "is newer than these metadata know (generation {generation} instead of {}): {behind}",
            known.generation
        )),
        Some(known) if known.ahead => Err(format!(
            "was used with newer metadata than these ({} commits): {behind}",
            known.names.commits
        )),
        Some(_) => Ok(Verdict::Known),
    }
}

fn encode(known: &BTreeMap<u32, Known>) -> String {
    let mut text = format!("{MAGIC}\n");
    for (server, k) in known {
        let mounted = u8::from(k.mounted);
        let Mark { next, commits } = k.names;
        let (first, end) = k.unsure;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{server} {:032x} {} {mounted} {next} {commits} {first} {end}",
            k.store, k.generation
        );
    }
    closed(text)
}

fn closed(text: String) -> String {
    let crc = crc32fast::hash(text.as_bytes());
    text + &format!("crc {crc:08x}\n")
}

fn decode(text: &str) -> Option<BTreeMap<u32, Known>> {
    let body = &text[..text.rfind("crc ")?];
    if closed(body.to_owned()) != text {
        return None;
    }
    let mut lines = body.lines();
    let magic = lines.next()?;
    let mut known = BTreeMap::new();
    for line in lines {
        let mut fields = line.split(' ');
        let server = fields.next()?.parse().ok()?;
        let store = u128::from_str_radix(fields.next()?, 16).ok()?;
        let numbers: Vec<u64> = fields
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        let (names, unsure) = match (magic, &numbers[..]) {
            (OLD_MAGIC, [_, _]) => (Mark::default(), (0, 0)),
            (MAGIC, &[_, _, next, commits, first, end]) => (Mark { next, commits }, (first, end)),
            _ => return None,
        };
        let entry = Known {
            store,
            generation: numbers[0],
            mounted: numbers[1] == 1,
            names,
            unsure,
            ahead: false,
        };
        known.insert(server, entry);
    }
    (magic == MAGIC || magic == OLD_MAGIC).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Names that have used ids below 77.
    #[derive(Default)]
    struct Fake {
        commits: Cell<u64>,
        above: Cell<u64>,
    }

    impl Names for Fake {
        fn gave(&self, id: u64) -> Result<bool> {
            Ok(id < 77)
        }

        fn next(&self) -> Result<u64> {
            Ok(77.max(self.above.get() + 1))
        }

        fn mark(&self, highest: u64) -> Result<Mark> {
            self.above.set(self.above.get().max(highest));
            self.commits.set(self.commits.get() + 1);
            Ok(Mark {
                next: self.next()?,
                commits: self.commits.get(),
            })
        }
    }

    fn report(state: StoreState) -> StoreReport {
        StoreReport {
            server: 2,
            place: "/disk/2".into(),
            state,
            mounted: true,
            renew: false,
            adopt: false,
            highest: 0,
        }
    }

    fn there(store: u128, generation: u64) -> StoreReport {
        report(StoreState::There {
            store,
            generation,
            registered: generation > 0,
            heard: false,
        })
    }

    fn adopted(report: StoreReport) -> StoreReport {
        StoreReport {
            adopt: true,
            ..report
        }
    }

    fn with(highest: u64, report: StoreReport) -> StoreReport {
        StoreReport { highest, ..report }
    }

    fn unsure(stores: &Stores) -> (u64, u64) {
        let (first, end) = stores.list()[0].unsure;
        (first.0, end.0)
    }

    #[test]
    fn only_the_store_that_was_there_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let names = Fake::default();
        let stores = Stores::load(dir.path(), 0, false).unwrap();
        let ask = |report: &StoreReport| stores.report(report, &names);
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
        let heard = report(StoreState::There {
            store: 5,
            generation: 4,
            registered: true,
            heard: true,
        });
        assert!(refusal(&heard).contains("newer than these metadata"));
        assert_eq!(ask(&there(5, 4)), Ok(None));
        assert_eq!(ask(&heard), Ok(None));
        // It is still known after a restart.
        let stores = Stores::load(dir.path(), names.commits.get(), true).unwrap();
        let ask = |report: &StoreReport| stores.report(report, &names);
        assert!(ask(&there(6, 4)).is_err());
        // An administrator replaces an empty disk, another store, an older copy.
        for old in [report(StoreState::Empty), there(6, 9), there(5, 1)] {
            let renewed = StoreReport { renew: true, ..old };
            assert_eq!(ask(&renewed), Ok(Some(77)));
        }
        assert_eq!(ask(&adopted(there(8, 0))), Ok(None));
        assert_eq!(ask(&there(8, 1)), Ok(None));
        assert!(ask(&there(5, 4)).is_err());
        assert_eq!(unsure(&stores), (0, 0), "the names are the newest");
    }

    #[test]
    fn other_metadata_refuse_a_store_until_it_is_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let names = Fake::default();
        let stores = Stores::load(dir.path(), 0, false).unwrap();
        let told = stores.report(&there(5, 3), &names).unwrap_err().message;
        assert!(told.contains("other metadata"), "{told}");
        let first = adopted(with(200, there(5, 3)));
        assert_eq!(stores.report(&first, &names), Ok(None));
        assert_eq!(unsure(&stores), (0, 201), "no id is given out twice");
        assert_eq!(stores.report(&with(200, there(5, 4)), &names), Ok(None));
        assert_eq!(unsure(&stores), (0, 201));
        std::fs::write(dir.path().join(NAME), "rubbish").unwrap();
        assert!(Stores::load(dir.path(), 0, false).is_err());
    }

    #[test]
    fn older_names_are_noticed_whatever_is_older() {
        let dir = tempfile::tempdir().unwrap();
        let names = Fake::default();
        let stores = Stores::load(dir.path(), 0, false).unwrap();
        for generation in 0..3 {
            stores.report(&there(5, generation), &names).unwrap();
        }
        let refusal = |stores: &Stores, report: &StoreReport| {
            stores.report(report, &names).unwrap_err().message
        };
        // An object whose id these names never used.
        let told = refusal(&stores, &with(77, there(5, 3)));
        assert!(
            told.contains("never made") && told.contains("--adopt-store 2"),
            "{told}"
        );
        // Only the database is older.
        let older = Stores::load(dir.path(), names.commits.get() - 1, true).unwrap();
        let told = refusal(&older, &there(5, 2));
        assert!(
            told.contains("newer metadata") && told.contains("--adopt-store 2"),
            "{told}"
        );
        older.report(&adopted(there(5, 2)), &names).unwrap();
        assert_eq!(unsure(&older), (0, 77), "nothing is sure of older names");
        // Both are: up to the last report the names are complete.
        older
            .report(&adopted(with(90, there(5, 9))), &names)
            .unwrap();
        assert_eq!(unsure(&older), (0, 91));
        let newest = Stores::load(dir.path(), names.commits.get(), true).unwrap();
        assert_eq!(unsure(&newest), (0, 91));
        // The file of stores is lost; the stores may be too.
        std::fs::remove_file(dir.path().join(NAME)).unwrap();
        let lost = Stores::load(dir.path(), names.commits.get(), true).unwrap();
        assert!(refusal(&lost, &there(5, 9)).contains("other metadata"));
        for state in [StoreState::Missing, StoreState::Empty] {
            assert!(refusal(&lost, &report(state)).contains("--new-store 2"));
            let renewed = StoreReport {
                renew: true,
                ..report(state)
            };
            assert_eq!(lost.report(&renewed, &names), Ok(Some(91)), "no zeros");
        }
        // Ids that no file can have are refused, before they exhaust all ids.
        assert!(refusal(&lost, &adopted(with(u64::MAX, there(5, 9)))).contains("no file has"));
    }

    #[test]
    fn up_to_the_last_report_nothing_is_unsure() {
        let dir = tempfile::tempdir().unwrap();
        let names = Fake::default();
        let stores = Stores::load(dir.path(), 0, false).unwrap();
        for generation in 0..3 {
            stores.report(&there(5, generation), &names).unwrap();
        }
        stores
            .report(&adopted(with(90, there(5, 9))), &names)
            .unwrap();
        assert_eq!(unsure(&stores), (77, 91));
        stores
            .report(&adopted(with(95, there(5, 19))), &names)
            .unwrap();
        assert_eq!(unsure(&stores), (77, 96));
    }

    #[test]
    fn what_was_written_before_is_read() {
        let line = format!("2 {:032x} 3 1\n", 5);
        let old = closed(format!("{OLD_MAGIC}\n{line}"));
        let known = decode(&old).unwrap()[&2];
        assert_eq!((known.store, known.generation, known.mounted), (5, 3, true));
        assert_eq!(decode(&closed(format!("{MAGIC}\n{line}"))), None);
        let text = encode(&decode(&old).unwrap());
        for at in 0..text.len() {
            assert!(decode(&text[..at]).is_none(), "cut at {at}");
        }
    }
}
