// SPDX-License-Identifier: Apache-2.0
//! Finds the rows of a table that a frame might meet.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::frame::Frame;
use super::model::{Bridge, Field, Row};

/// A row and its priority.
pub(super) type Ranked<'a> = (u16, &'a Row);

/// A table's rows by what nearly all rows of long tables ask for: one of the two MAC addresses.
/// Every list goes from high to low priorities.
#[derive(Debug, Default)]
struct Table<'a> {
    by_dst: HashMap<u64, Vec<Ranked<'a>>>,
    by_src: HashMap<u64, Vec<Ranked<'a>>>,
    others: Vec<Ranked<'a>>,
}

/// All tables of a bridge.
#[derive(Debug, Default)]
pub(super) struct Index<'a>(HashMap<u8, Table<'a>>);

impl<'a> Index<'a> {
    pub fn new(bridge: &'a Bridge) -> Index<'a> {
        let mut tables: HashMap<u8, Table> = HashMap::new();
        // The keys are in the order of tables, then of priorities.
        for (key, row) in bridge.rows.iter().rev() {
            let table = tables.entry(key.table).or_default();
            let list = if let Some(dst) = row.exactly(Field::EthDst) {
                table.by_dst.entry(dst as u64).or_default()
            } else if let Some(src) = row.exactly(Field::EthSrc) {
                table.by_src.entry(src as u64).or_default()
            } else {
                &mut table.others
            };
            list.push((key.priority, row));
        }
        Index(tables)
    }

    /// The rows of a table that might take a frame, from high to low priorities.
    pub fn candidates(&self, table: u8, frame: &Frame) -> Vec<Ranked<'a>> {
        let Some(table) = self.0.get(&table) else { return Vec::new() };
        let lists = [table.by_dst.get(&frame.dst), table.by_src.get(&frame.src)];
        let lists = lists.into_iter().flatten().chain([&table.others]);
        let mut all: Vec<Ranked> = lists.flatten().copied().collect();
        all.sort_by_key(|(priority, _)| Reverse(*priority));
        all
    }
}
