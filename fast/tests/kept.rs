// SPDX-License-Identifier: Apache-2.0
//! What a bridge has not said again yet stays in the plan, and nothing else does.

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::frames::{peer_mac, plan_with};
use ri2n_fast::plan::{Left, Plan};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_bridge_that_says_nothing_yet_leaves_all_as_it_was(earlier in plan_with(0.5)) {
        let mut plan = Plan::default();
        let has_peers = !earlier.peers.is_empty() || !earlier.striped.is_empty();
        prop_assert_eq!(plan.keep(&earlier), has_peers);
        prop_assert_eq!(&plan.peers, &earlier.peers);
        prop_assert_eq!(&plan.striped, &earlier.striped);
        let is_kept = |peer| earlier.peers.contains_key(peer) || earlier.striped.contains_key(peer);
        for (arrival, source) in &earlier.arrivals {
            let kept = plan.arrivals.get(arrival) == Some(source);
            prop_assert_eq!(kept, is_kept(&source.peer));
        }
        let has = |it| plan.exceptions.contains(it);
        prop_assert!(!has_peers || earlier.exceptions.iter().all(has));
    }

    #[test]
    fn what_the_bridge_says_holds(new in plan_with(0.5), earlier in plan_with(0.5)) {
        let mut plan = new.clone();
        plan.keep(&earlier);
        for (peer, it) in &new.peers {
            prop_assert_eq!(plan.peers.get(peer), Some(it));
            prop_assert!(!plan.striped.contains_key(peer) || new.striped.contains_key(peer));
        }
        for (peer, why) in &new.left {
            prop_assert_eq!(plan.left.get(peer), Some(why));
            prop_assert!(!plan.peers.contains_key(peer) || new.peers.contains_key(peer));
        }
        prop_assert!(new.arrivals.iter().all(|(it, of)| plan.arrivals.get(it) == Some(of)));
        prop_assert!(new.exceptions.iter().all(|it| plan.exceptions.contains(it)));
        let again = plan.clone();
        prop_assert!(!plan.keep(&earlier), "all is there");
        prop_assert_eq!(plan, again);
    }
}

#[test]
fn a_peer_that_is_the_bridges_now_is_not_kept() {
    let runner = &mut proptest::test_runner::TestRunner::deterministic();
    let mut earlier = plan_with(0.1).new_tree(runner).unwrap().current();
    while !earlier.peers.contains_key(&peer_mac(0)) {
        earlier = plan_with(0.1).new_tree(runner).unwrap().current();
    }
    let mut plan = Plan { own: earlier.own, ..Plan::default() };
    plan.left.insert(peer_mac(0), Left::Undecided);
    plan.keep(&earlier);
    assert!(!plan.peers.contains_key(&peer_mac(0)));
    assert!(plan.arrivals.values().all(|source| source.peer != peer_mac(0)));
    // A host with another MAC is another host.
    let mut other = Plan { own: Some([6, 6, 6, 6, 6, 6]), ..Plan::default() };
    assert!(!other.keep(&earlier));
    assert_eq!(other.peers.len(), 0);
}
