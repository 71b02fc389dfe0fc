// SPDX-License-Identifier: Apache-2.0
//! Late is not dead: hosts whose CPUs are busy find no link dead and lose nothing. They still find
//! links that are dead.

use crate::common::autonomous::{alike, friends};
use crate::common::{world, Fault, World, LINK_BPS, MS, S};
use ri2n_reorder::engine::Mode;
use ri2n_reorder::Nanos;

const PPS: u64 = 2_000;
const SIZE: usize = 200;
/// How long a helper may be without CPU.
const STALL_NS: Nanos = 200 * MS;
/// Three heartbeats that are missing, as always.
const DETECTED_NS: Nanos = 31 * MS;

fn pair(autonomous: bool, mode: Mode, links: usize, seed: u64) -> World {
    let hosts = alike(2, &[LINK_BPS; 3][..links]);
    let mut world =
        if autonomous { friends(&hosts, mode, seed) } else { world(&hosts, mode, seed) };
    world.run(1500 * MS);
    world
}

fn deaths(world: &mut World) -> u64 {
    (0..2).map(|host| world.engine(host).counters().link_deaths).sum()
}

fn unharmed(world: &mut World, what: &str) {
    world.run(500 * MS);
    assert_eq!(deaths(world), 0, "{what}: links are dead");
    let counters = [0, 1].map(|host| world.engine(host).counters().clone());
    let known = |host: usize| counters[host].iter().filter(|entry| entry.1 > 0).collect::<Vec<_>>();
    for (way, seen) in &world.received {
        let state = format!("{:?}\n{:?}", known(0), known(1));
        // If a frame waited for 100 ms, CoDel may have dropped it in its queue.
        let dropped = counters[way.0].queue_drops;
        assert!(
            seen.lost == dropped && dropped <= 2 && seen.out_of_order == 0 && seen.frames > 0,
            "{what}: {way:?} {seen:?}\n{state}"
        );
    }
    assert_eq!((world.to_slots, world.overruns), (0, 0), "{what}");
    assert!(counters.iter().all(|counters| counters.given_up == 0), "{what}");
}

/// Runs a test with every kind of pair. The name is for whoever reads a failure.
fn pairs(test: impl Fn(&mut World, &str)) {
    for (autonomous, mode) in [(false, Mode::Paced), (true, Mode::Paced), (false, Mode::RoundRobin)]
    {
        for links in 1..=3 {
            for traffic in [[true, true], [true, false], [false, false]] {
                let mut world = pair(autonomous, mode, links, 3);
                for (from, _) in traffic.iter().enumerate().filter(|entry| *entry.1) {
                    world.send(from, 1 - from, PPS, SIZE);
                }
                world.run(300 * MS);
                test(
                    &mut world,
                    &format!(
                        "autonomous {autonomous}, {mode:?}, {links} links, traffic {traffic:?}"
                    ),
                );
            }
        }
    }
}

#[test]
fn a_host_without_cpu_for_200_ms_finds_nobody_dead_and_is_not() {
    for stalled in [&[0][..], &[1], &[0, 1]] {
        pairs(|world, what| {
            for _ in 0..5 {
                stalled.iter().for_each(|&host| world.stall(host, STALL_NS));
                world.run(STALL_NS + 50 * MS);
            }
            unharmed(world, &format!("{what}, {stalled:?} without CPU"));
        });
    }
}

#[test]
fn hosts_without_cpu_at_random_times_find_nobody_dead() {
    pairs(|world, what| {
        for _ in 0..60 {
            let host = world.random.next() as usize % 2;
            let (span, pause) = (world.random.next() % STALL_NS, world.random.next() % (100 * MS));
            if world.has_cpu(host) {
                world.stall(host, span);
            }
            // A host that was without CPU has some for a moment before the next time.
            world.run(pause);
            while !(world.has_cpu(0) || world.has_cpu(1)) {
                world.run(MS);
            }
            world.run(5 * MS);
        }
        unharmed(world, what);
    });
}

/// The CPU as programs that compute leave it: none for a few milliseconds in some tens.
#[test]
fn a_little_cpu_now_and_then_is_enough() {
    pairs(|world, what| {
        for turn in 0..100 {
            let (span, pause) = (world.random.next() % (20 * MS), world.random.next() % (50 * MS));
            world.stall(turn % 2, 40 * MS + span);
            world.run(5 * MS + pause);
        }
        unharmed(world, what);
    });
}

/// Cuts one of two links in one direction. Returns the time until its receiver knows.
fn detected(world: &mut World) -> Nanos {
    let before = deaths(world);
    world.faults.insert(((1, 1), (0, 1)), Fault { blackhole: true, ..Fault::default() });
    let begun = world.now;
    while deaths(world) == before {
        world.run(MS / 10);
        assert!(world.now - begun < 10 * S, "the dead link is never found");
    }
    world.now - begun
}

