// SPDX-License-Identifier: Apache-2.0
//! The eBPF programs at the bridge's local port and at the NICs: loading, maps, attaching.

mod filters;
pub mod layout;
pub mod segments;
mod store;
mod tc;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;

use aya::maps::MapError;
use aya::programs::{Program, ProgramError, ProgramFd};
use aya::{include_bytes_aligned, Ebpf, EbpfError, EbpfLoader};
use ri2n_wire::shared::{Files, Steer};

use self::layout::{wanted, Link, Links};
use self::store::Store;
use self::tc::{Filter, Side, Tc};
use crate::plan::{Arrival, Mac, PathId, Plan, SLOTS};
use crate::sys::bpf::Grace;
use crate::sys::now_ns;

static OBJECT: &[u8] = include_bytes_aligned!("../../bpf/fast.bpf.o");

/// A NIC of the bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The bridge's number of it.
    pub port: u32,
    /// Its name.
    pub name: String,
}

/// Why the programs cannot do what is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs: "verifier", "permission", "kernel" or "device".
    pub code: &'static str,
    /// For people.
    pub text: String,
}

impl Refusal {
    fn device(text: impl Into<String>) -> Self {
        Refusal { code: "device", text: text.into() }
    }

    fn kernel(what: impl Display, error: &io::Error) -> Self {
        let code = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "permission",
            Some(libc::ENODEV) => "device",
            _ => "kernel",
        };
        Refusal { code, text: format!("{what}: {}", reason(error)) }
    }

    fn map(name: &str, error: &MapError) -> Self {
        match error {
            MapError::CreateError { name, io_error, .. } => {
                Refusal::kernel(format!("map {name}"), io_error)
            }
            MapError::SyscallError(error) => {
                Refusal::kernel(format!("map {name}"), &error.io_error)
            }
            other => Refusal { code: "kernel", text: format!("map {name}: {other}") },
        }
    }
}

/// The kernel's words alone, without Rust's "(os error 1)".
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Frames and their bytes on the wire, without checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What was carried beside the bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By peer and path.
    pub sent: BTreeMap<(Mac, PathId), Count>,
    /// By what the frames look like.
    pub arrived: BTreeMap<Arrival, Count>,
    /// Frames that the programs dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// What else TCP met that is striped: "refused" (back to the socket, which sends less),
    /// "twice" (a probe, by two links), "woken" (a copy for the helper), "early" (for the helper to put in order), and why it was not put in
    /// order: "crowded", "far", "full", "contended".
    pub events: BTreeMap<&'static str, u64>,
}

/// The bytes that were sent to each peer beside the bridge, by slot.
pub type SlotCounts = BTreeMap<Mac, [u64; SLOTS]>;

/// Loaded programs and their maps.
pub struct Programs {
    loaded: Ebpf,
    store: Store,
    tc: Tc,
    local: String,
    nics: Vec<Device>,
    hold: Option<String>,
    links: Links,
    plan: Plan,
    left_out: usize,
    filtered: BTreeSet<String>,
    notes: Vec<String>,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Programs").field("links", &self.links).finish_non_exhaustive()
    }
}

impl Programs {
    /// Loads programs with new, empty maps. Nothing is attached.
    pub fn load(local: &str, nics: &[Device]) -> Result<Self, Refusal> {
        let mut loaded = EbpfLoader::new().btf(None).load(OBJECT).map_err(|error| match error {
            EbpfError::MapError(error) => Refusal::map("of the programs", &error),
            other => Refusal { code: "kernel", text: chain(&other) },
        })?;
        // The first one needs the most rights.
        for name in ["tx", "rx", "own", "inj"] {
            match loaded.program_mut(name) {
                Some(Program::SchedClassifier(program)) => program.load(),
                Some(Program::SocketFilter(program)) => program.load(),
                _ => unreachable!("the object has these programs"),
            }
            .map_err(|error| refused(name, &error))?;
        }
        let (plan, links) = (Plan::default(), Links::default());
        let empty = wanted(&plan, &links, &mut NoCounters);
        let mut programs = Programs {
            store: Store::new(&mut loaded, empty)?,
            loaded,
            tc: Tc::open().map_err(|error| Refusal::kernel("netlink", &error))?,
            local: local.to_owned(),
            nics: nics.to_vec(),
            hold: None,
            links,
            plan,
            left_out: 0,
            filtered: BTreeSet::new(),
            notes: Vec::new(),
        };
        programs.hold_until(u64::MAX)?;
        programs.links = programs.look()?;
        Ok(programs)
    }

