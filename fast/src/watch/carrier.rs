// SPDX-License-Identifier: Apache-2.0
//! The programs, as the loop handles them: which devices they are for, and whether they are in
//! force.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ri2n_wire::shared::Files;

use crate::plan::{Mac, Plan};
use crate::programs::segments::Segments;
use crate::programs::{Counts, Device, Programs, Refusal, SlotCounts};
use crate::report::{Filter, Force};
use crate::rows::model::{Port, LOCAL};
use crate::rows::NICS_END;

/// After a refusal the programs are loaded again so much later.
const LOAD_AGAIN: Duration = Duration::from_secs(10);

/// The devices that the programs are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// The bridge's own device.
    pub local: String,
    /// The NICs.
    pub nics: Vec<Device>,
}

impl Devices {
    /// A bridge's devices, if it has any; of the NICs only `chosen` ones, or all.
    pub fn of(ports: &BTreeMap<u32, Port>, chosen: &[String]) -> Option<Devices> {
        let local = ports.get(&LOCAL)?.name.clone();
        let wanted = |name: &String| chosen.is_empty() || chosen.contains(name);
        let nics = ports.iter().filter(|(number, port)| **number < NICS_END && wanted(&port.name));
        let nics: Vec<Device> =
            nics.map(|(number, port)| Device { port: *number, name: port.name.clone() }).collect();
        (!nics.is_empty()).then_some(Devices { local, nics })
    }
}

struct Loaded {
    programs: Programs,
    segments: Segments,
    devices: Devices,
}

/// The programs and what became of them.
#[derive(Default)]
pub struct Carrier {
    loaded: Option<Loaded>,
    /// Why they are not in force.
    pub refused: Option<Refusal>,
    /// A random number of the last load, with which all counters began at 0.
    pub epoch: u64,
    /// So many of Open vSwitch's sockets leave the programs' frames alone.
    pub filtered: usize,
    /// What a look at the devices did and found, since these lines were taken.
    pub notes: Option<Vec<String>>,
    /// Whether TCP that comes early goes to the helper.
    pub holds: bool,
    /// So many bytes has TCP's longest piece at most, while TCP is striped.
    pub bound: Option<u32>,
    load_again: Option<Instant>,
    /// Whether the programs have the last plan.
    agrees: bool,
}

impl Carrier {
    /// The devices that have the programs.
    pub fn devices(&self) -> Option<&Devices> {
        self.loaded.as_ref().map(|loaded| &loaded.devices)
    }

    /// Whether the programs are in force.
    pub fn force(&self) -> Force {
        match (&self.refused, &self.loaded) {
            (Some(why), _) if why.code != "device" => Force::Refused,
            (Some(_), _) | (None, None) => Force::NoDevice,
            (None, Some(_)) => Force::InForce,
        }
    }

    /// The kernel's reason for a refusal, where it is one that people can cure; 0: none.
    pub fn errno(&self) -> u8 {
        let denied = self.refused.as_ref().is_some_and(|why| why.code == "permission");
        if denied {
            libc::EPERM as u8
        } else {
            0
        }
    }

    /// Whether Open vSwitch leaves the programs' frames alone.
    pub fn filter(&self) -> Filter {
        let needed = self.loaded.as_ref().is_some_and(|loaded| loaded.programs.needs_filters());
        match (needed, self.filtered) {
            (false, _) => Filter::NotNeeded,
            (true, 0) => Filter::Missing,
            (true, _) => Filter::InForce,
        }
    }

    /// Loads the programs for these devices, unless they are loaded for them, and gives them the
    /// plan, which holds until then. The programs take the places of those that were there, with the
    /// plan in them already.
    pub fn carry(&mut self, devices: &Devices, plan: &Plan, until_ns: u64, now: Instant) {
        self.agrees = false;
        let is_loaded = self.devices().is_some_and(|known| known.local == devices.local);
        if !is_loaded && self.load_again.is_some_and(|again| now < again) {
            return;
        }
        let done = if is_loaded {
            self.change(devices, plan, until_ns)
        } else {
            self.load(devices, plan, until_ns, now)
        };
        self.load_again = if !is_loaded && done.is_err() { Some(now + LOAD_AGAIN) } else { None };
        self.refused = done.err();
    }

    fn load(
        &mut self,
        devices: &Devices,
        plan: &Plan,
        until_ns: u64,
        now: Instant,
    ) -> Result<(), Refusal> {
        let mut programs = Programs::load(&devices.local, &devices.nics)?;
        programs.hold_until(until_ns)?;
        programs.apply(plan)?;
        let segments = Segments::of(&devices.local, now)?;
        self.give_back();
        self.agrees = true;
        self.loaded = Some(Loaded { programs, segments, devices: devices.clone() });
        self.epoch = random();
        self.holds = false;
        self.bound = None;
        self.attach()
    }

