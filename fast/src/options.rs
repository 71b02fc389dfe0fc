// SPDX-License-Identifier: Apache-2.0
//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Carries frames of known peers past Open vSwitch, as the bridge's rows say.
#[derive(Debug, Parser)]
#[command(name = "ri2n-fast", version)]
pub struct Options {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Follow a bridge's rows, and carry what they allow. The programs stay when this ends.
    Watch {
        /// The bridge.
        #[command(flatten)]
        place: Place,
        /// Only these NICs of the bridge; all of them when none is named.
        #[arg(long = "nic", value_name = "NAME")]
        nics: Vec<String>,
        /// The helper's device for TCP that it puts in order.
        #[arg(long, value_name = "NAME", default_value = HOLD)]
        hold: String,
        /// The folder for the status socket.
        #[arg(long, value_name = "DIR", default_value = STATE)]
        state: PathBuf,
    },
    /// End a running watch and remove the programs, or remove them from single NICs alone.
    Unload {
        /// The bridge whose device and NICs have the programs.
        #[arg(long, value_name = "NAME", required_unless_present = "nics")]
        bridge: Option<String>,
        /// The folder of Open vSwitch's sockets.
        #[arg(long, value_name = "DIR", default_value = RUNDIR)]
        rundir: PathBuf,
        /// Remove the programs from this NIC (too).
        #[arg(long = "nic", value_name = "NAME")]
        nics: Vec<String>,
        /// The helper's device for TCP that it puts in order.
        #[arg(long, value_name = "NAME", default_value = HOLD)]
        hold: String,
        /// The folder of the status socket.
        #[arg(long, value_name = "DIR", default_value = STATE)]
        state: PathBuf,
    },
    /// Say what a running watch does.
    Status {
        /// One line of JSON.
        #[arg(long)]
        json: bool,
        /// The folder of the status socket.
        #[arg(long, value_name = "DIR", default_value = STATE)]
        state: PathBuf,
    },
    /// Say whether this kernel takes the programs.
    Probe {
        /// One line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print what the bridge's rows allow, as JSON. Nothing is changed.
    Plan {
        /// The bridge.
        #[command(flatten)]
        place: Place,
        /// Also save what the bridge said.
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
        /// Ask no bridge, but such a file.
        #[arg(long, value_name = "FILE", conflicts_with = "save")]
        from: Option<PathBuf>,
    },
}

const STATE: &str = "/run/ri2n-fast";
/// The helper's device for TCP that it puts in order, where no other is named.
pub const HOLD: &str = "ri2n-hold";
const RUNDIR: &str = "/run/openvswitch";

/// Where a bridge is.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// The bridge's name.
    #[arg(long, value_name = "NAME", default_value = "br-ri2n")]
    pub bridge: String,
    /// The folder of Open vSwitch's sockets.
    #[arg(long, value_name = "DIR", default_value = RUNDIR)]
    pub rundir: PathBuf,
}

impl Place {
    /// The bridge's management socket.
    pub fn socket(&self) -> PathBuf {
        self.rundir.join(format!("{}.mgmt", self.bridge))
    }
}
