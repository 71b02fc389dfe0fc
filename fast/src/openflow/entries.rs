// SPDX-License-Identifier: Apache-2.0
//! Rows, groups and ports on the wire.

use super::actions::{actions, instructions};
use super::oxm;
use super::reader::{Malformed, Reader};
use crate::rows::model::{Bucket, Choice, Group, Port, Row, RowKey, ANY};

/// What a flow monitor tells of one row.
#[derive(Debug)]
pub(super) enum RowNews {
    /// The row is there, new or changed or as it was.
    Is(RowKey, Row),
    /// The row is gone.
    Gone(RowKey),
    /// What follows is incomplete until `Resumed`: the bridge had too much to say.
    Paused,
    /// What was left out has been told.
    Resumed,
}

/// The next entry of a flow monitor's message.
pub(super) fn row_news(from: &mut Reader) -> Result<RowNews, Malformed> {
    let mut entry = from.entry(0, 8)?;
    entry.skip(2)?;
    let event = entry.u16()?;
    match event {
        0..=3 => {}
        5 => return Ok(RowNews::Paused),
        6 => return Ok(RowNews::Resumed),
        _ => return Err(Malformed), // 4 answers changes of our own, and we make none
    }
    let table = entry.u8()?;
    entry.skip(1)?; // why a row went
    let idle_timeout_s = entry.u16()?;
    entry.skip(2)?; // hard_timeout
    let priority = entry.u16()?;
    entry.skip(4)?;
    let cookie = entry.u64()?;
    let (tests, encoded) = oxm::matched(&mut entry)?;
    let key = RowKey { table, priority, encoded: encoded.to_vec() };
    if event == 2 {
        return Ok(RowNews::Gone(key));
    }
    let actions = instructions(entry);
    Ok(RowNews::Is(key, Row { tests, actions, cookie, idles: idle_timeout_s > 0 }))
}

/// The next entry of a list of groups.
pub(super) fn group(from: &mut Reader) -> Result<(u32, Group), Malformed> {
    let mut entry = from.entry(0, 16)?;
    entry.skip(2)?;
    let kind = entry.u8()?;
    entry.skip(1)?;
    let id = entry.u32()?;
    let bytes = usize::from(entry.u16()?);
    entry.skip(6)?;
    let mut list = Reader::new(entry.slice(bytes)?);
    let mut buckets = Vec::new();
    while !list.is_empty() {
        buckets.push(bucket(&mut list)?);
    }
    const SELECT: u8 = 1;
    const FAST_FAILOVER: u8 = 3;
    let choice = match kind {
        SELECT if hashes(entry)? => Choice::Hash,
        FAST_FAILOVER => Choice::FirstLive,
        _ => Choice::Other,
    };
    Ok((id, Group { choice, buckets }))
}

/// Whether a group's properties ask for the datapath's own hash, or for nothing special.
fn hashes(mut properties: Reader) -> Result<bool, Malformed> {
    const NETRONOME: u32 = 0x154d;
    let mut hashes = true;
    while !properties.is_empty() {
        let mut one = properties.entry(2, 4)?;
        let padding = one.rest().len().next_multiple_of(8) - one.rest().len();
        properties.skip(padding.min(properties.rest().len()))?;
        let kind = one.u16()?;
        one.skip(2)?;
        let selection = kind == 0xffff && one.u32()? == NETRONOME && one.u32()? == 1;
        hashes &= selection && {
            one.skip(4)?;
            let method: [u8; 16] = one.array()?;
            method == *b"dp_hash\0\0\0\0\0\0\0\0\0" || method == [0; 16]
        };
    }
    Ok(hashes)
}

fn bucket(from: &mut Reader) -> Result<Bucket, Malformed> {
    let mut entry = from.entry(0, 8)?;
    entry.skip(2)?;
    let bytes = usize::from(entry.u16()?);
    entry.skip(4)?; // the bucket's number
    let mut bucket = Bucket {
        weight: 1,
        watch_port: None,
        watch_group: None,
        actions: actions(Reader::new(entry.slice(bytes)?)),
    };
    while !entry.is_empty() {
        let mut property = entry.entry(2, 4)?;
        let kind = property.u16()?;
        property.skip(2)?;
        match kind {
            0 => bucket.weight = property.u16()?,
            1 => bucket.watch_port = Some(property.u32()?).filter(|port| *port != ANY),
            2 => bucket.watch_group = Some(property.u32()?).filter(|group| *group != ANY),
            _ => {}
        }
    }
    Ok(bucket)
}

/// The next port of a list.
pub(super) fn port(from: &mut Reader) -> Result<(u32, Port), Malformed> {
    const LIVE: u32 = 1 << 2;
    let mut entry = from.entry(4, 40)?;
    let number = entry.u32()?;
    entry.skip(4)?;
    let mac = entry.array()?;
    entry.skip(2)?;
    let name: [u8; 16] = entry.array()?;
    let (config, state) = (entry.u32()?, entry.u32()?);
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    Ok((number, Port { name, mac, live: state & LIVE != 0, restricted: config != 0 }))
}
