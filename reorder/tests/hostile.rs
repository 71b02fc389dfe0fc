// SPDX-License-Identifier: Apache-2.0
//! One engine among strangers: controllers that are confused, frames that lie, and peers that die.
//! Memory stays bounded, and few frames are sent.

use crate::host::*;
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::{Engine, Settings};
use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::{self, repeat, Body, DataHead, Heartbeat, Mac, Message};

#[test]
fn control_of_ever_new_hosts_is_remembered_for_a_bounded_number() {
    let mut host = with_peer(settings());
    for number in 2..3 * MAX_PEERS {
        host.control(20 + number, peer(number), Body::Gone);
    }
    let known = host.engine.status()["generations"].as_u64().unwrap();
    assert!(known <= u64::from(MAX_PEERS), "{known} are kept");
    // The generation of the peer that exists is remembered: no replay of older control takes its
    // links.
    host.control(9, peer(1), Body::Peer { stripe: false, beside: false, links: Vec::new() });
    host.control(9, peer(1), Body::Gone);
    assert_eq!(host.counter("stale_control"), 2);
    assert_eq!(host.described(peer(1)).unwrap()["striped"], true);
    // Of peers that are gone, the latest are remembered.
    let last = 3 * MAX_PEERS - 1;
    host.tell_of(19 + last, peer(last), true);
    assert_eq!(host.counter("stale_control"), 3);
    assert!(host.described(peer(last)).is_none());
}

#[test]
fn a_controller_that_is_refused_hears_within_a_quarter_second_from_where_to_go_on() {
    let mut host = Host::new(settings());
    host.run(10 * S);
    assert!(host.seen.reports.len() >= 9, "without peers, too");
    assert!(host
        .seen
        .reports
        .iter()
        .all(|report| report.generation == 1 && report.entries.is_empty()));
    host.tell_of(1_000_000, peer(1), true);
    host.run(2 * S);
    assert_eq!(host.seen.reports.last().unwrap().generation, 1_000_000, "the newest of all");
    // A controller begins anew, with its clock a day back, and says everything that it knows ten
    // times a second.
    host.seen.reports.clear();
    for _ in 0..10 {
        host.tell_rates(913_600, peer(1), false, [500; LINKS as usize]);
        host.run(25 * MS);
    }
    assert_eq!(host.counter("stale_control"), 10);
    let soon = &host.seen.reports;
    assert!((1..=3).contains(&soon.len()), "{} in 250 ms", soon.len());
    assert_eq!(soon[0].generation, 1_000_000);
    assert_eq!(host.described(peer(1)).unwrap()["links"][0]["rate_bps"], 1_000_000_000);
    host.tell_rates(1_000_000, peer(1), false, [500; LINKS as usize]);
    assert_eq!(host.described(peer(1)).unwrap()["links"][0]["rate_bps"], 500_000);
}

#[test]
fn a_peer_too_many_costs_a_counter_until_another_one_goes() {
    let mut host = Host::new(settings());
    for number in 0..MAX_PEERS + 100 {
        host.control(
            10,
            peer(number),
            Body::Peer { stripe: true, beside: false, links: Vec::new() },
        );
    }
    assert_eq!(host.counter("too_many_peers"), 100);
    let refused = MAX_PEERS + 1;
    host.control(10, peer(0), Body::Gone);
    // That control was refused and not obeyed, so its generation does not make this one stale.
    host.control(9, peer(refused), Body::Peer { stripe: true, beside: false, links: Vec::new() });
    assert!(host.described(peer(refused)).is_some());
    let status = host.engine.status();
    assert!(status["generations"].as_u64().unwrap() <= u64::from(MAX_PEERS));
    assert_eq!((host.counter("too_many_peers"), host.counter("stale_control")), (100, 0));
}

#[test]
fn a_dead_peer_is_not_called_more_often_than_an_idle_one() {
    let mut host = with_peer(settings());
    host.send(peer(1), 50);
    host.run(MS);
    host.ask_again(peer(1), 50);
    host.run(10 * S);
    assert_eq!(host.described(peer(1)).unwrap()["striped"], false);
    let before = host.seen.heartbeats;
    host.run(10 * S);
    assert_eq!(host.seen.heartbeats - before, 10 * usize::from(LINKS));
}

#[test]
fn repeats_for_a_peer_that_is_not_striped_to_any_more_keep_nobody_awake() {
    let mut host = with_peer(settings());
    host.send(peer(1), 50);
    host.run(MS);
    host.tell_of(11, peer(1), false);
    host.ask_again(peer(1), 50);
    for _ in 0..20 {
        host.beat(peer(1), REMOTE_SESSION);
        host.run(500 * MS);
    }
    let before = host.seen.heartbeats;
    for _ in 0..20 {
        host.beat(peer(1), REMOTE_SESSION);
        host.run(500 * MS);
    }
    assert_eq!(host.seen.heartbeats - before, 10 * usize::from(LINKS));
}

