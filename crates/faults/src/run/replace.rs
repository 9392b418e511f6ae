//! A data server's store is replaced by an empty disk, an older copy, or another server's store.
//!
//! The server must refuse each and name the cause. Then an administrator either puts the right store back, and nothing
//! is lost. Or a new one replaces it, and lost bytes are an error until they are accepted: never zeros, never old
//! bytes.
use super::{Driver, Later};
use crate::disk::{Aside, Item};
use crate::effects::Effect;
use crate::plan::StoreFault;
use crate::world::{MachineId, Nanos, SECOND, lock};

/// A replaced store.
pub(super) struct Replaced {
    with: StoreFault,
    /// Whether a new store is made instead of putting the right one back.
    renew: bool,
    /// The right store.
    aside: Aside,
}

impl Driver {
    /// Copies the store of a server that is down for a moment: after its next start the copy is outdated.
    pub(super) fn copy_store(&mut self, machine: MachineId, down: Nanos) -> Result<(), String> {
        let now = self.now();
        if !self.flipped.contains_key(&machine) && self.kill(machine)? {
            let copied = self.copy_of(machine)?;
            self.copies.insert(machine, copied);
            self.later.push((now + down, Later::Start(machine)));
        }
        Ok(())
    }

    fn copy_of(&self, machine: MachineId) -> Result<Vec<Item>, String> {
        let copied = self.world.state().disks[machine].copy();
        copied.map_err(|e| e.to_string())
    }

    /// Replaces a server's store.
    pub(super) fn replace_store(
        &mut self,
        machine: MachineId,
        with: StoreFault,
        renew: bool,
    ) -> Result<(), String> {
        let items = match with {
            StoreFault::Lost => Some(Vec::new()),
            StoreFault::Older => self.copies.get(&machine).cloned(),
            StoreFault::Anothers => {
                let other = machine % self.shape.servers + 1;
                let whole =
                    !self.flipped.contains_key(&other) && !self.replaced.contains_key(&other);
                whole.then(|| self.copy_of(other)).transpose()?
            }
        };
        let touched = self.flipped.contains_key(&machine) || self.replaced.contains_key(&machine);
        let Some(items) = items.filter(|_| !touched) else {
            return Ok(());
        };
        if !self.kill(machine)? {
            return Ok(());
        }
        let aside = self.root.join(format!("aside-{machine}"));
        let put = || -> std::io::Result<Aside> {
            let disk = &mut self.world.state().disks[machine];
            let aside = disk.set_aside(aside)?;
            disk.put(&items)?;
            Ok(aside)
        };
        let aside = put().map_err(|e| e.to_string())?;
        let replaced = Replaced { with, renew, aside };
        self.replaced.insert(machine, replaced);
        self.effects.count(Effect::ReplacedStore);
        self.later
            .push((self.now() + SECOND / 5, Later::Start(machine)));
        Ok(())
    }

    /// A server has started: checks whether it accepted a store that is not its own.
    pub(super) fn has_started(&mut self, machine: MachineId) {
        if let Some(replaced) = self.replaced.remove(&machine) {
            // Its wrong data will show in what the clients read.
            self.taken.push((machine, replaced.with));
        }
        self.cluster.renew(machine, false);
    }

    /// A server's start failed. True if that was because of its store, which an administrator has then dealt with.
    pub(super) fn refused(&mut self, machine: MachineId, why: &str) -> Result<bool, String> {
        let Some(replaced) = self.replaced.get(&machine) else {
            return Ok(false);
        };
        let named = match replaced.with {
            StoreFault::Lost => why.contains("is empty"),
            StoreFault::Older => why.contains("older copy"),
            StoreFault::Anothers => why.contains("belongs to server"),
        };
        if !named {
            // The disk has another fault too.
            return Ok(false);
        }
        let Some(Replaced { with, renew, aside }) = self.replaced.remove(&machine) else {
            return Ok(false);
        };
        self.say(&format!("server {machine}: renewed {renew} after {with:?}"));
        let now = self.now();
        let io = |e: std::io::Error| e.to_string();
        if renew {
            // Accepted objects are taken as they are; those of an older copy have its old bytes. The disk is emptied,
            // so that they read as zeros.
            if with != StoreFault::Lost {
                let disk = &mut self.world.state().disks[machine];
                disk.clear().map_err(io)?;
            }
            self.cluster.renew(machine, true);
            self.records.retain(|(of, ..)| *of != machine);
            let mut history = lock(&self.history);
            history.server_ended(machine, now, true);
            history.hurt = true;
            drop(history);
            self.effects.count(Effect::LostStore);
        } else {
            let disk = &mut self.world.state().disks[machine];
            disk.put_back(aside).map_err(io)?;
        }
        Ok(true)
    }
}
