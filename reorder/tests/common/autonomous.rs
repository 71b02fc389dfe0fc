// SPDX-License-Identifier: Apache-2.0
//! Hosts without a bridge and a controller. Their helpers have the NICs, and find each other.

use super::{mac, Fault, Outbox, Port, World, MS};
use ri2n_reorder::driver::{Driver, Out};
use ri2n_reorder::engine::{Mode, Settings};
use ri2n_reorder::offload::vnet::VnetHdr;
use ri2n_reorder::wire::Mac;

/// The MAC of a host's NIC.
pub fn nic_mac(host: usize, port: u8) -> Mac {
    Mac([2, 0, 0, 1, port, host as u8 + 1])
}

/// Hosts that begin now. None knows another.
pub fn strangers(hosts: &[Vec<(usize, u64)>], mode: Mode, seed: u64) -> World {
    let hosts: Vec<&[(usize, u64)]> = hosts.iter().map(Vec::as_slice).collect();
    World::with(&hosts, Settings { autonomous: true, ..World::usual(mode, seed) })
}

/// Hosts that know each other.
pub fn friends(hosts: &[Vec<(usize, u64)>], mode: Mode, seed: u64) -> World {
    let mut world = strangers(hosts, mode, seed);
    world.run(1500 * MS);
    world
}

impl World {
    /// Tells a helper its NICs.
    pub(super) fn introduce(&mut self, host: usize) {
        let now = self.clock(host);
        let nics: Vec<(u8, u32)> = self
            .rates
            .iter()
            .filter(|entry| entry.0 .0 == host)
            .map(|(nic, rate_bps)| (nic.1, (rate_bps / 1000) as u32))
            .collect();
        for (port, rate_kbps) in nics {
            self.engine(host).set_nic(
                now,
                port,
                &format!("eth{port}"),
                nic_mac(host, port),
                rate_kbps,
                true,
            );
        }
        self.tick(host);
    }

    /// Gives a host one more NIC, on that switch.
    pub fn add_nic(&mut self, host: usize, switch: usize, rate_bps: u64) {
        let port = self.nics.keys().filter(|nic| nic.0 == host).count() as u8 + 1;
        self.nics.insert((host, port), switch);
        for places in [&mut self.out_port, &mut self.in_port] {
            places.insert((host, port), self.ports.len());
            self.ports.push(Port { rate_bps, ..Port::default() });
        }
        self.set_rate(host, port, rate_bps);
    }

    /// Replaces a NIC of a host by one with this rate.
    pub fn set_rate(&mut self, host: usize, port: u8, rate_bps: u64) {
        self.rates.insert((host, port), rate_bps);
        self.introduce(host);
    }

    /// Carries a helper's frame by the MAC of its destination, or a greeting to everybody on the
    /// switch.
    pub(super) fn by_nics(&mut self, host: usize, to: Out, frame: Vec<u8>) {
        match to {
            Out::Nic(port) => {
                let switch = self.nics[&(host, port)];
                let others = self.nics.iter().filter(|nic| *nic.1 == switch && nic.0 .0 != host);
                let others: Vec<(usize, u8)> = others.map(|nic| *nic.0).collect();
                for (other, other_port) in others {
                    self.enqueue_out(host, port, other, other_port, frame.clone());
                }
            }
            Out::Link(..) if frame[..4] != nic_mac(0, 0).0[..4] => {} // to nobody
            Out::Link(_, port) => {
                let (other, other_port) = ((frame[5] as usize).wrapping_sub(1), frame[4]);
                if self.tap.is_some()
                    && self.nics.get(&(other, other_port)) != self.nics.get(&(host, port))
                {
                    return; // somebody lied of where that NIC is, and it is not there
                }
                assert_eq!(frame[..6], nic_mac(other, other_port).0, "to a NIC");
                assert_eq!(frame[6..12], nic_mac(host, port).0, "from a NIC");
                assert_eq!(
                    self.nics[&(host, port)],
                    self.nics[&(other, other_port)],
                    "on the same switch"
                );
                self.enqueue_out(host, port, other, other_port, frame);
            }
            Out::Slots | Out::Controller => panic!("there is neither a bridge nor a controller"),
        }
    }

    /// A host asks everybody for something.
    pub fn broadcast(&mut self, host: usize) {
        let frame = [&Mac::BROADCAST.0[..], &mac(host).0, &[8, 6], &[0; 28]].concat();
        let now = self.clock(host);
        let mut out = Outbox { wire: Vec::new(), plain: Vec::new() };
        self.engine(host).on_plain(now, &VnetHdr::default(), frame, &mut out);
        self.carry(host, out);
    }

    /// The helper of a host is asked to end, and ends.
    pub fn leave(&mut self, host: usize) {
        let now = self.clock(host);
        let mut out = Outbox { wire: Vec::new(), plain: Vec::new() };
        self.engine(host).goodbye(now, &mut out);
        self.carry(host, out);
        self.kill(host);
    }

    /// A host sees the carriers of its NICs go or come, and does what is due then.
    pub fn carriers(&mut self, host: usize, ports: &[u8], up: bool) {
        let now = self.clock(host);
        let mut out = Outbox { wire: Vec::new(), plain: Vec::new() };
        for port in ports {
            let bytes = self.rx_bytes.get(&(host, *port)).copied().unwrap_or(0);
            self.engine(host).nic_counters(now, *port, bytes, up);
        }
        self.engine(host).on_tick(now, &mut out);
        self.carry(host, out);
    }

    /// Nothing passes a NIC any more (or it does again), and nobody is told.
    pub fn cut(&mut self, nic: (usize, u8), cut: bool) {
        let others: Vec<(usize, u8)> =
            self.nics.keys().filter(|other| other.0 != nic.0).copied().collect();
        for other in others {
            for way in [(nic, other), (other, nic)] {
                if cut {
                    self.faults.insert(way, Fault { blackhole: true, ..Fault::default() });
                } else {
                    self.faults.remove(&way);
                }
            }
        }
    }
}

/// Hosts with a NIC on each of `rates.len()` switches.
pub fn alike(hosts: usize, rates: &[u64]) -> Vec<Vec<(usize, u64)>> {
    vec![rates.iter().copied().enumerate().collect(); hosts]
}
