//! Why a frame is refused.

use super::Mac;

/// Why a frame is no frame of the helper; each reason has its counter.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// Ends before its fields do.
    Truncated,
    /// Longer than its fields, or than any frame.
    Oversized,
    /// Has another EtherType.
    NotOurs,
    /// Has a VLAN tag of this EtherType below the bridge's own.
    Tagged(u16),
    /// Is of this version of the format.
    Version(u8),
    /// Has a checksum that is not that of its header, or of all of it: something was changed on the
    /// way.
    Checksum,
    /// Is of this type, which does not exist.
    Type(u8),
    /// Has these flags, one of which does not exist.
    Flags(u8),
    /// Has this link number, which is too high.
    Link(u16),
    /// Is of session 0, or without one.
    Session,
    /// Has this address where a host's own must be.
    Mac(Mac),
    /// Has more entries than there may be, or none where there must be some.
    BadCount,
    /// Asks for no frames, or for too many in one range.
    BadRange,
    /// Is control of this kind, which does not exist.
    Kind(u8),
    /// Is control with this mode, which does not exist.
    Mode(u8),
    /// Has an entry with a value it cannot have: a port, link, weight, flag or name, or the same
    /// twice.
    BadEntry,
}

impl Malformed {
    /// One of each.
    #[cfg(test)]
    pub const EXAMPLES: [Self; 16] = [
        Self::Truncated,
        Self::Oversized,
        Self::NotOurs,
        Self::Tagged(0x8100),
        Self::Version(1),
        Self::Checksum,
        Self::Type(7),
        Self::Flags(0x80),
        Self::Link(64),
        Self::Session,
        Self::Mac(Mac::BROADCAST),
        Self::BadCount,
        Self::BadRange,
        Self::Kind(4),
        Self::Mode(4),
        Self::BadEntry,
    ];

    /// Name of the counter of this reason.
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
