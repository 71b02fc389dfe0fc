// SPDX-License-Identifier: Apache-2.0
//! The receiver's inner loop: it decides every few milliseconds who may send how much over which
//! link.
//!
//! A receiver sees everybody who sends to it, and of which classes (jobs). So it sets aside what is
//! guaranteed to classes, shares the rest of its NICs max-min fairly among the classes of all peers
//! that have something to send, and tells each peer its shares by heartbeat. What is left over is
//! granted too, so that a sender that grows is not held up. Together, the grants of active senders
//! never exceed the NICs.
//!
//! Traffic from hosts without a helper counts as one more sender for each NIC, with a demand that
//! lets it grow.

mod foreign;

use std::collections::BTreeMap;

use crate::maxmin::{max_min, Sender, SenderLink};
use crate::Nanos;
use foreign::Foreign;

/// The constants of the inner loop.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This part of each NIC's rate is granted. The rest keeps queues in the switches empty.
    pub headroom: f64,
    /// All idle peers together may begin with this part of a NIC's rate.
    pub floor: f64,
    /// A sender that wants a finite amount, or a host without a helper, may grow to this multiple
    /// of what it has now, until the next update.
    pub growth: f64,
    /// A peer that sent nothing for this long (ns) is idle.
    pub idle_ns: Nanos,
    /// A peer that had more to send for two windows of this length (ns), and used little of its
    /// grant, is held up elsewhere.
    pub window_ns: Nanos,
    /// A peer uses little of its grant if it uses less than this part of it.
    pub little: f64,
    /// A peer that is held up elsewhere is granted `slack` times what it used. When it uses this
    /// part of that grant, it is no longer held up.
    pub much: f64,
    /// See `much`.
    pub slack: f64,
    /// A grant that changed by more than this part is worth a heartbeat of its own.
    pub worth_telling: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            headroom: 0.995,
            floor: 0.02,
            growth: 1.25,
            idle_ns: 30_000_000,
            window_ns: 50_000_000,
            little: 0.6,
            much: 0.8,
            slack: 1.5,
            worth_telling: 0.02,
        }
    }
}

/// A link by which a peer sends to this host.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantLink {
    /// Number of the link.
    pub link: u8,
    /// This host's NIC at its end.
    pub own_nic: u8,
    /// The peer's NIC at its beginning. Links with the same one share what the largest of them may
    /// carry.
    pub remote_nic: u8,
    /// The most that it may carry, in bit/s: what the controller and the peer know of the way. 0
    /// for a dead link.
    pub limit_bps: f64,
}

/// A NIC of this host.
#[derive(Debug, Default)]
struct Nic {
    capacity_bps: f64,
    foreign: Foreign,
}

/// What a peer sends of one class: of one job, or (class 0) of none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GrantClass {
    /// Number of the class in the peer's traffic, below 64.
    pub class: u8,
    /// Links that it uses, a bit each.
    pub links: u64,
    /// Bit/s that it has before all others share the rest.
    pub guarantee_bps: f64,
}

/// A peer and what is known of its sending.
#[derive(Debug)]
struct Peer {
    links: Vec<GrantLink>,
    /// Bit/s for each link.
    grants: Vec<f64>,
    /// Bit/s for each link, as they were when a change was last worth a heartbeat.
    announced: Vec<f64>,
    /// Class 0 is always there.
    classes: Vec<Class>,
}

/// What is known of a peer's sending in one class.
#[derive(Debug)]
struct Class {
    about: GrantClass,
    demand_bps: f64,
    /// Bytes that arrived since the last update.
    bytes: u64,
    active_at: Option<Nanos>,
    window: Window,
    /// What it has of the peer's grants, in bit/s.
    granted_bps: f64,
}

