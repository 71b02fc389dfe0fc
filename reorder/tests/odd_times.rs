// SPDX-License-Identifier: Apache-2.0
//! Clocks that jump, sequences that wrap, control that changes links under traffic, too little
//! memory, and forgeries.

use crate::common::autonomous::{alike, friends, nic_mac};
use crate::common::{figure4, mac, world, Fault, World, LINK_BPS, MS, S};
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::{Mode, Settings};
use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::{self, Body, Control, DataHead, Heartbeat, PeerLink, Tag, NO_LIMIT};

const FULL: usize = 1492;
const HOUR: i64 = 3600 * S as i64;

fn two_hosts(seed: u64) -> World {
    let mut made = world(&alike(2, &[LINK_BPS; 2]), Mode::Paced, seed);
    made.run(50 * MS);
    made
}

fn in_order_but_for(world: &World, from: usize, lost: u64) {
    let seen = &world.received[&(from, 0)];
    assert_eq!((seen.lost, seen.out_of_order), (lost, 0), "{seen:?}");
}

#[test]
fn a_clock_that_goes_back_an_hour_costs_nothing() {
    for host in 0..2 {
        let mut world = two_hosts(1);
        world.clocks[host] += HOUR;
        world.run(3 * S);
        world.send(1, 0, 10_000, 300);
        world.run(200 * MS);
        world.clear();
        world.to_slots = 0;
        world.clocks[host] -= HOUR;
        world.run(S);
        in_order_but_for(&world, 1, 0);
        assert_eq!(world.to_slots, 0);
        let seen = &world.received[&(1, 0)];
        assert!(seen.longest_gap_ns < 50 * MS && seen.frames > 9_900, "host {host}: {seen:?}");
        assert_eq!(world.engine(host).counters().clock_jumps, 1);
    }
}

#[test]
fn round_trips_are_measured_after_a_clock_went_back() {
    let mut world = two_hosts(1);
    world.clocks[0] += HOUR;
    world.run(3 * S);
    world.send(0, 1, 0, 300);
    world.stall(0, 200 * MS); // measures nothing for a moment, by the clock of then
    world.run(S);
    world.clocks[0] -= HOUR;
    for (from, to) in [((0, 1), (1, 1)), ((0, 2), (1, 2))] {
        world.faults.insert((from, to), Fault { delay_ns: 20 * MS, ..Fault::default() });
    }
    world.run(3 * S);
    let status = world.engine(0).status();
    let trip_us = status["peers"][0]["links"][0]["rtt_us"].as_u64().unwrap();
    assert!(trip_us > 15_000, "a round trip takes 20 ms now, it says {trip_us} us");
}

#[test]
fn a_clock_that_goes_ahead_an_hour_is_as_dead_links_for_some_milliseconds() {
    for host in 0..2 {
        let mut world = two_hosts(3);
        world.send(1, 0, 10_000, 300);
        world.run(200 * MS);
        world.clear();
        world.clocks[host] += HOUR;
        world.run(100 * MS);
        let by_slots = world.to_slots;
        assert!(by_slots < 500, "host {host}: {by_slots} frames went by the slot table");
        world.run(S);
        assert_eq!(world.to_slots, by_slots, "host {host}: it is striped again");
        in_order_but_for(&world, 1, by_slots);
    }
}

#[test]
fn a_peer_that_began_anew_is_believed_whatever_the_clock_does() {
    let mut world = two_hosts(5);
    world.clocks[0] += HOUR;
    world.run(3 * S);
    world.send(1, 0, 5_000, 300);
    world.run(200 * MS);
    world.kill(1);
    world.run(5 * MS);
    world.restart(1);
    world.run(12 * MS);
    world.clocks[0] -= HOUR;
    world.run(500 * MS);
    assert_eq!(world.engine(0).counters().restarts, 1);
    world.clear();
    world.run(500 * MS);
    let seen = &world.received[&(1, 0)];
    assert!(seen.frames > 2400 && seen.out_of_order == 0, "{seen:?}");
}

#[test]
fn demand_is_not_for_ever_when_the_clock_goes_back() {
    let mut world = world(&figure4('c'), Mode::Paced, 7);
    world.window = 300;
    world.clocks[1] += HOUR;
    world.run(3 * S);
    let b = world.send(1, 0, 0, FULL);
    world.send(2, 0, 0, FULL);
    world.run(500 * MS);
    world.clocks[1] -= HOUR;
    world.stop(b);
    world.send(1, 0, 100, 300);
    world.run(500 * MS);
    world.clear();
    world.run(500 * MS);
    let c = world.rate_bps(2, 0, 500 * MS);
    assert!(c > 1.8e8, "B wants next to nothing, but C has {c}");
}

