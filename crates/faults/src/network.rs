//! The simulated network.
//!
//! Problem: servers and clients use sockets in many ways (vectored, nonblocking, polled, shut down from another
//! thread). An imitation of sockets would test the imitation. Idea: each end of a connection is one half of a real pair
//! of stream sockets, and the network holds the other halves. It moves bytes between them on virtual time: late, in
//! pieces, or not at all during a partition. It also breaks connections. Bytes of one connection stay in order, as over
//! TCP; connections overtake each other freely.
//!
//! The two ends need not learn of a break together. The client may see its connection broken while its bytes are still
//! in flight. The server then receives a request that the client has sent again on another connection. That is how a
//! request is delivered twice.
use crate::connections::{Connection, End, Fate, HELD, Listener, Segment, pair, socket_pair};
use crate::effects::Effect;
use crate::plant::Plant;
use crate::state::{Due, State};
use crate::units::{MS, MachineId, Nanos, ProcessId, SECOND};
use rustix::event::epoll;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

// ---- calls from programs ----

pub(crate) fn listen(
    state: &mut State,
    address: &str,
    process: ProcessId,
) -> std::io::Result<OwnedFd> {
    if let Some(old) = state.net.listeners.get(address)
        && state.processes[old.process].alive
    {
        return Err(std::io::ErrorKind::AddrInUse.into());
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    let app = eventfd(0, flags)?;
    let event = app.try_clone()?;
    let listener = Listener {
        process,
        app: app.as_raw_fd(),
        event,
        backlog: VecDeque::new(),
    };
    state.net.listeners.insert(address.to_owned(), listener);
    Ok(app)
}

pub(crate) fn accept(
    state: &mut State,
    listener: BorrowedFd<'_>,
) -> std::io::Result<(OwnedFd, String)> {
    let net = &mut state.net;
    let of = |l: &&mut Listener| l.app == listener.as_raw_fd();
    // Descriptors of killed servers stay open, so that each number belongs to one listener.
    let Some(found) = net.listeners.values_mut().find(of) else {
        return Err(std::io::ErrorKind::WouldBlock.into());
    };
    while let Some(id) = found.backlog.pop_front() {
        let mut count = [0; 8];
        let _ = rustix::io::read(&found.event, &mut count);
        if let Some(c) = net.connections.get_mut(&id)
            && let Some(app) = c.ends[1].offered.take()
        {
            return Ok((app, format!("machine {}", c.ends[0].machine)));
        }
    }
    Err(std::io::ErrorKind::WouldBlock.into())
}

/// The place at which a caller waits for its connection. Odd, so that it never equals an address.
fn place(id: u64) -> usize {
    id as usize * 2 + 1
}

/// Begins to connect; the caller waits at the returned place.
pub(crate) fn dial(
    state: &mut State,
    address: &str,
    machine: MachineId,
    process: ProcessId,
) -> std::io::Result<(u64, usize)> {
    let now = state.now;
    let net = &mut state.net;
    let Some(listener) = net.listeners.get(address) else {
        return Err(std::io::ErrorKind::ConnectionRefused.into());
    };
    let server = listener.process;
    let id = net.next;
    net.next += 1;
    if net.tls {
        net.effects.count(Effect::Session);
    }
    let mut ends = Vec::new();
    for (end, (process, machine)) in [
        (process, machine),
        (server, state.processes[server].machine),
    ]
    .into_iter()
    .enumerate()
    {
        let buffer = 1usize << net.random.from_to(14, 18);
        let (app, ours) = socket_pair(buffer)?;
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(id << 1 | end as u64);
        epoll::add(&net.epoll, &ours, data, flags)?;
        ends.push(End {
            process,
            machine,
            app: app.as_raw_fd(),
            offered: Some(app),
            ours: Some(ours),
            out: VecDeque::new(),
            held: 0,
            last_due: 0,
            closed: false,
        });
    }
    let (Some(b), Some(a)) = (ends.pop(), ends.pop()) else {
        return Err(std::io::ErrorKind::Other.into());
    };
    let blocked = net.cut.contains(&pair(a.machine, b.machine));
    let connection = Connection {
        address: address.to_owned(),
        ends: [a, b],
        stalled: 0,
        fate: None,
        accepted: None,
    };
    net.connections.insert(id, connection);
    net.most_connections = net.most_connections.max(net.connections.len());
    let latency = 2 * net.latency();
    if !blocked {
        state.at(now + latency, Due::Call { connection: id });
    }
    Ok((id, place(id)))
}

/// The connection reaches the listener, if there is one.
pub(crate) fn call(state: &mut State, id: u64) {
    let Some(connection) = state.net.connections.get_mut(&id) else {
        return;
    };
    if connection.accepted.is_some() {
        return;
    }
    let listener = state.net.listeners.get_mut(&connection.address);
    let alive = listener.filter(|l| state.processes[l.process].alive);
    let mut app = None;
    match alive {
        Some(listener) => {
            // The listener may have changed since the connection began.
            connection.ends[1].process = listener.process;
            connection.accepted = Some(true);
            listener.backlog.push_back(id);
            let _ = rustix::io::write(&listener.event, &1u64.to_ne_bytes());
            app = Some(listener.app);
        }
        None => connection.accepted = Some(false),
    }
    if let Some(app) = app {
        state.wake_io(app);
    }
    state.wake_place(place(id));
}

/// The caller checks the result.
pub(crate) fn dialled(state: &mut State, id: u64) -> std::io::Result<OwnedFd> {
    let refused = || Err(std::io::ErrorKind::ConnectionRefused.into());
    let Some(connection) = state.net.connections.get_mut(&id) else {
        return refused();
    };
    match connection.accepted {
        Some(true) => match connection.ends[0].offered.take() {
            Some(app) => Ok(app),
            None => refused(),
        },
        Some(false) => {
            state.net.connections.remove(&id);
            refused()
        }
        None => {
            state.net.connections.remove(&id);
            Err(std::io::ErrorKind::TimedOut.into())
        }
    }
}

// ---- moving bytes ----

/// Takes what programs have sent since the last step.
pub(crate) fn pump(state: &mut State) {
    let nothing = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    loop {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&state.net.epoll, spare, Some(&nothing)).is_err() || events.is_empty() {
            return;
        }
        let full = events.len() == 64;
        let mut moved: Vec<u64> = events.iter().map(|e| e.data.u64()).collect();
        moved.sort_unstable();
        for data in moved {
            let (id, end) = (data >> 1, (data & 1) as usize);
            arrive(state, id, end);
            take(state, id, end);
        }
        if !full {
            return;
        }
    }
}

