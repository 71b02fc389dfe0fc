// SPDX-License-Identifier: Apache-2.0
//! The channels of a pair of hosts: one for frames of no job, and those that the controller names.

use std::collections::BTreeMap;

use super::channel::Channel;
use super::Settings;
use crate::seq::Seq;
use crate::wire::{ChannelEntry, PeerChannel};
use crate::Nanos;

/// The channels to a peer. A channel's place is where it is in the list.
///
/// Invariants: the channel of no job is always there, at place 0. The others follow in order of
/// their numbers, which are 1 to 63, and no number comes twice. `last` and `refused` have such
/// numbers, too.
pub(super) struct Channels {
    all: Vec<Channel>,
    /// The place whose turn it is to send within guaranteed rates.
    turn: usize,
    /// Where the channels are in sharing the rest: what the last one to send had had, in bytes.
    served: u64,
    /// One of them has a guaranteed rate.
    guaranteed: bool,
    /// The tag of a channel that is gone, and where its sequence stopped. If it is told of again,
    /// the peer must not take its frames for old ones.
    last: BTreeMap<u8, (u32, Seq)>,
    /// Frames that the peer sent in a channel that is not its own, by the channel's number.
    refused: BTreeMap<u8, u64>,
}

impl Channels {
    /// There is only the channel of no job.
    pub(super) fn new(settings: &Settings) -> Self {
        Channels {
            all: vec![Channel::classless(settings)],
            turn: 0,
            served: 0,
            guaranteed: false,
            last: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The channel of no job.
    pub(super) fn classless(&self) -> &Channel {
        &self.all[0]
    }

    /// The channel of no job.
    pub(super) fn classless_mut(&mut self) -> &mut Channel {
        &mut self.all[0]
    }

    /// The place of the channel with that number.
    pub(super) fn place(&self, number: u8) -> Option<usize> {
        self.all.binary_search_by_key(&number, |channel| channel.number).ok()
    }

    /// The channel at a place.
    pub(super) fn at(&mut self, place: usize) -> &mut Channel {
        &mut self.all[place]
    }

    /// All channels, in order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.all.iter()
    }

    /// All channels, in order of their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.all.iter_mut()
    }

    /// Whether a channel has a guaranteed rate.
    pub(super) fn has_guarantees(&self) -> bool {
        self.guaranteed
    }

    /// Whether something waits to be sent, for the first time or again.
    pub(super) fn has_frames(&self) -> bool {
        self.all.iter().any(|channel| channel.out.has_frames())
    }

    /// The controller says which channels there are with numbers from `first` to `last`. Returns
    /// those that do not exist any more. With 0, it says over which links frames of no job may go.
    pub(super) fn tell(
        &mut self,
        now: Nanos,
        first: u8,
        last: u8,
        told: &[PeerChannel],
        settings: &Settings,
    ) -> Vec<Channel> {
        let stays = |channel: &Channel| {
            channel.number == 0
                || !(first..=last).contains(&channel.number)
                || told.iter().any(|it| (it.number, it.tag) == (channel.number, channel.tag()))
        };
        let (all, gone): (Vec<_>, Vec<_>) = self.all.drain(..).partition(stays);
        self.all = all;
        for channel in &gone {
            self.last.insert(channel.number, (channel.tag(), channel.out.next()));
        }
        if first == 0 {
            let links = told.first().filter(|it| it.number == 0).map_or(u64::MAX, |it| it.links);
            self.all[0].use_links(links);
        }
        for it in told.iter().filter(|it| it.number > 0) {
            match self.all.binary_search_by_key(&it.number, |channel| channel.number) {
                Ok(place) => self.all[place].change(now, it),
                Err(place) => {
                    let before = self.last.remove(&it.number).filter(|last| last.0 == it.tag);
                    let first = before.map_or(Seq(0), |last| last.1);
                    self.all.insert(place, Channel::new(now, it, first, settings));
                }
            }
        }
        self.turn = 0;
        self.guaranteed = self.all.iter().any(Channel::is_guaranteed);
        // The jobs share the memory for what waits, or a few of them would leave none for the rest.
        let (_, jobs) = self.all.split_at_mut(1);
        let share = settings.max_memory / 4 / jobs.len().max(1);
        jobs.iter_mut().for_each(|channel| channel.out.queue.set_max_bytes(share));
        gone
    }

