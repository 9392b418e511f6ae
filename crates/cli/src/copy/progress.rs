//! A progress bar on standard error, from the third second on.
use crate::out;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Copies shorter than this show none.
const SILENT: Duration = Duration::from_secs(2);

/// Bytes moved of bytes found so far, and their rate.
pub struct Progress {
    bar: ProgressBar,
    start: Instant,
    /// False with JSON, which is for programs: nothing is drawn.
    wanted: bool,
    drawn: AtomicBool,
}

impl Progress {
    pub fn new(wanted: bool) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let style =
            "{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Progress {
            bar,
            start: Instant::now(),
            wanted,
            drawn: AtomicBool::new(false),
        }
    }

    /// Adds bytes that are to be copied.
    pub fn found(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Adds bytes that were copied.
    pub fn moved(&self, bytes: u64) {
        if self.wanted && self.start.elapsed() > SILENT && !self.drawn.swap(true, Ordering::Relaxed)
        {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(bytes);
    }

    /// The file that is copied now.
    pub fn at(&self, name: &str) {
        self.bar.set_message(name.to_string());
    }

    /// Prints a line for people above the bar.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| out::tell(&format!("{line}\n")));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
