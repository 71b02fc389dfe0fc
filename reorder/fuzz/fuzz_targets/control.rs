// SPDX-License-Identifier: Apache-2.0
//! The body of a frame of a type that has entries: a request, control, a report or channels, by the
//! first byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ri2n_reorder::wire::control::WHOLE_WEIGHT_PPM;
use ri2n_reorder::wire::report::MAX_ENTRIES;
use ri2n_reorder::wire::{
    parse, seal, Body, Message, CONTROLLER_MAC, ETHERTYPE, HELPER_MAC, MAX_CHANNEL, MAX_LINKS,
    MAX_PORT, VERSION,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, body)) = bytes.split_first() else { return };
    let kind = [3, 4, 5, 7][usize::from(which % 4)];
    let head = [VERSION << 4 | kind, 0, 0, 0, 0, 0];
    let mut frame =
        [&HELPER_MAC.0[..], &CONTROLLER_MAC.0, &ETHERTYPE.to_be_bytes(), &head, body].concat();
    seal(&mut frame);
    let Ok(message) = parse(&frame) else { return };
    let mut again = Vec::new();
    message.encode(&mut again);
    assert_eq!(parse(&again), Ok(message.clone()));
    match message {
        Message::Control(control) => match control.body {
            Body::ThisHost { nics, .. } => {
                assert!(nics
                    .iter()
                    .all(|nic| (1..=MAX_PORT).contains(&nic.port) && nic.name.len() <= 16));
            }
            Body::Peer { links, .. } => {
                assert!(links.windows(2).all(|pair| pair[0].number < pair[1].number));
                assert!(links.iter().all(|link| usize::from(link.number) < MAX_LINKS));
                assert!(links.iter().all(|link| link.weight_ppm <= WHOLE_WEIGHT_PPM));
            }
            Body::Gone => {}
            Body::Channels { first, last, channels } => {
                assert!((first..=MAX_CHANNEL).contains(&last));
                assert!(channels.windows(2).all(|pair| pair[0].number < pair[1].number));
                assert!(channels.iter().all(|channel| channel.min_kbps <= channel.max_kbps));
            }
        },
        Message::Repeat(repeat) => {
            let frames: usize = repeat.ranges.iter().map(|(_, frames)| usize::from(frames)).sum();
            assert!((1..=128 * 1024).contains(&frames));
        }
        Message::Channels(said) => {
            let numbers: Vec<u8> = said.entries.iter().map(|entry| entry.channel).collect();
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
            assert!((1..=48).contains(&numbers.len()));
        }
        Message::Report(report) => assert!(report.entries.len() <= MAX_ENTRIES),
        other => panic!("read as {other:?}"),
    }
});
