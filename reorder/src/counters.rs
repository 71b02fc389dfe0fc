//! What a helper counts: every frame that is dropped has a counter of its own.

use crate::wire::Malformed;

/// Makes `Counters` from one line for each counter.
macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Numbers since the helper began. All of them only grow, but the engine's gauges are
        /// elsewhere.
        #[derive(Clone, Debug, Default, Eq, PartialEq)]
        pub struct Counters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Name and value of every counter, in the order of their declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }

            /// Adds one to the counter of that name; false when there is none.
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
    /// Data frames that came in, of any kind.
    data_in,
    /// Frames handed to the slot table, since their destination is not striped to now.
    to_slots,
    /// Our own frames that a peer's bridge sent back, as there is no helper.
    bounced_in,
    /// Heartbeats that came in.
    heartbeats_in,
    /// Heartbeats sent.
    heartbeats_out,
    /// Control frames obeyed.
    control_in,
    /// Heartbeats that came late or twice.
    old_heartbeats,
    /// Frames that spoke of numbers far from those that are known: not believed until others agree.
    doubted,
    /// Times that what was believed of a peer's sequence was given up, as all links contradicted
    /// it.
    resyncs,
    /// Data frames missing in the sequence of their link.
    lost_on_links,
    /// Frames of the host that found the queue of their peer full.
    queue_full,
    /// Frames of the host that waited for a peer that no link leads to any more.
    unreachable,
    /// Peers beyond the number that is kept, or strangers that greeted beyond those that are looked
    /// at in a second.
    too_many_peers,
    /// Turns: times that it was woken by a frame, or because something was due.
    wakes,
    /// Times that it was woken 2 ms or more after it was due: its CPUs are busy.
    late,
    /// Reports sent to the controller.
    reports_out,

    /// Dropped: ends before its fields do.
    truncated,
    /// Dropped: longer than its fields, or than any frame.
    oversized,
    /// Dropped: another version of the format.
    wrong_version,
    /// Dropped: its checksum is not that of what it says.
    bad_checksum,
    /// Dropped: a type of frame that does not exist.
    unknown_type,
    /// Dropped: a flag that does not exist.
    bad_flags,
    /// Dropped: a link number above 63.
    bad_link,
    /// Dropped: a session of 0.
    bad_session,
    /// Dropped: an address that no host can have.
    bad_mac,
    /// Dropped: more entries than there may be, or none where there must be some.
    bad_count,
    /// Dropped: a request to repeat no frames or too many.
    bad_range,
    /// Dropped: control of a kind that does not exist.
    unknown_kind,
    /// Dropped: control with a mode that does not exist.
    unknown_mode,
    /// Dropped: an entry of a control frame or report with a value it cannot have.
    bad_entry,
    /// Dropped: had a VLAN tag when it came in by a NIC.
    tagged,
    /// Dropped: not a helper's frame.
    not_ours,

    /// Dropped, from the host: ends before its headers do.
    offload_truncated,
    /// Dropped, from the host: its offload header contradicts itself or the frame.
    offload_bad_header,
    /// Dropped, from the host: to be cut in a way that is not known.
    offload_unknown_gso,
    /// Dropped, from the host: to be cut in the way of another protocol.
    offload_wrong_protocol,
    /// Dropped, from the host: to be cut into pieces of an impossible size.
    offload_bad_gso,
    /// Dropped, from the host: its checksum's place is outside of it.
    offload_bad_checksum_place,
    /// Dropped, from the host: a fragment that is to be cut.
    offload_fragment,
    /// Dropped, from the host: longer than the links carry, and not to be cut.
    offload_too_long,
    /// Dropped, from the host: would be cut into too many pieces.
    offload_too_many,

    /// Dropped: of a session that is not the peer's.
    unknown_session,
    /// Dropped: from a host that is no peer.
    unknown_peer,
    /// Dropped: control that did not come from the controller.
    forged_control,
    /// Dropped: a report that came in.
    forged_report,
    /// Dropped: control older than what was obeyed.
    stale_control,
    /// Dropped: came in a second time.
    duplicate,
    /// Dropped: older than what was delivered or given up.
    old,
    /// Dropped: further ahead than the reorder buffer reaches.
    far_ahead,
    /// Dropped: the reorder buffer is full of bytes.
    no_memory,
    /// Dropped by CoDel or for want of room while waiting for credit.
    queue_drops,
    /// Marked (ECN) by CoDel while waiting for credit.
    queue_marks,

    /// Frames lost for good: not repeated in time, or not asked for.
    given_up,
    /// Repeated frames that came in.
    repeated_in,
    /// Frames sent again.
    repeated_out,
    /// Requests to repeat that came in.
    repeat_requests_in,
    /// Requests to repeat that were sent.
    repeat_requests_out,
    /// Frames asked for that are kept no more.
    repeat_not_there,
    /// Times that a peer began a new session.
    restarts,
    /// Times that a link was declared dead.
    link_deaths,
    /// Times that the clock jumped.
    clock_jumps,
}

impl Counters {
    /// Frames that came in, from either side, and those that were sent to the network: what there
    /// was to wake for.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.plain_in
            + self.wire_in
            + self.wire_out
            + self.heartbeats_out
            + self.repeat_requests_out
    }

    /// Turns for each frame: about one, and less under load. Many more, and it is awake for
    /// nothing.
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
        assert_eq!(names.len(), counters.iter().count(), "a name twice");
    }
}
