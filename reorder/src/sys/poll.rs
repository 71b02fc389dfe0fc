// SPDX-License-Identifier: Apache-2.0
//! Waits for descriptors and for a point in time, with epoll and a timerfd.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::time::Timespec;
use rustix::time::{
    timerfd_create, timerfd_settime, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags,
};

use super::now;
use crate::Nanos;

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Interest {
    /// Something can be read.
    pub read: bool,
    /// Something can be written.
    pub write: bool,
}

/// What became possible on a descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ready {
    /// The token with which the descriptor was added.
    pub token: u64,
    /// Reading gives something: a frame, or the error that the descriptor has.
    pub read: bool,
    /// Writing may succeed.
    pub write: bool,
}

/// Waits for many descriptors and one deadline.
///
/// The timer is set anew only when the deadline comes nearer. So a deadline that moves away with
/// each frame costs one idle wake-up later, and not a system call per frame.
pub struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: Nanos,
    events: Vec<epoll::Event>,
}

const TIMER: u64 = u64::MAX;
const NEVER: Nanos = Nanos::MAX;

impl Poller {
    /// Needs no capability.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)?;
        Ok(Poller { epoll, timer, armed: NEVER, events: Vec::with_capacity(80) })
    }

    /// Watches `fd`. Its events have this `token`, which is not `u64::MAX`.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags(interest))?)
    }

    /// Watches `fd`, which was added before, for something else.
    pub fn change(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), flags(interest))?)
    }

    /// Waits until a descriptor is ready or `deadline` has come (`Nanos::MAX`: there is none), and
    /// lists what is ready. It may return early with nothing.
    pub fn wait(&mut self, deadline: Nanos, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let past = deadline <= now();
        if !past && deadline < self.armed {
            self.arm(deadline)?;
        }
        let timeout = past.then_some(Timespec { tv_sec: 0, tv_nsec: 0 });
        self.events.clear();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.events),
            timeout.as_ref(),
        ) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            let flags = event.flags;
            let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            if event.data.u64() == TIMER {
                let mut ticks = [0; 8];
                match rustix::io::read(&self.timer, &mut ticks) {
                    Ok(_) => self.armed = NEVER,
                    Err(rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            ready.push(Ready {
                token: event.data.u64(),
                read: failed || flags.contains(epoll::EventFlags::IN),
                write: flags.contains(epoll::EventFlags::OUT),
            });
        }
        Ok(())
    }

    fn arm(&mut self, deadline: Nanos) -> io::Result<()> {
        let value = Timespec {
            tv_sec: (deadline / 1_000_000_000) as _,
            tv_nsec: (deadline % 1_000_000_000) as _,
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        self.armed = deadline;
        Ok(())
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, interest.read);
    flags.set(epoll::EventFlags::OUT, interest.write);
    flags
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    const READ: Interest = Interest { read: true, write: false };

    #[test]
    fn a_deadline_ends_the_wait_not_earlier_and_a_later_one_too() {
        let mut poller = Poller::new().unwrap();
        let mut ready = Vec::new();
        for wait in [2_000_000, 1_000_000, 3_000_000, 0] {
            let deadline = now() + wait;
            while now() < deadline {
                poller.wait(deadline, &mut ready).unwrap();
                assert!(ready.is_empty());
            }
        }
        poller.wait(0, &mut ready).unwrap();
        assert!(ready.is_empty(), "a deadline long past does not block");
    }

    #[test]
    fn a_deadline_that_moved_away_is_still_kept() {
        let mut poller = Poller::new().unwrap();
        let (mut here, there) = UnixStream::pair().unwrap();
        poller.add(&there, 7, READ).unwrap();
        let mut ready = Vec::new();
        here.write_all(b"x").unwrap();
        poller.wait(now() + 1_000_000, &mut ready).unwrap();
        assert_eq!(ready, [Ready { token: 7, read: true, write: false }]);
        poller.change(&there, 7, Interest { read: false, write: false }).unwrap();
        let later = now() + 5_000_000;
        while now() < later {
            poller.wait(later, &mut ready).unwrap();
            assert!(ready.is_empty(), "no longer watched for reading: {ready:?}");
        }
    }

    #[test]
    fn room_to_write_and_a_closed_end_are_reported() {
        let mut poller = Poller::new().unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        poller.add(&there, 1, Interest { read: true, write: true }).unwrap();
        let mut ready = Vec::new();
        poller.wait(Nanos::MAX, &mut ready).unwrap();
        assert_eq!(ready, [Ready { token: 1, read: false, write: true }]);
        drop(here);
        poller.wait(Nanos::MAX, &mut ready).unwrap();
        assert!(ready[0].read, "the end of the other side is read: {ready:?}");
    }
}
