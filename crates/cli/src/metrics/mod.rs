//! `penstock metrics`: figures of a deployment for Prometheus.
//!
//! *Problem*: figures by program would be as many series as there ever were programs. *Idea*: figures by server always. Those
//! by user and by job are for a bounded number of each, with all others together. They go only to whoever shows a token: any
//! user of this host can reach a port of it.
//! What servers tell are sums of rows that come and go; here they are added up from look to look, so that counters only grow.
mod exposition;
mod http;

use crate::asking::{Inquirer, Round};
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::programs::user;
use crate::top::rows::{self, Look, OTHERS, Rates};
use crate::{out, status};
use clap::Args;
use exposition::{Family, Form};
use http::{Request, Response};
use penstock_wire::message::{DataStatus, LedgerStatus, LedgerSums};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Servers are asked at most so often, however many ask here.
const FRESH: Duration = Duration::from_secs(1);
/// A user or a job that did nothing for so long has no series any more.
const IDLE: Duration = Duration::from_secs(900);
/// Bytes of a token.
const TOKEN: std::ops::RangeInclusive<usize> = 16..=1024;

/// Serve figures of a deployment to Prometheus (OpenMetrics over HTTP on this host).
///
/// Runs until it is stopped. Figures by server need no more than the client key. Those by user and job are given with --token
/// only, to whoever shows it. They cover the programs that this process may see: an administrator's sees all.
/// contrib/grafana has a dashboard; docs/administer/monitoring.md has the names.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock metrics /data/fs                                    servers
  penstock metrics /data/fs --token /etc/penstock/token        also users and jobs
  penstock metrics -d /data/fs --listen 127.0.0.1:9100 --token token --jobs 0

In prometheus.yml:
  scrape_configs:
    - job_name: penstock
      authorization: { credentials_file: /etc/penstock/token }
      static_configs: [{ targets: ['127.0.0.1:9797'] }]")]
pub struct MetricsArgs {
    /// Directory of the deployment [default: --deployment].
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where to listen, on this host; port 0: any that is free, which is printed.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9797")]
    pub listen: SocketAddr,
    /// File with the token that has to be shown; made if it isn't there.
    #[arg(long, value_name = "FILE")]
    pub token: Option<PathBuf>,
    /// Users with figures of their own; all others are one.
    #[arg(long, value_name = "N", default_value = "50", requires = "token", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub users: u16,
    /// Jobs with figures of their own; all others are one.
    #[arg(long, value_name = "N", default_value = "20", requires = "token", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub jobs: u16,
}

/// Answers until it is stopped.
pub fn metrics(args: &MetricsArgs, named: Option<&Path>) -> Result<()> {
    let located = deployment::find(args.dir.as_deref().or(named))?;
    if !args.listen.ip().is_loopback() {
        return Err(CliError::new(format!(
            "{} is not on this host alone, and what is served there is not protected",
            args.listen
        ))
        .next("listen on 127.0.0.1, and let a proxy with TLS pass it on"));
    }
    let token = args.token.as_deref().map(token).transpose()?;
    let inquirer = Inquirer::new(&located.deployment)
        .map_err(|why| CliError::new(&why).next(status::next(&why, &located)))?;
    let listener = TcpListener::bind(args.listen).map_err(|e| {
        CliError::new(format!("cannot listen on {}: {e}", args.listen))
            .next("another port: --listen 127.0.0.1:PORT")
    })?;
    let at = listener
        .local_addr()
        .map_err(|e| CliError::new(format!("a socket without an address: {e}")))?;
    out::line(format_args!("http://{at}/metrics"));
    let apart = |most: u16| token.is_some().then_some(usize::from(most));
    let exporter = Mutex::new(Exporter {
        located,
        inquirer,
        before: None,
        users: apart(args.users).map(Accounts::new),
        jobs: apart(args.jobs).map(Accounts::new),
        told: None,
    });
    http::serve(&listener, move |request| {
        answer(request, token.as_ref(), &exporter)
    });
    Ok(())
}

