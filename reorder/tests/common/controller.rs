// SPDX-License-Identifier: Apache-2.0
//! What the controller tells the hosts of a simulated cluster.

use ri2n_reorder::wire::{Body, Control, Nic, PeerLink, Tag, CONTROL_VID, NO_LIMIT};

use super::{mac, World};

impl World {
    /// Makes a host one without a helper. Its traffic is sent as it is.
    pub fn make_plain(&mut self, host: usize) {
        self.engines[host] = None;
        self.plain_hosts.push(host);
        for other in 0..self.engines.len() {
            self.control(
                other,
                Control { generation: self.generation, mac: mac(host), body: Body::Gone },
            );
        }
    }

    /// The links between two hosts as (number, own port, peer's port), as the first one sees them.
    pub fn links(&self, a: usize, b: usize) -> Vec<(u8, u8, u8)> {
        let (low, high) = (a.min(b), a.max(b));
        let mut found = Vec::new();
        for ((host, own_port), switch) in &self.nics {
            for ((other, other_port), other_switch) in &self.nics {
                if *host == low && *other == high && switch == other_switch {
                    found.push((found.len() as u8, *own_port, *other_port));
                }
            }
        }
        if a > b {
            found.iter_mut().for_each(|link| *link = (link.0, link.2, link.1));
        }
        found
    }

    /// Tells a host everything that the controller would.
    pub fn configure(&mut self, host: usize) {
        if self.settings.autonomous {
            return self.introduce(host);
        }
        let nics = self.nics.keys().filter(|nic| nic.0 == host).map(|nic| Nic {
            port: nic.1,
            up: true,
            rate_kbps: (self.rates[nic] / 1000) as u32,
            name: format!("eth{}", nic.1),
        });
        let this = Body::ThisHost { mode: self.mode, nics: nics.collect() };
        self.control(host, Control { generation: self.generation, mac: mac(host), body: this });
        for other in 0..self.engines.len() {
            if other == host || self.plain_hosts.contains(&other) {
                continue;
            }
            self.introduce_peer(host, other, &[]);
        }
    }

    /// Tells a host its links to another one, as the controller would. `limits_kbps` are those of
    /// the first links; the others have none.
    pub fn introduce_peer(&mut self, host: usize, other: usize, limits_kbps: &[u32]) {
        let links = self.links(host, other);
        let whole: u64 = links.iter().map(|link| self.rates[&(host, link.1)]).sum();
        let links = links
            .iter()
            .enumerate()
            .map(|(place, link)| {
                let rate = self.rates[&(host, link.1)].min(self.rates[&(other, link.2)]);
                PeerLink {
                    number: link.0,
                    own_port: link.1,
                    peer_port: link.2,
                    alive: true,
                    rate_kbps: (rate / 1000) as u32,
                    limit_kbps: limits_kbps.get(place).copied().unwrap_or(NO_LIMIT),
                    weight_ppm: (self.rates[&(host, link.1)] * 1_000_000 / whole.max(1)) as u32,
                }
            })
            .collect();
        let body = Body::Peer { stripe: true, beside: false, links };
        self.control(host, Control { generation: self.generation, mac: mac(other), body });
    }

    pub fn control(&mut self, host: usize, control: Control) {
        let mut frame = Vec::new();
        control.encode(&mut frame);
        self.wire_in(host, Some(Tag { vid: CONTROL_VID, pcp: 0 }), 0, frame);
    }
}
