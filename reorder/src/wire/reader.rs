// SPDX-License-Identifier: Apache-2.0
//! Takes numbers off the front of a frame.

use super::{Mac, Malformed, MIN_FRAME};

/// The rest of a frame. Every method that needs more bytes than there are returns
/// [`Malformed::Truncated`].
#[derive(Copy, Clone)]
pub(super) struct Reader<'a> {
    left: &'a [u8],
    frame_len: usize,
}

impl<'a> Reader<'a> {
    pub fn new(frame: &'a [u8]) -> Self {
        Self { left: frame, frame_len: frame.len() }
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, left) = self.left.split_first_chunk::<N>().ok_or(Malformed::Truncated)?;
        self.left = left;
        Ok(*taken)
    }

    pub fn slice(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, left) = self.left.split_at_checked(bytes).ok_or(Malformed::Truncated)?;
        self.left = left;
        Ok(taken)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn mac(&mut self) -> Result<Mac, Malformed> {
        self.array().map(Mac)
    }

    /// Reads a byte with the flags of an entry, of which only `known` ones exist.
    pub fn entry_flags(&mut self, known: u8) -> Result<u8, Malformed> {
        self.u8().and_then(
            |flags| if flags & !known == 0 { Ok(flags) } else { Err(Malformed::BadEntry) },
        )
    }

    /// Everything that is left.
    pub fn rest(self) -> &'a [u8] {
        self.left
    }

    /// Checks that the fields are over: only Ethernet's padding may be left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.left.is_empty() || self.frame_len <= MIN_FRAME {
            return Ok(());
        }
        Err(Malformed::Oversized)
    }
}