/// The token in a file that nobody else may read.
fn token(path: &Path) -> Result<blake3::Hash> {
    let failed = |what: &str, e: std::io::Error| {
        CliError::new(format!("cannot {what} {}: {e}", path.display()))
    };
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let random: [u8; 32] = penstock_wire::key::random().map_err(CliError::new)?;
            let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            file.write_all(format!("{text}\n").as_bytes())
                .map_err(|e| failed("write", e))?;
        }
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(failed("make", e)),
    }
    let found = path.metadata().map_err(|e| failed("look at", e))?;
    if found.mode() & 0o007 != 0 {
        return Err(
            CliError::new(format!("{} is open to everybody", path.display()))
                .next(format!("chmod 640 {}", path.display())),
        );
    }
    if found.len() > *TOKEN.end() as u64 + 2 {
        return Err(CliError::new(format!(
            "{} is too long for a token",
            path.display()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|e| failed("read", e))?;
    let text = text.trim();
    if !TOKEN.contains(&text.len()) {
        return Err(CliError::new(format!(
            "the token in {} has {} characters, {} to {} will do",
            path.display(),
            text.len(),
            TOKEN.start(),
            TOKEN.end()
        )));
    }
    Ok(blake3::hash(text.as_bytes()))
}

fn answer(request: &Request, token: Option<&blake3::Hash>, exporter: &Mutex<Exporter>) -> Response {
    // Hashes are compared in constant time.
    let shown = || request.authorization.strip_prefix("Bearer ");
    let may = |token: &blake3::Hash| shown().is_some_and(|t| blake3::hash(t.as_bytes()) == *token);
    if !token.is_none_or(may) {
        return Response::failure(401, "show the token: Authorization: Bearer TOKEN");
    }
    match request.path.as_str() {
        "/" => Response::failure(200, "metrics are at /metrics"),
        "/metrics" => {
            let form = Form::accepted(&request.accept);
            // Figures: whatever a panic left of them is good enough.
            let mut exporter = exporter.lock().unwrap_or_else(PoisonError::into_inner);
            Response {
                status: 200,
                kind: form.kind(),
                body: exposition::render(&exporter.figures(), form),
            }
        }
        _ => Response::failure(404, "metrics are at /metrics"),
    }
}

type Told = (DataStatus, LedgerStatus);

/// What is known between two who ask.
struct Exporter {
    located: Located,
    inquirer: Inquirer,
    before: Option<Round<Told>>,
    /// `None`: not to be told.
    users: Option<Accounts<u32>>,
    jobs: Option<Accounts<(u32, String)>>,
    told: Option<(Instant, Arc<Vec<Family>>)>,
}

/// What was added up for one user or job.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    requests: f64,
    read: f64,
    written: f64,
    queue: f64,
    device: f64,
}

impl Sums {
    fn add(&mut self, rates: &Rates, seconds: f64) {
        self.requests += rates.requests * seconds;
        self.read += rates.read * seconds;
        self.written += rates.written * seconds;
        self.queue += rates.queue * seconds;
        self.device += rates.device * seconds;
    }
}

/// A bounded number of them, and all others.
struct Accounts<K> {
    most: usize,
    apart: BTreeMap<K, (Sums, Instant)>,
    others: Sums,
}

impl<K: Ord> Accounts<K> {
    fn new(most: usize) -> Accounts<K> {
        Accounts {
            most,
            apart: BTreeMap::new(),
            others: Sums::default(),
        }
    }

    /// `None`: of nobody in particular. Whoever has figures of his own keeps them until he is idle.
    fn add(&mut self, of: Option<K>, rates: &Rates, seconds: f64, now: Instant) {
        if rates.is_idle() {
            return;
        }
        let Some(of) = of else {
            return self.others.add(rates, seconds);
        };
        if !self.apart.contains_key(&of) && self.apart.len() >= self.most {
            return self.others.add(rates, seconds);
        }
        let (sums, used) = self.apart.entry(of).or_insert((Sums::default(), now));
        sums.add(rates, seconds);
        *used = now;
    }

    fn forget_idle(&mut self, now: Instant) {
        self.apart
            .retain(|_, (_, used)| now.saturating_duration_since(*used) < IDLE);
    }
}

impl Exporter {
    /// All figures, at most [`FRESH`] old.
    fn figures(&mut self) -> Arc<Vec<Family>> {
        if let Some((when, told)) = &self.told
            && when.elapsed() < FRESH
        {
            return told.clone();
        }
        let began = Instant::now();
        let mut now = self.inquirer.states_and_ledgers();
        self.add_up(&now);
        let mut families = self.of_servers(&now);
        families.extend(self.of_meta(&now));
        families.extend(self.of_users());
        let mut took = Family::gauge(
            "penstock_scrape_seconds",
            "How long it took to ask all servers.",
        );
        took.put(&[], began.elapsed().as_secs_f64());
        families.push(took);
        if let Some(before) = &self.before {
            now.remember(before);
        }
        self.before = Some(now);
        let told = Arc::new(families);
        self.told = Some((Instant::now(), told.clone()));
        told
    }

    /// Adds what happened since the last look to the accounts.
    fn add_up(&mut self, now: &Round<Told>) {
        let servers = self.located.deployment.server_ids();
        let looks: Vec<Look<'_>> = servers
            .iter()
            .zip(&now.data)
            .enumerate()
            .filter_map(|(k, (id, answer))| {
                let before = self.before.as_ref().and_then(|b| b.data.get(k));
                Some(Look {
                    server: id.0,
                    before: before
                        .and_then(|a| a.as_ref().ok())
                        .map(|(_, ledger)| ledger),
                    now: &answer.as_ref().ok()?.1,
                })
            })
            .collect();
        let load = rows::between(&looks, true);
        let names = now.programs.names();
        let time = Instant::now();
        for line in &load.programs {
            let own = line.of != OTHERS;
            let seconds = line.servers.first().and_then(|id| load.servers.get(&id));
            let seconds = seconds.map_or(0.0, |server| server.seconds);
            if let Some(users) = &mut self.users {
                users.add(own.then_some(line.of.1), &line.rates, seconds, time);
            }
            if let Some(jobs) = &mut self.jobs {
                let job = names.get(&line.of).map(|names| names.job.clone());
                let job = (line.of.1, job.unwrap_or_default());
                jobs.add(own.then_some(job), &line.rates, seconds, time);
            }
        }
        if let Some(users) = &mut self.users {
            users.forget_idle(time);
        }
        if let Some(jobs) = &mut self.jobs {
            jobs.forget_idle(time);
        }
    }

    fn of_servers(&self, now: &Round<Told>) -> Vec<Family> {
        let mut up = Family::gauge("penstock_server_up", "Whether the server answers.");
        let meta = f64::from(u8::from(now.meta.is_ok()));
        up.put(&[("server", "meta")], meta);
        let mut requests = Family::counter(
            "penstock_server_requests",
            "Reads and writes, by requests or by shortcuts.",
        );
        let mut bytes = Family::counter(
            "penstock_server_bytes",
            "Bytes that were moved, by requests or by shortcuts.",
        );
        let mut times = [
            Family::counter(
                "penstock_server_queue_seconds",
                "Time that requests waited for their turn, added up.",
            ),
            Family::counter(
                "penstock_server_device_seconds",
                "Time that the store worked for requests, added up.",
            ),
            Family::counter(
                "penstock_server_busy_seconds",
                "Time with at least one request under way.",
            ),
        ];
        let mut gauges = [
            Family::gauge(
                "penstock_server_queued_requests",
                "Requests that wait for their turn now.",
            ),
            Family::gauge(
                "penstock_server_connections",
                "Connections that are open now.",
            ),
            Family::gauge(
                "penstock_server_objects",
                "Objects in the store, counted up to 65,536 and a page.",
            ),
            Family::gauge(
                "penstock_server_size_bytes",
                "Size of the file system below the store.",
            ),
            Family::gauge("penstock_server_free_bytes", "What is free there."),
            Family::gauge(
                "penstock_server_uptime_seconds",
                "Since the server's start.",
            ),
        ];
        for (server, answer) in self.located.deployment.servers.iter().zip(&now.data) {
            let name = format!("data-{}", server.id.0);
            let own = [("server", name.as_str())];
            up.put(&own, f64::from(u8::from(answer.is_ok())));
            let Ok((state, ledger)) = answer else {
                continue;
            };
            let total: &LedgerSums = &ledger.total;
            let put = |family: &mut Family, way, op, value: u64| {
                family.put(
                    &[("server", name.as_str()), ("op", op), ("way", way)],
                    value as f64,
                );
            };
            put(&mut requests, "request", "read", total.reads);
            put(&mut requests, "request", "write", total.writes);
            put(&mut requests, "shortcut", "any", total.direct.requests);
            put(&mut bytes, "request", "read", total.read);
            put(&mut bytes, "request", "write", total.written);
            put(&mut bytes, "shortcut", "read", total.direct.read);
            put(&mut bytes, "shortcut", "write", total.direct.written);
            for (family, ns) in
                times
                    .iter_mut()
                    .zip([total.queue_ns, total.device_ns, total.busy_ns])
            {
                family.put(&own, ns as f64 / 1e9);
            }
            let values = [
                state.sched.queued as f64,
                state.connections as f64,
                state.objects as f64,
                state.total_bytes as f64,
                state.free_bytes as f64,
                state.uptime_ms as f64 / 1e3,
            ];
            for (family, value) in gauges.iter_mut().zip(values) {
                family.put(&own, value);
            }
        }
        let mut families = vec![up, requests, bytes];
        families.extend(times);
        families.extend(gauges);
        families
    }

    fn of_meta(&self, now: &Round<Told>) -> Vec<Family> {
        let Ok(meta) = &now.meta else {
            return Vec::new();
        };
        let mut families = vec![
            Family::counter("penstock_meta_requests", "Requests to the metadata server."),
            Family::counter("penstock_meta_commits", "Its commits."),
            Family::gauge(
                "penstock_meta_connections",
                "Connections that it has open now.",
            ),
            Family::gauge("penstock_meta_files", "Files that there are."),
            Family::gauge("penstock_meta_directories", "Directories that there are."),
        ];
        let values = [
            meta.requests,
            meta.commits,
            meta.connections,
            meta.files,
            meta.directories,
        ];
        for (family, value) in families.iter_mut().zip(values) {
            family.put(&[], value as f64);
        }
        families
    }

    fn of_users(&self) -> Vec<Family> {
        let mut families = Vec::new();
        if let Some(accounts) = &self.users {
            let mut all = Figures::new([
                ("penstock_user_requests", "Reads and writes of a user."),
                ("penstock_user_bytes", "Bytes that a user moved."),
                (
                    "penstock_user_queue_seconds",
                    "Time that a user's requests waited for their turn.",
                ),
                (
                    "penstock_user_device_seconds",
                    "Time that stores worked for a user's requests.",
                ),
            ]);
            for (uid, (sums, _)) in &accounts.apart {
                all.put(&[("user", &user(*uid))], sums);
            }
            all.put(&[("user", "(others)")], &accounts.others);
            families.extend(all.0);
        }
        if let Some(accounts) = &self.jobs {
            let mut all = Figures::new([
                ("penstock_job_requests", "Reads and writes of a job."),
                ("penstock_job_bytes", "Bytes that a job moved."),
                (
                    "penstock_job_queue_seconds",
                    "Time that a job's requests waited for their turn.",
                ),
                (
                    "penstock_job_device_seconds",
                    "Time that stores worked for a job's requests.",
                ),
            ]);
            for ((uid, job), (sums, _)) in &accounts.apart {
                all.put(&[("user", &user(*uid)), ("job", job)], sums);
            }
            all.put(&[("user", "(others)"), ("job", "")], &accounts.others);
            families.extend(all.0);
        }
        families
    }
}

/// Requests, bytes, time in queues, time of stores.
struct Figures([Family; 4]);

impl Figures {
    fn new(names: [(&'static str, &'static str); 4]) -> Figures {
        Figures(names.map(|(name, help)| Family::counter(name, help)))
    }

    fn put(&mut self, labels: &[(&str, &str)], sums: &Sums) {
        let [requests, bytes, queue, device] = &mut self.0;
        requests.put(labels, sums.requests);
        let of = |op| [labels, &[("op", op)]].concat();
        bytes.put(&of("read"), sums.read);
        bytes.put(&of("write"), sums.written);
        queue.put(labels, sums.queue);
        device.put(labels, sums.device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_bounded_and_only_grow() {
        let rates = |read| Rates {
            read,
            requests: 1.0,
            ..Rates::default()
        };
        let now = Instant::now();
        let mut accounts = Accounts::new(2);
        for user in [7u32, 8, 9, 7] {
            accounts.add(Some(user), &rates(10.0), 2.0, now);
        }
        accounts.add(None, &rates(1.0), 1.0, now);
        accounts.add(Some(10), &Rates::default(), 1.0, now);
        let known: Vec<(u32, f64)> = accounts
            .apart
            .iter()
            .map(|(k, (s, _))| (*k, s.read))
            .collect();
        assert_eq!(known, [(7, 40.0), (8, 20.0)]);
        assert_eq!(
            (accounts.others.read, accounts.others.requests),
            (21.0, 3.0)
        );
        // Whoever is idle makes room.
        let later = now + IDLE;
        accounts.add(Some(8), &rates(1.0), 1.0, later);
        accounts.forget_idle(later);
        accounts.add(Some(9), &rates(1.0), 1.0, later);
        let known: Vec<u32> = accounts.apart.keys().copied().collect();
        assert_eq!(known, [8, 9]);
    }

    #[test]
    fn a_token_is_made_once_and_must_be_ones_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let first = token(&path).unwrap();
        assert_eq!(token(&path).unwrap(), first);
        let mode = |mode| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o604);
        assert!(
            token(&path)
                .unwrap_err()
                .to_string()
                .contains("open to everybody")
        );
        mode(0o640);
        std::fs::write(&path, "short").unwrap();
        assert!(
            token(&path)
                .unwrap_err()
                .to_string()
                .contains("5 characters")
        );
        std::fs::write(&path, "x".repeat(5000)).unwrap();
        assert!(token(&path).unwrap_err().to_string().contains("too long"));
    }
}
