//! The check against servers made up in memory, whose pages are tiny.
use super::*;
use crate::error::Peer;
use penstock_wire::message::WireError;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

const PAGE: usize = 3;

type Hook = Box<dyn Fn(&Fake)>;

/// A deployment as the check sees it.
struct Fake {
    servers: Vec<ServerId>,
    files: RefCell<BTreeMap<u64, (String, Layout)>>,
    directories: BTreeSet<String>,
    objects: RefCell<BTreeMap<(u32, u64), u64>>,
    damage: BTreeMap<u32, Vec<ObjectFinding>>,
    given: Vec<(FileId, FileId)>,
    lost_below: BTreeMap<u32, u64>,
    stores: BTreeMap<u32, StoreState>,
    known: Vec<KnownStore>,
    /// Cannot be asked.
    silent: Option<u32>,
    /// Listing fails from this file on.
    unreadable: Option<u64>,
    /// Reading it fails.
    bad_directory: Option<String>,
    /// Called when the check pauses.
    meanwhile: Option<Hook>,
    pauses: Cell<usize>,
    /// Numbers of files that are wrong.
    wrong: RefCell<Vec<WrongCount>>,
    /// Owners of files; the others have no limit on bytes.
    limited: BTreeMap<u64, u32>,
    /// By how much a server counts too much or too little for a user.
    miscounted: RefCell<BTreeMap<(u32, u32), i64>>,
    /// By how much the metadata server has heard of too much.
    misheard: u64,
    /// Servers count anew as wrongly as before.
    incorrigible: bool,
}

impl Fake {
    fn new(servers: u32) -> Fake {
        Fake {
            servers: (0..servers).map(ServerId).collect(),
            files: RefCell::default(),
            directories: BTreeSet::new(),
            objects: RefCell::default(),
            damage: BTreeMap::new(),
            given: vec![(FileId(0), FileId(u64::MAX))],
            lost_below: BTreeMap::new(),
            stores: BTreeMap::new(),
            known: Vec::new(),
            silent: None,
            unreadable: None,
            bad_directory: None,
            meanwhile: None,
            pauses: Cell::new(0),
            wrong: RefCell::default(),
            limited: BTreeMap::new(),
            miscounted: RefCell::default(),
            misheard: 0,
            incorrigible: false,
        }
    }

    /// A file over all servers with an object of `id` bytes on each.
    fn with_file(self, id: u64) -> Fake {
        let layout = Layout::new(65536, self.servers.clone()).unwrap();
        self.files
            .borrow_mut()
            .insert(id, (format!("/f{id}"), layout));
        for server in &self.servers {
            self.objects.borrow_mut().insert((server.0, id), id);
        }
        self
    }

    fn with_object(self, server: u32, id: u64) -> Fake {
        self.objects.borrow_mut().insert((server, id), id);
        self
    }

    fn check(&self, repair: bool) -> CheckReport {
        let options = CheckOptions {
            repair,
            ..CheckOptions::default()
        };
        self.check_with(options)
    }

    fn check_with(&self, options: CheckOptions) -> CheckReport {
        Checker::new(self, options, &mut |_| {}).run().unwrap()
    }

    /// Space preallocated beyond the ends of objects is half of their bytes.
    fn counted(&self, server: ServerId) -> Vec<CountedBytes> {
        let mut users: BTreeMap<u32, u64> = self.limited.values().map(|uid| (*uid, 0)).collect();
        for ((of, id), bytes) in self.objects.borrow().iter() {
            if let Some(uid) = self.limited.get(id).filter(|_| *of == server.0) {
                *users.entry(*uid).or_default() += bytes;
            }
        }
        let miscounted = self.miscounted.borrow();
        let off = |uid| miscounted.get(&(server.0, uid)).copied().unwrap_or(0);
        let counted = users.into_iter().map(|(uid, bytes)| CountedBytes {
            uid,
            used: (bytes + bytes / 2).saturating_add_signed(off(uid)),
            unlisted: bytes / 2,
            counted: true,
        });
        counted.collect()
    }

