// SPDX-License-Identifier: Apache-2.0
//! The main loop: it carries frames between the devices and the engine, and wakes the engine when
//! something is due.
//!
//! The engine is a [`Driver`]: it is told what arrived and when, and hands the frames that leave to
//! a [`Sink`]. It never waits, reads no clock and touches no device, so tests drive it with any
//! times and any frames.

mod beside;
pub mod devices;
pub mod log;
mod outlets;
mod pool;
pub mod status;

use std::io;

use crate::driver::Driver;
use crate::offload::coalesce::Coalescer;
use crate::offload::vnet::VnetHdr;
use crate::sys::packet::{Received, BATCH};
use crate::sys::poll::{Interest, Poller, Ready};
use crate::sys::signals::{Signal, Signals};
use crate::sys::watchdog::Watchdog;
use crate::sys::{self, Unavailable};
use crate::Nanos;
use beside::{Beside, HOLD, MAPS};
use devices::{Devices, Wire};
use log::{say, Level};
use outlets::Outlets;
use status::StatusSocket;

/// Makes super-frames of what goes to the host.
pub trait Merge {
    /// Takes a complete frame, and hands out what is ready.
    fn push(&mut self, frame: Vec<u8>, out: &mut dyn FnMut(VnetHdr, Vec<u8>));
    /// Hands out everything that is left: nothing more arrives for now.
    fn flush(&mut self, out: &mut dyn FnMut(VnetHdr, Vec<u8>));
}

impl Merge for Coalescer {
    fn push(&mut self, frame: Vec<u8>, mut out: &mut dyn FnMut(VnetHdr, Vec<u8>)) {
        Coalescer::push(self, frame, &mut out);
    }

    fn flush(&mut self, mut out: &mut dyn FnMut(VnetHdr, Vec<u8>)) {
        Coalescer::flush(self, &mut out);
    }
}

/// Merges nothing.
#[derive(Debug, Default)]
pub struct Unmerged;

impl Merge for Unmerged {
    fn push(&mut self, frame: Vec<u8>, out: &mut dyn FnMut(VnetHdr, Vec<u8>)) {
        out(VnetHdr::default(), frame);
    }

    fn flush(&mut self, _: &mut dyn FnMut(VnetHdr, Vec<u8>)) {}
}

const PLAIN: u64 = 0;
const SIGNALS: u64 = 1;
const STATUS: u64 = 2;
/// The first of those who read the status slowly. The others follow.
const READER: u64 = 3;
/// The wire TAP, or the first NIC. The others follow.
const WIRE: u64 = 8;
const _: () = assert!(READER + status::READERS as u64 <= WIRE);

/// How often NICs are looked at while there is traffic.
const COUNT_BUSY: Nanos = 10_000_000;
/// How often NICs are looked at otherwise.
const COUNT_IDLE: Nanos = 1_000_000_000;

/// The devices, the engine, and what goes between them.
///
/// A turn reads at most [`BATCH`] frames from each side, so neither starves the other, and writes
/// everything that the engine hands out. What cannot be written waits in a queue of bounded length.
pub struct Loop<D, M> {
    driver: D,
    out: Outlets<M>,
    poller: Poller,
    /// Programs beside the bridge, if there are any.
    beside: Option<Beside>,
    signals: Signals,
    status: Option<StatusSocket>,
    watchdog: Watchdog,
    nics: sys::interface::Interfaces,
    ready: Vec<Ready>,
    received: Vec<Received>,
    watched: Vec<Interest>,
    next_count: Nanos,
    last_frame: Nanos,
    last_reopen: Nanos,
}

impl<D: Driver, M: Merge> Loop<D, M> {
    /// A loop over these devices and this engine.
    pub fn new(
        mut devices: Devices,
        driver: D,
        merge: M,
        signals: Signals,
        status: Option<StatusSocket>,
    ) -> Result<Self, Unavailable> {
        let broken = |error: io::Error| Unavailable::because("main loop", &error);
        let poller = Poller::new().map_err(broken)?;
        let idle = Interest { read: true, write: false };
        poller.add(&signals, SIGNALS, idle).map_err(broken)?;
        if let Some(socket) = &status {
            poller.add(socket, STATUS, idle).map_err(broken)?;
        }
        poller.add(&devices.plain, PLAIN, idle).map_err(broken)?;
        let ports = match &devices.wire {
            Wire::Bridge(tap) => {
                poller.add(tap, WIRE, idle).map_err(broken)?;
                1
            }
            Wire::Nics(nics) => {
                for (i, (_, socket)) in nics.iter().enumerate() {
                    poller.add(socket, WIRE + i as u64, idle).map_err(broken)?;
                }
                nics.len()
            }
        };
        let room = devices.frame_room;
        let beside = devices.beside.take().map(|it| Beside::new(it, room, &poller));
        Ok(Loop {
            driver,
            out: Outlets::new(devices, merge),
            poller,
            beside: beside.transpose().map_err(broken)?,
            signals,
            status,
            watchdog: Watchdog::new(),
            nics: sys::interface::Interfaces::open().map_err(broken)?,
            ready: Vec::new(),
            received: Vec::with_capacity(BATCH),
            watched: vec![idle; 1 + ports],
            next_count: 0,
            last_frame: 0,
            last_reopen: 0,
        })
    }

