// SPDX-License-Identifier: Apache-2.0
//! How far each link has delivered.

use crate::seq::Seq;
use crate::wire::MAX_LINKS;

/// What the links of a session have delivered. Links have the numbers 0 to 63; others are ignored.
///
/// Invariants:
/// * `newest[l]`, if bit l of `heard` is set: what was sent over link l before this sequence has
///   arrived or is lost.
/// * `far_next[l]`, if bit l of `far` is set: the latest heartbeat on link l spoke of this
///   sequence, which was beyond all slots. It is not in `newest`, since one wrong heartbeat must
///   spoil neither the link nor the session.
#[derive(Debug)]
pub(super) struct Links {
    newest: [Seq; MAX_LINKS],
    heard: u64,
    far_next: [Seq; MAX_LINKS],
    far: u64,
    live: u64,
}

impl Links {
    pub fn new() -> Self {
        Links {
            newest: [Seq(0); MAX_LINKS],
            heard: 0,
            far_next: [Seq(0); MAX_LINKS],
            far: 0,
            live: 0,
        }
    }

    /// Sets which links are live now. True if one died.
    pub fn set_live(&mut self, live: u64) -> bool {
        let died = self.live & !live != 0;
        self.live = live;
        died
    }

    /// Forgets what a dead link said.
    pub fn gone(&mut self, link: u8) {
        let others = !bit(link);
        self.heard &= others;
        self.far &= others;
        self.live &= others;
    }

    /// Everything that was sent over `link` before `seq` has arrived or is lost.
    pub fn delivered(&mut self, link: u8, seq: Seq) {
        let Some(newest) = self.newest.get_mut(usize::from(link)) else { return };
        if self.heard & bit(link) == 0 || newest.is_before(seq) {
            self.heard |= bit(link);
            *newest = seq;
        }
    }

    /// A heartbeat on `link` spoke of `next_seq`, which is beyond the slots (`far`) or not.
    pub fn heartbeat(&mut self, link: u8, next_seq: Seq, far: bool) {
        let Some(far_next) = self.far_next.get_mut(usize::from(link)) else { return };
        if far {
            *far_next = next_seq;
            self.far |= bit(link);
        } else {
            self.far &= !bit(link);
            self.delivered(link, next_seq);
        }
    }

    /// Everything before `next` is settled. What a link said about that means nothing any more. It
    /// must be forgotten, or it would look new 2^31 frames later.
    pub fn forget_before(&mut self, next: Seq) {
        for newest in &mut self.newest {
            if newest.is_before(next) {
                *newest = next;
            }
        }
    }

    /// Everything before this sequence has arrived or is lost, as every live link says. `None` if a
    /// live link has said nothing yet, or if there is none.
    pub fn horizon(&self) -> Option<Seq> {
        earliest(self.live & self.heard, self.live, &self.newest)
    }

    /// Where to go on, if the latest heartbeats of all live links spoke of sequences beyond the
    /// slots.
    pub fn far_horizon(&self) -> Option<Seq> {
        earliest(self.live & self.far, self.live, &self.far_next)
    }
}

fn bit(link: u8) -> u64 {
    1u64.checked_shl(link.into()).unwrap_or(0)
}

/// The earliest sequence of `links`, if they are the same as `live`.
fn earliest(links: u64, live: u64, of: &[Seq; MAX_LINKS]) -> Option<Seq> {
    if links != live || live == 0 {
        return None;
    }
    let mut rest = live;
    let mut found = of[live.trailing_zeros() as usize];
    while rest != 0 {
        let seq = of[rest.trailing_zeros() as usize];
        if seq.is_before(found) {
            found = seq;
        }
        rest &= rest - 1;
    }
    Some(found)
}
