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