/// Watches whether a class that has more to send uses its grant.
///
/// A peer may be unable to use its grant: its other NICs, its CPU, or another receiver holds it up.
/// Then the rest of its share is better given to others. One window of little use may be chance, or
/// a grant that rose a moment ago; two are not.
#[derive(Debug, Default)]
struct Window {
    since: Option<Nanos>,
    bytes: u64,
    /// The lowest grant of this window and of the one before, in bit/s. 0 if the peer did not have
    /// more to send all the time.
    lowest_bps: f64,
    before_bps: f64,
    /// What the peer used in the last window, in bit/s, if it is held up elsewhere.
    held_up_bps: Option<f64>,
}

/// Shares this host's NICs among its peers. `P` identifies a peer.
///
/// Invariants: the grants of classes that are not idle over links to one NIC, and what is set aside
/// for hosts without a helper, are together at most `headroom` of the NIC's rate. Idle classes have
/// at most `floor` of it in addition. No grant exceeds its link's limit.
#[derive(Debug)]
pub struct Granter<P> {
    settings: Settings,
    nics: BTreeMap<u8, Nic>,
    peers: BTreeMap<P, Peer>,
}

impl<P: Copy + Ord> Granter<P> {
    /// A granter that knows no NICs and no peers yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, nics: BTreeMap::new(), peers: BTreeMap::new() }
    }

    /// `nic` of this host runs at `capacity_bps` bit/s; 0 if it is down.
    pub fn set_nic(&mut self, nic: u8, capacity_bps: f64) {
        self.nics.entry(nic).or_default().capacity_bps = capacity_bps;
    }

    /// A helper's frame of any kind arrived by `nic`. `bytes` are as the kernel counts them,
    /// without preamble and checksum.
    pub fn managed(&mut self, nic: u8, bytes: usize) {
        if let Some(nic) = self.nics.get_mut(&nic) {
            nic.foreign.managed(bytes as u64);
        }
    }

    /// All bytes that ever arrived by `nic`, from the kernel's counters. To be called just before
    /// `update`.
    pub fn nic_total(&mut self, now: Nanos, nic: u8, rx_bytes: u64) {
        if let Some(nic) = self.nics.get_mut(&nic) {
            nic.foreign.total(now, rx_bytes);
        }
    }

    /// Bit/s that arrive by `nic` from hosts without a helper, smoothed.
    pub fn foreign_bps(&self, nic: u8) -> f64 {
        self.nics.get(&nic).map_or(0.0, |nic| nic.foreign.bps())
    }

    /// Adds `peer`, or gives it other links. Links that stay keep their grants until the next
    /// update.
    pub fn set_peer(&mut self, peer: P, links: Vec<GrantLink>) {
        let known = self.peers.entry(peer).or_insert_with(|| Peer {
            links: Vec::new(),
            grants: Vec::new(),
            announced: Vec::new(),
            classes: vec![Class::new(GrantClass { class: 0, links: u64::MAX, guarantee_bps: 0.0 })],
        });
        let kept = |rates: &[f64]| -> Vec<f64> {
            let rate = |link: &GrantLink| {
                let place = known.links.iter().position(|old| old.link == link.link);
                place
                    .and_then(|place| rates.get(place))
                    .map_or(0.0, |rate| rate.min(link.limit_bps))
            };
            links.iter().map(rate).collect()
        };
        (known.grants, known.announced) = (kept(&known.grants), kept(&known.announced));
        known.links = links;
    }

    /// What a peer that was added sends consists of these classes; class 0 must be one of them.
    /// Classes that stay keep what is known of them.
    pub fn set_classes(&mut self, peer: P, classes: &[GrantClass]) {
        let Some(peer) = self.peers.get_mut(&peer) else { return };
        peer.classes.retain(|old| classes.iter().any(|new| new.class == old.about.class));
        for about in classes {
            match peer.classes.iter_mut().find(|old| old.about.class == about.class) {
                Some(old) => old.about = *about,
                None => peer.classes.push(Class::new(*about)),
            }
        }
    }

    /// Forgets `peer`.
    pub fn remove_peer(&mut self, peer: P) {
        self.peers.remove(&peer);
    }

    /// `link` of `peer` may carry at most `limit_bps` bit/s from the next update on; 0 if it is
    /// dead.
    pub fn set_limit(&mut self, peer: P, link: u8, limit_bps: f64) {
        let links = self.peers.get_mut(&peer).map(|peer| &mut peer.links);
        if let Some(link) =
            links.and_then(|links| links.iter_mut().find(|known| known.link == link))
        {
            link.limit_bps = limit_bps;
        }
    }

    /// `peer` would send `demand_bps` bit/s of `class`. That is infinite if it has more than it is
    /// granted, as the flag MORE or its heartbeat says.
    ///
    /// True if it begins or ends to have more. All shares change then, and `update` should be
    /// called soon.
    pub fn demand(&mut self, now: Nanos, peer: P, class: u8, demand_bps: f64) -> bool {
        let Some(class) = self.class(peer, class) else { return false };
        let changes = (demand_bps == f64::INFINITY) != (class.demand_bps == f64::INFINITY);
        class.demand_bps = demand_bps;
        if demand_bps == f64::INFINITY {
            class.active_at = Some(now);
        }
        changes
    }

    /// A data frame of `class` of `peer` arrived. `bytes` are as the sender's token buckets count
    /// them. Repeated frames count too.
    pub fn arrived(&mut self, peer: P, class: u8, bytes: usize) {
        if let Some(class) = self.class(peer, class) {
            class.bytes += bytes as u64;
        }
    }

    fn class(&mut self, peer: P, class: u8) -> Option<&mut Class> {
        let classes = &mut self.peers.get_mut(&peer)?.classes;
        classes.iter_mut().find(|known| known.about.class == class)
    }

    /// Bit/s that `peer` may send over `link`; `None` if there is no such peer or link.
    pub fn grant(&self, peer: P, link: u8) -> Option<f64> {
        let peer = self.peers.get(&peer)?;
        let place = peer.links.iter().position(|known| known.link == link)?;
        peer.grants.get(place).copied()
    }

    /// Shares the NICs out again. True if a grant changed so much that its peer should be told at
    /// once.
    ///
    /// First come guaranteed rates, as far as they are used. The rest is shared max-min fairly by
    /// the classes of all peers, and what nobody wants is shared again in case somebody does.
    pub fn update(&mut self, now: Nanos) -> bool {
        let places: Vec<u8> = self.nics.keys().copied().collect();
        let mut left: Vec<f64> = self
            .nics
            .values()
            .map(|nic| nic.capacity_bps.max(0.0) * self.settings.headroom)
            .collect();
        let whole = left.clone();
        let floors = self.floors(&places);
        let floor = |link: &GrantLink| floors.get(&link.own_nic).copied().unwrap_or(0.0);
        let (mut senders, mut guarantees) = (Vec::new(), Vec::new());
        for peer in self.peers.values_mut() {
            let mut idle_links = 0;
            for class in &mut peer.classes {
                class.look_back(now, &self.settings);
                if class.is_idle(now, &self.settings) {
                    idle_links |= class.about.links;
                    continue;
                }
                let floor: f64 = peer.links.iter().filter(|link| class.uses(link)).map(floor).sum();
                let demand_bps = class.wants(&self.settings, floor);
                senders.push(sender(&peer.links, class.about.links, demand_bps, &places));
                guarantees.push(class.about.guarantee_bps.min(demand_bps));
            }
            if idle_links != 0 {
                // Whoever is idle may begin with what is left over.
                senders.push(sender(&peer.links, idle_links, 0.0, &places));
                guarantees.push(0.0);
            }
        }
        let of_peers = senders.len();
        for (place, nic) in self.nics.values().enumerate() {
            let demand_bps = nic.foreign.wants(nic.capacity_bps, &self.settings);
            let link = SenderLink { nic: place, own: 0, limit_bps: f64::INFINITY };
            senders.push(Sender { demand_bps, own_bps: Vec::new(), links: vec![link] });
        }
        let mut rates: Vec<Vec<f64>> =
            senders.iter().map(|sender| vec![0.0; sender.links.len()]).collect();
        if guarantees.iter().any(|guarantee| *guarantee > 0.0) {
            let wants: Vec<f64> = senders.iter().map(|sender| sender.demand_bps).collect();
            guarantees.resize(senders.len(), 0.0);
            for (sender, guarantee) in senders.iter_mut().zip(guarantees) {
                sender.demand_bps = guarantee;
            }
            let given = give(&mut left, &mut senders, &mut rates);
            for ((sender, wants), given) in senders.iter_mut().zip(wants).zip(given) {
                sender.demand_bps = (wants - given).max(0.0);
            }
        }
        give(&mut left, &mut senders, &mut rates);
        senders.truncate(of_peers);
        senders.iter_mut().for_each(|sender| sender.demand_bps = f64::INFINITY);
        if left.iter().zip(&whole).any(|(left, whole)| *left > 1e-6 * whole) {
            give(&mut left, &mut senders, &mut rates);
        }
        let mut rates = rates.into_iter();
        let mut changed = false;
        for peer in self.peers.values_mut() {
            let mut grants = vec![0.0; peer.links.len()];
            let mut idle_links = 0;
            for class in &mut peer.classes {
                class.granted_bps = 0.0;
                if class.is_idle(now, &self.settings) {
                    idle_links |= class.about.links;
                    continue;
                }
                let rates = rates.next().unwrap_or_default();
                class.granted_bps = rates.iter().sum();
                grants.iter_mut().zip(rates).for_each(|(grant, rate)| *grant += rate);
            }
            if idle_links != 0 {
                let rest = rates.next().unwrap_or_default();
                for ((grant, link), rate) in grants.iter_mut().zip(&peer.links).zip(rest) {
                    let idle = uses(idle_links, link);
                    let least = if idle { floor(link).min(link.limit_bps) } else { 0.0 };
                    *grant = (*grant + rate).max(least);
                }
            }
            // Classes of a peer share its links, which each of them counted for itself.
            for (grant, link) in grants.iter_mut().zip(&peer.links) {
                *grant = grant.min(link.limit_bps);
            }
            peer.grants = grants;
            let worth = |(announced, grant): (&f64, &f64)| {
                (announced - grant).abs() > self.settings.worth_telling * announced.max(*grant)
            };
            if peer.announced.iter().zip(&peer.grants).any(worth) {
                peer.announced.clone_from(&peer.grants);
                changed = true;
            }
        }
        changed
    }

    /// Bit/s with which a peer may begin over each of its links, by NIC.
    fn floors(&self, places: &[u8]) -> BTreeMap<u8, f64> {
        let links = |nic: u8| {
            self.peers
                .values()
                .flat_map(|peer| &peer.links)
                .filter(|link| link.own_nic == nic)
                .count()
        };
        let floor = |&nic: &u8| {
            (
                nic,
                self.nics[&nic].capacity_bps.max(0.0) * self.settings.floor
                    / links(nic).max(1) as f64,
            )
        };
        places.iter().map(floor).collect()
    }
}

