// SPDX-License-Identifier: Apache-2.0
//! Follows a bridge: messages go in, and the bridge's rows, groups and ports are there.

use std::collections::{BTreeMap, BTreeSet};

use super::entries::{self, RowNews};
use super::message::{self, kind, part, Message, ALL_GROUPS};
use super::reader::{Malformed, Reader};
use crate::rows::model::{Bridge, Group, Row};

const CONFIG: u32 = 1;
const ASYNC: u32 = 2;
const PORTS: u32 = 3;
const ROWS: u32 = 4;
const GROUPS: u32 = 5;
const ECHO: u32 = 7;
/// The number of packets that are sent to controllers.
pub const REPORT: u32 = 6;
/// Requests for single groups have these numbers and higher ones.
const ONE_GROUP: u32 = 0x100;

/// The highest 16 bits of the cookies of the controller's rows. The others are a hash of the row.
const CONTROLLERS: u64 = 0x5232;
/// The table of what the controller tells jobs. No frame meets these rows.
const ANSWERS: u8 = 247;

/// Why the bridge cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A message that is not OpenFlow, or not what its head says.
    Malformed,
    /// The bridge refused a request: type and code of its error.
    Refused(u16, u16),
}

impl From<Malformed> for Broken {
    fn from(_: Malformed) -> Self {
        Broken::Malformed
    }
}

/// What has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The tables whose rows are not what they were.
    pub tables: BTreeSet<u8>,
    /// Whether a group did.
    pub groups: bool,
    /// Whether a port did.
    pub ports: bool,
}

/// What is known of a bridge.
///
/// `bridge` is whole once `is_whole`. Before that, and while the bridge has more to tell than fits,
/// no conclusion may be drawn from it.
#[derive(Debug, Default)]
pub struct Mirror {
    bridge: Bridge,
    has_rows: bool,
    has_groups: bool,
    has_ports: bool,
    paused: bool,
    /// The exclusive or of the hashes of the controller's rows.
    hashes: u64,
    /// Groups that come in parts, until the last one is here.
    coming: BTreeMap<u32, Group>,
    /// For each request for a single group, which one.
    asked: BTreeMap<u32, u32>,
    last_asked: u32,
    is_answered: bool,
    changes: Changes,
    to_send: Vec<Vec<u8>>,
}

impl Mirror {
    /// A mirror that has greeted and asked for everything.
    pub fn new() -> Mirror {
        let asks = [
            message::hello(),
            message::set_config(CONFIG),
            message::set_async(ASYNC),
            message::ask_ports(PORTS),
            message::ask_groups(GROUPS, ALL_GROUPS),
            // The rows come last: a row that is known names groups that are known.
            message::monitor_rows(ROWS),
        ];
        Mirror { to_send: asks.to_vec(), last_asked: ONE_GROUP, ..Mirror::default() }
    }

