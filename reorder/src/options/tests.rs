// SPDX-License-Identifier: Apache-2.0
use clap::CommandFactory;
use proptest::{prop_assert, proptest};

use super::*;

fn parse(line: &str) -> Result<Options, NoOptions> {
    Options::parse(std::iter::once("ri2n-reorder").chain(line.split_whitespace()))
}

fn wrong(line: &str) -> String {
    match parse(line) {
        Err(NoOptions::Wrong(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_defaults_are_a_helper_under_a_bridge() {
    let options = parse("").unwrap();
    assert_eq!(options.mode, Mode::Bridge { wire: "ri2n-wire".into() });
    assert_eq!(options.plain, "ri2n-plain");
    assert_eq!((options.mtu_wire, options.overhead, options.max_memory), (1500, 24, 64 << 20));
    assert!(options.gro && !options.udp_unordered);
    assert_eq!((options.repair_ms, options.hbspan_ms), (50, 2000));
}

#[test]
fn nics_have_rates_where_they_are_given() {
    let options =
        parse("--autonomous --wire eth1=1G,eth2 --wire eth3=2.5g --strategy ri2n_plus_plus")
            .unwrap();
    let nic = |name: &str, rate_bps| Nic { name: name.into(), rate_bps };
    let nics =
        vec![nic("eth1", Some(1_000_000_000)), nic("eth2", None), nic("eth3", Some(2_500_000_000))];
    assert_eq!(
        options.mode,
        Mode::Autonomous { nics, strategy: Strategy::Ri2nPlusPlus, persistent: false }
    );
}

/// The file follows from the controller's code, whose tests read the same rates.
#[test]
fn rates_are_what_the_controller_takes_them_for() {
    let file: serde_json::Value =
        serde_json::from_str(include_str!("../../tests/limits.json")).unwrap();
    let rates = file["rates"].as_object().unwrap();
    let mut read = 0;
    for (text, wanted) in rates {
        match wanted.as_u64().filter(|rate_bps| (100_000..=1_000_000_000_000).contains(rate_bps)) {
            Some(rate_bps) => {
                assert_eq!(super::rate_bps(text), Ok(rate_bps), "{text:?}");
                read += 1;
            }
            // The helper takes a letter of the other case, too.
            None if text.contains(['K', 'm', 'g']) => {}
            None => assert!(super::rate_bps(text).is_err(), "{text:?}"),
        }
    }
    assert!(read > 5 && read < rates.len(), "{read} of {}", rates.len());
}

#[test]
fn everything_can_be_set() {
    let options = parse(
        "--plain p --wire w --mac 02:00:00:00:00:0A --mtu-wire 9000 --overhead 0 --udp-unordered \
         --max-memory 1.5M --gro off --repair-ms 0 --hbspan-ms 250 --status /run/s \
         --log-level debug --log-format json --watchdog-ms 500 --realtime \
         --fast-maps /run/m --hold h",
    );
    let expected = Options {
        mode: Mode::Bridge { wire: "w".into() },
        beside: Some(Beside { maps: "/run/m".into(), hold: "h".into() }),
        plain: "p".into(),
        mac: Some([2, 0, 0, 0, 0, 10]),
        mtu_wire: 9000,
        overhead: 0,
        udp_unordered: true,
        max_memory: 3 << 19,
        gro: false,
        repair_ms: 0,
        hbspan_ms: 250,
        status: Some("/run/s".into()),
        watchdog_ms: 500,
        realtime: true,
        log_level: LogLevel::Debug,
        log_format: LogFormat::Json,
    };
    assert_eq!(options.unwrap(), expected);
}

#[test]
fn a_value_that_makes_no_sense_gives_one_line_with_the_option() {
    for (line, said) in [
        ("--gro maybe", "'--gro <on|off>' [possible values: on, off]"),
        ("--nonsense", "'--nonsense'"),
        ("extra", "'extra'"),
        ("--strategy round_robin", "--strategy needs --autonomous"),
        ("--persistent", "--persistent needs --autonomous"),
        ("--autonomous", "--autonomous needs --wire"),
        ("--hold h", "need each other"),
        ("--fast-maps /run/m", "need each other"),
        ("--autonomous --wire a --fast-maps /run/m --hold h", "need a bridge"),
        ("--fast-maps /run/m --hold h --plain h", "both h"),
        ("--fast-maps /run/m --hold h --wire h", "both h"),
        ("--wire a,b", "a list of NICs needs --autonomous"),
        ("--wire a=1G", "a list of NICs needs --autonomous"),
        ("--wire same --plain same", "both same"),
        ("--autonomous --wire same --plain same", "both same"),
        ("--autonomous --wire a,b,a", "a twice"),
        ("--autonomous --wire a,b,c,d,e,f,g,h,i", "9 NICs, at most 8"),
        ("--autonomous --wire a=fast", "not a rate"),
        ("--autonomous --wire a=-1G", "not a rate"),
        ("--autonomous --wire a=infM", "not a rate"),
        ("--autonomous --wire a=1", "not a rate"),
        ("--autonomous --wire a,,b", "not a name"),
        ("--plain sixteen-letters-", "not a name"),
        ("--plain a/b", "not a name"),
        ("--mac 01:00:00:00:00:00", "not a MAC"),
        ("--mac 00:00:00:00:00:00", "not a MAC"),
        ("--mac 02:00:00:00:00", "not a MAC"),
        ("--mac 02:00:00:00:00:+1", "not a MAC"),
        ("--mtu-wire 100", "'--mtu-wire <BYTES>'"),
        ("--max-memory 10", "not a size"),
        ("--max-memory 1e9", "not a size"),
        ("--repair-ms -1", "-1"),
        ("--hbspan-ms 0", "'--hbspan-ms <MS>'"),
    ] {
        let text = wrong(line);
        assert!(text.contains(said), "{line}: {text}");
        assert!(!text.contains('\n') && !text.starts_with("error"), "{line}: {text}");
    }
    assert!(wrong(&format!("--status /{}", "x".repeat(120))).contains("not a path"));
}

#[test]
fn help_and_version_are_no_mistakes() {
    assert!(
        matches!(parse("--help"), Err(NoOptions::Asked(text)) if text.contains("--udp-unordered"))
    );
    let Err(NoOptions::Asked(version)) = parse("--version") else { panic!("no version") };
    assert!(version.starts_with("ri2n-reorder "));
}

#[test]
fn the_manual_has_every_option_and_no_other() {
    let manual = include_str!("../../ri2n-reorder.8").replace("\\-", "-");
    let described: Vec<&str> = manual
        .lines()
        .filter_map(|line| line.strip_prefix(".B --").or_else(|| line.strip_prefix(".BI --")))
        .filter_map(|rest| rest.split([' ', '"']).next())
        .collect();
    let mut command = Arguments::command();
    command.build();
    let mut wanted: Vec<String> =
        command.get_arguments().filter_map(|a| a.get_long().map(String::from)).collect();
    wanted.sort();
    let mut found: Vec<String> = described.iter().map(|name| name.to_string()).collect();
    found.sort();
    assert_eq!(found, wanted);
}

proptest! {
    #[test]
    fn any_words_give_options_or_one_line(words in proptest::collection::vec("\\PC{0,12}", 0..6)) {
        let line = std::iter::once("ri2n-reorder".to_string()).chain(words);
        if let Err(NoOptions::Wrong(text)) = Options::parse(line) {
            prop_assert!(!text.contains('\n'));
        }
    }

    #[test]
    fn any_value_of_an_option_is_read_or_refused(
        option in proptest::sample::select(vec![
            "--wire", "--mac", "--max-memory", "--plain", "--status",
        ]),
        value in "[0-9a-zA-Z=,.:/é -]{0,20}",
    ) {
        let _ = Options::parse(["ri2n-reorder", "--autonomous", option, &value]);
    }
}
