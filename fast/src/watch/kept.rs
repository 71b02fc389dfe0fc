// SPDX-License-Identifier: Apache-2.0
//! What a bridge that was not heard for a while has not said again yet.
//!
//! A new ovs-vswitchd begins with empty tables, and gets its rows back one after the other: the
//! host's, then the controller's. Until then it would drop what the programs carry. So all stays as
//! it was until the rows have come to rest. A peer about whom they say nothing even then keeps what
//! it had, but for no longer than the programs would have gone on without a word from the bridge.

use std::time::{Duration, Instant};

use crate::plan::Plan;

/// Rows that did not change for so long are at rest.
const REST: Duration = Duration::from_millis(100);
/// Rows that change all the time are believed after this.
const MOST_REST: Duration = Duration::from_secs(1);
/// The plan without these peers is made so long before they end: making it takes a moment.
const AHEAD: Duration = Duration::from_millis(100);

/// What was known before, and until when it holds.
#[derive(Debug)]
pub struct Kept {
    plan: Plan,
    until: Instant,
    connected: Instant,
    heard: Instant,
}

impl Kept {
    /// What holds until then, for a bridge to which there is a connection from `now` on. What was
    /// kept `before` and is still in the plan ends when it did.
    pub fn new(plan: &Plan, until: Instant, before: Option<Kept>, now: Instant) -> Kept {
        let until = before.map_or(until, |before| until.min(before.until));
        Kept { plan: plan.clone(), until, connected: now, heard: now }
    }

    /// Rows, groups or ports have changed.
    pub fn changed(&mut self, now: Instant) {
        self.heard = now;
    }

    /// When a plan can be made of what the bridge has said.
    pub fn rests(&self) -> Instant {
        (self.heard + REST).min(self.connected + MOST_REST).min(self.ends())
    }

    /// Adds what is kept to a new plan. Whether there is something.
    pub fn add_to(&self, plan: &mut Plan, now: Instant) -> bool {
        now < self.ends() && plan.keep(&self.plan)
    }

    /// When a plan without it is due.
    pub fn ends(&self) -> Instant {
        self.until - AHEAD
    }

    /// Until when a plan holds that has it.
    pub fn until(&self) -> Instant {
        self.until
    }
}