#[test]
fn heartbeats_to_hundreds_of_idle_peers_are_one_per_link_and_second() {
    const PEERS: u32 = 500;
    let mut host = Host::new(settings());
    (0..PEERS).for_each(|number| host.tell_of(10, peer(number), true));
    host.run(500 * MS);
    let all = PEERS as usize * usize::from(LINKS);
    assert_eq!(host.seen.heartbeats, all);
    host.run(5 * S);
    assert_eq!(host.seen.heartbeats, 6 * all);
}

#[test]
fn frames_kept_for_dead_peers_leave_room_for_those_of_the_living() {
    let mut host = Host::new(Settings { max_memory: 256 << 10, ..settings() });
    let talk = |host: &mut Host, number: u32, frames: usize| {
        host.tell_of(10, peer(number), true);
        host.beat(peer(number), REMOTE_SESSION);
        for _ in 0..frames {
            host.send(peer(number), 1);
            host.run(MS / 10);
        }
    };
    (0..8).for_each(|number| talk(&mut host, number, 60));
    host.run(10 * S);
    talk(&mut host, 8, 40);
    let kept = host.described(peer(8)).unwrap()["ring_frames"].as_u64().unwrap();
    assert_eq!(kept, 40, "frames that can be repeated");
    // Frames that wait for others find room, too.
    host.data(peer(8), 1, 0, 1_400);
    host.data(peer(8), 2, 0, 1_400);
    assert_eq!(host.counter("no_memory"), 0);
    assert!(host.engine.wants_plain(host.now));
}

#[test]
fn frames_that_need_not_wait_are_delivered_once_however_little_memory_there_is() {
    let mut host = with_peer(Settings { max_memory: 8_000, ..settings() });
    // Sequence 0 is missing. A quarter of the memory is for frames that wait for it.
    host.data(peer(1), 1, 0, 1_400);
    host.data(peer(1), 2, 0, 1_400);
    assert_eq!(host.counter("no_memory"), 1, "the buffer of this peer is full");
    host.data(peer(1), 3, wire::data::UNORDERED, 1_400);
    assert_eq!(host.seen.plain.len(), 1, "at once");
    // A frame that is sent again is delivered in order, whatever it was at first.
    host.data(peer(1), 3, wire::data::REPEATED, 1_400);
    host.data(peer(1), 3, wire::data::REPEATED | wire::data::UNORDERED, 1_400);
    assert_eq!((host.seen.plain.len(), host.counter("duplicate")), (1, 2));
    // Frames that were sent take all memory.
    host.send(peer(1), 20);
    host.data(peer(1), 4, wire::data::UNORDERED, 1_400);
    host.data(peer(1), 4, wire::data::REPEATED, 1_400);
    assert_eq!(
        (host.seen.plain.len(), host.counter("no_memory"), host.counter("duplicate")),
        (2, 2, 2)
    );
    host.run(MS);
    for seq in [0, 2] {
        host.data(peer(1), seq, wire::data::REPEATED, 1_400);
    }
    let order: Vec<u8> = host.seen.plain.iter().map(|frame| frame[17]).collect();
    assert_eq!(order, [3, 4, 0, 1, 2]);
}

#[test]
fn the_frame_that_all_others_wait_for_is_taken_though_no_memory_is_left() {
    let mut host = with_peer(Settings { max_memory: 8_000, ..settings() });
    host.send(peer(1), 20); // these take all memory, until there is a turn
    for seq in [0, 1, 3, 2] {
        host.data(peer(1), seq, 0, 1_400);
    }
    let order: Vec<u8> = host.seen.plain.iter().map(|frame| frame[17]).collect();
    assert_eq!(order, [0, 1, 2], "only frames that would have to wait are refused");
    assert_eq!(host.counter("no_memory"), 1);
}

#[test]
fn a_frame_of_an_old_session_that_was_not_believed_is_none_of_the_new_one() {
    let mut host = with_peer(settings());
    host.data(peer(1), 300, 0, 1_400);
    assert_eq!(
        (host.counter("doubted"), host.seen.plain.len()),
        (1, 0),
        "too far ahead for one frame to be right"
    );
    // The peer begins anew, near that number.
    let begin =
        |host: &mut Host| host.beat_as(peer(1), REMOTE_SESSION + 1, |beat| beat.next = Seq(200));
    begin(&mut host);
    host.run(20 * MS);
    begin(&mut host);
    assert_eq!(host.counter("restarts"), 1);
    host.run(500 * MS);
    assert_eq!(
        (host.seen.plain.len(), host.seen.requests),
        (0, 0),
        "the frame is not delivered, and nothing is missing"
    );
}

