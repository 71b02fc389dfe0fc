// SPDX-License-Identifier: Apache-2.0
//! Real traffic between two hosts passes beside the bridge, byte by byte.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Barrier;

use crate::hosts::{arrival, devices, ifindex, local, nics, own, plan, PATHS};
use crate::namespace::{in_namespace, run};
use ri2n_fast::programs::{Count, Counts, Programs};
use ri2n_fast::sys::packet::PacketSocket;

const CONNECTIONS: u16 = 12;
const BYTES: usize = 2_000_000;
const ADDRESSES: [(&str, &str); 2] = [("10.9.0.1", "10.9.0.2"), ("[fd09::1]", "[fd09::2]")];

/// The bytes of a stream: no two places near each other look alike.
fn pattern(stream: u16) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(0x9e37_79b1) >> 11) as u8 ^ stream as u8;
    (0..BYTES).map(byte).collect()
}

fn expect(stream: &mut TcpStream, number: u16) {
    let mut got = vec![0; BYTES];
    stream.read_exact(&mut got).unwrap();
    assert!(got == pattern(number), "stream {number} has other bytes");
}

fn serve(address: &str) {
    let listener = TcpListener::bind(format!("{address}:5000")).unwrap();
    for number in 0..CONNECTIONS {
        let (mut stream, _) = listener.accept().unwrap();
        expect(&mut stream, number);
        stream.write_all(&pattern(number + 100)).unwrap();
    }
}

fn call(address: &str) {
    for number in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(format!("{address}:5000")).unwrap();
        stream.write_all(&pattern(number)).unwrap();
        expect(&mut stream, number + 100);
    }
}

/// Lengths of datagrams: one byte, what fits in a frame, and fragments.
const LENGTHS: [usize; 5] = [1, 700, 1452, 5000, 20_000];

fn echo(address: &str) {
    let socket = UdpSocket::bind(format!("{address}:5001")).unwrap();
    for _ in 0..usize::from(CONNECTIONS) * LENGTHS.len() {
        let mut buffer = vec![0; 65_536];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        socket.send_to(&buffer[..length], from).unwrap();
    }
}

fn ask(address: &str, own: &str) {
    for number in 0..CONNECTIONS {
        let socket = UdpSocket::bind(format!("{own}:0")).unwrap();
        for length in LENGTHS {
            let sent = &pattern(number)[..length];
            socket.send_to(sent, format!("{address}:5001")).unwrap();
            let mut buffer = vec![0; 65_536];
            let length = socket.recv(&mut buffer).unwrap();
            assert!(buffer[..length] == *sent, "a datagram has other bytes");
        }
    }
}

/// What came out at the bridge for the other host.
fn left(bridge: &PacketSocket) -> usize {
    let frames = std::iter::from_fn(|| bridge.receive().unwrap());
    frames.filter(|frame| frame[..6] == own(1) || frame[..6] == own(2)).count()
}

/// What a host sent is what the other one took.
fn compare(sent: &Counts, arrived: &Counts, host: u8) {
    for (path, tag) in PATHS.into_iter().zip([0, 4]) {
        let port = (path >> 12 & 3) as u8;
        let out = sent.sent[&(own(3 - host), path)];
        let expected = Count { packets: out.packets, bytes: out.bytes + tag * out.packets };
        assert_eq!(arrived.arrived[&arrival(3 - host, port)], expected, "path {path:#x}");
        // A connection alone has many super-packets of several frames each.
        assert!(out.packets > 2 * BYTES as u64 / 1500, "{out:?}");
    }
}

#[test]
fn streams_and_datagrams_pass_beside_the_bridge() {
    in_namespace(|| {
        let other = nics();
        local(run, 1);
        local(|line| other.run(line), 2);
        let mut programs = Programs::load("local", &devices()).unwrap();
        programs.apply(&plan(1)).unwrap();
        programs.attach().unwrap();
        let bridge = PacketSocket::open(ifindex("bridge")).unwrap();
        let listening = Barrier::new(2);
        let far = std::thread::scope(|scope| {
            let far = scope.spawn(|| {
                other.enter();
                let mut programs = Programs::load("local", &devices()).unwrap();
                programs.apply(&plan(2)).unwrap();
                programs.attach().unwrap();
                std::thread::scope(|scope| {
                    for (_, address) in ADDRESSES {
                        scope.spawn(move || serve(address));
                        scope.spawn(move || echo(address));
                    }
                    listening.wait();
                });
                programs.counts().unwrap()
            });
            listening.wait();
            for (own, address) in ADDRESSES {
                crate::namespace::wait_for("a server", || {
                    let free = other.run("ss -Htuln");
                    let ports = [":5000", ":5001"];
                    ports
                        .iter()
                        .all(|port| free.contains(&format!("{address}{port}")))
                        .then_some(())
                });
                scope.spawn(move || call(address));
                scope.spawn(move || ask(address, own));
            }
            far.join().unwrap()
        });
        let near = programs.counts().unwrap();
        compare(&near, &far, 1);
        compare(&far, &near, 2);
        assert_eq!(left(&bridge), 0, "frames took the way through the bridge");
        assert!(near.dropped.values().chain(far.dropped.values()).all(|count| *count == 0));
    });
}
