// SPDX-License-Identifier: Apache-2.0
//! The 802.1Q tag between bridge and helper.

use super::MACS;

/// EtherType of the tag.
pub const TAG_TYPE: u16 = 0x8100;
/// Bytes of a tag.
pub const TAG_LENGTH: usize = 4;

/// What an 802.1Q tag says. The bit "may be dropped" is not used.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Tag {
    /// VLAN ID, 0..=4095.
    pub vid: u16,
    /// Priority, 0..=7.
    pub pcp: u8,
}

impl Tag {
    /// The tag as it is in a frame. `vid` and `pcp` lose the bits for which it has no room.
    #[must_use]
    pub fn to_bytes(self) -> [u8; TAG_LENGTH] {
        let [first, second] = TAG_TYPE.to_be_bytes();
        let [high, low] = ((u16::from(self.pcp) << 13) | (self.vid & 0xfff)).to_be_bytes();
        [first, second, high, low]
    }

    /// Reads a tag; none if the bytes have another EtherType.
    #[must_use]
    pub fn from_bytes([first, second, high, low]: [u8; TAG_LENGTH]) -> Option<Self> {
        if u16::from_be_bytes([first, second]) != TAG_TYPE {
            return None;
        }
        Some(Tag { vid: u16::from_be_bytes([high & 0x0f, low]), pcp: high >> 5 })
    }
}

/// The outermost tag of a frame, if it has one and something below it.
#[must_use]
pub fn read_tag(frame: &[u8]) -> Option<Tag> {
    let [first, second, high, low, _, _] = *frame.get(MACS..)?.first_chunk::<6>()?;
    Tag::from_bytes([first, second, high, low])
}

/// Puts a tag on a frame. `vid` and `pcp` lose the bits for which a tag has no room.
pub fn push_tag(frame: &mut Vec<u8>, vid: u16, pcp: u8) {
    let length = frame.len().max(MACS);
    frame.resize(length + TAG_LENGTH, 0);
    frame.copy_within(MACS..length, MACS + TAG_LENGTH);
    frame[MACS..MACS + TAG_LENGTH].copy_from_slice(&Tag { vid, pcp }.to_bytes());
}

/// Takes the outermost tag off a frame. A frame without a tag does not change.
pub fn pop_tag(frame: &mut Vec<u8>) -> Option<Tag> {
    let tag = read_tag(frame)?;
    frame.copy_within(MACS + TAG_LENGTH.., MACS);
    frame.truncate(frame.len() - TAG_LENGTH);
    Some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn is_where_802_1q_says() {
        let mut frame = vec![1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x88, 0xb6, 9];
        push_tag(&mut frame, 4094, 7);
        assert_eq!(frame, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0xef, 0xfe, 0x88, 0xb6, 9]);
        frame[14] |= 0x10; // "may be dropped"
        assert_eq!(read_tag(&frame), Some(Tag { vid: 4094, pcp: 7 }));
    }

    #[test]
    fn needs_a_tag() {
        let untagged = vec![0; 60];
        let service_tag = [vec![0; 12], vec![0x88, 0xa8, 0, 1, 8, 0]].concat();
        let cut_off = [vec![0; 12], vec![0x81, 0, 0, 1, 8]].concat();
        for mut frame in [vec![], untagged, service_tag, cut_off] {
            let before = frame.clone();
            assert_eq!(pop_tag(&mut frame), None);
            assert_eq!(frame, before);
        }
    }

    proptest! {
        #[test]
        fn pop_undoes_push(
            frame in prop::collection::vec(any::<u8>(), 14..200),
            vid in 0u16..4096,
            pcp in 0u8..8,
        ) {
            let mut tagged = frame.clone();
            push_tag(&mut tagged, vid, pcp);
            prop_assert_eq!(tagged.len(), frame.len() + 4);
            prop_assert_eq!(pop_tag(&mut tagged), Some(Tag { vid, pcp }));
            prop_assert_eq!(tagged, frame);
        }
    }
}
