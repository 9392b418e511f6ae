//! Reads a file from beginning to end, repeatedly, as the user that runs it.
//!
//! `reader DEPLOYMENT PATH PIECE SECONDS` reads pieces of PIECE bytes, by descriptors where the user gets them. Prints one JSON line:
//! bytes per second, how many bytes came by descriptors, and how many by requests.
use penstock_client::{Client, ClientOptions, Form, Identity, OpenOptions};
use penstock_datatype::{Pattern, Target};
use penstock_rpc::deployment::Deployment;
use penstock_wire::Role;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, path, piece, seconds] = &arguments[..] else {
        return Err("usage: reader DEPLOYMENT PATH PIECE SECONDS".into());
    };
    let piece: u64 = piece.parse()?;
    let period = Duration::from_secs_f64(seconds.parse()?);
    let deployment = Deployment::load(Path::new(directory))?;
    let (who, options) = (Identity::default(), ClientOptions::default());
    let client = Client::connect_with(&deployment, who, Role::Client, options)?;
    let how = OpenOptions {
        read: true,
        ..OpenOptions::default()
    };
    let file = client.open(path, &how)?;
    let pieces = file.len()? / piece;
    if pieces == 0 {
        return Err(format!("{path} has less than {piece} bytes").into());
    }
    let mut buffer = vec![0; usize::try_from(piece)?];
    let mut began = Instant::now();
    let (mut read, mut n) = (0, 0);
    while n < 2 * pieces || began.elapsed() < period {
        if n == pieces {
            // Descriptors have been asked for, and pages are in the cache.
            (began, read) = (Instant::now(), 0);
        }
        let access = Pattern::contiguous((n % pieces * piece) as i64, piece);
        read += file.read(
            &access,
            Form::Shortcut,
            &mut Target::from_slice(&mut buffer),
        )?;
        n += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    let stats = file.stats();
    let told = serde_json::json!({
        "bytes_per_s": read as f64 / seconds,
        "by_descriptors": stats.shortcut.bytes_read,
        "by_requests": stats.structured.bytes_read,
    });
    println!("{told}");
    Ok(())
}
