// SPDX-License-Identifier: Apache-2.0
//! Network interfaces by name: MAC, MTU, state, speed, and bytes that arrived.
//!
//! It uses ioctl and /proc/self/net, not /sys/class/net. The latter shows the network namespace in
//! which it was mounted, which need not be ours (`nsenter --net`, `unshare --net`).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use super::checked;

/// Bytes of the longest name of an interface.
pub const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// Asks the kernel about the interfaces of this process's network namespace, and changes them.
#[derive(Debug)]
pub struct Interfaces {
    socket: OwnedFd,
    table: File,
    text: Vec<u8>,
}

/// What the kernel answers to ETHTOOL_GSET (`struct ethtool_cmd`), as 32-bit words. Word 3 has the
/// speed's lower half in its first two bytes, and word 7 the upper half.
type EthtoolCommand = [u32; 11];
const ETHTOOL_GSET: u32 = 1;

/// A request about one interface for an ioctl. Fails if no interface can have that name.
pub(super) fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() > NAME_MAX || name.as_bytes().contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: ifreq is plain old data, all zeros is a valid value.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(ifreq)
}

impl Interfaces {
    /// Needs no capability, except for what `set_...` changes (CAP_NET_ADMIN).
    pub fn open() -> io::Result<Self> {
        // SAFETY: takes numbers alone; the descriptor that it returns is ours.
        let socket = unsafe {
            let fd =
                checked(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Interfaces { socket, table: File::open("/proc/self/net/dev")?, text: Vec::new() })
    }

    /// Asks `command` of `name`, which reads and writes `ifreq`.
    fn ask(&self, command: libc::c_ulong, ifreq: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the commands used here read and write one ifreq (SIOCETHTOOL: and the buffer it
        // points to).
        checked(unsafe { libc::ioctl(self.socket.as_raw_fd(), command as libc::Ioctl, ifreq) })
            .map(drop)
    }

    /// The interface's number; `ENODEV` if none has this name.
    pub fn index(&self, name: &str) -> io::Result<i32> {
        let mut ifreq = request(name)?;
        self.ask(libc::SIOCGIFINDEX, &mut ifreq)?;
        // SAFETY: SIOCGIFINDEX filled this member of the union.
        Ok(unsafe { ifreq.ifr_ifru.ifru_ifindex })
    }

    /// The name of the interface with that number; `ENODEV` if there is none.
    pub fn name(&self, index: i32) -> io::Result<String> {
        // SAFETY: ifreq is plain old data, all zeros is a valid value.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        ifreq.ifr_ifru.ifru_ifindex = index;
        self.ask(libc::SIOCGIFNAME, &mut ifreq)?;
        let bytes: Vec<u8> = ifreq
            .ifr_name
            .iter()
            .take_while(|letter| **letter != 0)
            .map(|letter| *letter as u8)
            .collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The names of all interfaces that have this MAC.
    pub fn with_mac(&self, mac: [u8; 6]) -> io::Result<Vec<String>> {
        let table = std::fs::read_to_string("/proc/self/net/dev")?;
        let names = table.lines().filter_map(parse_line).map(|(name, _)| name.to_string());
        Ok(names.filter(|name| self.mac(name).is_ok_and(|found| found == mac)).collect())
    }

    /// The interface's MAC.
    pub fn mac(&self, name: &str) -> io::Result<[u8; 6]> {
        let mut ifreq = request(name)?;
        self.ask(libc::SIOCGIFHWADDR, &mut ifreq)?;
        // SAFETY: SIOCGIFHWADDR filled this member of the union.
        let address = unsafe { ifreq.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "not an Ethernet interface"));
        }
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        Ok(mac)
    }

    /// Gives the interface another MAC.
    pub fn set_mac(&self, name: &str, mac: [u8; 6]) -> io::Result<()> {
        let mut ifreq = request(name)?;
        // SAFETY: sockaddr is plain old data, all zeros is a valid value.
        let mut address: libc::sockaddr = unsafe { std::mem::zeroed() };
        address.sa_family = libc::ARPHRD_ETHER;
        for (to, from) in address.sa_data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
        ifreq.ifr_ifru.ifru_hwaddr = address;
        self.ask(libc::SIOCSIFHWADDR, &mut ifreq)
    }

    /// The interface's MTU, in bytes.
    pub fn mtu(&self, name: &str) -> io::Result<usize> {
        let mut ifreq = request(name)?;
        self.ask(libc::SIOCGIFMTU, &mut ifreq)?;
        // SAFETY: SIOCGIFMTU filled this member of the union.
        Ok(unsafe { ifreq.ifr_ifru.ifru_mtu }.try_into().unwrap_or(0))
    }

    /// Gives the interface another MTU, in bytes.
    pub fn set_mtu(&self, name: &str, mtu: usize) -> io::Result<()> {
        let mut ifreq = request(name)?;
        ifreq.ifr_ifru.ifru_mtu =
            mtu.try_into().map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        self.ask(libc::SIOCSIFMTU, &mut ifreq)
    }

    fn flags(&self, name: &str) -> io::Result<libc::c_int> {
        let mut ifreq = request(name)?;
        self.ask(libc::SIOCGIFFLAGS, &mut ifreq)?;
        // SAFETY: SIOCGIFFLAGS filled this member of the union.
        Ok(libc::c_int::from(unsafe { ifreq.ifr_ifru.ifru_flags }))
    }

    /// Whether the interface is up and has a carrier. An interface that does not exist is not up.
    /// The kernel may take a second to notice.
    pub fn is_up(&self, name: &str) -> bool {
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        self.flags(name).is_ok_and(|flags| flags & wanted == wanted)
    }

    /// Does the same as `ip link set NAME up`.
    pub fn set_up(&self, name: &str) -> io::Result<()> {
        let flags = self.flags(name)? | libc::IFF_UP;
        let mut ifreq = request(name)?;
        ifreq.ifr_ifru.ifru_flags = flags as libc::c_short;
        self.ask(libc::SIOCSIFFLAGS, &mut ifreq)
    }

    /// The speed that the interface reports, in bit/s; `None` if it does not know.
    pub fn speed_bps(&self, name: &str) -> Option<u64> {
        let mut command: EthtoolCommand = [0; 11];
        command[0] = ETHTOOL_GSET;
        let mut ifreq = request(name).ok()?;
        ifreq.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
        self.ask(libc::SIOCETHTOOL, &mut ifreq).ok()?;
        let half = |word: u32| {
            u32::from(u16::from_ne_bytes([word.to_ne_bytes()[0], word.to_ne_bytes()[1]]))
        };
        let mbps = half(command[3]) | half(command[7]) << 16;
        (mbps != 0 && mbps != u32::MAX && mbps != 0xffff).then(|| u64::from(mbps) * 1_000_000)
    }

    /// Calls `each(name, bytes)` with the bytes that have arrived by every interface since it
    /// exists. They count frames with their Ethernet header, without preamble and FCS.
    pub fn rx_bytes(&mut self, mut each: impl FnMut(&str, u64)) -> io::Result<()> {
        let mut read = 0;
        loop {
            if self.text.len() < read + 4096 {
                self.text.resize(read + 4096, 0);
            }
            match self.table.read_at(&mut self.text[read..], read as u64)? {
                0 => break,
                n => read += n,
            }
        }
        for (name, bytes) in
            String::from_utf8_lossy(&self.text[..read]).lines().filter_map(parse_line)
        {
            each(name, bytes);
        }
        Ok(())
    }
}

/// Reads " eth0: 1234 5 ..." of /proc/net/dev: the name and the first number.
fn parse_line(line: &str) -> Option<(&str, u64)> {
    let (name, numbers) = line.rsplit_once(": ")?;
    Some((name.trim_start(), numbers.split_ascii_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_gives_name_and_bytes() {
        assert_eq!(parse_line("  eth0: 18446744073709551615  7 0 0"), Some(("eth0", u64::MAX)));
        assert_eq!(parse_line("eth0:1: 12 7"), Some(("eth0:1", 12)));
        assert_eq!(parse_line(" face |bytes    packets errs"), None);
        assert_eq!(parse_line("Inter-|   Receive"), None);
    }

    #[test]
    fn the_loopback_is_there_and_is_no_nic() {
        let mut interfaces = Interfaces::open().unwrap();
        assert!(interfaces.index("lo").unwrap() > 0);
        assert!(interfaces.mtu("lo").unwrap() > 0);
        assert_eq!(interfaces.mac("lo").unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(interfaces.speed_bps("lo"), None);
        let mut names = Vec::new();
        interfaces.rx_bytes(|name, _| names.push(name.to_string())).unwrap();
        assert!(names.contains(&"lo".to_string()), "{names:?}");
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        let interfaces = Interfaces::open().unwrap();
        for name in ["", "sixteen-letters-", "nul\0"] {
            assert_eq!(
                interfaces.index(name).unwrap_err().raw_os_error(),
                Some(libc::EINVAL),
                "{name:?}"
            );
        }
        assert_eq!(interfaces.index("no-such-nic").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(!interfaces.is_up("no-such-nic"));
    }
}
