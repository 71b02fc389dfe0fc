//! The program itself: options, exit codes, signals, the status socket.

mod namespace;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};

use namespace::{in_namespace, ip, make_tap, run, wait_for};

fn program(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ri2n-reorder"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// The only line that it wrote.
fn line(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(text.starts_with("ri2n-reorder: ") && text.trim_end().lines().count() == 1, "{text}");
    text
}

#[test]
fn a_wrong_option_is_one_line_and_2() {
    for (arguments, said) in [("--gro perhaps", "perhaps"), ("--autonomous", "--wire"), ("--what", "--what")] {
        let output = program(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(line(&output).contains(said), "{output:?}");
    }
    let output = program("--version").output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("ri2n-reorder "));
}

#[test]
fn a_missing_device_is_one_line_and_1() {
    let output = program("--plain no-such-tap").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(line(&output).contains("there is no interface"), "{output:?}");
}

/// Ends the process when the test fails before it has ended.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a killed helper leaves is removed, whatever becomes of the test.
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

/// What it said, and its exit code.
fn end(mut helper: Helper) -> (Option<i32>, String) {
    let code = wait_for("the end", || helper.0.try_wait().unwrap()).code();
    let mut text = String::new();
    helper.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (code, text)
}

#[test]
fn a_helper_lives_and_ends() {
    in_namespace("a_helper_lives_and_ends", || {
        make_tap("plain");
        make_tap("wire");
        let socket = Socket(std::env::temp_dir().join(format!("ri2n-program-{}", std::process::id())));
        let socket = socket.0.to_str().unwrap();
        let helper = start(socket);
        let told = status(socket);
        assert_eq!(told["pid"], helper.0.id());
        assert_eq!(told["io"]["plain"]["written"], 0, "{told}");

        let second = program("--plain plain --wire wire").output().unwrap();
        assert_eq!(second.status.code(), Some(1));
        assert!(line(&second).contains("another process has it"), "{second:?}");

        run("kill", &format!("-USR1 {}", helper.0.id()));
        run("kill", &format!("-TERM {}", helper.0.id()));
        let (code, text) = end(helper);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("\"io\""), "SIGUSR1 shows the state: {text}");
        assert!(!std::path::Path::new(socket).exists());

        // Killed, it leaves a socket that nobody answers; the next one takes its place.
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
