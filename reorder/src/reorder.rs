// SPDX-License-Identifier: Apache-2.0
//! Puts the frames of one session back in order, and decides which of them are lost.
//!
//! Links keep the order of their own frames. So a sequence is lost as soon as **every** live link
//! has delivered something that was sent after it: while all links have traffic, no timer is
//! needed. A link that is silent holds the decision up for a bounded time.

pub(crate) mod clock;
mod gaps;
mod links;
mod losses;

use crate::seq::Seq;
use crate::Nanos;
use clock::Clock;
use links::Links;
use losses::Losses;

pub use crate::wire::repeat::{MAX_RANGE, MAX_RANGES};

/// A buffer begins with this many slots, and grows with what it has to hold.
const FIRST_SLOTS: usize = 64;
/// The most slots that may be asked for. With more, sequences could not be compared.
const MAX_SLOTS: usize = 1 << 24;

/// How losses are found and what is done about them.
#[derive(Copy, Clone, Debug)]
pub struct Policy {
    /// How long (ns) silent links may hold up a decision, after the first sign that something is
    /// missing.
    pub skew_ns: Nanos,
    /// Ask for every lost frame again.
    pub repair: bool,
    /// Ask for frames that were missing when a link died, whatever `repair` says. This includes
    /// frames found missing within `give_up_ns` after that, since the sender hears of it later.
    pub repair_dead: bool,
    /// How long (ns) an answer may take before the request is sent again.
    pub retry_ns: Nanos,
    /// A lost frame is given up after this time (ns).
    pub give_up_ns: Nanos,
    /// How often a lost frame is asked for; 0: never.
    pub tries: u8,
}

/// What became of a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Inserted<T> {
    /// It is the next one, and to be delivered now, before what [`ReorderBuffer::pop`] gives.
    InOrder(T),
    /// It waits for others. After [`ReorderBuffer::mark`], its place does.
    Held,
    /// It is here already.
    Duplicate,
    /// It was delivered or given up before.
    Old,
    /// Its sequence is further ahead than there are slots.
    FarAhead,
    /// It would have to wait, but there is no room. It counts as missing.
    NoMemory,
}

/// What [`ReorderBuffer::poll`] found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Poll {
    /// Frames given up now.
    pub lost: u32,
    /// When to poll again if nothing arrives until then; `None`: never.
    pub next: Option<Nanos>,
}

/// The frames of one session that arrived too early.
///
/// After each `insert` or `mark` that gave `InOrder`, and after each `poll`, call
/// [`pop`](Self::pop) until it has nothing more.
///
/// Invariants:
/// * Each sequence from `next` on and before `end` is in one state. It is in a slot, or in
///   `losses`, or in neither when there is nothing left to deliver (it was marked, or given up).
///   Sequences from `end` on are not known to have been sent.
/// * `end` is at most `limit` ahead of `next`, so there are at most `limit` slots and runs of
///   missing sequences.
/// * `bytes` is the sum over the `held` frames in slots, and at most `max_bytes`.
#[derive(Debug)]
pub struct ReorderBuffer<T> {
    slots: Vec<Option<(usize, T)>>,
    limit: usize,
    next: Seq,
    end: Seq,
    held: usize,
    bytes: usize,
    max_bytes: usize,
    losses: Losses,
    links: Links,
    clock: Clock,
}

impl<T> ReorderBuffer<T> {
    /// A buffer that begins with sequence 0. It has at most `slots` sequences (rounded up to a
    /// power of two) and holds at most `max_bytes` bytes of frames.
    pub fn new(slots: usize, max_bytes: usize) -> Self {
        ReorderBuffer {
            slots: Vec::new(),
            limit: slots.clamp(4, MAX_SLOTS).next_power_of_two(),
            next: Seq(0),
            end: Seq(0),
            held: 0,
            bytes: 0,
            max_bytes,
            losses: Losses::default(),
            links: Links::new(),
            clock: Clock::default(),
        }
    }

    /// A new session begins with sequence `next`. Frames that are held are dropped.
    pub fn start(&mut self, next: Seq) {
        self.slots.clear();
        (self.next, self.end) = (next, next);
        (self.held, self.bytes) = (0, 0);
        (self.losses, self.links) = (Losses::default(), Links::new());
    }

    /// The sequence that is delivered next. All before it were delivered or given up.
    pub fn next(&self) -> Seq {
        self.next
    }

    /// The sequence after the newest that is known to have been sent.
    pub fn end(&self) -> Seq {
        self.end
    }

