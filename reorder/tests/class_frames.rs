// SPDX-License-Identifier: Apache-2.0
//! One engine, and frames of jobs' channels as anybody might send them: what is not allowed costs a
//! counter, and what the bridge gives and takes has the right tags.

use crate::host::*;
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::Mode;
use ri2n_reorder::offload::vnet::{Gso, VnetHdr};
use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::channels::{ASKS, BEGUN};
use ri2n_reorder::wire::{
    self, channels, repeat, Body, ChannelEntry, DataHead, Mac, Message, PeerChannel, MAX_CHANNEL,
    NO_LIMIT,
};

const TAG: u32 = 0xcafe_0001;

fn channel(number: u8, tag: u32) -> PeerChannel {
    PeerChannel { number, tag, links: 3, max_kbps: NO_LIMIT, min_kbps: 0, min_in_kbps: 0 }
}

fn tell(host: &mut Host, generation: u32, channels: &[PeerChannel]) {
    let channels = channels.to_vec();
    host.control(generation, peer(1), Body::Channels { first: 1, last: MAX_CHANNEL, channels });
}

/// A host with a peer that takes channel 5.
fn with_channel() -> Host {
    let mut host = with_peer(settings());
    tell(&mut host, 11, &[channel(5, TAG)]);
    say(&mut host, &[entry(5, TAG)]);
    host.run(MS);
    assert_eq!(described(&host, 5).unwrap()["taken_by_peer"], true);
    host
}

fn described(host: &Host, number: u8) -> Option<serde_json::Value> {
    let peer = host.described(peer(1)).unwrap();
    peer["channels"].as_array().unwrap().iter().find(|it| it["channel"] == number).cloned()
}

fn entry(channel: u8, tag: u32) -> ChannelEntry {
    ChannelEntry { channel, tag, links: 3, ..ChannelEntry::default() }
}

/// The peer says something of its channels after heartbeats over both links.
fn say(host: &mut Host, entries: &[ChannelEntry]) {
    host.beat(peer(1), REMOTE_SESSION);
    for link in 0..LINKS {
        let beat = Seq(host.beats - u32::from(LINKS) + u32::from(link));
        say_as(host, link, REMOTE_SESSION, beat, peer(1), entries);
    }
}

fn say_as(host: &mut Host, link: u8, session: u32, beat: Seq, src: Mac, entries: &[ChannelEntry]) {
    let mut frame = Vec::new();
    channels::write(OWN, src, link, session, beat, entries, &mut frame);
    host.wire(u16::from(link) + 1, frame);
}

/// The peer sends data in a channel.
fn data(host: &mut Host, channel: u8, session: u32, seq: u32) {
    let mut frame = vec![0; 100];
    frame[14..18].copy_from_slice(&seq.to_be_bytes());
    let (seq, link_seq) = (Seq(seq), Seq(seq));
    wire::wrap(&mut frame, &DataHead { channel, flags: 0, link: 0, session, seq, link_seq });
    wire::set_macs(&mut frame, OWN, peer(1));
    host.wire(1, frame);
}

/// The host has a frame that the bridge tagged.
fn send(host: &mut Host, vid: u16, dst: Mac) {
    let mut frame = [&dst.0[..], &OWN.0, &[0x90, 0], &[7; 200]].concat();
    wire::push_tag(&mut frame, vid, 0);
    host.engine.on_plain(host.now, &VnetHdr::default(), frame, &mut host.seen);
}

#[test]
fn only_frames_of_a_channel_that_the_peer_has_are_delivered() {
    let mut host = with_channel();
    for seq in 0..3 {
        data(&mut host, 5, REMOTE_SESSION ^ TAG, seq);
    }
    assert_eq!(host.seen.plain.len(), 3);
    assert_eq!(&host.seen.plain[0][..14], &[&OWN.0[..], &peer(1).0, &[0, 0]].concat());
    let wrong = [
        (6, REMOTE_SESSION ^ TAG, "unknown_channel"),
        (6, REMOTE_SESSION, "unknown_channel"),
        (63, REMOTE_SESSION, "unknown_channel"),
        (5, REMOTE_SESSION, "refused_tag"),
        (5, REMOTE_SESSION ^ (TAG + 1), "refused_tag"),
        (5, 0, "refused_tag"),
        (0, REMOTE_SESSION ^ TAG, "unknown_session"),
        (64, REMOTE_SESSION ^ TAG, "bad_channel"),
    ];
    for (number, session, name) in wrong {
        let before = host.counter(name);
        data(&mut host, number, session, 3);
        assert_eq!(host.counter(name), before + 1, "channel {number}, session {session:x}");
    }
    assert_eq!(host.seen.plain.len(), 3);
    let refused = &host.described(peer(1)).unwrap()["refused"];
    assert_eq!(refused, &serde_json::json!({"5": 3, "6": 2, "63": 1}));
    let carried = described(&host, 5).unwrap();
    assert_eq!((&carried["frames_in"], &carried["bytes_in"]), (&3.into(), &300.into()));
    // Sequences of one channel say nothing of another.
    host.data(peer(1), 0, 0, 86);
    data(&mut host, 5, REMOTE_SESSION ^ TAG, 3);
    assert_eq!(host.seen.plain.len(), 5);
    assert_eq!(host.described(peer(1)).unwrap()["reorder_frames"], 0);
}

