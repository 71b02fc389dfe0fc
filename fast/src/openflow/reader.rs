// SPDX-License-Identifier: Apache-2.0
//! Takes numbers off the front of a message.

/// A message that is not what its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The rest of a message. Every method that needs more bytes than there are returns [`Malformed`].
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, left) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = left;
        Ok(*taken)
    }

    pub fn slice(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, left) = self.0.split_at_checked(bytes).ok_or(Malformed)?;
        self.0 = left;
        Ok(taken)
    }

    pub fn skip(&mut self, bytes: usize) -> Result<(), Malformed> {
        self.slice(bytes).map(drop)
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

    /// The next entry of a list whose entries begin with their length, `before` bytes from their
    /// front. The entry is whole, its length field too.
    pub fn entry(&mut self, before: usize, least: usize) -> Result<Reader<'a>, Malformed> {
        let mut head = *self;
        head.skip(before)?;
        let bytes = usize::from(head.u16()?);
        if bytes < least.max(before + 2) {
            return Err(Malformed);
        }
        self.slice(bytes).map(Reader)
    }
}
