// SPDX-License-Identifier: Apache-2.0
//! A class of frames: what is known of them on their way through the tables.

use super::model::{Field, Row, Test, VLAN_PRESENT};
use crate::plan::Exception;

const REGISTERS: usize = 16;
const IPV4: u128 = 0x0800;
const IPV6: u128 = 0x86dd;
const ICMPV6: u128 = 58;
const TCP: u128 = 6;
/// What helpers send each other.
const STRIPED: u128 = 0x88b6;

/// Bits of which some are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    /// The known bits' values; 0 where nothing is known.
    pub value: u128,
    /// Which bits are known.
    pub known: u128,
}

/// The row that counts a frame, as reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// By path and peer.
    Path(u32),
    /// By NIC and source.
    Source,
}

/// What is known of the headers behind the addresses and the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// IPv4 or IPv6, but no ICMPv6.
    Ip,
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// Frames of the helper, which are no IP.
    Striped,
}

/// Frames of one class, of known addresses and a known tag. What their kind does not say (IP
/// addresses, protocol, ports, the tag's priority) is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub kind: Kind,
    pub in_port: u32,
    pub dst: u64,
    pub src: u64,
    /// `VLAN_PRESENT` and the VLAN ID, or 0.
    pub vlan: u16,
    pub registers: [Bits; REGISTERS],
    /// The last counting row that the frames met.
    pub counted: Option<Counted>,
}

/// Whether a row takes frames of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// None of them.
    None,
    /// All of them.
    All,
    /// Maybe some.
    Some,
    /// At most the frames of this flow, which the plan leaves to the bridge.
    Excepted(Exception),
}

impl Frame {
    pub fn new(kind: Kind, in_port: u32, src: u64, dst: u64, vlan: Option<u16>) -> Frame {
        Frame {
            kind,
            in_port,
            dst,
            src,
            vlan: vlan.map_or(0, |id| VLAN_PRESENT | id),
            registers: [Bits { value: 0, known: u128::MAX }; REGISTERS],
            counted: None,
        }
    }

    pub fn get(&self, field: Field) -> Bits {
        let known = |value: u128| Bits { value, known: field.exact() };
        match field {
            Field::InPort => known(self.in_port.into()),
            Field::EthDst => known(self.dst.into()),
            Field::EthSrc => known(self.src.into()),
            Field::VlanVid => known(self.vlan.into()),
            Field::Reg(number) => self.registers[usize::from(number)],
            Field::EthType if self.kind == Kind::Striped => known(STRIPED),
            Field::IpProto if self.kind == Kind::Tcp => known(TCP),
            // Who asks for one of these asks for IP, too.
            Field::IpProto | Field::SourcePort | Field::DestinationPort
                if self.kind == Kind::Striped =>
            {
                known(0)
            }
            _ => Bits { value: 0, known: 0 },
        }
    }

    /// Writes bits. False: the class would no longer be one that this type can describe.
    #[must_use]
    pub fn set(&mut self, field: Field, bits: Bits, mask: u128) -> bool {
        let mask = mask & field.exact();
        let old = self.get(field);
        let new = Bits {
            value: old.value & !mask | bits.value & mask,
            known: old.known & !mask | bits.known & mask,
        };
        if let Field::Reg(number) = field {
            self.registers[usize::from(number)] = new;
            return true;
        }
        if new.known & field.exact() != field.exact() {
            return false;
        }
        match field {
            Field::EthDst => self.dst = new.value as u64,
            Field::EthSrc => self.src = new.value as u64,
            // A VLAN ID that is set on a frame without a tag makes one, as Open vSwitch does it.
            // The product never does so, and the new tag's priority would need thought.
            Field::VlanVid if self.vlan != 0 && new.value as u16 & VLAN_PRESENT != 0 => {
                self.vlan = new.value as u16;
            }
            _ => return false,
        }
        true
    }

    /// Whether a row takes these frames.
    ///
    /// A row that asks for something unknown may take some of them. Two kinds of such rows can be
    /// told better. Those for ICMPv6 take none. Those for one port of TCP or UDP take at most the
    /// frames of that port, and the programs leave these to the bridge; then it does not matter
    /// what else the row asks for, or what it does.
    pub fn taken_by(&self, row: &Row) -> Taken {
        let Some(tests) = &row.tests else { return Taken::Some };
        let mut all = true;
        for test in tests {
            match self.fits(test) {
                Some(true) => {}
                Some(false) => return Taken::None,
                None => all = false,
            }
        }
        if all {
            return Taken::All;
        }
        let protocol = row.exactly(Field::IpProto);
        if protocol == Some(ICMPV6) && row.exactly(Field::EthType) == Some(IPV6) {
            return Taken::None;
        }
        let port = |field| row.exactly(field).map(|port| port as u16);
        let ports = (port(Field::SourcePort), port(Field::DestinationPort));
        match (protocol, ports) {
            (_, (None, None)) => Taken::Some,
            (Some(protocol @ (6 | 17)), (source_port, destination_port)) => {
                Taken::Excepted(Exception {
                    protocol: protocol as u8,
                    source_port,
                    destination_port,
                })
            }
            _ => Taken::Some,
        }
    }

    fn fits(&self, test: &Test) -> Option<bool> {
        let is_ip = self.kind != Kind::Striped;
        if is_ip && test.field == Field::EthType && test.mask == test.field.exact() {
            return if [IPV4, IPV6].contains(&test.value) { None } else { Some(false) };
        }
        let bits = self.get(test.field);
        if (bits.value ^ test.value) & test.mask & bits.known != 0 {
            return Some(false);
        }
        (test.mask & !bits.known == 0).then_some(true)
    }
}