#[test]
fn requests_are_answered_in_their_channel_alone() {
    let mut host = with_channel();
    send(&mut host, 5, peer(1));
    host.run(MS);
    let Ok(Message::Data(sent)) = wire::parse(&host.seen.data[0]) else { panic!("no data") };
    let own = host.session_of(peer(1));
    assert_eq!((sent.channel, sent.session, sent.seq), (5, own ^ TAG, Seq(0)));
    assert_eq!((sent.ethertype, sent.payload), (0x9000, &[7; 200][..]), "the tag is off");
    let ask = |host: &mut Host, channel: u8, session: u32| {
        let mut frame = Vec::new();
        let ranges = [(Seq(0), 1)];
        repeat::write(OWN, peer(1), channel, session, REMOTE_SESSION, ranges, &mut frame);
        host.wire(1, frame);
        host.now += 10 * MS;
        host.run(MS);
    };
    ask(&mut host, 6, own ^ TAG);
    assert_eq!(host.counter("unknown_channel"), 1);
    ask(&mut host, 5, own);
    assert_eq!(host.counter("unknown_session"), 1);
    ask(&mut host, 0, own);
    assert_eq!(host.counter("repeat_not_there"), 1, "the other channel sent nothing");
    assert_eq!(host.seen.data.len(), 1);
    ask(&mut host, 5, own ^ TAG);
    assert_eq!(host.seen.data.len(), 2);
    let Ok(Message::Data(again)) = wire::parse(&host.seen.data[1]) else { panic!("no data") };
    assert_eq!((again.channel, again.flags, again.seq), (5, wire::data::REPEATED, Seq(0)));
}

#[test]
fn what_is_said_of_channels_is_believed_after_its_heartbeat_alone() {
    let mut host = with_peer(settings());
    tell(&mut host, 11, &[channel(5, TAG)]);
    let newest = Seq(host.beats - 1); // over the last link
    let last = LINKS - 1;
    let said = [entry(5, TAG)];
    let taken = |host: &Host| described(host, 5).unwrap()["taken_by_peer"] == true;
    say_as(&mut host, last, REMOTE_SESSION + 1, newest, peer(1), &said);
    assert_eq!(host.counter("unknown_session"), 1);
    say_as(&mut host, last, REMOTE_SESSION, newest, peer(2), &said);
    assert_eq!(host.counter("unknown_peer"), 1);
    say_as(&mut host, 9, REMOTE_SESSION, newest, peer(1), &said);
    assert_eq!(host.counter("bad_link"), 1);
    for beat in [newest.add(1), Seq(newest.0 - 1)] {
        say_as(&mut host, last, REMOTE_SESSION, beat, peer(1), &said);
    }
    assert_eq!(host.counter("old_heartbeats"), 2);
    say_as(&mut host, last, REMOTE_SESSION, newest, peer(1), &[entry(5, TAG + 1), entry(6, TAG)]);
    assert_eq!((host.counter("refused_tag"), host.counter("unknown_channel")), (1, 1));
    assert!(!taken(&host));
    say_as(&mut host, last, REMOTE_SESSION, newest, peer(1), &said);
    assert!(taken(&host));
    assert_eq!(host.counter("channels_in"), 7);
}

#[test]
fn wrong_numbers_of_a_channel_are_not_believed_alone_and_do_not_last() {
    let mut host = with_channel();
    (0..10).for_each(|seq| data(&mut host, 5, REMOTE_SESSION ^ TAG, seq));
    // One number far away, of each kind.
    data(&mut host, 5, REMOTE_SESSION ^ TAG, 1 << 30);
    say(&mut host, &[ChannelEntry { next: Seq(1 << 29), flags: ASKS, ..entry(5, TAG) }]);
    assert!(host.counter("doubted") >= 2);
    let acked = ChannelEntry { expected: Seq(1 << 31), flags: BEGUN, ..entry(5, TAG) };
    say(&mut host, &[ChannelEntry { next: Seq(10), links: u64::MAX, ..acked }]);
    (10..20).for_each(|seq| data(&mut host, 5, REMOTE_SESSION ^ TAG, seq));
    assert_eq!(host.seen.plain.len(), 20);
    host.run(S);
    assert_eq!(host.described(peer(1)).unwrap()["reorder_frames"], 0);
}

