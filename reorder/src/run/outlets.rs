// SPDX-License-Identifier: Apache-2.0
//! The devices behind the engine's [`Sink`]: reading into pooled buffers, merging, batches, and
//! frames that cannot be written.
//!
//! Everything is bounded: [`WAITING`] frames wait for a device; more are dropped and counted.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use serde_json::{json, Value};

use crate::sys::interface::Interfaces;
use crate::sys::packet::{PacketSocket, Received, BATCH};
use crate::sys::tap::{Tap, VNET};
use crate::sys::{reason, Unavailable};

use super::devices::{Devices, Wire};
use super::log::{say, Level};
use super::pool::Pool;
use super::Merge;
use crate::driver::{Out, Sink};
use crate::offload::vnet::VnetHdr;
use crate::wire::{Tag, CONTROL_VID, ETHERTYPE, MAX_LINKS, TAG_LENGTH};

/// The most frames that wait for a device.
const WAITING: usize = 256;

/// What became of frames that were to be written to one side, or were read from it.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// Written.
    written: u64,
    /// Dropped: the device, or its queue here, was full.
    full: u64,
    /// Dropped: the device was down.
    down: u64,
    /// Dropped: the kernel refused it.
    refused: u64,
    /// Dropped: it arrived longer than it may be.
    oversized: u64,
    /// Dropped: it arrived by a NIC, but for another one or in another VLAN.
    foreign: u64,
    /// Lost by the kernel before it could be read (packet sockets).
    overrun: u64,
}

impl Counters {
    fn value(&self) -> Value {
        json!({
            "written": self.written, "full": self.full, "down": self.down, "refused": self.refused,
            "oversized": self.oversized, "foreign": self.foreign, "overrun": self.overrun,
        })
    }

    /// Counts a frame that could not be written.
    fn lost(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Wait | Trouble::Full => self.full += 1,
            Trouble::Down | Trouble::Gone => self.down += 1,
            Trouble::Refused => self.refused += 1,
        }
    }
}

/// Why a frame was not written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Trouble {
    /// It may be written later.
    Wait,
    Full,
    Down,
    Refused,
    /// The device does not exist any more.
    Gone,
}

fn trouble(error: &io::Error) -> Trouble {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Trouble::Wait,
        Some(libc::ENOBUFS | libc::ENOMEM) => Trouble::Full,
        Some(libc::EIO | libc::ENETDOWN | libc::ENETUNREACH) => Trouble::Down,
        Some(libc::EBADFD | libc::ENODEV | libc::ENXIO) => Trouble::Gone,
        _ => Trouble::Refused,
    }
}

/// What is put before a frame on its way to a TAP.
#[derive(Clone, Copy, Debug)]
pub(super) enum Head {
    None,
    Vnet([u8; VNET]),
    Tag([u8; 4]),
}

/// A TAP and the frames that wait for it.
///
/// Invariant: frames leave in order, so while one waits, all do.
pub(super) struct TapOut {
    pub(super) tap: Tap,
    waiting: VecDeque<(Head, Vec<u8>)>,
    count: Counters,
    pub(super) gone: bool,
}

impl TapOut {
    pub(super) fn new(tap: Tap) -> Self {
        TapOut { tap, waiting: VecDeque::new(), count: Counters::default(), gone: false }
    }

    pub(super) fn send(&mut self, head: Head, frame: Vec<u8>, pool: &mut Pool) {
        if !self.waiting.is_empty() || self.write(head, &frame).is_err() {
            if self.waiting.len() < WAITING {
                self.waiting.push_back((head, frame));
                return;
            }
            self.count.full += 1;
        }
        pool.give(frame);
    }

