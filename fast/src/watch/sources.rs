// SPDX-License-Identifier: Apache-2.0
//! Where news come from: the bridge, the database, and those who ask. A thread for each, which
//! only waits and hands on; all decisions are the loop's.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;

use crate::database;
use crate::openflow::connection::{self, Sender};
use crate::sys;

/// A bridge or a database that is not there is looked for so often.
const AGAIN: Duration = Duration::from_millis(250);
/// A watch that was asked to end has ended after this.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Whoever asks must say within this time what.
const ASKS_WITHIN: Duration = Duration::from_secs(1);
/// The rights of the state folder.
const ONLY_OURS: u32 = 0o700;
/// A request has at most so many bytes.
const LONGEST: u64 = 64;

/// News for the loop.
#[derive(Debug)]
pub enum Event {
    /// There is a new connection to the bridge.
    Connected(Sender),
    /// The bridge said something.
    Message(Vec<u8>),
    /// The connection is over, or there is none; why.
    Closed(String),
    /// What the database says: whether somebody wants to see all frames of the bridge.
    Database(Result<bool, String>),
    /// Whether a helper that has the maps of this load is ready for frames.
    Helper {
        /// The number of the load.
        load: u64,
        /// Whether it is.
        ready: bool,
    },
    /// Somebody asks.
    Asked(Request, UnixStream),
}

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// How things are.
    Status,
    /// To end; the connection is closed when that is done.
    End,
}

impl Request {
    /// The line that asks for it.
    pub fn line(self) -> &'static str {
        match self {
            Request::Status => "status",
            Request::End => "end",
        }
    }
}

/// Follows the bridge for ever. Between two connections there is always a `Closed`.
pub fn follow_bridge(socket: PathBuf, to: SyncSender<Event>) {
    thread::spawn(move || loop {
        let over = connection::connect(&socket).and_then(|(sender, mut receiver)| {
            let mut handed_on = to.send(Event::Connected(sender));
            while handed_on.is_ok() {
                handed_on = to.send(Event::Message(receiver.receive()?));
            }
            Ok(())
        });
        let why = over.err().map_or_else(String::new, |error| error.to_string());
        if to.send(Event::Closed(why)).is_err() {
            return;
        }
        thread::sleep(AGAIN);
    });
}

/// Follows the database for ever.
pub fn follow_database(socket: PathBuf, bridge: String, to: SyncSender<Event>) {
    thread::spawn(move || loop {
        // A loop that ended takes nothing; the process ends with it.
        let told = |observed| drop(to.send(Event::Database(Ok(observed))));
        let over = database::follow(&socket, &bridge, told);
        let why = over.err().map_or_else(String::new, |error| error.to_string());
        if to.send(Event::Database(Err(why))).is_err() {
            return;
        }
        thread::sleep(AGAIN);
    });
}

/// Takes questions for ever.
pub fn take_questions(listener: UnixListener, to: SyncSender<Event>) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever asks nothing, or something else, gets no answer.
            let Ok(Some(request)) = question(&stream) else { continue };
            if to.send(Event::Asked(request, stream)).is_err() {
                return;
            }
        }
    });
}

fn question(stream: &UnixStream) -> io::Result<Option<Request>> {
    stream.set_read_timeout(Some(ASKS_WITHIN))?;
    stream.set_write_timeout(Some(ASKS_WITHIN))?;
    let mut line = String::new();
    BufReader::new(io::Read::take(stream, LONGEST)).read_line(&mut line)?;
    Ok([Request::Status, Request::End].into_iter().find(|it| it.line() == line.trim_end()))
}

/// Claims a bridge for this process. Two watches with different state folders would take each other's
/// places at the devices over and over. False: somebody else, who is no watch, has the name by which
/// they know of each other.
///
/// The name is one of the network namespace, as the devices are, and everybody there may take it.
/// So only a process of the same user counts as a watch. One that is about to end is waited for.
pub fn claim(bridge: &str) -> Result<bool, String> {
    let failed = |error: io::Error| format!("claiming the bridge {bridge}: {error}");
    let name = SocketAddr::from_abstract_name(format!("ri2n-fast/{bridge}")).map_err(failed)?;
    let started = Instant::now();
    loop {
        match UnixListener::bind_addr(&name) {
            Ok(listener) => {
                thread::spawn(move || be_known(&listener));
                return Ok(true);
            }
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(failed(error)),
            Err(_) => {}
        }
        match holder(&name) {
            Ok(it) if it.uid != geteuid().as_raw() => return Ok(false),
            Ok(_) if started.elapsed() < ENDS_WITHIN => thread::sleep(AGAIN / 10),
            Ok(it) => {
                let pid = it.pid;
                return Err(format!(
                    "another ri2n-fast, process {pid}, watches the bridge {bridge}"
                ));
            }
            // It has gone since.
            Err(_) if started.elapsed() < ENDS_WITHIN => thread::sleep(AGAIN / 10),
            Err(_) => return Ok(false),
        }
    }
}

/// Takes connections: the kernel tells each other end whose process this is.
fn be_known(listener: &UnixListener) {
    for stream in listener.incoming() {
        if stream.is_err() {
            thread::sleep(AGAIN);
        }
    }
}

/// The process that listens by this name. A process that hangs is not waited for.
fn holder(name: &SocketAddr) -> io::Result<libc::ucred> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let asking = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let name = SocketAddrUnix::new_abstract_name(name.as_abstract_name().unwrap_or_default())?;
    net::connect(&asking, &name)?;
    sys::peer_of(&asking)
}

/// The path of the status socket in a state folder.
pub fn socket_in(state: &Path) -> PathBuf {
    state.join("status")
}

/// Listens at the status socket. Whoever may open it may also end the watch, so nobody else may. One
/// that a dead watch left is replaced.
pub fn listen(state: &Path) -> Result<UnixListener, String> {
    let path = socket_in(state);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let made = DirBuilder::new().recursive(true).mode(ONLY_OURS).create(state);
    made.map_err(|error| format!("{}: {error}", state.display()))?;
    let bind = || -> io::Result<UnixListener> {
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(ONLY_OURS & 0o600))?;
        Ok(listener)
    };
    match bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(&path).is_ok() {
                return Err(format!("{}: another ri2n-fast is running", path.display()));
            }
            fs::remove_file(&path).map_err(failed)?;
            bind().map_err(failed)
        }
        other => other.map_err(failed),
    }
}
