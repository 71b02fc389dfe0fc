// SPDX-License-Identifier: Apache-2.0
//! A helper that hangs must not keep its TAPs: while it holds them the bridge sends it frames, and
//! nobody takes them.
//!
//! Two others see to that, and are told again and again that the loop turns: the service manager
//! (systemd's protocol, a datagram to `$NOTIFY_SOCKET`), and a small process of our own, the guard,
//! which needs no manager. Nothing inside a process helps when the process is stopped, or waits in
//! the kernel.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::time::Timespec;

use super::now;
use crate::Nanos;

/// The first argument of the guard's command line.
pub const GUARD: &str = "--guard";

/// Tells those who watch this process that the loop turns.
#[derive(Debug, Default)]
pub struct Watchdog {
    manager: Option<UnixDatagram>,
    guard: Option<Child>,
    /// How often they are told; 0: never.
    every_ns: Nanos,
    next_ns: Nanos,
}

impl Watchdog {
    /// Nobody is told anything so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, the service manager that started this process is told, if there is one and it
    /// wants that.
    pub fn tell_manager(&mut self) {
        let text = |name| std::env::var_os(name);
        let Some(path) = text("NOTIFY_SOCKET") else { return };
        let is_ours = text("WATCHDOG_PID")
            .is_none_or(|pid| pid.as_bytes() == std::process::id().to_string().as_bytes());
        let limit_us = text("WATCHDOG_USEC")
            .and_then(|text| text.to_str()?.parse::<u64>().ok())
            .filter(|_| is_ours);
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(path),
        };
        let socket = address.and_then(|address| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.connect_addr(&address).map(|()| socket)
        });
        self.manager = socket.ok();
        if let (Some(_), Some(limit_us)) = (&self.manager, limit_us) {
            self.within(limit_us.saturating_mul(1000));
        }
    }

    /// Starts a guard, which kills this process when it does not move for `limit_ms`. The guard's
    /// command line begins with [`GUARD`] and `format`, the form of its log.
    pub fn start_guard(&mut self, limit_ms: u64, format: &str) -> io::Result<()> {
        let mut guard = Command::new("/proc/self/exe")
            .args([GUARD, format, &std::process::id().to_string(), &limit_ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        if let Some(pipe) = &mut guard.stdin {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        self.guard = Some(guard);
        self.within(limit_ms * 1_000_000);
        Ok(())
    }

    /// They are told four times as often as they would lose patience.
    fn within(&mut self, limit_ns: Nanos) {
        let every_ns = (limit_ns / 4).max(1_000_000);
        self.every_ns = if self.every_ns == 0 { every_ns } else { self.every_ns.min(every_ns) };
    }

    /// Tells that everything is ready.
    pub fn ready(&self) {
        self.tell(b"READY=1");
    }

    /// Tells that the process is about to end.
    pub fn stopping(&self) {
        self.tell(b"STOPPING=1");
    }

    /// Tells that the loop turns, if that is due. Returns when it is due next.
    pub fn alive(&mut self, now: Nanos) -> Nanos {
        if self.every_ns == 0 {
            return Nanos::MAX;
        }
        if now >= self.next_ns || self.next_ns > now + self.every_ns {
            self.next_ns = now + self.every_ns;
            self.tell(b"WATCHDOG=1");
            let pipe = self.guard.as_mut().and_then(|guard| guard.stdin.as_mut());
            let written = pipe.map_or(Ok(()), |pipe| pipe.write_all(&[0]));
            // A full pipe belongs to a guard that hangs itself. A pipe without a reader has no
            // guard any more.
            if written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
                self.end_guard();
            }
        }
        self.next_ns
    }

    fn tell(&self, what: &[u8]) {
        // Whether the manager listens is its own business.
        let _ = self.manager.as_ref().map(|socket| socket.send(what));
    }

    fn end_guard(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end_guard();
    }
}

/// The guard: it ends when its parent does, and kills the parent when that says nothing for the
/// limit. Returns what it did.
///
/// `arguments`: the parent's process ID, and the limit in ms. Before the guard kills, it asks
/// whether it was late itself.
pub fn guard(mut arguments: impl Iterator<Item = String>) -> Option<String> {
    let parent: libc::pid_t = arguments.next()?.parse().ok()?;
    let limit = Duration::from_millis(arguments.next()?.parse().ok()?);
    let limit_ns = Nanos::try_from(limit.as_nanos()).ok()?;
    let timeout =
        Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    let mut pipe = io::stdin();
    loop {
        let before = now();
        let mut wanted = [PollFd::new(&pipe, PollFlags::IN)];
        match poll(&mut wanted, Some(&timeout)) {
            // The guard was late itself, so the parent has the limit once more.
            Ok(0) if now().saturating_sub(before) > limit_ns + limit_ns / 4 => {}
            Ok(0) => {
                // SAFETY: both take no pointers. The parent is asked for by its ID while it is the
                // parent: that ID is nobody else's as long as it is.
                let killed =
                    unsafe { libc::getppid() == parent && libc::kill(parent, libc::SIGKILL) == 0 };
                return killed.then(|| {
                    format!("it did not move for {} ms: killed by its watchdog", limit.as_millis())
                });
            }
            Ok(_) => match pipe.read(&mut [0; 64]) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
