// SPDX-License-Identifier: Apache-2.0
//! Opens the devices that the options name, and finds out what the engine needs to know of them.

use std::path::PathBuf;

use crate::options::{Mode, Nic, Options};
use crate::sys::interface::Interfaces;
use crate::sys::packet::PacketSocket;
use crate::sys::tap::Tap;
use crate::sys::Unavailable;
use crate::wire::{ETHERNET, ETHERTYPE, OVERHEAD};

use super::log::{say, Level};

/// Bytes that a frame of the wire may have in addition to its payload: the Ethernet header, and
/// tags of ours and of others.
const HEADS: usize = 128;

/// The wire side.
#[derive(Debug)]
pub enum Wire {
    /// A TAP that is a port of the bridge.
    Bridge(Tap),
    /// The NICs, with their names; their ports are 0, 1, ... as the options list them.
    Nics(Vec<(String, PacketSocket)>),
}

/// The device of the programs beside the bridge, and what else is needed for them.
#[derive(Debug)]
pub struct Beside {
    /// The TAP by which they give frames, and get them back.
    pub hold: Tap,
    /// The socket that has their maps.
    pub maps: PathBuf,
    /// A full frame on the medium, in bytes.
    pub full: usize,
    /// Memory for frames that came early, in bytes.
    pub max_bytes: usize,
}

/// All devices.
#[derive(Debug)]
pub struct Devices {
    /// The TAP to the host.
    pub plain: Tap,
    /// The way to the other hosts.
    pub wire: Wire,
    /// The programs beside the bridge, if they are wanted and their device is there.
    pub beside: Option<Beside>,
    /// Room that a frame of the wire needs, in bytes.
    pub frame_room: usize,
}

/// A NIC of ours, without a bridge.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnNic {
    /// Its port: its position among the NICs, from 0.
    pub port: u8,
    /// The interface's name.
    pub name: String,
    /// The source address of its frames.
    pub mac: [u8; 6],
    /// What its cable carries, in bit/s.
    pub rate_bps: u64,
}

/// What the engine needs to know of the devices.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Facts {
    /// The host's own MAC: from the options or, without a bridge, from the plain TAP.
    pub own_mac: Option<[u8; 6]>,
    /// Without a bridge: the NICs.
    pub nics: Vec<OwnNic>,
}

impl Devices {
    /// Opens the devices. Needs CAP_NET_ADMIN; without a bridge, CAP_NET_RAW as well.
    pub fn open(options: &Options) -> Result<(Devices, Facts), Unavailable> {
        let frame_room = (options.mtu_wire + HEADS).max(2048);
        match &options.mode {
            Mode::Bridge { wire } => {
                let wire = Wire::Bridge(Tap::open(wire, false, false)?);
                let plain = Tap::open(&options.plain, options.gro, options.gro)?;
                Ok((
                    Devices { plain, wire, beside: beside(options), frame_room },
                    Facts { own_mac: options.mac, nics: Vec::new() },
                ))
            }
            Mode::Autonomous { nics, persistent, .. } => {
                let failed = |error| Unavailable::because("interfaces", &error);
                let interfaces = Interfaces::open().map_err(failed)?;
                let own = (0u8..).zip(nics).map(|(port, nic)| own_nic(&interfaces, port, nic));
                let own = own.collect::<Result<Vec<_>, _>>()?;
                let sockets = nics
                    .iter()
                    .map(|nic| Ok((nic.name.clone(), PacketSocket::open(&nic.name, ETHERTYPE)?)));
                let wire = Wire::Nics(sockets.collect::<Result<Vec<_>, _>>()?);
                let (plain, own_mac) = own_plain(&interfaces, options, *persistent, own.first())?;
                Ok((
                    Devices { plain, wire, beside: None, frame_room },
                    Facts { own_mac: Some(own_mac), nics: own },
                ))
            }
        }
    }
}

/// Opens the device of the programs beside the bridge. Without it, all traffic takes its usual way.
fn beside(options: &Options) -> Option<Beside> {
    let wanted = options.beside.as_ref()?;
    match Tap::open(&wanted.hold, true, true) {
        Ok(hold) => Some(Beside {
            hold,
            maps: wanted.maps.clone(),
            full: options.mtu_wire + ETHERNET + options.overhead,
            max_bytes: options.max_memory / 4,
        }),
        Err(error) => {
            say!(Level::Warn, "{error}; no TCP goes beside the bridge");
            None
        }
    }
}

fn own_nic(interfaces: &Interfaces, port: u8, nic: &Nic) -> Result<OwnNic, Unavailable> {
    let name = nic.name.clone();
    let mac = interfaces
        .mac(&name)
        .map_err(|error| Unavailable::because(format_args!("NIC {name}"), &error))?;
    let rate_bps = nic.rate_bps.or_else(|| interfaces.speed_bps(&name));
    let rate_bps = rate_bps.ok_or_else(|| {
        Unavailable(format!(
            "NIC {name} does not know how fast its cable is: say it, as in --wire {name}=1G"
        ))
    })?;
    if !interfaces.is_up(&name) {
        say!(Level::Warn, "NIC {name} is down, or has no carrier");
    }
    Ok(OwnNic { port, name, mac, rate_bps })
}

/// The TAP to the host, which is made and set up if it was not there, and the host's MAC.
fn own_plain(
    interfaces: &Interfaces,
    options: &Options,
    persistent: bool,
    first: Option<&OwnNic>,
) -> Result<(Tap, [u8; 6]), Unavailable> {
    let name = &options.plain;
    let failed = |error| Unavailable::because(format_args!("TAP {name}"), &error);
    let (tap, made) = Tap::open_or_make(name, options.gro, options.gro)?;
    if persistent {
        tap.set_persistent(true).map_err(failed)?;
    }
    if made {
        if let Some(mac) = options.mac.or(first.map(|nic| lasting_mac(nic.mac))) {
            interfaces.set_mac(name, mac).map_err(failed)?;
        }
    }
    let room = options.mtu_wire - OVERHEAD;
    if made || interfaces.mtu(name).map_err(failed)? > room {
        interfaces.set_mtu(name, room).map_err(failed)?;
    }
    interfaces.set_up(name).map_err(failed)?;
    let mac = match options.mac {
        Some(mac) => mac,
        None => interfaces.mac(name).map_err(failed)?,
    };
    Ok((tap, mac))
}

/// A MAC for the host: locally administered, not the NIC's own, and the same whenever the helper
/// starts, since others keep it in their tables.
fn lasting_mac(nic: [u8; 6]) -> [u8; 6] {
    let mut mac = nic;
    mac[0] = (mac[0] | 0x02) ^ 0x40;
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_mac_is_local_for_one_host_and_differs_from_the_nics() {
        for first in (0..=255u8).filter(|byte| byte & 1 == 0) {
            let nic = [first, 1, 2, 3, 4, 5];
            let host = lasting_mac(nic);
            assert!(host != nic && host[0] & 3 == 2, "{nic:?} {host:?}");
        }
    }
}
