// SPDX-License-Identifier: Apache-2.0
//! What the program that stripes TCP does by what it knows of the sockets of its own host: it
//! refuses, it lets what is sent again take a link that works, and it sends probes by two links.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::beside::{pattern, prepare, start, tcp_counter};
use crate::hosts::{nics, Other};
use crate::namespace::{in_namespace, run, wait_for};
use ri2n_fast::programs::Programs;
use ri2n_wire::shared::Shared;

const CONNECTIONS: usize = 4;
/// TCP that does not go on would try for a quarter of an hour.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// Both hosts' programs. Nobody puts anything in order.
struct Hosts {
    near: Programs,
    far: Programs,
    shared: Shared,
}

impl Hosts {
    fn new(other: &Other) -> Self {
        prepare(run, 1);
        prepare(|line| other.run(line), 2);
        let (near, shared) = start(1);
        let far = std::thread::scope(|scope| {
            let far = scope.spawn(|| {
                other.enter();
                start(2).0
            });
            far.join().unwrap()
        });
        Hosts { near, far, shared }
    }

    fn events(&self, name: &str) -> u64 {
        self.near.counts().unwrap().events[name]
    }

    fn check_drops(&self) {
        for counts in [self.near.counts().unwrap(), self.far.counts().unwrap()] {
            assert!(counts.dropped.values().all(|count| *count == 0), "{counts:?}");
        }
    }
}

/// A server on host 2 that answers each message of these lengths with a byte.
fn serve(other: &Other, lengths: &[usize]) {
    other.enter();
    let listener = TcpListener::bind("10.9.0.2:5000").unwrap();
    let answer = |mut stream: TcpStream| {
        stream.set_read_timeout(PATIENCE).unwrap();
        for length in lengths {
            let mut got = vec![0; *length];
            stream.read_exact(&mut got).unwrap();
            assert!(got == pattern()[..*length], "the stream has other bytes");
            stream.write_all(&[1]).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            let (stream, _) = listener.accept().unwrap();
            scope.spawn(|| answer(stream));
        }
    });
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect("10.9.0.2:5000").unwrap();
    stream.set_read_timeout(PATIENCE).unwrap();
    stream
}

/// Sends a message, and waits for the answer.
fn ask(stream: &mut TcpStream, length: usize) {
    stream.write_all(&pattern()[..length]).unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

fn wait_for_server(other: &Other) {
    wait_for("a server", || other.run("ss -Htln").contains(":5000").then_some(()));
}

#[test]
fn what_is_refused_is_no_loss() {
    in_namespace(|| {
        let other = nics();
        let hosts = Hosts::new(&other);
        let steer = &hosts.shared.steers()[0];
        // 100 Mbit/s each, as they have it.
        for port in [1, 2] {
            run(&format!("tc qdisc add dev nic{port} root tbf rate 100mbit burst 10kb limit 20mb"));
        }
        for lane in &steer.lanes[..2] {
            lane.ns_per_kib.store(81_920, Relaxed);
        }
        steer.limit_ns.store(1_000_000, Relaxed);
        let counter = |name| tcp_counter(run, name);
        let before = counter("TCPTimeouts");
        let lengths = [1_500_000, 1, 20_000, 1];
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&other, &lengths));
            wait_for_server(&other);
            for _ in 0..CONNECTIONS {
                scope.spawn(|| {
                    let mut stream = connect();
                    lengths.iter().for_each(|length| ask(&mut stream, *length));
                });
            }
        });
        let refused = hosts.events("refused");
        assert!(refused > 100, "only {refused} were refused");
        assert_eq!(steer.refused.load(Relaxed), refused);
        // TCP, which gets back what is refused, tries again as soon as something is acknowledged.
        // Else each time would be a time-out. On a busy machine there are some all the same.
        let timeouts = counter("TCPTimeouts") - before;
        assert!(timeouts * 10 < refused, "{timeouts} time-outs, {refused} refused");
        hosts.check_drops();
    });
}

/// What is refused is tried again when something was acknowledged or sent, not over and over.
#[test]
fn a_connection_that_repeats_does_not_try_all_the_time() {
    in_namespace(|| {
        let other = nics();
        let hosts = Hosts::new(&other);
        let steer = &hosts.shared.steers()[0];
        // They have 10 Mbit/s each, and a short queue; more was granted, so some segments are lost.
        for port in [1, 2] {
            run(&format!("tc qdisc add dev nic{port} root tbf rate 10mbit burst 4kb limit 60kb"));
        }
        for lane in &steer.lanes[..2] {
            lane.ns_per_kib.store(600_000, Relaxed);
        }
        steer.limit_ns.store(1_000_000, Relaxed);
        let lengths = [1_500_000];
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&other, &lengths));
            wait_for_server(&other);
            for _ in 0..CONNECTIONS {
                scope.spawn(|| ask(&mut connect(), lengths[0]));
            }
        });
        let sent: u64 = (0..2).map(|link| steer.lanes[link].frames_out.load(Relaxed)).sum();
        let refused = hosts.events("refused");
        assert!(refused > 100, "only {refused} were refused");
        assert!(2 * refused < sent, "{refused} refused, {sent} sent");
        hosts.check_drops();
    });
}

/// Link 1, which is the faster one, dies after the first messages, and nobody says so.
fn with_a_dead_link(lengths: &[usize]) {
    let other = nics();
    let hosts = Hosts::new(&other);
    let steer = &hosts.shared.steers()[0];
    steer.lanes[1].ns_per_kib.store(4096, Relaxed);
    let by = |link: usize| steer.lanes[link].frames_out.load(Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&other, lengths));
        wait_for_server(&other);
        let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect()).collect();
        streams.iter_mut().for_each(|stream| ask(stream, lengths[0]));
        let twice = hosts.events("twice");
        let before = [by(0), by(1)];
        other.run("ip link set nic2 down");
        std::thread::scope(|scope| {
            for stream in &mut streams {
                scope.spawn(|| lengths[1..].iter().for_each(|length| ask(stream, *length)));
            }
        });
        let messages = ((lengths.len() - 1) * CONNECTIONS) as u64;
        assert!(by(1) - before[1] >= messages, "the link that is dead looked free");
        assert!(by(0) - before[0] >= messages, "all came by the other one");
        assert!(hosts.events("twice") > twice);
    });
    assert_eq!(steer.links.load(Relaxed), 3);
    hosts.check_drops();
}

#[test]
fn a_probe_takes_the_link_that_lives_too() {
    in_namespace(|| with_a_dead_link(&[100; 4]));
}

/// Where a later segment was acknowledged, what is sent again is no probe. Without a link that was
/// heard lately it takes two links all the same: else it would take the dead one time after time.
#[test]
fn tcp_goes_on_while_a_link_that_is_dead_looks_free() {
    in_namespace(|| {
        with_a_dead_link(&[&[100; 4][..], &[10_000; 8], &[400_000]].concat());
    });
}
