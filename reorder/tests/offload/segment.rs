// SPDX-License-Identifier: Apache-2.0
//! What [`segments`] cuts.

use proptest::prelude::*;
use ri2n_reorder::offload::checksum::add;
use ri2n_reorder::offload::segment::{finish, segments, segments_in, MAX_SEGMENTS};
use ri2n_reorder::offload::vnet::{Gso, VnetHdr};
use ri2n_reorder::offload::{OffloadError, SPARE};

use super::packets::{pattern, Packet, ACK, CWR, ECE, FIN, PSH};

fn cut(hdr: &VnetHdr, frame: &[u8], max_frame: usize) -> Result<Vec<Vec<u8>>, OffloadError> {
    let mut frames = vec![];
    let count = segments(hdr, frame, max_frame, &mut |frame| frames.push(frame))?;
    assert_eq!(count, frames.len());
    Ok(frames)
}

/// The frames that a network card would send for `packet`.
fn wanted(packet: &Packet, gso_size: usize) -> Vec<Vec<u8>> {
    let pieces: Vec<&[u8]> = packet.payload.chunks(gso_size).collect();
    let mut frames = vec![];
    for (index, piece) in pieces.iter().enumerate() {
        let mut segment = Packet { payload: piece.to_vec(), ..packet.clone() };
        segment.id = packet.id.wrapping_add(index as u16);
        segment.sequence = packet.sequence.wrapping_add((index * gso_size) as u32);
        if index > 0 {
            segment.flags &= !CWR;
        }
        if index + 1 < pieces.len() {
            segment.flags &= !(FIN | PSH);
        }
        frames.push(segment.frame());
    }
    frames
}

#[test]
fn tcp_over_ipv4() {
    let packet = Packet {
        flags: ACK | PSH | FIN | ECE | CWR,
        id: 0xffff,
        sequence: 0xffff_fc00,
        tcp_options: vec![1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8],
        payload: pattern(3000, 0),
        ..Packet::default()
    };
    let (hdr, frame) = packet.super_frame(1448);
    let frames = cut(&hdr, &frame, 1514).unwrap();
    assert_eq!(frames, wanted(&packet, 1448));
    let flags: Vec<u8> = frames.iter().map(|frame| frame[packet.l4() + 13]).collect();
    assert_eq!(flags, [ACK | ECE | CWR, ACK | ECE, ACK | ECE | PSH | FIN]);
    let ids: Vec<&[u8]> = frames.iter().map(|frame| &frame[18..20]).collect();
    assert_eq!(ids, [[0xff, 0xff], [0, 0], [0, 1]]);
}

#[test]
fn tcp_over_ipv6_behind_an_extension_header() {
    // These are destination options: next header TCP, 8 bytes, padding.
    let ip_options = vec![6, 0, 1, 4, 0, 0, 0, 0];
    let packet = Packet {
        v6: true,
        ip_options,
        next_header: Some(60),
        payload: pattern(5000, 0),
        ..Packet::default()
    };
    let (hdr, frame) = packet.super_frame(1000);
    assert_eq!(cut(&hdr, &frame, 1514).unwrap(), wanted(&packet, 1000));
}

#[test]
fn udp_behind_a_vlan_tag_and_ip_options() {
    let packet = Packet {
        udp: true,
        tag: Some(0x2005),
        ip_options: vec![1, 1, 1, 0],
        payload: pattern(2500, 0),
        ..Packet::default()
    };
    let (hdr, frame) = packet.super_frame(1200);
    assert_eq!(cut(&hdr, &frame, 1518).unwrap(), wanted(&packet, 1200));
}