    fn left(&self) -> Vec<(u32, u64)> {
        self.objects.borrow().keys().copied().collect()
    }
}

fn refused(kind: ErrorKind, message: &str) -> Error {
    Error::Refused {
        peer: Peer {
            data: None,
            address: "memory".into(),
        },
        operation: "check",
        source: WireError::new(kind, message),
    }
}

fn kinds(report: &CheckReport) -> Vec<FindingKind> {
    report.findings.iter().map(|f| f.kind).collect()
}

impl Inventory for Fake {
    fn servers(&self) -> Vec<ServerId> {
        self.servers.clone()
    }

    fn given_ids(&self) -> Result<Given> {
        Ok((self.given.clone(), self.known.clone()))
    }

    fn files(&self, after: Option<FileId>, limit: u32) -> Result<FilePage> {
        let from = after.map_or(0, |a| a.0 + 1);
        let files = self.files.borrow();
        let mut rest = files.range(from..);
        let mut page = Vec::new();
        for (id, (path, layout)) in rest.by_ref().take(PAGE.min(limit as usize)) {
            if self.unreadable.is_some_and(|bad| bad <= *id) {
                return Err(refused(ErrorKind::Damaged, "a record fails its checksum"));
            }
            page.push((FileId(*id), path.clone(), layout.clone()));
        }
        Ok((page, rest.next().is_some()))
    }

    fn objects(
        &self,
        server: ServerId,
        after: Option<FileId>,
        limit: u32,
    ) -> Result<(Vec<(FileId, u64)>, bool)> {
        if self.silent == Some(server.0) {
            return Err(refused(ErrorKind::Io, "no answer"));
        }
        let from = after.map_or(0, |a| a.0 + 1);
        let objects = self.objects.borrow();
        let mut rest = objects
            .range((server.0, from)..=(server.0, u64::MAX))
            .map(|((_, id), len)| (FileId(*id), *len));
        let page = rest.by_ref().take(PAGE.min(limit as usize)).collect();
        Ok((page, rest.next().is_some()))
    }

    fn verify(&self, server: ServerId) -> Result<(Vec<ObjectFinding>, bool)> {
        if self.silent == Some(server.0) {
            return Err(refused(ErrorKind::Io, "no answer"));
        }
        let found = self.damage.get(&server.0).cloned().unwrap_or_default();
        Ok((found, false))
    }

    fn store(&self, server: ServerId) -> Result<(u64, Option<StoreState>)> {
        let lost_below = self.lost_below.get(&server.0).copied();
        let store = self.stores.get(&server.0).copied();
        Ok((lost_below.unwrap_or(0), store))
    }

    fn ids(&self, paths: Vec<String>) -> Result<Vec<Result<FileId>>> {
        let files = self.files.borrow();
        let id = |path: &String| {
            let found = files.iter().find(|(_, (p, _))| p == path);
            found
                .map(|(id, _)| FileId(*id))
                .ok_or_else(|| refused(ErrorKind::NotFound, "not there"))
        };
        Ok(paths.iter().map(id).collect())
    }

    fn entries(
        &self,
        path: &str,
        after: Option<String>,
        limit: u32,
    ) -> Result<(Vec<(String, bool)>, bool)> {
        if self.bad_directory.as_deref() == Some(path) {
            return Err(refused(ErrorKind::Damaged, "an entry names nothing"));
        }
        let prefix = if path == "/" {
            "/".into()
        } else {
            format!("{path}/")
        };
        let files = self.files.borrow();
        let paths = files.values().map(|(path, _)| (path, false));
        let all: BTreeMap<String, bool> = self
            .directories
            .iter()
            .map(|path| (path, true))
            .chain(paths)
            .filter_map(|(path, directory)| Some((path.strip_prefix(&prefix)?, directory)))
            .filter(|(name, _)| !name.contains('/'))
            .map(|(name, directory)| (name.to_owned(), directory))
            .collect();
        let mut rest = all
            .into_iter()
            .filter(|(n, _)| after.as_ref().is_none_or(|a| n > a));
        let page = rest.by_ref().take(PAGE.min(limit as usize)).collect();
        Ok((page, rest.next().is_some()))
    }

