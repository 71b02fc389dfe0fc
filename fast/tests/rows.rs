// SPDX-License-Identifier: Apache-2.0
//! What is read in the rows of bridges. `bridges/` has what real ones said
//! (`tests/sandbox/planned_bridges.py` makes them).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use ri2n_fast::commands::replay;
use ri2n_fast::plan::{Arrival, Left, Mac, Peer, Plan, MAX_PEERS};
use ri2n_fast::rows::model::{
    mac, number, Action, Bridge, Choice, Field, Group, Row, RowKey, Test, LOCAL, VLAN_PRESENT,
};
use ri2n_fast::rows::plan;

use crate::concrete::{Effect, Frame, Way, TO_HELPER};
use crate::dice::Dice;

pub fn saved(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bridges");
    fs::read(folder.join(format!("{name}.bin"))).unwrap()
}

pub fn bridge(name: &str) -> Bridge {
    replay(&saved(name)).unwrap().bridge().clone()
}

pub const NAMES: [&str; 18] = [
    "plain",
    "vlan",
    "helpers",
    "helpers-away",
    "by-flows",
    "by-flows-helpers",
    "placement",
    "guests",
    "job-exclusive",
    "job-exclusive-helpers",
    "job-paths",
    "job-paths-helpers",
    "job-isolated",
    "job-isolated-helpers",
    "job-rated",
    "job-rated-helpers",
    "job-several",
    "job-several-helpers",
];

/// A plan in a few words: paths of each peer, arrivals, exceptions, why peers are left.
fn words(plan: &Plan) -> String {
    let paths: Vec<String> = plan.peers.values().map(|it| it.paths.len().to_string()).collect();
    let left: Vec<String> = plan.left.values().map(|why| format!("{why:?}")).collect();
    let (arrivals, exceptions) = (plan.arrivals.len(), plan.exceptions.len());
    format!("{} / {arrivals} / {exceptions} / {}", paths.join(" "), left.join(" "))
}

#[test]
fn every_kind_of_bridge_is_carried_or_left() {
    let expected = BTreeMap::from([
        ("plain", "1 2 1 / 4 / 2 / "),
        ("helpers-away", "1 2 1 / 4 / 2 / "),
        ("helpers", " / 4 / 2 / Striped Striped Striped"),
        ("by-flows", "1 2 1 / 4 / 2 / "),
        ("by-flows-helpers", " / 4 / 0 / Striped Striped Striped"),
        // Its services' ports are exceptions, too.
        ("placement", "1 2 1 / 4 / 6 / "),
        ("guests", "1 2 1 / 4 / 2 / "),
        ("job-isolated", "1 / 4 / 2 / Unsupported Unsupported"),
        ("job-paths", "1 2 1 / 4 / 2 / "),
    ]);
    for (name, expected) in expected {
        assert_eq!(words(&plan(&bridge(name)).plan), expected, "{name}");
    }
}

/// The helper links of each peer, and those by which arrivals come.
fn links(plan: &Plan) -> String {
    let numbers = |links: &mut dyn Iterator<Item = u8>| {
        links.map(|it| it.to_string()).collect::<Vec<_>>().join(",")
    };
    let peers = plan.striped.values().map(|it| numbers(&mut it.paths.keys().copied()));
    let lanes = numbers(&mut plan.arrivals.values().filter_map(|it| it.lane));
    format!("{} / {lanes}", peers.collect::<Vec<_>>().join(" "))
}

