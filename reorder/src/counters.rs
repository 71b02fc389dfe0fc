// SPDX-License-Identifier: Apache-2.0
//! What a helper counts: every frame that is dropped has a counter of its own.

use crate::wire::Malformed;

/// Makes `Counters` from one line for each counter.
macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// What happened since the helper began. All numbers only grow.
        #[derive(Clone, Debug, Default, Eq, PartialEq)]
        pub struct Counters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Name and value of every counter, in the order of their declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }

            /// Adds one to the counter with that name; false if there is none.
            pub fn count(&mut self, name: &str) -> bool {
                match name {
                    $(stringify!($name) => self.$name += 1,)+
                    _ => return false,
                }
                true
            }
        }
    };
}

counters! {
    /// Frames read from the host (super-packets count once).
    plain_in,
    /// Frames written to the host (super-packets count once).
    plain_out,
    /// Frames read from the network.
    wire_in,
    /// Frames written to the network.
    wire_out,
    /// Data frames sent for the first time.
    data_out,
    /// Data frames that arrived, of any kind.
    data_in,
    /// Frames handed to the slot table, since their destination is not striped to now.
    to_slots,
    /// Frames of a channel that is not known here, which went as those of no job.
    unclassed,
    /// Own frames that a peer's bridge sent back, since there is no helper.
    bounced_in,
    /// Heartbeats that arrived.
    heartbeats_in,
    /// Heartbeats sent.
    heartbeats_out,
    /// Frames about channels that arrived.
    channels_in,
    /// Frames about channels sent.
    channels_out,
    /// Control frames obeyed.
    control_in,
    /// Heartbeats that arrived late or twice.
    old_heartbeats,
    /// Frames with a number far from those known, which is not believed until others agree.
    doubted,
    /// How often what was believed of a peer's sequence was given up, since all links contradicted
    /// it.
    resyncs,
    /// Data frames that were missing in the sequence of their link.
    lost_on_links,
    /// Frames of the host that were dropped, since the queue of their peer was full.
    queue_full,
    /// Frames of the host that waited for a peer to which no link leads any more.
    unreachable,
    /// Hosts that were not looked at: there were as many peers as may be, or too many strangers
    /// greeted within a second.
    too_many_peers,
    /// Turns of the main loop: a frame woke it, or something was due.
    wakes,
    /// How often it was woken 2 ms or more after it was due: the host's CPUs are busy.
    late,
    /// Reports sent to the controller.
    reports_out,

    /// Dropped: the frame ends before its fields do.
    truncated,
    /// Dropped: the frame is longer than its fields, or than any frame.
    oversized,
    /// Dropped: the frame has another version of the format.
    wrong_version,
    /// Dropped: the checksum does not fit the frame.
    bad_checksum,
    /// Dropped: there is no such type of frame.
    unknown_type,
    /// Dropped: there is no such flag.
    bad_flags,
    /// Dropped: there is no such link, or it has another NIC.
    bad_link,
    /// Dropped: there is no channel with that number.
    bad_channel,
    /// Dropped: the session is 0.
    bad_session,
    /// Dropped: no host can have that address.
    bad_mac,
    /// Dropped: more entries than there may be, or none where there must be some.
    bad_count,
    /// Dropped: a request to repeat no frames or too many.
    bad_range,
    /// Dropped: control of a kind that does not exist.
    unknown_kind,
    /// Dropped: control with a mode that does not exist.
    unknown_mode,
    /// Dropped: a control frame or report has an entry with a value that it cannot have.
    bad_entry,
    /// Dropped: the frame had a VLAN tag when it arrived by a NIC.
    tagged,
    /// Dropped: not a helper's frame, or not one for a helper.
    not_ours,

    /// Dropped, from the host: the frame ends before its headers do.
    offload_truncated,
    /// Dropped, from the host: the offload header contradicts itself or the frame.
    offload_bad_header,
    /// Dropped, from the host: the frame is to be cut in a way that is not known.
    offload_unknown_gso,
    /// Dropped, from the host: the frame is to be cut in the way of another protocol.
    offload_wrong_protocol,
    /// Dropped, from the host: the frame is to be cut into pieces of an impossible size.
    offload_bad_gso,
    /// Dropped, from the host: the checksum's place is outside of the frame.
    offload_bad_checksum_place,
    /// Dropped, from the host: a fragment that is to be cut.
    offload_fragment,
    /// Dropped, from the host: longer than the links carry, and not to be cut.
    offload_too_long,
    /// Dropped, from the host: the frame would be cut into too many pieces.
    offload_too_many,

    /// Dropped: the session is not the peer's.
    unknown_session,
    /// Dropped: the peer may not send in that channel, as far as the controller has told.
    unknown_channel,
    /// Dropped: the channel belongs to another job.
    refused_tag,
    /// Dropped: the sender is no peer.
    unknown_peer,
    /// Dropped: control that did not come from the controller.
    forged_control,
    /// Dropped: a report that arrived here.
    forged_report,
    /// Dropped: control that is older than what was obeyed.
    stale_control,
    /// Dropped: the frame arrived a second time.
    duplicate,
    /// Dropped: the frame's place was delivered or given up before.
    old,
    /// Dropped: the frame is further ahead than the reorder buffer reaches.
    far_ahead,
    /// Dropped: the reorder buffer has no memory for the frame.
    no_memory,
    /// Frames that waited for credit and were dropped, by CoDel or for want of room.
    queue_drops,
    /// Frames that waited for credit and were marked (ECN) by CoDel.
    queue_marks,

    /// Frames that were lost for good: not repeated in time, or not asked for.
    given_up,
    /// Repeated frames that arrived.
    repeated_in,
    /// Frames that were sent again.
    repeated_out,
    /// Requests to repeat that arrived.
    repeat_requests_in,
    /// Requests to repeat that were sent.
    repeat_requests_out,
    /// Frames that were asked for but are kept no more.
    repeat_not_there,
    /// How often a peer began a new session.
    restarts,
    /// How often a link was declared dead.
    link_deaths,
    /// How often the clock was set back.
    clock_jumps,
}

impl Counters {
    /// Frames that arrived from either side, and those sent to the network: what there was to wake
    /// for.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.plain_in
            + self.wire_in
            + self.wire_out
            + self.heartbeats_out
            + self.channels_out
            + self.repeat_requests_out
    }

    /// Turns for each frame: about one, and less under load. If there are many more, the loop is
    /// awake for nothing.
    #[must_use]
    pub fn wakes_per_frame(&self) -> f64 {
        self.wakes as f64 / self.frames().max(1) as f64
    }

    /// Counts a frame that could not be read.
    pub fn count_malformed(&mut self, why: &Malformed) {
        let known = self.count(why.counter());
        debug_assert!(known, "no counter {}", why.counter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_malformation_has_its_counter() {
        for why in Malformed::EXAMPLES {
            let mut counters = Counters::default();
            counters.count_malformed(&why);
            let counted: Vec<_> = counters.iter().filter(|(_, value)| *value > 0).collect();
            assert_eq!(counted, [(why.counter(), 1)]);
        }
    }

    #[test]
    fn names_are_the_fields() {
        let mut counters = Counters { far_ahead: 3, ..Counters::default() };
        assert!(counters.count("far_ahead"));
        assert!(!counters.count("no_such_counter"));
        assert_eq!(counters.far_ahead, 4);
        let names: std::collections::HashSet<_> = counters.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), counters.iter().count(), "no name comes twice");
    }
}
