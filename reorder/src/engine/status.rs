//! What the helper says of itself when asked.

use serde_json::{json, Value};

use super::Engine;

impl Engine {
    /// Counters, NICs and peers, as the status socket gives them.
    pub(super) fn described(&self) -> Value {
        let nics: Vec<Value> = self
            .nics
            .iter()
            .map(|(port, nic)| {
                json!({
                    "port": port, "name": nic.name,
                    "rate_bps": u64::from(nic.rate_kbps) * 1000, "up": nic.up,
                    "foreign_bps": self.granter.foreign_bps(*port),
                })
            })
            .collect();
        let peers: Vec<Value> = self.peers.iter().map(|peer| self.described_peer(peer)).collect();
        let counters: serde_json::Map<String, Value> = self
            .counters
            .iter()
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .collect();
        json!({
            "mac": self.own.map(|mac| mac.to_string()),
            "mode": format!("{:?}", self.mode),
            "autonomous": !self.addressing.has_controller(),
            "held_bytes": self.held,
            "generations": self.generations.len(),
            "nics": nics,
            "peers": peers,
            "wakes_per_frame": self.counters.wakes_per_frame(),
            "counters": counters,
        })
    }

    fn described_peer(&self, peer: &super::Peer) -> Value {
        let usable = peer.usable();
        let links: Vec<Value> = peer
            .links
            .iter()
            .map(|link| {
                json!({
                    "link": link.number, "own_port": link.own_port, "peer_port": link.peer_port,
                    "heard": link.hears, "usable": usable & link.bit() != 0,
                    "rate_bps": u64::from(link.rate_kbps()) * 1000,
                    "weight_ppm": link.configured.weight,
                    "granted_bps": self.granter.grant(peer.mac, link.number),
                    "sent": link.sent_frames, "received": link.received_frames, "lost": link.lost,
                    "repeated": link.repeated, "rtt_us": link.round_trip_ns.map(|trip| trip / 1000),
                })
            })
            .collect();
        json!({
            "mac": peer.mac.to_string(), "session": peer.session.own(),
            "their_session": peer.session.remote(), "striped": peer.is_striped(),
            "queue_bytes": peer.tx.queue.bytes(), "ring_frames": peer.tx.ring.len(),
            "reorder_frames": peer.rx.held_frames(), "links": links,
        })
    }
}
