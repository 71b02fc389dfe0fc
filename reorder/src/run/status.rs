//! The status socket: one line to whoever connects.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::sys::Unavailable;

/// Connections answered at a time; others wait for the next turn.
const AT_ONCE: usize = 16;

/// A listening Unix socket; its file is removed in the end.
#[derive(Debug)]
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Listens at `path`. What a killed process left there is replaced, a living one's is not, nor any other file.
    pub fn bind(path: &Path) -> Result<Self, Unavailable> {
        let failed = |error: io::Error| Unavailable::because(format_args!("status socket {}", path.display()), &error);
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
                if !is_socket {
                    return Err(Unavailable(format!("status socket {}: a file is in its place", path.display())));
                }
                if UnixStream::connect(path).is_ok() {
                    return Err(Unavailable(format!("status socket {}: another process has it", path.display())));
                }
                fs::remove_file(path).map_err(failed)?;
                UnixListener::bind(path)
            }
            other => other,
        }
        .map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(StatusSocket { listener, path: path.to_path_buf() })
    }

    /// Tells the line to everybody who waits. Whoever does not take it at once gets the part that fits.
    pub fn answer(&self, line: &str) {
        for _ in 0..AT_ONCE {
            let Ok((mut stream, _)) = self.listener.accept() else { break };
            let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(format!("{line}\n").as_bytes()));
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
            let path = std::env::temp_dir().join(format!("ri2n-status-{}-{name}", std::process::id()));
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
        let socket = StatusSocket::bind(&path).unwrap();
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
    fn a_reader_that_does_not_read_holds_nothing_up() {
        let folder = Folder::new("slow");
        let path = folder.0.join("s");
        let socket = StatusSocket::bind(&path).unwrap();
        let _reader = UnixStream::connect(&path).unwrap();
        socket.answer(&"x".repeat(10_000_000));
    }
}
