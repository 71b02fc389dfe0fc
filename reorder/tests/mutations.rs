// SPDX-License-Identifier: Apache-2.0
//! Pairs of engines that get damaged, forged and repeated frames among the real ones. Whatever
//! those lead to, the pair carries everything again within 200 ms.
//!
//! For ten million of them: `cargo test --release --test all mutations:: -- --include-ignored`.

use crate::common::autonomous::{alike, friends, nic_mac};
use crate::common::jobs::channel;
use crate::common::{self, mac, World, LINK_BPS, MS, S};
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::Mode;
use ri2n_reorder::wire::{self, Heartbeat, Mac, Tag, BOUNCED_PCP};
use ri2n_reorder::Nanos;

/// After this time, everything must be as if nothing had happened.
const RECOVERY_NS: Nanos = 200 * MS;
const PPS: u64 = 2_000;
const SIZE: usize = 200;
/// Mutated frames before each recovery.
const ROUND: usize = 400;
/// Mutated frames in a millisecond.
const AT_ONCE: usize = 20;

/// Where a heartbeat has numbers that somebody might get wrong, and how long they are, in bytes.
const OF_HEARTBEATS: [(usize, usize); 19] = [
    (15, 1),
    (20, 2),
    (22, 4),
    (26, 4),
    (30, 4),
    (34, 4),
    (38, 4),
    (42, 4),
    (46, 2),
    (48, 2),
    (50, 8),
    (58, 4),
    (62, 4),
    (66, 4),
    (70, 4),
    (82, 4),
    (86, 4),
    (90, 4),
    (94, 8),
];
const OF_DATA: [(usize, usize); 5] = [(15, 1), (20, 2), (22, 4), (26, 4), (30, 4)];
const OF_REQUESTS: [(usize, usize); 4] = [(22, 4), (26, 4), (30, 4), (34, 2)];
const OF_BROADCASTS: [(usize, usize); 3] = [(20, 2), (22, 4), (26, 2)];
const OF_CHANNELS: [(usize, usize); 11] = [
    (20, 1),
    (21, 1),
    (22, 4),
    (26, 4),
    (30, 1),
    (31, 1),
    (34, 4),
    (38, 8),
    (46, 4),
    (50, 4),
    (54, 4),
];
const TYPES: [&[(usize, usize)]; 5] =
    [&OF_DATA, &OF_HEARTBEATS, &OF_REQUESTS, &OF_BROADCASTS, &OF_CHANNELS];

/// A pair with data in both directions, over two links.
fn pair(autonomous: bool, mode: Mode, seed: u64) -> World {
    pair_in(0, autonomous, mode, seed)
}

/// The same, with the data in a job's channel; 0 for no job.
fn pair_in(number: u8, autonomous: bool, mode: Mode, seed: u64) -> World {
    let hosts = alike(2, &[LINK_BPS; 2]);
    let mut world =
        if autonomous { friends(&hosts, mode, seed) } else { common::world(&hosts, mode, seed) };
    world.tap = Some(Default::default());
    world.run(50 * MS);
    if number > 0 {
        world.tell_both(0, 1, &[channel(number, 0x5eed, 0b11)]);
    }
    world.send_in(number, 0, 1, PPS, SIZE);
    world.send_in(number, 1, 0, PPS, SIZE);
    world.run(200 * MS);
    world
}

/// Changes one number of a frame to another one, and gives the frame the checksum that it needs
/// then.
fn forge(world: &mut World, frame: &mut Vec<u8>) {
    let fields = match frame[14] & 15 {
        1 => TYPES[0],
        2 => TYPES[1],
        3 => TYPES[2],
        7 => TYPES[4],
        _ => TYPES[3],
    };
    let random = &mut world.random;
    let (at, bytes) = fields[random.next() as usize % fields.len()];
    let mut raw = [0; 8];
    raw[8 - bytes..].copy_from_slice(&frame[at..at + bytes]);
    let old = u64::from_be_bytes(raw);
    let near = random.next() % 40_000;
    let new = match random.next() % 5 {
        0 => old ^ 1 << (random.next() % (8 * bytes as u64)),
        1 => old.wrapping_add(near).wrapping_sub(20_000),
        2 => old.wrapping_add(near % 400).wrapping_sub(200),
        3 => [0, 1, u64::MAX, u64::MAX >> 33][random.next() as usize % 4],
        _ => random.next(),
    };
    frame[at..at + bytes].copy_from_slice(&new.to_be_bytes()[8 - bytes..]);
    wire::seal(frame);
}

