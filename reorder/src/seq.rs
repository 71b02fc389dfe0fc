// SPDX-License-Identifier: Apache-2.0
//! Serial numbers: 32 bits that wrap round.

/// The number of a frame, which wraps round. Such numbers are added and compared in this file only.
///
/// Two numbers compare rightly as long as they are less than 2^31 apart. That is why `Seq` has no
/// `Ord`.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// The number `frames` after this one.
    // With `+` one might add two numbers, which means nothing.
    #[allow(clippy::should_implement_trait)]
    #[must_use]
    pub fn add(self, frames: u32) -> Self {
        Self(self.0.wrapping_add(frames))
    }

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        self.add(1)
    }

    /// How many frames this one is after `other`; negative if it is before it.
    #[must_use]
    pub fn since(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Whether this one is before `other`.
    #[must_use]
    pub fn is_before(self, other: Self) -> bool {
        self.since(other) < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wraps_round() {
        let last = Seq(u32::MAX);
        assert_eq!(last.next(), Seq(0));
        assert_eq!(last.add(3), Seq(2));
        assert_eq!(Seq(2).since(last), 3);
        assert_eq!(last.since(Seq(2)), -3);
        assert!(last.is_before(Seq(0)) && !Seq(0).is_before(last));
    }

    #[test]
    fn far_apart() {
        let far = Seq(0x7fff_ffff);
        assert_eq!(far.since(Seq(0)), i32::MAX);
        assert!(Seq(0).is_before(far));
        assert!(far.next().is_before(Seq(0)), "half way round counts as before");
        assert!(!Seq(7).is_before(Seq(7)));
    }

    proptest! {
        #[test]
        fn since_undoes_add(start: u32, step in 0u32..0x8000_0000) {
            let (first, second) = (Seq(start), Seq(start).add(step));
            prop_assert_eq!(second.since(first), step as i32);
            prop_assert_eq!(first.is_before(second), step > 0);
            prop_assert!(!second.is_before(first));
        }
    }
}
