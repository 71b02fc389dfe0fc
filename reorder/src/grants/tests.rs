use super::*;
use proptest::prelude::*;

const MS: Nanos = 1_000_000;
const LINK: f64 = 100e6;

fn link(link: u8) -> GrantLink {
    GrantLink { link, own_nic: link, remote_nic: link, limit_bps: f64::INFINITY }
}

/// A server with two NICs and peers B, C, ... with these links.
fn granter(peers: &[(char, &[u8])]) -> Granter<char> {
    let mut granter = Granter::new(Settings::default());
    (0..2).for_each(|nic| granter.set_nic(nic, LINK));
    peers.iter().for_each(|(peer, links)| {
        granter.set_peer(*peer, links.iter().map(|&n| link(n)).collect())
    });
    granter
}

fn total(granter: &Granter<char>, peer: char) -> f64 {
    (0..2).filter_map(|link| granter.grant(peer, link)).sum::<f64>() / LINK
}

#[test]
fn one_that_is_alone_may_begin_at_full_speed() {
    let mut granter = granter(&[('B', &[0, 1])]);
    assert_eq!(granter.grant('B', 0), Some(0.0));
    assert!(granter.update(0));
    assert!((total(&granter, 'B') - 1.99).abs() < 1e-6);
    assert!(!granter.update(10 * MS));
    assert_eq!((granter.grant('B', 2), granter.grant('C', 0)), (None, None));
}

#[test]
fn who_begins_has_its_share_at_the_next_update() {
    let mut granter = granter(&[('B', &[0]), ('C', &[0, 1]), ('D', &[0, 1])]);
    assert!(granter.demand(0, 'C', f64::INFINITY));
    assert!(!granter.demand(0, 'C', f64::INFINITY));
    assert!(granter.demand(0, 'D', f64::INFINITY));
    granter.update(0);
    // B has no demand. Nothing is left over, so it may begin with its floor, 2 % / 3.
    assert!((total(&granter, 'B') - 0.02 / 3.0).abs() < 1e-6);
    assert!((total(&granter, 'C') - 0.995).abs() < 1e-4);
    assert!(granter.demand(MS, 'B', f64::INFINITY));
    assert!(granter.update(MS));
    for peer in ['B', 'C', 'D'] {
        assert!((total(&granter, peer) - 0.995 * 2.0 / 3.0).abs() < 1e-4);
    }
    granter.remove_peer('D');
    granter.update(2 * MS);
    assert!((total(&granter, 'B') - 0.995).abs() < 1e-4);
}

#[test]
fn a_finite_demand_has_room_to_grow_and_leaves_the_rest() {
    let mut granter = granter(&[('B', &[0]), ('C', &[0])]);
    for n in 0..5 {
        granter.arrived('B', 25_000);
        granter.arrived('C', 100_000);
        granter.demand(n * 10 * MS, 'B', 0.2 * LINK);
        granter.demand(n * 10 * MS, 'C', f64::INFINITY);
        granter.update(n * 10 * MS);
    }
    assert!((total(&granter, 'B') - (0.25 + 0.01)).abs() < 1e-4, "{}", total(&granter, 'B'));
    assert!((total(&granter, 'C') - (0.995 - 0.26)).abs() < 1e-4);
}

#[test]
fn silence_of_30_ms_makes_idle() {
    let mut granter = granter(&[('B', &[0]), ('C', &[0])]);
    granter.demand(0, 'B', f64::INFINITY);
    for n in 0..=4 {
        granter.demand(n * 10 * MS, 'C', f64::INFINITY);
        granter.update(n * 10 * MS);
        let expected = if n <= 3 { 0.995 / 2.0 } else { 0.01 };
        assert!((total(&granter, 'B') - expected).abs() < 1e-4, "{n}: {}", total(&granter, 'B'));
    }
    granter.arrived('B', 1);
    granter.update(50 * MS);
    assert!((total(&granter, 'B') - 0.995 / 2.0).abs() < 1e-4);
}

#[test]
fn several_links_to_a_nic_share_the_rate_with_which_idle_peers_may_begin() {
    let mut granter = granter(&[('C', &[0]), ('D', &[0])]);
    granter.set_peer('B', (0..3).map(|remote| GrantLink { own_nic: 0, ..link(remote) }).collect());
    granter.demand(0, 'D', f64::INFINITY);
    granter.update(0);
    let idle: f64 =
        (0..3).filter_map(|link| granter.grant('B', link)).chain(granter.grant('C', 0)).sum();
    assert!((idle / LINK - 0.02 * 4.0 / 5.0).abs() < 1e-6, "{}", idle / LINK);
}

