// SPDX-License-Identifier: Apache-2.0
//! What the helper tells the programs about peers and links, and what they carried over these.
//!
//! Each link has a time at which everything that was sent over it so far will have left
//! (`free_ns`). The programs and the helper both move it on by what they send, so together they
//! send no more than was granted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use ri2n_wire::shared::{Flow, Lane, Nic, Shared, LANES, NICS};

use crate::wire::Mac;
use crate::Nanos;

const MS: Nanos = 1_000_000;
/// The programs stripe TCP to a peer for this long after the helper last said so. A helper turns
/// once a second at least; what hangs is ended by its watchdog.
pub const LEASE_NS: Nanos = 2_500 * MS;
/// A lease is renewed when this much of it is over, and not with each turn.
const RENEW_NS: Nanos = 100 * MS;
/// The helper counts as awake for so long after a turn with traffic: it turns every 10 ms then.
const AWAKE_NS: Nanos = 100 * MS;
/// What would have to wait for longer is refused. TCP keeps about 1 ms of its rate in the queues
/// below it; with several connections it is some of these. More would only be delay.
pub const LIMIT_NS: u32 = 4_000_000;
/// No link is busy for longer than this, whatever its rate was before.
const MAX_BUSY_NS: Nanos = 200 * MS;
/// What the helper itself sends in a turn takes no longer than this.
const MAX_TURN_NS: Nanos = 10 * MS;
/// More was not carried since the last turn: it is a counter that began anew.
const MAX_COUNT: u64 = 1 << 40;
/// TCP waits when its links are busy for longer than this, and than [`WAIT_FRAMES`] take.
const WAIT_NS: Nanos = MS;
/// So many full frames are on a link even if nothing waits: one on the way, and one behind it.
const WAIT_FRAMES: u64 = 2;

/// What the programs shall do with a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOrder {
    /// Its number, below [`LANES`].
    pub link: u8,
    /// Its rate in bit/s, not 0.
    pub rate_bps: u64,
    /// By how much longer the way is than the fastest link's.
    pub skew_ns: u32,
    /// The port of the host's own NIC.
    pub nic: u8,
}

/// What the programs carried over a link since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Frames that left, as on the wire.
    pub frames_out: u64,
    /// Their bytes, without what the medium adds.
    pub bytes_out: u64,
    /// Frames that came.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
}

/// A peer that has a place in the maps.
#[derive(Debug)]
struct Known {
    lanes: [Carried; LANES],
    refused: u64,
    /// The programs may stripe TCP to it, as was said in this turn.
    renewed: bool,
    /// It is in `leased`.
    listed: bool,
}

/// The maps, and what was last read there.
#[derive(Debug)]
pub struct Steering {
    shared: Shared,
    places: HashMap<Mac, usize>,
    /// By place.
    known: Vec<Known>,
    /// The places of peers to which the programs may stripe TCP, as far as they were told.
    leased: Vec<usize>,
    /// Bytes of a full frame on the medium.
    full: u64,
}

impl Steering {
    /// Takes maps. What they counted so far, for another helper, does not count. `full`: bytes of a
    /// full frame on the medium.
    pub fn new(shared: Shared, full: usize) -> Self {
        let mut steering = Steering {
            shared,
            places: HashMap::new(),
            known: Vec::new(),
            leased: Vec::new(),
            full: full as u64,
        };
        for flow in steering.shared.flows() {
            forget(flow);
        }
        steering.find_peers();
        for place in 0..steering.known.len() {
            steering.refused(place);
            for link in 0..LANES as u8 {
                steering.carried(place, link);
            }
        }
        // A helper before this one may have said so.
        steering.known.iter_mut().for_each(|known| known.listed = true);
        steering.leased.extend(0..steering.known.len());
        steering
    }

    /// The connections that come in.
    pub fn flows(&self) -> &[Flow] {
        self.shared.flows()
    }

    /// Looks for peers that were given a place since. A place is given for good.
    pub fn find_peers(&mut self) {
        while let Some(steer) = self.shared.steers().get(self.known.len()) {
            let [a, b, c, d, e, f, ..] = steer.mac.load(Relaxed).to_ne_bytes();
            let mac = [a, b, c, d, e, f];
            if mac == [0; 6] {
                break;
            }
            self.places.insert(Mac(mac), self.known.len());
            self.known.push(Known {
                lanes: [Carried::default(); LANES],
                refused: 0,
                renewed: false,
                listed: false,
            });
        }
    }

