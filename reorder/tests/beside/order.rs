// SPDX-License-Identifier: Apache-2.0
//! What came early is put in order, whatever `rx` does meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;

use ri2n_reorder::beside::order::{Counts, Early, Order, MAX_HOLD_NS};
use ri2n_reorder::beside::segment::{ahead, Segment};
use ri2n_reorder::Nanos;
use ri2n_wire::shared::{Flow, Shared};

use super::model::{Host, Item, Rules, MS};

const HOLD_NS: Nanos = 12 * MS;
const QUIET: Rules = Rules { loss: 0, drop: 0, twice: 0, depth: 20, at_once: true };

/// Lets a host run for so many steps, and then until all is up.
fn run(host: &mut Host<'_>, order: &mut Order<Item>, steps: usize) {
    let mut look_at = Nanos::MAX;
    for step in 0.. {
        let sending = step < steps;
        match host.dice.roll(if sending { 10 } else { 6 }) {
            0..=2 => drop(host.receive()),
            3 => drop(host.read(order, HOLD_NS)),
            4 => look_at = host.look(order),
            5 => {
                // Nobody is later than the time at which he wants to be woken.
                let next = host.now + 1 + host.dice.roll(MS / 4);
                if next >= look_at {
                    while host.read(order, HOLD_NS) {}
                    host.now = look_at.max(host.now);
                    look_at = host.look(order);
                }
                host.now = host.now.max(next);
            }
            _ => host.send(),
        }
        if host.dropped == 0 && order.counts().repaired == 0 {
            let held: u32 = host.held().iter().sum();
            assert_eq!(held as usize, host.on_the_way() + order.len(), "each is counted once");
        }
        if !sending && host.held().iter().all(|held| *held == 0) && !host.receive() {
            break;
        }
        assert!(step < 100 * steps + 1_000_000, "held {:?}", host.held());
    }
    assert!(order.is_empty() && host.device.is_empty());
}

/// Each segment that was not lost is up once, or as often as it was sent.
fn all_are_up(host: &Host<'_>) {
    assert_eq!(host.up.len() + host.lost + host.dropped, host.sent + host.copies);
    if host.copies == 0 {
        let mut numbers: Vec<_> = host.up.iter().map(|up| up.sent.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), host.up.len());
    }
    let longest = host.up.iter().filter_map(|up| up.held_ns).max().unwrap_or(0);
    assert!(longest <= HOLD_NS + MS, "held for {longest} ns");
}

/// How many segments came up behind a later one of their flow.
fn late(host: &Host<'_>) -> usize {
    let mut ends: BTreeMap<usize, u32> = BTreeMap::new();
    let late = |up: &&super::model::Up| {
        let end = ends.entry(up.sent.flow).or_insert(up.sent.start);
        let late = ahead(*end, up.sent.start) < 0;
        if ahead(*end, up.sent.end()) > 0 {
            *end = up.sent.end();
        }
        late
    };
    host.up.iter().filter(late).count()
}

fn maps() -> Shared {
    Shared::new(&Shared::in_memory().unwrap()).unwrap()
}

#[test]
fn everything_is_in_order_when_nothing_is_lost() {
    let (mut through_the_helper, mut all) = (0, 0);
    for seed in 1..=60 {
        let shared = maps();
        let first = if seed % 2 == 0 { u32::MAX - 20_000 } else { 7 };
        // One link keeps order by itself, so nothing there waits for a silent link.
        let mut host = Host::new(
            seed,
            shared.flows(),
            1 + seed as usize % 4,
            1 + seed as usize % 3,
            QUIET,
            first,
        );
        let mut order = Order::new(64 << 20);
        run(&mut host, &mut order, 20_000);
        all_are_up(&host);
        let counts = *order.counts();
        assert_eq!(counts.forced + counts.repaired + counts.unparsed, 0, "seed {seed}: {counts:?}");
        // What a slow link still has may look lost: no more than that is out of order.
        let given_up = (counts.lost + counts.late) as usize;
        assert!(late(&host) <= given_up * 20, "seed {seed}: {} {counts:?}", late(&host));
        through_the_helper += counts.held;
        all += host.sent;
    }
    assert!(through_the_helper > all as u64 / 20, "{through_the_helper} of {all}");
}

