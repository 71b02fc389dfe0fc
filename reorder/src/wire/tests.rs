// SPDX-License-Identifier: Apache-2.0
//! Laws that hold for all frames; `tests/vectors.json` has examples of each type.

use super::*;
use crate::seq::Seq;
use proptest::collection::vec;
use proptest::prelude::*;

fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(Mac)
}

fn host() -> impl Strategy<Value = Mac> {
    mac().prop_map(|Mac([first, rest @ .., last])| {
        let [a, b, c, d] = rest;
        Mac([first & !1 | 2, a, b, c, d, last])
    })
}

fn seq() -> impl Strategy<Value = Seq> {
    any::<u32>().prop_map(Seq)
}

fn session() -> impl Strategy<Value = u32> {
    1..=u32::MAX
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

fn data_head() -> impl Strategy<Value = DataHead> {
    (0..=data::FLAGS, 0..=MAX_CHANNEL, 0..64u8, session(), seq(), seq()).prop_map(
        |(flags, channel, link, session, seq, link_seq)| DataHead {
            flags,
            channel,
            link,
            session,
            seq,
            link_seq,
        },
    )
}

fn heartbeat() -> impl Strategy<Value = Heartbeat> {
    let echo = prop::option::of(
        (any::<u32>(), 0..u32::MAX).prop_map(|(time_us, age_us)| Echo { time_us, age_us }),
    );
    let who =
        (mac(), mac(), 0..=heartbeat::FLAGS, prop::option::of(0..64u8), session(), host(), host());
    let small = (any::<u16>(), any::<u16>(), any::<u64>());
    (who, small, echo, any::<[u32; 14]>()).prop_map(|(who, small, echo, numbers)| {
        let (dst, src, flags, link, session, own, peer) = who;
        let [peer_session, seq, time_us, next, link_next, others @ ..] = numbers;
        let [expected, arrive_kb, path_total_kb, arrive_total_kb, others @ ..] = others;
        let [grant_kbps, limit_kbps, demand_kbps, frames_in, link_expected] = others;
        Heartbeat {
            dst,
            src,
            flags,
            link,
            session,
            peer_session,
            seq: Seq(seq),
            time_us,
            echo,
            next_within_ms: small.0,
            cnt: small.1,
            hears: small.2,
            next: Seq(next),
            link_next: Seq(link_next),
            expected: Seq(expected),
            arrive_kb,
            path_total_kb,
            arrive_total_kb,
            grant_kbps,
            limit_kbps,
            demand_kbps,
            frames_in,
            link_expected: Seq(link_expected),
            own,
            peer,
        }
    })
}

fn nics() -> impl Strategy<Value = Vec<Nic>> {
    let name = prop_oneof!["[a-z0-9.é-]{0,8}", "[a-z]{16}"];
    vec((any::<bool>(), any::<u32>(), name), 0..8).prop_map(|nics| {
        let ports = (1..=MAX_PORT).rev();
        ports
            .zip(nics)
            .map(|(port, (up, rate_kbps, name))| Nic { port, up, rate_kbps, name })
            .collect()
    })
}

fn links() -> impl Strategy<Value = Vec<PeerLink>> {
    let link = (
        1..=MAX_PORT,
        1..=MAX_PORT,
        any::<bool>(),
        any::<u32>(),
        any::<u32>(),
        0..=control::WHOLE_WEIGHT_PPM,
    );
    prop::collection::btree_map(0..64u8, link, 0..=64).prop_map(|links| {
        let link = |(number, (own_port, peer_port, alive, rate_kbps, limit_kbps, weight_ppm))| {
            PeerLink { number, own_port, peer_port, alive, rate_kbps, limit_kbps, weight_ppm }
        };
        links.into_iter().map(link).collect()
    })
}

fn control() -> impl Strategy<Value = Control> {
    let mode = prop::sample::select(vec![
        Mode::Paced,
        Mode::RoundRobin,
        Mode::Ri2nPlus,
        Mode::Ri2nPlusPlus,
    ]);
    let body = prop_oneof![
        (mode, nics()).prop_map(|(mode, nics)| Body::ThisHost { mode, nics }),
        (any::<bool>(), any::<bool>(), links()).prop_map(|(stripe, beside, links)| Body::Peer {
            stripe,
            beside,
            links
        }),
        Just(Body::Gone),
        channels().prop_map(|channels| Body::Channels { first: 1, last: MAX_CHANNEL, channels }),
        (0..=1u8, 0..=MAX_CHANNEL).prop_map(|(first, last)| Body::Channels {
            first: first.min(last),
            last,
            channels: Vec::new(),
        }),
    ];
    (any::<u32>(), host(), body).prop_map(|(generation, mac, body)| Control {
        generation,
        mac,
        body,
    })
}

fn channels() -> impl Strategy<Value = Vec<PeerChannel>> {
    let channel = (any::<u32>(), 1..=u64::MAX, 1..=u32::MAX, any::<u32>(), 0..NO_LIMIT);
    prop::collection::btree_map(1..=MAX_CHANNEL, channel, 0..=control::MAX_CHANNELS).prop_map(
        |channels| {
            let channel = |(number, (tag, links, max_kbps, min_kbps, min_in_kbps))| {
                let min_kbps = min_kbps % max_kbps;
                PeerChannel { number, tag, links, max_kbps, min_kbps, min_in_kbps }
            };
            channels.into_iter().map(channel).collect()
        },
    )
}

/// What is said of channels.
fn entries() -> impl Strategy<Value = Vec<ChannelEntry>> {
    let entry = (0..4u8, any::<u32>(), any::<u64>(), seq(), seq(), any::<u32>());
    prop::collection::btree_map(0..=MAX_CHANNEL, entry, 1..=channels::MAX_ENTRIES).prop_map(
        |entries| {
            let entry = |(channel, (flags, tag, links, next, expected, demand_kbps))| {
                ChannelEntry { channel, flags, tag, links, next, expected, demand_kbps }
            };
            entries.into_iter().map(entry).collect()
        },
    )
}

fn report() -> impl Strategy<Value = Report> {
    let entry =
        (host(), 0..64u8, 0..8u8, any::<[u32; 8]>()).prop_map(|(peer, link, flags, numbers)| {
            let [sent, received, lost, repeated, skew_us, rtt_us, rate_kbps, demand_kbps] = numbers;
            ReportEntry {
                peer,
                link,
                flags,
                sent,
                received,
                lost,
                repeated,
                skew_us,
                rtt_us,
                rate_kbps,
                demand_kbps,
            }
        });
    (any::<u32>(), host(), any::<u32>(), vec(entry, 0..=report::MAX_ENTRIES)).prop_map(
        |(time_ms, mac, generation, entries)| Report { time_ms, mac, generation, entries },
    )
}

/// Ranges, from which a request is made.
fn ranges() -> impl Strategy<Value = Vec<(Seq, u16)>> {
    vec((seq(), 1..=repeat::MAX_RANGE), 1..=repeat::MAX_RANGES)
}

/// A valid frame of any type.
fn valid_frame() -> impl Strategy<Value = Vec<u8>> {
    let written = |message: Message<'_>| {
        let mut frame = vec![];
        message.encode(&mut frame);
        frame
    };
    prop_oneof![
        (data_head(), payload()).prop_map(|(head, mut frame)| {
            wrap(&mut frame, &head);
            frame
        }),
        heartbeat().prop_map(move |heartbeat| written(Message::Heartbeat(heartbeat))),
        (host(), session(), ranges()).prop_map(|(host, session, ranges)| {
            let mut frame = vec![];
            repeat::write(host, host, 63, session, session, ranges, &mut frame);
            frame
        }),
        control().prop_map(move |control| written(Message::Control(control))),
        (host(), session(), seq(), entries()).prop_map(|(host, session, beat, entries)| {
            let mut frame = vec![];
            channels::write(host, host, 63, session, beat, &entries, &mut frame);
            frame
        }),
        report().prop_map(move |report| written(Message::Report(report))),
        (host(), session(), any::<u16>(), payload()).prop_map(
            |(host, session, number, payload)| {
                let mut frame = [&Mac::BROADCAST.0[..], &payload].concat();
                wrap_broadcast(&mut frame, host, host, 63, session, number);
                frame
            }
        ),
    ]
}

