// SPDX-License-Identifier: Apache-2.0
//! What a [`Coalescer`] merges, and what it leaves alone.

use ri2n_reorder::offload::checksum::update;
use ri2n_reorder::offload::coalesce::{Coalescer, Settings, MAX_FLOWS, MAX_TCP, MAX_UDP};
use ri2n_reorder::offload::vnet::{Gso, VnetHdr};

use super::packets::{pattern, Packet, CWR, ECE, FIN, PSH, SYN};

type Edit = fn(&mut Packet);
type Handed = Vec<(VnetHdr, Vec<u8>)>;

fn coalesce_with(settings: Settings, frames: &[Vec<u8>]) -> Handed {
    let mut handed = vec![];
    let mut coalescer = Coalescer::new(settings);
    for frame in frames {
        coalescer.push(frame.clone(), &mut |hdr, frame| handed.push((hdr, frame)));
    }
    coalescer.flush(&mut |hdr, frame| handed.push((hdr, frame)));
    assert!(coalescer.is_empty());
    handed
}

fn coalesce(packets: &[Packet]) -> Handed {
    coalesce_with(Settings::default(), &packets.iter().map(Packet::frame).collect::<Vec<_>>())
}

/// Asserts that the packets are handed on one by one, as they arrived.
#[track_caller]
fn left_alone(packets: &[Packet]) {
    let alone: Handed = packets.iter().map(|packet| (VnetHdr::default(), packet.frame())).collect();
    assert_eq!(coalesce(packets), alone);
}

/// The super-frame that the packets of a train should become.
fn merged(train: &[Packet]) -> (VnetHdr, Vec<u8>) {
    let last = &train[train.len() - 1];
    let payload = train.iter().flat_map(|packet| packet.payload.clone()).collect();
    let whole = Packet { payload, flags: train[0].flags | last.flags, ..train[0].clone() };
    let (hdr, frame) = whole.super_frame(train[0].payload.len() as u16);
    let hdr_len = frame.len() - whole.payload.len();
    (VnetHdr { hdr_len: hdr_len as u16, ..hdr }, frame)
}