/// Sends frames as a helper of host 1 would, over link 0 or 1.
struct Imposter {
    session: u32,
    beats: u32,
}

impl Imposter {
    fn beat(&mut self, world: &mut World, link: u8, next: Seq) {
        let session = world.engine(0).status()["peers"][0]["session"].as_u64().unwrap();
        let beat = Heartbeat {
            dst: mac(0),
            src: mac(1),
            link: Some(link),
            session: self.session,
            peer_session: session as u32,
            seq: Seq(self.beats),
            time_us: (world.now / 1000) as u32,
            next_within_ms: 10,
            hears: 3,
            next,
            grant_kbps: NO_LIMIT,
            limit_kbps: NO_LIMIT,
            own: mac(1),
            peer: mac(0),
            ..Heartbeat::default()
        };
        self.beats += 1;
        let mut frame = Vec::new();
        beat.encode(&mut frame);
        world.wire_in(0, Some(Tag { vid: u16::from(link) + 1, pcp: 0 }), 0, frame);
    }

    fn data(&self, world: &mut World, link: u8, seq: Seq, count: u64) {
        let mut frame = vec![0; 100];
        frame[12..14].copy_from_slice(&[0x90, 0]);
        frame[14..22].copy_from_slice(&count.to_be_bytes());
        wire::wrap(
            &mut frame,
            &DataHead { channel: 0, flags: 0, link, session: self.session, seq, link_seq: Seq(0) },
        );
        wire::set_macs(&mut frame, mac(0), mac(1));
        world.wire_in(0, Some(Tag { vid: u16::from(link) + 1, pcp: 0 }), 0, frame);
    }
}

#[test]
fn a_peer_begins_anew_in_the_midst_of_its_sequence_and_wraps() {
    let mut world = two_hosts(11);
    world.send(1, 0, 1_000, 300);
    world.run(100 * MS);
    world.kill(1);
    world.stop(0);
    let before = world.engine(0).counters().clone();
    let mut peer = Imposter { session: 77, beats: 0 };
    let first = Seq(u32::MAX - 49);
    for _ in 0..4 {
        (0..2).for_each(|link| peer.beat(&mut world, link, first));
        world.run(10 * MS);
    }
    world.received.clear();
    assert_eq!(world.engine(0).counters().restarts, 1);
    // 100 frames arrive in pairs, each pair in the wrong order. Sequence 0, the 50th, is lost.
    for pair in 0..50u32 {
        for (link, at) in [(1, 2 * pair + 1), (0, 2 * pair)] {
            if at != 50 {
                peer.data(&mut world, link, first.add(at), at.into());
            }
        }
        if pair == 24 {
            assert_eq!(world.received[&(1, 0)].frames, 50, "everything up to the wrap");
        }
    }
    assert_eq!(world.received[&(1, 0)].frames, 50, "the others wait for the one that is missing");
    for _ in 0..20 {
        (0..2).for_each(|link| peer.beat(&mut world, link, first.add(100)));
        world.run(10 * MS);
    }
    let seen = &world.received[&(1, 0)];
    assert_eq!((seen.frames, seen.lost, seen.out_of_order), (99, 1, 0));
    assert_eq!(world.engine(0).expected_of(mac(1)), Some(Seq(50)));
    let after = world.engine(0).counters();
    assert_eq!((after.given_up - before.given_up, after.restarts, after.far_ahead), (1, 1, 0));
    assert!(after.repeat_requests_out > before.repeat_requests_out);
}

#[test]
fn sequences_wrap_under_traffic_and_nobody_notices() {
    // With the papers' weights nothing is repeated: what links lose is lost.
    for (mode, max_lost) in [(Mode::Paced, 4), (Mode::RoundRobin, 450)] {
        let nics = alike(2, &[LINK_BPS; 3]);
        let nics: Vec<&[(usize, u64)]> = nics.iter().map(Vec::as_slice).collect();
        // The sequences of heartbeats and links wrap elsewhere: a link has a third of the frames.
        let first = Seq(u32::MAX - 6_000);
        let mut world = World::with(&nics, Settings { first, ..World::usual(mode, 21) });
        for port in 1..=3 {
            let fault = Fault { loss_percent: 1.0, duplicate_percent: 1.0, ..Fault::default() };
            world.faults.insert(((1, port), (0, port)), fault);
        }
        world.run(50 * MS);
        world.send(1, 0, 15_000, 300);
        world.run(2 * S);
        world.stop(0);
        world.run(200 * MS);
        assert!(
            world.engine(0).expected_of(mac(1)).unwrap().0 < 30_000,
            "they have wrapped: {mode:?}"
        );
        let (sent, seen) = (30_000, &world.received[&(1, 0)]);
        assert_eq!((seen.out_of_order, seen.duplicates), (0, 0), "{mode:?} {seen:?}");
        assert!(seen.frames + seen.lost > sent - 20 && seen.lost <= max_lost, "{mode:?} {seen:?}");
        assert_eq!(world.engine(0).counters().far_ahead, 0);
    }
}

