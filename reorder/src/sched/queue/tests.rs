// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

const MS: Nanos = 1_000_000;

/// An IPv4 frame of 1,000 bytes with this ECN field, a right header checksum, and `n` in its
/// payload.
fn ipv4(ecn: u8, n: u32) -> Vec<u8> {
    let mut frame = vec![0; 1_000];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[
        0x45, ecn, 3, 218, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    let sum = !ones_sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[40..44].copy_from_slice(&n.to_be_bytes());
    frame
}

fn ipv6(ecn: u8) -> Vec<u8> {
    let mut frame = vec![0xab; 1_000];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[14..18].copy_from_slice(&[0x6a, 0x8f | ecn << 4, 0xcd, 0xef]);
    frame
}

fn ones_sum(bytes: &[u8]) -> u16 {
    let sum =
        bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// For `ms`, 12 Mbit/s arrive (1,000 bytes every 667 us) and 8 Mbit/s leave (one frame per ms).
/// Returns the queue, what left it, and how many frames were dropped.
fn overload(ecn: u8, ms: u64) -> (Queue, Vec<Vec<u8>>, usize) {
    let mut queue = Queue::new(QueueSettings::default());
    let (mut out, mut dropped, mut sent) = (Vec::new(), 0, 0u32);
    for now in 0..ms {
        while u64::from(sent) * 2 < now * 3 {
            queue.push(now * MS, ipv4(ecn, sent)).ok();
            sent += 1;
        }
        out.extend(queue.pop(now * MS, |_| dropped += 1));
    }
    (queue, out, dropped)
}

#[test]
fn a_short_queue_is_left_alone() {
    let mut queue = Queue::new(QueueSettings::default());
    for n in 0..10_000u32 {
        let now = u64::from(n) * MS;
        assert!(queue.push(now, ipv4(2, n)).is_ok());
        if n >= 4 {
            assert_eq!(queue.pop(now, |_| panic!("dropped")), Some(ipv4(2, n - 4)));
        }
    }
    assert_eq!((queue.drops(), queue.marks(), queue.len(), queue.bytes()), (0, 0, 4, 4_000));
}

#[test]
fn a_standing_queue_is_dropped_from_at_the_pace_of_the_control_law() {
    // The wait is over 5 ms from 10 ms on. So the first frame is dropped at 110 ms, and each
    // further one 100 / sqrt(n) ms later.
    let (queue, out, dropped) = overload(0, 400);
    let law: f64 = (1..=100)
        .scan(0.0, |at, n| {
            *at += 100.0 / f64::from(n).sqrt();
            Some(*at)
        })
        .take_while(|&at| at < 290.0)
        .count() as f64;
    assert!((dropped as f64 - 1.0 - law).abs() <= 1.0, "{dropped} dropped, the law says {law}");
    assert_eq!(queue.drops(), dropped as u64);
    let order: Vec<u32> = out
        .iter()
        .map(|frame| u32::from_be_bytes([frame[40], frame[41], frame[42], frame[43]]))
        .collect();
    assert!(order.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn an_ecn_capable_packet_is_marked_instead() {
    for ecn in [1, 2] {
        let (queue, out, dropped) = overload(ecn, 400);
        assert_eq!((dropped, queue.drops()), (0, 0));
        let marked: Vec<_> = out.iter().filter(|frame| frame[15] & 3 == 3).collect();
        assert_eq!(marked.len() as u64, queue.marks());
        assert!((4..8).contains(&marked.len()), "{}", marked.len());
        assert!(out.iter().all(|frame| ones_sum(&frame[14..34]) == 0xffff));
    }
}

#[test]
fn a_queue_that_empties_leaves_the_dropping_state() {
    let (mut queue, _, _) = overload(0, 300);
    let drops = queue.drops();
    while queue.pop(300 * MS, |_| ()).is_some() {}
    assert_eq!(queue.bytes(), 0);
    let after = queue.drops();
    assert!(after - drops < 5, "{after} {drops}");
    for n in 0..200 {
        assert!(queue.push((400 + n) * MS, ipv4(0, 0)).is_ok());
        assert!(queue.pop((401 + n) * MS, |_| ()).is_some());
    }
    assert_eq!(queue.drops(), after);
}

#[test]
fn a_queue_that_is_too_long_again_and_again_is_not_dropped_from_faster_each_time() {
    // Each time, it goes on about where the last time, and only that one, ended. Loads are as in
    // `overload`, 100 ms apart.
    let mut queue = Queue::new(QueueSettings::default());
    let mut each = Vec::new();
    for began in (0..20).map(|time| time * 400) {
        let (before, mut sent) = (queue.drops(), 0);
        for now in 0..300 {
            while sent * 2 < now * 3 {
                queue.push((began + now) * MS, ipv4(0, 0)).unwrap();
                sent += 1;
            }
            queue.pop((began + now) * MS, drop);
        }
        each.push(queue.drops() - before);
        while queue.pop((began + 300) * MS, drop).is_some() {}
    }
    assert!(each[0] > 0 && each[2..].iter().all(|drops| *drops <= each[1]), "{each:?}");
}

#[test]
fn a_frame_with_no_other_behind_it_is_never_dropped_however_long_it_waited() {
    let mut queue = Queue::new(QueueSettings::default());
    for n in 0..100 {
        queue.push(n * 10 * MS, ipv4(0, n as u32)).unwrap();
        assert!(queue.pop((n + 1) * 10 * MS, drop).is_some(), "{n}");
    }
    assert_eq!(queue.drops(), 0);
}

#[test]
fn it_is_bounded_in_frames_and_bytes() {
    let mut queue =
        Queue::new(QueueSettings { max_frames: 3, max_bytes: 2_500, ..QueueSettings::default() });
    assert!(queue.push(0, vec![0; 1_000]).is_ok());
    assert!(queue.push(0, vec![0; 1_000]).is_ok());
    assert_eq!(queue.push(0, vec![7; 501]), Err(vec![7; 501]));
    assert!(queue.push(0, vec![0; 500]).is_ok());
    assert_eq!(queue.push(0, Vec::new()), Err(Vec::new()));
    assert_eq!(
        (queue.drops(), queue.len(), queue.bytes(), queue.head_bytes()),
        (2, 3, 2_500, Some(1_000))
    );
    assert_eq!(queue.backlog_ns(20_000), 1_000 * MS);
    assert_eq!(queue.backlog_ns(0), Nanos::MAX);
    assert_eq!(queue.drain().count(), 3);
    assert_eq!((queue.bytes(), queue.backlog_ns(0), queue.is_empty()), (0, 0, true));
}

#[test]
fn marks_ipv6_and_tagged_frames_and_nothing_else() {
    let mut frame = ipv6(2);
    assert!(mark_congestion(&mut frame));
    assert_eq!(frame[14..18], [0x6a, 0xbf, 0xcd, 0xef]);
    assert!(!mark_congestion(&mut ipv6(0)));
    let mut tagged = ipv4(1, 0);
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
    assert!(mark_congestion(&mut tagged));
    assert_eq!((tagged[19] & 3, ones_sum(&tagged[18..38])), (3, 0xffff));
    let mut other = ipv4(2, 0);
    other[13] = 6;
    let before = other.clone();
    assert!(!mark_congestion(&mut other));
    assert_eq!(other, before);
}

#[test]
fn a_clock_that_goes_back_stops_nothing() {
    let mut queue = Queue::new(QueueSettings::default());
    let hour = 3_600_000 * MS;
    for n in 0..50 {
        assert!(queue.push(hour, ipv4(0, n)).is_ok());
    }
    assert!(queue.pop(hour + 20 * MS, |_| ()).is_some());
    for n in 0..2_000u64 {
        let now = n * MS;
        queue.push(now, ipv4(0, 0)).ok();
        assert!(queue.pop(now, |_| ()).is_some());
    }
    assert!(queue.drops() > 0, "a standing queue of 49 ms must be noticed on the new clock");
}

proptest! {
    #[test]
    fn marking_keeps_the_checksum_and_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        ecn in 1u8..3,
        header in any::<[u8; 20]>(),
    ) {
        mark_congestion(&mut bytes.clone());
        let mut frame = ipv4(ecn, 0);
        frame[16..24].copy_from_slice(&header[..8]);
        frame[26..34].copy_from_slice(&header[8..16]);
        frame[24..26].copy_from_slice(&[0, 0]);
        let sum = !ones_sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        prop_assert!(mark_congestion(&mut frame));
        prop_assert_eq!(ones_sum(&frame[14..34]), 0xffff);
    }

    /// Bytes are counted right, and every frame leaves once, in order, or is dropped once.
    #[test]
    fn accounts_for_every_frame(
        ops in prop::collection::vec((any::<bool>(), 0u64..40, 60usize..1_500), 1..400),
    ) {
        let mut queue = Queue::new(QueueSettings {
            max_frames: 50,
            max_bytes: 40_000,
            interval_ns: 20 * MS,
            ..QueueSettings::default()
        });
        let (mut now, mut refused, mut dropped, mut out, mut pushed) =
            (0, 0u64, Vec::new(), Vec::new(), 0u64);
        for (push, wait, size) in ops {
            now += wait * MS / 8;
            if push {
                let mut frame = vec![0; size];
                frame[20..28].copy_from_slice(&pushed.to_be_bytes());
                pushed += 1;
                refused += u64::from(queue.push(now, frame).is_err());
            } else {
                let got = queue.pop(now, |frame| dropped.push(frame));
                out.extend(got);
            }
            prop_assert!(queue.len() <= 50 && queue.bytes() <= 40_000);
            prop_assert_eq!(
                queue.bytes(),
                queue.frames.iter().map(|(_, frame)| frame.len()).sum::<usize>()
            );
        }
        prop_assert_eq!(queue.drops(), refused + dropped.len() as u64);
        prop_assert_eq!(pushed, refused + (dropped.len() + out.len() + queue.len()) as u64);
        let numbers: Vec<_> = out.iter().map(|frame| frame[20..28].to_vec()).collect();
        prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
