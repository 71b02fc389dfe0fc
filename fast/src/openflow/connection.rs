// SPDX-License-Identifier: Apache-2.0
//! The socket to a bridge: a stream that is cut into messages.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::message;

/// A bridge that takes nothing for so long is given up.
const STUCK: Duration = Duration::from_millis(200);

/// The half of a connection that sends.
#[derive(Debug)]
pub struct Sender(UnixStream);

/// The half of a connection that receives.
#[derive(Debug)]
pub struct Receiver {
    stream: UnixStream,
    bytes: Vec<u8>,
    /// What of `bytes` has been given out.
    done: usize,
}

/// Connects to a bridge's management socket.
pub fn connect(path: &Path) -> io::Result<(Sender, Receiver)> {
    let stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(STUCK))?;
    let receiver = Receiver { stream: stream.try_clone()?, bytes: Vec::new(), done: 0 };
    Ok((Sender(stream), receiver))
}

impl Sender {
    /// Sends messages.
    pub fn send(&mut self, messages: &[Vec<u8>]) -> io::Result<()> {
        messages.iter().try_for_each(|one| self.0.write_all(one))
    }

    /// Ends the connection, also for the other half.
    pub fn close(&self) {
        // An error says that it is over already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl Receiver {
    /// From now on, waits no longer than this for what comes next.
    pub fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(time))
    }

    /// The next message, or an error when the connection is over.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let left = &self.bytes[self.done..];
            let first = message::first(left)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "this is not OpenFlow"))?;
            if let Some(length) = first {
                let whole = left[..length].to_vec();
                self.done += length;
                return Ok(whole);
            }
            self.bytes.drain(..self.done);
            self.done = 0;
            let mut more = [0; 1 << 16];
            match self.stream.read(&mut more) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.bytes.extend(&more[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
