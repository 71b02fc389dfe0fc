// SPDX-License-Identifier: Apache-2.0
//! A small OpenFlow 1.5 client: it follows a bridge's rows, groups and ports, and sends packets.
//!
//! `mirror` is pure: bytes of messages come in, and what is to be sent goes out. `connection` has
//! the socket. Whatever the bridge sends, nothing here panics; a row that cannot be read counts as
//! one that does anything.

mod actions;
pub mod connection;
mod entries;
pub mod message;
pub mod mirror;
mod oxm;
mod reader;

pub use reader::Malformed;