    /// The place of a peer.
    pub fn place_of(&self, peer: Mac) -> Option<usize> {
        self.places.get(&peer).copied()
    }

    fn lane(&self, place: usize, link: u8) -> Option<&Lane> {
        self.shared.steers().get(place)?.lanes.get(usize::from(link))
    }

    /// What was carried over a link to a peer since the last call.
    pub fn carried(&mut self, place: usize, link: u8) -> Carried {
        let Some(lane) = self.lane(place, link) else { return Carried::default() };
        let now = Carried {
            frames_out: lane.frames_out.load(Relaxed),
            bytes_out: lane.bytes_out.load(Relaxed),
            frames_in: lane.frames_in.load(Relaxed),
            bytes_in: lane.bytes_in.load(Relaxed),
        };
        let Some(known) = self.known.get_mut(place) else { return Carried::default() };
        let old = std::mem::replace(&mut known.lanes[usize::from(link)], now);
        Carried {
            frames_out: grown(old.frames_out, now.frames_out),
            bytes_out: grown(old.bytes_out, now.bytes_out),
            frames_in: grown(old.frames_in, now.frames_in),
            bytes_in: grown(old.bytes_in, now.bytes_in),
        }
    }

    /// Frames that were refused since the last call, since they would have had to wait too long.
    pub fn refused(&mut self, place: usize) -> u64 {
        let Some(steer) = self.shared.steers().get(place) else { return 0 };
        let now = steer.refused.load(Relaxed);
        let Some(known) = self.known.get_mut(place) else { return 0 };
        grown(std::mem::replace(&mut known.refused, now), now)
    }

    /// Whether TCP to a peer waits: all of its links are busy for a while.
    pub fn waits(&self, now: Nanos, place: usize) -> bool {
        let Some(steer) = self.shared.steers().get(place) else { return false };
        let links = steer.links.load(Relaxed);
        let busy = |lane: &Lane| {
            let frames_ns = time_ns(WAIT_FRAMES * self.full, lane.ns_per_kib.load(Relaxed));
            lane.free_ns.load(Relaxed).saturating_sub(now) > WAIT_NS.max(frames_ns)
        };
        let mut used =
            steer.lanes.iter().enumerate().filter(|(link, _)| links & (1 << link) != 0).peekable();
        used.peek().is_some() && used.all(|(_, lane)| busy(lane))
    }

    /// The host's NICs that are busy for a while, a bit for each port.
    pub fn busy_nics(&self, now: Nanos) -> u64 {
        let busy = |(_, nic): &(usize, &Nic)| {
            let frames_ns = time_ns(WAIT_FRAMES * self.full, nic.ns_per_kib.load(Relaxed));
            nic.free_ns.load(Relaxed).saturating_sub(now) > WAIT_NS.max(frames_ns)
        };
        let nics = self.shared.nics().iter().enumerate().filter(busy);
        nics.fold(0, |set, (port, _)| set | 1 << port)
    }

    /// The helper itself sent bytes over a link to a peer.
    pub fn sent(&self, now: Nanos, place: usize, link: u8, bytes: u64) {
        if let Some(lane) = self.lane(place, link) {
            occupy(now, &lane.free_ns, bytes, lane.ns_per_kib.load(Relaxed));
        }
    }

    /// The helper itself sent bytes by a NIC, to whatever peer.
    pub fn sent_by(&self, now: Nanos, port: u8, bytes: u64) {
        if let Some(nic) = self.shared.nics().get(usize::from(port)) {
            occupy(now, &nic.free_ns, bytes, nic.ns_per_kib.load(Relaxed));
        }
    }

    /// Says how fast the host's NICs are, in bit/s, by port; 0 for those that are not known.
    pub fn set_nics(&self, now: Nanos, rate_bps: impl Fn(u8) -> u64) {
        for (port, nic) in (0..NICS as u8).zip(self.shared.nics()) {
            set_pace(now, &nic.ns_per_kib, &nic.free_ns, pace(rate_bps(port)));
        }
    }

