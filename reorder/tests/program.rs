// SPDX-License-Identifier: Apache-2.0
//! The program itself: options, exit codes, signals, the status socket.

use std::io::Read;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

use crate::namespace::{in_namespace, ip, make_tap, run, wait_for};
use ri2n_reorder::sys::interface::Interfaces;

fn program(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ri2n-reorder"));
    command
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// The only line that the program wrote.
fn line(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(text.starts_with("ri2n-reorder: ") && text.trim_end().lines().count() == 1, "{text}");
    text
}

#[test]
fn a_wrong_option_gives_one_line_and_exit_code_2() {
    for (arguments, said) in
        [("--gro perhaps", "perhaps"), ("--autonomous", "--wire"), ("--what", "--what")]
    {
        let output = program(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(line(&output).contains(said), "{output:?}");
    }
    let output = program("--version").output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    let expected = format!("ri2n-reorder {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn a_missing_device_gives_one_line_and_exit_code_1() {
    let output = program("--plain no-such-tap").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(line(&output).contains("there is no interface"), "{output:?}");
}

/// The only line that the program wrote, as the JSON object that it is.
fn event(output: &Output) -> serde_json::Value {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(text.is_ascii() && text.trim_end().lines().count() == 1, "{text}");
    serde_json::from_str(&text).expect(&text)
}

#[test]
fn the_log_is_json_where_that_is_wanted_and_no_name_breaks_its_line() {
    let mut command = program("--log-format json --plain");
    let output = command.arg("no\"\u{9d}\u{2028}tap").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!line(&output).contains('\u{2028}'), "a wrong option is a plain line: {output:?}");
    let output = program("--log-format json").args(["--wire", "no\"\u{202e}tap"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let event = event(&output);
    let said = event["message"].as_str().unwrap();
    assert!(said.starts_with("there is no interface no\"\\u202etap"), "{event}");
    assert_eq!((&event["level"], &event["logger"]), (&"error".into(), &"ri2n.reorder".into()));
    assert!(event["time"].as_str().unwrap().ends_with('Z'), "{event}");
    assert!(event["where"].as_str().unwrap().starts_with("main.rs:"), "{event}");
    let output = program("--log-format xml").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(line(&output).contains("[possible values: text, json]"), "{output:?}");
}

/// Ends the process if the test fails before the process has ended.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Removes what a killed helper leaves, whatever becomes of the test.
struct Socket(std::path::PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn start(socket: &str) -> Helper {
    Helper(program(&format!("--plain plain --wire wire --status {socket}")).spawn().unwrap())
}

fn status(socket: &str) -> serde_json::Value {
    let text = wait_for("the status", || {
        let mut text = String::new();
        UnixStream::connect(socket).ok()?.read_to_string(&mut text).ok()?;
        (!text.is_empty()).then_some(text)
    });
    assert_eq!(text.matches('\n').count(), 1);
    serde_json::from_str(&text).unwrap()
}

/// The exit code, and what the process wrote.
fn end(mut helper: Helper) -> (Option<i32>, String) {
    let code = wait_for("the end", || helper.0.try_wait().unwrap()).code();
    let mut text = String::new();
    helper.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (code, text)
}

#[test]
fn a_helper_lives_and_ends() {
    in_namespace(|| {
        make_tap("plain");
        make_tap("wire");
        let socket =
            Socket(std::env::temp_dir().join(format!("ri2n-program-{}", std::process::id())));
        let socket = socket.0.to_str().unwrap();
        let helper = start(socket);
        let answer = status(socket);
        assert_eq!(answer["pid"], helper.0.id());
        assert_eq!(answer["io"]["plain"]["written"], 0, "{answer}");

        let second = program("--plain plain --wire wire").output().unwrap();
        assert_eq!(second.status.code(), Some(1));
        assert!(line(&second).contains("another process has it"), "{second:?}");

        run("kill", &format!("-USR1 {}", helper.0.id()));
        run("kill", &format!("-TERM {}", helper.0.id()));
        let (code, text) = end(helper);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("\"io\""), "SIGUSR1 shows the state: {text}");
        assert!(!std::path::Path::new(socket).exists());

        // A killed process leaves a socket that nobody answers. The next process takes its place.
        let helper = start(socket);
        status(socket);
        drop(helper);
        assert!(std::path::Path::new(socket).exists());
        let helper = start(socket);
        status(socket);
        ip("link delete plain");
        let (code, text) = end(helper);
        assert_eq!(code, Some(1));
        assert!(text.contains("TAP plain is gone"), "{text}");
    });
}

#[test]
fn the_state_and_the_guards_last_words_are_json_too() {
    in_namespace(|| {
        make_tap("plain");
        make_tap("wire");
        let socket = Socket(std::env::temp_dir().join(format!("ri2n-json-{}", std::process::id())));
        let socket = socket.0.to_str().unwrap();
        let options = format!("--plain plain --wire wire --status {socket} --log-format json");
        let helper = Helper(program(&options).spawn().unwrap());
        status(socket);
        run("kill", &format!("-USR1 {}", helper.0.id()));
        run("kill", &format!("-TERM {}", helper.0.id()));
        let (code, text) = end(helper);
        assert_eq!(code, Some(0), "{text}");
        let events: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert_eq!(events[0]["message"], "ready, plain side plain");
        assert_eq!(events[0]["template"], "ready, plain side {}");
        assert_eq!((events.len(), events[1]["state"]["io"].is_object()), (2, true), "{text}");

        let helper = Helper(program(&format!("{options} --watchdog-ms 1000")).spawn().unwrap());
        status(socket);
        run("kill", &format!("-STOP {}", helper.0.id()));
        let mut helper = helper;
        let ended = wait_for("the watchdog", || helper.0.try_wait().unwrap());
        assert_eq!(ended.signal(), Some(9));
        let mut text = String::new();
        helper.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["message"], "it did not move for 1000 ms: killed by its watchdog");
        assert_eq!(last["level"], "error");
    });
}

#[test]
fn a_helper_that_hangs_is_ended_and_its_taps_lose_their_carrier() {
    in_namespace(|| {
        make_tap("plain");
        make_tap("wire");
        let socket =
            Socket(std::env::temp_dir().join(format!("ri2n-hangs-{}", std::process::id())));
        let socket = socket.0.to_str().unwrap();
        let options = format!("--plain plain --wire wire --status {socket} --watchdog-ms 2000");
        let helper = Helper(program(&options).spawn().unwrap());
        status(socket);
        let interfaces = Interfaces::open().unwrap();
        wait_for("the carrier", || interfaces.is_up("wire").then_some(()));
        let mut helper = helper;
        run("kill", &format!("-STOP {}", helper.0.id()));
        let stopped = std::time::Instant::now();
        let ended = wait_for("the watchdog", || helper.0.try_wait().unwrap());
        println!("ended after {:?}", stopped.elapsed());
        assert_eq!(ended.signal(), Some(9));
        wait_for("the end of the carrier", || {
            (!interfaces.is_up("wire") && !interfaces.is_up("plain")).then_some(())
        });
        let mut text = String::new();
        helper.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(text.contains("it did not move for 2000 ms: killed by its watchdog"), "{text}");

        // A process that ends in order takes its watchdog along, which writes nothing.
        let helper = Helper(program(&options.replace("2000", "60000")).spawn().unwrap());
        status(socket);
        run("kill", &format!("-TERM {}", helper.0.id()));
        let (code, text) = end(helper);
        assert_eq!((code, text.matches("watchdog").count()), (Some(0), 0), "{text}");
    });
}

#[test]
fn a_service_manager_is_told_that_it_lives() {
    in_namespace(|| {
        make_tap("plain");
        make_tap("wire");
        let path =
            Socket(std::env::temp_dir().join(format!("ri2n-manager-{}", std::process::id())));
        let manager = UnixDatagram::bind(&path.0).unwrap();
        let mut command = program("--plain plain --wire wire");
        let helper = Helper(
            command.env("NOTIFY_SOCKET", &path.0).env("WATCHDOG_USEC", "400000").spawn().unwrap(),
        );
        let notified = || {
            let mut text = [0; 64];
            let length = manager.recv(&mut text).unwrap();
            String::from_utf8(text[..length].to_vec()).unwrap()
        };
        assert_eq!(notified(), "READY=1");
        assert_eq!(
            [notified(), notified(), notified()],
            ["WATCHDOG=1"; 3],
            "even though nothing else is due"
        );
        run("kill", &format!("-TERM {}", helper.0.id()));
        while notified() != "STOPPING=1" {}
        assert_eq!(end(helper).0, Some(0));
    });
}

#[test]
fn real_time_priority_is_taken_or_one_line_says_that_it_is_not() {
    in_namespace(|| {
        make_tap("plain");
        make_tap("wire");
        let socket =
            Socket(std::env::temp_dir().join(format!("ri2n-realtime-{}", std::process::id())));
        let socket = socket.0.to_str().unwrap();
        let options = format!("--plain plain --wire wire --status {socket} --realtime");
        let helper = Helper(program(&options).spawn().unwrap());
        status(socket);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", helper.0.id())).unwrap();
        // The fields are counted from behind the name, which may have spaces. The 41st of all is
        // the policy, of which 2 is round robin.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let real_time = fields[41 - 3] == "2";
        run("kill", &format!("-TERM {}", helper.0.id()));
        let (code, text) = end(helper);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(text.contains("no real-time priority: "), !real_time, "{text}");
    });
}
