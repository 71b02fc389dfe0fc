// SPDX-License-Identifier: Apache-2.0
//! A script of frames, times and controls. Nothing panics, memory stays bounded, and no time stands
//! still.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/script/mod.rs"]
pub mod script;

fuzz_target!(|bytes: &[u8]| {
    script::run(bytes);
});
