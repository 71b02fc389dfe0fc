// SPDX-License-Identifier: Apache-2.0
//! The commands that end by themselves.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{json, Value};

use crate::openflow::connection;
use crate::openflow::message::{self, kind, Message};
use crate::openflow::mirror::{Broken, Mirror, REPORT};
use crate::options::Place;
use crate::plan::Plan;
use crate::programs::segments::Segments;
use crate::programs::{Device, Programs};
use crate::report::{self, Filter, Force, Head, Order, State};
use crate::rows::model::LOCAL;
use crate::rows::NICS_END;
use crate::watch::sources::{self, Request};
use crate::{rows, show, sys};

/// Why a command did nothing: one line.
pub type Failed = String;

/// Prints a line. Whoever reads may have seen enough.
macro_rules! tell {
    ($($text:tt)*) => { drop(writeln!(io::stdout(), $($text)*)) };
}

/// A bridge or a watch that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(5);

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
    tell!("{}", show::plan(&rows::plan(mirror.bridge()).plan));
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

/// Says what a running watch does: its JSON, or lines for people.
pub fn status(state: &Path, as_json: bool) -> Result<(), Failed> {
    let answer = ask(state, Request::Status)
        .map_err(|_| format!("no ri2n-fast watch answers in {}", state.display()))?;
    if as_json {
        tell!("{}", answer.trim_end());
        return Ok(());
    }
    let status: Value = serde_json::from_str(&answer)
        .map_err(|_| format!("what answers in {} is no ri2n-fast watch", state.display()))?;
    show::status(&status).iter().for_each(|line| tell!("{line}"));
    Ok(())
}

/// Loads the programs once, and says whether the kernel takes them. Err: it does not.
pub fn probe(as_json: bool) -> Result<(), Option<Failed>> {
    let refusal = Programs::load("", &[]).err();
    let text = refusal.as_ref().map(|why| why.text.clone());
    if as_json {
        let code = refusal.as_ref().map(|why| why.code);
        tell!("{}", json!({"takes": refusal.is_none(), "code": code, "text": text}));
    } else {
        match &text {
            None => tell!("this kernel takes the programs"),
            Some(why) => tell!("this kernel does not take the programs: {why}"),
        }
    }
    refusal.map_or(Ok(()), |_| Err(None))
}

/// Removes the programs. With a bridge, a running watch is ended first, and the bridge's own
/// device, all its NICs and the helper's device are freed, as far as they are there; without one,
/// only these NICs are.
pub fn unload(
    bridge: Option<&Place>,
    nics: &[String],
    hold: &str,
    state: &Path,
) -> Result<(), Failed> {
    let named = nics.iter().map(|name| Device { port: 0, name: name.clone() });
    let mut devices: Vec<Device> = named.collect();
    let Some(place) = bridge else { return remove("", &devices) };
    devices.push(Device { port: 0, name: hold.to_owned() });
    // Nobody answers when no watch runs. Otherwise the connection ends with it.
    let ended = ask(state, Request::End).is_ok();
    let mirror = read_bridge(place, None).ok();
    let mut local = place.bridge.clone();
    if let Some(mirror) = &mirror {
        for (number, port) in &mirror.bridge().ports {
            if *number == LOCAL {
                local = port.name.clone();
            } else if *number < NICS_END && !devices.iter().any(|it| it.name == port.name) {
                devices.push(Device { port: *number, name: port.name.clone() });
            }
        }
    }
    if !ended {
        Segments::reset(&local).map_err(|why| why.text)?;
    }
    remove(&local, &devices)?;
    if let Some(mirror) = mirror {
        // The controller would hear it from nobody else, but can do without.
        let _ = tell_off(place, &mirror);
    }
    Ok(())
}

fn remove(local: &str, nics: &[Device]) -> Result<(), Failed> {
    Programs::unload(local, nics).map_err(|why| why.text)
}

/// Tells the controller that there are no programs any more.
fn tell_off(place: &Place, mirror: &Mirror) -> io::Result<()> {
    let Some(local) = mirror.bridge().ports.get(&LOCAL) else { return Ok(()) };
    let head = Head { own: local.mac, epoch: 0, time_ns: sys::now_ns() };
    let off = State {
        programs: Force::Off,
        filter: Filter::NotNeeded,
        order: Order::None,
        errno: 0,
        dropped: 0,
        obeyed: 0,
    };
    let frames = report::state(&head, &off, &Plan::default(), &BTreeSet::new());
    let (mut sender, mut receiver) = connection::connect(&place.socket())?;
    receiver.wait_at_most(PATIENCE)?;
    let reports = frames.iter().map(|frame| message::to_controllers(REPORT, frame));
    let mut messages = vec![message::hello()];
    messages.extend(reports);
    messages.push(message::echo(REPORT));
    sender.send(&messages)?;
    // What answers the echo has seen the report.
    while Message::read(&receiver.receive()?).is_ok_and(|it| it.kind != kind::ECHO_REPLY) {}
    Ok(())
}

fn ask(state: &Path, request: Request) -> io::Result<String> {
    let mut stream = UnixStream::connect(sources::socket_in(state))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", request.line())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn read_bridge(place: &Place, save: Option<&Path>) -> Result<Mirror, Failed> {
    let path = place.socket();
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let (mut sender, mut receiver) = connection::connect(&path).map_err(failed)?;
    receiver.wait_at_most(PATIENCE).map_err(failed)?;
    let mut mirror = Mirror::new();
    let mut said = Vec::new();
    while !mirror.is_whole() {
        sender.send(&mirror.take_messages()).map_err(failed)?;
        let message = receiver.receive().map_err(failed)?;
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