#[test]
fn dead_links_and_lost_nics_get_nothing() {
    let mut granter = granter(&[('B', &[0, 1])]);
    granter.demand(0, 'B', f64::INFINITY);
    granter.set_limit('B', 0, 0.0);
    granter.update(0);
    assert_eq!(granter.grant('B', 0), Some(0.0));
    assert!(granter.grant('B', 1) > Some(0.99 * LINK));
    granter.set_limit('B', 0, 0.3 * LINK);
    granter.set_nic(1, 0.0);
    granter.update(1);
    assert_eq!(granter.grant('B', 1), Some(0.0));
    assert!((total(&granter, 'B') - 0.3).abs() < 1e-6);
    granter.set_peer(
        'B',
        vec![GrantLink { limit_bps: 0.1 * LINK, ..link(0) }, GrantLink { own_nic: 9, ..link(4) }],
    );
    assert_eq!(granter.grant('B', 0), Some(0.1 * LINK));
    granter.update(2);
    assert_eq!((granter.grant('B', 4), granter.grant('B', 1)), (Some(0.0), None));
}

#[test]
fn a_clock_that_goes_back_makes_nobody_active_for_ever() {
    let mut granter = granter(&[('B', &[0]), ('C', &[0])]);
    granter.demand(1 << 60, 'B', f64::INFINITY);
    granter.update(1 << 60);
    for n in 0..6 {
        granter.demand(n * 10 * MS, 'C', f64::INFINITY);
        granter.update(n * 10 * MS);
    }
    assert!(total(&granter, 'B') < 0.02);
}

#[derive(Clone, Debug)]
enum Op {
    Peer(u8, Vec<GrantLink>),
    Gone(u8),
    Demand(u8, f64),
    Arrived(u8, usize),
    Nic(u8, f64),
    Total(u8, u64),
    Update(Nanos),
}

fn ops() -> impl Strategy<Value = Op> {
    let bps = || prop_oneof![Just(0.0), Just(LINK), Just(f64::INFINITY), 1e3..1e9f64];
    let link =
        (0u8..4, 0u8..3, 0u8..3, bps()).prop_map(|(link, own_nic, remote_nic, limit_bps)| {
            GrantLink { link, own_nic, remote_nic, limit_bps }
        });
    prop_oneof![
        (0u8..5, prop::collection::vec(link, 0..4)).prop_map(|(peer, links)| Op::Peer(peer, links)),
        (0u8..5).prop_map(Op::Gone),
        (0u8..5, bps()).prop_map(|(peer, bps)| Op::Demand(peer, bps)),
        (0u8..5, 0usize..200_000).prop_map(|(peer, bytes)| Op::Arrived(peer, bytes)),
        (0u8..3, 0.0..1e9f64).prop_map(|(nic, bps)| Op::Nic(nic, bps)),
        (0u8..3, 0u64..1_000_000).prop_map(|(nic, bytes)| Op::Total(nic, bytes)),
        (0u64..40).prop_map(|ms| Op::Update(ms * MS)),
    ]
}

proptest! {
    #[test]
    fn what_is_granted_fits(ops in prop::collection::vec(ops(), 1..80)) {
        let mut granter: Granter<u8> = Granter::new(Settings::default());
        let mut now = 0;
        let mut totals = [0u64; 3];
        for op in ops {
            match op {
                Op::Peer(peer, links) => granter.set_peer(peer, links),
                Op::Gone(peer) => granter.remove_peer(peer),
                Op::Demand(peer, bps) => {
                    granter.demand(now, peer, bps);
                }
                Op::Arrived(peer, bytes) => granter.arrived(peer, bytes),
                Op::Nic(nic, bps) => granter.set_nic(nic, bps),
                Op::Total(nic, bytes) => {
                    totals[usize::from(nic)] += bytes;
                    granter.nic_total(now, nic, totals[usize::from(nic)]);
                }
                Op::Update(wait) => {
                    now += wait;
                    granter.update(now);
                    let settings = &granter.settings;
                    for (&nic, state) in &granter.nics {
                        let of = |idle: bool| -> f64 {
                            let peers = granter.peers.values().filter(|peer| {
                                peer.active_at.is_none_or(|at| now - at > settings.idle_ns) == idle
                            });
                            peers
                                .flat_map(|peer| peer.links.iter().zip(&peer.grants))
                                .filter(|(link, _)| link.own_nic == nic)
                                .map(|(_, grant)| grant)
                                .sum()
                        };
                        let (capacity, idle) = (state.capacity_bps, of(true));
                        prop_assert!(of(false) <= capacity * settings.headroom * 1.000_001);
                        prop_assert!(
                            of(false) + idle
                                <= capacity * (settings.headroom + settings.floor) * 1.000_001
                        );
                    }
                    for peer in granter.peers.values() {
                        prop_assert_eq!(peer.links.len(), peer.grants.len());
                        prop_assert!(peer
                            .links
                            .iter()
                            .zip(&peer.grants)
                            .all(|(link, &grant)| grant >= 0.0
                                && grant <= link.limit_bps * 1.000_001));
                    }
                }
            }
        }
    }
}