#[test]
fn tcp_segments_become_a_super_frame() {
    let options = vec![1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    for v6 in [false, true] {
        let packet = Packet {
            v6,
            tcp_options: options.clone(),
            sequence: u32::MAX - 2000,
            ..Packet::default()
        };
        let mut train = packet.train(&[1448, 1448, 1448, 600]);
        train[3].flags |= PSH;
        let handed = coalesce(&train);
        assert_eq!(handed, [merged(&train)]);
        assert_eq!(handed[0].0.gso, if v6 { Gso::TcpV6 } else { Gso::TcpV4 });
    }
}

#[test]
fn udp_datagrams_of_one_size_become_a_super_frame() {
    for v6 in [false, true] {
        let train =
            Packet { udp: true, v6, tag: Some(7), ..Packet::default() }.train(&[1000, 1000, 999]);
        assert_eq!(coalesce(&train), [merged(&train)]);
    }
}

#[test]
fn a_short_or_pushed_segment_is_the_last() {
    let train = Packet::default().train(&[500, 500, 100, 500, 500]);
    assert_eq!(coalesce(&train), [merged(&train[..3]), merged(&train[3..])]);
    let mut train = Packet::default().train(&[500; 5]);
    train[2].flags |= PSH;
    assert_eq!(coalesce(&train), [merged(&train[..3]), merged(&train[3..])]);
}

#[test]
fn the_last_segment_is_handed_on_at_once() {
    let mut train = Packet::default().train(&[500, 500, 500]);
    train[0].flags |= PSH;
    train[2].flags |= PSH;
    let mut coalescer = Coalescer::new(Settings::default());
    let mut push = |packet: &Packet| {
        let mut handed = vec![];
        coalescer.push(packet.frame(), &mut |hdr, frame| handed.push((hdr, frame)));
        (handed, coalescer.is_empty())
    };
    assert_eq!(push(&train[0]), (vec![(VnetHdr::default(), train[0].frame())], true));
    assert_eq!(push(&train[1]), (vec![], false));
    assert_eq!(push(&train[2]), (vec![merged(&train[1..])], true));
}

#[test]
fn a_longer_segment_begins_anew() {
    let train = Packet::default().train(&[500, 501, 501]);
    assert_eq!(coalesce(&train), [(VnetHdr::default(), train[0].frame()), merged(&train[1..])]);
}

#[test]
fn nothing_is_merged_over_a_gap() {
    let train = Packet::default().train(&[500; 4]);
    left_alone(&[train[0].clone(), train[2].clone()]);
    left_alone(&[train[1].clone(), train[0].clone()]);
    left_alone(&[train[0].clone(), train[0].clone()]);
}

#[test]
fn every_header_field_matters() {
    let changes: [(&str, Edit); 14] = [
        ("tag", |p| p.tag = Some(6)),
        ("ToS", |p| p.tos = 8),
        ("ECN", |p| p.tos = 3),
        ("TTL", |p| p.ttl = 63),
        ("DF", |p| p.dont_fragment = false),
        ("id", |p| p.id += 1),
        ("ack", |p| p.ack += 1),
        ("window", |p| p.window += 1),
        ("timestamp", |p| p.tcp_options[11] ^= 1),
        ("options", |p| p.tcp_options.truncate(8)),
        ("FIN", |p| p.flags |= FIN),
        ("ECE", |p| p.flags |= ECE),
        ("CWR", |p| p.flags |= CWR),
        ("no ACK", |p| p.flags = 0),
    ];
    let tcp_options = vec![1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    let packet = Packet { tag: Some(5), tcp_options, ..Packet::default() };
    for (name, change) in changes {
        let mut train = packet.train(&[500, 500]);
        change(&mut train[1]);
        println!("{name}");
        left_alone(&train);
    }
}

#[test]
fn what_has_a_say_of_its_own_is_never_merged() {
    let all = |change: Edit| {
        let mut train = Packet::default().train(&[500, 500]);
        train.iter_mut().for_each(change);
        left_alone(&train);
    };
    all(|p| p.flags |= FIN);
    all(|p| p.flags |= SYN);
    all(|p| p.flags |= ECE);
    all(|p| p.flags = 0);
    all(|p| p.ip_options = vec![1, 1, 1, 0]);
    left_alone(&Packet::default().train(&[0, 0]));
    left_alone(&Packet::default().train(&[7, 7]));
    left_alone(&Packet { udp: true, ..Packet::default() }.train(&[0, 0]));
}

#[test]
fn identification_goes_up_or_stays() {
    let ids = |udp: bool, dont_fragment: bool, ids: &[u16]| {
        let mut train =
            Packet { udp, dont_fragment, ..Packet::default() }.train(&vec![500; ids.len()]);
        for (packet, &id) in train.iter_mut().zip(ids) {
            packet.id = id;
        }
        coalesce(&train).len()
    };
    for udp in [false, true] {
        assert_eq!(ids(udp, true, &[0xfffe, 0xffff, 0, 1]), 1);
        assert_eq!(ids(udp, false, &[0xfffe, 0xffff, 0, 1]), 1);
        assert_eq!(ids(udp, true, &[9, 9, 9]), 1);
        assert_eq!(ids(udp, false, &[9, 9, 9]), 3);
        assert_eq!(ids(udp, true, &[9, 9, 10]), 2);
        assert_eq!(ids(udp, true, &[9, 10, 10]), 2);
        assert_eq!(ids(udp, true, &[9, 8]), 2);
    }
}

#[test]
fn a_wrong_checksum_is_handed_on_alone_and_unmarked() {
    for (udp, v6) in [(false, false), (false, true), (true, false), (true, true)] {
        let packet = Packet { udp, v6, ..Packet::default() };
        let train = packet.train(&[500; 5]);
        for bad in 0..5 {
            // These are the last payload byte and, in IPv4, the checksum of the IP header.
            for at in [packet.l4() + 507, 24] {
                if v6 && at == 24 {
                    continue;
                }
                let mut frames: Vec<Vec<u8>> = train.iter().map(Packet::frame).collect();
                frames[bad][at] ^= 0x40;
                let handed = coalesce_with(Settings::default(), &frames);
                let alone = (VnetHdr::default(), frames[bad].clone());
                assert!(handed.contains(&alone), "frame {bad}, byte {at}");
                let payload = |(_, frame): &(VnetHdr, Vec<u8>)| {
                    frame.len() - packet.train(&[0])[0].frame().len()
                };
                assert_eq!(handed.iter().map(payload).sum::<usize>(), 2500);
                assert!(handed.len() <= 3, "{} of {bad}, {at}", handed.len());
            }
        }
    }
}

#[test]
fn a_udp_datagram_without_a_checksum_is_left_alone() {
    let train = Packet { udp: true, ..Packet::default() }.train(&[500, 500]);
    let frames: Vec<Vec<u8>> = train
        .iter()
        .map(|packet| {
            let mut frame = packet.frame();
            frame[packet.l4() + 6..][..2].fill(0);
            frame
        })
        .collect();
    assert_eq!(coalesce_with(Settings::default(), &frames).len(), 2);
}

/// A UDP length that is shorter than the IP packet. What is behind it does not belong to the
/// datagram.
#[test]
fn a_udp_datagram_with_a_tail_is_left_alone() {
    let packet = Packet { udp: true, ..Packet::default() };
    let frames: Vec<Vec<u8>> = packet
        .train(&[500, 500])
        .iter()
        .map(|packet| {
            let (mut frame, length, checksum) = (packet.frame(), packet.l4() + 4, packet.l4() + 6);
            frame[length + 1] -= 2;
            // It is right for those who take the whole packet for the datagram.
            let value = u16::from_be_bytes([frame[checksum], frame[checksum + 1]]);
            frame[checksum..checksum + 2].copy_from_slice(&update(value, 508, 506).to_be_bytes());
            frame
        })
        .collect();
    let alone: Handed = frames.iter().map(|frame| (VnetHdr::default(), frame.clone())).collect();
    assert_eq!(coalesce_with(Settings::default(), &frames), alone);
}

#[test]
fn a_frame_with_padding_is_left_alone() {
    let train = Packet::default().train(&[8, 8]);
    let frames: Vec<Vec<u8>> =
        train.iter().map(|packet| [packet.frame(), vec![0; 2]].concat()).collect();
    let handed = coalesce_with(Settings::default(), &frames);
    assert_eq!(handed.into_iter().map(|(_, frame)| frame).collect::<Vec<_>>(), frames);
}

#[test]
fn frames_of_a_flow_never_overtake_each_other() {
    let train = Packet::default().train(&[500, 500, 0, 500]);
    let alone = (VnetHdr::default(), train[2].frame());
    assert_eq!(
        coalesce(&train),
        [merged(&train[..2]), alone, (VnetHdr::default(), train[3].frame())]
    );
    // The same is done behind IP options.
    let mut train = Packet::default().train(&[500, 500, 500]);
    train[2].ip_options = vec![1, 1, 1, 0];
    assert_eq!(coalesce(&train), [merged(&train[..2]), (VnetHdr::default(), train[2].frame())]);
}

#[test]
fn what_has_no_ports_overtakes_nothing() {
    let train = Packet::default().train(&[500, 500]);
    let mut arp = pattern(60, 0);
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut fragment = Packet { udp: true, ..Packet::default() }.train(&[500])[0].frame();
    fragment[20] |= 0x20;
    for other in [arp, fragment, vec![], vec![1; 13]] {
        let frames = [train[0].frame(), train[1].frame(), other.clone()];
        assert_eq!(
            coalesce_with(Settings::default(), &frames),
            [merged(&train), (VnetHdr::default(), other)]
        );
    }
}

#[test]
fn flows_are_merged_side_by_side_and_their_number_is_bounded() {
    let trains: Vec<Vec<Packet>> = (0..=MAX_FLOWS as u8)
        .map(|flow| Packet { flow, ..Packet::default() }.train(&[500, 500]))
        .collect();
    let woven = |flows: usize| -> Vec<Packet> {
        (0..2)
            .flat_map(|index| trains[..flows].iter().map(move |train| train[index].clone()))
            .collect()
    };
    let all: Handed = trains.iter().map(|train| merged(train)).collect();
    assert_eq!(coalesce(&woven(MAX_FLOWS)), all[..MAX_FLOWS]);
    // There is one flow more than there is room for. Each makes room for the next.
    assert_eq!(coalesce(&woven(MAX_FLOWS + 1)).len(), 2 * (MAX_FLOWS + 1));
}

#[test]
fn super_frames_are_bounded() {
    let counts = |packet: Packet, size: usize, frames: usize, settings: Settings| -> Vec<usize> {
        let frames: Vec<Vec<u8>> =
            packet.train(&vec![size; frames]).iter().map(Packet::frame).collect();
        let handed = coalesce_with(settings, &frames);
        assert!(handed.iter().all(|(_, frame)| frame.len() <= 65_535));
        handed.iter().map(|(_, frame)| (frame.len() - (frames[0].len() - size)) / size).collect()
    };
    let udp = Packet { udp: true, ..Packet::default() };
    assert_eq!(counts(Packet::default(), 1448, 100, Settings::default()), [45, 45, 10]);
    assert_eq!(counts(Packet::default(), 8, MAX_TCP + 1, Settings::default()), [MAX_TCP, 1]);
    assert_eq!(counts(udp, 10, 100, Settings::default()), [MAX_UDP, 36]);
    let wide = Settings { max_frame: usize::MAX, ..Settings::default() };
    assert_eq!(counts(Packet::default(), 9000, 10, wide), [7, 3]);
    let narrow = Settings { max_frame: 4000, ..Settings::default() };
    assert_eq!(counts(Packet::default(), 1448, 5, narrow), [2, 2, 1]);
}

#[test]
fn settings_switch_it_off() {
    let tcp = Packet::default().train(&[500, 500]);
    let udp = Packet { udp: true, ..Packet::default() }.train(&[500, 500]);
    let frames: Vec<Vec<u8>> = tcp.iter().chain(&udp).map(Packet::frame).collect();
    let count = |settings| coalesce_with(settings, &frames).len();
    assert_eq!(count(Settings::default()), 2);
    assert_eq!(count(Settings { udp: false, ..Settings::default() }), 3);
    assert_eq!(count(Settings { tcp: false, ..Settings::default() }), 3);
    assert_eq!(count(Settings::off()), 4);
    let mut coalescer = Coalescer::new(Settings::off());
    let mut handed = 0;
    coalescer.push(frames[0].clone(), &mut |_, _| handed += 1);
    assert!(coalescer.is_empty() && handed == 1);
}

#[test]
fn buffers_come_back() {
    let mut coalescer = Coalescer::new(Settings::default());
    for packet in Packet::default().train(&[500; 101]) {
        coalescer.push(packet.frame(), &mut |_, _| ());
    }
    let back: Vec<Vec<u8>> = std::iter::from_fn(|| coalescer.reclaim()).collect();
    assert_eq!(back.len(), 64);
}
