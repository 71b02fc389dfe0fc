// SPDX-License-Identifier: Apache-2.0
//! What becomes of a class of frames.

use super::frame::Counted;
use crate::plan::{Left, Mac, SLOTS};

/// A frame that leaves the bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub port: u32,
    pub src: Mac,
    pub dst: Mac,
    pub vlan: Option<u16>,
    /// The row that counts it.
    pub counted: Option<Counted>,
}

/// What becomes of a frame. Two outcomes are equal only if nobody could tell them apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The frame is dropped.
    Nothing,
    /// The frame is sent once, in the same way for the whole class.
    Sent(Sent),
    /// The frame is sent once, and the flow's hash says how.
    Slots(Box<[Sent; SLOTS]>),
    /// All frames of the class go to the helper, each once and in the same way.
    ToHelper(Sent),
    /// Only the bridge knows.
    Left(Left),
}

impl Outcome {
    /// What becomes of a frame with which first this happens, and then `next`.
    pub fn then(self, next: Outcome) -> Outcome {
        match (self, next) {
            (Outcome::Nothing, one) | (one, Outcome::Nothing) => one,
            (one, next) => match (one.mixed(), next.mixed()) {
                (Outcome::Left(a), Outcome::Left(b)) => Outcome::Left(clearer(a, b)),
                (Outcome::Left(why), _) | (_, Outcome::Left(why)) => Outcome::Left(why),
                // Two frames of one: the programs send one.
                _ => Outcome::Left(Left::Unsupported),
            },
        }
    }

    /// What becomes of frames of which some have this outcome and some have `other`.
    pub fn or(self, other: Outcome) -> Outcome {
        if self == other {
            return self;
        }
        match (self.mixed(), other.mixed()) {
            (Outcome::Left(a), Outcome::Left(b)) => Outcome::Left(clearer(a, b)),
            (Outcome::Left(Left::Striped), _) | (_, Outcome::Left(Left::Striped)) => {
                Outcome::Left(Left::Striped)
            }
            _ => Outcome::Left(Left::Undecided),
        }
    }

    /// What this is as a part of something else: then not all frames go to the helper alone.
    pub fn mixed(self) -> Outcome {
        match self {
            Outcome::ToHelper(_) => Outcome::Left(Left::Striped),
            other => other,
        }
    }
}

/// Of two reasons, the one that says more to a person.
fn clearer(a: Left, b: Left) -> Left {
    let rank = |left| match left {
        Left::Striped => 0,
        Left::Undecided => 1,
        Left::Unsupported => 2,
        Left::TooMany => 3,
    };
    if rank(a) <= rank(b) {
        a
    } else {
        b
    }
}