    /// Writes a frame. `Err`: it has to wait. Any other failure is counted, and the frame is done
    /// with.
    fn write(&mut self, head: Head, frame: &[u8]) -> Result<(), ()> {
        let result = match head {
            Head::None => self.tap.write(&[0; VNET], frame),
            Head::Vnet(header) => self.tap.write(&header, frame),
            Head::Tag(tag) => self.tap.write_tagged(tag, frame),
        };
        match result.map_err(|error| trouble(&error)) {
            Ok(()) => self.count.written += 1,
            Err(Trouble::Wait) => return Err(()),
            Err(other) => {
                self.gone |= other == Trouble::Gone;
                self.count.lost(other);
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, pool: &mut Pool) {
        while let Some((head, frame)) = self.waiting.pop_front() {
            if self.write(head, &frame).is_err() {
                self.waiting.push_front((head, frame));
                break;
            }
            pool.give(frame);
        }
    }

    /// Whether frames wait for room in the device.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A frame was too long to be read.
    pub(super) fn cut_off(&mut self) {
        self.count.oversized += 1;
    }

    /// For the status.
    pub(super) fn counters(&self) -> Value {
        self.count.value()
    }

    /// Judges an error of a read. If there was nothing to read, that is none.
    pub(super) fn read_error(&self, error: &io::Error) -> Result<(), Unavailable> {
        match trouble(error) {
            Trouble::Wait => Ok(()),
            _ => Err(Unavailable(format!("TAP {} is gone: {}", self.tap.name(), reason(error)))),
        }
    }
}

/// A NIC, and the frames of this turn or those that wait for it.
struct NicOut {
    name: String,
    /// The NIC is known by it when both its name and its number have changed.
    mac: Option<[u8; 6]>,
    socket: PacketSocket,
    queue: VecDeque<Vec<u8>>,
    count: Counters,
    waits: bool,
    /// Why the NIC could not be opened again; empty where it could. It is said once.
    closed: String,
}

impl NicOut {
    fn send(&mut self, frame: Vec<u8>, pool: &mut Pool) {
        if self.queue.len() >= WAITING {
            self.count.full += 1;
            pool.give(frame);
            return;
        }
        self.queue.push_back(frame);
        if self.queue.len() % BATCH == 0 && !self.waits {
            self.flush(pool);
        }
    }

    fn flush(&mut self, pool: &mut Pool) {
        self.waits = false;
        while !self.queue.is_empty() {
            let sent = match self.socket.send(self.queue.iter().map(Vec::as_slice)) {
                Ok(sent) => sent,
                Err(error) if trouble(&error) == Trouble::Wait => {
                    self.waits = true;
                    break;
                }
                Err(error) => {
                    // The error is about the first frame: leave that out.
                    self.count.lost(trouble(&error));
                    self.queue.pop_front().into_iter().for_each(|frame| pool.give(frame));
                    continue;
                }
            };
            self.count.written += sent as u64;
            self.queue.drain(..sent).for_each(|frame| pool.give(frame));
        }
    }
}

enum WireOut {
    Bridge(Box<TapOut>),
    Nics(Vec<NicOut>),
}

/// A frame, and the tag that it had.
type Tagged = (Option<Tag>, Vec<u8>);

/// All devices, as the loop and the engine see them.
pub(super) struct Outlets<M> {
    merge: M,
    plain: TapOut,
    wire: WireOut,
    pool: Pool,
    /// Empty buffers for the next frames of the NICs.
    spare: Vec<Vec<u8>>,
    /// Frames for a port that does not exist.
    no_such_port: u64,
}

impl<M: Merge> Outlets<M> {
    pub(super) fn new(devices: Devices, merge: M) -> Self {
        let wire = match devices.wire {
            Wire::Bridge(tap) => WireOut::Bridge(Box::new(TapOut::new(tap))),
            Wire::Nics(nics) => WireOut::Nics(
                nics.into_iter().map(|(name, socket)| nic_out(name, socket)).collect(),
            ),
        };
        Outlets {
            merge,
            plain: TapOut::new(devices.plain),
            wire,
            pool: Pool::new(devices.frame_room),
            spare: Vec::with_capacity(BATCH),
            no_such_port: 0,
        }
    }

    pub(super) fn has_bridge(&self) -> bool {
        matches!(self.wire, WireOut::Bridge(_))
    }

    /// The next frame of the host, if there is one.
    pub(super) fn read_plain(&mut self) -> Result<Option<(VnetHdr, Vec<u8>)>, Unavailable> {
        loop {
            let mut header = [0; VNET];
            let mut frame = self.pool.large();
            let read = self.plain.tap.read(&mut header, &mut frame);
            if read.is_ok() && frame.len() < frame.capacity() {
                let Ok(header) = VnetHdr::parse(&header) else {
                    self.plain.count.refused += 1;
                    self.pool.give(frame);
                    continue;
                };
                return Ok(Some((header, self.pool.fit(frame))));
            }
            self.pool.give(frame);
            match read {
                Ok(()) => self.plain.count.oversized += 1,
                Err(error) => return self.plain.read_error(&error).map(|()| None),
            }
        }
    }

    /// The next frame of the bridge, if there is one, and the tag that it had.
    pub(super) fn read_tagged(&mut self) -> Result<Option<Tagged>, Unavailable> {
        let WireOut::Bridge(wire) = &mut self.wire else { return Ok(None) };
        loop {
            let mut frame = self.pool.small();
            let room = frame.capacity();
            let read = wire.tap.read_tagged(&mut frame);
            if let (Ok(tag), true) = (&read, frame.len() < room) {
                return Ok(Some((tag.and_then(Tag::from_bytes), frame)));
            }
            self.pool.give(frame);
            match read {
                Ok(_) => wire.count.oversized += 1,
                Err(error) => return wire.read_error(&error).map(|()| None),
            }
        }
    }

    /// Reads the next frames of the NIC at `port`. If the NIC has an error, there are none for now:
    /// it may come up again.
    pub(super) fn receive(&mut self, port: usize, received: &mut Vec<Received>) {
        let WireOut::Nics(nics) = &mut self.wire else { return };
        let Some(nic) = nics.get_mut(port) else { return };
        while self.spare.len() < BATCH {
            self.spare.push(self.pool.small());
        }
        if nic.socket.receive(&mut self.spare, received).is_ok() {
            let before = received.len();
            received.retain(|frame| !frame.foreign);
            nic.count.foreign += (before - received.len()) as u64;
            let before = received.len();
            received.retain(|frame| !frame.cut_off);
            nic.count.oversized += (before - received.len()) as u64;
        }
    }

    /// Writes what the turn has gathered.
    pub(super) fn flush(&mut self) {
        let Outlets { merge, plain, pool, wire, .. } = self;
        plain.flush(pool);
        merge.flush(&mut |hdr, frame| plain.send(Head::Vnet(hdr.to_bytes()), frame, pool));
        match wire {
            WireOut::Bridge(tap) => tap.flush(pool),
            WireOut::Nics(nics) => nics.iter_mut().for_each(|nic| nic.flush(pool)),
        }
    }

    /// Whether a device is gone without which there is nothing left to do.
    pub(super) fn fatal(&self) -> Result<(), Unavailable> {
        let wire = match &self.wire {
            WireOut::Bridge(wire) => Some(&**wire),
            WireOut::Nics(_) => None,
        };
        match [Some(&self.plain), wire].into_iter().flatten().find(|out| out.gone) {
            Some(out) => Err(Unavailable(format!("TAP {} is gone", out.tap.name()))),
            None => Ok(()),
        }
    }

    pub(super) fn plain_waits(&self) -> bool {
        !self.plain.waiting.is_empty()
    }

    pub(super) fn plain_fd(&self) -> BorrowedFd<'_> {
        self.plain.tap.as_fd()
    }

    pub(super) fn wire_waits(&self, port: usize) -> bool {
        match &self.wire {
            WireOut::Bridge(wire) => !wire.waiting.is_empty(),
            WireOut::Nics(nics) => nics[port].waits,
        }
    }

    pub(super) fn wire_fd(&self, port: usize) -> BorrowedFd<'_> {
        match &self.wire {
            WireOut::Bridge(wire) => wire.tap.as_fd(),
            WireOut::Nics(nics) => nics[port].socket.as_fd(),
        }
    }

