// SPDX-License-Identifier: Apache-2.0
//! Channels of jobs, as the controller tells them.

use ri2n_reorder::driver::Driver;
use ri2n_reorder::wire::{Body, Control, PeerChannel, MAX_CHANNEL, NO_LIMIT};

use super::{mac, World};

/// The channel of a job over these links (a bit each), without rates of its own.
pub fn channel(number: u8, tag: u32, links: u64) -> PeerChannel {
    PeerChannel { number, tag, links, max_kbps: NO_LIMIT, min_kbps: 0, min_in_kbps: 0 }
}

impl World {
    /// Tells a host all its channels to another one.
    pub fn tell_channels(&mut self, host: usize, other: usize, channels: &[PeerChannel]) {
        let channels = channels.to_vec();
        let body = Body::Channels { first: 0, last: MAX_CHANNEL, channels };
        self.control(host, Control { generation: self.generation, mac: mac(other), body });
    }

    /// Tells two hosts all their channels to each other. What is guaranteed one way is set aside at
    /// the other end.
    pub fn tell_both(&mut self, host: usize, other: usize, channels: &[PeerChannel]) {
        let there: Vec<PeerChannel> =
            channels.iter().map(|it| PeerChannel { min_in_kbps: it.min_kbps, ..*it }).collect();
        self.tell_channels(host, other, channels);
        self.tell_channels(other, host, &there);
    }

    /// Data frames that a host sent in a channel since `clear`, over each of the first `links`
    /// links.
    pub fn carried_by(&self, host: usize, channel: u8, links: u8) -> Vec<u64> {
        let sent = |link| self.carried.get(&(host, channel, link)).copied().unwrap_or(0);
        (0..links).map(sent).collect()
    }

    /// What a host says of a channel to another host.
    pub fn channel_of(&mut self, host: usize, other: usize, number: u8) -> serde_json::Value {
        let status = self.engine(host).status();
        let peers = status["peers"].as_array().unwrap();
        let peer = peers.iter().find(|peer| peer["mac"] == mac(other).to_string()).unwrap();
        let channels = peer["channels"].as_array().unwrap();
        channels.iter().find(|channel| channel["channel"] == number).cloned().unwrap_or_default()
    }
}
