// SPDX-License-Identifier: Apache-2.0
//! All tests.

mod agree;
mod asks;
mod attach;
mod beside;
mod concrete;
mod dice;
mod frames;
mod helped;
mod hosts;
mod kept;
mod layout;
mod lone;
mod model;
mod namespace;
mod object;
mod open_vswitch;
mod openflow;
mod order;
mod reports;
mod rows;
mod sockets;
mod striping;
mod traffic;
mod watch;
