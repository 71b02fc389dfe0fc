// SPDX-License-Identifier: Apache-2.0
//! The maps of loaded programs, and how what they hold is changed while programs read them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::Ebpf;
use ri2n_wire::shared::{mac_word, Files, Shared, Steer};

use super::layout::{
    mac_key, striped_links, ArrivalKey, Counters, ExceptionBytes, MacKey, PeerBytes, SetupBytes,
    SourceBytes, Wanted, FIRST_AT, MAX_EXCEPTIONS, OPEN_AT,
};
use super::{Count, Counts, Refusal, SlotCounts};
use crate::plan::{Arrival, Mac, PathId, SLOTS};
use crate::sys::bpf::{read_per_cpu, Grace};

/// The places of an array. A place is free again when no program can still read what was there.
#[derive(Debug)]
struct Places {
    free: Vec<u32>,
    left: Vec<u32>,
}

impl Places {
    fn new(count: u32) -> Self {
        Places { free: (0..count).rev().collect(), left: Vec::new() }
    }

    fn take(&mut self, grace: &Grace) -> Result<Option<u32>, Refusal> {
        if self.free.is_empty() && !self.left.is_empty() {
            grace.wait().map_err(|error| Refusal::kernel("wait for programs", &error))?;
            self.free.append(&mut self.left);
        }
        Ok(self.free.pop())
    }
}

/// Where frames are counted. A place belongs to one path, peer or arrival for good, so that counters
/// only grow.
#[derive(Debug, Default)]
struct Ledger {
    room: u32,
    used: u32,
    sent: BTreeMap<(Mac, PathId), u32>,
    arrived: BTreeMap<Arrival, u32>,
    peer_room: u32,
    peers_used: u32,
    by_slot: BTreeMap<Mac, u32>,
}

fn place<K: Ord>(map: &mut BTreeMap<K, u32>, key: K, used: &mut u32, room: u32) -> Option<u32> {
    if let Some(place) = map.get(&key) {
        return Some(*place);
    }
    (*used < room).then(|| {
        map.insert(key, *used);
        *used += 1;
        *used - 1
    })
}

impl Counters for Ledger {
    fn sent(&mut self, peer: Mac, path: PathId) -> Option<u32> {
        place(&mut self.sent, (peer, path), &mut self.used, self.room)
    }

    fn by_slot(&mut self, peer: Mac) -> Option<u16> {
        let found = place(&mut self.by_slot, peer, &mut self.peers_used, self.peer_room);
        found.and_then(|place| place.try_into().ok())
    }

    fn arrived(&mut self, arrival: &Arrival) -> Option<u32> {
        place(&mut self.arrived, arrival.clone(), &mut self.used, self.room)
    }
}

const COUNT_BYTES: usize = 24;
const SLOT_COUNT_BYTES: usize = SLOTS * 8;
/// The reasons in the order of `bpf/maps.h`.
const DROPS: [&str; 2] = ["memory", "stray"];
/// The events in that order.
const EVENTS: [&str; 8] =
    ["refused", "twice", "woken", "early", "crowded", "far", "full", "contended"];

/// The maps, and what is in them.
pub struct Store {
    state: Array<MapData, u32>,
    until_ns: Array<MapData, u64>,
    setups: Array<MapData, SetupBytes>,
    exceptions: Array<MapData, ExceptionBytes>,
    by_mac: HashMap<MapData, MacKey, u32>,
    peers: Array<MapData, PeerBytes>,
    by_arrival: HashMap<MapData, ArrivalKey, u32>,
    sources: Array<MapData, SourceBytes>,
    counts: MapData,
    slot_counts: MapData,
    drops: PerCpuArray<MapData, u64>,
    events: PerCpuArray<MapData, u64>,
    hold: Array<MapData, u32>,
    files: Files<MapData>,
    shared: Shared,
    macs_written: u32,
    grace: Grace,
    ledger: Ledger,
    setup: u32,
    in_force: Wanted,
    peer_places: Places,
    source_places: Places,
    peer_place: BTreeMap<MacKey, u32>,
    source_place: BTreeMap<ArrivalKey, u32>,
}

