// SPDX-License-Identifier: Apache-2.0
//! Which session of the peer counts, and whether its helper takes our frames.

use super::MS;
use crate::Nanos;

/// The old session was asked to answer. If it says nothing for this long, the new one counts.
const PROBATION_NS: Nanos = 20 * MS;

/// A remote session that was heard beside the current one.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    session: u32,
    /// When it was first heard.
    since_ns: Nanos,
}

/// What a heartbeat's session numbers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The heartbeat belongs to the current session.
    Current,
    /// It belongs to the first session that was ever heard from this peer.
    First,
    /// It belongs to a new session, and the old one is silent: the peer's helper began anew.
    Restarted,
    /// It answers a process that ran on this host before this one.
    ForPredecessor,
    /// It belongs to a session that was not heard before. The current one, if it lives, has to
    /// answer now.
    NewCandidate,
    /// It belongs to the candidate, and the current session still has time to answer.
    OnProbation,
}

/// The two sessions of a pair of hosts, and what keeps this host from sending in its own.
///
/// A new session number may be a helper that began anew, or an old frame that somebody replays.
/// So the new session is a candidate first, and the current one is asked to answer. Only when that
/// stays silent for `PROBATION_NS` does the candidate replace it.
///
/// Invariants: `own` is never 0; `remote` is 0 until a session of the peer was accepted; the
/// candidate is never the current session.
#[derive(Debug)]
pub(super) struct Session {
    own: u32,
    remote: u32,
    /// When a frame of the remote session last arrived.
    remote_heard_ns: Nanos,
    candidate: Option<Candidate>,
    /// When the candidate is asked to speak again.
    ask_at: Option<Nanos>,
    /// The peer knows our session, so it can use our data.
    known_to_peer: bool,
    /// The controller wants frames striped to this peer; without a controller this is always so.
    wanted: bool,
    /// The peer asked us to hand its frames to the slot table: its helper ends.
    held: bool,
    /// The peer has no helper until one speaks: it sent a frame of ours back, or nothing was to be
    /// striped to it so far.
    gone: bool,
}

impl Session {
    pub(super) fn new(own: u32, wanted: bool) -> Self {
        Session {
            own,
            remote: 0,
            remote_heard_ns: 0,
            candidate: None,
            ask_at: None,
            known_to_peer: false,
            wanted,
            held: false,
            gone: false,
        }
    }

    /// Our session to the peer.
    pub(super) fn own(&self) -> u32 {
        self.own
    }

    /// The peer's session to us; 0 if none is known.
    pub(super) fn remote(&self) -> u32 {
        self.remote
    }

    /// Whether the peer knows our session.
    pub(super) fn known_to_peer(&self) -> bool {
        self.known_to_peer
    }

    /// Whether the peer's helper takes our data, if there is a link to it.
    pub(super) fn is_open(&self) -> bool {
        self.wanted && self.known_to_peer && !self.held && !self.gone
    }

    /// Data of the current remote session arrived.
    pub(super) fn data_arrived(&mut self, now: Nanos) {
        self.remote_heard_ns = now;
    }

    /// Judges the session numbers of a heartbeat: the `sender`'s, and the `receiver`'s as the
    /// sender knows it (0 if it knows none).
    pub(super) fn judge(&mut self, now: Nanos, sender: u32, receiver: u32) -> Verdict {
        if sender == self.remote {
            self.remote_heard_ns = now;
            self.candidate = None;
            return Verdict::Current;
        }
        if receiver != 0 && receiver != self.own {
            return Verdict::ForPredecessor;
        }
        if self.remote == 0 {
            return Verdict::First;
        }
        match self.candidate {
            Some(candidate) if candidate.session == sender => {
                if now.saturating_sub(candidate.since_ns) < PROBATION_NS {
                    Verdict::OnProbation
                } else {
                    Verdict::Restarted
                }
            }
            _ => {
                self.candidate = Some(Candidate { session: sender, since_ns: now });
                self.ask_at = Some(now + PROBATION_NS);
                Verdict::NewCandidate
            }
        }
    }

    /// `remote` is the peer's session from now on.
    pub(super) fn begin(&mut self, now: Nanos, remote: u32) {
        self.remote = remote;
        self.remote_heard_ns = now;
        self.candidate = None;
        self.known_to_peer = false;
        self.held = false;
    }

