//! A data server as a target: requests to a new file on one server, on the real clock.
//!
//! The measurement includes the device and the cost of the path to it. So slow a modelled device down
//! (`penstock up --time-scale 0.1`): then the device's times dominate the ratio.
use super::{Op, ProfileError, Target};
use crate::connect;
use crate::deployment::Located;
use crate::error::{CliError, Result};
use crate::out;
use penstock_client::{Client, CreateOptions, File, Form, OpenOptions};
use penstock_datatype::{Pattern, Source, Target as Memory};
use std::time::Instant;

/// A new file on one data server, as a target of measurements. The file is removed when this is dropped.
pub struct ServedTarget {
    client: Client,
    file: File,
    path: String,
    buffer: Vec<u8>,
}

impl ServedTarget {
    /// Makes the file; no file may have this name.
    pub fn make(located: &Located, path: &str) -> Result<ServedTarget> {
        let client = connect::client(located)?;
        let how = OpenOptions {
            read: true,
            write: true,
            create: Some(CreateOptions {
                mode: 0o600,
                stripe_count: Some(1),
                ..CreateOptions::default()
            }),
            exclusive: true,
        };
        let file = client.open(path, &how).map_err(|e| {
            CliError::new(e).next("name a file that does not exist: it is made, and removed again")
        })?;
        Ok(ServedTarget {
            client,
            file,
            path: path.to_owned(),
            buffer: Vec::new(),
        })
    }
}

impl Drop for ServedTarget {
    fn drop(&mut self) {
        if let Err(e) = self.client.unlink(&self.path) {
            out::note(format_args!("{} could not be removed: {e}", self.path));
        }
    }
}

impl Target for ServedTarget {
    fn describe(&self) -> String {
        format!("a data server, by requests to {}", self.path)
    }

    fn writable(&self) -> bool {
        true
    }

    fn alignment(&self) -> u64 {
        1
    }

    fn prepare(
        &mut self,
        bytes: u64,
        done: &mut dyn FnMut(u64) -> bool,
    ) -> std::result::Result<(), ProfileError> {
        self.fill(bytes, done)?;
        self.file.sync().map_err(|e| failed("sync", &self.path, e))
    }

    fn access(
        &mut self,
        op: Op,
        offset: u64,
        bytes: u64,
    ) -> std::result::Result<u64, ProfileError> {
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        if self.buffer.len() < len {
            self.buffer.resize(len, 0x5a);
        }
        let buffer = &mut self.buffer[..len];
        let access = Pattern::contiguous(i64::try_from(offset).unwrap_or(i64::MAX), bytes);
        let (doing, form) = (
            match op {
                Op::Read => "read",
                Op::Write => "write",
            },
            Form::Structured,
        );
        let began = Instant::now();
        let result = match op {
            Op::Read => self
                .file
                .read(&access, form, &mut Memory::from_slice(buffer)),
            Op::Write => self
                .file
                .write(&access, form, &mut Source::from_slice(buffer)),
        };
        let took = began.elapsed();
        match result {
            Ok(n) if n == bytes => Ok(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)),
            Ok(n) => Err(ProfileError::Options(format!(
                "{} gave {n} of {bytes} bytes: another client has cut it",
                self.path
            ))),
            Err(e) => Err(failed(doing, &self.path, e)),
        }
    }
}

fn failed(doing: &'static str, path: &str, e: penstock_client::Error) -> ProfileError {
    ProfileError::Io {
        doing,
        what: path.to_owned(),
        source: std::io::Error::other(e.to_string()),
    }
}
