// SPDX-License-Identifier: Apache-2.0
//! The reorder buffer does exactly what a slow, obvious model does, whatever arrives.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ri2n_reorder::reorder::{Inserted, Policy, Poll, ReorderBuffer, MAX_RANGE, MAX_RANGES};
use ri2n_reorder::seq::Seq;
use ri2n_reorder::Nanos;

const MS: Nanos = 1_000_000;

/// The state of a sequence that is not done with. Positions do not wrap.
#[derive(Clone, Debug, PartialEq)]
enum State {
    Missing { since: Nanos },
    Wanted { since: Nanos, asked: Nanos, tries: u8 },
    Held { bytes: usize, item: u32 },
}
use State::{Held, Missing, Wanted};

struct Model {
    limit: i64,
    max_bytes: usize,
    next: i64,
    end: i64,
    states: BTreeMap<i64, State>,
    newest: BTreeMap<u8, i64>,
    far: BTreeMap<u8, i64>,
    live: u64,
    gone_at: Option<Nanos>,
    last: Nanos,
    passed: Nanos,
}

impl Model {
    fn clock(&mut self, now: Nanos) -> Nanos {
        self.passed += now.saturating_sub(self.last);
        self.last = now;
        self.passed
    }

    fn bytes(&self) -> usize {
        self.states
            .values()
            .map(|state| if let Held { bytes, .. } = state { *bytes } else { 0 })
            .sum()
    }

    fn held(&self) -> usize {
        self.states.values().filter(|state| matches!(state, Held { .. })).count()
    }

    fn missing(&self) -> Vec<i64> {
        let missing = self.states.iter().filter(|(_, state)| !matches!(state, Held { .. }));
        missing.map(|(at, _)| *at).collect()
    }

    fn sent_up_to(&mut self, end: i64) {
        let since = self.passed;
        for at in self.end..end {
            self.states.insert(at, Missing { since });
        }
        self.end = self.end.max(end);
    }

    /// Inserts a frame. `item` is `None` for a frame that is delivered at once.
    fn insert(
        &mut self,
        at: i64,
        link: u8,
        repeated: bool,
        item: Option<(usize, u32)>,
    ) -> Inserted<()> {
        if at < self.next {
            return Inserted::Old;
        }
        if at >= self.next + self.limit {
            return Inserted::FarAhead;
        }
        if !repeated {
            let newest = self.newest.entry(link).or_insert(at + 1);
            *newest = (*newest).max(at + 1);
        }
        let known = at < self.end;
        if known && !matches!(self.states.get(&at), Some(Missing { .. } | Wanted { .. })) {
            return Inserted::Duplicate;
        }
        self.sent_up_to(at + 1);
        if at == self.next {
            self.states.remove(&at);
            self.next += 1;
            return Inserted::InOrder(());
        }
        match item {
            Some((bytes, _)) if self.bytes() + bytes > self.max_bytes => return Inserted::NoMemory,
            Some((bytes, item)) => self.states.insert(at, Held { bytes, item }),
            None => self.states.remove(&at),
        };
        Inserted::Held
    }

    fn pop(&mut self) -> Option<u32> {
        self.settle();
        let Some(Held { item, .. }) = self.states.get(&self.next).cloned() else { return None };
        self.states.remove(&self.next);
        self.next += 1;
        Some(item)
    }

    fn settle(&mut self) {
        while self.next < self.end && !self.states.contains_key(&self.next) {
            self.next += 1;
        }
    }

    fn newer(&mut self, link: u8, end: i64) {
        if end > self.next + self.limit {
            self.far.insert(link, end);
            return;
        }
        self.far.remove(&link);
        let end = end.max(self.next);
        let newest = self.newest.entry(link).or_insert(end);
        *newest = (*newest).max(end);
        self.sent_up_to(end);
    }

    fn withdraw(&mut self, to: i64) -> usize {
        let before = self.held();
        if to < self.next {
            (self.next, self.gone_at) = (to, None);
            self.states.clear();
        } else if to >= self.end {
            return 0;
        }
        self.states.retain(|at, _| *at < to);
        self.end = to;
        (self.newest, self.far, self.live) = (BTreeMap::new(), BTreeMap::new(), 0);
        before - self.held()
    }

    fn gone(&mut self, link: u8) {
        self.newest.remove(&link);
        self.far.remove(&link);
        self.live &= !(1 << link);
        self.gone_at = Some(self.passed);
    }

