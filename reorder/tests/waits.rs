// SPDX-License-Identifier: Apache-2.0
//! How long a missing frame is waited for: by the difference of the links' ways, and by the round
//! trip of a request.

use crate::host::*;
use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::Echo;

/// Gives the engine heartbeats that took `ways_ms` over each link to here, and `trip_ms` there and
/// back. The peer's clock is ten seconds ahead: only differences count, and what was measured by
/// another clock is forgotten.
fn beats(host: &mut Host, ways_ms: [u32; LINKS as usize], trip_ms: u32, next: u32) {
    let now_us = (host.now / 1000) as u32;
    host.beat_as(peer(1), REMOTE_SESSION, |beat| {
        beat.time_us = now_us + 10_000_000 - 1000 * ways_ms[usize::from(beat.link.unwrap())];
        beat.echo = Some(Echo { time_us: now_us - 1000 * trip_ms - 500, age_us: 500 });
        beat.next = Seq(next);
    });
}

/// Milliseconds until there is a new request to repeat; 99 at most.
fn until_asked(host: &mut Host) -> u64 {
    let before = host.seen.requests;
    let waited = (1..100).find(|_| {
        host.run(MS);
        host.seen.requests > before
    });
    waited.unwrap()
}

#[test]
fn a_link_that_is_longer_is_waited_for_longer() {
    for (ways_ms, wait_ms) in [([3, 3], 12), ([3, 11], 28), ([11, 3], 28), ([3, 90], 50)] {
        let mut host = with_peer(settings());
        beats(&mut host, ways_ms, 1, 0);
        // Frame 0 is missing. It may be on link 1, on which nothing is heard.
        host.data(peer(1), 1, 0, 100);
        assert_eq!(until_asked(&mut host), wait_ms, "{ways_ms:?}");
    }
}

#[test]
fn a_request_is_made_again_after_two_round_trips() {
    for (trip_ms, wait_ms) in [(1, 8), (10, 20), (20, 40), (40, 50)] {
        let mut host = with_peer(settings());
        // Both links say that frame 0 was sent, so it is asked for at once.
        beats(&mut host, [1, 1], trip_ms, 1);
        host.run(MS / 2);
        assert_eq!(host.seen.requests, usize::from(LINKS), "{trip_ms} ms");
        assert_eq!(until_asked(&mut host), wait_ms, "{trip_ms} ms");
    }
}

#[test]
fn one_slow_answer_moves_the_round_trip_by_an_eighth() {
    let mut host = with_peer(settings());
    for (trip_ms, smoothed_us) in [(8, 8_000), (16, 9_000), (9, 9_000)] {
        beats(&mut host, [1, 1], trip_ms, 0);
        assert_eq!(host.described(peer(1)).unwrap()["links"][0]["rtt_us"], smoothed_us);
    }
}

#[test]
fn a_clock_that_goes_back_keeps_nothing_waiting_even_without_frames() {
    let mut host = with_peer(settings());
    host.run(S);
    beats(&mut host, [1, 1], 1, 0);
    host.data(peer(1), 1, 0, 100);
    host.run(MS);
    host.now -= 900 * MS;
    assert!(until_asked(&mut host) <= 12);
}
