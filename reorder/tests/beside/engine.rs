// SPDX-License-Identifier: Apache-2.0
//! The engine lets the programs stripe TCP where it may go, and counts what they carry as its own.

use std::sync::atomic::Ordering::Relaxed;

use ri2n_reorder::beside::steering::Steering;
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::Mode;
use ri2n_reorder::wire::{Body, Mac, PeerChannel, PeerLink, MAX_CHANNEL, NO_LIMIT};
use ri2n_reorder::Nanos;
use ri2n_wire::shared::{mac_word, Steer};

use super::steering::Programs;
use crate::host::{peer, settings, Host, LINKS, MS, REMOTE_SESSION, S};

const KBPS: u32 = 100_000;

struct Both {
    host: Host,
    steering: Steering,
    programs: Programs,
    generation: u32,
}

impl Both {
    fn new() -> Self {
        let programs = Programs::new();
        programs.steer().mac.store(mac_word(peer(1).0), Relaxed);
        let steering = Steering::new(programs.view(), 1538);
        let mut both = Both { host: Host::new(settings()), steering, programs, generation: 10 };
        both.tell(true, true);
        both.host.beat(peer(1), REMOTE_SESSION);
        both.run(MS);
        both
    }

    fn tell(&mut self, stripe: bool, beside: bool) {
        let links = (0..LINKS).map(|number| PeerLink {
            number,
            own_port: number + 1,
            peer_port: number + 1,
            alive: true,
            rate_kbps: KBPS,
            limit_kbps: NO_LIMIT,
            weight_ppm: 500_000,
        });
        self.generation += 1;
        let body = Body::Peer { stripe, beside, links: links.collect() };
        self.host.control(self.generation, peer(1), body);
    }

    /// Lets time pass, with a turn every half a millisecond.
    fn run(&mut self, span: Nanos) {
        let end = self.host.now + span;
        while self.host.now < end {
            self.host.now = (self.host.now + MS / 2).min(end);
            self.turn();
        }
    }

    fn turn(&mut self) {
        let Host { engine, now, seen, .. } = &mut self.host;
        engine.take_beside(*now, &mut self.steering);
        engine.on_tick(*now, seen);
        engine.tell_beside(*now, &mut self.steering);
    }

    fn steer(&self) -> &Steer {
        self.programs.steer()
    }

    fn links(&self) -> u64 {
        let leased = self.steer().until_ns.load(Relaxed) > self.host.now;
        let links = self.steer().links.load(Relaxed);
        assert_eq!(leased, links != 0);
        assert_eq!(self.host.described(peer(1)).is_some_and(|it| it["beside"] == true), leased);
        links
    }

    /// The programs send bytes over each link.
    fn carry(&mut self, bytes: u64) {
        for lane in &self.steer().lanes[..LINKS.into()] {
            lane.frames_out.fetch_add(bytes.div_ceil(1514), Relaxed);
            lane.bytes_out.fetch_add(bytes, Relaxed);
        }
    }
}

#[test]
fn tcp_goes_beside_only_where_everything_allows_it() {
    let mut both = Both::new();
    assert_eq!(both.links(), 0b11);
    let lane = &both.steer().lanes[1];
    assert_eq!((lane.ns_per_kib.load(Relaxed), lane.nic.load(Relaxed)), (81_920, 2));
    assert!(both.programs.shared.nics()[1].ns_per_kib.load(Relaxed) >= 8192);

    for (stripe, beside) in [(true, false), (false, true)] {
        both.tell(stripe, beside);
        both.turn();
        assert_eq!(both.links(), 0, "{stripe} {beside}");
        both.tell(true, true);
        both.host.beat(peer(1), REMOTE_SESSION);
        both.turn();
        assert_eq!(both.links(), 0b11);
    }
    both.host.this_host(20, Mode::RoundRobin);
    both.turn();
    assert_eq!(both.links(), 0);
    both.host.this_host(21, Mode::Paced);
    both.turn();
    assert_eq!(both.links(), 0b11);

    let common = PeerChannel {
        number: 0,
        tag: 0,
        links: 2,
        max_kbps: NO_LIMIT,
        min_kbps: 0,
        min_in_kbps: 0,
    };
    let body = Body::Channels { first: 0, last: MAX_CHANNEL, channels: vec![common] };
    both.host.control(30, peer(1), body);
    both.turn();
    assert_eq!(both.links(), 2, "jobs have the other link for themselves");

    both.host.engine.nic_counters(both.host.now, 2, 0, false);
    both.turn();
    assert_eq!(both.links(), 0, "no carrier");
    both.host.engine.nic_counters(both.host.now, 2, 0, true);
    both.turn();
    assert_eq!(both.links(), 2);

    both.host.control(40, peer(1), Body::Gone);
    both.turn();
    assert_eq!((both.steer().until_ns.load(Relaxed), both.steer().links.load(Relaxed)), (0, 0));
}

#[test]
fn a_silent_peer_and_a_helper_that_ends_have_no_lease() {
    let mut both = Both::new();
    both.run(2 * S);
    assert_eq!(both.links(), 0b11, "heartbeats come every second");
    both.run(2 * S);
    assert_eq!(both.links(), 0, "three are missing");
    both.host.beat(peer(1), REMOTE_SESSION);
    both.turn();
    assert_eq!(both.links(), 0b11);
    let Host { engine, now, seen, .. } = &mut both.host;
    engine.goodbye(*now, seen);
    both.turn();
    assert_eq!(both.links(), 0);
}

