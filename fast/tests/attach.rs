// SPDX-License-Identifier: Apache-2.0
//! Programs at devices: attached, replaced, removed.

use crate::namespace::{in_namespace, run};
use ri2n_fast::programs::{Device, Programs};

fn nic(name: &str) -> Vec<Device> {
    vec![Device { port: 1, name: name.to_owned() }]
}

fn standing() -> String {
    ["local egress", "nic ingress"]
        .map(|place| run(&format!("tc filter show dev {place}")))
        .concat()
}

#[test]
fn programs_stay_and_go() {
    in_namespace(|| {
        run("ip link add local type veth peer name host");
        run("ip link add nic type veth peer name wire");
        let mut programs = Programs::load("local", &nic("nic")).unwrap();
        assert_eq!(standing(), "", "loading attaches nothing");
        programs.attach().unwrap();
        assert_eq!(programs.notes(), ["nic: rx is attached", "local: tx is attached"]);
        programs.attach().unwrap();
        assert_eq!(programs.notes(), [""; 0], "what stands already stays");
        drop(programs);
        let text = standing();
        assert!(text.matches("ri2n-fast").count() == 2, "{text}");

        let mut programs = Programs::load("local", &nic("nic")).unwrap();
        programs.attach().unwrap();
        assert_eq!(programs.notes(), ["nic: rx is replaced", "local: tx is replaced"]);
        let text = standing();
        assert!(text.matches("ri2n-fast").count() == 2, "{text}");

        Programs::unload("local", &nic("nic")).unwrap();
        assert_eq!(standing(), "");
        for device in ["local", "nic"] {
            assert!(!run(&format!("tc qdisc show dev {device}")).contains("clsact"));
        }
        Programs::unload("local", &nic("nic")).unwrap();
    });
}

#[test]
fn the_helpers_device_comes_and_goes() {
    in_namespace(|| {
        make();
        let mut programs = Programs::load("local", &nic("nic")).unwrap();
        assert!(!programs.set_hold(Some("hold")).unwrap());
        assert_eq!(programs.notes(), ["there is no device hold"]);
        run("ip tuntap add hold mode tap");
        programs.attach().unwrap();
        let notes =
            ["nic: rx is attached", "local: tx is attached", "hold: inj is attached"].to_vec();
        assert_eq!(programs.notes(), notes, "as soon as it is there");
        let standing = || run("tc filter show dev hold ingress");
        assert!(standing().contains("ri2n-fast"));
        assert!(programs.set_hold(Some("hold")).unwrap());
        assert_eq!(programs.notes(), [""; 0], "what stands already stays");
        assert!(!programs.set_hold(None).unwrap());
        assert!(standing().contains("ri2n-fast"), "what was held may still come back");

        run("ip link del hold");
        assert!(!programs.set_hold(Some("hold")).unwrap());
        run("ip tuntap add hold mode tap");
        run("tc qdisc add dev hold clsact");
        add_foreign("hold ingress", 21_042);
        let refusal = programs.set_hold(Some("hold")).unwrap_err();
        let text = "hold: somebody else's bpf filter has our priority 21042";
        assert_eq!((refusal.code, refusal.text.as_str()), ("device", text));
        run("tc qdisc del dev hold clsact");
        assert!(programs.set_hold(Some("hold")).unwrap());

        Programs::unload("local", &[nic("nic"), nic("hold")].concat()).unwrap();
        assert_eq!(standing(), "");
        assert!(!run("tc qdisc show dev hold").contains("clsact"));
    });
}

fn make() {
    run("ip link add local type veth peer name host");
    run("ip link add nic type veth peer name wire");
}

