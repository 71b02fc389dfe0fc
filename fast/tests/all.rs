// SPDX-License-Identifier: Apache-2.0
//! All tests.

mod agree;
mod attach;
mod concrete;
mod dice;
mod frames;
mod model;
mod namespace;
mod openflow;
mod reports;
mod rows;
