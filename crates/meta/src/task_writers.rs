//! Task writers: which task of a launcher's step writes which file.
//!
//! *Problem*: if the launcher is not that of the program's MPI library, each task is a program of one rank. Such tasks
//! write the same file without knowing of each other. *Idea*: such a task names its step before it opens a file for
//! writing or removes it. The first task of a step gets the file. Its entry survives the task, because tasks may run
//! one after another. *Bounds*: [`USERS`] users with [`FILES`] files each, the most recently used; nothing is stored.
//! *Source*: docs/decisions/0035.
use crate::recent::Recent;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Most files of one user.
const FILES: usize = 8192;
/// Most users.
const USERS: usize = 256;

/// The writing tasks of all users' steps.
#[derive(Debug, Default)]
pub struct TaskWriters {
    users: BTreeMap<u32, User>,
    /// Number of requests so far.
    now: u64,
}

#[derive(Debug)]
struct User {
    /// Task by step and path.
    writers: Recent<u64, u32>,
    heard: u64,
}

impl TaskWriters {
    /// Task `task` of a user's step is about to write the file. Returns the task that has it: the first one that asked.
    pub fn writer(&mut self, uid: u32, step: u64, path: &str, task: u32) -> u32 {
        self.now += 1;
        if !self.users.contains_key(&uid) && self.users.len() >= USERS {
            let idlest = self.users.iter().min_by_key(|(_, user)| user.heard);
            if let Some(idlest) = idlest.map(|(uid, _)| *uid) {
                self.users.remove(&idlest);
            }
        }
        let user = self.users.entry(uid).or_insert_with(|| User {
            writers: Recent::new(FILES),
            heard: 0,
        });
        user.heard = self.now;
        let mut file = DefaultHasher::new();
        (step, path).hash(&mut file);
        let file = file.finish();
        if let Some(first) = user.writers.get(&file) {
            return first;
        }
        user.writers.insert(file, task);
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_task_of_a_step_has_the_file() {
        let mut steps = TaskWriters::default();
        assert_eq!(steps.writer(7, 1, "/a", 3), 3);
        assert_eq!(steps.writer(7, 1, "/a", 0), 3);
        assert_eq!(steps.writer(7, 1, "/a", 3), 3);
        // Another file, another step, another user.
        assert_eq!(steps.writer(7, 1, "/b", 0), 0);
        assert_eq!(steps.writer(7, 2, "/a", 0), 0);
        assert_eq!(steps.writer(8, 1, "/a", 0), 0);
    }

    #[test]
    fn users_and_their_files_are_bounded() {
        let mut steps = TaskWriters::default();
        for file in 0..3 * FILES {
            steps.writer(7, 1, &file.to_string(), 0);
        }
        assert_eq!(steps.writer(7, 1, "0", 1), 1, "the oldest is forgotten");
        let last = (3 * FILES - 1).to_string();
        assert_eq!(steps.writer(7, 1, &last, 1), 0);
        for uid in 100..100 + 2 * USERS as u32 {
            steps.writer(uid, 1, "/a", 0);
            steps.writer(7, 1, &last, 0);
        }
        assert_eq!(steps.users.len(), USERS);
        assert_eq!(steps.writer(7, 1, &last, 1), 0, "whoever asks stays");
    }
}
