// SPDX-License-Identifier: Apache-2.0
//! The maps that the helper and the programs in the kernel change at the same time
//! (`fast/bpf/shared.h` names the same fields).
//!
//! `steers` says how TCP to a peer is striped: the helper, which hears the peer, writes links and
//! rates; `tx` notes what it sent, `rx` what came in. `nics` says the same of the host's own NICs,
//! which all peers share. `flows` says where a TCP connection that comes in is in its sequence. All
//! numbers are in the machine's byte order.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rustix::fs::{ftruncate, memfd_create, MemfdFlags};

use crate::memory::Array;

/// Programs and helper share maps only if both have this number. It changes with any change of this
/// file's meaning.
pub const LAYOUT: u32 = 1;

/// So many peers have a place in `steers`, the place by which `slot_counts` counts them, too.
pub const PEERS: usize = 2048;
/// Helper links with a higher number are not used beside the bridge.
pub const LANES: usize = 32;
/// So many NICs of the host have a place in `nics`: that of their port.
pub const NICS: usize = 64;
/// So many connections that come in are known at a time.
pub const FLOWS: usize = 4096;

/// One helper link to a peer.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Lane {
    /// When what was sent over the link so far has left it, by CLOCK_MONOTONIC. `tx` and the helper
    /// both move it on by what they send.
    pub free_ns: AtomicU64,
    /// What 1,024 bytes on the medium take (the helper writes it).
    pub ns_per_kib: AtomicU32,
    /// By how much longer the way is than the fastest link's (the helper writes it).
    pub skew_ns: AtomicU32,
    /// The port of the host's own NIC, a place in `nics` (the helper writes it).
    pub nic: AtomicU32,
    /// When `rx` last took a frame, by CLOCK_MONOTONIC in units of 1,024 ns, wrapping.
    pub heard: AtomicU32,
    /// Frames that `tx` sent, as they are on the wire.
    pub frames_out: AtomicU64,
    /// Their bytes, from the destination MAC to the end of the payload.
    pub bytes_out: AtomicU64,
    /// Frames that `rx` took.
    pub frames_in: AtomicU64,
    /// Their bytes.
    pub bytes_in: AtomicU64,
}

/// One of the host's own NICs.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Nic {
    /// When what was sent by it so far, to whatever peer, has left it. `tx` and the helper both move
    /// it on.
    pub free_ns: AtomicU64,
    /// What 1,024 bytes on the medium take; 0: not known. The helper writes it.
    pub ns_per_kib: AtomicU32,
    /// Always 0.
    pub zero: AtomicU32,
}

/// A peer.
#[repr(C)]
#[derive(Debug)]
pub struct Steer {
    /// Its own MAC in the first 6 bytes, then two zeros; 0: the place is free. `ri2n-fast` writes
    /// it, once.
    pub mac: AtomicU64,
    /// Until then (CLOCK_MONOTONIC) the programs stripe TCP to the peer; 0: they do not. The helper
    /// writes it.
    pub until_ns: AtomicU64,
    /// From then on, `tx` sends the helper a copy of a frame, since the helper sleeps. Both write
    /// it.
    pub awake_ns: AtomicU64,
    /// The links over which TCP may go, a bit each; bits from `LANES` on mean nothing. The helper
    /// writes it.
    pub links: AtomicU64,
    /// Bytes that a frame takes on the medium in addition to its own.
    pub overhead: AtomicU32,
    /// A frame with payload that would have to wait longer than this for the first link is refused,
    /// and TCP, which sent it, slows down; 0: none is refused.
    pub limit_ns: AtomicU32,
    /// So many were.
    pub refused: AtomicU64,
    /// The links.
    pub lanes: [Lane; LANES],
}

/// A TCP connection that comes in.
#[repr(C)]
#[derive(Debug)]
pub struct Flow {
    /// The hash of addresses, protocol and ports (docs/decisions/14-fast-path.md); 0: the place is
    /// free. `rx` writes it.
    pub key: AtomicU64,
    /// Frames held << 32 | expected sequence. Changed by compare-and-swap alone: only `rx` makes
    /// `held` more, only the helper less.
    pub word: AtomicU64,
    /// When `rx` last saw a frame, by CLOCK_MONOTONIC.
    pub seen_ns: AtomicU64,
    /// The lowest sequence that is held, as far as the helper knows. Where it is too low, a frame
    /// too many goes to the helper.
    pub least: AtomicU32,
    /// Always 0.
    pub zero: AtomicU32,
    /// For each link end of the highest sequence that came << 32 | when that was, in ms, wrapping.
    pub lanes: [AtomicU64; LANES],
}

