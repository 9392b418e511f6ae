//! A background thread of the server, whose end the server's stop waits for.
use penstock_host::sync::Mutex;
use penstock_host::thread::{self, JoinHandle};
use std::sync::PoisonError;

/// At most one thread. To stop the server, tell the thread to end, then join it.
#[derive(Debug, Default)]
pub struct Background(Mutex<Option<JoinHandle>>);

impl Background {
    /// Starts it.
    pub fn start(&self, name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let thread = thread::spawn(name, None, body)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Waits until the thread has ended, if there is one. `what` it does is for the log.
    pub fn join(&self, what: &str) {
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            log::error!("the thread that {what} panicked");
        }
    }
}
