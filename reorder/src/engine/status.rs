// SPDX-License-Identifier: Apache-2.0
//! What the helper says of itself when asked.

use serde_json::{json, Value};

use super::channel::Channel;
use super::Engine;
use crate::sched::bits;
use crate::wire::NO_LIMIT;

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
        let sum = |of: fn(&Channel) -> usize| peer.channels.iter().map(of).sum::<usize>();
        let channels: Vec<Value> = peer.channels.iter().map(described_channel).collect();
        json!({
            "mac": peer.mac.to_string(), "session": peer.session.own(),
            "their_session": peer.session.remote(), "striped": peer.is_striped(),
            "beside": peer.beside.allowed,
            "queue_bytes": sum(|channel| channel.out.queue.bytes()),
            "ring_frames": sum(|channel| channel.out.ring.len()),
            "reorder_frames": sum(|channel| channel.incoming.held_frames()),
            "links": links, "channels": channels, "refused": peer.channels.refused(),
        })
    }
}

/// A channel; that of no job has the number 0, and no tag, links and rates.
fn described_channel(channel: &Channel) -> Value {
    let (carried, rates) = (&channel.carried, channel.rates());
    let mut described = json!({
        "channel": channel.number,
        "frames_out": carried.frames_out, "bytes_out": carried.bytes_out,
        "frames_in": carried.frames_in, "bytes_in": carried.bytes_in,
        "drops": carried.drops, "queue_bytes": channel.out.queue.bytes(),
    });
    if channel.number > 0 {
        let limit = Some(rates.max_kbps).filter(|kbps| *kbps != NO_LIMIT);
        let more = json!({
            "tag": channel.tag(), "taken_by_peer": channel.is_known_to_peer(),
            "links": bits(channel.links()).collect::<Vec<u8>>(),
            "max_rate_bps": limit.map(|kbps| u64::from(kbps) * 1000),
            "min_rate_bps": u64::from(rates.min_kbps) * 1000,
            "min_rate_in_bps": u64::from(rates.min_in_kbps) * 1000,
        });
        if let (Some(all), Value::Object(more)) = (described.as_object_mut(), more) {
            all.extend(more);
        }
    }
    described
}
