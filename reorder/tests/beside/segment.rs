// SPDX-License-Identifier: Apache-2.0
//! Frames of TCP say to which connection they belong, and which part of it they have.

use proptest::prelude::*;
use ri2n_reorder::beside::segment::{ahead, Segment};

use super::tcp;

/// The file follows from the controller's code; the programs are tested with it, too.
#[test]
fn a_key_is_the_hash_of_the_programs() {
    let text = include_str!("../../../fast/tests/hashes.json");
    let known: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut tried = 0;
    for known in known.as_array().unwrap() {
        let number = |name: &str| u16::try_from(known[name].as_u64().unwrap()).unwrap();
        let address = |name: &str| known[name].as_str().unwrap().parse::<std::net::IpAddr>();
        if number("protocol") != 6 {
            continue;
        }
        let mut frame = vec![2; 12];
        match (address("source").unwrap(), address("destination").unwrap()) {
            (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) => {
                frame.extend([8, 0, 0x46, 0, 0, 45, 0, 0, 0, 0, 64, 6, 0, 0]);
                frame.extend([from.octets(), to.octets()].concat());
                frame.extend([1, 1, 1, 0]); // an option
            }
            (std::net::IpAddr::V6(from), std::net::IpAddr::V6(to)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 29, 60, 64]);
                frame.extend([from.octets(), to.octets()].concat());
                frame.extend([6, 0, 0, 0, 0, 0, 0, 0]); // destination options
            }
            _ => panic!("{known}"),
        }
        frame.extend([number("sport").to_be_bytes(), number("dport").to_be_bytes()].concat());
        frame.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0, 7]);
        let hash = known["hash"].as_str().unwrap().trim_start_matches("0x");
        let key = u64::from_str_radix(hash, 16).unwrap();
        let wanted = Segment { key, start: u32::MAX, end: 0 };
        assert_eq!(Segment::read(&frame), Some(wanted), "{known}");
        tried += 1;
    }
    assert!(tried > 2, "{tried}");
}

#[test]
fn only_tcp_with_payload_is_read() {
    let whole = tcp(7, 100, 50);
    let read = Segment::read(&whole).unwrap();
    assert_eq!((read.start, read.end), (100, 150));
    let mut padded = whole.clone();
    padded.extend([0; 9]);
    assert_eq!(Segment::read(&padded), Some(read), "Ethernet pads");
    assert_eq!(Segment::read(&tcp(7, 100, 0)), None, "without payload");
    for cut in 0..whole.len() {
        assert_eq!(Segment::read(&whole[..cut]), None, "cut to {cut}");
    }
    for (at, value) in [(23, 17), (20, 0x20), (21, 1), (14, 0x55), (46, 0x40)] {
        let mut other = whole.clone();
        other[at] = value;
        assert_eq!(Segment::read(&other), None, "byte {at} is {value}");
    }
}

#[test]
fn sequences_wrap() {
    assert_eq!((ahead(5, 7), ahead(7, 5)), (2, -2));
    assert_eq!((ahead(u32::MAX, 1), ahead(1, u32::MAX)), (2, -2));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        frame in prop::collection::vec(any::<u8>(), 0..200),
        v6 in any::<bool>(),
    ) {
        let mut frame = frame;
        if frame.len() > 14 {
            let kind: [u8; 3] = if v6 { [0x86, 0xdd, 0x60] } else { [0x08, 0x00, 0x45] };
            frame[12..15].copy_from_slice(&kind);
        }
        if let Some(segment) = Segment::read(&frame) {
            prop_assert!(segment.key != 0 && ahead(segment.start, segment.end) > 0);
        }
    }
}
