// SPDX-License-Identifier: Apache-2.0
//! All tests.

mod agree;
mod attach;
mod frames;
mod model;
mod namespace;
mod reports;