    /// The NICs from now on. `apply` and `attach` look at them.
    pub fn set_nics(&mut self, nics: &[Device]) {
        self.nics = nics.to_vec();
    }

    /// Puts a plan into the maps. An equal one changes nothing. No frame goes wrong meanwhile.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), Refusal> {
        self.links = self.look()?;
        self.plan = plan.clone();
        self.put()
    }

    /// Until when what was applied holds, by CLOCK_MONOTONIC. From then on everything goes through
    /// the bridge, whether or not anybody is there to see to it. After `load` there is no end.
    pub fn hold_until(&mut self, until_ns: u64) -> Result<(), Refusal> {
        self.store.hold_until(until_ns)
    }

    /// So many peers and arrivals of the last plan found no room, or are none that can be.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Attaches the programs, in the place of an earlier ri2n-fast's; again for devices that were
    /// made anew, and where somebody removed them. What stands already stays.
    pub fn attach(&mut self) -> Result<(), Refusal> {
        self.notes.clear();
        let links = self.look()?;
        if links != self.links {
            self.links = links;
            self.put()?;
        }
        if self.links.local == 0 {
            return Err(Refusal::device(format!("there is no device {}", self.local)));
        }
        let mut ends = Vec::new();
        for nic in self.nics.clone() {
            match self.links.nics.get(&nic.port) {
                Some(link) => ends.push((nic.name, link.ifindex, End::Rx)),
                None => self.notes.push(format!("there is no device {}", nic.name)),
            }
        }
        ends.push((self.local.clone(), self.links.local, End::Tx));
        // The filters of an earlier one know nothing of our programs. So Open vSwitch gets all
        // frames until `filter_sockets`.
        let mut ingresses = BTreeSet::new();
        for (name, ifindex, end) in &ends {
            let earlier = self.own_filter(name, *ifindex, *end)?.and_then(|filter| filter.program);
            let is_rx = self.links.must_ask && *end == End::Rx;
            if is_rx && earlier.is_some() && earlier != Some(self.number(*end)?) {
                ingresses.insert(*ifindex);
            }
        }
        if !ingresses.is_empty() {
            give_back(&ingresses)?;
            self.filtered.clear();
        }
        for (name, ifindex, end) in ends {
            self.attach_one(&name, ifindex, end)?;
        }
        self.attach_hold().map(drop)
    }

    /// From now on, TCP that comes early goes to the helper by this device, and what comes back by
    /// it goes to the host; None: all TCP goes to the host as it comes, and nothing is on its way
    /// to the device any more when this returns. False: there is no such device, which is like None.
    pub fn set_hold(&mut self, device: Option<&str>) -> Result<bool, Refusal> {
        self.notes.clear();
        self.hold = device.map(str::to_owned);
        self.attach_hold()
    }

    fn attach_hold(&mut self) -> Result<bool, Refusal> {
        let Some(name) = self.hold.clone() else {
            self.store.set_hold(0)?;
            return Ok(false);
        };
        let found = self.tc.device(&name).map_err(|error| Refusal::kernel(&name, &error))?;
        let Some(device) = found else {
            self.notes.push(format!("there is no device {name}"));
            self.store.set_hold(0)?;
            return Ok(false);
        };
        let attached = self
            .own_filter(&name, device.ifindex, End::Hold)
            .and_then(|_| self.attach_one(&name, device.ifindex, End::Hold));
        if attached.is_err() {
            self.store.set_hold(0)?;
        }
        attached?;
        self.store.set_hold(device.ifindex)?;
        Ok(true)
    }

    /// The maps that the helper shares, to be passed to it.
    pub fn maps(&self) -> Files<BorrowedFd<'_>> {
        self.store.files()
    }

    /// The peers to which TCP is striped now, as the helper wants it.
    pub fn striping(&self) -> BTreeSet<Mac> {
        self.store.striping(now_ns()).map(|(mac, ..)| mac).collect()
    }

    /// The rate of the slowest link that carries TCP now, in kbit/s, but for those that carry less
    /// than a twentieth of what all links to the same peer do; None: TCP is striped to nobody.
    pub fn slowest_kbps(&self) -> Option<u64> {
        let slowest = |(_, steer, links): (Mac, &Steer, u64)| {
            let lanes = steer.lanes.iter().enumerate();
            let used = lanes.filter(|(link, _)| links >> link & 1 == 1);
            let rates = used.filter_map(|(_, lane)| kbps(lane.ns_per_kib.load(Relaxed)));
            let rates: Vec<u64> = rates.collect();
            let sum: u64 = rates.iter().sum();
            rates.into_iter().filter(|rate| rate * 20 >= sum).min()
        };
        self.store.striping(now_ns()).filter_map(slowest).min()
    }

    /// What the last `attach` did and found, for people, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Gives Open vSwitch's packet sockets on the NICs a filter that refuses what the programs
    /// take. Until then, and for sockets that are new, the bridge takes what comes in. Returns how
    /// many sockets have the filter.
    pub fn filter_sockets(&mut self, vswitchd_pid: u32) -> Result<usize, Refusal> {
        let failed = |error| Refusal::kernel("Open vSwitch's packet sockets", &error);
        let ifindexes = self.links.nics.values().map(|link| link.ifindex).collect();
        let sockets = filters::packet_sockets(vswitchd_pid, &ifindexes, &self.filtered);
        let mut names = BTreeSet::new();
        for (name, socket) in sockets.map_err(failed)? {
            if let Some(socket) = socket {
                filters::set(&socket, self.program("own")).map_err(failed)?;
            }
            names.insert(name);
        }
        self.filtered = names;
        Ok(self.filtered.len())
    }

    /// Whether frames come in beside the bridge only where `filter_sockets` set filters.
    pub fn needs_filters(&self) -> bool {
        self.links.must_ask
    }

    /// What was carried since the load, and frames dropped.
    pub fn counts(&self) -> Result<Counts, Refusal> {
        self.store.counts()
    }

    /// What was sent by slot since the load. This is more to read than `counts`.
    pub fn slot_counts(&self) -> Result<SlotCounts, Refusal> {
        self.store.slot_counts()
    }

    /// Removes all programs, filters and qdiscs of any ri2n-fast from the devices. An empty name
    /// is no device. The helper's device may be among the NICs.
    pub fn unload(local: &str, nics: &[Device]) -> Result<(), Refusal> {
        let mut tc = Tc::open().map_err(|error| Refusal::kernel("netlink", &error))?;
        let mut ends = vec![(local, Side::Egress)];
        ends.extend(nics.iter().map(|nic| (nic.name.as_str(), Side::Ingress)));
        let (mut filters, mut ifindexes) = (Vec::new(), BTreeSet::new());
        for (name, side) in ends {
            let failed = |error| Refusal::kernel(name, &error);
            let Some(device) = tc.device(name).map_err(failed)? else { continue };
            if side == Side::Ingress {
                ifindexes.insert(device.ifindex);
            }
            let found = tc.filters(device.ifindex, side).map_err(failed)?;
            let found = found.into_iter().find(Filter::is_ours);
            filters.extend(found.map(|filter| (name, device.ifindex, side, filter)));
        }
        give_back(&ifindexes)?;
        for (name, ifindex, side, filter) in filters {
            let failed = |error| Refusal::kernel(name, &error);
            tc.remove_filter(ifindex, side).map_err(failed)?;
            if filter.with_qdisc()
                && tc.filters(ifindex, Side::Ingress).map_err(failed)?.is_empty()
                && tc.filters(ifindex, Side::Egress).map_err(failed)?.is_empty()
            {
                tc.remove_qdisc(ifindex).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The loaded program with that name: "tx", "rx", "own" or "inj".
    pub fn program(&self, name: &str) -> &ProgramFd {
        let program = self.loaded.program(name).expect("the object has this program");
        program.fd().expect("it is loaded")
    }

    fn look(&mut self) -> Result<Links, Refusal> {
        let mut links = Links::default();
        let failed = |error| Refusal::kernel("look at devices", &error);
        if let Some(device) = self.tc.device(&self.local).map_err(failed)? {
            links.local = device.ifindex;
            // On the netdev datapath the local port is a TAP of ovs-vswitchd, which reads NICs by
            // packet sockets.
            links.must_ask = device.kind == "tun";
        }
        for nic in &self.nics {
            if let Some(device) = self.tc.device(&nic.name).map_err(failed)? {
                let link = Link { ifindex: device.ifindex, mtu: device.mtu };
                links.nics.insert(nic.port, link);
            }
        }
        Ok(links)
    }

    fn put(&mut self) -> Result<(), Refusal> {
        let wanted = wanted(&self.plan, &self.links, self.store.counters());
        self.left_out = wanted.left_out + self.store.change(&wanted)?;
        Ok(())
    }

    fn number(&self, end: End) -> Result<u32, Refusal> {
        let failed = |error: ProgramError| Refusal { code: "kernel", text: chain(&error) };
        Ok(self.loaded.program(end.program()).expect("it is there").info().map_err(failed)?.id())
    }

    /// What stands at our place; a refusal if it is somebody else's.
    fn own_filter(
        &mut self,
        device: &str,
        ifindex: u32,
        end: End,
    ) -> Result<Option<Filter>, Refusal> {
        let filters = self
            .tc
            .filters(ifindex, end.side())
            .map_err(|error| Refusal::kernel(device, &error))?;
        let found = filters.into_iter().find(|filter| filter.priority == tc::PRIORITY);
        match found {
            Some(filter) if !filter.is_ours() => Err(Refusal::device(format!(
                "{device}: somebody else's {} filter has our priority {}",
                filter.kind,
                tc::PRIORITY
            ))),
            found => Ok(found),
        }
    }

    fn attach_one(&mut self, device: &str, ifindex: u32, end: End) -> Result<(), Refusal> {
        let side = end.side();
        let failed = |error| Refusal::kernel(device, &error);
        let mut with_qdisc = false;
        match self.tc.qdisc(ifindex).map_err(failed)? {
            None => match self.tc.add_qdisc(ifindex) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                made => {
                    made.map_err(failed)?;
                    with_qdisc = true;
                }
            },
            Some(kind) if kind != "clsact" && side == Side::Egress => {
                return Err(Refusal::device(format!(
                    "{device}: somebody else's qdisc {kind} is in the place of clsact"
                )));
            }
            Some(_) => {}
        }
        let filters = self.tc.filters(ifindex, side).map_err(failed)?;
        for filter in filters.iter().filter(|filter| filter.priority < tc::PRIORITY) {
            self.notes.push(format!(
                "{device}: a {} filter of somebody else's, priority {}, comes before ours",
                filter.kind, filter.priority
            ));
        }
        let earlier = filters.into_iter().find(Filter::is_ours);
        if earlier.as_ref().and_then(|filter| filter.program) == Some(self.number(end)?) {
            return Ok(());
        }
        with_qdisc |= earlier.as_ref().is_some_and(Filter::with_qdisc);
        let program = self.loaded.program(end.program()).expect("it is there").fd();
        let program = program.expect("it is loaded");
        self.tc.set_filter(ifindex, side, program, with_qdisc).map_err(failed)?;
        let verb = if earlier.is_some() { "replaced" } else { "attached" };
        self.notes.push(format!("{device}: {} is {verb}", end.program()));
        Ok(())
    }
}

/// Where a program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The bridge's local port.
    Tx,
    /// A NIC.
    Rx,
    /// The device by which the helper gets TCP that came early.
    Hold,
}