    /// Opens NICs again that were removed and made again. Finds NICs that have another name: by the
    /// number of the interface, which stays, or by the MAC. Returns the ports of those that were
    /// opened, and of those that were renamed.
    ///
    /// Also asks the kernel for the frames that it dropped, which it counts from zero each time.
    pub(super) fn reopen(&mut self, interfaces: &Interfaces) -> (Vec<usize>, Vec<(usize, String)>) {
        let WireOut::Nics(nics) = &mut self.wire else { return Default::default() };
        let (mut opened, mut renamed) = (Vec::new(), Vec::new());
        let taken: Vec<String> = nics.iter().map(|nic| nic.name.clone()).collect();
        for (port, nic) in nics.iter_mut().enumerate() {
            nic.count.overrun += nic.socket.drops().unwrap_or(0);
            if interfaces.index(&nic.name).is_err() {
                let alike =
                    || nic.mac.and_then(|mac| interfaces.with_mac(mac).ok()).unwrap_or_default();
                let others = || alike().into_iter().find(|name| !taken.contains(name));
                if let Some(name) = interfaces.name(nic.socket.index()).ok().or_else(others) {
                    say!(Level::Warn, "NIC {} is called {name} now", nic.name);
                    nic.name.clone_from(&name);
                    renamed.push((port, name));
                }
            }
            if interfaces.index(&nic.name).is_ok_and(|index| index != nic.socket.index()) {
                match PacketSocket::open(&nic.name, ETHERTYPE) {
                    Ok(socket) => {
                        say!(Level::Warn, "NIC {} was made anew: using it", nic.name);
                        nic.socket = socket;
                        nic.closed.clear();
                        opened.push(port);
                    }
                    Err(error) if nic.closed != error.0 => {
                        say!(Level::Warn, "NIC {} was made anew: {error}", nic.name);
                        nic.closed = error.0;
                    }
                    Err(_) => {}
                }
            }
        }
        (opened, renamed)
    }