    fn remove_object(&self, server: ServerId, object: FileId) -> Result<()> {
        self.objects.borrow_mut().remove(&(server.0, object.0));
        Ok(())
    }

    fn accept_object(&self, server: ServerId, object: FileId) -> Result<()> {
        if self.objects.borrow().contains_key(&(server.0, object.0)) {
            Ok(())
        } else {
            Err(refused(ErrorKind::NotFound, "no such object"))
        }
    }

    fn count_files(&self, repair: bool) -> Result<Vec<WrongCount>> {
        let wrong = self.wrong.borrow().clone();
        if repair {
            self.wrong.borrow_mut().clear();
        }
        Ok(wrong)
    }

    fn limited_users(&self) -> Result<BTreeMap<u32, u64>> {
        let mut heard = BTreeMap::new();
        for server in &self.servers {
            for user in self.counted(*server) {
                *heard.entry(user.uid).or_insert(self.misheard) += user.used;
            }
        }
        Ok(heard)
    }

    fn owners(&self, files: Vec<FileId>) -> Result<Vec<Option<u32>>> {
        let there = self.files.borrow();
        let owner = |file: FileId| {
            there
                .contains_key(&file.0)
                .then(|| self.limited.get(&file.0).copied().unwrap_or(1))
        };
        Ok(files.into_iter().map(owner).collect())
    }

    fn counted_bytes(&self, server: ServerId, anew: bool) -> Result<Vec<CountedBytes>> {
        if self.silent == Some(server.0) {
            return Err(refused(ErrorKind::Io, "gone"));
        }
        if anew && !self.incorrigible {
            let mut miscounted = self.miscounted.borrow_mut();
            miscounted.retain(|(of, _), _| *of != server.0);
        }
        Ok(self.counted(server))
    }

    fn pause(&self, _: Duration) {
        self.pauses.set(self.pauses.get() + 1);
        if let Some(hook) = &self.meanwhile {
            hook(self);
        }
    }
}

#[test]
fn a_consistent_deployment_is_clean() {
    let mut fake = (1..=10).fold(Fake::new(3), |fake, id| fake.with_file(3 * id));
    fake.directories = ["/a", "/a/b", "/a/c", "/d"].map(String::from).into();
    let report = fake.check(true);
    assert!(report.clean && report.complete, "{report:?}");
    assert_eq!((report.files, report.objects), (10, 30));
    assert_eq!(report.directories, 5);
    assert_eq!(
        report.object_bytes,
        3 * (1..=10).map(|id| 3 * id).sum::<u64>()
    );
    assert_eq!(fake.pauses.get(), 0, "nothing to wait for");
}

#[test]
fn orphans_are_reported_then_freed() {
    let fake = Fake::new(2)
        .with_file(5)
        .with_object(0, 1)
        .with_object(1, 9)
        .with_object(1, 5_000_000);
    let report = fake.check(false);
    assert!(!report.clean);
    assert_eq!(kinds(&report), [FindingKind::Orphan; 3]);
    assert_eq!((report.orphans, report.orphan_bytes), (3, 5_000_010));
    assert_eq!(report.freed, 0);
    assert_eq!(fake.left().len(), 5, "only reported");
    let report = fake.check(true);
    assert!(report.clean);
    assert_eq!((report.freed, report.freed_bytes), (3, 5_000_010));
    assert_eq!(fake.left(), [(0, 5), (1, 5)]);
    assert!(fake.check(false).findings.is_empty());
}

