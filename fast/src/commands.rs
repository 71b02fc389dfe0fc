// SPDX-License-Identifier: Apache-2.0
//! The commands that end by themselves.

use std::fs;
use std::io;
use std::path::Path;

use crate::openflow::connection;
use crate::openflow::message;
use crate::openflow::mirror::{Broken, Mirror};
use crate::options::Place;
use crate::{rows, show};

/// Why a command did nothing: one line.
pub type Failed = String;

/// Prints what a bridge's rows allow. Reads them from the bridge or from a file; saves them if
/// asked to.
pub fn plan(place: &Place, save: Option<&Path>, from: Option<&Path>) -> Result<(), Failed> {
    let mirror = match from {
        Some(file) => {
            let bytes = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
            replay(&bytes).map_err(|why| format!("{}: {why}", file.display()))?
        }
        None => read_bridge(place, save)?,
    };
    println!("{}", show::plan(&rows::plan(mirror.bridge()).plan));
    Ok(())
}

/// What a bridge once said, as a mirror of it.
pub fn replay(bytes: &[u8]) -> Result<Mirror, String> {
    let mut mirror = Mirror::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = message::first(rest).ok().flatten().ok_or("not a saved bridge")?;
        mirror.take_in(&rest[..length]).map_err(|_| "not a saved bridge")?;
        rest = &rest[length..];
    }
    match mirror.is_whole() {
        true => Ok(mirror),
        false => Err("not the whole of a bridge".into()),
    }
}

fn read_bridge(place: &Place, save: Option<&Path>) -> Result<Mirror, Failed> {
    let path = place.socket();
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let (mut sender, mut receiver) = connection::connect(&path).map_err(failed)?;
    let mut mirror = Mirror::new();
    let mut said = Vec::new();
    while !mirror.is_whole() {
        sender.send(&mirror.take_messages()).map_err(failed)?;
        let message = receiver.next().map_err(failed)?;
        mirror.take_in(&message).map_err(|why| format!("{}: {why}", path.display()))?;
        said.extend(message);
    }
    if let Some(file) = save {
        fs::write(file, said).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(mirror)
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Malformed => f.write_str("the bridge does not speak OpenFlow 1.5"),
            Broken::Refused(kind, code) => {
                write!(f, "the bridge refuses a request (error {kind}, {code})")
            }
        }
    }
}
