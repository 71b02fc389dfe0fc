// SPDX-License-Identifier: Apache-2.0
//! A network namespace of its own for a test, which runs itself again inside, and devices in it.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use ri2n_reorder::sys::interface::Interfaces;

const INSIDE: &str = "RI2N_TEST_NAMESPACE";
/// Nothing for which a test waits takes long. This is for what never happens, on a machine that may
/// be very busy.
const DEADLINE: Duration = Duration::from_secs(180);

/// Runs `body`, a closure in a test, in a namespace of its own, as root. Without root, or where
/// namespaces are not allowed, it says so on standard error (past the test runner, which would hide
/// it), and nothing is tested.
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
    let test = std::env::current_exe().unwrap();
    // On one CPU: when the machine is busy, frames that two CPUs sent over a veth may arrive in any
    // order.
    let output = Command::new("unshare")
        .args(["--net", "taskset", "--cpu-list", &some_cpu()])
        .arg(test)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
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

/// Runs `ip` with these words, which must succeed.
pub fn ip(words: &str) {
    run("ip", words);
}

/// Runs a program with these words, which must succeed.
pub fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split_whitespace()).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A CPU that this process may use: the one on which it ran last.
fn some_cpu() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The fields are counted from behind the name, which may have spaces, as the 3rd. The 39th is
    // the CPU.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(39 - 3).unwrap().to_owned()
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

/// Makes a persistent TAP that is up and quiet.
pub fn make_tap(name: &str) {
    ip(&format!("tuntap add {name} mode tap"));
    quiet(name);
    ip(&format!("link set {name} up"));
}

/// Makes a pair of veths that are up and quiet, with carrier.
pub fn make_veth(one: &str, other: &str) {
    ip(&format!("link add {one} type veth peer name {other}"));
    for name in [one, other] {
        quiet(name);
        ip(&format!("link set {name} up"));
    }
    let interfaces = Interfaces::open().unwrap();
    wait_for("the carrier", || (interfaces.is_up(one) && interfaces.is_up(other)).then_some(()));
}

/// Turns IPv6 off on an interface, so that the kernel sends nothing on its own.
pub fn quiet(name: &str) {
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").unwrap();
}
