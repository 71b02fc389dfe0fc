// SPDX-License-Identifier: Apache-2.0
//! The papers' weights, from the heartbeats' counts alone: RI2N, RI2N+ and RI2N++
//! (docs/algorithms.md).

use super::link::RemoteCounts;
use super::{Engine, Mode};
use crate::wire::control::WHOLE_WEIGHT_PPM;
use crate::Nanos;

/// A live link keeps at least this part of the largest weight: without any weight it would never be
/// tried again.
const FLOOR: f64 = 0.02;

/// What one link of a pair had in the last HBSPAN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    /// S_ijk: data frames that were sent.
    pub(super) sent: u64,
    /// Those of them that arrived, as the receiver says. It counts all frames of the session, so
    /// this and `sent` cover the same time.
    pub(super) arrived: u64,
    /// What else the receiver says.
    pub(super) remote: RemoteCounts,
}

/// Weights of a pair's links.
///
/// RI2N+: the inverse of the number of hosts whose traffic arrives by the receiver's NIC. RI2N++:
/// W_ijk = (R_ijk / Q_jk) A_ijk with A_ijk = R_ijk / S_ijk and Q_jk = R_jk / R_j. `None` if nothing
/// was sent: the weights stay as they are.
pub(super) fn weights(mode: Mode, links: &[Seen]) -> Option<Vec<f64>> {
    let mut found: Vec<f64> = match mode {
        Mode::Paced | Mode::RoundRobin => links.iter().map(|_| 1.0).collect(),
        Mode::Ri2nPlus => {
            links.iter().map(|link| 1.0 / f64::from(link.remote.peers.max(1))).collect()
        }
        Mode::Ri2nPlusPlus => {
            if links.iter().all(|link| link.sent == 0 || link.remote.arrive_kb == 0) {
                return None;
            }
            links.iter().map(plus_plus).collect()
        }
    };
    let largest = found.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    for weight in &mut found {
        *weight = weight.max(FLOOR * largest);
    }
    Some(found)
}

fn plus_plus(link: &Seen) -> f64 {
    let arrive = f64::from(link.remote.arrive_kb);
    let (path, total) =
        (f64::from(link.remote.path_total_kb), f64::from(link.remote.arrive_total_kb));
    if link.sent == 0 || path <= 0.0 || total <= 0.0 {
        return 0.0;
    }
    // Frames that were on the way when the HBSPAN began may make it more than 1.
    let rate = (link.arrived as f64 / link.sent as f64).min(1.0);
    arrive / (path / total) * rate
}

impl Engine {
    /// At the end of an HBSPAN, R_ijk and its sums begin anew. Without a controller, the helper
    /// computes its weights then.
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
            peer.rx.end_span();
            let seen = peer.tx.end_span(&peer.links);
            if self.addressing.has_controller() || mode == Mode::Paced {
                continue;
            }
            if let Some(found) = weights(mode, &seen) {
                let whole: f64 = found.iter().sum();
                for (link, weight) in peer.links.iter_mut().zip(found) {
                    link.configured.weight = (weight / whole * f64::from(WHOLE_WEIGHT_PPM)) as u32;
                    peer.tx.set_weight(link.number, link.configured.weight);
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
        arrive_kb: u32,
        path_total_kb: u32,
        arrive_total_kb: u32,
    ) -> Seen {
        Seen {
            sent,
            arrived,
            remote: RemoteCounts { peers, arrive_kb, path_total_kb, arrive_total_kb },
        }
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
