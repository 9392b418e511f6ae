//! Files that the kernel reads and writes by itself (FUSE_PASSTHROUGH).
//!
//! *Problem*: each read and write through the daemon costs two context switches and a copy. Yet a file with one server
//! on this host is one local file. *Idea*: the data server lends that file ([`File::lend`]), and the kernel accesses it
//! directly. *When*: the first open of a file decides, because the kernel requires one kind for all opens of it:
//!
//! | first open | later ones, until the last is closed |
//! | --- | --- |
//! | the owner writes, lent for writing | all are passed through; other users' writes go through the daemon |
//! | reads, lent for reading | those that read are passed through; who writes, asks: bytes go through the daemon |
//! | another user writes, not lent, or to append | all go through the daemon |
//!
//! Appends always go through the daemon, because they are serialised over all hosts. Mappings follow the first open, so
//! that all see the same memory. Range locks wait as long as a file is lent for writing, so only its owner can make
//! them wait. Once the last writer has closed a file that was lent for writing, range locks need not wait for its
//! readers. The server is told so.
use fuser::BackingId;
use penstock_client::File;
use penstock_layout::FileId;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who transfers the bytes of an open file.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// The daemon.
    Daemon,
    /// The kernel, for writing.
    Writer(Arc<BackingId>),
    /// The kernel, for reading only.
    Reader(Arc<BackingId>),
    /// The daemon, while the kernel serves other opens; mappings are the kernel's.
    Beside(Arc<BackingId>),
}

/// How one file is open, decided by the first open.
#[derive(Debug)]
enum Node {
    Daemon(String),
    Kernel {
        backing: Arc<BackingId>,
        descriptor: OwnedFd,
        /// Whether it is lent for writing.
        marked: bool,
        writers: usize,
    },
}

#[derive(Debug, Default)]
struct Slot {
    /// Number of opens.
    opens: usize,
    node: Arc<Mutex<Option<Node>>>,
}

/// All open files of a mount.
#[derive(Debug)]
pub(crate) struct Passthrough {
    /// True until the kernel refuses passthrough.
    on: AtomicBool,
    slots: Mutex<HashMap<FileId, Slot>>,
    /// Wakes opens that wait for the last close of a file.
    closed: Condvar,
}

/// Longest delay of a close from the kernel.
const CLOSE: Duration = Duration::from_millis(500);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is a single step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an open requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub write: bool,
    pub append: bool,
    /// Whether the caller owns the file, or is root.
    pub owner: bool,
}

impl Passthrough {
    pub(crate) fn new(on: bool) -> Passthrough {
        Passthrough {
            on: AtomicBool::new(on),
            slots: Mutex::default(),
            closed: Condvar::new(),
        }
    }

    /// Passthrough is not available in this kernel, or not allowed here.
    pub(crate) fn disable(&self, why: &str) {
        if self.on.swap(false, Relaxed) {
            log::info!("no passthrough: {why}; bytes go through the daemon");
        }
    }

    /// Decides who transfers the bytes of a newly opened file. `register` passes its descriptor to the kernel. Each
    /// call needs a [`Passthrough::close`].
    pub(crate) fn open(
        &self,
        file: &File,
        wanted: Wanted,
        register: impl FnOnce(&OwnedFd) -> std::io::Result<BackingId>,
    ) -> Way {
        let node = {
            let mut slots = locked(&self.slots);
            let slot = slots.entry(file.id()).or_default();
            slot.opens += 1;
            slot.node.clone()
        };
        // A second open waits here for the decision of the first.
        let mut node = locked(&node);
        let node = node.get_or_insert_with(|| self.decide(file, wanted, register));
        match node {
            Node::Daemon(_) => Way::Daemon,
            Node::Kernel { backing, .. } if wanted.append => Way::Beside(backing.clone()),
            Node::Kernel { backing, .. } if !wanted.write => Way::Reader(backing.clone()),
            Node::Kernel {
                backing,
                marked: true,
                writers,
                ..
            } if wanted.owner => {
                *writers += 1;
                file.written_by_kernel();
                Way::Writer(backing.clone())
            }
            Node::Kernel { backing, .. } => Way::Beside(backing.clone()),
        }
    }

    fn decide(
        &self,
        file: &File,
        wanted: Wanted,
        register: impl FnOnce(&OwnedFd) -> std::io::Result<BackingId>,
    ) -> Node {
        if !self.on.load(Relaxed) {
            return Node::Daemon("this mount has no passthrough".into());
        }
        if wanted.append {
            return Node::Daemon("opened to append".into());
        }
        if wanted.write && !wanted.owner {
            return Node::Daemon("opened for writing by another user than its owner".into());
        }
        if wanted.write && file.attributes().mode & 0o6000 != 0 {
            return Node::Daemon("a write clears its set-user-ID and set-group-ID bits".into());
        }
        let descriptor = match file.lend(wanted.write) {
            Ok(descriptor) => descriptor,
            Err(reason) => return Node::Daemon(reason),
        };
        match register(&descriptor) {
            Ok(backing) => Node::Kernel {
                backing: Arc::new(backing),
                descriptor,
                marked: wanted.write,
                writers: 0,
            },
            Err(e) => {
                let why = match e.kind() {
                    std::io::ErrorKind::PermissionDenied => {
                        "it takes a mount by root (CAP_SYS_ADMIN)".to_owned()
                    }
                    _ => format!("the kernel refuses the descriptor: {e}"),
                };
                self.disable(&why);
                Node::Daemon(why)
            }
        }
    }

    /// The kernel has closed a file.
    pub(crate) fn close(&self, id: FileId, way: &Way) {
        let mut slots = locked(&self.slots);
        let Some(slot) = slots.get_mut(&id) else {
            return;
        };
        if matches!(way, Way::Writer(_))
            && let Some(Node::Kernel {
                descriptor,
                marked,
                writers,
                ..
            }) = &mut *locked(&slot.node)
        {
            *writers -= 1;
            if *writers == 0 {
                *marked = false;
                if let Err(e) = rustix::fs::flock(&*descriptor, rustix::fs::FlockOperation::Unlock)
                {
                    log::warn!("range locks on file {} wait for its readers: {e}", id.0);
                }
            }
        }
        slot.opens -= 1;
        if slot.opens == 0 {
            slots.remove(&id);
            self.closed.notify_all();
        }
    }

    /// How a file is open here, as text.
    pub(crate) fn describe(&self, id: FileId) -> String {
        let node = match locked(&self.slots).get(&id) {
            None => return "closed".into(),
            Some(slot) => slot.node.clone(),
        };
        let node = locked(&node);
        match &*node {
            None => "closed".into(),
            Some(Node::Daemon(why)) => format!("daemon: {why}"),
            Some(Node::Kernel { marked: true, .. }) => "passthrough: reads and writes".into(),
            Some(Node::Kernel { .. }) => "passthrough: reads".into(),
        }
    }

    /// Whether the kernel still has the file open for itself. It reports a close with a delay.
    pub(crate) fn stays(&self, id: FileId) -> bool {
        let end = Instant::now() + CLOSE;
        let mut slots = locked(&self.slots);
        loop {
            let Some(node) = slots.get(&id).map(|slot| slot.node.clone()) else {
                return false;
            };
            let left = end.saturating_duration_since(Instant::now());
            if !matches!(&*locked(&node), Some(Node::Kernel { .. })) {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            let waited = self.closed.wait_timeout(slots, left);
            slots = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
