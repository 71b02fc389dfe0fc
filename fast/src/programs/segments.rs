// SPDX-License-Identifier: Apache-2.0
//! How much the host's TCP hands on at once: `gso_max_size` of the bridge's local port.
//!
//! The kernel lets a connection have about 1 ms of what it sends in the devices below it. With
//! pieces that are as long as that on the slowest link, one piece fills it, and the other links have
//! nothing to send. Pieces of a quarter let every link have one. Connections that were opened before
//! keep their size.

use std::io;
use std::time::{Duration, Instant};

use super::tc::{Device, Filter, Side, Tc};
use super::Refusal;

/// The size of a device that nobody has changed.
const WHOLE: u32 = 65_536;
/// What the kernel takes off for TCP (`sk_setup_caps`: MAX_TCP_HEADER and 1).
const HEADERS: u32 = 400;
/// So many kbit/s carry one byte in a quarter of a millisecond.
const KBPS_PER_BYTE: u64 = 32;
/// A size that differs by less than one part in so many stays.
const NEAR: u32 = 5;
/// The size of before comes back when nobody was striped for so long. Leases come again, and a next
/// watch finds the helper only after a while; a connection opened meanwhile would have long pieces
/// for its life.
const COMES_BACK: Duration = Duration::from_secs(5);

/// The size for links of which the slowest has this rate, on a device with this MTU.
pub fn size(slowest_kbps: u64, mtu: u32) -> u32 {
    let quarter = u32::try_from(slowest_kbps / KBPS_PER_BYTE).unwrap_or(u32::MAX);
    quarter.max(mtu).saturating_add(HEADERS).min(WHOLE)
}

/// The local port's size, and what it was.
#[derive(Debug)]
pub struct Segments {
    tc: Tc,
    local: String,
    ifindex: u32,
    /// Before it was changed.
    before: u32,
    /// What it was changed to; None: it was not.
    changed: Option<u32>,
    /// When somebody was striped last, or when this began.
    striped: Instant,
}

impl Segments {
    /// Looks at the port, before programs are attached there. Where those of an earlier watch
    /// stand, the size is taken for its.
    pub fn of(local: &str, now: Instant) -> Result<Self, Refusal> {
        let mut tc = Tc::open().map_err(failed)?;
        let (mut before, mut changed, mut ifindex) = (WHOLE, None, 0);
        if let Some(device) = tc.device(local).map_err(failed)? {
            ifindex = device.ifindex;
            if has_programs(&mut tc, &device).map_err(failed)? {
                changed = Some(device.gso_max_size).filter(|size| *size < WHOLE);
            } else {
                before = device.gso_max_size;
            }
        }
        let local = local.to_owned();
        Ok(Segments { tc, local, ifindex, before, changed, striped: now })
    }

    /// Bounds the size by the slowest link, or by none when nobody is striped. Returns the bound
    /// that is in force, if there is one.
    pub fn bound(
        &mut self,
        slowest_kbps: Option<u64>,
        now: Instant,
    ) -> Result<Option<u32>, Refusal> {
        let Some(device) = self.tc.device(&self.local).map_err(failed)? else { return Ok(None) };
        if device.ifindex != self.ifindex {
            // It was made anew.
            (self.ifindex, self.before, self.changed) = (device.ifindex, device.gso_max_size, None);
        }
        match slowest_kbps {
            Some(slowest) => {
                self.striped = now;
                let wanted = size(slowest, device.mtu).min(self.before);
                if wanted.abs_diff(device.gso_max_size) > device.gso_max_size / NEAR {
                    self.set(wanted)?;
                    self.changed = Some(wanted);
                }
            }
            None if now.duration_since(self.striped) < COMES_BACK => {}
            None => self.give_back()?,
        }
        Ok(self.changed.filter(|size| *size < self.before))
    }

    /// Gives the port the size that it had before, unless somebody else has changed it meanwhile.
    pub fn give_back(&mut self) -> Result<(), Refusal> {
        let Some(changed) = self.changed.take() else { return Ok(()) };
        let device = self.tc.device(&self.local).map_err(failed)?;
        let is_ours = |it: &Device| (it.ifindex, it.gso_max_size) == (self.ifindex, changed);
        match device {
            Some(device) if is_ours(&device) => self.set(self.before),
            _ => Ok(()),
        }
    }

    /// Gives a port the size of a new device where programs of a watch stand of which nobody knows
    /// what it found.
    pub fn reset(local: &str) -> Result<(), Refusal> {
        let mut tc = Tc::open().map_err(failed)?;
        let Some(device) = tc.device(local).map_err(failed)? else { return Ok(()) };
        if device.gso_max_size < WHOLE && has_programs(&mut tc, &device).map_err(failed)? {
            tc.set_gso_max_size(device.ifindex, WHOLE).map_err(failed)?;
        }
        Ok(())
    }

    fn set(&mut self, size: u32) -> Result<(), Refusal> {
        self.tc.set_gso_max_size(self.ifindex, size).map_err(failed)
    }
}

fn has_programs(tc: &mut Tc, device: &Device) -> io::Result<bool> {
    Ok(tc.filters(device.ifindex, Side::Egress)?.iter().any(Filter::is_ours))
}

fn failed(error: io::Error) -> Refusal {
    Refusal::kernel("gso_max_size", &error)
}
