//! The papers' weights, from the heartbeats' counts alone: RI2N, RI2N+ and RI2N++ (SPEC.md 1 to 3).

use super::link::Counts;
use super::{Engine, Mode};
use crate::Nanos;

/// Part of the largest weight that a live link keeps: with none at all it would never be tried
/// again.
const FLOOR: f64 = 0.02;

/// What one link of a pair had in the last HBSPAN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// S_ijk: data frames sent.
    pub sent: u64,
    /// Those of them that arrived, as far as the receiver has said so: it counts all of a session,
    /// so that this and what was sent are of the same time.
    pub arrived: u64,
    /// What the receiver says of it.
    pub theirs: Counts,
}

/// Weights of a pair's links.
///
/// RI2N+: the inverse of how many peers' traffic comes in by the receiver's NIC. RI2N++: W_ijk =
/// (R_ijk / Q_jk) A_ijk with A_ijk = R_ijk / S_ijk and Q_jk = R_jk / R_j; nothing sent: as it was
/// (`None`).
pub fn weights(mode: Mode, links: &[Seen]) -> Option<Vec<f64>> {
    let mut found: Vec<f64> = match mode {
        Mode::Paced | Mode::RoundRobin => links.iter().map(|_| 1.0).collect(),
        Mode::Ri2nPlus => {
            links.iter().map(|link| 1.0 / f64::from(link.theirs.peers.max(1))).collect()
        }
        Mode::Ri2nPlusPlus => {
            if links.iter().all(|link| link.sent == 0 || link.theirs.arrive == 0) {
                return None;
            }
            links.iter().map(plus_plus).collect()
        }
    };
    let most = found.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    for weight in &mut found {
        *weight = weight.max(FLOOR * most);
    }
    Some(found)
}

fn plus_plus(link: &Seen) -> f64 {
    let arrive = f64::from(link.theirs.arrive);
    let (path, total) = (f64::from(link.theirs.path_total), f64::from(link.theirs.arrive_total));
    if link.sent == 0 || path <= 0.0 || total <= 0.0 {
        return 0.0;
    }
    // What was on the way at the beginning may make it more than 1.
    let rate = (link.arrived as f64 / link.sent as f64).min(1.0);
    arrive / (path / total) * rate
}

impl Engine {
    /// Every HBSPAN: R_ijk and its sums begin anew, and without a controller the weights are
    /// computed.
    pub(super) fn renew_weights(&mut self, now: Nanos) {
        if now < self.span_at {
            return;
        }
        self.span_at = now + self.settings.hbspan_ns;
        for nic in self.nics.values_mut() {
            nic.arrived = (0, nic.arrived.0);
        }
        let mode = self.mode;
        for peer in &mut self.peers {
            for entry in &mut peer.arrived {
                (entry.1, entry.2) = (0, entry.1);
            }
            let mut seen = Vec::with_capacity(peer.links.len());
            for link in &peer.links {
                let before = peer.span_sent.iter().find(|entry| entry.0 == link.number);
                let (sent, arrived) = before
                    .map_or((link.sent_frames, link.arrived_frames), |entry| (entry.1, entry.2));
                seen.push(Seen {
                    sent: link.sent_frames.saturating_sub(sent),
                    arrived: u64::from(link.arrived_frames.wrapping_sub(arrived)),
                    theirs: link.theirs,
                });
            }
            peer.span_sent = peer
                .links
                .iter()
                .map(|link| (link.number, link.sent_frames, link.arrived_frames))
                .collect();
            if self.settings.autonomous && mode != Mode::Paced {
                if let Some(found) = weights(mode, &seen) {
                    let whole: f64 = found.iter().sum();
                    for (link, weight) in peer.links.iter_mut().zip(found) {
                        link.told.weight = (weight / whole * 1e6) as u32;
                        peer.weighted.set(link.number, link.told.weight);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(
        sent: u64,
        arrived: u64,
        peers: u16,
        arrive: u32,
        path_total: u32,
        arrive_total: u32,
    ) -> Seen {
        Seen { sent, arrived, theirs: Counts { peers, arrive, path_total, arrive_total } }
    }

    #[test]
    fn ri2n_plus_is_the_inverse_of_the_counts() {
        let found =
            weights(Mode::Ri2nPlus, &[seen(1, 1, 2, 1, 1, 1), seen(1, 1, 1, 1, 1, 1)]).unwrap();
        assert_eq!(found, [0.5, 1.0]);
    }

    /// Figure 4 (d): B fills half of link 0, C sends evenly; the paper's formula moves C's weight
    /// to link 1.
    #[test]
    fn ri2n_plus_plus_leaves_the_crowded_link() {
        let links = [seen(60, 40, 2, 40, 100, 160), seen(60, 60, 1, 60, 60, 160)];
        let found = weights(Mode::Ri2nPlusPlus, &links).unwrap();
        let expected = [40.0 / (100.0 / 160.0) * (40.0 / 60.0), 60.0 / (60.0 / 160.0)];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        assert!(found[1] > 3.0 * found[0]);
    }

    #[test]
    fn a_live_link_keeps_a_floor_and_nothing_sent_changes_nothing() {
        let found = weights(
            Mode::Ri2nPlusPlus,
            &[seen(60, 0, 1, 0, 100, 160), seen(60, 60, 1, 60, 60, 160)],
        )
        .unwrap();
        assert!((found[0] / found[1] - FLOOR).abs() < 1e-9);
        assert_eq!(weights(Mode::Ri2nPlusPlus, &[seen(0, 0, 1, 0, 0, 0); 2]), None);
    }
}
