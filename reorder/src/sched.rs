// SPDX-License-Identifier: Apache-2.0
//! Decides which frame is next, and over which link: token buckets, paced and weighted choice, and
//! the queues in front of them.

pub mod bucket;
pub mod fair;
pub mod paced;
pub mod queue;
pub mod weighted;

pub use bucket::Bucket;
pub use fair::FairQueue;
pub use paced::{NicBuckets, Paced};
pub use queue::{Queue, QueueSettings};
pub use weighted::Weighted;

/// The links (or NICs) of a bit mask, lowest first.
pub fn bits(mut mask: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let lowest = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lowest < 64).then_some(lowest as u8)
    })
}