/// Gives the pair one more frame, which it did not send like this.
fn mutate(world: &mut World) {
    let tapped = world.tap.as_ref().unwrap();
    let (mut host, port, mut frame) = tapped[world.random.next() as usize % tapped.len()].clone();
    let has_payload = matches!(frame[14] & 15, 1 | 6);
    // The host's payload is no business of the helper's, and others check it.
    let ours = if has_payload { 34 } else { frame.len() };
    let mut pcp = 0;
    match world.random.next() % 16 {
        0 | 1 => {
            for _ in 0..=world.random.next() % 8 {
                let bit = world.random.next() as usize % (8 * (ours - 12));
                frame[12 + bit / 8] ^= 1 << (bit % 8);
            }
        }
        2 => frame.truncate(world.random.next() as usize % frame.len()),
        3 => {} // twice
        4 => {
            // By another NIC, and perhaps from a host with another address.
            let other = 3 - port;
            frame[6 + world.random.next() as usize % 4] ^= world.random.next() as u8 & 0xfe;
            return arrive(world, host, other, 0, frame);
        }
        5 if !world.settings.autonomous && frame[14] & 15 == 1 => {
            // It looks as if the peer's bridge had no helper.
            host = 1 - host;
            wire::set_macs(&mut frame, common::mac(host), common::mac(1 - host));
            pcp = BOUNCED_PCP;
        }
        6 => {
            frame.extend_from_slice(&[0x5a; 20]);
            wire::seal(&mut frame);
        }
        7 => return jump(world, host),
        _ => forge(world, &mut frame),
    }
    // Sometimes the same frame arrives once more, as a switch might repeat it.
    for _ in 0..=u8::from(world.random.chance(10.0)) {
        arrive(world, host, port, pcp, frame.clone());
    }
}

/// Several frames agree on something that is not true.
fn jump(world: &mut World, host: usize) {
    let by = (world.random.next() % 100_000) as u32 >> (world.random.next() % 12);
    let by = if world.random.chance(30.0) { by.wrapping_neg() } else { by };
    let frames: Vec<_> = world
        .tap
        .as_ref()
        .unwrap()
        .iter()
        .filter(|entry| entry.0 == host)
        .take(9)
        .cloned()
        .collect();
    for (host, port, mut frame) in frames.into_iter().rev() {
        let (at, newer) = match frame[14] & 15 {
            1 => (26, 0),
            2 => (58, 1),
            _ => continue,
        };
        add(&mut frame, at, by);
        add(&mut frame, 30, newer);
        wire::seal(&mut frame);
        arrive(world, host, port, 0, frame);
    }
}

/// Adds `by` to the number of 4 bytes at `at`.
fn add(frame: &mut [u8], at: usize, by: u32) {
    let number = u32::from_be_bytes(frame[at..at + 4].try_into().unwrap()).wrapping_add(by);
    frame[at..at + 4].copy_from_slice(&number.to_be_bytes());
}

fn arrive(world: &mut World, host: usize, port: u8, pcp: u8, frame: Vec<u8>) {
    let tag = (!world.settings.autonomous).then_some(Tag { vid: u16::from(port), pcp });
    world.wire_in(host, tag, port, frame);
}

/// Checks that everything arrives, once and in order, in both directions and over all links.
fn carries_everything(world: &mut World, what: &str) {
    let slots = world.to_slots;
    world.clear();
    world.broadcasts.clear();
    for _ in 0..6 {
        if world.settings.autonomous {
            (0..2).for_each(|host| world.broadcast(host));
        }
        world.run(10 * MS);
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let seen = &world.received[&(from, to)];
        let expected = PPS * 60 / 1000;
        let state = |world: &World, host: usize| {
            format!("{:#}", world.engines[host].as_ref().unwrap().status())
        };
        assert!(
            seen.lost == 0 && seen.out_of_order == 0 && seen.frames.abs_diff(expected) <= 5,
            "{what}: {seen:?} from {from}\n{}\n{}",
            state(world, 0),
            state(world, 1)
        );
        if world.settings.autonomous {
            assert_eq!(world.broadcasts[&(from, to)], 6, "{what}: broadcasts from {from}");
        }
        let links = world.engine(from).status()["peers"][0]["links"].clone();
        let usable = links.as_array().unwrap().iter().filter(|link| link["usable"] == true).count();
        assert!(usable == 2, "{what}: {usable} links of {from} are usable: {links:#}");
    }
    assert_eq!(world.to_slots, slots, "{what}");
}