impl End {
    fn program(self) -> &'static str {
        match self {
            End::Tx => "tx",
            End::Rx => "rx",
            End::Hold => "inj",
        }
    }

    fn side(self) -> Side {
        match self {
            End::Tx => Side::Egress,
            End::Rx | End::Hold => Side::Ingress,
        }
    }
}

/// None: the rate is not known.
fn kbps(ns_per_kib: u32) -> Option<u64> {
    // 8,192 bits in so many ns.
    8_192_000_000u64.checked_div(ns_per_kib.into())
}

struct NoCounters;

impl layout::Counters for NoCounters {
    fn sent(&mut self, _: Mac, _: PathId) -> Option<u32> {
        None
    }

    fn by_slot(&mut self, _: Mac) -> Option<u16> {
        None
    }

    fn arrived(&mut self, _: &Arrival) -> Option<u32> {
        None
    }
}

/// Lets Open vSwitch have all frames of these NICs, and waits until what its filters refused before
/// has been taken.
fn give_back(ifindexes: &BTreeSet<u32>) -> Result<(), Refusal> {
    filters::restore(ifindexes)
        .and_then(|()| Grace::new()?.wait())
        .map_err(|error| Refusal::kernel("Open vSwitch's packet sockets", &error))
}

fn refused(name: &str, error: &ProgramError) -> Refusal {
    match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            let permission = matches!(io_error.raw_os_error(), Some(libc::EPERM));
            // The last line says what is wrong, but for the statistics behind it.
            let log = verifier_log.to_string();
            let statistics = ["processed ", "stack depth ", "verification time "];
            let line = log.lines().rev().find(|line| {
                !line.is_empty() && !statistics.iter().any(|start| line.starts_with(start))
            });
            Refusal {
                code: if permission { "permission" } else { "verifier" },
                text: format!("program {name}: {}: {}", reason(io_error), line.unwrap_or_default()),
            }
        }
        other => Refusal { code: "kernel", text: format!("program {name}: {}", chain(other)) },
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