#[test]
fn what_goes_or_comes_meanwhile_is_no_orphan() {
    let mut fake = Fake::new(1).with_object(0, 7).with_object(0, 8);
    fake.meanwhile = Some(Box::new(|fake| {
        // The removal of 7 ends; the file of 8 was made after its id was looked for.
        fake.objects.borrow_mut().remove(&(0, 7));
        let layout = Layout::new(65536, vec![ServerId(0)]).unwrap();
        fake.files.borrow_mut().insert(8, ("/f8".into(), layout));
    }));
    let report = fake.check(true);
    assert!(report.clean && report.findings.is_empty(), "{report:?}");
    assert_eq!(fake.left(), [(0, 8)]);
}

#[test]
fn objects_the_metadata_never_knew_are_kept() {
    let mut fake = Fake::new(1)
        .with_file(50)
        .with_object(0, 60)
        .with_object(0, 700);
    fake.given = vec![(FileId(10), FileId(100)), (FileId(500), FileId(600))];
    let report = fake.check(true);
    assert_eq!(
        kinds(&report),
        [FindingKind::Orphan, FindingKind::UnknownObject]
    );
    assert!(!report.clean);
    assert_eq!(fake.left(), [(0, 50), (0, 700)]);
    let report = fake.check_with(CheckOptions {
        repair: true,
        free_unknown: true,
        ..CheckOptions::default()
    });
    assert!(report.clean);
    assert_eq!(fake.left(), [(0, 50)]);
}

#[test]
fn objects_newer_than_restored_metadata_are_kept() {
    let known = |server, generation, unsure: (u64, u64)| KnownStore {
        server,
        store: 7,
        generation,
        unsure: (FileId(unsure.0), FileId(unsure.1)),
    };
    let with = |generation, heard, unsure| {
        let mut fake = Fake::new(2)
            .with_file(50)
            .with_object(0, 20)
            .with_object(1, 30);
        let there = |generation, heard| StoreState::There {
            store: 7,
            generation,
            registered: true,
            heard,
        };
        fake.stores = [(0, there(generation, heard)), (1, there(5, true))].into();
        fake.known = vec![known(0, 5, unsure), known(1, 5, (0, 0))];
        fake
    };
    // One further on is usual: it has not been heard of yet.
    let fake = with(6, false, (0, 0));
    assert!(fake.check(true).clean);
    assert_eq!(fake.left(), [(0, 50), (1, 50)]);
    // The metadata were put back from an older copy while the data servers ran.
    let fake = with(6, true, (0, 0));
    let report = fake.check(true);
    let kinds_found = [
        FindingKind::OlderMetadata,
        FindingKind::UnknownObject,
        FindingKind::Orphan,
    ];
    assert_eq!(kinds(&report), kinds_found);
    assert!(!report.clean);
    assert_eq!(fake.left(), [(0, 20), (0, 50), (1, 50)]);
    // The store was adopted: on all servers those ids tell nothing.
    let fake = with(6, false, (20, 40));
    let report = fake.check(true);
    assert_eq!(kinds(&report), [FindingKind::UnknownObject; 2]);
    assert!(report.findings[0].message.contains("--free-unknown"));
    assert_eq!(fake.left().len(), 4);
}

#[test]
fn many_orphans_are_freed_only_on_a_word() {
    let some = |orphans| {
        let files = (1000..1000 + 2 * MANY).fold(Fake::new(1), |fake, id| fake.with_file(id));
        (1..=orphans).fold(files, |fake, id| fake.with_object(0, id))
    };
    assert!(some(HANDFUL).check(true).clean);
    let fake = some(HANDFUL + 1);
    let report = fake.check(true);
    assert_eq!((report.freed, report.held_back), (0, HANDFUL + 1));
    assert!(!report.clean && report.findings[0].message.contains("--free-many"));
    let told = CheckOptions {
        repair: true,
        free_many: true,
        ..CheckOptions::default()
    };
    assert!(fake.check_with(told).clean);
    assert_eq!(fake.left().len() as u64, 2 * MANY);
}

