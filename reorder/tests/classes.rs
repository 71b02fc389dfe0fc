// SPDX-License-Identifier: Apache-2.0
//! Jobs' classes between helpers, in a simulated cluster: a channel uses only its links, keeps its
//! rates, and is not disturbed by others.

use crate::common::jobs::channel;
use crate::common::{self, world, Fault, World, LINK_BPS, MS, S};
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::Mode;
use ri2n_reorder::wire::PeerChannel;

const TAG: u32 = 0x5eed_0001;
const FULL: usize = 1492;

/// Two hosts with this many links, each of `LINK_BPS`.
fn pair(links: usize, seed: u64) -> World {
    let nics: Vec<(usize, u64)> = (0..links).map(|switch| (switch, LINK_BPS)).collect();
    world(&[nics.clone(), nics], Mode::Paced, seed)
}

fn clean(world: &World, source: usize) {
    let seen = &world.sources[source].seen;
    assert_eq!((seen.lost, seen.out_of_order, seen.duplicates), (0, 0, 0), "source {source}");
}

fn counter(world: &mut World, host: usize, name: &str) -> u64 {
    world.engine(host).counters().iter().find(|entry| entry.0 == name).unwrap().1
}

#[test]
fn a_job_uses_its_links_and_no_others() {
    let mut world = pair(3, 1);
    world.tell_both(0, 1, &[channel(5, TAG, 0b010)]);
    world.run(50 * MS);
    let there = world.send_in(5, 0, 1, 0, FULL);
    let back = world.send_in(5, 1, 0, 0, FULL);
    world.run(100 * MS);
    world.clear();
    world.run(S);
    for (source, host) in [(there, 0), (back, 1)] {
        clean(&world, source);
        let rate = world.sources[source].rate_bps(S);
        assert!(rate > 0.95 * LINK_BPS as f64, "{rate} of one link's");
        let carried = world.carried_by(host, 5, 3);
        assert!(carried[0] == 0 && carried[2] == 0 && carried[1] > 7_000, "{carried:?}");
    }
    assert_eq!(counter(&mut world, 1, "lost_on_links"), 0);
}

#[test]
fn frames_of_no_job_have_what_a_job_leaves_and_a_job_is_not_disturbed() {
    let mut world = pair(2, 2);
    world.tell_both(0, 1, &[channel(5, TAG, 0b10)]);
    world.run(50 * MS);
    // The link of the job works; the other one loses frames, and eight streams want everything.
    for (from, to) in [(0, 1), (1, 0)] {
        let fault = Fault { loss_percent: 5.0, ..Fault::default() };
        world.faults.insert(((from, 1), (to, 1)), fault);
    }
    let others: Vec<usize> = (0..8).map(|_| world.send(0, 1, 0, FULL)).collect();
    let job = world.send_in(5, 0, 1, 1_000, 200);
    world.run(200 * MS);
    world.clear();
    world.run(2 * S);
    clean(&world, job);
    let seen = &world.sources[job].seen;
    assert!(seen.frames.abs_diff(2_000) <= 5, "{seen:?}");
    assert!(seen.longest_gap_ns < 4 * MS, "{} ns between two frames", seen.longest_gap_ns);
    let rest: f64 = others.iter().map(|other| world.sources[*other].rate_bps(2 * S)).sum();
    assert!(rest > 0.85 * 2.0 * LINK_BPS as f64, "{rest} for the others");
    assert!(counter(&mut world, 1, "repeated_in") > 100, "frames of no job were lost");
    assert_eq!(world.channel_of(0, 1, 5)["drops"], 0);
}

#[test]
fn the_backlog_of_one_job_does_not_delay_another() {
    let mut world = pair(1, 3);
    world.window = 2_000;
    world.tell_both(0, 1, &[channel(5, TAG, 1), channel(6, TAG + 1, 1)]);
    world.run(50 * MS);
    let greedy = world.send_in(5, 0, 1, 0, FULL);
    world.run(100 * MS);
    assert!(world.channel_of(0, 1, 5)["queue_bytes"].as_u64().unwrap() > 500_000);
    let other = world.send_in(6, 0, 1, 1_000, 100);
    world.run(20 * MS);
    world.clear();
    world.run(S);
    clean(&world, other);
    let seen = &world.sources[other].seen;
    assert!(seen.frames.abs_diff(1_000) <= 2 && seen.longest_gap_ns < 2 * MS, "{seen:?}");
    assert!(world.sources[greedy].seen.bytes > 10_000_000);
}

