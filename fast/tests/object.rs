// SPDX-License-Identifier: Apache-2.0
//! The committed object is what the sources make.

use crate::agree::load;
use crate::lone::loaded;
use crate::namespace::in_namespace;
use std::io::Write;
use std::process::Command;

#[test]
fn the_sources_make_the_committed_object() {
    if Command::new("clang-14").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "\nSKIPPED object: needs Debian's clang-14");
        return;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");
    let made = std::env::temp_dir().join(format!("ri2n-fast-{}.o", std::process::id()));
    let output = Command::new(format!("{folder}/build.sh")).arg(&made).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let bytes = std::fs::read(&made).unwrap();
    std::fs::remove_file(&made).unwrap();
    assert!(
        bytes == std::fs::read(format!("{folder}/fast.bpf.o")).unwrap(),
        "fast/bpf/fast.bpf.o is not what the sources make: renew it by fast/bpf/build.sh"
    );
}

/// The verifier gives up after a million instructions, of which loops can take very many. Kernels
/// differ in how much they skip.
#[test]
fn the_verifier_is_far_from_giving_up() {
    in_namespace(|| {
        let (programs, _) = load();
        for name in ["tx", "rx", "own", "inj"] {
            let count = loaded(&programs, name).verified_instruction_count().unwrap();
            assert!(count < 250_000, "{name}: {count} instructions");
        }
    });
}
