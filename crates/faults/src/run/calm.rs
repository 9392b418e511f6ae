//! The end of a run: repair, a phase without faults, the last power loss, and what must be left then.
use super::{Driver, SETTLE, START, limits};
use crate::bit_rot::Target;
use crate::cluster::{Cluster, Status};
use crate::workload::{Phase, Worker};
use crate::world::{SECOND, lock};
use penstock_client::{
    CheckFinding, CheckOptions, Client, ClientOptions, ErrorKind, FindingKind, Identity,
    accept_lost, check,
};
use penstock_wire::Role;
use std::time::Duration;

/// How often an administrator retries files that were renamed before they could be accepted.
const ACCEPTING: u32 = 8;

impl Driver {
    /// Ends all faults and waits until their effects are over.
    pub(super) fn recover(&mut self) -> Result<(), String> {
        self.say("the faults stop");
        lock(&self.history).phase = Phase::Settling;
        {
            let mut state = self.world.state();
            state.net.slow = 1;
            for disk in &mut state.disks {
                disk.slow = 1;
                disk.full = false;
                disk.heal();
                disk.power = None;
                disk.before_sync = false;
            }
        }
        let end = self.now() + SETTLE;
        let later = std::mem::take(&mut self.later);
        for (_, what) in later {
            self.undo(what)?;
        }
        loop {
            let now = self.now();
            self.carry_on(now)?;
            self.look_at_clients()?;
            let up = (0..self.cluster.machines()).all(|m| self.cluster.status(m) == Status::Up);
            if now > end && up {
                for (machine, (flip, losses)) in std::mem::take(&mut self.flipped) {
                    // The power loss may have restored what was on the disk.
                    if flip.target == Target::Superblock && self.losses(machine) == losses {
                        return Err(format!(
                            "server {machine} has started although a bit of its superblock had flipped"
                        ));
                    }
                }
                return self.mend();
            }
            if now > end + START {
                let machines = 0..self.cluster.machines();
                let states: Vec<Status> = machines.map(|m| self.cluster.status(m)).collect();
                return Err(format!(
                    "no progress: {} s after the faults stopped servers are not up: {states:?}",
                    (SETTLE + START) / SECOND
                ));
            }
            self.sleep(SECOND / 50);
        }
    }

    /// What an administrator does after disk failures: restarts servers, and accepts objects reported as damaged.
    fn mend(&mut self) -> Result<(), String> {
        if !lock(&self.history).hurt {
            return Ok(());
        }
        for machine in 1..self.cluster.machines() {
            if self.world.state().disks[machine].failed > 0 {
                self.say(&format!("server {machine} is started again"));
                self.kill(machine)?;
                self.sleep(SECOND / 10);
                self.cluster.start(machine)?;
                self.cluster.wait_up(machine, START)?;
            }
        }
        self.one_client("accept", |worker| match worker.index {
            0 => accept(&worker),
            _ => Ok(()),
        })?;
        let found = lock(&self.history).damaged.clone();
        self.say(&format!("{} objects are called damaged", found.len()));
        for (machine, object, losses) in std::mem::take(&mut self.records) {
            if self.losses(machine) == losses && !found.contains(&object) {
                return Err(format!(
                    "a bit of the record of object {} on machine {machine} has flipped, and no check says so",
                    object.0
                ));
            }
        }
        Ok(())
    }

    /// Checks quotas on bytes on servers that were not restarted.
    pub(super) fn bytes_agree(&mut self) -> Result<(), String> {
        if self.shape.limit.is_none() {
            return Ok(());
        }
        self.one_client("bytes", |worker| match worker.index {
            0 => limits::bytes(&administrator(&worker)?, &worker.shape),
            _ => Ok(()),
        })
    }

    /// Everything was synced: a power loss everywhere may lose nothing.
    pub(super) fn lose_all_power(&mut self) -> Result<(), String> {
        self.say("the power fails everywhere");
        for machine in 0..self.cluster.machines() {
            self.cluster.gone(machine, SECOND / 20);
            self.lose_power(machine)?;
        }
        self.sleep(SECOND);
        for machine in 0..self.cluster.machines() {
            self.cluster.start(machine)?;
        }
        for machine in 0..self.cluster.machines() {
            self.cluster.wait_up(machine, START)?;
        }
        Ok(())
    }

    /// After a repair the name space is consistent in itself and with the objects.
    pub(super) fn consistent(&mut self) -> Result<(), String> {
        self.one_client("check", |worker| {
            if worker.index > 0 {
                return Ok(());
            }
            let text = |e: penstock_client::Error| e.to_string();
            let client = administrator(&worker)?;
            limits::hold(&client)?;
            limits::bytes(&client, &worker.shape)?;
            for repair in [true, false] {
                let how = CheckOptions {
                    repair,
                    grace: Duration::from_millis(50),
                    // There are few objects: a crash leaves more than one in a hundred without a name.
                    free_many: true,
                    ..CheckOptions::default()
                };
                let report = check(&client, &how, &mut |_| {}).map_err(text)?;
                // Counts are updated with each change and checked by each commit: no fault excuses a wrong one.
                let miscounted = report.findings.iter().any(|finding| {
                    matches!(
                        finding.kind,
                        FindingKind::WrongCount | FindingKind::WrongBytes
                    )
                });
                let left = !repair && !report.findings.is_empty();
                if !report.complete || !report.clean || left || miscounted {
                    let when = if repair { "repair" } else { "after the repair" };
                    return Err(format!("{when}: {:?}", report.findings));
                }
            }
            Ok(())
        })
    }