#[test]
fn jobs_that_flood_their_queues_leave_memory_for_the_others() {
    let mut world = pair(1, 15);
    let mut channels: Vec<PeerChannel> = (1..48)
        .map(|n| PeerChannel { max_kbps: 500, ..channel(n, TAG + u32::from(n), 1) })
        .collect();
    channels.push(channel(60, TAG, 1));
    world.tell_both(0, 1, &channels);
    world.run(50 * MS);
    for number in 1..48 {
        world.send_in(number, 0, 1, 2_000, 1_000);
    }
    let other = world.send_in(60, 0, 1, 1_000, 200);
    world.run(S);
    world.clear();
    world.run(300 * MS);
    clean(&world, other);
    let seen = &world.sources[other].seen;
    // It waits for one frame of each of the others, 47 times 80 us, at most.
    assert!(seen.frames.abs_diff(300) <= 5 && seen.longest_gap_ns < 6 * MS, "{seen:?}");
    let now = world.clock(0);
    assert!(world.engine(0).wants_plain(now), "{}", world.engine(0).status()["held_bytes"]);
    assert!(counter(&mut world, 0, "queue_full") > 1_000);
}

#[test]
fn jobs_share_a_link_by_bytes_whatever_their_frames_are() {
    let mut world = pair(1, 4);
    world.window = 64;
    let channels: Vec<PeerChannel> = (1..=3).map(|n| channel(n, TAG + u32::from(n), 1)).collect();
    world.tell_both(0, 1, &channels);
    world.run(50 * MS);
    let sizes = [(0, FULL), (1, 300), (2, FULL), (3, 777)];
    let sources = sizes.map(|(number, size)| world.send_in(number, 0, 1, 0, size));
    world.run(200 * MS);
    world.clear();
    world.run(2 * S);
    println!("{:#}", world.engine(0).status()["peers"][0]["channels"]);
    for s in sources {
        println!("{:?}", world.sources[s].seen);
    }
    let rates = sources.map(|source| world.sources[source].rate_bps(2 * S));
    let mean = rates.iter().sum::<f64>() / 4.0;
    assert!(rates.iter().all(|rate| (rate / mean - 1.0).abs() < 0.03), "{rates:?}");
    assert!(4.0 * mean > 0.9 * LINK_BPS as f64, "{rates:?}");
}

/// A job with a guaranteed rate of 40 % of a link, beside eight streams that want everything.
/// Returns the job's rate, in parts of what was guaranteed.
fn guaranteed(mut world: World, pps: u64, streams: &[(usize, usize)]) -> f64 {
    let min_kbps = 40_000;
    let job = PeerChannel { min_kbps, ..channel(5, TAG, u64::MAX) };
    world.tell_both(0, 1, &[job]);
    world.run(50 * MS);
    for (from, to) in streams {
        world.send(*from, *to, 0, FULL);
    }
    world.run(200 * MS);
    let source = world.send_in(5, 0, 1, pps, FULL);
    world.run(300 * MS);
    world.clear();
    world.run(2 * S);
    let rest: f64 = world.sources.iter().map(|source| source.rate_bps(2 * S)).sum();
    assert!(rest > 0.9 * LINK_BPS as f64, "{rest} bit/s in all");
    world.sources[source].rate_bps(2 * S) / (f64::from(min_kbps) * 1e3)
}

/// Frames per second at 40 Mbit/s.
const GUARANTEED_PPS: u64 = 40_000_000 / (8 * FULL as u64);

