//! What a client claims about itself before it is authenticated: for the audit log.
use crate::text::{SHORT, text};
use penstock_wire::handshake::Hello;

/// The unverified claim of a client. Texts are safe to print.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) user: Option<u32>,
    pub(crate) job: Option<String>,
    pub(crate) serial: Option<String>,
}

impl Claim {
    pub(crate) fn of(hello: &Hello) -> Claim {
        let statement = hello.credential.as_ref().map(|signed| &signed.statement);
        let job = statement.and_then(|s| s.job.clone());
        let job = job.or_else(|| job_of(hello.program, hello.rank));
        Claim {
            user: statement.map(|s| s.uid),
            job: job.map(|job| text(job.as_bytes(), SHORT)),
            serial: statement.map(|s| s.serial()),
        }
    }
}

/// The name of a process that belongs to no known job.
pub(crate) fn job_of(program: u64, rank: u32) -> Option<String> {
    (program != 0).then(|| format!("program {program:x} rank {rank}"))
}
