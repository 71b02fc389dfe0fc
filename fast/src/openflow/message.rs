// SPDX-License-Identifier: Apache-2.0
//! Whole messages: heads, those that are sent, and a stream cut into messages.

use super::reader::{Malformed, Reader};
use crate::rows::model::ANY;

/// OpenFlow 1.5.
pub const VERSION: u8 = 6;
/// The length of a head.
pub const HEAD: usize = 8;

/// Kinds of messages.
pub mod kind {
    #![allow(missing_docs)]
    pub const HELLO: u8 = 0;
    pub const ERROR: u8 = 1;
    pub const ECHO_REQUEST: u8 = 2;
    pub const ECHO_REPLY: u8 = 3;
    pub const SET_CONFIG: u8 = 9;
    pub const PORT_STATUS: u8 = 12;
    pub const PACKET_OUT: u8 = 13;
    pub const MULTIPART_REQUEST: u8 = 18;
    pub const MULTIPART_REPLY: u8 = 19;
    pub const SET_ASYNC: u8 = 28;
    pub const REQUEST_FORWARD: u8 = 32;
}

/// Kinds of multipart messages.
pub mod part {
    #![allow(missing_docs)]
    pub const GROUPS: u16 = 7;
    pub const PORTS: u16 = 13;
    pub const FLOW_MONITOR: u16 = 16;
}

/// The number that stands for all groups.
pub const ALL_GROUPS: u32 = 0xffff_fffc;

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// What it is.
    pub kind: u8,
    /// The number of the request that it answers.
    pub id: u32,
    /// What follows the head.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Takes a whole message apart.
    pub fn read(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let mut from = Reader::new(bytes);
        let (version, kind, length, id) = (from.u8()?, from.u8()?, from.u16()?, from.u32()?);
        if usize::from(length) != bytes.len() || (version != VERSION && kind != kind::HELLO) {
            return Err(Malformed);
        }
        Ok(Message { kind, id, body: from.rest() })
    }
}

/// How many bytes the first message of these bytes has. None: not all of it is here.
pub fn first(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(length) = bytes.get(2..4) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    if length < HEAD {
        return Err(Malformed);
    }
    Ok((bytes.len() >= length).then_some(length))
}

/// A message with this body. The body is at most 65,527 bytes.
pub fn message(kind: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEAD + body.len()).expect("our own messages are short");
    let mut all = vec![VERSION, kind];
    all.extend(length.to_be_bytes());
    all.extend(id.to_be_bytes());
    all.extend(body);
    all
}

/// The greeting: we speak OpenFlow 1.5 and nothing else.
pub fn hello() -> Vec<u8> {
    message(kind::HELLO, 0, &[0, 1, 0, 8, 0, 0, 0, 1 << VERSION])
}

/// Asks for news that a management connection does not get by itself: a length of packets above 0,
/// then ports and forwarded changes of groups, and no packets.
pub fn set_config(id: u32) -> Vec<u8> {
    message(kind::SET_CONFIG, id, &[0, 0, 0, 128])
}

/// Says which news are wanted: ports, and changes of groups that others make.
pub fn set_async(id: u32) -> Vec<u8> {
    const PROPERTIES: u16 = 12;
    const PORT_STATUS_OTHERWISE: u16 = 3; // "otherwise": the connection is not a secondary one
    const REQUEST_FORWARD_OTHERWISE: u16 = 11;
    let mut body = Vec::new();
    for property in 0..PROPERTIES {
        let mask: u32 = match property {
            PORT_STATUS_OTHERWISE => 0b111,
            REQUEST_FORWARD_OTHERWISE => 0b1,
            _ => 0,
        };
        body.extend(property.to_be_bytes());
        body.extend(8u16.to_be_bytes());
        body.extend(mask.to_be_bytes());
    }
    message(kind::SET_ASYNC, id, &body)
}

/// Asks for a sign of life.
pub fn echo(id: u32) -> Vec<u8> {
    message(kind::ECHO_REQUEST, id, &[])
}

fn multipart(id: u32, part: u16, body: &[u8]) -> Vec<u8> {
    let mut whole = part.to_be_bytes().to_vec();
    whole.extend([0; 6]);
    whole.extend(body);
    message(kind::MULTIPART_REQUEST, id, &whole)
}

/// Asks for all ports.
pub fn ask_ports(id: u32) -> Vec<u8> {
    let mut body = ANY.to_be_bytes().to_vec();
    body.extend([0; 4]);
    multipart(id, part::PORTS, &body)
}

/// Asks for a group, or for all.
pub fn ask_groups(id: u32, group: u32) -> Vec<u8> {
    let mut body = group.to_be_bytes().to_vec();
    body.extend([0; 4]);
    multipart(id, part::GROUPS, &body)
}

/// Asks for all rows and, from then on, for every change of them.
pub fn monitor_rows(id: u32) -> Vec<u8> {
    const INITIAL_ADDED_REMOVED_MODIFIED_WITH_INSTRUCTIONS: u16 = 0b1_1111;
    const ALL_TABLES: u8 = 0xff;
    let mut body = 1u32.to_be_bytes().to_vec(); // the monitor's number
    body.extend(ANY.to_be_bytes()); // any output port
    body.extend(ANY.to_be_bytes()); // any group
    body.extend(INITIAL_ADDED_REMOVED_MODIFIED_WITH_INSTRUCTIONS.to_be_bytes());
    body.extend([ALL_TABLES, 0]);
    body.extend([0, 1, 0, 4, 0, 0, 0, 0]); // a match that every row fits
    multipart(id, part::FLOW_MONITOR, &body)
}

/// Gives a frame to the bridge's controllers, as one that came from the controller port.
pub fn to_controllers(id: u32, frame: &[u8]) -> Vec<u8> {
    const CONTROLLER: u32 = 0xffff_fffd;
    let mut body = vec![0xff; 4]; // the frame is in the message
    body.extend([0, 16, 0, 0]); // bytes of actions
    body.extend([0, 1, 0, 12, 0x80, 0, 0, 4]); // a match on the port of entry
    body.extend(CONTROLLER.to_be_bytes());
    body.extend([0; 4]);
    body.extend([0, 0, 0, 16]); // output
    body.extend(CONTROLLER.to_be_bytes());
    body.extend([0xff, 0xff, 0, 0, 0, 0, 0, 0]); // the whole frame
    body.extend(frame);
    message(kind::PACKET_OUT, id, &body)
}
