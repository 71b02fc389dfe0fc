// SPDX-License-Identifier: Apache-2.0
//! TCP that goes beside the bridge and the helper: what the helper says to the programs in the
//! kernel, and does for them.
//!
//! The programs stripe TCP over the helper's links by themselves. [`steering`] tells them how fast,
//! and learns what they carried. [`order`] holds what came early, until it is its turn; [`segment`]
//! reads where it belongs. All of this is pure but for the memory that is shared
//! (`ri2n_wire::shared`). Devices and the way to the maps are in `run::beside`.

pub mod order;
pub mod segment;
pub mod steering;
