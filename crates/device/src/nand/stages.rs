//! Stages of a command: the array of its die, then or before it the channel.
use super::Nand;
use super::die::{Command, PageOperation};
use crate::{Nanos, span};
use std::cmp::Reverse;

impl Nand {
    pub(super) fn start_array(
        &mut self,
        die: usize,
        mut command: Command,
        takes: Nanos,
        now: Nanos,
    ) {
        command.since = now;
        command.waits = false;
        self.counters.array_busy += takes;
        self.dies[die].array = Some(command);
        self.events.push(Reverse((now + takes, die as u32)));
    }

    pub(super) fn start_moving(&mut self, die: usize, mut command: Command, now: Nanos) {
        command.since = now;
        command.waits = false;
        let d = &mut self.dies[die];
        let channel = d.channel as usize;
        d.moving = Some(command);
        if self.channels[channel].busy.is_some() {
            self.channels[channel].waiting.push_back(die as u32);
        } else {
            self.carry(channel, die, now);
        }
    }

    pub(super) fn carry(&mut self, channel: usize, die: usize, now: Nanos) {
        let bytes = self.dies[die].moving.as_ref().map_or(0, |c| c.bytes);
        let takes = span(bytes.into(), self.options.timing.channel);
        self.counters.channel_busy += takes;
        self.channels[channel].busy = Some(die as u32);
        self.events
            .push(Reverse((now + takes, (self.dies.len() + channel) as u32)));
    }

    pub(super) fn array_done(&mut self, die: usize, now: Nanos) {
        let Some(mut command) = self.dies[die].array.take() else {
            return;
        };
        match command.kind {
            PageOperation::Read => {
                let pages = command.pages.len() as u64;
                self.counters.spent.array += (now - command.since) * pages;
                if self.dies[die].moving.is_none() {
                    self.start_moving(die, command, now);
                } else {
                    command.waits = true;
                    command.since = now;
                    self.dies[die].array = Some(command);
                }
            }
            PageOperation::Copy | PageOperation::Modify if !command.second => {
                if command.kind == PageOperation::Modify {
                    self.counters.spent.array += now - command.since;
                }
                command.second = true;
                self.start_moving(die, command, now);
            }
            PageOperation::Write | PageOperation::Modify => {
                let pages = command.pages.len() as u64;
                self.counters.spent.array += (now - command.since) * pages;
                self.finish(command, now);
                if let Some(next) = self.dies[die].moving.take_if(|m| m.waits) {
                    // Waited for the array since its bytes arrived.
                    let pages = next.pages.len() as u64;
                    self.counters.spent.array += (now - next.since) * pages;
                    let takes = next.program;
                    self.start_array(die, next, takes, now);
                }
            }
            PageOperation::Copy | PageOperation::Erase => {
                let d = &mut self.dies[die];
                if let Some(since) = d.collecting.take() {
                    d.collected += now - since;
                    self.counters.collecting += now - since;
                }
                self.lists.push(command.pages);
            }
        }
        self.after(die, now);
    }

    pub(super) fn channel_done(&mut self, channel: usize, now: Nanos) {
        let Some(die) = self.channels[channel].busy.take() else {
            return;
        };
        let die = die as usize;
        if let Some(mut command) = self.dies[die].moving.take() {
            let host = command.kind != PageOperation::Copy;
            if host {
                let pages = command.pages.len() as u64;
                self.counters.spent.channel += (now - command.since) * pages;
            }
            match command.kind {
                PageOperation::Read => {
                    self.finish(command, now);
                    if let Some(next) = self.dies[die].array.take_if(|a| a.waits) {
                        // Waited for the register since the array read it.
                        let pages = next.pages.len() as u64;
                        self.counters.spent.channel += (now - next.since) * pages;
                        self.start_moving(die, next, now);
                    }
                }
                _ if self.dies[die].array.is_none() => {
                    let takes = command.program;
                    self.start_array(die, command, takes, now);
                }
                _ => {
                    command.waits = true;
                    command.since = now;
                    self.dies[die].moving = Some(command);
                }
            }
        }
        if self.channels[channel].busy.is_none()
            && let Some(next) = self.channels[channel].waiting.pop_front()
        {
            self.carry(channel, next as usize, now);
        }
        self.after(die, now);
    }

    /// A stage of the die is over: this die, or others of its way, may begin the next command.
    pub(super) fn after(&mut self, die: usize, now: Nanos) {
        if self.options.interleave {
            self.dispatch(die, now);
            return;
        }
        let way = self.dies[die].way as usize;
        if !self.dies[die].idle() {
            self.dispatch(die, now);
            return;
        }
        self.ways[way] = None;
        let dies = self.options.geometry.dies as usize;
        let first = die / dies * dies;
        for i in 1..=dies {
            self.dispatch(first + (die - first + i) % dies, now);
        }
    }
}
