// SPDX-License-Identifier: Apache-2.0
//! The command line, checked: no other module sees a value that makes no sense.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::sys::interface::NAME_MAX;
use crate::wire::MAX_NICS;

/// Stripes the packets of one connection over several links, and restores their order.
#[derive(Parser, Debug)]
#[command(name = "ri2n-reorder", version, about, after_help = "See ri2n-reorder(8).")]
struct Arguments {
    /// Work without controller and Open vSwitch, on the NICs named by --wire
    #[arg(long)]
    autonomous: bool,
    /// TAP by which the host sends and receives; made if it is not there (only with --autonomous)
    #[arg(long, value_name = "TAP", default_value = "ri2n-plain", value_parser = interface_name)]
    plain: String,
    /// TAP to the bridge [default: ri2n-wire]; with --autonomous the NICs, with rates if they do
    /// not know them
    #[arg(long, value_name = "TAP | NIC[=RATE],...", value_delimiter = ',', value_parser = wire)]
    wire: Vec<Nic>,
    /// The host's own MAC [default: what the controller says; with --autonomous that of the --plain
    /// TAP]
    #[arg(long, value_parser = mac)]
    mac: Option<[u8; 6]>,
    /// Longest payload of a frame that the NICs carry
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    #[arg(value_parser = clap::value_parser!(u16).range(600..=16000))]
    mtu_wire: u16,
    /// Bytes that a frame takes on the cable in addition to its own: preamble, checksum and gap on
    /// Ethernet
    #[arg(long, value_name = "BYTES", default_value_t = 24)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=256))]
    overhead: u16,
    /// Deliver UDP as it arrives, in any order
    #[arg(long)]
    udp_unordered: bool,
    /// Socket of ri2n-fast, whose programs send TCP beside the bridge (only with a bridge, and with
    /// --hold)
    #[arg(long, value_name = "PATH", value_parser = socket_path)]
    fast_maps: Option<PathBuf>,
    /// TAP by which those programs give frames that came early, and get them back (only with
    /// --fast-maps)
    #[arg(long, value_name = "TAP", value_parser = interface_name)]
    hold: Option<String>,
    /// Memory for all frames that are held, in bytes or with K, M, G
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = memory)]
    max_memory: u64,
    /// Merge packets into super-frames for the host, and take super-frames from it; off for a
    /// bridge with datapath netdev
    #[arg(long, value_name = "on|off", default_value = "on")]
    gro: Switch,
    /// How long frames that were sent are kept for repeats; 0: repair nothing
    #[arg(long, value_name = "MS", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=5000))]
    repair_ms: u16,
    /// How frames are spread over the links (only with --autonomous: otherwise the controller says)
    /// [default: max_min]
    #[arg(long)]
    strategy: Option<Strategy>,
    /// Time over which traffic is counted for weights
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u16).range(100..=60000))]
    hbspan_ms: u16,
    /// Keep the --plain TAP when this process ends (only with --autonomous)
    #[arg(long)]
    persistent: bool,
    /// Unix socket that tells everybody who connects the state, as one line of JSON
    #[arg(long, value_name = "PATH", value_parser = socket_path)]
    status: Option<PathBuf>,
    /// Let another process end this one when it hangs for so long; 0: never. A bridge sends by the
    /// slot table then
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u16))]
    watchdog_ms: u16,
    /// Run before all programs without real-time priority, if that is allowed
    #[arg(long)]
    realtime: bool,
    /// How much goes to standard error
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
    /// How a line on standard error looks
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(ValueEnum, Clone, Copy, Debug, Eq, PartialEq)]
enum Switch {
    On,
    Off,
}

/// How frames are spread over the links without a controller.
#[derive(ValueEnum, Clone, Copy, Debug, Eq, PartialEq)]
#[value(rename_all = "snake_case")]
pub enum Strategy {
    /// Paced at max-min fair rates.
    MaxMin,
    /// RI2N: equal weights.
    RoundRobin,
    /// RI2N+: weights by what arrived.
    Ri2nPlus,
    /// RI2N++: weights by what arrived and who else uses the receiver's links.
    Ri2nPlusPlus,
}

/// How much goes to standard error.
#[derive(ValueEnum, Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LogLevel {
    /// Errors that end the process.
    Error,
    /// Warnings that an administrator should look into.
    Warn,
    /// Start, end, and peers that come and go.
    Info,
    /// Links, rates, sessions.
    Debug,
}

/// How a line on standard error looks.
#[derive(ValueEnum, Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// A JSON object, for programs that collect logs.
    Json,
}