    fn change(&mut self, devices: &Devices, plan: &Plan, until_ns: u64) -> Result<(), Refusal> {
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        let are_new = loaded.devices != *devices;
        if are_new {
            loaded.programs.set_nics(&devices.nics);
        }
        loaded.programs.apply(plan)?;
        loaded.programs.hold_until(until_ns)?;
        self.agrees = true;
        if !are_new {
            return Ok(());
        }
        let mut gone = std::mem::replace(&mut loaded.devices, devices.clone()).nics;
        gone.retain(|nic| !devices.nics.contains(nic));
        if !gone.is_empty() {
            Programs::unload("", &gone)?;
        }
        self.attach()
    }

    /// Whether the programs have the last plan.
    pub fn agrees(&self) -> bool {
        self.agrees
    }

    /// The last plan is still right, and holds until then (CLOCK_MONOTONIC). A plan that the
    /// programs do not have makes nothing hold.
    pub fn hold_until(&mut self, until_ns: u64) {
        let Some(loaded) = self.loaded.as_mut().filter(|_| self.agrees) else { return };
        if let Err(why) = loaded.programs.hold_until(until_ns) {
            self.refused = Some(why);
        }
    }

    fn attach(&mut self) -> Result<(), Refusal> {
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        let done = loaded.programs.attach();
        self.notes = Some(loaded.programs.notes().to_vec());
        done
    }

    /// Attaches to devices that were made anew, and gives Open vSwitch's new sockets the filter.
    pub fn tend(&mut self, vswitchd_pid: Option<u32>) {
        let attached = self.attach();
        let Some(loaded) = &mut self.loaded else { return };
        let filtered = attached.and_then(|()| match vswitchd_pid {
            Some(pid) if loaded.programs.needs_filters() => loaded.programs.filter_sockets(pid),
            _ => Ok(0),
        });
        self.refused = filtered.as_ref().err().cloned();
        self.filtered = filtered.unwrap_or(0);
    }

    /// The descriptors of the maps that the helper shares.
    pub fn maps(&self) -> Option<io::Result<Files<OwnedFd>>> {
        let maps = self.loaded.as_ref()?.programs.maps();
        let owned = || {
            Ok(Files {
                steers: maps.steers.try_clone_to_owned()?,
                nics: maps.nics.try_clone_to_owned()?,
                flows: maps.flows.try_clone_to_owned()?,
            })
        };
        Some(owned())
    }

    /// From now on TCP that comes early goes to the helper by this device, if it is there; None:
    /// it comes up as it comes in. Returns what this did and found.
    pub fn set_hold(&mut self, device: Option<&str>) -> Vec<String> {
        let Some(loaded) = &mut self.loaded else { return Vec::new() };
        let held = loaded.programs.set_hold(device);
        let mut notes = loaded.programs.notes().to_vec();
        self.holds = matches!(held, Ok(true));
        notes.extend(held.err().map(|why| why.text));
        notes
    }

    /// The peers to which TCP is striped now.
    pub fn striping(&self) -> BTreeSet<Mac> {
        self.loaded.as_ref().map(|loaded| loaded.programs.striping()).unwrap_or_default()
    }

    /// Bounds TCP's pieces by the slowest link that carries them.
    pub fn bound_segments(&mut self, now: Instant) {
        let Some(loaded) = &mut self.loaded else { return };
        let slowest_kbps = loaded.programs.slowest_kbps();
        match loaded.segments.bound(slowest_kbps, now) {
            Ok(bound) => self.bound = bound,
            Err(why) => self.notes.get_or_insert_default().push(why.text),
        }
    }

    /// Gives the local port the size of pieces that it had.
    pub fn give_back(&mut self) {
        let Some(loaded) = &mut self.loaded else { return };
        if let Err(why) = loaded.segments.give_back() {
            self.notes.get_or_insert_default().push(why.text);
        }
    }

    /// So many peers and arrivals of the plan found no room in the programs' maps.
    pub fn left_out(&self) -> usize {
        self.loaded.as_ref().map_or(0, |loaded| loaded.programs.left_out())
    }

    /// What was carried since the load.
    pub fn counts(&self) -> Option<Counts> {
        self.loaded.as_ref()?.programs.counts().ok()
    }

    /// What was sent by slot since the load.
    pub fn slot_counts(&self) -> Option<SlotCounts> {
        self.loaded.as_ref()?.programs.slot_counts().ok()
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Every kernel has this device. Without it two loads could not be told apart, and counters
    // would seem to fall.
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| u64::from_be_bytes(bytes)).expect("/dev/urandom")
}
