// SPDX-License-Identifier: Apache-2.0
//! TAPs and packet sockets on real devices, in a network namespace of the test's own.

use std::io::ErrorKind;
use std::net::UdpSocket;

use crate::namespace::{in_namespace, ip, make_tap, make_veth, wait_for};
use ri2n_reorder::sys::interface::Interfaces;
use ri2n_reorder::sys::packet::{PacketSocket, Received, BATCH};
use ri2n_reorder::sys::tap::Tap;
use ri2n_reorder::wire::ETHERTYPE;

/// A helper's frame of `length` bytes with the number in it and, if wanted, a tag behind the MACs.
fn frame(number: u8, length: usize, tag: Option<[u8; 4]>) -> Vec<u8> {
    let mut frame = [[0xff; 6], [2, 0, 0, 0, 0, 2]].concat();
    frame.extend(tag.into_iter().flatten());
    frame.extend(ETHERTYPE.to_be_bytes());
    frame.extend(std::iter::repeat_n(number, length - 14));
    frame
}

fn buffers(count: usize, room: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| Vec::with_capacity(room)).collect()
}

fn receive(socket: &PacketSocket, wanted: usize, room: usize) -> Vec<Received> {
    let mut got = Vec::new();
    wait_for("frames", || {
        match socket.receive(&mut buffers(BATCH, room), &mut got) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
            _ => {}
        }
        (got.len() >= wanted).then_some(())
    });
    got
}

/// Sends all frames, even if a busy machine has no room for them at times.
fn send_all(socket: &PacketSocket, frames: &[Vec<u8>]) {
    let mut done = 0;
    while done < frames.len() {
        done += wait_for("room", || match socket.send(frames[done..].iter().map(Vec::as_slice)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            sent => Some(sent.unwrap()).inspect(|count| assert!((1..=BATCH).contains(count))),
        });
    }
}

fn read_tagged(tap: &Tap) -> (Option<[u8; 4]>, Vec<u8>) {
    let mut buffer = Vec::with_capacity(2048);
    wait_for("a frame in the TAP", || match tap.read_tagged(&mut buffer) {
        Ok(tag) => Some((tag, std::mem::take(&mut buffer))),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    })
}

#[test]
fn a_taps_frames_have_their_tag_apart() {
    in_namespace(|| {
        make_tap("wire");
        let tap = Tap::open("wire", false, false).unwrap();
        wait_for("the TAP's carrier", || Interfaces::open().unwrap().is_up("wire").then_some(()));
        let socket = PacketSocket::open("wire", ETHERTYPE).unwrap();
        let tag = [0x81, 0x00, 0xe0, 0x05];

        tap.write_tagged(tag, &frame(1, 100, None)).unwrap();
        tap.write(&[0; 10], &frame(2, 1514, None)).unwrap();
        let got = receive(&socket, 2, 2048);
        assert!(got[0].foreign && got[0].frame == frame(1, 100, None), "in VLAN 5: {:?}", got[0]);
        assert!(!got[1].foreign && got[1].frame == frame(2, 1514, None), "{:?}", got[1]);

        let sent = [
            frame(3, 100, Some(tag)),
            frame(4, 1514, None),
            frame(5, 60, Some([0x88, 0xa8, 0, 5])),
        ];
        assert_eq!(socket.send(sent.iter().map(Vec::as_slice)).unwrap(), 3);
        assert_eq!(read_tagged(&tap), (Some(tag), frame(3, 100, None)));
        assert!(read_tagged(&tap) == (None, sent[1].clone()));
        assert!(
            read_tagged(&tap) == (None, sent[2].clone()),
            "another kind of tag is the frame's own"
        );
        assert_eq!(
            tap.read_tagged(&mut Vec::with_capacity(100)).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );

        // These are short: shorter than the MACs, or cut within the tag.
        for length in [14, 15, 16, 17] {
            let sent = frame(6, length, None);
            socket.send(std::iter::once(&sent[..])).unwrap();
            assert_eq!(read_tagged(&tap), (None, sent));
        }
        let mut cut = Vec::with_capacity(100);
        socket.send(std::iter::once(&frame(6, 1000, None)[..])).unwrap();
        wait_for("the frame", || tap.read(&mut [0; 10], &mut cut).ok());
        assert!(
            cut == frame(6, 1000, None)[..cut.capacity()],
            "a frame that fills the whole room was cut off"
        );
        assert!(tap.write_tagged(tag, &[]).is_err(), "not an Ethernet frame");
        for room in [64, 65, 99] {
            socket.send(std::iter::once(&frame(7, 1000, Some(tag))[..])).unwrap();
            let mut small = Vec::new();
            small.reserve_exact(room);
            wait_for("the frame", || tap.read_tagged(&mut small).ok());
            assert_eq!(
                small.len(),
                small.capacity(),
                "a frame that fills the whole room was cut off"
            );
        }
    });
}

