// SPDX-License-Identifier: Apache-2.0
//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address. Addresses are ordered as numbers: "the lower MAC" in the documents.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// No host's address. It stands for "none" where an address may be missing.
    pub const NONE: Self = Self([0; 6]);
    /// Everybody's address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it is a group's address. Everybody's address is one, too.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not an Ethernet address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadMac(String);

impl fmt::Display for BadMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no Ethernet address: six bytes like 02:00:00:00:00:01 are needed",
            self.0
        )
    }
}

impl std::error::Error for BadMac {}

impl FromStr for Mac {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let bad = || BadMac(text.to_string());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts
                .next()
                .filter(|part| part.len() == 2 && !part.starts_with('+'))
                .ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        match parts.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_is_no_address() {
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:",
            "2:0:0:0:0:1",
            "02:00:00:00:00:0g",
            "+2:00:00:00:00:01",
        ] {
            let error = text.parse::<Mac>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is no")), "{error}");
        }
    }

    #[test]
    fn knows_groups_and_order() {
        assert!(Mac::BROADCAST.is_multicast() && Mac([1, 0, 0x5e, 0, 0, 1]).is_multicast());
        assert!(!Mac([2, 0, 0, 0, 0, 1]).is_multicast());
        assert!(Mac([2, 0, 0, 0, 1, 0]) > Mac([2, 0, 0, 0, 0, 0xff]));
    }

    proptest! {
        #[test]
        fn text_and_back(bytes: [u8; 6]) {
            prop_assert_eq!(Mac(bytes).to_string().parse(), Ok(Mac(bytes)));
        }
    }
}
