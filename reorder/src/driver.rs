//! What the core asks of the devices around it, and they of the core.

use crate::offload::vnet::VnetHdr;
use crate::wire::Tag;
use crate::Nanos;

/// Where a frame for the wire side goes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Out {
    /// Over a link: its number, which a bridge goes by, and the port number of this host's NIC.
    Link(u8, u8),
    /// To the bridge's slot table.
    Slots,
    /// To the controller.
    Controller,
    /// By one of this host's NICs, over no link; nowhere with a bridge.
    Nic(u8),
}

/// Takes what the core sends.
pub trait Sink {
    /// A whole frame without the bridge's tag, complete in itself, to the wire side.
    fn wire(&mut self, to: Out, frame: Vec<u8>);
    /// A whole frame, complete in itself, to the host. Frames may be merged on the way; order stays
    /// within a flow.
    fn plain(&mut self, frame: Vec<u8>);
    /// An empty buffer for a frame.
    fn recycle(&mut self) -> Vec<u8>;
    /// A buffer that is not needed any more.
    fn done(&mut self, buffer: Vec<u8>);
}

/// The core: frames in, frames out, by the clock that is passed in.
pub trait Driver {
    /// A frame of the host, with its offloads.
    fn on_plain(&mut self, now: Nanos, header: &VnetHdr, frame: Vec<u8>, out: &mut dyn Sink);
    /// A frame from the wire side. With a bridge: with the `tag` it had (taken out of it), `nic`
    /// means nothing. Without: by the NIC whose port number is `nic`, addressed to its MAC, to all
    /// or to a group.
    fn on_wire(
        &mut self,
        now: Nanos,
        tag: Option<Tag>,
        nic: u8,
        frame: Vec<u8>,
        out: &mut dyn Sink,
    );
    /// Everything that is due; returns when something is due next. To be called after each batch of
    /// frames.
    fn on_tick(&mut self, now: Nanos, out: &mut dyn Sink) -> Nanos;
    /// Whether more frames of the host should be read now.
    fn wants_plain(&mut self, now: Nanos) -> bool;
    /// A NIC's counter of bytes that came in, and whether it has carrier.
    fn nic_counters(&mut self, now: Nanos, port: u8, rx_bytes: u64, up: bool);
    /// The NIC with that port number has another name now.
    fn nic_renamed(&mut self, port: u8, name: &str);
    /// The NICs whose counters are wanted: port number and name.
    fn nics(&self) -> &[(u8, String)];
    /// What it says of itself.
    fn status(&self) -> serde_json::Value;
    /// The process ends: others are told.
    fn goodbye(&mut self, now: Nanos, out: &mut dyn Sink);
}