/// To UDP, a checksum of 0 means that there is none, so 0xffff is written. TCP's stays 0.
#[test]
fn a_checksum_that_comes_to_zero() {
    for (udp, written) in [(true, [0xff, 0xff]), (false, [0, 0])] {
        let mut packet = Packet { udp, payload: pattern(100, 0), ..Packet::default() };
        let place = packet.l4() + if udp { 6 } else { 16 };
        let before = packet.frame();
        // The sum is all ones, since the first word of the payload is higher by the checksum.
        let word = add(u16_at(&packet.payload, 0), u16_at(&before, place));
        packet.payload[..2].copy_from_slice(&word.to_be_bytes());
        let (hdr, frame) = packet.super_frame(100);
        let frames = cut(&hdr, &frame, 1514).unwrap();
        assert_eq!(frames[0][place..place + 2], written);
        assert_eq!(frames, [packet.frame()]);
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[test]
fn a_super_frame_of_one_segment() {
    let packet = Packet { flags: ACK | PSH, payload: pattern(100, 0), ..Packet::default() };
    let (hdr, frame) = packet.super_frame(1448);
    assert_eq!(cut(&hdr, &frame, 1514).unwrap(), [packet.frame()]);
    let empty = Packet { payload: vec![], ..packet };
    let (hdr, frame) = empty.super_frame(1448);
    assert_eq!(cut(&hdr, &frame, 1514).unwrap(), [empty.frame()]);
}

#[test]
fn the_longest_super_frame() {
    let packet = Packet { payload: pattern(65_535 - 40, 0), ..Packet::default() };
    let (hdr, frame) = packet.super_frame(64);
    assert_eq!(cut(&hdr, &frame, 1514).unwrap(), wanted(&packet, 64));
    let longer = Packet { v6: true, payload: pattern(65_535 - 20, 0), ..Packet::default() };
    let (hdr, frame) = longer.super_frame(1440);
    assert_eq!(cut(&hdr, &frame, 1514).unwrap(), wanted(&longer, 1440));
    let mut too_long = frame;
    too_long.push(0);
    assert_eq!(cut(&hdr, &too_long, 1514), Err(OffloadError::TooLong));
}

#[test]
fn a_length_that_the_ip_header_has_wrong_does_not_matter() {
    let packet = Packet { payload: pattern(3000, 0), ..Packet::default() };
    let (hdr, mut frame) = packet.super_frame(1448);
    frame[16..18].copy_from_slice(&[0, 0]);
    assert_eq!(cut(&hdr, &frame, 1514).unwrap(), wanted(&packet, 1448));
}

#[test]
fn other_frames_are_completed() {
    let packet = Packet { payload: pattern(301, 0), ..Packet::default() };
    let (mut hdr, frame) = packet.super_frame(1448);
    hdr.gso = Gso::None;
    assert_eq!(cut(&hdr, &frame, 1514).unwrap(), [packet.frame()]);
    let mut in_place = frame.clone();
    finish(&hdr, &mut in_place, 1514).unwrap();
    assert_eq!(in_place, packet.frame());
    let arp = pattern(42, 0);
    assert_eq!(cut(&VnetHdr::default(), &arp, 1514).unwrap(), [arp]);
}

#[test]
fn buffers_are_used_again_and_have_room_to_spare() {
    let packet = Packet { payload: pattern(2000, 0), ..Packet::default() };
    let (hdr, frame) = packet.super_frame(1448);
    let mut pool = vec![vec![7; 9000], vec![7; 9000]];
    let pointers: Vec<*const u8> = pool.iter().rev().map(|buffer| buffer.as_ptr()).collect();
    let mut frames = vec![];
    segments_in(&hdr, &frame, 1514, &mut || pool.pop().unwrap(), &mut |frame| frames.push(frame))
        .unwrap();
    assert_eq!(frames, wanted(&packet, 1448));
    assert_eq!(frames.iter().map(|frame| frame.as_ptr()).collect::<Vec<_>>(), pointers);
    for frame in cut(&hdr, &frame, 1514).unwrap() {
        assert!(frame.capacity() >= frame.len() + SPARE);
    }
}

#[test]
fn the_limit_to_a_frame_is_exact() {
    let packet = Packet { payload: pattern(3000, 0), ..Packet::default() };
    let (hdr, frame) = packet.super_frame(1460);
    assert_eq!(cut(&hdr, &frame, 1514).unwrap().len(), 3);
    assert_eq!(cut(&hdr, &frame, 1513), Err(OffloadError::TooLong));
    let whole = packet.frame();
    assert_eq!(cut(&VnetHdr::default(), &whole, whole.len()).unwrap().len(), 1);
    assert_eq!(cut(&VnetHdr::default(), &whole, whole.len() - 1), Err(OffloadError::TooLong));
    assert_eq!(
        finish(&VnetHdr::default(), &mut whole.clone(), whole.len() - 1),
        Err(OffloadError::TooLong)
    );
}

#[test]
fn the_limit_to_segments_is_exact() {
    let packet = Packet { payload: pattern(10 * MAX_SEGMENTS, 0), ..Packet::default() };
    let (hdr, frame) = packet.super_frame(10);
    assert_eq!(cut(&hdr, &frame, 1514).unwrap().len(), MAX_SEGMENTS);
    let (hdr, frame) = packet.super_frame(9);
    assert_eq!(cut(&hdr, &frame, 1514), Err(OffloadError::TooMany));
}

#[test]
fn refuses_what_contradicts_itself() {
    let packet = Packet { payload: pattern(3000, 0), ..Packet::default() };
    let (hdr, frame) = packet.super_frame(1448);
    let l4 = packet.l4();
    let changed = |at: usize, value: u8| {
        let mut frame = frame.clone();
        frame[at] = value;
        cut(&hdr, &frame, 1514)
    };
    assert_eq!(
        cut(&VnetHdr { gso: Gso::Udp, ..hdr }, &frame, 1514),
        Err(OffloadError::WrongProtocol)
    );
    assert_eq!(
        cut(&VnetHdr { gso: Gso::TcpV6, ..hdr }, &frame, 1514),
        Err(OffloadError::WrongProtocol)
    );
    assert_eq!(
        cut(&VnetHdr { csum_start: 33, ..hdr }, &frame, 1514),
        Err(OffloadError::BadChecksumPlace)
    );
    assert_eq!(
        cut(&VnetHdr { csum_offset: 6, ..hdr }, &frame, 1514),
        Err(OffloadError::BadChecksumPlace)
    );
    assert_eq!(cut(&VnetHdr { gso_size: 0, ..hdr }, &frame, 1514), Err(OffloadError::BadGso));
    assert_eq!(finish(&hdr, &mut frame.clone(), 9000), Err(OffloadError::BadGso));
    assert_eq!(changed(12, 9), Err(OffloadError::WrongProtocol));
    assert_eq!(changed(14, 0x65), Err(OffloadError::BadHeader));
    assert_eq!(changed(14, 0x44), Err(OffloadError::BadHeader));
    assert_eq!(changed(20, 0x20), Err(OffloadError::Fragment));
    assert_eq!(changed(21, 1), Err(OffloadError::Fragment));
    assert_eq!(changed(23, 132), Err(OffloadError::WrongProtocol));
    assert_eq!(changed(l4 + 12, 0x40), Err(OffloadError::BadHeader));
    assert_eq!(cut(&hdr, &frame[..l4 + 19], 1514), Err(OffloadError::Truncated));
}

#[test]
fn refuses_ipv6_fragments_and_endless_extension_headers() {
    let fragment = vec![6, 0, 0, 0, 0, 0, 0, 1];
    let packet = Packet {
        v6: true,
        ip_options: fragment,
        next_header: Some(44),
        payload: pattern(3000, 0),
        ..Packet::default()
    };
    let (hdr, frame) = packet.super_frame(1000);
    assert_eq!(cut(&hdr, &frame, 1514), Err(OffloadError::Fragment));
    let endless = Packet {
        ip_options: [60, 0, 1, 4, 0, 0, 0, 0].repeat(300),
        next_header: Some(60),
        ..packet
    };
    let (hdr, mut frame) = endless.super_frame(1000);
    frame.truncate(endless.l4());
    assert_eq!(cut(&hdr, &frame, 1514), Err(OffloadError::BadChecksumPlace));
    let hdr = VnetHdr { csum_start: 14, ..hdr };
    assert_eq!(cut(&hdr, &frame, 1514), Err(OffloadError::Truncated));
}

proptest! {
    #[test]
    fn cuts_as_a_network_card_does(
        (udp, v6, tag, flags, id, sequence) in any::<(bool, bool, Option<u16>, u8, u16, u32)>(),
        size in 1usize..6000,
        gso_size in 8u16..1400,
    ) {
        let payload = pattern(size, usize::from(id));
        let packet = Packet { udp, v6, tag, flags, id, sequence, payload, ..Packet::default() };
        let (hdr, frame) = packet.super_frame(gso_size);
        prop_assert_eq!(cut(&hdr, &frame, 1518).unwrap(), wanted(&packet, usize::from(gso_size)));
    }

    /// Whatever a header and a frame say, there is no panic, and every frame that is made fits.
    #[test]
    fn survives_any_change(
        (udp, v6) in any::<(bool, bool)>(),
        changes in proptest::collection::vec((0usize..110, any::<u8>()), 0..6),
        head in proptest::option::of(any::<[u8; 10]>()),
        length in 0usize..400,
        max_frame in 0usize..300,
    ) {
        let packet = Packet { udp, v6, payload: pattern(250, 0), ..Packet::default() };
        let (hdr, mut frame) = packet.super_frame(100);
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        frame.truncate(length);
        let Ok(hdr) = head.map_or(Ok(hdr), |head| VnetHdr::parse(&head)) else { return Ok(()) };
        if let Ok(frames) = cut(&hdr, &frame, max_frame) {
            prop_assert!(frames.iter().all(|frame| frame.len() <= max_frame));
        }
    }
}
