// SPDX-License-Identifier: Apache-2.0
//! Reads in a bridge's rows what becomes of a peer's frames, as Open vSwitch would find it.
//!
//! All of this is pure. `interpret` follows a class of frames through the tables; `planning` asks
//! it about every peer and every NIC, and makes a plan of the answers.

mod frame;
mod index;
mod interpret;
pub mod model;
mod outcome;
mod planning;

pub use interpret::NICS_END;
pub use planning::{plan, Planned, PATH_TABLE, SOURCE_TABLE};
