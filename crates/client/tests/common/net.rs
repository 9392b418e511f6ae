//! A network that keeps what a client sends for as long as a test wants.
use penstock_rpc::deployment::Deployment;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

pub const LIMIT: Duration = Duration::from_secs(60);

/// A network between a client and one server that may keep what the client sends.
#[derive(Default)]
pub struct Net {
    pub state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub struct State {
    pub holding: bool,
    /// So much is let through first.
    pass: usize,
    /// What is held, of which connection.
    pub held: Vec<u8>,
    pub of: usize,
    /// Client's and server's end of each connection.
    pub ends: Vec<(TcpStream, TcpStream)>,
}

impl Net {
    /// Before the first data server of a deployment with TCP addresses; its clients go through this.
    pub fn before(deployment: &Deployment) -> (Arc<Net>, Deployment) {
        let mut far = deployment.clone();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let server = far.servers[0].address.tcp.replace(at).unwrap();
        let this = Arc::new(Net::default());
        let net = this.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else {
                    return;
                };
                let pair = || (client.try_clone().unwrap(), server.try_clone().unwrap());
                let id = {
                    let mut state = net.state.lock().unwrap();
                    state.ends.push(pair());
                    state.ends.len() - 1
                };
                let (back, forth) = (pair(), pair());
                std::thread::spawn(move || carry(back.1, back.0, |_| true));
                let net = net.clone();
                std::thread::spawn(move || carry(forth.0, forth.1, |bytes| net.pass(id, bytes)));
            }
        });
        (this, far)
    }

    /// Keeps what clients send from now on, but for the first `pass` reads.
    pub fn hold(&self, pass: usize) {
        let mut state = self.state.lock().unwrap();
        (state.holding, state.pass) = (true, pass);
    }

    /// Waits until enough is held.
    pub fn wait(&self, enough: impl Fn(&[u8]) -> bool) -> MutexGuard<'_, State> {
        let state = self.state.lock().unwrap();
        let (state, late) = self
            .changed
            .wait_timeout_while(state, LIMIT, |state| !enough(&state.held))
            .unwrap();
        assert!(!late.timed_out());
        state
    }

    /// Whether the bytes go on at once.
    fn pass(&self, id: usize, bytes: &[u8]) -> bool {
        let mut state = self.state.lock().unwrap();
        let held = if !state.held.is_empty() {
            state.of == id
        } else if state.holding && state.pass > 0 {
            state.pass -= 1;
            false
        } else {
            state.holding
        };
        if held {
            state.of = id;
            state.held.extend_from_slice(bytes);
            self.changed.notify_all();
        }
        !held
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, pass: impl Fn(&[u8]) -> bool) {
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if pass(&bytes[..n]) && to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
}
