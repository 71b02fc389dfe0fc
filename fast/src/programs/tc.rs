// SPDX-License-Identifier: Apache-2.0
//! Devices, and programs at them, by messages of rtnetlink.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::sys::netlink::Socket;

/// Where a program stands: frames that come in from outside, or that the host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The ingress of a NIC.
    Ingress,
    /// The egress of the bridge's local port.
    Egress,
}

impl Side {
    fn parent(self) -> u32 {
        match self {
            Side::Ingress => 0xffff_fff2,
            Side::Egress => 0xffff_fff3,
        }
    }
}

/// The filter's place among a device's filters. Filters with lower numbers come first.
pub const PRIORITY: u16 = 0x5232;
const HANDLE: u32 = 1;
/// By these names a program is known as ours. The second one says that the qdisc is ours, too.
const NAME: &str = "ri2n-fast";
const NAME_WITH_QDISC: &str = "ri2n-fast, qdisc";

/// A device as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub ifindex: u32,
    /// Bytes of the longest packet.
    pub mtu: u32,
    /// The kind of virtual device, such as "tun"; empty for others.
    pub kind: String,
    /// Bytes of the longest piece that the kernel gives it to cut.
    pub gso_max_size: u32,
}

/// A filter on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its place.
    pub priority: u16,
    handle: u32,
    /// What kind of filter it is, such as "bpf".
    pub kind: String,
    /// The name that its owner gave it, if it is of kind "bpf".
    pub name: String,
    /// The number of its program, if it is of kind "bpf".
    pub program: Option<u32>,
}

impl Filter {
    /// Whether a `ri2n-fast` attached it.
    pub fn is_ours(&self) -> bool {
        self.priority == PRIORITY
            && self.handle == HANDLE
            && (self.name == NAME || self.name == NAME_WITH_QDISC)
    }

    /// Whether its qdisc is ours.
    pub fn with_qdisc(&self) -> bool {
        self.is_ours() && self.name == NAME_WITH_QDISC
    }
}

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_QDISC: u16 = 36;
const DELETE_QDISC: u16 = 37;
const GET_QDISC: u16 = 38;
const NEW_FILTER: u16 = 44;
const DELETE_FILTER: u16 = 45;
const GET_FILTER: u16 = 46;
const ERROR: u16 = 2;
const DONE: u16 = 3;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

const HEADER: usize = 16;
const LINK_HEADER: usize = 16;
const TC_HEADER: usize = 20;
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const ALL_PROTOCOLS: u16 = 3;

const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_INFO: u16 = 18;
const LINK_MASK: u16 = 29;
const LINK_GSO_MAX_SIZE: u16 = 41;
const INFO_KIND: u16 = 1;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const BPF_FD: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const BPF_ID: u16 = 11;
const DIRECT: u32 = 1;
const SKIP_STATISTICS: u32 = 8;

/// Asks the kernel about devices, and changes what stands at them.
#[derive(Debug)]
pub struct Tc {
    socket: Socket,
    sequence: u32,
}

impl Tc {
    /// Asking needs no capability, changing needs CAP_NET_ADMIN.
    pub fn open() -> io::Result<Self> {
        Ok(Tc { socket: Socket::open()?, sequence: 0 })
    }

