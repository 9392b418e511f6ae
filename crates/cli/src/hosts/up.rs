//! Starts servers on all hosts, or on none.
use super::message::{Begin, Begun, Install, Job, Looked, Open, Reply, Request, Start};
use super::session::{self, Interrupt, Session};
use super::{here, names};
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::updown::{self, RECOVERY, START, UpArgs};
use crate::which::Which;
use crate::{out, service, size, status};
use penstock_rpc::deployment::Deployment;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long running servers have to answer over the network.
const NETWORK: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);
const QUIET: Duration = Duration::from_secs(2);
/// How often agents get a request while a job's input is staged in: more often than they time out.
const ATTEND: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(20);

/// Makes a deployment on several hosts, or starts the servers of one that don't run.
pub fn up(args: &UpArgs) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    if deployment::is_in(&args.dir) {
        again(args, &interrupt)
    } else {
        new(args, &interrupt)
    }
}

fn new(args: &UpArgs, interrupt: &Interrupt) -> Result<()> {
    let (mut sessions, located, started) = begin(args, interrupt)?;
    keep(args, &mut sessions)?;
    told(&sessions, &located, started);
    Ok(())
}

/// Files in a job's directory on each host, besides the deployment.
#[derive(Debug, Clone, Default)]
pub struct ForJob {
    /// Where output is to be staged out to.
    pub unsaved: Option<String>,
}

/// Makes a deployment for a job, and calls `fill` with it. Until `fill` has returned, all hosts would undo everything.
pub fn for_job(
    args: &UpArgs,
    job: &ForJob,
    fill: impl FnOnce(&Located) -> Result<Option<String>> + Send,
) -> Result<Located> {
    let interrupt = Interrupt::catch()?;
    let (mut sessions, located, _) = begin(args, &interrupt)?;
    all_or_nothing(&mut sessions, |sessions| {
        let credential = attend(sessions, || fill(&located))?;
        session::ask_all(sessions, "finishing", |_| {
            Request::Job(Job {
                unsaved: job.unsaved.clone(),
                credential: credential.clone(),
            })
        })
        .map(drop)
    })?;
    keep(args, &mut sessions)?;
    Ok(located)
}

/// Runs `f`, and meanwhile sends requests to the agents, which would otherwise time out and undo what they did.
fn attend<T: Send>(sessions: &mut [Session], f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let work = scope.spawn(f);
        let (mut asked, mut lost) = (Instant::now(), Ok(()));
        while !work.is_finished() {
            std::thread::sleep(GLANCE);
            if lost.is_ok() && asked.elapsed() >= ATTEND {
                lost = looked(sessions).map(drop);
                asked = Instant::now();
            }
        }
        let done = work
            .join()
            .map_err(|_| CliError::new("the work on the new deployment panicked"))??;
        lost.map(|()| done)
    })
}

/// Makes a deployment and starts its servers. All hosts undo that unless it is to stay.
fn begin(args: &UpArgs, interrupt: &Interrupt) -> Result<(Vec<Session>, Located, usize)> {
    let hosts = names::named(&args.hosts)?;
    if args.reach.here {
        return Err(CliError::new(
            "--here is for an existing deployment, and this one would be new",
        ));
    }
    if !here::Here::find()?.is(&hosts[0]) {
        return Err(CliError::new(format!(
            "the metadata server's host is {}, the first one, and this is another",
            hosts[0]
        ))
        .next(format!(
            "run the command on {}, or name this host first: keys are made where `up` runs",
            hosts[0]
        )));
    }
    let mut shape = args.shape.clone();
    let servers = *shape
        .servers
        .get_or_insert(u32::try_from(hosts.len()).unwrap_or(u32::MAX));
    if (servers as usize) < hosts.len() {
        return Err(CliError::new(format!(
            "{servers} data servers are fewer than the {} hosts",
            hosts.len()
        ))
        .next("name fewer hosts, or leave --servers out: one on each"));
    }
    let dir = std::path::absolute(&args.dir).map_err(|e| CliError::io("find", &args.dir, e))?;
    if dir.to_str().is_none() {
        return Err(
            CliError::new(format!("{} is not plain UTF-8", dir.display()))
                .next("choose another directory"),
        );
    }
    let mut deployment = deployment::describe(&dir, &shape, &updown::plan(args)?)?;
    deployment.meta.host = Some(hosts[0].clone());
    for (server, host) in deployment.servers.iter_mut().zip(hosts.iter().cycle()) {
        server.host = Some(host.clone());
    }
    let start = start(args)?;
    let mut sessions = reached(&hosts, args, interrupt)?;
    let (located, started) = all_or_nothing(&mut sessions, |sessions| {
        install(args, &dir, &mut deployment, sessions)?;
        let located = deployment::load(&dir)?;
        let started = run(&located, sessions, &start, interrupt)?;
        Ok((located, started))
    })?;
    Ok((sessions, located, started))
}

