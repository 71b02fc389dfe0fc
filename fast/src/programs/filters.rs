// SPDX-License-Identifier: Apache-2.0
//! The filter of Open vSwitch's packet sockets.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::sys::packet::PacketSocket;
use crate::sys::process::Process;

/// A process's packet sockets on these interfaces, each with its name (`socket:[NUMBER]`), in this
/// network namespace alone. Those whose name is in `known` are only named.
pub fn packet_sockets(
    pid: u32,
    ifindexes: &BTreeSet<u32>,
    known: &BTreeSet<String>,
) -> io::Result<Vec<(String, Option<PacketSocket>)>> {
    let folder = format!("/proc/{pid}");
    let same = |other: &str| std::fs::read_link(other);
    if same(&format!("{folder}/ns/net"))? != same("/proc/thread-self/ns/net")? {
        return Ok(Vec::new());
    }
    let process = Process::open(pid)?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(format!("{folder}/fd"))? {
        let entry = entry?;
        // A descriptor may be closed meanwhile.
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let name = target.to_string_lossy().into_owned();
        if !name.starts_with("socket:") {
            continue;
        }
        if known.contains(&name) {
            found.push((name, None));
            continue;
        }
        let number = entry.file_name().to_string_lossy().parse().unwrap_or(-1);
        let descriptor = match process.descriptor(number) {
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => continue,
            descriptor => descriptor?,
        };
        let Some(socket) = PacketSocket::from(descriptor) else { continue };
        if ifindexes.contains(&socket.ifindex()?) {
            found.push((name, Some(socket)));
        }
    }
    Ok(found)
}

/// Gives a socket the program as its filter.
pub fn set(socket: &PacketSocket, program: impl AsFd) -> io::Result<()> {
    socket.set_filter(program)?;
    socket.set_ignores_outgoing(true)
}

/// Gives the sockets of all ovs-vswitchd on these interfaces a filter like Open vSwitch's own
/// instead of a program.
pub fn restore(ifindexes: &BTreeSet<u32>) -> io::Result<()> {
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let pid = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        let Some(pid) = pid.filter(|_| is_vswitchd(&path)) else { continue };
        let sockets = match packet_sockets(pid, ifindexes, &BTreeSet::new()) {
            // The process has ended.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
                continue
            }
            sockets => sockets?,
        };
        for socket in sockets.iter().filter_map(|(_, socket)| socket.as_ref()) {
            if socket.has_program() {
                socket.refuse_outgoing()?;
                socket.set_ignores_outgoing(false)?;
            }
        }
    }
    Ok(())
}

fn is_vswitchd(process: &Path) -> bool {
    let name = std::fs::read_to_string(process.join("comm"));
    name.is_ok_and(|name| name.trim_end() == "ovs-vswitchd")
}
