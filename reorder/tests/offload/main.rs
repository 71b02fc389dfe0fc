//! The offloads with packets built by hand: what is cut, what is merged, and that one undoes the
//! other.

mod coalesce;
mod packets;
mod round_trip;
mod segment;
