// SPDX-License-Identifier: Apache-2.0
//! Whole engines on a network in memory: order, repair, rates, faults, sessions.

use crate::common::{figure4, mac, shares, world, Fault, World, LINK_BPS, MS, S};
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::Mode;
use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::{self, DataHead, Tag, NO_LIMIT};

/// A full frame of a host with an MTU of 1,478.
const FULL: usize = 1492;

fn two_hosts(rates: &[u64], seed: u64) -> World {
    let nics: Vec<(usize, u64)> = rates.iter().enumerate().map(|(at, rate)| (at, *rate)).collect();
    let mut made = world(&[nics.clone(), nics], Mode::Paced, seed);
    made.run(50 * MS);
    made
}

fn whole(world: &World, from: usize, to: usize) {
    let seen = &world.received[&(from, to)];
    assert_eq!((seen.lost, seen.out_of_order), (0, 0), "{seen:?}");
}

#[test]
fn one_stream_has_the_sum_of_its_links() {
    // These windows are as TCP would find them: enough for the way of the slowest link, but with no
    // wait of 5 ms for CoDel.
    let cases = [
        (vec![100, 100], 80),
        (vec![100, 50], 60),
        (vec![100, 100, 10], 120),
        (vec![100, 100, 100, 100], 160),
    ];
    for (rates, window) in cases {
        let rates: Vec<u64> = rates.iter().map(|mbit| mbit * 1_000_000).collect();
        let mut world = two_hosts(&rates, 3);
        world.window = window;
        world.send(1, 0, 0, FULL);
        world.run(300 * MS);
        world.clear();
        world.run(S);
        whole(&world, 1, 0);
        let sum: u64 = rates.iter().sum();
        let part = world.rate_bps(1, 0, S) / sum as f64;
        assert!(part > 0.97, "{rates:?}: {part}");
        assert_eq!(world.drops(), 0, "{rates:?}");
    }
}

#[test]
fn each_way_has_limits_of_its_own() {
    let mut world = two_hosts(&[LINK_BPS, LINK_BPS], 7);
    world.introduce_peer(0, 1, &[0, 40_000]);
    world.introduce_peer(1, 0, &[70_000, 0]);
    world.send(0, 1, 0, FULL);
    world.send(1, 0, 0, FULL);
    world.run(300 * MS);
    world.clear();
    world.run(S);
    for (from, to, limit) in [(0, 1, 40e6), (1, 0, 70e6)] {
        let part = world.rate_bps(from, to, S) / limit;
        assert!((0.93..=1.01).contains(&part), "{from} to {to}: {part}");
    }
}

#[test]
fn every_client_of_figure_4_has_its_share() {
    for name in "bcdefgh".chars() {
        let mut world = world(&figure4(name), Mode::Paced, 5);
        world.run(50 * MS);
        let clients = shares(name);
        for client in 1..=clients.len() {
            world.send(client, 0, 0, FULL);
        }
        world.run(500 * MS);
        world.clear();
        world.run(S);
        for (client, share) in clients.iter().enumerate() {
            whole(&world, client + 1, 0);
            let part = world.rate_bps(client + 1, 0, S) / share;
            assert!(part > 0.95, "{name}: client {client} has {part}");
        }
        assert_eq!(world.drops(), 0, "{name}");
    }
}

#[test]
fn a_share_that_falls_free_is_used_and_given_back() {
    let mut world = world(&figure4('f'), Mode::Paced, 7);
    world.run(50 * MS);
    let sources: Vec<usize> = (1..=3).map(|client| world.send(client, 0, 0, FULL)).collect();
    world.run(500 * MS);
    world.stop(sources[0]);
    world.run(50 * MS);
    world.clear();
    world.run(100 * MS);
    let both = world.rate_bps(2, 0, 100 * MS) + world.rate_bps(3, 0, 100 * MS);
    assert!(both > 0.95 * 2e8, "C and D have {both}");
    world.start(sources[0]);
    world.run(100 * MS);
    world.clear();
    world.run(100 * MS);
    for client in 1..=3 {
        let part = world.rate_bps(client, 0, 100 * MS) / (2e8 / 3.0);
        assert!((0.9..1.1).contains(&part), "client {client} has {part}");
    }
}

