//! Semantics of MPI-4.1 chapter 14: modes, views, pointers, forms of call, representations, errors.
/// Runs a test on every kind of place.
macro_rules! everywhere {
    ($($name:ident),* $(,)?) => {
        mod direct {
            $(#[test] fn $name() { super::$name(&super::TestFileSystem::direct()); })*
        }
        mod servers {
            $(#[test] fn $name() { super::$name(&super::TestFileSystem::servers(3)); })*
        }
    };
}

mod agreement;
mod forms;
mod open;
mod pointers;
mod representations;
mod views;

use crate::common::{Memory, TestFileSystem, byte, mark, of};
use penstock_datatype::{Elem, ElemKind, Loop, Pattern, Signature, Source, Target};
use penstock_mpiio::testing::{ThreadComm, run};
use penstock_mpiio::{
    Amode, Comm, DISPLACEMENT_CURRENT, DataRep, Datatype, ErrorClass, File, Info, Whence, Where,
};
use std::sync::{Mutex, mpsc};

fn rdwr() -> Amode {
    Amode::RDWR | Amode::CREATE
}

fn try_open(
    site: &TestFileSystem,
    comm: ThreadComm,
    name: &str,
    amode: Amode,
) -> Result<File, ErrorClass> {
    File::open_in(
        &site.process(),
        Box::new(comm),
        &site.path(name),
        amode,
        &Info::new(),
    )
    .map_err(|e| {
        assert!(e.message.len() > 20, "{e}");
        e.class
    })
}

fn write_at(file: &File, at: i64, bytes: &[u8]) -> penstock_mpiio::Result<u64> {
    file.write(
        Where::At(at),
        false,
        &mut Source::from_slice(bytes),
        &byte(),
    )
}

fn read_at(file: &File, at: i64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    let got = file
        .read(
            Where::At(at),
            false,
            &mut Target::from_slice(&mut bytes),
            &byte(),
        )
        .unwrap();
    bytes.truncate(got as usize);
    bytes
}

fn set_view(file: &File, disp: i64, filetype: &Loop) {
    file.set_view(
        disp,
        &byte(),
        &of(filetype.clone()),
        DataRep::Native,
        &Info::new(),
    )
    .unwrap();
}
