// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

const LINK: f64 = 100e6;

/// A sender with one NIC per link, to these NICs of the receiver.
fn sender(demand_bps: f64, nics: &[usize]) -> Sender {
    let links = nics
        .iter()
        .enumerate()
        .map(|(own, &nic)| SenderLink { nic, own, limit_bps: f64::INFINITY })
        .collect();
    Sender { demand_bps, own_bps: vec![LINK; nics.len()], links }
}

fn totals(rates: &[Vec<f64>]) -> Vec<f64> {
    rates.iter().map(|links| links.iter().sum()).collect()
}

fn assert_near(rates: &[Vec<f64>], expected: &[&[f64]]) {
    let close = rates.iter().zip(expected).all(|(links, expected)| {
        links.len() == expected.len()
            && links
                .iter()
                .zip(*expected)
                .all(|(rate, share)| (rate - share * LINK).abs() < 1e-3 * LINK)
    });
    assert!(close && rates.len() == expected.len(), "{rates:?} is not {expected:?}");
}

#[test]
fn figure_4_of_the_paper() {
    let (low, high, both): (&[usize], &[usize], &[usize]) = (&[0], &[1], &[0, 1]);
    let rates = |clients: &[&[usize]]| {
        max_min(
            &[LINK; 2],
            &clients.iter().map(|nics| sender(f64::INFINITY, nics)).collect::<Vec<_>>(),
        )
    };
    let third = 1.0 / 3.0;
    assert_near(&rates(&[both]), &[&[1.0, 1.0]]);
    assert_near(&rates(&[both, both]), &[&[0.5, 0.5], &[0.5, 0.5]]);
    assert_near(&rates(&[low, both]), &[&[1.0], &[0.0, 1.0]]);
    assert_near(&rates(&[both, both, both]), &[&[third, third] as &[f64]; 3]);
    assert_near(
        &rates(&[low, both, both]),
        &[&[2.0 * third], &[third / 2.0, 0.5], &[third / 2.0, 0.5]],
    );
    assert_near(&rates(&[low, both, high]), &[&[2.0 * third], &[third, third], &[2.0 * third]]);
    assert_near(&rates(&[low, both, low]), &[&[0.5], &[0.0, 1.0], &[0.5]]);
}

#[test]
fn what_one_does_not_want_is_shared_by_the_others() {
    let rates = max_min(
        &[LINK; 2],
        &[sender(0.2 * LINK, &[0]), sender(f64::INFINITY, &[0, 1]), sender(0.0, &[0, 1])],
    );
    assert_near(&rates, &[&[0.2], &[0.8, 1.0], &[0.0, 0.0]]);
    let rates = max_min(&[LINK; 2], &[sender(0.6 * LINK, &[0, 1])]);
    assert_near(&rates, &[&[0.3, 0.3]]);
}

#[test]
fn links_of_one_own_nic_share_it() {
    let links = (0..2).map(|nic| SenderLink { nic, own: 0, limit_bps: f64::INFINITY }).collect();
    let one_nic = Sender { demand_bps: f64::INFINITY, own_bps: vec![LINK], links };
    assert_near(&max_min(&[LINK; 2], std::slice::from_ref(&one_nic)), &[&[0.5, 0.5]]);
    let rates = max_min(&[LINK; 2], &[one_nic, sender(f64::INFINITY, &[0])]);
    assert_near(&rates, &[&[0.0, 1.0], &[1.0]]);
}

#[test]
fn limits_of_links_hold() {
    let mut limited = sender(f64::INFINITY, &[0, 1]);
    limited.links[0].limit_bps = 0.1 * LINK;
    assert_near(&max_min(&[LINK; 2], std::slice::from_ref(&limited)), &[&[0.1, 1.0]]);
    limited.demand_bps = LINK * 0.55;
    assert_near(&max_min(&[LINK; 2], &[limited]), &[&[0.05, 0.5]]);
}

#[test]
fn nonsense_counts_as_nothing() {
    let mut odd = sender(f64::NAN, &[0, 7]);
    assert_near(&max_min(&[LINK], std::slice::from_ref(&odd)), &[&[0.0, 0.0]]);
    odd.demand_bps = f64::INFINITY;
    odd.own_bps = vec![];
    odd.links[0].limit_bps = f64::INFINITY;
    assert_near(&max_min(&[LINK], std::slice::from_ref(&odd)), &[&[1.0, 0.0]]);
    assert_near(&max_min(&[f64::NAN, -1.0], std::slice::from_ref(&odd)), &[&[0.0, 0.0]]);
    assert_near(&max_min(&[], &[odd]), &[&[0.0, 0.0]]);
    assert!(max_min(&[LINK], &[]).is_empty());
}