#[test]
fn a_guaranteed_rate_is_kept_beside_eight_streams_to_the_same_host() {
    let got = guaranteed(pair(1, 5), GUARANTEED_PPS, &[(0, 1); 8]);
    assert!((got - 1.0).abs() < 0.03, "{got} of its guaranteed rate");
    // A job that wants more has its part of the rest, which is a half.
    let got = guaranteed(pair(1, 6), 0, &[(0, 1); 8]);
    assert!(got > 0.97 && (got - 1.7).abs() < 0.1, "{got} of its guaranteed rate");
}

#[test]
fn a_guaranteed_rate_is_kept_beside_eight_streams_to_other_hosts() {
    let hosts: Vec<Vec<(usize, u64)>> = (0..10).map(|_| vec![(0, LINK_BPS)]).collect();
    let streams: Vec<(usize, usize)> = (2..10).map(|to| (0, to)).collect();
    for (seed, pps) in [(7, GUARANTEED_PPS), (8, 0)] {
        let got = guaranteed(world(&hosts, Mode::Paced, seed), pps, &streams);
        assert!(got > 0.97 && (pps == 0 || got < 1.03), "{got} of its guaranteed rate");
    }
}

#[test]
fn a_guaranteed_rate_is_kept_beside_eight_streams_from_other_hosts() {
    let hosts: Vec<Vec<(usize, u64)>> = (0..10).map(|_| vec![(0, LINK_BPS)]).collect();
    let streams: Vec<(usize, usize)> = (2..10).map(|from| (from, 1)).collect();
    for (seed, pps) in [(9, GUARANTEED_PPS), (10, 0)] {
        let got = guaranteed(world(&hosts, Mode::Paced, seed), pps, &streams);
        assert!(got > 0.97 && (pps == 0 || got < 1.03), "{got} of its guaranteed rate");
    }
}

#[test]
fn an_exclusive_job_has_its_links_alone_whoever_sends_beside_it() {
    let nics: Vec<(usize, u64)> = (0..2).map(|switch| (switch, LINK_BPS)).collect();
    let mut world = world(&vec![nics; 4], Mode::Paced, 14);
    let common = |links| PeerChannel { links, ..channel(0, 0, 0) };
    // The job's hosts are 0 and 1, and the second link is the job's.
    for host in 0..4usize {
        for other in 0..4usize {
            if host != other {
                let both = [common(0b01), channel(5, TAG, 0b10)];
                let jobs = host < 2 && other < 2;
                let concerned = host < 2 || other < 2;
                let told = if jobs { &both[..] } else { &both[..usize::from(concerned)] };
                world.tell_channels(host, other, told);
            }
        }
    }
    world.run(50 * MS);
    let job = world.send_in(5, 0, 1, 0, FULL);
    let streams = [(0, 1), (2, 1), (3, 1), (0, 2)].map(|(from, to)| world.send(from, to, 0, FULL));
    world.run(300 * MS);
    world.clear();
    world.run(2 * S);
    clean(&world, job);
    let rate = world.sources[job].rate_bps(2 * S);
    assert!(rate > 0.96 * LINK_BPS as f64, "{rate} for the job");
    let carried: Vec<Vec<u64>> = (0..4).map(|host| world.carried_by(host, 0, 2)).collect();
    assert!(carried.iter().all(|links| links[1] == 0), "{carried:?}");
    assert_eq!(world.carried_by(0, 5, 1), [0]);
    let to_one: f64 =
        streams[..3].iter().map(|source| world.sources[*source].rate_bps(2 * S)).sum();
    assert!(to_one > 0.9 * LINK_BPS as f64, "{to_one} for the others");
    // When the job ends, everybody has both links again.
    world.stop(job);
    for host in 0..4 {
        (0..4)
            .filter(|other| *other != host)
            .for_each(|other| world.tell_channels(host, other, &[]));
    }
    world.run(200 * MS);
    world.clear();
    world.run(S);
    let to_one: f64 = streams[..3].iter().map(|source| world.sources[*source].rate_bps(S)).sum();
    assert!(to_one > 1.8 * LINK_BPS as f64, "{to_one} for the others");
}

