//! Makes many names in a deployment whose servers are down: for tests and measurements of large stores.
//! Usage: names DIRECTORY_OF_THE_DEPLOYMENT FILES [FILES_PER_DIRECTORY]
//!
//! The metadata server runs in this process; the files are made through it, in batches, and have no bytes. It continues
//! after existing files until there are FILES, and prints how long the server took to its first answer.
use penstock_rpc::Timeouts;
use penstock_rpc::deployment::Deployment;
use penstock_wire::message::{CreateOptions, MetaReply, MetaRequest};
use penstock_wire::{Envelope, Role};
use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const BATCH: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: names DIRECTORY FILES [FILES_PER_DIRECTORY]";
    let directory: PathBuf = arguments.next().ok_or(usage)?.into();
    let files: u64 = arguments.next().ok_or(usage)?.parse()?;
    let each: u64 = arguments.next().map_or(Ok(10_000), |n| n.parse())?;
    let deployment = Deployment::load(&directory.join("deployment.toml"))?;
    let start = Instant::now();
    let server = penstock_meta::start(&deployment, penstock_meta::Options::default())?;
    let limit = Some(Duration::from_secs(300));
    let caller = deployment.caller(Role::Client, 1, 0)?;
    let timeouts = Timeouts {
        read: limit,
        write: limit,
    };
    let mut c = penstock_rpc::connect(&deployment.meta.address, &caller, timeouts)?;
    let envelope = Envelope::default();
    let answer = c.call(&envelope, &MetaRequest::Status, &mut false)?;
    let Some(MetaReply::Status(status)) = answer.body else {
        return Err("no status came back".into());
    };
    println!("first answer after {:.2} s", start.elapsed().as_secs_f64());
    let mut request = 1;
    let mut made = status.files;
    while made < files {
        let mut batch = Vec::new();
        for i in made..(made + BATCH).min(files) {
            if i % each == 0 {
                batch.push(MetaRequest::Mkdir {
                    path: format!("/d{}", i / each),
                    mode: 0o755,
                });
            }
            batch.push(create(format!("/d{}/f{i}", i / each)));
        }
        made = (made + BATCH).min(files);
        let envelope = Envelope {
            request,
            ..Envelope::default()
        };
        request += 1;
        let body = MetaRequest::Batch(batch);
        let answer = c.call(&envelope, &body, &mut false)?;
        let Some(MetaReply::Batch(replies)) = answer.body else {
            return Err("no batch came back".into());
        };
        for reply in replies {
            if let MetaReply::Error(e) = reply {
                return Err(e.into());
            }
        }
    }
    drop(c);
    server.stop();
    println!("{made} files after {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn create(path: String) -> MetaRequest {
    MetaRequest::Open {
        path,
        read: false,
        write: true,
        create: Some(CreateOptions {
            mode: 0o644,
            ..CreateOptions::default()
        }),
        exclusive: true,
    }
}
