// SPDX-License-Identifier: Apache-2.0
//! The programs beside the bridge, as the main loop sees them: the device by which they give
//! frames, and the connection by which their maps come.
//!
//! `ri2n-fast` may run or not. While it does not, the maps that came last stay in use, since its
//! programs stay in the kernel.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use ri2n_wire::handover::Connection;
use ri2n_wire::shared::{Given, Shared};
use serde_json::{json, Value};

use super::devices;
use super::log::{say, Level};
use super::outlets::{Head, TapOut};
use super::pool::Pool;
use crate::beside::order::{Early, Order};
use crate::beside::segment::Segment;
use crate::beside::steering::Steering;
use crate::driver::Driver;
use crate::sys::packet::BATCH;
use crate::sys::poll::{Interest, Poller};
use crate::sys::tap::VNET;
use crate::sys::{reason, Unavailable};
use crate::wire::{Mac, MACS};
use crate::Nanos;

/// The device's token in the poller.
pub(super) const HOLD: u64 = 1 << 32;
/// The connection's.
pub(super) const MAPS: u64 = HOLD + 1;

/// How often to connect while nobody listens.
const CONNECT_NS: Nanos = 100_000_000;
/// How often to look for what was lost on the way here, while nothing else happens.
const SCAN_NS: Nanos = 1_000_000_000;
/// The programs are heard and told no more often than this: with many peers, that takes longer than
/// a frame does.
const TELL_NS: Nanos = 500_000;
/// So many batches are read before a gap is given up: the frame that ends it may be among them.
const BATCHES: usize = 8;
const READ: Interest = Interest { read: true, write: false };

/// A frame that is held, with its header.
type Item = ([u8; VNET], Vec<u8>);

/// The device, the maps, and what is held.
pub(super) struct Beside {
    hold: TapOut,
    path: PathBuf,
    full: usize,
    pool: Pool,
    order: Order<Item>,
    steering: Option<Steering>,
    link: Option<Link>,
    connect_at: Nanos,
    /// When the programs were last heard and told.
    told_ns: Nanos,
    /// They are in this turn.
    tells: bool,
    /// When the order has to be looked at.
    look_at: Nanos,
    looked_ns: Nanos,
    /// The device was read since then.
    read: bool,
    /// The device had nothing more, when it was last read.
    drained: bool,
    watched: Interest,
    /// What was wrong with the last maps; it is said once.
    trouble: String,
    woken: u64,
    unknown: u64,
}

/// The connection to `ri2n-fast`.
struct Link {
    connection: Connection,
    /// The maps came.
    has_maps: bool,
    /// Frames may come, as was said.
    ready: bool,
}

impl Beside {
    /// `frame_room`: what the longest frame of the wire needs, in bytes.
    pub(super) fn new(
        devices: devices::Beside,
        frame_room: usize,
        poller: &Poller,
    ) -> io::Result<Self> {
        let devices::Beside { hold, maps, full, max_bytes } = devices;
        poller.add(&hold, HOLD, READ)?;
        Ok(Beside {
            hold: TapOut::new(hold),
            path: maps,
            full,
            pool: Pool::new(frame_room),
            order: Order::new(max_bytes),
            steering: None,
            link: None,
            connect_at: 0,
            told_ns: 0,
            tells: false,
            look_at: Nanos::MAX,
            looked_ns: 0,
            read: false,
            drained: false,
            watched: READ,
            trouble: String::new(),
            woken: 0,
            unknown: 0,
        })
    }

    /// Before the engine's turn: writes what need not be held any longer, and tells the engine what
    /// the programs carried. Whether that was something.
    pub(super) fn before(
        &mut self,
        now: Nanos,
        driver: &mut impl Driver,
        poller: &Poller,
    ) -> Result<bool, Unavailable> {
        self.connect(now, poller);
        if let Some(link) = self.link.as_mut().filter(|link| link.has_maps && !link.ready) {
            // Without the host's MAC, frames could not be written back.
            if driver.own().is_some() {
                link.ready = true;
                if link.connection.ready().is_err() {
                    self.link = None;
                }
            }
        }
        let due = self.look_at <= now || now.saturating_sub(self.looked_ns) >= SCAN_NS;
        for _ in 0..if due { BATCHES } else { 0 } {
            self.take_all(now, driver)?; // what is waited for may be there already
            if self.drained {
                break;
            }
        }
        if due || self.read {
            self.look(now);
        }
        self.tells = now.saturating_sub(self.told_ns) >= TELL_NS || now < self.told_ns;
        let steering = self.steering.as_mut().filter(|_| self.tells);
        Ok(steering.is_some_and(|steering| driver.take_beside(now, steering)))
    }

    /// After the engine's turn: tells the programs what they may do. Returns when something is due.
    pub(super) fn after(
        &mut self,
        now: Nanos,
        driver: &mut impl Driver,
        poller: &Poller,
    ) -> Result<Nanos, Unavailable> {
        let mut tell_at = Nanos::MAX;
        match &mut self.steering {
            Some(steering) if self.tells => {
                driver.tell_beside(now, steering);
                self.told_ns = now;
            }
            Some(_) => tell_at = self.told_ns + TELL_NS,
            None => {}
        }
        self.hold.flush(&mut self.pool);
        if self.hold.gone {
            return Err(Unavailable(format!("TAP {} is gone", self.hold.tap.name())));
        }
        let wanted = Interest { read: true, write: self.hold.waits() };
        if self.watched != wanted {
            let changed = poller.change(self.hold.tap.as_fd(), HOLD, wanted);
            changed.map_err(|error| Unavailable::because("epoll", &error))?;
            self.watched = wanted;
        }
        let connect_at = if self.link.is_none() { self.connect_at } else { Nanos::MAX };
        Ok(self.look_at.min(connect_at).min(tell_at))
    }

