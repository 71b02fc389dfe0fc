// SPDX-License-Identifier: Apache-2.0
//! Matches and fields on the wire: OpenFlow's extensible match, and Open vSwitch's registers.

use super::reader::{Malformed, Reader};
use crate::rows::model::{Field, Test};

const NXM_0: u16 = 0;
const NXM_1: u16 = 1;
const BASIC: u16 = 0x8000;
const PACKET_REGISTERS: u16 = 0x8001;
const EXPERIMENTER: u16 = 0xffff;
const REGISTERS: u8 = 16;

/// A field's head on the wire.
struct Head {
    field: Field,
    /// The field is several registers: the first one, and how many.
    registers: Option<(u8, u8)>,
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
        let registers = match (class, kind) {
            (PACKET_REGISTERS, pair) if pair < REGISTERS / 2 => Some((pair * 2, 2)),
            (NXM_1, four @ 111..=114) => Some(((four - 111) * 4, 4)),
            _ => None,
        };
        if class == EXPERIMENTER {
            from.skip(4)?; // whose field it is
            bytes = bytes.checked_sub(4).ok_or(Malformed)?;
        }
        if masked && bytes % 2 == 1 {
            return Err(Malformed);
        }
        let bytes = if masked { bytes / 2 } else { bytes };
        Ok(Head { field, registers, masked, bytes })
    }

    /// Whether the bytes are those of the field, so that its value can be compared.
    fn fits(&self) -> bool {
        match self.field {
            Field::Other(_) => match self.registers {
                Some((_, count)) => self.bytes == 4 * usize::from(count),
                None => self.bytes <= 16,
            },
            Field::VlanVid => self.bytes == 2,
            known => self.bytes * 8 == usize::from(known.bits()),
        }
    }
}

/// A field without a value, as actions name it.
pub(super) fn field(from: &mut Reader) -> Result<Field, Malformed> {
    Head::read(from).map(|head| head.field)
}

/// A field with a value and maybe a mask: one test, or one for each register that it consists of.
/// Ok(None): it cannot be compared, but it is whole.
pub(super) fn tests(from: &mut Reader) -> Result<Option<Vec<Test>>, Malformed> {
    let head = Head::read(from)?;
    let value = from.slice(head.bytes)?;
    let mask = if head.masked { Some(from.slice(head.bytes)?) } else { None };
    if !head.fits() {
        return Ok(None);
    }
    let (value, mask) = (number(value), mask.map(number));
    let one = |field: Field, right: u32| {
        let mask = mask.map_or(field.exact(), |mask| mask >> right) & field.exact();
        Test { field, value: value >> right & mask, mask }
    };
    let Some((first, count)) = head.registers else { return Ok(Some(vec![one(head.field, 0)])) };
    // The first register is the highest part.
    let parts = (0..count).map(|at| one(Field::Reg(first + at), 32 * u32::from(count - 1 - at)));
    Ok(Some(parts.filter(|test| test.mask != 0).collect()))
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
        match (self::tests(&mut fields), &mut tests) {
            (Ok(Some(more)), Some(tests)) => tests.extend(more),
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
