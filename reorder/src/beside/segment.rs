// SPDX-License-Identifier: Apache-2.0
//! Which TCP connection a frame belongs to, and which part of it the frame has.

use crate::offload::packet::{Layout, TCP};

/// A multiplier of the connection's hash (docs/decisions/14-fast-path.md).
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// A TCP segment, or several that the kernel merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The connection's hash as `Flow::key` has it: never 0.
    pub key: u64,
    /// The sequence of the first byte.
    pub start: u32,
    /// The sequence behind the last byte.
    pub end: u32,
}

impl Segment {
    /// Reads a frame. None if it is no TCP over IP with payload, a fragment, or shorter than it
    /// says.
    pub fn read(frame: &[u8]) -> Option<Self> {
        let layout = Layout::find(frame).ok().filter(|layout| layout.protocol == TCP)?;
        let payload = layout.payload(frame).ok()?;
        if payload >= layout.end || layout.end > frame.len() {
            return None;
        }
        let word = |at: usize| {
            let bytes = frame.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        let start = word(layout.l4 + 4)?;
        let addresses = layout.addresses(frame).chunks_exact(4);
        let words = addresses.map(|it| u32::from_be_bytes([it[0], it[1], it[2], it[3]]));
        let words = words.chain([word(layout.l4)?, TCP.into()]);
        let key = words.fold(0u64, |hash, word| {
            let hash = (hash ^ u64::from(word)).wrapping_mul(FACTOR);
            hash ^ hash >> 29
        });
        let length = u32::try_from(layout.end - payload).ok()?;
        Some(Segment { key: key.max(1), start, end: start.wrapping_add(length) })
    }
}

/// How far `to` is ahead of `from` in a sequence that wraps.
pub fn ahead(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}
