// SPDX-License-Identifier: Apache-2.0
//! Packets of a few flows, with changes, are woven together. Merged and cut again, they are the
//! same. Input: 2 bytes for the longest super-frame, then 8 bytes for each step (see [`step`]).

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use ri2n_reorder::offload::coalesce::{Coalescer, Settings, MAX_FLOWS};
use ri2n_reorder::offload::packet::Layout;
use ri2n_reorder::offload::segment::segments;

#[allow(dead_code)]
#[path = "../../tests/offload/packets.rs"]
pub mod packets;

use packets::{pattern, slow_sum, Packet, ACK};

/// No segment is longer than the sizes below and headers.
const MAX_SEGMENT: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let Some((limit, steps)) = data.split_first_chunk() else { return };
    let max_frame = usize::from(u16::from_le_bytes(*limit));
    let mut coalescer = Coalescer::new(Settings { max_frame, ..Settings::default() });
    let mut flows: Vec<Packet> = (0..=MAX_FLOWS as u8 + 1)
        .map(|flow| Packet { flow, udp: flow & 1 != 0, v6: flow & 2 != 0, ..Packet::default() })
        .collect();
    let (mut sent, mut cut) = (vec![], vec![]);
    let mut back = |hdr: ri2n_reorder::offload::vnet::VnetHdr, frame: Vec<u8>| {
        assert!(!hdr.is_gso() || frame.len() <= max_frame);
        segments(&hdr, &frame, MAX_SEGMENT, &mut |frame| cut.push(frame))
            .expect("what was merged can be cut");
    };
    for bytes in steps.chunks_exact(8).take(2000) {
        let frame = step(&mut flows, bytes);
        sent.push(frame.clone());
        coalescer.push(frame, &mut back);
        if bytes[7] & 0x10 != 0 {
            coalescer.flush(&mut back);
        }
    }
    coalescer.flush(&mut back);
    assert_eq!(by_flow(cut), by_flow(sent));
});

/// The next frame of a flow. The bytes are: flow; size (2); kind of change, and what to change (2);
/// its value; a bit that says to flush afterwards.
fn step(flows: &mut [Packet], bytes: &[u8]) -> Vec<u8> {
    let count = flows.len();
    let head = &mut flows[usize::from(bytes[0]) % count];
    let size = usize::from(u16::from_le_bytes([bytes[1], bytes[2]])) % 3000;
    let at = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
    let value = bytes[6];
    head.flags = ACK;
    match bytes[3] % 12 {
        1 => head.flags = value,
        2 => head.tos = value,
        3 => head.ttl = value,
        4 => head.id = at as u16,
        5 => head.sequence = head.sequence.wrapping_add(at as u32),
        6 => head.ack = head.ack.wrapping_add(1),
        7 => head.window = at as u16,
        8 => head.dont_fragment = !head.dont_fragment,
        9 => head.tcp_options = pattern(usize::from(value % 11) * 4, at),
        10 => head.tag = (value & 1 != 0).then_some(at as u16),
        _ => {}
    }
    let packet = head.train(&[size]).remove(0);
    head.sequence = head.sequence.wrapping_add(size as u32);
    head.id = head.id.wrapping_add(1);
    let mut frame = packet.frame();
    if bytes[3] % 12 == 11 {
        let length = frame.len();
        frame[at % length] ^= value;
        frame.truncate(length - usize::from(bytes[7] & 7));
    }
    frame
}

/// Frames in order, by the protocol, addresses and ports that they have now. What may differ is
/// made equal: the identification of packets that must not be fragmented, and TCP checksums of
/// 0xffff, which stand for 0.
fn by_flow(frames: Vec<Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for mut frame in frames {
        let Some(layout) =
            Layout::find(&frame).ok().filter(|layout| layout.payload(&frame).is_ok())
        else {
            flows.entry(vec![]).or_default().push(frame);
            continue;
        };
        let Layout { ip, l4, protocol, v6, .. } = layout;
        let flow = [&[protocol], layout.addresses(&frame), &frame[l4..l4 + 4]].concat();
        if !v6 && slow_sum(&frame[ip..l4]) == 0xffff && frame[ip + 6] & 0x40 != 0 {
            frame[ip + 4..ip + 6].fill(0);
            frame[ip + 10..ip + 12].fill(0);
        }
        if protocol == 6 && frame[l4 + 16..l4 + 18] == [0xff, 0xff] {
            frame[l4 + 16..l4 + 18].fill(0);
        }
        flows.entry(flow).or_default().push(frame);
    }
    flows
}