    fn look(&mut self, now: Nanos) {
        let Self { order, steering, hold, pool, .. } = self;
        let flows = steering.as_ref().map_or(&[][..], Steering::flows);
        self.look_at = order.look(now, flows, self.drained, &mut |(head, frame)| {
            hold.send(Head::Vnet(head), frame, pool)
        });
        (self.looked_ns, self.read) = (now, false);
    }

    /// The device has frames.
    pub(super) fn take_all(
        &mut self,
        now: Nanos,
        driver: &mut impl Driver,
    ) -> Result<(), Unavailable> {
        (self.read, self.drained) = (true, false);
        for _ in 0..BATCH {
            let mut header = [0; VNET];
            let mut frame = self.pool.large();
            match self.hold.tap.read(&mut header, &mut frame) {
                Ok(()) if frame.len() < frame.capacity() => {
                    let frame = self.fit(frame);
                    self.take(now, driver, header, frame);
                }
                Ok(()) => {
                    self.hold.cut_off();
                    self.pool.give(frame);
                }
                Err(error) => {
                    self.pool.give(frame);
                    self.hold.read_error(&error)?;
                    self.drained = true;
                    break;
                }
            }
        }
        Ok(())
    }

    /// A frame in a buffer that is not much longer: it may be held.
    fn fit(&mut self, frame: Vec<u8>) -> Vec<u8> {
        let frame = self.pool.fit(frame);
        if frame.capacity() / 2 <= frame.len() || frame.capacity() < super::pool::LARGE {
            return frame;
        }
        let short = frame.as_slice().into();
        self.pool.give(frame);
        short
    }

    fn take(&mut self, now: Nanos, driver: &mut impl Driver, header: [u8; VNET], frame: Vec<u8>) {
        let mut frame = frame;
        let own = driver.own();
        let given = frame.first_chunk::<MACS>().zip(own);
        match given.and_then(|(macs, own)| Some((Given::read(macs, own.0)?, own))) {
            Some((Given::Wake { peer }, _)) => {
                self.woken += 1;
                driver.woken(now, Mac(peer));
                self.pool.give(frame);
            }
            Some((Given::Early { flow, peer, .. }, own)) => {
                frame[..6].copy_from_slice(&own.0);
                let early = Early {
                    place: flow,
                    segment: Segment::read(&frame),
                    bytes: frame.capacity(),
                    hold_ns: driver.patience_ns(Mac(peer)),
                };
                let Self { order, steering, hold, pool, .. } = self;
                let flows = steering.as_ref().map_or(&[][..], Steering::flows);
                order.take(now, flows, early, (header, frame), &mut |(head, frame)| {
                    hold.send(Head::Vnet(head), frame, pool)
                });
            }
            None => {
                self.unknown += 1;
                self.pool.give(frame);
            }
        }
    }

    /// Connects if there is no connection, and it is time to try.
    fn connect(&mut self, now: Nanos, poller: &Poller) {
        // A clock that was set back must not delay it.
        if self.link.is_some() || (now < self.connect_at && self.connect_at <= now + CONNECT_NS) {
            return;
        }
        self.connect_at = now + CONNECT_NS;
        let Ok(connection) = Connection::new(&self.path) else { return };
        if poller.add(&connection, MAPS, READ).is_ok() {
            self.link = Some(Link { connection, has_maps: false, ready: false });
            self.hear();
        }
    }

    /// The connection has something to say.
    pub(super) fn hear(&mut self) {
        let Some(link) = &mut self.link else { return };
        if link.has_maps {
            if !link.connection.is_open() {
                self.link = None;
            }
            return;
        }
        match link.connection.take() {
            Ok(None) => {}
            Ok(Some(shared)) => {
                link.has_maps = true;
                self.trouble.clear();
                self.adopt(shared);
            }
            Err(error) => {
                self.link = None;
                let trouble = reason(&error);
                if self.trouble != trouble {
                    say!(Level::Warn, "maps of {}: {trouble}", self.path.display());
                    self.trouble = trouble;
                }
            }
        }
    }

    /// Takes new maps in place of those that were there. What is held was counted in the old ones.
    fn adopt(&mut self, shared: Shared) {
        self.give_up();
        self.steering = None;
        self.steering = Some(Steering::new(shared, self.full));
        say!(Level::Info, "maps of {}: TCP may go beside the bridge", self.path.display());
    }

    fn give_up(&mut self) {
        let Self { order, steering, hold, pool, .. } = self;
        let flows = steering.as_ref().map(Steering::flows);
        order.give_up_all(flows, &mut |(head, frame)| hold.send(Head::Vnet(head), frame, pool));
    }

    /// The helper ends: nothing is held any more, and nothing new goes beside the bridge.
    pub(super) fn end(&mut self) {
        self.give_up();
        self.hold.flush(&mut self.pool);
        self.steering = None;
        self.link = None;
    }

    /// For the status.
    pub(super) fn status(&self) -> Value {
        let counts = self.order.counts();
        json!({
            "maps": self.steering.is_some(),
            "connected": self.link.as_ref().is_some_and(|link| link.ready),
            "waiting": self.order.len(),
            "held": counts.held, "released": counts.released,
            "given_up": { "lost": counts.lost, "late": counts.late, "forced": counts.forced },
            "through": counts.through, "unparsed": counts.unparsed, "repaired": counts.repaired,
            "woken": self.woken, "unknown": self.unknown, "io": self.hold.counters(),
        })
    }
}
