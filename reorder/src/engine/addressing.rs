// SPDX-License-Identifier: Apache-2.0
//! How links are addressed, and who else is there: a bridge with a controller, or nobody.

use std::collections::{BTreeMap, HashMap};

use super::link::Link;
use super::{Nic, Settings};
use crate::wire::Mac;

/// How links are addressed.
///
/// This is the only place that knows what the option `--autonomous` changes.
pub(super) enum Addressing {
    /// Frames go through a bridge with the MACs of the two hosts, and a tag says over which link.
    /// The controller tells who is there. The bridge's slot table takes what is not striped.
    Bridge,
    /// Frames go out by the NICs themselves, with the MACs of the NICs at both ends of a link.
    /// Greetings tell who is there.
    Nics {
        /// Which peer (its number) has the NIC with that MAC.
        owners: HashMap<Mac, usize>,
    },
}

impl Addressing {
    pub(super) fn new(settings: &Settings) -> Self {
        if settings.autonomous {
            Self::Nics { owners: HashMap::new() }
        } else {
            Self::Bridge
        }
    }

    /// Whether there is a controller. It gives links and weights, and wants reports.
    pub(super) fn has_controller(&self) -> bool {
        matches!(self, Self::Bridge)
    }

    /// Whether there is a slot table for frames that cannot be striped.
    pub(super) fn has_slot_table(&self) -> bool {
        matches!(self, Self::Bridge)
    }

    /// Whether hosts find each other by greetings.
    pub(super) fn greets(&self) -> bool {
        matches!(self, Self::Nics { .. })
    }

    /// Destination and source address of a frame that goes over `link` from host `own` to host
    /// `peer`.
    pub(super) fn addresses(
        &self,
        link: &Link,
        peer: Mac,
        own: Mac,
        nics: &BTreeMap<u8, Nic>,
    ) -> (Mac, Mac) {
        match self {
            Self::Bridge => (peer, own),
            Self::Nics { .. } => {
                (link.peer_nic, nics.get(&link.own_port).map_or(own, |nic| nic.mac))
            }
        }
    }

    /// The number of the peer that sent a frame with source address `src`; `by_mac` has the peers
    /// by their own MACs.
    pub(super) fn sender(&self, src: Mac, by_mac: &HashMap<Mac, usize>) -> Option<usize> {
        match self {
            Self::Bridge => by_mac.get(&src).copied(),
            Self::Nics { owners } => owners.get(&src).copied(),
        }
    }

    /// The number of the peer that has a NIC; none with a bridge, where nobody sees NICs.
    pub(super) fn owner(&self, nic: Mac) -> Option<usize> {
        match self {
            Self::Bridge => None,
            Self::Nics { owners } => owners.get(&nic).copied(),
        }
    }

    /// A NIC belongs to peer `number`, whoever claimed it before.
    pub(super) fn claim(&mut self, nic: Mac, number: usize) {
        if let Self::Nics { owners } = self {
            owners.insert(nic, number);
        }
    }

    /// A NIC does not belong to peer `number` any more.
    pub(super) fn release(&mut self, nic: Mac, number: usize) {
        if let Self::Nics { owners } = self {
            if owners.get(&nic) == Some(&number) {
                owners.remove(&nic);
            }
        }
    }

    /// Peer `number` is gone, and peer `last` has its number now.
    pub(super) fn remove_peer(&mut self, number: usize, last: usize) {
        if let Self::Nics { owners } = self {
            owners.retain(|_, owner| *owner != number);
            owners.values_mut().filter(|owner| **owner == last).for_each(|owner| *owner = number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NIC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    #[test]
    fn a_nic_is_its_owners_under_whatever_number() {
        let mut nics = Addressing::Nics { owners: HashMap::new() };
        nics.claim(NIC, 0);
        nics.claim(OTHER, 2);
        nics.release(OTHER, 1);
        assert_eq!((nics.owner(NIC), nics.owner(OTHER)), (Some(0), Some(2)));
        nics.remove_peer(0, 2);
        assert_eq!((nics.owner(NIC), nics.owner(OTHER)), (None, Some(0)));
        nics.release(OTHER, 0);
        assert_eq!(nics.owner(OTHER), None);
    }

    #[test]
    fn a_bridge_knows_hosts_and_no_nics() {
        let mut bridge = Addressing::Bridge;
        bridge.claim(NIC, 0);
        let by_mac = HashMap::from([(OTHER, 3)]);
        assert_eq!((bridge.owner(NIC), bridge.sender(NIC, &by_mac)), (None, None));
        assert_eq!(bridge.sender(OTHER, &by_mac), Some(3));
    }
}