impl Class {
    fn new(about: GrantClass) -> Self {
        Self {
            about,
            demand_bps: 0.0,
            bytes: 0,
            active_at: None,
            window: Window::default(),
            granted_bps: 0.0,
        }
    }

    fn uses(&self, link: &GrantLink) -> bool {
        uses(self.about.links, link)
    }

    fn is_idle(&self, now: Nanos, settings: &Settings) -> bool {
        self.active_at.is_none_or(|at| now - at > settings.idle_ns)
    }

    /// Counts what arrived since the last update.
    fn look_back(&mut self, now: Nanos, settings: &Settings) {
        if self.bytes > 0 {
            self.active_at = Some(now);
        }
        self.active_at = self.active_at.map(|at| at.min(now)); // a clock that went back
        let has_more = self.demand_bps == f64::INFINITY;
        let granted_bps = if has_more { self.granted_bps } else { 0.0 };
        self.window.count(now, std::mem::take(&mut self.bytes), granted_bps, settings);
    }

    /// Bit/s for which the class competes. It has some room to grow, and a little to begin with.
    fn wants(&self, settings: &Settings, floor: f64) -> f64 {
        let demand = self.demand_bps * settings.growth + floor;
        self.window.held_up_bps.map_or(demand, |used| demand.min(used * settings.slack + floor))
    }
}

