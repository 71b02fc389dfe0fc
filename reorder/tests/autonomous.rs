// SPDX-License-Identifier: Apache-2.0
//! Whole engines without a controller, on a network in memory.

use crate::common::autonomous::{alike, friends, strangers};
use crate::common::{figure4, mac, shares, World, LINK_BPS, MS, S};
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::Mode;

/// A full frame of a host with an MTU of 1,478.
const FULL: usize = 1492;

fn whole(world: &World, from: usize, to: usize) {
    let seen = &world.received[&(from, to)];
    assert_eq!((seen.lost, seen.out_of_order, seen.duplicates), (0, 0, 0), "{seen:?}");
}

/// (Link number, own port, peer's position) of each usable link of the host's first peer.
fn usable(world: &mut World, host: usize) -> Vec<(u64, u64, u64)> {
    let status = world.engine(host).status();
    let links = status["peers"][0]["links"].as_array().cloned().unwrap_or_default();
    let number = |link: &serde_json::Value, key: &str| link[key].as_u64().unwrap();
    links
        .iter()
        .filter(|link| link["usable"] == true)
        .map(|link| (number(link, "link"), number(link, "own_port"), number(link, "peer_port")))
        .collect()
}

fn weights(world: &mut World, host: usize) -> Vec<f64> {
    let status = world.engine(host).status();
    let links = status["peers"][0]["links"].as_array().unwrap().clone();
    let weights: Vec<f64> = links.iter().map(|link| link["weight_ppm"].as_f64().unwrap()).collect();
    let whole: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / whole).collect()
}

#[test]
fn two_hosts_find_each_other_at_once() {
    let mut world = strangers(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 1);
    world.run(20 * MS);
    // A number is 8 x the position of the NIC of the host with the lower MAC + the position of the
    // other's.
    assert_eq!(usable(&mut world, 0), [(0, 1, 0), (9, 2, 1)]);
    assert_eq!(usable(&mut world, 1), [(0, 1, 0), (9, 2, 1)]);
    for host in 0..2 {
        assert_eq!(world.engine(host).counters().unknown_session, 0);
    }
}

#[test]
fn links_of_hosts_with_unlike_nics_have_the_same_numbers_at_both_ends() {
    // The second host's first NIC is on the first host's second switch.
    let mut world = strangers(
        &[vec![(0, LINK_BPS), (1, LINK_BPS)], vec![(1, LINK_BPS), (0, LINK_BPS)]],
        Mode::Paced,
        1,
    );
    world.run(20 * MS);
    assert_eq!(usable(&mut world, 0), [(1, 1, 1), (8, 2, 0)]);
    assert_eq!(usable(&mut world, 1), [(1, 2, 0), (8, 1, 1)]);
}

#[test]
fn one_stream_has_the_sum_of_the_links() {
    let cases = [
        (vec![100, 100], 80),
        (vec![100, 50], 60),
        (vec![100, 100, 10], 120),
        (vec![100, 100, 100, 100], 160),
    ];
    for (rates, window) in cases {
        let rates: Vec<u64> = rates.iter().map(|mbit| mbit * 1_000_000).collect();
        let mut world = friends(&alike(2, &rates), Mode::Paced, 3);
        world.window = window;
        world.send(1, 0, 0, FULL);
        world.run(300 * MS);
        world.clear();
        world.run(S);
        whole(&world, 1, 0);
        let part = world.rate_bps(1, 0, S) / rates.iter().sum::<u64>() as f64;
        assert!(part > 0.97, "{rates:?}: {part}");
        assert_eq!(world.drops(), 0, "{rates:?}");
    }
}

#[test]
fn every_client_of_figure_4_has_its_share() {
    for name in "bcdefgh".chars() {
        let mut world = friends(&figure4(name), Mode::Paced, 5);
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
fn a_broadcast_arrives_once_at_everybody() {
    let mut world = friends(&alike(4, &[LINK_BPS; 3]), Mode::Paced, 7);
    for sent in 1..=200 {
        world.broadcast(2);
        world.run(MS);
        let heard: Vec<u64> = [0, 1, 3].iter().map(|host| world.broadcasts[&(2, *host)]).collect();
        assert_eq!(heard, [sent; 3]);
    }
    assert_eq!(world.broadcasts.get(&(2, 2)), None, "not at the sender itself");
}

#[test]
fn a_broadcast_survives_a_link_that_is_dead_and_not_yet_known_to_be() {
    let mut world = friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 9);
    world.cut((0, 1), true);
    world.broadcast(1);
    world.run(MS);
    assert_eq!(world.broadcasts[&(1, 0)], 1);
}

#[test]
fn a_nic_dies_and_comes_back_and_nothing_is_lost() {
    for nic in [(0, 1), (0, 2), (1, 1), (1, 2)] {
        let mut world = friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 11);
        world.send(1, 0, 10_000, 200);
        world.run(200 * MS);
        world.clear();
        world.cut(nic, true);
        world.run(500 * MS);
        assert_eq!(usable(&mut world, 1).len(), 1);
        world.cut(nic, false);
        world.run(1500 * MS);
        assert_eq!(usable(&mut world, 1).len(), 2);
        whole(&world, 1, 0);
        let seen = &world.received[&(1, 0)];
        assert!(seen.longest_gap_ns < 50 * MS && seen.frames >= 19_900, "{nic:?}: {seen:?}");
    }
}

