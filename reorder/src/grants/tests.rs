// SPDX-License-Identifier: Apache-2.0
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
    assert!(granter.demand(0, 'C', 0, f64::INFINITY));
    assert!(!granter.demand(0, 'C', 0, f64::INFINITY));
    assert!(granter.demand(0, 'D', 0, f64::INFINITY));
    granter.update(0);
    // B has no demand. Nothing is left over, so it may begin with its floor, 2 % / 3.
    assert!((total(&granter, 'B') - 0.02 / 3.0).abs() < 1e-6);
    assert!((total(&granter, 'C') - 0.995).abs() < 1e-4);
    assert!(granter.demand(MS, 'B', 0, f64::INFINITY));
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
        granter.arrived('B', 0, 25_000);
        granter.arrived('C', 0, 100_000);
        granter.demand(n * 10 * MS, 'B', 0, 0.2 * LINK);
        granter.demand(n * 10 * MS, 'C', 0, f64::INFINITY);
        granter.update(n * 10 * MS);
    }
    assert!((total(&granter, 'B') - (0.25 + 0.01)).abs() < 1e-4, "{}", total(&granter, 'B'));
    assert!((total(&granter, 'C') - (0.995 - 0.26)).abs() < 1e-4);
}

#[test]
fn silence_of_30_ms_makes_idle() {
    let mut granter = granter(&[('B', &[0]), ('C', &[0])]);
    granter.demand(0, 'B', 0, f64::INFINITY);
    for n in 0..=4 {
        granter.demand(n * 10 * MS, 'C', 0, f64::INFINITY);
        granter.update(n * 10 * MS);
        let expected = if n <= 3 { 0.995 / 2.0 } else { 0.01 };
        assert!((total(&granter, 'B') - expected).abs() < 1e-4, "{n}: {}", total(&granter, 'B'));
    }
    granter.arrived('B', 0, 1);
    granter.update(50 * MS);
    assert!((total(&granter, 'B') - 0.995 / 2.0).abs() < 1e-4);
}

#[test]
fn several_links_to_a_nic_share_the_rate_with_which_idle_peers_may_begin() {
    let mut granter = granter(&[('C', &[0]), ('D', &[0])]);
    granter.set_peer('B', (0..3).map(|remote| GrantLink { own_nic: 0, ..link(remote) }).collect());
    granter.demand(0, 'D', 0, f64::INFINITY);
    granter.update(0);
    let idle: f64 =
        (0..3).filter_map(|link| granter.grant('B', link)).chain(granter.grant('C', 0)).sum();
    assert!((idle / LINK - 0.02 * 4.0 / 5.0).abs() < 1e-6, "{}", idle / LINK);
}

#[test]
fn dead_links_and_lost_nics_get_nothing() {
    let mut granter = granter(&[('B', &[0, 1])]);
    granter.demand(0, 'B', 0, f64::INFINITY);
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
    granter.demand(1 << 60, 'B', 0, f64::INFINITY);
    granter.update(1 << 60);
    for n in 0..6 {
        granter.demand(n * 10 * MS, 'C', 0, f64::INFINITY);
        granter.update(n * 10 * MS);
    }
    assert!(total(&granter, 'B') < 0.02);
}

fn class(class: u8, links: u64, guarantee_bps: f64) -> GrantClass {
    GrantClass { class, links, guarantee_bps }
}

/// Grants of two NICs to B, which wants everything in these classes, beside C and D, which want
/// everything.
fn beside_two(classes: &[GrantClass]) -> Granter<char> {
    let mut granter = granter(&[('B', &[0, 1]), ('C', &[0, 1]), ('D', &[0, 1])]);
    granter.set_classes('B', classes);
    for class in classes {
        granter.demand(0, 'B', class.class, f64::INFINITY);
    }
    granter.demand(0, 'C', 0, f64::INFINITY);
    granter.demand(0, 'D', 0, f64::INFINITY);
    granter.update(0);
    granter
}

#[test]
fn every_class_has_its_share_over_its_links() {
    // B's frames of no job may use NIC 0 alone, and its job has NIC 1.
    let granter = beside_two(&[class(0, 0b01, 0.0), class(5, 0b10, 0.0)]);
    for link in 0..2 {
        let grant = granter.grant('B', link).unwrap() / LINK;
        assert!((grant - 0.995 / 2.0).abs() < 1e-4, "{grant}");
    }
    for peer in ['C', 'D'] {
        assert!((total(&granter, peer) - 0.995 / 2.0).abs() < 1e-4);
    }
}