/// Takes the bytes that the program at `end` has sent.
fn take(state: &mut State, id: u64, end: usize) {
    let now = state.now;
    let twice = state.plant == Some(Plant::TwiceDelivered);
    let net = &mut state.net;
    let Some(mut c) = net.connections.remove(&id) else {
        return;
    };
    let mut due = Vec::new();
    let mut taken = 0;
    let to_meta = c.ends[1].machine == 0;
    let Connection {
        ends,
        stalled,
        fate,
        ..
    } = &mut c;
    let mut breaks = None;
    let e = &mut ends[end];
    while let Some(ours) = e.ours.as_ref().filter(|_| !e.closed && e.held < HELD) {
        let mut bytes = vec![0; 64 << 10];
        let n = match rustix::net::recv(ours, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((n, _)) => n,
            Err(Errno::AGAIN) => break,
            Err(_) => 0,
        };
        bytes.truncate(n);
        taken += n;
        e.held += n;
        e.closed = n == 0;
        let latency = net.latency();
        if n > 0 && (end == 0 || matches!(fate, Some(Fate::Drop | Fate::BitRot))) {
            breaks = breaks.or(fate.take().and_then(|fate| match fate {
                Fate::Drop => Some((
                    now + net.random.below(latency),
                    Due::Break { connection: id },
                )),
                Fate::BitRot => {
                    bytes[net.random.below(n as u64) as usize] ^= 1 << net.random.below(8);
                    net.broken += 1;
                    net.effects.count(Effect::WireFlip);
                    None
                }
                Fate::Late => {
                    let soon = now + net.random.below(SECOND / 4);
                    *stalled = soon + net.random.below(2 * SECOND);
                    Some((soon, Due::Sever { connection: id }))
                }
            }));
        }
        let stuck = if end == 0 { *stalled } else { 0 };
        e.last_due = e.last_due.max(now + latency).max(stuck);
        let copies = if twice && to_meta && n > 0 && net.random.one_in(300) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            e.out.push_back(Segment {
                number: net.number(),
                due: e.last_due,
                bytes: bytes.clone(),
                end: n == 0,
            });
        }
        due.push(e.last_due);
    }
    let app = e.app;
    net.connections.insert(id, c);
    if let Some((at, due)) = breaks {
        state.at(at, due);
    }
    if taken > 0 {
        state.log.note(now, 4, id << 1 | end as u64, taken as u64);
        state.wake_io(app);
    }
    for at in due {
        let end = 1 - end;
        state.at(
            at,
            Due::Arrival {
                connection: id,
                end,
            },
        );
    }
}

