// SPDX-License-Identifier: Apache-2.0
//! All tests.

mod agree;
mod asks;
mod attach;
mod frames;
mod hosts;
mod layout;
mod model;
mod namespace;
mod object;
mod reports;
mod traffic;
