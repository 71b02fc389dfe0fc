// SPDX-License-Identifier: Apache-2.0
//! Both sides of the socket see the same memory, and notice when the other one is gone.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use ri2n_wire::handover::{Connection, Server};
use ri2n_wire::shared::{mac_word, Files, Given, Shared};
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};

fn file(bytes: usize) -> OwnedFd {
    let file = memfd_create("map", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes as u64).unwrap();
    file
}

fn maps() -> Files<OwnedFd> {
    let bytes = Shared::bytes();
    Files { steers: file(bytes.steers), nics: file(bytes.nics), flows: file(bytes.flows) }
}

#[test]
fn both_sides_see_the_same_memory() {
    let path = std::env::temp_dir().join(format!("ri2n-wire-{}.sock", std::process::id()));
    let maps = maps();
    let server = Server::new(&path).unwrap();
    assert!(server.accept(&maps).unwrap().is_none());
    let mut connection = Connection::new(&path).unwrap();
    assert!(connection.take().unwrap().is_none());
    let mut client = server.accept(&maps).unwrap().expect("somebody connected");
    let (ours, theirs) = (Shared::new(&maps).unwrap(), connection.take().unwrap());
    let theirs = theirs.expect("the maps came");
    assert!(!client.is_ready().unwrap());
    connection.ready().unwrap();
    assert!(client.is_ready().unwrap() && client.is_ready().unwrap());

    let mac = [2, 0, 0, 0, 0, 9];
    assert_eq!(theirs.place_of(mac), None);
    ours.steers()[0].mac.store(mac_word([2, 0, 0, 0, 0, 1]), Relaxed);
    ours.steers()[1].mac.store(mac_word(mac), Relaxed);
    assert_eq!(theirs.place_of(mac), Some(1));
    theirs.steers()[2047].lanes[31].bytes_in.store(7, Relaxed);
    assert_eq!(ours.steers()[2047].lanes[31].bytes_in.load(Relaxed), 7);
    theirs.flows()[4095].lanes[31].store(8, Relaxed);
    assert_eq!(ours.flows()[4095].lanes[31].load(Relaxed), 8);

    assert!(connection.is_open());
    drop(client);
    assert!(!connection.is_open());
    let mut next = Connection::new(&path).unwrap();
    let mut client = server.accept(&maps).unwrap().unwrap();
    assert!(next.take().unwrap().is_some());
    drop(next);
    assert!(client.is_ready().is_err());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn frames_say_why_the_helper_has_them() {
    let (own, peer) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let frame = |to: [u8; 6], from: [u8; 6]| [to, from].concat().try_into().unwrap();
    assert_eq!(Given::read(&frame(peer, own), own), Some(Given::Wake { peer }));
    let early = [2, 31, 0, 0, 15, 255];
    let told = Given::Early { flow: 4095, lane: 31, peer };
    assert_eq!(Given::read(&frame(early, peer), own), Some(told));
    for other in [[2, 32, 0, 0, 0, 0], [2, 0, 0, 0, 16, 0], [0, 0, 0, 0, 0, 0], [0xff; 6]] {
        assert_eq!(Given::read(&frame(other, peer), own), None, "{other:x?}");
    }
}
