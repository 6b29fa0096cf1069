//! Randomness that a test knows.

use std::sync::Arc;

use wardgate_domain::{Ambient, Entropy};

use crate::TestClock;

/// Randomness of one repeated byte.
struct ConstantEntropy(u8);

impl Entropy for ConstantEntropy {
    fn fill(&self, out: &mut [u8]) {
        out.fill(self.0);
    }
}

fn ambient(byte: u8) -> Ambient {
    let clock = TestClock::at(1_000_000_000);
    Ambient::new(Arc::new(clock), Arc::new(ConstantEntropy(byte)))
}

/// An ambient in which every random wait is the shortest, and time stands still.
pub fn lowest_chance() -> Ambient {
    ambient(0)
}

/// An ambient in which every random wait is the longest, and time stands still.
pub fn highest_chance() -> Ambient {
    ambient(u8::MAX)
}
