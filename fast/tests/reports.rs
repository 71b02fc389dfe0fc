// SPDX-License-Identifier: Apache-2.0
//! Reports as the controller reads them: `reports.json` is what its own tests read, too.

use std::collections::BTreeSet;

use ri2n_fast::plan::{Arrival, Left, Mac, Peer, Plan, SLOTS};
use ri2n_fast::report::{self, Carried, Filter, Force, Head, Order, Row, State};
use serde_json::Value;

fn mac(text: &Value) -> Mac {
    let bytes = text.as_str().unwrap().split(':').map(|it| u8::from_str_radix(it, 16).unwrap());
    bytes.collect::<Vec<_>>().try_into().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn head(report: &Value) -> Head {
    Head {
        own: mac(&report["own"]),
        epoch: number(&report["epoch"]),
        time_ns: number(&report["time_ns"]),
    }
}

fn counts(report: &Value) -> Vec<Vec<u8>> {
    let row = |it: &Value| {
        let (of, number_) = (mac(&it["mac"]), number(&it["number"]) as u32);
        let row = match number(&it["table"]) {
            30 => Row::Path { peer: of, id: number_ },
            _ => Row::Source { port: number_, source: of, vlan: number(&it["vlan"]) as u16 },
        };
        (row, Carried { packets: number(&it["packets"]), bytes: number(&it["bytes"]) })
    };
    let rows: Vec<_> = report["rows"].as_array().unwrap().iter().map(row).collect();
    report::counts(&head(report), &rows)
}

fn slots(report: &Value) -> Vec<Vec<u8>> {
    let peer = |it: &Value| {
        let bytes = it["bytes"].as_array().unwrap().iter().map(number).collect::<Vec<_>>();
        (mac(&it["mac"]), bytes.try_into().unwrap())
    };
    let peers: Vec<_> = report["peers"].as_array().unwrap().iter().map(peer).collect();
    report::slots(&head(report), &peers)
}

fn state(report: &Value) -> Vec<Vec<u8>> {
    let (mut plan, mut striping) = (Plan::default(), BTreeSet::new());
    for it in report["peers"].as_array().unwrap() {
        let left = match number(&it["state"]) {
            0 => {
                plan.peers.insert(mac(&it["mac"]), Peer { paths: vec![], slots: [0; SLOTS] });
                continue;
            }
            1 => Left::Striped,
            2 => Left::Undecided,
            3 => Left::Unsupported,
            4 => Left::TooMany,
            _ => {
                striping.insert(mac(&it["mac"]));
                Left::Striped
            }
        };
        plan.left.insert(mac(&it["mac"]), left);
    }
    let programs = [Force::Off, Force::InForce, Force::Refused, Force::NoDevice];
    let filter = [Filter::NotNeeded, Filter::InForce, Filter::Missing];
    let state = State {
        programs: programs[number(&report["programs"]) as usize],
        filter: filter[number(&report["filter"]) as usize],
        order: [Order::None, Order::Ready][number(&report["order"]) as usize],
        errno: number(&report["errno"]) as u8,
        dropped: number(&report["dropped"]),
        obeyed: number(&report["obeyed"]),
    };
    report::state(&head(report), &state, &plan, &striping)
}

#[test]
fn reports_are_as_the_examples_say() {
    let examples: Value = serde_json::from_str(include_str!("reports.json")).unwrap();
    let examples = examples.as_array().unwrap();
    for example in examples {
        let report = &example["report"];
        let frames = match report["kind"].as_str().unwrap() {
            "counts" => counts(report),
            "slots" => slots(report),
            _ => state(report),
        };
        let hex = |frame: &Vec<u8>| frame.iter().map(|it| format!("{it:02x}")).collect::<String>();
        let frames: Vec<Value> = frames.iter().map(|frame| hex(frame).into()).collect();
        assert_eq!(Value::from(frames), example["frames"], "{}", example["name"]);
    }
    assert!(examples.len() > 11);
}

#[test]
fn more_drops_than_fit_are_the_most_that_fit() {
    let head = Head { own: [6, 0, 0, 0, 3, 1], epoch: 1, time_ns: 2 };
    let state = |dropped| State {
        programs: Force::InForce,
        filter: Filter::InForce,
        order: Order::None,
        errno: 0,
        dropped,
        obeyed: 0,
    };
    let frames =
        |dropped| report::state(&head, &state(dropped), &Plan::default(), &BTreeSet::new());
    assert_eq!(frames(u64::MAX), frames(u32::MAX.into()));
}

#[test]
fn peers_are_striped_beside_the_bridge_only_where_the_helper_reaches_them() {
    let head = Head { own: [6, 0, 0, 0, 3, 1], epoch: 1, time_ns: 2 };
    let state = State {
        programs: Force::InForce,
        filter: Filter::InForce,
        order: Order::Ready,
        errno: 0,
        dropped: 0,
        obeyed: 0,
    };
    let peer = [6, 0, 0, 0, 1, 1];
    let code = |why| {
        let plan = Plan { left: [(peer, why)].into(), ..Plan::default() };
        report::state(&head, &state, &plan, &BTreeSet::from([peer]))[0][60]
    };
    assert_eq!([Left::Striped, Left::Undecided, Left::TooMany].map(code), [5, 2, 4]);
}

#[test]
fn arrivals_of_one_row_are_counted_together() {
    let arrival =
        |destination| Arrival { port: 1, source: [4, 0, 0, 0, 1, 1], destination, vlan: Some(102) };
    let carried = |packets, bytes| Carried { packets, bytes };
    let rows = report::by_row(
        [(([6, 0, 0, 0, 1, 1], 7), carried(1, 60))],
        [
            (arrival([4, 0, 0, 0, 3, 1]), carried(2, 200)),
            (arrival([4, 0, 0, 0, 3, 2]), carried(3, 300)),
        ],
    );
    let source = Row::Source { port: 1, source: [4, 0, 0, 0, 1, 1], vlan: 102 };
    assert_eq!(rows[&source], carried(5, 500));
    assert_eq!(rows[&Row::Path { peer: [6, 0, 0, 0, 1, 1], id: 7 }], carried(1, 60));
}
