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

/// What a watch says of itself, in lines.
pub fn status(status: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let programs = match text(&status["programs"]).as_str() {
        "in_force" => "in force".to_owned(),
        "no_device" => "a device is missing".to_owned(),
        "refused" => format!("refused: {}", text(&status["refused"]["text"])),
        other => other.to_owned(),
    };
    let filter = match text(&status["filter"]).as_str() {
        "not_needed" => "not needed",
        "in_force" => "in force",
        _ => "not in force: Open vSwitch copies the frames, which costs time",
    };
    let order = match (text(&status["order"]).as_str(), text(&status["order_lacks"]).as_str()) {
        ("ready", _) => "put in order by the helper".to_owned(),
        (_, "device") => format!("not put in order: no device {}", text(&status["hold"])),
        (_, "programs") => "not put in order: it comes by the bridge".to_owned(),
        _ => "not put in order: no helper has the maps".to_owned(),
    };
    let mut lines = vec![
        format!("bridge {}: programs {programs}", text(&status["bridge"])),
        format!("filter of Open vSwitch's packet sockets: {filter}"),
        format!("TCP that comes in without the helper's header: {order}"),
    ];
    if let Some(bound) = status["gso_max_size"].as_u64() {
        lines.push(format!("TCP sends pieces of at most {bound} bytes"));
    }
    for (way, verb) in [("sent", "sent"), ("arrived", "received")] {
        let sum = &status[way];
        lines.push(format!("{verb} {} packets, {} bytes", sum["packets"], sum["bytes"]));
    }
    let met: Vec<String> = (status["tcp"].as_object().into_iter().flatten())
        .filter(|(_, count)| **count != 0)
        .map(|(what, count)| format!("{what} {count}"))
        .collect();
    if !met.is_empty() {
        lines.push(format!("TCP beside the helper: {}", met.join(", ")));
    }
    for (peer, state) in status["states"].as_object().into_iter().flatten() {
        lines.push(format!("{peer} {}", text(state)));
    }
    lines
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
                "lane": source.lane,
            })
        })
        .collect();
    let left = plan.left.iter().map(|(peer, why)| (mac(peer), Value::from(left(*why))));
    let striped = plan.striped.iter().map(|(peer, striped)| {
        let paths = striped.paths.iter().map(|(link, of)| (link.to_string(), path(of)));
        (mac(peer), Value::from(paths.collect::<Map<_, _>>()))
    });
    let others = plan.striped.iter().filter(|(_, striped)| striped.others);
    json!({
        "own": plan.own.as_ref().map(mac),
        "peers": peers.collect::<Map<_, _>>(),
        "striped": striped.collect::<Map<_, _>>(),
        "not_only_tcp": others.map(|(peer, _)| mac(peer)).collect::<Vec<_>>(),
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
