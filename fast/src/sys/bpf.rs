// SPDX-License-Identifier: Apache-2.0
//! Commands of bpf(2) that aya has none for.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::checked;

const MAP_CREATE: u32 = 0;
const MAP_UPDATE_ELEM: u32 = 2;
const PROG_TEST_RUN: u32 = 10;
const MAP_LOOKUP_BATCH: u32 = 24;

const ARRAY: u32 = 2;
const ARRAY_OF_MAPS: u32 = 12;

/// A command's argument: 128 bytes, as 64-bit words that are aligned like the kernel's union.
type Attributes = [u64; 16];

/// # Safety
///
/// The addresses in `attributes` must be valid for what the command reads and writes there.
unsafe fn bpf(command: u32, attributes: &mut Attributes) -> io::Result<i32> {
    let size = std::mem::size_of::<Attributes>();
    // SAFETY: the caller's promise; the kernel reads and writes `size` bytes of `attributes`.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size) };
    checked(result).map(|number| number as i32)
}

/// Two 32-bit members of the argument, one after the other, as a word.
fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

fn create(kind: u32, inner: u32) -> io::Result<OwnedFd> {
    let mut attributes = [0; 16];
    attributes[0] = pair(kind, 4);
    attributes[1] = pair(4, 1);
    attributes[2] = pair(0, inner);
    // SAFETY: the argument has no addresses; the descriptor that comes back is ours.
    unsafe {
        let fd = bpf(MAP_CREATE, &mut attributes)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Waits until all programs that run now have ended.
///
/// The kernel does so whenever a map in a map is replaced, so that whoever replaced it knows that
/// all programs see the new one. This needs no more rights than the programs do, and works where
/// membarrier(2) does not (`nohz_full`).
#[derive(Debug)]
pub struct Grace {
    outer: OwnedFd,
    inner: OwnedFd,
}

impl Grace {
    /// Needs CAP_BPF.
    pub fn new() -> io::Result<Self> {
        let inner = create(ARRAY, 0)?;
        Ok(Grace { outer: create(ARRAY_OF_MAPS, inner.as_raw_fd() as u32)?, inner })
    }

    /// Some milliseconds.
    pub fn wait(&self) -> io::Result<()> {
        let (key, value) = (0u32, self.inner.as_raw_fd() as u32);
        let mut attributes = [0; 16];
        attributes[0] = pair(self.outer.as_raw_fd() as u32, 0);
        attributes[1] = (&raw const key).addr() as u64;
        attributes[2] = (&raw const value).addr() as u64;
        // SAFETY: key and value have the 4 bytes that the map was made with, and outlive the call.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
    }
}

/// The first `count` values of a per-CPU array, each with `cpus` (all possible ones) parts of
/// `size` bytes, which is a multiple of 8.
pub fn read_per_cpu(map: BorrowedFd, count: u32, cpus: usize, size: usize) -> io::Result<Vec<u8>> {
    let mut values = vec![0u8; count as usize * cpus * size];
    let mut keys = vec![0u32; count as usize];
    let (mut last, mut done) = (0u32, 0u32);
    while done < count {
        let mut attributes = [0; 16];
        attributes[0] = if done == 0 { 0 } else { (&raw const last).addr() as u64 };
        let mut next = 0u32;
        attributes[1] = (&raw mut next).addr() as u64;
        attributes[2] = keys[done as usize..].as_mut_ptr().addr() as u64;
        attributes[3] = values[done as usize * cpus * size..].as_mut_ptr().addr() as u64;
        attributes[4] = pair(count - done, map.as_raw_fd() as u32);
        // SAFETY: the kernel writes at most `count - done` keys and values, for which there is
        // room; `last` and `next` are 4 bytes.
        let result = unsafe { bpf(MAP_LOOKUP_BATCH, &mut attributes) };
        match result {
            Ok(_) => {}
            // The end of the map.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
        let got = u32::from_ne_bytes(attributes[4].to_ne_bytes()[..4].try_into().unwrap());
        if got == 0 {
            break;
        }
        done += got;
        last = next;
    }
    Ok(values)
}

/// What a program made of a frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    /// What the program returned.
    pub returned: u32,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    /// The frame's `struct __sk_buff` afterwards.
    pub context: Vec<u8>,
}

/// Runs a program on a frame that does not exist, as tests do. `context` is a `struct __sk_buff`.
pub fn test_run(program: impl AsFd, frame: &[u8], context: &[u8]) -> io::Result<Ran> {
    let mut out = vec![0u8; frame.len() + 256];
    let mut context_out = vec![0u8; context.len()];
    let mut attributes = [0; 16];
    attributes[0] = pair(program.as_fd().as_raw_fd() as u32, 0);
    attributes[1] = pair(frame.len() as u32, out.len() as u32);
    attributes[2] = frame.as_ptr().addr() as u64;
    attributes[3] = out.as_mut_ptr().addr() as u64;
    attributes[4] = pair(1, 0);
    attributes[5] = pair(context.len() as u32, context_out.len() as u32);
    attributes[6] = context.as_ptr().addr() as u64;
    attributes[7] = context_out.as_mut_ptr().addr() as u64;
    // SAFETY: the kernel reads `frame` and `context`, and writes no more than the two buffers'
    // lengths.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes) }?;
    let length = u32::from_ne_bytes(attributes[1].to_ne_bytes()[4..].try_into().unwrap());
    let returned = u32::from_ne_bytes(attributes[0].to_ne_bytes()[4..].try_into().unwrap());
    out.truncate(length as usize);
    Ok(Ran { returned, frame: out, context: context_out })
}
