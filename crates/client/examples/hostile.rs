//! Hostile clients, and a well-behaved one, against a running deployment.
//!
//! `hostile attack DEPLOYMENT CONNECTIONS SECONDS SEED [WAY]` opens connections to all servers in turn. Each misbehaves
//! in one of the ways of [`Way`] until the time is over. It knows the client key, as any program on a compute node
//! would. It prints one JSON line: what was tried, and what a server should have refused and did not. With WAY, such as
//! `Flood`, all of them misbehave in that way.
//!
//! `hostile good DEPLOYMENT SECONDS` writes, reads back and compares by requests, and asks for a name each time. It
//! prints its rate, its slowest round and its errors.
//!
//! `hostile hold DEPLOYMENT FILES [shortcuts]` opens so many files, writes to each on every server and prints one line.
//! At the end of its input it reads everything back, syncs and closes the files. It prints its errors and how many
//! files this process had open.
mod raw;

use penstock_client::{Client, ClientOptions, Form, Identity, OpenOptions};
use penstock_datatype::{Loop, Pattern, Source, Target};
use penstock_layout::{FileId, Layout};
use penstock_rpc::deployment::{Address, Deployment};
use penstock_rpc::{Connection, Timeouts, connect};
use penstock_wire::frame::{self, HANDSHAKE_VERSION, Header, Limits, VERSION};
use penstock_wire::handshake::Hello;
use penstock_wire::message::{
    Capability, CreateOptions, DataReply, DataRequest, Handle, LockMode, MetaReply, MetaRequest,
    Region, TraceContext,
};
use penstock_wire::{Envelope, Key, LinkName, Rights, Role, SealKeys};
use raw::{Result, ask};
use serde::Serialize;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How a connection misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Connects and says nothing.
    Stranger,
    /// Begins the handshake and never ends it.
    HalfHandshake,
    /// Random bytes instead of a handshake.
    Rubbish,
    /// Good requests with changed bits, cut or doubled.
    Fuzz,
    /// Announces the largest message there may be, or a larger one, and sends a byte now and then.
    Sizes,
    /// A good handshake, then silence.
    Silent,
    /// Small requests as fast as they go.
    Flood,
    /// Asks for megabytes and never reads an answer.
    Deaf,
    /// Takes all the locks it gets, and waits for more.
    Hoarder,
    /// Capabilities that are forged, widened or expired.
    Forger,
    /// Accesses of 2^60 pieces, described in a hundred bytes.
    Endless,
    /// Announces a message and a payload of a mebibyte each, and sends nothing of them.
    Announcer,
}

const WAYS: [Way; 12] = [
    Way::Stranger,
    Way::HalfHandshake,
    Way::Rubbish,
    Way::Fuzz,
    Way::Sizes,
    Way::Silent,
    Way::Flood,
    Way::Deaf,
    Way::Hoarder,
    Way::Forger,
    Way::Endless,
    Way::Announcer,
];

const MIB: u64 = 1 << 20;
/// How long a hostile connection waits for anything: it looks at the clock this often.
const TICK: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    refused_connections: AtomicU64,
    requests: AtomicU64,
    locks: AtomicU64,
    refusals: AtomicU64,
    breaches: AtomicU64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let at = |i: usize| {
        arguments
            .get(i)
            .map(String::as_str)
            .ok_or("too few arguments; see the head of hostile.rs")
    };
    let deployment = Deployment::load(Path::new(at(2)?))?;
    match at(1)? {
        "attack" => {
            let named = |way: &Way| {
                arguments
                    .get(6)
                    .is_none_or(|name| *name == format!("{way:?}"))
            };
            let ways: Vec<Way> = WAYS.into_iter().filter(named).collect();
            let period = Duration::from_secs_f64(at(4)?.parse()?);
            attack(&deployment, ways, at(3)?.parse()?, period, at(5)?.parse()?)
        }
        "good" => good(&deployment, Duration::from_secs_f64(at(3)?.parse()?)),
        "hold" => hold(&deployment, at(3)?.parse()?, at(4).is_ok()),
        other => Err(format!("`{other}` is none of attack, good, hold").into()),
    }
}

// ---- the well-behaved client ----

#[derive(Serialize)]
struct Good {
    rounds: u64,
    mb_per_s: f64,
    slowest_ms: f64,
    errors: u64,
    wrong_bytes: u64,
}

