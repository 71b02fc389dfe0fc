//! Carries packets of known peers past Open vSwitch.
//!
//! The bridge's rows are the only plan. `rows` reads in them which packets may pass beside the
//! bridge and which way, as a `plan::Plan`; `programs` puts that plan into the maps of eBPF
//! programs at the bridge's local port and at the NICs. What no plan names goes through the bridge.

pub mod commands;
pub mod database;
pub mod notify;
pub mod openflow;
pub mod options;
pub mod plan;
pub mod programs;
pub mod report;
pub mod rows;
pub mod show;
pub mod sys;
pub mod watch;