    /// The place of a channel that may send now, of those that were not `tried`. If there is none,
    /// when to look again.
    ///
    /// Within their guaranteed rates (`guaranteed`) channels go before everything else, one after
    /// the other. The rest is shared by bytes: it is the turn of the channel that had the fewest
    /// (start-time fair queueing; Goyal, Vin and Cheng, 1996). Unlike a round, this is not upset by
    /// channels that wait for links of their own.
    pub(super) fn next_sender(
        &mut self,
        now: Nanos,
        guaranteed: bool,
        tried: u64,
    ) -> Result<usize, Option<Nanos>> {
        let mut soonest: Option<Nanos> = None;
        let mut first: Option<(u64, usize)> = None;
        for (place, channel) in self.all.iter_mut().enumerate() {
            match channel.ready_at(now, guaranteed) {
                Some(at) if at > now => soonest = Some(soonest.map_or(at, |old| old.min(at))),
                Some(_) if tried & (1 << place) == 0 => {
                    let rank = if guaranteed {
                        u64::from(place < self.turn) // those before it had theirs
                    } else {
                        channel.served(self.served)
                    };
                    first = first.min(Some((rank, place))).or(Some((rank, place)));
                }
                _ => {}
            }
        }
        first.map(|(_, place)| place).ok_or(soonest)
    }

    /// The channel at `place` sent a frame of `bytes`, as the host sees it.
    pub(super) fn sent(&mut self, place: usize, bytes: usize, guaranteed: bool) {
        let channel = &mut self.all[place];
        if guaranteed {
            self.turn = place + 1;
            channel.spend_guarantee(bytes);
        } else {
            self.served = self.served.max(channel.served(self.served));
            channel.spend_turn(bytes);
        }
    }

    /// A frame of the peer came in channel `number`, which is not the peer's.
    pub(super) fn refuse(&mut self, number: u8) {
        *self.refused.entry(number).or_default() += 1;
    }

    /// Frames that were refused, by the number of their channel.
    pub(super) fn refused(&self) -> &BTreeMap<u8, u64> {
        &self.refused
    }

    /// Bit/s that the host would send to the peer; infinite if that is more than is granted.
    pub(super) fn demand_bps(&mut self, now: Nanos) -> f64 {
        self.all.iter_mut().map(|channel| channel.demand_bps(now)).sum()
    }

    /// When a reorder buffer has to be looked at.
    pub(super) fn due_at(&self) -> Option<Nanos> {
        self.all.iter().filter_map(|channel| channel.incoming.due_at()).min()
    }

    /// When what waits in some channel is not to wait any longer.
    pub(super) fn strands_at(&self) -> Option<Nanos> {
        self.all.iter().filter_map(Channel::strands_at).min()
    }

    /// What to say of the channels in this round of heartbeats. `all`: everything is said.
    pub(super) fn entries(&mut self, now: Nanos, all: bool) -> Vec<ChannelEntry> {
        self.all.iter_mut().filter_map(|channel| channel.entry(now, all)).collect()
    }

    /// A new session of the peer begins, with sequence `next` of the channel of no job.
    pub(super) fn begin(&mut self, next: Seq) {
        self.all.iter_mut().for_each(|channel| channel.peer_restarted(next));
        self.forget_repeats();
    }

    /// Nothing is to be repeated any more.
    pub(super) fn forget_repeats(&mut self) {
        self.all.iter_mut().for_each(|channel| channel.out.forget_repeats());
    }

    /// Nothing is expected from a link any more.
    pub(super) fn link_gone(&mut self, link: u8) {
        self.all.iter_mut().for_each(|channel| channel.incoming.link_gone(link));
    }

    /// Everything that was last sent over a link and may not have arrived is sent again.
    pub(super) fn repeat_link(&mut self, link: u8) {
        self.all.iter_mut().for_each(|channel| channel.out.repeat_link(link));
    }

    /// Bytes in queues and buffers.
    pub(super) fn held_bytes(&self) -> usize {
        let held = |channel: &Channel| channel.out.held_bytes() + channel.incoming.held_bytes();
        self.all.iter().map(held).sum()
    }

    /// This process had no CPU for `late_ns` until `now`.
    pub(super) fn excuse(&mut self, now: Nanos, late_ns: Nanos) {
        self.all.iter_mut().for_each(|channel| channel.excuse(now, late_ns));
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self { all, turn: _, served: _, guaranteed: _, last: _, refused: _ } = self;
        all.iter_mut().for_each(|channel| channel.settle_clock(now));
    }
}