    /// The programs may stripe TCP to a peer over these links. A frame takes `overhead` bytes more
    /// on the medium than its own. `active`: the helper is awake for this peer, and need not be
    /// woken. To be said in each turn.
    pub fn allow(
        &mut self,
        now: Nanos,
        place: usize,
        orders: &[LinkOrder],
        overhead: usize,
        active: bool,
    ) {
        let (Some(steer), Some(known)) =
            (self.shared.steers().get(place), self.known.get_mut(place))
        else {
            return;
        };
        let mut links = 0;
        for order in orders {
            let Some(lane) = steer.lanes.get(usize::from(order.link)) else { continue };
            links |= 1 << order.link;
            set_pace(now, &lane.ns_per_kib, &lane.free_ns, pace(order.rate_bps));
            set(&lane.skew_ns, order.skew_ns);
            set(&lane.nic, order.nic.into());
        }
        if links == 0 {
            return;
        }
        set(&steer.overhead, u32::try_from(overhead).unwrap_or(u32::MAX));
        set(&steer.limit_ns, LIMIT_NS);
        if steer.links.load(Relaxed) != links {
            steer.links.store(links, Relaxed);
        }
        let awake_ns = if active { now + AWAKE_NS } else { now };
        let awake = steer.awake_ns.load(Relaxed);
        // An idle helper wants to be woken by the next frame; an active one says so now and then.
        if (!active && awake > now) || (active && awake_ns.saturating_sub(awake) > AWAKE_NS / 10) {
            steer.awake_ns.store(awake_ns, Relaxed);
        }
        let until_ns = now + LEASE_NS;
        let until = steer.until_ns.load(Relaxed);
        if until > until_ns || until_ns - until > RENEW_NS {
            steer.until_ns.store(until_ns, Relaxed);
        }
        known.renewed = true;
        if !std::mem::replace(&mut known.listed, true) {
            self.leased.push(place);
        }
    }

    /// Ends what was not said again in this turn.
    pub fn end_turn(&mut self) {
        let Self { shared, known, leased, .. } = self;
        leased.retain(|place| {
            let (Some(steer), Some(known)) = (shared.steers().get(*place), known.get_mut(*place))
            else {
                return false;
            };
            known.listed = std::mem::take(&mut known.renewed);
            if !known.listed {
                steer.until_ns.store(0, Relaxed);
                steer.links.store(0, Relaxed);
            }
            known.listed
        });
    }
}

/// The helper ends, or has other maps.
impl Drop for Steering {
    fn drop(&mut self) {
        self.known.iter_mut().for_each(|known| known.renewed = false);
        self.end_turn();
    }
}

/// By how much a counter grew; 0 if it began anew.
fn grown(old: u64, new: u64) -> u64 {
    Some(new.wrapping_sub(old)).filter(|grown| *grown < MAX_COUNT).unwrap_or(0)
}

/// What 1,024 bytes take at a rate; 0 if that is 0.
fn pace(rate_bps: u64) -> u32 {
    match rate_bps {
        0 => 0,
        _ => u32::try_from(8_192_000_000_000u64.div_ceil(rate_bps)).unwrap_or(u32::MAX),
    }
}

/// What `bytes` take.
fn time_ns(bytes: u64, ns_per_kib: u32) -> Nanos {
    bytes.saturating_mul(ns_per_kib.into()) >> 10
}

fn set(field: &AtomicU32, value: u32) {
    if field.load(Relaxed) != value {
        field.store(value, Relaxed);
    }
}

/// Sets how fast a link or a NIC is. What is on it takes as much longer as it becomes slower.
fn set_pace(now: Nanos, field: &AtomicU32, free_ns: &AtomicU64, ns_per_kib: u32) {
    let old = field.load(Relaxed);
    let longest = now + MAX_BUSY_NS;
    if old != ns_per_kib || free_ns.load(Relaxed) > longest {
        let _ = free_ns.fetch_update(Relaxed, Relaxed, |free| {
            let busy = u128::from(free.saturating_sub(now)) * u128::from(ns_per_kib);
            let busy = busy / u128::from(if old == 0 { ns_per_kib } else { old }.max(1));
            Some(now + Nanos::try_from(busy).unwrap_or(Nanos::MAX).min(MAX_BUSY_NS))
        });
        field.store(ns_per_kib, Relaxed);
    }
}

/// Bytes are sent: a link or a NIC is busy for as much longer.
fn occupy(now: Nanos, free_ns: &AtomicU64, bytes: u64, ns_per_kib: u32) {
    let time = time_ns(bytes, ns_per_kib).min(MAX_TURN_NS);
    if time > 0 {
        let later = |free: u64| Some(free.max(now).saturating_add(time));
        let _ = free_ns.fetch_update(Relaxed, Relaxed, later);
    }
}

/// Nothing of a connection is known.
fn forget(flow: &Flow) {
    flow.key.store(0, Relaxed);
    flow.word.store(0, Relaxed);
}
