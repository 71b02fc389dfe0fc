// SPDX-License-Identifier: Apache-2.0
//! The status socket: it writes one line to everybody who connects.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::sys::Unavailable;

/// Connections that are accepted in a turn. Others wait for the next.
const AT_ONCE: usize = 16;
/// The most readers that have not taken the whole line yet. With one more, the one that has waited
/// longest does not get the rest.
pub const READERS: usize = 5;

/// A reader, and the line that it gets.
#[derive(Debug)]
struct Reader {
    stream: UnixStream,
    line: Rc<[u8]>,
    written: usize,
}

impl Reader {
    /// Writes as much as the reader takes now. Returns whether there is more.
    fn write_more(&mut self) -> bool {
        while self.written < self.line.len() {
            match self.stream.write(&self.line[self.written..]) {
                Ok(bytes) if bytes > 0 => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                _ => return false,
            }
        }
        false
    }
}

/// A listening Unix socket. Its file is removed in the end.
#[derive(Debug)]
pub struct StatusSocket {
    listener: UnixListener,
    /// Readers by their places. A place may be free.
    readers: [Option<Reader>; READERS],
    next: usize,
    path: PathBuf,
}

impl StatusSocket {
    /// Listens at `path`. A socket that a killed process left there is replaced. A living process's
    /// socket is not, nor is any other file.
    pub fn bind(path: &Path) -> Result<Self, Unavailable> {
        let failed = |error: io::Error| {
            Unavailable::because(format_args!("status socket {}", path.display()), &error)
        };
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let is_socket =
                    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
                if !is_socket {
                    return Err(Unavailable(format!(
                        "status socket {}: a file is in its place",
                        path.display()
                    )));
                }
                if UnixStream::connect(path).is_ok() {
                    return Err(Unavailable(format!(
                        "status socket {}: another process has it",
                        path.display()
                    )));
                }
                fs::remove_file(path).map_err(failed)?;
                UnixListener::bind(path)
            }
            other => other,
        }
        .map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(StatusSocket {
            listener,
            readers: Default::default(),
            next: 0,
            path: path.to_path_buf(),
        })
    }

    /// Writes the line to everybody who waits. Who does not take all of it at once is a reader from
    /// then on. Returns the places of new readers, which are to be watched for room.
    pub fn answer(&mut self, line: &str) -> Vec<usize> {
        let line: Rc<[u8]> = format!("{line}\n").into_bytes().into();
        let mut slow = Vec::new();
        for _ in 0..AT_ONCE {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut reader = Reader { stream, line: line.clone(), written: 0 };
            if reader.write_more() {
                let free = self.readers.iter().position(Option::is_none);
                let place = free.unwrap_or_else(|| {
                    self.next = (self.next + 1) % READERS;
                    self.next
                });
                self.readers[place] = Some(reader);
                slow.retain(|known| *known != place);
                slow.push(place);
            }
        }
        slow
    }

    /// The reader at `place`, to be watched for room.
    pub fn reader(&self, place: usize) -> Option<BorrowedFd<'_>> {
        self.readers.get(place)?.as_ref().map(|reader| reader.stream.as_fd())
    }

    /// The reader at `place` has room, or is gone.
    pub fn go_on(&mut self, place: usize) {
        if let Some(reader) = self.readers.get_mut(place) {
            if !reader.as_mut().is_some_and(Reader::write_more) {
                *reader = None;
            }
        }
    }
}

impl AsFd for StatusSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("ri2n-status-{}-{name}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn everybody_gets_the_line_and_the_file_goes() {
        let folder = Folder::new("answer");
        let path = folder.0.join("s");
        let mut socket = StatusSocket::bind(&path).unwrap();
        let mut readers: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        socket.answer("{}");
        for reader in &mut readers {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "{}\n");
        }
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_socket_is_replaced_a_living_one_and_a_file_are_not() {
        let folder = Folder::new("replace");
        let path = folder.0.join("s");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "as after kill -9");
        let socket = StatusSocket::bind(&path).unwrap();
        assert!(StatusSocket::bind(&path).unwrap_err().0.contains("another process has it"));
        assert!(path.exists());
        drop(socket);
        fs::write(&path, "mine").unwrap();
        assert!(StatusSocket::bind(&path).unwrap_err().0.contains("a file is in its place"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn a_slow_reader_gets_all_of_a_long_line() {
        let folder = Folder::new("long");
        let path = folder.0.join("s");
        let mut socket = StatusSocket::bind(&path).unwrap();
        let mut reader = UnixStream::connect(&path).unwrap();
        let line = "x".repeat(5_000_000);
        assert_eq!(socket.answer(&line), [0]);
        let (mut text, mut part) = (Vec::new(), [0; 50_000]);
        while socket.reader(0).is_some() {
            let bytes = reader.read(&mut part).unwrap();
            text.extend_from_slice(&part[..bytes]);
            socket.go_on(0);
        }
        reader.read_to_end(&mut text).unwrap();
        assert_eq!(text.len(), line.len() + 1);
        assert!(text.ends_with(b"x\n"));
    }

    #[test]
    fn readers_that_do_not_read_hold_nothing_up_and_are_bounded() {
        let folder = Folder::new("slow");
        let path = folder.0.join("s");
        let mut socket = StatusSocket::bind(&path).unwrap();
        let mut readers: Vec<_> =
            (0..3 * READERS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let places = socket.answer(&"x".repeat(5_000_000));
        assert!((1..=READERS).contains(&places.len()), "{places:?}");
        // The reader that came last still gets the line.
        let mut last = readers.pop().unwrap();
        drop(readers);
        let (mut bytes, mut part) = (0, [0; 50_000]);
        while (0..READERS).any(|place| socket.reader(place).is_some()) {
            bytes += last.read(&mut part).unwrap();
            (0..READERS).for_each(|place| socket.go_on(place));
        }
        bytes += last.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(bytes, 5_000_001);
    }
}