#[test]
fn a_highest_rate_is_kept_in_every_second() {
    for (seed, links, streams) in [(11, 2, 0), (12, 1, 8), (13, 2, 8)] {
        let max_kbps = 30_000;
        let mut world = pair(links, seed);
        world.window = 256;
        world.tell_both(0, 1, &[PeerChannel { max_kbps, min_kbps: 20_000, ..channel(5, TAG, 3) }]);
        world.run(50 * MS);
        let job = world.send_in(5, 0, 1, 0, FULL);
        world.sources[job].log = Some(Vec::new());
        for _ in 0..streams {
            world.send(0, 1, 0, FULL);
        }
        world.run(S);
        // A pause saves nothing up.
        world.stop(job);
        world.run(700 * MS);
        world.start(job);
        world.clear();
        world.run(3 * S);
        let max_bps = f64::from(max_kbps) * 1e3;
        let (highest, mean) =
            (world.sources[job].highest_bps(), world.sources[job].rate_bps(3 * S));
        assert!(highest < 1.02 * max_bps, "{highest} bit/s in a second");
        let least = if streams == 0 { 0.98 } else { 0.97 * 20.0 / 30.0 };
        assert!(mean > least * max_bps, "{mean} bit/s beside {streams} streams");
        let rest: f64 = world.sources[1..].iter().map(|source| source.rate_bps(3 * S)).sum();
        let room = links as f64 * LINK_BPS as f64 - mean;
        assert!(streams == 0 || rest > 0.93 * room, "{rest} of {room} for the others");
    }
}

#[test]
fn what_is_lost_on_a_jobs_links_is_sent_again_over_them() {
    let mut world = pair(3, 21);
    world.tell_both(0, 1, &[channel(5, TAG, 0b110)]);
    for port in 1..=3 {
        let fault = Fault { loss_percent: 2.0, ..Fault::default() };
        world.faults.insert(((0, port), (1, port)), fault);
    }
    world.run(50 * MS);
    let job = world.send_in(5, 0, 1, 3_000, 1_000);
    let other = world.send(0, 1, 3_000, 1_000);
    world.run(3 * S);
    world.stop(job);
    world.stop(other);
    world.run(200 * MS);
    for source in [job, other] {
        clean(&world, source);
        assert_eq!(world.sources[source].seen.frames, 9_001);
        let gap = world.sources[source].seen.longest_gap_ns;
        assert!(gap < 30 * MS, "{gap} ns between two frames");
    }
    let carried = world.carried_by(0, 5, 3);
    assert!(carried[0] == 0 && carried[1] + carried[2] > 9_050, "{carried:?}");
}

#[test]
fn a_loss_is_found_by_the_jobs_links_alone() {
    // The job has one link, which loses frames. The other links, which carry nothing, have nothing
    // to say about it, so nothing waits for them.
    let mut world = pair(3, 22);
    world.tell_both(0, 1, &[channel(5, TAG, 0b010)]);
    let fault = Fault { loss_percent: 1.0, ..Fault::default() };
    world.faults.insert(((0, 2), (1, 2)), fault);
    world.run(50 * MS);
    let job = world.send_in(5, 0, 1, 4_000, 1_000);
    world.run(20 * MS);
    world.clear();
    world.run(2 * S);
    clean(&world, job);
    assert!(counter(&mut world, 1, "repeated_in") > 40);
    let gap = world.sources[job].seen.longest_gap_ns;
    assert!(gap < 10 * MS, "a lost frame held up others for {gap} ns");
}

#[test]
fn a_job_that_moves_to_other_links_loses_nothing() {
    let mut world = pair(2, 23);
    world.tell_both(0, 1, &[channel(5, TAG, 0b01)]);
    world.run(50 * MS);
    let job = world.send_in(5, 0, 1, 4_000, 1_000);
    for links in [0b10, 0b11, 0b01, 0b10] {
        world.run(300 * MS);
        world.tell_both(0, 1, &[channel(5, TAG, links)]);
        world.clear();
        world.run(300 * MS);
        clean(&world, job);
        let carried = world.carried_by(0, 5, 2);
        assert!((0..2).all(|link| (carried[link] > 0) == (links >> link & 1 == 1)), "{carried:?}");
    }
}

