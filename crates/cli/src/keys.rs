//! `penstock keys`: replaces the keys of a deployment while it runs.
use crate::deployment::{self, Located};
use crate::error::{CliError, Result};
use crate::which::Which;
use crate::{connect, hosts, out, service};
use clap::Args;
use penstock_client::Client;
use penstock_layout::ServerId;
use penstock_rpc::deployment::{Deployment, Generation};
use penstock_wire::PublicKey;
use penstock_wire::message::KeysHeld;
use serde_json::json;
use std::path::Path;

/// Show the keys of a deployment, or make new ones while programs run.
///
/// A generation of keys is the client key, the authority's key, and a key for each server. Servers accept two
/// generations, so running programs, mounts and older credentials go on. Run it where the deployment was made, as its
/// owner.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  penstock keys                       which generations there are
  penstock keys --rotate              new keys; programs go on with the former ones, and a later --rotate ends those
  penstock keys --end-former          a key was stolen: end the former generation now, with connections that use it

After a rotation, give clients on other hosts the new deployment.toml and client key, and make new credentials
(`penstock credential`): what they have is good until the former generation ends. Hosts of `up --hosts` get the keys by
themselves: each makes those of its own servers. If it is interrupted, run it again.")]
pub struct KeysArgs {
    /// Make new keys and have all servers take them.
    #[arg(long, conflicts_with = "end_former")]
    pub rotate: bool,
    /// End the generation before the current one.
    #[arg(long)]
    pub end_former: bool,
    /// For programs.
    #[arg(long)]
    pub json: bool,
}

/// Runs `penstock keys`.
pub fn keys(args: &KeysArgs, named: Option<&Path>) -> Result<()> {
    let mut located = deployment::find(named)?;
    let mut left = Vec::new();
    if args.rotate {
        left = rotate(&mut located)?;
    }
    if args.end_former {
        left = end_former(&mut located)?;
    }
    let held = located.deployment.keys_held();
    if args.json {
        out::print_json(
            &json!({ "current": held.current, "other": held.other, "unused_files": left }),
        );
        return Ok(());
    }
    out::print(&to_text(&located.deployment));
    if args.rotate {
        out::line(format_args!(
            "clients on other hosts need {} and {}; credentials made before are valid until generation {} ends",
            located.file.display(),
            located.deployment.client_key.display(),
            held.current - 1
        ));
    }
    if !left.is_empty() {
        out::line(format_args!("no longer used: {}", left.join(" ")));
    }
    Ok(())
}

/// Whether a rotation was begun and not completed.
fn is_begun(deployment: &Deployment) -> bool {
    matches!(&deployment.other_keys, Some(other) if other.generation > deployment.generation)
}

/// Adds a generation, has all servers accept it, and makes it the current one. Returns the files of the generation that
/// it replaces.
fn rotate(located: &mut Located) -> Result<Vec<String>> {
    let client = reached(located)?;
    let mut former = None;
    if !is_begun(&located.deployment) {
        former = located.deployment.other_keys.clone();
        let dir = located.dir().to_owned();
        let elsewhere = elsewhere(located)?;
        service::as_owner(&dir, || {
            let added = located.deployment.add_keys(&dir, &elsewhere);
            added.map_err(CliError::new)
        })?;
        located.save()?;
    }
    // All accept it before anybody uses it.
    spread(located).map_err(|e| {
        CliError::new(e)
            .next("the former keys are still used; run it again, and it goes on where it was")
    })?;
    tell(&client, located)?;
    located.deployment.switch_keys();
    located.save()?;
    let told = spread(located).and_then(|()| tell(&client, located));
    told.map_err(|e| {
        CliError::new(e).next(format!(
            "generation {} is now the current one, and all servers accept it; a server that has not read that yet does when it is started again: `penstock up`, not another --rotate",
            located.deployment.generation
        ))
    })?;
    Ok(unused(former.as_ref()))
}

