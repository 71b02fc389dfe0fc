// SPDX-License-Identifier: Apache-2.0
//! The loop: follows the bridge, keeps the programs at what its rows say, and reports.

mod carrier;
mod handover;
mod kept;
mod reports;
pub mod sources;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use crate::notify::Manager;
use crate::openflow::connection::Sender;
use crate::openflow::mirror::{Changes, Mirror};
use crate::options::Place;
use crate::plan::{Left, Mac};
use crate::programs::SlotCounts;
use crate::report::{Carried, Filter, Force, Order, Row};
use crate::rows::{self, Planned};
use crate::sys::now_ns;
use carrier::{Carrier, Devices};
use handover::Handover;
use kept::Kept;
use sources::{Event, Request};

/// Changes that come within this time make one plan.
const COALESCE: Duration = Duration::from_millis(3);
/// The loop uses at most one part in so many of a CPU for plans.
const PLAN_SHARE: u32 = 5;
const COUNTS_EVERY: Duration = Duration::from_millis(250);
const TEND_EVERY: Duration = Duration::from_secs(1);
/// What was told to the programs holds for so long after the moment of which the bridge last said
/// that its rows are those. Then everything goes through the bridge. So rows that forbid something
/// are obeyed after this time at the latest, also where the watch was stopped or killed and nobody
/// starts it again. It is longer than what systemd needs to notice that (2 s) and to start the next
/// watch, and than what a busy machine keeps a process waiting.
const HOLDS: Duration = Duration::from_secs(5);
/// So many news are taken in before the clock is looked at.
const AT_ONCE: usize = 256;

/// What a watch is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The bridge.
    pub place: Place,
    /// The NICs; all when there are none.
    pub nics: Vec<String>,
    /// The helper's device for TCP that it puts in order.
    pub hold: String,
    /// The folder of the sockets for those who ask and for the helper.
    pub state: PathBuf,
}

/// Watches until somebody asks to end.
pub fn run(settings: Settings) -> Result<(), String> {
    let bridge = &settings.place.bridge;
    if !sources::claim(bridge)? {
        eprintln!("ri2n-fast: whether another ri2n-fast watches {bridge} cannot be told");
    }
    let listener = sources::listen(&settings.state)?;
    let (to, events) = sync_channel(AT_ONCE);
    sources::take_questions(listener, to.clone());
    let rundir = &settings.place.rundir;
    sources::follow_database(rundir.join("db.sock"), settings.place.bridge.clone(), to.clone());
    sources::follow_bridge(settings.place.socket(), to.clone());
    let handover = Handover::listen(&settings.state, to)?;
    let mut watch = Watch::new(settings, handover, Instant::now());
    watch.turn(&events);
    watch.carrier.give_back();
    // The next watch would replace them, too.
    let state = &watch.settings.state;
    let _ = fs::remove_file(sources::socket_in(state));
    let _ = fs::remove_file(ri2n_wire::handover::socket_in(state));
    Ok(())
}

/// The connection to the bridge.
#[derive(Debug)]
struct Link {
    sender: Sender,
    mirror: Mirror,
    heard: Instant,
    /// When the bridge was asked for a sign of life that has not come yet.
    asked: Option<Instant>,
    /// All that the bridge did before this is known, once the mirror is whole.
    known: Instant,
}

impl Link {
    fn new(sender: Sender, now: Instant) -> Link {
        Link { sender, mirror: Mirror::new(), heard: now, asked: None, known: now }
    }
}

/// When things are due.
#[derive(Debug)]
struct Due {
    plan: Option<Instant>,
    counts: Instant,
    all_counts: Instant,
    slots: Instant,
    all_slots: Instant,
    state: Instant,
    tend: Instant,
}

impl Due {
    fn at(now: Instant) -> Due {
        let (counts, all_counts, slots, all_slots) = (now, now, now, now);
        Due { plan: None, counts, all_counts, slots, all_slots, state: now, tend: now }
    }
}

/// What the helper has.
struct Helper {
    handover: Handover,
    /// The load whose maps it gets, as the reports' epoch and as the handover call it.
    epoch: u64,
    load: u64,
    /// Whether it has them and is ready for frames.
    ready: bool,
}