#[test]
fn nothing_is_freed_while_metadata_is_damaged() {
    let mut fake = Fake::new(1).with_file(5).with_file(50).with_object(0, 7);
    fake.unreadable = Some(50);
    let report = fake.check(true);
    assert_eq!(kinds(&report), [FindingKind::DamagedMetadata]);
    assert!(!report.clean && !report.complete);
    assert_eq!(fake.left().len(), 3);
}

#[test]
fn unreadable_directories_are_reported_and_others_still_read() {
    let mut fake = Fake::new(1);
    fake.directories = ["/a", "/b", "/b/c"].map(String::from).into();
    fake.bad_directory = Some("/a".into());
    let report = fake.check(false);
    assert_eq!(kinds(&report), [FindingKind::DamagedMetadata]);
    assert_eq!(report.findings[0].path.as_deref(), Some("/a"));
    assert_eq!(report.directories, 4);
}

#[test]
fn a_silent_server_is_a_finding_and_the_others_are_checked() {
    let mut fake = Fake::new(3)
        .with_file(5)
        .with_object(0, 6)
        .with_object(1, 6)
        .with_object(2, 6);
    fake.silent = Some(1);
    let report = fake.check(true);
    assert_eq!(
        kinds(&report),
        [
            FindingKind::SilentServer,
            FindingKind::Orphan,
            FindingKind::Orphan
        ]
    );
    assert!(!report.clean && !report.complete);
    assert_eq!(fake.left(), [(0, 5), (1, 5), (1, 6), (2, 5)]);
}

#[test]
fn wrong_places_are_reported_and_kept() {
    let fake = Fake::new(2).with_file(5);
    let one = |server| Layout::new(65536, vec![ServerId(server)]).unwrap();
    fake.files.borrow_mut().insert(6, ("/f6".into(), one(0)));
    fake.files.borrow_mut().insert(7, ("/f7".into(), one(9)));
    let fake = fake.with_object(1, 6);
    let report = fake.check(true);
    assert_eq!(
        kinds(&report),
        [FindingKind::MissingServer, FindingKind::MisplacedObject]
    );
    assert_eq!(report.findings[0].path.as_deref(), Some("/f7"));
    assert_eq!(report.findings[1].path.as_deref(), Some("/f6"));
    assert_eq!(fake.left().len(), 3);
}

#[test]
fn damage_in_stores_is_reported_with_the_path() {
    let mut fake = Fake::new(1).with_file(5);
    let found = |object: Option<u64>, problem| ObjectFinding {
        object: object.map(FileId),
        problem,
        message: "what, where".into(),
    };
    let short = ObjectProblem::Truncated {
        recorded: 10,
        actual: 4,
    };
    let found = vec![
        found(Some(5), short),
        found(Some(77), ObjectProblem::BadRecord),
        found(None, ObjectProblem::Foreign),
    ];
    fake.damage.insert(0, found);
    let report = fake.check(true);
    assert_eq!(
        kinds(&report),
        [
            FindingKind::TruncatedObject,
            FindingKind::DamagedRecord,
            FindingKind::ForeignFile
        ]
    );
    assert_eq!(report.findings[0].path.as_deref(), Some("/f5"));
    assert_eq!(report.findings[0].bytes, Some(4));
    assert_eq!(report.findings[1].path, None);
    assert!(!report.clean);
    let report = fake.check_with(CheckOptions {
        accept_damaged: true,
        ..CheckOptions::default()
    });
    let mended: Vec<bool> = report.findings.iter().map(|f| f.mended).collect();
    assert_eq!(
        mended,
        [true, false, false],
        "77 is not there, no object is foreign"
    );
}

