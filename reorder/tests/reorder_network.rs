// SPDX-License-Identifier: Apache-2.0
//! The ring and the reorder buffer over simulated links that keep the order, and lose, duplicate,
//! delay and die.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use ri2n_reorder::reorder::{Inserted, Policy, ReorderBuffer};
use ri2n_reorder::ring::{Limits, Ring};
use ri2n_reorder::seq::Seq;
use ri2n_reorder::Nanos;

const MS: Nanos = 1_000_000;
/// The time between two bursts: all links get a burst of eight frames, then there is a pause.
const BURST_NS: Nanos = 400_000;
const HEARTBEAT_NS: Nanos = 10 * MS;
/// The time from the death of a link until the receiver knows of it, and then the sender.
const DETECT_NS: Nanos = 30 * MS;
const TELL_NS: Nanos = 5 * MS;
/// Longer than any delay, one more heartbeat, and a death. So timers never decide wrongly.
const SKEW_NS: Nanos = 45 * MS;

#[derive(Clone, Debug)]
struct Case {
    frames: u32,
    base: u32,
    seed: u64,
    /// One-way delay (ns) of each link.
    delays: Vec<Nanos>,
    /// Of 1000 frames that are sent for the first time, this many are lost.
    loss: u64,
    /// Of 1000 frames, this many arrive twice.
    twice: u64,
    /// Of 1000 frames, this many need not wait.
    unordered: u64,
    /// A link that dies, and when.
    death: Option<(u8, Nanos)>,
    repair: bool,
    repair_dead: bool,
}

#[derive(Debug)]
enum Event {
    Send,
    Heartbeat,
    Data { link: u8, seq: Seq, repeated: bool, unordered: bool },
    Newer { link: u8, next: Seq },
    Request { ranges: Vec<(Seq, u16)> },
    Expected { seq: Seq },
    Death,
    Wake,
}

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    /// Frames in the order of delivery, without those that need not wait.
    delivered: Vec<u32>,
    unordered: Vec<u32>,
    /// Frames that the network lost when they were first sent: over living links, and over one that
    /// died.
    dropped: BTreeSet<u32>,
    died: BTreeSet<u32>,
    asked: BTreeSet<u32>,
    given_up: u32,
    longest_wait: Nanos,
}

struct Network {
    now: Nanos,
    events: BTreeMap<(Nanos, u64), Event>,
    number: u64,
    random: u64,
}