#[test]
fn nobody_but_the_controller_tells_of_channels() {
    let mut host = with_peer(settings());
    let channels = vec![channel(5, TAG)];
    let body = Body::Channels { first: 1, last: MAX_CHANNEL, channels };
    let mut frame = Vec::new();
    wire::Control { generation: 99, mac: peer(1), body: body.clone() }.encode(&mut frame);
    host.wire(1, frame);
    assert_eq!(host.counter("forged_control"), 1);
    host.control(99, peer(7), body);
    assert_eq!(host.counter("unknown_peer"), 1);
    assert!(described(&host, 5).is_none());
    tell(&mut host, 12, &[channel(5, TAG)]);
    tell(&mut host, 11, &[]);
    assert_eq!(host.counter("stale_control"), 1);
    assert!(described(&host, 5).is_some());
}

#[test]
fn channels_that_come_and_go_leave_nothing_behind() {
    let mut host = with_peer(settings());
    for round in 0..200u32 {
        let all: Vec<PeerChannel> =
            (1..=48).map(|number| channel(number, round ^ u32::from(number))).collect();
        tell(&mut host, 11 + round, &all);
        let numbers = host.described(peer(1)).unwrap()["channels"].as_array().unwrap().len();
        assert_eq!(numbers, 49);
        (1..=48).for_each(|vid| send(&mut host, vid, peer(1)));
    }
    assert_eq!(host.seen.data.len(), 0, "the peer takes none of them");
    // What waited in a channel that is gone went to the slot table, in its class.
    assert_eq!(host.seen.slots.len(), 199 * 48);
    assert!(host.seen.slots.iter().all(|frame| wire::read_tag(frame).unwrap().vid <= 48));
    tell(&mut host, 300, &[]);
    host.run(MS);
    let status = host.engine.status();
    assert_eq!(status["held_bytes"], 0);
    assert_eq!(status["peers"][0]["channels"].as_array().unwrap().len(), 1);
    // A range leaves the others alone.
    tell(&mut host, 301, &[channel(1, 1), channel(2, 2), channel(3, 3)]);
    host.control(302, peer(1), Body::Channels { first: 2, last: 2, channels: vec![] });
    let left: Vec<u8> = [1, 2, 3].into_iter().filter(|n| described(&host, *n).is_some()).collect();
    assert_eq!(left, [1, 3]);
}

#[test]
fn frames_that_go_to_the_slot_table_keep_the_tag_of_their_channel() {
    let mut host = with_channel();
    let vid = |frame: &Vec<u8>| wire::read_tag(frame).map(|tag| tag.vid);
    send(&mut host, 5, peer(9)); // no peer
    host.send(peer(9), 1);
    assert_eq!(host.seen.slots.iter().map(vid).collect::<Vec<_>>(), [Some(5), None]);
    // One of its frames comes back: the peer has no helper any more.
    send(&mut host, 5, peer(1));
    host.run(MS);
    let frame = host.seen.data.pop().unwrap();
    host.bounce(peer(1), frame.clone());
    send(&mut host, 5, peer(1));
    host.run(MS);
    assert_eq!(host.seen.slots[2..].iter().map(vid).collect::<Vec<_>>(), [Some(5), Some(5)]);
    assert_eq!(&host.seen.slots[2][..12], &[&peer(1).0[..], &OWN.0].concat());
    // A frame that comes back in a channel that is gone is nobody's.
    tell(&mut host, 12, &[]);
    let before = host.counter("unknown_session");
    host.bounce(peer(1), frame);
    assert_eq!((host.seen.slots.len(), host.counter("unknown_session")), (4, before + 1));
}

#[test]
fn frames_of_a_channel_that_can_send_nothing_do_not_wait_for_ever() {
    let mut host = with_peer(settings());
    let alive = |host: &mut Host, entries: &[ChannelEntry], span: u64| {
        for _ in 0..span / 100 {
            say(host, entries);
            host.run(100 * MS);
        }
    };
    // The peer does not take it.
    tell(&mut host, 11, &[channel(5, TAG), PeerChannel { links: 4, ..channel(6, TAG + 1) }]);
    (0..100).for_each(|_| send(&mut host, 5, peer(1)));
    alive(&mut host, &[entry(6, TAG + 1)], 100);
    assert_eq!((host.seen.slots.len(), host.seen.data.len()), (0, 0));
    alive(&mut host, &[entry(6, TAG + 1)], 200);
    assert_eq!((host.seen.slots.len(), host.seen.data.len()), (100, 0));
    assert!(host.seen.slots.iter().all(|frame| wire::read_tag(frame).unwrap().vid == 5));
    // Nobody waits again for what is known to be in vain. A link that does not exist is as good as
    // a dead one.
    send(&mut host, 5, peer(1));
    send(&mut host, 6, peer(1));
    host.run(2 * MS);
    assert_eq!((host.seen.slots.len(), host.seen.data.len()), (102, 0));
    // When it can be used, it is.
    alive(&mut host, &[entry(5, TAG), entry(6, TAG + 1)], 100);
    tell(&mut host, 12, &[channel(5, TAG), channel(6, TAG + 1)]);
    host.run(MS);
    send(&mut host, 5, peer(1));
    send(&mut host, 6, peer(1));
    host.run(MS);
    assert_eq!((host.seen.slots.len(), host.seen.data.len()), (102, 2));
}

