// SPDX-License-Identifier: Apache-2.0
//! Which of a peer's numbers are believed.
//!
//! A checksum finds what was damaged on the way. But a broken host, or one whose memory flips bits,
//! sends wrong numbers with a right checksum. One such number would make everything after it look
//! old, for ever.
//!
//! So a number that is far from those known is only a claim: it is believed when others agree with
//! it. And what was believed is given up when the peer keeps contradicting it.

use crate::seq::Seq;
use crate::wire::MAX_LINKS;
use crate::Nanos;

/// A jump is believed when this many frames say about the same.
pub const AGREE: u8 = 3;
/// A number that is at most this far ahead of what is known is no jump: so many frames may be lost,
/// or on the way over other links.
pub const NEAR: i32 = 256;
/// Claims that are at most this far apart agree: the peer goes on sending between them.
const TOGETHER: i32 = 1024;
/// A claim that is older than this supports no other. Three heartbeats of an idle peer fit into
/// this time.
const REMEMBER_NS: Nanos = 4_000_000_000;
/// Numbers of heartbeats that rise from an old one are a new beginning if they went on rising for
/// this long. Replayed numbers, mixed with those of a living link, do not.
const RISING_NS: Nanos = 15_000_000;

/// Claims that do not fit what is known.
///
/// Invariant: the last `seen` claims agree with each other, and `last` is the newest of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claim {
    last: Seq,
    seen: u8,
    first_ns: Nanos,
    last_ns: Nanos,
}

impl Claim {
    /// Takes one more claim. Returns whether enough of them agree now. `again`: a claim that equals
    /// the last one is from another frame, so it counts too.
    fn hear(&mut self, now: Nanos, claim: Seq, again: bool) -> bool {
        let step = claim.since(self.last);
        if !self.goes_on(now) || !(-TOGETHER..=TOGETHER).contains(&step) {
            *self = Self { last: claim, seen: 1, first_ns: now, last_ns: now };
            return false;
        }
        self.last_ns = now;
        if step != 0 || again {
            self.seen = self.seen.saturating_add(1);
            self.last = claim;
        }
        self.seen >= AGREE
    }

    /// Takes one more claim, for numbers that can only rise. The same number again says nothing,
    /// and a lower one says that all before it were wrong.
    fn rises(&mut self, now: Nanos, claim: Seq) -> Rise {
        let step = claim.since(self.last);
        if self.goes_on(now) && step == 0 {
            return Rise::Not;
        }
        if step < 0 {
            self.seen = 0;
        }
        let enough = self.hear(now, claim, false) && now.saturating_sub(self.first_ns) >= RISING_NS;
        if enough {
            *self = Self::default();
            return Rise::Enough;
        }
        Rise::Some
    }

    fn goes_on(&self, now: Nanos) -> bool {
        // After the clock was set back, a claim looks new for once.
        self.seen > 0 && now.saturating_sub(self.last_ns) < REMEMBER_NS
    }
}

enum Rise {
    Not,
    Some,
    Enough,
}

/// Whether a number that only grows is newer than the last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Newer {
    /// It is.
    Yes,
    /// It is so far from the last that others must say so too.
    Doubted,
    /// It is not.
    No,
}

/// The numbers of a link's heartbeats, each of which is higher than the one before.
#[derive(Clone, Debug, Default)]
pub struct Rising {
    newest: Option<Seq>,
    claim: Claim,
}

impl Rising {
    /// The newest number that was believed.
    pub fn newest(&self) -> Option<Seq> {
        self.newest
    }

    /// Takes a heartbeat's number. `silent`: nothing arrived for so long that any number may have
    /// passed.
    pub fn take(&mut self, now: Nanos, seq: Seq, silent: bool) -> Newer {
        let step = self.newest.map_or(1, |newest| seq.since(newest));
        let fits = step > 0 && (silent || step <= TOGETHER);
        if !fits {
            match self.claim.rises(now, seq) {
                Rise::Enough => {}
                Rise::Some if step > 0 => return Newer::Doubted,
                Rise::Some => return Newer::No,
                Rise::Not => return Newer::No,
            }
        }
        self.claim = Claim::default();
        self.newest = Some(seq);
        Newer::Yes
    }
}

