// SPDX-License-Identifier: Apache-2.0
//! Scripts for a whole engine: the fuzz target's corpus, and random ones.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

// The fuzz target has it, and no file is compiled twice.
use crate::corpus::engine::script;

/// What the corpus must lead to. Otherwise it tests less than it seems to.
const REACHED: [&str; 21] = [
    "data_in",
    "data_out",
    "duplicate",
    "old",
    "far_ahead",
    "given_up",
    "repeated_in",
    "repeated_out",
    "bounced_in",
    "repeat_requests_out",
    "repeat_not_there",
    "to_slots",
    "link_deaths",
    "restarts",
    "clock_jumps",
    "stale_control",
    "channels_in",
    "channels_out",
    "unknown_channel",
    "refused_tag",
    "unclassed",
];

#[test]
fn every_script_of_the_corpus_keeps_what_must_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/engine");
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the corpus is committed") {
        let path = entry.expect("an entry").path();
        println!("{}", path.display());
        let counters = script::run(&std::fs::read(&path).expect("a script"));
        counters.iter().for_each(|(name, value)| *sums.entry(name).or_default() += value);
    }
    for name in REACHED {
        assert!(sums.get(name).is_some_and(|sum| *sum > 0), "{name}: {sums:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn random_scripts_keep_what_must_hold(bytes in vec(any::<u8>(), 0..400)) {
        script::run(&bytes);
    }
}
