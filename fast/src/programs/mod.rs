//! Stub until the real ones come.
#![allow(missing_docs, clippy::all)]
use crate::plan::*;
use std::collections::BTreeMap;
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub port: u32,
    pub name: String,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: &'static str,
    pub text: String,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub sent: BTreeMap<(Mac, PathId), Count>,
    pub arrived: BTreeMap<Arrival, Count>,
    pub dropped: BTreeMap<&'static str, u64>,
}
#[derive(Debug)]
pub struct Programs;
impl Programs {
    pub fn load(_local: &str, _nics: &[Device]) -> Result<Programs, Refusal> {
        Ok(Programs)
    }
    pub fn apply(&mut self, _plan: &Plan) -> Result<(), Refusal> {
        Ok(())
    }
    pub fn attach(&mut self) -> Result<(), Refusal> {
        Ok(())
    }
    pub fn filter_sockets(&mut self, _pid: u32) -> Result<usize, Refusal> {
        Ok(0)
    }
    pub fn counts(&self) -> Result<Counts, Refusal> {
        Ok(Counts::default())
    }
    pub fn unload(_local: &str, _nics: &[Device]) -> Result<(), Refusal> {
        Ok(())
    }
}