/// A frame that can be read says the same after it was written and read again.
fn check_stable(frame: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(message) = parse(frame) {
        let mut again = vec![0xff; 3];
        message.encode(&mut again);
        prop_assert!(again.len() <= frame.len());
        prop_assert_eq!(parse(&again), Ok(message));
    }
    Ok(())
}

proptest! {
    #[test]
    fn data_is_read_as_written(
        head in data_head(),
        dst in mac(),
        src in mac(),
        ethertype: u16,
        payload in payload(),
    ) {
        let DataHead { flags, channel, link, session, seq, link_seq } = head;
        let data =
            Data {
            dst,
            src,
            flags,
            channel,
            link,
            session,
            seq,
            link_seq,
            ethertype,
            payload: &payload,
        };
        let mut frame = vec![];
        data.encode(&mut frame);
        prop_assert_eq!(frame.len(), HEADER + payload.len());
        prop_assert_eq!(parse(&frame), Ok(Message::Data(data)));
        prop_assert_eq!(data.head(), head);
    }

    #[test]
    fn wrapping_keeps_the_frame(
        head in data_head(),
        plain in vec(any::<u8>(), 14..200),
        dst in mac(),
        src in mac(),
    ) {
        let mut frame = plain.clone();
        wrap(&mut frame, &head);
        prop_assert_eq!(frame.len(), plain.len() + OVERHEAD);
        let Ok(Message::Data(data)) = parse(&frame) else { panic!("no data frame: {frame:?}") };
        prop_assert_eq!(data.head(), head);
        prop_assert_eq!((&data.dst.0[..], &data.src.0[..]), (&plain[..6], &plain[6..12]));
        prop_assert_eq!(&data.ethertype.to_be_bytes(), &plain[12..14]);
        prop_assert_eq!(data.payload, &plain[14..]);
        unwrap(&mut frame);
        prop_assert_eq!(&frame, &plain);
        set_macs(&mut frame, dst, src);
        prop_assert_eq!(frame, [&dst.0[..], &src.0, &plain[12..]].concat());
    }

    #[test]
    fn a_repeated_frame_differs_in_its_link_alone(
        first in data_head(),
        again in data_head(),
        plain in payload(),
    ) {
        let mut frame = plain.clone();
        wrap(&mut frame, &first);
        rewrite(&mut frame, again.link, again.link_seq, again.flags);
        let mut expected = plain;
        let DataHead { channel, session, seq, .. } = first;
        wrap(&mut expected, &DataHead { channel, session, seq, ..again });
        prop_assert_eq!(frame, expected);
    }

    #[test]
    fn heartbeats_are_read_as_written(heartbeat in heartbeat()) {
        let mut frame = vec![];
        heartbeat.encode(&mut frame);
        prop_assert_eq!(frame.len(), 114);
        prop_assert_eq!(parse(&frame), Ok(Message::Heartbeat(heartbeat)));
    }

    #[test]
    fn requests_are_read_as_written(
        dst in mac(),
        src in mac(),
        session in session(),
        channel in 0..=MAX_CHANNEL,
        asker in session(),
        ranges in ranges(),
    ) {
        let mut frame = vec![];
        prop_assert_eq!(
            repeat::write(dst, src, channel, session, asker, ranges.iter().copied(), &mut frame),
            ranges.len()
        );
        let Ok(Message::Repeat(repeat)) = parse(&frame) else { panic!("no request: {frame:?}") };
        prop_assert_eq!(
            (repeat.dst, repeat.src, repeat.channel, repeat.session, repeat.asker),
            (dst, src, channel, session, asker)
        );
        prop_assert_eq!(repeat.ranges.iter().collect::<Vec<_>>(), ranges);
    }

    #[test]
    fn what_is_said_of_channels_is_read_as_written(
        dst in mac(),
        src in mac(),
        link in 0..64u8,
        session in session(),
        beat in seq(),
        entries in entries(),
    ) {
        let mut frame = vec![];
        channels::write(dst, src, link, session, beat, &entries, &mut frame);
        prop_assert!(frame.len() <= 1514);
        let Ok(Message::Channels(read)) = parse(&frame) else { panic!("not read: {frame:?}") };
        prop_assert_eq!(
            (read.dst, read.src, read.link, read.session, read.beat),
            (dst, src, link, session, beat)
        );
        prop_assert_eq!(read.entries.iter().collect::<Vec<_>>(), entries);
    }

    #[test]
    fn control_is_read_as_written(control in control()) {
        let mut frame = vec![];
        control.encode(&mut frame);
        prop_assert_eq!(parse(&frame), Ok(Message::Control(control)));
    }

    #[test]
    fn reports_are_read_as_written(report in report()) {
        let mut frame = vec![];
        report.encode(&mut frame);
        prop_assert!(frame.len() <= 1514);
        prop_assert_eq!(parse(&frame), Ok(Message::Report(report)));
    }

    #[test]
    fn broadcasts_are_read_as_written(
        nics in (mac(), mac()),
        group: [u8; 6],
        session in session(),
        number: u16,
        link in 0..64u8,
        plain in vec(any::<u8>(), 14..200),
    ) {
        let group = Mac([group[0] | 1, group[1], group[2], group[3], group[4], group[5]]);
        let mut frame = plain.clone();
        frame[..6].copy_from_slice(&group.0);
        wrap_broadcast(&mut frame, nics.0, nics.1, link, session, number);
        prop_assert_eq!(frame.len(), plain.len() + OVERHEAD);
        let ethertype = u16::from_be_bytes([plain[12], plain[13]]);
        let broadcast = Broadcast {
            dst: nics.0,
            src: nics.1,
            link,
            session,
            number,
            group,
            ethertype,
            payload: &plain[14..],
        };
        prop_assert_eq!(parse(&frame), Ok(Message::Broadcast(broadcast)));
        let mut encoded = vec![];
        broadcast.encode(&mut encoded);
        prop_assert_eq!(&encoded, &frame);
        unwrap(&mut frame);
        set_macs(&mut frame, group, nics.1);
        prop_assert_eq!(&frame[..6], &group.0);
        prop_assert_eq!(&frame[12..], &plain[12..]);
    }

    #[test]
    fn any_bytes_are_read_or_refused(frame in vec(any::<u8>(), 0..400)) {
        check_stable(&frame)?;
    }

    #[test]
    fn any_body_is_read_or_refused(
        kind in 0..16u8,
        body in vec(prop_oneof![0..4u8, any::<u8>()], 0..200),
    ) {
        let mut frame = [&head(HELPER_MAC, CONTROLLER_MAC, kind, 0)[..], &body].concat();
        check_stable(&frame)?;
        seal(&mut frame);
        check_stable(&frame)?;
    }

    #[test]
    fn damaged_frames_are_read_or_refused(
        frame in valid_frame(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        keep: prop::sample::Index,
    ) {
        let mut damaged = frame.clone();
        for (place, value) in damage {
            damaged[place.index(frame.len())] = value;
        }
        check_stable(&damaged)?;
        check_stable(&damaged[..keep.index(frame.len())])?;
        seal(&mut damaged);
        check_stable(&damaged)?;
        damaged.truncate(keep.index(frame.len()));
        seal(&mut damaged);
        check_stable(&damaged)?;
    }

    /// Up to five bits change, anywhere: five is what CRC32C promises to find in frames as long as
    /// these.
    #[test]
    fn no_frame_with_flipped_bits_is_believed(
        frame in valid_frame(),
        bits in vec(any::<prop::sample::Index>(), 1..=5),
    ) {
        let payload = matches!(parse(&frame), Ok(Message::Data(_) | Message::Broadcast(_)));
        let covered = if payload { HEADER } else { frame.len() };
        let mut flipped = frame.clone();
        for bit in bits {
            let bit = bit.index(8 * (covered - 12));
            flipped[12 + bit / 8] ^= 1 << (bit % 8);
        }
        prop_assert_eq!(parse(&flipped).is_ok(), flipped == frame);
    }

    #[test]
    fn a_checksum_is_what_was_missing(frame in valid_frame(), wrong in 1..=u32::MAX) {
        let mut sealed = frame.clone();
        let right = u32::from_be_bytes([frame[16], frame[17], frame[18], frame[19]]);
        sealed[16..20].copy_from_slice(&(right ^ wrong).to_be_bytes());
        prop_assert_eq!(parse(&sealed), Err(Malformed::Checksum));
        seal(&mut sealed);
        prop_assert_eq!(sealed, frame);
    }

    #[test]
    fn what_is_cut_off_is_missed(frame in valid_frame(), keep: prop::sample::Index) {
        let message = parse(&frame);
        prop_assert!(message.is_ok(), "{message:?}");
        let fixed = if matches!(message, Ok(Message::Data(_) | Message::Broadcast(_))) {
            HEADER
        } else {
            frame.len()
        };
        let cut_off = parse(&frame[..keep.index(fixed)]);
        prop_assert!(
            matches!(cut_off, Err(Malformed::Truncated | Malformed::Checksum)),
            "{cut_off:?}"
        );
    }

    #[test]
    fn nothing_may_follow_but_what_the_checksum_covers(
        frame in valid_frame(),
        more in 1..100usize,
    ) {
        let message = parse(&frame);
        if !matches!(message, Ok(Message::Data(_) | Message::Broadcast(_))) {
            let mut longer = frame.clone();
            longer.resize(frame.len() + more, 0);
            prop_assert_eq!(parse(&longer), Err(Malformed::Checksum));
            seal(&mut longer);
            prop_assert_eq!(parse(&longer), Err(Malformed::Oversized));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))] // each compares up to 450,000 numbers

    #[test]
    fn long_ranges_are_split(wanted in vec((seq(), 0..=3000u16), 0..150)) {
        let mut frame = vec![];
        let all = wanted.iter().copied();
        let count = repeat::write(Mac::NONE, Mac::NONE, 0, 1, 2, all, &mut frame);
        let all: Vec<Seq> =
            wanted.iter().flat_map(|(first, n)| (0..u32::from(*n)).map(|i| first.add(i))).collect();
        prop_assert_eq!(count == 0, all.is_empty());
        if count > 0 {
            let Ok(Message::Repeat(repeat)) = parse(&frame) else {
                panic!("no request: {frame:?}")
            };
            let asked = repeat
                .ranges
                .iter()
                .flat_map(|(first, n)| (0..u32::from(n)).map(move |i| first.add(i)));
            let asked: Vec<Seq> = asked.collect();
            prop_assert_eq!(&asked[..], &all[..asked.len()]);
            prop_assert!(asked.len() == all.len() || count == repeat::MAX_RANGES);
        }
    }
}

