// SPDX-License-Identifier: Apache-2.0
//! Tells the controller what passes beside the bridge, and how things are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Link, Watch, COUNTS_EVERY, TEND_EVERY};
use crate::openflow::message;
use crate::openflow::mirror::REPORT;
use crate::programs::{Count, Counts};
use crate::report::{self, Carried, Force, Head, Row, State};
use crate::sys::now_ns;

const SLOTS_EVERY: Duration = Duration::from_secs(1);
/// The bridge lets a bounded number of frames a second through to the controller, among which are
/// probes. So slots take at most so many of them on average: with many peers they come less often.
const SLOTS_FRAMES: u32 = 64;
/// After a report of the state, the next one comes so much later at the earliest, if it is only
/// that the programs obey other rows.
const OBEYED_AFTER: Duration = Duration::from_millis(100);
/// A report with all rows or peers, also those that have not changed.
const ALL_EVERY: Duration = Duration::from_secs(10);
/// A bridge that says nothing for so long, though it is asked every second, gets no reports: they
/// would pile up.
const SILENT: Duration = Duration::from_secs(3);

impl Watch {
    fn head(&self) -> Option<Head> {
        let own = self.planned.plan.own?;
        Some(Head { own, epoch: self.carrier.epoch, time_ns: now_ns() })
    }

    pub(super) fn report_counts(&mut self, now: Instant) {
        self.due.counts = now + COUNTS_EVERY;
        if !self.is_listening(now) || self.carrier.devices().is_none() {
            return;
        }
        let (Some(head), Some(counts)) = (self.head(), self.carrier.counts()) else { return };
        let rows = by_row(counts);
        let all = self.due.all_counts <= now || self.told_epoch != self.carrier.epoch;
        let news: Vec<(Row, Carried)> = rows
            .iter()
            .filter(|(row, carried)| all || self.told_counts.get(row) != Some(carried))
            .map(|(row, carried)| (*row, *carried))
            .collect();
        if all {
            self.due.all_counts = now + ALL_EVERY;
            self.told_epoch = self.carrier.epoch;
        }
        self.told_counts = rows;
        if !news.is_empty() {
            self.send(report::counts(&head, &news));
        }
    }

    pub(super) fn report_slots(&mut self, now: Instant) {
        self.due.slots = now + SLOTS_EVERY;
        if !self.is_listening(now) || self.carrier.devices().is_none() {
            return;
        }
        let (Some(head), Some(slots)) = (self.head(), self.carrier.slot_counts()) else { return };
        let all = self.due.all_slots <= now || self.told_slots_epoch != self.carrier.epoch;
        let news: Vec<_> = slots
            .iter()
            .filter(|(peer, bytes)| all || self.told_slots.get(*peer) != Some(bytes))
            .map(|(peer, bytes)| (*peer, *bytes))
            .collect();
        if all {
            self.due.all_slots = now + ALL_EVERY;
            self.told_slots_epoch = self.carrier.epoch;
        }
        self.told_slots = slots;
        let frames = report::slots(&head, &news);
        let share = u32::try_from(frames.len()).unwrap_or(u32::MAX).div_ceil(SLOTS_FRAMES);
        self.due.slots = now + SLOTS_EVERY * share;
        self.send(frames);
    }

    pub(super) fn state(&self) -> State {
        let dropped = self.carrier.counts().map_or(0, |counts| counts.dropped.values().sum());
        State {
            programs: self.carrier.force(),
            filter: self.carrier.filter(),
            order: self.order(),
            errno: self.carrier.errno(),
            dropped,
            obeyed: self.obeyed(Instant::now()),
        }
    }

    /// The digest of the rows that the programs obey, and no others; 0: they may still do what
    /// earlier rows said. Where they do not have the newest plan, or this watch's programs are not
    /// in force, that lasts until what was told to them has lapsed.
    fn obeyed(&self, now: Instant) -> u64 {
        let Some(link) = self.link.as_ref().filter(|link| link.mirror.is_whole()) else { return 0 };
        let is_planned = self.changes.is_some() && self.due.plan.is_none() && self.kept.is_none();
        let has_plan = is_planned && self.carrier.agrees() || self.lapses <= now;
        let is_alone = self.carrier.force() == Force::InForce || self.alone <= now;
        if self.observed.is_some() && has_plan && is_alone {
            link.mirror.digest()
        } else {
            0
        }
    }

    /// Sees to it that the controller hears soon when the programs obey other rows: a job may wait.
    pub(super) fn notice_obeyed(&mut self, now: Instant) {
        let obeyed = self.obeyed(now);
        if obeyed != 0 && obeyed != self.told_obeyed {
            self.due.state = self.due.state.min(self.told_state_at + OBEYED_AFTER);
        }
    }

    pub(super) fn report_state(&mut self, now: Instant) {
        self.due.state = now + TEND_EVERY;
        let state = self.state();
        (self.told_obeyed, self.told_state_at) = (state.obeyed, now);
        if let (true, Some(head)) = (self.is_listening(now), self.head()) {
            self.send(report::state(&head, &state, &self.planned.plan, &self.striping));
        }
    }

    fn is_listening(&self, now: Instant) -> bool {
        let alive = |link: &Link| link.mirror.is_whole() && now.duration_since(link.heard) < SILENT;
        self.link.as_ref().is_some_and(alive)
    }

    fn send(&mut self, frames: Vec<Vec<u8>>) {
        let Some(link) = &mut self.link else { return };
        let messages: Vec<Vec<u8>> =
            frames.iter().map(|frame| message::to_controllers(REPORT, frame)).collect();
        if link.sender.send(&messages).is_err() {
            link.sender.close();
            self.link = None;
        }
    }
}

fn by_row(counts: Counts) -> BTreeMap<Row, Carried> {
    let carried = |count: Count| Carried { packets: count.packets, bytes: count.bytes };
    report::by_row(
        counts.sent.into_iter().map(|(row, count)| (row, carried(count))),
        counts.arrived.into_iter().map(|(row, count)| (row, carried(count))),
    )
}
