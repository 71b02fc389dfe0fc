// SPDX-License-Identifier: Apache-2.0
//! Actions and instructions on the wire.

use super::oxm;
use super::reader::{Malformed, Reader};
use crate::rows::model::{Action, Test};

const NICIRA: u32 = 0x2320;

/// A list of instructions: only "apply these actions" is known.
pub(super) fn instructions(mut from: Reader) -> Vec<Action> {
    const APPLY_ACTIONS: u16 = 4;
    let mut all = Vec::new();
    while !from.is_empty() {
        let mut read = || {
            let mut one = from.entry(2, 8)?;
            let kind = one.u16()?;
            one.skip(6)?;
            Ok::<_, Malformed>(if kind == APPLY_ACTIONS { Some(one) } else { None })
        };
        match read() {
            Ok(Some(list)) => all.extend(actions(list)),
            Ok(None) => all.push(Action::Unknown),
            Err(Malformed) => {
                all.push(Action::Unknown);
                break;
            }
        }
    }
    all
}

/// A list of actions. What does not follow the layout is an unknown action, and the last one.
pub(super) fn actions(mut from: Reader) -> Vec<Action> {
    let mut all = Vec::new();
    while !from.is_empty() {
        match from.entry(2, 8) {
            Ok(one) => match action(one) {
                Ok(actions) => all.extend(actions),
                Err(Malformed) => all.push(Action::Unknown),
            },
            Err(Malformed) => {
                all.push(Action::Unknown);
                break;
            }
        }
    }
    all
}

fn action(mut from: Reader) -> Result<Vec<Action>, Malformed> {
    let kind = from.u16()?;
    from.skip(2)?; // the length
    Ok(vec![match kind {
        0 => Action::Output(from.u32()?),
        17 => Action::PushVlan(from.u16()?),
        18 => Action::PopVlan,
        22 => Action::Group(from.u32()?),
        25 => {
            let Some(parts) = oxm::tests(&mut from)? else { return Ok(vec![Action::Unknown]) };
            let set = |it: Test| Action::Set { field: it.field, value: it.value, mask: it.mask };
            return Ok(parts.into_iter().map(set).collect());
        }
        28 => {
            let bits = from.u16()?;
            let (from_bit, to_bit) = (from.u16()?, from.u16()?);
            from.skip(2)?;
            let (source, target) = (oxm::field(&mut from)?, oxm::field(&mut from)?);
            Action::Copy { from: (source, from_bit), to: (target, to_bit), bits }
        }
        0xffff if from.u32()? == NICIRA => nicira(from)?,
        _ => Action::Unknown,
    }])
}

fn nicira(mut from: Reader) -> Result<Action, Malformed> {
    const RESUBMIT_TABLE: u16 = 14;
    const SAME_PORT: u16 = 0xfff8;
    const SAME_TABLE: u8 = 0xff;
    let kind = from.u16()?;
    if kind != RESUBMIT_TABLE {
        return Ok(Action::Unknown);
    }
    let (port, table) = (from.u16()?, from.u8()?);
    Ok(match (port, table) {
        (SAME_PORT, table) if table != SAME_TABLE => Action::Resubmit(table),
        _ => Action::Unknown,
    })
}
