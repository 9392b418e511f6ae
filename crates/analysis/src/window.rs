//! Records of one stream that wait for their children, by id, in bounded memory.
//!
//! Records stand in the order in which they end, nearly, and count up in the order in which they begin. So a parent comes
//! soon after its last child, and what is open lies close together: a ring by id holds it. Whatever leaves the ring open
//! (a call that lasts as long as the program) goes to a table.
use penstock_base::Numbered;
use std::collections::VecDeque;

/// Ids that the ring spans.
const SPAN: usize = 256 << 10;
/// Records that a complete one waits for: a child may come a little later than its parent.
const LAG: usize = 16 << 10;
/// Most entries of the table. Beyond, new ones are not kept, and counted.
const MOST_STRAYS: usize = 4 << 20;

/// What is known of open records.
pub struct Window<T> {
    base: u64,
    ring: VecDeque<Option<T>>,
    strays: Numbered<u64, T>,
    complete: VecDeque<u64>,
    /// Takes what has no room.
    spare: T,
    lost: u64,
}

impl<T: Default> Default for Window<T> {
    fn default() -> Window<T> {
        Window {
            base: 1,
            ring: VecDeque::new(),
            strays: Numbered::default(),
            complete: VecDeque::new(),
            spare: T::default(),
            lost: 0,
        }
    }
}

impl<T: Default> Window<T> {
    /// What is known of this record so far.
    pub fn at(&mut self, id: u64) -> &mut T {
        if id < self.base {
            return self.stray(id);
        }
        let mut place = (id - self.base) as usize;
        if place >= self.ring.len() {
            self.reach(id);
            place = (id - self.base) as usize;
        }
        self.ring[place].get_or_insert_default()
    }

    /// The ring spans `id`, its highest so far.
    fn reach(&mut self, id: u64) {
        let least = (id + 1).saturating_sub(SPAN as u64);
        while self.base < least {
            match self.ring.pop_front() {
                None => self.base = least,
                Some(open) => {
                    let number = self.base;
                    self.base += 1;
                    if let Some(open) = open {
                        *self.stray(number) = open;
                    }
                }
            }
        }
        let length = (id - self.base) as usize + 1;
        self.ring.resize_with(length, || None);
    }

    fn stray(&mut self, id: u64) -> &mut T {
        if self.strays.len() >= MOST_STRAYS && !self.strays.contains_key(&id) {
            self.lost += 1;
            self.spare = T::default();
            return &mut self.spare;
        }
        self.strays.entry(id).or_default()
    }

    /// The record has come. Returns one that came [`LAG`] records earlier, which is taken out.
    pub fn complete(&mut self, id: u64) -> Option<(u64, T)> {
        self.complete.push_back(id);
        if self.complete.len() <= LAG {
            return None;
        }
        let oldest = self.complete.pop_front()?;
        self.take(oldest).map(|open| (oldest, open))
    }

    fn take(&mut self, id: u64) -> Option<T> {
        if id < self.base {
            return self.strays.remove(&id);
        }
        self.ring.get_mut((id - self.base) as usize)?.take()
    }

    /// The next complete one, at the end of the stream.
    pub fn next_complete(&mut self) -> Option<(u64, T)> {
        while let Some(id) = self.complete.pop_front() {
            if let Some(open) = self.take(id) {
                return Some((id, open));
            }
        }
        None
    }

    /// Those that never became complete: their record is missing.
    pub fn incomplete(&mut self) -> Vec<(u64, T)> {
        let mut all: Vec<(u64, T)> = self.strays.drain().collect();
        let base = self.base;
        let ring = self.ring.drain(..).enumerate();
        all.extend(ring.filter_map(|(i, open)| open.map(|open| (base + i as u64, open))));
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// Open records that there was no room for.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_found_wherever_it_went() {
        let mut window: Window<u64> = Window::default();
        *window.at(1) += 1;
        for id in 2..(SPAN as u64 * 3) {
            *window.at(id) += 10;
            if let Some((done, sum)) = window.complete(id) {
                assert_eq!((done, sum), (id - LAG as u64, 10));
            }
            *window.at(1) += 1;
        }
        while let Some((_, sum)) = window.next_complete() {
            assert_eq!(sum, 10);
        }
        let open = window.incomplete();
        assert_eq!(open, [(1, SPAN as u64 * 3 - 1)]);
        assert_eq!(window.lost(), 0);
    }

    #[test]
    fn a_jump_of_ids_costs_nothing() {
        let mut window: Window<u64> = Window::default();
        *window.at(5) = 7;
        *window.at(u64::MAX - 1) = 8;
        assert_eq!(*window.at(5), 7);
        assert!(window.ring.len() <= SPAN);
    }
}
