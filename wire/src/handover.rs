// SPDX-License-Identifier: Apache-2.0
//! How the helper gets the maps: `ri2n-fast` has a socket, and passes their descriptors to whoever
//! connects. The connection stays. When the helper has made everything ready it says so, and from
//! then on, and as long as the connection stays, the programs give it frames.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::{
    accept_with, bind, connect, listen, recv, recvmsg, send, sendmsg, socket_with, AddressFamily,
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::shared::{Files, Shared, LAYOUT};

const MAGIC: [u8; 4] = *b"ri2n";
const READY: &[u8] = b"ready";

/// The socket in `ri2n-fast`'s folder.
pub fn socket_in(folder: &Path) -> PathBuf {
    folder.join("maps.sock")
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// The side of `ri2n-fast`.
#[derive(Debug)]
pub struct Server(OwnedFd);

impl Server {
    /// Listens. What was in the place is removed.
    pub fn new(path: &Path) -> io::Result<Self> {
        let _ = std::fs::remove_file(path);
        let socket = socket()?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, 4)?;
        Ok(Server(socket))
    }

    /// The next helper, which gets the maps; none if nobody waits.
    pub fn accept(&self, maps: &Files<impl AsFd>) -> io::Result<Option<Client>> {
        let client = match accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            client => client?,
        };
        let mut text = [0; 8];
        text[..4].copy_from_slice(&MAGIC);
        text[4..].copy_from_slice(&LAYOUT.to_ne_bytes());
        let fds = [maps.steers.as_fd(), maps.nics.as_fd(), maps.flows.as_fd()];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&client, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(Some(Client { socket: client, ready: false }))
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A helper that has the maps.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    ready: bool,
}

impl Client {
    /// Whether the helper is ready for frames. An error: it is gone.
    pub fn is_ready(&mut self) -> io::Result<bool> {
        let mut text = [0u8; 16];
        match recv(&self.socket, &mut text[..], RecvFlags::empty()) {
            Err(rustix::io::Errno::AGAIN) => {}
            Ok((_, 0)) => return Err(io::ErrorKind::ConnectionReset.into()),
            Ok((_, length)) => self.ready |= text.get(..length) == Some(READY),
            Err(error) => return Err(error.into()),
        }
        Ok(self.ready)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The helper's side.
#[derive(Debug)]
pub struct Connection(OwnedFd);

impl Connection {
    /// Connects. An error: `ri2n-fast` does not run there.
    pub fn new(path: &Path) -> io::Result<Self> {
        let socket = socket()?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Connection(socket))
    }

    /// The maps; none as long as they have not come. An error: they have another layout, cannot be
    /// mapped, or the other side is gone.
    pub fn take(&mut self) -> io::Result<Option<Shared>> {
        let mut text = [0u8; 8];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(&mut text)];
        let length = match recvmsg(&self.0, &mut parts, &mut ancillary, flags) {
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            received => received?.bytes,
        };
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                fds.extend(passed);
            }
        }
        let known = length == 8 && text[..4] == MAGIC && text[4..] == LAYOUT.to_ne_bytes();
        match (&fds[..], known) {
            ([steers, nics, flows], true) => Shared::new(&Files { steers, nics, flows }).map(Some),
            _ if length == 0 => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Err(io::Error::other("ri2n-fast has maps of another layout")),
        }
    }

    /// Frames may come.
    pub fn ready(&self) -> io::Result<()> {
        send(&self.0, READY, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Whether the other side is still there.
    pub fn is_open(&self) -> bool {
        let mut text = [0u8; 1];
        !matches!(recv(&self.0, &mut text[..], RecvFlags::empty()), Ok((_, 0)))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
