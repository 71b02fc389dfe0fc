// SPDX-License-Identifier: Apache-2.0
//! Tells the service manager that this process is ready, and that it goes on.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The service manager, if it started this process and listens.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    ready: bool,
    every: Option<Duration>,
    told: Option<Instant>,
}

impl Manager {
    /// The manager that the environment names (systemd's protocol).
    pub fn from_environment() -> Manager {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Manager::default() };
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(path),
        };
        let socket = address.and_then(|address| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.connect_addr(&address).map(|()| socket)
        });
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let limit_us = number("WATCHDOG_USEC").filter(|_| ours);
        // Four times as often as the manager would lose patience.
        let every = limit_us.map(|us| Duration::from_micros(us / 4));
        Manager { socket: socket.ok(), ready: false, every, told: None }
    }

    /// Tells once that everything is ready.
    pub fn ready(&mut self) {
        if !self.ready {
            self.ready = true;
            self.tell(b"READY=1");
        }
    }

    /// Tells that the process goes on, if that is due.
    pub fn alive(&mut self, now: Instant) {
        let Some(every) = self.every else { return };
        if self.told.is_none_or(|told| now.duration_since(told) >= every) {
            self.told = Some(now);
            self.tell(b"WATCHDOG=1");
        }
    }

    fn tell(&self, what: &[u8]) {
        // Whether the manager listens is its own business.
        let _ = self.socket.as_ref().map(|socket| socket.send(what));
    }
}