const _: () = assert!(size_of::<Lane>() == 56);
const _: () = assert!(size_of::<Nic>() == 16);
const _: () = assert!(size_of::<Steer>() == 48 + LANES * 56);
const _: () = assert!(size_of::<Flow>() == 32 + LANES * 8);

/// A MAC as `Steer::mac` has it.
pub fn mac_word(mac: [u8; 6]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&mac);
    u64::from_ne_bytes(bytes)
}

/// The descriptors of the maps.
#[derive(Debug)]
pub struct Files<F> {
    /// `steers`.
    pub steers: F,
    /// `nics`.
    pub nics: F,
    /// `flows`.
    pub flows: F,
}

/// The maps in this process's memory.
#[derive(Debug)]
pub struct Shared {
    steers: Array<Steer>,
    nics: Array<Nic>,
    flows: Array<Flow>,
}

impl Shared {
    /// The lengths of the files in bytes.
    pub fn bytes() -> Files<usize> {
        Files {
            steers: Array::<Steer>::bytes(PEERS),
            nics: Array::<Nic>::bytes(NICS),
            flows: Array::<Flow>::bytes(FLOWS),
        }
    }

    /// Files of memory that no program has, as tests use them.
    pub fn in_memory() -> io::Result<Files<OwnedFd>> {
        let file = |bytes: usize| -> io::Result<OwnedFd> {
            let file = memfd_create("ri2n", MemfdFlags::CLOEXEC)?;
            ftruncate(&file, bytes as u64)?;
            Ok(file)
        };
        let Files { steers, nics, flows } = Self::bytes();
        Ok(Files { steers: file(steers)?, nics: file(nics)?, flows: file(flows)? })
    }

    /// Maps all of them.
    pub fn new<F: AsFd>(files: &Files<F>) -> io::Result<Self> {
        Ok(Shared {
            steers: Array::map(&files.steers, PEERS)?,
            nics: Array::map(&files.nics, NICS)?,
            flows: Array::map(&files.flows, FLOWS)?,
        })
    }

    /// All places for peers.
    pub fn steers(&self) -> &[Steer] {
        self.steers.all()
    }

    /// All places for NICs.
    pub fn nics(&self) -> &[Nic] {
        self.nics.all()
    }

    /// All places for connections.
    pub fn flows(&self) -> &[Flow] {
        self.flows.all()
    }

    /// The peer's place. Peers have places from the first one on, without gaps.
    pub fn place_of(&self, mac: [u8; 6]) -> Option<usize> {
        let wanted = mac_word(mac);
        let known = self.steers().iter().map(|steer| steer.mac.load(Relaxed));
        known.take_while(|mac| *mac != 0).position(|mac| mac == wanted)
    }
}

/// What the programs say in the MACs of a frame that they give to the helper's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// A copy of a frame that left for this peer: the helper shall wake up.
    Wake {
        /// The peer's own MAC.
        peer: [u8; 6],
    },
    /// A frame that came early, or that ends a gap. The helper writes it back to the device, with
    /// the host's own MAC as its destination, when it is its turn.
    Early {
        /// Its place in `flows`.
        flow: u32,
        /// The link by which it came.
        lane: u8,
        /// The sending host's own MAC.
        peer: [u8; 6],
    },
}

impl Given {
    /// Reads the first 12 bytes of a frame. None: it is none of these.
    pub fn read(macs: &[u8; 12], own: [u8; 6]) -> Option<Self> {
        let (to, from) = macs.split_at(6);
        let (to, from): ([u8; 6], [u8; 6]) = (to.try_into().ok()?, from.try_into().ok()?);
        if from == own {
            return Some(Given::Wake { peer: to });
        }
        let flow = u32::from_be_bytes(to[2..].try_into().ok()?);
        let known = to[0] == 2 && usize::from(to[1]) < LANES && (flow as usize) < FLOWS;
        known.then_some(Given::Early { flow, lane: to[1], peer: from })
    }
}
