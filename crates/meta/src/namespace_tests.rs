//! The name space against a model: a map from paths to nodes, with the rules written naively.
use super::*;
use crate::layers::Layers;
use crate::node::ROOT;
use crate::pending::Pending;
use crate::placement::Placement;
use crate::store::Store;
use penstock_layout::ServerId;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names in plain maps.
#[derive(Default)]
struct Maps {
    nodes: BTreeMap<u64, Arc<Node>>,
    entries: BTreeMap<(u64, String), u64>,
    last: u64,
}

impl Names for Maps {
    fn node(&self, id: FileId) -> Result<Option<Arc<Node>>> {
        Ok(self.nodes.get(&id.0).cloned())
    }
    fn entry(&self, parent: FileId, name: &str) -> Result<Option<FileId>> {
        let id = self.entries.get(&(parent.0, name.to_owned()));
        Ok(id.copied().map(FileId))
    }
    fn entries(
        &self,
        parent: FileId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, FileId)>> {
        let page = self
            .entries
            .iter()
            .filter(|((p, name), _)| *p == parent.0 && after.is_none_or(|a| name.as_str() > a))
            .map(|((_, name), id)| (name.clone(), FileId(*id)));
        Ok(page.take(limit).collect())
    }
    fn nodes(&self, after: Option<FileId>, limit: usize) -> Result<Vec<(FileId, Arc<Node>)>> {
        let page = self
            .nodes
            .iter()
            .filter(|(id, _)| after.is_none_or(|a| **id > a.0))
            .map(|(id, node)| (FileId(*id), node.clone()));
        Ok(page.take(limit).collect())
    }
    fn put_node(&mut self, id: FileId, node: Node) {
        self.nodes.insert(id.0, node.into());
    }
    fn remove_node(&mut self, id: FileId, _: &Node) {
        self.nodes.remove(&id.0);
    }
    fn put_entry(&mut self, parent: FileId, name: &str, id: FileId) {
        self.entries.insert((parent.0, name.into()), id.0);
    }
    fn remove_entry(&mut self, parent: FileId, name: &str) {
        self.entries.remove(&(parent.0, name.into()));
    }
    fn new_id(&mut self, _: NodeKind) -> Result<FileId> {
        self.last = self.last.max(ROOT.0) + 1;
        Ok(FileId(self.last))
    }
    fn room(&self, _: u32, _: i64) -> Result<()> {
        Ok(())
    }
    fn charge(&mut self, _: FileId, _: Option<u32>, _: u32, _: i64) {}
    fn may_be_durable(&self, _: FileId) -> bool {
        true
    }
}

fn placement() -> Placement {
    Placement::new(vec![ServerId(0), ServerId(1)], 65536).unwrap()
}

fn in_maps() -> Namespace<Maps> {
    let mut maps = Maps::default();
    let mut root = Namespace::<Maps>::root(0, 1, 1);
    root.mode = 0o777;
    maps.put_node(ROOT, root);
    Namespace::new(maps, placement())
}

fn user(uid: u32) -> Caller {
    Caller {
        uid,
        gid: uid,
        ..Caller::default()
    }
}

const BOTH: How = How {
    read: true,
    write: true,
    create: None,
    exclusive: false,
};

// ---- the model ----

#[derive(Debug, Clone, PartialEq, Eq)]
struct Thing {
    id: u64,
    directory: bool,
    mode: u32,
}

#[derive(Default)]
struct Model {
    things: BTreeMap<String, Thing>,
}

type Outcome<T> = std::result::Result<T, ErrorKind>;

impl Model {
    fn parent(path: &str) -> &str {
        path.rsplit_once('/').map_or("", |(parent, _)| parent)
    }

    /// All ancestors exist and are directories.
    fn way(&self, path: &str) -> Outcome<()> {
        let parent = Model::parent(path);
        if parent.is_empty() {
            return Ok(());
        }
        self.way(parent)?;
        match self.things.get(parent) {
            None => Err(ErrorKind::NotFound),
            Some(t) if !t.directory => Err(ErrorKind::NotDirectory),
            Some(_) => Ok(()),
        }
    }

