//! Randomness with values that a test knows.

use std::sync::Arc;

use wardgate_domain::{Ambient, Entropy};

use crate::TestClock;

/// A source of randomness in which every byte is the same.
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

/// Returns an ambient in which every random wait is the shortest and the time does not advance.
pub fn lowest_chance() -> Ambient {
    ambient(0)
}

/// Returns an ambient in which every random wait is the longest and the time does not advance.
pub fn highest_chance() -> Ambient {
    ambient(u8::MAX)
}
