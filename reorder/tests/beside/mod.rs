// SPDX-License-Identifier: Apache-2.0
//! TCP that goes beside the bridge, without the programs: tests play them.

mod device;
mod engine;
mod model;
mod order;
mod segment;
mod steering;

use ri2n_reorder::beside::segment::Segment;

/// A TCP segment over IPv4 of connection `ports`, in a frame.
pub fn tcp(ports: u32, start: u32, payload: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend((40 + payload as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    frame.extend(ports.to_be_bytes());
    frame.extend(start.to_be_bytes());
    frame.extend([0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.resize(54 + payload, 0x55);
    frame
}

/// The key of that connection.
pub fn key(ports: u32) -> u64 {
    Segment::read(&tcp(ports, 0, 1)).unwrap().key
}
