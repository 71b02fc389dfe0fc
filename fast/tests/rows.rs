// SPDX-License-Identifier: Apache-2.0
//! What is read in the rows of bridges. `bridges/` has what real ones said
//! (`tests/sandbox/planned_bridges.py` makes them).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use ri2n_fast::commands::replay;
use ri2n_fast::plan::{Arrival, Left, Mac, Peer, Plan};
use ri2n_fast::rows::model::{number, Action, Bridge, Choice, Field, Test, LOCAL, VLAN_PRESENT};
use ri2n_fast::rows::plan;

use crate::concrete::{Effect, Frame, Way};
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
        ("helpers", " / 4 / 0 / Striped Striped Striped"),
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
    let peer = |plan: Plan| plan.peers.into_values().find(|it| it.paths.len() == 2).unwrap();
    let before = peer(plan(&bridge).plan);
    // One bucket alone dies, since it watches what is not there.
    let group = bridge.groups.values_mut().find(|group| {
        let ways: std::collections::BTreeSet<_> =
            group.buckets.iter().map(|it| format!("{:?}", it.actions)).collect();
        group.choice == Choice::Hash && ways.len() == 2
    });
    let last = group.unwrap().buckets.last_mut().unwrap();
    last.watch_port = Some(77);
    let after = peer(plan(&bridge).plan);
    let way = |peer: &Peer, slot: usize| peer.paths[usize::from(peer.slots[slot])].clone();
    for slot in 0..63 {
        assert_eq!(way(&after, slot), way(&before, slot));
    }
    assert_eq!(way(&after, 63), way(&before, 0));
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
                    if let Some(bucket) = group.buckets.first_mut() {
                        bucket.watch_port = Some(9);
                    }
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
        for arrival in plan.arrivals.keys() {
            (0..4).for_each(|_| check_arrival(&mut dice, &bridge, &plan, arrival));
        }
    }
}