#[test]
fn tcp_of_no_job_is_striped_where_all_of_it_goes_to_the_helper() {
    let all = "0 0,1 0 / 0,0,0,1";
    for name in NAMES {
        let plan = plan(&bridge(name)).plan;
        let expected = match name {
            // Some of TCP, what is of a class by its DSCP, goes by flows.
            "by-flows-helpers" => " / ",
            // To the job's other host alone.
            "job-isolated-helpers" => "0 / 0",
            _ if name.starts_with("helpers-away") || !name.contains("helpers") => " / ",
            _ => all,
        };
        assert_eq!(links(&plan), expected, "{name}");
        for (peer, striped) in &plan.striped {
            assert_eq!(plan.left[peer], Left::Striped, "{name}");
            assert!(striped.others, "{name}");
            for (link, path) in &striped.paths {
                let arrival = Arrival {
                    port: path.port,
                    source: path.destination,
                    destination: path.source,
                    vlan: path.vlan,
                };
                let source = &plan.arrivals[&arrival];
                assert_eq!((source.peer, source.lane), (*peer, Some(*link)), "{name}");
            }
        }
    }
}

fn exact(field: Field, value: u128) -> Test {
    Test { field, value, mask: field.exact() }
}

fn add(bridge: &mut Bridge, table: u8, tests: Vec<Test>, actions: Vec<Action>) {
    let encoded = bridge.rows.len().to_be_bytes().to_vec();
    let key = RowKey { table, priority: 40_000, encoded };
    bridge.rows.insert(key, Row { tests: Some(tests), actions, cookie: 0, idles: false });
}

#[test]
fn tcp_of_which_some_goes_another_way_is_not_striped() {
    let whole = bridge("helpers");
    let all = links(&plan(&whole).plan);
    let with = |tests: Vec<Test>, actions: Vec<Action>| {
        let mut changed = whole.clone();
        add(&mut changed, 10, tests.clone(), actions);
        let plan = plan(&changed).plan;
        assert!(plan.peers.is_empty(), "{tests:?}");
        let exceptions = plan.exceptions.len();
        format!("{} / {exceptions}", links(&plan).split(" /").next().unwrap())
    };
    let none = " / 0";
    let some = format!("{} / 2", all.split(" /").next().unwrap());
    let any_tcp = [exact(Field::EthType, 0x0800), exact(Field::IpProto, 6)];
    // What becomes of other protocols does not matter, nor what one port of TCP asks for.
    let udp = vec![exact(Field::EthType, 0x0800), exact(Field::IpProto, 17)];
    assert_eq!(with(udp, vec![]), some);
    let port = [&any_tcp[..], &[exact(Field::DestinationPort, 80)]].concat();
    assert_eq!(with(port, vec![]), some.replace("/ 2", "/ 3"));
    // A placed connection of anybody, a drop of IPv4, what only some frames meet, a class.
    for tests in [
        any_tcp.to_vec(),
        vec![exact(Field::EthType, 0x0800)],
        vec![exact(Field::Other(7), 1)],
        vec![exact(Field::EthType, 0x86dd), exact(Field::Other(8), 40)],
    ] {
        assert_eq!(with(tests.clone(), vec![]), none, "{tests:?}");
        assert_eq!(with(tests.clone(), vec![Action::Output(1)]), none, "{tests:?}");
        assert_eq!(with(tests.clone(), vec![Action::Output(102)]), none, "{tests:?}");
        // With a tag it is a channel's.
        let tag = Action::Set { field: Field::VlanVid, value: 0x1003, mask: u128::MAX };
        let channel = vec![Action::PushVlan(0x8100), tag, Action::Output(TO_HELPER)];
        assert_eq!(with(tests.clone(), channel), none, "{tests:?}");
        // A row that says the same as the others changes nothing.
        assert_eq!(with(tests.clone(), vec![Action::Output(TO_HELPER)]), some, "{tests:?}");
    }
    let changed = |field, value| {
        let set = Action::Set { field, value, mask: field.exact() };
        with(vec![exact(Field::InPort, LOCAL.into())], vec![set, Action::Output(TO_HELPER)])
    };
    assert_eq!(changed(Field::EthSrc, 2), none);
    assert_eq!(changed(Field::EthDst, 2), none);
    let from_here = vec![exact(Field::InPort, LOCAL.into())];
    let twice = vec![Action::Output(TO_HELPER), Action::Output(TO_HELPER)];
    assert_eq!(with(from_here.clone(), twice), none);
    let copied = vec![Action::Output(TO_HELPER), Action::Output(1)];
    assert_eq!(with(from_here.clone(), copied), none);
    assert_eq!(with(from_here, vec![Action::Unknown, Action::Output(TO_HELPER)]), none);
}