/// Starts what does not run: on all hosts if this is the metadata server's, otherwise on this host.
fn again(args: &UpArgs, interrupt: &Interrupt) -> Result<()> {
    let located = service::as_owner(&args.dir, || updown::existing(args))?;
    let all = located.deployment.hosts();
    let differs = |option: &str, has: String| {
        Err(CliError::new(format!(
            "{} exists and has {has}; {option} can't change that",
            located.dir().display()
        ))
        .next("leave the option out, or name another directory"))
    };
    if args.hosts.are_named() && names::named(&args.hosts)? != all {
        let has = if all.is_empty() {
            "all servers on one host".to_owned()
        } else {
            format!("servers on {}", names::some(&all))
        };
        return differs("--hosts", has);
    }
    if args.hosts.net.is_some() {
        return differs("--net", "addresses of its own".into());
    }
    if args.hosts.ports.is_some() {
        return differs("--ports", "ports of its own".into());
    }
    let hosts = super::reached(&located, args.reach.here)?.unwrap_or_default();
    if args.hosts.are_named() && !args.reach.here && hosts.len() < all.len() {
        return Err(CliError::new(format!(
            "the servers of all hosts are started from {}, and this is {}",
            all[0], hosts[0]
        ))
        .next(format!(
            "run it there; here `penstock up {}` starts the servers of {}",
            located.dir().display(),
            hosts[0]
        )));
    }
    let start = start(args)?;
    let relative = located.deployment.relative_to(located.dir());
    let token = token()?;
    let mut sessions = reached(&hosts, args, interrupt)?;
    let started = all_or_nothing(&mut sessions, |sessions| {
        session::ask_all(sessions, "opening", |host| {
            Request::Open(Open {
                dir: located.dir().to_owned(),
                host: host.to_owned(),
                token: token.clone(),
                deployment: relative.clone(),
            })
        })?;
        run(&located, sessions, &start, interrupt)
    })?;
    keep(args, &mut sessions)?;
    told(&sessions, &located, started);
    Ok(())
}

fn start(args: &UpArgs) -> Result<Start> {
    let trace = args.trace.as_ref();
    let trace = trace.map(|dir| std::path::absolute(dir).map_err(|e| CliError::io("find", dir, e)));
    Ok(Start {
        trace: trace.transpose()?,
        journal: args.journal,
        replaced: args.replaced.clone(),
    })
}

/// A random token, so that two starts at the same time differ.
fn token() -> Result<String> {
    Deployment::new_id().map_err(CliError::new)
}

/// Sessions with all of these hosts, or an error about those that cannot be reached.
fn reached(hosts: &[String], args: &UpArgs, interrupt: &Interrupt) -> Result<Vec<Session>> {
    let (sessions, failures) = session::open(hosts, &args.reach.reach()?, interrupt);
    if interrupt.came() {
        return Err(CliError::new("interrupted; nothing was started"));
    }
    match session::failed(failures) {
        Some(error) => Err(error),
        None => Ok(sessions),
    }
}