/// Removes the generation before the current one. Returns its files.
fn end_former(located: &mut Located) -> Result<Vec<String>> {
    let client = reached(located)?;
    if is_begun(&located.deployment) {
        return Err(CliError::new(
            "a rotation was begun and is not finished: there is no former generation",
        )
        .next("`penstock keys --rotate` finishes it"));
    }
    let Some(former) = located.deployment.drop_keys() else {
        return Err(CliError::new("there is one generation of keys alone")
            .next("`penstock keys --rotate` makes the next; then the former one can be ended"));
    };
    located.save()?;
    let told = spread(located).and_then(|()| tell(&client, located));
    told.map_err(|e| {
        CliError::new(e).next("NOT ended everywhere: a server that has not read this still accepts the former keys until it is started again")
    })?;
    Ok(unused(Some(&former)))
}

/// Identities of the next generation that servers' own hosts have made; those hosts have its client key now.
fn elsewhere(located: &Located) -> Result<Vec<(Option<ServerId>, PublicKey)>> {
    if located.deployment.hosts().is_empty() {
        return Ok(Vec::new());
    }
    let dir = located.dir();
    let client_key = service::as_owner(dir, || {
        let made = located.deployment.next_client_key(dir);
        made.map_err(CliError::new)
    })?;
    let made = hosts::next_keys(located, &client_key)?;
    Ok(made.into_iter().map(|(of, key)| (of.id(), key)).collect())
}

/// Brings the deployment file to all hosts that it names.
fn spread(located: &Located) -> Result<()> {
    if located.deployment.hosts().is_empty() {
        return Ok(());
    }
    hosts::distribute(located)
}

/// A client of all servers, which must be there: one that is away would not learn of the keys. Only with the deployment's own
/// file, not a copy.
fn reached(located: &Located) -> Result<Client> {
    let authority = located.deployment.authority_key.as_deref();
    if !authority.is_some_and(Path::is_file) {
        return Err(CliError::new(format!(
            "{} has no authority.key beside it",
            located.file.display()
        ))
        .next(
            "run it where the deployment was made, as its owner: servers there read the same file",
        ));
    }
    let client = connect::administrator(located)?;
    for which in Which::all(&located.deployment) {
        load(&client, which)?;
    }
    Ok(client)
}

fn load(client: &Client, which: Which) -> Result<KeysHeld> {
    let held = match which {
        Which::Meta => client.load_keys(None),
        Which::Data(id) => client.load_keys(Some(id)),
    };
    held.map_err(|e| {
        CliError::new(format!("{}: {e}", which.title()))
            .next("keys are replaced only while all servers run: `penstock status` shows them, `penstock up` starts them; then run it again")
    })
}

/// Has all servers read the file: first those that check capabilities, then the one that seals them.
fn tell(client: &Client, located: &Located) -> Result<()> {
    let deployment = &located.deployment;
    let wanted = deployment.keys_held();
    let generations = |held: KeysHeld| {
        let mut all: Vec<u32> = [Some(held.current), held.other]
            .into_iter()
            .flatten()
            .collect();
        all.sort_unstable();
        all
    };
    let mut behind = Vec::new();
    for which in Which::all(deployment).into_iter().rev() {
        if generations(load(client, which)?) != generations(wanted) {
            behind.push(which);
        }
    }
    if behind.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = behind.iter().map(|which| which.title()).collect();
    Err(CliError::new(format!(
        "{} read another deployment file, without these keys (generations {:?})",
        names.join(", "),
        generations(wanted)
    ))
    .next(format!(
        "copy {}, the client keys and the servers' own NAME-{}.key to their hosts; then run it again",
        located.file.display(),
        wanted.other.unwrap_or(wanted.current).max(wanted.current)
    )))
}

fn unused(generation: Option<&Generation>) -> Vec<String> {
    let files = generation.into_iter().flat_map(Generation::files);
    files.map(|path| path.display().to_string()).collect()
}

fn to_text(deployment: &Deployment) -> String {
    let current = vec![
        deployment.generation.to_string(),
        "current".to_owned(),
        deployment.client_key.display().to_string(),
    ];
    let other = deployment.other_keys.iter().map(|other| {
        let what = if other.generation < deployment.generation {
            "former: still accepted"
        } else {
            "next: not used yet, run `penstock keys --rotate` again"
        };
        vec![
            other.generation.to_string(),
            what.to_owned(),
            other.client_key.display().to_string(),
        ]
    });
    let rows = std::iter::once(current).chain(other).collect();
    out::table(&["generation", "state", "client key"], &[0], rows)
}
