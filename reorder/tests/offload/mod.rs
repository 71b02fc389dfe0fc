// SPDX-License-Identifier: Apache-2.0
//! The offloads with packets built by hand: what is cut, what is merged, and that one undoes the
//! other.

mod coalesce;
mod round_trip;
mod segment;

// A fuzz target needs it, too, and no file is compiled twice.
use crate::corpus::coalesce::packets;
