//! A store that becomes full, and one that fails in the middle of a read. The client gets an error, the connection and
//! all other clients continue.
use crate::common::*;
use penstock_layout::{FileId, ObjectOffset, ServerId};
use penstock_server::{Options, start_on};
use penstock_store::{Finding, Object, Store, StoreError};
use penstock_wire::message::{DataReply, DataRequest, ErrorKind};
use std::sync::Arc;

/// The memory store, but nothing can be written from `limit` on, nor read across `broken`.
struct Failing {
    inner: Box<dyn Store>,
    limit: u64,
    broken: u64,
}

struct FailingObject {
    inner: Arc<dyn Object>,
    limit: u64,
    broken: u64,
}

impl Store for Failing {
    fn open(&self, id: FileId, create: bool) -> Result<Arc<dyn Object>, StoreError> {
        Ok(Arc::new(FailingObject {
            inner: self.inner.open(id, create)?,
            limit: self.limit,
            broken: self.broken,
        }))
    }
    fn remove(&self, id: FileId) -> Result<(), StoreError> {
        self.inner.remove(id)
    }
    fn list_after(
        &self,
        after: Option<FileId>,
        limit: usize,
    ) -> Result<Vec<(FileId, u64)>, StoreError> {
        self.inner.list_after(after, limit)
    }
    fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync()
    }
    fn incarnation(&self) -> [u8; 16] {
        self.inner.incarnation()
    }
    fn space(&self) -> Result<(u64, u64), StoreError> {
        self.inner.space()
    }
    fn verify(&self, report: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        self.inner.verify(report)
    }
    fn accept(&self, id: FileId) -> Result<(), StoreError> {
        self.inner.accept(id)
    }
    fn describe(&self) -> String {
        "failing store".into()
    }
}

impl Object for FailingObject {
    fn read_at(&self, at: ObjectOffset, buf: &mut [u8]) -> Result<usize, StoreError> {
        if (at.0..at.0 + buf.len() as u64).contains(&self.broken) {
            return Err(StoreError::Io {
                what: "read",
                path: "the broken disk".into(),
                source: std::io::Error::from_raw_os_error(5),
            });
        }
        self.inner.read_at(at, buf)
    }
    fn write_at(&self, at: ObjectOffset, buf: &[u8]) -> Result<(), StoreError> {
        if at.0 + buf.len() as u64 > self.limit {
            return Err(StoreError::Full("failing store".into()));
        }
        self.inner.write_at(at, buf)
    }
    fn len(&self) -> Result<u64, StoreError> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.inner.set_len(len)
    }
    fn allocate(&self, at: ObjectOffset, len: u64) -> Result<(), StoreError> {
        self.inner.allocate(at, len)
    }
    fn sync(&self) -> Result<(), StoreError> {
        self.inner.sync()
    }
}

fn site(limit: u64, broken: u64) -> TestDeployment {
    let dir = tempfile::tempdir().unwrap();
    let deployment = deployment(dir.path(), 1, "memory");
    let store = Failing {
        inner: penstock_store::open("memory", &deployment.id, 0).unwrap(),
        limit,
        broken,
    };
    let server = start_on(
        &deployment,
        ServerId(0),
        Options::default(),
        Box::new(store),
    )
    .unwrap();
    let seals = deployment.meta_identity().unwrap().seals();
    TestDeployment {
        dir,
        deployment,
        servers: vec![server],
        seals,
    }
}

#[test]
fn a_full_store_is_told_and_what_fits_stays() {
    let site = site(1 << 20, u64::MAX);
    let (mut c, h) = site.open(0, 1);
    let data = vec![7; 3 << 20];
    // In the middle of a transfer of several frames: the rest of it is taken off the connection.
    let reply = c.write_with(h, contiguous(0, 3 << 20), None, &data, 100_000);
    assert_eq!(kind(&reply), ErrorKind::NoSpace);
    let DataReply::Error(e) = reply else { panic!() };
    assert!(e.message.contains("failing store is full"), "{e}");
    let kept = c.read(h, contiguous(0, 3 << 20));
    assert!(kept.len() <= 1 << 20 && kept.iter().all(|b| *b == 7));
    c.write(h, contiguous(0, 100), &[8; 100]);
    assert_eq!(c.read(h, contiguous(0, 100)), [8; 100]);
    // Pipelined small ones: each has its own answer.
    for i in 0..10u64 {
        c.send_write(h, contiguous((1 << 20) - 5 + i, 1), None, &[9], 1);
    }
    for i in 0..10 {
        match c.answer().1 {
            DataReply::Written { bytes: 1 } => assert!(i < 5),
            other => assert!(i >= 5 && kind(&other) == ErrorKind::NoSpace),
        }
    }
    assert!(matches!(
        c.ask(DataRequest::Shortcut { handle: h }),
        DataReply::NoShortcut { .. }
    ));
}

#[test]
fn an_error_in_the_middle_of_a_read_is_its_final_status() {
    let site = site(u64::MAX, 1_500_000);
    let (mut c, h) = site.open(0, 1);
    let data = vec![7; 2 << 20];
    c.write(h, contiguous(0, 2 << 20), &data);
    c.queue(&DataRequest::Read {
        handle: h,
        region: contiguous(0, 2 << 20),
        lock: None,
    });
    let (_, reply, payload) = c.answer();
    assert_eq!(kind(&reply), ErrorKind::Io);
    // What came before the error is good data.
    assert!(!payload.is_empty() && payload.len() <= 1_500_000);
    assert!(payload.iter().all(|b| *b == 7));
    assert_eq!(c.read(h, contiguous(0, 1000)), [7; 1000]);
}

/// This one cannot extend in one step: writers are kept away meanwhile.
#[test]
fn extending_cuts_nothing_off_where_it_takes_two_steps() {
    appended_and_extended(&site(u64::MAX, u64::MAX));
}