/// The obvious way: raise the level in small steps by bisection; a sender that cannot have more
/// while all others stay is done. Hoffman's condition says whether rates are possible: for every
/// set of NICs, what cannot go to the others must fit.
fn slow(nics: &[f64], senders: &[Sender]) -> Vec<f64> {
    let possible = |rates: &[f64]| {
        (0u32..1 << nics.len()).all(|set| {
            let capacity: f64 =
                (0..nics.len()).filter(|nic| set >> nic & 1 == 1).map(|nic| nics[nic]).sum();
            let excess: f64 = senders
                .iter()
                .zip(rates)
                .map(|(sender, rate)| {
                    let elsewhere = |own: usize| -> f64 {
                        let links = sender
                            .links
                            .iter()
                            .filter(|link| link.own == own && set >> link.nic & 1 == 0);
                        links.map(|link| link.limit_bps).sum::<f64>().min(sender.own_bps[own])
                    };
                    // A sender that cannot send at all is in no set. The empty set of NICs bounds
                    // each sender alone.
                    (rate - (0..sender.own_bps.len()).map(elsewhere).sum::<f64>()).max(0.0)
                })
                .sum();
            excess <= capacity + 1e-7
        })
    };
    let mut rates = vec![0.0; senders.len()];
    let mut open = vec![true; senders.len()];
    while open.contains(&true) {
        let at = |level: f64| -> Vec<f64> {
            (0..senders.len())
                .map(|n| if open[n] { senders[n].demand_bps.min(level) } else { rates[n] })
                .collect()
        };
        let (mut low, mut high) = (0.0, nics.iter().sum::<f64>() + 1.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            (low, high) = if possible(&at(middle)) { (middle, high) } else { (low, middle) };
        }
        let level = at(low);
        let mut closed = Vec::new();
        for n in (0..senders.len()).filter(|&n| open[n]) {
            let mut more = level.clone();
            more[n] += 1e-4;
            if level[n] >= senders[n].demand_bps - 1e-5 || !possible(&more) {
                closed.push(n);
            }
        }
        for n in closed {
            open[n] = false;
            rates[n] = level[n];
        }
    }
    rates
}

fn problems() -> impl Strategy<Value = (Vec<f64>, Vec<Sender>)> {
    let bps = || prop_oneof![Just(1.0), Just(10.0), Just(0.0), 0.1..20.0f64];
    (prop::collection::vec(bps(), 1..5)).prop_flat_map(move |nics| {
        let count = nics.len();
        let link = (0..count, 0usize..3, bps()).prop_map(|(nic, own, limit_bps)| SenderLink {
            nic,
            own,
            limit_bps,
        });
        let demand = prop_oneof![Just(1e3), Just(0.0), 0.1..20.0f64];
        let one = (demand, prop::collection::vec(bps(), 3), prop::collection::vec(link, 0..6))
            .prop_map(|(demand_bps, own_bps, links)| Sender { demand_bps, own_bps, links });
        (Just(nics), prop::collection::vec(one, 1..7))
    })
}

/// Most clusters are like this: each sender has a NIC of its own for each link to some of the
/// receiver's NICs, and there are no other limits.
fn plain_problems() -> impl Strategy<Value = (Vec<f64>, Vec<Sender>)> {
    let bps = prop_oneof![Just(1.0), Just(10.0), 0.1..20.0f64];
    let demand = prop_oneof![Just(1e3), 0.1..20.0f64];
    (prop::collection::vec(bps, 1..5), prop::collection::vec((demand, 1usize..16), 1..7)).prop_map(
        |(nics, senders)| {
            let sender = |(demand_bps, set): (f64, usize)| {
                let links = (0..nics.len()).filter(|nic| set >> nic & 1 == 1);
                let links = links
                    .map(|nic| SenderLink { nic, own: nic, limit_bps: f64::INFINITY })
                    .collect();
                Sender { demand_bps, own_bps: vec![f64::INFINITY; nics.len()], links }
            };
            let senders = senders.into_iter().map(sender).collect();
            (nics, senders)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn equals_the_slow_way_and_fits((nics, senders) in problems()) {
        let rates = max_min(&nics, &senders);
        let expected = slow(&nics, &senders);
        for (got, expected) in totals(&rates).iter().zip(&expected) {
            prop_assert!((got - expected).abs() < 1e-3, "{:?} is not {expected:?}", totals(&rates));
        }
        let mut load = vec![0.0; nics.len()];
        for (sender, links) in senders.iter().zip(&rates) {
            let mut own = vec![0.0; sender.own_bps.len()];
            for (link, &rate) in sender.links.iter().zip(links) {
                prop_assert!(rate >= 0.0 && rate <= link.limit_bps + 1e-6);
                load[link.nic] += rate;
                own[link.own] += rate;
            }
            prop_assert!(own.iter().zip(&sender.own_bps).all(|(load, bps)| *load <= bps + 1e-6));
            prop_assert!(links.iter().sum::<f64>() <= sender.demand_bps + 1e-6);
        }
        prop_assert!(
            load.iter().zip(&nics).all(|(load, bps)| *load <= bps + 1e-6),
            "{load:?} {nics:?}"
        );
    }

    /// Equal senders get equal links, and small changes of a demand change little. (Where many
    /// limits bind at once, prices may not get there in their rounds; totals are exact even then.)
    #[test]
    fn is_even_and_smooth((nics, senders) in plain_problems(), nudge in 0.0..1e-4f64) {
        let mut twice = senders.clone();
        twice.extend(senders.iter().cloned());
        let rates = max_min(&nics, &twice);
        let (one, other) = rates.split_at(senders.len());
        for (one, other) in one.iter().flatten().zip(other.iter().flatten()) {
            prop_assert!((one - other).abs() < 0.02, "{one} is not {other}");
        }
        let mut nudged = senders.clone();
        nudged[0].demand_bps += nudge;
        let change = totals(&max_min(&nics, &nudged))
            .iter()
            .zip(totals(&max_min(&nics, &senders)))
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        prop_assert!(change < 1e-3, "{change}");
    }
}
