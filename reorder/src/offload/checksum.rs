// SPDX-License-Identifier: Apache-2.0
//! The Internet checksum (RFC 1071), its update in place (RFC 1624), and partial checksums.
//!
//! A **sum** here is a ones' complement sum of 16-bit big-endian words, not inverted. A packet
//! holds the inverse of a sum. Two sums are added with [`add`]; the sum of a piece may be added to
//! another's only if the piece begins at an even offset.

use super::OffloadError;

/// The sum of `bytes`. A last odd byte counts as the upper half of a word.
pub fn sum(bytes: &[u8]) -> u16 {
    // The sum depends on the byte order only by a swap at the end, and not at all on the width of
    // the words (RFC 1071, 2). 32-bit words in 64-bit lanes never overflow, and the compiler makes
    // vector code of the inner loop.
    let mut lanes = [0u64; 8];
    let mut blocks = bytes.chunks_exact(32);
    for block in &mut blocks {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(4)) {
            *lane += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
    }
    let mut total: u64 = lanes.iter().sum();
    let mut pairs = blocks.remainder().chunks_exact(2);
    for pair in &mut pairs {
        total += u64::from(u16::from_ne_bytes([pair[0], pair[1]]));
    }
    if let [last] = pairs.remainder() {
        total += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    u16::from_be(fold(total))
}

/// Folds 64 bits to 16. Carries are added at the other end.
fn fold(total: u64) -> u16 {
    let mut value = total;
    while value > 0xffff {
        value = (value & 0xffff) + (value >> 16);
    }
    value as u16
}

/// Adds two sums.
pub fn add(a: u16, b: u16) -> u16 {
    let (value, carry) = a.overflowing_add(b);
    value + u16::from(carry)
}

/// Takes out of a sum what `b` had added to it.
pub fn subtract(a: u16, b: u16) -> u16 {
    add(a, !b)
}

/// The checksum of a packet in which the 16-bit word `old` became `new` (RFC 1624, equation 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !add(add(!checksum, !old), new)
}

/// The sum of the pseudo-header of TCP or UDP. `addresses` are the source and the destination, one
/// after the other (8 bytes in IPv4, 32 in IPv6). `length` is the number of bytes of the TCP or UDP
/// header and payload.
pub fn pseudo_header(addresses: &[u8], protocol: u8, length: u16) -> u16 {
    add(add(sum(addresses), u16::from(protocol)), length)
}

/// Completes a partial checksum. The 16 bits at `start + offset`, which hold the pseudo-header's
/// sum, become the checksum of everything from `start` on.
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> Result<(), OffloadError> {
    let part = frame.get_mut(start..).ok_or(OffloadError::BadChecksumPlace)?;
    let checksum = !sum(part);
    let end = offset.checked_add(2).ok_or(OffloadError::BadChecksumPlace)?;
    let place = part.get_mut(offset..end).ok_or(OffloadError::BadChecksumPlace)?;
    // As in the kernel, for all protocols: 0 and 0xffff are the same number, but to UDP 0 means
    // that there is no checksum.
    place.copy_from_slice(&if checksum == 0 { 0xffff } else { checksum }.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 word for word: 16 bits at a time.
    fn slow(bytes: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[0xab]), 0xab00);
    }

    #[test]
    fn the_longest_frame_of_ones_does_not_overflow() {
        assert_eq!(sum(&vec![0xff; 1 << 17]), 0xffff);
    }

    /// The example of RFC 1624, 4: equation 3 gives 0x0000 where RFC 1141's gave 0xffff.
    #[test]
    fn the_example_of_rfc_1624() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn completes_a_udp_datagram() {
        // From 192.0.2.1:1 to 192.0.2.2:2, "hi". The sum was worked out by hand.
        let length = 10;
        let pseudo = pseudo_header(&[192, 0, 2, 1, 192, 0, 2, 2], 17, length);
        let mut datagram = vec![0, 1, 0, 2, 0, 10, 0, 0, b'h', b'i'];
        datagram[6..8].copy_from_slice(&pseudo.to_be_bytes());
        complete(&mut datagram, 0, 6).unwrap();
        let words = 0xc000u32 + 0x0201 + 0xc000 + 0x0202 + 17 + 10 + 1 + 2 + 10 + 0x6869;
        assert_eq!(datagram[6..8], (!((words >> 16) + (words & 0xffff)) as u16).to_be_bytes());
    }

    #[test]
    fn a_checksum_of_zero_is_written_as_ones() {
        let mut bytes = [0xff, 0xff, 0, 0];
        complete(&mut bytes, 0, 2).unwrap();
        assert_eq!(bytes, [0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn refuses_a_place_outside_the_frame() {
        let mut frame = [0; 20];
        assert_eq!(complete(&mut frame, 10, 9), Err(OffloadError::BadChecksumPlace));
        assert_eq!(complete(&mut frame, 21, 0), Err(OffloadError::BadChecksumPlace));
        assert_eq!(complete(&mut frame, 0, usize::MAX), Err(OffloadError::BadChecksumPlace));
    }

    proptest! {
        #[test]
        fn agrees_with_the_slow_sum(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(sum(&bytes), slow(&bytes));
        }

        #[test]
        fn pieces_at_even_offsets_add_up(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0usize..100,
        ) {
            let (head, tail) = bytes.split_at((2 * at).min(bytes.len() & !1));
            prop_assert_eq!(add(sum(head), sum(tail)), sum(&bytes));
        }

        #[test]
        fn an_update_is_as_good_as_a_new_sum(
            mut words in proptest::collection::vec(1u16..0xffff, 2..20),
            new in 1u16..0xffff,
        ) {
            let bytes =
                |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
            let checksum = !sum(&bytes(&words));
            let old = std::mem::replace(&mut words[1], new);
            let updated = update(checksum, old, new);
            prop_assert_eq!(add(sum(&bytes(&words)), updated), 0xffff);
        }

        #[test]
        fn subtract_undoes_add(a in 1u16.., b: u16) {
            // `a` is not 0: of the two zeros of ones' complement, only 0xffff comes out.
            prop_assert_eq!(subtract(add(a, b), b), a);
        }
    }
}
