//! Shared parts of the tests: places to run in, and patterns with their flat models.
use penstock_datatype::{Loop, Pattern, Source, Target};
use penstock_layout::ServerId;
use penstock_mpiio::{Amode, Comm, Datatype, Environment, File, Info, Process};
use penstock_rpc::RunningServer;
use penstock_rpc::deployment::{Address, DataServer, Deployment, MetaServer, Transport};
use penstock_wire::Key;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A file system to test on.
pub struct TestFileSystem {
    pub environment: Environment,
    servers: Vec<RunningServer>,
    pub dir: TempDir,
}

impl Drop for TestFileSystem {
    fn drop(&mut self) {
        for server in self.servers.drain(..) {
            server.stop();
        }
    }
}

impl TestFileSystem {
    pub fn direct() -> TestFileSystem {
        TestFileSystem {
            dir: scratch(),
            environment: Environment {
                direct: true,
                ..Environment::default()
            },
            servers: Vec::new(),
        }
    }

    /// A metadata server and data servers on directories, with a small stripe unit, in this process.
    pub fn servers(count: u32) -> TestFileSystem {
        let dir = scratch();
        let at = |name: &str| dir.path().join(name);
        let address = |name: &str| Address {
            unix: Some(at(name)),
            tcp: None,
            identity: None,
        };
        let mut deployment = Deployment {
            id: Deployment::new_id().unwrap(),
            name: "test".into(),
            stripe_unit: 1000,
            mount: None,
            tune: Vec::new(),
            client_key: at("client.key"),
            former_server_key: None,
            generation: 1,
            other_keys: None,
            authority: None,
            authority_key: None,
            munge: None,
            meta: MetaServer {
                address: address("meta.sock"),
                store: at("meta"),
                identity_key: None,
                host: None,
            },
            servers: (0..count)
                .map(|i| DataServer {
                    id: ServerId(i),
                    address: address(&format!("data{i}.sock")),
                    store: format!("dir:{}", at(&format!("store{i}")).display()),
                    identity_key: None,
                    host: None,
                })
                .collect(),
            transport: Transport::default(),
        };
        Key::generate()
            .unwrap()
            .save(&deployment.client_key)
            .unwrap();
        deployment.make_keys(dir.path()).unwrap();
        let file = at("deployment.toml");
        deployment.save(&file).unwrap();
        let mut servers: Vec<_> = (0..count)
            .map(|i| {
                let options = penstock_server::Options::default();
                penstock_server::start(&deployment, ServerId(i), options).unwrap()
            })
            .collect();
        servers.push(penstock_meta::start(&deployment, penstock_meta::Options::default()).unwrap());
        TestFileSystem {
            environment: Environment {
                deployment: Some(file),
                patience: Some(Duration::from_millis(100)),
                ..Environment::default()
            },
            servers,
            dir,
        }
    }

    /// Ends a data server, as a failure of its host would.
    pub fn stop_server(&mut self, index: usize) {
        self.servers.remove(index).stop();
    }

    /// A separate process, as each rank has one.
    pub fn process(&self) -> Arc<Process> {
        Arc::new(Process::new(self.environment.clone()))
    }

    pub fn path(&self, name: &str) -> String {
        if self.environment.direct {
            self.dir.path().join(name).to_str().unwrap().to_owned()
        } else {
            format!("penstock:{name}")
        }
    }

    pub fn open(&self, comm: impl Comm + 'static, name: &str, hints: &[(&str, &str)]) -> File {
        self.open_mode(comm, name, Amode::RDWR | Amode::CREATE, hints)
    }

    pub fn open_mode(
        &self,
        comm: impl Comm + 'static,
        name: &str,
        amode: Amode,
        hints: &[(&str, &str)],
    ) -> File {
        let info = Info::from_iter(hints.iter().copied());
        File::open_in(
            &self.process(),
            Box::new(comm),
            &self.path(name),
            amode,
            &info,
        )
        .unwrap()
    }