    /// Sequences from `to` on were never sent, whatever was said: goes on from there. Frames that
    /// are held from there on are dropped; returns how many.
    pub fn withdraw(&mut self, to: Seq) -> usize {
        let before = self.held;
        if to.is_before(self.next) {
            self.start(to);
            return before;
        }
        let mut seq = to;
        while seq.is_before(self.end) && self.held > 0 {
            // Sequences beyond the slots are missing, or there is nothing left to deliver.
            let slot = self.slot(seq);
            if seq.since(self.next) as usize >= self.slots.len() {
                break;
            }
            if let Some((bytes, _)) = self.slots[slot].take() {
                self.held -= 1;
                self.bytes -= bytes;
            }
            seq = seq.next();
        }
        if to.is_before(self.end) {
            self.losses.withdraw(to);
            self.end = to;
            self.links = Links::new();
        }
        before - self.held
    }

    /// Whether something is missing: a sequence from `next` on was sent and did not arrive.
    pub fn is_waiting(&self) -> bool {
        self.next != self.end
    }

    /// Frames that wait.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Bytes of the frames that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a frame of `bytes` bytes that arrived by `link`. `repeated`: it was sent before, so it
    /// says nothing about what was sent over that link.
    #[inline]
    pub fn insert(
        &mut self,
        now: Nanos,
        seq: Seq,
        link: u8,
        repeated: bool,
        bytes: usize,
        item: T,
    ) -> Inserted<T> {
        let fits = bytes <= self.max_bytes - self.bytes;
        match self.place(now, seq, link, repeated, fits) {
            Inserted::InOrder(()) => Inserted::InOrder(item),
            Inserted::Held => {
                let slot = self.make_slot(seq);
                self.slots[slot] = Some((bytes, item));
                self.held += 1;
                self.bytes += bytes;
                Inserted::Held
            }
            Inserted::Duplicate => Inserted::Duplicate,
            Inserted::Old => Inserted::Old,
            Inserted::FarAhead => Inserted::FarAhead,
            Inserted::NoMemory => Inserted::NoMemory,
        }
    }

    /// Fills the place of a frame that need not wait. The caller delivers the frame if this returns
    /// `InOrder` or `Held`.
    pub fn mark(&mut self, now: Nanos, seq: Seq, link: u8, repeated: bool) -> Inserted<()> {
        self.place(now, seq, link, repeated, true)
    }

