// SPDX-License-Identifier: Apache-2.0
//! The ring does exactly what a slow, obvious model does.

use proptest::prelude::*;
use ri2n_reorder::ring::{Limits, Ring};
use ri2n_reorder::seq::Seq;
use ri2n_reorder::Nanos;

const MS: Nanos = 1_000_000;
const KEEP: Nanos = 50 * MS;
const MIN: Nanos = 5 * MS;

#[derive(Clone, Debug)]
struct Sent {
    at: i64,
    link: u8,
    body: u8,
    pushed: Nanos,
    repeated: Vec<Nanos>,
}

#[derive(Clone, Debug)]
enum Op {
    Push { link: u8, body: u8 },
    Ack { back: i64 },
    Repeat { back: i64, tries: u8, link: u8 },
    Expire,
    Wait { ns: Nanos },
    Back { ns: Nanos },
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (0u8..3, any::<u8>()).prop_map(|(link, body)| Op::Push { link, body }),
        2 => (-3i64..40).prop_map(|back| Op::Ack { back }),
        4 => (-2i64..40, 0u8..3, 0u8..3)
            .prop_map(|(back, tries, link)| Op::Repeat { back, tries, link }),
        1 => Just(Op::Expire),
        3 => (0..10 * MS).prop_map(|ns| Op::Wait { ns }),
        1 => (0..1000 * MS).prop_map(|ns| Op::Back { ns }),
        1 => prop::bool::weighted(0.1)
            .prop_map(|again| if again { Op::Restart } else { Op::Expire }),
    ]
}

proptest! {
    #[test]
    fn does_what_the_model_does(
        base in prop_oneof![any::<u32>(), u32::MAX - 50..=u32::MAX],
        ops in prop::collection::vec(op(), 1..300),
    ) {
        let mut base = base;
        let mut ring = Ring::new(Limits { keep_ns: KEEP, min_ns: MIN, max_bytes: 1 << 20 });
        let mut sent: Vec<Sent> = Vec::new();
        let (mut end, mut now, mut passed) = (0i64, 7 * MS, 7 * MS);
        for op in ops {
            match op {
                Op::Push { link, body } => {
                    let mut frame = ring.reclaim().unwrap_or_default();
                    prop_assert!(frame.is_empty());
                    frame.push(body);
                    ring.push(now, Seq(base.wrapping_add(end as u32)), link, frame);
                    sent.retain(|sent| passed - sent.pushed < KEEP);
                    sent.push(Sent { at: end, link, body, pushed: passed, repeated: Vec::new() });
                    end += 1;
                }
                Op::Ack { back } => {
                    let freed = ring.ack(Seq(base.wrapping_add((end - back) as u32)));
                    let before = sent.len();
                    if back >= 0 {
                        sent.retain(|sent| sent.at >= end - back);
                    }
                    prop_assert_eq!(freed, before - sent.len());
                }
                Op::Repeat { back, tries, link } => {
                    let entry = ring.take_for_repeat(
                        Seq(base.wrapping_add((end - back) as u32)),
                        now,
                        tries,
                    );
                    let want = sent.iter_mut().find(|sent| sent.at == end - back).filter(|sent| {
                        sent.repeated.len() < tries.into()
                            && sent.repeated.last().is_none_or(|last| passed - last >= MIN)
                    });
                    prop_assert_eq!(entry.is_some(), want.is_some());
                    if let (Some(entry), Some(want)) = (entry, want) {
                        prop_assert_eq!(
                            (entry.link, &entry.frame[..]),
                            (want.link, &[want.body][..])
                        );
                        entry.link = link;
                        want.link = link;
                        want.repeated.push(passed);
                    }
                }
                Op::Expire => {
                    ring.expire(now);
                    sent.retain(|sent| passed - sent.pushed < KEEP);
                }
                Op::Wait { ns } => (now, passed) = (now + ns, passed + ns),
                Op::Back { ns } => {
                    now = now.saturating_sub(ns);
                    // The ring sees the step back, which counts as nothing.
                    ring.take_for_repeat(Seq(0), now, 0);
                }
                Op::Restart => {
                    base = base.wrapping_add(end as u32).wrapping_add(1_000_000);
                    end = 0;
                    ring.push(now, Seq(base), 0, vec![1]);
                    sent = vec![Sent {
                        at: 0,
                        link: 0,
                        body: 1,
                        pushed: passed,
                        repeated: Vec::new(),
                    }];
                    end += 1;
                }
            }
            // Not every call reads the clock, and the ring has to see each change of it.
            ring.take_for_repeat(Seq(0), now, 0);
            prop_assert_eq!(ring.len(), sent.len());
            for link in 0..3 {
                let want = sent.iter().filter(|sent| sent.link == link);
                let want: Vec<Seq> =
                    want.map(|sent| Seq(base.wrapping_add(sent.at as u32))).collect();
                prop_assert_eq!(ring.on_link(link), want);
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_the_youngest_stay(
        sizes in prop::collection::vec(0usize..3000, 1..400),
    ) {
        let limits = Limits { keep_ns: KEEP, min_ns: MIN, max_bytes: 100_000 };
        let mut ring = Ring::new(limits);
        for (at, size) in sizes.iter().enumerate() {
            let before = ring.len();
            let mut frame = ring.reclaim().unwrap_or_default();
            frame.resize(*size, 7);
            ring.push(0, Seq(at as u32), 0, frame);
            prop_assert!(ring.bytes() <= limits.max_bytes);
            prop_assert!(ring.contains(Seq(at as u32)));
            // Nothing is dropped as long as there is room. Even with reused buffers, no frame takes
            // more than 8 kB.
            prop_assert!(ring.len() == before + 1 || ring.bytes() > limits.max_bytes - 8192);
        }
    }
}

#[test]
fn a_frame_that_is_too_large_leaves_nothing_behind() {
    let mut ring = Ring::new(Limits { keep_ns: KEEP, min_ns: MIN, max_bytes: 1000 });
    ring.push(0, Seq(5), 0, vec![0; 100]);
    ring.push(0, Seq(6), 0, vec![0; 2000]);
    assert!(ring.is_empty() && ring.bytes() == 0 && ring.reclaim().is_none());
    ring.push(0, Seq(7), 0, vec![0; 10]);
    assert!(ring.contains(Seq(7)) && !ring.contains(Seq(6)));
}

#[test]
fn buffers_of_acknowledged_frames_are_used_again() {
    let mut ring = Ring::new(Limits { keep_ns: KEEP, min_ns: MIN, max_bytes: 1 << 20 });
    ring.push(0, Seq(u32::MAX), 0, Vec::with_capacity(2048));
    assert!(ring.reclaim().is_none());
    assert_eq!(ring.ack(Seq(0)), 1);
    assert_eq!(ring.reclaim().map(|buffer| buffer.capacity()), Some(2048));
    assert!(ring.reclaim().is_none());
}
