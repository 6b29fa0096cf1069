//! Whether a service can do its work now.

use tokio::sync::watch;

/// Whether a service can do its work now. Liveness is another matter: a service whose database is gone
/// is alive and not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It can.
    Ready,
    /// It can, with what was in force before: what that was changed to has a fault. The text says so much; it is
    /// fixed, since anyone may read it.
    Outdated(&'static str),
    /// It cannot; the text says why, for operators.
    NotReady(String),
}

impl Readiness {
    /// True when the service can do its work.
    pub fn is_ready(&self) -> bool {
        !matches!(self, Self::NotReady(_))
    }
}

/// A service: what its callers in this process call, its generated gRPC server for all others, and its readiness.
#[derive(Debug, Clone)]
pub struct Service<S, L = ()> {
    /// The generated server.
    pub server: S,
    /// The methods that callers in this process call as functions; `()` where there are none.
    pub local: L,
    /// Its readiness, now and on every change.
    pub readiness: watch::Receiver<Readiness>,
}