#[test]
fn files_that_their_path_does_not_lead_to_are_reported() {
    let fake = Fake::new(1).with_file(5).with_file(6);
    fake.files.borrow_mut().get_mut(&6).unwrap().0 = "/f5".into();
    let report = fake.check(false);
    assert_eq!(kinds(&report), [FindingKind::DamagedMetadata]);
    assert_eq!(report.findings[0].file, Some(FileId(6)));
}

#[test]
fn findings_are_bounded_and_the_rest_counted() {
    let fake = (1..=50).fold(Fake::new(1), |fake, id| fake.with_object(0, id));
    let report = fake.check_with(CheckOptions {
        max_findings: 10,
        ..CheckOptions::default()
    });
    assert_eq!((report.findings.len(), report.more_findings), (10, 40));
    assert_eq!(report.orphans, 50);
    assert!(!report.clean);
}

#[test]
fn trees_are_walked_whole() {
    let mut fake = Fake::new(1);
    // Wide and deep, more than a page at each level.
    for a in 0..7 {
        fake.directories.insert(format!("/{a}"));
        for b in 0..7 {
            fake.directories.insert(format!("/{a}/{b}"));
        }
    }
    let mut deep = String::new();
    for _ in 0..100 {
        deep.push_str("/deep");
        fake.directories.insert(deep.clone());
    }
    assert_eq!(fake.check(false).directories, 1 + 7 + 49 + 100);
}

proptest! {
    /// Exactly the objects that no file has are freed, whatever the ids and pages.
    #[test]
    fn frees_exactly_the_difference(
        files in prop::collection::btree_set(0..60u64, 0..30),
        extra in prop::collection::btree_set((0..3u32, 0..60u64), 0..60),
    ) {
        let fake = files.iter().fold(Fake::new(3), |fake, id| fake.with_file(*id));
        let fake = extra.iter().fold(fake, |fake, (server, id)| fake.with_object(*server, *id));
        let orphans = extra.iter().filter(|(_, id)| !files.contains(id)).count() as u64;
        let report = fake.check_with(CheckOptions {
            repair: true,
            free_many: true,
            ..CheckOptions::default()
        });
        prop_assert_eq!((report.orphans, report.freed), (orphans, orphans));
        prop_assert!(report.clean);
        let expected: Vec<_> = (0..3).flat_map(|s| files.iter().map(move |id| (s, *id))).collect();
        prop_assert_eq!(fake.left(), expected);
    }
}

#[test]
fn reports_are_plain_json() {
    let fake = Fake::new(1).with_object(0, 3);
    let json = serde_json::to_value(fake.check(false)).unwrap();
    assert_eq!(json["clean"], false);
    assert_eq!(json["findings"][0]["kind"], "orphan");
    assert_eq!(json["findings"][0]["server"], 0);
    assert_eq!(json["findings"][0]["file"], 3);
}

#[test]
fn objects_that_stores_have_lost_are_named_by_their_files() {
    let missing = |id| ObjectFinding {
        object: Some(FileId(id)),
        problem: ObjectProblem::Missing,
        message: "it was synced, and its file is gone".into(),
    };
    let mut fake = Fake::new(2).with_file(3).with_file(5).with_file(9);
    // Server 1 was replaced when files 3 and 5 were there; of 5 it has been made anew. 7 has no file any more.
    fake.lost_below.insert(1, 8);
    fake.objects.borrow_mut().remove(&(1, 3));
    fake.damage.insert(0, vec![missing(9), missing(7)]);
    fake.objects.borrow_mut().remove(&(0, 9));
    let report = Checker::new(&fake, CheckOptions::default(), &mut |_| {})
        .run()
        .unwrap();
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|f| (f.kind, f.server, f.path.as_deref()))
        .collect();
    let lost = |server, path| (FindingKind::LostObject, Some(ServerId(server)), Some(path));
    assert_eq!(found, [lost(0, "/f9"), lost(1, "/f3")]);
    assert!(!report.clean);
}

