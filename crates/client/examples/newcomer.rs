//! Newcomers (docs/decisions/0027-munge.md), honest and hostile. Needs munged, and a deployment that takes MUNGE.
//!
//! - `newcomer offer DEPLOYMENT`: makes a MUNGE credential for a connection of its own and prints it. It keeps the
//!   connection until its standard input ends, then shows the credential there
//! - `newcomer show DEPLOYMENT TEXT`: an attacker, who shows somebody else's MUNGE credential, for a key of his own
//! - `newcomer again DEPLOYMENT`: shows one on another connection than it was made for, for the right key
//! - `newcomer replay DEPLOYMENT`: shows one that somebody has decoded before
//! - `newcomer stray DEPLOYMENT`: sends a request of a user instead
//! - `newcomer crowd DEPLOYMENT N`: opens N connections and says nothing on them until its standard input ends
//! - `newcomer work DEPLOYMENT SECONDS`: opens, cuts and removes a file over and over
//! - `newcomer price DEPLOYMENT N`: encodes and decodes N times; milliseconds of each, and of a whole exchange
use penstock_client::{Client, Identity, OpenOptions};
use penstock_rpc::Newcomer;
use penstock_rpc::deployment::Deployment;
use penstock_rpc::munge::Library;
use penstock_wire::message::{MetaReply, MetaRequest};
use penstock_wire::{Envelope, KeyPair};
use serde_json::json;
use std::error::Error;
use std::io::{Read, stdin};
use std::path::Path;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str =
    "usage: newcomer offer|show|again|replay|stray|crowd|work|price DEPLOYMENT [ARGUMENT]";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [act, directory, rest @ ..] = &arguments[..] else {
        return Err(USAGE.into());
    };
    let deployment = Deployment::load(Path::new(directory))?;
    let newcomer = Newcomer::of(&deployment).ok_or("the deployment takes no MUNGE")?;
    let socket = deployment.munge.as_ref().and_then(|s| s.socket.as_deref());
    let library = newcomer.library()?;
    let argument = || rest.first().ok_or(USAGE);
    let outcome = match act.as_str() {
        "offer" => {
            let mut connection = newcomer.connect()?;
            let offer = newcomer.offer(&library, &connection)?;
            println!("{}", offer.munge);
            until_told()?;
            offer.show(&mut connection)
        }
        "show" => {
            let mut connection = newcomer.connect()?;
            let mut offer = newcomer.offer(&library, &connection)?;
            (offer.munge, offer.pair) = (argument()?.clone(), KeyPair::generate()?);
            offer.show(&mut connection)
        }
        "again" => {
            let first = newcomer.connect()?;
            let offer = newcomer.offer(&library, &first)?;
            offer.show(&mut newcomer.connect()?)
        }
        "replay" => {
            let mut connection = newcomer.connect()?;
            let offer = newcomer.offer(&library, &connection)?;
            library
                .decode(socket, &offer.munge)
                .map_err(|e| e.to_string())?;
            offer.show(&mut connection)
        }
        "stray" => {
            let mut connection = newcomer.connect()?;
            let request = MetaRequest::Status;
            let told = connection.call::<_, MetaReply>(&Envelope::default(), &request, &mut false);
            println!("{}", json!({ "served": told.is_ok() }));
            return Ok(());
        }
        "crowd" => {
            let mut silent = Vec::new();
            for _ in 0..argument()?.parse()? {
                silent.extend(newcomer.connect().ok());
            }
            println!("{}", silent.len());
            until_told()?;
            return Ok(());
        }
        "work" => return work(&deployment, Duration::from_secs_f64(argument()?.parse()?)),
        "price" => return price(&newcomer, &library, socket, argument()?.parse()?),
        _ => return Err(USAGE.into()),
    };
    println!(
        "{}",
        match outcome {
            Ok(given) => json!({ "user": given.statement().uid }),
            Err(e) => json!({ "refused": e.to_string() }),
        }
    );
    Ok(())
}

fn until_told() -> Result<()> {
    stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn work(deployment: &Deployment, time: Duration) -> Result<()> {
    let who = Identity {
        program: 1,
        rank: 0,
    };
    let client = Client::connect(deployment, who)?;
    let (until, mut rounds) = (Instant::now() + time, 0u64);
    while Instant::now() < until {
        let file = client.open("/open/work", &OpenOptions::read_write_create())?;
        file.set_len(1 << 20)?;
        drop(file);
        client.unlink("/open/work")?;
        rounds += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{}", json!({ "rounds": rounds }));
    Ok(())
}

fn price(
    newcomer: &Newcomer,
    library: &Library,
    socket: Option<&Path>,
    times: usize,
) -> Result<()> {
    let (mut encode, mut decode, mut exchange) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..times {
        let begun = Instant::now();
        let made = library
            .encode(socket, &[7; 32])
            .map_err(|e| e.to_string())?;
        encode.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        library.decode(socket, &made).map_err(|e| e.to_string())?;
        decode.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        newcomer.ask()?;
        exchange.push(begun.elapsed().as_secs_f64());
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).map(|seconds| seconds * 1e3)
    };
    let prices = [encode, decode, exchange].map(median);
    println!(
        "{}",
        json!({ "encode_ms": prices[0], "decode_ms": prices[1], "exchange_ms": prices[2] })
    );
    Ok(())
}