    /// From now on, `watchdog` is told of every turn.
    pub fn watched_by(&mut self, watchdog: Watchdog) {
        self.watchdog = watchdog;
    }

    /// Turns until a signal says stop, or a device is gone.
    pub fn run(&mut self) -> Result<(), Unavailable> {
        self.watchdog.ready();
        while self.turn()? {}
        self.watchdog.stopping();
        let now = sys::now();
        self.beside.iter_mut().for_each(Beside::end);
        self.driver.goodbye(now, &mut self.out);
        self.out.flush();
        Ok(())
    }

    /// Lets the engine do what is due, waits, and hands the engine what arrived. `false` if
    /// somebody wants us to stop.
    pub fn turn(&mut self) -> Result<bool, Unavailable> {
        let now = sys::now();
        let before = |beside: &mut Beside, driver: &mut D, poller: &Poller| {
            beside.before(now, driver, poller)
        };
        if self.with_beside(before) == Some(true) {
            self.last_frame = now;
        }
        let deadline = self.driver.on_tick(now, &mut self.out);
        self.out.flush();
        let due = self.with_beside(|beside, driver, poller| beside.after(now, driver, poller));
        let deadline = deadline.min(due.unwrap_or(Nanos::MAX));
        if now >= self.next_count {
            self.count_nics(now)?;
        }
        self.watch(now).map_err(|error| Unavailable::because("epoll", &error))?;
        self.out.fatal()?;
        let mut ready = std::mem::take(&mut self.ready);
        let deadline = deadline.min(self.next_count).min(self.watchdog.alive(now));
        let waited = self.poller.wait(deadline, &mut ready);
        waited.map_err(|error| Unavailable::because("epoll", &error))?;
        let mut go_on = true;
        for event in &ready {
            match event.token {
                PLAIN if event.read => self.read_plain()?,
                SIGNALS => go_on &= self.read_signals()?,
                STATUS => self.tell_status()?,
                READER..WIRE => self
                    .status
                    .iter_mut()
                    .for_each(|socket| socket.go_on((event.token - READER) as usize)),
                HOLD if event.read => {
                    self.with_beside(|beside, driver, _| beside.take_all(sys::now(), driver));
                }
                MAPS => self.beside.iter_mut().for_each(Beside::hear),
                HOLD => {}
                token if token >= WIRE && event.read => self.read_wire((token - WIRE) as usize)?,
                _ => {}
            }
        }
        self.ready = ready;
        Ok(go_on)
    }

    /// Does something with the programs beside the bridge, if there are any. When their device is
    /// gone, all traffic takes its usual way.
    fn with_beside<T>(
        &mut self,
        act: impl FnOnce(&mut Beside, &mut D, &Poller) -> Result<T, Unavailable>,
    ) -> Option<T> {
        let Self { beside, driver, poller, .. } = self;
        match act(beside.as_mut()?, driver, poller) {
            Ok(done) => Some(done),
            Err(error) => {
                say!(Level::Warn, "{error}; no TCP goes beside the bridge any more");
                *beside = None;
                None
            }
        }
    }

    /// Tells the poller what is wanted of each device, where that changed.
    fn watch(&mut self, now: Nanos) -> io::Result<()> {
        for i in 0..self.watched.len() {
            let wanted = match i {
                0 => Interest { read: self.driver.wants_plain(now), write: self.out.plain_waits() },
                _ => Interest { read: true, write: self.out.wire_waits(i - 1) },
            };
            if self.watched[i] == wanted {
                continue;
            }
            let (fd, token) = match i {
                0 => (self.out.plain_fd(), PLAIN),
                _ => (self.out.wire_fd(i - 1), WIRE + (i - 1) as u64),
            };
            self.poller.change(fd, token, wanted)?;
            self.watched[i] = wanted;
        }
        Ok(())
    }

