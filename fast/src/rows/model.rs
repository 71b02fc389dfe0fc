// SPDX-License-Identifier: Apache-2.0
//! What a bridge consists of, as far as it decides about frames: rows, groups and ports.

use std::collections::BTreeMap;

use crate::plan::Mac;

/// The bridge's own device, as a port.
pub const LOCAL: u32 = 0xffff_fffe;
/// As an output: back out of the port by which the frame came in.
pub const IN_PORT: u32 = 0xffff_fff8;
/// A port number that stands for no port.
pub const ANY: u32 = 0xffff_ffff;

/// So many bits of `VlanVid` say the VLAN ID, and the next one that the frame has a tag.
pub const VLAN_PRESENT: u16 = 0x1000;

/// What a row can test, and what an action can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// The port by which the frame came in.
    InPort,
    /// Where the frame goes.
    EthDst,
    /// Where the frame comes from.
    EthSrc,
    /// The EtherType, behind a tag.
    EthType,
    /// `VLAN_PRESENT` and the VLAN ID; 0 for a frame without a tag.
    VlanVid,
    /// The IP protocol.
    IpProto,
    /// The source port of TCP, UDP or SCTP.
    SourcePort,
    /// The destination port of TCP, UDP or SCTP.
    DestinationPort,
    /// A register of 32 bits.
    Reg(u8),
    /// Anything else: class and number of the field, in the order of bits on the wire.
    Other(u32),
}

/// A condition of a row: the field's bits under the mask have this value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// What is tested.
    pub field: Field,
    /// The wanted value. Bits outside of the mask are 0.
    pub value: u128,
    /// The bits that are tested; all ones for an exact match.
    pub mask: u128,
}

/// What a row or a bucket does. What is not listed here is `Unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the frame out of a port.
    Output(u32),
    /// Do what a group says, with a copy of the frame.
    Group(u32),
    /// Look the frame up in a table.
    Resubmit(u8),
    /// Write the bits under the mask.
    Set {
        /// What is written.
        field: Field,
        /// The bits that are written.
        value: u128,
        /// Where they are written; all ones for the whole field.
        mask: u128,
    },
    /// Copy some bits of a field to another one.
    Copy {
        /// Where the bits come from, and the lowest of them.
        from: (Field, u16),
        /// Where they go, and the lowest of them.
        to: (Field, u16),
        /// How many there are.
        bits: u16,
    },
    /// Put a tag on, with this EtherType and VLAN ID 0.
    PushVlan(u16),
    /// Take the tag off.
    PopVlan,
    /// Something that this program does not know.
    Unknown,
}

/// Which row it is: no two rows of a bridge have the same table, priority and match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// The table's number.
    pub table: u8,
    /// Rows with a higher priority go first.
    pub priority: u16,
    /// The match as the bridge encodes it.
    pub encoded: Vec<u8>,
}

/// A row's match and actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// All of them must hold. None: the match could not be read.
    pub tests: Option<Vec<Test>>,
    /// What is done with the frame, in this order.
    pub actions: Vec<Action>,
    /// Whose row it is, and for the controller's rows a hash of what is in them.
    pub cookie: u64,
    /// Whether the row ends when no frame meets it for a while.
    pub idles: bool,
}

/// How a group chooses among its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// By the datapath's hash of the flow.
    Hash,
    /// The first live bucket.
    FirstLive,
    /// In another way.
    Other,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// How it chooses.
    pub choice: Choice,
    /// What it chooses among.
    pub buckets: Vec<Bucket>,
}

/// A bucket of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The bucket's share in a group that chooses by hash.
    pub weight: u16,
    /// The bucket lives while this port does.
    pub watch_port: Option<u32>,
    /// The bucket lives while a bucket of this group does.
    pub watch_group: Option<u32>,
    /// What is done with the frame: a set, whose order is not the list's.
    pub actions: Vec<Action>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The device's name.
    pub name: String,
    /// The device's address.
    pub mac: Mac,
    /// Whether groups may use it: it is up, has a carrier, and no monitor says otherwise.
    pub live: bool,
    /// Whether somebody set it to drop frames.
    pub restricted: bool,
}

/// Everything of a bridge that decides about frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bridge {
    /// The rows.
    pub rows: BTreeMap<RowKey, Row>,
    /// The groups by their numbers.
    pub groups: BTreeMap<u32, Group>,
    /// The ports by their numbers.
    pub ports: BTreeMap<u32, Port>,
}

impl Field {
    /// How many bits the field has. Those of `Other` are not known.
    pub fn bits(self) -> u16 {
        match self {
            Field::InPort | Field::Reg(_) => 32,
            Field::EthDst | Field::EthSrc => 48,
            Field::EthType | Field::SourcePort | Field::DestinationPort => 16,
            Field::VlanVid => 13,
            Field::IpProto => 8,
            Field::Other(_) => 128,
        }
    }

    /// The mask of an exact match.
    pub fn exact(self) -> u128 {
        u128::MAX >> (128 - u32::from(self.bits()))
    }
}

impl Row {
    /// The value with which a row compares the whole of a field.
    pub fn exactly(&self, field: Field) -> Option<u128> {
        let mut tests = self.tests.iter().flatten();
        tests.find(|it| it.field == field && it.mask == field.exact()).map(|it| it.value)
    }
}

/// A MAC address as a number.
pub fn number(mac: Mac) -> u64 {
    mac.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// The MAC address that a number stands for.
pub fn mac(number: u64) -> Mac {
    let [_, _, mac @ ..] = number.to_be_bytes();
    mac
}
