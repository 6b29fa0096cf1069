//! Readiness of services.

use tokio::sync::watch;

/// Whether a service can do its work now. This differs from liveness: a service without its database is alive, but not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// The service can do its work.
    Ready,
    /// The service can do its work, with its previous configuration because the new one is faulty. The text describes the
    /// problem; it is static because anyone may read it.
    Outdated(&'static str),
    /// The service cannot do its work. The text is the reason, for operators.
    NotReady(String),
}

impl Readiness {
    /// Returns whether the service can do its work.
    pub fn is_ready(&self) -> bool {
        !matches!(self, Self::NotReady(_))
    }
}

/// A service: its functions for callers in this process, its generated gRPC server for other callers, and its readiness.
#[derive(Debug, Clone)]
pub struct Service<S, L = ()> {
    /// The generated gRPC server.
    pub server: S,
    /// The methods that callers in this process call as functions, or `()` if there are none.
    pub local: L,
    /// The current readiness, with notification of changes.
    pub readiness: watch::Receiver<Readiness>,
}
