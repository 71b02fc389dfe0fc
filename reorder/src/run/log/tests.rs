// SPDX-License-Identifier: Apache-2.0
use proptest::{prop_assert, prop_assert_eq, proptest};

use super::*;

const S: Nanos = 1_000_000_000;
const PLACE: Place = Place { file: "src/run/some.rs", line: 7, template: "NIC {} is down" };
/// 2026-01-31T09:30:00.125Z
const UNIX: Duration = Duration::from_millis(1_769_851_800_125);

fn json(lines: &str) -> Vec<Value> {
    assert!(lines.is_empty() || lines.ends_with('\n'), "{lines:?}");
    lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn down(lines: &mut Lines, now: Nanos, name: &str) -> String {
    lines.event(Level::Warn, PLACE, format_args!("NIC {name} is down"), now, UNIX)
}

#[test]
fn levels_are_shown_down_to_the_chosen_one() {
    for (level, shown) in [(Level::Error, true), (Level::Info, true), (Level::Debug, false)] {
        let mut lines = Lines::new(Level::Info, Format::Text);
        let text = lines.event(level, PLACE, format_args!("it"), 0, UNIX);
        assert_eq!(text, if shown { "ri2n-reorder: it\n" } else { "" });
    }
}

#[test]
fn an_event_has_the_keys_of_the_controllers_log() {
    let mut lines = Lines::new(Level::Info, Format::Json);
    assert_eq!(
        down(&mut lines, 0, "eth1"),
        "{\"time\": \"2026-01-31T09:30:00.125Z\", \"level\": \"warning\", \
         \"logger\": \"ri2n.reorder\", \"message\": \"NIC eth1 is down\", \
         \"where\": \"some.rs:7\", \"template\": \"NIC {} is down\"}\n"
    );
    let all_value = Place { template: "{error}", ..PLACE };
    let event = &json(&lines.event(Level::Error, all_value, format_args!("no"), 0, UNIX))[0];
    assert_eq!((&event["level"], event.get("template")), (&"error".into(), None));
}

#[test]
fn hostile_text_stays_on_its_line_and_is_written_as_escapes() {
    let hostile =
        "eth1\n{\"level\": \"error\"}\r\u{1b}[2J\u{0}\u{7f}\u{9b}\u{2028}\u{202e}\u{e0001}";
    let escaped =
        "NIC eth1\\n{\"level\": \"error\"}\\r\\x1b[2J\\x00\\x7f\\x9b\\u2028\\u202e\\U000e0001 \
                   is down";
    let text = down(&mut Lines::new(Level::Info, Format::Text), 0, hostile);
    assert_eq!(text, format!("ri2n-reorder: {escaped}\n"));
    let text = down(&mut Lines::new(Level::Info, Format::Json), 0, hostile);
    assert!(text.is_ascii());
    assert_eq!(json(&text)[0]["message"], escaped);
    let text = down(&mut Lines::new(Level::Info, Format::Json), 0, "Ünit \"1\\2\"");
    assert_eq!(json(&text)[0]["message"], "NIC Ünit \"1\\2\" is down");
}

#[test]
fn a_long_text_is_cut_off() {
    let name = "é".repeat(3 * MAX_TEXT);
    let text = down(&mut Lines::new(Level::Info, Format::Json), 0, &name);
    let message = json(&text)[0]["message"].as_str().unwrap().to_string();
    assert!(message.ends_with("... (16396 characters more)"), "{}", &message[message.len() - 40..]);
    assert!(message.chars().count() < MAX_TEXT + 40);
}

#[test]
fn a_place_that_says_too_much_is_held_back_and_counted() {
    let mut lines = Lines::new(Level::Info, Format::Json);
    let written = |text: String| usize::from(!text.is_empty());
    let at_once: usize = (0..1000).map(|n| written(down(&mut lines, S, &format!("n{n}")))).sum();
    assert_eq!(at_once, BURST as usize);
    // Another place is not held back.
    let other = Place { line: 8, ..PLACE };
    assert!(!lines.event(Level::Warn, other, format_args!("other"), S, UNIX).is_empty());
    assert_eq!(lines.tell(S + TELL - 1, UNIX, TELL), "", "it is not told at once");
    let told = json(&lines.tell(S + TELL, UNIX, TELL));
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["message"], "800 more like this: NIC n200 is down");
    assert_eq!((&told[0]["left_out"], &told[0]["level"]), (&800.into(), &"warning".into()));
    assert_eq!(lines.tell(10 * TELL, UNIX, 0), "", "it is told once");
}

#[test]
fn a_place_may_speak_again_later_and_then_tells_first_what_was_left_out() {
    let mut lines = Lines::new(Level::Info, Format::Text);
    for _ in 0..BURST + 3 {
        down(&mut lines, S, "a");
    }
    assert_eq!(down(&mut lines, S + REFILL - 1, "a"), "");
    assert_eq!(
        down(&mut lines, S + REFILL, "b"),
        "ri2n-reorder: 4 more like this: NIC a is down\nri2n-reorder: NIC b is down\n"
    );
    assert_eq!(down(&mut lines, S + REFILL, "b"), "", "one per refill");
    // After a long silence it has no more than at first. A clock that goes back gives nothing.
    let later = 1_000_000 * S;
    let written = (0..1000).filter(|_| !down(&mut lines, later, "c").is_empty()).count();
    assert_eq!(written, BURST as usize);
    assert_eq!(down(&mut lines, S, "d"), "");
}

#[test]
fn the_state_is_one_line_whatever_a_peer_is_called() {
    let state = serde_json::json!({ "peers": { "a\n\u{2028}\u{7f}é": 1 } });
    let text = Lines::new(Level::Error, Format::Text).state(&state, UNIX);
    let line = text.strip_prefix("ri2n-reorder: ").unwrap();
    assert!(line.is_ascii());
    assert_eq!(json(line)[0], state);
    let text = Lines::new(Level::Error, Format::Json).state(&state, UNIX);
    assert_eq!((&json(&text)[0]["state"], text.is_ascii()), (&state, true));
}

#[test]
fn a_trace_follows_its_event_and_looks_like_none() {
    let event = || Event { message: "m".into(), trace: vec!["a".into()], ..Event::default() };
    assert_eq!(event().line(Format::Text, UNIX), "ri2n-reorder: m\n    | a\n");
    assert_eq!(json(&event().line(Format::Json, UNIX))[0]["trace"][0], "a");
}

proptest! {
    #[test]
    fn any_text_is_one_line_and_comes_back(text: String) {
        let mut lines = Lines::new(Level::Info, Format::Json);
        let line = lines.event(Level::Info, PLACE, format_args!("{text}"), 0, UNIX);
        prop_assert!(line.is_ascii() && line.matches('\n').count() == 1);
        prop_assert!(line.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)));
        let message = json(&line)[0]["message"].as_str().unwrap().to_string();
        prop_assert_eq!(&message, &printable(&text));
        prop_assert!(message.chars().all(|c| !c.is_control()));
        let mut lines = Lines::new(Level::Info, Format::Text);
        let line = lines.event(Level::Info, PLACE, format_args!("{text}"), 0, UNIX);
        prop_assert_eq!(line, format!("ri2n-reorder: {message}\n"));
    }
}
