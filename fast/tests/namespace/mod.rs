// SPDX-License-Identifier: Apache-2.0
//! A network namespace of its own for a test, which runs itself again inside, and devices in it.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

const INSIDE: &str = "RI2N_FAST_TEST_NAMESPACE";
/// Nothing for which a test waits takes long. This is for what never happens, on a machine that may
/// be very busy.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// Runs `body`, a closure in a test, in a network namespace of its own, as root. Without root, or
/// where programs for the kernel are not allowed, it says so on standard error (past the test
/// runner, which would hide it), and nothing is tested.
pub fn in_namespace<F: FnOnce()>(body: F) {
    // The closure's type is called by the names of the crate, its modules, the test and itself.
    let path = std::any::type_name::<F>();
    let inside_crate = path.split_once("::").map(|(_, rest)| rest);
    let (name, _) = inside_crate.and_then(|rest| rest.rsplit_once("::")).expect(path);
    if std::env::var(INSIDE).is_ok_and(|inside| inside == name) {
        body();
        return;
    }
    let allowed = Command::new("unshare").args(["--net", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        let _ = writeln!(std::io::stderr(), "\nSKIPPED {name}: needs root and network namespaces");
        return;
    }
    // Whatever the test starts inside ends with it.
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1", "--include-ignored"])
        .env(INSIDE, name)
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "in a namespace of its own:\n{text}");
    assert!(text.contains("1 passed"), "no test is called {name}\n{text}");
}

/// Runs a program with these words, which must succeed. Returns what it said.
pub fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Calls `attempt` until it gives something. Fails after `DEADLINE`.
pub fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}
