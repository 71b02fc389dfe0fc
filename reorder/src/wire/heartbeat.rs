// SPDX-License-Identifier: Apache-2.0
//! Type 2: a sign of life over one link, with what the other side needs to know.

use super::{head, host_mac, link_number, seal, session_number, Mac, Malformed, Reader, HEARTBEAT};
use crate::seq::Seq;

/// Flag: answer at once.
pub const REPLY: u8 = 1;
/// Flag: there is data in one of the two directions.
pub const ACTIVE: u8 = 2;
/// Flag: the receiver shall hand its frames for the sender to the slot table for now.
pub const HOLD: u8 = 4;
pub(super) const FLAGS: u8 = REPLY | ACTIVE | HOLD;

/// Stands for "no link yet" in a greeting.
const GREETING: u16 = 0xffff;
/// Stands for "nothing heard yet".
const NEVER: u32 = u32::MAX;
/// The highest age of an echo, in us. It stands for all higher ages, too.
pub const MAX_ECHO_AGE_US: u32 = NEVER - 1;

/// The newest time of the other side that was heard on a link.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Echo {
    /// That time, in us of the other side's clock, wrapping round.
    pub time_us: u32,
    /// us since that heartbeat arrived; [`MAX_ECHO_AGE_US`] stands for that or more.
    pub age_us: u32,
}

/// A heartbeat, or a greeting. "Sender" and "receiver" are those of the heartbeat.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Heartbeat {
    /// Where the frame goes: to a NIC or, between bridge and helper, to a host; a greeting goes to
    /// everybody.
    pub dst: Mac,
    /// Where the frame comes from: a NIC or, between bridge and helper, a host.
    pub src: Mac,
    /// [`REPLY`], [`ACTIVE`], [`HOLD`].
    pub flags: u8,
    /// Number of the link, below 64; none in a greeting.
    pub link: Option<u8>,
    /// Session of the sender, not 0.
    pub session: u32,
    /// Session of the receiver as the sender knows it; 0 if it knows none.
    pub peer_session: u32,
    /// Its sequence among the heartbeats of the session, over all links.
    pub seq: Seq,
    /// When it was sent, in us of the sender's monotonic clock, wrapping round.
    pub time_us: u32,
    /// What the sender heard last on this link.
    pub echo: Option<Echo>,
    /// ms until the next heartbeat on this link, at the latest.
    pub next_within_ms: u16,
    /// Hosts whose traffic arrives by the sender's NIC of this link. In a greeting: the position of
    /// that NIC.
    pub cnt: u16,
    /// Links on which the sender hears the receiver, a bit each.
    pub hears: u64,
    /// The sequence of the sender's next data frame.
    pub next: Seq,
    /// The link sequence of the sender's next data frame on this link.
    pub link_next: Seq,
    /// All data frames of the receiver before this sequence were delivered or given up.
    pub expected: Seq,
    /// R_ijk: kB of the receiver's data that arrived by this link in the last HBSPAN.
    pub arrive_kb: u32,
    /// R_jk: kB that arrived by the sender's NIC of this link from all peers in the last HBSPAN.
    pub path_total_kb: u32,
    /// R_j: kB that arrived by all NICs of the sender from all peers in the last HBSPAN.
    pub arrive_total_kb: u32,
    /// kbit/s that the receiver may send over this link; [`NO_LIMIT`](super::NO_LIMIT): the rate
    /// that the controller configured.
    pub grant_kbps: u32,
    /// kbit/s that the sender may send over this link at most, as far as it knows; `NO_LIMIT` if it
    /// knows of no limit.
    pub limit_kbps: u32,
    /// kbit/s that the sender would send to the receiver; `NO_LIMIT` if that is more than it is
    /// granted.
    pub demand_kbps: u32,
    /// Data frames of the receiver's session that arrived by this link.
    pub frames_in: u32,
    /// The highest link sequence of the receiver that arrived by this link, plus 1.
    pub link_expected: Seq,
    /// The sending host's own address.
    pub own: Mac,
    /// The receiving host's own address; [`Mac::NONE`] in a greeting to everybody.
    pub peer: Mac,
}

impl Heartbeat {
    pub(super) fn read(
        dst: Mac,
        src: Mac,
        flags: u8,
        mut rest: Reader<'_>,
    ) -> Result<Self, Malformed> {
        let link = match rest.u16()? {
            GREETING => None,
            number => Some(link_number(number)?),
        };
        let heartbeat = Self {
            dst,
            src,
            flags,
            link,
            session: session_number(rest.u32()?)?,
            peer_session: rest.u32()?,
            seq: Seq(rest.u32()?),
            time_us: rest.u32()?,
            echo: match (rest.u32()?, rest.u32()?) {
                (_, NEVER) => None,
                (time_us, age_us) => Some(Echo { time_us, age_us }),
            },
            next_within_ms: rest.u16()?,
            cnt: rest.u16()?,
            hears: rest.u64()?,
            next: Seq(rest.u32()?),
            link_next: Seq(rest.u32()?),
            expected: Seq(rest.u32()?),
            arrive_kb: rest.u32()?,
            path_total_kb: rest.u32()?,
            arrive_total_kb: rest.u32()?,
            grant_kbps: rest.u32()?,
            limit_kbps: rest.u32()?,
            demand_kbps: rest.u32()?,
            frames_in: rest.u32()?,
            link_expected: Seq(rest.u32()?),
            own: host_mac(rest.mac()?)?,
            peer: match (rest.mac()?, link) {
                (Mac::NONE, None) => Mac::NONE,
                (mac, _) => host_mac(mac)?,
            },
        };
        rest.end()?;
        Ok(heartbeat)
    }

    /// Writes the frame into `out`, and removes what was there.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let echo =
            self.echo.map_or((0, NEVER), |echo| (echo.time_us, echo.age_us.min(MAX_ECHO_AGE_US)));
        out.clear();
        out.extend_from_slice(&head(self.dst, self.src, HEARTBEAT, self.flags));
        out.extend_from_slice(&self.link.map_or(GREETING, u16::from).to_be_bytes());
        for number in [self.session, self.peer_session, self.seq.0, self.time_us, echo.0, echo.1] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.next_within_ms.to_be_bytes());
        out.extend_from_slice(&self.cnt.to_be_bytes());
        out.extend_from_slice(&self.hears.to_be_bytes());
        for number in [
            self.next.0,
            self.link_next.0,
            self.expected.0,
            self.arrive_kb,
            self.path_total_kb,
            self.arrive_total_kb,
            self.grant_kbps,
            self.limit_kbps,
            self.demand_kbps,
            self.frames_in,
            self.link_expected.0,
        ] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.own.0);
        out.extend_from_slice(&self.peer.0);
        seal(out);
    }
}
