// SPDX-License-Identifier: Apache-2.0
//! Follows a class of frames through the tables and groups, as ofproto/ofproto-dpif-xlate.c does
//! it with one frame.

use std::collections::BTreeSet;

use super::frame::{Bits, Counted, Frame, Taken};
use super::index::Index;
use super::model::{
    mac, Action, Bridge, Bucket, Choice, Field, Group, Row, IN_PORT, LOCAL, VLAN_PRESENT,
};
use super::outcome::{Outcome, Sent};
use super::planning::{PATH_TABLE, SOURCE_TABLE};
use crate::plan::{Exception, Left, SLOTS};

/// The ports of NICs are below this.
pub const NICS_END: u32 = 100;
/// The port of the helper's device for the host's frames.
const PLAIN: u32 = 101;
/// The port of its device for what helpers send each other.
pub(super) const WIRE: u32 = 102;
const VLAN_TAG: u16 = 0x8100;
/// Open vSwitch goes no deeper than this, either.
const DEEPEST: u32 = 64;
/// A class that meets more rows than this is left to the bridge. The product's need some ten.
const MOST_STEPS: u32 = 2_000;

/// The rest of what is to be done with a frame: actions, then those of the rows that led here.
#[derive(Clone, Copy)]
struct Todo<'t> {
    actions: &'t [Action],
    next: Option<&'t Todo<'t>>,
}

/// One walk through the tables.
pub(super) struct Walk<'a> {
    bridge: &'a Bridge,
    index: &'a Index<'a>,
    /// Flows that were left out on the way: what was found does not hold for them.
    pub exceptions: BTreeSet<Exception>,
    /// The tables that were looked into.
    pub tables: BTreeSet<u8>,
    steps: u32,
}