    /// Checks that servers without connections have freed what connections used.
    pub(super) fn nothing_left(&mut self) -> Result<(), String> {
        self.sleep(5 * SECOND);
        let state = self.world.state();
        for machine in 0..self.cluster.machines() {
            let Some(process) = self.cluster.process(machine) else {
                continue;
            };
            let threads = state.threads(process);
            if threads.len() > Cluster::own_threads(machine, &self.shape) {
                return Err(format!(
                    "memory: server {machine} keeps threads of clients that have gone: {threads:?}"
                ));
            }
        }
        for process in state.processes.iter().skip(1) {
            if process.machine < self.cluster.machines()
                && process.most_threads > self.cluster.most_threads()
            {
                return Err(format!(
                    "memory: server {} had {} threads",
                    process.machine, process.most_threads
                ));
            }
        }
        if let Some(meter) = self.meter {
            for (id, process) in state.processes.iter().enumerate().skip(1) {
                if process.machine >= self.cluster.machines() {
                    continue;
                }
                let server = process.machine;
                let (held, most) = meter(process.charged);
                self.most_bytes = self.most_bytes.max(most);
                let bound = Cluster::most_bytes(process.most_threads);
                if most > bound {
                    return Err(format!(
                        "memory: server {server} held {most} bytes at once, more than {bound}"
                    ));
                }
                let serves = self.cluster.process(server) == Some(id);
                if serves && held > Cluster::BYTES_AT_REST {
                    return Err(format!(
                        "memory: server {server} holds {held} bytes although nobody is connected"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that servers end when told to.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        self.one_client("stop", |worker| {
            if worker.index > 0 {
                return Ok(());
            }
            let text = |e: penstock_client::Error| e.to_string();
            let client = Client::connect_with(
                &worker.deployment,
                Identity::default(),
                Role::Admin,
                ClientOptions::default(),
            )
            .map_err(text)?;
            for server in worker.deployment.server_ids() {
                client.shut_down_data(server).map_err(text)?;
            }
            client.shut_down_meta().map_err(text)
        })?;
        let end = self.now() + 40 * SECOND;
        for machine in 0..self.cluster.machines() {
            while self.cluster.status(machine) != Status::Down {
                if self.now() > end {
                    return Err(format!("server {machine} does not stop"));
                }
                self.sleep(SECOND / 10);
            }
        }
        Ok(())
    }
}

/// An administrator's client, without faults.
fn administrator(worker: &Worker) -> Result<Client, String> {
    let options = ClientOptions {
        retry_limit: Duration::from_secs(10),
        answer_timeout: Duration::from_secs(10),
        ..ClientOptions::default()
    };
    let who = Identity::default();
    Client::connect_with(&worker.deployment, who, Role::Admin, options).map_err(|e| e.to_string())
}

/// Accepts all objects that a check reports as damaged.
fn accept(worker: &Worker) -> Result<(), String> {
    let patience = Duration::from_secs(60);
    let options = ClientOptions {
        retry_limit: patience,
        answer_timeout: patience,
        ..ClientOptions::default()
    };
    let text = |e: penstock_client::Error| e.to_string();
    let who = Identity::default();
    let client =
        Client::connect_with(&worker.deployment, who, Role::Admin, options).map_err(text)?;
    let how = CheckOptions {
        accept_damaged: true,
        grace: Duration::from_millis(50),
        ..CheckOptions::default()
    };
    // Other clients rename files meanwhile: files not found under their name are searched once more.
    for _ in 0..ACCEPTING {
        let mut missed = None;
        let report = check(&client, &how, &mut |_| {}).map_err(text)?;
        for finding in report.findings {
            missed = accept_one(worker, &client, finding)?.or(missed);
        }
        if missed.is_none() {
            return Ok(());
        }
    }
    Err("files are renamed each time that they are to be accepted".into())
}

/// Accepts a damaged object; returns the name under which it is no longer found.
fn accept_one(
    worker: &Worker,
    client: &Client,
    finding: CheckFinding,
) -> Result<Option<String>, String> {
    match finding.kind {
        FindingKind::DamagedRecord | FindingKind::TruncatedObject => {
            if !finding.mended {
                return Err(format!("cannot be accepted: {finding:?}"));
            }
            lock(&worker.history).damaged.extend(finding.file);
        }
        FindingKind::LostObject => {
            let Some((path, server)) = finding.path.zip(finding.server) else {
                return Ok(None);
            };
            if !take_lost(worker, client, &path, server.0 as usize + 1)? {
                return Ok(Some(path));
            }
        }
        _ => {}
    }
    Ok(None)
}

/// Accepts a file whose bytes on a machine are lost: it reads as zeros from now on, without an error. False if its name
/// is gone.
fn take_lost(worker: &Worker, client: &Client, path: &str, machine: usize) -> Result<bool, String> {
    let now = || worker.world.state().now;
    let begun = now();
    let id = lock(&worker.history).begin_loss(path, machine, begun);
    let there = match accept_lost(client, path) {
        Ok(_) => true,
        Err(e) if e.kind() == ErrorKind::NotFound => false,
        Err(e) => return Err(format!("{path} cannot be accepted: {e}")),
    };
    let ended = now();
    lock(&worker.history).end_loss(path, machine, id, ended);
    Ok(there)
}
