// SPDX-License-Identifier: Apache-2.0
//! A slow and obvious model of Open vSwitch: follows one frame, of which everything is known.

use std::collections::BTreeMap;

use ri2n_fast::plan::Mac;
use ri2n_fast::rows::model::{
    mac, Action, Bridge, Bucket, Choice, Field, Group, Row, Test, VLAN_PRESENT,
};

/// The helper's port for the host's frames.
pub const TO_HELPER: u32 = 101;

/// What leaves the bridge, or what no plan may have caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A frame.
    Out { port: u32, src: Mac, dst: Mac, vlan: Option<u16> },
    /// Something that is more than a frame that is sent.
    More(&'static str),
}

/// A frame and how chance falls.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Every field. What is not here is 0.
    pub fields: BTreeMap<Field, u128>,
    /// The flow's slot.
    pub slot: usize,
    /// Which one of equal rows is met.
    pub whim: usize,
}

/// A frame's way.
pub struct Way<'a> {
    bridge: &'a Bridge,
    pub effects: Vec<Effect>,
    /// reg1 of the last row met in table 30 that asks for it.
    pub path: Option<u32>,
    budget: u32,
}

impl<'a> Way<'a> {
    pub fn of(bridge: &'a Bridge, mut frame: Frame) -> Way<'a> {
        let mut way = Way { bridge, effects: Vec::new(), path: None, budget: 10_000 };
        way.look_up(0, &mut frame);
        way
    }

    fn look_up(&mut self, table: u8, frame: &mut Frame) {
        if self.budget == 0 {
            return self.effects.push(Effect::More("an endless way"));
        }
        self.budget -= 1;
        // What cannot be read may mean anything.
        let fits = |row: &Row| match &row.tests {
            Some(tests) => tests.iter().all(|test| frame.fits(test)),
            None => frame.whim % 2 == 0,
        };
        let met = self.bridge.rows.iter().filter(|(key, row)| key.table == table && fits(row));
        let met: Vec<_> = met.collect();
        let Some(best) = met.iter().map(|(key, _)| key.priority).max() else { return };
        let best: Vec<_> = met.iter().filter(|(key, _)| key.priority == best).collect();
        let (_, row) = best[frame.whim % best.len()];
        if row.idles {
            self.effects.push(Effect::More("a row that idles"));
        }
        let asked = row.exactly(Field::Reg(1)).filter(|_| row.exactly(Field::EthDst).is_some());
        if let (30, Some(path)) = (table, asked) {
            self.path = Some(path as u32);
        }
        self.run(&row.actions, frame);
    }

    fn run(&mut self, actions: &[Action], frame: &mut Frame) {
        for action in actions {
            match *action {
                Action::Output(port) => self.output(port, frame),
                Action::Group(number) => {
                    if let Some(group) = self.bridge.groups.get(&number) {
                        self.group(group, frame);
                    }
                }
                Action::Resubmit(table) => self.look_up(table, frame),
                Action::Set { field, value, mask } => frame.set(field, value, mask),
                Action::Copy { from: (from, from_bit), to: (to, to_bit), bits } => {
                    let mask = (1u128 << bits) - 1;
                    let value = frame.get(from) >> from_bit & mask;
                    frame.set(to, value << to_bit, mask << to_bit);
                }
                Action::PushVlan(kind) => {
                    if kind != 0x8100 || frame.get(Field::VlanVid) != 0 {
                        self.effects.push(Effect::More("an odd tag"));
                    }
                    frame.set(Field::VlanVid, VLAN_PRESENT.into(), u128::MAX);
                }
                Action::PopVlan => frame.set(Field::VlanVid, 0, u128::MAX),
                Action::Unknown => self.effects.push(Effect::More("an unknown action")),
            }
        }
    }

    fn output(&mut self, port: u32, frame: &Frame) {
        if u128::from(port) == frame.get(Field::InPort) {
            return;
        }
        if port >= 100 && ![TO_HELPER, 0xffff_fffe].contains(&port) {
            return self.effects.push(Effect::More("a port of others"));
        }
        let Some(it) = self.bridge.ports.get(&port) else { return };
        if it.restricted {
            return self.effects.push(Effect::More("a restricted port"));
        }
        let vlan = frame.get(Field::VlanVid) as u16;
        self.effects.push(Effect::Out {
            port,
            src: mac(frame.get(Field::EthSrc) as u64),
            dst: mac(frame.get(Field::EthDst) as u64),
            vlan: (vlan & VLAN_PRESENT != 0).then_some(vlan & 0xfff),
        });
    }

    fn group(&mut self, group: &Group, frame: &Frame) {
        let count = group.buckets.len();
        let chosen = match group.choice {
            Choice::FirstLive => group.buckets.iter().find(|it| self.is_alive(it, 0)),
            Choice::Hash => {
                let even = group.buckets.iter().all(|it| it.weight == group.buckets[0].weight);
                if count != 64 || !even || group.buckets[0].weight == 0 {
                    return self.effects.push(Effect::More("another slot table"));
                }
                (0..count)
                    .map(|at| &group.buckets[(frame.slot + at) % count])
                    .find(|it| self.is_alive(it, 0))
            }
            Choice::Other => return self.effects.push(Effect::More("another group")),
        };
        let Some(bucket) = chosen else { return };
        let mut ways = bucket
            .actions
            .iter()
            .enumerate()
            .filter(|(_, it)| !matches!(it, Action::Set { .. } | Action::Copy { .. }));
        match (ways.next(), ways.next()) {
            (None, _) => {}
            (Some((last, _)), None) if last + 1 == bucket.actions.len() => {
                self.run(&bucket.actions, &mut frame.clone());
            }
            _ => self.effects.push(Effect::More("an odd bucket")),
        }
    }

    fn is_alive(&self, bucket: &Bucket, depth: u32) -> bool {
        let port = bucket.watch_port.map(|it| self.bridge.ports.get(&it).is_some_and(|p| p.live));
        let group = bucket.watch_group.map(|it| {
            let group = self.bridge.groups.get(&it);
            depth < 100
                && group.is_some_and(|g| g.buckets.iter().any(|it| self.is_alive(it, depth + 1)))
        });
        match (port, group) {
            (None, None) => true,
            (port, group) => port == Some(true) || group == Some(true),
        }
    }
}

impl Frame {
    pub fn get(&self, field: Field) -> u128 {
        self.fields.get(&field).copied().unwrap_or(0)
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) {
        let new = self.get(field) & !mask | value & mask;
        self.fields.insert(field, new);
    }

    pub fn fits(&self, test: &Test) -> bool {
        self.get(test.field) & test.mask == test.value
    }
}