#[test]
fn other_protocols_pass_only_where_all_of_them_go_to_the_helper() {
    let whole = bridge("helpers");
    let with = |tests: Vec<Test>, actions: Vec<Action>| {
        let mut changed = whole.clone();
        add(&mut changed, 10, tests, actions);
        let plan = plan(&changed).plan;
        assert_eq!(plan.striped.len(), 3, "TCP is striped");
        let others: BTreeSet<bool> = plan.striped.values().map(|it| it.others).collect();
        (others.into_iter().collect::<Vec<_>>(), plan.exceptions.len())
    };
    let of = |protocol| vec![exact(Field::EthType, 0x0800), exact(Field::IpProto, protocol)];
    let to_helper = || vec![Action::Output(TO_HELPER)];
    for protocol in [1, 17, 47, 132] {
        assert_eq!(with(of(protocol), vec![]), (vec![false], 2));
        assert_eq!(with(of(protocol), vec![Action::Output(1)]), (vec![false], 2));
        let tag = Action::Set { field: Field::VlanVid, value: 0x1003, mask: u128::MAX };
        let channel = [vec![Action::PushVlan(0x8100), tag], to_helper()].concat();
        assert_eq!(with(of(protocol), channel), (vec![false], 2));
        assert_eq!(with(of(protocol), to_helper()), (vec![true], 2));
    }
    // What is never carried beside the bridge does not matter.
    let icmpv6 = vec![exact(Field::EthType, 0x86dd), exact(Field::IpProto, 58)];
    assert_eq!(with(icmpv6, vec![]), (vec![true], 2));
    // Nor do ports of UDP: they are exceptions. Where nothing but TCP passes, nobody needs them.
    let port = || [of(17), vec![exact(Field::DestinationPort, 4791)]].concat();
    assert_eq!(with(port(), vec![]), (vec![true], 3));
    let mut changed = whole.clone();
    add(&mut changed, 10, of(1), vec![]);
    add(&mut changed, 10, port(), vec![]);
    let closed = plan(&changed).plan;
    assert_eq!((closed.striped.values().any(|it| it.others), closed.exceptions.len()), (false, 2));
}

#[test]
fn a_row_that_idles_and_a_port_that_is_closed_stripe_nothing() {
    let whole = bridge("helpers");
    let mut idles = whole.clone();
    let to_helper = |row: &Row| row.exactly(Field::Reg(3)) == Some(0);
    idles.rows.values_mut().filter(|row| to_helper(row)).for_each(|row| row.idles = true);
    assert_eq!(links(&plan(&idles).plan), " / ");
    let mut closed = whole.clone();
    closed.ports.get_mut(&TO_HELPER).unwrap().restricted = true;
    assert_eq!(links(&plan(&closed).plan), " / ");
    // The helper ended: its devices have no carrier, and peers are reached by slots.
    let mut ended = whole.clone();
    ended.ports.get_mut(&TO_HELPER).unwrap().live = false;
    let ended = plan(&ended).plan;
    assert_eq!((links(&ended).as_str(), ended.peers.len()), (" / ", 3));
}

#[test]
fn a_helper_link_that_the_rows_drop_is_none() {
    let mut bridge = bridge("helpers");
    let second = |tests: &[Test]| tests.contains(&exact(Field::VlanVid, 0x1002));
    let from_helper = |row: &&mut Row| row.exactly(Field::InPort) == Some(WIRE);
    for row in bridge.rows.values_mut().filter(from_helper) {
        if row.tests.as_ref().is_some_and(|tests| second(tests)) {
            row.actions.clear();
        }
    }
    assert_eq!(links(&plan(&bridge).plan), "0 0 0 / 0,0,0");
}