#[test]
fn a_name_without_a_free_tap_is_refused_in_one_line() {
    in_namespace(|| {
        make_tap("mine");
        make_veth("veth0", "veth1");
        let opened = Tap::open("mine", true, true).unwrap();
        let refused = |name: &str| Tap::open(name, true, true).unwrap_err().0;
        assert_eq!(refused("mine"), "TAP mine: another process has it");
        assert_eq!(refused("veth0"), "veth0 is not a TAP with one queue");
        assert_eq!(
            refused("nothing"),
            "there is no interface nothing: make it with host-up --helper"
        );
        assert!(Interfaces::open().unwrap().index("nothing").is_err(), "no TAP was made");
        drop(opened);
        Tap::open("mine", false, false).expect("free again");
        let (made, new) = Tap::open_or_make("nothing", false, false).unwrap();
        assert!(new && Interfaces::open().unwrap().index("nothing").is_ok());
        drop(made);
        assert!(Interfaces::open().unwrap().index("nothing").is_err(), "it is gone with its owner");
        let missing = PacketSocket::open("nothing", ETHERTYPE).unwrap_err().0;
        assert_eq!(missing, "NIC nothing: No such device");
    });
}

#[test]
fn offloads_are_taken_and_given_back() {
    in_namespace(|| {
        make_tap("plain");
        ip("addr add 10.9.0.1/24 dev plain");
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev plain nud permanent");
        let socket = UdpSocket::bind("10.9.0.1:7777").unwrap();
        socket.set_nonblocking(true).unwrap();
        let read = |tap: &Tap| {
            wait_for("carrier", || Interfaces::open().unwrap().is_up("plain").then_some(()));
            socket.send_to(b"hello, other side", "10.9.0.2:7777").unwrap();
            let (mut header, mut frame) = ([0; 10], Vec::with_capacity(70000));
            wait_for("the datagram", || tap.read(&mut header, &mut frame).ok());
            (header, frame)
        };
        let with = Tap::open("plain", true, true).unwrap();
        let (header, mut frame) = read(&with);
        assert_eq!(header[0], 1, "the checksum is left to us: {header:?}");
        // It goes back as an answer. Both MACs and both addresses are swapped, so the partial
        // checksum stays as it is.
        for (a, b) in [
            (0, 6),
            (1, 7),
            (2, 8),
            (3, 9),
            (4, 10),
            (5, 11),
            (26, 30),
            (27, 31),
            (28, 32),
            (29, 33),
        ] {
            frame.swap(a, b);
        }
        with.write(&header, &frame).unwrap();
        let mut text = [0; 100];
        let (length, from) = wait_for("the answer", || socket.recv_from(&mut text).ok());
        assert_eq!(
            (&text[..length], from.to_string().as_str()),
            (&b"hello, other side"[..], "10.9.0.2:7777")
        );
        drop(with);
        // A persistent TAP remembers its offloads. They must not be left on for a bridge that
        // cannot use them.
        let (header, frame) = read(&Tap::open("plain", true, false).unwrap());
        assert_eq!(header[..2], [0, 0]);
        let without = Tap::open("plain", false, false).unwrap();
        assert_eq!(read(&without).1.len(), frame.len());
    });
}

