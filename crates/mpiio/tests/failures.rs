//! A failure is a failure on every rank, soon, and with a message; no rank hangs.
use crate::common::{Memory, TestFileSystem, byte, of};
use penstock_datatype::{Loop, Source};
use penstock_mpiio::testing::{ThreadComm, run};
use penstock_mpiio::{Amode, Comm, DataRep, ErrorClass, File, Info, Where};
use std::sync::{Barrier, Mutex};

fn view(file: &File, rank: usize) {
    let tile = of(Loop::bytes(100).resized(0, 300).unwrap());
    file.set_view(
        100 * rank as i64,
        &byte(),
        &tile,
        DataRep::Native,
        &Info::new(),
    )
    .unwrap();
}

#[test]
fn a_server_that_goes_away_is_an_error_of_every_rank() {
    for method in [
        "auto",
        "posix",
        "sieve",
        "two-phase",
        "list",
        "datatype",
        "node-exchange",
        "resonant",
    ] {
        let site = Mutex::new(TestFileSystem::servers(2));
        let place = site.lock().unwrap().environment.clone();
        let meeting = Barrier::new(3);
        run(3, |comm| {
            let rank = comm.rank();
            let process = std::sync::Arc::new(penstock_mpiio::Process::new(place.clone()));
            let hints = Info::from_iter([("penstock_method", method)]);
            let amode = Amode::RDWR | Amode::CREATE;
            let file =
                File::open_in(&process, Box::new(comm), "penstock:gone", amode, &hints).unwrap();
            view(&file, rank);
            let memory = Memory::filled(&Loop::bytes(1), 50_000, rank);
            file.write(Where::At(0), true, &mut memory.source(), &byte())
                .unwrap();
            meeting.wait();
            if rank == 0 {
                site.lock().unwrap().stop_server(1);
            }
            meeting.wait();
            let written = file.write(Where::At(0), true, &mut memory.source(), &byte());
            let e = written.unwrap_err();
            assert_eq!(e.class, ErrorClass::Io, "{method} rank {rank}: {e}");
            assert!(e.message.contains("data server 1"), "{e}");
            let mut back = Memory::new(&Loop::bytes(1), 50_000);
            let read = file.read(Where::At(0), true, &mut back.target(), &byte());
            assert_eq!(
                read.unwrap_err().class,
                ErrorClass::Io,
                "{method} rank {rank}"
            );
            assert_eq!(file.sync().unwrap_err().class, ErrorClass::Io);
            // Closing needs no server.
            file.close().unwrap();
        });
    }
}

#[test]
fn an_open_without_servers_says_where_it_looked() {
    let site = TestFileSystem::servers(1);
    let mut environment = site.environment.clone();
    drop(site);
    let open = |environment: &penstock_mpiio::Environment| {
        let process = std::sync::Arc::new(penstock_mpiio::Process::new(environment.clone()));
        let comm = ThreadComm::group(1).remove(0);
        File::open_in(
            &process,
            Box::new(comm),
            "penstock:x",
            Amode::RDONLY,
            &Info::new(),
        )
        .err()
        .unwrap()
    };
    let e = open(&environment);
    assert!(e.message.contains("deployment.toml"), "{e}");
    environment.deployment = None;
    let e = open(&environment);
    assert!(e.message.contains("PENSTOCK_DEPLOYMENT"), "{e}");
}

#[test]
fn a_rank_without_permission_fails_the_open_of_all() {
    let site = TestFileSystem::direct();
    std::fs::create_dir(site.path("dir")).unwrap();
    run(2, |comm| {
        let opened = File::open_in(
            &site.process(),
            Box::new(comm),
            &site.path("dir"),
            Amode::RDWR,
            &Info::new(),
        );
        let e = opened.err().unwrap();
        assert_eq!(e.class, ErrorClass::BadFile, "{e}");
    });
}

/// Collective writes between regular syncs meet now and then for early write-back. The others' error is reported there,
/// on all ranks, and nothing is written.
#[test]
fn a_write_before_which_the_devices_begin_tells_an_error_that_is_owed() {
    const EACH: usize = 8 << 20;
    for site in [TestFileSystem::direct(), TestFileSystem::servers(2)] {
        run(2, |comm| {
            let rank = comm.rank();
            let file = site.open(
                comm,
                "behind",
                &[
                    ("penstock_method", "datatype"),
                    ("penstock_shortcut", "enable"),
                ],
            );
            let bytes = vec![b'a' + rank as u8; EACH];
            let write = |call: usize| {
                let at = ((call * 2 + rank) * EACH) as i64;
                let mut source = Source::from_slice(&bytes);
                file.write(Where::At(at), true, &mut source, &byte())
            };
            // 16 MiB per rank are two calls: after the next sync, before the third.
            for call in 0..4 {
                write(call).unwrap();
            }
            file.sync().unwrap();
            write(0).unwrap();
            let mut source = Source::from_slice(&bytes);
            let at = if rank == 1 { -1 } else { 0 };
            let outcome = file.write(Where::At(at), true, &mut source, &byte());
            assert_eq!(outcome.is_err(), rank == 1);
            let len = file.size().unwrap();
            let met = write(10).unwrap_err();
            assert!(
                met.message.contains("rank 1") && met.message.contains("before this call"),
                "{met}"
            );
            assert_eq!(file.size().unwrap(), len);
            write(3).unwrap();
            file.sync().unwrap();
            for call in 0..4 {
                write(call).unwrap();
            }
            file.sync().unwrap();
            // A rank that syncs while others write gets an error.
            for call in 0..2 {
                write(call).unwrap();
            }
            let wrong = if rank == 1 {
                file.sync()
            } else {
                write(2).map(drop)
            };
            assert_eq!(wrong.unwrap_err().class, ErrorClass::NotSame);
            file.close().unwrap();
        });
    }
}