#[test]
fn wrong_numbers_of_files_are_corrected() {
    let fake = Fake::new(1).with_file(1);
    fake.wrong.borrow_mut().push(WrongCount {
        uid: 7,
        noted: 5,
        counted: 4,
    });
    for (repair, clean, found) in [(false, false, 1), (true, true, 1), (false, true, 0)] {
        let report = fake.check(repair);
        assert_eq!((report.clean, report.findings.len()), (clean, found));
        assert!(
            report
                .findings
                .iter()
                .all(|f| f.kind == FindingKind::WrongCount
                    && f.mended == repair
                    && f.message.contains("user 7 has 4 files"))
        );
    }
}

/// User 7 has files 40 and 60 with objects of so many bytes on each of two servers.
fn with_limited_user() -> Fake {
    let mut fake = Fake::new(2).with_file(40).with_file(60).with_file(80);
    fake.limited = [(40, 7), (60, 7)].into();
    fake
}

#[test]
fn bytes_that_are_counted_right_are_no_finding() {
    let fake = with_limited_user();
    let report = fake.check(false);
    assert!(report.clean && report.findings.is_empty(), "{report:?}");
    assert_eq!((report.limited_users, report.uncompared), (1, 0));
    assert_eq!(fake.pauses.get(), 0, "nothing to wait for");
}

#[test]
fn bytes_that_are_counted_wrong_are_named_and_counted_anew() {
    for off in [30, -30] {
        let fake = with_limited_user();
        fake.miscounted.borrow_mut().insert((1, 7), off);
        let counts = 100 + off;
        for (repair, clean, found) in [(false, false, 1), (true, true, 1), (false, true, 0)] {
            let report = fake.check(repair);
            assert_eq!((report.clean, report.findings.len()), (clean, found));
            for finding in &report.findings {
                assert_eq!(finding.kind, FindingKind::WrongBytes);
                assert_eq!(finding.server, Some(ServerId(1)));
                let said = format!("user 7 has 100 bytes on data server 1, which counts {counts}");
                assert!(finding.message.starts_with(&said), "{}", finding.message);
            }
        }
    }
    let mut fake = with_limited_user();
    fake.miscounted.borrow_mut().insert((0, 7), 1);
    fake.incorrigible = true;
    let report = fake.check(true);
    assert!(!report.clean && !report.findings[0].mended);
    assert!(
        report.findings[0]
            .message
            .contains("start this data server")
    );
}

#[test]
fn bytes_that_change_meanwhile_are_not_judged() {
    let mut fake = with_limited_user();
    fake.miscounted.borrow_mut().insert((0, 7), 5);
    fake.meanwhile = Some(Box::new(|fake| {
        *fake.objects.borrow_mut().get_mut(&(0, 40)).unwrap() += 1;
    }));
    let report = fake.check(false);
    assert!(report.clean && report.findings.is_empty(), "{report:?}");
    assert_eq!(report.uncompared, 1);
}

#[test]
fn orphans_that_still_count_are_not_named_twice() {
    let fake = with_limited_user().with_object(1, 25);
    fake.miscounted.borrow_mut().insert((1, 7), 25);
    assert_eq!(kinds(&fake.check(false)), [FindingKind::Orphan]);
    fake.miscounted.borrow_mut().insert((1, 7), 26);
    let found = [FindingKind::Orphan, FindingKind::WrongBytes];
    assert_eq!(kinds(&fake.check(false)), found);
}

#[test]
fn bytes_that_the_metadata_server_has_not_heard_of_are_named() {
    let mut fake = with_limited_user();
    fake.misheard = 3;
    let report = fake.check(true);
    assert_eq!(kinds(&report), [FindingKind::WrongBytes]);
    assert!(!report.clean && report.findings[0].server.is_none());
    assert!(report.findings[0].message.contains("300 bytes of user 7"));
    assert!(report.findings[0].message.contains("knows of 303"));
}
