// SPDX-License-Identifier: Apache-2.0
//! What of a plan comes into the maps.

use std::collections::BTreeMap;

use crate::hosts::{arrival, own, plan};
use ri2n_fast::plan::{Arrival, Exception, Mac, PathId, Plan, Striped};
use ri2n_fast::programs::layout::{mac_key, striped_links, wanted, Counters, Link, Links, Wanted};
use ri2n_wire::shared::{FLOWS, LANES, NICS, PEERS};

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

/// Host 1's plan with a striped peer in the place of the usual one, by the links 3 and 40.
fn striped() -> Plan {
    let mut plan = plan(1);
    let paths = plan.peers.remove(&own(2)).unwrap().paths;
    let paths = [3, 40].into_iter().zip(paths).collect();
    plan.striped.insert(own(2), Striped { paths, others: false });
    plan
}

#[test]
fn a_striped_peer_has_a_path_for_each_link() {
    let wanted_ = into_maps(&striped());
    assert_eq!(counts(&wanted_), (1, 2, 0));
    assert_eq!(striped_links(&wanted_.peers[&mac_key(&own(2))]), 1 << 3, "link 40 is too high");
    assert_eq!(striped_links(&into_maps(&plan(1)).peers[&mac_key(&own(2))]), 0, "not striped");
    let mut without = links();
    without.nics.remove(&1);
    let wanted_ = wanted(&striped(), &without, &mut Room(100, 1));
    assert_eq!(striped_links(&wanted_.peers[&mac_key(&own(2))]), 0, "its NIC is not there");
    assert_eq!(counts(&wanted(&striped(), &links(), &mut Room(100, 0))), (0, 2, 1));
    assert_eq!(counts(&wanted(&striped(), &Links::default(), &mut Room(100, 1))), (0, 0, 3));
}

#[test]
fn a_peer_says_whether_other_packets_than_tcp_may_pass() {
    let said = |others| {
        let mut plan = striped();
        plan.striped.get_mut(&own(2)).unwrap().others = others;
        u32::from_ne_bytes(into_maps(&plan).peers[&mac_key(&own(2))][72..76].try_into().unwrap())
    };
    assert_eq!((said(false), said(true)), (1, 3));
}

#[test]
fn a_peer_is_striped_or_not() {
    let mut both = striped();
    both.peers = plan(1).peers;
    let wanted = into_maps(&both);
    assert_eq!(counts(&wanted), (1, 2, 1));
    assert_eq!(striped_links(&wanted.peers[&mac_key(&own(2))]), 0);
    for mac in [own(1), [0; 6], [1, 0, 0, 0, 0, 2]] {
        let mut plan = striped();
        let paths = plan.striped.remove(&own(2)).unwrap();
        plan.striped.insert(mac, paths);
        assert_eq!(counts(&into_maps(&plan)), (0, 2, 1), "{mac:x?}");
    }
    let mut plan = striped();
    plan.striped.get_mut(&own(2)).unwrap().paths.get_mut(&3).unwrap().vlan = Some(0);
    assert_eq!(counts(&into_maps(&plan)), (0, 2, 1), "a VLAN that there is not");
}

#[test]
fn a_frame_has_a_lane_if_its_peer_has_a_place() {
    let lane = |lane, room| {
        let mut plan = striped();
        plan.arrivals.values_mut().for_each(|source| source.lane = lane);
        let wanted = wanted(&plan, &links(), &mut Room(100, room));
        assert_eq!(wanted.sources.len(), 2);
        let bytes = wanted.sources.into_values().next().unwrap();
        (bytes[33], u16::from_ne_bytes([bytes[34], bytes[35]]))
    };
    // `Room` gives the places from the last one on, another one each time.
    assert_eq!(lane(Some(3), 9), (3, 7));
    assert_eq!(lane(None, 9), (32, 0));
    assert_eq!(lane(Some(32), 9), (32, 0));
    assert_eq!(lane(Some(3), 0), (32, 0));
}

/// The fields of a structure and what is in them, by its source: `named` finds a field's name and
/// its type in a line.
fn fields(
    source: &str,
    from: &str,
    named: impl Fn(&str) -> Option<(String, String)>,
) -> Vec<(String, String)> {
    let body = source.split(from).nth(1).expect(from).split("\n}").next().unwrap();
    body.lines().filter_map(named).collect()
}

/// A program in C and one in Rust that lay out the same fields in this order agree.
#[test]
fn helper_and_programs_name_the_same_fields() {
    let c = include_str!("../bpf/shared.h");
    let rust = include_str!("../../wire/src/shared.rs");
    for (in_c, in_rust) in
        [("lane", "Lane"), ("nic", "Nic"), ("steer", "Steer"), ("flow_state", "Flow")]
    {
        let of_c = fields(c, &format!("struct {in_c} {{"), |line| {
            let (kind, name) = line.trim().split_once(';')?.0.rsplit_once(' ')?;
            let (name, many) = name.split_once('[').map_or((name, ""), |(name, _)| (name, "[]"));
            Some((name.to_owned(), format!("{kind}{many}")))
        });
        let of_rust = fields(rust, &format!("pub struct {in_rust} {{"), |line| {
            let (name, kind) =
                line.trim().strip_prefix("pub ")?.strip_suffix(',')?.split_once(": ")?;
            let kind = match kind {
                "AtomicU32" => "__u32",
                "AtomicU64" => "__u64",
                "[AtomicU64; LANES]" => "__u64[]",
                "[Lane; LANES]" => "struct lane[]",
                other => panic!("{other}"),
            };
            Some((name.to_owned(), kind.to_owned()))
        });
        // Six bytes and two zeros are one word for the helper.
        let words = of_c.into_iter().filter(|field| field.1 != "__u16").map(|field| {
            match field.1.as_str() {
                "__u8[]" => (field.0, "__u64".to_owned()),
                _ => field,
            }
        });
        assert_eq!(words.collect::<Vec<_>>(), of_rust, "{in_c}");
    }
    for (name, value) in [("LANES", LANES), ("PEERS", PEERS), ("NICS", NICS), ("FLOWS", FLOWS)] {
        assert!(c.contains(&format!("#define {name} {value}\n")), "{name}");
    }
}
