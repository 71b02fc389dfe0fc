// SPDX-License-Identifier: Apache-2.0
//! Frames that were merged and cut again are what they were.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ri2n_reorder::offload::coalesce::{Coalescer, Settings};
use ri2n_reorder::offload::packet::Layout;
use ri2n_reorder::offload::segment::segments;

use super::packets::{slow_sum, Packet, ACK, CWR, ECE, FIN, PSH};

/// What may happen between two packets of a flow.
#[derive(Clone, Debug)]
enum Change {
    None,
    Lost,
    Twice,
    Flags(u8),
    Size(usize),
    Ack,
    Congested,
    Corrupt(usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        20 => Just(Change::None),
        1 => Just(Change::Lost),
        1 => Just(Change::Twice),
        2 => prop::sample::select(vec![ACK | PSH, ACK | FIN, ACK | ECE, ACK | CWR, 0])
            .prop_map(Change::Flags),
        2 => (0usize..300).prop_map(Change::Size),
        1 => Just(Change::Ack),
        1 => Just(Change::Congested),
        1 => (0usize..400).prop_map(Change::Corrupt),
    ]
}

/// The frames of interleaved flows.
fn frames(flows: &[(bool, bool, bool, bool)], events: &[(usize, Change)]) -> Vec<Vec<u8>> {
    let mut heads: Vec<Packet> = flows
        .iter()
        .enumerate()
        .map(|(flow, &(udp, v6, tagged, dont_fragment))| Packet {
            udp,
            v6,
            dont_fragment,
            tag: tagged.then_some(3),
            flow: flow as u8,
            sequence: u32::MAX - 1000,
            id: 0xfff0,
            ..Packet::default()
        })
        .collect();
    let mut frames = vec![];
    for (flow, change) in events {
        let head = &mut heads[flow % flows.len()];
        let size = if let Change::Size(size) = change { *size } else { 200 };
        let mut packet = head.train(&[size]).remove(0);
        head.sequence = head.sequence.wrapping_add(size as u32);
        head.id = head.id.wrapping_add(1);
        match change {
            Change::Flags(flags) => packet.flags = *flags,
            Change::Ack => head.ack += 1,
            Change::Congested => packet.tos = 3,
            _ => {}
        }
        let mut frame = packet.frame();
        if let Change::Corrupt(at) = change {
            if let Some(byte) = frame.get_mut(*at) {
                *byte ^= 1;
            }
        }
        let copies = match change {
            Change::Lost => 0,
            Change::Twice => 2,
            _ => 1,
        };
        frames.extend(std::iter::repeat_n(frame, copies));
    }
    frames
}

/// Frames in order, by the protocol, addresses and ports that they have now (a corrupt frame may
/// say anything). Identifications of packets that must not be fragmented are made 0, since they may
/// differ.
fn by_flow(frames: impl IntoIterator<Item = Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
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
        flows.entry(flow).or_default().push(frame);
    }
    flows
}

proptest! {
    #[test]
    fn cut_again_they_are_the_same(
        flows in proptest::collection::vec(any::<(bool, bool, bool, bool)>(), 1..11),
        events in proptest::collection::vec((any::<usize>(), change()), 0..300),
        batch in 1usize..100,
        max_frame in 1000usize..70_000,
    ) {
        let sent = frames(&flows, &events);
        let mut handed = vec![];
        let mut coalescer = Coalescer::new(Settings { max_frame, ..Settings::default() });
        for (index, frame) in sent.iter().enumerate() {
            coalescer.push(frame.clone(), &mut |hdr, frame| handed.push((hdr, frame)));
            if index % batch == 0 {
                coalescer.flush(&mut |hdr, frame| handed.push((hdr, frame)));
            }
        }
        coalescer.flush(&mut |hdr, frame| handed.push((hdr, frame)));
        let mut cut = vec![];
        for (hdr, frame) in &handed {
            prop_assert!(!hdr.is_gso() || frame.len() <= max_frame.min(65_535));
            segments(hdr, frame, 1514, &mut |frame| cut.push(frame)).unwrap();
        }
        prop_assert_eq!(by_flow(cut), by_flow(sent));
    }
}

/// The property above means nothing if nothing is merged.
#[test]
fn most_frames_of_a_train_are_merged() {
    let train = Packet::default().train(&[1448; 450]);
    let mut handed = 0;
    let mut coalescer = Coalescer::new(Settings::default());
    for packet in &train {
        coalescer.push(packet.frame(), &mut |_, _| handed += 1);
    }
    coalescer.flush(&mut |_, _| handed += 1);
    assert_eq!(handed, 10);
}