#[test]
fn a_job_whose_links_died_uses_none_that_it_may_not_and_goes_on_when_it_may() {
    let mut world = pair(2, 24);
    world.tell_both(0, 1, &[channel(5, TAG, 0b01)]);
    world.run(50 * MS);
    let job = world.send_in(5, 0, 1, 1_000, 200);
    let other = world.send(0, 1, 1_000, 200);
    world.run(200 * MS);
    let dead = Fault { blackhole: true, ..Fault::default() };
    world.faults.insert(((0, 1), (1, 1)), dead);
    world.faults.insert(((1, 1), (0, 1)), dead);
    world.run(300 * MS);
    world.clear();
    world.run(200 * MS);
    assert_eq!((world.sources[job].seen.frames, world.carried_by(0, 5, 2)), (0, vec![0, 0]));
    // After a while, the slot table gets the frames, which has the class's paths.
    assert!(world.to_slots > 200, "{}", world.to_slots);
    assert_eq!(world.sources[other].seen.frames, 200);
    world.tell_both(0, 1, &[channel(5, TAG, 0b10)]);
    world.run(50 * MS);
    world.clear();
    world.run(200 * MS);
    clean(&world, job);
    assert_eq!((world.sources[job].seen.frames, world.carried_by(0, 5, 1)), (200, vec![0]));
}

#[test]
fn a_helper_that_begins_anew_at_either_end_goes_on_with_the_jobs() {
    for host in [0, 1] {
        let mut world = pair(2, 25 + host as u64);
        world.tell_both(0, 1, &[channel(5, TAG, 0b10)]);
        world.run(50 * MS);
        let there = world.send_in(5, 0, 1, 2_000, 500);
        let back = world.send_in(5, 1, 0, 2_000, 500);
        world.run(S);
        world.kill(host);
        world.run(500 * MS);
        world.restart(host);
        world.tell_channels(host, 1 - host, &[channel(5, TAG, 0b10)]);
        world.run(300 * MS);
        world.clear();
        world.run(S);
        for source in [there, back] {
            clean(&world, source);
            let frames = world.sources[source].seen.frames;
            assert!(frames.abs_diff(2_000) <= 2, "{frames} of source {source}, host {host}");
        }
        assert_eq!(world.channel_of(0, 1, 5)["taken_by_peer"], true);
    }
}

#[test]
fn frames_wait_for_a_receiver_that_is_told_of_the_job_later() {
    let mut world = pair(2, 27);
    world.run(50 * MS);
    world.tell_channels(0, 1, &[channel(5, TAG, 0b10)]);
    let job = world.send_in(5, 0, 1, 1_000, 200);
    world.run(40 * MS);
    assert_eq!((world.sources[job].seen.frames, counter(&mut world, 1, "data_in")), (0, 0));
    world.tell_channels(1, 0, &[channel(5, TAG, 0b10)]);
    world.run(30 * MS);
    clean(&world, job);
    assert!(world.sources[job].seen.frames > 60, "{:?}", world.sources[job].seen);
    assert_eq!(counter(&mut world, 1, "refused_tag"), 0);
}

#[test]
fn a_channel_that_another_job_gets_carries_nothing_of_the_first_ones() {
    let mut world = pair(2, 28);
    world.tell_both(0, 1, &[channel(5, TAG, 0b11)]);
    world.run(50 * MS);
    let first = world.send_in(5, 0, 1, 4_000, 1_000);
    world.run(300 * MS);
    // The receiver hears of the new job first: what is on the way is refused.
    world.tell_channels(1, 0, &[channel(5, TAG + 1, 0b11)]);
    let before = world.sources[first].seen.frames;
    world.run(50 * MS);
    assert_eq!(world.sources[first].seen.frames, before);
    assert!(counter(&mut world, 1, "refused_tag") > 0);
    world.stop(first);
    world.tell_channels(0, 1, &[channel(5, TAG + 1, 0b11)]);
    let second = world.send_in(5, 0, 1, 4_000, 1_000);
    world.run(50 * MS);
    world.clear();
    world.run(300 * MS);
    clean(&world, second);
    assert_eq!((world.sources[first].seen.frames, world.sources[second].seen.frames), (0, 1_200));
    let status = world.engine(1).status();
    assert!(status["peers"][0]["refused"]["5"].as_u64().unwrap() > 0, "{status:#}");
}

