// SPDX-License-Identifier: Apache-2.0
//! Buffers for reuse, in two sizes: for frames of the wire and for super-frames.

/// Bytes of the kernel's longest super-frame: an IP packet of 64 KB with Ethernet header and tags.
/// Some more show that one is too long.
pub(super) const LARGE: usize = 65536 + 64;
/// The most buffers of each size that are kept.
const KEPT_SMALL: usize = 1024;
const KEPT_LARGE: usize = 16;

/// Buffers that are not used now.
///
/// Invariant: every buffer in `small` is empty and has room for `small_room` bytes, and every one
/// in `large` for [`LARGE`].
#[derive(Debug)]
pub(super) struct Pool {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    small_room: usize,
}

impl Pool {
    /// A pool without buffers. `small_room`: bytes that the longest frame of the wire needs.
    pub(super) fn new(small_room: usize) -> Self {
        Pool { small: Vec::new(), large: Vec::new(), small_room }
    }

    /// An empty buffer for a frame of the wire.
    pub(super) fn small(&mut self) -> Vec<u8> {
        self.small.pop().unwrap_or_else(|| Vec::with_capacity(self.small_room))
    }

    /// An empty buffer for a super-frame.
    pub(super) fn large(&mut self) -> Vec<u8> {
        self.large.pop().unwrap_or_else(|| Vec::with_capacity(LARGE))
    }

    /// Takes a buffer back. Frees it if there are enough, or if it fits neither size.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        let room = buffer.capacity();
        if room >= LARGE {
            if self.large.len() < KEPT_LARGE {
                self.large.push(buffer);
            }
        } else if room >= self.small_room && self.small.len() < KEPT_SMALL {
            self.small.push(buffer);
        }
    }

    /// Puts a frame into a buffer of its size: a short one shall not occupy a large buffer while it
    /// waits somewhere.
    pub(super) fn fit(&mut self, frame: Vec<u8>) -> Vec<u8> {
        // Some bytes stay free for the header that is put before it.
        if frame.len() + 64 > self.small_room {
            return frame;
        }
        let mut fitting = self.small();
        fitting.extend_from_slice(&frame);
        self.give(frame);
        fitting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty_and_large_enough() {
        let mut pool = Pool::new(2048);
        for size in [0, 1, 2047, 2048, 9000, LARGE, 2 * LARGE] {
            pool.give(vec![1; size]);
        }
        for _ in 0..4 {
            let (small, large) = (pool.small(), pool.large());
            assert!(small.is_empty() && small.capacity() >= 2048 && small.capacity() < LARGE);
            assert!(large.is_empty() && large.capacity() >= LARGE);
        }
    }

    #[test]
    fn no_more_is_kept_than_said() {
        let mut pool = Pool::new(100);
        for _ in 0..3 * KEPT_SMALL {
            pool.give(Vec::with_capacity(100));
        }
        for _ in 0..3 * KEPT_LARGE {
            pool.give(Vec::with_capacity(LARGE));
        }
        assert_eq!((pool.small.len(), pool.large.len()), (KEPT_SMALL, KEPT_LARGE));
    }

    #[test]
    fn a_short_frame_leaves_the_large_buffer() {
        let mut pool = Pool::new(2048);
        let mut read = pool.large();
        read.extend_from_slice(&[7; 1000]);
        let fitting = pool.fit(read);
        assert!(fitting == [7; 1000] && fitting.capacity() < LARGE);
        assert_eq!(pool.large.len(), 1);
        let mut read = pool.large();
        read.extend_from_slice(&[7; 2000]);
        assert!(pool.fit(read).capacity() >= LARGE, "a small buffer has no room for the header");
    }
}
