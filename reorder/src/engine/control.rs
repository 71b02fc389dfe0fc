//! What the controller says: which NICs this host has, who its peers are, over which links.

use super::link::{Link, Told};
use super::{Engine, Mode};
use crate::wire::{Body, Control, Mac, PeerLink};
use crate::Nanos;

impl Engine {
    /// A control frame; from nobody but the bridge, so what it says is done unless it is out of date.
    pub(super) fn take_control(&mut self, now: Nanos, control: Control) {
        self.counters.control_in += 1;
        let newest = match control.body {
            Body::ThisHost { .. } => &mut self.host_generation,
            _ => self.generations.entry(control.mac).or_insert(0),
        };
        if control.generation < *newest {
            self.counters.stale_control += 1;
            return;
        }
        *newest = control.generation;
        match control.body {
            Body::ThisHost { mode, nics } => {
                self.own = Some(control.mac);
                self.set_mode(mode);
                let gone: Vec<u8> =
                    self.nics.keys().filter(|port| !nics.iter().any(|nic| nic.port == **port)).copied().collect();
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
            Body::Peer { stripe, links } => {
                let number = match self.peer_of(control.mac) {
                    Some(number) => number,
                    None if self.peers.len() >= super::MAX_PEERS => {
                        self.counters.too_many_peers += 1;
                        return;
                    }
                    None => self.add_peer(now, control.mac),
                };
                self.peers[number].stripe = stripe;
                let links = links.iter().map(told).collect();
                self.set_links(now, number, links);
            }
            Body::Gone => self.remove_peer(control.mac),
        }
    }

    fn set_mode(&mut self, mode: Mode) {
        if self.mode != mode {
            self.mode = mode;
            // What waits to be repeated in one mode is not repeated in the other.
            self.peers.iter_mut().for_each(super::Peer::forget_repeats);
        }
    }
}

fn told(link: &PeerLink) -> Link {
    let told = Told { rate_kbps: link.rate_kbps, limit_kbps: link.limit_kbps, weight: link.weight_ppm };
    Link::new(link.number, link.own_port, link.peer_port, told)
}