/// Runs `f`. If that fails, all hosts undo what they did.
fn all_or_nothing<T>(
    sessions: &mut [Session],
    f: impl FnOnce(&mut [Session]) -> Result<T>,
) -> Result<T> {
    let error = match f(sessions) {
        Ok(done) => return Ok(done),
        Err(error) => error,
    };
    let (_, failures) = session::ask_each(sessions, "taking back", |_| Request::Undo);
    for failure in failures {
        out::note(format_args!(
            "{}: it could not be told to undo its part; it does so by itself within {} s",
            failure.host,
            super::message::IDLE_S
        ));
    }
    Err(error)
}

/// Has each host claim the directory and make its keys, and writes the deployment file on all hosts. Private keys stay
/// on the hosts that made them; the client key goes to all.
fn install(
    args: &UpArgs,
    dir: &Path,
    deployment: &mut Deployment,
    sessions: &mut [Session],
) -> Result<()> {
    let ports = args.hosts.ports.unwrap_or_default();
    let token = token()?;
    let replies = session::ask_all(sessions, "preparing", |host| {
        Request::Begin(Begin {
            dir: dir.to_owned(),
            host: host.to_owned(),
            token: token.clone(),
            servers: Which::on(deployment, Some(host)),
            net: args.hosts.net.clone(),
            hint: here::resolve(host),
            ports: (ports.first, ports.last),
            service_user: args.service_user.clone(),
            group: args.group.clone(),
        })
    })?;
    for (session, reply) in sessions.iter().zip(replies) {
        let Reply::Begun(begun) = reply else {
            return Err(unexpected(&session.host));
        };
        take(dir, deployment, &session.host, &begun)?;
    }
    let install = Install {
        deployment: deployment.relative_to(dir),
        client_key: penstock_wire::key::random().map_err(CliError::new)?,
    };
    session::ask_all(sessions, "installing", |_| {
        Request::Install(install.clone())
    })?;
    Ok(())
}

/// Stores addresses and identities of a host's servers in the deployment.
fn take(dir: &Path, deployment: &mut Deployment, host: &str, begun: &Begun) -> Result<()> {
    let servers = Which::on(deployment, Some(host));
    if servers.len() != begun.servers.len() {
        return Err(unexpected(host));
    }
    for (which, (port, identity)) in servers.into_iter().zip(&begun.servers) {
        let (address, key) = match which {
            Which::Meta => (
                &mut deployment.meta.address,
                &mut deployment.meta.identity_key,
            ),
            Which::Data(id) => {
                let server = deployment.servers.iter_mut().find(|s| s.id == id);
                let server = server.ok_or_else(|| unexpected(host))?;
                (&mut server.address, &mut server.identity_key)
            }
        };
        address.tcp = Some(SocketAddr::new(begun.address, *port).to_string());
        address.identity = Some(*identity);
        *key = Some(dir.join(format!("{}.key", which.name())));
    }
    if host == deployment.hosts()[0] {
        deployment.authority = begun.authority;
        deployment.authority_key = Some(dir.join("authority.key"));
    }
    Ok(())
}

pub(super) fn unexpected(host: &str) -> CliError {
    CliError::new(format!(
        "{host}: its agent gave an answer to another question"
    ))
}