#[test]
fn losses_hold_nothing_up_for_long() {
    let mut total = Counts::default();
    for seed in 1..=60 {
        let shared = maps();
        let rules = Rules { loss: 50, drop: 0, twice: seed % 2 * 70, depth: 20, at_once: false };
        let mut host = Host::new(seed, shared.flows(), 3, 3, rules, u32::MAX - 9_000_000);
        let mut order = Order::new(64 << 20);
        run(&mut host, &mut order, 20_000);
        all_are_up(&host);
        total.lost += order.counts().lost;
        total.late += order.counts().late;
        assert_eq!(order.counts().repaired, 0, "{seed} {:?}", order.counts());
    }
    assert!(total.lost > 2 * total.late, "links show what is lost: {total:?}");
}

#[test]
fn what_is_dropped_on_the_way_to_the_helper_is_not_waited_for() {
    for seed in 1..=40 {
        let shared = maps();
        let rules = Rules { loss: 90, drop: 40, twice: 0, depth: 20, at_once: false };
        let mut host = Host::new(seed, shared.flows(), 3, 3, rules, 0);
        let mut order = Order::new(64 << 20);
        run(&mut host, &mut order, 20_000);
        all_are_up(&host);
        assert!(order.counts().repaired > 0 && host.dropped > 0);
        assert_eq!(host.held(), [0; 3]);
    }
}

#[test]
fn memory_is_bounded_and_over_the_bound_all_is_released() {
    let shared = maps();
    let rules = Rules { loss: 20, drop: 0, twice: 0, depth: 200, at_once: false };
    let mut host = Host::new(5, shared.flows(), 4, 4, rules, 0);
    let mut order = Order::new(20_000);
    run(&mut host, &mut order, 50_000);
    all_are_up(&host);
    assert!(order.counts().forced > 0);
}

fn early(key: u64, start: u32, end: u32) -> Early {
    Early { place: 0, segment: Some(Segment { key, start, end }), bytes: 100, hold_ns: HOLD_NS }
}

/// A flow of which so many frames are counted, and all up to 100 is up.
fn flow(held: u64) -> Flow {
    Flow {
        key: 9.into(),
        word: (held << 32 | 100).into(),
        seen_ns: 0.into(),
        least: 0.into(),
        zero: 0.into(),
        lanes: std::array::from_fn(|_| 0.into()),
    }
}

fn word(flow: &Flow) -> (u64, u64) {
    let word = flow.word.load(SeqCst);
    (word >> 32, word & 0xffff_ffff)
}

#[test]
fn the_end_of_a_gap_releases_what_waits_behind_it() {
    let all = [flow(3)];
    let mut order = Order::new(1 << 20);
    let mut up = Vec::new();
    for (start, end) in [(300, 400), (200, 300), (100, 200)] {
        order.take(MS, &all, early(9, start, end), start, &mut |it| up.push(it));
        let least = all[0].least.load(SeqCst);
        assert_eq!(least, if start > 100 { start } else { 400 });
    }
    assert_eq!((up, word(&all[0])), (vec![100, 200, 300], (0, 400)));
    assert_eq!((order.counts().held, order.counts().released), (3, 3));
    assert_eq!(order.look(MS, &all, true, &mut |_| panic!()), Nanos::MAX);
}

#[test]
fn a_gap_that_rx_ended_by_itself_is_seen_within_a_millisecond() {
    let all = [flow(1)];
    let mut order = Order::new(1 << 20);
    let mut up = Vec::new();
    order.take(MS, &all, early(9, 200, 300), 0, &mut |_| panic!());
    all[0].word.store(1 << 32 | 200, SeqCst);
    let at = order.look(MS, &[flow(1)], true, &mut |_| panic!());
    assert_eq!(at, 2 * MS);
    order.look(at, &all, true, &mut |it| up.push(it));
    assert_eq!((up, word(&all[0])), (vec![0], (0, 300)));
}