/// Adds a filter that nothing matches.
fn add_foreign(place: &str, priority: u16) {
    let file = format!("/tmp/ri2n-fast-foreign-{}", std::process::id());
    std::fs::write(&file, "1,6 0 0 0").unwrap();
    let line =
        format!("tc filter add dev {place} pref {priority} protocol ip bpf bytecode-file {file}");
    run(&format!("{line} flowid 1:1"));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_others_attached_stays() {
    in_namespace(|| {
        make();
        run("tc qdisc add dev nic clsact");
        add_foreign("nic ingress", 10);
        add_foreign("nic egress", 10);
        let mut programs = Programs::load("local", &nic("nic")).unwrap();
        programs.attach().unwrap();
        let notes = programs.notes();
        let first = "nic: a bpf filter of somebody else's, priority 10, comes before ours";
        assert_eq!(notes, [first, "nic: rx is attached", "local: tx is attached"]);
        add_foreign("local egress", 60_000);
        Programs::unload("local", &nic("nic")).unwrap();
        for place in ["nic ingress", "nic egress", "local egress"] {
            let text = run(&format!("tc filter show dev {place}"));
            assert!(text.contains("pref") && !text.contains("ri2n-fast"), "{text}");
        }
    });
}

#[test]
fn somebody_elses_place_is_refused() {
    in_namespace(|| {
        make();
        run("tc qdisc add dev nic clsact");
        add_foreign("nic ingress", 21_042);
        let mut programs = Programs::load("local", &nic("nic")).unwrap();
        let refusal = programs.attach().unwrap_err();
        assert_eq!(refusal.code, "device");
        let text = "nic: somebody else's bpf filter has our priority 21042";
        assert_eq!(refusal.text, text);
        run("tc filter del dev nic ingress");
        run("tc qdisc add dev local ingress");
        let refusal = programs.attach().unwrap_err();
        assert_eq!(refusal.code, "device");
        let text = "local: somebody else's qdisc ingress is in the place of clsact";
        assert_eq!(refusal.text, text);
        run("tc qdisc del dev local ingress");
        programs.attach().unwrap();
    });
}

#[test]
fn a_qdisc_that_is_there_is_used() {
    in_namespace(|| {
        make();
        run("tc qdisc add dev nic ingress");
        let mut programs = Programs::load("local", &nic("nic")).unwrap();
        programs.attach().unwrap();
        assert!(standing().matches("ri2n-fast").count() == 2);
        // As Open vSwitch does when it takes a port anew.
        run("tc qdisc del dev nic ingress");
        programs.attach().unwrap();
        assert_eq!(programs.notes(), ["nic: rx is attached"]);
        Programs::unload("local", &nic("nic")).unwrap();
        assert!(!run("tc qdisc show dev nic").contains("clsact"));
    });
}

#[test]
fn a_device_that_was_made_anew_gets_its_program() {
    in_namespace(|| {
        make();
        let mut programs = Programs::load("local", &nic("nic")).unwrap();
        programs.attach().unwrap();
        run("ip link del nic");
        programs.attach().unwrap();
        assert_eq!(programs.notes(), ["there is no device nic"]);
        run("ip link add nic type veth peer name wire");
        programs.attach().unwrap();
        assert_eq!(programs.notes(), ["nic: rx is attached"]);
        run("ip link del local");
        let refusal = programs.attach().unwrap_err();
        assert_eq!((refusal.code, refusal.text.as_str()), ("device", "there is no device local"));
        run("ip link add local type veth peer name host");
        programs.attach().unwrap();
        assert_eq!(programs.notes(), ["local: tx is attached"]);
        // A NIC of a bridge alone.
        Programs::unload("", &nic("nic")).unwrap();
        assert!(standing().matches("ri2n-fast").count() == 1);
    });
}

const RIGHTS: &str = "RI2N_FAST_TEST_RIGHTS";

/// Runs this test once more, inside, as root with these capabilities alone.
fn again_with(rights: &str, name: &str) {
    let output = std::process::Command::new("setpriv")
        .arg(format!("--bounding-set=-all{rights}"))
        .args(["--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(RIGHTS, rights)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{rights}: {text}{errors}");
}

#[test]
fn a_load_needs_few_rights_and_says_what_is_missing() {
    in_namespace(|| match std::env::var(RIGHTS).ok().as_deref() {
        None => {
            make();
            let name = "attach::a_load_needs_few_rights_and_says_what_is_missing";
            again_with("", name);
            again_with(",+bpf,+net_admin,+perfmon", name);
            // A later one, which takes the place. (Linux 6.1 does not take the programs without
            // CAP_PERFMON, 6.18 does.)
            again_with(",+bpf,+net_admin,+perfmon", name);
        }
        Some("") => {
            let refusal = Programs::load("local", &nic("nic")).unwrap_err();
            assert_eq!(refusal.code, "permission", "{}", refusal.text);
        }
        Some(_) => {
            let mut programs = Programs::load("local", &nic("nic")).unwrap();
            programs.attach().unwrap();
            programs.counts().unwrap();
        }
    });
}
