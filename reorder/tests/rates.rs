// SPDX-License-Identifier: Apache-2.0
//! The inner loop in a simulated network: figure 4 of the paper, demands that change, and a host
//! without a helper.

use crate::network::{Network, MS};

/// The name, the links that each client has, and their shares in links.
type Topology = (&'static str, &'static [&'static [u8]], &'static [f64]);

/// The paper's topologies; the server has both links.
const FIGURE_4: [Topology; 7] = [
    ("b", &[&[0, 1]], &[2.0]),
    ("c", &[&[0, 1], &[0, 1]], &[1.0, 1.0]),
    ("d", &[&[0], &[0, 1]], &[1.0, 1.0]),
    ("e", &[&[0, 1], &[0, 1], &[0, 1]], &[2.0 / 3.0; 3]),
    ("f", &[&[0], &[0, 1], &[0, 1]], &[2.0 / 3.0; 3]),
    ("g", &[&[0], &[0, 1], &[1]], &[2.0 / 3.0; 3]),
    ("h", &[&[0], &[0, 1], &[0]], &[0.5, 1.0, 0.5]),
];
const F: &[&[u8]] = FIGURE_4[4].1;

#[test]
fn all_begin_at_once_and_have_their_shares_within_50_ms() {
    for (name, clients, fair) in FIGURE_4 {
        let mut network = Network::new(2, clients);
        network.run(20 * MS);
        (0..clients.len()).for_each(|client| network.start(client));
        network.run(70 * MS);
        network.forget();
        network.run(90 * MS);
        for (client, &share) in fair.iter().enumerate() {
            let got = network.share(client);
            assert!(
                (got - share).abs() < 0.1 * share,
                "{name}: client {client} has {got} links of {share} after 50 ms"
            );
        }
        network.forget();
        network.run(500 * MS);
        for (client, &share) in fair.iter().enumerate() {
            let got = network.share(client);
            assert!(
                got > 0.985 * share && got < 1.005 * share,
                "{name}: client {client} has {got} links of {share}"
            );
        }
        assert_eq!(network.dropped(), 0, "{name}");
        assert!(
            network.longest_queue() < 30_000,
            "{name}: {} bytes waited in a switch",
            network.longest_queue()
        );
    }
}

#[test]
fn a_share_that_falls_free_is_used_and_given_back() {
    // A sender's heartbeats and the receiver's updates have no common beat, so several phases are
    // tried.
    for phase in 0..7 {
        let mut network = Network::new(2, F);
        (0..3).for_each(|client| network.start(client));
        network.run(300 * MS + phase * 1_700_000);
        let stopped = network.now();
        network.stop(0);
        network.run(stopped + 50 * MS);
        network.forget();
        network.run(stopped + 60 * MS);
        let rest = network.share(1) + network.share(2);
        assert!(
            rest > 0.95 * 2.0,
            "phase {phase}: C and D have {rest} links 50 ms after B stopped"
        );
        network.run(stopped + 300 * MS);
        let started = network.now();
        network.start(0);
        network.run(started + 50 * MS);
        network.forget();
        network.run(started + 70 * MS);
        for client in 0..3 {
            let got = network.share(client) * 1.5;
            assert!(
                (got - 1.0).abs() < 0.1,
                "phase {phase}: client {client} has {got} of its share 50 ms after B started"
            );
        }
        assert_eq!(network.dropped(), 0);
    }
}

#[test]
fn a_killed_sender_frees_its_share_too() {
    let mut network = Network::new(2, F);
    (0..3).for_each(|client| network.start(client));
    network.run(300 * MS);
    network.kill(0);
    network.run(350 * MS);
    network.forget();
    network.run(360 * MS);
    let rest = network.share(1) + network.share(2);
    assert!(rest > 0.95 * 2.0, "C and D have {rest} links 50 ms after B's last sign of life");
}

#[test]
fn a_client_that_wants_little_has_it_and_the_others_have_the_rest() {
    let mut network = Network::new(2, F);
    network.start_at(0, 20e6);
    network.start(1);
    network.start(2);
    network.run(200 * MS);
    network.forget();
    network.run(700 * MS);
    assert!((network.share(0) - 0.2).abs() < 0.01, "{}", network.share(0));
    let rest = network.share(1) + network.share(2);
    assert!(rest > 1.7, "{rest}"); // 1.8, less what the first may grow to
    assert_eq!(network.dropped(), 0);
}

#[test]
fn a_host_without_a_helper_keeps_its_part() {
    let mut network = Network::new(2, &F[1..]);
    network.start(0);
    network.start(1);
    network.run(300 * MS);
    network.start_foreign(0);
    network.run(1_500 * MS);
    network.forget();
    network.run(4_500 * MS);
    let foreign = network.foreign_share();
    let total = foreign + network.share(0) + network.share(1);
    println!(
        "foreign {foreign:.3}, {:.3}, {:.3}, total {total:.3}, dropped {}",
        network.share(0),
        network.share(1),
        network.dropped()
    );
    assert!(foreign > 0.8 * 2.0 / 3.0, "the host without a helper has {foreign} links");
    assert!(total > 0.93 * 2.0, "{total} links are used");
    assert!((0..2).all(|client| network.share(client) > 0.88 * 2.0 / 3.0));
    network.stop_foreign();
    network.run(4_650 * MS);
    network.forget();
    network.run(4_700 * MS);
    let rest = network.share(0) + network.share(1);
    assert!(rest > 0.93 * 2.0, "{rest} links are used 150 ms after it ended");
}

#[test]
fn a_sender_held_up_elsewhere_does_not_keep_its_share_from_others() {
    let mut network = Network::new(2, F);
    (0..3).for_each(|client| network.start(client));
    network.hold_up(1, 20e6);
    network.run(400 * MS);
    network.forget();
    network.run(900 * MS);
    let total: f64 = (0..3).map(|client| network.share(client)).sum();
    assert!(total > 0.93 * 2.0, "{total} links are used");
    network.hold_up(1, f64::INFINITY);
    network.run(1_300 * MS);
    network.forget();
    network.run(1_500 * MS);
    assert!(network.share(1) > 0.95 * 2.0 / 3.0, "{}", network.share(1));
}
