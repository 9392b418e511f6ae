//! A simulated data server: a processor, the dispatcher of a real server, a page cache, a device. Their work is in
//! [`crate::serving`].
use crate::error::{Error, Result};
use crate::fetching::Fetching;
use crate::network::Node;
use crate::orchestration::Gated;
use crate::pages::Pages;
use crate::scenario::Scenario;
use penstock_base::Nanos;
use penstock_device::{Completion, Device};
use penstock_sched as sched;
use penstock_sched::learn::{Cost, Limits, Predictor};
use penstock_trace::Event as Seen;
use std::collections::VecDeque;

/// One server.
pub(crate) struct Server {
    pub node: Node,
    /// When the processor is free.
    pub cpu: Nanos,
    pub dispatcher: sched::Dispatcher,
    /// Scratch list of virtual requests to start.
    pub started: Vec<sched::VirtualRequest>,
    /// When the dispatcher is called next.
    pub asked: Nanos,
    /// Arrivals so far, if they are recorded for a prediction.
    pub seen: Option<Vec<Seen>>,
    pub device: Box<dyn Device>,
    /// When the device is called next.
    pub looked: Nanos,
    pub pages: Option<Pages>,
    /// Writes that wait for memory.
    pub blocked: VecDeque<u32>,
    /// Write-backs in progress, and bytes to write back now.
    pub writing_back: u32,
    pub goal: u64,
    pub timer: bool,
    /// Whether everything must reach the device (sync).
    pub urgent: bool,
    /// Whether the device is emptying its own cache.
    pub emptying: bool,
    pub last: u64,
    pub seeks: u128,
    pub device_requests: u64,
    pub device_bytes: u64,
    /// Bytes moved for clients.
    pub moved: u64,
    pub completions: Vec<Completion>,
    /// What IOrchestrator has here.
    pub gated: Gated,
    /// Prefetches under way.
    pub fetching: Vec<Fetching>,
}

impl Server {
    pub(crate) fn new(scenario: &Scenario, number: u32, node: Node, angle: f64) -> Result<Server> {
        let settings = scenario.settings()?;
        let site = scenario.site(number, &settings);
        let dispatcher = sched::Dispatcher::new(0, &settings, site, None)
            .map_err(|e| Error::key("server.scheduler", e.to_string()))?;
        let device = scenario
            .device
            .build(angle)
            .map_err(|says| Error::key("device", says))?;
        let cache = scenario.server.cache.0;
        Ok(Server {
            node,
            cpu: 0,
            dispatcher,
            started: Vec::new(),
            asked: Nanos::MAX,
            seen: None,
            device,
            looked: Nanos::MAX,
            pages: (cache > 0).then(|| Pages::new(cache, scenario.server.read_ahead.0)),
            blocked: VecDeque::new(),
            writing_back: 0,
            goal: 0,
            timer: false,
            urgent: false,
            emptying: false,
            last: 0,
            seeks: 0,
            device_requests: 0,
            device_bytes: 0,
            moved: 0,
            completions: Vec::new(),
            gated: Gated::default(),
            fetching: Vec::new(),
        })
    }

    /// Uses these arrivals of an earlier run as the prediction from now on.
    pub(crate) fn expect(&mut self, seen: &[Seen], cost: &Cost) -> Result<()> {
        let wrong = |e: sched::Error| Error::key("server.predict", e.to_string());
        let limits = Limits {
            parts: self.dispatcher.settings().options.parts_limit(),
            ..Limits::default()
        };
        let predictor = Predictor::new(seen, cost.clone(), limits).map_err(wrong)?;
        self.dispatcher.predict(Some(predictor));
        Ok(())
    }

    /// Algorithms that it chose itself, and waits for predicted requests.
    pub(crate) fn decided(&self) -> (u64, u64) {
        let changes = self.dispatcher.chooser().map_or(0, |c| c.changes().0);
        let waits = self.dispatcher.scheduler().statistics().predicted_waits;
        (changes, waits)
    }

    /// Capacity of its device in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    /// Uses processor time; returns when it is over.
    pub(crate) fn work(&mut self, now: Nanos, time: Nanos) -> Nanos {
        self.cpu = self.cpu.max(now) + time;
        self.cpu
    }

    /// Whether nothing is dirty or being written to the device.
    pub(crate) fn is_clean(&self) -> bool {
        self.writing_back == 0 && self.pages.as_ref().is_none_or(|p| p.dirty() == 0)
    }
}