fn good(deployment: &Deployment, period: Duration) -> Result<()> {
    const PIECE: usize = 256 << 10;
    let options = ClientOptions {
        shortcuts: false,
        ..ClientOptions::default()
    };
    let client = Client::connect_with(deployment, Identity::default(), Role::Client, options)?;
    let file = client.open("/good", &OpenOptions::read_write_create())?;
    let mut told = Good {
        rounds: 0,
        mb_per_s: 0.0,
        slowest_ms: 0.0,
        errors: 0,
        wrong_bytes: 0,
    };
    let (start, mut back) = (Instant::now(), vec![0; PIECE]);
    while start.elapsed() < period {
        let began = Instant::now();
        let access = Pattern::contiguous((told.rounds % 61) as i64 * PIECE as i64, PIECE as u64);
        let mut random = Random(told.rounds + 1);
        let bytes: Vec<u8> = (0..PIECE / 8)
            .flat_map(|_| random.next().to_le_bytes())
            .collect();
        let round = || -> penstock_client::Result<()> {
            file.write(&access, Form::Structured, &mut Source::from_slice(&bytes))?;
            file.read(
                &access,
                Form::Structured,
                &mut Target::from_slice(&mut back),
            )?;
            client.stat("/good").map(|_| ())
        };
        match { round }() {
            Ok(()) => {
                told.wrong_bytes += bytes.iter().zip(&back).filter(|(a, b)| a != b).count() as u64
            }
            Err(e) => {
                eprintln!("{e}");
                told.errors += 1;
            }
        }
        told.rounds += 1;
        told.slowest_ms = told.slowest_ms.max(began.elapsed().as_secs_f64() * 1e3);
    }
    told.mb_per_s = told.rounds as f64 * 2.0 * PIECE as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{}", serde_json::to_string(&told)?);
    Ok(())
}