    /// What is to be sent to the bridge, since the last call.
    pub fn take_messages(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.to_send)
    }

    /// The bridge as it is now.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// The controller's rows as one number, but for its answers to jobs. By this number, which is
    /// never 0, the controller knows whether the rows are those that it wants.
    pub fn digest(&self) -> u64 {
        CONTROLLERS << 48 | self.hashes
    }

    /// Whether all of the bridge is known.
    pub fn is_whole(&self) -> bool {
        self.has_rows && self.has_groups && self.has_ports && !self.paused && self.asked.is_empty()
    }

    /// What has changed since the last call.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Asks the bridge for a sign of life.
    pub fn ask_for_echo(&mut self) {
        self.to_send.push(message::echo(ECHO));
    }

    /// Whether it has come since the last call. Then all is known that the bridge did before it was
    /// asked, for it says everything in order.
    pub fn take_echo(&mut self) -> bool {
        std::mem::take(&mut self.is_answered)
    }

    /// Takes in a whole message.
    pub fn take_in(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let message = Message::read(bytes)?;
        let mut from = Reader::new(message.body);
        match message.kind {
            // A report that did not get through is followed by another one.
            kind::ERROR if message.id == REPORT => Ok(()),
            kind::ERROR => Err(Broken::Refused(from.u16()?, from.u16()?)),
            kind::ECHO_REQUEST => {
                self.to_send.push(message::message(kind::ECHO_REPLY, message.id, message.body));
                Ok(())
            }
            kind::ECHO_REPLY => {
                self.is_answered |= message.id == ECHO;
                Ok(())
            }
            kind::PORT_STATUS => Ok(self.port_status(from)?),
            kind::REQUEST_FORWARD => Ok(self.group_changed(from)?),
            kind::MULTIPART_REPLY => {
                let (part, more) = (from.u16()?, from.u16()? & 1 == 1);
                from.skip(4)?;
                match part {
                    part::FLOW_MONITOR => Ok(self.rows(from, message.id == ROWS && !more)?),
                    part::GROUPS => Ok(self.groups(from, message.id, more)?),
                    part::PORTS => Ok(self.ports(from, more)?),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn rows(&mut self, mut from: Reader, last: bool) -> Result<(), Malformed> {
        while !from.is_empty() {
            match entries::row_news(&mut from)? {
                RowNews::Is(key, row) => {
                    self.changes.tables.insert(key.table);
                    let (table, new) = (key.table, hash(key.table, Some(&row)));
                    let before = self.bridge.rows.insert(key, row);
                    self.hashes ^= new ^ hash(table, before.as_ref());
                }
                RowNews::Gone(key) => {
                    self.changes.tables.insert(key.table);
                    let before = self.bridge.rows.remove(&key);
                    self.hashes ^= hash(key.table, before.as_ref());
                }
                RowNews::Paused => self.paused = true,
                RowNews::Resumed => self.paused = false,
            }
        }
        self.has_rows |= last;
        Ok(())
    }

    fn groups(&mut self, mut from: Reader, id: u32, more: bool) -> Result<(), Malformed> {
        let mut got = BTreeMap::new();
        while !from.is_empty() {
            let (number, group) = entries::group(&mut from)?;
            got.insert(number, group);
        }
        if id == GROUPS {
            self.coming.extend(got);
            if !more {
                self.bridge.groups = std::mem::take(&mut self.coming);
                self.has_groups = true;
            }
        } else if let Some(number) = self.asked.remove(&id) {
            match got.remove(&number) {
                Some(group) => drop(self.bridge.groups.insert(number, group)),
                None => drop(self.bridge.groups.remove(&number)),
            }
        }
        self.changes.groups = true;
        Ok(())
    }

    fn ports(&mut self, mut from: Reader, more: bool) -> Result<(), Malformed> {
        while !from.is_empty() {
            let (number, port) = entries::port(&mut from)?;
            self.bridge.ports.insert(number, port);
        }
        self.has_ports |= !more;
        self.changes.ports = true;
        Ok(())
    }

    fn port_status(&mut self, mut from: Reader) -> Result<(), Malformed> {
        const DELETED: u8 = 1;
        let reason = from.u8()?;
        from.skip(7)?;
        let (number, port) = entries::port(&mut from)?;
        if reason == DELETED {
            self.bridge.ports.remove(&number);
        } else {
            self.bridge.ports.insert(number, port);
        }
        self.changes.ports = true;
        Ok(())
    }

    /// Somebody else changed a group. The message says which one; what it is now is asked for, for
    /// a change of single buckets does not say what becomes of the whole.
    fn group_changed(&mut self, mut from: Reader) -> Result<(), Malformed> {
        const HIGHEST_GROUP: u32 = 0xffff_ff00;
        from.skip(message::HEAD)?; // the head of the forwarded request
        from.skip(4)?; // command, type
        let number = from.u32()?;
        if number > HIGHEST_GROUP {
            self.has_groups = false;
            self.coming.clear();
            self.to_send.push(message::ask_groups(GROUPS, ALL_GROUPS));
            return Ok(());
        }
        self.last_asked = self.last_asked.checked_add(1).unwrap_or(ONE_GROUP);
        self.asked.insert(self.last_asked, number);
        self.to_send.push(message::ask_groups(self.last_asked, number));
        Ok(())
    }
}

/// The hash in the cookie of a row of the controller; 0 for all else.
fn hash(table: u8, row: Option<&Row>) -> u64 {
    let cookie = row.map_or(0, |row| row.cookie);
    if cookie >> 48 == CONTROLLERS && table != ANSWERS {
        cookie & 0xffff_ffff_ffff
    } else {
        0
    }
}