#[test]
fn a_tag_that_is_no_channels_stays_on_the_frame() {
    let mut host = with_channel();
    for vid in [0, 64, 100, 4094] {
        send(&mut host, vid, peer(1));
        host.run(MS);
        let frame = host.seen.data.pop().unwrap();
        let Ok(Message::Data(data)) = wire::parse(&frame) else { panic!("no data") };
        assert_eq!((data.channel, data.ethertype), (0, wire::TAG_TYPE), "VLAN {vid}");
    }
    send(&mut host, 6, peer(1));
    host.run(MS);
    let frame = host.seen.data.pop().unwrap();
    let Ok(Message::Data(data)) = wire::parse(&frame) else { panic!("no data") };
    assert_eq!((data.channel, data.ethertype), (0, 0x9000), "a channel that is not known");
    assert_eq!(host.counter("unclassed"), 1);
}

#[test]
fn super_packets_with_a_tag_are_cut_as_those_without() {
    // TCP over IPv4, 3,000 bytes, of which the kernel has summed up the pseudo-header.
    let mut packet = vec![0; 40 + 3_000];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&3_040u16.to_be_bytes());
    (packet[8], packet[9], packet[32]) = (64, 6, 0x50);
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let plain = [&peer(1).0[..], &OWN.0, &[8, 0], &packet].concat();
    let header = |shift: u16| VnetHdr {
        needs_csum: true,
        gso: Gso::TcpV4,
        hdr_len: 54 + shift,
        gso_size: 1_400,
        csum_start: 34 + shift,
        csum_offset: 16,
        ..VnetHdr::default()
    };
    let mut sent = Vec::new();
    for (tag, shift) in [(None, 0), (Some(5), 4)] {
        let mut host = with_channel();
        let mut frame = plain.clone();
        tag.into_iter().for_each(|vid| wire::push_tag(&mut frame, vid, 0));
        host.engine.on_plain(host.now, &header(shift), frame, &mut host.seen);
        host.run(10 * MS);
        let payloads: Vec<(u8, Vec<u8>)> = host
            .seen
            .data
            .iter()
            .map(|frame| match wire::parse(frame) {
                Ok(Message::Data(data)) => (data.channel, data.payload.to_vec()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(payloads.len(), 3);
        assert!(payloads.iter().all(|(number, _)| u16::from(*number) == tag.unwrap_or(0)));
        sent.push(payloads.into_iter().map(|(_, payload)| payload).collect::<Vec<_>>());
    }
    assert_eq!(sent[0], sent[1]);
}

#[test]
fn a_job_without_traffic_costs_one_frame_per_link_and_second() {
    let mut host = with_channel();
    host.run(3 * S);
    let before = host.seen.said.len();
    for _ in 0..10 {
        say(&mut host, &[entry(5, TAG)]);
        host.run(S);
    }
    let said = host.seen.said.len() - before;
    assert!((19..=22).contains(&said), "{said} in ten seconds");
    // Who asks is answered, but not more often than heartbeats are.
    let before = host.seen.said.len();
    for _ in 0..100 {
        say(&mut host, &[ChannelEntry { flags: ASKS, ..entry(5, TAG) }]);
        host.run(MS / 10);
    }
    let said = host.seen.said.len() - before;
    assert!((10..=24).contains(&said), "{said} answers in 10 ms");
    let Ok(Message::Channels(last)) = wire::parse(host.seen.said.last().unwrap()) else {
        panic!("not about channels")
    };
    let entries: Vec<ChannelEntry> = last.entries.iter().collect();
    let expected = ChannelEntry { flags: BEGUN, ..entry(5, TAG) };
    assert_eq!(entries, [expected]);
}

#[test]
fn a_mode_that_repeats_nothing_forgets_repeats_of_jobs_too() {
    let mut host = with_channel();
    send(&mut host, 5, peer(1));
    host.run(MS);
    host.now += 10 * MS;
    let mut frame = Vec::new();
    let session = host.session_of(peer(1)) ^ TAG;
    repeat::write(OWN, peer(1), 5, session, REMOTE_SESSION, [(Seq(0), 1)], &mut frame);
    host.wire(1, frame);
    host.this_host(2, Mode::RoundRobin);
    host.run(MS);
    assert_eq!(host.seen.data.len(), 1);
}