#[test]
fn what_the_programs_carry_is_traffic() {
    let mut both = Both::new();
    both.run(500 * MS);
    let before = both.host.seen.heartbeats;
    both.run(300 * MS);
    assert_eq!(both.host.seen.heartbeats, before, "one a second is enough");
    let awake = both.steer().awake_ns.load(Relaxed);
    assert!(awake <= both.host.now, "it wants to be woken");
    for _ in 0..100 {
        both.carry(3028);
        both.run(MS);
    }
    let beats = both.host.seen.heartbeats - before;
    assert!((20..60).contains(&beats), "{beats}");
    assert!(both.steer().awake_ns.load(Relaxed) > both.host.now);
    let link = &both.host.described(peer(1)).unwrap()["links"][1];
    assert_eq!(link["sent"], 200);

    both.host.seen.reports.clear();
    both.run(S);
    let report = both.host.seen.reports.pop().unwrap();
    assert_eq!((report.entries[0].sent, report.entries[1].sent), (200, 200));

    let lane = &both.steer().lanes[0];
    lane.frames_in.fetch_add(7, Relaxed);
    lane.bytes_in.fetch_add(7000, Relaxed);
    let before = both.host.seen.heartbeats;
    both.turn();
    assert!(both.host.seen.heartbeats > before, "the peer hears of grants at once");
    let described = both.host.described(peer(1)).unwrap();
    assert_eq!(described["links"][0]["received"], 7);
    assert_eq!(described["channels"][0]["bytes_in"], 7000);
}

#[test]
fn demand_is_what_is_carried_or_more_if_some_was_refused() {
    let mut both = Both::new();
    let demand = |both: &mut Both| {
        both.host.seen.reports.clear();
        let mut steps = 0;
        while both.host.seen.reports.is_empty() && steps < 3000 {
            both.carry(1250);
            both.run(MS);
            steps += 1;
        }
        both.host.seen.reports.pop().unwrap().entries[0].demand_kbps
    };
    let measured = demand(&mut both);
    assert!((15_000..25_000).contains(&measured), "{measured} kbit/s of 20,000");
    let busy = |both: &Both, link: usize| {
        let ahead = both.host.now + S;
        both.steer().lanes[link].free_ns.store(ahead, Relaxed);
    };
    for links in 1..=2 {
        both.host.seen.reports.clear();
        while both.host.seen.reports.is_empty() {
            (0..links).for_each(|link| busy(&both, link));
            both.carry(1250);
            both.run(MS);
        }
        let told = both.host.seen.reports[0].entries[0].demand_kbps;
        assert_eq!(told == NO_LIMIT, links == 2, "with {links} busy links {told}");
    }
}

/// Bytes that the helper itself sends in a second, while the programs do something every turn.
fn helpers_part(mut programs: impl FnMut(&mut Both)) -> f64 {
    let mut both = Both::new();
    both.host.send(peer(1), 200);
    both.run(100 * MS);
    both.host.seen.data.clear();
    for _ in 0..2000 {
        both.host.send(peer(1), 20);
        programs(&mut both);
        if both.host.now % (500 * MS) < MS {
            both.host.beat(peer(1), REMOTE_SESSION);
        }
        both.run(MS / 2);
    }
    let bits: usize = both.host.seen.data.iter().map(|frame| 8 * frame.len()).sum();
    bits as f64 / (1e3 * f64::from(KBPS) * f64::from(LINKS))
}

#[test]
fn the_helper_and_the_programs_share_links() {
    let alone = helpers_part(|_| {});
    assert!((0.95..1.02).contains(&alone), "{alone}");
    let beside_little = helpers_part(|both| both.carry(600));
    assert!((0.85..1.02).contains(&beside_little), "{beside_little}");
    let beside_all = helpers_part(|both| {
        both.carry(3000);
        both.steer().refused.fetch_add(1, Relaxed);
    });
    assert!((0.45..0.52).contains(&beside_all), "half is left to TCP: {beside_all}");
}

#[test]
fn what_the_helper_sends_occupies_links_and_nics() {
    let mut both = Both::new();
    let before = both.host.now;
    both.host.send(peer(1), 20);
    both.turn();
    let sent = both.host.seen.data.len() as u64;
    assert!(sent > 3);
    let busy: u64 = both.steer().lanes[..2]
        .iter()
        .map(|lane| lane.free_ns.load(Relaxed).saturating_sub(before))
        .sum();
    let bytes: usize = both.host.seen.data.iter().map(Vec::len).sum();
    let wanted = bytes as u64 * 80; // ns at 100 Mbit/s
    assert!((wanted * 9 / 10..wanted * 3 / 2).contains(&busy), "{busy} of {wanted}");
    assert!(both.programs.shared.nics()[1].free_ns.load(Relaxed) > before);
}

#[test]
fn a_frame_that_wakes_the_helper_begins_heartbeats() {
    let mut both = Both::new();
    both.run(800 * MS);
    let before = both.host.seen.heartbeats;
    both.host.engine.woken(both.host.now, Mac([2, 9, 9, 9, 9, 9]));
    both.turn();
    assert_eq!(both.host.seen.heartbeats, before, "nobody knows that peer");
    both.host.engine.woken(both.host.now, peer(1));
    both.turn();
    assert!(both.host.seen.heartbeats > before);
    assert!(both.steer().awake_ns.load(Relaxed) > both.host.now);
}

#[test]
fn patience_is_that_for_frames_of_the_helper() {
    let both = Both::new();
    assert_eq!(both.host.engine.patience_ns(peer(1)), 12 * MS);
    assert_eq!(both.host.engine.patience_ns(peer(9)), 12 * MS);
}