/// Holds many files open.
fn hold(deployment: &Deployment, files: u64, shortcuts: bool) -> Result<()> {
    let options = ClientOptions {
        shortcuts,
        ..ClientOptions::default()
    };
    let form = if shortcuts {
        Form::Shortcut
    } else {
        Form::Structured
    };
    let client = Client::connect_with(deployment, Identity::default(), Role::Client, options)?;
    let servers = deployment.servers.len() as u64;
    let tile = Loop::bytes(8).resized(0, deployment.stripe_unit as i64)?;
    let access = Pattern::new(0, tile, 0, 8 * servers)?;
    let bytes = |i: u64| {
        (0..servers)
            .flat_map(|s| (i * 8 + s).to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let mut held = Vec::new();
    for i in 0..files {
        let file = client.open(&format!("/held-{i}"), &OpenOptions::read_write_create())?;
        file.write(&access, form, &mut Source::from_slice(&bytes(i)))?;
        held.push(file);
    }
    println!("holding {files}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let (mut errors, mut wrong) = (0u64, 0u64);
    let mut back = vec![0; 8 * servers as usize];
    for (i, file) in held.iter().enumerate() {
        let mut round = || -> penstock_client::Result<()> {
            file.read(&access, form, &mut Target::from_slice(&mut back))?;
            file.sync()
        };
        if let Err(e) = round() {
            eprintln!("{e}");
            errors += 1;
        }
        wrong += u64::from(back != bytes(i as u64));
    }
    let open = std::fs::read_dir("/proc/self/fd")?.count();
    println!(
        "{}",
        serde_json::json!({ "errors": errors, "wrong": wrong, "open": open })
    );
    Ok(())
}

// ---- the others ----

struct Attack<'a> {
    deployment: &'a Deployment,
    ways: Vec<Way>,
    addresses: Vec<&'a Address>,
    seals: SealKeys,
    until: Instant,
    counts: Counts,
}

fn attack(
    deployment: &Deployment,
    ways: Vec<Way>,
    connections: u64,
    period: Duration,
    seed: u64,
) -> Result<()> {
    let addresses = std::iter::once(&deployment.meta.address)
        .chain(deployment.servers.iter().map(|s| &s.address))
        .collect();
    let attack = Attack {
        deployment,
        ways,
        addresses,
        // For capabilities that are genuine and expired; nothing else is done with it.
        seals: deployment.meta_identity()?.seals(),
        until: Instant::now() + period,
        counts: Counts::default(),
    };
    std::thread::scope(|scope| {
        for i in 0..connections {
            let attack = &attack;
            scope.spawn(move || {
                let ways = &attack.ways;
                let way = ways[(i as usize) % ways.len()];
                let server = (i as usize / ways.len()) % attack.addresses.len();
                let mut random = Random(seed.wrapping_mul(0x9e37_79b9).wrapping_add(i + 1));
                while attack.time_left() {
                    attack.counts.connections.fetch_add(1, Relaxed);
                    // However it ends, the next one begins: a hostile client does not give up.
                    if attack.misbehave(way, server, &mut random).is_err() {
                        attack.counts.refused_connections.fetch_add(1, Relaxed);
                        std::thread::sleep(TICK / 10);
                    }
                }
            });
        }
    });
    let counts = &attack.counts;
    let told = serde_json::json!({
        "connections": counts.connections.load(Relaxed),
        "ended_by_server": counts.refused_connections.load(Relaxed),
        "requests": counts.requests.load(Relaxed),
        "locks": counts.locks.load(Relaxed),
        "refusals": counts.refusals.load(Relaxed),
        "breaches": counts.breaches.load(Relaxed),
    });
    println!("{told}");
    Ok(())
}

impl Attack<'_> {
    fn time_left(&self) -> bool {
        Instant::now() < self.until
    }

    fn misbehave(&self, way: Way, server: usize, random: &mut Random) -> Result<()> {
        match way {
            Way::Stranger => self.until_dropped(self.stranger(server)?),
            Way::HalfHandshake => self.half_handshake(server, random),
            Way::Rubbish => {
                let mut stream = self.stranger(server)?;
                stream.write_all(&random.bytes(4096))?;
                self.until_dropped(stream)
            }
            Way::Fuzz => self.fuzz(server, random),
            Way::Sizes => self.sizes(server, random),
            Way::Silent => {
                let connection = self.connected(server)?;
                self.until_dropped(stream(&connection)?)
            }
            Way::Flood => self.flood(server),
            Way::Deaf => self.deaf(server, random),
            Way::Hoarder => self.hoard(server, random),
            Way::Forger => self.forge(server, random),
            Way::Endless => self.endless(server, random),
            Way::Announcer => self.announce(server, random),
        }
    }

    /// A bare socket.
    fn stranger(&self, server: usize) -> Result<UnixStream> {
        let path = self.addresses[server]
            .unix
            .as_ref()
            .ok_or("a server without a Unix socket")?;
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        Ok(stream)
    }

    /// After a good handshake.
    fn connected(&self, server: usize) -> Result<Connection> {
        let caller = self.deployment.caller(Role::Client, 1, 0)?;
        let timeouts = Timeouts {
            read: Some(Duration::from_secs(5)),
            write: Some(Duration::from_secs(1)),
        };
        Ok(connect(self.addresses[server], &caller, timeouts)?)
    }

    /// Reads what comes, if anything, until the other end has had enough or the time is over.
    fn until_dropped(&self, mut stream: UnixStream) -> Result<()> {
        stream.set_read_timeout(Some(TICK))?;
        let mut buffer = [0; 4096];
        while self.time_left() {
            match stream.read(&mut buffer) {
                Ok(0) => return Err("dropped".into()),
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn half_handshake(&self, server: usize, random: &mut Random) -> Result<()> {
        let hello = Hello {
            oldest: VERSION,
            newest: VERSION,
            deployment: self.deployment.id.clone(),
            role: Role::Client,
            program: random.next(),
            rank: 0,
            link: LinkName::new()?,
            key: Key::generate()?.name(),
            nonce: [7; 32],
            credential: None,
        };
        let mut bytes = Vec::new();
        let envelope = Envelope::request(0, TraceContext::default());
        frame::append(
            &mut bytes,
            HANDSHAKE_VERSION,
            &envelope,
            Some(&hello),
            0,
            0,
            &Limits::HANDSHAKE,
        )?;
        let mut stream = self.stranger(server)?;
        // A part of it, or all of it and no proof.
        let cut = 1 + random.below(bytes.len() as u64) as usize;
        stream.write_all(&bytes[..cut])?;
        self.until_dropped(stream)
    }

    /// A file of its own, and the part of it that this data server has. `None` at the metadata server.
    fn own_file(
        &self,
        connection: &mut Connection,
        server: usize,
        random: &mut Random,
    ) -> Result<Option<Handle>> {
        if server == 0 {
            return Ok(None);
        }
        let capability = self.opened(random)?;
        match ask(connection, &DataRequest::Attach { capability })? {
            DataReply::Attached { handle, .. } => Ok(Some(handle)),
            other => Err(format!("{other:?}").into()),
        }
    }

    fn opened(&self, random: &mut Random) -> Result<Capability> {
        let mut meta = self.connected(0)?;
        let reply: MetaReply = ask(
            &mut meta,
            &MetaRequest::Open {
                path: format!("/hostile-{}", random.below(40)),
                read: true,
                write: true,
                create: Some(CreateOptions {
                    mode: 0o644,
                    ..CreateOptions::default()
                }),
                exclusive: false,
            },
        )?;
        match reply {
            MetaReply::Opened { capability, .. } => Ok(capability),
            other => Err(format!("{other:?}").into()),
        }
    }

    fn fuzz(&self, server: usize, random: &mut Random) -> Result<()> {
        let mut connection = self.connected(server)?;
        let handle = self.own_file(&mut connection, server, random)?;
        let mut stream = stream(&connection)?;
        stream.set_write_timeout(Some(TICK))?;
        while self.time_left() {
            let mut bytes = Vec::new();
            let envelope = Envelope::request(random.next(), TraceContext::default());
            match handle {
                Some(handle) => {
                    let payload = random.below(300) as usize;
                    let request = data_request(handle, random);
                    let with = if matches!(request, DataRequest::Write { .. }) {
                        payload
                    } else {
                        0
                    };
                    frame::append(
                        &mut bytes,
                        VERSION,
                        &envelope,
                        Some(&request),
                        with,
                        0,
                        &Limits::FULL,
                    )?;
                    bytes.extend(random.bytes(with));
                }
                None => {
                    let request = meta_request(random);
                    frame::append(
                        &mut bytes,
                        VERSION,
                        &envelope,
                        Some(&request),
                        0,
                        0,
                        &Limits::FULL,
                    )?;
                }
            }
            random.spoil(&mut bytes);
            self.counts.requests.fetch_add(1, Relaxed);
            stream.write_all(&bytes)?;
            drain(&mut stream)?;
        }
        Ok(())
    }

    fn sizes(&self, server: usize, random: &mut Random) -> Result<()> {
        let connection = self.connected(server)?;
        let mut stream = stream(&connection)?;
        let most = [MIB as usize, MIB as usize + 1, u32::MAX as usize, 0];
        let header = Header {
            version: VERSION,
            envelope: Envelope::request(1, TraceContext::default()).more(random.below(2) == 0),
            body_len: most[random.below(4) as usize],
            payload_len: most[random.below(4) as usize],
            descriptors: random.below(6) as usize,
        };
        stream.write_all(&header.encode())?;
        while self.time_left() {
            stream.write_all(&random.bytes(1))?;
            std::thread::sleep(TICK / 4);
        }
        Ok(())
    }

    fn flood(&self, server: usize) -> Result<()> {
        let mut connection = self.connected(server)?;
        while self.time_left() {
            for i in 0..64 {
                let envelope = Envelope::request(i, TraceContext::default());
                match server {
                    0 => connection.queue(
                        &envelope,
                        &MetaRequest::Stat {
                            path: "/good".into(),
                        },
                    )?,
                    _ => connection.queue(&envelope, &DataRequest::Len { handle: Handle(77) })?,
                }
            }
            connection.flush()?;
            for _ in 0..64 {
                match server {
                    0 => drop(connection.receive::<MetaReply>()?),
                    _ => drop(connection.receive::<DataReply>()?),
                }
            }
            self.counts.requests.fetch_add(64, Relaxed);
        }
        Ok(())
    }

    /// Asks, and leaves the answer to whoever comes after.
    fn endless(&self, server: usize, random: &mut Random) -> Result<()> {
        let mut connection = self.connected(server.max(1))?;
        let Some(handle) = self.own_file(&mut connection, server.max(1), random)? else {
            return Ok(());
        };
        let len = DataRequest::SetLen { handle, len: MIB };
        let _: DataReply = ask(&mut connection, &len)?;
        let region = endless_region(random)?;
        let (request, payload) = match random.below(3) {
            0 => (
                DataRequest::Write {
                    handle,
                    region,
                    lock: None,
                },
                vec![1; 2],
            ),
            _ => (
                DataRequest::Read {
                    handle,
                    region,
                    lock: None,
                },
                Vec::new(),
            ),
        };
        let envelope = Envelope::request(1, TraceContext::default());
        connection.queue_payload(&envelope, &request, &payload)?;
        connection.flush()?;
        self.counts.requests.fetch_add(1, Relaxed);
        // Some wait for a while, some go at once.
        if random.below(2) == 0 {
            std::thread::sleep(TICK * 5);
        }
        Ok(())
    }

    fn announce(&self, server: usize, random: &mut Random) -> Result<()> {
        let mut connection = self.connected(server)?;
        let handle = self.own_file(&mut connection, server, random)?;
        let mut bytes = Vec::new();
        let envelope = Envelope::request(1, TraceContext::default());
        match handle {
            // A good request; its payload does not come.
            Some(handle) if random.below(2) == 0 => {
                let region = Region::Contiguous {
                    offset: 0,
                    len: 64 * MIB,
                };
                let request = DataRequest::Write {
                    handle,
                    region,
                    lock: None,
                };
                frame::append(
                    &mut bytes,
                    VERSION,
                    &envelope.more(true),
                    Some(&request),
                    MIB as usize,
                    0,
                    &Limits::FULL,
                )?;
            }
            _ => {
                let header = Header {
                    version: VERSION,
                    envelope,
                    body_len: MIB as usize,
                    payload_len: MIB as usize,
                    descriptors: 0,
                };
                bytes.extend(header.encode());
                bytes.push(1);
            }
        }
        let mut stream = stream(&connection)?;
        stream.write_all(&bytes)?;
        self.counts.requests.fetch_add(1, Relaxed);
        self.until_dropped(stream)
    }

    fn deaf(&self, server: usize, random: &mut Random) -> Result<()> {
        let mut connection = self.connected(server)?;
        let handle = self.own_file(&mut connection, server, random)?;
        if let Some(handle) = handle {
            // A hole of a gibibyte: what is asked for below is there, as zeros.
            let _: DataReply = ask(
                &mut connection,
                &DataRequest::SetLen {
                    handle,
                    len: 1 << 30,
                },
            )?;
        }
        // Until the server takes no more of it.
        let mut told = Ok(());
        while told.is_ok() && self.time_left() {
            let envelope = Envelope::request(1, TraceContext::default());
            told = match handle {
                Some(handle) => {
                    let region = Region::Contiguous {
                        offset: 0,
                        len: 16 * MIB,
                    };
                    connection.queue(
                        &envelope,
                        &DataRequest::Read {
                            handle,
                            region,
                            lock: None,
                        },
                    )
                }
                None => {
                    let path = String::from("/");
                    connection.queue(
                        &envelope,
                        &MetaRequest::Readdir {
                            path,
                            after: None,
                            limit: 1000,
                        },
                    )
                }
            }
            .and_then(|()| connection.flush());
            self.counts.requests.fetch_add(1, Relaxed);
        }
        while self.time_left() {
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn hoard(&self, server: usize, random: &mut Random) -> Result<()> {
        let mut connection = self.connected(server)?;
        let Some(handle) = self.own_file(&mut connection, server, random)? else {
            // The metadata server has shared pointers to hoard.
            while self.time_left() {
                let token = u128::from(random.next());
                match ask(
                    &mut connection,
                    &MetaRequest::CounterCreate { token, value: 1 },
                )? {
                    MetaReply::Error(_) => {
                        self.counts.refusals.fetch_add(1, Relaxed);
                        std::thread::sleep(TICK);
                    }
                    _ => drop(self.counts.locks.fetch_add(1, Relaxed)),
                }
            }
            return Ok(());
        };
        for i in 0.. {
            if !self.time_left() {
                break;
            }
            let lock = DataRequest::Lock {
                handle,
                start: 2 * i,
                end: 2 * i + 1,
                mode: LockMode::Exclusive,
                timeout_ms: 600_000,
            };
            match ask(&mut connection, &lock)? {
                DataReply::Error(_) => {
                    self.counts.refusals.fetch_add(1, Relaxed);
                    std::thread::sleep(TICK);
                }
                _ => drop(self.counts.locks.fetch_add(1, Relaxed)),
            }
        }
        Ok(())
    }

    /// Every attempt must be refused.
    fn forge(&self, server: usize, random: &mut Random) -> Result<()> {
        let good = self.opened(random)?;
        let data = server.max(1);
        let mut connection = self.connected(data)?;
        while self.time_left() {
            let mut bad = good.clone();
            match random.below(5) {
                0 => bad
                    .seals
                    .iter_mut()
                    .for_each(|seal| seal.0[random.below(16) as usize] ^= 1 << random.below(8)),
                1 => bad.remove = !bad.remove,
                2 => bad.file = FileId(random.below(100) + good.file.0 + 1),
                3 => bad.expires_ms += 1 + random.below(1 << 40),
                _ => bad = self.expired(&good)?,
            }
            self.counts.requests.fetch_add(1, Relaxed);
            let request = if bad.remove {
                DataRequest::Remove { capability: bad }
            } else {
                DataRequest::Attach { capability: bad }
            };
            match ask(&mut connection, &request)? {
                DataReply::Error(_) => drop(self.counts.refusals.fetch_add(1, Relaxed)),
                other => {
                    eprintln!("a server took {request:?}: {other:?}");
                    self.counts.breaches.fetch_add(1, Relaxed);
                }
            }
            std::thread::sleep(TICK / 20);
        }
        Ok(())
    }

    /// Sealed as the metadata server does, a second too old.
    fn expired(&self, like: &Capability) -> Result<Capability> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
        let rights = Rights {
            read: true,
            write: true,
            remove: false,
        };
        let layout: Layout = like.layout.clone();
        Ok(Capability::grant(
            &self.seals,
            like.subject,
            like.file,
            rights,
            0..now_ms - 1000,
            None,
            layout,
        )?)
    }
}

/// The socket below a connection.
fn stream(connection: &Connection) -> Result<UnixStream> {
    Ok(UnixStream::from(connection.as_fd().try_clone_to_owned()?))
}

/// 2^40 copies or more: of single bytes, all at one place, or of pairs far apart that are all on the first server.
fn endless_region(random: &mut Random) -> Result<Region> {
    let byte = Loop::bytes(1);
    let pair = Loop::vector(2, 1, 1 << 30, &byte)?;
    let tile = match random.below(4) {
        0 => Loop::vector(1 << 60, 1, 2, &byte)?,
        1 => Loop::vector(1 << 60, 1, 0, &byte)?,
        2 => Loop::vector(1 << 61, 1, 3, &byte)?,
        _ => Loop::vector(1 << 40, 1, 0, &pair)?,
    };
    Ok(Region::LoopInline {
        encoded: tile.encode().to_vec(),
        disp: 0,
        start: 0,
        len: tile.size(),
    })
}

/// Takes what has come, without waiting.
fn drain(stream: &mut UnixStream) -> Result<()> {
    stream.set_nonblocking(true)?;
    let mut buffer = [0; 1 << 16];
    let read = stream.read(&mut buffer);
    stream.set_nonblocking(false)?;
    match read {
        Ok(0) => Err("ended".into()),
        Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => Err(e.into()),
        _ => Ok(()),
    }
}

fn data_request(handle: Handle, random: &mut Random) -> DataRequest {
    let region = match random.below(3) {
        0 => Region::Contiguous {
            offset: random.next() >> random.below(64),
            len: random.next() >> random.below(64),
        },
        1 => Region::List(
            (0..random.below(64))
                .map(|i| (i * 100, random.below(100)))
                .collect(),
        ),
        _ => Region::LoopInline {
            encoded: random.bytes(40),
            disp: random.next() as i64,
            start: random.below(1 << 40),
            len: random.below(1 << 40),
        },
    };
    let lock = None;
    match random.below(5) {
        0 => DataRequest::Read {
            handle,
            region,
            lock,
        },
        1 => DataRequest::Write {
            handle,
            region,
            lock,
        },
        2 => DataRequest::Len { handle },
        3 => DataRequest::Sync { handle },
        _ => DataRequest::Shortcut { handle },
    }
}

fn meta_request(random: &mut Random) -> MetaRequest {
    let path = format!("/hostile-{}", random.below(40));
    match random.below(5) {
        0 => MetaRequest::Stat { path },
        1 => MetaRequest::Readdir {
            path: "/".into(),
            after: None,
            limit: random.next() as u32,
        },
        2 => MetaRequest::Batch((0..random.below(50)).map(|_| MetaRequest::Status).collect()),
        3 => MetaRequest::Mkdir { path, mode: 0o755 },
        _ => MetaRequest::CounterGet {
            token: u128::from(random.next()),
        },
    }
}

/// xorshift64*, so that an attack can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In [0, n); 0 for an empty range.
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n.max(1)
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    /// Most of the time something is wrong with the message afterwards.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len() as u64) as usize;
            match self.below(8) {
                0 => bytes.truncate(at),
                1 => bytes.extend_from_within(at..),
                2 => bytes.insert(at, self.next() as u8),
                _ if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
    }
}
