// SPDX-License-Identifier: Apache-2.0
//! What Open vSwitch's database says of a bridge, and no row does: whether somebody wants to see all
//! its frames.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{json, Value};

/// More than this the database does not say about its bridges.
const MOST_BYTES: usize = 16 << 20;

/// Follows the database until it is gone. Calls `told` with whether the bridge has mirrors, sFlow,
/// NetFlow or IPFIX. What passes beside a bridge would be missing there.
pub fn follow(path: &Path, bridge: &str, mut told: impl FnMut(bool)) -> io::Result<()> {
    let mut stream = UnixStream::connect(path)?;
    let columns = json!(["name", "mirrors", "sflow", "netflow", "ipfix"]);
    let ask = json!({
        "id": 0,
        "method": "monitor",
        "params": ["Open_vSwitch", null, {"Bridge": {"columns": columns}}],
    });
    stream.write_all(ask.to_string().as_bytes())?;
    let mut bridges = Bridges::default();
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
            } else if bridges.take_in(&message) {
                told(bridges.is_observed(bridge));
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

/// The database's bridges by their row numbers.
#[derive(Debug, Default)]
struct Bridges(std::collections::BTreeMap<String, Value>);

impl Bridges {
    /// Takes in a message. Returns whether it was about bridges.
    fn take_in(&mut self, message: &Value) -> bool {
        let update = match message["method"].as_str() {
            Some("update") => &message["params"][1],
            Some(_) => return false,
            None => &message["result"],
        };
        for (number, change) in update["Bridge"].as_object().into_iter().flatten() {
            match &change["new"] {
                Value::Object(row) => {
                    self.0.insert(number.clone(), Value::Object(row.clone()));
                }
                _ => drop(self.0.remove(number)),
            }
        }
        true
    }

    fn is_observed(&self, name: &str) -> bool {
        // An empty set is ["set", []]; a reference is ["uuid", ...].
        let has = |row: &Value, column: &str| row[column] != json!(["set", []]);
        let observers = ["mirrors", "sflow", "netflow", "ipfix"];
        let mut rows = self.0.values().filter(|row| row["name"] == name);
        rows.any(|row| observers.iter().any(|column| has(row, column)))
    }
}
