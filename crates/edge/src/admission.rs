//! The admission settings of an edge, which services on one address share.

use std::sync::Arc;

use crate::{Authenticator, BodyLimits, Origins};

/// The checks that every request to an edge has to pass. Cheap to clone for each service.
#[derive(Clone)]
pub struct Admission {
    /// The hosts and origins that are allowed.
    pub origins: Origins,
    /// The authenticator of callers.
    pub auth: Arc<Authenticator>,
    /// The limits of request bodies.
    pub body: BodyLimits,
}
