//! Time and chance, the two things a program takes from outside; passed in, so that tests can set both.

use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::Timestamp;

/// Tells the time of day.
pub trait Clock: Send + Sync {
    /// The current instant, UTC.
    fn now(&self) -> Timestamp;
}

/// Gives random bytes fit for keys and ids.
pub trait Entropy: Send + Sync {
    /// Fills `out` entirely.
    fn fill(&self, out: &mut [u8]);
}

/// A clock and a source of randomness; cheap to clone.
#[derive(Clone)]
pub struct Ambient {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Ambient {
    /// Any clock, any randomness.
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { clock, entropy }
    }

    /// The operating system's clock and random source.
    pub fn system() -> Self {
        Self::new(Arc::new(SystemClock), Arc::new(SystemEntropy))
    }

    /// The current instant, UTC.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// `N` random bytes.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.entropy.fill(&mut bytes);
        bytes
    }

    /// 32 random bytes in Base64url: a state, a verifier, an id that nobody guesses.
    pub fn random_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.random::<32>())
    }
}

impl std::fmt::Debug for Ambient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ambient")
    }
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::from(SystemTime::now())
    }
}

/// The operating system's random source.
#[derive(Debug, Clone, Copy)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(
        clippy::expect_used,
        reason = "without randomness no id or key is safe; the kernel source does not fail once seeded"
    )]
    fn fill(&self, out: &mut [u8]) {
        SystemRandom::new()
            .fill(out)
            .expect("the operating system gives random bytes");
    }
}