fn configure(world: &mut World, host: usize, generation: u32, links: &[(u8, u8, u8)]) {
    let links = links.iter().map(|&(number, own_port, peer_port)| PeerLink {
        number,
        own_port,
        peer_port,
        alive: true,
        rate_kbps: (LINK_BPS / 1000) as u32,
        limit_kbps: NO_LIMIT,
        weight_ppm: 500_000,
    });
    let body = Body::Peer { stripe: true, beside: false, links: links.collect() };
    world.control(host, Control { generation, mac: mac(1 - host), body });
}

/// Frames that host 1 has sent over its links, by number.
fn sent(world: &mut World) -> Vec<(u64, u64)> {
    let status = world.engine(1).status();
    let links = status["peers"][0]["links"].as_array().unwrap();
    links
        .iter()
        .map(|link| (link["link"].as_u64().unwrap(), link["sent"].as_u64().unwrap()))
        .collect()
}

#[test]
fn links_that_change_their_numbers_under_traffic_lose_nothing() {
    for (first, between) in [(0, 0), (0, 1), (1, 1), (0, 8), (1, 8), (0, 40), (1, 40)] {
        let mut world = two_hosts(13);
        world.send(1, 0, 10_000, 300);
        world.run(200 * MS);
        world.clear();
        for host in [first, 1 - first] {
            configure(&mut world, host, 9, &[(0, 2, 2), (1, 1, 1)]);
            world.run(between * MS);
        }
        world.run(S);
        in_order_but_for(&world, 1, world.to_slots);
        assert!(
            world.to_slots < 600,
            "{first}, {between} ms: {} by the slot table",
            world.to_slots
        );
        let before = sent(&mut world);
        world.run(100 * MS);
        let after = sent(&mut world);
        assert!(
            (0..2).all(|at| after[at].1 > before[at].1 + 100),
            "both are used: {before:?} {after:?}"
        );
    }
}

#[test]
fn a_link_that_one_host_was_told_to_forget_is_used_again() {
    for host in 0..2 {
        let mut world = two_hosts(17);
        world.send(1, 0, 10_000, 300);
        world.run(5 * S);
        world.clear();
        configure(&mut world, host, 9, &[(0, 1, 1)]);
        world.run(300 * MS);
        in_order_but_for(&world, 1, 0);
        configure(&mut world, host, 10, &[(0, 1, 1), (1, 2, 2)]);
        world.run(1500 * MS);
        in_order_but_for(&world, 1, 0);
        let before = sent(&mut world);
        world.run(100 * MS);
        let after = sent(&mut world);
        assert!(
            (0..2).all(|at| after[at].1 > before[at].1 + 100),
            "host {host}: {before:?} {after:?}"
        );
    }
}

#[test]
fn a_peer_that_one_host_was_told_to_forget_is_striped_to_again() {
    for host in 0..2 {
        let mut world = two_hosts(19);
        world.send(1, 0, 10_000, 300);
        world.run(200 * MS);
        world.control(host, Control { generation: 9, mac: mac(1 - host), body: Body::Gone });
        world.run(100 * MS);
        world.configure(host);
        configure(&mut world, host, 8, &[(0, 1, 1), (1, 2, 2)]);
        assert_eq!(
            world.engine(host).status()["peers"].as_array().unwrap().len(),
            0,
            "that control was out of date"
        );
        configure(&mut world, host, 10, &[(0, 1, 1), (1, 2, 2)]);
        world.run(300 * MS);
        world.clear();
        world.run(500 * MS);
        in_order_but_for(&world, 1, 0);
        assert!(world.received[&(1, 0)].frames > 4900, "host {host}: {:?}", world.received);
    }
}