/// Delivers what is due at `end`.
pub(crate) fn arrive(state: &mut State, id: u64, end: usize) {
    let now = state.now;
    let net = &mut state.net;
    let Some(mut c) = net.connections.remove(&id) else {
        return;
    };
    if net
        .cut
        .contains(&pair(c.ends[0].machine, c.ends[1].machine))
    {
        if c.ends[1 - end].out.front().is_some_and(|s| s.due <= now) {
            net.effects.count(Effect::Partition);
        }
        net.connections.insert(id, c);
        return;
    }
    // The client has seen this connection broken, and has repeated unanswered requests.
    let repeated = end == 1 && c.stalled > 0 && c.ends[0].ours.is_none();
    let [client, server] = &mut c.ends;
    let (from, to) = if end == 1 {
        (client, server)
    } else {
        (server, client)
    };
    let mut moved = 0;
    while let Some(segment) = from.out.front_mut().filter(|s| s.due <= now) {
        let Some(ours) = &to.ours else {
            from.held = 0;
            from.out.clear();
            break;
        };
        if segment.end {
            let _ = rustix::net::shutdown(ours, Shutdown::Write);
            moved += 1;
            from.out.clear();
            break;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(ours, &segment.bytes, flags) {
            Ok(n) => {
                moved += n;
                from.held = from.held.saturating_sub(n);
                if repeated {
                    net.effects.count(Effect::Duplicate);
                }
                if n == segment.bytes.len() {
                    let newest = net.newest.entry(to.machine).or_default();
                    if segment.number < *newest {
                        net.effects.count(Effect::Reordering);
                    }
                    *newest = segment.number.max(*newest);
                    from.out.pop_front();
                } else {
                    segment.bytes.drain(..n);
                }
            }
            // Continues when the program has read.
            Err(Errno::AGAIN) => break,
            Err(_) => {
                from.held = 0;
                from.out.clear();
                break;
            }
        }
    }
    let (app, was_full) = (to.app, from.held + moved >= HELD);
    let over = |e: &End| (e.closed || e.ours.is_none()) && e.out.is_empty();
    let over = c.ends.iter().all(over);
    if !over {
        net.connections.insert(id, c);
    }
    if moved > 0 {
        state.log.note(now, 5, id << 1 | end as u64, moved as u64);
        state.wake_io(app);
    }
    if was_full && !over {
        take(state, id, 1 - end);
    }
}

// ---- faults ----

/// Both ends see the connection broken; bytes in flight are lost.
pub(crate) fn break_now(state: &mut State, id: u64) {
    let now = state.now;
    let Some(c) = state.net.connections.remove(&id) else {
        return;
    };
    state.net.broken += 1;
    if c.ends.iter().any(|e| e.out.iter().any(|s| !s.end)) {
        state.net.effects.count(Effect::Drop);
    }
    state.log.note(now, 6, id, 0);
    let apps = c.ends.each_ref().map(|e| e.app);
    let waiting = c.accepted.is_none();
    drop(c);
    for app in apps {
        state.wake_io(app);
    }
    if waiting {
        state.wake_place(place(id));
    }
}

/// One end is closed as the system does when a program ends: its bytes arrive, up to `extra` later.
fn close(state: &mut State, id: u64, end: usize, extra: Nanos) {
    take(state, id, end);
    let now = state.now;
    let Some(c) = state.net.connections.get_mut(&id) else {
        return;
    };
    if c.accepted != Some(true) {
        return break_now(state, id);
    }
    state.net.broken += 1;
    let number = state.net.sent;
    let e = &mut c.ends[end];
    e.ours = None;
    e.last_due = (e.last_due + extra).max(now);
    for segment in &mut e.out {
        segment.due += extra;
    }
    if !e.closed {
        e.closed = true;
        e.out.push_back(Segment {
            number,
            due: e.last_due,
            bytes: Vec::new(),
            end: true,
        });
    }
    let dues: Vec<Nanos> = e.out.iter().map(|s| s.due).collect();
    let app = e.app;
    state.log.note(now, 7, id << 1 | end as u64, extra);
    for at in dues {
        let end = 1 - end;
        state.at(
            at,
            Due::Arrival {
                connection: id,
                end,
            },
        );
    }
    state.wake_io(app);
}

/// The connection breaks with the next bytes in flight: they are lost, or arrive changed if a TLS session notices.
pub(crate) fn drop_next(state: &mut State, id: u64) {
    let net = &mut state.net;
    if let Some(c) = net.connections.get_mut(&id) {
        c.fate = Some(if net.tls { Fate::BitRot } else { Fate::Drop });
    }
}

/// The bytes that the client sends next are delayed by up to two seconds. The client soon sees the connection broken
/// and repeats unanswered requests on another one. For the server the connection is open, and it receives everything in
/// the end.
pub(crate) fn break_late(state: &mut State, id: u64) {
    if let Some(c) = state.net.connections.get_mut(&id) {
        c.fate = Some(Fate::Late);
    }
}

/// The client sees the connection broken.
pub(crate) fn sever(state: &mut State, id: u64) {
    close(state, id, 0, 0);
}

/// A process has ended normally.
pub(crate) fn exited(state: &mut State, process: ProcessId) {
    state.net.listeners.retain(|_, l| l.process != process);
    let open = state.net.connections.iter();
    let of: Vec<(u64, usize)> = open
        .flat_map(|(id, c)| (0..2).map(move |end| (*id, end, c.ends[end].process)))
        .filter(|(_, _, p)| *p == process)
        .map(|(id, end, _)| (id, end))
        .collect();
    for (id, end) in of {
        close(state, id, end, 0);
    }
}

/// The connections of a killed process break, each a moment later.
pub(crate) fn killed(state: &mut State, process: ProcessId, within: Nanos) {
    state.net.listeners.retain(|_, l| l.process != process);
    let of = |c: &Connection| c.ends.iter().any(|e| e.process == process);
    let gone: Vec<u64> = state
        .net
        .connections
        .iter()
        .filter(|(_, c)| of(c))
        .map(|(id, _)| *id)
        .collect();
    // Counted now: a connection that both ends have closed by then does not break.
    state.net.broken += gone.len() as u64;
    for connection in gone {
        let at = state.now + state.net.random.below(within.max(1));
        state.at(at, Due::Break { connection });
    }
}

/// Partitions two machines, or ends the partition.
pub(crate) fn partition(state: &mut State, a: MachineId, b: MachineId, cut: bool) {
    if cut {
        state.net.cut.insert(pair(a, b));
        return;
    }
    if !state.net.cut.remove(&pair(a, b)) {
        return;
    }
    let now = state.now;
    let healed: Vec<(u64, bool)> = state
        .net
        .connections
        .iter()
        .filter(|(_, c)| pair(c.ends[0].machine, c.ends[1].machine) == pair(a, b))
        .map(|(id, c)| (*id, c.accepted.is_none()))
        .collect();
    for (connection, calling) in healed {
        if calling {
            state.at(now + MS, Due::Call { connection });
        }
        for end in 0..2 {
            state.at(now + MS, Due::Arrival { connection, end });
        }
    }
}
