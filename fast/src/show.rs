// SPDX-License-Identifier: Apache-2.0
//! A plan as JSON, for people and for scripts.

use serde_json::{json, Map, Value};

use crate::plan::{Exception, Left, Mac, Path, Plan};

/// A MAC address as people write it.
pub fn mac(mac: &Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The code of a reason.
pub fn left(left: Left) -> &'static str {
    match left {
        Left::Striped => "striped",
        Left::Undecided => "undecided",
        Left::Unsupported => "unsupported",
        Left::TooMany => "too_many",
    }
}

/// The whole plan.
pub fn plan(plan: &Plan) -> Value {
    let peers = plan.peers.iter().map(|(peer, known)| {
        let paths: Vec<Value> = known.paths.iter().map(path).collect();
        (mac(peer), json!({"paths": paths, "slots": known.slots.to_vec()}))
    });
    let arrivals: Vec<Value> = plan
        .arrivals
        .iter()
        .map(|(arrival, source)| {
            json!({
                "port": arrival.port,
                "source": mac(&arrival.source),
                "destination": mac(&arrival.destination),
                "vlan": arrival.vlan,
                "peer": mac(&source.peer),
            })
        })
        .collect();
    let left = plan.left.iter().map(|(peer, why)| (mac(peer), Value::from(left(*why))));
    json!({
        "own": plan.own.as_ref().map(mac),
        "peers": peers.collect::<Map<_, _>>(),
        "arrivals": arrivals,
        "exceptions": plan.exceptions.iter().map(exception).collect::<Vec<_>>(),
        "left": left.collect::<Map<_, _>>(),
    })
}

fn path(path: &Path) -> Value {
    json!({
        "id": path.id,
        "port": path.port,
        "source": mac(&path.source),
        "destination": mac(&path.destination),
        "vlan": path.vlan,
    })
}

fn exception(one: &Exception) -> Value {
    json!({
        "protocol": one.protocol,
        "source_port": one.source_port,
        "destination_port": one.destination_port,
    })
}