#[test]
fn frames_of_another_connection_change_nothing() {
    let all = [flow(1)];
    let mut order = Order::new(1 << 20);
    let mut up = 0;
    order.take(MS, &all, early(8, 900, 999), 0, &mut |_| up += 1);
    order.take(MS, &all, Early { place: 4096, ..early(9, 1, 2) }, 0, &mut |_| up += 1);
    assert_eq!((up, word(&all[0])), (2, (1, 100)));
    assert_eq!(order.counts().through, 2);
    // A frame that cannot be read was counted all the same.
    let unread = Early { segment: None, ..early(9, 0, 0) };
    order.take(MS, &all, unread, 0, &mut |_| up += 1);
    assert_eq!((up, word(&all[0]), order.counts().unparsed), (3, (0, 100), 1));
    // The place is another flow's while something is held: that is written, and not counted there.
    all[0].word.store(1 << 32 | 100, SeqCst);
    order.take(MS, &all, early(9, 200, 300), 0, &mut |_| panic!());
    all[0].key.store(7, SeqCst);
    order.look(2 * MS, &all, true, &mut |_| up += 1);
    assert_eq!((up, word(&all[0])), (4, (1, 100)));
}

/// What two links delivered last: up to which sequence, and when.
fn delivered(flow: &Flow, links: [(u64, u64); 2]) {
    for (lane, (end, at_ms)) in flow.lanes.iter().zip(links) {
        lane.store(end << 32 | at_ms, SeqCst);
    }
}

#[test]
fn a_lost_frame_is_not_waited_for_when_all_links_are_beyond_it() {
    let all = [flow(1)];
    let mut order = Order::new(1 << 20);
    let now = 100 * MS;
    delivered(&all[0], [(300, 100), (90, 95)]);
    order.take(now, &all, early(9, 200, 300), 0, &mut |_| panic!());
    order.look(now, &all, true, &mut |_| panic!("link 1 may bring it"));
    let mut up = 0;
    delivered(&all[0], [(300, 100), (400, 100)]);
    order.look(now, &all, true, &mut |_| up += 1);
    assert_eq!((up, order.counts().lost), (1, 1));
}

#[test]
fn a_link_that_was_idle_may_bring_what_is_missing_and_is_waited_for_a_while() {
    let burst = [(300, 100), (90, 79)];
    let one_link = [(300, 100), (0, 0)];
    for links in [burst, one_link] {
        let all = [flow(1)];
        let mut order = Order::new(1 << 20);
        let mut up = 0;
        let now = 100 * MS;
        delivered(&all[0], links);
        order.take(now, &all, early(9, 200, 300), 0, &mut |_| panic!());
        order.look(now, &all, true, &mut |_| panic!("it may be on its way"));
        order.look(now + HOLD_NS / 2 - 1, &all, true, &mut |_| panic!("still so"));
        order.look(now + HOLD_NS / 2, &all, true, &mut |_| up += 1);
        assert_eq!((up, order.counts().lost), (1, 1));
    }
}

#[test]
fn nothing_waits_for_a_silent_link_longer_than_allowed() {
    for (asked, allowed) in [(12 * MS, 12 * MS), (900 * MS, MAX_HOLD_NS)] {
        let all = [flow(2)];
        all[0].lanes[0].store(50 << 32 | 1, SeqCst);
        let mut order = Order::new(1 << 20);
        let mut up = 0;
        let now = MS;
        let frame = Early { hold_ns: asked, ..early(9, 200, 300) };
        order.take(now, &all, frame, 0, &mut |_| panic!());
        order.look(now + allowed - 1, &all, true, &mut |_| panic!());
        order.look(now + allowed, &all, true, &mut |_| up += 1);
        assert_eq!((up, order.counts().late), (1, 1));
    }
}