    /// The device with this name; None: there is none, as of the empty name.
    pub fn device(&mut self, name: &str) -> io::Result<Option<Device>> {
        if name.is_empty() {
            return Ok(None);
        }
        let mut body = vec![0; LINK_HEADER];
        attribute(&mut body, LINK_NAME, &terminated(name));
        attribute(&mut body, LINK_MASK, &SKIP_STATISTICS.to_ne_bytes());
        let answers = match self.ask(GET_LINK, ACK, &body) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            answers => answers?,
        };
        Ok(answers.into_iter().find(|(kind, _)| *kind == NEW_LINK).map(|(_, body)| {
            let mut device =
                Device { ifindex: word(&body, 4), mtu: 0, kind: String::new(), gso_max_size: 0 };
            for (kind, value) in attributes(body.get(LINK_HEADER..).unwrap_or_default()) {
                match kind {
                    LINK_MTU => device.mtu = word(value, 0),
                    LINK_GSO_MAX_SIZE => device.gso_max_size = word(value, 0),
                    LINK_INFO => device.kind = text_of(value, INFO_KIND),
                    _ => {}
                }
            }
            device
        }))
    }

    /// From now on the kernel gives the device no longer pieces to cut, in connections that are new.
    pub fn set_gso_max_size(&mut self, ifindex: u32, size: u32) -> io::Result<()> {
        let mut body = vec![0; LINK_HEADER];
        body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        attribute(&mut body, LINK_GSO_MAX_SIZE, &size.to_ne_bytes());
        self.ask(NEW_LINK, ACK, &body).map(drop)
    }

    /// The kind of the qdisc at which filters stand, if the device has one.
    pub fn qdisc(&mut self, ifindex: u32) -> io::Result<Option<String>> {
        let answers = self.ask(GET_QDISC, DUMP, &tc_header(ifindex, 0, 0, 0))?;
        Ok(answers
            .into_iter()
            .find(|(kind, body)| {
                *kind == NEW_QDISC && word(body, 4) == ifindex && word(body, 8) == CLSACT_HANDLE
            })
            .map(|(_, body)| text_of(body.get(TC_HEADER..).unwrap_or_default(), KIND)))
    }

    /// Makes that qdisc. Fails with EEXIST if there is one.
    pub fn add_qdisc(&mut self, ifindex: u32) -> io::Result<()> {
        let mut body = tc_header(ifindex, CLSACT_HANDLE, CLSACT, 0);
        attribute(&mut body, KIND, b"clsact\0");
        self.ask(NEW_QDISC, ACK | CREATE | EXCLUSIVE, &body).map(drop)
    }

    /// Removes that qdisc, with all filters.
    pub fn remove_qdisc(&mut self, ifindex: u32) -> io::Result<()> {
        let body = tc_header(ifindex, CLSACT_HANDLE, CLSACT, 0);
        self.ask(DELETE_QDISC, ACK, &body).map(drop)
    }

    /// The filters of a device.
    pub fn filters(&mut self, ifindex: u32, side: Side) -> io::Result<Vec<Filter>> {
        let answers = self.ask(GET_FILTER, DUMP, &tc_header(ifindex, 0, side.parent(), 0));
        let mut filters = Vec::new();
        for (kind, body) in answers? {
            let (handle, info) = (word(&body, 8), word(&body, 16));
            // Each priority is told, too, without a handle.
            if kind != NEW_FILTER || handle == 0 {
                continue;
            }
            let attributes_of = body.get(TC_HEADER..).unwrap_or_default();
            let mut filter = Filter {
                priority: (info >> 16) as u16,
                handle,
                kind: text_of(attributes_of, KIND),
                name: String::new(),
                program: None,
            };
            let options = attributes(attributes_of).find(|(kind, _)| *kind == OPTIONS);
            if let Some((_, options)) = options.filter(|_| filter.kind == "bpf") {
                filter.name = text_of(options, BPF_NAME);
                filter.program = attributes(options)
                    .find(|(kind, _)| *kind == BPF_ID)
                    .map(|(_, value)| word(value, 0));
            }
            filters.push(filter);
        }
        Ok(filters)
    }

    /// Puts a program at a device. It takes the place of an earlier one of ours, at once.
    pub fn set_filter(
        &mut self,
        ifindex: u32,
        side: Side,
        program: impl AsFd,
        with_qdisc: bool,
    ) -> io::Result<()> {
        let mut options = Vec::new();
        let fd = program.as_fd().as_raw_fd() as u32;
        attribute(&mut options, BPF_FD, &fd.to_ne_bytes());
        let name = if with_qdisc { NAME_WITH_QDISC } else { NAME };
        attribute(&mut options, BPF_NAME, &terminated(name));
        attribute(&mut options, BPF_FLAGS, &DIRECT.to_ne_bytes());
        let mut body = tc_header(ifindex, HANDLE, side.parent(), filter_info());
        attribute(&mut body, KIND, b"bpf\0");
        attribute(&mut body, OPTIONS, &options);
        self.ask(NEW_FILTER, ACK | CREATE, &body).map(drop)
    }

    /// Removes our program from a device.
    pub fn remove_filter(&mut self, ifindex: u32, side: Side) -> io::Result<()> {
        let mut body = tc_header(ifindex, HANDLE, side.parent(), filter_info());
        attribute(&mut body, KIND, b"bpf\0");
        self.ask(DELETE_FILTER, ACK, &body).map(drop)
    }

    /// Sends a request, and returns the answers' types and bodies up to the last one.
    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<(u16, Vec<u8>)>> {
        self.sequence += 1;
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend((REQUEST | flags).to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend([0; 4]);
        request.extend(body);
        self.socket.send(&request)?;
        let mut answers = Vec::new();
        loop {
            let received = self.socket.receive()?;
            let mut rest = &received[..];
            while rest.len() >= HEADER {
                let length = (word(rest, 0) as usize).clamp(HEADER, rest.len());
                let (message, behind) = rest.split_at(length);
                rest = behind.get(padding(length)..).unwrap_or_default();
                if word(message, 8) != self.sequence {
                    continue;
                }
                match u16::from_ne_bytes([message[4], message[5]]) {
                    DONE => return Ok(answers),
                    ERROR => match word(message, HEADER) as i32 {
                        0 => return Ok(answers),
                        code => return Err(io::Error::from_raw_os_error(-code)),
                    },
                    kind => answers.push((kind, message[HEADER..].to_vec())),
                }
            }
        }
    }
}

fn filter_info() -> u32 {
    u32::from(PRIORITY) << 16 | u32::from(ALL_PROTOCOLS.to_be())
}

fn tc_header(ifindex: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    for number in [ifindex, handle, parent, info] {
        header.extend(number.to_ne_bytes());
    }
    header
}

fn padding(length: usize) -> usize {
    length.next_multiple_of(4) - length
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = 4 + value.len();
    body.extend((length as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len() + padding(length), 0);
}

fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        // The two highest bits are flags.
        let kind = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The 32-bit number there; 0 if the bytes end before.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_ne_bytes(word.try_into().unwrap()))
}

fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// The text of the attribute of this kind; empty: there is none.
fn text_of(bytes: &[u8], wanted: u16) -> String {
    let found = attributes(bytes).find(|(kind, _)| *kind == wanted);
    let text = found.map(|(_, value)| value).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end]).into_owned()
}