struct Watch {
    settings: Settings,
    manager: Manager,
    helper: Helper,
    link: Option<Link>,
    /// Whether somebody wants to see all frames of the bridge; None: the database has not said.
    observed: Option<bool>,
    planned: Planned,
    /// What has changed since the plan was made; None: there is no plan yet.
    changes: Option<Changes>,
    carrier: Carrier,
    due: Due,
    /// No plan is made before this.
    rested: Instant,
    /// When the plan was last known to be what the rows say; None: never.
    right_at: Option<Instant>,
    /// The programs of an earlier watch carry nothing any more after this.
    alone: Instant,
    /// What the programs were told holds until then.
    lapses: Instant,
    /// What the bridge said before, and has not said again since it was connected to anew.
    kept: Option<Kept>,
    told_counts: BTreeMap<Row, Carried>,
    told_epoch: u64,
    told_slots: SlotCounts,
    told_slots_epoch: u64,
    told_force: Option<(Force, Filter, Order)>,
    told_obeyed: u64,
    told_state_at: Instant,
    /// The peers to which TCP was striped beside the bridge when that was last looked at.
    striping: BTreeSet<Mac>,
    said: BTreeMap<&'static str, String>,
    /// What was found at the last look at the devices.
    noted: Vec<String>,
    ending: Option<UnixStream>,
}

impl Watch {
    fn new(settings: Settings, handover: Handover, now: Instant) -> Watch {
        Watch {
            settings,
            helper: Helper { handover, epoch: 0, load: 0, ready: false },
            manager: Manager::from_environment(),
            link: None,
            observed: None,
            planned: Planned::default(),
            changes: None,
            carrier: Carrier::default(),
            due: Due::at(now),
            rested: now,
            right_at: None,
            alone: now + HOLDS,
            lapses: now,
            kept: None,
            told_counts: BTreeMap::new(),
            told_epoch: 0,
            told_slots: SlotCounts::new(),
            told_slots_epoch: 0,
            told_force: None,
            told_obeyed: 0,
            told_state_at: now,
            striping: BTreeSet::new(),
            said: BTreeMap::new(),
            noted: Vec::new(),
            ending: None,
        }
    }

    fn turn(&mut self, events: &Receiver<Event>) {
        while self.ending.is_none() {
            let now = Instant::now();
            self.manager.alive(now);
            if self.kept.as_ref().is_some_and(|kept| kept.ends() <= now) {
                self.kept = None;
                self.changes = None;
                self.notice_changes(now);
            }
            if self.due.plan.is_some_and(|due| due <= now) {
                match self.kept.as_ref().map(Kept::rests).filter(|at| *at > now) {
                    Some(at) => self.due.plan = Some(at),
                    None => self.plan(now),
                }
            }
            // A load takes long, and what is asked below must not seem to have been asked before.
            let now = Instant::now();
            if self.due.tend <= now {
                self.tend(now);
            }
            if self.due.counts <= now {
                self.notice_striping(now);
                self.report_counts(now);
            }
            if self.due.slots <= now {
                self.report_slots(now);
            }
            self.notice_obeyed(now);
            if self.due.state <= now {
                self.report_state(now);
            }
            self.wait(events);
        }
    }

