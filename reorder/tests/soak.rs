// SPDX-License-Identifier: Apache-2.0
//! Memory stays flat, over a long time with every kind of trouble, and whatever strangers send.
//!
//! For ten simulated minutes: `cargo test --release --test all soak:: -- --include-ignored`.

// Only an allocator knows what is allocated, and its trait is unsafe.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::autonomous::{alike, friends};
use crate::common::{self, mac, Fault, Random, World, LINK_BPS, MS, S};
use ri2n_reorder::driver::Driver;
use ri2n_reorder::engine::Mode;
use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::{self, DataHead, Heartbeat, Mac, Tag};

/// Counts what each thread has allocated, since tests run side by side.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // At the end of a thread, its counter is gone before its last memory is.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call is handed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the trait's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the trait's promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> isize {
    LIVE.with(Cell::get)
}

fn held(world: &mut World, host: usize) -> u64 {
    world.engine(host).status()["held_bytes"].as_u64().unwrap()
}

/// What happens in a minute: 1 % of loss and of duplicates everywhere, one link that takes 3 ms
/// longer, the other one down for a second in every five, and once a helper that is killed.
fn minute(world: &mut World, at: usize) {
    let usual = |port: u8| Fault {
        loss_percent: 1.0,
        duplicate_percent: 1.0,
        delay_ns: if port == 2 { 3 * MS } else { 0 },
        ..Fault::default()
    };
    for second in 0..60 {
        for port in 1..=2 {
            let fault = Fault { blackhole: port == 1 && second % 5 == 3, ..usual(port) };
            world.faults.insert(((0, port), (1, port)), fault);
            world.faults.insert(((1, port), (0, port)), fault);
        }
        if second == 30 {
            world.kill(at % 2);
            world.run(50 * MS);
            world.restart(at % 2);
        }
        world.run(S);
        for host in 0..2 {
            let bytes = held(world, host);
            assert!(
                bytes <= world.settings.max_memory as u64,
                "minute {at}: {bytes} bytes are held"
            );
        }
    }
}

fn soak(mut world: World, minutes: usize, pps: u64) {
    let sources = [world.send(1, 0, pps, 400), world.send(0, 1, pps, 400)];
    let mut levels = Vec::new();
    for at in 0..minutes {
        minute(&mut world, at);
        sources.iter().for_each(|&source| world.stop(source));
        world.run(500 * MS);
        assert_eq!(
            (held(&mut world, 0), held(&mut world, 1)),
            (0, 0),
            "minute {at}: something is held for ever"
        );
        levels.push(live());
        sources.iter().for_each(|&source| world.start(source));
    }
    println!("bytes allocated after each minute: {levels:?}");
    for (from, to) in [(0, 1), (1, 0)] {
        let seen = &world.received[&(from, to)];
        println!("{from} to {to}: {seen:?}");
        let sent = minutes as u64 * 60 * pps;
        assert!(seen.frames > sent * 98 / 100, "of {sent} frames {} arrived", seen.frames);
        // A helper that begins anew does not know what its predecessor delivered. Everything else
        // is in order.
        assert!(seen.out_of_order <= minutes as u64 * 10, "{seen:?}");
    }
    let grown = levels[minutes - 1] - levels[0];
    assert!(grown < 64 << 10, "{grown} bytes more than after the first minute");
}

#[test]
fn memory_is_flat_over_two_minutes() {
    soak(friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 1), 2, 200);
}

#[test]
#[ignore = "ten minutes of traffic, for release builds"]
fn memory_is_flat_over_ten_minutes_without_a_controller() {
    soak(friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 3), 10, 3_000);
}

#[test]
#[ignore = "ten minutes of traffic, for release builds"]
fn memory_is_flat_over_ten_minutes() {
    soak(common::world(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 5), 10, 3_000);
}

/// A greeting of `own` from some NIC.
fn greet(world: &mut World, own: Mac, nic: Mac) {
    let greeting = Heartbeat {
        dst: Mac::BROADCAST,
        src: nic,
        session: 9,
        next_within_ms: 1000,
        limit_kbps: 100_000,
        own,
        ..Heartbeat::default()
    };
    let mut frame = Vec::new();
    greeting.encode(&mut frame);
    world.wire_in(0, None, 1, frame);
}

fn some_mac(random: &mut Random) -> Mac {
    let bytes = random.next().to_be_bytes();
    Mac([2, 7, bytes[2], bytes[3], bytes[4], bytes[5]])
}

#[test]
fn a_host_that_claims_ever_new_nics_fills_no_memory() {
    let mut world = friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 7);
    let mut random = Random(11);
    let mut flood = |world: &mut World| {
        for _ in 0..5_000 {
            let nic = some_mac(&mut random);
            greet(world, mac(5), nic);
        }
        world.run(100 * MS);
        live()
    };
    let first = flood(&mut world);
    let grown = (0..4).map(|_| flood(&mut world)).last().unwrap() - first;
    assert!(grown < 64 << 10, "{grown} bytes more");
}

#[test]
fn hosts_that_nobody_knows_are_forgotten_with_all_that_was_kept_for_them() {
    let mut world = friends(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 13);
    let mut random = Random(17);
    let mut flood = |world: &mut World| {
        for _ in 0..300 {
            let (own, nic) = (some_mac(&mut random), some_mac(&mut random));
            greet(world, own, nic);
        }
        assert!((2..=33).contains(&peers(world)), "{}", peers(world));
        world.run(15 * S);
        assert_eq!(peers(world), 1);
        live()
    };
    // The list of peers keeps the room that it once had.
    let first = flood(&mut world);
    let grown = flood(&mut world) - first;
    assert!(grown < 64 << 10, "{grown} bytes more");
}

#[test]
fn short_frames_that_wait_do_not_each_hold_the_buffer_of_a_long_one() {
    const FRAMES: u32 = 10_000;
    const ROOM: usize = 2048;
    let mut world = common::world(&alike(2, &[LINK_BPS; 2]), Mode::Paced, 19);
    world.run(50 * MS);
    let session = world.engine(1).status()["peers"][0]["session"].as_u64().unwrap() as u32;
    let before = live();
    // The first frame never comes, so all others wait.
    for seq in 1..=FRAMES {
        let mut frame = Vec::with_capacity(ROOM);
        frame.resize(60, 0);
        wire::wrap(
            &mut frame,
            &DataHead { channel: 0, flags: 0, link: 0, session, seq: Seq(seq), link_seq: Seq(seq) },
        );
        wire::set_macs(&mut frame, mac(0), mac(1));
        world.wire_in(0, Some(Tag { vid: 1, pcp: 0 }), 1, frame);
    }
    let waiting = world.engine(0).status()["peers"][0]["reorder_frames"].as_u64();
    assert_eq!(waiting, Some(u64::from(FRAMES)));
    let grown = live() - before;
    assert!(grown < 6 << 20, "{grown} bytes for {FRAMES} frames of 78 bytes");
}

fn peers(world: &mut World) -> usize {
    world.engine(0).status()["peers"].as_array().unwrap().len()
}