#[test]
fn grants_of_a_session_that_is_over_hold_no_link_back() {
    let mut host = with_peer(settings());
    let rate =
        |host: &Host| host.described(peer(1)).unwrap()["links"][1]["rate_bps"].as_u64().unwrap();
    host.beat_as(peer(1), REMOTE_SESSION, |beat| beat.grant_kbps = 10_000);
    assert_eq!(rate(&host), 10_000_000);
    // The peer begins anew, and link 1 carries nothing of the new session yet.
    let begin = |host: &mut Host| {
        host.beat_as(peer(1), REMOTE_SESSION + 1, |beat| {
            beat.own = peer(1 + u32::from(beat.link == Some(1)))
        });
    };
    begin(&mut host);
    host.run(20 * MS);
    begin(&mut host);
    assert_eq!(host.counter("restarts"), 1);
    assert_eq!(rate(&host), 1_000_000_000, "as the controller configured");
}

#[test]
fn a_heartbeat_that_is_replayed_changes_nothing() {
    let mut host = with_peer(settings());
    let rate =
        |host: &Host| host.described(peer(1)).unwrap()["links"][1]["rate_bps"].as_u64().unwrap();
    let old = host.beats;
    host.beat_as(peer(1), REMOTE_SESSION, |beat| beat.grant_kbps = 10_000);
    host.beat_as(peer(1), REMOTE_SESSION, |beat| beat.grant_kbps = 20_000);
    host.beats = old;
    host.beat_as(peer(1), REMOTE_SESSION, |beat| (beat.grant_kbps, beat.hears) = (10_000, 0));
    assert_eq!((rate(&host), host.counter("old_heartbeats")), (20_000_000, u64::from(LINKS)));
    assert_eq!(host.described(peer(1)).unwrap()["striped"], true);
}

#[test]
fn a_peer_that_takes_us_for_another_session_is_told_at_once() {
    let mut host = with_peer(settings());
    host.run(5 * S / 2);
    host.beat(peer(1), REMOTE_SESSION);
    host.run(100 * MS);
    let before = host.seen.heartbeats;
    host.beat_as(peer(1), REMOTE_SESSION, |beat| beat.peer_session ^= 1 << 20);
    host.run(5 * MS);
    assert_eq!(host.seen.heartbeats - before, usize::from(LINKS), "and not within a second");
}

#[test]
fn requests_for_frames_that_were_never_sent_are_counted_and_get_none() {
    let mut host = with_peer(settings());
    host.send(peer(1), 50);
    host.run(MS);
    let mut frame = Vec::new();
    let ranges =
        [(Seq(40), 30), (Seq(u32::MAX - 4), 10), (Seq(1 << 20), 1024), (Seq(1 << 31), 1024)];
    repeat::write(OWN, peer(1), 0, host.session_of(peer(1)), REMOTE_SESSION, ranges, &mut frame);
    host.wire(1, frame);
    assert_eq!(host.counter("repeat_not_there"), 20 + 5 + 2048);
    host.run(10 * MS);
    assert_eq!(host.counter("repeated_out"), 15);
}

#[test]
fn a_link_that_comes_back_goes_on_with_its_sequence() {
    let mut host = with_peer(settings());
    let numbers = |host: &Host, link: u8| -> Vec<u32> {
        let heads = host.seen.data.iter().map(|frame| match wire::parse(frame).unwrap() {
            Message::Data(data) => data.head(),
            other => panic!("{other:?}"),
        });
        heads.filter(|head| head.link == link).map(|head| head.link_seq.0).collect()
    };
    let talk = |host: &mut Host| {
        host.beat(peer(1), REMOTE_SESSION);
        for _ in 0..10 {
            host.send(peer(1), 1);
            host.run(MS);
        }
    };
    talk(&mut host);
    host.tell_of_first(11, peer(1), 1);
    talk(&mut host);
    host.tell_of(12, peer(1), true);
    talk(&mut host);
    for link in 0..LINKS {
        let numbers = numbers(&host, link);
        assert!(numbers.len() >= 10, "both are used: {numbers:?}");
        assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>(), "link {link}");
    }
}

#[test]
fn every_heartbeat_of_an_unknown_session_is_counted() {
    let mut host = with_peer(settings());
    for times in 1..=5 {
        host.beat(peer(1), REMOTE_SESSION + 1);
        assert_eq!(host.counter("unknown_session"), times * u64::from(LINKS));
    }
}