#[test]
fn a_dead_link_loses_nothing_and_holds_up_nothing_for_long() {
    for (from_port, both_ways) in [(1, true), (2, true), (1, false)] {
        let mut world = two_hosts(&[LINK_BPS; 2], 11);
        world.send(1, 0, 10_000, 200);
        world.run(200 * MS);
        world.clear();
        let dead = Fault { blackhole: true, ..Fault::default() };
        world.faults.insert(((1, from_port), (0, from_port)), dead);
        if both_ways {
            world.faults.insert(((0, from_port), (1, from_port)), dead);
        }
        world.run(500 * MS);
        whole(&world, 1, 0);
        assert!(world.received[&(1, 0)].longest_gap_ns < 50 * MS, "{:?}", world.received);
        world.faults.clear();
        world.run(1500 * MS);
        whole(&world, 1, 0);
        let before = world.engine(1).status()["peers"][0]["links"][usize::from(from_port) - 1]
            ["sent"]
            .as_u64();
        world.run(200 * MS);
        let after = world.engine(1).status()["peers"][0]["links"][usize::from(from_port) - 1]
            ["sent"]
            .as_u64();
        assert!(
            after > before,
            "the link is used again: {:#} {:#}",
            world.engine(1).status()["peers"],
            world.engine(0).status()["peers"]
        );
    }
}

/// The controller allows one link alone, as a path table of a fat tree does. The other link is
/// there.
#[test]
fn a_link_that_may_carry_nothing_takes_over_when_the_one_that_may_is_dead() {
    let mut world = two_hosts(&[LINK_BPS; 2], 12);
    world.introduce_peer(0, 1, &[NO_LIMIT, 0]);
    world.introduce_peer(1, 0, &[NO_LIMIT, 0]);
    let sent = |world: &mut World| {
        world.engine(1).status()["peers"][0]["links"][1]["sent"].as_u64().unwrap_or(0)
    };
    world.run(50 * MS);
    world.send(1, 0, 10_000, 1_000);
    world.run(200 * MS);
    assert_eq!(sent(&mut world), 0, "the link may carry nothing");
    world.clear();
    let dead = Fault { blackhole: true, ..Fault::default() };
    world.faults.insert(((1, 1), (0, 1)), dead);
    world.faults.insert(((0, 1), (1, 1)), dead);
    world.run(500 * MS);
    whole(&world, 1, 0);
    assert!(world.received[&(1, 0)].longest_gap_ns < 50 * MS, "{:?}", world.received);
    world.faults.clear();
    world.run(1500 * MS);
    whole(&world, 1, 0);
    let before = sent(&mut world);
    world.run(200 * MS);
    assert_eq!(sent(&mut world), before, "the link may carry nothing again");
}

#[test]
fn losses_duplicates_and_damage_are_made_good() {
    for seed in 1..6 {
        let mut world = two_hosts(&[LINK_BPS; 2], seed);
        let fault = Fault { loss_percent: 1.0, duplicate_percent: 1.0, ..Fault::default() };
        for port in 1..=2 {
            world.faults.insert(((1, port), (0, port)), fault);
        }
        world.send(1, 0, 5_000, 300);
        world.run(2 * S);
        whole(&world, 1, 0);
        let counters = world.engine(0).counters();
        assert!(counters.duplicate + counters.old > 20);
        assert!(world.engine(1).counters().repeated_out > 50);
    }
}

#[test]
fn links_of_very_different_delay_keep_the_order() {
    let mut world = two_hosts(&[LINK_BPS; 2], 13);
    world.faults.insert(((1, 2), (0, 2)), Fault { delay_ns: 8 * MS, ..Fault::default() });
    world.send(1, 0, 5_000, 1000);
    world.run(2 * S);
    whole(&world, 1, 0);
    assert_eq!(
        world.engine(1).counters().repeated_out,
        0,
        "nothing was lost, so nothing is asked for"
    );
}

#[test]
fn the_last_frames_of_a_burst_are_repeated_too() {
    let mut world = two_hosts(&[LINK_BPS; 2], 17);
    let source = world.send(1, 0, 1_000, 300);
    world.run(100 * MS);
    let dead = Fault { blackhole: true, ..Fault::default() };
    for port in 1..=2 {
        world.faults.insert(((1, port), (0, port)), dead);
    }
    world.run(5 * MS);
    world.stop(source);
    world.faults.clear();
    world.run(200 * MS);
    let sent = world.engine(1).counters().data_out;
    assert_eq!(world.received[&(1, 0)].frames, sent, "{:?}", world.received);
    whole(&world, 1, 0);
}

