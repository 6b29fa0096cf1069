//! The clock and the source of randomness of a program, passed in so that tests can control both.

use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::Timestamp;

/// A clock that tells the current time.
pub trait Clock: Send + Sync {
    /// Returns the current time in UTC.
    fn now(&self) -> Timestamp;
}

/// A source of random bytes that are suitable for keys and ids.
pub trait Entropy: Send + Sync {
    /// Fills the whole of `out` with random bytes.
    fn fill(&self, out: &mut [u8]);
}

/// A clock and a source of randomness. Cheap to clone.
#[derive(Clone)]
pub struct Ambient {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Ambient {
    /// Creates an `Ambient` from any clock and any source of randomness.
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { clock, entropy }
    }

    /// Creates an `Ambient` from the operating system's clock and random source.
    pub fn system() -> Self {
        Self::new(Arc::new(SystemClock), Arc::new(SystemEntropy))
    }

    /// Returns the current time in UTC.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns `N` random bytes.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.entropy.fill(&mut bytes);
        bytes
    }

    /// Returns 32 random bytes in Base64url, for an unguessable value such as an OAuth state or a PKCE code verifier.
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
            .expect("the operating system provides random bytes");
    }
}