    /// All bytes of a file, by one plain read of one rank.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let [comm] = penstock_mpiio::testing::ThreadComm::group(1)
            .try_into()
            .unwrap_or_else(|_| panic!());
        let file = self.open_mode(comm, name, Amode::RDONLY, &[("penstock_method", "posix")]);
        let mut bytes = vec![0; file.size().unwrap() as usize];
        let n = bytes.len() as u64;
        let got = file
            .read(
                penstock_mpiio::Where::At(0),
                false,
                &mut Target::from_slice(&mut bytes),
                &byte(),
            )
            .unwrap();
        assert_eq!(got, n);
        file.close().unwrap();
        bytes
    }
}

/// A directory in memory if there is one: the tests sync often and do not concern disks.
fn scratch() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap_or_else(|_| TempDir::new().unwrap())
}

pub fn byte() -> Datatype {
    Datatype::byte()
}

/// A datatype of bytes with the layout of a loop.
pub fn of(layout: Loop) -> Datatype {
    Datatype::opaque(layout).unwrap()
}

/// Regions (offset, length) of a range of a tiled loop, computed naively.
pub fn flatten(pattern: &Pattern) -> Vec<(i64, u64)> {
    let mut regions = Vec::new();
    let mut cursor = pattern.cursor();
    while let Some(run) = cursor.next_run(u64::MAX) {
        regions.push((run.offset, run.len));
    }
    regions
}

/// A byte that identifies its origin.
pub fn mark(rank: usize, stream: u64) -> u8 {
    (stream.wrapping_mul(37) ^ (stream >> 8).wrapping_mul(11) ^ (rank as u64).wrapping_mul(101))
        as u8
        | 1
}

/// A memory buffer whose stream bytes are a rank's marks, or zero for reading.
pub struct Memory {
    pub bytes: Vec<u8>,
    pub base: usize,
    pub pattern: Pattern,
}

impl Memory {
    /// `len` stream bytes of a tiled loop; the buffer has margins on both sides and is filled with 0xEE.
    pub fn new(tile: &Loop, len: u64) -> Memory {
        let pattern = Pattern::new(0, tile.clone(), 0, len).unwrap();
        let (lo, hi) = pattern.bounds();
        let (lo, hi) = (lo.min(0), hi.max(0));
        let bytes = vec![0xEE; (hi - lo) as usize + 64];
        Memory {
            bytes,
            base: (32 - lo) as usize,
            pattern,
        }
    }

    pub fn filled(tile: &Loop, len: u64, rank: usize) -> Memory {
        let mut memory = Memory::new(tile, len);
        let mut at = 0;
        for (offset, len) in flatten(&memory.pattern) {
            for i in 0..len {
                let place = (memory.base as i64 + offset) as u64 + i;
                memory.bytes[place as usize] = mark(rank, at);
                at += 1;
            }
        }
        memory
    }

    pub fn source(&self) -> Source<'_> {
        // SAFETY: the buffer was made large enough for the pattern.
        unsafe { Source::new(self.bytes.as_ptr().add(self.base), self.pattern.clone()) }
    }

    pub fn target(&mut self) -> Target<'_> {
        // SAFETY: as above, borrowed exclusively.
        unsafe { Target::new(self.bytes.as_mut_ptr().add(self.base), self.pattern.clone()) }
    }

    /// The stream bytes.
    pub fn stream(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (offset, len) in flatten(&self.pattern) {
            let at = (self.base as i64 + offset) as usize;
            out.extend_from_slice(&self.bytes[at..at + len as usize]);
        }
        out
    }

    /// Checks that no byte outside the pattern has changed.
    pub fn check_surroundings(&self) {
        let mut inside = vec![false; self.bytes.len()];
        for (offset, len) in flatten(&self.pattern) {
            let at = (self.base as i64 + offset) as usize;
            inside[at..at + len as usize].fill(true);
        }
        let stray = self
            .bytes
            .iter()
            .zip(inside)
            .position(|(b, inside)| !inside && *b != 0xEE);
        assert_eq!(stray, None, "a byte outside the datatype was written");
    }
}
