// SPDX-License-Identifier: Apache-2.0
//! What a network card does for its kernel, done for the TAP: cutting, merging and checksums.
//!
//! The kernel hands over super-frames of up to 64 KB with partial checksums, which a
//! [`vnet::VnetHdr`] describes. [`segment`] makes frames for the wire of them, and [`coalesce`]
//! makes super-frames of frames that arrived. Neither trusts a frame: lengths and offsets are
//! checked against what is there, and each way to fail has a counter.

use std::fmt;

pub mod checksum;
pub mod coalesce;
pub mod packet;
pub mod segment;
pub mod vnet;

/// A new buffer has this many bytes beyond its frame, so that the helper's header and the bridge's
/// tag go in without a copy.
pub const SPARE: usize = 32;

/// Why a frame from the TAP was refused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum OffloadError {
    /// It is shorter than its headers say, or than the vnet header itself.
    Truncated,
    /// Its IP, TCP or UDP header contradicts itself.
    BadHeader,
    /// It is a kind of super-frame that was never offered to the kernel.
    UnknownGso,
    /// It is a super-frame whose packet is not of the kind that its vnet header names.
    WrongProtocol,
    /// It is a super-frame without a partial checksum, or with segments of no bytes.
    BadGso,
    /// Its checksum begins or lies where the packet's does not.
    BadChecksumPlace,
    /// It is an IP fragment as a super-frame.
    Fragment,
    /// It, or a segment of it, is longer than the wire's frames may be.
    TooLong,
    /// It has more than [`segment::MAX_SEGMENTS`] segments.
    TooMany,
}

impl OffloadError {
    /// Every reason, for a table of counters.
    pub const ALL: [Self; 9] = [
        Self::Truncated,
        Self::BadHeader,
        Self::UnknownGso,
        Self::WrongProtocol,
        Self::BadGso,
        Self::BadChecksumPlace,
        Self::Fragment,
        Self::TooLong,
        Self::TooMany,
    ];

    /// The name of the counter for frames refused for this reason.
    pub fn counter(&self) -> &'static str {
        match self {
            Self::Truncated => "offload_truncated",
            Self::BadHeader => "offload_bad_header",
            Self::UnknownGso => "offload_unknown_gso",
            Self::WrongProtocol => "offload_wrong_protocol",
            Self::BadGso => "offload_bad_gso",
            Self::BadChecksumPlace => "offload_bad_checksum_place",
            Self::Fragment => "offload_fragment",
            Self::TooLong => "offload_too_long",
            Self::TooMany => "offload_too_many",
        }
    }
}

impl fmt::Display for OffloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.counter())
    }
}

impl std::error::Error for OffloadError {}
