//! Whether a service can do its work now.

use tokio::sync::watch;

/// Whether a service can do its work now. Liveness is another matter: a service whose database is gone
/// is alive and not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It can.
    Ready,
    /// It cannot; the text says why, for operators.
    NotReady(String),
}

impl Readiness {
    /// True when the service can do its work.
    pub fn is_ready(&self) -> bool {
        *self == Self::Ready
    }
}

/// A generated gRPC server and its readiness.
#[derive(Debug, Clone)]
pub struct Service<S> {
    /// The generated server.
    pub server: S,
    /// Its readiness, now and on every change.
    pub readiness: watch::Receiver<Readiness>,
}
