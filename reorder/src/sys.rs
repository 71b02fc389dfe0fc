// SPDX-License-Identifier: Apache-2.0
//! Everything that needs the kernel: TAPs, packet sockets, interfaces, epoll, signals. The only
//! place with `unsafe`.
//!
//! Nothing here knows what a frame means. Every descriptor is non-blocking, and closed on exec.

pub mod interface;
pub mod packet;
pub mod poll;
pub mod priority;
pub mod signals;
pub mod tap;
pub mod watchdog;

use std::fmt;
use std::io;
use std::time::Duration;

use crate::Nanos;

/// A device or a right is missing: one line that says what to do about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

impl Unavailable {
    /// The text "WHAT: the kernel's reason", with the right or module that is missing.
    pub fn because(what: impl fmt::Display, error: &io::Error) -> Self {
        let hint = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                " (needs root, or the capabilities CAP_NET_ADMIN and CAP_NET_RAW)"
            }
            _ => "",
        };
        Unavailable(format!("{what}: {}{hint}", reason(error)))
    }
}

/// The kernel's words alone, without Rust's "(os error 1)".
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, which never goes back, and stands still while the machine
/// sleeps.
pub fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as Nanos * 1_000_000_000 + time.tv_nsec as Nanos
}

/// A time since 1970 as a calendar has it in UTC, to the millisecond: `2026-01-31T09:30:00.125Z`.
pub fn utc(unix: Duration) -> String {
    let seconds = libc::time_t::try_from(unix.as_secs()).unwrap_or(0);
    // SAFETY: a `tm` of zeros is valid. gmtime_r reads the number and writes the `tm`, and keeps
    // neither.
    let tm = unsafe {
        let mut tm = std::mem::zeroed::<libc::tm>();
        libc::gmtime_r(&seconds, &mut tm);
        tm
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
        unix.subsec_millis()
    )
}

/// A random number.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: getrandom writes at most the 8 bytes of the array.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(got) {
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A system call's result. -1 means that errno has the reason.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Does the same as [`checked`], for a call that returns a length.
fn checked_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