#[test]
fn more_than_1024_peers_are_the_helpers_alone() {
    let mut bridge = bridge("helpers");
    let template = bridge.clone();
    let of_first: Vec<_> = {
        let first = *plan(&bridge).plan.striped.keys().next().unwrap();
        let named = exact(Field::EthDst, number(first).into());
        let names = |row: &Row| row.tests.as_ref().is_some_and(|it| it.contains(&named));
        template.rows.iter().filter(|(_, row)| names(row)).collect()
    };
    for peer in 0..MAX_PEERS as u64 + 7 {
        for (key, row) in &of_first {
            let (mut key, mut row) = ((*key).clone(), (*row).clone());
            key.encoded.extend(peer.to_be_bytes());
            for test in row.tests.iter_mut().flatten() {
                if test.field == Field::EthDst {
                    test.value = u128::from(0x0600_0001_0000 + peer);
                }
            }
            bridge.rows.insert(key, row);
        }
    }
    let plan = plan(&bridge).plan;
    assert_eq!((plan.striped.len(), plan.left.len()), (MAX_PEERS, MAX_PEERS + 7 + 3));
    assert!(plan.left.values().all(|why| *why == Left::Striped));
    assert!(plan.striped.contains_key(&mac(0x0600_0000_0200)), "the first ones have room");
}

#[test]
fn paths_of_other_trees_have_tags() {
    let plan = plan(&bridge("vlan")).plan;
    let tags = |of: &mut dyn Iterator<Item = Option<u16>>| of.flatten().count();
    assert!(tags(&mut plan.peers.values().flat_map(|it| &it.paths).map(|it| it.vlan)) > 5);
    assert!(tags(&mut plan.arrivals.keys().map(|it| it.vlan)) > 5);
}

#[test]
fn slots_leave_a_dead_port_and_come_back() {
    let mut bridge = bridge("plain");
    let before = plan(&bridge).plan;
    let (peer, two) = before.peers.iter().find(|(_, it)| it.paths.len() == 2).unwrap();
    let dead = two.paths[0].port;
    bridge.ports.get_mut(&dead).unwrap().live = false;
    let without = plan(&bridge).plan;
    assert!(without.peers[peer].paths.iter().all(|path| path.port != dead));
    // Who is reached by this port alone is left.
    assert!(without.left.values().all(|why| *why == Left::Unsupported));
    assert_eq!(before.peers.len(), without.peers.len() + without.left.len());
    bridge.ports.get_mut(&dead).unwrap().live = true;
    assert_eq!(plan(&bridge).plan, before);
}

#[test]
fn a_dead_slot_goes_to_the_next_live_one() {
    let mut bridge = bridge("plain");
    let number = two_ways(&bridge);
    let peer = |bridge: &Bridge| {
        let peers = plan(bridge).plan.peers.into_values();
        peers.into_iter().find(|it| it.paths.len() == 2).unwrap()
    };
    // The last bucket's next one is the first, not the one before.
    let buckets = &mut bridge.groups.get_mut(&number).unwrap().buckets;
    let first = buckets[0].actions.clone();
    let other = buckets.iter().find(|it| it.actions != first).unwrap().actions.clone();
    buckets[62].actions = other;
    let before = peer(&bridge);
    // One bucket alone dies, since it watches what is not there.
    bridge.groups.get_mut(&number).unwrap().buckets[63].watch_port = Some(77);
    let after = peer(&bridge);
    let way = |peer: &Peer, slot: usize| peer.paths[usize::from(peer.slots[slot])].clone();
    for slot in 0..63 {
        assert_eq!(way(&after, slot), way(&before, slot));
    }
    assert_eq!(way(&after, 63), way(&before, 0));
    assert_ne!(way(&after, 63), way(&before, 62));
}

