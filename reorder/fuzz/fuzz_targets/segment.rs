// SPDX-License-Identifier: Apache-2.0
//! Any vnet header before any frame. Segments fit, and hold the whole payload. Input: 10 bytes of
//! header, 2 bytes for the length of the longest frame, the frame.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ri2n_reorder::offload::packet::Layout;
use ri2n_reorder::offload::segment::{finish, segments, MAX_SEGMENTS};
use ri2n_reorder::offload::vnet::VnetHdr;

fuzz_target!(|data: &[u8]| {
    let Ok(hdr) = VnetHdr::parse(data) else { return };
    let Some((limit, frame)) = data[VnetHdr::LEN..].split_first_chunk() else { return };
    let max_frame = usize::from(u16::from_le_bytes(*limit));
    let mut cut = vec![];
    let result = segments(&hdr, frame, max_frame, &mut |segment| cut.push(segment));
    if hdr.is_gso() {
        check(frame, &cut);
    } else {
        let mut whole = frame.to_vec();
        assert_eq!(finish(&hdr, &mut whole, max_frame), result.map(|_| ()));
        assert!(cut.iter().all(|segment| *segment == whole));
    }
    assert_eq!(cut.len(), result.unwrap_or(0));
    assert!(cut.len() <= MAX_SEGMENTS && cut.iter().all(|segment| segment.len() <= max_frame));
});

/// The segments' payloads are the frame's, and each has its own right length.
fn check(frame: &[u8], cut: &[Vec<u8>]) {
    if cut.is_empty() {
        return;
    }
    let layout = Layout::find(frame).expect("a frame that could be cut has a layout");
    let payload = layout.payload(frame).expect("and a payload");
    let whole: Vec<u8> = cut.iter().flat_map(|segment| segment[payload..].to_vec()).collect();
    assert_eq!(whole, frame[payload..]);
    for segment in cut {
        let own = Layout::find(segment).expect("so has each segment");
        assert_eq!((own.l4, own.end), (layout.l4, segment.len()));
    }
}