#[test]
fn a_host_that_is_silent_for_ten_seconds_is_forgotten_and_met_again() {
    let mut world = friends(&alike(3, &[LINK_BPS; 2]), Mode::Paced, 13);
    let peers = |world: &mut World| world.engine(0).status()["peers"].as_array().unwrap().len();
    assert_eq!(peers(&mut world), 2);
    world.kill(1);
    world.run(9 * S);
    assert_eq!(peers(&mut world), 2, "kept for some seconds");
    world.run(6 * S);
    assert_eq!(peers(&mut world), 1);
    world.restart(1);
    world.run(1200 * MS);
    assert_eq!(peers(&mut world), 2);
    // What was learned of the host that stayed is still right.
    for from in [1, 2] {
        world.send(from, 0, 1000, 300);
    }
    world.run(S);
    for from in [1, 2] {
        whole(&world, from, 0);
        assert!(world.received[&(from, 0)].frames > 980, "{:?}", world.received);
    }
}

#[test]
fn a_helper_that_begins_anew_is_striped_to_again() {
    for host in 0..2 {
        let mut world = friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 17);
        world.send(1, 0, 5_000, 300);
        world.run(200 * MS);
        world.kill(host);
        world.run(20 * MS);
        world.restart(host);
        world.run(1500 * MS);
        world.clear();
        world.run(500 * MS);
        let seen = &world.received[&(1, 0)];
        assert!(seen.frames > 2400 && seen.out_of_order == 0, "host {host}: {seen:?}");
    }
}

/// Figure 4 (d): B has link 0 alone, and C has both. Returns C's weights after some HBSPANs.
fn weights_of_c(mode: Mode, b_pps: u64) -> (Vec<f64>, World) {
    let mut world = friends(&figure4('d'), mode, 19);
    world.send(1, 0, b_pps, FULL);
    world.send(2, 0, 10_000, FULL);
    world.run(9 * S);
    let found = weights(&mut world, 2);
    (found, world)
}

#[test]
fn ri2n_plus_counts_who_sends() {
    // Traffic of two hosts arrives by A's first NIC, and of one host by its second: 1/2 to 1.
    let (found, _) = weights_of_c(Mode::Ri2nPlus, 3_000);
    assert!((found[0] - 1.0 / 3.0).abs() < 0.01, "{found:?}");
}

#[test]
fn ri2n_plus_plus_leaves_the_crowded_link() {
    let (found, mut world) = weights_of_c(Mode::Ri2nPlusPlus, 8_000);
    assert!(found[0] < 0.2, "{found:?}");
    world.clear();
    world.run(2 * S);
    let both = world.rate_bps(1, 0, 2 * S) + world.rate_bps(2, 0, 2 * S);
    assert!(both > 0.85 * 2e8, "the paper: 0.85 of the optimum, here {}", both / 2e8);
    // B stops: the weights even out.
    world.stop(0);
    world.run(12 * S);
    let found = weights(&mut world, 2);
    println!("after B stopped: {found:?}");
    assert!(found[0] > 0.35, "{found:?}");
}

#[test]
fn a_nic_that_joins_late_begins_with_its_part_of_the_weight() {
    // After an HBSPAN, weights are parts of a million. A rate in kbit/s must not stand beside them.
    for mode in [Mode::RoundRobin, Mode::Ri2nPlus, Mode::Ri2nPlusPlus] {
        for late_bps in [LINK_BPS, 100 * LINK_BPS] {
            let mut world = friends(&alike(2, &[late_bps]), mode, 29);
            world.send(1, 0, 500, 1000);
            world.run(800 * MS);
            world.clear();
            (0..2).for_each(|host| world.add_nic(host, 1, late_bps));
            world.run(1500 * MS);
            assert_eq!(usable(&mut world, 1).len(), 2);
            let found = weights(&mut world, 1);
            assert!((found[0] - 0.5).abs() < 0.01, "{mode:?}, {late_bps} bit/s: {found:?}");
            whole(&world, 1, 0);
        }
    }
}

#[test]
fn a_nic_that_gets_slower_keeps_a_weight_of_its_own_kind() {
    let mut world = friends(&alike(2, &[LINK_BPS; 2]), Mode::RoundRobin, 31);
    world.run(800 * MS);
    world.set_rate(0, 2, LINK_BPS / 2);
    world.run(1500 * MS);
    let found = weights(&mut world, 1);
    assert!((found[0] - 2.0 / 3.0).abs() < 0.01, "{found:?}");
    world.run(S);
    let found = weights(&mut world, 1);
    assert!((found[0] - 0.5).abs() < 0.01, "equal again after the HBSPAN: {found:?}");
}

#[test]
fn nobody_learns_of_the_host_itself() {
    let mut world = friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 23);
    let status = world.engine(0).status();
    let macs: Vec<&str> = status["peers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|peer| peer["mac"].as_str().unwrap())
        .collect();
    assert_eq!(macs, [mac(1).to_string()]);
}
