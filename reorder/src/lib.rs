// SPDX-License-Identifier: Apache-2.0
//! Stripes the packets of one connection over several links, and restores their order.
//!
//! Most modules are pure: they know bytes, sequence numbers and `now`. Devices and the clock are in
//! [`sys`] and [`run`].

#![deny(unsafe_code)]

pub mod belief;
pub mod beside;
pub mod counters;
pub mod driver;
pub mod engine;
pub mod grants;
pub mod maxmin;
pub mod offload;
pub mod options;
pub mod reorder;
pub mod ring;
pub mod run;
pub mod sched;
pub mod seq;
#[allow(unsafe_code)]
pub mod sys;
pub mod wire;

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;
