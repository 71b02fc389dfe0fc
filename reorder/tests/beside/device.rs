// SPDX-License-Identifier: Apache-2.0
//! The main loop with the programs' device: frames come and go, maps come and are replaced.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

use ri2n_reorder::beside::steering::Steering;
use ri2n_reorder::driver::{Driver, Sink};
use ri2n_reorder::offload::vnet::VnetHdr;
use ri2n_reorder::options::Options;
use ri2n_reorder::run::devices::Devices;
use ri2n_reorder::run::{Loop, Unmerged};
use ri2n_reorder::sys::packet::{PacketSocket, Received, BATCH};
use ri2n_reorder::sys::signals::Signals;
use ri2n_reorder::wire::{Mac, Tag};
use ri2n_reorder::Nanos;
use ri2n_wire::handover::{Client, Server};
use ri2n_wire::shared::Files;

use super::steering::Programs;
use super::{key, tcp};
use crate::namespace::{in_namespace, ip, make_tap, wait_for};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const PORTS: u32 = 77;

#[derive(Default)]
struct Told {
    own: Option<Mac>,
    woken: Vec<Mac>,
    turns: usize,
}

/// An engine that knows its host's MAC, and nothing else.
struct Knowing(Rc<RefCell<Told>>);

impl Driver for Knowing {
    fn on_plain(&mut self, _: Nanos, _: &VnetHdr, frame: Vec<u8>, out: &mut dyn Sink) {
        out.done(frame);
    }

    fn on_wire(&mut self, _: Nanos, _: Option<Tag>, _: u8, frame: Vec<u8>, out: &mut dyn Sink) {
        out.done(frame);
    }

    fn on_tick(&mut self, now: Nanos, _: &mut dyn Sink) -> Nanos {
        now + 1_000_000
    }

    fn tell_beside(&mut self, _: Nanos, _: &mut Steering) {
        self.0.borrow_mut().turns += 1;
    }

    fn woken(&mut self, _: Nanos, peer: Mac) {
        self.0.borrow_mut().woken.push(peer);
    }

    fn own(&self) -> Option<Mac> {
        self.0.borrow().own
    }

    fn patience_ns(&self, _: Mac) -> Nanos {
        50_000_000
    }

    fn wants_plain(&mut self, _: Nanos) -> bool {
        true
    }

    fn nic_renamed(&mut self, _: u8, _: &str) {}

    fn nics(&self) -> &[(u8, String)] {
        &[]
    }

    fn nic_counters(&mut self, _: Nanos, _: u8, _: u64, _: bool) {}

    fn status(&self) -> serde_json::Value {
        serde_json::json!({})
    }

    fn goodbye(&mut self, _: Nanos, _: &mut dyn Sink) {}
}

struct Running {
    main_loop: Loop<Knowing, Unmerged>,
    told: Rc<RefCell<Told>>,
}

impl Running {
    fn start(maps: &Path) -> Self {
        let line = format!(
            "ri2n-reorder --plain plain --wire wire --fast-maps {} --hold hold",
            maps.display()
        );
        let (devices, _) = Devices::open(&Options::parse(line.split(' ')).unwrap()).unwrap();
        let told = Rc::<RefCell<Told>>::default();
        let (driver, signals) = (Knowing(told.clone()), Signals::take().unwrap());
        let main_loop = Loop::new(devices, driver, Unmerged, signals, None).unwrap();
        Running { main_loop, told }
    }

    fn status(&self) -> serde_json::Value {
        self.main_loop.status()["beside"].clone()
    }

    fn turn_until<T>(&mut self, what: &str, mut done: impl FnMut(&Self) -> Option<T>) -> T {
        wait_for(what, || {
            assert!(self.main_loop.turn().unwrap());
            done(self)
        })
    }

    fn connected(&mut self, server: &Server, maps: &Files<std::os::fd::OwnedFd>) -> Client {
        let mut client = self.turn_until("a connection", |_| server.accept(maps).unwrap());
        self.turn_until("ready", |_| client.is_ready().unwrap().then_some(()));
        client
    }
}

/// Frames that the device brought to the host.
fn arrived(socket: &PacketSocket, got: &mut Vec<Received>) {
    let mut spare: Vec<_> = (0..BATCH).map(|_| Vec::with_capacity(70_000)).collect();
    let _ = socket.receive(&mut spare, got);
}

fn give(socket: &PacketSocket, to: [u8; 6], from: [u8; 6], mut frame: Vec<u8>) {
    frame[..12].copy_from_slice(&[to, from].concat());
    assert_eq!(socket.send(std::iter::once(&frame[..])).unwrap(), 1);
}

/// `rx` counts a frame, and gives it.
fn early(programs: &Programs, socket: &PacketSocket, start: u32) {
    programs.shared.flows()[3].word.fetch_add(1 << 32, SeqCst);
    give(socket, [2, 1, 0, 0, 0, 3], PEER, tcp(PORTS, start, 100));
}

fn socket_path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ri2n-beside-{}-{name}", std::process::id()))
}

fn make_taps() {
    ["plain", "wire", "hold"].into_iter().for_each(make_tap);
}