impl<'a> Walk<'a> {
    pub fn new(bridge: &'a Bridge, index: &'a Index<'a>) -> Walk<'a> {
        Walk { bridge, index, exceptions: BTreeSet::new(), tables: BTreeSet::new(), steps: 0 }
    }

    /// What becomes of these frames.
    pub fn follow(&mut self, frame: Frame) -> Outcome {
        self.look_up(0, frame, Todo { actions: &[], next: None }, 0)
    }

    /// Every row that might take some of the frames is followed to the end, with what is to be done
    /// after it. Where rows of one priority take the same frames, Open vSwitch may choose any.
    fn look_up(&mut self, table: u8, frame: Frame, todo: Todo, depth: u32) -> Outcome {
        self.tables.insert(table);
        let mut all: Option<Outcome> = None;
        let mut taken_at = None;
        for (priority, row) in self.index.candidates(table, &frame) {
            if taken_at.is_some_and(|taken| taken != priority) {
                break;
            }
            match frame.taken_by(row) {
                Taken::None => continue,
                Taken::Excepted(flow) => {
                    self.exceptions.insert(flow);
                    continue;
                }
                Taken::Some => {}
                Taken::All => taken_at = Some(priority),
            }
            let one = self.take(table, row, frame.clone(), todo, depth);
            all = Some(match all {
                Some(others) => others.or(one),
                None => one,
            });
        }
        if taken_at.is_none() {
            let missed = self.go_on(frame, todo, depth);
            all = Some(match all {
                Some(others) => others.or(missed),
                None => missed,
            });
        }
        all.expect("a row takes the frame or none does")
    }

    fn take(&mut self, table: u8, row: &Row, mut frame: Frame, todo: Todo, depth: u32) -> Outcome {
        if row.idles {
            // Frames that pass beside the bridge would let it end.
            return Outcome::Left(Left::Undecided);
        }
        let counted = match table {
            PATH_TABLE => row
                .exactly(Field::Reg(1))
                .filter(|_| row.exactly(Field::EthDst).is_some())
                .map(|path| Counted::Path(path as u32)),
            SOURCE_TABLE => row
                .exactly(Field::InPort)
                .filter(|_| row.exactly(Field::EthSrc).is_some())
                .map(|_| Counted::Source),
            _ => None,
        };
        frame.counted = counted.or(frame.counted);
        self.go_on(frame, Todo { actions: &row.actions, next: Some(&todo) }, depth)
    }

    fn go_on(&mut self, mut frame: Frame, todo: Todo, depth: u32) -> Outcome {
        self.steps += 1;
        if self.steps > MOST_STEPS || depth > DEEPEST {
            return Outcome::Left(Left::Undecided);
        }
        let mut outcome = Outcome::Nothing;
        let mut todo = Some(todo);
        while let Some(Todo { actions, next }) = todo {
            for (place, action) in actions.iter().enumerate() {
                let done = match action {
                    Action::Output(port) => {
                        outcome = outcome.then(self.output(&frame, *port));
                        true
                    }
                    Action::Group(number) => {
                        outcome = outcome.then(self.group(*number, &frame, depth));
                        true
                    }
                    Action::Resubmit(table) => {
                        let rest = Todo { actions: &actions[place + 1..], next };
                        return outcome.then(self.look_up(*table, frame, rest, depth + 1));
                    }
                    change => changed(&mut frame, change),
                };
                if !done {
                    return outcome.then(Outcome::Left(Left::Unsupported));
                }
            }
            todo = next.copied();
        }
        outcome
    }

    fn output(&self, frame: &Frame, port: u32) -> Outcome {
        if port == frame.in_port {
            return Outcome::Nothing; // only IN_PORT leads back
        }
        if port == IN_PORT || (port >= NICS_END && ![LOCAL, PLAIN, WIRE].contains(&port)) {
            return Outcome::Left(Left::Unsupported);
        }
        let device = self.bridge.ports.get(&port);
        let sent = Sent {
            port,
            src: mac(frame.src),
            dst: mac(frame.dst),
            vlan: (frame.vlan & VLAN_PRESENT != 0).then_some(frame.vlan & !VLAN_PRESENT),
            counted: frame.counted,
        };
        match device {
            Some(it) if port == PLAIN && !it.restricted => Outcome::ToHelper(sent),
            _ if [PLAIN, WIRE].contains(&port) => Outcome::Left(Left::Striped),
            None => Outcome::Nothing,
            Some(it) if it.restricted => Outcome::Left(Left::Unsupported),
            Some(_) => Outcome::Sent(sent),
        }
    }

    fn group(&mut self, number: u32, frame: &Frame, depth: u32) -> Outcome {
        let Some(group) = self.bridge.groups.get(&number) else { return Outcome::Nothing };
        match group.choice {
            Choice::FirstLive => match self.first_live(group, 0) {
                Some(bucket) => self.bucket(bucket, frame, depth),
                None => Outcome::Nothing,
            },
            Choice::Hash => self.slots(group, frame, depth),
            Choice::Other => Outcome::Left(Left::Unsupported),
        }
    }

    /// A slot table: 64 buckets of one weight.
    ///
    /// Open vSwitch (`group_setup_dp_hash_table`) makes a table of hash values: 64 of them, later
    /// versions four times as many, and gives value i to bucket i mod 64, since all weigh the same.
    /// `pick_dp_hash_select_group` looks from the hash's value onwards, and around, for the first
    /// bucket that is alive. So a dead bucket's slot goes to the next live bucket of the list.
    fn slots(&mut self, group: &Group, frame: &Frame, depth: u32) -> Outcome {
        let weight = group.buckets.first().map_or(0, |first| first.weight);
        if group.buckets.len() != SLOTS
            || weight == 0
            || group.buckets.iter().any(|bucket| bucket.weight != weight)
        {
            return Outcome::Left(Left::Unsupported);
        }
        let alive: Vec<bool> = group.buckets.iter().map(|it| self.is_alive(it, 0)).collect();
        let mut known: Vec<(&[Action], Outcome)> = Vec::new();
        let mut sent = Vec::with_capacity(SLOTS);
        for slot in 0..SLOTS {
            let mut order = (slot..SLOTS).chain(0..slot);
            let Some(chosen) = order.find(|bucket| alive[*bucket]) else {
                return Outcome::Nothing;
            };
            let bucket = &group.buckets[chosen];
            let found = known.iter().find(|(actions, _)| *actions == bucket.actions);
            let outcome = match found {
                Some((_, outcome)) => outcome.clone(),
                None => {
                    let outcome = self.bucket(bucket, frame, depth);
                    known.push((&bucket.actions, outcome.clone()));
                    outcome
                }
            };
            match outcome.mixed() {
                Outcome::Sent(one) => sent.push(one),
                Outcome::Left(why) => return Outcome::Left(why),
                // A slot that drops, or that chooses again.
                _ => return Outcome::Left(Left::Unsupported),
            }
        }
        match sent.try_into() {
            Ok(slots) => Outcome::Slots(slots),
            Err(_) => Outcome::Left(Left::Unsupported),
        }
    }

    /// A bucket's actions are a set. Of sets, only one is followed whose order is clear: changes
    /// first, then one way for the frame. A set without a way drops the frame.
    fn bucket(&mut self, bucket: &Bucket, frame: &Frame, depth: u32) -> Outcome {
        let is_change = |it: &Action| matches!(it, Action::Set { .. } | Action::Copy { .. });
        let is_way =
            |it: &Action| matches!(it, Action::Output(_) | Action::Group(_) | Action::Resubmit(_));
        let changes = bucket.actions.iter().take_while(|it| is_change(it)).count();
        match &bucket.actions[changes..] {
            [] => Outcome::Nothing,
            [way] if is_way(way) => {
                let todo = Todo { actions: &bucket.actions, next: None };
                self.go_on(frame.clone(), todo, depth + 1)
            }
            _ => Outcome::Left(Left::Unsupported),
        }
    }

    fn first_live<'g>(&self, group: &'g Group, depth: u32) -> Option<&'g Bucket> {
        group.buckets.iter().find(|bucket| self.is_alive(bucket, depth))
    }

    /// A bucket that watches nothing is always alive (`bucket_is_alive`).
    fn is_alive(&self, bucket: &Bucket, depth: u32) -> bool {
        const DEEPEST_WATCH: u32 = 128;
        if depth >= DEEPEST_WATCH {
            return false;
        }
        if bucket.watch_port.is_none() && bucket.watch_group.is_none() {
            return true;
        }
        let port = bucket.watch_port.and_then(|number| self.bridge.ports.get(&number));
        let group = bucket.watch_group.and_then(|number| self.bridge.groups.get(&number));
        port.is_some_and(|port| port.live)
            || group.is_some_and(|group| self.first_live(group, depth + 1).is_some())
    }
}

/// Makes an action's change. False: it is none that can be followed.
fn changed(frame: &mut Frame, action: &Action) -> bool {
    match *action {
        Action::Set { field, value, mask } => {
            frame.set(field, Bits { value, known: u128::MAX }, mask)
        }
        Action::Copy { from: (from, from_bit), to: (to, to_bit), bits } => {
            let fits = |field: Field, first: u16| first.saturating_add(bits) <= field.bits();
            if bits == 0 || !fits(from, from_bit) || !fits(to, to_bit) {
                return false;
            }
            let source = frame.get(from);
            let moved = |it: u128| it >> from_bit << to_bit;
            let mask = (u128::MAX >> (128 - u32::from(bits))) << to_bit;
            frame.set(to, Bits { value: moved(source.value), known: moved(source.known) }, mask)
        }
        Action::PushVlan(VLAN_TAG) if frame.vlan == 0 => {
            frame.vlan = VLAN_PRESENT;
            true
        }
        Action::PopVlan => {
            frame.vlan = 0;
            true
        }
        _ => false,
    }
}
