// SPDX-License-Identifier: Apache-2.0
//! The OpenFlow client: what bridges said, whole and mutilated, and how a mirror follows changes.

use proptest::prelude::*;
use ri2n_fast::commands::replay;
use ri2n_fast::openflow::message::{self, first, kind, part, ALL_GROUPS};
use ri2n_fast::openflow::mirror::{Broken, Mirror};
use ri2n_fast::rows::model::{Action, Field};
use ri2n_fast::rows::plan;

use crate::dice::Dice;
use crate::rows::{bridge, saved, NAMES};

/// The messages of a stream.
fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Ok(Some(length)) = first(bytes) {
        all.push(bytes[..length].to_vec());
        bytes = &bytes[length..];
    }
    all
}

fn mirror(name: &str) -> Mirror {
    let mut mirror = replay(&saved(name)).unwrap();
    mirror.take_messages();
    mirror.take_changes();
    mirror
}

/// A part of an answer, and a message of a flow monitor with one entry that has no match.
fn multipart(part: u16, id: u32, more: bool, body: &[u8]) -> Vec<u8> {
    let mut whole = part.to_be_bytes().to_vec();
    whole.extend([0, u8::from(more), 0, 0, 0, 0]);
    whole.extend(body);
    message::message(kind::MULTIPART_REPLY, id, &whole)
}

fn row_news(event: u8, table: u8, priority: u16, actions: &[u8]) -> Vec<u8> {
    let mut entry = vec![0, 0, 0, event, table, 0, 0, 0, 0, 0];
    entry.extend(priority.to_be_bytes());
    entry.extend([0; 12]);
    entry.extend([0, 1, 0, 4, 0, 0, 0, 0]); // a match that every frame fits
    if !actions.is_empty() {
        entry.extend([0, 4, 0, 8 + actions.len() as u8, 0, 0, 0, 0]);
        entry.extend(actions);
    }
    entry[1] = entry.len() as u8;
    multipart(part::FLOW_MONITOR, 0, false, &entry)
}

fn group_mod(number: u32) -> Vec<u8> {
    let mut body = vec![0, 1, 1, 0];
    body.extend(number.to_be_bytes());
    message::message(kind::REQUEST_FORWARD, 0, &message::message(15, 9, &body))
}