#[test]
fn strangers_are_not_answered_more_often_than_friends() {
    let mut host = with_peer(settings());
    host.tell_of(10, peer(2), true);
    host.run(MS);
    let before = host.seen.heartbeats;
    for session in 1_000..2_000 {
        // Here are a session of a known helper that is not its own, and data of one that is not
        // known.
        host.beat(peer(1), session);
        host.data(peer(2), 0, 0, 100);
        host.run(MS / 500);
    }
    let answers = host.seen.heartbeats - before;
    // That is for 2 ms and 2 peers.
    assert!(
        (1..=6 * usize::from(LINKS)).contains(&answers),
        "{answers} heartbeats to 3,000 frames"
    );
}

#[test]
fn a_nics_number_is_not_cut_to_fit() {
    let mut host = with_peer(settings());
    let mut frame = vec![0; 100];
    let head = DataHead {
        channel: 0,
        flags: 0,
        link: 0,
        session: REMOTE_SESSION,
        seq: Seq(0),
        link_seq: Seq(0),
    };
    wire::wrap(&mut frame, &head);
    wire::set_macs(&mut frame, OWN, peer(1));
    host.wire(257, frame);
    assert_eq!((host.counter("bad_link"), host.seen.plain.len()), (1, 0));
}

/// A greeting as a host would send it.
fn greeting(own: Mac, src: Mac) -> Heartbeat {
    let dst = Mac::BROADCAST;
    Heartbeat {
        dst,
        src,
        session: 9,
        next_within_ms: 1000,
        limit_kbps: 100_000,
        own,
        ..Heartbeat::default()
    }
}

fn alone() -> Host {
    let mut host = Host {
        engine: Engine::new(Settings { own: Some(OWN), autonomous: true, ..settings() }, S),
        now: S,
        seen: Seen::default(),
        beats: 0,
        sent: 0,
    };
    host.engine.set_nic(S, 1, "eth1", Mac([2, 1, 0, 0, 0, 1]), 100_000, true);
    host
}

impl Host {
    fn greeted(&mut self, greeting: &Heartbeat) {
        let mut frame = Vec::new();
        greeting.encode(&mut frame);
        self.engine.on_wire(self.now, None, 1, frame, &mut self.seen);
    }

    fn peers(&self) -> usize {
        self.engine.status()["peers"].as_array().unwrap().len()
    }
}

#[test]
fn greetings_from_where_no_nic_is_cost_a_counter() {
    let mut host = alone();
    for src in [Mac::NONE, Mac::BROADCAST, Mac([1, 0, 0x5e, 0, 0, 1])] {
        host.greeted(&greeting(peer(1), src));
    }
    assert_eq!((host.peers(), host.counter("bad_mac")), (0, 3), "no answer may go to everybody");
    for cnt in [8, 255, 256, u16::MAX] {
        host.greeted(&Heartbeat { cnt, ..greeting(peer(1), peer(9)) });
    }
    assert_eq!((host.peers(), host.counter("bad_link")), (0, 4));
}

#[test]
fn a_nic_that_another_host_claimed_for_a_while_is_its_owners_again() {
    let mut host = alone();
    let nic = Mac([2, 9, 0, 0, 0, 1]);
    host.greeted(&greeting(peer(1), nic));
    host.greeted(&greeting(peer(2), nic));
    for _ in 0..15 {
        host.greeted(&greeting(peer(1), nic));
        host.run(S);
    }
    assert_eq!(host.peers(), 1, "the one that claimed it fell silent");
    let mut frame = vec![0; 100];
    let head = DataHead {
        channel: 0,
        flags: 0,
        link: 0,
        session: REMOTE_SESSION,
        seq: Seq(0),
        link_seq: Seq(0),
    };
    wire::wrap(&mut frame, &head);
    wire::set_macs(&mut frame, OWN, nic);
    host.engine.on_wire(host.now, None, 1, frame, &mut host.seen);
    assert_eq!(
        (host.counter("unknown_peer"), host.counter("unknown_session")),
        (0, 1),
        "its owner is known"
    );
}

#[test]
fn a_nic_that_was_taken_for_another_one_is_nobodys() {
    let mut host = alone();
    let (old, new) = (Mac([2, 9, 0, 0, 0, 1]), Mac([2, 9, 0, 0, 0, 2]));
    host.greeted(&greeting(peer(1), old));
    host.greeted(&greeting(peer(1), new));
    for (src, unknown) in [(new, 0), (old, 1)] {
        let mut frame = vec![0; 100];
        let head = DataHead {
            channel: 0,
            flags: 0,
            link: 0,
            session: REMOTE_SESSION,
            seq: Seq(0),
            link_seq: Seq(0),
        };
        wire::wrap(&mut frame, &head);
        wire::set_macs(&mut frame, OWN, src);
        host.engine.on_wire(host.now, None, 1, frame, &mut host.seen);
        assert_eq!(host.counter("unknown_peer"), unknown, "{src}");
    }
}
