//! Objects without a file: which of them are orphans, and which may be newer than the metadata.
use super::{Candidate, CheckFinding, Checker, FindingKind, HANDFUL, Inventory, MANY};
use crate::error::Result;
use penstock_layout::{FileId, ServerId};
use penstock_wire::message::StoreState;
use std::collections::HashSet;

/// What the metadata know of ids and stores.
#[derive(Default)]
pub(super) struct Knowledge {
    given: Vec<(FileId, FileId)>,
    /// Only newer metadata may have known files with these ids.
    unsure: Vec<(FileId, FileId)>,
    /// Servers whose stores are newer than these metadata.
    newer: HashSet<ServerId>,
}

impl Knowledge {
    /// Whether an object without a file is sure to have lost it.
    fn is_orphan(&self, server: ServerId, object: FileId) -> bool {
        let within = |ranges: &[(FileId, FileId)]| {
            let holds = |(first, end): &(FileId, FileId)| (*first..*end).contains(&object);
            ranges.iter().any(holds)
        };
        within(&self.given) && !within(&self.unsure) && !self.newer.contains(&server)
    }
}

/// An object that has no file.
struct Lone {
    server: ServerId,
    object: FileId,
    bytes: u64,
    orphan: bool,
}

impl<I: Inventory> Checker<'_, I> {
    /// Queries what the metadata know of ids and stores. Stores are asked first: the metadata then know everything that
    /// a store has received.
    pub(super) fn compare_stores(&mut self) -> Result<()> {
        let servers = self.inventory.servers();
        let found: Vec<_> = servers
            .into_iter()
            // Who does not answer is named by what follows.
            .filter_map(|server| Some((server, self.inventory.store(server).ok()?.1?)))
            .collect();
        let (given, stores) = self.inventory.given_ids()?;
        self.knowledge.given = given;
        let ranges = stores.iter().map(|store| store.unsure);
        self.knowledge.unsure = ranges.filter(|(first, end)| first < end).collect();
        for (server, state) in found {
            let StoreState::There {
                store,
                generation,
                heard,
                ..
            } = state
            else {
                continue;
            };
            let known = stores.iter().find(|known| known.server == server.0);
            let what = match known {
                None => "these metadata do not know it".to_owned(),
                Some(known) if known.store != store => "these metadata know another".to_owned(),
                Some(known) if generation > known.generation + u64::from(!heard) => {
                    let known = known.generation;
                    format!("generation {generation}, and these metadata know {known}")
                }
                Some(_) => continue,
            };
            self.knowledge.newer.insert(server);
            let n = server.0;
            self.find(CheckFinding {
                kind: FindingKind::OlderMetadata,
                server: Some(server),
                file: None,
                path: None,
                bytes: None,
                mended: false,
                message: format!(
                    "the store of data server {n} is newer than the metadata ({what}): these are an older copy or new; put the newest back, or start with `penstock up --adopt-store {n}`"
                ),
            });
        }
        Ok(())
    }

    /// Checks the candidates again; those still without a file are orphans.
    pub(super) fn settle(&mut self) -> Result<()> {
        let candidates = std::mem::take(&mut self.candidates);
        if candidates.is_empty() {
            return Ok(());
        }
        self.inventory.pause(self.options.grace);
        let mut silent: HashSet<ServerId> = HashSet::new();
        let mut alone = Vec::new();
        for Candidate { server, object } in candidates {
            if silent.contains(&server) {
                continue;
            }
            let after = object.0.checked_sub(1).map(FileId);
            let bytes = match self.inventory.objects(server, after, 1) {
                Ok((page, _)) => page.first().filter(|(id, _)| *id == object).map(|o| o.1),
                Err(e) => {
                    self.silent(server, &e);
                    silent.insert(server);
                    continue;
                }
            };
            let Some(bytes) = bytes else { continue };
            // After the object: a file is made before its objects.
            let file = match self.file(object) {
                Ok(file) => file,
                Err(e) => {
                    // Nothing can be told for sure.
                    return self.damaged(e, None);
                }
            };
            if file.is_none() {
                let orphan = self.knowledge.is_orphan(server, object);
                alone.push(Lone {
                    server,
                    object,
                    bytes,
                    orphan,
                });
            }
        }
        let orphans = alone.iter().filter(|lone| lone.orphan).count() as u64;
        let many = orphans > HANDFUL && orphans.saturating_mul(MANY) > self.report.objects;
        let held_back = many && self.options.repair && !self.options.free_many;
        for lone in alone {
            self.alone(&lone, held_back);
        }
        Ok(())
    }

    /// An object was removed: its damage need not be accepted any more.
    fn damage_is_gone(&mut self, server: ServerId, object: FileId) {
        for finding in &mut self.report.findings {
            let damage = matches!(
                finding.kind,
                FindingKind::DamagedRecord | FindingKind::TruncatedObject
            );
            if damage
                && !finding.mended
                && finding.server == Some(server)
                && finding.file == Some(object)
            {
                finding.mended = true;
                self.open -= 1;
            }
        }
    }

    fn alone(&mut self, lone: &Lone, held_back: bool) {
        let Lone {
            server,
            object,
            bytes,
            orphan,
        } = *lone;
        self.report.orphans += 1;
        self.report.orphan_bytes += bytes;
        let (kind, advice) = if !orphan {
            (
                FindingKind::UnknownObject,
                "no file has it, and it may be newer than the metadata, which are an older copy or new; put the newest back, or copy the object away before `penstock check --free-unknown` frees it",
            )
        } else if held_back {
            (
                FindingKind::Orphan,
                "no file has it; there are so many of these that names may be lost: if they are not, `penstock check --repair --free-many` frees it",
            )
        } else {
            (
                FindingKind::Orphan,
                "no file has it; `penstock check --repair` frees it",
            )
        };
        let free = self.options.repair
            && if orphan {
                !held_back
            } else {
                self.options.free_unknown
            };
        self.report.held_back += u64::from(orphan && held_back);
        let result = free.then(|| self.inventory.remove_object(server, object));
        let (mended, what) = match result {
            Some(Ok(())) => {
                self.report.freed += 1;
                self.report.freed_bytes += bytes;
                self.damage_is_gone(server, object);
                (true, "freed: no file had it".to_owned())
            }
            Some(Err(e)) => (
                false,
                format!("no file has it, and it cannot be freed: {e}"),
            ),
            None => (false, advice.to_owned()),
        };
        self.find(CheckFinding {
            kind,
            server: Some(server),
            file: Some(object),
            path: None,
            bytes: Some(bytes),
            mended,
            message: format!(
                "object {} of {bytes} bytes on data server {}: {what}",
                object.0, server.0
            ),
        });
    }
}