    fn read_plain(&mut self) -> Result<(), Unavailable> {
        // The device was not asked for and has something to read: an error, which must be seen.
        let unasked = !self.watched[0].read;
        for _ in 0..BATCH {
            let now = sys::now();
            if !unasked && !self.driver.wants_plain(now) {
                break;
            }
            let Some((hdr, frame)) = self.out.read_plain()? else { break };
            self.last_frame = now;
            self.driver.on_plain(now, &hdr, frame, &mut self.out);
        }
        Ok(())
    }

    fn read_wire(&mut self, port: usize) -> Result<(), Unavailable> {
        if !self.out.has_bridge() {
            let mut received = std::mem::take(&mut self.received);
            self.out.receive(port, &mut received);
            for Received { frame, .. } in received.drain(..) {
                self.last_frame = sys::now();
                self.driver.on_wire(self.last_frame, None, port as u8, frame, &mut self.out);
            }
            self.received = received;
            return Ok(());
        }
        for _ in 0..BATCH {
            let Some((tag, frame)) = self.out.read_tagged()? else { break };
            self.last_frame = sys::now();
            self.driver.on_wire(self.last_frame, tag, 0, frame, &mut self.out);
        }
        Ok(())
    }

    fn count_nics(&mut self, now: Nanos) -> Result<(), Unavailable> {
        let busy = self.last_frame != 0 && now.saturating_sub(self.last_frame) < COUNT_IDLE;
        self.next_count = now + if busy { COUNT_BUSY } else { COUNT_IDLE };
        log::tell_late(now);
        let wanted = self.driver.nics();
        let mut found = Vec::with_capacity(wanted.len());
        let read = self.nics.rx_bytes(|name, bytes| {
            if let Some((nic, _)) = wanted.iter().find(|(_, known)| known == name) {
                found.push((*nic, bytes));
            }
        });
        read.map_err(|error| Unavailable::because("/proc/self/net/dev", &error))?;
        let states: Vec<_> =
            wanted.iter().map(|(nic, name)| (*nic, self.nics.is_up(name))).collect();
        for (nic, up) in states {
            // A NIC that is gone has no count to go on from.
            let bytes =
                found.iter().find(|(found, _)| *found == nic).map_or(0, |(_, bytes)| *bytes);
            self.driver.nic_counters(now, nic, bytes, up);
        }
        if now.saturating_sub(self.last_reopen) >= COUNT_IDLE {
            self.last_reopen = now;
            let (opened, renamed) = self.out.reopen(&self.nics);
            renamed.iter().for_each(|(port, name)| self.driver.nic_renamed(*port as u8, name));
            for port in opened {
                let idle = Interest { read: true, write: false };
                let added = self.poller.add(self.out.wire_fd(port), WIRE + port as u64, idle);
                added.map_err(|error| Unavailable::because("epoll", &error))?;
                self.watched[1 + port] = idle;
            }
        }
        Ok(())
    }

    fn read_signals(&mut self) -> Result<bool, Unavailable> {
        let mut go_on = true;
        while let Some(signal) =
            self.signals.next().map_err(|error| Unavailable::because("signals", &error))?
        {
            match signal {
                Signal::Stop => go_on = false,
                Signal::Show => log::write_state(&self.status()),
            }
        }
        Ok(go_on)
    }

    /// What the engine says of itself, and what the devices did to frames, which the engine does
    /// not see.
    pub fn status(&self) -> serde_json::Value {
        let mut value = self.driver.status();
        if let Some(object) = value.as_object_mut() {
            object.insert("version".into(), env!("CARGO_PKG_VERSION").into());
            object.insert("pid".into(), std::process::id().into());
            object.insert("io".into(), self.out.counters());
            if let Some(beside) = &self.beside {
                object.insert("beside".into(), beside.status());
            }
        }
        value
    }

    fn tell_status(&mut self) -> Result<(), Unavailable> {
        let line = self.status().to_string();
        let Some(socket) = &mut self.status else { return Ok(()) };
        for place in socket.answer(&line) {
            if let Some(reader) = socket.reader(place) {
                let added = self.poller.add(
                    reader,
                    READER + place as u64,
                    Interest { read: false, write: true },
                );
                added.map_err(|error| Unavailable::because("epoll", &error))?;
            }
        }
        Ok(())
    }
}