/// Starts the servers of these hosts that do not run, and waits until all answer. Returns how many were started.
fn run(
    located: &Located,
    sessions: &mut [Session],
    start: &Start,
    interrupt: &Interrupt,
) -> Result<usize> {
    session::ask_all(sessions, "starting", |_| Request::Start(start.clone()))?;
    let began = Instant::now();
    let mut end = began + START;
    let mut told = String::new();
    let started = loop {
        let looked = looked(sessions)?;
        let silent = looked
            .iter()
            .find_map(|(host, looked)| Some((host, looked.silent.first()?)));
        let Some((host, (which, said))) = silent else {
            break looked.iter().map(|(_, l)| l.started.len()).sum();
        };
        if let Some((host, (which, line))) = looked
            .iter()
            .find_map(|(host, looked)| Some((host, looked.recovering.as_ref()?)))
            && *line != told
        {
            end = Instant::now() + RECOVERY;
            if began.elapsed() >= QUIET {
                out::note(format_args!("{host}: {} recovers: {line}", which.title()));
            }
            told.clone_from(line);
        }
        if interrupt.came() {
            return Err(session::interrupted());
        }
        if Instant::now() >= end {
            return Err(CliError::new(format!(
                "{host}: {} does not answer after {} s; its log ends with\n    {said}",
                which.title(),
                began.elapsed().as_secs()
            ))
            .next("if it waits for the metadata server: that has to run, and to be reachable from there"));
        }
        std::thread::sleep(PAUSE);
    };
    if sessions.len() == located.deployment.hosts().len() {
        reach_all(located, interrupt)?;
    }
    Ok(started)
}

/// The state of all servers, or the last words of one that ended.
fn looked(sessions: &mut [Session]) -> Result<Vec<(String, Looked)>> {
    let replies = session::ask_all(sessions, "starting", |_| Request::Look)?;
    let mut all = Vec::new();
    for (session, reply) in sessions.iter().zip(replies) {
        let Reply::Looked(looked) = reply else {
            return Err(unexpected(&session.host));
        };
        if let Some((which, said)) = &looked.ended {
            return Err(CliError::new(format!(
                "{}: {} ended at once. It said:\n{}",
                session.host,
                which.title(),
                session::printable(said)
            ))
            .next("remove the cause on that host and run `penstock up` again"));
        }
        all.push((session.host.clone(), looked));
    }
    Ok(all)
}

/// Checks that the running servers can be reached from here.
fn reach_all(located: &Located, interrupt: &Interrupt) -> Result<()> {
    let deployment = &located.deployment;
    let end = Instant::now() + NETWORK;
    loop {
        let silent = status::silent(deployment);
        let Some((which, why)) = silent.first() else {
            return Ok(());
        };
        let host = which.host(deployment).unwrap_or_default();
        if why.refuses {
            return Err(CliError::new(format!(
                "{host}: {} refuses this client: {why}",
                which.title()
            ))
            .next(status::next(why, located)));
        }
        if interrupt.came() {
            return Err(session::interrupted());
        }
        if Instant::now() >= end {
            return Err(CliError::new(format!(
                "{host}: {} runs, and does not answer over the network: {why}",
                which.title()
            ))
            .next("is a firewall between the hosts? --net says which address servers take, --ports which ports"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Tells all agents to keep what was done.
fn keep(args: &UpArgs, sessions: &mut [Session]) -> Result<()> {
    let wait = args.reach.reach()?.via.ends_what_it_started();
    all_or_nothing(sessions, |sessions| {
        // This host's servers were started without a remote command.
        let here = sessions[0].host.clone();
        let keep = |host: &str| Request::Keep {
            wait: wait && host != here,
        };
        session::ask_all(sessions, "finishing", keep).map(drop)
    })
}

/// Prints what was done.
fn told(sessions: &[Session], located: &Located, started: usize) {
    let dir = located.dir().display();
    let on = match sessions {
        [only] => format!("on {}", only.host),
        all => format!("on {} hosts", all.len()),
    };
    match started {
        0 => out::line(format_args!("{dir}: all servers {on} run already")),
        n => out::line(format_args!(
            "{dir}: {n} servers started {on}, stripe unit {}",
            size::bytes(located.deployment.stripe_unit)
        )),
    }
    if let Some(warning) = deployment::unprotected(&located.deployment) {
        out::line(warning);
    }
    out::line(format_args!("  export {}={dir}", deployment::VARIABLE));
    out::line("  penstock run -n 4 -- ./app penstock:/file");
    out::line("  users on other hosts need credentials: `penstock credential --help`");
}