#[test]
fn only_64_equal_buckets_are_a_slot_table() {
    let whole = bridge("plain");
    let number = two_ways(&whole);
    let with = |change: fn(&mut Group)| {
        let mut changed = whole.clone();
        change(changed.groups.get_mut(&number).unwrap());
        words(&plan(&changed).plan)
    };
    let left = "1 1 / 4 / 2 / Unsupported";
    assert_eq!(with(|group| group.buckets[5].weight += 1), left);
    assert_eq!(with(|group| group.buckets.iter_mut().for_each(|it| it.weight = 0)), left);
    assert_eq!(with(|group| drop(group.buckets.pop())), left);
    assert_eq!(with(|group| group.choice = Choice::Other), left);
    assert_eq!(with(|group| group.buckets[5].actions.clear()), left);
}

/// A group whose slots have two ways.
fn two_ways(bridge: &Bridge) -> u32 {
    let used = |number: &u32| {
        let group = [Action::Group(*number)];
        bridge.rows.iter().any(|(key, row)| key.table == 10 && row.actions == group)
    };
    let is_it = |(number, group): &(&u32, &Group)| {
        let ways: BTreeSet<_> =
            group.buckets.iter().map(|it| format!("{:?}", it.actions)).collect();
        group.choice == Choice::Hash && ways.len() == 2 && used(number)
    };
    *bridge.groups.iter().find(is_it).unwrap().0
}

#[test]
fn a_bridge_without_rows_carries_nothing() {
    let mut bridge = bridge("plain");
    bridge.rows.clear();
    let plan = plan(&bridge).plan;
    assert_eq!(words(&plan), " / 0 / 0 / ");
}

#[test]
fn a_row_of_somebody_else_leaves_its_frames_to_the_bridge() {
    let whole = bridge("plain");
    let carried = words(&plan(&whole).plan);
    // A row above all others that some of the frames meet.
    let with = |field, value, actions: Vec<Action>| {
        let mut changed = whole.clone();
        let (key, row) = changed.rows.iter().next().unwrap();
        let (mut key, mut row) = (key.clone(), row.clone());
        (key.table, key.priority, key.encoded) = (0, 40_000, vec![1]);
        row.tests = Some(vec![Test { field, value, mask: field.exact() }]);
        row.actions = actions;
        changed.rows.insert(key, row);
        words(&plan(&changed).plan)
    };
    let drop_all = with(Field::InPort, LOCAL.into(), vec![]);
    assert_eq!(drop_all, " / 4 / 0 / Unsupported Unsupported Unsupported");
    let some = with(Field::IpProto, 17, vec![]);
    assert_eq!(some, " / 0 / 0 / Undecided Undecided Undecided");
    let other_port = with(Field::InPort, 9, vec![]);
    assert_eq!(other_port, carried);
    let arp = with(Field::EthType, 0x0806, vec![]);
    assert_eq!(arp, carried);
    let copy = with(Field::InPort, LOCAL.into(), vec![Action::Output(1), Action::Resubmit(10)]);
    assert_eq!(copy, " / 4 / 0 / Unsupported Unsupported Unsupported");
    // Nothing goes out by the port by which it came in.
    let back = with(Field::InPort, LOCAL.into(), vec![Action::Output(LOCAL), Action::Resubmit(10)]);
    assert_eq!(back, carried);
    let unknown = with(Field::InPort, LOCAL.into(), vec![Action::Unknown]);
    assert_eq!(unknown, " / 4 / 0 / Unsupported Unsupported Unsupported");
}

