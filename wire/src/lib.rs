// SPDX-License-Identifier: Apache-2.0
//! What the programs of one host say to each other: the maps that the helper, `ri2n-fast` and its
//! programs in the kernel share ([`shared`]), and how the helper gets them ([`handover`]).

pub mod handover;
mod memory;
pub mod shared;
