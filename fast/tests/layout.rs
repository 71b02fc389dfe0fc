// SPDX-License-Identifier: Apache-2.0
//! What of a plan comes into the maps.

use std::collections::BTreeMap;

use crate::hosts::{arrival, own, plan};
use ri2n_fast::plan::{Arrival, Exception, Mac, PathId, Plan};
use ri2n_fast::programs::layout::{wanted, Counters, Link, Links, Wanted};

/// Gives every path and arrival a place, as long as there are some, and so does it for peers.
struct Room(u32, u16);

impl Counters for Room {
    fn sent(&mut self, _: Mac, _: PathId) -> Option<u32> {
        self.0 = self.0.checked_sub(1)?;
        Some(self.0)
    }

    fn by_slot(&mut self, _: Mac) -> Option<u16> {
        self.1 = self.1.checked_sub(1)?;
        Some(self.1)
    }

    fn arrived(&mut self, _: &Arrival) -> Option<u32> {
        self.sent([0; 6], 0)
    }
}

fn links() -> Links {
    let link = |port| (port, Link { ifindex: port + 10, mtu: 1500 });
    Links { local: 10, must_ask: false, nics: BTreeMap::from([1, 2].map(link)) }
}

fn into_maps(plan: &Plan) -> Wanted {
    wanted(plan, &links(), &mut Room(100, 1))
}

/// So many peers and arrivals come into the maps, and so many are left out.
fn counts(wanted: &Wanted) -> (usize, usize, usize) {
    (wanted.peers.len(), wanted.sources.len(), wanted.left_out)
}

#[test]
fn a_plan_comes_into_the_maps_whole() {
    assert_eq!(counts(&into_maps(&plan(1))), (1, 2, 0));
    assert_eq!(counts(&into_maps(&Plan::default())), (0, 0, 0));
}

#[test]
fn what_no_frame_can_be_is_left_out() {
    let change = |change: fn(&mut Plan)| {
        let mut plan = plan(1);
        change(&mut plan);
        counts(&into_maps(&plan))
    };
    let slot = |plan: &mut Plan| plan.peers.get_mut(&own(2)).unwrap().slots[63] = 2;
    assert_eq!(change(slot), (0, 2, 1), "a slot without a path");
    let vlan = |plan: &mut Plan| plan.peers.get_mut(&own(2)).unwrap().paths[0].vlan = Some(4095);
    assert_eq!(change(vlan), (0, 2, 1), "a VLAN that there is not");
    let peer = |mac: Mac, plan: &mut Plan| {
        let peer = plan.peers.remove(&own(2)).unwrap();
        plan.peers.insert(mac, peer);
    };
    for mac in [own(1), [0xff; 6], [1, 0, 0, 0, 0, 2]] {
        let mut plan = plan(1);
        peer(mac, &mut plan);
        assert_eq!(counts(&into_maps(&plan)), (0, 2, 1), "{mac:x?}");
    }
    let tag = |plan: &mut Plan| {
        let source = plan.arrivals.remove(&arrival(1, 2)).unwrap();
        plan.arrivals.insert(Arrival { vlan: Some(0), ..arrival(1, 2) }, source);
    };
    assert_eq!(change(tag), (1, 1, 1), "a tag without a VLAN");
    let nobody = |plan: &mut Plan| plan.own = None;
    assert_eq!(change(nobody), (0, 0, 3), "a host without a MAC");
}

#[test]
fn with_too_many_exceptions_nothing_passes() {
    let mut plan = plan(1);
    let any = Exception { protocol: 6, source_port: Some(1), destination_port: None };
    plan.exceptions = vec![any; 64];
    assert_eq!(counts(&into_maps(&plan)), (1, 2, 0));
    plan.exceptions.push(any);
    assert_eq!(counts(&into_maps(&plan)), (0, 0, 3));
}

#[test]
fn what_has_no_device_or_no_counter_is_left_out() {
    let plan = plan(1);
    let mut without = links();
    without.nics.remove(&2);
    // The peer stays: frames of a path without its NIC go through the bridge.
    assert_eq!(counts(&wanted(&plan, &without, &mut Room(100, 1))), (1, 1, 1));
    without.local = 0;
    assert_eq!(counts(&wanted(&plan, &without, &mut Room(100, 1))), (0, 0, 3));
    assert_eq!(counts(&wanted(&plan, &links(), &mut Room(1, 1))), (0, 0, 3));
    assert_eq!(counts(&wanted(&plan, &links(), &mut Room(3, 1))), (1, 1, 1));
    assert_eq!(counts(&wanted(&plan, &links(), &mut Room(100, 0))), (0, 2, 1));
}