#[test]
fn packet_sockets_carry_batches_in_order() {
    in_namespace(|| {
        make_veth("veth0", "veth1");
        let (one, other) = (
            PacketSocket::open("veth0", ETHERTYPE).unwrap(),
            PacketSocket::open("veth1", ETHERTYPE).unwrap(),
        );
        let sent: Vec<_> = (0..150).map(|i| frame(i, 60 + usize::from(i), None)).collect();
        send_all(&one, &sent);
        let got = receive(&other, 150, 2048);
        assert!(got.iter().all(|received| !received.cut_off && !received.foreign));
        assert!(
            got.into_iter().map(|received| received.frame).collect::<Vec<_>>() == sent,
            "as they were sent"
        );
        let mut elsewhere = frame(8, 100, None);
        elsewhere[..6].copy_from_slice(&[2, 0, 0, 0, 0, 77]);
        one.send(std::iter::once(&elsewhere[..])).unwrap();
        assert!(receive(&other, 1, 2048)[0].foreign, "another host's");
        let mut own = Vec::new();
        let nothing = one.receive(&mut buffers(1, 2048), &mut own).unwrap_err();
        assert_eq!(
            (nothing.kind(), own.len()),
            (ErrorKind::WouldBlock, 0),
            "it does not hear itself"
        );

        one.send(std::iter::once(&frame(9, 1000, None)[..])).unwrap();
        let cut = receive(&other, 1, 100);
        assert!(
            cut[0].cut_off && cut[0].frame == frame(9, 1000, None)[..cut[0].frame.len()],
            "{cut:?}"
        );

        assert_eq!(other.drops().unwrap(), 0);
        let long = frame(1, 1514, None);
        let flood = vec![long.clone(); 400 * BATCH];
        send_all(&one, &flood);
        let mut drops = 0;
        wait_for("more than it has room for", || {
            drops += other.drops().unwrap();
            (drops > 0).then_some(())
        });
        // Each is counted once: there are no more drops than frames that did not arrive. Frames
        // that are still on their way arrive meanwhile.
        drops += other.drops().unwrap();
        let mut kept = Vec::new();
        while other.receive(&mut buffers(BATCH, 2048), &mut kept).is_ok() {}
        let max_drops = flood.len() - kept.len();
        assert!(
            drops as usize <= max_drops,
            "{drops} drops, but only {max_drops} of {} did not arrive",
            flood.len()
        );
        ip("link set veth0 down");
        assert!(one.send(std::iter::once(&long[..])).is_err());
        let interfaces = Interfaces::open().unwrap();
        wait_for("loss of carrier", || (!interfaces.is_up("veth1")).then_some(()));
    });
}

#[test]
fn interfaces_are_changed_and_counted() {
    in_namespace(|| {
        make_veth("veth0", "veth1");
        let mut interfaces = Interfaces::open().unwrap();
        interfaces.set_mac("veth0", [2, 0, 0, 0, 0, 9]).unwrap();
        interfaces.set_mtu("veth0", 1478).unwrap();
        assert_eq!(
            (interfaces.mac("veth0").unwrap(), interfaces.mtu("veth0").unwrap()),
            ([2, 0, 0, 0, 0, 9], 1478)
        );
        assert_eq!(interfaces.speed_bps("veth0"), Some(10_000_000_000), "a veth reports this");
        ip("link set veth0 down");
        wait_for("both down", || {
            (!interfaces.is_up("veth0") && !interfaces.is_up("veth1")).then_some(())
        });
        interfaces.set_up("veth0").unwrap();
        wait_for("both up", || {
            (interfaces.is_up("veth0") && interfaces.is_up("veth1")).then_some(())
        });
        let socket = PacketSocket::open("veth0", ETHERTYPE).unwrap();
        let mut bytes = || {
            let mut found = 0;
            interfaces
                .rx_bytes(|name, bytes| found += if name == "veth1" { bytes } else { 0 })
                .unwrap();
            found
        };
        let before = bytes();
        socket.send([&frame(1, 1000, None)[..], &frame(2, 500, None)[..]].into_iter()).unwrap();
        wait_for("the counter", || (bytes() == before + 1500).then_some(()));
    });
}
