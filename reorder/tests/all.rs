// SPDX-License-Identifier: Apache-2.0
//! All integration tests in one program: what they share is compiled and linked once.

mod autonomous;
mod beside;
mod class_frames;
mod classes;
mod common;
mod corpus;
mod devices;
mod engine;
mod host;
mod hostile;
mod lateness;
mod main_loop;
mod mutations;
mod namespace;
mod network;
mod odd_times;
mod offload;
mod program;
mod rates;
mod reorder_model;
mod reorder_network;
mod repeats;
mod restarts;
mod ring_model;
mod scripts;
mod soak;
mod speed;
mod strangers;
mod vectors;
mod waits;
mod wakes;

use std::path::Path;

// Fuzz targets import their macro from libFuzzer's crate.
extern crate self as libfuzzer_sys;
use corpus::fuzz_target;

/// What is not named above would not be compiled, and nobody would miss its tests.
#[test]
fn every_file_of_this_folder_is_part_of_this_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_module =
            path.join("mod.rs").exists() || path.extension().is_some_and(|it| it == "rs");
        let name = path.file_stem().unwrap().to_str().unwrap();
        // The fuzz target that has it brings it in.
        if is_module && !["all", "script"].contains(&name) {
            let line = format!("\nmod {name};\n");
            assert!(include_str!("all.rs").contains(&line), "{name} is not in tests/all.rs");
        }
    }
}