fn rounds(autonomous: bool, mode: Mode, seed: u64, frames: usize) {
    rounds_in(0, autonomous, mode, seed, frames);
}

fn rounds_in(number: u8, autonomous: bool, mode: Mode, seed: u64, frames: usize) {
    let mut world = pair_in(number, autonomous, mode, seed);
    carries_everything(&mut world, "at first");
    for round in 0..frames / ROUND {
        for at in 0..ROUND {
            mutate(&mut world);
            if at % AT_ONCE == 0 {
                world.run(MS);
            }
        }
        world.run(RECOVERY_NS);
        // A frame that was repeated at a wrong time counts as one more than was sent.
        carries_everything(&mut world, &format!("seed {seed}, round {round}"));
    }
    let counters = world.engine(0).counters();
    for name in ["bad_checksum", "truncated", "doubted", "old"] {
        assert!(
            frames < 10_000 || counters.iter().any(|entry| entry == (name, entry.1) && entry.1 > 0),
            "{name}"
        );
    }
}

#[test]
fn a_pair_recovers_from_any_mutated_frames() {
    rounds(false, Mode::Paced, 1, 20_000);
}

#[test]
fn a_pair_without_a_controller_recovers_from_any_mutated_frames() {
    rounds(true, Mode::Paced, 2, 20_000);
}

#[test]
fn a_pair_that_repairs_nothing_recovers_from_any_mutated_frames() {
    rounds(false, Mode::Ri2nPlusPlus, 3, 10_000);
}

#[test]
fn a_job_of_a_pair_recovers_from_any_mutated_frames() {
    rounds_in(5, false, Mode::Paced, 4, 20_000);
}

#[test]
#[ignore = "ten million frames: two minutes of a release build"]
fn a_pair_recovers_from_ten_million_mutated_frames() {
    for (seed, (autonomous, mode)) in [
        (false, Mode::Paced),
        (true, Mode::Paced),
        (false, Mode::RoundRobin),
        (true, Mode::Ri2nPlusPlus),
    ]
    .into_iter()
    .enumerate()
    {
        rounds(autonomous, mode, 10 + seed as u64, 2_000_000);
    }
    rounds_in(5, false, Mode::Paced, 14, 2_000_000);
}

/// Changes the one heartbeat of a pair, by a link.
fn one_heartbeat(links: usize, change: impl Fn(&mut Vec<u8>)) {
    let hosts = alike(2, &[LINK_BPS; 2][..links]);
    let mut world = common::world(&hosts, Mode::Paced, 5);
    world.tap = Some(Default::default());
    world.run(50 * MS);
    world.send(0, 1, PPS, SIZE);
    world.send(1, 0, PPS, SIZE);
    world.run(300 * MS);
    let tapped = world.tap.as_ref().unwrap();
    let (host, port, mut frame) =
        tapped.iter().find(|entry| entry.2[14] & 15 == 2).unwrap().clone();
    // It is newer than the newest one, as if it had arrived in its place.
    add(&mut frame, 30, 1);
    wire::seal(&mut frame);
    change(&mut frame);
    arrive(&mut world, host, port, 0, frame);
    world.run(RECOVERY_NS);
    world.clear();
    world.run(S);
    for way in [(0, 1), (1, 0)] {
        let seen = &world.received[&way];
        assert!(seen.lost == 0 && seen.frames.abs_diff(PPS) <= 5, "{way:?}: {seen:?}");
    }
}

