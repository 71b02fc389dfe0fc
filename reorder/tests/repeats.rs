// SPDX-License-Identifier: Apache-2.0
//! Frames that are sent again: over which link, for whom, and until when. Also how a peer hears
//! that more is to come.

use crate::host::*;
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::Mode;
use ri2n_reorder::wire::{self, Data, Message};

/// What was sent from the `from`-th data frame on: sequence, link, and flags.
fn sent(host: &Host, from: usize) -> Vec<(u32, u8, u8)> {
    let parts = |frame: &Vec<u8>| match wire::parse(frame).unwrap() {
        Message::Data(Data { seq, link, flags, .. }) => (seq.0, link, flags),
        other => panic!("{other:?}"),
    };
    host.seen.data[from..].iter().map(parts).collect()
}

/// A host that sent `frames` frames to a peer whose first link is much faster: all went over that
/// one.
fn sent_by_the_fast_link(frames: u16) -> Host {
    let mut host = with_peer(settings());
    host.tell_rates(11, peer(1), true, [1_000_000, 10_000]);
    for _ in 0..frames {
        host.send(peer(1), 1);
        host.run(MS);
    }
    assert!(sent(&host, 0).iter().all(|frame| frame.1 == 0), "{:?}", sent(&host, 0));
    host
}

#[test]
fn what_a_link_lost_is_repeated_over_another_one() {
    const FRAMES: u16 = 20;
    let mut host = sent_by_the_fast_link(FRAMES);
    // A frame that is repeated again and again never takes the link that had it last, however much
    // faster that is.
    for link in [1, 0, 1] {
        let before = host.seen.data.len();
        host.ask_again(peer(1), FRAMES);
        host.run(25 * MS);
        let again: Vec<_> =
            (0..u32::from(FRAMES)).map(|seq| (seq, link, wire::data::REPEATED)).collect();
        assert_eq!(sent(&host, before), again);
        // The frame is still young enough to be kept, and nobody has acknowledged it.
        host.beat(peer(1), REMOTE_SESSION);
    }
}

#[test]
fn what_the_only_link_lost_is_repeated_over_it() {
    let mut host = with_peer(settings());
    host.engine.nic_counters(host.now, 2, 0, false);
    host.send(peer(1), 3);
    host.run(MS);
    host.ask_again(peer(1), 3);
    host.run(MS);
    let links: Vec<u8> = sent(&host, 0).iter().map(|frame| frame.1).collect();
    assert_eq!(links, [0; 6]);
}

#[test]
fn only_the_session_that_is_sent_to_may_ask_for_frames_again() {
    let mut host = sent_by_the_fast_link(4);
    host.ask_as(REMOTE_SESSION + 1, peer(1), 4);
    host.run(5 * MS);
    assert_eq!(
        (host.counter("repeated_out"), host.counter("unknown_session")),
        (0, 1),
        "a request of another session"
    );
    host.ask_again(peer(1), 4);
    host.run(5 * MS);
    assert_eq!((host.counter("repeated_out"), host.counter("unknown_session")), (4, 1));
}

#[test]
fn a_frame_that_comes_back_ends_what_was_asked_for_before() {
    let mut host = sent_by_the_fast_link(4);
    let first = host.seen.data[0].clone();
    host.ask_again(peer(1), 4);
    host.bounce(peer(1), first);
    assert_eq!(host.seen.slots.len(), 1, "the frame itself goes by the slot table");
    // Its helper is there again before any turn. What it wants now, it has to ask for now.
    host.beat(peer(1), REMOTE_SESSION);
    host.run(5 * MS);
    assert_eq!(host.counter("repeated_out"), 0);
    host.ask_again(peer(1), 4);
    host.run(5 * MS);
    let again: Vec<u32> = sent(&host, 4).iter().map(|frame| frame.0).collect();
    assert_eq!(again, [1, 2, 3], "a frame that went another way is never repeated");
}

#[test]
fn repeats_of_one_mode_are_not_sent_in_another() {
    let mut host = sent_by_the_fast_link(4);
    host.ask_again(peer(1), 4);
    host.this_host(2, Mode::RoundRobin);
    host.run(5 * MS);
    assert_eq!(host.counter("repeated_out"), 0);
}

#[test]
fn a_frame_that_waited_for_credit_says_that_there_is_more_even_if_it_is_the_last() {
    const FRAMES: usize = 8;
    let mut host = with_peer(settings());
    host.tell_rates(11, peer(1), true, [10_000, 10_000]);
    host.send(peer(1), FRAMES);
    host.run(8 * MS);
    let flags: Vec<u8> = sent(&host, 0).iter().map(|frame| frame.2).collect();
    assert_eq!(flags, [wire::data::MORE; FRAMES], "all frames waited, even the last one");
    // Nothing waited for ten milliseconds, so there is no more.
    host.run(10 * MS);
    host.send(peer(1), 1);
    host.run(MS);
    assert_eq!(sent(&host, FRAMES)[0].2, 0);
}
