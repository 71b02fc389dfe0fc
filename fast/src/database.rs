// SPDX-License-Identifier: Apache-2.0
//! What Open vSwitch's database says of a bridge, and no row does: whether somebody wants to see all
//! its frames, or some of them end in Open vSwitch itself.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{json, Value};

/// More than this the database does not say about its bridges.
const MOST_BYTES: usize = 16 << 20;
/// The columns of who wants to see all frames of a bridge.
const OBSERVERS: [&str; 4] = ["mirrors", "sflow", "netflow", "ipfix"];
const SPANNING_TREES: [&str; 2] = ["stp_enable", "rstp_enable"];
/// Interfaces of other types are tunnels, or may be.
const NO_TUNNELS: [&str; 8] =
    ["", "system", "internal", "tap", "patch", "null", "afxdp", "afxdp-nonpmd"];

/// Follows the database until it is gone. Calls `told` with whether the bridge must have all frames:
/// because it has mirrors, sFlow, NetFlow or IPFIX, where what passes beside it would be missing;
/// because a spanning tree closes its ports; or because of tunnels. On the netdev datapath a tunnel
/// of any bridge ends in Open vSwitch, where a row sends its frames to the host.
pub fn follow(path: &Path, bridge: &str, mut told: impl FnMut(bool)) -> io::Result<()> {
    let mut stream = UnixStream::connect(path)?;
    let of_bridges = [&["name", "datapath_type"][..], &OBSERVERS, &SPANNING_TREES].concat();
    let tables = json!({
        "Bridge": {"columns": of_bridges},
        "Interface": {"columns": ["type"]},
    });
    let ask = json!({
        "id": 0,
        "method": "monitor",
        "params": ["Open_vSwitch", null, tables],
    });
    stream.write_all(ask.to_string().as_bytes())?;
    let mut known = Known::default();
    let mut bytes = Vec::new();
    let mut buffer = [0; 1 << 14];
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend(&buffer[..read]);
        for message in values(&mut bytes)? {
            if message["method"] == "echo" {
                let answer =
                    json!({"id": message["id"], "result": message["params"], "error": null});
                stream.write_all(answer.to_string().as_bytes())?;
            } else if known.take_in(&message) {
                told(known.needs_all(bridge));
            }
        }
    }
}

/// The whole values at the front of these bytes, which are taken off.
fn values(bytes: &mut Vec<u8>) -> io::Result<Vec<Value>> {
    let mut all = Vec::new();
    let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    for value in stream.by_ref() {
        match value {
            Ok(value) => all.push(value),
            Err(error) if error.is_eof() => break,
            Err(error) => return Err(error.into()),
        }
    }
    let done = stream.byte_offset();
    bytes.drain(..done);
    if bytes.len() > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an endless message"));
    }
    Ok(all)
}

/// The database's bridges and interfaces by their row numbers.
#[derive(Debug, Default)]
struct Known {
    bridges: BTreeMap<String, Value>,
    interfaces: BTreeMap<String, Value>,
}

impl Known {
    /// Takes in a message. Returns whether it said something of the database.
    fn take_in(&mut self, message: &Value) -> bool {
        let update = match message["method"].as_str() {
            Some("update") => &message["params"][1],
            Some(_) => return false,
            None => &message["result"],
        };
        for (table, rows) in [("Bridge", &mut self.bridges), ("Interface", &mut self.interfaces)] {
            for (number, change) in update[table].as_object().into_iter().flatten() {
                match &change["new"] {
                    row @ Value::Object(_) => drop(rows.insert(number.clone(), row.clone())),
                    _ => drop(rows.remove(number)),
                }
            }
        }
        true
    }

    fn needs_all(&self, name: &str) -> bool {
        let is_tunnel =
            |it: &Value| it["type"].as_str().is_none_or(|kind| !NO_TUNNELS.contains(&kind));
        // An empty set is ["set", []]; a reference is ["uuid", ...].
        let is_observed =
            |row: &Value| OBSERVERS.iter().any(|column| row[*column] != json!(["set", []]));
        let has_tree = |row: &Value| SPANNING_TREES.iter().any(|column| row[*column] == true);
        let may_end_tunnels = |row: &Value| {
            row["datapath_type"] == "netdev" && self.interfaces.values().any(is_tunnel)
        };
        let mut rows = self.bridges.values().filter(|row| row["name"] == name);
        rows.any(|row| is_observed(row) || has_tree(row) || may_end_tunnels(row))
    }
}