#[test]
fn a_job_that_is_told_of_again_goes_on_where_it_was() {
    let mut world = pair(2, 29);
    world.tell_both(0, 1, &[channel(5, TAG, 0b11)]);
    world.run(50 * MS);
    let job = world.send_in(5, 0, 1, 4_000, 500);
    world.run(S);
    world.stop(job);
    world.run(50 * MS);
    world.tell_both(0, 1, &[]);
    world.run(50 * MS);
    assert!(world.channel_of(0, 1, 5).is_null());
    world.tell_both(0, 1, &[channel(5, TAG, 0b11)]);
    world.start(job);
    world.run(300 * MS);
    clean(&world, job);
    assert!(world.sources[job].seen.frames.abs_diff(5_200) <= 2);
    // Without a channel, frames that still have its tag go as those of no job.
    world.tell_both(0, 1, &[]);
    world.clear();
    world.run(300 * MS);
    assert!(counter(&mut world, 0, "unclassed") >= 1_200);
    assert!(world.sources[job].seen.frames >= 1_198);
}

#[test]
fn as_many_channels_as_there_may_be_carry_everything() {
    let mut world = pair(2, 30);
    let all: Vec<PeerChannel> =
        (1..=63).map(|n| channel(n, TAG + u32::from(n), 1 + u64::from(n % 3))).collect();
    for (host, other) in [(0, 1), (1, 0)] {
        for (first, last) in [(1, 48), (49, 63)] {
            let channels = all[first - 1..last].to_vec();
            let body = ri2n_reorder::wire::Body::Channels {
                first: first as u8,
                last: last as u8,
                channels,
            };
            let generation = 1;
            let mac = common::mac(other);
            world.control(host, ri2n_reorder::wire::Control { generation, mac, body });
        }
    }
    world.run(50 * MS);
    let sources: Vec<usize> = (0..=63).map(|n| world.send_in(n, 0, 1, 100, 300)).collect();
    world.run(S);
    for source in sources {
        clean(&world, source);
        assert!(world.sources[source].seen.frames.abs_diff(100) <= 3, "channel {source}");
    }
}

#[test]
fn papers_strategies_keep_jobs_on_their_links_too() {
    for mode in [Mode::RoundRobin, Mode::Ri2nPlusPlus] {
        let nics: Vec<(usize, u64)> = (0..3).map(|switch| (switch, LINK_BPS)).collect();
        let mut world = world(&[nics.clone(), nics], mode, 31);
        world.tell_both(0, 1, &[channel(5, TAG, 0b110)]);
        world.run(50 * MS);
        let job = world.send_in(5, 0, 1, 4_000, 1_000);
        let other = world.send(0, 1, 4_000, 1_000);
        world.run(50 * MS);
        world.clear();
        world.run(S);
        clean(&world, job);
        clean(&world, other);
        let carried = world.carried_by(0, 5, 3);
        assert!(carried[0] == 0 && carried[1] > 1_000 && carried[2] > 1_000, "{carried:?}");
    }
}

#[test]
fn loss_delay_and_duplicates_together_keep_every_channel_in_order() {
    for seed in 40..44 {
        let mut world = pair(3, seed);
        world.tell_both(0, 1, &[channel(1, TAG, 0b011), channel(63, TAG + 1, 0b110)]);
        for port in 1..=3 {
            let fault = Fault {
                loss_percent: 1.0,
                duplicate_percent: 2.0,
                delay_ns: u64::from(port) * 700_000,
                ..Fault::default()
            };
            world.faults.insert(((0, port), (1, port)), fault);
        }
        world.run(50 * MS);
        let sources = [0, 1, 63].map(|number| world.send_in(number, 0, 1, 2_000, 400));
        world.run(2 * S);
        for source in sources {
            let seen = &world.sources[source].seen;
            assert_eq!((seen.out_of_order, seen.duplicates), (0, 0), "seed {seed}");
            assert!(seen.lost <= 2 && seen.frames > 3_900, "seed {seed}: {seen:?}");
        }
    }
}
