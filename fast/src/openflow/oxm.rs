// SPDX-License-Identifier: Apache-2.0
//! Matches and fields on the wire: OpenFlow's extensible match, and Open vSwitch's registers.

use super::reader::{Malformed, Reader};
use crate::rows::model::{Field, Test};

const NXM_0: u16 = 0;
const NXM_1: u16 = 1;
const BASIC: u16 = 0x8000;
const EXPERIMENTER: u16 = 0xffff;
const REGISTERS: u8 = 16;

/// A field's head on the wire.
struct Head {
    field: Field,
    masked: bool,
    bytes: usize,
}

impl Head {
    fn read(from: &mut Reader) -> Result<Head, Malformed> {
        let (class, number, length) = (from.u16()?, from.u8()?, from.u8()?);
        let (kind, masked) = (number >> 1, number & 1 == 1);
        let mut bytes = usize::from(length);
        let field = match (class, kind) {
            (BASIC, 0) => Field::InPort,
            (BASIC, 3) | (NXM_0, 1) => Field::EthDst,
            (BASIC, 4) | (NXM_0, 2) => Field::EthSrc,
            (BASIC, 5) | (NXM_0, 3) => Field::EthType,
            (BASIC, 6) => Field::VlanVid,
            (BASIC, 10) | (NXM_0, 6) => Field::IpProto,
            (BASIC, 13 | 15 | 17) | (NXM_0, 9 | 11) => Field::SourcePort,
            (BASIC, 14 | 16 | 18) | (NXM_0, 10 | 12) => Field::DestinationPort,
            (NXM_1, register) if register < REGISTERS => Field::Reg(register),
            _ => Field::Other(u32::from(class) << 8 | u32::from(kind)),
        };
        if class == EXPERIMENTER {
            from.skip(4)?; // whose field it is
            bytes = bytes.checked_sub(4).ok_or(Malformed)?;
        }
        if masked && bytes % 2 == 1 {
            return Err(Malformed);
        }
        Ok(Head { field, masked, bytes: if masked { bytes / 2 } else { bytes } })
    }

    /// Whether the bytes are those of the field, so that its value can be compared.
    fn fits(&self) -> bool {
        match self.field {
            Field::Other(_) => self.bytes <= 16,
            Field::VlanVid => self.bytes == 2,
            known => self.bytes * 8 == usize::from(known.bits()),
        }
    }
}

/// A field without a value, as actions name it.
pub(super) fn field(from: &mut Reader) -> Result<Field, Malformed> {
    Head::read(from).map(|head| head.field)
}

/// A field with a value and maybe a mask. Ok(None): it cannot be compared, but it is whole.
pub(super) fn test(from: &mut Reader) -> Result<Option<Test>, Malformed> {
    let head = Head::read(from)?;
    let value = from.slice(head.bytes)?;
    let mask = if head.masked { Some(from.slice(head.bytes)?) } else { None };
    if !head.fits() {
        return Ok(None);
    }
    let field = head.field;
    let mask = mask.map_or(field.exact(), number) & field.exact();
    Ok(Some(Test { field, value: number(value) & mask, mask }))
}

/// A match: its tests (None: some of it cannot be read) and its bytes without padding.
pub(super) fn matched<'a>(
    from: &mut Reader<'a>,
) -> Result<(Option<Vec<Test>>, &'a [u8]), Malformed> {
    const STANDARD: u16 = 1;
    let mut whole = *from;
    let (kind, bytes) = (whole.u16()?, usize::from(whole.u16()?));
    let encoded = from.slice(bytes)?;
    from.skip(bytes.next_multiple_of(8) - bytes)?;
    let mut fields = Reader::new(encoded);
    fields.skip(4)?;
    let mut tests = (kind == STANDARD).then(Vec::new);
    while !fields.is_empty() {
        // What no longer follows the layout makes the row unknown, not the message.
        match (test(&mut fields), &mut tests) {
            (Ok(Some(one)), Some(tests)) => tests.push(one),
            (Ok(_), _) => tests = None,
            (Err(Malformed), _) => {
                tests = None;
                break;
            }
        }
    }
    Ok((tests, encoded))
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}
