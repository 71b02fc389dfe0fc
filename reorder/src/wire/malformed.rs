// SPDX-License-Identifier: Apache-2.0
//! Why a frame is refused.

use super::Mac;

/// Why a frame is not a frame of the helper. Each reason has its own counter.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// It ends before its fields do.
    Truncated,
    /// It is longer than its fields, or than any frame.
    Oversized,
    /// It has another EtherType.
    NotOurs,
    /// It has a VLAN tag of this EtherType below the bridge's own.
    Tagged(u16),
    /// It has this version of the format.
    Version(u8),
    /// It has another checksum than its header (or all of it, by its type) demands: something was
    /// changed on the way.
    Checksum,
    /// It has this type, which does not exist.
    Type(u8),
    /// It has these flags, one of which does not exist.
    Flags(u8),
    /// It has this link number, which is too high.
    Link(u16),
    /// It has this channel number, which is too high.
    Channel(u8),
    /// It has session 0.
    Session,
    /// It has this address where a host's own must be.
    Mac(Mac),
    /// It has more entries than there may be, or none where there must be some.
    BadCount,
    /// It asks for no frames, or for too many in one range.
    BadRange,
    /// It is control of this kind, which does not exist.
    Kind(u8),
    /// It is control with this mode, which does not exist.
    Mode(u8),
    /// It has an entry with a value that this cannot have (a port, link, weight, flag or name), or
    /// the same entry twice.
    BadEntry,
}

impl Malformed {
    /// One example of each reason.
    #[cfg(test)]
    pub const EXAMPLES: [Self; 17] = [
        Self::Truncated,
        Self::Oversized,
        Self::NotOurs,
        Self::Tagged(0x8100),
        Self::Version(2),
        Self::Checksum,
        Self::Type(8),
        Self::Flags(0x80),
        Self::Link(64),
        Self::Channel(64),
        Self::Session,
        Self::Mac(Mac::BROADCAST),
        Self::BadCount,
        Self::BadRange,
        Self::Kind(5),
        Self::Mode(4),
        Self::BadEntry,
    ];

    /// The name of this reason's counter.
    #[must_use]
    pub fn counter(&self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Oversized => "oversized",
            Self::NotOurs => "not_ours",
            Self::Tagged(_) => "tagged",
            Self::Version(_) => "wrong_version",
            Self::Checksum => "bad_checksum",
            Self::Type(_) => "unknown_type",
            Self::Flags(_) => "bad_flags",
            Self::Link(_) => "bad_link",
            Self::Channel(_) => "bad_channel",
            Self::Session => "bad_session",
            Self::Mac(_) => "bad_mac",
            Self::BadCount => "bad_count",
            Self::BadRange => "bad_range",
            Self::Kind(_) => "unknown_kind",
            Self::Mode(_) => "unknown_mode",
            Self::BadEntry => "bad_entry",
        }
    }
}