/// The numbers of a link's data frames, each of which is one higher than the one before. What is
/// left out was lost.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// The next number; none before the first frame of a session.
    next: Option<Seq>,
    ahead: Claim,
    /// This many heartbeats in a row said that the next number is lower than `next`.
    behind: u8,
}

impl Counted {
    /// The next number, as far as is known.
    pub fn next(&self) -> Option<Seq> {
        self.next
    }

    /// A frame with number `seq` arrived. Returns how many frames before it are lost.
    pub fn received(&mut self, now: Nanos, seq: Seq) -> u32 {
        self.up_to(now, seq, 1, false)
    }

    /// A heartbeat said that `next` comes next, on a link that keeps the order. Returns how many
    /// frames before it are lost.
    pub fn announced(&mut self, now: Nanos, next: Seq) -> u32 {
        if self.next.is_some_and(|known| next.is_before(known)) {
            self.behind = self.behind.saturating_add(1);
            if self.behind >= AGREE {
                self.behind = 0;
                self.next = Some(next);
            }
            return 0;
        }
        self.behind = 0;
        self.up_to(now, next, 0, true)
    }

    fn up_to(&mut self, now: Nanos, seq: Seq, width: u32, again: bool) -> u32 {
        let gap = self.next.map_or(0, |next| seq.since(next));
        if gap < 0 || gap > NEAR && !self.ahead.hear(now, seq, again) {
            return 0;
        }
        self.next = Some(seq.add(width));
        gap as u32
    }
}

/// Where a peer is in the sequence of its session.
///
/// `end`, as the methods get it, is the reorder buffer's: the sequence after the newest that was
/// sent. Links keep the order. So each heartbeat on a link confirms what that link said before.
/// When all living links deny `end`, several times and without anything newer in between, that
/// sequence was never sent.
#[derive(Debug, Default)]
pub struct Position {
    ahead: Claim,
    denied: Option<Box<Denied>>,
}

#[derive(Debug)]
struct Denied {
    since: Nanos,
    /// What each link said last, and how often it denied.
    said: [(Seq, u8); MAX_LINKS],
}

impl Position {
    /// A data frame says that everything before `seq` was sent. Returns whether to believe that.
    pub fn data(&mut self, now: Nanos, end: Seq, seq: Seq) -> bool {
        let beyond = seq.since(end);
        if beyond > NEAR {
            return self.ahead.hear(now, seq, false);
        }
        if beyond > 0 {
            self.denied = None;
        }
        true
    }

    /// Whether it is believed by now that everything before `seq` was sent.
    pub fn fits(&self, end: Seq, seq: Seq) -> bool {
        let agreed = self.ahead.seen >= AGREE
            && (-TOGETHER..=TOGETHER).contains(&seq.since(self.ahead.last));
        seq.since(end) <= NEAR || agreed
    }

    /// A heartbeat on `link` says that `next` is sent next. Returns whether to believe that.
    pub fn heartbeat(&mut self, now: Nanos, end: Seq, link: u8, next: Seq) -> bool {
        let beyond = next.since(end);
        if beyond > NEAR {
            return self.ahead.hear(now, next, true);
        }
        if beyond >= 0 {
            self.denied = None;
            return true;
        }
        let fresh = || Box::new(Denied { since: now, said: [(Seq(0), 0); MAX_LINKS] });
        let denied = self.denied.get_or_insert_with(fresh);
        if let Some((said, times)) = denied.said.get_mut(usize::from(link)) {
            (*said, *times) = (next, times.saturating_add(1));
        }
        true
    }