fn map<T: TryFrom<Map, Error = MapError>>(programs: &mut Ebpf, name: &str) -> Result<T, Refusal> {
    let map = programs.take_map(name).expect("the object has this map");
    T::try_from(map).map_err(|error| Refusal::map(name, &error))
}

/// A per-CPU array, and how many values it has room for.
fn per_cpu(programs: &mut Ebpf, name: &str) -> Result<(MapData, u32), Refusal> {
    let Some(Map::PerCpuArray(map)) = programs.take_map(name) else {
        unreachable!("the object has this map")
    };
    let room = map.info().map_err(|error| Refusal::map(name, &error))?.max_entries();
    Ok((map, room))
}

/// An array that processes have in their memory.
fn shared(programs: &mut Ebpf, name: &str) -> MapData {
    match programs.take_map(name) {
        Some(Map::Array(map)) => map,
        _ => unreachable!("the object has this map"),
    }
}

/// Numbers that each CPU counts, by name.
fn named<const N: usize>(
    map: &PerCpuArray<MapData, u64>,
    names: [&'static str; N],
) -> Result<BTreeMap<&'static str, u64>, Refusal> {
    let sum = |(place, name): (u32, &'static str)| {
        let parts = map.get(&place, 0).map_err(|error| Refusal::map("counters", &error))?;
        Ok((name, parts.iter().sum()))
    };
    (0..).zip(names).map(sum).collect()
}

/// The first values of a per-CPU array of numbers, each as the sum over all CPUs.
fn sums(map: &MapData, name: &str, count: u32, size: usize) -> Result<Vec<Vec<u64>>, Refusal> {
    let cpus =
        aya::util::nr_cpus().map_err(|(_, error)| Refusal::kernel("the number of CPUs", &error))?;
    let values = read_per_cpu(map.fd().as_fd(), count, cpus, size)
        .map_err(|error| Refusal::kernel(format!("read {name}"), &error))?;
    let sum = |parts: &[u8]| {
        let mut sum = vec![0; size / 8];
        for (at, number) in parts.chunks_exact(8).enumerate() {
            sum[at % (size / 8)] += u64::from_ne_bytes(number.try_into().unwrap());
        }
        sum
    };
    Ok(values.chunks_exact(cpus * size).map(sum).collect())
}

fn descriptors(files: &Files<MapData>) -> Files<BorrowedFd<'_>> {
    Files {
        steers: files.steers.fd().as_fd(),
        nics: files.nics.fd().as_fd(),
        flows: files.flows.fd().as_fd(),
    }
}

impl Store {
    /// Takes the maps, which are empty.
    pub fn new(programs: &mut Ebpf, empty: Wanted) -> Result<Self, Refusal> {
        let peers: Array<_, _> = map(programs, "peers")?;
        let sources: Array<_, _> = map(programs, "sources")?;
        let (counts, room) = per_cpu(programs, "counts")?;
        let (slot_counts, peer_room) = per_cpu(programs, "slot_counts")?;
        let files = Files {
            steers: shared(programs, "steers"),
            nics: shared(programs, "nics"),
            flows: shared(programs, "flows"),
        };
        let memory = Shared::new(&descriptors(&files));
        Ok(Store {
            shared: memory.map_err(|error| Refusal::kernel("shared maps", &error))?,
            files,
            macs_written: 0,
            state: map(programs, "state")?,
            until_ns: map(programs, "until_ns")?,
            setups: map(programs, "setups")?,
            exceptions: map(programs, "exceptions")?,
            by_mac: map(programs, "by_mac")?,
            by_arrival: map(programs, "by_arrival")?,
            drops: map(programs, "drops")?,
            events: map(programs, "events")?,
            hold: map(programs, "hold")?,
            grace: Grace::new().map_err(|error| Refusal::kernel("a map in a map", &error))?,
            ledger: Ledger { room, peer_room, ..Ledger::default() },
            setup: 0,
            in_force: empty,
            peer_places: Places::new(peers.len()),
            source_places: Places::new(sources.len()),
            peer_place: BTreeMap::new(),
            source_place: BTreeMap::new(),
            peers,
            sources,
            counts,
            slot_counts,
        })
    }