const OUTPUT_1: [u8; 16] = [0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn all_of_a_real_bridge_can_be_read() {
    for name in NAMES {
        let bridge = bridge(name);
        assert!(bridge.rows.values().all(|row| row.tests.is_some()), "{name}");
        assert!(bridge.rows.len() > 60 && bridge.ports.len() > 1, "{name}");
        // Of what the product's rows do, only this is none of the fast path's business.
        let knows = |actions: &[Action]| actions.iter().all(|it| *it != Action::Unknown);
        let unknown = bridge.rows.iter().filter(|(_, row)| !knows(&row.actions));
        let tables: std::collections::BTreeSet<u8> = unknown.map(|(key, _)| key.table).collect();
        assert!(tables.is_subset(&[0, 5, 12, 13, 14, 247, 248].into()), "{name}: {tables:?}");
        assert!(bridge.groups.values().all(|it| it.buckets.iter().all(|it| knows(&it.actions))));
    }
}

#[test]
fn registers_are_read_one_by_one() {
    let bridge = bridge("plain");
    let mut paths = bridge.rows.iter().filter(|(key, _)| key.table == 30);
    assert!(paths.all(|(_, row)| row.exactly(Field::Reg(1)).is_some()));
}

#[test]
fn a_mirror_asks_for_everything_and_is_whole_when_it_has_it() {
    let mut mirror = Mirror::new();
    let asked = mirror.take_messages();
    assert_eq!(asked[0], message::hello());
    assert!(asked.contains(&message::ask_groups(5, ALL_GROUPS)));
    let said = messages(&saved("plain"));
    let (last, others) = said.split_last().unwrap();
    for message in others {
        mirror.take_in(message).unwrap();
        assert!(!mirror.is_whole());
    }
    mirror.take_in(last).unwrap();
    assert!(mirror.is_whole());
    assert_eq!(mirror.bridge(), &bridge("plain"));
}

#[test]
fn an_echo_is_answered() {
    let mut mirror = mirror("plain");
    mirror.take_in(&message::message(kind::ECHO_REQUEST, 77, b"abc")).unwrap();
    assert_eq!(mirror.take_messages(), [message::message(kind::ECHO_REPLY, 77, b"abc")]);
}

#[test]
fn rows_come_and_go() {
    let mut mirror = mirror("plain");
    let count = mirror.bridge().rows.len();
    mirror.take_in(&row_news(1, 200, 5, &OUTPUT_1)).unwrap();
    let (_, row) = mirror.bridge().rows.iter().find(|(key, _)| key.table == 200).unwrap();
    assert_eq!((row.actions.as_slice(), row.idles), ([Action::Output(1)].as_slice(), false));
    assert_eq!(mirror.take_changes().tables, [200].into());
    mirror.take_in(&row_news(3, 200, 5, &[])).unwrap();
    assert_eq!(mirror.bridge().rows.len(), count + 1, "a changed row takes its own place");
    mirror.take_in(&row_news(2, 200, 5, &[])).unwrap();
    assert_eq!(mirror.bridge(), &bridge("plain"));
}

#[test]
fn nothing_is_concluded_while_the_bridge_leaves_things_out() {
    let mut mirror = mirror("plain");
    let news = |event| multipart(part::FLOW_MONITOR, 0, false, &[0, 8, 0, event, 0, 0, 0, 0]);
    mirror.take_in(&news(5)).unwrap();
    assert!(!mirror.is_whole());
    mirror.take_in(&row_news(1, 200, 5, &OUTPUT_1)).unwrap();
    assert!(!mirror.is_whole());
    mirror.take_in(&news(6)).unwrap();
    assert!(mirror.is_whole());
}

#[test]
fn a_changed_group_is_asked_for() {
    let mut mirror = mirror("plain");
    let (&number, _) = mirror.bridge().groups.iter().next().unwrap();
    mirror.take_in(&group_mod(number)).unwrap();
    assert!(!mirror.is_whole(), "what the group is now is not known");
    let asked = mirror.take_messages();
    let id = u32::from_be_bytes(asked[0][4..8].try_into().unwrap());
    assert_eq!(asked, [message::ask_groups(id, number)]);
    mirror.take_in(&multipart(part::GROUPS, id, false, &[])).unwrap();
    assert!(mirror.is_whole() && !mirror.bridge().groups.contains_key(&number));
}

#[test]
fn after_a_change_of_all_groups_all_are_asked_for() {
    let mut mirror = mirror("plain");
    mirror.take_in(&group_mod(ALL_GROUPS)).unwrap();
    assert_eq!(mirror.take_messages(), [message::ask_groups(5, ALL_GROUPS)]);
    assert!(!mirror.is_whole());
    mirror.take_in(&multipart(part::GROUPS, 5, true, &[])).unwrap();
    assert!(!mirror.is_whole());
    mirror.take_in(&multipart(part::GROUPS, 5, false, &[])).unwrap();
    assert!(mirror.is_whole() && mirror.bridge().groups.is_empty());
}

#[test]
fn a_refused_request_is_said_but_a_refused_report_is_not() {
    let mut mirror = mirror("plain");
    let refusal = |id| message::message(kind::ERROR, id, &[0, 1, 0, 5]);
    assert_eq!(mirror.take_in(&refusal(4)), Err(Broken::Refused(1, 5)));
    assert_eq!(mirror.take_in(&refusal(6)), Ok(()));
}

#[test]
fn another_version_is_refused() {
    let mut mirror = Mirror::new();
    let mut other = message::message(kind::ECHO_REQUEST, 1, &[]);
    other[0] = 4;
    assert_eq!(mirror.take_in(&other), Err(Broken::Malformed));
    let mut hello = message::hello();
    hello[0] = 4;
    assert_eq!(mirror.take_in(&hello), Ok(()));
}

#[test]
fn a_row_that_cannot_be_read_is_unknown_and_the_others_are_not() {
    // An action whose length is wrong.
    let mut mirror = mirror("plain");
    let mut actions = OUTPUT_1;
    actions[3] = 7;
    mirror.take_in(&row_news(1, 200, 5, &actions)).unwrap();
    let (_, row) = mirror.bridge().rows.iter().find(|(key, _)| key.table == 200).unwrap();
    assert_eq!(row.actions, [Action::Unknown]);
    assert_eq!(plan(mirror.bridge()), plan(&bridge("plain")));
    // In a table through which all frames go it leaves them to the bridge.
    mirror.take_in(&row_news(1, 0, 65_000, &actions)).unwrap();
    let plan = plan(mirror.bridge()).plan;
    assert!(plan.peers.is_empty() && plan.arrivals.is_empty() && plan.left.len() == 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..Default::default() })]

    #[test]
    fn mutilated_messages_make_no_panic(seed: u64) {
        let mut dice = Dice::new(seed);
        let mut all = messages(&saved(dice.of(&NAMES)));
        for _ in 0..1 + dice.below(12) {
            let place = dice.below(all.len());
            let message = &mut all[place];
            let at = dice.below(message.len());
            match dice.below(4) {
                0 => message[at] = dice.of(&[0, 1, 7, 8, 0x7f, 0x80, 0xff]),
                1 => message[at] ^= 1 << dice.below(8),
                2 => message.truncate(at.max(8)),
                _ => message.insert(at, dice.below(256) as u8),
            }
            // Mostly with a head that fits, so that what is behind it is read.
            if dice.below(8) > 0 && message.len() >= 8 {
                let length = message.len() as u16;
                message[2..4].copy_from_slice(&length.to_be_bytes());
            }
        }
        let mut mirror = Mirror::new();
        for message in &all {
            let _ = mirror.take_in(message);
        }
        plan(mirror.bridge());
    }

    #[test]
    fn any_bytes_make_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = replay(&bytes);
        for kind in [kind::PORT_STATUS, kind::REQUEST_FORWARD, kind::MULTIPART_REPLY] {
            let _ = Mirror::new().take_in(&message::message(kind, 4, &bytes));
        }
        for part in [part::GROUPS, part::PORTS, part::FLOW_MONITOR] {
            let _ = Mirror::new().take_in(&multipart(part, 5, false, &bytes));
        }
    }
}