    /// Where the peer is, if it has contradicted what was believed for `wait_ns` on all `live`
    /// links (a bit each).
    pub fn denied(&mut self, now: Nanos, live: u64, wait_ns: Nanos) -> Option<Seq> {
        let denied = self.denied.as_deref()?;
        let mut found: Option<Seq> = None;
        for link in crate::sched::bits(live) {
            let (said, times) = denied.said[usize::from(link)];
            if times < AGREE {
                return None;
            }
            found = Some(found.filter(|found| !found.is_before(said)).unwrap_or(said));
        }
        if now.saturating_sub(denied.since) < wait_ns {
            return None;
        }
        if found.is_some() {
            self.denied = None;
        }
        found
    }

    /// The clock was set back to `now`.
    pub fn settle_clock(&mut self, now: Nanos) {
        let Self { denied, ahead: _ } = self; // old claims look new, for once
        if let Some(Denied { since, said: _ }) = denied.as_deref_mut() {
            *since = (*since).min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn one_far_number_is_not_believed_three_that_agree_are() {
        let mut position = Position::default();
        assert!(position.data(0, Seq(100), Seq(356)), "no jump");
        assert!(!position.data(0, Seq(100), Seq(357)));
        assert!(!position.data(1, Seq(100), Seq(357)), "the same frame twice");
        assert!(!position.data(2, Seq(100), Seq(90_000)), "something else");
        assert!(!position.data(3, Seq(100), Seq(90_001)));
        assert!(position.data(4, Seq(100), Seq(89_990)), "late, but about the same");
        assert!(position.data(5, Seq(100), Seq(90_002)), "and from then on");
    }

    #[test]
    fn heartbeats_of_an_idle_peer_agree_by_saying_the_same() {
        let mut position = Position::default();
        let said: Vec<bool> =
            (0..3).map(|n| position.heartbeat(n * 1000 * MS, Seq(0), 1, Seq(5_000))).collect();
        assert_eq!(said, [false, false, true]);
        let mut position = Position::default();
        assert!(
            (0..3).all(|n| !position.heartbeat(n * 5000 * MS, Seq(0), 1, Seq(5_000))),
            "too long ago"
        );
    }

    #[test]
    fn what_all_links_deny_was_never_sent() {
        let mut position = Position::default();
        let deny = |position: &mut Position, ms: Nanos, link, next| {
            position.heartbeat(ms * MS, Seq(1000), link, Seq(next));
            position.denied(ms * MS, 0b11, 20 * MS)
        };
        for ms in [0, 10, 20, 30] {
            assert_eq!(deny(&mut position, ms, 0, 400 + ms as u32), None, "link 1 said nothing");
        }
        assert_eq!(deny(&mut position, 31, 1, 420), None);
        assert_eq!(deny(&mut position, 40, 1, 440), None);
        assert_eq!(
            deny(&mut position, 50, 1, 425),
            Some(Seq(430)),
            "the newest of what each link said last"
        );
        assert_eq!(position.denied(60 * MS, 0b11, 0), None, "the denial is used up");
    }

    #[test]
    fn one_link_that_confirms_is_enough_to_go_on_believing() {
        for confirm in [true, false] {
            let mut position = Position::default();
            for ms in 0..30 {
                position.heartbeat(ms * MS, Seq(1000), 0, Seq(400));
                if ms % 3 == 2 && confirm {
                    position.heartbeat(ms * MS, Seq(1000), 1, Seq(1000));
                } else if ms % 3 == 2 {
                    position.data(ms * MS, Seq(1000), Seq(1001));
                }
                assert_eq!(position.denied(ms * MS, 0b01, 0), None);
            }
        }
    }

    #[test]
    fn denials_must_last() {
        let mut position = Position::default();
        for _ in 0..5 {
            position.heartbeat(7 * MS, Seq(1000), 0, Seq(400));
        }
        assert_eq!(position.denied(26 * MS, 1, 20 * MS), None);
        assert_eq!(position.denied(26 * MS, 0, 0), None, "there is nobody to deny it");
        position.settle_clock(MS);
        assert_eq!(position.denied(20 * MS, 1, 20 * MS), None);
        assert_eq!(position.denied(21 * MS, 1, 20 * MS), Some(Seq(400)));
    }

    #[test]
    fn rising_numbers_are_newer_and_a_wrong_one_does_not_stop_them() {
        let mut rising = Rising::default();
        assert_eq!(rising.take(0, Seq(9), false), Newer::Yes);
        assert_eq!(rising.take(0, Seq(9), false), Newer::No);
        assert_eq!(rising.take(0, Seq(1 << 20), false), Newer::Doubted);
        assert_eq!(rising.take(MS, Seq(10), false), Newer::Yes, "it goes on where it was");
        assert_eq!(rising.take(MS, Seq(1 << 20), true), Newer::Yes, "after a silence");
        // That number was wrong, and the right ones look old now.
        let old: Vec<Newer> = [(10, 12), (11, 12), (20, 14)]
            .map(|(ms, seq)| rising.take(ms * MS, Seq(seq), false))
            .into();
        assert_eq!(old, [Newer::No; 3], "the second one repeats the first");
        assert_eq!(rising.take(30 * MS, Seq(16), false), Newer::Yes);
        assert_eq!(rising.take(40 * MS, Seq(18), false), Newer::Yes);
    }

    #[test]
    fn a_wrong_number_a_little_ahead_of_those_that_are_doubted_does_not_hold_them_up() {
        let mut rising = Rising::default();
        assert_eq!([900, 500].map(|seq| rising.take(0, Seq(seq), false)), [Newer::Yes, Newer::No]);
        let real: Vec<Newer> =
            (0..4).map(|n| rising.take(n * 10 * MS, Seq(100 + n as u32), false)).collect();
        assert_eq!(real, [Newer::No, Newer::No, Newer::Yes, Newer::Yes]);
    }

    #[test]
    fn replayed_numbers_do_not_take_a_living_link_back() {
        let mut rising = Rising::default();
        (0..100).for_each(|n| {
            assert_eq!(rising.take(u64::from(n) * 10 * MS, Seq(n), false), Newer::Yes)
        });
        for n in 100..200 {
            for old in 0..90 {
                assert_ne!(rising.take(u64::from(n) * 10 * MS, Seq(old), false), Newer::Yes);
            }
            assert_eq!(rising.take(u64::from(n) * 10 * MS, Seq(n), false), Newer::Yes);
        }
    }

    #[test]
    fn losses_of_a_link_are_counted_and_a_wrong_number_is_not_a_loss() {
        let mut link = Counted::default();
        assert_eq!((link.received(0, Seq(7)), link.next()), (0, Some(Seq(8))));
        assert_eq!((link.received(0, Seq(10)), link.announced(0, Seq(12))), (2, 1));
        assert_eq!((link.received(0, Seq(11)), link.next()), (0, Some(Seq(12))), "late");
        assert_eq!((link.announced(0, Seq(1 << 30)), link.next()), (0, Some(Seq(12))));
        let real: Vec<u32> = (0..3).map(|n| link.received(0, Seq(1012 + n))).collect();
        assert_eq!(real, [0, 0, 1002]);
        // Three heartbeats say that the numbers from 20 on were not sent.
        let denied: Vec<u32> = (0..3).map(|_| link.announced(0, Seq(20))).collect();
        assert_eq!((denied, link.next()), (vec![0, 0, 0], Some(Seq(20))));
        assert_eq!(link.received(0, Seq(22)), 2);
    }

    #[test]
    fn a_link_is_taken_back_by_denials_in_a_row_alone() {
        let mut link = Counted::default();
        link.received(0, Seq(100));
        // A heartbeat that was overtaken says nothing against those that came between.
        for _ in 0..5 {
            assert_eq!(link.announced(0, Seq(90)), 0);
            assert_eq!(link.announced(0, Seq(91)), 0);
            assert_eq!(link.announced(0, Seq(101)), 0);
        }
        assert_eq!(link.next(), Some(Seq(101)));
    }
}
