// SPDX-License-Identifier: Apache-2.0
//! Whoever greets in the names of thousands of hosts takes little from those that are there, and
//! keeps nobody out.

use crate::common::autonomous::{alike, friends, strangers};
use crate::common::{mac, Random, World, LINK_BPS, MS, S};
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::Mode;
use ri2n_reorder::wire::{Heartbeat, Mac};

const FULL: usize = 1492;

fn some_mac(random: &mut Random) -> Mac {
    let bytes = random.next().to_be_bytes();
    Mac([2, 7, bytes[2], bytes[3], bytes[4], bytes[5]])
}

/// Sends 5,000 greetings a second for `millis`, to every host and by every NIC in turn.
fn flood(world: &mut World, random: &mut Random, millis: usize) {
    for _ in 0..millis {
        for at in 0..5 {
            let (own, nic) = (some_mac(random), some_mac(random));
            let greeting = Heartbeat {
                dst: Mac::BROADCAST,
                src: nic,
                session: 9,
                next_within_ms: 1000,
                cnt: at % 8,
                limit_kbps: 100_000,
                own,
                ..Heartbeat::default()
            };
            let mut frame = Vec::new();
            greeting.encode(&mut frame);
            for host in 0..world.engines.len() {
                world.wire_in(host, None, 1 + at as u8 % 2, frame.clone());
            }
        }
        world.run(MS);
    }
}

fn peers(world: &mut World, host: usize) -> Vec<String> {
    let status = world.engine(host).status();
    status["peers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|peer| peer["mac"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_flood_of_greetings_takes_little_from_those_that_are_there() {
    let mut world = friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 7);
    let mut random = Random(11);
    world.window = 80;
    world.send(1, 0, 0, FULL);
    world.run(300 * MS);
    world.clear();
    let before = world.engine(1).counters().heartbeats_out;
    flood(&mut world, &mut random, 1000);
    let part = world.rate_bps(1, 0, S) / 2e8;
    let replies = world.engine(1).counters().heartbeats_out - before;
    let known = peers(&mut world, 1).len();
    println!("{part:.3} of the links, {replies} heartbeats, {known} peers");
    assert!(part > 0.93, "{part}");
    assert!(known <= 40, "each of {known} peers costs time in every turn");
    assert!(replies < 3_000, "{replies} frames to those who are not there");
    assert!(peers(&mut world, 1).contains(&mac(0).to_string()));
}

#[test]
fn helpers_that_start_during_a_flood_find_each_other() {
    for seed in 1..3 {
        let mut world = strangers(&alike(3, &[LINK_BPS; 2]), Mode::Paced, seed);
        let mut random = Random(100 + seed);
        flood(&mut world, &mut random, 6_000);
        for host in 0..3 {
            let known = peers(&mut world, host);
            for other in (0..3).filter(|other| *other != host) {
                assert!(
                    known.contains(&mac(other).to_string()),
                    "seed {seed}: {host} does not know {other}"
                );
            }
        }
        // The two hosts stay together.
        world.send(1, 0, 1_000, 500);
        world.clear();
        flood(&mut world, &mut random, 1_000);
        let seen = &world.received[&(1, 0)];
        assert!(seen.lost == 0 && seen.frames > 900, "seed {seed}: {seen:?}");
    }
}
