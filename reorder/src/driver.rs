// SPDX-License-Identifier: Apache-2.0
//! What the core asks of the devices around it, and what they ask of the core.

use crate::beside::steering::Steering;
use crate::offload::vnet::VnetHdr;
use crate::wire::{Mac, Tag};
use crate::Nanos;

/// Where a frame for the wire side goes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Out {
    /// Over a link: its number, by which a bridge chooses, and the port number of this host's NIC.
    Link(u8, u8),
    /// To the bridge's slot table.
    Slots,
    /// To the controller.
    Controller,
    /// By one of this host's NICs, over no link. With a bridge, such a frame goes nowhere.
    Nic(u8),
}

/// Takes what the core sends.
pub trait Sink {
    /// Sends a frame to the wire side: without the bridge's tag, and with complete checksums.
    fn wire(&mut self, to: Out, frame: Vec<u8>);
    /// Gives a frame to the host, with complete checksums. Frames may be merged on the way; the
    /// order within a flow stays.
    fn plain(&mut self, frame: Vec<u8>);
    /// An empty buffer for a frame.
    fn recycle(&mut self) -> Vec<u8>;
    /// A buffer that is not needed any more.
    fn done(&mut self, buffer: Vec<u8>);
}

/// The core: it takes frames and gives frames. Its only clock is the time that is passed in.
pub trait Driver {
    /// Takes a frame of the host, with its offloads.
    fn on_plain(&mut self, now: Nanos, header: &VnetHdr, frame: Vec<u8>, out: &mut dyn Sink);
    /// Takes a frame from the wire side.
    ///
    /// With a bridge, `tag` is the one that was taken out of the frame, and `nic` means nothing.
    /// Without, the frame arrived by the NIC with port number `nic`, and is addressed to its MAC,
    /// to all, or to a group.
    fn on_wire(
        &mut self,
        now: Nanos,
        tag: Option<Tag>,
        nic: u8,
        frame: Vec<u8>,
        out: &mut dyn Sink,
    );
    /// Does everything that is due. Returns when something is due next. To be called after each
    /// batch of frames.
    fn on_tick(&mut self, now: Nanos, out: &mut dyn Sink) -> Nanos;
    /// Takes what the programs beside the bridge carried. To be called before each `on_tick`, where
    /// there are such programs. Whether there was traffic.
    fn take_beside(&mut self, _now: Nanos, _steering: &mut Steering) -> bool {
        false
    }
    /// Tells those programs what they may do until the next turn. To be called after each
    /// `on_tick`.
    fn tell_beside(&mut self, _now: Nanos, _steering: &mut Steering) {}
    /// A frame for a peer left beside the bridge, while nobody looked.
    fn woken(&mut self, _now: Nanos, _peer: Mac) {}
    /// The host's own MAC, once it is known.
    fn own(&self) -> Option<Mac> {
        None
    }
    /// How long a frame that came beside the bridge may wait for those of a peer before it.
    fn patience_ns(&self, _peer: Mac) -> Nanos {
        0
    }
    /// Whether more frames of the host should be read now.
    fn wants_plain(&mut self, now: Nanos) -> bool;
    /// Takes a NIC's counter of bytes that arrived, and whether the NIC has carrier.
    fn nic_counters(&mut self, now: Nanos, port: u8, rx_bytes: u64, up: bool);
    /// The NIC with that port number has another name now.
    fn nic_renamed(&mut self, port: u8, name: &str);
    /// The NICs whose counters are wanted: port number and name.
    fn nics(&self) -> &[(u8, String)];
    /// What the core says of itself.
    fn status(&self) -> serde_json::Value;
    /// The process ends: tells the others.
    fn goodbye(&mut self, now: Nanos, out: &mut dyn Sink);
}
