// SPDX-License-Identifier: Apache-2.0
//! `ri2n-fast`.

fn main() {}