fn small(hosts: usize, max_memory: usize) -> World {
    let nics = alike(hosts, &[LINK_BPS; 2]);
    let nics: Vec<&[(usize, u64)]> = nics.iter().map(Vec::as_slice).collect();
    let settings = world(&alike(2, &[LINK_BPS]), Mode::Paced, 23).settings;
    let mut made = World::with(&nics, Settings { max_memory, ..settings });
    for host in 1..hosts {
        // The second link takes 8 ms longer, so much has to wait.
        made.faults.insert(((host, 2), (0, 2)), Fault { delay_ns: 8 * MS, ..Fault::default() });
    }
    made.run(50 * MS);
    made
}

/// The most bytes that a host held within a second.
fn max_held(world: &mut World) -> u64 {
    let mut max = 0;
    for _ in 0..500 {
        world.run(2 * MS);
        for host in 0..world.engines.len() {
            max = max.max(world.engine(host).status()["held_bytes"].as_u64().unwrap());
        }
    }
    max
}

#[test]
fn with_next_to_no_memory_the_slow_link_is_not_waited_for() {
    let mut world = small(2, 32 << 10);
    world.send(1, 0, 5_000, 1000);
    let held = max_held(&mut world);
    assert!(held <= 32 << 10, "{held} bytes are held");
    let seen = world.received[&(1, 0)].clone();
    assert!(
        seen.out_of_order == 0 && seen.frames > 2_400 && seen.longest_gap_ns < 12 * MS,
        "{seen:?}"
    );
    assert_eq!(seen.lost, world.engine(0).counters().given_up);
}

#[test]
fn several_peers_together_hold_no_more_than_the_limit() {
    let mut world = small(6, 64 << 10);
    (1..6).for_each(|host| _ = world.send(host, 0, 3_000, 1000));
    let held = max_held(&mut world);
    assert!(held <= 64 << 10, "{held} bytes are held");
    assert!((1..6).all(|host| world.received[&(host, 0)].out_of_order == 0));
}

/// Whether a host takes its peer's broadcast with that number for a new one.
fn is_new_broadcast(world: &mut World, number: u16) -> bool {
    let session = world.engine(0).status()["peers"][0]["their_session"].as_u64().unwrap() as u32;
    let before = world.broadcasts.get(&(1, 0)).copied().unwrap_or(0);
    let mut frame = [&[0xff; 6][..], &mac(1).0, &[8, 6], &[0; 46]].concat();
    wire::wrap_broadcast(&mut frame, nic_mac(0, 1), nic_mac(1, 1), 0, session, number);
    world.wire_in(0, None, 1, frame);
    world.broadcasts.get(&(1, 0)).copied().unwrap_or(0) > before
}

#[test]
fn a_broadcast_that_is_64_late_is_known() {
    let mut world = friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 29);
    for (number, known) in [
        (100, false),
        (164, false),
        (100, true),
        (101, false),
        (101, true),
        (163, false),
        (164, true),
    ] {
        assert_eq!(is_new_broadcast(&mut world, number), !known, "{number}");
    }
}

#[test]
fn a_broadcast_number_that_is_reached_again_is_new_again() {
    let mut world = friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 29);
    // Numbers wrap round after 65,536. Copies arrive within a tenth of a second.
    for (elapsed_ms, new) in [(0, true), (90, false), (20, true), (90, false), (20, true)] {
        world.run(elapsed_ms * MS);
        assert_eq!(is_new_broadcast(&mut world, 100), new);
    }
}

#[test]
fn a_helper_that_ends_hands_its_traffic_over_and_is_found_again() {
    let mut world = two_hosts(31);
    world.send(1, 0, 10_000, 300);
    world.run(200 * MS);
    world.leave(0);
    world.run(50 * MS);
    let before = world.to_slots;
    world.run(100 * MS);
    assert!(world.to_slots >= before + 999);
    world.restart(0);
    world.run(500 * MS);
    let before = world.to_slots;
    world.run(200 * MS);
    assert_eq!(world.to_slots, before);
}

#[test]
fn repeats_that_had_no_link_are_sent_when_links_are_back() {
    let mut world = two_hosts(37);
    world.send(1, 0, 10_000, 300);
    world.run(200 * MS);
    world.clear();
    (1..=2).for_each(|port| world.cut((1, port), true));
    world.run(3 * MS);
    (1..=2).for_each(|port| world.cut((1, port), false));
    // Both carriers are gone for a moment. What is on the way has to be sent again, and then there
    // is no link for that.
    world.carriers(1, &[1, 2], false);
    world.carriers(1, &[1, 2], true);
    world.run(500 * MS);
    in_order_but_for(&world, 1, world.to_slots);
    assert!(world.to_slots < 200);
}
