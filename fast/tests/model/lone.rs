// SPDX-License-Identifier: Apache-2.0
//! Which packets of other protocols than TCP pass to a striped peer, by what was sent before.

use std::collections::BTreeMap;

use super::striping::{Chosen, Sending};
use super::{hash, Flow};
use ri2n_fast::plan::Striped;

pub const PLACES: u64 = 4096;
pub const SILENT_NS: u64 = 100_000_000;
pub const WINDOW_NS: u64 = 8_000_000;
pub const SLOW: u32 = 8;

/// What was sent so far.
#[derive(Clone, Debug, Default)]
pub struct Lone {
    places: BTreeMap<u64, Place>,
    /// When a flow's last packet went to the bridge.
    bridged: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug, Default)]
struct Place {
    owner: Option<u64>,
    /// When the owner's last packet came.
    seen: Option<u64>,
    /// When somebody else was last turned away.
    turned: Option<u64>,
    /// When the window began, and how many packets it has since an answer came.
    window: Option<(u64, u32)>,
    /// A link, and those of which it is one.
    choice: Option<(u8, u64)>,
}

/// The flow as its fragments say it.
pub fn whole(flow: &Flow) -> u64 {
    hash(&Flow { source_port: 0, destination_port: 0, ..flow.clone() })
}

/// The link of the highest score is a flow's.
fn score(key: u64, link: u8) -> u64 {
    (0..2).fold(key, |hash: u64, _| {
        let hash = (hash ^ u64::from(link)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^ (hash >> 29)
    })
}

impl Lone {
    /// A packet. None: it goes to the bridge.
    pub fn see(
        &mut self,
        sending: &Sending,
        striped: &Striped,
        mtu: impl Fn(u32) -> usize,
    ) -> Option<Chosen> {
        let (now, key) = (sending.now, hash(&sending.flow));
        let is_recent = |time: Option<u64>| time.is_some_and(|time| now - time < SILENT_NS);
        let place = self.places.entry(key % PLACES).or_default();
        if place.owner != Some(key) {
            if is_recent(place.seen) {
                place.turned = Some(now);
                self.bridged.insert(key, now);
                return None;
            }
            *place = Place { owner: Some(key), turned: place.turned, ..Place::default() };
            // Nobody remembers whether it was this one.
            if is_recent(place.turned) {
                self.bridged.insert(key, now);
            }
        }
        place.seen = Some(now);
        let chosen = self.pass(sending, striped, mtu);
        if chosen.is_none() {
            self.bridged.insert(key, now);
        }
        chosen
    }

    /// An answer to packets of this flow came.
    pub fn answered(&mut self, key: u64) {
        let place = self.places.get_mut(&(key % PLACES)).filter(|place| place.owner == Some(key));
        if let Some((_, packets)) = place.and_then(|place| place.window.as_mut()) {
            *packets = 0;
        }
    }

    /// A packet of a flow that has its place.
    fn pass(
        &mut self,
        sending: &Sending,
        striped: &Striped,
        mtu: impl Fn(u32) -> usize,
    ) -> Option<Chosen> {
        let Sending { now, steer, ref flow, .. } = *sending;
        let (key, whole) = (hash(flow), whole(flow));
        let is_recent = |time: Option<&u64>| time.is_some_and(|time| now - time < SILENT_NS);
        let is_one = !flow.is_fragment && sending.frame.gso_size == 0;
        let may = striped.others && now < steer.until_ns && is_one;
        if !may || is_recent(self.bridged.get(&key)) || is_recent(self.bridged.get(&whole)) {
            return None;
        }
        let stranger = self.places.get(&(whole % PLACES)).filter(|it| it.owner != Some(whole));
        if whole != key && stranger.is_some_and(|it| is_recent(it.turned.as_ref())) {
            return None;
        }
        let place = self.places.get_mut(&(key % PLACES)).unwrap();
        let window = place.window.filter(|(start, _)| now - start < WINDOW_NS);
        let (start, packets) = window.unwrap_or((now, 0));
        place.window = Some((start, packets + 1));
        if packets == SLOW {
            return None;
        }
        let usable = |link: u8| {
            let path = striped.paths.get(&link).filter(|_| steer.links >> link & 1 == 1);
            path.and_then(|path| sending.by(link, path))
        };
        let rate = |link: u8| u64::from(steer.lanes[usize::from(link)].ns_per_kib);
        let chosen = place.choice.filter(|(_, links)| *links == steer.links);
        let chosen = match chosen.and_then(|(link, _)| usable(link)) {
            Some(chosen) => chosen,
            None => {
                let all = || (0..32).filter_map(usable);
                let fastest = all().map(|it| rate(it.link)).min()?;
                let near = all().filter(|it| rate(it.link) <= 4 * fastest);
                near.max_by_key(|it| score(key, it.link))?
            }
        };
        place.choice = Some((chosen.link, steer.links));
        (sending.fits(&chosen.path, mtu) && chosen.start_ns == now).then_some(chosen)
    }
}
