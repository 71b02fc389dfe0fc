// SPDX-License-Identifier: Apache-2.0
//! Type 5: what a helper tells the controller.

use super::{head, host_mac, seal, Mac, Malformed, Reader, CONTROLLER_MAC, MAX_LINKS, REPORT};

/// An entry's flag: the peer is heard on this link.
pub const HEARD: u8 = 1;
/// An entry's flag: frames can be sent over the link.
pub const USABLE: u8 = 2;
/// An entry's flag: frames for this peer are striped.
pub const STRIPING: u8 = 4;

/// The most entries of one report. More of them go into several reports of the same time.
pub const MAX_ENTRIES: usize = 36;

/// A report, or a part of one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// ms since the helper began, wrapping round.
    pub time_ms: u32,
    /// The host's own address.
    pub mac: Mac,
    /// Control that is older than this is refused.
    pub generation: u32,
    /// An entry for each peer and link, at most 36.
    pub entries: Vec<ReportEntry>,
}

/// The state of a link to a peer. Numbers of frames count from the helper's beginning, and wrap
/// round.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct ReportEntry {
    /// The peer's own address.
    pub peer: Mac,
    /// Number of the link, below 64.
    pub link: u8,
    /// [`HEARD`], [`USABLE`], [`STRIPING`].
    pub flags: u8,
    /// Data frames sent over it.
    pub sent: u32,
    /// Data frames that arrived by it.
    pub received: u32,
    /// Data frames of the peer that were lost on it.
    pub lost: u32,
    /// Data frames sent again over it.
    pub repeated: u32,
    /// us by which frames take longer on it than on the peer's fastest link.
    pub skew_us: u32,
    /// Smoothed round trip in us.
    pub rtt_us: u32,
    /// The rate at which it is used, in kbit/s.
    pub rate_kbps: u32,
    /// What would be sent to the peer, in kbit/s; [`NO_LIMIT`](super::NO_LIMIT) if that is more
    /// than is granted.
    pub demand_kbps: u32,
}

impl Report {
    pub(super) fn read(mut rest: Reader<'_>) -> Result<Self, Malformed> {
        let [count, _] = rest.array()?;
        let time_ms = rest.u32()?;
        let mac = host_mac(rest.mac()?)?;
        let generation = rest.u32()?;
        if usize::from(count) > MAX_ENTRIES {
            return Err(Malformed::BadCount);
        }
        let entries = (0..count).map(|_| ReportEntry::read(&mut rest)).collect::<Result<_, _>>()?;
        rest.end()?;
        Ok(Self { time_ms, mac, generation, entries })
    }

    /// Writes the frame into `out`, and removes what was there. Entries after the 36th are left
    /// out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let entries = &self.entries[..self.entries.len().min(MAX_ENTRIES)];
        out.clear();
        out.extend_from_slice(&head(CONTROLLER_MAC, self.mac, REPORT, 0));
        out.extend_from_slice(&[entries.len() as u8, 0]);
        out.extend_from_slice(&self.time_ms.to_be_bytes());
        out.extend_from_slice(&self.mac.0);
        out.extend_from_slice(&self.generation.to_be_bytes());
        entries.iter().for_each(|entry| entry.write(out));
        seal(out);
    }
}

impl ReportEntry {
    fn read(rest: &mut Reader<'_>) -> Result<Self, Malformed> {
        let entry = Self {
            peer: host_mac(rest.mac()?)?,
            link: rest.u8()?,
            flags: rest.entry_flags(HEARD | USABLE | STRIPING)?,
            sent: rest.u32()?,
            received: rest.u32()?,
            lost: rest.u32()?,
            repeated: rest.u32()?,
            skew_us: rest.u32()?,
            rtt_us: rest.u32()?,
            rate_kbps: rest.u32()?,
            demand_kbps: rest.u32()?,
        };
        if usize::from(entry.link) >= MAX_LINKS {
            return Err(Malformed::BadEntry);
        }
        Ok(entry)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.peer.0);
        out.extend_from_slice(&[self.link, self.flags]);
        for number in [
            self.sent,
            self.received,
            self.lost,
            self.repeated,
            self.skew_us,
            self.rtt_us,
            self.rate_kbps,
            self.demand_kbps,
        ] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}