/// A frame of this class, with anything in what the class leaves open. None: an exception.
fn drawn(dice: &mut Dice, bridge: &Bridge, plan: &Plan, known: &[(Field, u128)]) -> Option<Frame> {
    const PORTS: [u128; 6] = [22, 80, 4791, 5201, 6653, 40000];
    let mut fields: BTreeMap<Field, u128> = BTreeMap::new();
    // What rows ask for is likelier than chance.
    let tests: Vec<&Test> =
        bridge.rows.values().flat_map(|row| row.tests.iter().flatten()).collect();
    for _ in 0..dice.below(6) {
        let test = tests[dice.below(tests.len())];
        if matches!(test.field, Field::Other(_)) {
            fields.insert(test.field, test.value);
        }
    }
    let version = dice.of(&[0x0800, 0x86dd]);
    let protocol = dice.of(&[1, 6, 6, 6, 17, 17, 47, 132]);
    fields.extend([(Field::EthType, version), (Field::IpProto, protocol)]);
    let mut ports = (0, 0);
    if [6, 17, 132].contains(&protocol) {
        ports = (dice.of(&PORTS), dice.of(&PORTS));
        fields.extend([(Field::SourcePort, ports.0), (Field::DestinationPort, ports.1)]);
    }
    fields.extend(known.iter().copied());
    let protocol = fields[&Field::IpProto];
    if known.iter().any(|(field, _)| *field == Field::IpProto) && protocol == 0 {
        fields.retain(|field, _| ![Field::SourcePort, Field::DestinationPort].contains(field));
        ports = (0, 0);
    }
    let fits = |wanted: Option<u16>, port: u128| wanted.is_none_or(|it| u128::from(it) == port);
    let excepted = plan.exceptions.iter().any(|it| {
        u128::from(it.protocol) == protocol
            && fits(it.source_port, ports.0)
            && fits(it.destination_port, ports.1)
    });
    (!excepted).then(|| Frame { fields, slot: dice.below(64), whim: dice.below(7) })
}

fn check_peer(dice: &mut Dice, bridge: &Bridge, plan: &Plan, peer: &Mac) {
    let own = plan.own.unwrap();
    let known = [
        (Field::InPort, LOCAL.into()),
        (Field::EthSrc, number(own).into()),
        (Field::EthDst, number(*peer).into()),
    ];
    let Some(frame) = drawn(dice, bridge, plan, &known) else { return };
    let it = &plan.peers[peer];
    let path = &it.paths[usize::from(it.slots[frame.slot])];
    let way = Way::of(bridge, frame.clone());
    let (src, dst) = (path.source, path.destination);
    let wanted = Effect::Out { port: path.port, src, dst, vlan: path.vlan };
    assert_eq!((way.effects, way.path), (vec![wanted], Some(path.id)), "{frame:?}");
}

fn check_arrival(dice: &mut Dice, bridge: &Bridge, plan: &Plan, arrival: &Arrival) {
    let known = [
        (Field::InPort, arrival.port.into()),
        (Field::EthSrc, number(arrival.source).into()),
        (Field::EthDst, number(arrival.destination).into()),
        (Field::VlanVid, arrival.vlan.map_or(0, |id| VLAN_PRESENT | id).into()),
    ];
    let Some(frame) = drawn(dice, bridge, plan, &known) else { return };
    let way = Way::of(bridge, frame.clone());
    let (src, dst) = (plan.arrivals[arrival].peer, plan.own.unwrap());
    let wanted = Effect::Out { port: LOCAL, src, dst, vlan: None };
    assert_eq!(way.effects, vec![wanted], "{frame:?}");
}

/// A helper's port for what helpers send each other.
const WIRE: u128 = 102;

/// TCP to a striped peer goes to the helper as it is, and so do other protocols if the plan says so.
/// Links are what the rows say.
fn check_striped(dice: &mut Dice, bridge: &Bridge, plan: &Plan, peer: &Mac) {
    let own = plan.own.unwrap();
    let known = [
        (Field::InPort, LOCAL.into()),
        (Field::EthSrc, number(own).into()),
        (Field::EthDst, number(*peer).into()),
        (Field::IpProto, 6),
    ];
    let striped = &plan.striped[peer];
    // The last one is the protocol, by which the class is narrower.
    let known = if striped.others { &known[..3] } else { &known[..] };
    if let Some(frame) = drawn(dice, bridge, plan, known) {
        let wanted = Effect::Out { port: TO_HELPER, src: own, dst: *peer, vlan: None };
        assert_eq!(Way::of(bridge, frame.clone()).effects, vec![wanted], "{frame:?}");
    }
    for (link, path) in &striped.paths {
        let known = [
            (Field::InPort, WIRE),
            (Field::EthSrc, number(own).into()),
            (Field::EthDst, number(*peer).into()),
            (Field::VlanVid, (VLAN_PRESENT | (u16::from(*link) + 1)).into()),
            (Field::EthType, 0x88b6),
            (Field::IpProto, 0),
        ];
        let frame = drawn(dice, bridge, plan, &known).expect("it is no IP");
        let way = Way::of(bridge, frame.clone());
        let (src, dst) = (path.source, path.destination);
        let wanted = Effect::Out { port: path.port, src, dst, vlan: path.vlan };
        assert_eq!((way.effects, way.path), (vec![wanted], Some(path.id)), "{frame:?}");
    }
}