    /// A heartbeat of the current session says which session of ours the peer knows, and whether
    /// the peer wants its frames held back.
    pub(super) fn heartbeat(&mut self, known: u32, held: bool) {
        self.held = held;
        self.known_to_peer = known == self.own;
        if self.known_to_peer {
            self.gone = false;
        }
    }

    /// The controller wants frames striped to the peer, or not. True if it did not before: the
    /// peer's helper has to speak first then.
    ///
    /// The helper may be a new one that greets a moment later. Frames that waited for the one
    /// before would be overtaken by those that find it gone. A helper that was there all along
    /// answers at once.
    pub(super) fn set_wanted(&mut self, wanted: bool) -> bool {
        let begins = wanted && !self.wanted;
        self.gone |= begins;
        self.wanted = wanted;
        begins
    }

    /// The peer has no helper now.
    pub(super) fn helper_is_gone(&mut self) {
        self.gone = true;
    }

    /// When a candidate has to be asked again.
    pub(super) fn due_at(&self) -> Option<Nanos> {
        self.ask_at
    }

    /// Ends the time that the current session has to answer, if it is over. True if it said
    /// nothing: the candidate should be asked to speak again.
    pub(super) fn ends_probation(&mut self, now: Nanos) -> bool {
        if self.ask_at.is_none_or(|at| at > now) {
            return false;
        }
        self.ask_at = None;
        self.candidate =
            self.candidate.filter(|candidate| self.remote_heard_ns <= candidate.since_ns);
        self.candidate.is_some()
    }

    /// The clock was set back to `now`.
    pub(super) fn settle_clock(&mut self, now: Nanos) {
        let Self {
            remote_heard_ns,
            candidate,
            ask_at,
            own: _,
            remote: _,
            known_to_peer: _,
            wanted: _,
            held: _,
            gone: _,
        } = self;
        *remote_heard_ns = (*remote_heard_ns).min(now);
        if let Some(Candidate { since_ns, session: _ }) = candidate {
            *since_ns = (*since_ns).min(now);
        }
        *ask_at = ask_at.map(|_| now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 5;

    fn begun(now: Nanos) -> Session {
        let mut session = Session::new(OWN, true);
        assert_eq!(session.judge(now, 70, 0), Verdict::First);
        session.begin(now, 70);
        session
    }

    #[test]
    fn a_new_session_counts_when_the_old_one_does_not_answer() {
        let mut session = begun(0);
        assert_eq!(session.judge(MS, 71, 0), Verdict::NewCandidate);
        assert_eq!(session.due_at(), Some(MS + PROBATION_NS));
        assert_eq!(session.judge(2 * MS, 71, OWN), Verdict::OnProbation);
        assert!(!session.ends_probation(PROBATION_NS));
        assert!(session.ends_probation(MS + PROBATION_NS), "the candidate is asked again");
        assert_eq!(session.judge(MS + PROBATION_NS, 71, OWN), Verdict::Restarted);
    }

    #[test]
    fn a_replayed_session_does_not_replace_one_that_answers() {
        let mut session = begun(0);
        assert_eq!(session.judge(MS, 69, 0), Verdict::NewCandidate);
        assert_eq!(session.judge(2 * MS, 70, OWN), Verdict::Current);
        assert!(!session.ends_probation(MS + PROBATION_NS));
        assert_eq!(session.judge(MS + PROBATION_NS, 69, 0), Verdict::NewCandidate);
        assert_eq!(session.judge(MS + PROBATION_NS, 71, OWN + 1), Verdict::ForPredecessor);
    }

    #[test]
    fn data_flows_while_the_peer_knows_us_and_wants_it() {
        let mut session = begun(0);
        assert!(!session.is_open(), "the peer has not said that it knows us");
        session.heartbeat(OWN, false);
        assert!(session.is_open());
        session.helper_is_gone();
        assert!(!session.is_open());
        session.heartbeat(OWN, true);
        assert!(!session.is_open(), "it has a helper, which ends");
        session.heartbeat(OWN, false);
        assert!(!session.set_wanted(false) && !session.is_open());
        assert!(session.set_wanted(true) && !session.is_open(), "it has to speak first");
        session.heartbeat(OWN, false);
        assert!(session.is_open());
    }

    #[test]
    fn a_clock_that_is_set_back_delays_no_probation() {
        let mut session = begun(1000 * MS);
        session.judge(1000 * MS, 71, 0);
        session.settle_clock(MS);
        assert_eq!(session.due_at(), Some(MS));
        assert_eq!(session.judge(MS + PROBATION_NS, 71, 0), Verdict::Restarted);
    }
}