impl Network {
    fn at(&mut self, time: Nanos, event: Event) {
        self.number += 1;
        self.events.insert((time, self.number), event);
    }

    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

fn run(case: &Case) -> Outcome {
    let policy = Policy {
        skew_ns: SKEW_NS,
        repair: case.repair,
        repair_dead: case.repair_dead,
        retry_ns: 10 * MS,
        give_up_ns: 60 * MS,
        tries: 3,
    };
    let links = case.delays.len() as u8;
    let all = (1u64 << links) - 1;
    let mut network = Network { now: 0, events: BTreeMap::new(), number: 0, random: case.seed | 1 };
    let mut fifo = vec![0; links.into()];
    let mut buffer = ReorderBuffer::new(4096, 1 << 22);
    buffer.start(Seq(case.base));
    let mut ring = Ring::new(Limits { keep_ns: 200 * MS, min_ns: 5 * MS, max_bytes: 1 << 22 });
    let mut outcome = Outcome::default();
    let (mut sent, mut arrived) = (0u32, BTreeMap::new());
    let (mut receiver_live, mut sender_live) = (all, all);
    let end = u64::from(case.frames) * BURST_NS / 8 + 400 * MS;
    network.at(0, Event::Send);
    network.at(0, Event::Heartbeat);
    if let Some((_, time)) = case.death {
        network.at(time + DETECT_NS, Event::Death);
    }
    while let Some(((now, _), event)) = network.events.pop_first() {
        network.now = now;
        if now > end {
            break;
        }
        let dead = |link: u8, time: Nanos| {
            case.death.is_some_and(|(who, when)| who == link && time >= when)
        };
        let mut arrive = |network: &mut Network, link: u8, event: Event| {
            let jitter = network.below(300_000);
            let time =
                (now + case.delays[usize::from(link)] + jitter).max(fifo[usize::from(link)] + 1);
            fifo[usize::from(link)] = time;
            let lost = dead(link, time);
            if !lost {
                network.at(time, event);
            }
            lost
        };
        if case.death.is_some_and(|(_, when)| now >= when + DETECT_NS + TELL_NS) {
            sender_live = receiver_live;
        }
        let living = |network: &mut Network, live: u64| loop {
            let link = network.below(links.into()) as u8;
            if live >> link & 1 != 0 {
                break link;
            }
        };
        match event {
            Event::Send => {
                for _ in 0..8.min(case.frames - sent) {
                    let seq = Seq(case.base.wrapping_add(sent));
                    let link = living(&mut network, sender_live);
                    let unordered = network.below(1000) < case.unordered;
                    ring.push(now, seq, link, vec![u8::from(unordered)]);
                    if network.below(1000) < case.loss {
                        outcome.dropped.insert(sent);
                    } else if arrive(
                        &mut network,
                        link,
                        Event::Data { link, seq, repeated: false, unordered },
                    ) {
                        outcome.died.insert(sent);
                    } else if network.below(1000) < case.twice {
                        arrive(
                            &mut network,
                            link,
                            Event::Data { link, seq, repeated: false, unordered },
                        );
                    }
                    sent += 1;
                }
                if sent < case.frames {
                    network.at(now + BURST_NS, Event::Send);
                }
            }
            Event::Heartbeat => {
                for link in 0..links {
                    let next = Seq(case.base.wrapping_add(sent));
                    arrive(&mut network, link, Event::Newer { link, next });
                }
                network.at(now + MS, Event::Expected { seq: buffer.next() });
                network.at(now + HEARTBEAT_NS, Event::Heartbeat);
            }
            Event::Data { link, seq, repeated, unordered } => {
                let number = seq.0.wrapping_sub(case.base);
                arrived.entry(number).or_insert(now);
                if unordered {
                    if let Inserted::InOrder(()) | Inserted::Held =
                        buffer.mark(now, seq, link, repeated)
                    {
                        outcome.unordered.push(number);
                    }
                } else if let Inserted::InOrder(number) =
                    buffer.insert(now, seq, link, repeated, 1, number)
                {
                    outcome.delivered.push(number);
                }
            }
            Event::Newer { link, next } => buffer.newer(now, link, next),
            Event::Request { ranges } => {
                for seq in ranges
                    .iter()
                    .flat_map(|(first, count)| (0..*count).map(|at| first.add(at.into())))
                {
                    if let Some(entry) = ring.take_for_repeat(seq, now, 3) {
                        // It takes another link than before, which may be dead without the sender
                        // knowing.
                        let others = sender_live & !(1 << entry.link);
                        let link =
                            living(&mut network, if others != 0 { others } else { sender_live });
                        entry.link = link;
                        let unordered = entry.frame[0] != 0;
                        arrive(
                            &mut network,
                            link,
                            Event::Data { link, seq, repeated: true, unordered },
                        );
                    }
                }
            }
            Event::Expected { seq } => {
                ring.ack(seq);
            }
            Event::Death => {
                let link = case.death.map_or(0, |(link, _)| link);
                receiver_live &= !(1 << link);
                buffer.link_gone(link);
            }
            Event::Wake => {}
        }
        // The engine does this after each batch.
        outcome.delivered.extend(std::iter::from_fn(|| buffer.pop()));
        let mut ask = Vec::new();
        let poll = buffer.poll(now, receiver_live, &policy, &mut ask);
        outcome.given_up += poll.lost;
        for number in std::iter::from_fn(|| buffer.pop()) {
            outcome.delivered.push(number);
            outcome.longest_wait = outcome.longest_wait.max(now - arrived[&number]);
        }
        if let Some(next) = poll.next {
            network.at(next, Event::Wake);
        }
        if !ask.is_empty() {
            let asked =
                ask.iter().flat_map(|(first, count)| (0..*count).map(|at| first.add(at.into())));
            outcome.asked.extend(asked.map(|seq| seq.0.wrapping_sub(case.base)));
            network.at(now + MS, Event::Request { ranges: ask });
        }
    }
    assert_eq!(
        (sent, buffer.next()),
        (case.frames, Seq(case.base.wrapping_add(case.frames))),
        "not all was decided"
    );
    outcome
}

fn case() -> impl Strategy<Value = Case> {
    let delays = prop::collection::vec(10_000..8 * MS, 1..5);
    let base = prop_oneof![any::<u32>(), u32::MAX - 1000..=u32::MAX];
    (1u32..1500, base, any::<u64>(), delays, 0u64..100, 0u64..100, 0u64..200).prop_map(
        |(frames, base, seed, delays, loss, twice, unordered)| Case {
            frames,
            base,
            seed,
            delays,
            loss,
            twice,
            unordered,
            death: None,
            repair: false,
            repair_dead: false,
        },
    )
}

/// Checks that what was delivered is in order, that nothing arrived twice, and that nothing is
/// missing except `lost`.
fn check(case: &Case, outcome: &Outcome, lost: &BTreeSet<u32>) -> Result<(), TestCaseError> {
    prop_assert!(outcome.delivered.windows(2).all(|two| two[0] < two[1]), "out of order or twice");
    let mut all: Vec<u32> = outcome.delivered.iter().chain(&outcome.unordered).copied().collect();
    all.sort_unstable();
    let want: Vec<u32> = (0..case.frames).filter(|number| !lost.contains(number)).collect();
    prop_assert_eq!(all, want);
    prop_assert_eq!(outcome.given_up as usize, lost.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn without_repair_exactly_what_the_network_lost_is_given_up(case in case()) {
        let outcome = run(&case);
        check(&case, &outcome, &outcome.dropped)?;
        prop_assert!(outcome.asked.is_empty());
        // Every link has a heartbeat each 10 ms, so no timer is needed.
        prop_assert!(
            outcome.longest_wait <= HEARTBEAT_NS + 9 * MS,
            "waited {} ns",
            outcome.longest_wait
        );
    }

    #[test]
    fn with_repair_nothing_is_lost_and_nothing_asked_for_in_vain(case in case()) {
        let outcome = run(&Case { repair: true, ..case.clone() });
        check(&case, &outcome, &BTreeSet::new())?;
        prop_assert_eq!(&outcome.asked, &outcome.dropped);
    }

    #[test]
    fn a_link_that_dies_loses_nothing_and_other_losses_are_passed_on(
        case in case(),
        when in 0..80 * MS,
        link in 0u8..4,
    ) {
        let mut case = case;
        case.delays.push(MS);
        let death = Some((link % case.delays.len() as u8, when));
        let lossless = Case { death, loss: 0, repair_dead: true, ..case.clone() };
        let outcome = run(&lossless);
        check(&lossless, &outcome, &BTreeSet::new())?;
        prop_assert_eq!(&outcome.asked, &outcome.died);
        let repaired = Case { death, repair: true, ..case };
        check(&repaired, &run(&repaired), &BTreeSet::new())?;
    }
}
