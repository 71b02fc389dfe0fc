// SPDX-License-Identifier: Apache-2.0
//! Gives the helper the maps, and tells the loop whether it is ready for frames.
//!
//! One helper has the maps at a time. The next one waits until the connection of the one before has
//! ended, as it does when that helper ends in whatever way.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ri2n_wire::handover::{self, Client, Server};
use ri2n_wire::shared::Files;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;

use super::sources::Event;

/// After an error that does not go away by itself, such as too many open files, the next attempt
/// comes so much later.
const AGAIN: Duration = Duration::from_millis(250);
/// Only our own user may connect: the maps decide where frames go.
const ONLY_OURS: u32 = 0o600;

/// The maps of a load, and its number.
#[derive(Clone, Debug, Default)]
struct Load {
    number: u64,
    maps: Option<Arc<Files<OwnedFd>>>,
}

/// The socket, as the loop sees it.
#[derive(Debug)]
pub struct Handover {
    load: Arc<Mutex<Load>>,
    /// Wakes the thread.
    bell: UnixStream,
}

impl Handover {
    /// Listens in the state folder, which is there. What a dead watch left is replaced.
    pub fn listen(state: &Path, to: SyncSender<Event>) -> Result<Handover, String> {
        let path = handover::socket_in(state);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let server = Server::new(&path).map_err(failed)?;
        fs::set_permissions(&path, Permissions::from_mode(ONLY_OURS)).map_err(failed)?;
        let (bell, rung) = UnixStream::pair().map_err(failed)?;
        for end in [&bell, &rung] {
            end.set_nonblocking(true).map_err(failed)?;
        }
        let load: Arc<Mutex<Load>> = Arc::default();
        let given = load.clone();
        thread::spawn(move || Desk { server, rung, given, known: 0, told: (0, false) }.serve(&to));
        Ok(Handover { load, bell })
    }

    /// From now on the helper gets these maps. The one that has others is told so by the end of
    /// its connection. Returns the number by which the loop hears of this load.
    pub fn give(&self, maps: Files<OwnedFd>) -> u64 {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        load.number += 1;
        load.maps = Some(Arc::new(maps));
        let number = load.number;
        drop(load);
        // A full pipe wakes the thread, too.
        let _ = (&self.bell).write(&[0]);
        number
    }
}

/// The thread's side.
struct Desk {
    server: Server,
    rung: UnixStream,
    given: Arc<Mutex<Load>>,
    /// The load that the helper has or will get.
    known: u64,
    /// What the loop was told last: of which load, and whether a helper is ready.
    told: (u64, bool),
}

impl Desk {
    fn serve(mut self, to: &SyncSender<Event>) {
        let mut client: Option<Client> = None;
        loop {
            let load = self.given.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if load.number != self.known {
                self.known = load.number;
                client = None;
            }
            let mut failed = false;
            if let (None, Some(maps)) = (&client, &load.maps) {
                let accepted = self.server.accept(maps);
                failed = accepted.is_err();
                client = accepted.unwrap_or_default();
            }
            let ready = match client.as_mut().map(Client::is_ready) {
                Some(Ok(ready)) => ready,
                Some(Err(_)) => {
                    client = None;
                    false
                }
                None => false,
            };
            if self.told != (self.known, ready) {
                self.told = (self.known, ready);
                if to.send(Event::Helper { load: self.known, ready }).is_err() {
                    return;
                }
            }
            if failed || !self.wait(client.as_ref(), load.maps.is_some()) {
                thread::sleep(AGAIN);
            }
        }
    }

    /// Waits for the next news. False: that is not possible now.
    fn wait(&mut self, client: Option<&Client>, has_maps: bool) -> bool {
        let mut ends = vec![PollFd::new(&self.rung, PollFlags::IN)];
        match client {
            Some(client) => ends.push(PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN)),
            None if has_maps => {
                ends.push(PollFd::from_borrowed_fd(self.server.as_fd(), PollFlags::IN));
            }
            None => {}
        }
        let waited = poll(&mut ends, None);
        let mut bytes = [0; 64];
        while matches!((&self.rung).read(&mut bytes), Ok(1..)) {}
        matches!(waited, Ok(_) | Err(Errno::INTR))
    }
}