    /// Waits for news, at most until something is due.
    fn wait(&mut self, events: &Receiver<Event>) {
        let due = &self.due;
        let first = [due.counts, due.slots, due.state, due.tend].into_iter();
        let first = first.chain(due.plan).chain(self.kept.as_ref().map(Kept::ends)).min();
        let time = first.map_or(COUNTS_EVERY, |at| at.saturating_duration_since(Instant::now()));
        match events.recv_timeout(time) {
            Ok(event) => self.take(event),
            Err(RecvTimeoutError::Timeout) => return,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the threads never end"),
        }
        for _ in 0..AT_ONCE {
            match events.try_recv() {
                Ok(event) => self.take(event),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        self.flush();
        self.notice_changes(Instant::now());
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Connected(sender) => {
                let now = Instant::now();
                if let Some(right_at) = self.right_at {
                    let (plan, before) = (&self.planned.plan, self.kept.take());
                    self.kept = Some(Kept::new(plan, right_at + HOLDS, before, now));
                }
                self.link = Some(Link::new(sender, now));
                self.changes = None;
            }
            Event::Message(bytes) => {
                let Some(link) = &mut self.link else { return };
                link.heard = Instant::now();
                if let Err(why) = link.mirror.take_in(&bytes) {
                    link.sender.close();
                    self.link = None;
                    self.say("bridge", format!("{why}; asking again"));
                } else if link.mirror.take_echo() {
                    link.known = link.asked.take().unwrap_or(link.known);
                }
            }
            Event::Closed(why) => {
                self.link = None;
                let name = &self.settings.place.bridge;
                self.say("bridge", format!("waiting for the bridge {name}: {why}"));
                // There is nothing to do for a host whose bridge is not there yet.
                self.manager.ready();
            }
            Event::Database(Ok(observed)) => {
                if self.observed != Some(observed) {
                    self.observed = Some(observed);
                    self.changes = None;
                }
                self.said.remove("database");
            }
            Event::Database(Err(why)) => {
                self.say("database", format!("waiting for Open vSwitch's database: {why}"));
            }
            Event::Helper { load, ready } => {
                self.helper.ready = ready && load == self.helper.load;
                self.hold();
                self.tell_carrier();
            }
            Event::Asked(Request::Status, mut stream) => {
                let line = self.status().to_string();
                // Whoever asked may be gone.
                let _ = writeln!(stream, "{line}");
            }
            Event::Asked(Request::End, stream) => self.ending = Some(stream),
        }
    }

    /// Sends what the mirror wants to say.
    fn flush(&mut self) {
        let Some(link) = &mut self.link else { return };
        let messages = link.mirror.take_messages();
        if link.sender.send(&messages).is_err() {
            link.sender.close();
            self.link = None;
        }
    }

    /// Sees to it that a plan is made when one is needed.
    fn notice_changes(&mut self, now: Instant) {
        let Some(link) = &mut self.link else { return };
        if !link.mirror.is_whole() || self.observed.is_none() {
            return;
        }
        let new = link.mirror.take_changes();
        if new.ports {
            self.due.tend = now;
        }
        if let Some(kept) = self.kept.as_mut().filter(|_| new != Changes::default()) {
            kept.changed(now);
        }
        let needed = match &mut self.changes {
            None => true,
            Some(known) => {
                known.groups |= new.groups;
                known.ports |= new.ports;
                known.tables.extend(new.tables);
                known.groups || known.ports || !known.tables.is_disjoint(&self.planned.tables)
            }
        };
        if needed && self.due.plan.is_none() {
            self.due.plan = Some((now + COALESCE).max(self.rested));
        } else if !needed {
            let known = link.known;
            self.right_at = Some(known);
            let until = self.holds_until(known);
            self.carrier.hold_until(clock_ns(until));
            self.told_until(until);
        }
    }

    fn plan(&mut self, start: Instant) {
        self.due.plan = None;
        let Some(link) = &mut self.link else { return };
        let (true, Some(observed)) = (link.mirror.is_whole(), self.observed) else { return };
        link.mirror.take_changes();
        self.changes = Some(Changes::default());
        let before = std::mem::replace(&mut self.planned, rows::plan(link.mirror.bridge()));
        let devices = Devices::of(&link.mirror.bridge().ports, &self.settings.nics);
        let are_same = devices.is_some() && devices.as_ref() == self.carrier.devices();
        let plan = &mut self.planned.plan;
        self.kept = self.kept.take().filter(|kept| are_same && kept.add_to(plan, start));
        if observed {
            self.planned.plan.leave_all(Left::Undecided);
        }
        if before.plan.states() != self.planned.plan.states() {
            self.due.state = start;
        }
        let planned = Instant::now();
        let known = link.known;
        self.right_at = Some(known);
        self.said.remove("bridge");
        let mut was_new = false;
        match devices {
            Some(devices) => {
                was_new = self.carrier.devices() != Some(&devices);
                let until = self.holds_until(known);
                self.carrier.carry(&devices, &self.planned.plan, clock_ns(until), start);
                self.told_until(until);
                self.hand_over();
                if was_new {
                    self.due.tend = start;
                }
            }
            None => self.say("devices", "the bridge has no NIC yet".into()),
        }
        self.tell_carrier();
        self.manager.ready();
        let end = Instant::now();
        // The kernel takes its time to check programs, but only when they are loaded. What was told
        // to them would no longer hold if it counted here.
        let spent = if was_new { planned - start } else { end - start };
        self.rested = end + spent * (PLAN_SHARE - 1);
    }

    /// What is looked after every second: new devices and sockets, and whether the bridge lives.
    fn tend(&mut self, now: Instant) {
        self.due.tend = now + TEND_EVERY;
        self.carrier.tend(self.vswitchd_pid());
        self.hand_over();
        // Its device may have been made only now, or anew.
        self.hold();
        self.carrier.bound_segments(now);
        self.tell_carrier();
        if let Some(link) = &mut self.link {
            if link.asked.is_none() {
                link.asked = Some(now);
                link.mirror.ask_for_echo();
            }
        }
        // What was refused, or what a device was missing for, is tried again.
        if !self.carrier.agrees() && self.changes.is_some() {
            self.changes = None;
        }
        self.flush();
        self.notice_changes(now);
    }

    /// Gives the helper the maps of a new load.
    fn hand_over(&mut self) {
        let helper = &mut self.helper;
        if helper.epoch == self.carrier.epoch {
            return;
        }
        match self.carrier.maps() {
            Some(Ok(maps)) => {
                helper.epoch = self.carrier.epoch;
                helper.load = helper.handover.give(maps);
                helper.ready = false;
            }
            Some(Err(error)) => self.say("maps", format!("the helper gets no maps: {error}")),
            None => {}
        }
    }

    /// Lets the helper have TCP that comes early, as long as it is ready.
    fn hold(&mut self) {
        let device = Some(self.settings.hold.as_str()).filter(|_| self.helper.ready);
        for note in self.carrier.set_hold(device) {
            if !self.noted.contains(&note) {
                eprintln!("ri2n-fast: {note}");
                self.noted.push(note);
            }
        }
    }

    /// Whether TCP that comes in is put in order: all of it comes by the programs, and the helper
    /// takes what is early.
    fn order(&self) -> Order {
        let comes =
            self.carrier.force() == Force::InForce && self.carrier.filter() != Filter::Missing;
        match self.carrier.holds && comes {
            true => Order::Ready,
            false => Order::None,
        }
    }

    /// Looks at what the helper wants striped, in the maps that both have.
    fn notice_striping(&mut self, now: Instant) {
        let mut striping = self.carrier.striping();
        striping.retain(|peer| self.planned.plan.striped.contains_key(peer));
        if striping != self.striping {
            self.striping = striping;
            self.due.state = now;
            self.carrier.bound_segments(now);
        }
    }

    fn vswitchd_pid(&self) -> Option<u32> {
        let file = self.settings.place.rundir.join("ovs-vswitchd.pid");
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// Says what has changed at the devices, and whether the programs are in force.
    fn tell_carrier(&mut self) {
        if let Some(notes) = self.carrier.notes.take() {
            for note in notes.iter().filter(|note| !self.noted.contains(note)) {
                eprintln!("ri2n-fast: {note}");
            }
            self.noted = notes;
        }
        let force = (self.carrier.force(), self.carrier.filter(), self.order());
        if self.told_force.replace(force) != Some(force) {
            self.due.state = Instant::now();
        }
        if self.helper.ready {
            let line = match self.carrier.holds {
                true => "the helper puts TCP in order that comes without its header".into(),
                false => format!("TCP is not put in order without {}", self.settings.hold),
            };
            self.say("order", line);
        } else if self.said.remove("order").is_some() {
            eprintln!("ri2n-fast: TCP is not put in order: no helper has the maps");
        }
        match self.carrier.left_out() {
            0 => drop(self.said.remove("room")),
            count => self.say("room", format!("no room for {count} peers and kinds of frames")),
        }
        match &self.carrier.refused {
            Some(why) => {
                let line = format!("the programs are not in force: {}", why.text);
                self.say("programs", line);
            }
            None if self.carrier.devices().is_some() => {
                self.say("programs", "the programs are in force".into());
            }
            None => {}
        }
    }

    /// Until when the plan holds that was right then.
    fn holds_until(&self, right_at: Instant) -> Instant {
        let until = right_at + HOLDS;
        self.kept.as_ref().map_or(until, |kept| until.min(kept.until()))
    }

    /// Notes until when the programs go on as they were told. Without the plan they were told nothing.
    fn told_until(&mut self, until: Instant) {
        if self.carrier.agrees() {
            self.lapses = until;
        }
    }

    /// Says a line, unless it is what was last said about this.
    fn say(&mut self, about: &'static str, line: String) {
        if self.said.get(about) != Some(&line) {
            eprintln!("ri2n-fast: {line}");
            self.said.insert(about, line);
        }
    }
}

/// A moment by CLOCK_MONOTONIC, as programs know it.
fn clock_ns(at: Instant) -> u64 {
    now_ns() + at.saturating_duration_since(Instant::now()).as_nanos() as u64
}