#[test]
fn a_killed_peer_is_left_and_found_again() {
    let mut world = two_hosts(&[LINK_BPS; 2], 19);
    world.send(1, 0, 5_000, 300);
    world.run(200 * MS);
    world.kill(0);
    world.run(50 * MS);
    assert!(world.to_slots > 0, "frames that come back go by the slot table");
    let before = world.to_slots;
    world.run(100 * MS);
    assert!(world.to_slots >= before + 490, "so does everything after it");
    world.restart(0);
    world.run(500 * MS);
    world.clear();
    let before = world.to_slots;
    world.run(500 * MS);
    assert_eq!(world.to_slots, before, "it is striped again");
    assert!(world.received[&(1, 0)].frames > 2400);
}

#[test]
fn a_restarted_sender_is_taken_over() {
    let mut world = two_hosts(&[LINK_BPS; 2], 23);
    world.send(1, 0, 5_000, 300);
    world.run(200 * MS);
    world.kill(1);
    world.run(20 * MS);
    world.restart(1);
    world.run(500 * MS);
    assert_eq!(world.engine(0).counters().restarts, 1);
    world.clear();
    world.run(500 * MS);
    let seen = &world.received[&(1, 0)];
    assert!(seen.frames > 2400 && seen.out_of_order == 0, "{seen:?}");
}

#[test]
fn a_replayed_or_forged_frame_costs_a_counter_and_no_more() {
    let mut world = two_hosts(&[LINK_BPS; 2], 29);
    world.send(1, 0, 1_000, 300);
    world.run(200 * MS);
    let tag = Some(Tag { vid: 1, pcp: 0 });
    let mut data = vec![0u8; 100];
    let head =
        DataHead { channel: 0, flags: 0, link: 0, session: 99, seq: Seq(0), link_seq: Seq(0) };
    wire::wrap(&mut data, &head);
    wire::set_macs(&mut data, mac(0), mac(1));
    world.wire_in(0, tag, 1, data.clone());
    assert_eq!(world.engine(0).counters().unknown_session, 1);
    let session = world.engine(1).status()["peers"][0]["session"].as_u64().unwrap() as u32;
    for (seq, counter) in [(Seq(0), "old"), (Seq(0x4000_0000), "doubted")] {
        let mut data = vec![0u8; 100];
        wire::wrap(&mut data, &DataHead { session, seq, ..head });
        wire::set_macs(&mut data, mac(0), mac(1));
        world.wire_in(0, tag, 1, data);
        let counters = world.engine(0).counters().clone();
        assert_eq!(counters.iter().find(|entry| entry.0 == counter).unwrap().1, 1, "{counter}");
    }
    let mut control = Vec::new();
    let gone = wire::Control { generation: u32::MAX, mac: mac(1), body: wire::Body::Gone };
    gone.encode(&mut control);
    world.wire_in(0, tag, 1, control);
    assert_eq!(world.engine(0).counters().forged_control, 1);
    world.clear();
    world.run(500 * MS);
    whole(&world, 1, 0);
    assert!(world.received[&(1, 0)].frames > 490);
}

#[test]
fn a_plain_host_keeps_its_part_of_a_link() {
    // B has no helper and sends 40 Mbit/s. It might want a quarter more, so C has the rest.
    let mut world = world(&figure4('d'), Mode::Paced, 31);
    world.make_plain(1);
    world.run(50 * MS);
    world.send(1, 0, 4_000, 1250);
    world.send(2, 0, 0, FULL);
    world.run(S);
    world.clear();
    world.run(S);
    let c = world.rate_bps(2, 0, S);
    let b = world.rate_bps(1, 0, S);
    whole(&world, 2, 0);
    assert!(b > 0.39e8, "B has {b}");
    assert!(c > 1.4e8, "C has {c}");
}

#[test]
fn weights_alone_send_by_weights() {
    let mut world = world(
        &[vec![(0, LINK_BPS), (1, LINK_BPS)], vec![(0, LINK_BPS), (1, LINK_BPS)]],
        Mode::RoundRobin,
        37,
    );
    world.run(50 * MS);
    world.send(1, 0, 10_000, 1000);
    world.run(S);
    whole(&world, 1, 0);
    let status = world.engine(1).status();
    let sent: Vec<u64> =
        (0..2).map(|at| status["peers"][0]["links"][at]["sent"].as_u64().unwrap()).collect();
    assert!(sent[0].abs_diff(sent[1]) < 20, "{sent:?}");
}