#[test]
fn no_frame_is_longer_than_the_longest() {
    let head =
        DataHead { channel: 0, flags: 0, link: 0, session: 1, seq: Seq(0), link_seq: Seq(0) };
    let mut frame = vec![0; MAX_FRAME - OVERHEAD];
    wrap(&mut frame, &head);
    assert!(matches!(parse(&frame), Ok(Message::Data(_))));
    frame.push(0);
    assert_eq!(parse(&frame), Err(Malformed::Oversized));
}

#[test]
fn what_is_no_frame_is_left_alone_or_padded() {
    for length in 0..HEADER {
        let mut frame = vec![7; length];
        unwrap(&mut frame);
        rewrite(&mut frame, 1, Seq(1), 1);
        if length < HEAD {
            seal(&mut frame);
        }
        assert_eq!(frame, vec![7; length]);
    }
    let mut frame = vec![];
    wrap(
        &mut frame,
        &DataHead { channel: 0, flags: 0, link: 0, session: 1, seq: Seq(0), link_seq: Seq(0) },
    );
    assert!(matches!(parse(&frame), Ok(Message::Data(Data { payload: [], .. }))));
    set_macs(&mut [1; 11], Mac::NONE, Mac::NONE);
}

#[test]
fn greetings_have_neither_link_nor_peer() {
    let mut frame = vec![];
    let greeting = Heartbeat {
        dst: Mac::BROADCAST,
        src: HELPER_MAC,
        session: 9,
        own: HELPER_MAC,
        ..Heartbeat::default()
    };
    greeting.encode(&mut frame);
    assert_eq!(parse(&frame), Ok(Message::Heartbeat(greeting)));
    Heartbeat { link: Some(0), ..greeting }.encode(&mut frame);
    assert_eq!(parse(&frame), Err(Malformed::Mac(Mac::NONE)), "only a greeting may be for nobody");
}

#[test]
fn an_old_echo_is_not_taken_for_none() {
    let mut frame = vec![];
    let echo = Some(Echo { time_us: 5, age_us: u32::MAX });
    Heartbeat { echo, session: 9, own: HELPER_MAC, ..Heartbeat::default() }.encode(&mut frame);
    let Ok(Message::Heartbeat(read)) = parse(&frame) else { panic!("no heartbeat: {frame:?}") };
    assert_eq!(read.echo, Some(Echo { time_us: 5, age_us: u32::MAX - 1 }));
}