    /// For the status: what the devices did to frames, which the engine does not see.
    pub(super) fn counters(&self) -> Value {
        let wire = match &self.wire {
            WireOut::Bridge(wire) => json!({ "bridge": wire.count.value() }),
            WireOut::Nics(nics) => {
                nics.iter().map(|nic| (nic.name.clone(), nic.count.value())).collect()
            }
        };
        json!({
            "plain": self.plain.count.value(), "wire": wire, "no_such_port": self.no_such_port,
        })
    }
}

impl<M: Merge> Sink for Outlets<M> {
    fn wire(&mut self, port: Out, frame: Vec<u8>) {
        let Outlets { wire, pool, .. } = self;
        match (wire, port) {
            (WireOut::Bridge(tap), Out::Link(link, _)) if usize::from(link) < MAX_LINKS => {
                tap.send(Head::Tag(tag_bytes(u16::from(link) + 1)), frame, pool);
            }
            (WireOut::Bridge(tap), Out::Slots) => tap.send(Head::None, frame, pool),
            (WireOut::Bridge(tap), Out::Controller) => {
                tap.send(Head::Tag(tag_bytes(CONTROL_VID)), frame, pool)
            }
            (WireOut::Nics(nics), Out::Link(_, nic) | Out::Nic(nic))
                if usize::from(nic) < nics.len() =>
            {
                nics[usize::from(nic)].send(frame, pool);
            }
            _ => {
                self.no_such_port += 1;
                pool.give(frame);
            }
        }
    }

    fn plain(&mut self, frame: Vec<u8>) {
        let Outlets { merge, plain, pool, .. } = self;
        merge.push(frame, &mut |hdr, frame| plain.send(Head::Vnet(hdr.to_bytes()), frame, pool));
    }

    fn recycle(&mut self) -> Vec<u8> {
        self.pool.small()
    }

    fn done(&mut self, buffer: Vec<u8>) {
        self.pool.give(buffer);
    }
}

fn nic_out(name: String, socket: PacketSocket) -> NicOut {
    let mac = Interfaces::open().and_then(|interfaces| interfaces.mac(&name)).ok();
    NicOut {
        name,
        mac,
        socket,
        queue: VecDeque::new(),
        count: Counters::default(),
        waits: false,
        closed: String::new(),
    }
}

/// The bytes of a tag of priority 0.
fn tag_bytes(vid: u16) -> [u8; TAG_LENGTH] {
    Tag { vid, pcp: 0 }.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_keeps_vlan_and_priority() {
        assert_eq!(Tag::from_bytes(tag_bytes(4094)), Some(Tag { vid: 4094, pcp: 0 }));
        assert_eq!(Tag::from_bytes([0x81, 0, 0xf0, 0x05]), Some(Tag { vid: 5, pcp: 7 }));
    }

    #[test]
    fn a_full_device_is_waited_for_a_missing_one_is_not() {
        let of = |code| trouble(&io::Error::from_raw_os_error(code));
        assert_eq!(of(libc::EAGAIN), Trouble::Wait);
        assert_eq!(of(libc::ENOBUFS), Trouble::Full);
        assert_eq!(of(libc::EIO), Trouble::Down);
        assert_eq!(of(libc::EBADFD), Trouble::Gone);
        assert_eq!(of(libc::EINVAL), Trouble::Refused);
    }
}
