//! Servers end on all hosts, and the deployment file goes to all.
use super::message::{NextKeys, Open, Reply, Request};
use super::session::{self, Failure, Interrupt, Session};
use super::up::unexpected;
use super::{ReachArgs, reached};
use crate::deployment::Located;
use crate::error::{CliError, Result};
use crate::job::Cleaned;
use crate::launch;
use crate::out;
use crate::service;
use crate::updown;
use crate::which::Which;
use penstock_rpc::deployment::Deployment;
use penstock_wire::PublicKey;
use std::path::Path;

/// On the metadata server's host, ends the servers of all hosts; elsewhere those of this host. Continues if a host is
/// not reached.
pub fn down(located: &Located, args: &ReachArgs) -> Result<()> {
    let (mut sessions, mut failures) = opened(located, args)?;
    let (count, killed) = end(located, &mut sessions, &mut failures);
    failures
        .extend(session::ask_each(&mut sessions, "ending", |_| Request::Keep { wait: false }).1);
    let dir = located.dir().display();
    let on = match &sessions[..] {
        [only] => format!("on {}", only.host),
        all => format!("on {} hosts", all.len()),
    };
    match count {
        0 => out::line(format_args!("{dir}: no servers ran {on}")),
        n => out::line(format_args!("{dir}: {n} servers ended {on}")),
    }
    if let Some(error) = session::failed(failures) {
        let (what, next) = error.into_parts();
        let error = CliError::new(format!("{what}\n  servers may still run there"));
        return Err(match next {
            Some(next) => error.next(next),
            None => error,
        });
    }
    if killed.is_empty() {
        Ok(())
    } else {
        Err(updown::killed(located, &killed))
    }
}

/// Ends servers, data servers first. Returns how many ended, and which had to be killed.
fn end(
    located: &Located,
    sessions: &mut [Session],
    failures: &mut Vec<Failure>,
) -> (usize, Vec<String>) {
    let (mut count, mut killed) = (0, Vec::new());
    for servers in launch::data_first(Which::all(&located.deployment)) {
        let end = |host: &str| {
            let own = servers.iter().copied();
            let own = own.filter(|which| which.host(&located.deployment) == Some(host));
            Request::End(own.collect())
        };
        let (replies, failed) = session::ask_each(sessions, "ending", end);
        failures.extend(failed);
        for reply in replies {
            if let Reply::Ended {
                count: ended,
                killed: names,
            } = reply
            {
                count += ended;
                killed.extend(names);
            }
        }
    }
    (count, killed)
}

/// Ends the servers of a job's deployment on all hosts, and removes it there. Continues if a host is not reached, and
/// reports it.
pub fn clean(located: &Located, args: &ReachArgs, discard: bool) -> Result<Cleaned> {
    let (mut sessions, mut failures) = opened(located, args)?;
    let (ended, _) = end(located, &mut sessions, &mut failures);
    let dir = located.dir().to_owned();
    let clean = |_: &str| Request::Clean {
        dir: dir.clone(),
        discard,
    };
    let (replies, failed) = session::ask_each(&mut sessions, "removing", clean);
    failures.extend(failed);
    let mut all = Cleaned {
        ended,
        ..Cleaned::default()
    };
    for reply in replies {
        if let Reply::Cleaned(one) = reply {
            all.unsaved = all.unsaved.or(one.unsaved);
        }
    }
    match session::failed(failures) {
        None => Ok(all),
        Some(error) => {
            let (what, next) = error.into_parts();
            let error = CliError::new(format!(
                "{what}\n  {} may still be there, with servers that run",
                dir.display()
            ));
            Err(match next {
                Some(next) => error.next(next),
                None => error,
            })
        }
    }
}

/// Copies the deployment file from the metadata server's host to all hosts.
pub fn distribute(located: &Located) -> Result<()> {
    let (mut sessions, mut failures) = opened(located, &ReachArgs::default())?;
    failures
        .extend(session::ask_each(&mut sessions, "copying", |_| Request::Keep { wait: false }).1);
    session::failed(failures).map_or(Ok(()), Err)
}

/// Has each host make the identity keys of its servers in the next generation, and gives all of them that client key. Nothing names
/// these keys yet.
pub fn next_keys(located: &Located, client_key: &Path) -> Result<Vec<(Which, PublicKey)>> {
    let client_key = service::as_owner(located.dir(), || {
        std::fs::read_to_string(client_key).map_err(|e| CliError::io("read", client_key, e))
    })?;
    let (mut sessions, failures) = opened(located, &ReachArgs::default())?;
    if let Some(error) = session::failed(failures) {
        return Err(error);
    }
    let replies = session::ask_all(&mut sessions, "making keys", |_| {
        Request::Keys(NextKeys {
            after: located.deployment.generation,
            client_key: client_key.clone(),
        })
    })?;
    let mut all = Vec::new();
    for (session, reply) in sessions.iter().zip(replies) {
        let Reply::Keys(made) = reply else {
            return Err(unexpected(&session.host));
        };
        // A host says what it made for its own servers alone.
        let own = |(which, _): &(Which, PublicKey)| {
            which.host(&located.deployment) == Some(session.host.as_str())
        };
        all.extend(made.into_iter().filter(own));
    }
    let missing = Which::all(&located.deployment)
        .into_iter()
        .find(|which| all.iter().all(|(of, _)| of != which));
    if let Some(which) = missing {
        return Err(CliError::new(format!(
            "nobody made a key of {}",
            which.title()
        )));
    }
    session::ask_all(&mut sessions, "finishing", |_| Request::Keep {
        wait: false,
    })?;
    Ok(all)
}

/// Sessions with the hosts, in which the deployment is open.
fn opened(located: &Located, args: &ReachArgs) -> Result<(Vec<Session>, Vec<Failure>)> {
    let interrupt = Interrupt::catch()?;
    let hosts = reached(located, args.here)?.unwrap_or_default();
    let (mut sessions, mut failures) = session::open(&hosts, &args.reach()?, &interrupt);
    let token = Deployment::new_id().map_err(CliError::new)?;
    let relative = located.deployment.relative_to(located.dir());
    let open = |host: &str| {
        Request::Open(Open {
            dir: located.dir().to_owned(),
            host: host.to_owned(),
            token: token.clone(),
            deployment: relative.clone(),
        })
    };
    let failed = session::ask_each(&mut sessions, "opening", open).1;
    sessions.retain(|session| failed.iter().all(|failure| failure.host != session.host));
    failures.extend(failed);
    if interrupt.came() {
        return Err(session::interrupted());
    }
    Ok((sessions, failures))
}