impl LogFormat {
    /// The word that the option takes.
    pub fn word(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

/// A NIC, as named on the command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nic {
    /// The interface's name.
    pub name: String,
    /// What its cable carries, in bit/s; `None`: ask the NIC.
    pub rate_bps: Option<u64>,
}

/// Where frames go and come from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Mode {
    /// A TAP to the bridge, with a controller in charge.
    Bridge {
        /// Name of the TAP.
        wire: String,
    },
    /// The NICs themselves, with nobody in charge.
    Autonomous {
        /// At least one and at most [`MAX_NICS`]; no name twice.
        nics: Vec<Nic>,
        /// How the links share the traffic.
        strategy: Strategy,
        /// Keep the plain TAP at the end.
        persistent: bool,
    },
}

/// Programs in the kernel that send TCP beside the bridge.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Beside {
    /// Path of the socket of `ri2n-fast`, which has their maps.
    pub maps: PathBuf,
    /// Name of the TAP by which they give frames.
    pub hold: String,
}

/// The whole command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// A bridge, or NICs.
    pub mode: Mode,
    /// Programs beside the bridge; none without a bridge.
    pub beside: Option<Beside>,
    /// Name of the TAP to the host.
    pub plain: String,
    /// The host's own MAC, if it was given.
    pub mac: Option<[u8; 6]>,
    /// Longest payload of a frame on the NICs, in bytes, without the Ethernet header.
    pub mtu_wire: usize,
    /// Bytes that a frame takes on the cable in addition to its own.
    pub overhead: usize,
    /// UDP is not put in order.
    pub udp_unordered: bool,
    /// Memory for all frames that are held, in bytes.
    pub max_memory: usize,
    /// Super-frames go to and from the host.
    pub gro: bool,
    /// How long frames that were sent are kept, in ms; 0: nothing is repaired.
    pub repair_ms: u64,
    /// Time over which traffic is counted for weights, in ms.
    pub hbspan_ms: u64,
    /// Path of the status socket.
    pub status: Option<PathBuf>,
    /// How long the process may hang until another one ends it, in ms; 0: for ever.
    pub watchdog_ms: u64,
    /// The main loop has real-time priority.
    pub realtime: bool,
    /// How much goes to standard error.
    pub log_level: LogLevel,
    /// How a line on standard error looks.
    pub log_format: LogFormat,
}

/// Why there are no options.
#[derive(Debug, Eq, PartialEq)]
pub enum NoOptions {
    /// --help or --version was asked for: this text goes to standard output.
    Asked(String),
    /// One line that says what is wrong.
    Wrong(String),
}

impl Options {
    /// Reads a command line. `args` begins with the program's name.
    pub fn parse<I, T>(args: I) -> Result<Options, NoOptions>
    where
        I: IntoIterator<Item = T>,
        T: Into<OsString> + Clone,
    {
        let arguments =
            Arguments::try_parse_from(args).map_err(|error| match error.use_stderr() {
                false => NoOptions::Asked(error.render().to_string()),
                true => NoOptions::Wrong(one_line(&error.render().to_string())),
            })?;
        arguments.check().map_err(NoOptions::Wrong)
    }
}

impl Arguments {
    fn check(self) -> Result<Options, String> {
        let mode = if self.autonomous {
            Mode::Autonomous {
                nics: several_nics(self.wire, &self.plain)?,
                strategy: self.strategy.unwrap_or(Strategy::MaxMin),
                persistent: self.persistent,
            }
        } else if self.strategy.is_some() {
            return Err("--strategy needs --autonomous: otherwise the controller decides".into());
        } else if self.persistent {
            return Err("--persistent needs --autonomous: otherwise host-up makes the TAPs".into());
        } else {
            Mode::Bridge { wire: one_tap(self.wire, &self.plain)? }
        };
        let beside = match (self.fast_maps, self.hold) {
            (None, None) => None,
            (Some(_), Some(_)) if self.autonomous => {
                return Err("--fast-maps and --hold need a bridge: no --autonomous".into())
            }
            (Some(maps), Some(hold)) => Some(Beside { maps, hold }),
            _ => return Err("--fast-maps and --hold need each other".into()),
        };
        let same = |hold: &str| match &mode {
            Mode::Bridge { wire } => hold == wire || hold == self.plain,
            Mode::Autonomous { .. } => false,
        };
        if let Some(Beside { hold, .. }) = beside.as_ref().filter(|it| same(&it.hold)) {
            return Err(format!("--hold and another TAP are both {hold}"));
        }
        if (1..100).contains(&self.watchdog_ms) {
            return Err("--watchdog-ms is 0, or 100 at least: busy CPUs make a helper wait".into());
        }
        Ok(Options {
            mode,
            beside,
            plain: self.plain,
            mac: self.mac,
            mtu_wire: self.mtu_wire.into(),
            overhead: self.overhead.into(),
            udp_unordered: self.udp_unordered,
            max_memory: usize::try_from(self.max_memory)
                .map_err(|_| "--max-memory is more than there can be")?,
            gro: self.gro == Switch::On,
            repair_ms: self.repair_ms.into(),
            hbspan_ms: self.hbspan_ms.into(),
            status: self.status,
            watchdog_ms: self.watchdog_ms.into(),
            realtime: self.realtime,
            log_level: self.log_level,
            log_format: self.log_format,
        })
    }
}