    /// The lowest value of all live links, if they all have one.
    fn lowest(&self, of: &BTreeMap<u8, i64>) -> Option<i64> {
        let live: Vec<u8> = (0..64).filter(|link| self.live >> link & 1 != 0).collect();
        live.iter().map(|link| of.get(link).copied()).collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    fn give_up(&mut self, which: impl Fn(i64) -> bool) -> u32 {
        let gone: Vec<i64> = self.missing().into_iter().filter(|at| which(*at)).collect();
        for at in &gone {
            self.states.remove(at);
        }
        gone.len() as u32
    }

    fn relieve(&mut self) -> u32 {
        let oldest = self.end - (self.limit - self.limit / 4);
        let mut lost = self.give_up(|at| at < oldest);
        let mut over = self.bytes().saturating_sub(self.max_bytes - self.max_bytes / 4);
        let mut after = self.next;
        while over > 0 {
            let bound = self.missing().first().copied().unwrap_or(self.end);
            for (_, state) in self.states.range(after..bound) {
                if let Held { bytes, .. } = state {
                    over = over.saturating_sub(*bytes);
                }
            }
            if over == 0 || self.missing().is_empty() {
                break;
            }
            let run = (bound..).take_while(|at| {
                matches!(self.states.get(at), Some(Missing { .. } | Wanted { .. }))
            });
            after = bound + run.count() as i64;
            lost += self.give_up(|at| at < after);
        }
        lost
    }

    /// Returns what was lost, what is asked for, and when something is due next.
    fn poll(&mut self, live: u64, policy: &Policy) -> (u32, Vec<i64>, Option<Nanos>) {
        let now = self.passed;
        if self.live & !live != 0 {
            self.gone_at = Some(now);
        }
        self.live = live;
        let mut lost = 0;
        let far = self.lowest(&self.far);
        if self.missing().is_empty() && far.is_none() {
            return (0, Vec::new(), None);
        }
        if let Some(to) = far {
            if to > self.next + self.limit {
                lost += self.give_up(|_| true);
                self.settle();
                if self.held() == 0 {
                    lost += (to - self.end) as u32;
                    (self.next, self.end) = (to, to);
                }
            }
        }
        lost += self.relieve();
        let horizon = self.lowest(&self.newest).unwrap_or(self.next);
        let mut ask = Vec::new();
        let mut due = Vec::new();
        for at in self.missing() {
            if let Missing { since } = self.states[&at] {
                if at >= horizon && now - since < policy.skew_ns {
                    due.push(since + policy.skew_ns);
                    continue;
                }
                let orphan = self.gone_at.is_some_and(|gone| since <= gone + policy.give_up_ns);
                if policy.repair || policy.repair_dead && orphan {
                    self.states.insert(at, Wanted { since: now, asked: 0, tries: 0 });
                }
            }
            let Wanted { since, mut asked, mut tries } = self.states[&at] else {
                self.states.remove(&at);
                lost += 1;
                continue;
            };
            let may_ask = tries == 0 || now - asked >= policy.retry_ns;
            if now - since >= policy.give_up_ns || tries >= policy.tries && may_ask {
                self.states.remove(&at);
                lost += 1;
                continue;
            }
            if may_ask {
                (asked, tries) = (now, tries + 1);
                self.states.insert(at, Wanted { since, asked, tries });
                ask.push(at);
            }
            due.push((asked + policy.retry_ns).min(since + policy.give_up_ns));
        }
        self.settle();
        (lost, ask, due.into_iter().min())
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert { ahead: i64, link: u8, repeated: bool, bytes: usize },
    Mark { ahead: i64, link: u8, repeated: bool },
    Newer { link: u8, ahead: i64 },
    Withdraw { ahead: i64 },
    Gone { link: u8 },
    Poll { live: u64 },
    Wait { ns: Nanos },
    Back { ns: Nanos },
}

fn ahead(limit: usize) -> impl Strategy<Value = i64> {
    let limit = limit as i64;
    prop_oneof![
        6 => 0i64..6,
        6 => 0..limit,
        1 => -6i64..0,
        1 => limit - 2..limit + 3,
        1 => limit..1 << 30,
    ]
}

fn op(limit: usize) -> impl Strategy<Value = Op> {
    let link = || 0u8..3;
    prop_oneof![
        10 => (ahead(limit), link(), prop::bool::weighted(0.2), 0usize..100)
            .prop_map(|(ahead, link, repeated, bytes)| Op::Insert { ahead, link, repeated, bytes }),
        2 => (ahead(limit), link(), any::<bool>())
            .prop_map(|(ahead, link, repeated)| Op::Mark { ahead, link, repeated }),
        3 => (link(), ahead(limit)).prop_map(|(link, ahead)| Op::Newer { link, ahead }),
        1 => ahead(limit).prop_map(|ahead| Op::Withdraw { ahead }),
        1 => link().prop_map(|link| Op::Gone { link }),
        6 => prop_oneof![4 => Just(0b111u64), 1 => 0u64..16].prop_map(|live| Op::Poll { live }),
        3 => (0..15 * MS).prop_map(|ns| Op::Wait { ns }),
        1 => (0..1000 * MS).prop_map(|ns| Op::Back { ns }),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    (prop_oneof![Just(0), 1..40 * MS], any::<bool>(), any::<bool>(), 1..20 * MS, 1..60 * MS, 0u8..4)
        .prop_map(|(skew_ns, repair, repair_dead, retry_ns, give_up_ns, tries)| Policy {
            skew_ns,
            repair: repair && tries > 0,
            repair_dead: repair_dead && tries > 0,
            retry_ns,
            give_up_ns,
            tries,
        })
}

fn case() -> impl Strategy<Value = (usize, usize, u32, Policy, Vec<Op>)> {
    prop_oneof![Just(4usize), Just(16), Just(256)].prop_flat_map(|limit| {
        let base = prop_oneof![Just(0u32), u32::MAX - 300..=u32::MAX, any::<u32>()];
        let ops = prop::collection::vec(op(limit), 1..300);
        (Just(limit), prop_oneof![Just(150usize), Just(1500), Just(1 << 20)], base, policy(), ops)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn does_what_the_model_does((limit, max_bytes, base, policy, ops) in case()) {
        let seq = |at: i64| Seq(base.wrapping_add(at as u32));
        let mut buffer = ReorderBuffer::new(limit, max_bytes);
        buffer.start(seq(0));
        let mut model = Model {
            limit: limit as i64,
            max_bytes,
            next: 0,
            end: 0,
            states: BTreeMap::new(),
            newest: BTreeMap::new(),
            far: BTreeMap::new(),
            live: 0,
            gone_at: None,
            last: 0,
            passed: 0,
        };
        let mut now: Nanos = 5_000 * MS;
        model.clock(now);
        buffer.newer(now, 63, seq(0));
        for (number, op) in ops.into_iter().enumerate() {
            let number = number as u32;
            match op {
                Op::Insert { ahead, link, repeated, bytes } => {
                    let at = model.next + ahead;
                    let got = buffer.insert(now, seq(at), link, repeated, bytes, number);
                    match model.insert(at, link, repeated, Some((bytes, number))) {
                        Inserted::InOrder(()) => prop_assert_eq!(got, Inserted::InOrder(number)),
                        want => prop_assert_eq!(format!("{got:?}"), format!("{want:?}")),
                    }
                }
                Op::Mark { ahead, link, repeated } => {
                    let at = model.next + ahead;
                    let got = buffer.mark(now, seq(at), link, repeated);
                    prop_assert_eq!(got, model.insert(at, link, repeated, None));
                }
                Op::Newer { link, ahead } => {
                    let end = model.next + ahead;
                    buffer.newer(now, link, seq(end));
                    model.newer(link, end);
                }
                Op::Withdraw { ahead } => {
                    let to = model.next + ahead;
                    prop_assert_eq!(buffer.withdraw(seq(to)), model.withdraw(to));
                }
                Op::Gone { link } => {
                    buffer.link_gone(link);
                    model.gone(link);
                }
                Op::Poll { live } => {
                    let mut ask = Vec::new();
                    let got = buffer.poll(now, live, &policy, &mut ask);
                    let (lost, want, due) = model.poll(live, &policy);
                    prop_assert_eq!(got.lost, lost);
                    prop_assert!(ask.len() <= MAX_RANGES);
                    prop_assert!(ask
                        .windows(2)
                        .all(|two| two[0].0.add(two[0].1.into()).is_before(two[1].0)));
                    let all = ask
                        .iter()
                        .flat_map(|(first, count)| (0..*count).map(|at| first.add(at.into())));
                    prop_assert_eq!(
                        all.collect::<Vec<_>>(),
                        want.into_iter().map(seq).collect::<Vec<_>>()
                    );
                    // It may be early if what it waited for arrived, but never late, and never for
                    // ever.
                    let due = due.map(|due| now + (due - model.passed));
                    prop_assert_eq!(got.next.is_some(), due.is_some());
                    prop_assert!(got.next <= due);
                    prop_assert!(got.next.is_none_or(|next| next > now));
                }
                Op::Wait { ns } => now += ns,
                Op::Back { ns } => now = now.saturating_sub(ns),
            }
            // Not every call reads the clock, and both have to see each change of it.
            model.clock(now);
            buffer.newer(now, 63, buffer.next());
            loop {
                let (got, want) = (buffer.pop(), model.pop());
                prop_assert_eq!(got, want);
                if got.is_none() {
                    break;
                }
            }
            prop_assert_eq!(buffer.next(), seq(model.next));
            prop_assert_eq!(buffer.held(), model.held());
            prop_assert_eq!(buffer.bytes(), model.bytes());
            prop_assert!(buffer.held() <= limit && buffer.bytes() <= max_bytes);
        }
    }
}

fn paced() -> Policy {
    Policy {
        skew_ns: 20 * MS,
        repair: true,
        repair_dead: true,
        retry_ns: 10 * MS,
        give_up_ns: 50 * MS,
        tries: 2,
    }
}

#[test]
fn a_request_has_at_most_128_ranges_and_the_next_has_the_rest() {
    let mut buffer = ReorderBuffer::new(2048, 1 << 20);
    for at in 0..200 {
        assert_eq!(buffer.insert(0, Seq(2 * at + 1), 0, false, 1, at), Inserted::Held);
    }
    let mut ask = Vec::new();
    assert_eq!(buffer.poll(0, 1, &paced(), &mut ask), Poll { lost: 0, next: Some(0) });
    assert_eq!(ask, (0..128).map(|at| (Seq(2 * at), 1)).collect::<Vec<_>>());
    ask.clear();
    assert_eq!(buffer.poll(0, 1, &paced(), &mut ask), Poll { lost: 0, next: Some(10 * MS) });
    assert_eq!(ask, (128..200).map(|at| (Seq(2 * at), 1)).collect::<Vec<_>>());
    ask.clear();
    buffer.poll(10 * MS - 1, 1, &paced(), &mut ask);
    assert!(ask.is_empty());
}

#[test]
fn what_can_be_delivered_costs_no_other_frame() {
    let mut buffer = ReorderBuffer::new(16, 100);
    buffer.insert(0, Seq(1), 0, false, 90, ());
    buffer.newer(0, 0, Seq(14));
    // More than three quarters of the slots and of the bytes are taken. Without frame 0, fewer are.
    assert_eq!(buffer.poll(0, 0b11, &paced(), &mut Vec::new()).lost, 1);
    assert_eq!((buffer.pop(), buffer.next(), buffer.is_waiting()), (Some(()), Seq(2), true));
}

#[test]
fn a_long_run_is_asked_for_in_ranges_that_fit_the_wire() {
    let mut buffer = ReorderBuffer::new(8192, 1 << 20);
    buffer.insert(0, Seq(3000), 0, false, 1, ());
    let mut ask = Vec::new();
    buffer.poll(0, 1, &paced(), &mut ask);
    assert_eq!(ask, [(Seq(0), MAX_RANGE), (Seq(1024), MAX_RANGE), (Seq(2048), 952)]);
}

#[test]
fn one_wrong_heartbeat_does_not_end_a_session_but_all_links_together_move_it() {
    let mut buffer = ReorderBuffer::new(64, 1 << 20);
    buffer.newer(0, 1, Seq(1 << 20));
    assert_eq!(buffer.poll(0, 0b11, &paced(), &mut Vec::new()), Poll::default());
    assert_eq!(buffer.insert(0, Seq(0), 0, false, 1, ()), Inserted::InOrder(()));
    // Link 1 holds decisions up as before, since what it said is not believed.
    buffer.insert(0, Seq(2), 0, false, 1, ());
    assert_eq!(buffer.poll(0, 0b11, &paced(), &mut Vec::new()).next, Some(20 * MS));
    buffer.newer(0, 0, Seq(1 << 20));
    buffer.poll(0, 0b11, &paced(), &mut Vec::new());
    assert_eq!(buffer.pop(), Some(()));
    assert_eq!(buffer.poll(0, 0b11, &paced(), &mut Vec::new()).lost, (1 << 20) - 3);
    assert_eq!(buffer.insert(0, Seq(1 << 20), 0, false, 1, ()), Inserted::InOrder(()));
}

#[test]
fn a_number_that_an_idle_link_said_long_ago_never_looks_new() {
    let mut buffer = ReorderBuffer::new(64, 1 << 20);
    buffer.newer(0, 1, Seq(0));
    let mut next = Seq(0);
    for _ in 0..3 {
        // Both links say so: a quarter of all sequences is skipped.
        next = next.add(1 << 30);
        buffer.newer(0, 0, next);
        buffer.newer(0, 2, next);
        buffer.poll(0, 0b101, &paced(), &mut Vec::new());
        assert_eq!(buffer.next(), next);
    }
    buffer.insert(0, next.add(2), 0, false, 1, ());
    let mut ask = Vec::new();
    assert_eq!(buffer.poll(0, 0b011, &paced(), &mut ask).next, Some(20 * MS));
    assert!(ask.is_empty());
}
