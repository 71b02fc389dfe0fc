// SPDX-License-Identifier: Apache-2.0
//! What the programs are told, and what they counted.

use std::sync::atomic::Ordering::Relaxed;

use ri2n_reorder::beside::steering::{LinkOrder, Steering, LEASE_NS, LIMIT_NS};
use ri2n_reorder::wire::Mac;
use ri2n_wire::shared::{mac_word, Shared, Steer};

const MS: u64 = 1_000_000;
const NOW: u64 = 1_000_000 * MS;
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn order(link: u8, rate_bps: u64) -> LinkOrder {
    LinkOrder { link, rate_bps, skew_ns: 5, nic: 2 }
}

/// Both sides see the same memory: the test plays the programs.
fn both() -> (Steering, Programs) {
    let programs = Programs::new();
    (Steering::new(programs.view(), 1538), programs)
}

pub struct Programs {
    files: ri2n_wire::shared::Files<std::os::fd::OwnedFd>,
    pub shared: Shared,
}

impl Programs {
    pub fn new() -> Self {
        let files = Shared::in_memory().unwrap();
        let shared = Shared::new(&files).unwrap();
        shared.steers()[0].mac.store(mac_word(PEER), Relaxed);
        Programs { files, shared }
    }

    pub fn view(&self) -> Shared {
        Shared::new(&self.files).unwrap()
    }

    pub fn files(&self) -> &ri2n_wire::shared::Files<std::os::fd::OwnedFd> {
        &self.files
    }

    pub fn steer(&self) -> &Steer {
        &self.shared.steers()[0]
    }
}

#[test]
fn a_lease_ends_with_the_turn_that_does_not_renew_it() {
    let (mut steering, programs) = both();
    let steer = programs.steer();
    let place = steering.place_of(Mac(PEER)).unwrap();
    steering.allow(NOW, place, &[order(1, 1_000_000_000), order(31, 0)], 24, true);
    steering.end_turn();
    assert_eq!(steer.until_ns.load(Relaxed), NOW + LEASE_NS);
    assert_eq!(steer.links.load(Relaxed), 1 << 31 | 2);
    assert_eq!((steer.overhead.load(Relaxed), steer.limit_ns.load(Relaxed)), (24, LIMIT_NS));
    let lane = &steer.lanes[1];
    assert_eq!(lane.ns_per_kib.load(Relaxed), 8192, "1,024 bytes at 1 Gbit/s");
    assert_eq!((lane.skew_ns.load(Relaxed), lane.nic.load(Relaxed)), (5, 2));
    // A link whose number the programs do not know is none.
    steering.allow(NOW + 50 * MS, place, &[order(32, 1000)], 24, true);
    steering.end_turn();
    assert_eq!((steer.until_ns.load(Relaxed), steer.links.load(Relaxed)), (0, 0));
    steering.allow(NOW, place, &[order(1, 1_000_000_000)], 24, true);
    steering.end_turn();
    assert!(steer.until_ns.load(Relaxed) > 0);
    drop(steering);
    assert_eq!((steer.until_ns.load(Relaxed), steer.links.load(Relaxed)), (0, 0));
}

#[test]
fn what_another_helper_left_behind_is_cleared() {
    let programs = Programs::new();
    let steer = programs.steer();
    steer.until_ns.store(u64::MAX, Relaxed);
    steer.links.store(3, Relaxed);
    steer.lanes[0].bytes_in.store(100, Relaxed);
    programs.shared.flows()[7].key.store(1, Relaxed);
    programs.shared.flows()[7].word.store(5 << 32, Relaxed);
    let mut steering = Steering::new(programs.view(), 1538);
    assert_eq!(programs.shared.flows()[7].word.load(Relaxed), 0);
    assert_eq!(programs.shared.flows()[7].key.load(Relaxed), 0);
    steering.end_turn();
    assert_eq!((steer.until_ns.load(Relaxed), steer.links.load(Relaxed)), (0, 0));
    assert_eq!(steering.carried(0, 0).bytes_in, 0);
    steer.lanes[0].bytes_in.store(130, Relaxed);
    assert_eq!(steering.carried(0, 0).bytes_in, 30);
    steer.lanes[0].bytes_in.store(5, Relaxed);
    assert_eq!(steering.carried(0, 0).bytes_in, 0, "it began anew");
    assert_eq!(steering.carried(9, 0), steering.carried(0, 40), "there are no such ones");
}

#[test]
fn peers_that_get_a_place_later_are_found() {
    let (mut steering, programs) = both();
    assert_eq!(steering.place_of(Mac([2, 0, 0, 0, 0, 8])), None);
    programs.shared.steers()[1].lanes[3].frames_in.store(4, Relaxed);
    programs.shared.steers()[1].mac.store(mac_word([2, 0, 0, 0, 0, 8]), Relaxed);
    steering.find_peers();
    assert_eq!(steering.place_of(Mac([2, 0, 0, 0, 0, 8])), Some(1));
    assert_eq!(steering.carried(1, 3).frames_in, 4, "all of it is new");
}

#[test]
fn what_the_helper_sends_and_other_rates_move_the_time_of_a_link() {
    let (mut steering, programs) = both();
    let lane = &programs.steer().lanes[1];
    steering.allow(NOW, 0, &[order(1, 1_000_000_000)], 24, true);
    steering.sent(NOW, 0, 1, 125_000);
    let free = lane.free_ns.load(Relaxed);
    assert_eq!(free, NOW + MS, "125 kB at 1 Gbit/s");
    assert!(!steering.waits(NOW, 0));
    steering.sent(NOW, 0, 1, 12_500);
    assert!(steering.waits(NOW, 0) && !steering.waits(NOW + MS, 0));
    steering.allow(NOW, 0, &[order(1, 100_000_000)], 24, true);
    assert_eq!(lane.free_ns.load(Relaxed), NOW + 11 * MS, "it takes ten times as long");
    lane.free_ns.store(u64::MAX, Relaxed);
    steering.allow(NOW, 0, &[order(1, 100_000_000)], 24, true);
    assert_eq!(lane.free_ns.load(Relaxed), NOW + 200 * MS, "no link is busy for ever");

    let nic = &programs.shared.nics()[2];
    steering.set_nics(NOW, |port| if port == 2 { 1_000_000_000 } else { 0 });
    assert_eq!(nic.ns_per_kib.load(Relaxed), 8192);
    steering.sent_by(NOW, 2, 1 << 40);
    assert_eq!(nic.free_ns.load(Relaxed), NOW + 10 * MS, "no turn lasts longer");
    assert_eq!(steering.busy_nics(NOW), 1 << 2);
    steering.sent_by(NOW, 255, 5);
}

#[test]
fn a_helper_that_falls_asleep_wants_to_be_woken() {
    let (mut steering, programs) = both();
    let awake = || programs.steer().awake_ns.load(Relaxed);
    steering.allow(NOW, 0, &[order(1, 1000)], 24, true);
    assert_eq!(awake(), NOW + 100 * MS);
    steering.allow(NOW + MS, 0, &[order(1, 1000)], 24, true);
    assert_eq!(awake(), NOW + 100 * MS, "not with every turn");
    steering.allow(NOW + 20 * MS, 0, &[order(1, 1000)], 24, true);
    assert_eq!(awake(), NOW + 120 * MS);
    steering.allow(NOW + 30 * MS, 0, &[order(1, 1000)], 24, false);
    assert_eq!(awake(), NOW + 30 * MS);
}