    /// Until when the entries hold, by CLOCK_MONOTONIC.
    pub fn hold_until(&mut self, until_ns: u64) -> Result<(), Refusal> {
        self.until_ns.set(0, until_ns, 0).map_err(|error| Refusal::map("until_ns", &error))
    }

    /// The maps that the helper shares.
    pub fn files(&self) -> Files<BorrowedFd<'_>> {
        descriptors(&self.files)
    }

    /// The device by which the helper gets frames from now on; 0: it gets none, and no program that
    /// still runs gives it one when this returns.
    pub fn set_hold(&mut self, ifindex: u32) -> Result<(), Refusal> {
        let failed = |error| Refusal::map("hold", &error);
        let before = self.hold.get(&0, 0).map_err(failed)?;
        self.hold.set(0, ifindex, 0).map_err(failed)?;
        if ifindex == 0 && before != 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// The peers to which the programs stripe TCP at this time, and by which links.
    pub fn striping(&self, now_ns: u64) -> impl Iterator<Item = (Mac, &Steer, u64)> {
        self.ledger.by_slot.iter().filter_map(move |(mac, place)| {
            let peer = self.in_force.peers.get(&mac_key(mac))?;
            let steer = &self.shared.steers()[*place as usize];
            let links = steer.links.load(Relaxed) & striped_links(peer);
            (steer.until_ns.load(Relaxed) > now_ns && links != 0).then_some((*mac, steer, links))
        })
    }

    /// Where frames are counted.
    pub fn counters(&mut self) -> &mut impl Counters {
        &mut self.ledger
    }

    /// Changes the maps so that they hold what is wanted. Returns how much of it found no room.
    ///
    /// The order is such that no frame goes wrong meanwhile: what is pointed to is whole, and what
    /// `own` refuses is still taken by `rx`.
    pub fn change(&mut self, wanted: &Wanted) -> Result<usize, Refusal> {
        self.name_steers();
        // What the host is called and where its port is go together with all entries.
        const HEAD: std::ops::Range<usize> = 0..6;
        const DEVICE: std::ops::Range<usize> = 8..16;
        let (old, new) = (&self.in_force.setup, &wanted.setup);
        if old[HEAD] != new[HEAD] || old[DEVICE] != new[DEVICE] {
            self.change_peers(&BTreeMap::new())?;
            self.change_sources(&BTreeMap::new())?;
        }
        self.change_setup(wanted)?;
        let peers = self.change_peers(&wanted.peers)?;
        let sources = self.change_sources(&wanted.sources)?;
        Ok(peers + sources)
    }

    /// Says whose each place is. Places are given in order, so none stays free between others.
    fn name_steers(&mut self) {
        for (mac, place) in &self.ledger.by_slot {
            if *place >= self.macs_written {
                self.shared.steers()[*place as usize].mac.store(mac_word(*mac), Relaxed);
            }
        }
        self.macs_written = self.ledger.peers_used;
    }

    fn wait(&self) -> Result<(), Refusal> {
        self.grace.wait().map_err(|error| Refusal::kernel("wait for programs", &error))
    }

    fn change_setup(&mut self, wanted: &Wanted) -> Result<(), Refusal> {
        let now = &self.in_force;
        if now.setup == wanted.setup && now.exceptions == wanted.exceptions {
            return Ok(());
        }
        let next = 1 - self.setup;
        self.wait()?; // nobody reads the one from before the last change
        let failed = |error| Refusal::map("setups", &error);
        let first = next * MAX_EXCEPTIONS as u32;
        for (place, bytes) in (first..).zip(&wanted.exceptions) {
            self.exceptions.set(place, bytes, 0).map_err(failed)?;
        }
        let mut setup = wanted.setup;
        setup[FIRST_AT..].copy_from_slice(&first.to_ne_bytes());
        self.setups.set(next, setup, 0).map_err(failed)?;
        self.state.set(0, next, 0).map_err(failed)?;
        self.setup = next;
        self.in_force.setup = wanted.setup;
        self.in_force.exceptions.clone_from(&wanted.exceptions);
        Ok(())
    }

    fn change_peers(&mut self, wanted: &BTreeMap<MacKey, PeerBytes>) -> Result<usize, Refusal> {
        let failed = |error| Refusal::map("peers", &error);
        let gone: Vec<MacKey> =
            self.peer_place.keys().filter(|key| !wanted.contains_key(*key)).copied().collect();
        for key in gone {
            self.by_mac.remove(&key).map_err(failed)?;
            self.in_force.peers.remove(&key);
            self.peer_places.left.extend(self.peer_place.remove(&key));
        }
        let mut left_out = 0;
        for (key, bytes) in wanted {
            if self.in_force.peers.get(key) == Some(bytes) {
                continue;
            }
            let Some(place) = self.peer_places.take(&self.grace)? else {
                left_out += 1;
                continue;
            };
            self.peers.set(place, bytes, 0).map_err(failed)?;
            self.by_mac.insert(key, place, 0).map_err(failed)?;
            self.peer_places.left.extend(self.peer_place.insert(*key, place));
            self.in_force.peers.insert(*key, *bytes);
        }
        Ok(left_out)
    }

    fn change_sources(
        &mut self,
        wanted: &BTreeMap<ArrivalKey, SourceBytes>,
    ) -> Result<usize, Refusal> {
        let failed = |error| Refusal::map("sources", &error);
        let gone: Vec<ArrivalKey> =
            self.source_place.keys().filter(|key| !wanted.contains_key(*key)).copied().collect();
        for key in &gone {
            // One byte changes: a program sees the old entry or the new one.
            let mut closed = self.in_force.sources[key];
            closed[OPEN_AT] = 0;
            self.sources.set(self.source_place[key], closed, 0).map_err(failed)?;
            self.in_force.sources.insert(*key, closed);
        }
        if !gone.is_empty() {
            self.wait()?;
        }
        for key in gone {
            self.by_arrival.remove(&key).map_err(failed)?;
            self.in_force.sources.remove(&key);
            self.source_places.left.extend(self.source_place.remove(&key));
        }
        let mut left_out = 0;
        for (key, bytes) in wanted {
            if self.in_force.sources.get(key) == Some(bytes) {
                continue;
            }
            let Some(place) = self.source_places.take(&self.grace)? else {
                left_out += 1;
                continue;
            };
            self.sources.set(place, bytes, 0).map_err(failed)?;
            self.by_arrival.insert(key, place, 0).map_err(failed)?;
            self.source_places.left.extend(self.source_place.insert(*key, place));
            self.in_force.sources.insert(*key, *bytes);
        }
        Ok(left_out)
    }

    /// What was counted since the load.
    pub fn counts(&self) -> Result<Counts, Refusal> {
        let sums = sums(&self.counts, "counts", self.ledger.used, COUNT_BYTES)?;
        let count = |place: &u32| {
            let sum = &sums[*place as usize];
            Count { packets: sum[0], bytes: sum[1] }
        };
        let mut counts = Counts::default();
        for (key, place) in &self.ledger.sent {
            counts.sent.insert(*key, count(place));
        }
        for (key, place) in &self.ledger.arrived {
            counts.arrived.insert(key.clone(), count(place));
        }
        counts.dropped = named(&self.drops, DROPS)?;
        counts.events = named(&self.events, EVENTS)?;
        Ok(counts)
    }

    /// The bytes that were sent by slot since the load.
    pub fn slot_counts(&self) -> Result<SlotCounts, Refusal> {
        let used = self.ledger.peers_used;
        let sums = sums(&self.slot_counts, "slot_counts", used, SLOT_COUNT_BYTES)?;
        let of =
            |place: &u32| sums[*place as usize][..].try_into().expect("a number for each slot");
        Ok(self.ledger.by_slot.iter().map(|(peer, place)| (*peer, of(place))).collect())
    }
}
