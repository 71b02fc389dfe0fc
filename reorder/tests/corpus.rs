// SPDX-License-Identifier: Apache-2.0
//! The fuzz targets, compiled here as they are, and run over every input of their corpora.
//!
//! To fuzz, their crate needs a nightly compiler and libFuzzer. Here, `all.rs` stands in for that,
//! with a macro of the same name. So a target that does not compile, or an input that it refuses,
//! fails in an ordinary `cargo test`.

#![allow(unused_attributes)] // `no_main` is for the fuzz crate

use std::path::{Path, PathBuf};

#[path = "../fuzz/fuzz_targets/coalesce.rs"]
pub mod coalesce;
#[path = "../fuzz/fuzz_targets/control.rs"]
mod control;
#[path = "../fuzz/fuzz_targets/engine.rs"]
pub mod engine;
#[path = "../fuzz/fuzz_targets/segment.rs"]
mod segment;
#[path = "../fuzz/fuzz_targets/wire.rs"]
mod wire;

/// Makes a function of what libFuzzer's macro of that name is given.
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:block) => {
        pub fn target($bytes: &[u8]) $body
    };
}
pub(crate) use fuzz_target;

type Target = fn(&[u8]);

/// Every target, and how many inputs are committed for it at least. If there are fewer, some were
/// lost.
const TARGETS: [(&str, Target, usize); 5] = [
    ("coalesce", coalesce::target, 6),
    ("control", control::target, 64),
    ("engine", engine::target, 50),
    ("segment", segment::target, 9),
    ("wire", wire::target, 95),
];

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn names(folder: &Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .collect();
    names.sort();
    names
}

/// Runs one target over all its inputs.
fn replay(name: &str) {
    let (_, target, least) = TARGETS.into_iter().find(|entry| entry.0 == name).expect("a target");
    let folder = fuzz().join("corpus").join(name);
    let inputs = names(&folder);
    assert!(
        inputs.len() >= least,
        "{} of {least} inputs are left in {}",
        inputs.len(),
        folder.display()
    );
    for input in inputs {
        println!("{name}/{input}"); // shown when it fails
        target(&std::fs::read(folder.join(input)).expect("an input"));
    }
}

#[test]
fn coalesce_takes_its_corpus() {
    replay("coalesce");
}

#[test]
fn control_takes_its_corpus() {
    replay("control");
}

#[test]
fn engine_takes_its_corpus() {
    replay("engine");
}

#[test]
fn segment_takes_its_corpus() {
    replay("segment");
}

#[test]
fn wire_takes_its_corpus() {
    replay("wire");
}

#[test]
fn every_target_and_every_corpus_is_replayed() {
    let known: Vec<String> = TARGETS.iter().map(|entry| entry.0.to_owned()).collect();
    let sources: Vec<String> = known.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(names(&fuzz().join("fuzz_targets")), sources);
    assert_eq!(names(&fuzz().join("corpus")), known);
    let manifest =
        std::fs::read_to_string(fuzz().join("Cargo.toml")).expect("the crate's manifest");
    for name in known {
        assert!(
            manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")),
            "{name} is no target of the crate"
        );
    }
}
