// SPDX-License-Identifier: Apache-2.0
//! All tests.

mod attach;
mod namespace;
mod reports;
