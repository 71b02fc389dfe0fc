// SPDX-License-Identifier: Apache-2.0
//! How often a helper wakes: about once for each frame, whatever its NICs are, and whatever links
//! share them.

use crate::common::{world, World, MS, S};
use ri2n_reorder::engine::Mode;
use ri2n_reorder::wire::NO_LIMIT;

const FULL: usize = 1492;
const MBIT: u64 = 1_000_000;
/// The most turns for each frame that is sent or arrives.
const BOUND: f64 = 2.0;

/// Turns, and frames of all kinds that arrived from either side or were sent.
fn counted(world: &mut World, host: usize) -> [u64; 2] {
    let counters = world.engine(host).counters();
    [counters.wakes, counters.frames()]
}

/// Turns for each frame of both hosts, in a second in which they send what they can.
fn wakes_per_frame(world: &mut World) -> [f64; 2] {
    world.run(300 * MS);
    let before = [0, 1].map(|host| counted(world, host));
    world.run(S);
    [0, 1].map(|host| {
        let after = counted(world, host);
        (after[0] - before[host][0]) as f64 / (after[1] - before[host][1]) as f64
    })
}

#[test]
fn a_helper_wakes_at_most_twice_for_a_frame() {
    for mode in [Mode::Paced, Mode::RoundRobin] {
        for rates in [&[100, 100][..], &[100, 40], &[100, 20, 70], &[10, 100]] {
            // All NICs are on one switch, so each pair of NICs is a link, and links share NICs.
            for shared in [false, true] {
                let nic = |(at, rate): (usize, &u64)| (if shared { 0 } else { at }, rate * MBIT);
                let nics: Vec<(usize, u64)> = rates.iter().enumerate().map(nic).collect();
                for both_ways in [false, true] {
                    let mut world = world(&[nics.clone(), nics.clone()], mode, 3);
                    world.run(50 * MS);
                    world.window = 64;
                    world.send(1, 0, 0, FULL);
                    if both_ways {
                        world.send(0, 1, 0, FULL);
                    }
                    let found = wakes_per_frame(&mut world);
                    let what = format!(
                        "{mode:?} {rates:?} shared {shared}, both ways {both_ways}: {found:.2?}"
                    );
                    println!("{what}");
                    assert!(found.iter().all(|wakes| *wakes <= BOUND), "{what}");
                }
            }
        }
    }
}

/// A path table lets one of the links carry nothing.
#[test]
fn a_link_that_may_carry_nothing_wakes_nobody() {
    let nics = vec![(0, 100 * MBIT), (1, 40 * MBIT)];
    let mut world = world(&[nics.clone(), nics], Mode::Paced, 5);
    world.introduce_peer(0, 1, &[0, NO_LIMIT]);
    world.introduce_peer(1, 0, &[0, NO_LIMIT]);
    world.run(50 * MS);
    world.send(1, 0, 0, FULL);
    let found = wakes_per_frame(&mut world);
    assert!(found.iter().all(|wakes| *wakes <= BOUND), "{found:.2?}");
}
