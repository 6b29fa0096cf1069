//! Whom an edge lets in, in one piece: services on one address share it.

use std::sync::Arc;

use crate::{Authenticator, BodyLimits, Origins};

/// Whom an edge lets in. Cheap enough to clone for each service.
#[derive(Clone)]
pub struct Admission {
    /// Which hosts and pages are welcome.
    pub origins: Origins,
    /// Whose tokens are accepted.
    pub auth: Arc<Authenticator>,
    /// What a body may cost.
    pub body: BodyLimits,
}