fn uses(links: u64, link: &GrantLink) -> bool {
    links.checked_shr(link.link.into()).is_some_and(|links| links & 1 != 0)
}

/// A class of a peer as max-min fairness sees it: there, a sender's own NICs are the peer's. Over
/// links that are not in `used` it can send nothing.
fn sender(links: &[GrantLink], used: u64, demand_bps: f64, places: &[u8]) -> Sender {
    let count = links.iter().map(|link| usize::from(link.remote_nic) + 1).max();
    let mut own_bps = vec![0.0; count.unwrap_or(0)];
    let links = links.iter().map(|link| {
        let own = usize::from(link.remote_nic);
        let limit_bps = if uses(used, link) { link.limit_bps } else { 0.0 };
        own_bps[own] = f64::max(own_bps[own], limit_bps);
        let nic = places.binary_search(&link.own_nic).unwrap_or(usize::MAX);
        SenderLink { nic, own, limit_bps }
    });
    let links = links.collect();
    Sender { demand_bps, own_bps, links }
}

/// Shares the capacity that is `left` among senders, and takes what they get off it, and off what
/// they can still use. Adds it to `rates`, and returns how much each got.
fn give(left: &mut [f64], senders: &mut [Sender], rates: &mut [Vec<f64>]) -> Vec<f64> {
    let given = max_min(left, senders);
    for ((sender, rates), given) in senders.iter_mut().zip(rates).zip(&given) {
        for ((link, rate), given) in sender.links.iter_mut().zip(rates).zip(given) {
            *rate += given;
            link.limit_bps -= given;
            if let Some(own) = sender.own_bps.get_mut(link.own) {
                *own -= given;
            }
            if let Some(left) = left.get_mut(link.nic) {
                *left = (*left - given).max(0.0);
            }
        }
    }
    given.iter().map(|given| given.iter().sum()).collect()
}

impl Window {
    /// `bytes` arrived since the last update from a peer that was granted `grant_bps`. That is 0 if
    /// the peer had no more to send.
    fn count(&mut self, now: Nanos, bytes: u64, grant_bps: f64, settings: &Settings) {
        let since = *self.since.get_or_insert(now);
        self.bytes += bytes;
        self.lowest_bps = self.lowest_bps.min(grant_bps);
        if grant_bps <= 0.0 {
            self.held_up_bps = None;
        }
        let passed = now.saturating_sub(since);
        if passed < settings.window_ns && now >= since {
            return;
        }
        let used = self.bytes as f64 * 8e9 / passed.max(1) as f64;
        // A grant that rose is used only after a while, so the window before counts as well.
        let granted = self.lowest_bps.min(self.before_bps);
        let enough = if self.held_up_bps.is_some() { settings.much } else { settings.little };
        self.held_up_bps =
            (granted > 0.0 && used < enough * granted && now >= since).then_some(used);
        *self = Self {
            since: Some(now),
            bytes: 0,
            lowest_bps: grant_bps,
            before_bps: self.lowest_bps,
            held_up_bps: self.held_up_bps,
        };
    }
}

#[cfg(test)]
mod tests;
