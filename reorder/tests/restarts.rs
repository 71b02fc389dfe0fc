// SPDX-License-Identifier: Apache-2.0
//! A peer's helper ends, and another one begins. In between, frames go by the slot table, at once
//! and in order.

use crate::host::*;

const NEW_SESSION: u32 = REMOTE_SESSION + 1;

/// A host that was told that its peer's helper has ended, and a moment later that it runs again. It
/// has sent one frame since then, and none of its frames came back meanwhile.
fn told_of_an_end() -> Host {
    let mut host = with_peer(settings());
    host.tell_of(11, peer(1), false);
    host.send(peer(1), 1);
    assert_eq!((host.seen.slots.len(), host.seen.data.len()), (1, 0));
    host.run(90 * MS); // its links were whole not long ago
    host.tell_of(12, peer(1), true);
    host
}

#[test]
fn nothing_waits_for_a_helper_that_has_not_said_a_word() {
    let mut host = told_of_an_end();
    let mut sent = 1;
    for _ in 0..30 {
        host.send(peer(1), 1);
        sent += 1;
        host.run(MS);
        assert_eq!((host.seen.slots.len(), host.seen.data.len()), (sent, 0));
        // The new helper knows nobody yet, and its predecessor does not answer.
        host.beat_as(peer(1), NEW_SESSION, |beat| beat.peer_session = 0);
    }
    host.beat(peer(1), NEW_SESSION);
    host.send(peer(1), 1);
    host.run(MS);
    assert_eq!((host.seen.slots.len(), host.seen.data.len()), (sent, 1));
}

#[test]
fn a_helper_that_was_there_all_along_is_asked_and_striped_to_at_once() {
    let mut host = told_of_an_end();
    let before = host.seen.heartbeats;
    host.run(MS);
    assert_eq!(host.seen.heartbeats, before + usize::from(LINKS));
    host.beat(peer(1), REMOTE_SESSION); // its answer
    host.send(peer(1), 1);
    host.run(MS);
    assert_eq!((host.seen.slots.len(), host.seen.data.len()), (1, 1));
}
