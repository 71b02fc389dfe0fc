// SPDX-License-Identifier: Apache-2.0
//! What the controller says: which NICs this host has, who its peers are, over which links.

use super::link::{Configured, Link};
use super::{Engine, Mode, MAX_PEERS};
use crate::driver::Sink;
use crate::wire::{Body, Control, Mac, PeerLink};
use crate::Nanos;

impl Engine {
    /// Takes a control frame. Only the bridge can have handed it on, so it is obeyed unless it is
    /// out of date.
    pub(super) fn take_control(&mut self, now: Nanos, control: Control, out: &mut dyn Sink) {
        self.counters.control_in += 1;
        let newest = match control.body {
            Body::ThisHost { .. } => self.host_generation,
            _ => self.generations.get(&control.mac).copied().unwrap_or(0),
        };
        if control.generation < newest {
            self.counters.stale_control += 1;
            self.report_soon(now);
            return;
        }
        match control.body {
            Body::ThisHost { mode, nics } => {
                self.host_generation = control.generation;
                self.own = Some(control.mac);
                self.set_mode(mode);
                let gone: Vec<u8> = self
                    .nics
                    .keys()
                    .filter(|port| !nics.iter().any(|nic| nic.port == **port))
                    .copied()
                    .collect();
                for port in gone {
                    self.nics.remove(&port);
                    self.granter.set_nic(port, 0.0);
                    self.nic_buckets.remove(port);
                }
                self.nic_names.retain(|known| self.nics.contains_key(&known.0));
                for nic in nics {
                    self.set_nic(now, nic.port, &nic.name, Mac::NONE, nic.rate_kbps, nic.up);
                }
                for number in 0..self.peers.len() {
                    self.set_rates(now, number);
                }
            }
            Body::Peer { stripe, beside, links } => {
                let number = match self.peer_of(control.mac) {
                    Some(number) => number,
                    None if self.peers.len() >= MAX_PEERS => {
                        self.counters.too_many_peers += 1;
                        return;
                    }
                    None => self.add_peer(now, control.mac),
                };
                self.remember(control.mac, control.generation);
                let peer = &mut self.peers[number];
                peer.beside.wanted = beside;
                if peer.session.set_wanted(stripe) {
                    peer.beats.send_at_once();
                    peer.beats.ask_for_reply();
                }
                let links = links.iter().map(configured_link).collect();
                self.set_links(now, number, links);
            }
            Body::Channels { first, last, channels } => {
                let Some(number) = self.peer_of(control.mac) else {
                    self.counters.unknown_peer += 1;
                    return;
                };
                self.remember(control.mac, control.generation);
                let peer = &mut self.peers[number];
                let gone = peer.channels.tell(now, first, last, &channels, &self.settings);
                peer.beats.send_at_once();
                self.tell_classes(number);
                for mut channel in gone {
                    let frames = channel.out.queue.drain();
                    self.strand_frames(channel.number, frames, out);
                }
            }
            Body::Gone => {
                self.remove_peer(control.mac);
                self.remember(control.mac, control.generation);
            }
        }
    }

    /// Remembers that control about `mac` older than `generation` is out of date.
    ///
    /// Peers that are gone are remembered as long as there is room beside those that exist: a
    /// controller that tells of ever new peers must not fill the memory.
    fn remember(&mut self, mac: Mac, generation: u32) {
        if self.generations.len() >= MAX_PEERS && !self.generations.contains_key(&mac) {
            let peers = &self.by_mac;
            let gone = self.generations.iter().filter(|known| !peers.contains_key(known.0));
            let mut ages: Vec<u32> = gone.map(|known| *known.1).collect();
            if ages.is_empty() {
                return; // there are as many peers as there may be, and this is none of them
            }
            // The older half goes, since it is less likely to be replayed. To remove them one by
            // one would take long.
            let middle = ages.len() / 2;
            let middle = *ages.select_nth_unstable(middle).1;
            self.generations.retain(|mac, age| *age > middle || peers.contains_key(mac));
        }
        self.generations.insert(mac, generation);
    }

    /// The newest generation of all control that was obeyed.
    pub(super) fn newest_generation(&self) -> u32 {
        self.generations.values().copied().fold(self.host_generation, u32::max)
    }

    fn set_mode(&mut self, mode: Mode) {
        if self.mode != mode {
            self.mode = mode;
            // What is to be repeated in one mode is not repeated in the other.
            self.peers.iter_mut().for_each(|peer| peer.channels.forget_repeats());
        }
    }
}

fn configured_link(link: &PeerLink) -> Link {
    let configured = Configured {
        rate_kbps: link.rate_kbps,
        limit_kbps: link.limit_kbps,
        weight: link.weight_ppm,
    };
    Link::new(link.number, link.own_port, link.peer_port, configured)
}