#[test]
fn early_frames_come_back_in_order_and_others_wake_the_engine() {
    in_namespace(|| {
        make_taps();
        let path = socket_path("order");
        let programs = Programs::new();
        let server = Server::new(&path).unwrap();
        let mut helper = Running::start(&path);
        let mut client =
            helper.turn_until("a connection", |_| server.accept(programs.files()).unwrap());
        helper.turn_until("maps", |it| (it.status()["maps"] == true).then_some(()));
        for _ in 0..5 {
            assert!(helper.main_loop.turn().unwrap());
        }
        assert!(!client.is_ready().unwrap(), "it does not know its own MAC");
        helper.told.borrow_mut().own = Some(Mac(OWN));
        helper.turn_until("ready", |_| client.is_ready().unwrap().then_some(()));

        let socket = wait_for("the carrier", || PacketSocket::open("hold", 0x0800).ok());
        give(&socket, PEER, OWN, tcp(PORTS, 0, 10));
        helper.turn_until("a wake-up", |it| it.told.borrow_mut().woken.pop());

        let flow = &programs.shared.flows()[3];
        flow.key.store(key(PORTS), SeqCst);
        flow.word.store(1000, SeqCst);
        early(&programs, &socket, 1200);
        early(&programs, &socket, 1100);
        helper.turn_until("two that wait", |it| (it.status()["waiting"] == 2).then_some(()));
        assert_eq!(flow.least.load(SeqCst), 1100);
        early(&programs, &socket, 1000);
        give(&socket, [9; 6], PEER, tcp(PORTS, 0, 10));
        let mut got = Vec::new();
        helper.turn_until("three frames", |_| {
            arrived(&socket, &mut got);
            (got.len() == 3).then_some(())
        });
        let starts = [1000, 1100, 1200];
        for (Received { frame, .. }, start) in got.iter().zip(starts) {
            let mut wanted = tcp(PORTS, start, 100);
            wanted[..12].copy_from_slice(&[OWN, PEER].concat());
            assert_eq!(frame, &wanted);
        }
        assert_eq!(flow.word.load(SeqCst), 1300);
        let status = helper.turn_until("an unknown frame", |it| {
            Some(it.status()).filter(|status| status["unknown"] == 1)
        });
        assert_eq!((&status["released"], &status["woken"]), (&3.into(), &1.into()));
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn new_maps_replace_old_ones_and_strange_answers_change_nothing() {
    in_namespace(|| {
        make_taps();
        let path = socket_path("maps");
        let mut helper = Running::start(&path);
        helper.told.borrow_mut().own = Some(Mac(OWN));
        for _ in 0..20 {
            assert!(helper.main_loop.turn().unwrap(), "nobody listens");
        }
        let programs = Programs::new();
        let server = Server::new(&path).unwrap();
        let client = helper.connected(&server, programs.files());
        let steer = programs.steer();
        steer.until_ns.store(1, SeqCst);
        drop((client, server));
        helper.turn_until("the end", |it| (it.status()["connected"] == false).then_some(()));
        assert_eq!(helper.status()["maps"], true, "the programs are still there");
        let turns = helper.told.borrow().turns;
        helper.turn_until("turns", |it| (it.told.borrow().turns > turns).then_some(()));

        // Files that are too short for maps.
        let server = Server::new(&path).unwrap();
        let short = Programs::new();
        for file in [&short.files().steers, &short.files().flows] {
            rustix::fs::ftruncate(file, 4096).unwrap();
        }
        let refused = helper.turn_until("a connection", |_| server.accept(short.files()).unwrap());
        for _ in 0..20 {
            assert!(helper.main_loop.turn().unwrap());
        }
        assert_eq!(helper.status()["connected"], false);
        assert_eq!(helper.status()["maps"], true);
        drop(refused);

        let flow = &programs.shared.flows()[3];
        flow.key.store(key(PORTS), SeqCst);
        flow.word.store(1000, SeqCst);
        let socket = wait_for("the carrier", || PacketSocket::open("hold", 0x0800).ok());
        early(&programs, &socket, 1200);
        helper.turn_until("one that waits", |it| (it.status()["held"] == 1).then_some(()));
        let others = Programs::new();
        others.shared.flows()[5].word.store(7 << 32, SeqCst);
        let mut client = None;
        wait_for("new maps", || {
            assert!(helper.main_loop.turn().unwrap());
            match server.accept(if client.is_none() { others.files() } else { short.files() }) {
                Ok(Some(new)) => client = Some(new),
                Ok(None) => {}
                Err(error) => panic!("{error}"),
            }
            let ready = client.as_mut().is_some_and(|it| it.is_ready().unwrap_or(false));
            ready.then_some(())
        });
        assert_eq!(helper.status()["waiting"], 0, "it was counted in the old maps");
        assert_eq!(others.shared.flows()[5].word.load(SeqCst), 0);
        let mut got = Vec::new();
        helper.turn_until("the frame", |_| {
            arrived(&socket, &mut got);
            (!got.is_empty()).then_some(())
        });
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn without_its_device_the_helper_goes_on() {
    in_namespace(|| {
        ["plain", "wire"].into_iter().for_each(make_tap);
        let path = socket_path("device");
        let mut helper = Running::start(&path);
        assert!(helper.main_loop.turn().unwrap());
        assert!(helper.status().is_null());
        drop(helper);

        make_tap("hold");
        let programs = Programs::new();
        let server = Server::new(&path).unwrap();
        let mut helper = Running::start(&path);
        helper.told.borrow_mut().own = Some(Mac(OWN));
        let mut client = helper.connected(&server, programs.files());
        ip("link delete hold");
        helper.turn_until("the end", |it| it.status().is_null().then_some(()));
        assert!(client.is_ready().is_err(), "no more frames may come");
        assert!(helper.main_loop.turn().unwrap());
        std::fs::remove_file(&path).unwrap();
    });
}