#[test]
fn one_flipped_bit_of_next_cuts_nobody() {
    for links in 1..=2 {
        for bit in 0..32 {
            let flip = |frame: &mut Vec<u8>| frame[58 + bit / 8] ^= 1 << (bit % 8);
            one_heartbeat(links, flip);
            one_heartbeat(links, |frame| {
                flip(frame);
                wire::seal(frame);
            });
        }
    }
}

/// There is only a trickle, in which nothing soon exceeds what was wrongly believed.
#[test]
fn a_wrong_number_in_several_frames_is_given_up() {
    const SLOW: u64 = 200;
    for links in 1..=2 {
        for by in [
            1,
            100,
            255,
            256,
            5_000,
            16_000,
            20_000,
            1 << 20,
            1 << 30,
            u32::MAX >> 1,
            1 << 31,
            u32::MAX - 300,
        ] {
            for kinds in [[1, 1], [2, 2], [1, 2]] {
                let mut world = common::world(&alike(2, &[LINK_BPS; 2][..links]), Mode::Paced, 5);
                world.tap = Some(Default::default());
                world.run(50 * MS);
                world.send(0, 1, SLOW, SIZE);
                world.run(S);
                let tapped = world.tap.clone().unwrap();
                let of = |kind| {
                    tapped
                        .iter()
                        .filter(move |entry| entry.0 == 1 && entry.2[14] & 15 == kind)
                        .take(6)
                };
                let forged: Vec<_> = kinds.into_iter().flat_map(of).cloned().collect();
                for (host, port, mut frame) in forged.into_iter().rev() {
                    let (at, newer) = if frame[14] & 15 == 1 { (26, 0) } else { (58, 12) };
                    add(&mut frame, at, by);
                    add(&mut frame, 30, newer);
                    wire::seal(&mut frame);
                    arrive(&mut world, host, port, 0, frame);
                }
                world.run(RECOVERY_NS);
                world.clear();
                world.run(S);
                let seen = &world.received[&(0, 1)];
                let what = format!("{links} links, {kinds:?} say {by} more: {seen:?}");
                assert!(
                    seen.lost == 0 && seen.out_of_order == 0 && seen.frames.abs_diff(SLOW) <= 2,
                    "{what}"
                );
            }
        }
    }
}

/// A greeting in the name of `own` that names another NIC or limit of the peer's end than the right
/// ones do.
fn wrong_greeting(port: u8, own: Mac, prefix: u8, limit_kbps: u32) -> Vec<u8> {
    let Mac([_, rest @ ..]) = nic_mac(1, port);
    let mut src = [prefix; 6];
    src[1..].copy_from_slice(&rest);
    let greeting = Heartbeat {
        dst: Mac::BROADCAST,
        src: Mac(src),
        session: 9,
        next_within_ms: 1000,
        cnt: u16::from(port) - 1,
        limit_kbps,
        own,
        ..Heartbeat::default()
    };
    let mut frame = Vec::new();
    greeting.encode(&mut frame);
    frame
}

#[test]
fn wrong_greetings_cut_nobody() {
    for (own, prefix, limit_kbps) in
        [(mac(1), 2, 0), (mac(1), 2, 1), (mac(1), 6, 100_000), (mac(7), 2, 100_000)]
    {
        let mut world = pair(true, Mode::Paced, 7);
        for port in 1..=2 {
            arrive(&mut world, 0, port, 0, wrong_greeting(port, own, prefix, limit_kbps));
        }
        world.run(RECOVERY_NS);
        carries_everything(&mut world, &format!("{own} from {prefix}... with {limit_kbps} kbit/s"));
    }
}

#[test]
fn wrong_greetings_are_not_believed_as_long_as_right_ones_come_between() {
    for (prefix, limit_kbps) in [(2, 1), (6, 100_000)] {
        let mut world = pair(true, Mode::Paced, 7);
        let before = world.engine(0).counters().doubted;
        for _ in 0..10 {
            (1..=2).for_each(|port| {
                arrive(&mut world, 0, port, 0, wrong_greeting(port, mac(1), prefix, limit_kbps))
            });
            world.run(400 * MS);
        }
        assert_eq!(world.engine(0).counters().doubted - before, 20, "all of four seconds");
        carries_everything(&mut world, &format!("from {prefix}... with {limit_kbps} kbit/s"));
    }
}