    fn get(&self, path: &str) -> Outcome<&Thing> {
        self.way(path)?;
        self.things.get(path).ok_or(ErrorKind::NotFound)
    }

    fn children(&self, path: &str) -> Vec<String> {
        let prefix = format!("{path}/");
        let inside = self.things.keys().filter_map(|p| p.strip_prefix(&prefix));
        inside
            .filter(|n| !n.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    /// `Ok(true)`: it would be created.
    fn open(&self, path: &str, create: bool, exclusive: bool) -> Outcome<bool> {
        match self.get(path) {
            Ok(_) if create && exclusive => Err(ErrorKind::Exists),
            Ok(t) if t.directory => Err(ErrorKind::IsDirectory),
            Ok(_) => Ok(false),
            Err(ErrorKind::NotFound) if create => self.way(path).map(|()| true),
            Err(e) => Err(e),
        }
    }

    fn unlink(&mut self, path: &str) -> Outcome<()> {
        if self.get(path)?.directory {
            return Err(ErrorKind::IsDirectory);
        }
        self.things.remove(path);
        Ok(())
    }

    fn rmdir(&mut self, path: &str) -> Outcome<()> {
        if !self.get(path)?.directory {
            return Err(ErrorKind::NotDirectory);
        }
        if !self.children(path).is_empty() {
            return Err(ErrorKind::NotEmpty);
        }
        self.things.remove(path);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Outcome<()> {
        let moved = self.get(from)?.clone();
        if moved.directory && to.starts_with(&format!("{from}/")) {
            return Err(ErrorKind::InvalidArgument);
        }
        self.way(to)?;
        if from == to {
            return Ok(());
        }
        if let Some(there) = self.things.get(to) {
            match (moved.directory, there.directory) {
                (true, false) => return Err(ErrorKind::NotDirectory),
                (false, true) => return Err(ErrorKind::IsDirectory),
                (true, true) if !self.children(to).is_empty() => return Err(ErrorKind::NotEmpty),
                _ => {}
            }
        }
        let inside = format!("{from}/");
        let paths: Vec<String> = self.things.keys().cloned().collect();
        for path in paths {
            let new = if path == from {
                to.to_owned()
            } else if let Some(rest) = path.strip_prefix(&inside) {
                format!("{to}/{rest}")
            } else {
                continue;
            };
            let thing = self.things.remove(&path).unwrap();
            self.things.insert(new, thing);
        }
        Ok(())
    }
}

// ---- the comparison ----

#[derive(Debug, Clone)]
enum Step {
    Open(String, bool, bool),
    Mkdir(String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String),
    Chmod(String, u32),
    /// Commit; true: also stop and restart.
    Commit(bool),
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-c]", 1..4).prop_map(|names| format!("/{}", names.join("/")))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (path(), any::<bool>(), any::<bool>()).prop_map(|(p, c, e)| Step::Open(p, c, e)),
        4 => path().prop_map(Step::Mkdir),
        2 => path().prop_map(Step::Unlink),
        2 => path().prop_map(Step::Rmdir),
        4 => (path(), path()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => (path(), 0..0o1000u32).prop_map(|(p, m)| Step::Chmod(p, m)),
        1 => any::<bool>().prop_map(Step::Commit),
    ]
}

/// Applies a step to both; they must agree on the outcome.
fn apply<N: Names>(space: &mut Namespace<N>, model: &mut Model, now: i64, step: &Step) {
    let boss = Caller {
        privileged: true,
        ..user(5)
    };
    let options = CreateOptions {
        mode: 0o640,
        ..CreateOptions::default()
    };
    match step {
        Step::Open(path, create, exclusive) => {
            let how = How {
                create: create.then_some(&options),
                exclusive: *exclusive,
                ..BOTH
            };
            let real = space.open(now, &boss, path, &how);
            match (&real, model.open(path, *create, *exclusive)) {
                (Ok((attributes, true)), Ok(true)) => {
                    let thing = Thing {
                        id: attributes.id.0,
                        directory: false,
                        mode: 0o640,
                    };
                    assert!(
                        !model.things.values().any(|t| t.id == thing.id),
                        "id used again"
                    );
                    model.things.insert(path.clone(), thing);
                }
                (Ok((attributes, false)), Ok(false)) => {
                    assert_eq!(attributes.id.0, model.things[path].id);
                }
                (Err(e), Err(kind)) => assert_eq!(e.kind, kind, "{step:?}: {e}"),
                (real, expected) => panic!("{step:?}: {real:?} instead of {expected:?}"),
            }
        }
        Step::Mkdir(path) => {
            let expected = match model.get(path) {
                Ok(_) => Err(ErrorKind::Exists),
                Err(ErrorKind::NotFound) => model.way(path),
                Err(e) => Err(e),
            };
            let real = space.mkdir(now, &boss, path, 0o750);
            assert_eq!(real.map_err(|e| e.kind), expected, "{step:?}");
            if expected.is_ok() {
                let thing = Thing {
                    id: space.stat(&boss, path, false).unwrap().id.0,
                    directory: true,
                    mode: 0o750,
                };
                model.things.insert(path.clone(), thing);
            }
        }
        Step::Unlink(path) => {
            let id = model.get(path).map(|t| t.id);
            let expected = model.unlink(path);
            let real = space.unlink(now, &boss, path);
            if expected.is_ok() {
                assert_eq!(real.clone().unwrap().unwrap().file.0, id.unwrap());
            }
            assert_eq!(real.map(drop).map_err(|e| e.kind), expected, "{step:?}");
        }
        Step::Rmdir(path) => {
            let real = space.rmdir(now, &boss, path).map_err(|e| e.kind);
            assert_eq!(real, model.rmdir(path), "{step:?}");
        }
        Step::Rename(from, to) => {
            let replaced = model
                .get(to)
                .ok()
                .cloned()
                .filter(|t| !t.directory && from != to);
            let expected = model.rename(from, to);
            let real = space.rename(now, &boss, from, to);
            if expected.is_ok() {
                let removed = real.clone().unwrap().map(|r| r.file.0);
                assert_eq!(removed, replaced.map(|t| t.id), "{step:?}");
            }
            assert_eq!(real.map(drop).map_err(|e| e.kind), expected, "{step:?}");
        }
        Step::Chmod(path, mode) => {
            let change = Change {
                mode: Some(*mode),
                ..Change::default()
            };
            let real = space.set_attributes(now, &boss, path, &change);
            match model.get(path).map(|_| ()) {
                Ok(()) => {
                    assert_eq!(real.unwrap().mode, *mode);
                    model.things.get_mut(path).unwrap().mode = *mode;
                }
                Err(kind) => assert_eq!(real.unwrap_err().kind, kind, "{step:?}"),
            }
        }
        Step::Commit(_) => {}
    }
}

/// Every path, id, mode, link count and listing is as in the model, and nothing else exists.
fn compare<N: Names>(space: &Namespace<N>, model: &Model) {
    let boss = Caller {
        privileged: true,
        ..user(5)
    };
    let mut directories = vec![String::new()];
    for (path, thing) in &model.things {
        let real = space.stat(&boss, path, false).unwrap();
        assert_eq!((real.id.0, real.mode), (thing.id, thing.mode), "{path}");
        assert_eq!(real.kind == NodeKind::Directory, thing.directory, "{path}");
        if thing.directory {
            directories.push(path.clone());
        }
    }
    for path in directories {
        let children = model.children(&path);
        let shown = if path.is_empty() { "/" } else { &path };
        // Pages of two.
        let mut listed: Vec<String> = Vec::new();
        loop {
            let after = listed.last().cloned();
            let page = space
                .readdir(&boss, shown, after.as_deref(), 2, 1 << 20)
                .unwrap();
            listed.extend(page.items.iter().map(|(name, _)| name.clone()));
            if !page.more {
                break;
            }
            assert_eq!(page.items.len(), 2);
        }
        assert_eq!(listed, children, "{shown}");
        let below = children
            .iter()
            .filter(|n| model.things[&format!("{path}/{n}")].directory)
            .count();
        let links = space.stat(&boss, shown, false).unwrap().nlink as usize;
        assert_eq!(links, 2 + below, "links of {shown}");
    }
    let mut files = Vec::new();
    loop {
        let after = files.last().map(|(id, _)| FileId(*id));
        let page = space.files(after, 2, 1 << 20).unwrap();
        files.extend(page.items.iter().map(|(id, path, _)| (id.0, path.clone())));
        if !page.more {
            break;
        }
    }
    let mut expected: Vec<_> = model
        .things
        .iter()
        .filter(|(_, t)| !t.directory)
        .map(|(path, t)| (t.id, path.clone()))
        .collect();
    expected.sort();
    assert_eq!(files, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn behaves_like_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let (mut space, mut model) = (in_maps(), Model::default());
        for (now, step) in steps.iter().enumerate() {
            apply(&mut space, &mut model, now as i64, step);
        }
        compare(&space, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 50, ..ProptestConfig::default() })]
    /// The same over the real store, with partial commits, complete commits and restarts in between.
    #[test]
    fn behaves_like_the_model_on_the_store(steps in prop::collection::vec(step(), 1..120)) {
        let dir = tempfile::tempdir().unwrap();
        let root = Namespace::<Layers>::root(0, 1, 1);
        let open = || {
            let (mut store, snapshot) = Store::open(dir.path(), "d", &root, u64::MAX, &crate::change_log::MemoryLog::default()).unwrap();
            let mut layers = Layers::new(snapshot, 0).unwrap();
            let reserved = layers.freeze();
            layers.committed(store.commit(&reserved).unwrap());
            (store, Namespace::new(layers, placement()))
        };
        let (mut store, mut space) = open();
        let mut model = Model::default();
        let mut under_way: Option<Arc<Pending>> = None;
        for (now, step) in steps.iter().enumerate() {
            apply(&mut space, &mut model, now as i64, step);
            let Step::Commit(restart) = step else { continue };
            // One commit is started at each of these steps and finished at the next.
            if let Some(frozen) = under_way.take() {
                compare(&space, &model);
                space.names_mut().committed(store.commit(&frozen).unwrap());
            }
            under_way = Some(space.names_mut().freeze());
            if *restart {
                let frozen = under_way.take().unwrap();
                space.names_mut().committed(store.commit(&frozen).unwrap());
                let totals = space.names().totals();
                drop(space);
                drop(store);
                (store, space) = open();
                let found = space.names().totals();
                assert_eq!((found.files, found.directories), (totals.files, totals.directories));
            }
        }
        compare(&space, &model);
        let files = model.things.values().filter(|t| !t.directory).count() as u64;
        let directories = model.things.len() as u64 - files + 1;
        let totals = space.names().totals();
        assert_eq!((totals.files, totals.directories), (files, directories));
        let layers = space.names_mut();
        let (accounts, _) = layers.accounts().page(None, 100);
        assert_eq!(accounts.iter().map(|a| a.files).sum::<u64>(), files + directories);
        let count = layers.accounts_mut().begin_count();
        let found = layers.count_files(count, 1000, false, 0).unwrap();
        assert_eq!(found.map(|found| found.wrong), Some(Vec::new()));
    }
}

// ---- permissions and particular cases ----

fn create(space: &mut Namespace<Maps>, who: &Caller, path: &str, mode: u32) -> Outcome<Attributes> {
    let options = CreateOptions {
        mode,
        ..CreateOptions::default()
    };
    let how = How {
        create: Some(&options),
        exclusive: true,
        ..BOTH
    };
    let made = space.open(0, who, path, &how);
    made.map(|(attributes, _)| attributes).map_err(|e| e.kind)
}

/// What another user may do in and below a directory, for each of its eight permission triplets.
#[test]
fn permission_matrix_of_operations() {
    for bits in 0..8u32 {
        let mut space = in_maps();
        let (owner, other) = (user(10), user(20));
        space.mkdir(0, &owner, "/d", 0o777).unwrap();
        create(&mut space, &owner, "/d/f", 0o666).unwrap();
        create(&mut space, &owner, "/d/g", 0o666).unwrap();
        create(&mut space, &owner, "/outside", 0o666).unwrap();
        let mode = Change {
            mode: Some(0o770 | bits),
            ..Change::default()
        };
        space.set_attributes(0, &owner, "/d", &mode).unwrap();
        let (r, w, x) = (bits & 4 != 0, bits & 2 != 0, bits & 1 != 0);
        let s = &mut space;
        let check = |what: &str, result: Outcome<()>, allowed: bool| {
            let expected = if allowed {
                Ok(())
            } else {
                Err(ErrorKind::Permission)
            };
            assert_eq!(result, expected, "{what} with {bits:o}");
        };
        let kind = |e: penstock_wire::message::WireError| e.kind;
        check(
            "stat in it",
            s.stat(&other, "/d/f", false).map(drop).map_err(kind),
            x,
        );
        check(
            "stat of it",
            s.stat(&other, "/d", false).map(drop).map_err(kind),
            true,
        );
        check(
            "open in it",
            s.open(1, &other, "/d/f", &BOTH).map(drop).map_err(kind),
            x,
        );
        let listed = s.readdir(&other, "/d", None, 9, 1 << 20);
        check("readdir", listed.map(drop).map_err(kind), r);
        check(
            "create",
            create(s, &other, "/d/new", 0o600).map(drop),
            w && x,
        );
        check(
            "mkdir",
            s.mkdir(1, &other, "/d/dir", 0o700).map_err(kind),
            w && x,
        );
        check(
            "rename in it",
            s.rename(1, &other, "/d/f", "/d/h").map(drop).map_err(kind),
            w && x,
        );
        check(
            "rename into it",
            s.rename(1, &other, "/outside", "/d/o")
                .map(drop)
                .map_err(kind),
            w && x,
        );
        check(
            "unlink",
            s.unlink(1, &other, "/d/g").map(drop).map_err(kind),
            w && x,
        );
        let made = if w && x {
            s.rmdir(1, &other, "/d/dir")
        } else {
            Ok(())
        };
        check("rmdir", made.map_err(kind), true);
        let chmod = s.set_attributes(1, &other, "/d", &mode);
        assert_eq!(chmod.map(drop).map_err(kind), Err(ErrorKind::NotOwner));
    }
}

#[test]
fn file_modes_hold_openers_but_not_their_creator() {
    let mut space = in_maps();
    let (owner, other) = (user(10), user(20));
    create(&mut space, &owner, "/f", 0o004).expect("its creator gets it open");
    for (who, read, write, allowed) in [
        (&other, true, false, true),
        (&other, false, true, false),
        (&other, true, true, false),
        (&owner, true, false, false),
    ] {
        let how = How {
            read,
            write,
            ..BOTH
        };
        let opened = space.open(1, who, "/f", &how).map(drop);
        let expected = if allowed {
            Ok(())
        } else {
            Err(ErrorKind::Permission)
        };
        assert_eq!(
            opened.map_err(|e| e.kind),
            expected,
            "{who:?} {read} {write}"
        );
    }
}

#[test]
fn attributes_change_for_owners_only_and_are_given_away_by_root_only() {
    let mut space = in_maps();
    let (owner, other) = (user(10), user(20));
    let root = Caller {
        privileged: true,
        ..user(0)
    };
    create(&mut space, &owner, "/f", 0o600).unwrap();
    let give = Change {
        uid: Some(20),
        ..Change::default()
    };
    let group = |gid| Change {
        gid: Some(gid),
        ..Change::default()
    };
    let times = Change {
        mtime: Some(When::At(7)),
        atime: Some(When::At(8)),
        ..Change::default()
    };
    let mut set = |who: &Caller, change: &Change| {
        space
            .set_attributes(99, who, "/f", change)
            .map_err(|e| e.kind)
    };
    assert_eq!(set(&other, &times), Err(ErrorKind::NotOwner));
    assert_eq!(set(&owner, &give), Err(ErrorKind::NotOwner));
    assert_eq!(set(&owner, &group(33)), Err(ErrorKind::NotOwner));
    assert!(set(&owner, &group(10)).is_ok());
    let a = set(&owner, &times).unwrap();
    assert_eq!((a.mtime_ns, a.atime_ns, a.ctime_ns), (7, 8, 99));
    assert_eq!(set(&root, &give).unwrap().uid, 20);
    assert!(set(&other, &times).is_ok(), "the new owner");
}

#[test]
fn set_gid_directories_pass_their_group_on() {
    let mut space = in_maps();
    let (owner, other) = (user(10), user(20));
    space.mkdir(0, &owner, "/d", 0o2777).unwrap();
    assert_eq!(create(&mut space, &other, "/d/f", 0o600).unwrap().gid, 10);
    space.mkdir(0, &other, "/d/e", 0o700).unwrap();
    let inner = space.stat(&other, "/d/e", false).unwrap();
    assert_eq!((inner.gid, inner.mode), (10, 0o2700));
}

#[test]
fn changes_of_entries_change_the_times_of_their_directory() {
    let mut space = in_maps();
    let who = user(10);
    let time = |space: &Namespace<Maps>| space.stat(&who, "/d", false).unwrap().mtime_ns;
    space.mkdir(5, &who, "/d", 0o700).unwrap();
    space.mkdir(6, &who, "/d/e", 0o700).unwrap();
    assert_eq!(time(&space), 6);
    space.rename(7, &who, "/d/e", "/e").unwrap();
    assert_eq!(time(&space), 7);
    assert_eq!(space.stat(&who, "/", false).unwrap().mtime_ns, 7);
    assert_eq!(
        space.stat(&who, "/e", false).unwrap().mtime_ns,
        6,
        "its own stay"
    );
    space.rename(8, &who, "/e", "/d/e").unwrap();
    space.rmdir(9, &who, "/d/e").unwrap();
    assert_eq!(time(&space), 9);
}

#[test]
fn the_root_stays() {
    let mut space = in_maps();
    let who = user(10);
    let kind = |e: penstock_wire::message::WireError| e.kind;
    assert_eq!(
        space.unlink(0, &who, "/").map_err(kind),
        Err(ErrorKind::IsDirectory)
    );
    assert_eq!(
        space.rmdir(0, &who, "/").map_err(kind),
        Err(ErrorKind::InvalidArgument)
    );
    assert_eq!(
        space.mkdir(0, &who, "/", 0).map_err(kind),
        Err(ErrorKind::Exists)
    );
    assert_eq!(
        space.open(0, &who, "/", &BOTH).map_err(kind),
        Err(ErrorKind::IsDirectory)
    );
    assert_eq!(
        space.rename(0, &who, "/", "/a").map_err(kind),
        Err(ErrorKind::InvalidArgument)
    );
    space.mkdir(0, &who, "/a", 0o700).unwrap();
    assert_eq!(
        space.rename(0, &who, "/a", "/").map_err(kind),
        Err(ErrorKind::InvalidArgument)
    );
    assert_eq!(space.stat(&who, "/", false).unwrap().id, ROOT);
}

#[test]
fn pages_fit_the_room() {
    let mut space = in_maps();
    let who = user(10);
    for i in 0..50 {
        create(&mut space, &who, &format!("/{i:02}"), 0o600).unwrap();
    }
    let page = space.readdir(&who, "/", None, 50, 1000).unwrap();
    assert!(page.more && (1..10).contains(&page.items.len()));
    assert_eq!(
        space.readdir(&who, "/", None, 50, 1).unwrap().items.len(),
        1
    );
    assert_eq!(space.files(None, 50, 1).unwrap().items.len(), 1);
}

/// Inconsistent records are reported as damage and not followed.
#[test]
fn disagreeing_records_are_damage() {
    let mut space = in_maps();
    let who = user(10);
    space.mkdir(0, &who, "/d", 0o700).unwrap();
    let made = create(&mut space, &who, "/d/f", 0o600).unwrap();
    space.names_mut().put_entry(ROOT, "g", made.id);
    let kind = |r: Result<Attributes>| r.map_err(|e| e.kind).map(drop);
    assert_eq!(kind(space.stat(&who, "/g", false)), Err(ErrorKind::Damaged));
    let directory = space.stat(&who, "/d", false).unwrap().id;
    space
        .names_mut()
        .remove_node(directory, &Node::new(NodeKind::Directory));
    assert_eq!(kind(space.stat(&who, "/d", false)), Err(ErrorKind::Damaged));
    assert_eq!(
        space.files(None, 9, 1 << 20).map(drop).unwrap_err().kind,
        ErrorKind::Damaged
    );
}
