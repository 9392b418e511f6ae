//! A terminal that is written to in place and tells of single keys.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a text that somebody types.
const TYPED: usize = 64;

/// What was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Nothing, until then.
    Nothing,
    /// `q`, Ctrl-C, or the terminal is gone.
    Quit,
    /// `/`
    Filter,
    /// Any other.
    Other(char),
}

/// The terminal of this process. As it was before when this is dropped.
pub struct Screen {
    before: Termios,
    stop: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal: a screen of its own, keys without Enter.
    pub fn open() -> std::io::Result<Screen> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let before = tcgetattr(rustix::stdio::stdin())?;
        let mut keys = before.clone();
        keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &keys)?;
        let screen = Screen { before, stop };
        // Another screen, no cursor, long lines are cut.
        screen.write("\x1b[?1049h\x1b[?25l\x1b[?7l");
        Ok(screen)
    }

    fn write(&self, text: &str) -> bool {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .is_ok()
    }

    /// Lines that fit.
    pub fn lines(&self) -> usize {
        // Some terminals don't know.
        let size = tcgetwinsize(rustix::stdio::stdout()).map_or(0, |size| size.ws_row);
        if size == 0 {
            24
        } else {
            usize::from(size).max(8)
        }
    }

    /// Writes over what is there; false if the terminal is gone.
    pub fn show(&self, text: &str) -> bool {
        let lines = self.lines();
        let mut frame = String::from("\x1b[H");
        for line in text.lines().take(lines - 1) {
            frame.push_str(line);
            frame.push_str("\x1b[K\r\n");
        }
        frame.push_str("\x1b[J");
        self.write(&frame)
    }

    /// The next key, if one is pressed before `until`.
    pub fn key(&self, until: Instant) -> Key {
        loop {
            match self.byte(until) {
                None => return Key::Quit,
                Some(None) => return Key::Nothing,
                Some(Some(b'q' | 0x03 | 0x04)) => return Key::Quit,
                Some(Some(b'/')) => return Key::Filter,
                Some(Some(byte)) if byte.is_ascii_alphabetic() => {
                    return Key::Other(char::from(byte));
                }
                Some(Some(_)) => {}
            }
        }
    }

    /// `None`: there is nobody any more. `Some(None)`: nothing came.
    fn byte(&self, until: Instant) -> Option<Option<u8>> {
        if self.stop.load(Relaxed) {
            return None;
        }
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok()?;
        let stdin = rustix::stdio::stdin();
        let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut watched, Some(&timeout)) {
            Ok(0) => Some(None),
            Ok(_) => {
                let mut byte = [0];
                match rustix::io::read(stdin, &mut byte) {
                    Ok(1) => Some(Some(byte[0])),
                    _ => None,
                }
            }
            // A signal: perhaps one to stop.
            Err(_) if self.stop.load(Relaxed) => None,
            Err(_) => Some(None),
        }
    }

    /// A line of text; `None`: given up.
    pub fn ask(&self, what: &str) -> Option<String> {
        let mut typed = String::new();
        loop {
            // On the last line.
            if !self.write(&format!("\x1b[{};1H\x1b[K{what}{typed}", self.lines())) {
                return None;
            }
            match self.byte(Instant::now() + Duration::from_secs(60))? {
                Some(b'\r' | b'\n') => return Some(typed),
                Some(0x1b | 0x03) | None => return None,
                Some(0x7f | 0x08) => drop(typed.pop()),
                Some(byte) if (b' '..0x7f).contains(&byte) && typed.len() < TYPED => {
                    typed.push(char::from(byte));
                }
                Some(_) => {}
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.write("\x1b[?7h\x1b[?25h\x1b[?1049l");
        // The terminal may be gone.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}