    /// The next frame in order, if it is here.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.settle();
        if self.held == 0 {
            return None;
        }
        let slot = self.slot(self.next);
        let (bytes, item) = self.slots[slot].take()?;
        self.next = self.next.next();
        self.held -= 1;
        self.bytes -= bytes;
        Some(item)
    }

    /// A heartbeat on `link` said that all frames before `next_seq` were sent before it.
    pub fn newer(&mut self, now: Nanos, link: u8, next_seq: Seq) {
        let now = self.clock.read(now);
        self.links.forget_before(self.next);
        let ahead = next_seq.since(self.next);
        let far = ahead > self.limit as i32;
        self.links.heartbeat(link, if ahead < 0 { self.next } else { next_seq }, far);
        if !far && self.end.is_before(next_seq) {
            self.miss_up_to(now, next_seq);
        }
    }

    /// Frames that arrived within `late_ns` before `now` were not looked at, so missing frames were
    /// not waited for in that time.
    pub fn excuse(&mut self, now: Nanos, late_ns: Nanos) {
        self.clock.skip(now, late_ns);
    }

    /// `link` died. Nothing more is expected from it, and what is missing now may have been on it.
    pub fn link_gone(&mut self, link: u8) {
        self.links.gone(link);
        self.losses.link_died(self.clock.passed());
    }

    /// Decides what is lost, given the set of `live` links. A link that was in it and is not any
    /// more died. Adds what is to be asked for (first sequence, number of frames) to `ask`, up to
    /// [`MAX_RANGES`] in all.
    pub fn poll(
        &mut self,
        now: Nanos,
        live: u64,
        policy: &Policy,
        ask: &mut Vec<(Seq, u16)>,
    ) -> Poll {
        let now = self.clock.read(now);
        if self.links.set_live(live) {
            self.losses.link_died(now);
        }
        let far = self.links.far_horizon();
        if self.losses.is_empty() && far.is_none() {
            return Poll::default();
        }
        let mut lost = far.map_or(0, |to| self.jump(to));
        lost += self.relieve();
        lost += self.losses.decide(now, self.links.horizon(), policy);
        lost += self.losses.chase(now, policy, ask);
        self.settle();
        Poll { lost, next: self.losses.next_due(policy).map(|due| self.clock.outer(due)) }
    }

    /// Finds the place of a frame, and takes the frame out of what is missing. `fits`: there is
    /// room if the frame has to wait.
    #[inline]
    fn place(
        &mut self,
        now: Nanos,
        seq: Seq,
        link: u8,
        repeated: bool,
        fits: bool,
    ) -> Inserted<()> {
        let ahead = seq.since(self.next);
        if ahead < 0 {
            return Inserted::Old;
        }
        if ahead as usize >= self.limit {
            return Inserted::FarAhead;
        }
        if !repeated {
            self.links.delivered(link, seq.next());
        }
        if ahead == 0 && seq == self.end {
            self.next = seq.next();
            self.end = self.next;
            return Inserted::InOrder(());
        }
        if !seq.is_before(self.end) {
            let now = self.clock.read(now);
            self.miss_up_to(now, if fits { seq } else { seq.next() });
            self.end = seq.next();
            return if fits { Inserted::Held } else { Inserted::NoMemory };
        }
        if ahead != 0 && !fits && self.losses.contains(seq) {
            return Inserted::NoMemory;
        }
        if !self.losses.take(seq) {
            return Inserted::Duplicate;
        }
        if ahead != 0 {
            return Inserted::Held;
        }
        self.next = seq.next();
        Inserted::InOrder(())
    }

    /// All sequences before `to` were sent. Those that are new are missing.
    fn miss_up_to(&mut self, now: Nanos, to: Seq) {
        if self.end != to {
            self.losses.miss(now, self.end, to);
            self.end = to;
        }
    }

    /// Gives up the oldest missing frames when three quarters of the slots or bytes are taken: one
    /// frame that does not arrive must not cost all that follow it. Frames that can be delivered
    /// then take no memory any more.
    fn relieve(&mut self) -> u32 {
        let room = (self.limit - self.limit / 4) as u32;
        let mut lost = self.losses.give_up_before(Seq(self.end.0.wrapping_sub(room)));
        let mut over = self.bytes.saturating_sub(self.max_bytes - self.max_bytes / 4);
        let mut seq = self.next;
        // All frames that are held come before a sequence without a slot of its own: `over` is 0 by
        // then.
        while over > 0 {
            let bound = self.bound();
            while seq != bound {
                let freed = self
                    .slots
                    .get(self.slot(seq))
                    .and_then(Option::as_ref)
                    .map_or(0, |(bytes, _)| *bytes);
                over = over.saturating_sub(freed);
                seq = seq.next();
            }
            if over > 0 {
                let Some((end, count)) = self.losses.give_up_first() else { break };
                lost += count;
                seq = end;
            }
        }
        lost
    }

    /// Every live link speaks of sequences beyond the slots. Gives up all that is missing, since it
    /// was sent too long ago, and goes on at `to` once the frames that are held were popped.
    fn jump(&mut self, to: Seq) -> u32 {
        let skipped = to.since(self.end);
        if to.since(self.next) <= self.limit as i32 || skipped <= 0 {
            return 0;
        }
        let lost = self.losses.give_up_before(self.end);
        self.settle();
        if self.held > 0 {
            return lost;
        }
        (self.next, self.end) = (to, to);
        lost + skipped as u32
    }

    /// The first sequence that `next` cannot pass.
    fn bound(&self) -> Seq {
        self.losses.first().unwrap_or(self.end)
    }

    /// Moves `next` past sequences that have nothing left to deliver.
    #[inline]
    fn settle(&mut self) {
        let bound = self.bound();
        if self.held == 0 {
            self.next = bound;
            return;
        }
        while self.next != bound && self.slots[self.slot(self.next)].is_none() {
            self.next = self.next.next();
        }
    }

    fn slot(&self, seq: Seq) -> usize {
        seq.0 as usize & self.slots.len().wrapping_sub(1)
    }

    /// The slot of a sequence. Makes more slots if there is none for it yet.
    fn make_slot(&mut self, seq: Seq) -> usize {
        let ahead = seq.since(self.next) as usize;
        let old_size = self.slots.len();
        if ahead >= old_size {
            let mut old = std::mem::take(&mut self.slots);
            self.slots.resize_with((ahead + 1).next_power_of_two().max(FIRST_SLOTS), || None);
            // All frames that are held are less than `old_size` ahead of `next`.
            let mut at = self.next;
            for _ in 0..old_size {
                let slot = self.slot(at);
                self.slots[slot] = old[at.0 as usize & (old_size - 1)].take();
                at = at.next();
            }
        }
        self.slot(seq)
    }
}
