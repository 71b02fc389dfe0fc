// SPDX-License-Identifier: Apache-2.0
//! All tests.

mod agree;
mod attach;
mod frames;
mod hosts;
mod model;
mod namespace;
mod reports;
mod traffic;
