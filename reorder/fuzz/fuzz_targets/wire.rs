// SPDX-License-Identifier: Apache-2.0
//! Any frame. It is refused, or says the same when it is written and read again. Tags and envelopes
//! come off and on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ri2n_reorder::wire::{
    parse, pop_tag, push_tag, rewrite, seal, unwrap, wrap, wrap_broadcast, Broadcast, Message,
};

fuzz_target!(|bytes: &[u8]| {
    let mut frame = bytes.to_vec();
    if let Some(tag) = pop_tag(&mut frame) {
        let mut tagged = frame.clone();
        push_tag(&mut tagged, tag.vid, tag.pcp);
        tagged[14] |= bytes[14] & 0x10; // "may be dropped" is not kept
        assert_eq!(tagged, bytes);
    }
    if parse(&frame).is_err() {
        // Nothing that is made at random has its checksum. With the right one, what the frame says
        // is looked at, too.
        seal(&mut frame);
    }
    let Ok(message) = parse(&frame) else {
        unwrap(&mut frame);
        return;
    };
    let mut again = Vec::new();
    message.encode(&mut again);
    assert_eq!(parse(&again), Ok(message.clone()));
    match message {
        Message::Data(data) => {
            assert_eq!(again, frame);
            let head = data.head();
            unwrap(&mut again);
            wrap(&mut again, &head);
            assert_eq!(again, frame);
            rewrite(&mut again, head.link, head.link_seq, head.flags);
            assert_eq!(again, frame);
        }
        Message::Broadcast(Broadcast { dst, src, link, session, number, group, .. }) => {
            assert_eq!(again, frame);
            unwrap(&mut again);
            again[..6].copy_from_slice(&group.0);
            wrap_broadcast(&mut again, dst, src, link, session, number);
            assert_eq!(again, frame);
        }
        _ => assert!(again.len() <= frame.len()),
    }
});