fn one_tap(wire: Vec<Nic>, plain: &str) -> Result<String, String> {
    let name = match &wire[..] {
        [] => "ri2n-wire".to_string(),
        [Nic { name, rate_bps: None }] => name.clone(),
        _ => {
            return Err(
                "--wire is one TAP, without a rate; a list of NICs needs --autonomous".into()
            )
        }
    };
    if name == plain {
        return Err(format!("--plain and --wire are both {name}"));
    }
    Ok(name)
}

fn several_nics(nics: Vec<Nic>, plain: &str) -> Result<Vec<Nic>, String> {
    if nics.is_empty() {
        return Err("--autonomous needs --wire NIC[=RATE],...".into());
    }
    if nics.len() > usize::from(MAX_NICS) {
        return Err(format!("--wire: {} NICs, at most {MAX_NICS}", nics.len()));
    }
    for (i, nic) in nics.iter().enumerate() {
        if nic.name == plain {
            return Err(format!("--plain and --wire are both {plain}"));
        }
        if nics[..i].iter().any(|other| other.name == nic.name) {
            return Err(format!("--wire: {} twice", nic.name));
        }
    }
    Ok(nics)
}

/// clap's message on one line, without its "error: ", usage and further hints.
fn one_line(text: &str) -> String {
    let wanted = text
        .split("\n\nUsage:")
        .next()
        .unwrap_or(text)
        .split("\n\nFor more")
        .next()
        .unwrap_or(text);
    let words: Vec<&str> = wanted.split_whitespace().collect();
    let line = words.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_string()
}

fn interface_name(text: &str) -> Result<String, String> {
    let strange = |c: char| c == '/' || c == '=' || c == ',' || c.is_whitespace() || c.is_control();
    if text.is_empty()
        || text.len() > NAME_MAX
        || text == "."
        || text == ".."
        || text.contains(strange)
    {
        return Err(format!("not a name of an interface (1 to {NAME_MAX} letters)"));
    }
    Ok(text.to_string())
}

fn wire(text: &str) -> Result<Nic, String> {
    let (name, rate_bps) = match text.split_once('=') {
        None => (text, None),
        Some((name, rate)) => (name, Some(rate_bps(rate)?)),
    };
    Ok(Nic { name: interface_name(name)?, rate_bps })
}

/// A number that may have a letter of `units` behind it, multiplied by what that stands for.
fn with_unit(text: &str, units: &[(char, u64)]) -> Option<f64> {
    let (number, factor) =
        match units.iter().find(|(unit, _)| text.to_ascii_uppercase().ends_with(*unit)) {
            Some((_, factor)) => (&text[..text.len() - 1], *factor),
            None => (text, 1),
        };
    let plain = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    number.parse::<f64>().ok().filter(|_| plain).map(|value| value * factor as f64)
}

fn rate_bps(text: &str) -> Result<u64, String> {
    exact_rate(text)
        .filter(|rate_bps| (100_000..=1_000_000_000_000).contains(rate_bps))
        .ok_or_else(|| "not a rate in bit/s from 100K to 1000G, as in 2.5G or 100M".into())
}

/// A rate as the controller reads it (tests/limits.json), without rounding; the letter may be of
/// either case.
fn exact_rate(text: &str) -> Option<u64> {
    let text = text.strip_suffix("bit/s").unwrap_or(text);
    let (number, factor) = match text.bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 1_000),
        b'M' => (&text[..text.len() - 1], 1_000_000),
        b'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str, most| {
        (1..=most).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit())
    };
    if !digits(whole, 16) || !digits(part, 9) {
        return None;
    }
    let scale = 10_u64.pow(part.len() as u32);
    let part = part.parse::<u64>().ok()? * factor;
    if part % scale != 0 {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(part / scale)
}

fn memory(text: &str) -> Result<u64, String> {
    match with_unit(text, &[('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)]) {
        Some(bytes) if (1048576.0..=1e12).contains(&bytes) => Ok(bytes as u64),
        _ => Err("not a size from 1M to 900G".into()),
    }
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let wrong = || "not a MAC of one host, as in 02:00:00:00:00:01".to_string();
    let mut mac = [0; 6];
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() != mac.len() {
        return Err(wrong());
    }
    for (byte, part) in mac.iter_mut().zip(parts) {
        let hex = part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit());
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| hex).ok_or_else(wrong)?;
    }
    if mac[0] & 1 != 0 || mac == [0; 6] {
        return Err(wrong());
    }
    Ok(mac)
}

fn socket_path(text: &str) -> Result<PathBuf, String> {
    // The kernel's struct sockaddr_un has 108 bytes, with the zero at the end.
    if text.is_empty() || text.len() > 107 {
        return Err("not a path of a socket (1 to 107 bytes)".into());
    }
    Ok(PathBuf::from(text))
}

#[cfg(test)]
mod tests;