/// Changes something of a bridge, as somebody else or a fault might.
fn disturb(dice: &mut Dice, bridge: &mut Bridge) {
    let keys: Vec<_> = bridge.rows.keys().cloned().collect();
    let Some(key) = keys.get(dice.below(keys.len().max(1))).cloned() else { return };
    let other = keys[dice.below(keys.len())].clone();
    let donor = bridge.rows[&other].clone();
    let row = bridge.rows.get_mut(&key).unwrap();
    match dice.below(12) {
        0 => drop(bridge.rows.remove(&key)),
        1 => row.idles = true,
        2 => row.tests = None,
        3 => row.actions.push(donor.actions.first().cloned().unwrap_or(Action::Unknown)),
        4 => row.actions = donor.actions,
        5 => row.tests.get_or_insert_default().extend(donor.tests.into_iter().flatten()),
        6 => drop(row.tests.as_mut().map(Vec::pop)),
        7 => {
            let row = bridge.rows.remove(&key).unwrap();
            let mut key = key;
            key.priority = other.priority;
            key.encoded.push(0);
            bridge.rows.insert(key, row);
        }
        8 => {
            let fields = [Field::IpProto, Field::SourcePort, Field::EthType, Field::Reg(6)];
            let field = dice.of(&fields);
            let value = dice.of(&[6, 17, 80, 0x0800, 0]) & field.exact();
            row.tests.get_or_insert_default().push(Test { field, value, mask: field.exact() });
        }
        9 => {
            let number = dice.of(&[1, 2, 3]);
            bridge.ports.entry(number).and_modify(|port| port.live = !port.live);
        }
        10 => {
            let groups: Vec<u32> = bridge.groups.keys().copied().collect();
            let (one, two) = (dice.of(&groups), dice.of(&groups));
            let buckets = bridge.groups[&two].buckets.clone();
            let group = bridge.groups.get_mut(&one).unwrap();
            match dice.below(4) {
                0 => group.buckets = buckets,
                1 => group.choice = Choice::Other,
                2 => drop(group.buckets.pop()),
                _ => {
                    let dead = dice.below(group.buckets.len().max(1));
                    group.buckets.iter_mut().skip(dead).for_each(|it| it.watch_port = Some(9));
                }
            }
        }
        _ => {
            let mut copy = key;
            copy.priority = dice.of(&[0, 100, 60_000]);
            copy.table = other.table;
            bridge.rows.insert(copy, donor);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_planned_is_what_every_single_frame_meets(seed: u64) {
        let mut dice = Dice::new(seed);
        let mut bridge = bridge(dice.of(&NAMES));
        for _ in 0..dice.below(4) {
            disturb(&mut dice, &mut bridge);
        }
        let plan = plan(&bridge).plan;
        for peer in plan.peers.keys() {
            (0..8).for_each(|_| check_peer(&mut dice, &bridge, &plan, peer));
        }
        for peer in plan.striped.keys() {
            (0..8).for_each(|_| check_striped(&mut dice, &bridge, &plan, peer));
        }
        for arrival in plan.arrivals.keys() {
            (0..4).for_each(|_| check_arrival(&mut dice, &bridge, &plan, arrival));
        }
    }
}