#[test]
fn a_dead_link_is_found_as_soon_as_ever_when_nobody_is_late() {
    for mode in [Mode::Paced, Mode::RoundRobin] {
        for late in [false, true] {
            let mut world = pair(false, mode, 2, 5);
            world.send(1, 0, PPS, SIZE);
            world.run(300 * MS);
            if late {
                // The stall was long ago.
                world.stall(0, STALL_NS);
                world.run(S);
            }
            let took_ns = detected(&mut world);
            assert!(took_ns <= DETECTED_NS, "{mode:?}, late before {late}: {took_ns} ns");
        }
    }
}

#[test]
fn a_dead_link_is_found_while_its_hosts_are_late_now_and_then() {
    let mut world = pair(false, Mode::Paced, 2, 5);
    world.send(1, 0, PPS, SIZE);
    world.run(300 * MS);
    let before = deaths(&mut world);
    world.faults.insert(((1, 1), (0, 1)), Fault { blackhole: true, ..Fault::default() });
    let begun = world.now;
    while deaths(&mut world) == before {
        let host = world.random.next() as usize % 2;
        world.stall(host, 10 * MS);
        world.run(15 * MS);
        assert!(world.now - begun < 300 * MS, "the dead link is not found");
    }
    let links = world.engine(0).counters().link_deaths;
    assert_eq!(links, 1, "the other link is not dead");
}

/// A link whose frames are held up by the load of others is late and not dead. The time that it is
/// given follows what it needs.
#[test]
fn a_link_that_is_late_again_and_again_gets_more_time() {
    let mut world = pair(false, Mode::Paced, 2, 7);
    world.send(0, 1, PPS, SIZE);
    world.run(300 * MS);
    // In this direction there are heartbeats alone.
    let delay = |world: &mut World, delay_ns| {
        world.faults.insert(((1, 1), (0, 1)), Fault { delay_ns, ..Fault::default() });
    };
    // The delay begins gently: what arrived tells what will.
    for max_ms in [5, 10, 15, 20, 25, 30, 35, 40, 45, 50] {
        for _ in 0..10 {
            delay(&mut world, max_ms * MS);
            world.run(2 * max_ms * MS);
            delay(&mut world, 0);
            world.run(20 * MS);
        }
    }
    assert_eq!(deaths(&mut world), 0);
}

/// The peer is gone altogether. Frames wait as long as always, and then take their other way.
#[test]
fn a_peer_that_is_gone_is_given_up_as_soon_as_ever() {
    for links in 1..=2 {
        let mut world = pair(false, Mode::Paced, links, 9);
        world.send(1, 0, PPS, SIZE);
        world.run(300 * MS);
        for port in 1..=2 {
            for way in [((0, port), (1, port)), ((1, port), (0, port))] {
                world.faults.insert(way, Fault { blackhole: true, ..Fault::default() });
            }
        }
        let slots = world.to_slots;
        world.run(200 * MS);
        assert_eq!(world.to_slots, slots, "the peer may come back");
        world.run(42 * MS);
        assert!(world.to_slots > slots, "{links} links: it is still waited for");
        let striped = world.engine(1).counters().link_deaths;
        assert_eq!(striped, links as u64);
    }
}

/// More is sent than the peer's queues hold while it has no CPU. Frames for a silent peer wait
/// instead.
#[test]
fn a_peer_that_is_silent_is_not_flooded() {
    for links in 1..=2 {
        let mut world = pair(false, Mode::Paced, links, 11);
        world.send(1, 0, 8_000, SIZE);
        world.run(300 * MS);
        world.stall(0, STALL_NS);
        world.run(STALL_NS + 300 * MS);
        assert_eq!((world.overruns, world.to_slots), (0, 0), "{links} links");
        let seen = &world.received[&(1, 0)];
        assert_eq!(
            (seen.lost, seen.out_of_order),
            (world.engines[1].as_ref().unwrap().counters().queue_drops, 0)
        );
    }
}

/// Frames that are missing when a host loses its CPU, and arrive meanwhile, are not lost: nobody
/// looked.
#[test]
fn frames_that_arrived_while_their_host_had_no_cpu_are_not_given_up() {
    let mut world = pair(false, Mode::RoundRobin, 2, 13);
    let longer = Fault { delay_ns: 15 * MS, ..Fault::default() };
    world.faults.insert(((1, 1), (0, 1)), longer);
    world.faults.insert(((0, 1), (1, 1)), longer);
    world.send(1, 0, PPS, SIZE);
    world.run(S);
    world.clear();
    for _ in 0..10 {
        world.stall(0, STALL_NS);
        world.run(STALL_NS + 50 * MS);
    }
    let seen = &world.received[&(1, 0)];
    assert_eq!((seen.lost, seen.out_of_order), (0, 0), "{seen:?}");
    assert_eq!(deaths(&mut world), 0);
}
