//! The gate of a data server: whose requests it lets through (RS 5.2.1, iScheduler).
use super::Object;
use penstock_base::Nanos;

/// Whose turn it is, as the orchestrator tells all servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Grows with every turn, also over restarts of the orchestrator. What is older than what was heard is late.
    pub epoch: u64,
    /// Who is served.
    pub object: Object,
    /// The orchestrator's window.
    pub window: Nanos,
}

/// A server's gate. It holds nothing back for good: when it hears nothing for two windows it opens.
#[derive(Debug, Clone)]
pub struct Gate {
    epoch: u64,
    object: Object,
    /// When it opens unless it hears something.
    until: Option<Nanos>,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            epoch: 0,
            object: Object::All,
            until: None,
        }
    }
}

impl Gate {
    /// A turn was heard; false if it is old or known, and nothing changes.
    pub fn hear(&mut self, now: Nanos, turn: Turn) -> bool {
        if turn.epoch <= self.epoch {
            return false;
        }
        self.epoch = turn.epoch;
        let silence = turn.window.saturating_mul(2).max(1);
        self.until = (turn.object != Object::All).then(|| now.saturating_add(silence));
        self.object = turn.object;
        true
    }

    /// Whether a program's requests may go on.
    pub fn admits(&self, program: u64) -> bool {
        self.object.admits(program)
    }

    /// Whose turn it is.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// When to call [`Gate::look`].
    pub fn wake(&self) -> Option<Nanos> {
        self.until
    }

    /// Time has passed; true if the gate has opened by itself.
    pub fn look(&mut self, now: Nanos) -> bool {
        let silent = self.until.is_some_and(|until| now >= until);
        if silent {
            self.until = None;
            self.object = Object::All;
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(epoch: u64, object: Object) -> Turn {
        Turn {
            epoch,
            object,
            window: 500,
        }
    }

    #[test]
    fn turns_that_come_late_or_twice_change_nothing() {
        let mut gate = Gate::default();
        assert!(gate.hear(0, turn(5, Object::Program(1))));
        assert!(!gate.hear(900, turn(5, Object::Program(1))));
        assert!(!gate.hear(900, turn(4, Object::Others(vec![1]))));
        assert!(gate.admits(1) && !gate.admits(2));
        // Neither do they keep it closed.
        assert_eq!(gate.wake(), Some(1000));
        assert!(!gate.look(999) && gate.look(1000));
        assert!(gate.admits(2) && gate.wake().is_none() && !gate.look(2000));
        // Nor close it again.
        assert!(!gate.hear(2000, turn(5, Object::Program(1))) && gate.admits(2));
        assert!(gate.hear(2000, turn(6, Object::Others(vec![1]))));
        assert!(gate.admits(2) && !gate.admits(1));
    }

    #[test]
    fn an_open_gate_waits_for_nothing() {
        let mut gate = Gate::default();
        gate.hear(0, turn(1, Object::Program(1)));
        gate.hear(10, turn(2, Object::All));
        assert!(gate.admits(7) && gate.wake().is_none());
    }
}