#[test]
fn a_guarantee_comes_before_what_others_share() {
    let classes = [class(0, u64::MAX, 0.0), class(5, 0b10, 0.6 * LINK)];
    let granter = beside_two(&classes);
    // 0.6 of a NIC are B's; four classes share the rest, 1.99 - 0.6.
    let share = (1.99 - 0.6) / 4.0;
    assert!((total(&granter, 'C') - share).abs() < 1e-3, "{}", total(&granter, 'C'));
    assert!((total(&granter, 'B') - 0.6 - 2.0 * share).abs() < 1e-3);
    assert!(granter.grant('B', 1).unwrap() >= 0.6 * LINK);
}

#[test]
fn a_guarantee_that_is_not_used_is_others() {
    let mut granter = beside_two(&[class(0, u64::MAX, 0.0), class(5, u64::MAX, 1.5 * LINK)]);
    assert!((total(&granter, 'C') - 0.49 / 4.0).abs() < 1e-3, "{}", total(&granter, 'C'));
    for n in 1..8 {
        granter.arrived('B', 5, 25_000);
        granter.demand(n * 10 * MS, 'B', 5, 0.2 * LINK);
        for peer in ['B', 'C', 'D'] {
            granter.demand(n * 10 * MS, peer, 0, f64::INFINITY);
            granter.arrived(peer, 0, 70_000);
        }
        granter.update(n * 10 * MS);
    }
    // The class may grow to 1.25 times what it sends, and a little more.
    let share = (1.99 - 0.25) / 3.0;
    assert!((total(&granter, 'C') - share).abs() < 0.02, "{}", total(&granter, 'C'));
}

#[test]
fn a_class_that_can_use_no_more_than_its_links_is_not_held_up() {
    let mut granter = beside_two(&[class(0, 0b01, 0.0), class(5, 0b10, 0.0)]);
    for n in 1..40 {
        for link in 0..2 {
            let grant = granter.grant('B', link).unwrap();
            granter.arrived('B', if link == 0 { 0 } else { 5 }, (grant / 800.0) as usize);
        }
        for (peer, class) in [('B', 0), ('B', 5), ('C', 0), ('D', 0)] {
            granter.demand(n * 10 * MS, peer, class, f64::INFINITY);
        }
        for peer in ['C', 'D'] {
            let grant = total(&granter, peer) * LINK;
            granter.arrived(peer, 0, (grant / 800.0) as usize);
        }
        granter.update(n * 10 * MS);
        assert!((total(&granter, 'B') - 0.995).abs() < 1e-3, "{n}: {}", total(&granter, 'B'));
    }
}

#[derive(Clone, Debug)]
enum Op {
    Peer(u8, Vec<GrantLink>),
    Gone(u8),
    Classes(u8, Vec<GrantClass>),
    Demand(u8, u8, f64),
    Arrived(u8, u8, usize),
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
    let class = (0u64..16, prop_oneof![Just(0.0), Just(1e12), 1e3..1e9f64])
        .prop_map(|(links, guarantee_bps)| GrantClass { class: 0, links, guarantee_bps });
    prop_oneof![
        (0u8..5, prop::collection::vec(link, 0..4)).prop_map(|(peer, links)| Op::Peer(peer, links)),
        (0u8..5).prop_map(Op::Gone),
        (0u8..5, prop::collection::vec(class, 0..3)).prop_map(|(peer, classes)| {
            let more =
                classes.into_iter().zip(1..).map(|(about, class)| GrantClass { class, ..about });
            let none = GrantClass { class: 0, links: u64::MAX, guarantee_bps: 0.0 };
            Op::Classes(peer, std::iter::once(none).chain(more).collect())
        }),
        (0u8..5, 0u8..3, bps()).prop_map(|(peer, class, bps)| Op::Demand(peer, class, bps)),
        (0u8..5, 0u8..3, 0usize..200_000)
            .prop_map(|(peer, class, bytes)| Op::Arrived(peer, class, bytes)),
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
                Op::Classes(peer, classes) => granter.set_classes(peer, &classes),
                Op::Demand(peer, class, bps) => {
                    granter.demand(now, peer, class, bps);
                }
                Op::Arrived(peer, class, bytes) => granter.arrived(peer, class, bytes),
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
                            let is_idle = |class: &Class| class.is_idle(now, settings);
                            let peers = granter
                                .peers
                                .values()
                                .filter(|peer| peer.classes.iter().any(is_idle) == idle);
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
